#include "search_space/schedule/rewrites/stage_number.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace heddle::search_space {

absl::StatusOr<size_t> StageNumber(const TensorProgram& program, const std::string& name) {
  const auto stage = std::find_if(program.stages.begin(), program.stages.end(),
                                  [&](const Stage& s) { return s.name() == name; });
  if (stage == program.stages.end()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is no stage of ", program.op));
  }
  return static_cast<size_t>(stage - program.stages.begin());
}

}  // namespace heddle::search_space
