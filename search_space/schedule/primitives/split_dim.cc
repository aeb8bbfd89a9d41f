#include "search_space/schedule/primitives/split_dim.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/split_dim.h"

namespace heddle::search_space {

absl::Status SplitDim::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(tensor, [&](const TensorProgram& program, const std::string& name) {
    return WithSplitDim(program, name, dim, width);
  });
}

}  // namespace heddle::search_space
