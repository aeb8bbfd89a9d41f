// a test
// k0_Y: grid 1, block 16, shared memory 0 bytes

#pragma OPENCL FP_CONTRACT ON

__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void k0_Y(__global const float* restrict X,
    __global float* restrict Y) {
  const int thread = get_local_id(0);
  for (int k = 0; k < 4; ++k) {
    float R[2];
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int condition = k * 32 + e * 16 + thread < 77;
      const float X_value = X[condition ? k * 32 + e * 16 + thread : 0];
      R[e] = (condition ? X_value : 0.0f);
    }
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (k * 32 + e * 16 + thread < 99) {
        Y[k * 32 + e * 16 + thread] = R[e];
      }
    }
  }
}
