#include "search_space/schedule/copies/fetch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

absl::Status Fetch::CheckAt(const Schedule& schedule, const ScheduledStage& here) const {
  if (here.scope != Scope::kShared || here.consumer < 0 || here.is_reduction()) {
    return Refuse(
        absl::StrCat("fetch fills a shared elementwise stage that is computed inside a "
                     "loop; ",
                     stage, " is not one"));
  }
  if (!here.untouched || here.Note<Fetch>() != nullptr) {
    return Refuse(absl::StrCat("the loops of ", stage, " were changed"));
  }
  if (threads < 1 || !IsVectorWidth(vector)) {
    return Refuse("fetch wants threads >= 1 and a vector of 1, 2, 4, 8 or 16 elements");
  }
  const std::vector<const Loop*> enclosing = EnclosingLoops(schedule, here);
  const auto thread = std::find_if(enclosing.begin(), enclosing.end(),
                                   [](const Loop* l) { return l->kind == LoopKind::kThread; });
  if (thread == enclosing.end() || (*thread)->var->extent != threads) {
    return Refuse(absl::StrCat("fetch with ", threads, " threads, but the kernel around ", stage,
                               " has ", thread == enclosing.end() ? 0 : (*thread)->var->extent));
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
