#include "search_space/schedule/copies/in_flight.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/copies/pipeline.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/matrix/fragment.h"

namespace heddle::search_space {

absl::Status InFlight::CheckAt(const Schedule& /*schedule*/, const ScheduledStage& here) const {
  const auto* pipeline = here.Note<Pipeline>();
  if (pipeline == nullptr || pipeline->kind == PipelineKind::kRegisters) {
    return Refuse(absl::StrCat("in_flight wants a pipeline of asynchronous copies first; ", stage,
                               " has none"));
  }
  const auto* fragment = here.Note<Fragment>();
  if (fragment == nullptr || !ShapeOf(fragment->instruction).in_shared) {
    return Refuse(absl::StrCat("only instructions of a warpgroup go on in background; ", stage,
                               " is not computed by one"));
  }
  if (tiles < 0 || tiles > pipeline->depth - 2) {
    return Refuse(absl::StrCat("products of 0 to ", pipeline->depth - 2, " tiles may be in flight ",
                               "in a pipeline of ", pipeline->depth, " buffers"));
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
