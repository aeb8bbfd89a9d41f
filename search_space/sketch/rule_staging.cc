// Staging through shared memory: a tensor that is read across its rows is fetched as a tile, along
// its rows, and read from shared memory in the order of the output.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/rules.h"

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

struct CrossRead {
  BufferRef tensor;
  int axis = -1;
};

// What is read elsewhere, too, would make larger tiles than those of one read.
CrossRead FindCrossRead(const ScheduledStage& root) {
  CrossRead found;
  Expr read;
  Visit(root.body, [&](const Expr& node) {
    if (found.axis >= 0 || !IsValueLoad(node)) return;
    found.axis = CrossAxis(root, node);
    found.tensor = node->buffer;
    read = node;
  });
  Visit(root.body, [&](const Expr& node) {
    const bool same = node->op == Op::kLoad && node->buffer == found.tensor;
    if (same && !StructurallyEqual(node, read)) found.axis = -1;
  });
  return found;
}

class StagingPlan : public KernelPlan {
 public:
  StagingPlan(const ScheduledStage& root, const CrossRead& read, const Target& target)
      : target_(target), root_{root.tensor}, read_(read) {
    for (const Var& axis : root.axes) extents_.push_back(axis->extent);
    holes_ = {{"rows", {8, 16, 32, 64}, 0},       {"columns", {32, 64, 128}, 0},
              {"threads_y", {1, 2, 4, 8, 16}, 0}, {"vector", {1}, 0},
              {"pad", {0, 1, 2, 4}, 1},           {"fetch", {1}, 1}};
    AddVectors(extents_.back(), root.tensor->dtype, holes_[kVector].domain);
    AddVectors(extents_[static_cast<size_t>(read.axis)], read.tensor->dtype, holes_[kFetch].domain);
  }

  std::vector<uint8_t> Default() const override { return {2, 0, 3, 0, 1, 0}; }

  absl::Status Check(HoleValues v) const override {
    const int64_t bytes = v[kColumns] * (v[kRows] + v[kPad]) * SizeOf(read_.tensor->dtype);
    if (v[kRows] % v[kThreadsY] != 0 || v[kRows] % v[kFetch] != 0) {
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
    return padded(extents_[static_cast<size_t>(read_.axis)], v[kRows]) *
           padded(extents_.back(), v[kColumns]);
  }

  void Write(ScheduleWriter& w, HoleValues v) const override {
    LoopList blocks = w.Loops(root_), lanes;
    // row -> block, per thread, thread; column -> block, thread (, lane)
    const auto [row_block, row, row_thread] =
        w.Split(blocks[static_cast<size_t>(read_.axis)], v[kRows] / v[kThreadsY], v[kThreadsY]);
    std::vector<int64_t> columns = {v[kColumns] / v[kVector]};
    if (v[kVector] > 1) columns.push_back(v[kVector]);
    const LoopList column = w.Split(blocks.back(), columns);
    if (v[kVector] > 1) lanes.push_back(column[2]);
    blocks[static_cast<size_t>(read_.axis)] = row_block;
    blocks.back() = column[0];
    w.Reorder(Join({blocks, {row_thread, column[1], row}, lanes}));
    const LoopRef block = w.Fuse(blocks);
    const LoopRef thread = w.Fuse({row_thread, column[1]});
    w.Bind(block, BindTo::kBlock);
    w.Bind(thread, BindTo::kThread);
    w.Unroll(row);
    if (!lanes.empty()) w.Vectorize(lanes[0]);
    const StageRef tile = w.CacheRead(read_.tensor, Scope::kShared, root_);
    w.ComputeAt(tile, thread);
    std::vector<size_t> as_it_is(read_.tensor->shape.size());
    std::iota(as_it_is.begin(), as_it_is.end(), size_t{0});
    w.StorageLayout(tile, as_it_is, v[kPad], 0);
    w.Fetch(tile, Threads(v), v[kFetch]);
  }

 private:
  enum { kRows, kColumns, kThreadsY, kVector, kPad, kFetch };

  // Widths of accesses that do not cross the ends of rows of this extent.
  static void AddVectors(int64_t extent, DType type, std::vector<int64_t>& widths) {
    for (int64_t v = 2; v <= ElementsOfAccess(type) && extent % v == 0; v *= 2) {
      widths.push_back(v);
    }
  }
  static int64_t Threads(HoleValues v) { return v[kThreadsY] * (v[kColumns] / v[kVector]); }
  absl::Status Refuse(int64_t value, const char* what) const {
    return absl::ResourceExhaustedError(absl::StrCat(root_.tensor->name, ": ", value, what));
  }

  const Target target_;
  const StageRef root_;
  const CrossRead read_;
  std::vector<int64_t> extents_;
};

class StagingRule : public SketchRule {
 public:
  const char* name() const override { return "stage"; }
  bool Applies(const ProgramShape& shape, const KernelShape& kernel, const Target&) const override {
    const CrossRead read = FindCrossRead(shape.stage(kernel.root));
    return kernel.reductions.empty() && read.axis >= 0 &&
           shape.schedule.FindStage(read.tensor.get()) < 0 &&
           !shape.schedule.HasCompanions(shape.stage(kernel.root));
  }
  std::unique_ptr<KernelPlan> Apply(const ProgramShape& shape, const KernelShape& kernel,
                                    const Target& target) const override {
    const ScheduledStage& root = shape.stage(kernel.root);
    return std::make_unique<StagingPlan>(root, FindCrossRead(root), target);
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeStagingRule() { return std::make_unique<StagingRule>(); }

}  // namespace heddle::search_space
