#include "search_space/sketch/kernels/kept_rows.h"

#include <algorithm>
#include <utility>

#include "search_space/schedule/analysis/operands.h"
#include "search_space/sketch/kernels/reads.h"

namespace heddle::search_space {
namespace {

bool IsElementwiseRoot(const ScheduledStage& s) {
  return !s.is_reduction() && !s.inlined && s.leader == nullptr;
}

// The reductions that a stage reads.
std::vector<BufferRef> ReductionsReadBy(const Schedule& schedule, const ScheduledStage& s) {
  std::vector<BufferRef> reductions;
  for (const Buffer* read : ReadsOf(s)) {
    const int r = schedule.FindStage(read);
    if (r >= 0 && schedule.stage(r).is_reduction()) {
      reductions.push_back(schedule.stage(r).tensor);
    }
  }
  return reductions;
}

}  // namespace

std::optional<KeptRows> KeepRows(Schedule& schedule, const std::string& stage,
                                 std::vector<Step>& steps) {
  const int kept = schedule.FindStage(stage);
  if (kept < 0 || !IsElementwiseRoot(schedule.stage(kept))) return std::nullopt;
  const BufferRef tensor = schedule.stage(kept).tensor;
  KeptRows rows{nullptr, ReductionsReadBy(schedule, schedule.stage(kept))};
  if (rows.reductions.empty()) return std::nullopt;
  std::vector<Step> made;
  for (int r : schedule.ReadersOf(tensor.get())) {
    const ScheduledStage& reduction = schedule.stage(r);
    const std::optional<int> reader = schedule.OnlyReaderOf(reduction.tensor.get());
    if (!reduction.is_reduction() || !reader) continue;
    const ScheduledStage& root = schedule.stage(*reader);
    if (!IsElementwiseRoot(root) || root.tensor->shape != tensor->shape) continue;
    if (rows.root != nullptr && rows.root != root.tensor) continue;
    if (!ReadsAtOwnElement(reduction, tensor)) return std::nullopt;
    rows.root = root.tensor;
    rows.reductions.push_back(reduction.tensor);
    made.emplace_back(ComputeAgain{stage, reduction.name()});
  }
  if (rows.root == nullptr) return std::nullopt;
  const std::vector<int> readers = schedule.ReadersOf(tensor.get());
  if (std::count(readers.begin(), readers.end(), schedule.FindStage(rows.root.get())) > 0) {
    made.emplace_back(ComputeAgain{stage, rows.root->name});
  }
  ComputeWith together{stage, rows.root->name, {}};
  for (const Var& axis : schedule.stage(schedule.FindStage(rows.root.get())).axes) {
    together.axes.push_back(axis->name);
  }
  made.emplace_back(std::move(together));
  Schedule changed = schedule;
  if (!Apply(made, changed).ok()) return std::nullopt;
  schedule = std::move(changed);
  steps.insert(steps.end(), made.begin(), made.end());
  return rows;
}

}  // namespace heddle::search_space
