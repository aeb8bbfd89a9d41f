#include "search_space/schedule/threads/scatter.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/analysis/scattered_terms.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {

// The least divisor of `threads` that is not less, looked for from both of its ends.
int64_t Scatter::ThreadsOfTerm(int64_t threads, int64_t columns) {
  const int64_t least = std::min(threads, columns);
  int64_t divisor = least, quotient = threads / least;
  while (threads % divisor != 0 && threads % quotient != 0) ++divisor, --quotient;
  return threads % divisor == 0 ? divisor : threads / quotient;
}

absl::Status Scatter::CheckStages(const Schedule& schedule, const ScheduledStage& here) {
  const std::vector<ScatteredTerms> first = ScatteredTermsOf(here);
  for (const ScheduledStage* s : schedule.Together(here)) {
    const std::vector<ScatteredTerms> terms = ScatteredTermsOf(*s);
    bool is_known = !first.empty() && !terms.empty() && s->axes == here.axes;
    for (size_t i = 0; is_known && i < here.axes.size(); ++i) {
      is_known = terms[0].HasKey(i) == first[0].HasKey(i);
    }
    if (!is_known) {
      return Refuse(absl::StrCat(s->name(),
                                 " is no reduction over select(I[r] == i, e, identity) of an axis "
                                 "i, an input of indices I and a reduced axis r"));
    }
    if (s->tensor->dtype != DType::kFloat32) {
      return Refuse(absl::StrCat(s->name(), " is of ", NameOf(s->tensor->dtype),
                                 "; atomic updates are of float32"));
    }
  }
  return absl::OkStatus();
}

absl::Status Scatter::CheckUnroll(int64_t unroll) {
  constexpr int64_t kMost = 64;
  if (unroll >= 1 && unroll <= kMost) return absl::OkStatus();
  return Refuse(absl::StrCat(kName, " wants 1 to ", kMost, " terms at a time"));
}

absl::Status Scatter::CheckAt(const Schedule& schedule, const ScheduledStage& here) const {
  HEDDLE_RETURN_IF_ERROR(CheckStages(schedule, here));
  if (here.scope != Scope::kShared || here.consumer >= 0) {
    return Refuse(absl::StrCat("scatter wants a stage in scope shared before its compute_at; ",
                               stage, " is not one"));
  }
  return CheckUnroll(unroll);
}

}  // namespace heddle::search_space
