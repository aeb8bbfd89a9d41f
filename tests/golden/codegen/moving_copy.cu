// a test
// k0_Y: grid 1, block 16, shared memory 0 bytes

extern "C" __global__ void __launch_bounds__(16)
k0_Y(const float* __restrict__ g_X,
    float* __restrict__ g_Y) {
  const int v_thread = threadIdx.x;
  const float* p_X = &g_X[v_thread];
  for (int v_k = 0; v_k < 4; ++v_k, p_X += 32) {
    float r_R[2];
    #pragma unroll
    for (int v_e = 0; v_e < 2; ++v_e) {
      const float x_X = v_k * 32 + v_e * 16 + v_thread < 77 ? p_X[v_e * 16] : 0.0f;
      r_R[v_e] = x_X;
    }
    float* const p_Y = &g_Y[v_k * 32 + v_thread];
    #pragma unroll
    for (int v_e = 0; v_e < 2; ++v_e) {
      if (v_k * 32 + v_e * 16 + v_thread < 99) {
        p_Y[v_e * 16] = r_R[v_e];
      }
    }
  }
}
