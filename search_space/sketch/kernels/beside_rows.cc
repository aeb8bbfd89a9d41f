#include "search_space/sketch/kernels/beside_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "search_space/ir/expr/queries.h"
#include "search_space/schedule/placement/reduce_beside.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/kernels/reads.h"

namespace heddle::search_space {
namespace {

const ScheduledStage* LargestRows(const Schedule& schedule) {
  const ScheduledStage* largest = nullptr;
  for (const ScheduledStage& s : schedule.stages()) {
    const bool has_rows = s.is_output && !s.is_reduction() && s.axes.size() > 1 &&
                          s.axes.back()->extent >= kShortestRow;
    if (!has_rows) continue;
    if (largest == nullptr || s.tensor->elements >= largest->tensor->elements) largest = &s;
  }
  return largest;
}

// What a reduction reads along its own last axis, itself and through others.
Tensors ReadAlongRows(const Schedule& schedule, const ScheduledStage& s) {
  Tensors along;
  Visit(s.body, [&](const Expr& load) {
    if (load->op != Op::kLoad || load->args.back()->op != Op::kVar ||
        load->args.back()->var != s.axes.back()) {
      return;
    }
    along.push_back(load->buffer.get());
    const int read = schedule.FindStage(load->buffer.get());
    if (read < 0) return;
    const Tensors through = AllReadsOf(schedule, schedule.stage(read));
    along.insert(along.end(), through.begin(), through.end());
  });
  return along;
}

// Are its axes those of `rows`, of which it reduces all but the last one and some outermost ones?
bool IsOverRows(const ScheduledStage& s, const ScheduledStage& rows) {
  const size_t own = s.axes.size(), reduced = s.reduce_axes.size();
  if (own == 0 || own + reduced != rows.axes.size()) return false;
  for (size_t a = 0; a + 1 < own + reduced; ++a) {
    const Var& axis = a + 1 < own ? s.axes[a] : s.reduce_axes[a + 1 - own];
    if (axis->extent != rows.axes[a]->extent) return false;
  }
  return s.axes.back()->extent == rows.axes.back()->extent;
}

// A kernel whose one reduction is to be computed beside the rows of another one.
class SumBeside {
 public:
  SumBeside(const ProgramShape& shape, const KernelShape& rows, const KernelShape& sum)
      : schedule_(shape.schedule), rows_(shape.stage(rows.root)) {
    if (sum.reductions.size() != 1 || sum.fused || &rows == &sum) return;
    const ScheduledStage& reduction = shape.stage(sum.reductions[0]);
    const std::optional<int> reader = schedule_.OnlyReaderOf(reduction.tensor.get());
    if (!reader || *reader != sum.root) return;
    for (const KernelShape& kernel : shape.kernels) roots_.insert(kernel.root);
    sums_ = schedule_.Together(reduction);
    if (!std::all_of(sums_.begin(), sums_.end(), [&](const auto* s) { return MayStandBeside(*s); }))
      sums_.clear();
  }

  // The steps for that; none where it may not be.
  std::optional<std::vector<Step>> Steps() const {
    if (sums_.empty()) return std::nullopt;
    std::vector<Step> steps;
    for (const ScheduledStage* sum : sums_) {
      if (ReadsAny(sum->body, {rows_.tensor.get()}))
        steps.emplace_back(ComputeAgain{rows_.name(), sum->name()});
    }
    return steps;
  }

 private:
  // What the rows' kernel reads, itself and in stages of its own.
  Tensors ReadByRows() const {
    Tensors all = ReadsOf(rows_);
    for (size_t i = 0; i < all.size(); ++i) {
      const int read = schedule_.FindStage(all[i]);
      if (read >= 0 && !roots_.contains(read)) AddReads(schedule_.stage(read), all);
    }
    return all;
  }
  // The rows do not wait for it, nor it for anything that comes behind them, and both read
  // something along the rows.
  bool MayStandBeside(const ScheduledStage& sum) const {
    const Buffer* const made = rows_.tensor.get();
    const bool waits = Contains(AllReadsOf(schedule_, rows_), sum.tensor.get());
    if (waits || !IsOverRows(sum, rows_)) return false;
    for (const Buffer* read : ReadsOf(sum)) {
      const int stage = schedule_.FindStage(read);
      if (stage < 0 || read == made) continue;
      if (stage > schedule_.FindStage(made) ||
          Contains(AllReadsOf(schedule_, schedule_.stage(stage)), made)) {
        return false;
      }
    }
    const Tensors inputs = ReadByRows();
    const Tensors along = ReadAlongRows(schedule_, sum);
    return std::any_of(along.begin(), along.end(), [&](const Buffer* tensor) {
      return tensor == made || (tensor->elements > rows_.axes.back()->extent &&
                                Contains(ReadsOf(sum), tensor) && Contains(inputs, tensor));
    });
  }

  const Schedule& schedule_;
  const ScheduledStage& rows_;
  std::set<int> roots_;
  std::vector<const ScheduledStage*> sums_;
};

// Does the kernel make rows, element by element?
bool MakesRowsAlone(const ProgramShape& shape, const KernelShape& kernel) {
  const ScheduledStage& root = shape.stage(kernel.root);
  return kernel.reductions.empty() && kernel.beside.empty() && !root.is_reduction() &&
         root.axes.size() > 1 && root.axes.back()->extent >= kShortestRow;
}

}  // namespace

std::optional<ProgramShape> WithSumsBeside(const ProgramShape& shape) {
  ProgramShape with = shape;
  // With all sums so far beside their rows, so that no two wait for one another.
  Schedule placed = shape.schedule;
  const auto place = [&placed](const std::vector<Step>& steps, const Buffer* rows,
                               const Buffer* sum) {
    Schedule next = placed;
    if (!Apply(steps, next).ok()) return false;
    const Step beside =
        BesideRowsOf(next.stage(next.FindStage(rows)), next.stage(next.FindStage(sum)), 1, 1);
    if (!Apply(beside, next).ok()) return false;
    placed = std::move(next);
    return true;
  };
  std::set<int> sums;
  for (KernelShape& rows : with.kernels) {
    if (!MakesRowsAlone(with, rows)) continue;
    const Buffer* const root = with.stage(rows.root).tensor.get();
    for (const KernelShape& kernel : with.kernels) {
      const auto steps = SumBeside(with, rows, kernel).Steps();
      if (!steps.has_value() || sums.contains(kernel.reductions[0])) continue;
      const ScheduledStage& sum = with.stage(kernel.reductions[0]);
      const auto reduced = [&](int s) { return ExtentOf(with.stage(s).reduce_axes); };
      const bool are_as_many =
          rows.beside.empty() || reduced(rows.beside[0]) == ExtentOf(sum.reduce_axes);
      Schedule next = with.schedule;
      if (!are_as_many || !Apply(*steps, next).ok()) continue;
      if (!place(*steps, root, sum.tensor.get())) continue;
      with.schedule = std::move(next);
      with.steps.insert(with.steps.end(), steps->begin(), steps->end());
      rows.beside.push_back(kernel.reductions[0]);
      rows.fused = true;
      sums.insert(kernel.reductions[0]);
    }
  }
  if (sums.empty()) return std::nullopt;
  std::erase_if(with.kernels, [&](const KernelShape& kernel) {
    return kernel.reductions.size() == 1 && sums.contains(kernel.reductions[0]);
  });
  return with;
}

std::vector<BufferRef> SumsBesideRows(const Schedule& schedule) {
  std::vector<BufferRef> sums;
  const ScheduledStage* const rows = LargestRows(schedule);
  if (rows == nullptr) return sums;
  const Tensors inputs = AllReadsOf(schedule, *rows);
  for (const ScheduledStage& s : schedule.stages()) {
    if (!s.is_reduction() || Contains(inputs, s.tensor.get()) || !IsOverRows(s, *rows)) continue;
    const Tensors own = AllReadsOf(schedule, s);
    // A row that both read is no reason to read all rows once.
    const Tensors along = ReadAlongRows(schedule, s);
    const bool have_common = std::any_of(along.begin(), along.end(), [&](const Buffer* tensor) {
      return tensor->elements > rows->axes.back()->extent &&
             (tensor == rows->tensor.get() || Contains(inputs, tensor));
    });
    const bool reads_sum = std::any_of(sums.begin(), sums.end(), [&](const BufferRef& other) {
      return Contains(own, other.get());
    });
    if (have_common && !reads_sum) sums.push_back(s.tensor);
  }
  return sums;
}

}  // namespace heddle::search_space
