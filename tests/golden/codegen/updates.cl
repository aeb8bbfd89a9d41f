// a test
// k0_B: grid 1, block 64, shared memory 0 bytes

#pragma OPENCL FP_CONTRACT ON

static inline void atomic_sum_i32_global(volatile __global int* at, int value) { atomic_add(at, value); }

// What is there becomes its sum with the value, whatever other threads do meanwhile.
static inline void atomic_sum_f32_global(volatile __global float* at, float value) {
  volatile __global uint* bits = (volatile __global uint*)at;
  uint had = *bits, seen;
  do {
    seen = had;
    had = atomic_cmpxchg(bits, seen, as_uint(as_float(seen) + value));
  } while (had != seen);
}

// What is there becomes the max of it and the value, or stays NaN, whatever other threads do
// meanwhile.
static inline void atomic_max_f32_global(volatile __global float* at, float value) {
  volatile __global uint* bits = (volatile __global uint*)at;
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
static inline void atomic_min_f32_global(volatile __global float* at, float value) {
  volatile __global uint* bits = (volatile __global uint*)at;
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
    __global float* restrict B,
    __global int* restrict C,
    __global float* restrict D,
    __global float* restrict E) {
  const int thread = get_local_id(0);
  atomic_sum_f32_global(&B[min(max(I[thread], 0), 7) * 4], A[thread * 4]);
  atomic_sum_i32_global(&C[min(max(I[thread], 0), 7)], 1);
  atomic_max_f32_global(&D[min(max(I[thread], 0), 7)], A[thread * 4]);
  atomic_min_f32_global(&E[min(max(I[thread], 0), 7)], A[thread * 4]);
}
