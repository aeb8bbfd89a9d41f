#include "search_space/schedule/copies/pipeline.h"

#include <algorithm>
#include <any>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/copies/fetch.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

// The inner of two pipelines: its register stages are read one iteration ahead.
absl::Status CheckPrefetch(const Pipeline& step, const ScheduledStage& here, size_t at) {
  const auto* tiles = here.Note<Pipeline>();
  const bool inside = at > 0 && tiles != nullptr && tiles->loop == here.loops[at - 1].var->name;
  if (!inside || step.kind != PipelineKind::kRegisters || here.loops[at].var->extent % 2 != 0) {
    return Refuse(absl::StrCat(
        "the registers read in loop ", step.loop, " run ahead only with kind registers, in a loop ",
        "of an even extent that stands directly in one that is pipelined already"));
  }
  if (std::any_of(here.loops.begin(), here.loops.end(),
                  [](const Loop& l) { return l.interleaved; })) {
    return Refuse(absl::StrCat("copies of ", here.name(),
                               " are interleaved already; let its registers run ahead first"));
  }
  return absl::OkStatus();
}

}  // namespace

const Pipeline* PrefetchOf(const ScheduledStage& stage) {
  const Pipeline* tiles = stage.Note<Pipeline>();
  for (const std::any& note : stage.notes) {
    const auto* inner = std::any_cast<Pipeline>(&note);
    if (inner != nullptr && inner != tiles) return inner;
  }
  return nullptr;
}

absl::Status Pipeline::CheckAt(const Schedule& schedule, const ScheduledStage& here) const {
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(here, loop));
  const Loop& around = here.loops[at];
  if (around.kind != LoopKind::kSerial) {
    return Refuse(absl::StrCat("only a serial loop can be pipelined; ", loop, " is not"));
  }
  const int64_t most = kind == PipelineKind::kRegisters ? 2 : 8;
  if (depth < 2 || depth > most) {
    return Refuse(absl::StrCat("a pipeline of this kind is 2 to ", most, " buffers deep"));
  }
  const bool fetches =
      std::any_of(schedule.stages().begin(), schedule.stages().end(), [&](const ScheduledStage& s) {
        return s.consumer == schedule.IndexOf(here) && s.attach_loop == around.var &&
               s.Note<Fetch>() != nullptr;
      });
  if (!fetches && HasAttachedAt(schedule, here, around)) return CheckPrefetch(*this, here, at);
  if (!fetches) return Refuse(absl::StrCat("no stage is fetched in loop ", loop));
  if (here.Note<Pipeline>() != nullptr) {
    return Refuse(absl::StrCat(stage, " is pipelined already"));
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
