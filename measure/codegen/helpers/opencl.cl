// What OpenCL kernels call: helpers.h says how this is read.
//// nan_max_f32 larger >
//// nan_min_f32 smaller <
// The $1 of two; NaN when either is NaN.
$helper float $0(float a, float b) { return a $2 b || a != a ? a : b; }
//// nan_max_f64 larger >
//// nan_min_f64 smaller <
// The $1 of two; NaN when either is NaN.
$helper double $0(double a, double b) { return a $2 b || a != a ? a : b; }
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
