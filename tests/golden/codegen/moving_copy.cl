// a test
// k0_Y: grid 1, block 16, shared memory 0 bytes

#pragma OPENCL FP_CONTRACT ON

__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void k0_Y(__global const float* restrict g_X,
    __global float* restrict g_Y) {
  const int v_thread = get_local_id(0);
  for (int v_k = 0; v_k < 4; ++v_k) {
    float r_R[2];
    #pragma unroll
    for (int v_e = 0; v_e < 2; ++v_e) {
      const int p = v_k * 32 + v_e * 16 + v_thread < 77;
      const float x_X = g_X[p ? v_k * 32 + v_e * 16 + v_thread : 0];
      r_R[v_e] = (p ? x_X : 0.0f);
    }
    #pragma unroll
    for (int v_e = 0; v_e < 2; ++v_e) {
      if (v_k * 32 + v_e * 16 + v_thread < 99) {
        g_Y[v_k * 32 + v_e * 16 + v_thread] = r_R[v_e];
      }
    }
  }
}
