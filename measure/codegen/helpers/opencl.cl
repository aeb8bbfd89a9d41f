// What OpenCL kernels call: helpers.h says how this is read.
//// nan_max_f32 larger >
//// nan_min_f32 smaller <
// The $1 of two; NaN when either is NaN.
$helper float $0(float a, float b) { return a $2 b || a != a ? a : b; }
//// nan_max_f64 larger >
//// nan_min_f64 smaller <
// The $1 of two; NaN when either is NaN.
$helper double $0(double a, double b) { return a $2 b || a != a ? a : b; }
//// atomic_sum_i32 __local
//// atomic_sum_i32_global __global
$helper void $0(volatile $1 int* at, int value) { atomic_add(at, value); }
//// atomic_sum_f32 sum + __local
//// atomic_prod_f32 product * __local
//// atomic_sum_f32_global sum + __global
//// atomic_prod_f32_global product * __global
// What is there becomes its $1 with the value, whatever other threads do meanwhile.
$helper void $0(volatile $3 float* at, float value) {
  volatile $3 uint* bits = (volatile $3 uint*)at;
  uint had = *bits, seen;
  do {
    seen = had;
    had = atomic_cmpxchg(bits, seen, as_uint(as_float(seen) $2 value));
  } while (had != seen);
}
//// atomic_max_f32 max >= __local
//// atomic_min_f32 min <= __local
//// atomic_max_f32_global max >= __global
//// atomic_min_f32_global min <= __global
// What is there becomes the $1 of it and the value, or stays NaN, whatever other threads do
// meanwhile.
$helper void $0(volatile $3 float* at, float value) {
  volatile $3 uint* bits = (volatile $3 uint*)at;
  uint had = *bits, seen;
  do {
    seen = had;
    const float old = as_float(seen);
    if (old $2 value || old != old) return;
    had = atomic_cmpxchg(bits, seen, as_uint(value));
  } while (had != seen);
}
//// from_float16
$helper float from_float16(ushort x) { return vload_half(0, (const half*)&x); }
//// to_float16
// The nearest, ties to even.
$helper ushort to_float16(float x) {
  ushort r;
  vstore_half_rte(x, 0, (half*)&r);
  return r;
}
//// from_bfloat16
$helper float from_bfloat16(ushort x) { return as_float((uint)x << 16); }
//// to_bfloat16
// The nearest, ties to even.
$helper ushort to_bfloat16(float x) {
  const uint bits = as_uint(x);
  return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
//// to_tf32
// The nearest, ties away from zero.
$helper float to_tf32(float x) {
  return x != x ? x : as_float((as_uint(x) + 0x1000) & 0xffffe000);
}
