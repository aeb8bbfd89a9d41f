// What CUDA kernels call: helpers.h says how this is read.
//// nan_max_f32 max larger >
//// nan_min_f32 min smaller <
// The $2 of two; NaN when either is NaN.
$helper float $0(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("$1.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a $3 b || a != a ? a : b;
#endif
}
//// nan_max_f64 larger >
//// nan_min_f64 smaller <
// The $1 of two; NaN when either is NaN.
$helper double $0(double a, double b) { return a $2 b || a != a ? a : b; }
//// atomic_sum_i32
//// atomic_sum_i32_global
$helper void $0(int* at, int value) { atomicAdd(at, value); }
//// atomic_sum_f32
//// atomic_sum_f32_global
$helper void $0(float* at, float value) { atomicAdd(at, value); }
//// atomic_sum_f32x2_global
// The same of two elements side by side.
$helper void $0(float* at, float a, float b) {
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};"
               : : "l"(__cvta_generic_to_global(at)), "f"(a), "f"(b) : "memory");
}
//// atomic_sum_f32x4_global
// The same of four elements side by side.
$helper void $0(float* at, float a, float b, float c, float d) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               : : "l"(__cvta_generic_to_global(at)), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}
//// atomic_prod_f32
//// atomic_prod_f32_global
// What is there becomes its product with the value, whatever other threads do meanwhile.
$helper void $0(float* at, float value) {
  unsigned had = *(volatile unsigned*)at, seen;
  do {
    seen = had;
    had = atomicCAS((unsigned*)at, seen, __float_as_uint(__uint_as_float(seen) * value));
  } while (had != seen);
}
//// atomic_max_f32 larger 0x7fffffff Max Min
//// atomic_max_f32_global larger 0x7fffffff Max Min
//// atomic_min_f32 smaller 0xffffffff Min Max
//// atomic_min_f32_global smaller 0xffffffff Min Max
// What is there becomes the $1 of it and the value, or stays NaN, whatever other threads do
// meanwhile. Bits of floats are in their order as integers: those of negative ones, without a sign,
// in the reverse order, and behind them all those of a NaN.
$helper void $0(float* at, float value) {
  const int bits = value == value ? __float_as_int(value) : $2;
  if (bits >= 0) atomic$3((int*)at, bits);
  else atomic$4((unsigned*)at, (unsigned)bits);
}
//// load_matrix
// Blocks of 8 x 8 elements of 16 bits from shared memory, spread over the lanes of the warp:
// lane 8 * b + r names row r of block b (column r, where transposed).
template <int kBlocks, bool kTransposed>
$helper void load_matrix(unsigned* to, const void* row) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(row);
  if (kBlocks == 4 && kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
  } else if (kBlocks == 4) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
  } else if (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1]) : "r"(address) : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1]) : "r"(address) : "memory");
  }
}
//// round_tf32
// To numbers of tf32, ties away from zero.
template <int kCount>
$helper void round_tf32(unsigned* x) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x[i]) : "f"(__uint_as_float(x[i])));
}
//// mma_m16n8k16_float16 16 f16
//// mma_m16n8k16_bfloat16 16 bf16
//// mma_m16n8k8_tf32 8 tf32
// d += a * b of a warp: 16 x $1, 16 x 8 and $1 x 8 elements, spread over its lanes.
$helper void $0(float* d, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k$1.row.col.f32.$2.$2.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
//// products
// Where instructions of a warpgroup find a matrix in swizzled shared memory, so many times 16 bytes
// into a buffer: in lines of kLine bytes. What is longer goes on kBlock bytes further.
template <int kLine, int kBlock>
$helper unsigned long long matrix_descriptor(const void* buffer, int offset) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(buffer);
  const unsigned low = (address >> 4) + offset | (unsigned)(kBlock / 16) << 16;
  const unsigned mode = kLine == 128 ? 1 : kLine == 64 ? 2 : 3;
  unsigned long long r;
  asm("mov.b64 %0, {%1, %2};" : "=l"(r) : "r"(low), "r"((unsigned)(kLine / 2) | mode << 30));
  return r;
}
// What stands before and behind stays there.
template <int kCount>
$helper void keep(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i]) : : "memory");
}
template <int kCount>
$helper void operand_fence(float (&d)[kCount]) {
  keep(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
$helper void product_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending, int kCount>
$helper void product_wait(float (&d)[kCount]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  keep(d);
}
$helper void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
//// held_operand
// An operand in registers, of elements of 16 bits.
template <typename Element, int kCount>
$helper void operand_fence(Element (&a)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    asm volatile("" : "+r"(((unsigned*)a)[i]) : : "memory");
  }
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
//// phases
// What cuTensorMapEncodeTiled makes of a tensor.
struct __align__(64) TensorMap { unsigned long long words[16]; };
// Each counts the bytes of one phase after another (mbarrier).
template <int kCount>
$helper void phase_init(long long* phases) {
  for (int i = 0; i < kCount; ++i) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;"
                 : : "r"((unsigned)__cvta_generic_to_shared(phases + i)) : "memory");
  }
}
// The phase ends when so many bytes have come.
$helper void phase_expect(long long* phase, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               : : "r"((unsigned)__cvta_generic_to_shared(phase)), "r"(bytes) : "memory");
}
// Until the phase of this parity has ended.
$helper void phase_wait(long long* phase, int parity) {
  asm volatile("{.reg .pred ended; again: "
               "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1; @!ended bra again;}"
               : : "r"((unsigned)__cvta_generic_to_shared(phase)), "r"(parity) : "memory");
}
// The first warp goes on when all threads have come to this number, the others at once.
template <int kThreads>
$helper void hand_back(int number) {
  __syncwarp();
  if (threadIdx.x < 32) {
    asm volatile("bar.sync %0, %1;" : : "r"(number + 1), "n"(kThreads) : "memory");
  } else {
    asm volatile("bar.arrive %0, %1;" : : "r"(number + 1), "n"(kThreads) : "memory");
  }
}
//// async_copy
// Starts copying kBytes from global to shared memory; zeros instead where `valid` is false.
template <int kBytes>
$helper void async_copy(void* to, const void* from, bool valid) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(to);
  const int bytes = valid ? kBytes : 0;
  if (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address),
                 "l"(__cvta_generic_to_global(from)), "n"(kBytes), "r"(bytes) : "memory");
  }
}
template <int kBytes>
$helper void async_copy(void* to, const void* from) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(to);
  if (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address),
                 "l"(__cvta_generic_to_global(from)) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address),
                 "l"(__cvta_generic_to_global(from)), "n"(kBytes) : "memory");
  }
}
// Closes the group of copies started since the last commit.
$helper void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending groups of this thread are unfinished.
template <int kPending>
$helper void async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
//// choose
// Both numbers are there when it chooses.
$helper float choose(bool condition, float a, float b) { return condition ? a : b; }
//// rough_divide
// a / b, off by 2^-22 of it.
$helper float rough_divide(float a, float b) {
  float r;
  asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
//// rough_exp2
// 2^x, off by 2^-22 of it.
$helper float rough_exp2(float x) {
  float r;
  asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
//// rough_exp2_or_zero
// 2^x, off by 2^-22 of it; 0 where it is less than 2^-126.
$helper float rough_exp2_or_zero(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
//// rough_sigmoid .approx
//// rough_sigmoid_or_zero .approx.ftz
// 1 / (1 + e^-x), off by 2^-17 of it; of the second what is less than 2^-126 is 0.
$helper float $0(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * -1.44269504f));
  asm("rcp$1.f32 %0, %1;" : "=f"(r) : "f"(1.0f + r));
  return r;
}
//// rough_log
// Off by 2^-18 of it: 2^-22 and the factor's rounding, but near 1, where the error is as large and
// the logarithm is not, by a series.
$helper float rough_log(float x) {
  float r;
  asm("lg2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  const float t = x - 1.0f;
  const float series = t * (1.0f + t * (-0.5f + t * (0.333333333f - t * 0.25f)));
  return fabsf(t) < 0.0625f ? series : r * 0.693147181f;
}
//// rough_power
// x^y of a constant y of at most 16 that is no integer: the exponent of 2 is off by 2^-21.6 of it,
// or by y * 2^-22 where x is near 1. NaN where x is less than 0, -infinity included.
$helper float rough_power(float x, float y) {
  float r;
  asm("lg2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(y * r));
  return r;
}
//// from_float16
$helper float from_float16(unsigned short x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}
//// to_float16
// The nearest, ties to even.
$helper unsigned short to_float16(float x) {
  unsigned short r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
//// from_bfloat16
$helper float from_bfloat16(unsigned short x) {
  return __uint_as_float((unsigned)x << 16);
}
//// from_bfloat16_pairs
// Of two numbers in one register.
$helper float from_first_bfloat16(const unsigned short* pair) {
  return __uint_as_float(*(const unsigned*)pair << 16);
}
$helper float from_second_bfloat16(const unsigned short* pair) {
  return __uint_as_float(*(const unsigned*)pair & 0xffff0000);
}
//// to_bfloat16
// The nearest, ties to even.
$helper unsigned short to_bfloat16(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned short r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
#else
  const unsigned bits = __float_as_uint(x);
  return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
#endif
}
//// to_tf32
// The nearest, ties away from zero.
$helper float to_tf32(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return __uint_as_float(r);
#else
  return x != x ? x : __uint_as_float((__float_as_uint(x) + 0x1000) & 0xffffe000);
#endif
}
//// pack_float16
// The nearest of two, ties to even, the first in the lower half.
$helper unsigned pack_float16(float first, float second) {
  unsigned r;
  asm("{ .reg .f16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }"
      : "=r"(r) : "f"(first), "f"(second));
  return r;
}
//// pack_bfloat16
// The nearest of two, ties to even, the first in the lower half.
$helper unsigned pack_bfloat16(float first, float second) {
  unsigned r;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(second), "f"(first));
#else
  r = 0;
  const float both[] = {second, first};
  for (float x : both) {
    const unsigned bits = __float_as_uint(x);
    r = r << 16 | (x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
#endif
  return r;
}
//// pairs
// Two 16-bit numbers in one register.
$helper unsigned pair_of(unsigned short first, unsigned short second) {
  return first | (unsigned)second << 16;
}
$helper unsigned short first_of(unsigned pair) { return (unsigned short)pair; }
$helper unsigned short second_of(unsigned pair) { return (unsigned short)(pair >> 16); }
