#include "search_space/schedule/primitives/permute.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/permute.h"

namespace heddle::search_space {

absl::Status PermuteAxes::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, [&](const TensorProgram& program, const std::string& name) {
    return WithPermutedAxes(program, name, axes);
  });
}

}  // namespace heddle::search_space
