#include "search_space/sketch/matrix/factor.h"

#include <algorithm>
#include <limits>

#include "search_space/schedule/analysis/operands.h"

namespace heddle::search_space {

bool Factor::Has(size_t axis) const {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

Factor Factor::OfCopy(const std::vector<size_t>& dims, size_t rank) const {
  constexpr size_t kNoAxis = std::numeric_limits<size_t>::max();
  Factor copy = *this;
  copy.axes.assign(rank, kNoAxis);
  for (size_t a = 0; a < dims.size(); ++a) copy.axes[dims[a]] = axes[a];
  copy.layout.clear();
  for (size_t d = 0; d < rank; ++d) {
    if (copy.axes[d] == kNoAxis) copy.layout.push_back(d);
  }
  for (size_t a : layout) copy.layout.push_back(dims[a]);
  return copy;
}

void Factor::WriteTile(ScheduleWriter& w, const StageRef& stage, int64_t threads,
                       const LoopRef& at) const {
  w.SetScope(stage, Scope::kShared);
  w.ComputeAt(stage, at);
  // In chunks of 16 bytes, which instructions read at once.
  w.StorageLayout(stage, layout, 0, ElementsOfAccess(operand.dtype));
  w.Fetch(stage, threads, vector);
}

void Factor::WriteLines(ScheduleWriter& w, const StageRef& stage, int64_t threads,
                        const LoopRef& at, int64_t span) const {
  WriteTile(w, stage, threads, at);
  const auto axis = static_cast<size_t>(std::find(axes.begin(), axes.end(), inner) - axes.begin());
  const Schedule& schedule = w.schedule();
  const auto number = static_cast<size_t>(schedule.FindStage(stage.tensor.get()));
  if (schedule.stages()[number].extent[axis] != span) w.BlockLayout(stage, axis, span);
}

void WriteFragment(ScheduleWriter& w, const StageRef& sum, const StageRef& tile, size_t own,
                   size_t depth, MatrixInstruction instruction, MatrixOperand operand,
                   const LoopRef& at) {
  const auto here = [&]() -> const ScheduledStage& {
    const Schedule& schedule = w.schedule();
    return schedule.stage(schedule.FindStage(sum.tensor.get()));
  };
  const std::vector<Expr> operands = OperandsOf(here()).list;
  const auto number = std::find_if(operands.begin(), operands.end(), [&](const Expr& e) {
    return e->op == Op::kLoad && e->buffer == tile.tensor;
  });
  const StageRef fragment = w.GatherRead(sum, number - operands.begin());
  w.SetScope(fragment, Scope::kLocal);
  w.Fragment(fragment, instruction, operand, here().axes[own]->name,
             here().reduce_axes[depth]->name);
  w.ComputeAt(fragment, at);
}

}  // namespace heddle::search_space
