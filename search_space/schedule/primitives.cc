// Primitives that change the loops of one stage, and what all primitives share.
#include "search_space/schedule/primitives.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/ir/simplify.h"

namespace heddle::search_space {
namespace {

std::string LoopNames(const ScheduledStage& stage) {
  return absl::StrJoin(stage.loops, ", ",
                       [](std::string* out, const Loop& l) { out->append(l.var->name); });
}

// May threads share this loop of a reduction?
bool SharesReduction(const ScheduledStage& stage, const Loop& loop, BindTo to) {
  const bool fits =
      to == BindTo::kSlice || (to == BindTo::kThread && IsPowerOfTwo(loop.var->extent));
  return fits && stage.scope == Scope::kLocal && stage.consumer >= 0;
}

}  // namespace

absl::StatusOr<ScheduledStage*> StepApplier::FindStage(const std::string& name) {
  const int i = schedule_.FindStage(name);
  if (i < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no stage ", name, "; the stages are ",
        absl::StrJoin(stages_, ", ",
                      [](std::string* out, const ScheduledStage& s) { out->append(s.name()); })));
  }
  ScheduledStage* stage = &stages_[static_cast<size_t>(i)];
  if (stage->inlined) return Refuse(absl::StrCat("stage ", name, " was computed inline"));
  return stage;
}

absl::StatusOr<size_t> StepApplier::FindLoop(const ScheduledStage& stage, const std::string& name) {
  const int i = stage.FindLoop(name);
  if (i < 0) {
    return absl::InvalidArgumentError(absl::StrCat("stage ", stage.name(), " has no loop ", name,
                                                   "; its loops are ", LoopNames(stage)));
  }
  return static_cast<size_t>(i);
}

bool StepApplier::HasAttached(const ScheduledStage& stage) const {
  return std::any_of(stages_.begin(), stages_.end(),
                     [&](const ScheduledStage& s) { return s.consumer == IndexOf(stage); });
}

absl::Status StepApplier::CheckNothingAttachedAt(const ScheduledStage& stage, size_t loop) {
  for (const ScheduledStage& s : stages_) {
    if (s.consumer == IndexOf(stage) && s.attach_loop == stage.loops[loop].var) {
      return Refuse(absl::StrCat("loop ", stage.loops[loop].var->name, " of ", stage.name(),
                                 " cannot change any more: ", s.name(), " is computed there"));
    }
  }
  if (stage.interleave == stage.loops[loop].var) {
    return Refuse(absl::StrCat("loop ", stage.interleave->name, " of ", stage.name(),
                               " cannot change any more: copies are interleaved with it"));
  }
  return absl::OkStatus();
}

void StepApplier::Replace(ScheduledStage& stage, const Var& var, const Expr& value) {
  auto substitute = [&](const Expr& e) { return SimplifyAt(e, var, value); };
  for (Expr& e : stage.values) e = substitute(e);
  for (Expr& e : stage.guards) e = substitute(e);
}

absl::Status StepApplier::operator()(const Split& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*stage, step.loop));
  if (absl::Status s = CheckNothingAttachedAt(*stage, at); !s.ok()) return s;
  if (step.factors.empty()) return Refuse("split needs at least one factor");
  const Loop old = stage->loops[at];
  if (old.kind != LoopKind::kSerial) {
    return Refuse(absl::StrCat("loop ", step.loop, " is bound or annotated already"));
  }
  int64_t product = 1;
  for (int64_t f : step.factors) {
    if (f < 1 || __builtin_mul_overflow(product, f, &product)) {
      return Refuse(absl::StrCat("split factors must be at least 1, got [",
                                 absl::StrJoin(step.factors, ", "), "]"));
    }
  }
  const int64_t outer = (old.var->extent - 1) / product + 1;
  std::vector<Loop> parts;
  Expr value;
  for (size_t i = 0; i <= step.factors.size(); ++i) {
    const int64_t extent = i == 0 ? outer : step.factors[i - 1];
    Loop part{.var = MakeVar(absl::StrCat(step.loop, ".", i), extent), .reduce = old.reduce};
    value = value == nullptr ? VarExpr(part.var) : value * Int(extent) + VarExpr(part.var);
    parts.push_back(std::move(part));
  }
  Replace(*stage, old.var, value);
  if (outer * product != old.var->extent) {
    stage->guards.push_back(Simplify(value < Int(old.var->extent)));
  }
  stage->loops.erase(stage->loops.begin() + static_cast<std::ptrdiff_t>(at));
  stage->loops.insert(stage->loops.begin() + static_cast<std::ptrdiff_t>(at), parts.begin(),
                      parts.end());
  stage->untouched = false;
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const Fuse& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  if (step.loops.size() < 2) return Refuse("fuse needs at least two loops");
  HEDDLE_ASSIGN_OR_RETURN(first, FindLoop(*stage, step.loops[0]));
  int64_t extent = 1;
  for (size_t i = 0; i < step.loops.size(); ++i) {
    if (first + i >= stage->loops.size() || stage->loops[first + i].var->name != step.loops[i]) {
      return Refuse(absl::StrCat("fuse wants adjacent loops, outermost first; the loops of ",
                                 step.stage, " are ", LoopNames(*stage)));
    }
    const Loop& l = stage->loops[first + i];
    if (absl::Status s = CheckNothingAttachedAt(*stage, first + i); !s.ok()) return s;
    if (l.kind != LoopKind::kSerial || l.reduce != stage->loops[first].reduce) {
      return Refuse(
          absl::StrCat("loop ", step.loops[i], " is bound already, or mixes data with reduction"));
    }
    if (__builtin_mul_overflow(extent, l.var->extent, &extent)) return Refuse("extent overflows");
  }
  Loop fused{.var = MakeVar(absl::StrJoin(step.loops, "@"), extent),
             .reduce = stage->loops[first].reduce,
             .inner_extent = extent / stage->loops[first].var->extent};
  int64_t inner = extent;
  for (size_t i = 0; i < step.loops.size(); ++i) {
    const Var part = stage->loops[first + i].var;
    inner /= part->extent;
    Replace(*stage, part, Simplify((VarExpr(fused.var) / Int(inner)) % Int(part->extent)));
  }
  const auto begin = stage->loops.begin() + static_cast<std::ptrdiff_t>(first);
  stage->loops.erase(begin + 1, begin + static_cast<std::ptrdiff_t>(step.loops.size()));
  stage->loops[first] = std::move(fused);
  stage->untouched = false;
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const Reorder& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  std::vector<size_t> positions;
  for (const std::string& name : step.loops) {
    HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*stage, name));
    positions.push_back(at);
  }
  std::vector<size_t> slots = positions;
  std::sort(slots.begin(), slots.end());
  if (std::adjacent_find(slots.begin(), slots.end()) != slots.end()) {
    return Refuse("reorder names a loop twice");
  }
  if (HasAttached(*stage)) {
    return Refuse(absl::StrCat("reorder the loops of ", step.stage,
                               " before other stages are computed in them"));
  }
  const std::vector<Loop> old = stage->loops;
  for (size_t i = 0; i < slots.size(); ++i) stage->loops[slots[i]] = old[positions[i]];
  stage->untouched = false;
  return absl::OkStatus();
}

absl::Status StepApplier::SetKind(const std::string& stage_name, const std::string& loop,
                                  LoopKind kind) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(stage_name));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*stage, loop));
  if (stage->loops[at].kind != LoopKind::kSerial) {
    return Refuse(
        absl::StrCat("loop ", loop, " of ", stage_name, " is bound or annotated already"));
  }
  stage->loops[at].kind = kind;
  stage->untouched = false;
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const Bind& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*stage, step.loop));
  if (HasAttached(*stage)) {
    return Refuse(absl::StrCat("bind the loops of ", step.stage,
                               " before other stages are computed in them"));
  }
  if (stage->loops[at].reduce && !SharesReduction(*stage, stage->loops[at], step.to)) {
    return Refuse(
        absl::StrCat("loop ", step.loop,
                     " reduces: a power of two of threads can share it in a "
                     "local stage that is attached; else use rfactor to run it in parallel"));
  }
  if (step.to == BindTo::kSlice && !stage->loops[at].reduce) {
    return Refuse(absl::StrCat("only a reduction can be sliced; loop ", step.loop, " is data"));
  }
  static constexpr LoopKind kKinds[] = {LoopKind::kBlock, LoopKind::kThread, LoopKind::kVthread,
                                        LoopKind::kThread};
  const LoopKind kind = kKinds[static_cast<int>(step.to)];
  if (kind != LoopKind::kThread && !stage->is_root()) {
    return Refuse(absl::StrCat("only a kernel's own stage has blocks and virtual threads; ",
                               step.stage, " is computed inside another"));
  }
  for (const Loop& l : stage->loops) {
    if (kind != LoopKind::kVthread && l.kind == kind) {
      return Refuse(
          absl::StrCat("loop ", l.var->name, " is bound to that axis already; fuse the two first"));
    }
  }
  if (absl::Status s = SetKind(step.stage, step.loop, kind); !s.ok()) return s;
  stage->loops[at].sliced = step.to == BindTo::kSlice;
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const Vectorize& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*stage, step.loop));
  const Loop& l = stage->loops[at];
  if (at + 1 != stage->loops.size() || l.reduce) {
    return Refuse(absl::StrCat("only the innermost data loop can be vectorized; ", step.loop,
                               " of ", step.stage, " is not"));
  }
  if (!IsVectorWidth(l.var->extent)) {
    return Refuse(absl::StrCat("loop ", step.loop, " has ", l.var->extent,
                               " iterations; split it by 2, 4, 8 or 16 first"));
  }
  if (stage->is_reduction()) {
    return Refuse(absl::StrCat(step.stage, " reduces; vectorize the stages it reads"));
  }
  return SetKind(step.stage, step.loop, LoopKind::kVector);
}

absl::Status StepApplier::operator()(const Unroll& step) {
  return SetKind(step.stage, step.loop, LoopKind::kUnrolled);
}

absl::Status StepApplier::operator()(const BlockSwizzle& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  if (HasAttached(*stage)) {
    return Refuse(absl::StrCat("swizzle the blocks of ", step.stage,
                               " before other stages are computed in its loops"));
  }
  for (const Loop& l : stage->loops) {
    if (l.kind != LoopKind::kBlock) continue;
    const int64_t columns = l.inner_extent, rows = l.var->extent / columns;
    if (step.rows < 1 || rows % step.rows != 0) {
      return Refuse(
          absl::StrCat("the grid has ", rows, " rows of blocks, not a multiple of ", step.rows));
    }
    // Block b walks down `rows` rows before it moves to the next column.
    const Expr b = VarExpr(l.var);
    const Expr row = b / Int(step.rows * columns) * Int(step.rows) + b % Int(step.rows);
    const Expr column = b % Int(step.rows * columns) / Int(step.rows);
    Replace(*stage, l.var, Simplify(row * Int(columns) + column));
    return absl::OkStatus();
  }
  return Refuse(absl::StrCat("no loop of ", step.stage, " is bound to the block axis"));
}

absl::Status StepApplier::operator()(const LaunchBounds& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  if (!stage->is_root()) return Refuse(absl::StrCat(step.stage, " is not a kernel of its own"));
  if (step.min_blocks < 1 || step.min_blocks > 32) return Refuse("min_blocks is 1 to 32");
  stage->min_blocks = step.min_blocks;
  return absl::OkStatus();
}

absl::Status Schedule::Apply(const Step& step) {
  const absl::Status status = std::visit(StepApplier(*this), step);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(ToString(step), " does not apply: ", std::string(status.message())));
}

absl::Status Schedule::Apply(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    if (absl::Status s = Apply(step); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
