// a test
// k0_B: grid 1, block 64, shared memory 0 bytes

// The larger of two; NaN when either is NaN.
static __device__ __forceinline__ float nan_max_f32(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a > b || a != a ? a : b;
#endif
}

extern "C" __global__ void __launch_bounds__(64)
k0_B(const float* __restrict__ A,
    float* __restrict__ B) {
  const int thread = threadIdx.x;
  float r[2];
  r[0] = A[thread];
  r[1] = A[thread];
  #pragma unroll
  for (int distance = 1; distance < 16; distance *= 2) {
    const float other = __shfl_up_sync(0xffffffffu, r[0], distance, 16);
    if (thread % 16 >= distance) {
      r[0] += other;
    }
  }
  r[0] = __shfl_up_sync(0xffffffffu, r[0], 1, 16);
  if (thread % 16 == 0) r[0] = 0.0f;
  #pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const float other = __shfl_down_sync(0xffffffffu, r[1], distance, 32);
    if (thread % 32 + distance < 32) {
      r[1] = nan_max_f32(r[1], other);
    }
  }
  r[1] = __shfl_down_sync(0xffffffffu, r[1], 1, 32);
  if (thread % 32 == 31) r[1] = -__int_as_float(0x7f800000);
  B[thread] = r[0] + r[1];
}
