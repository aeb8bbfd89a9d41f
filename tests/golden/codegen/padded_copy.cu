// a test
// k0_Y: grid 1, block 32, shared memory 0 bytes

extern "C" __global__ void __launch_bounds__(32)
k0_Y(const float* __restrict__ g_X,
    float* __restrict__ g_Y) {
  const int v_thread = threadIdx.x;
  float r_R[4];
  #pragma unroll
  for (int v_e = 0; v_e < 4; ++v_e) {
    const bool p = 1 <= v_e * 32 + v_thread && v_e * 32 + v_thread < 65;
    const float x_X = g_X[p ? v_e * 32 + v_thread - 1 : 0];
    r_R[v_e] = (p ? x_X : 0.0f);
  }
  #pragma unroll
  for (int v_e = 0; v_e < 4; ++v_e) {
    if (v_e * 32 + v_thread < 66) {
      g_Y[v_e * 32 + v_thread] = r_R[v_e];
    }
  }
}
