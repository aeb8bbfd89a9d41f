#include "measure/codegen/dialects.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace heddle::measure {
namespace {

using search_space::Api;
using search_space::DType;
using search_space::Op;

constexpr Dialect kCuda = {
    .api = Api::kCuda,
    .long_type = "long long",
    .long_suffix = "LL",
    .byte_type = "unsigned char",
    .global = "",
    .shared = "",
    .restrict_pointer = "__restrict__ ",
    .shared_array = "__shared__ ",
    .dynamic_shared_array = "extern __shared__ ",
    .aligned = "__align__(16) ",
    .block_index = "blockIdx.x",
    .thread_index = "threadIdx.x",
    .barrier = "__syncthreads();",
    .helper = "static __device__ __forceinline__ ",
};

constexpr Dialect kOpenCl = {
    .api = Api::kOpenCl,
    .long_type = "long",
    .long_suffix = "L",
    .byte_type = "uchar",
    .global = "__global ",
    .shared = "__local ",
    .restrict_pointer = "restrict ",
    .shared_array = "__local ",
    .dynamic_shared_array = "__local ",
    .aligned = "__attribute__((aligned(16))) ",
    .block_index = "get_group_id(0)",
    .thread_index = "get_local_id(0)",
    .barrier = "barrier(CLK_LOCAL_MEM_FENCE);",
    .helper = "static inline ",
};

// A helper function, or several that belong together. $helper stands for the dialect's storage
// class.
struct HelperRow {
  const char* name;
  Api api;
  const char* text;
};

// CUDA's and OpenCL's own fmax and fmin drop a NaN; the notation's max and min propagate it.
constexpr HelperRow kHelpers[] = {
    {"nan_max_f32", Api::kCuda, R"(// The larger of two; NaN when either is NaN.
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
    {"nan_min_f32", Api::kCuda, R"(// The smaller of two; NaN when either is NaN.
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
    {"nan_max_f32", Api::kOpenCl, R"(// The larger of two; NaN when either is NaN.
$helperfloat nan_max_f32(float a, float b) { return a > b || a != a ? a : b; }
)"},
    {"nan_min_f32", Api::kOpenCl, R"(// The smaller of two; NaN when either is NaN.
$helperfloat nan_min_f32(float a, float b) { return a < b || a != a ? a : b; }
)"},
    {"nan_max_f64", Api::kCuda, R"(// The larger of two; NaN when either is NaN.
$helperdouble nan_max_f64(double a, double b) { return a > b || a != a ? a : b; }
)"},
    {"nan_min_f64", Api::kCuda, R"(// The smaller of two; NaN when either is NaN.
$helperdouble nan_min_f64(double a, double b) { return a < b || a != a ? a : b; }
)"},
    {"nan_max_f64", Api::kOpenCl, R"(// The larger of two; NaN when either is NaN.
$helperdouble nan_max_f64(double a, double b) { return a > b || a != a ? a : b; }
)"},
    {"nan_min_f64", Api::kOpenCl, R"(// The smaller of two; NaN when either is NaN.
$helperdouble nan_min_f64(double a, double b) { return a < b || a != a ? a : b; }
)"},
    {"async_copy", Api::kCuda,
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
};

}  // namespace

const Dialect& DialectOf(Api api) { return api == Api::kCuda ? kCuda : kOpenCl; }

std::string TypeName(const Dialect& dialect, DType type, int lanes) {
  const std::string width = lanes > 1 ? absl::StrCat(lanes) : "";
  switch (type) {
    case DType::kBool:
      return absl::StrCat(lanes > 1 ? "uchar" : dialect.byte_type, width);
    case DType::kInt64:
      return lanes > 1 && dialect.api == Api::kCuda ? absl::StrCat("longlong", width)
                                                    : absl::StrCat(dialect.long_type, width);
    case DType::kFloat16:
      return absl::StrCat(dialect.api == Api::kCuda ? "__half" : "half", width);
    case DType::kBFloat16:
      return absl::StrCat("__nv_bfloat16", width);
    case DType::kFloat32:
      return absl::StrCat("float", width);
    case DType::kFloat64:
      return absl::StrCat("double", width);
  }
  std::abort();
}

std::string FloatLiteral(const Dialect& dialect, double value, DType type) {
  const bool cuda = dialect.api == Api::kCuda, is_double = type == DType::kFloat64;
  if (!is_double) value = static_cast<float>(value);
  if (std::isnan(value)) {
    if (!cuda) return is_double ? "((double)NAN)" : "NAN";
    return is_double ? "__longlong_as_double(0x7ff8000000000000LL)" : "__int_as_float(0x7fffffff)";
  }
  if (std::isinf(value)) {
    std::string infinity = !cuda       ? (is_double ? "((double)INFINITY)" : "INFINITY")
                           : is_double ? "__longlong_as_double(0x7ff0000000000000LL)"
                                       : "__int_as_float(0x7f800000)";
    return value > 0 ? infinity : absl::StrCat("-", infinity);
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

std::string VectorOf(const Dialect& dialect, DType type, const std::vector<std::string>& lanes) {
  const std::string name = TypeName(dialect, type, static_cast<int>(lanes.size()));
  return absl::StrCat(dialect.api == Api::kCuda ? "make_" : "(", name,
                      dialect.api == Api::kCuda ? "(" : ")(", absl::StrJoin(lanes, ", "), ")");
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
  return dialect.api == Api::kCuda && type != DType::kFloat64 ? name + "f" : name;
}

std::string Prelude(const Dialect& dialect, const std::set<std::string>& helpers, bool float64) {
  std::string out;
  if (dialect.api == Api::kOpenCl) {
    if (float64) out += "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n";
    out += "#pragma OPENCL FP_CONTRACT ON\n\n";
  }
  for (const HelperRow& row : kHelpers) {
    if (row.api != dialect.api || helpers.count(row.name) == 0) continue;
    out += absl::StrReplaceAll(row.text, {{"$helper", dialect.helper}});
    out += "\n";
  }
  return out;
}

std::string KernelQualifiers(const Dialect& dialect, int64_t threads, int min_blocks) {
  if (dialect.api == Api::kOpenCl) {
    return absl::StrCat("__kernel __attribute__((reqd_work_group_size(", threads, ", 1, 1)))\n",
                        "void ");
  }
  const std::string blocks = min_blocks > 0 ? absl::StrCat(", ", min_blocks) : "";
  return absl::StrCat("extern \"C\" __global__ void __launch_bounds__(", threads, blocks, ")\n");
}

}  // namespace heddle::measure
