#include "search_space/schedule/threads/scatter.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/scattered_terms.h"

namespace heddle::search_space {

int64_t Scatter::ThreadsOfTerm(int64_t threads, int64_t columns) {
  int64_t along = std::min(threads, columns);
  while (threads % along != 0) ++along;
  return along;
}

absl::Status Scatter::CheckAt(const Schedule& schedule, const ScheduledStage& here) const {
  constexpr int64_t kMostUnrolled = 64;
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
  if (here.scope != Scope::kShared || here.consumer >= 0) {
    return Refuse(absl::StrCat("scatter wants a stage in scope shared before its compute_at; ",
                               stage, " is not one"));
  }
  if (unroll < 1 || unroll > kMostUnrolled) {
    return Refuse(absl::StrCat("scatter wants 1 to ", kMostUnrolled, " terms at a time"));
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
