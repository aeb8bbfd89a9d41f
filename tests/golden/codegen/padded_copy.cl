// a test
// k0_Y: grid 1, block 32, shared memory 0 bytes

#pragma OPENCL FP_CONTRACT ON

__kernel __attribute__((reqd_work_group_size(32, 1, 1)))
void k0_Y(__global const float* restrict g_X,
    __global float* restrict g_Y) {
  const int v_thread = get_local_id(0);
  float r_R[4];
  #pragma unroll
  for (int v_e = 0; v_e < 4; ++v_e) {
    const int p = 1 <= v_e * 32 + v_thread && v_e * 32 + v_thread < 65;
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
