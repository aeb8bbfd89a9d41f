#include "search_space/schedule/placement/compute_again.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/placement/inline_loads.h"

namespace heddle::search_space {

absl::Status ComputeAgain::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  HEDDLE_ASSIGN_OR_RETURN(there, editor.FindStage(reader));
  if (here->is_reduction()) {
    return Refuse(absl::StrCat(stage, " reduces; only elementwise stages can be computed again"));
  }
  const std::vector<int> readers = editor.schedule().ReadersOf(here->tensor.get());
  const auto is_reader = [&](int r) { return &editor.stage(r) == there; };
  if (std::none_of(readers.begin(), readers.end(), is_reader)) {
    return Refuse(absl::StrCat(reader, " does not read ", stage));
  }
  if (readers.size() == 1 && !here->is_output) {
    return Refuse(absl::StrCat("nobody else reads ", stage, ": compute_inline does it"));
  }
  if (!here->untouched || !there->untouched || editor.schedule().HasCompanions(*there)) {
    return Refuse(
        absl::StrCat("compute_again comes before other changes to ", stage, " and ", reader));
  }
  const std::string why = WhyNotInlined(*here, *there);
  if (!why.empty()) return Refuse(why);
  there->body = InlineLoads(there->body, *here);
  return absl::OkStatus();
}

}  // namespace heddle::search_space
