// a test
// k0_B: grid 6, block 256, shared memory 4224 bytes

extern "C" __global__ void __launch_bounds__(256)
k0_B(const float* __restrict__ g_A,
    float* __restrict__ g_B) {
  const int v_block = blockIdx.x;
  const int v_thread = threadIdx.x;
  __shared__ __align__(16) unsigned char arena[4224];
  float* const s_A_shared = (float*)arena;
  // A.shared: 32 x 32, one padding element a row
  const float* const p_A = &g_A[(v_block / 3) * 3072 + (v_thread / 32) * 96 + (v_block % 3) * 32 + (v_thread % 32)];
  float* const p_A_shared = &s_A_shared[(v_thread / 32) * 33 + (v_thread % 32)];
  #pragma unroll
  for (int v_e = 0; v_e < 4; ++v_e) {
    p_A_shared[v_e * 264] = p_A[v_e * 768];
  }
  __syncthreads();
  const float* const p_A_shared_2 = &s_A_shared[(v_thread % 32) * 33 + (v_thread / 32)];
  float* const p_B = &g_B[(v_block % 3) * 2048 + (v_thread / 32) * 64 + (v_block / 3) * 32 + (v_thread % 32)];
  #pragma unroll
  for (int v_e = 0; v_e < 4; ++v_e) {
    p_B[v_e * 512] = p_A_shared_2[v_e * 8];
  }
}
