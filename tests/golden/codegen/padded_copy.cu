// a test
// k0_Y: grid 1, block 32, shared memory 0 bytes

extern "C" __global__ void __launch_bounds__(32)
k0_Y(const float* __restrict__ X,
    float* __restrict__ Y) {
  const int thread = threadIdx.x;
  float R[4];
  #pragma unroll
  for (int e = 0; e < 4; ++e) {
    const bool condition = 1 <= e * 32 + thread && e * 32 + thread < 65;
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
