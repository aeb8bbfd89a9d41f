// a test
// k0_B: grid 6, block 256, shared memory 4224 bytes

extern "C" __global__ void __launch_bounds__(256)
k0_B(const float* __restrict__ A,
    float* __restrict__ B) {
  const int block = blockIdx.x;
  const int thread = threadIdx.x;
  __shared__ __align__(16) unsigned char arena[4224];
  float* const A_shared = (float*)arena;
  // A.shared: 32 x 32, one padding element a row
  const float* const A_ptr = &A[(block / 3) * 3072 + (thread / 32) * 96 + (block % 3) * 32 + (thread % 32)];
  float* const A_shared_ptr = &A_shared[(thread / 32) * 33 + (thread % 32)];
  #pragma unroll
  for (int e = 0; e < 4; ++e) {
    A_shared_ptr[e * 264] = A_ptr[e * 768];
  }
  __syncthreads();
  const float* const A_shared_ptr_b = &A_shared[(thread % 32) * 33 + (thread / 32)];
  float* const B_ptr = &B[(block % 3) * 2048 + (thread / 32) * 64 + (block / 3) * 32 + (thread % 32)];
  #pragma unroll
  for (int e = 0; e < 4; ++e) {
    B_ptr[e * 512] = A_shared_ptr_b[e * 8];
  }
}
