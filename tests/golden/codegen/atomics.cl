// a test
// k0_B: grid 1, block 64, shared memory 160 bytes

#pragma OPENCL FP_CONTRACT ON

static inline void atomic_sum_i32(volatile __local int* at, int value) { atomic_add(at, value); }

// What is there becomes its sum with the value, whatever other threads do meanwhile.
static inline void atomic_sum_f32(volatile __local float* at, float value) {
  volatile __local uint* bits = (volatile __local uint*)at;
  uint had = *bits, seen;
  do {
    seen = had;
    had = atomic_cmpxchg(bits, seen, as_uint(as_float(seen) + value));
  } while (had != seen);
}

// What is there becomes its product with the value, whatever other threads do meanwhile.
static inline void atomic_prod_f32(volatile __local float* at, float value) {
  volatile __local uint* bits = (volatile __local uint*)at;
  uint had = *bits, seen;
  do {
    seen = had;
    had = atomic_cmpxchg(bits, seen, as_uint(as_float(seen) * value));
  } while (had != seen);
}

// What is there becomes the max of it and the value, or stays NaN, whatever other threads do
// meanwhile.
static inline void atomic_max_f32(volatile __local float* at, float value) {
  volatile __local uint* bits = (volatile __local uint*)at;
  uint had = *bits, seen;
  do {
    seen = had;
    const float old = as_float(seen);
    if (old >= value || old != old) return;
    had = atomic_cmpxchg(bits, seen, as_uint(value));
  } while (had != seen);
}

// What is there becomes the min of it and the value, or stays NaN, whatever other threads do
// meanwhile.
static inline void atomic_min_f32(volatile __local float* at, float value) {
  volatile __local uint* bits = (volatile __local uint*)at;
  uint had = *bits, seen;
  do {
    seen = had;
    const float old = as_float(seen);
    if (old <= value || old != old) return;
    had = atomic_cmpxchg(bits, seen, as_uint(value));
  } while (had != seen);
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void k0_B(__global const float* restrict A,
    __global const int* restrict I,
    __global float* restrict B) {
  const int thread = get_local_id(0);
  __local __attribute__((aligned(16))) uchar arena[160];
  __local int* const n = (__local int*)arena;
  __local float* const total = (__local float*)(arena + 32);
  __local float* const product = (__local float*)(arena + 64);
  __local float* const greatest = (__local float*)(arena + 96);
  __local float* const least = (__local float*)(arena + 128);
  if (thread < 8) {
    n[thread] = 0;
    total[thread] = 0.0f;
    product[thread] = 1.0f;
    greatest[thread] = -INFINITY;
    least[thread] = INFINITY;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  atomic_sum_i32(&n[min(max(I[thread], 0), 7)], 1);
  atomic_sum_f32(&total[min(max(I[thread], 0), 7)], A[thread]);
  atomic_prod_f32(&product[min(max(I[thread], 0), 7)], A[thread]);
  atomic_max_f32(&greatest[min(max(I[thread], 0), 7)], A[thread]);
  atomic_min_f32(&least[min(max(I[thread], 0), 7)], A[thread]);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (thread < 8) {
    B[thread] = (float)n[thread] + total[thread] + product[thread] + greatest[thread] + least[thread];
  }
}
