#include "measure/codegen/dialects.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/substitute.h"
#include "base/check.h"
#include "measure/codegen/made_helpers.h"
#include "search_space/ir/background.h"
#include "search_space/ir/float_format.h"

namespace heddle::measure {
namespace {

using search_space::Api;
using search_space::DType;
using search_space::IsHalf;
using search_space::IsNarrow;
using search_space::Op;

// CUDA's and OpenCL's own fmax and fmin drop a NaN; the notation's max and min propagate it.
constexpr HelperRow kCudaHelpers[] = {
    {"nan_max_f32", R"(// The larger of two; NaN when either is NaN.
$helperfloat nan_max_f32(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a > b || a != a ? a : b;
#endif
}
)"},
    {"nan_min_f32", R"(// The smaller of two; NaN when either is NaN.
$helperfloat nan_min_f32(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a < b || a != a ? a : b;
#endif
}
)"},
    {"nan_max_f64", R"(// The larger of two; NaN when either is NaN.
$helperdouble nan_max_f64(double a, double b) { return a > b || a != a ? a : b; }
)"},
    {"nan_min_f64", R"(// The smaller of two; NaN when either is NaN.
$helperdouble nan_min_f64(double a, double b) { return a < b || a != a ? a : b; }
)"},
    {"load_matrix",
     R"(// Blocks of 8 x 8 elements of 16 bits from shared memory, spread over the lanes of the warp:
// lane 8 * b + r names row r of block b (column r, where transposed).
template <int kBlocks, bool kTransposed>
$helpervoid load_matrix(unsigned* to, const void* row) {
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
)"},
    {"round_tf32", R"(// To numbers of tf32, ties away from zero.
template <int kCount>
$helpervoid round_tf32(unsigned* x) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x[i]) : "f"(__uint_as_float(x[i])));
}
)"},
    {"mma_m16n8k16_float16",
     R"(// d += a * b of a warp: 16 x 16, 16 x 8 and 16 x 8 elements, spread over its lanes.
$helpervoid mma_m16n8k16_float16(float* d, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
)"},
    {"mma_m16n8k16_bfloat16",
     R"(// d += a * b of a warp: 16 x 16, 16 x 8 and 16 x 8 elements, spread over its lanes.
$helpervoid mma_m16n8k16_bfloat16(float* d, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
)"},
    {"mma_m16n8k8_tf32",
     R"(// d += a * b of a warp: 16 x 8, 16 x 8 and 8 x 8 elements, spread over its lanes.
$helpervoid mma_m16n8k8_tf32(float* d, const unsigned* a, const unsigned* b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
)"},
    {"products",
     R"(// Where instructions of a warpgroup find a matrix in swizzled shared memory, so many times 16 bytes
// into a buffer: in lines of kLine bytes. What is longer goes on kBlock bytes further.
template <int kLine, int kBlock>
$helperunsigned long long matrix_descriptor(const void* buffer, int offset) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(buffer);
  const unsigned low = (address >> 4) + offset | (unsigned)(kBlock / 16) << 16;
  const unsigned mode = kLine == 128 ? 1 : kLine == 64 ? 2 : 3;
  unsigned long long r;
  asm("mov.b64 %0, {%1, %2};" : "=l"(r) : "r"(low), "r"((unsigned)(kLine / 2) | mode << 30));
  return r;
}
// What stands before and behind stays there.
template <int kCount>
$helpervoid keep(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i]) : : "memory");
}
template <int kCount>
$helpervoid operand_fence(float (&d)[kCount]) {
  keep(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
$helpervoid product_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending, int kCount>
$helpervoid product_wait(float (&d)[kCount]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  keep(d);
}
$helpervoid proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
)"},
    {"held_operand",
     R"(// An operand in registers, of elements of 16 bits.
template <typename Element, int kCount>
$helpervoid operand_fence(Element (&a)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    asm volatile("" : "+r"(((unsigned*)a)[i]) : : "memory");
  }
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
)"},
    {"phases",
     R"(// What cuTensorMapEncodeTiled makes of a tensor.
struct __align__(64) TensorMap { unsigned long long words[16]; };
// Each counts the bytes of one phase after another (mbarrier).
template <int kCount>
$helpervoid phase_init(long long* phases) {
  for (int i = 0; i < kCount; ++i) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;"
                 : : "r"((unsigned)__cvta_generic_to_shared(phases + i)) : "memory");
  }
}
// The phase ends when so many bytes have come.
$helpervoid phase_expect(long long* phase, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               : : "r"((unsigned)__cvta_generic_to_shared(phase)), "r"(bytes) : "memory");
}
// Until the phase of this parity has ended.
$helpervoid phase_wait(long long* phase, int parity) {
  asm volatile("{.reg .pred ended; again: "
               "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1; @!ended bra again;}"
               : : "r"((unsigned)__cvta_generic_to_shared(phase)), "r"(parity) : "memory");
}
// The first warp goes on when all threads have come to this number, the others at once.
template <int kThreads>
$helpervoid hand_back(int number) {
  __syncwarp();
  if (threadIdx.x < 32) {
    asm volatile("bar.sync %0, %1;" : : "r"(number + 1), "n"(kThreads) : "memory");
  } else {
    asm volatile("bar.arrive %0, %1;" : : "r"(number + 1), "n"(kThreads) : "memory");
  }
}
)"},
    {"async_copy",
     R"(// Starts copying kBytes from global to shared memory; zeros instead where `valid` is false.
template <int kBytes>
$helpervoid async_copy(void* to, const void* from, bool valid) {
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
$helpervoid async_copy(void* to, const void* from) {
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
$helpervoid async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending groups of this thread are unfinished.
template <int kPending>
$helpervoid async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
)"},
    {"rough_divide", R"(// a / b, off by 2^-22 of it.
$helperfloat rough_divide(float a, float b) {
  float r;
  asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
)"},
    {"rough_exp2", R"(// 2^x, off by 2^-22 of it.
$helperfloat rough_exp2(float x) {
  float r;
  asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
)"},
    {"rough_exp2_or_zero", R"(// 2^x, off by 2^-22 of it; 0 where it is less than 2^-126.
$helperfloat rough_exp2_or_zero(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
)"},
    {"from_float16", R"($helperfloat from_float16(unsigned short x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}
)"},
    {"to_float16", R"(// The nearest, ties to even.
$helperunsigned short to_float16(float x) {
  unsigned short r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
)"},
    {"from_bfloat16", R"($helperfloat from_bfloat16(unsigned short x) {
  return __uint_as_float((unsigned)x << 16);
}
)"},
    {"from_bfloat16_pairs", R"(// Of two numbers in one register.
$helperfloat from_first_bfloat16(const unsigned short* pair) {
  return __uint_as_float(*(const unsigned*)pair << 16);
}
$helperfloat from_second_bfloat16(const unsigned short* pair) {
  return __uint_as_float(*(const unsigned*)pair & 0xffff0000);
}
)"},
    {"to_bfloat16", R"(// The nearest, ties to even.
$helperunsigned short to_bfloat16(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned short r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
#else
  const unsigned bits = __float_as_uint(x);
  return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
#endif
}
)"},
    {"to_tf32", R"(// The nearest, ties away from zero.
$helperfloat to_tf32(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return __uint_as_float(r);
#else
  return x != x ? x : __uint_as_float((__float_as_uint(x) + 0x1000) & 0xffffe000);
#endif
}
)"},
    {"pack_float16", R"(// The nearest of two, ties to even, the first in the lower half.
$helperunsigned pack_float16(float first, float second) {
  unsigned r;
  asm("{ .reg .f16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }"
      : "=r"(r) : "f"(first), "f"(second));
  return r;
}
)"},
    {"pack_bfloat16", R"(// The nearest of two, ties to even, the first in the lower half.
$helperunsigned pack_bfloat16(float first, float second) {
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
)"},
    {"pairs", R"(// Two 16-bit numbers in one register.
$helperunsigned pair_of(unsigned short first, unsigned short second) {
  return first | (unsigned)second << 16;
}
$helperunsigned short first_of(unsigned pair) { return (unsigned short)pair; }
$helperunsigned short second_of(unsigned pair) { return (unsigned short)(pair >> 16); }
)"},
};

constexpr HelperRow kOpenClHelpers[] = {
    {"nan_max_f32", R"(// The larger of two; NaN when either is NaN.
$helperfloat nan_max_f32(float a, float b) { return a > b || a != a ? a : b; }
)"},
    {"nan_min_f32", R"(// The smaller of two; NaN when either is NaN.
$helperfloat nan_min_f32(float a, float b) { return a < b || a != a ? a : b; }
)"},
    {"nan_max_f64", R"(// The larger of two; NaN when either is NaN.
$helperdouble nan_max_f64(double a, double b) { return a > b || a != a ? a : b; }
)"},
    {"nan_min_f64", R"(// The smaller of two; NaN when either is NaN.
$helperdouble nan_min_f64(double a, double b) { return a < b || a != a ? a : b; }
)"},
    {"from_float16",
     R"($helperfloat from_float16(ushort x) { return vload_half(0, (const half*)&x); }
)"},
    {"to_float16", R"(// The nearest, ties to even.
$helperushort to_float16(float x) {
  ushort r;
  vstore_half_rte(x, 0, (half*)&r);
  return r;
}
)"},
    {"from_bfloat16", R"($helperfloat from_bfloat16(ushort x) { return as_float((uint)x << 16); }
)"},
    {"to_bfloat16", R"(// The nearest, ties to even.
$helperushort to_bfloat16(float x) {
  const uint bits = as_uint(x);
  return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
)"},
    {"to_tf32", R"(// The nearest, ties away from zero.
$helperfloat to_tf32(float x) {
  return x != x ? x : as_float((as_uint(x) + 0x1000) & 0xffffe000);
}
)"},
};

// For NVRTC's sake addresses are counted from pointers, and nests are written out.
constexpr Pass kCudaPasses[] = {WriteOutUpdates, UnrollRotatingRegisters, CountFromPointers};
constexpr Pass kOpenClPasses[] = {UnrollRotatingRegisters};

std::string CudaQualifiers(int64_t threads, int min_blocks) {
  const std::string blocks = min_blocks > 0 ? absl::StrCat(", ", min_blocks) : "";
  return absl::StrCat("extern \"C\" __global__ void __launch_bounds__(", threads, blocks, ")\n");
}

std::string OpenClQualifiers(int64_t threads, int /*min_blocks*/) {
  return absl::StrCat("__kernel __attribute__((reqd_work_group_size(", threads, ", 1, 1)))\nvoid ");
}

constexpr Dialect kDialects[] = {
    {
        .api = Api::kCuda,
        .name = "cuda",
        .long_type = "long long",
        .long_vector = "longlong",
        .long_suffix = "LL",
        .byte_type = "unsigned char",
        .bool_type = "bool",
        .nan32 = "__int_as_float(0x7fffffff)",
        .nan64 = "__longlong_as_double(0x7ff8000000000000LL)",
        .infinity32 = "__int_as_float(0x7f800000)",
        .infinity64 = "__longlong_as_double(0x7ff0000000000000LL)",
        .vector_of = {"make_", ""},
        .function32 = "f",
        .rough_exp2 = "rough_exp2",
        .rough_exp2_or_zero = "rough_exp2_or_zero",
        .rough_divide = "rough_divide",
        .packs = true,
        .global = "",
        .shared = "",
        .restrict_pointer = "__restrict__ ",
        .shared_array = "__shared__ ",
        .dynamic_shared_array = "extern __shared__ ",
        .aligned = "__align__($0) ",
        .block_index = "blockIdx.x",
        .thread_index = "threadIdx.x",
        .barrier = "__syncthreads();",
        .shuffle = "__shfl_xor_sync",
        .shuffle_up = "__shfl_up_sync",
        .shuffle_down = "__shfl_down_sync",
        .async_copies = true,
        .helper = "static __device__ __forceinline__ ",
        .helpers = kCudaHelpers,
        .prelude = "",
        .prelude64 = "",
        .qualifiers = CudaQualifiers,
        .passes = kCudaPasses,
    },
    {
        .api = Api::kOpenCl,
        .name = "opencl",
        .long_type = "long",
        .long_vector = "long",
        .long_suffix = "L",
        .byte_type = "uchar",
        .bool_type = "int",
        .nan32 = "NAN",
        .nan64 = "((double)NAN)",
        .infinity32 = "INFINITY",
        .infinity64 = "((double)INFINITY)",
        .vector_of = {"(", ")"},
        .function32 = "",
        .rough_exp2 = nullptr,
        .rough_exp2_or_zero = nullptr,
        .rough_divide = nullptr,
        .packs = false,
        .global = "__global ",
        .shared = "__local ",
        .restrict_pointer = "restrict ",
        .shared_array = "__local ",
        .dynamic_shared_array = nullptr,
        .aligned = "__attribute__((aligned($0))) ",
        .block_index = "get_group_id(0)",
        .thread_index = "get_local_id(0)",
        .barrier = "barrier(CLK_LOCAL_MEM_FENCE);",
        .shuffle = nullptr,
        .shuffle_up = nullptr,
        .shuffle_down = nullptr,
        .async_copies = false,
        .helper = "static inline ",
        .helpers = kOpenClHelpers,
        .prelude = "#pragma OPENCL FP_CONTRACT ON\n\n",
        .prelude64 = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n",
        .qualifiers = OpenClQualifiers,
        .passes = kOpenClPasses,
    },
};

}  // namespace

std::string Aligned(const Dialect& dialect, int64_t bytes) {
  return absl::Substitute(dialect.aligned, bytes);
}

absl::Span<const Dialect> Dialects() { return kDialects; }

const Dialect& DialectOf(Api api) {
  for (const Dialect& dialect : kDialects) {
    if (dialect.api == api) return dialect;
  }
  HEDDLE_CHECK(false, "a target without a dialect");
}

const Dialect* FindDialect(absl::string_view name) {
  for (const Dialect& dialect : kDialects) {
    if (name == dialect.name) return &dialect;
  }
  return nullptr;
}

std::vector<std::string> ApiNames() {
  std::vector<std::string> names;
  for (const Dialect& dialect : kDialects) names.push_back(dialect.name);
  return names;
}

namespace {

// CUDA has no vectors of 8 elements: those of 16 bits go in pairs.
bool IsPacked(const Dialect& dialect, DType type, int lanes) {
  return dialect.api == Api::kCuda && IsHalf(type) && lanes == 8;
}

constexpr const char* kComponents[] = {".x", ".y", ".z", ".w"};

}  // namespace

std::string TypeName(const Dialect& dialect, DType type, int lanes) {
  const std::string width = lanes > 1 ? absl::StrCat(lanes) : "";
  switch (type) {
    case DType::kBool:
      return absl::StrCat(lanes > 1 ? "uchar" : dialect.byte_type, width);
    case DType::kInt32:
      return absl::StrCat("int", width);
    case DType::kInt64:
      return absl::StrCat(lanes > 1 ? dialect.long_vector : dialect.long_type, width);
    case DType::kFloat16:
    case DType::kBFloat16:
      if (IsPacked(dialect, type, lanes)) return "uint4";
      return lanes > 1 ? "ushort" + width : "unsigned short";
    case DType::kTF32:
    case DType::kFloat32:
      return absl::StrCat("float", width);
    case DType::kFloat64:
      return absl::StrCat("double", width);
  }
  HEDDLE_CHECK(false, "a type without a name");
}

std::string FloatLiteral(const Dialect& dialect, double value, DType type) {
  const bool is_double = type == DType::kFloat64;
  if (IsHalf(type)) return absl::StrFormat("0x%04x", HalfBits(type, value));
  if (!is_double) value = static_cast<float>(value);
  if (std::isnan(value)) return is_double ? dialect.nan64 : dialect.nan32;
  if (std::isinf(value)) {
    return absl::StrCat(value > 0 ? "" : "-", is_double ? dialect.infinity64 : dialect.infinity32);
  }
  // The shortest of three precisions that reads back exactly; 9 and 17 digits always do.
  std::string text;
  for (int digits : {6, is_double ? 15 : 9, is_double ? 17 : 9}) {
    text = absl::StrFormat("%.*g", digits, value);
    const double back = std::strtod(text.c_str(), nullptr);
    if ((is_double ? back : static_cast<float>(back)) == value) break;
  }
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return is_double ? text : text + "f";
}

std::string IntLiteral(const Dialect& dialect, int64_t value) {
  const bool narrow = value > INT32_MIN && value <= INT32_MAX;
  return absl::StrCat(value, narrow ? "" : dialect.long_suffix);
}

std::string VectorOf(const Dialect& dialect, DType type, const std::vector<std::string>& lanes,
                     std::set<std::string>& helpers) {
  const auto width = static_cast<int>(lanes.size());
  std::vector<std::string> parts = lanes;
  if (IsPacked(dialect, type, width)) {
    helpers.insert("pairs");
    parts.clear();
    for (size_t i = 0; i < lanes.size(); i += 2) {
      parts.push_back(absl::StrCat("pair_of(", lanes[i], ", ", lanes[i + 1], ")"));
    }
  }
  return absl::StrCat(dialect.vector_of[0], TypeName(dialect, type, width), dialect.vector_of[1],
                      "(", absl::StrJoin(parts, ", "), ")");
}

std::string LaneOf(const Dialect& dialect, DType type, const std::string& vector, int lanes,
                   int lane, std::set<std::string>& helpers) {
  if (lanes <= 4) return vector + kComponents[lane];
  if (!IsPacked(dialect, type, lanes)) return absl::StrCat(vector, ".s", lane);
  helpers.insert("pairs");
  return absl::StrCat(lane % 2 == 0 ? "first_of(" : "second_of(", vector, kComponents[lane / 2],
                      ")");
}

std::string ConvertNarrow(DType to, DType from, const std::string& text,
                          std::set<std::string>& helpers) {
  std::string out = text;
  if (IsHalf(from)) {
    const std::string name = absl::StrCat("from_", search_space::NameOf(from));
    helpers.insert(name);
    out = absl::StrCat(name, "(", out, ")");
  }
  if (IsNarrow(to)) {
    const std::string name = absl::StrCat("to_", search_space::NameOf(to));
    helpers.insert(name);
    out = absl::StrCat(name, "(", out, ")");
  }
  return out;
}

std::string FunctionName(const Dialect& dialect, Op op, DType type,
                         std::set<std::string>& helpers) {
  if (op == Op::kMax || op == Op::kMin) {
    const std::string name =
        absl::StrCat("nan_", search_space::NameOf(op), type == DType::kFloat64 ? "_f64" : "_f32");
    helpers.insert(name);
    return name;
  }
  const std::string name = op == Op::kAbs ? "fabs" : search_space::NameOf(op);
  return type == DType::kFloat64 ? name : name + dialect.function32;
}

std::string Prelude(const Dialect& dialect, const std::set<std::string>& helpers, bool float64) {
  std::string out = absl::StrCat(float64 ? dialect.prelude64 : "", dialect.prelude);
  for (const HelperRow& row : dialect.helpers) {
    if (helpers.count(row.name) == 0) continue;
    out += absl::StrReplaceAll(row.text, {{"$helper", dialect.helper}});
    out += "\n";
  }
  VisitMadeHelpers([&](const std::string& name, auto text) {
    if (helpers.count(name) > 0) absl::StrAppend(&out, text(dialect), "\n");
  });
  return out;
}

}  // namespace heddle::measure
