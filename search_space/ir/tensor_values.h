#ifndef HEDDLE_SEARCH_SPACE_IR_TENSOR_VALUES_H_
#define HEDDLE_SEARCH_SPACE_IR_TENSOR_VALUES_H_

#include <map>
#include <string>
#include <vector>

namespace heddle::search_space {

// One value per element, row-major, keyed by buffer name.
using TensorValues = std::map<std::string, std::vector<double>>;

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_TENSOR_VALUES_H_
