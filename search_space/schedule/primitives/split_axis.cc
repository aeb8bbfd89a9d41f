#include "search_space/schedule/primitives/split_axis.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/split_axis.h"

namespace heddle::search_space {

absl::Status SplitAxis::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, [&](const TensorProgram& program, const std::string& name) {
    return WithSplitAxis(program, name, axis, width);
  });
}

}  // namespace heddle::search_space
