// Multi-level tiling of a reduction with data reuse.
//
// Every axis of the result is split into block, virtual thread, warp, lane and register tile, the
// reduction into an outer loop that fetches tiles of the inputs into shared memory and an inner one
// that reads fragments of them into registers. The structure is the one that fast float32 kernels
// on NVIDIA GPUs share (docs/architecture.md); what differs between them is the holes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/tiling_plan.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMaxSplit = 256;

std::vector<int64_t> PowersUpTo(int64_t most, int64_t limit) {
  std::vector<int64_t> out = {1};
  while (out.back() * 2 <= most && out.back() < limit) out.push_back(out.back() * 2);
  return out;
}

// An axis that every input is read along, and not the one that lies innermost in memory: a batch,
// whose elements have nothing in common. Others must be large enough to fill blocks.
bool IsBatch(const ScheduledStage& reduction, size_t axis) {
  double others = 1;
  for (size_t a = 0; a < reduction.axes.size(); ++a) {
    if (a != axis) others *= static_cast<double>(reduction.axes[a]->extent);
  }
  bool everywhere = axis + 1 < reduction.axes.size() && others >= 4096;
  Visit(reduction.body, [&](const Expr& node) {
    if (node->op != Op::kLoad) return;
    everywhere = everywhere && std::any_of(node->args.begin(), node->args.end(), [&](auto& index) {
                   return index->op == Op::kVar && index->var == reduction.axes[axis];
                 });
  });
  return everywhere;
}

// The terms of an affine index; false when it is anything else.
bool AffineTerms(const Expr& index, const std::vector<Var>& vars, std::vector<IndexTerm>& terms) {
  if (index->op == Op::kInt) return true;
  if (index->op == Op::kVar) {
    for (size_t i = 0; i < vars.size(); ++i) {
      if (vars[i] == index->var) terms.push_back({static_cast<int>(i), 1});
    }
    return true;
  }
  if (index->op == Op::kAdd) {
    return AffineTerms(index->args[0], vars, terms) && AffineTerms(index->args[1], vars, terms);
  }
  if (index->op == Op::kSub && index->args[1]->op == Op::kInt) {
    return AffineTerms(index->args[0], vars, terms);
  }
  if (index->op == Op::kMul && index->args[1]->op == Op::kInt) {
    const size_t before = terms.size();
    if (!AffineTerms(index->args[0], vars, terms)) return false;
    for (size_t i = before; i < terms.size(); ++i) {
      terms[i].stride *= index->args[1]->int_value;
      if (terms[i].stride <= 0) return false;
    }
    return true;
  }
  return false;
}

std::vector<Expr> LoadsOf(const ScheduledStage& stage) {
  std::vector<Expr> loads;
  Visit(stage.body, [&](const Expr& node) {
    if (node->op == Op::kLoad) loads.push_back(node);
  });
  return loads;
}

}  // namespace

void TilingPlan::AddAxisHoles(const ScheduledStage& root, const ScheduledStage& reduction) {
  int group = 0;
  for (size_t a = 0; a < root.axes.size(); ++a) {
    const Var& axis = root.axes[a];
    axes_.push_back({axis->name, axis->extent, holes_.size()});
    // A block tile reaches past a short axis by less than a factor of two.
    const int64_t limit = IsBatch(reduction, a) ? 1 : axis->extent;
    holes_.push_back({axis->name + ".vthread", PowersUpTo(4, limit), group});
    holes_.push_back({axis->name + ".warps", PowersUpTo(8, limit), group});
    holes_.push_back({axis->name + ".lanes", PowersUpTo(32, limit), group});
    std::vector<int64_t> tiles;
    for (int64_t t : {1, 2, 3, 4, 6, 7, 8}) {
      if (t == 1 || t < 2 * limit) tiles.push_back(t);
    }
    holes_.push_back({axis->name + ".tile", tiles, group});
  }
}

void TilingPlan::AddReduceHoles(const ScheduledStage& reduction) {
  for (const Var& axis : reduction.reduce_axes) {
    reduce_.push_back({axis->name, axis->extent, holes_.size()});
    std::vector<int64_t> inner;
    if (axis->extent <= kWindow) {
      inner = {axis->extent};
      if (axis->extent > 1) inner.push_back(1);
    } else {
      for (int64_t k : {8, 4, 16, 32}) inner.push_back(k);
    }
    holes_.push_back({axis->name + ".inner", inner, 1});
  }
}

void TilingPlan::AddInputs(const ProgramShape& shape, const KernelShape& kernel,
                           const ScheduledStage& reduction) {
  std::vector<Var> vars = reduction.axes;
  vars.insert(vars.end(), reduction.reduce_axes.begin(), reduction.reduce_axes.end());
  for (const Expr& load : LoadsOf(reduction)) {
    TiledInput in;
    in.tensor = load->buffer->name;
    const int stage = shape.schedule.FindStage(load->buffer.get());
    const ScheduledStage* producer =
        stage < 0 ? nullptr : &shape.schedule.stages()[static_cast<size_t>(stage)];
    in.is_stage = std::any_of(kernel.stageable.begin(), kernel.stageable.end(),
                              [&](int staged) { return staged == stage; });
    size_t data_axis_span = 0;
    for (size_t d = 0; d < load->args.size(); ++d) {
      in.axes.push_back(producer != nullptr ? producer->axes[d]->name : absl::StrCat("d", d));
      in.dims.emplace_back();
      AffineTerms(load->args[d], vars, in.dims.back());
      in.unit.push_back(load->args[d]->op == Op::kVar);
      for (const IndexTerm& t : in.dims.back()) {
        // The last data axis that the input depends on lies innermost in shared memory, so that a
        // thread's fragment is contiguous.
        const auto a = static_cast<size_t>(t.axis);
        if (a < axes_.size() && axes_[a].extent > 1 && a + 1 > data_axis_span) {
          data_axis_span = a + 1;
          in.inner = static_cast<int>(d);
        }
      }
    }
    if (in.inner < 0) in.inner = static_cast<int>(in.dims.size()) - 1;
    in.row_extent = load->buffer->shape.back();
    if (in.is_stage) in.row_extent = LoadsOf(*producer)[0]->buffer->shape.back();
    // Windows that are fetched whole continue a row: weights [c, ky, kx] are runs of c * ky * kx.
    for (size_t d = in.dims.size(); d-- > 1 && !in.is_stage && IsWindow(in, d);) {
      in.row_extent *= load->buffer->shape[d - 1];
    }
    in.first_hole = holes_.size();
    std::vector<int64_t> vectors = {1};
    if (in.row_extent % 2 == 0) vectors.push_back(2);
    if (in.row_extent % 4 == 0) vectors.push_back(4);
    holes_.push_back({in.tensor + ".fetch", vectors, 2});
    const bool transposed = IsTransposed(in);
    holes_.push_back({in.tensor + ".pad",
                      transposed ? std::vector<int64_t>{4, 0, 1} : std::vector<int64_t>{0, 4}, 2});
    const bool halo = in.dims.back().size() > 1 || (in.is_stage && vectors.size() > 1);
    holes_.push_back(
        {in.tensor + ".align",
         halo && vectors.size() > 1 ? std::vector<int64_t>{1, 4} : std::vector<int64_t>{1}, 2});
    inputs_.push_back(std::move(in));
  }
}

void TilingPlan::AddKernelHoles() {
  fragment_hole_ = holes_.size();
  const bool window = reduce_.size() > 1 && reduce_.back().extent <= kWindow;
  holes_.push_back(
      {"fragments_out", window ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0}, 1});
  pipeline_hole_ = holes_.size();
  // 0 none, 1 registers, 2 and more: asynchronous copies that deep.
  holes_.push_back(
      {"pipeline",
       target_.has_async_copy ? std::vector<int64_t>{0, 1, 2, 3, 4} : std::vector<int64_t>{0, 1},
       3});
  unroll_hole_ = holes_.size();
  holes_.push_back({"unroll", {0, 1}, 3});
  prefetch_hole_ = holes_.size();
  holes_.push_back(
      {"prefetch", reduce_.size() == 1 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0}, 3});
  interleave_hole_ = holes_.size();
  holes_.push_back({"interleave",
                    target_.has_async_copy ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0},
                    3});
  blocks_hole_ = holes_.size();
  holes_.push_back(
      {"min_blocks",
       target_.api == Api::kCuda ? std::vector<int64_t>{0, 1, 2, 3, 4} : std::vector<int64_t>{0},
       3});
  swizzle_hole_ = holes_.size();
  holes_.push_back({"block_swizzle", {1, 2, 4, 8}, 3});
  split_hole_ = holes_.size();
  holes_.push_back({"split_k", PowersUpTo(SplitAxis().extent / 2, kMaxSplit), 1});
  slice_hole_ = holes_.size();
  holes_.push_back({"slice_k", PowersUpTo(std::min<int64_t>(8, SplitAxis().extent), 8), 1});
}

namespace {

class TilingRule : public SketchRule {
 public:
  const char* name() const override { return "tile"; }

  // One reduction over at least two factors, every index affine, each tensor read once, and some
  // axis of the result along which an input is reused.
  bool Applies(const ProgramShape& shape, const KernelShape& kernel, const Target&) const override {
    if (kernel.reductions.size() != 1) return false;
    const auto& stages = shape.schedule.stages();
    const ScheduledStage& reduction = stages[static_cast<size_t>(kernel.reductions[0])];
    std::vector<Var> vars = reduction.axes;
    vars.insert(vars.end(), reduction.reduce_axes.begin(), reduction.reduce_axes.end());
    const std::vector<Expr> loads = LoadsOf(reduction);
    if (loads.size() < 2 || reduction.axes.empty()) return false;
    bool reused = false;
    for (size_t l = 0; l < loads.size(); ++l) {
      for (size_t other = 0; other < l; ++other) {
        if (loads[other]->buffer == loads[l]->buffer) return false;
      }
      const int producer = shape.schedule.FindStage(loads[l]->buffer.get());
      if (producer >= 0 && stages[static_cast<size_t>(producer)].is_reduction()) return false;
      std::vector<bool> used(vars.size(), false);
      for (const Expr& index : loads[l]->args) {
        std::vector<IndexTerm> terms;
        if (!AffineTerms(index, vars, terms)) return false;
        for (const IndexTerm& t : terms) used[static_cast<size_t>(t.axis)] = true;
      }
      for (size_t a = 0; a < reduction.axes.size(); ++a) {
        reused = reused || (!used[a] && reduction.axes[a]->extent > 1);
      }
    }
    return reused;
  }

  std::unique_ptr<KernelPlan> Apply(const ProgramShape& shape, const KernelShape& kernel,
                                    const Target& target) const override {
    return std::make_unique<TilingPlan>(shape, kernel, target);
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeTilingRule() { return std::make_unique<TilingRule>(); }

}  // namespace heddle::search_space
