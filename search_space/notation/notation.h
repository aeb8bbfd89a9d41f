// The tensor notation: operators as text (docs/notation.md).
#ifndef HEDDLE_SEARCH_SPACE_NOTATION_NOTATION_H_
#define HEDDLE_SEARCH_SPACE_NOTATION_NOTATION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/notation/operator_parameter.h"

namespace heddle::search_space {

struct OperatorSyntax;

// A parsed operator, not yet at a shape. Opaque: its syntax tree is in notation_syntax.h.
class Operator {
 public:
  const std::string& name() const;
  const std::vector<OperatorParameter>& parameters() const;
  // The operator's normalised text: parse(text) gives the same operator.
  const std::string& text() const;

  // The operator at a shape. InvalidArgument for an unknown parameter (the nearest name is
  // suggested), a missing one, an extent that is zero, negative or overflows, a read out of range
  // (stage, tensor, axis and the interval are named), an unused stage or input, and programs beyond
  // the limits of notation_limits.h.
  absl::StatusOr<TensorProgram> Instantiate(const std::map<std::string, int64_t>& shape,
                                            DType dtype) const;

  explicit Operator(std::shared_ptr<const OperatorSyntax> syntax);

 private:
  std::shared_ptr<const OperatorSyntax> syntax_;
};

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
