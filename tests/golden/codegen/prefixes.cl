// a test
// k0_B: grid 1, block 64, shared memory 0 bytes

#pragma OPENCL FP_CONTRACT ON

// The larger of two; NaN when either is NaN.
static inline float nan_max_f32(float a, float b) { return a > b || a != a ? a : b; }

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void k0_B(__global const float* restrict A,
    __global float* restrict B) {
  const int thread = get_local_id(0);
  __local float lanes[64];
  float r[2];
  r[0] = A[thread];
  r[1] = A[thread];
  barrier(CLK_LOCAL_MEM_FENCE);
  lanes[thread] = r[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  r[0] = 0.0f;
  for (int lane = thread - thread % 16; lane < thread; ++lane) {
    const float other = lanes[lane];
    r[0] += other;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  lanes[thread] = r[1];
  barrier(CLK_LOCAL_MEM_FENCE);
  r[1] = -INFINITY;
  for (int lane = thread + 1; lane < thread - thread % 32 + 32; ++lane) {
    const float other = lanes[lane];
    r[1] = nan_max_f32(r[1], other);
  }
  B[thread] = r[0] + r[1];
}
