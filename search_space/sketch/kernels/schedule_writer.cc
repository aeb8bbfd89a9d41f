#include "search_space/sketch/kernels/schedule_writer.h"

#include <algorithm>
#include <string>

#include "absl/container/inlined_vector.h"
#include "base/check.h"

namespace heddle::search_space {
namespace {

struct StepRefused {
  absl::Status status;
};

std::vector<std::string> NamesOf(const LoopList& loops) {
  std::vector<std::string> names;
  for (const LoopRef& l : loops) names.push_back(l.name());
  return names;
}

}  // namespace

LoopList Join(std::initializer_list<LoopList> lists) {
  LoopList all;
  for (const LoopList& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

absl::Status ScheduleWriter::Try(absl::FunctionRef<void()> write) {
  try {
    write();
  } catch (const StepRefused& refused) {
    return refused.status;
  }
  return absl::OkStatus();
}

const ScheduledStage& ScheduleWriter::At(const StageRef& stage) const {
  const int at = schedule_.FindStage(stage.tensor.get());
  HEDDLE_CHECK(at >= 0, "no stage of this schedule defines " + stage.name());
  return schedule_.stage(at);
}

void ScheduleWriter::Apply(Step step) {
  steps_.push_back(std::move(step));
  if (absl::Status s = search_space::Apply(steps_.back(), schedule_); !s.ok()) throw StepRefused{s};
}

StageRef ScheduleWriter::ApplyAndFind(Step step) {
  absl::InlinedVector<const Buffer*, 16> before;
  for (const ScheduledStage& s : schedule_.stages()) before.push_back(s.tensor.get());
  Apply(std::move(step));
  const auto& stages = schedule_.stages();
  size_t at = 0;
  while (at < before.size() && stages[at].tensor.get() == before[at]) ++at;
  return {stages[at].tensor};
}

LoopList ScheduleWriter::LoopsOf(const StageRef& stage, bool data, bool reduce) const {
  LoopList loops;
  for (const Loop& l : At(stage).loops) {
    if (l.reduce ? reduce : data) loops.push_back({stage, l.var});
  }
  return loops;
}

LoopList ScheduleWriter::Split(const LoopRef& loop, std::vector<int64_t> factors) {
  const auto position = static_cast<size_t>(At(loop.stage).FindLoop(loop.var));
  const size_t parts = factors.size() + 1;
  Apply(search_space::Split{loop.stage.name(), loop.name(), std::move(factors)});
  LoopList made;
  const std::vector<Loop>& loops = At(loop.stage).loops;
  for (size_t i = 0; i < parts; ++i) made.push_back({loop.stage, loops[position + i].var});
  return made;
}

LoopRef ScheduleWriter::Fuse(const LoopList& loops) {
  if (loops.size() == 1) return loops[0];
  const StageRef& stage = loops[0].stage;
  const auto position = static_cast<size_t>(At(stage).FindLoop(loops[0].var));
  Apply(search_space::Fuse{stage.name(), NamesOf(loops)});
  return {stage, At(stage).loops[position].var};
}

std::vector<StageRef> ScheduleWriter::Materialize(const StageRef& reduction,
                                                  const StageRef& reader) {
  std::vector<StageRef> together, copies;
  for (const ScheduledStage* s : schedule_.Together(At(reduction))) together.push_back({s->tensor});
  for (const StageRef& s : together) {
    copies.push_back(CacheRead(s.tensor, Scope::kGlobal, reader));
    if (copies.size() == 1) continue;
    std::vector<std::string> axes;
    for (const Var& axis : At(copies.back()).axes) axes.push_back(axis->name);
    Apply(search_space::ComputeWith{copies.back().name(), copies[0].name(), std::move(axes)});
  }
  return copies;
}

std::vector<StageRef> ScheduleWriter::ReduceBeside(const StageRef& s, const StageRef& leader,
                                                   int64_t rows, int64_t groups) {
  std::vector<BufferRef> wholes;
  for (const ScheduledStage* whole : schedule_.Together(At(s))) wholes.push_back(whole->tensor);
  Apply(BesideRowsOf(At(leader), At(s), rows, groups));
  std::vector<StageRef> parts;
  for (const BufferRef& whole : wholes) parts.push_back({At({whole}).body->buffer});
  return parts;
}

void ScheduleWriter::Reorder(const LoopList& loops) {
  Apply(search_space::Reorder{loops[0].stage.name(), NamesOf(loops)});
}

void ScheduleWriter::StorageLayout(const StageRef& stage, const std::vector<size_t>& order,
                                   int64_t pad, int64_t swizzle) {
  std::vector<std::string> axes;
  for (size_t axis : order) axes.push_back(At(stage).axes[axis]->name);
  Apply(search_space::StorageLayout{stage.name(), std::move(axes), pad, swizzle});
}

}  // namespace heddle::search_space
