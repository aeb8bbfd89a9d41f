// Which stage of a program a step names.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_STAGE_NUMBER_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_STAGE_NUMBER_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// The place of stage `name` among the program's stages; InvalidArgument where there is none.
absl::StatusOr<size_t> StageNumber(const TensorProgram& program, const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_STAGE_NUMBER_H_
