// a test
// k0_Y: grid 1, block 16, shared memory 0 bytes

extern "C" __global__ void __launch_bounds__(16)
k0_Y(const float* __restrict__ X,
    float* __restrict__ Y) {
  const int thread = threadIdx.x;
  const float* X_ptr = &X[thread];
  for (int k = 0; k < 4; ++k, X_ptr += 32) {
    float R[2];
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float X_value = k * 32 + e * 16 + thread < 77 ? X_ptr[e * 16] : 0.0f;
      R[e] = X_value;
    }
    float* const Y_ptr = &Y[k * 32 + thread];
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (k * 32 + e * 16 + thread < 99) {
        Y_ptr[e * 16] = R[e];
      }
    }
  }
}
