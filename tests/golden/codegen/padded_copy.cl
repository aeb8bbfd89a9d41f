// a test
// k0_Y: grid 1, block 32, shared memory 0 bytes

#pragma OPENCL FP_CONTRACT ON

__kernel __attribute__((reqd_work_group_size(32, 1, 1)))
void k0_Y(__global const float* restrict X,
    __global float* restrict Y) {
  const int thread = get_local_id(0);
  float R[4];
  #pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int condition = 1 <= e * 32 + thread && e * 32 + thread < 65;
    const float X_value = X[condition ? e * 32 + thread - 1 : 0];
    R[e] = (condition ? X_value : 0.0f);
  }
  #pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (e * 32 + thread < 66) {
      Y[e * 32 + thread] = R[e];
    }
  }
}
