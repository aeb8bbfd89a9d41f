// a test
// k0_C: grid 8, block 128, shared memory 0 bytes

extern "C" __global__ void __launch_bounds__(128)
k0_C(const float* __restrict__ A,
    const float* __restrict__ B,
    float* __restrict__ C) {
  const int block = blockIdx.x;
  const int thread = threadIdx.x;
  const float4 A_vector = *(const float4*)&A[block * 512 + thread * 4];
  const float4 B_vector = *(const float4*)&B[block * 512 + thread * 4];
  *(float4*)&C[block * 512 + thread * 4] = make_float4(A_vector.x + B_vector.x, A_vector.y + B_vector.y, A_vector.z + B_vector.z, A_vector.w + B_vector.w);
}
