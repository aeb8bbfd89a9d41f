// How CUDA C++ and OpenCL C differ, as one table; KernelPrinter prints everything else alike.
#ifndef HEDDLE_MEASURE_CODEGEN_DIALECTS_H_
#define HEDDLE_MEASURE_CODEGEN_DIALECTS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "search_space/ir/expr.h"
#include "search_space/ir/target.h"

namespace heddle::measure {

// Qualifiers end with a space where they are not empty.
struct Dialect {
  search_space::Api api;
  const char* long_type;  // 64-bit integer
  const char* long_suffix;
  const char* byte_type;  // unsigned, also how a bool is kept in memory
  const char* global;     // address space of a pointer
  const char* shared;
  const char* restrict_pointer;
  const char* shared_array;          // storage class of the block's arena
  const char* dynamic_shared_array;  // the same, sized at launch
  const char* aligned;               // 16 bytes
  const char* block_index;
  const char* thread_index;
  const char* barrier;
  const char* helper;  // storage class of a helper function
};
const Dialect& DialectOf(search_space::Api api);

// "float", "float4". Widths above 1 only for what one 16-byte access holds.
std::string TypeName(const Dialect& dialect, search_space::DType type, int lanes = 1);

// A literal that reads back as exactly `value` rounded to `type`; infinities and NaN included.
std::string FloatLiteral(const Dialect& dialect, double value, search_space::DType type);
std::string IntLiteral(const Dialect& dialect, int64_t value);

// "make_float4(a, b, c, d)"
std::string VectorOf(const Dialect& dialect, search_space::DType type,
                     const std::vector<std::string>& lanes);

// The function that computes a unary or binary operation that has no operator; precise forms only.
// The name of a helper defined by Prelude is added to `helpers`.
std::string FunctionName(const Dialect& dialect, search_space::Op op, search_space::DType type,
                         std::set<std::string>& helpers);

// What stands before a kernel that uses `helpers` and, when `float64`, double precision.
std::string Prelude(const Dialect& dialect, const std::set<std::string>& helpers, bool float64);

// Everything of a kernel's declaration before its name.
std::string KernelQualifiers(const Dialect& dialect, int64_t threads, int min_blocks);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_DIALECTS_H_
