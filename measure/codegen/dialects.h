// How CUDA C++ and OpenCL C differ, as one table; everything else is printed alike.
#ifndef HEDDLE_MEASURE_CODEGEN_DIALECTS_H_
#define HEDDLE_MEASURE_CODEGEN_DIALECTS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "measure/codegen/passes/passes.h"
#include "search_space/ir/expr/expr.h"
#include "search_space/ir/target.h"

namespace heddle::measure {

// Qualifiers end with a space where they are not empty. A row leaves out what there is none of.
struct Dialect {
  search_space::Api api;
  const char* name;         // "cuda": of the API, in messages and files
  const char* long_type;    // 64-bit integer
  const char* long_vector;  // the name of a vector of them, without its width
  const char* long_suffix;
  const char* byte_type;  // unsigned, also how a bool is kept in memory
  const char* bool_type;  // of a variable
  const char* nan32;
  const char* nan64;
  const char* infinity32;
  const char* infinity64;
  const char* vector_of[2];  // before and after the type in the value of a vector: (float4)(a, b)
  int most_lanes;            // of a vector
  const char* function32;    // ends the names of functions of float32
  bool approximates;         // has the helpers rough_*
  bool packs;                // has helpers pack_float16 and pack_bfloat16
  const char* global;        // address space of a pointer
  const char* shared;
  const char* restrict_pointer;
  const char* shared_array;          // storage class of the block's arena
  const char* dynamic_shared_array;  // the same, sized at launch; null = there is none
  const char* aligned;               // to $0 bytes
  const char* block_index;
  const char* thread_index;
  const char* barrier;
  // (mask, value, distance): the value of the thread whose number differs by XOR; null = threads
  // exchange values through shared memory.
  const char* shuffle;
  // (mask, value, distance, threads): the value of the thread whose number within its group of so
  // many is less, or more, by the distance; its own value where there is none.
  const char* shuffle_up;
  const char* shuffle_down;
  bool async_copies;      // has helper async_copy
  const char* helper;     // storage class of a helper function
  const char* helpers;    // all of them, as a text (helper_texts.h)
  const char* prelude;    // of every file
  const char* prelude64;  // before it where double precision is used
  // Everything of a kernel's declaration before its name.
  std::string (*qualifiers)(int64_t threads, int min_blocks);
  absl::Span<const Pass> passes;  // over a kernel's body before it is printed
};
// The rows, one an API.
absl::Span<const Dialect> Dialects();
const Dialect& DialectOf(search_space::Api api);
const Dialect* FindDialect(absl::string_view name);  // null: there is none
std::vector<std::string> ApiNames();                 // of all rows

// "float", "float4". Widths above 1 only for what one 16-byte access holds. A 16-bit number is kept
// as an unsigned integer, one of tf32 as a float.
std::string TypeName(const Dialect& dialect, search_space::DType type, int lanes = 1);

// The address space of a pointer into such memory, not of registers.
const char* AddressSpace(const Dialect& dialect, search_space::Scope scope);

// The qualifier of what begins at multiples of so many bytes.
std::string Aligned(const Dialect& dialect, int64_t bytes);

// A literal that reads back as exactly `value` rounded to `type`; infinities and NaN included.
std::string FloatLiteral(const Dialect& dialect, double value, search_space::DType type);
std::string IntLiteral(const Dialect& dialect, int64_t value);

// "make_float4(a, b, c, d)". The name of a helper (helpers.h) is added to `helpers`, here and
// below.
std::string VectorOf(const Dialect& dialect, search_space::DType type,
                     const std::vector<std::string>& lanes, std::set<std::string>& helpers);
// One lane of a vector: "v.x".
std::string LaneOf(const Dialect& dialect, search_space::DType type, const std::string& vector,
                   int lanes, int lane, std::set<std::string>& helpers);

// `text`, a number of type `from`, as one of type `to`: of both, one or none is narrow. Binds as
// tightly as a call.
std::string ConvertNarrow(search_space::DType to, search_space::DType from, const std::string& text,
                          std::set<std::string>& helpers);

// The function that computes a unary or binary operation that has no operator; precise forms only.
std::string FunctionName(const Dialect& dialect, search_space::Op op, search_space::DType type,
                         std::set<std::string>& helpers);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_DIALECTS_H_
