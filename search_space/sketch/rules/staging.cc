// Staging through shared memory: tensors that are read across their rows are fetched as tiles,
// along their rows, and read from shared memory in the order of the output.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

// The axis of `root` that runs along the rows of the tensor read by `load`; -1 when the rows of the
// output and of the tensor run the same way, or the indices are more than variables, each one once.
int CrossAxis(const ScheduledStage& root, const Expr& load) {
  const Expr& last = load->args.back();
  if (load->args.size() < 2 || last->op != Op::kVar) return -1;
  bool uses_row = false;
  for (const Expr& index : load->args) {
    const auto same = [&](const Expr& other) { return StructurallyEqual(index, other); };
    if (index->op != Op::kVar || std::count_if(load->args.begin(), load->args.end(), same) > 1) {
      return -1;
    }
    uses_row = uses_row || index->var == root.axes.back();
  }
  if (!uses_row || last->var == root.axes.back()) return -1;
  for (size_t a = 0; a < root.axes.size(); ++a) {
    if (root.axes[a] == last->var) return static_cast<int>(a);
  }
  return -1;
}

// Tensors that are read across their rows, all along the same axis of the root.
struct CrossReads {
  std::vector<BufferRef> tensors;
  int axis = -1;
};

// What is read elsewhere, too, would make larger tiles than those of one read. Kernels before this
// one have stored what it reads of other stages.
CrossReads FindCrossReads(const Schedule& schedule, const ScheduledStage& root) {
  CrossReads found;
  const std::vector<Expr> loads = LoadsIn(root.body);
  for (const Expr& load : loads) {
    const int axis = CrossAxis(root, load);
    const int made_by = schedule.FindStage(load->buffer.get());
    const bool is_stored = made_by < 0 || schedule.stage(made_by).is_root();
    const auto reads = std::count_if(loads.begin(), loads.end(), [&](const Expr& other) {
      return other->buffer == load->buffer;
    });
    const bool fits = axis >= 0 && IsValueLoad(load) && is_stored && reads == 1;
    if (!fits || (found.axis >= 0 && axis != found.axis)) continue;
    found.axis = axis;
    found.tensors.push_back(load->buffer);
  }
  return found;
}

class StagingPlan : public KernelPlan {
 public:
  StagingPlan(const ScheduledStage& root, CrossReads read, const Target& target)
      : target_(target), root_{root.tensor}, read_(std::move(read)) {
    for (const Var& axis : root.axes) extents_.push_back(axis->extent);
    int64_t alike = extents_[static_cast<size_t>(read_.axis)];
    DType widest = read_.tensors[0]->dtype;
    for (const BufferRef& tensor : read_.tensors) {
      alike = std::gcd(alike, tensor->shape.back());
      if (SizeOf(tensor->dtype) > SizeOf(widest)) widest = tensor->dtype;
    }
    rows_ = AddHole("rows", {8, 16, 32, 64}, 0);
    columns_ = AddHole("columns", {32, 64, 128}, 0);
    threads_y_ = AddHole("threads_y", {1, 2, 4, 8, 16}, 0);
    vector_ = AddHole("vector", AccessWidths(extents_.back(), root.tensor->dtype), 0);
    pad_ = AddHole("pad", {0, 1, 2, 4}, 1);
    fetch_ = AddHole("fetch", AccessWidths(alike, widest), 1);
  }

  std::vector<uint8_t> Default() const override { return {2, 0, 3, 0, 1, 0}; }

  absl::Status Check(HoleValues v) const override {
    int64_t bytes = 0;
    for (const BufferRef& tensor : read_.tensors) {
      bytes += v[columns_] * (v[rows_] + v[pad_]) * SizeOf(tensor->dtype);
    }
    if (v[rows_] % v[threads_y_] != 0 || v[rows_] % v[fetch_] != 0) {
      return absl::ResourceExhaustedError("staged rows do not divide among threads");
    }
    if (Threads(v) < 32 || Threads(v) > target_.max_threads_per_block) {
      return Refuse(Threads(v), " threads");
    }
    if (bytes > target_.max_shared_bytes_per_block) return Refuse(bytes, " shared bytes");
    return absl::OkStatus();
  }

  double Waste(HoleValues v) const override {
    auto padded = [](int64_t e, int64_t t) {
      return static_cast<double>(CeilDiv(e, t) * t) / static_cast<double>(e);
    };
    return padded(extents_[static_cast<size_t>(read_.axis)], v[rows_]) *
           padded(extents_.back(), v[columns_]);
  }

  void Write(ScheduleWriter& w, HoleValues v) const override {
    LoopList blocks = w.Loops(root_), lanes;
    // row -> block, per thread, thread; column -> block, thread (, lane)
    const auto [row_block, row, row_thread] =
        w.Split(blocks[static_cast<size_t>(read_.axis)], v[rows_] / v[threads_y_], v[threads_y_]);
    std::vector<int64_t> columns = {v[columns_] / v[vector_]};
    if (v[vector_] > 1) columns.push_back(v[vector_]);
    const LoopList column = w.Split(blocks.back(), columns);
    if (v[vector_] > 1) lanes.push_back(column[2]);
    blocks[static_cast<size_t>(read_.axis)] = row_block;
    blocks.back() = column[0];
    w.Reorder(Join({blocks, {row_thread, column[1], row}, lanes}));
    const LoopRef block = w.Fuse(blocks);
    const LoopRef thread = w.Fuse({row_thread, column[1]});
    w.Bind(block, BindTo::kBlock);
    w.Bind(thread, BindTo::kThread);
    w.Unroll(row);
    if (!lanes.empty()) w.Vectorize(lanes[0]);
    for (const BufferRef& tensor : read_.tensors) {
      const StageRef tile = w.CacheRead(tensor, Scope::kShared, root_);
      w.ComputeAt(tile, thread);
      std::vector<size_t> as_it_is(tensor->shape.size());
      std::iota(as_it_is.begin(), as_it_is.end(), size_t{0});
      w.StorageLayout(tile, as_it_is, v[pad_], 0);
      w.Fetch(tile, Threads(v), v[fetch_]);
    }
  }

 private:
  int64_t Threads(HoleValues v) const { return v[threads_y_] * (v[columns_] / v[vector_]); }
  absl::Status Refuse(int64_t value, const char* what) const {
    return absl::ResourceExhaustedError(absl::StrCat(root_.tensor->name, ": ", value, what));
  }

  const Target target_;
  const StageRef root_;
  const CrossReads read_;
  std::vector<int64_t> extents_;
  HoleId rows_, columns_, threads_y_, vector_, pad_, fetch_;
};

std::unique_ptr<KernelPlan> PlanStaging(const ProgramShape& shape, const KernelShape& kernel,
                                        const Target& target) {
  const ScheduledStage& root = shape.stage(kernel.root);
  if (!kernel.reductions.empty() || shape.schedule.HasCompanions(root)) return nullptr;
  CrossReads read = FindCrossReads(shape.schedule, root);
  if (read.axis < 0) return nullptr;
  return std::make_unique<StagingPlan>(root, std::move(read), target);
}

}  // namespace

const SketchRule kStagingRule = {.name = "stage", .apply = PlanStaging};

}  // namespace heddle::search_space
