#include "search_space/schedule/primitives/merge_axes.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/merge_axes.h"

namespace heddle::search_space {

absl::Status MergeAxes::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, [&](const TensorProgram& program, const std::string& name) {
    return WithMergedAxes(program, name, outer, inner);
  });
}

}  // namespace heddle::search_space
