#include "search_space/schedule/threads/bind.h"

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

bool IsSliced(BindTo to) { return to == BindTo::kSlice || to == BindTo::kSliceAll; }

// May threads share this loop of a reduction?
bool SharesReduction(const ScheduledStage& stage, const Loop& loop, BindTo to) {
  const bool fits = IsSliced(to) || (to == BindTo::kThread && IsPowerOfTwo(loop.var->extent));
  return fits && stage.scope == Scope::kLocal && stage.consumer >= 0;
}

}  // namespace

absl::Status Bind::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*here, loop));
  if (HasAttached(editor.schedule(), *here)) {
    return Refuse(
        absl::StrCat("bind the loops of ", stage, " before other stages are computed in them"));
  }
  if (here->loops[at].reduce && !SharesReduction(*here, here->loops[at], to)) {
    return Refuse(
        absl::StrCat("loop ", loop,
                     " reduces: a power of two of threads can share it in a "
                     "local stage that is attached; else use rfactor to run it in parallel"));
  }
  if (IsSliced(to) && !here->loops[at].reduce) {
    return Refuse(absl::StrCat("only a reduction can be sliced; loop ", loop, " is data"));
  }
  static constexpr LoopKind kKinds[] = {LoopKind::kBlock, LoopKind::kThread, LoopKind::kVthread,
                                        LoopKind::kThread, LoopKind::kThread};
  const LoopKind kind = kKinds[static_cast<int>(to)];
  if (kind != LoopKind::kThread && !here->is_root()) {
    return Refuse(absl::StrCat("only a kernel's own stage has blocks and virtual threads; ", stage,
                               " is computed inside another"));
  }
  for (const Loop& l : here->loops) {
    if (kind != LoopKind::kVthread && l.kind == kind) {
      return Refuse(
          absl::StrCat("loop ", l.var->name, " is bound to that axis already; fuse the two first"));
    }
  }
  HEDDLE_RETURN_IF_ERROR(SetKind(*here, at, kind));
  here->loops[at].sliced = IsSliced(to);
  here->loops[at].for_all = to == BindTo::kSliceAll;
  return absl::OkStatus();
}

}  // namespace heddle::search_space
