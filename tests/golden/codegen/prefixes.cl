// a test
// k0_B: grid 1, block 64, shared memory 0 bytes

#pragma OPENCL FP_CONTRACT ON

// The larger of two; NaN when either is NaN.
static inline float nan_max_f32(float a, float b) { return a > b || a != a ? a : b; }

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void k0_B(__global const float* restrict g_A,
    __global float* restrict g_B) {
  const int v_thread = get_local_id(0);
  __local float lanes[64];
  float r_r[2];
  r_r[0] = g_A[v_thread];
  r_r[1] = g_A[v_thread];
  barrier(CLK_LOCAL_MEM_FENCE);
  lanes[v_thread] = r_r[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  r_r[0] = 0.0f;
  for (int lane = v_thread - v_thread % 16; lane < v_thread; ++lane) {
    const float other = lanes[lane];
    r_r[0] += other;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  lanes[v_thread] = r_r[1];
  barrier(CLK_LOCAL_MEM_FENCE);
  r_r[1] = -INFINITY;
  for (int lane = v_thread + 1; lane < v_thread - v_thread % 32 + 32; ++lane) {
    const float other = lanes[lane];
    r_r[1] = nan_max_f32(r_r[1], other);
  }
  g_B[v_thread] = r_r[0] + r_r[1];
}
