#include "search_space/sketch/kernels/reads.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>

#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/matrix.h"
#include "search_space/schedule/rewrites/reductions/split_operand.h"

namespace heddle::search_space {

void AddReads(const ScheduledStage& stage, Tensors& reads) {
  Visit(stage.body, [&](const Expr& node) {
    if (node->op != Op::kLoad) return;
    if (std::find(reads.begin(), reads.end(), node->buffer.get()) == reads.end()) {
      reads.push_back(node->buffer.get());
    }
  });
}
Tensors ReadsOf(const ScheduledStage& stage) {
  Tensors reads;
  AddReads(stage, reads);
  return reads;
}

Tensors AllReadsOf(const Schedule& schedule, const ScheduledStage& stage) {
  Tensors all = ReadsOf(stage);
  for (size_t i = 0; i < all.size(); ++i) {
    const int read = schedule.FindStage(all[i]);
    if (read >= 0) AddReads(schedule.stage(read), all);
  }
  return all;
}

bool Contains(const Tensors& tensors, const Buffer* tensor) {
  return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
}

bool ReadsElementwise(const ScheduledStage& reader, const ScheduledStage& producer, bool units) {
  bool ok = reader.axes.size() == producer.axes.size();
  Visit(reader.body, [&](const Expr& node) {
    if (node->op != Op::kLoad || node->buffer != producer.tensor) return;
    for (size_t i = 0; ok && i < node->args.size(); ++i) {
      const Expr& index = node->args[i];
      ok =
          IsVar(index, reader.axes[i]) || (units && reader.axes[i]->extent == 1 && IsInt(index, 0));
    }
  });
  return ok;
}

bool ReadsInParts(const ScheduledStage& reader, const ScheduledStage& producer) {
  if (!reader.materialized || !IsOfParts(reader) ||
      reader.axes.size() != producer.axes.size() + 1) {
    return false;
  }
  bool ok = true;
  Visit(reader.body, [&](const Expr& node) {
    if (node->op != Op::kLoad || node->buffer != producer.tensor) return;
    for (size_t i = 0; ok && i < node->args.size(); ++i) {
      ok = IsVar(node->args[i], reader.axes[i + 1]);
    }
  });
  return ok;
}

bool ReadsEachOnce(const ScheduledStage& reader, const ScheduledStage& producer) {
  const std::vector<Expr> loads = LoadsIn(reader.body);
  const auto is_of_producer = [&](const Expr& load) { return load->buffer == producer.tensor; };
  const auto load = std::find_if(loads.begin(), loads.end(), is_of_producer);
  if (std::count_if(loads.begin(), loads.end(), is_of_producer) != 1) return false;
  const auto is_index = [&](const Var& axis) {
    return axis->extent == 1 || std::any_of((*load)->args.begin(), (*load)->args.end(),
                                            [&](const Expr& index) { return IsVar(index, axis); });
  };
  return std::all_of(reader.axes.begin(), reader.axes.end(), is_index) &&
         std::all_of(reader.reduce_axes.begin(), reader.reduce_axes.end(), is_index);
}

bool IsOfRows(const Schedule& schedule, const ScheduledStage& s) {
  const std::optional<int> only = schedule.OnlyReaderOf(s.tensor.get());
  if (!only || schedule.stage(*only).is_reduction()) return false;
  const ScheduledStage& reader = schedule.stage(*only);
  if (reader.axes.size() != s.axes.size() + 1) return false;
  bool ok = true;
  for (const Expr& load : LoadsIn(reader.body)) {
    if (load->buffer != s.tensor) continue;
    for (size_t d = 0; d < s.axes.size(); ++d) {
      ok = ok && IsVar(load->args[d], reader.axes[d]);
    }
  }
  const auto is_of_row = [&](const ScheduledStage& reduction) {
    return reduction.reduce_axes.size() == 1 &&
           reduction.reduce_axes[0]->extent == reader.axes.back()->extent;
  };
  for (const Buffer* read : ReadsOf(s)) {
    const int p = schedule.FindStage(read);
    ok = ok && (p < 0 || !schedule.stage(p).is_reduction() || is_of_row(schedule.stage(p)));
  }
  return ok;
}

bool IsLessToLoad(const ScheduledStage& reader, const ScheduledStage& output) {
  constexpr size_t kMostLoads = 4;
  const std::vector<Expr> loads = LoadsIn(reader.body);
  const auto places = std::count_if(
      loads.begin(), loads.end(), [&](const Expr& load) { return load->buffer == output.tensor; });
  return places > 1 || LoadsIn(output.body).size() > kMostLoads;
}

bool IsReadInTails(const Schedule& schedule, const ScheduledStage& stored) {
  if (stored.is_output || stored.materialized || !IsHalf(stored.tensor->dtype)) return false;
  const int64_t terms = ShapeOf(WarpInstruction(stored.tensor->dtype)).k;
  const std::vector<int> readers = schedule.ReadersOf(stored.tensor.get());
  return std::any_of(readers.begin(), readers.end(), [&](int r) {
    const ScheduledStage& sum = schedule.stage(r);
    if (sum.combiner != Combiner::kSum || sum.body->op != Op::kMul) return false;
    return std::any_of(sum.reduce_axes.begin(), sum.reduce_axes.end(),
                       [&](const Var& axis) { return axis->extent % terms != 0; });
  });
}

void AddStages(const Schedule& schedule, int root, const std::set<int>& others,
               std::set<int>& stages) {
  if (!stages.insert(root).second) return;
  for (const ScheduledStage* s : schedule.Together(schedule.stage(root))) {
    for (const Buffer* read : ReadsOf(*s)) {
      int p = schedule.FindStage(read);
      if (p < 0) continue;
      p = schedule.IndexOf(schedule.NestOf(schedule.stage(p)));
      if (!others.contains(p)) AddStages(schedule, p, others, stages);
    }
  }
}

}  // namespace heddle::search_space
