// a test
// k0_B: grid 1, block 64, shared memory 0 bytes

static __device__ __forceinline__ void atomic_sum_i32_global(int* at, int value) { atomicAdd(at, value); }

static __device__ __forceinline__ void atomic_sum_f32_global(float* at, float value) { atomicAdd(at, value); }

// What is there becomes the larger of it and the value, or stays NaN, whatever other threads do
// meanwhile. Bits of floats are in their order as integers: those of negative ones, without a sign,
// in the reverse order, and behind them all those of a NaN.
static __device__ __forceinline__ void atomic_max_f32_global(float* at, float value) {
  const int bits = value == value ? __float_as_int(value) : 0x7fffffff;
  if (bits >= 0) atomicMax((int*)at, bits);
  else atomicMin((unsigned*)at, (unsigned)bits);
}

// What is there becomes the smaller of it and the value, or stays NaN, whatever other threads do
// meanwhile. Bits of floats are in their order as integers: those of negative ones, without a sign,
// in the reverse order, and behind them all those of a NaN.
static __device__ __forceinline__ void atomic_min_f32_global(float* at, float value) {
  const int bits = value == value ? __float_as_int(value) : 0xffffffff;
  if (bits >= 0) atomicMin((int*)at, bits);
  else atomicMax((unsigned*)at, (unsigned)bits);
}

extern "C" __global__ void __launch_bounds__(64)
k0_B(const float* __restrict__ A,
    const int* __restrict__ I,
    float* __restrict__ B,
    int* __restrict__ C,
    float* __restrict__ D,
    float* __restrict__ E) {
  const int thread = threadIdx.x;
  atomic_sum_f32_global(&B[min(max(I[thread], 0), 7) * 4], A[thread * 4]);
  atomic_sum_i32_global(&C[min(max(I[thread], 0), 7)], 1);
  atomic_max_f32_global(&D[min(max(I[thread], 0), 7)], A[thread * 4]);
  atomic_min_f32_global(&E[min(max(I[thread], 0), 7)], A[thread * 4]);
}
