#include "search_space/sketch/families/row_axes.h"

#include <algorithm>
#include <cstddef>

#include "search_space/schedule/rewrites/axes/collapse.h"
#include "search_space/schedule/rewrites/axes/merge_axes.h"

namespace heddle::search_space {
namespace {

// The step that makes one axis of the last two of `axes`, if it applies to `program`, which is what
// it makes of it then.
bool MergeLast(const std::string& stage, const std::vector<Var>& axes,
               std::shared_ptr<const TensorProgram>& program, std::vector<Step>& steps) {
  if (axes.size() < 2) return false;
  const MergeAxes step{stage, axes[axes.size() - 2]->name, axes.back()->name};
  auto merged = WithMergedAxes(*program, step.stage, step.outer, step.inner);
  if (!merged.ok()) return false;
  program = *std::move(merged);
  steps.emplace_back(step);
  return true;
}

// Does a reduction go along two axes that are as long as the last two of these?
bool AreReduced(const TensorProgram& program, const std::vector<Var>& axes) {
  if (axes.size() < 2) return false;
  return std::any_of(program.stages.begin(), program.stages.end(), [&](const Stage& s) {
    const size_t reduced = s.reduce_axes.size();
    return reduced > 1 && s.reduce_axes[reduced - 1]->extent == axes.back()->extent &&
           s.reduce_axes[reduced - 2]->extent == axes[axes.size() - 2]->extent;
  });
}

}  // namespace

RowAxes RowsAlongFewerAxes(const std::shared_ptr<const TensorProgram>& program,
                           const std::string& root) {
  RowAxes rows{"collapse", {}, program};
  std::shared_ptr<const TensorProgram>& now = rows.program;
  if (auto collapsed = Collapse(*now, root); collapsed.ok()) {
    now = *std::move(collapsed);
    rows.steps.emplace_back(CollapseAxes{root});
  }
  while (AreReduced(*now, now->FindStage(root)->axes) &&
         MergeLast(root, now->FindStage(root)->axes, now, rows.steps)) {
    rows.name = "merge";
    for (const Stage& s : std::vector<Stage>(now->stages)) {
      (void)MergeLast(s.name(), s.reduce_axes, now, rows.steps);
    }
  }
  return rows;
}

}  // namespace heddle::search_space
