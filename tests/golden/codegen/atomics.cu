// a test
// k0_B: grid 1, block 64, shared memory 160 bytes

static __device__ __forceinline__ void atomic_sum_i32(int* at, int value) { atomicAdd(at, value); }

static __device__ __forceinline__ void atomic_sum_f32(float* at, float value) { atomicAdd(at, value); }

// What is there becomes its product with the value, whatever other threads do meanwhile.
static __device__ __forceinline__ void atomic_prod_f32(float* at, float value) {
  unsigned had = *(volatile unsigned*)at, seen;
  do {
    seen = had;
    had = atomicCAS((unsigned*)at, seen, __float_as_uint(__uint_as_float(seen) * value));
  } while (had != seen);
}

// What is there becomes the larger of it and the value, or stays NaN, whatever other threads do
// meanwhile. Bits of floats are in their order as integers: those of negative ones, without a sign,
// in the reverse order, and behind them all those of a NaN.
static __device__ __forceinline__ void atomic_max_f32(float* at, float value) {
  const int bits = value == value ? __float_as_int(value) : 0x7fffffff;
  if (bits >= 0) atomicMax((int*)at, bits);
  else atomicMin((unsigned*)at, (unsigned)bits);
}

// What is there becomes the smaller of it and the value, or stays NaN, whatever other threads do
// meanwhile. Bits of floats are in their order as integers: those of negative ones, without a sign,
// in the reverse order, and behind them all those of a NaN.
static __device__ __forceinline__ void atomic_min_f32(float* at, float value) {
  const int bits = value == value ? __float_as_int(value) : 0xffffffff;
  if (bits >= 0) atomicMin((int*)at, bits);
  else atomicMax((unsigned*)at, (unsigned)bits);
}

extern "C" __global__ void __launch_bounds__(64)
k0_B(const float* __restrict__ A,
    const int* __restrict__ I,
    float* __restrict__ B) {
  const int thread = threadIdx.x;
  __shared__ __align__(16) unsigned char arena[160];
  int* const n = (int*)arena;
  float* const total = (float*)(arena + 32);
  float* const product = (float*)(arena + 64);
  float* const greatest = (float*)(arena + 96);
  float* const least = (float*)(arena + 128);
  if (thread < 8) {
    n[thread] = 0;
    total[thread] = 0.0f;
    product[thread] = 1.0f;
    greatest[thread] = -__int_as_float(0x7f800000);
    least[thread] = __int_as_float(0x7f800000);
  }
  __syncthreads();
  atomic_sum_i32(&n[min(max(I[thread], 0), 7)], 1);
  atomic_sum_f32(&total[min(max(I[thread], 0), 7)], A[thread]);
  atomic_prod_f32(&product[min(max(I[thread], 0), 7)], A[thread]);
  atomic_max_f32(&greatest[min(max(I[thread], 0), 7)], A[thread]);
  atomic_min_f32(&least[min(max(I[thread], 0), 7)], A[thread]);
  __syncthreads();
  if (thread < 8) {
    B[thread] = (float)n[thread] + total[thread] + product[thread] + greatest[thread] + least[thread];
  }
}
