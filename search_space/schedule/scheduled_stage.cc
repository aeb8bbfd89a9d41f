#include "search_space/schedule/scheduled_stage.h"

#include <algorithm>
#include <utility>

#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {

int ScheduledStage::FindLoop(const std::string& loop) const {
  for (size_t i = 0; i < loops.size(); ++i) {
    if (loops[i].var->name == loop) return static_cast<int>(i);
  }
  return -1;
}

int ScheduledStage::FindLoop(const Var& var) const {
  for (size_t i = 0; i < loops.size(); ++i) {
    if (loops[i].var == var) return static_cast<int>(i);
  }
  return -1;
}

int ScheduledStage::FindAxis(const std::string& axis) const {
  const auto at =
      std::find_if(axes.begin(), axes.end(), [&](const Var& v) { return v->name == axis; });
  return at == axes.end() ? -1 : static_cast<int>(at - axes.begin());
}

int ScheduledStage::FindAxis(const Var& axis) const {
  const auto at = std::find(axes.begin(), axes.end(), axis);
  return at == axes.end() ? -1 : static_cast<int>(at - axes.begin());
}

bool ScheduledStage::MentionsReduction(const Expr& e) const {
  return std::any_of(loops.begin(), loops.end(),
                     [&](const Loop& l) { return l.reduce && MentionsAny(e, {l.var.get()}); });
}

const Loop* ScheduledStage::shared_reduction() const {
  for (const Loop& l : loops) {
    if (l.reduce && l.kind == LoopKind::kThread && l.var->extent > 1) return &l;
  }
  return nullptr;
}

void ResetLoops(ScheduledStage& stage) {
  stage.loops.clear();
  stage.values.clear();
  stage.guards.clear();
  stage.untouched = true;
  auto add = [&](const Var& axis, int64_t extent, bool reduce) {
    Loop loop{.var = MakeVar(axis->name, extent), .reduce = reduce};
    stage.values.push_back(VarExpr(loop.var));
    stage.loops.push_back(std::move(loop));
  };
  for (size_t i = 0; i < stage.axes.size(); ++i) add(stage.axes[i], stage.extent[i], false);
  for (const Var& r : stage.reduce_axes) add(r, r->extent, true);
}

ScheduledStage MakeScheduledStage(const Stage& stage) {
  ScheduledStage s;
  s.tensor = stage.tensor;
  s.axes = stage.axes;
  s.reduce_axes = stage.reduce_axes;
  s.combiner = stage.combiner;
  s.body = stage.is_reduction() ? stage.body : ToType(stage.tensor->dtype, stage.body);
  s.is_output = stage.is_output;
  for (const Var& axis : s.axes) {
    s.base.push_back(Int(0));
    s.extent.push_back(axis->extent);
  }
  ResetLoops(s);
  return s;
}

}  // namespace heddle::search_space
