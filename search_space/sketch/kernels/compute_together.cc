#include "search_space/sketch/kernels/compute_together.h"

#include <cstddef>
#include <utility>

#include "search_space/ir/expr/queries.h"

namespace heddle::search_space {
namespace {

// Are stages that both read, if there are any, read at one place at least along these axes of the
// leader's? Axes as long as one another do not say which they are.
bool ReadAlike(const Schedule& schedule, const ScheduledStage& stage, const ScheduledStage& leader,
               const std::vector<Var>& axes) {
  bool has_common = false, is_alike = false;
  const std::vector<Expr> reads = LoadsIn(leader.body);
  for (const Expr& load : LoadsIn(stage.body)) {
    if (schedule.FindStage(load->buffer.get()) < 0) continue;
    const Expr there = Substitute(load, [&](const Var& v) -> Expr {
      for (size_t a = 0; a < axes.size(); ++a) {
        if (stage.axes[a] == v) return VarExpr(axes[a]);
      }
      return nullptr;
    });
    for (const Expr& read : reads) {
      has_common = has_common || read->buffer == load->buffer;
      is_alike = is_alike || StructurallyEqual(read, there);
    }
  }
  return is_alike || !has_common;
}

}  // namespace

bool ComputeTogether(Schedule& schedule, std::vector<Step>& steps, const BufferRef& stage,
                     const BufferRef& leader) {
  const auto stage_of = [&](const BufferRef& tensor) -> const ScheduledStage& {
    return schedule.stage(schedule.FindStage(tensor.get()));
  };
  const std::vector<Var> axes = stage_of(leader).axes;
  const size_t rank = stage->shape.size();
  if (rank > axes.size()) return false;
  const bool is_statistic = axes.size() == rank + 1 && !stage_of(stage).is_reduction();
  for (size_t left_out = rank + 1; left_out-- > 0;) {
    if (left_out < rank && !is_statistic) return false;
    ComputeWith step{stage->name, leader->name, {}};
    std::vector<Var> shared;
    for (size_t a = 0; shared.size() < rank; ++a) {
      if (a == left_out) continue;
      shared.push_back(axes[a]);
      step.axes.push_back(axes[a]->name);
    }
    if (is_statistic && !ReadAlike(schedule, stage_of(stage), stage_of(leader), shared)) continue;
    if (!Apply(Step(step), schedule).ok()) continue;
    steps.emplace_back(std::move(step));
    return true;
  }
  return false;
}

}  // namespace heddle::search_space
