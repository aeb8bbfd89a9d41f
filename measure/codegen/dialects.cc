#include "measure/codegen/dialects.h"

#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "base/check.h"
#include "measure/codegen/helper_texts.h"
#include "search_space/ir/expr/float_format.h"

namespace heddle::measure {
namespace {

using search_space::Api;
using search_space::DType;
using search_space::IsHalf;
using search_space::IsNarrow;
using search_space::Op;

// For NVRTC's sake addresses are counted from pointers, and nests are written out.
constexpr Pass kCudaPasses[] = {HoistInvariants, WriteOutUpdates, UnrollRotatingRegisters,
                                CountFromPointers};
constexpr Pass kOpenClPasses[] = {HoistInvariants, UnrollRotatingRegisters};

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
        .most_lanes = 4,
        .function32 = "f",
        .approximates = true,
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
        .most_lanes = 16,
        .function32 = "",
        .global = "__global ",
        .shared = "__local ",
        .restrict_pointer = "restrict ",
        .shared_array = "__local ",
        .aligned = "__attribute__((aligned($0))) ",
        .block_index = "get_group_id(0)",
        .thread_index = "get_local_id(0)",
        .barrier = "barrier(CLK_LOCAL_MEM_FENCE);",
        .helper = "static inline ",
        .helpers = kOpenClHelpers,
        .prelude = "#pragma OPENCL FP_CONTRACT ON\n\n",
        .prelude64 = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n",
        .qualifiers = OpenClQualifiers,
        .passes = kOpenClPasses,
    },
};

// Numbers of 16 bits go in pairs where there are no vectors of so many.
bool IsPacked(const Dialect& dialect, DType type, int lanes) {
  return IsHalf(type) && lanes > dialect.most_lanes;
}

constexpr const char* kComponents[] = {".x", ".y", ".z", ".w"};

}  // namespace

const char* AddressSpace(const Dialect& dialect, search_space::Scope scope) {
  return scope == search_space::Scope::kGlobal ? dialect.global : dialect.shared;
}

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
  const auto call = [&](const char* way, DType type) {
    const std::string name = absl::StrCat(way, search_space::NameOf(type));
    helpers.insert(name);
    out = absl::StrCat(name, "(", out, ")");
  };
  if (IsHalf(from)) call("from_", from);
  if (IsNarrow(to)) call("to_", to);
  return out;
}

std::string FunctionName(const Dialect& dialect, Op op, DType type,
                         std::set<std::string>& helpers) {
  // The languages' own fmax and fmin drop a NaN; the notation's max and min propagate it.
  if (op == Op::kMax || op == Op::kMin) {
    const std::string name =
        absl::StrCat("nan_", search_space::NameOf(op), type == DType::kFloat64 ? "_f64" : "_f32");
    helpers.insert(name);
    return name;
  }
  const std::string name = op == Op::kAbs ? "fabs" : search_space::NameOf(op);
  return type == DType::kFloat64 ? name : name + dialect.function32;
}

}  // namespace heddle::measure
