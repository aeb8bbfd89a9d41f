// Staging through shared memory: a tensor that is read across its rows is fetched as a tile, along
// its rows, and read from shared memory in the order of the output.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/sketch.h"

namespace heddle::search_space {
namespace {

// The axis of `root` that runs along the rows of the tensor read by `load`; -1 when the rows of the
// output and of the tensor run the same way, or the index is more than a variable.
int CrossAxis(const ScheduledStage& root, const Expr& load) {
  const Expr& last = load->args.back();
  if (load->args.size() < 2 || last->op != Op::kVar) return -1;
  bool uses_row = false;
  for (const Expr& index : load->args) {
    if (index->op != Op::kVar) return -1;
    uses_row = uses_row || index->var == root.axes.back();
  }
  if (!uses_row || last->var == root.axes.back()) return -1;
  for (size_t a = 0; a < root.axes.size(); ++a) {
    if (root.axes[a] == last->var) return static_cast<int>(a);
  }
  return -1;
}

struct CrossRead {
  std::string tensor;
  int axis = -1;
  std::vector<std::string> layout_axes;
};

CrossRead FindCrossRead(const ScheduledStage& root) {
  CrossRead found;
  Visit(root.body, [&](const Expr& node) {
    if (found.axis >= 0 || node->op != Op::kLoad) return;
    found.axis = CrossAxis(root, node);
    found.tensor = node->buffer->name;
    found.layout_axes.clear();
    for (size_t i = 0; i < node->args.size(); ++i) {
      found.layout_axes.push_back(absl::StrCat("d", i));
    }
  });
  return found;
}

class StagingPlan : public KernelPlan {
 public:
  StagingPlan(const ScheduledStage& root, const CrossRead& read, const Target& target)
      : target_(target), root_(root.name()), read_(read) {
    element_bytes_ = SizeOf(root.tensor->dtype);
    for (const Var& axis : root.axes) {
      axes_.push_back(axis->name);
      extents_.push_back(axis->extent);
    }
    holes_ = {{"rows", {8, 16, 32, 64}, 0},       {"columns", {32, 64, 128}, 0},
              {"threads_y", {1, 2, 4, 8, 16}, 0}, {"vector", {1}, 0},
              {"pad", {0, 1, 2, 4}, 1},           {"fetch", {1}, 1}};
    if (extents_.back() % 2 == 0) holes_[3].domain.push_back(2);
    if (extents_.back() % 4 == 0) holes_[3].domain.push_back(4);
    const int64_t along = extents_[static_cast<size_t>(read.axis)];
    if (along % 2 == 0) holes_[5].domain.push_back(2);
    if (along % 4 == 0) holes_[5].domain.push_back(4);
  }

  std::vector<uint8_t> Default() const override { return {2, 0, 3, 0, 1, 0}; }

  absl::Status Check(HoleValues v) const override {
    const int64_t threads = v[2] * (v[1] / v[3]);
    const int64_t bytes = v[1] * (v[0] + v[4]) * element_bytes_;
    if (v[0] % v[2] != 0 || v[0] % v[5] != 0) {
      return absl::ResourceExhaustedError("staged rows do not divide among threads");
    }
    if (threads < 32 || threads > target_.max_threads_per_block) {
      return absl::ResourceExhaustedError(absl::StrCat(root_, ": ", threads, " threads"));
    }
    if (bytes > target_.max_shared_bytes_per_block) {
      return absl::ResourceExhaustedError(absl::StrCat(root_, ": ", bytes, " shared bytes"));
    }
    return absl::OkStatus();
  }

  double Waste(HoleValues v) const override {
    auto padded = [](int64_t e, int64_t t) {
      const int64_t covered = (e + t - 1) / t * t;
      return static_cast<double>(covered) / static_cast<double>(e);
    };
    return padded(extents_[static_cast<size_t>(read_.axis)], v[0]) * padded(extents_.back(), v[1]);
  }

  void AppendSteps(HoleValues v, std::vector<Step>& steps) const override {
    const int64_t rows = v[0], columns = v[1], threads_y = v[2], vector = v[3];
    const std::string row = axes_[static_cast<size_t>(read_.axis)], column = axes_.back();
    // row -> block, per thread, thread; column -> block, thread (, lane)
    steps.push_back(Split{root_, row, {rows / threads_y, threads_y}});
    std::vector<int64_t> column_factors = {columns / vector};
    if (vector > 1) column_factors.push_back(vector);
    steps.push_back(Split{root_, column, column_factors});
    std::vector<std::string> blocks;
    for (const std::string& axis : axes_) {
      blocks.push_back(axis == row || axis == column ? axis + ".0" : axis);
    }
    std::vector<std::string> order = blocks;
    for (const std::string& l : {row + ".2", column + ".1", row + ".1"}) order.push_back(l);
    if (vector > 1) order.push_back(column + ".2");
    steps.push_back(Reorder{root_, order});
    std::string block = blocks[0];
    for (size_t i = 1; i < blocks.size(); ++i) block += "@" + blocks[i];
    steps.push_back(Fuse{root_, blocks});
    const std::string thread = row + ".2@" + column + ".1";
    steps.push_back(Fuse{root_, {row + ".2", column + ".1"}});
    steps.push_back(Bind{root_, block, BindTo::kBlock});
    steps.push_back(Bind{root_, thread, BindTo::kThread});
    steps.push_back(Unroll{root_, row + ".1"});
    if (vector > 1) steps.push_back(Vectorize{root_, column + ".2"});
    steps.push_back(CacheRead{read_.tensor, Scope::kShared, root_});
    const std::string tile = read_.tensor + ".shared";
    steps.push_back(ComputeAt{tile, root_, thread});
    steps.push_back(StorageLayout{tile, read_.layout_axes, v[4], 0});
    steps.push_back(Fetch{tile, threads_y * (columns / vector), v[5]});
  }

 private:
  const Target target_;
  const std::string root_;
  const CrossRead read_;
  int64_t element_bytes_ = 4;
  std::vector<std::string> axes_;
  std::vector<int64_t> extents_;
};

class StagingRule : public SketchRule {
 public:
  const char* name() const override { return "stage"; }
  bool Applies(const ProgramShape& shape, const KernelShape& kernel, const Target&) const override {
    const ScheduledStage& root = shape.schedule.stages()[static_cast<size_t>(kernel.root)];
    const CrossRead read = FindCrossRead(root);
    // Stages written by the program name their own axes.
    return kernel.reductions.empty() && read.axis >= 0 && shape.schedule.FindStage(read.tensor) < 0;
  }
  std::unique_ptr<KernelPlan> Apply(const ProgramShape& shape, const KernelShape& kernel,
                                    const Target& target) const override {
    const ScheduledStage& root = shape.schedule.stages()[static_cast<size_t>(kernel.root)];
    return std::make_unique<StagingPlan>(root, FindCrossRead(root), target);
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeStagingRule() { return std::make_unique<StagingRule>(); }

}  // namespace heddle::search_space
