#include "search_space/schedule/primitives/pad_terms.h"

#include "search_space/schedule/editor.h"
#include "search_space/schedule/pad_terms.h"

namespace heddle::search_space {

absl::Status PadTerms::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, [&](const TensorProgram& program, const std::string& sum) {
    return WithPaddedTerms(program, sum, multiple);
  });
}

}  // namespace heddle::search_space
