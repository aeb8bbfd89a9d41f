#include "search_space/sketch/kernels/beside_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "search_space/sketch/kernels/reads.h"

namespace heddle::search_space {
namespace {

// Elements of a row that are worth a group of threads.
constexpr int64_t kShortestRow = 16;

bool Contains(const Tensors& tensors, const Buffer* tensor) {
  return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
}

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

// What it reads, itself and through others.
Tensors AllReadsOf(const Schedule& schedule, const ScheduledStage& s) {
  Tensors all = ReadsOf(s);
  for (size_t i = 0; i < all.size(); ++i) {
    const int read = schedule.FindStage(all[i]);
    if (read >= 0) AddReads(schedule.stage(read), all);
  }
  return all;
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

}  // namespace

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
