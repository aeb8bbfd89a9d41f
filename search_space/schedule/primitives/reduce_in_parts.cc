#include "search_space/schedule/primitives/reduce_in_parts.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/reduce_in_parts.h"

namespace heddle::search_space {

absl::Status ReduceInParts::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, [&](const TensorProgram& program, const std::string& sum) {
    return WithReductionsInParts(program, sum, columns);
  });
}

}  // namespace heddle::search_space
