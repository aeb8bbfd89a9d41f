// A parameter of an operator.
#ifndef HEDDLE_SEARCH_SPACE_NOTATION_OPERATOR_PARAMETER_H_
#define HEDDLE_SEARCH_SPACE_NOTATION_OPERATOR_PARAMETER_H_

#include <cstdint>
#include <optional>
#include <string>

namespace heddle::search_space {

struct OperatorParameter {
  std::string name;
  std::optional<int64_t> default_value;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_NOTATION_OPERATOR_PARAMETER_H_
