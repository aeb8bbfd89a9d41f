// The tensor notation: operators as text (docs/notation.md).
#ifndef HEDDLE_SEARCH_SPACE_NOTATION_NOTATION_H_
#define HEDDLE_SEARCH_SPACE_NOTATION_NOTATION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// A parsed operator, not yet at a shape. Opaque: the syntax tree lives in notation.cc.
class Operator {
 public:
  struct Parameter {
    std::string name;
    std::optional<int64_t> default_value;
  };

  const std::string& name() const;
  const std::vector<Parameter>& parameters() const;
  // The operator's normalised text: parse(text) gives the same operator.
  const std::string& text() const;

  // The operator at a shape. InvalidArgument for an unknown parameter (the nearest name is
  // suggested), a missing one, an extent that is zero, negative or overflows, a read out of range
  // (stage, tensor, axis and the interval are named), an unused stage or input, and programs beyond
  // the limits below.
  absl::StatusOr<TensorProgram> Instantiate(const std::map<std::string, int64_t>& shape,
                                            DType dtype) const;

  struct Syntax;
  explicit Operator(std::shared_ptr<const Syntax> syntax);

 private:
  std::shared_ptr<const Syntax> syntax_;
};

// Limits that keep hostile text cheap.
inline constexpr int kMaxNotationBytes = 64 << 10;
inline constexpr int kMaxExpressionDepth = 64;
inline constexpr int kMaxStages = 64;
inline constexpr int kMaxAxes = 16;          // of one stage, reduction axes included
inline constexpr int kMaxStageNodes = 2048;  // operands and operations of one stage
inline constexpr int kMaxIndexNodes = 128;   // of one index, extent or integer comparison
// All tensors of a program together: 256 TiB, far beyond any device and far from overflow.
inline constexpr int64_t kMaxProgramBytes = int64_t{1} << 48;
// Values of one stage's definition: extents of axes and reduction axes multiplied.
inline constexpr int64_t kMaxIterations = int64_t{1} << 61;

// Parses a file of operators. InvalidArgument carries "line:column: expected ..., found ...".
absl::StatusOr<std::vector<Operator>> ParseOperators(const std::string& text);

// "m=512,n=512" -> map. InvalidArgument on anything else, on duplicates and on values beyond 63
// bits.
absl::StatusOr<std::map<std::string, int64_t>> ParseShape(const std::string& text);

// "float32" -> kFloat32.
absl::StatusOr<DType> ParseDType(const std::string& text);

// Reads TensorProgram::canonical_text back: the operator, its shape and its data type.
absl::StatusOr<TensorProgram> ParseWorkload(const std::string& canonical_text);

// The operators that ship with the program (search_space/notation/operators/*.op), by name order.
const std::vector<Operator>& BuiltinOperators();
// NotFound suggests the nearest names.
absl::StatusOr<Operator> FindOperator(const std::vector<Operator>& operators,
                                      const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_NOTATION_NOTATION_H_
