// Multi-level tiling of a reduction with data reuse.
//
// Every axis of the result is split into block, virtual thread, warp, lane and register tile, the
// reduction into an outer loop that fetches tiles of the inputs into shared memory and an inner one
// that reads fragments of them into registers. The structure is the one that fast float32 kernels
// on NVIDIA GPUs share (docs/architecture.md); what differs between them is the holes.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/combine.h"
#include "search_space/sketch.h"
#include "search_space/stmt.h"

namespace heddle::search_space {
namespace {

// Holes of one data axis, in this order.
enum AxisHole { kVthread, kWarp, kLane, kTile, kAxisHoles };

struct TiledAxis {
  std::string name;
  int64_t extent;
  size_t first_hole;
  std::string reduction_name = "";  // of the same axis in the reduction
  int64_t BlockTile(HoleValues v) const {
    return v[first_hole + kVthread] * v[first_hole + kWarp] * v[first_hole + kLane] *
           v[first_hole + kTile];
  }
  int64_t ThreadTile(HoleValues v) const {
    return v[first_hole + kVthread] * v[first_hole + kTile];
  }
};

// index = sum of stride * axis: how an input dimension depends on the result's and reduction axes.
struct IndexTerm {
  int axis;  // data axes first, then reduction axes
  int64_t stride;
};

struct TiledInput {
  std::string tensor;  // what the reduction reads
  bool is_stage;       // an elementwise stage computed into shared memory, else a tensor copied
  std::vector<std::string> axes;             // names of the cached stage's axes
  std::vector<std::vector<IndexTerm>> dims;  // of each axis
  std::vector<bool> unit;                    // the axis is exactly one result or reduction axis
  int64_t row_extent = 1;                    // extent of the innermost dimension in memory
  int inner = -1;                            // dimension that lies innermost in shared memory
  size_t first_hole = 0;                     // fetch vector, pad, align
};
enum InputHole { kFetchVector, kPad, kAlign, kInputHoles };

// What the tiled loops are called: the kernel's own, or, where the reduction is split over blocks,
// those of the partial results.
struct Nest {
  std::string stage, reduction;
  std::vector<std::string> axes, reduction_axes;  // the data axes, in each of the two
  std::vector<std::string> reduce_axes;
  std::vector<std::string> parts;  // axes of the stage that become blocks whole
  // The loop over tiles of the reduction, in which the inputs are fetched.
  std::string TileLoop() const { return absl::StrJoin(reduce_axes, ".0@") + ".0"; }
};

constexpr int64_t kMaxUnrolledMultiplyAdds = 8192;
constexpr int64_t kMaxSplit = 256;
constexpr int64_t kMostThreads = 512;
constexpr int64_t kMaxFetchTrips = 32;
constexpr int64_t kOtherRegisters = 24;  // addresses, loop counters, temporaries
constexpr int64_t kWindow = 8;           // a reduction axis no longer than this is a window
constexpr int64_t kShortAxis = 64;       // shorter, an axis may want tiles such as 7
constexpr int64_t kFullBlock = 128;      // threads that keep a multiprocessor busy
constexpr int64_t kVectorRun = 4;        // elements of 4 bytes in the widest access

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::vector<int64_t> PowersUpTo(int64_t most, int64_t limit) {
  std::vector<int64_t> out = {1};
  while (out.back() * 2 <= most && out.back() < limit) out.push_back(out.back() * 2);
  return out;
}

// One of the values, with probability proportional to its weight.
int64_t Weighted(std::mt19937_64& rng, std::initializer_list<std::pair<int64_t, int>> choices) {
  int total = 0;
  for (const auto& c : choices) total += c.second;
  int at = std::uniform_int_distribution<int>(0, total - 1)(rng);
  for (const auto& c : choices) {
    if ((at -= c.second) < 0) return c.first;
  }
  return choices.begin()->first;
}

class TilingPlan : public KernelPlan {
 public:
  TilingPlan(const ProgramShape& shape, const KernelShape& kernel, const Target& target)
      : target_(target) {
    const auto& stages = shape.schedule.stages();
    const ScheduledStage& root = stages[static_cast<size_t>(kernel.root)];
    const ScheduledStage& reduction = stages[static_cast<size_t>(kernel.reductions[0])];
    root_ = root.name();
    reduction_ = reduction.name();
    element_bytes_ = SizeOf(reduction.tensor->dtype);
    AddAxisHoles(root, reduction);
    for (size_t a = 0; a < axes_.size(); ++a) axes_[a].reduction_name = reduction.axes[a]->name;
    AddReduceHoles(reduction);
    AddInputs(shape, kernel, reduction);
    AddKernelHoles();
  }

  std::vector<uint8_t> Default() const override { return std::vector<uint8_t>(holes_.size(), 0); }

  absl::Status Check(HoleValues v) const override;
  double Waste(HoleValues v) const override {
    double waste = 1;
    for (const TiledAxis& a : axes_) {
      const int64_t tile = a.BlockTile(v);
      waste *= static_cast<double>(CeilDiv(a.extent, tile) * tile) / static_cast<double>(a.extent);
    }
    for (const TiledAxis& r : reduce_) {
      const int64_t tile = v[r.first_hole];
      const int64_t covered =
          &r == &SplitAxis() ? v[split_hole_] * SplitLength(v) : CeilDiv(r.extent, tile) * tile;
      waste *= static_cast<double>(covered) / static_cast<double>(r.extent);
    }
    return waste;
  }
  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override;
  void AppendSteps(HoleValues v, std::vector<Step>& steps) const override;

 private:
  void AddAxisHoles(const ScheduledStage& root, const ScheduledStage& reduction);
  void AddReduceHoles(const ScheduledStage& reduction);
  void AddInputs(const ProgramShape& shape, const KernelShape& kernel,
                 const ScheduledStage& reduction);
  void AddKernelHoles();

  // Threads that make a tile, and those of a block: where the reduction is sliced, several make
  // one.
  int64_t TileThreads(HoleValues v) const {
    int64_t threads = 1;
    for (const TiledAxis& a : axes_) threads *= v[a.first_hole + kWarp] * v[a.first_hole + kLane];
    return threads;
  }
  int64_t Threads(HoleValues v) const { return TileThreads(v) * v[slice_hole_]; }
  int64_t Accumulators(HoleValues v) const {
    int64_t accumulators = 1;
    for (const TiledAxis& a : axes_) accumulators *= a.ThreadTile(v);
    return accumulators;
  }
  // Tiles of the result.
  int64_t Blocks(HoleValues v) const {
    int64_t blocks = 1;
    for (const TiledAxis& a : axes_) blocks *= CeilDiv(a.extent, a.BlockTile(v));
    return blocks;
  }
  // Data axes along which an input is contiguous in shared memory.
  std::vector<size_t> ContiguousAxes() const {
    std::vector<size_t> out;
    for (const TiledInput& in : inputs_) {
      for (const IndexTerm& t : in.dims[static_cast<size_t>(in.inner)]) {
        const auto a = static_cast<size_t>(t.axis);
        if (a < axes_.size() && std::find(out.begin(), out.end(), a) == out.end()) {
          out.push_back(a);
        }
      }
    }
    return out;
  }
  void DrawTiles(std::mt19937_64& rng, bool anywhere, std::vector<int64_t>& values) const;
  void DrawSplit(std::mt19937_64& rng, std::vector<int64_t>& values) const;
  void DrawSlices(std::mt19937_64& rng, std::vector<int64_t>& values) const;
  // Does another dimension lie innermost in shared memory than in the tensor?
  static bool IsTransposed(const TiledInput& in) {
    return in.inner + 1 != static_cast<int>(in.dims.size());
  }
  // Is dimension `d` of an input exactly one reduction axis that is short enough to be a window?
  bool IsWindow(const TiledInput& in, size_t d) const {
    const auto& terms = in.dims[d];
    const size_t r = terms.empty() ? 0 : static_cast<size_t>(terms[0].axis);
    return in.unit[d] && terms.size() == 1 && r >= axes_.size() &&
           reduce_[r - axes_.size()].extent <= kWindow;
  }
  // Elements of dimension `d` of an input in a block's tile (shared) or a thread's fragment.
  int64_t SharedExtent(const TiledInput& in, size_t d, HoleValues v) const;
  int64_t FragmentElements(const TiledInput& in, HoleValues v) const;
  int64_t SharedElements(const TiledInput& in, HoleValues v) const;
  // The reduction axis at whose inner loop fragments are loaded: the innermost, or the one around
  // it, so that a row with halo serves every position of a window.
  size_t FragmentLevel(HoleValues v) const {
    return reduce_.size() - 1 - static_cast<size_t>(v[fragment_hole_]);
  }
  std::pair<int, int> ZigzagAxes(HoleValues v) const;
  // The reduction axis that is split over blocks: the longest.
  const TiledAxis& SplitAxis() const {
    return *std::max_element(
        reduce_.begin(), reduce_.end(),
        [](const TiledAxis& a, const TiledAxis& b) { return a.extent < b.extent; });
  }
  // How much of it one block reduces: whole tiles, so that only the last block has a tail.
  int64_t SplitLength(HoleValues v) const {
    const int64_t tile = v[SplitAxis().first_hole];
    return CeilDiv(CeilDiv(SplitAxis().extent, v[split_hole_]), tile) * tile;
  }
  absl::Status CheckSplit(HoleValues v, int64_t blocks) const;
  absl::Status CheckSlices(HoleValues v, int64_t blocks) const;
  // Through which slices combine their results.
  int64_t SliceBytes(HoleValues v) const {
    return (v[slice_hole_] - 1) * TileThreads(v) * Accumulators(v) * element_bytes_;
  }
  // The loop within a tile of reduction axis `r`.
  std::string InnerLoop(const Nest& nest, size_t r, HoleValues v) const {
    const bool sliced = v[slice_hole_] > 1 && &reduce_[r] == &SplitAxis();
    return nest.reduce_axes[r] + (sliced ? ".2" : ".1");
  }
  Nest AppendSplitSteps(HoleValues v, std::vector<Step>& steps) const;
  void AppendRootSteps(const Nest& nest, HoleValues v, std::vector<Step>& steps,
                       std::string& thread) const;
  void AppendReductionSteps(const Nest& nest, HoleValues v, std::vector<Step>& steps) const;
  void AppendInputSteps(const Nest& nest, const TiledInput& in, HoleValues v,
                        std::vector<Step>& steps) const;

  const Target target_;
  std::string root_, reduction_;
  int64_t element_bytes_ = 4;
  std::vector<TiledAxis> axes_;
  std::vector<TiledAxis> reduce_;  // first_hole: the inner extent
  std::vector<TiledInput> inputs_;
  size_t fragment_hole_ = 0, pipeline_hole_ = 0, unroll_hole_ = 0, prefetch_hole_ = 0,
         blocks_hole_ = 0, swizzle_hole_ = 0, split_hole_ = 0, slice_hole_ = 0;
};

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

int64_t TilingPlan::SharedExtent(const TiledInput& in, size_t d, HoleValues v) const {
  int64_t extent = 1;
  for (const IndexTerm& t : in.dims[d]) {
    const auto a = static_cast<size_t>(t.axis);
    const int64_t tile =
        a < axes_.size() ? axes_[a].BlockTile(v) : v[reduce_[a - axes_.size()].first_hole];
    extent += (tile - 1) * t.stride;
  }
  const int64_t align = v[in.first_hole + kAlign];
  if (d + 1 == in.dims.size() && align > 1) extent = CeilDiv(extent + align - 1, align) * align;
  return extent;
}

int64_t TilingPlan::SharedElements(const TiledInput& in, HoleValues v) const {
  int64_t elements = 1;
  for (size_t d = 0; d < in.dims.size(); ++d) {
    const int64_t pad = static_cast<int>(d) == in.inner ? v[in.first_hole + kPad] : 0;
    elements *= SharedExtent(in, d, v) + pad;
  }
  return elements;
}

int64_t TilingPlan::FragmentElements(const TiledInput& in, HoleValues v) const {
  int64_t elements = 1, vthreads = 1;
  const size_t level = FragmentLevel(v);
  std::vector<bool> used(axes_.size(), false);
  for (const auto& dim : in.dims) {
    int64_t extent = 1;
    for (const IndexTerm& t : dim) {
      const auto a = static_cast<size_t>(t.axis);
      if (a < axes_.size()) {
        extent += (v[axes_[a].first_hole + kTile] - 1) * t.stride;
        if (!used[a]) vthreads *= v[axes_[a].first_hole + kVthread];
        used[a] = true;
      } else if (a - axes_.size() > level) {
        extent += (v[reduce_[a - axes_.size()].first_hole] - 1) * t.stride;
      }
    }
    elements *= extent;
  }
  return elements * vthreads;
}

// Splitting over blocks is for results too small to fill the device.
absl::Status TilingPlan::CheckSplit(HoleValues v, int64_t blocks) const {
  const int64_t parts = v[split_hole_];
  if (parts == 1) return absl::OkStatus();
  if (blocks >= 2 * target_.sm_count || blocks * parts > 16 * target_.sm_count) {
    return absl::ResourceExhaustedError(
        absl::StrCat(root_, ": ", blocks, " blocks need no reduction split ", parts, " times"));
  }
  if (CeilDiv(SplitAxis().extent, SplitLength(v)) != parts || v[swizzle_hole_] > 1) {
    return absl::ResourceExhaustedError(
        absl::StrCat(root_, ": ", parts, " parts of ", SplitLength(v), " are not all needed"));
  }
  return absl::OkStatus();
}

// Slices give a small grid more warps; a large one has enough.
absl::Status TilingPlan::CheckSlices(HoleValues v, int64_t blocks) const {
  const int64_t slices = v[slice_hole_];
  if (slices == 1) return absl::OkStatus();
  if (blocks > 4 * target_.sm_count || v[SplitAxis().first_hole] % slices != 0 ||
      TileThreads(v) % kWarpThreads != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(root_, ": ", slices, " slices do not divide the work of ", blocks, " blocks"));
  }
  return absl::OkStatus();
}

absl::Status TilingPlan::Check(HoleValues v) const {
  auto refuse = [&](const char* what, int64_t value, int64_t limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat(root_, ": ", value, " ", what, ", at most ", limit));
  };
  const int64_t accumulators = Accumulators(v), blocks = Blocks(v);
  int64_t least_threads = 1;
  for (const TiledAxis& a : axes_) {
    int64_t power = 1;
    while (power * 2 <= a.extent) power *= 2;
    least_threads = std::min<int64_t>(least_threads * power, 32);
    // Tiles that are mostly padding are never worth a trial.
    if (a.BlockTile(v) >= 2 * a.extent && a.BlockTile(v) > 1) {
      return refuse("elements in a tile", a.BlockTile(v), 2 * a.extent);
    }
  }
  const int64_t threads = Threads(v);
  if (TileThreads(v) < least_threads) {
    return absl::ResourceExhaustedError(
        absl::StrCat(root_, ": ", TileThreads(v), " threads, at least ", least_threads));
  }
  const int64_t most_threads = std::min(kMostThreads, target_.max_threads_per_block);
  if (threads > most_threads) return refuse("threads", threads, most_threads);
  if (blocks > target_.max_grid) return refuse("blocks", blocks, target_.max_grid);
  if (absl::Status s = CheckSplit(v, blocks); !s.ok()) return s;
  if (absl::Status s = CheckSlices(v, blocks * v[split_hole_]); !s.ok()) return s;
  if (accumulators > 128) return refuse("accumulators", accumulators, 128);

  const int64_t pipeline = v[pipeline_hole_];
  int64_t shared = 0, fragments = 0, staged = 0, k_iterations = 1, window = 1;
  for (size_t r = 0; r < reduce_.size(); ++r) {
    k_iterations *= v[reduce_[r].first_hole];
    if (r > FragmentLevel(v)) window *= v[reduce_[r].first_hole];
  }
  for (const TiledInput& in : inputs_) {
    const int64_t elements = SharedElements(in, v);
    shared += (elements * element_bytes_ + 31) / 16 * 16;
    fragments += FragmentElements(in, v);
    const int64_t trips = CeilDiv(elements, threads * v[in.first_hole + kFetchVector]);
    if (trips > kMaxFetchTrips) return refuse("fetches a thread", trips, kMaxFetchTrips);
    if (pipeline == 1) staged += trips * v[in.first_hole + kFetchVector];
  }
  const int64_t copies = pipeline == 0 ? 1 : std::max<int64_t>(2, pipeline);
  const int64_t all_shared = shared * copies + SliceBytes(v);
  if (all_shared > target_.max_shared_bytes_per_block) {
    return refuse("shared bytes", all_shared, target_.max_shared_bytes_per_block);
  }
  // Fragments run ahead, through the barriers of a pipeline, where the inner loop is unrolled.
  if (v[prefetch_hole_] != 0 &&
      (pipeline == 0 || v[unroll_hole_] == 0 || v[slice_hole_] > 1 || k_iterations % 2 != 0)) {
    return refuse("fragments ahead", v[prefetch_hole_], 0);
  }
  const int64_t registers =
      accumulators + fragments * (1 + v[prefetch_hole_]) + staged + kOtherRegisters;
  const int64_t min_blocks = std::max<int64_t>(1, v[blocks_hole_]);
  const int64_t most =
      std::min(target_.max_registers_per_thread,
               target_.registers_per_sm / (CeilDiv(threads, 32) * 32 * min_blocks));
  if (registers > most) return refuse("registers", registers, most);
  const int64_t unrolled = accumulators * (v[unroll_hole_] != 0 ? k_iterations : window);
  if (unrolled > kMaxUnrolledMultiplyAdds) {
    return refuse("unrolled multiply-adds", unrolled, kMaxUnrolledMultiplyAdds);
  }
  const TiledAxis& first = axes_.front();
  if (v[swizzle_hole_] > 1 &&
      (axes_.size() < 2 || CeilDiv(first.extent, first.BlockTile(v)) % v[swizzle_hole_] != 0)) {
    return refuse("rows of blocks in a group", v[swizzle_hole_], 1);
  }
  return absl::OkStatus();
}

// Most draws come from where fast kernels lie: whole warps of a few lanes along each axis, 32 to
// 128 accumulators a thread in runs of four, wide fetches, a pipeline, at least a block for most
// multiprocessors. The rest is uniform, so that every valid choice can come up.
void TilingPlan::Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const {
  KernelPlan::Draw(rng, values);
  const bool anywhere = Weighted(rng, {{1, 1}, {0, 7}}) != 0;
  // Small results cannot fill the device, unless their reduction is split; big ones should.
  values[slice_hole_] = 1;
  static constexpr int kAttempts = 6;
  const bool may_split = Weighted(rng, {{1, 1}, {0, 2}}) != 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    DrawTiles(rng, anywhere, values);
    if (anywhere || may_split || Blocks(values) * 4 >= target_.sm_count * 3) break;
  }
  if (anywhere) return DrawSplit(rng, values);
  const bool window = reduce_.back().extent <= kWindow;
  for (const TiledAxis& r : reduce_) {
    const auto& domain = holes_[r.first_hole].domain;
    if (r.extent <= kWindow) {
      values[r.first_hole] =
          domain[static_cast<size_t>(Weighted(rng, {{0, 7}, {1, 1}})) % domain.size()];
    } else {
      values[r.first_hole] = window ? Weighted(rng, {{4, 3}, {8, 5}, {16, 3}, {32, 1}})
                                    : Weighted(rng, {{4, 1}, {8, 5}, {16, 6}, {32, 3}});
    }
  }
  for (const TiledInput& in : inputs_) {
    int64_t& vector = values[in.first_hole + kFetchVector];
    if (Weighted(rng, {{1, 3}, {0, 1}}) != 0) {
      vector = holes_[in.first_hole + kFetchVector].domain.back();
    }
    // Without padding, what is stored across the rows of a tile meets the same banks.
    if (IsTransposed(in)) values[in.first_hole + kPad] = Weighted(rng, {{4, 4}, {1, 2}, {0, 1}});
  }
  if (Weighted(rng, {{1, 7}, {0, 1}}) != 0) values[unroll_hole_] = 1;
  if (values[pipeline_hole_] == 0) {
    const auto& depths = holes_[pipeline_hole_].domain;
    values[pipeline_hole_] =
        depths[static_cast<size_t>(Weighted(rng, {{0, 1}, {1, 4}, {2, 3}, {3, 3}})) %
               depths.size()];
  }
  DrawSplit(rng, values);
}

// Where the blocks are few, any number of parts is as likely.
void TilingPlan::DrawSplit(std::mt19937_64& rng, std::vector<int64_t>& values) const {
  std::vector<int64_t> splits;
  const int64_t swizzle = std::exchange(values[swizzle_hole_], 1);
  for (int64_t parts : holes_[split_hole_].domain) {
    values[split_hole_] = parts;
    if (CheckSplit(values, Blocks(values)).ok()) splits.push_back(parts);
  }
  values[split_hole_] = splits[std::uniform_int_distribution<size_t>(0, splits.size() - 1)(rng)];
  if (values[split_hole_] == 1) values[swizzle_hole_] = swizzle;
  DrawSlices(rng, values);
}

void TilingPlan::DrawSlices(std::mt19937_64& rng, std::vector<int64_t>& values) const {
  std::vector<int64_t> valid;
  for (int64_t slices : holes_[slice_hole_].domain) {
    values[slice_hole_] = slices;
    const bool fits = Threads(values) <= kMostThreads;
    if (fits && CheckSlices(values, Blocks(values) * values[split_hole_]).ok()) {
      valid.push_back(slices);
    }
  }
  values[slice_hole_] = 1;
  if (!valid.empty()) {
    values[slice_hole_] = valid[std::uniform_int_distribution<size_t>(0, valid.size() - 1)(rng)];
  }
  const bool ahead = values[pipeline_hole_] > 0 && values[unroll_hole_] != 0;
  if (!ahead || values[slice_hole_] > 1) values[prefetch_hole_] = 0;
}

// Threads and register tiles are doublings dealt out to the axes: independent draws would seldom
// multiply up to a valid block.
void TilingPlan::DrawTiles(std::mt19937_64& rng, bool anywhere,
                           std::vector<int64_t>& values) const {
  for (const TiledAxis& a : axes_) {
    for (size_t h = a.first_hole; h < a.first_hole + kAxisHoles; ++h) values[h] = 1;
  }
  auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  auto grow = [&](const TiledAxis& a, size_t hole, int64_t factor) {
    const auto& domain = holes_[a.first_hole + hole].domain;
    int64_t& value = values[a.first_hole + hole];
    const bool fits = a.BlockTile(values) * factor < 2 * a.extent &&
                      std::find(domain.begin(), domain.end(), value * factor) != domain.end();
    if (fits) value *= factor;
    return fits;
  };
  const int64_t threads = int64_t{1} << Weighted(rng, {{5, 1}, {6, 4}, {7, 6}, {8, 4}, {9, 1}});
  const std::vector<size_t> contiguous = ContiguousAxes();
  for (size_t tries = 0; tries < 64 && Threads(values) < threads; ++tries) {
    const bool lane = anywhere ? below(2) == 0 : Threads(values) < target_.warp_size || tries > 32;
    size_t axis = below(axes_.size());
    if (lane && !anywhere && !contiguous.empty() && below(4) != 0) {
      // Neighbours along contiguous axes, and the squarer warp of two.
      axis = contiguous[below(contiguous.size())];
      const size_t other = contiguous[below(contiguous.size())];
      const size_t hole = kLane;
      if (values[axes_[other].first_hole + hole] < values[axes_[axis].first_hole + hole]) {
        axis = other;
      }
    }
    grow(axes_[axis], lane ? kLane : kWarp, 2);
  }
  // Short axes, such as 7 or 14 of an image, want tiles that are no power of two.
  for (const TiledAxis& a : axes_) {
    const auto& tiles = holes_[a.first_hole + kTile].domain;
    const bool odd = a.extent % 8 != 0 && a.extent < kShortAxis;
    if (anywhere || below(odd ? 3 : 24) == 0) grow(a, kTile, tiles[below(tiles.size())]);
    if (anywhere) grow(a, kVthread, int64_t{1} << below(3));
  }
  if (anywhere) return;
  // As many results a thread as fill every multiprocessor once, give or take a factor of two.
  int64_t results = 1, fill = 4;
  for (const TiledAxis& a : axes_) results *= a.extent;
  while (fill < 6 && results >= (target_.sm_count * kFullBlock) << (fill + 1)) ++fill;
  const int64_t accumulators = int64_t{1} << (fill + Weighted(rng, {{-1, 1}, {0, 4}, {1, 5}}));
  for (size_t tries = 0; tries < 32 && Accumulators(values) < accumulators; ++tries) {
    // The flatter of two axes: square tiles reuse most.
    const TiledAxis& one = axes_[below(axes_.size())];
    const TiledAxis& two = axes_[below(axes_.size())];
    const TiledAxis& a = one.ThreadTile(values) < two.ThreadTile(values) ? one : two;
    const bool run = values[a.first_hole + kTile] < kVectorRun ? below(8) != 0 : below(8) == 0;
    grow(a, run ? kTile : kVthread, 2);
  }
}

// The two axes whose lanes alternate in the lowest bits of the thread index, or -1: neighbours then
// share what they read of one input, and neighbours of neighbours what they read of another, which
// halves the cycles that 16-byte reads of shared memory take.
std::pair<int, int> TilingPlan::ZigzagAxes(HoleValues v) const {
  std::vector<uint64_t> readers(axes_.size(), 0);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    for (const auto& dim : inputs_[i].dims) {
      for (const IndexTerm& t : dim) {
        const auto a = static_cast<size_t>(t.axis);
        if (a < axes_.size()) readers[a] |= uint64_t{1} << i;
      }
    }
  }
  for (size_t a = axes_.size(); a-- > 0;) {
    for (size_t b = a; b-- > 0;) {
      const bool lanes = v[axes_[a].first_hole + kLane] > 1 && v[axes_[b].first_hole + kLane] > 1;
      const uint64_t both = readers[a] & readers[b];
      if (lanes && both != readers[a] && both != readers[b]) {
        return {static_cast<int>(b), static_cast<int>(a)};
      }
    }
  }
  return {-1, -1};
}

// Splits the reduction over blocks where the point asks for it. The partial results are written to
// a tensor in global memory, whose axes are the parts and the result's; the kernel's own stage adds
// them up.
Nest TilingPlan::AppendSplitSteps(HoleValues v, std::vector<Step>& steps) const {
  Nest nest{.stage = root_, .reduction = reduction_};
  for (const TiledAxis& a : axes_) {
    nest.axes.push_back(a.name);
    nest.reduction_axes.push_back(a.reduction_name);
  }
  for (const TiledAxis& r : reduce_) nest.reduce_axes.push_back(r.name);
  if (v[split_hole_] == 1) return nest;
  const TiledAxis& split = SplitAxis();
  steps.push_back(Split{reduction_, split.name, {SplitLength(v)}});
  const std::string part = split.name + ".0";
  steps.push_back(Rfactor{reduction_, part});
  nest.reduction = reduction_ + ".rf";
  steps.push_back(CacheRead{nest.reduction, Scope::kGlobal, reduction_});
  nest.stage = nest.reduction + ".global";
  nest.parts = {part};
  Combination combination{root_,          reduction_, nest.stage,          part,
                          v[split_hole_], nest.axes,  nest.reduction_axes, {}};
  for (const TiledAxis& a : axes_) combination.extents.push_back(a.extent);
  AppendCombineKernel(combination, target_, steps);
  nest.axes = nest.reduction_axes;
  nest.reduce_axes[static_cast<size_t>(&split - reduce_.data())] += ".1";
  return nest;
}

void TilingPlan::AppendRootSteps(const Nest& nest, HoleValues v, std::vector<Step>& steps,
                                 std::string& thread) const {
  const std::string& root = nest.stage;
  std::vector<std::string> blocks = nest.parts, vthreads, warps, lanes, low_lanes, tiles;
  const auto [first, second] = ZigzagAxes(v);
  for (size_t i = 0; i < axes_.size(); ++i) {
    const std::string& name = nest.axes[i];
    const int64_t* h = &v[axes_[i].first_hole];
    const bool zigzag = static_cast<int>(i) == first || static_cast<int>(i) == second;
    if (zigzag) {
      steps.push_back(Split{root, name, {h[kVthread], h[kWarp], h[kLane] / 2, 2, h[kTile]}});
      low_lanes.push_back(name + ".4");
    } else {
      steps.push_back(Split{root, name, {h[kVthread], h[kWarp], h[kLane], h[kTile]}});
    }
    blocks.push_back(name + ".0");
    vthreads.push_back(name + ".1");
    warps.push_back(name + ".2");
    lanes.push_back(name + ".3");
    tiles.push_back(name + (zigzag ? ".5" : ".4"));
  }
  lanes.insert(lanes.end(), low_lanes.begin(), low_lanes.end());
  const int64_t inner_tile = v[axes_.back().first_hole + kTile];
  const int64_t vector = inner_tile % 4 == 0 ? 4 : (inner_tile % 2 == 0 ? 2 : 1);
  if (vector > 1) {
    steps.push_back(Split{root, tiles.back(), {vector}});
    const std::string split = tiles.back();
    tiles.back() = split + ".0";
    tiles.push_back(split + ".1");
  }
  std::vector<std::string> threads;
  if (v[slice_hole_] > 1) {
    steps.push_back(Replicate{root, v[slice_hole_]});
    threads.push_back("lane");
  }
  threads.insert(threads.end(), warps.begin(), warps.end());
  threads.insert(threads.end(), lanes.begin(), lanes.end());
  std::vector<std::string> order = blocks;
  for (const auto* part : {&vthreads, &threads, &tiles}) {
    order.insert(order.end(), part->begin(), part->end());
  }
  steps.push_back(Reorder{root, order});
  if (blocks.size() > 1) steps.push_back(Fuse{root, blocks});
  steps.push_back(Bind{root, absl::StrJoin(blocks, "@"), BindTo::kBlock});
  if (v[swizzle_hole_] > 1) steps.push_back(BlockSwizzle{root, v[swizzle_hole_]});
  for (const std::string& a : nest.axes) {
    steps.push_back(Bind{root, a + ".1", BindTo::kVthread});
  }
  steps.push_back(Fuse{root, threads});
  thread = absl::StrJoin(threads, "@");
  steps.push_back(Bind{root, thread, BindTo::kThread});
  if (vector > 1) steps.push_back(Vectorize{root, tiles.back()});
  if (v[blocks_hole_] > 0) steps.push_back(LaunchBounds{root, v[blocks_hole_]});
}

void TilingPlan::AppendReductionSteps(const Nest& nest, HoleValues v,
                                      std::vector<Step>& steps) const {
  std::vector<std::string> outer, slice, inner;
  for (size_t r = 0; r < reduce_.size(); ++r) {
    const std::string& name = nest.reduce_axes[r];
    const int64_t tile = v[reduce_[r].first_hole];
    if (v[slice_hole_] > 1 && &reduce_[r] == &SplitAxis()) {
      steps.push_back(Split{nest.reduction, name, {v[slice_hole_], tile / v[slice_hole_]}});
      slice = {name + ".1"};
    } else {
      steps.push_back(Split{nest.reduction, name, {tile}});
    }
    outer.push_back(name + ".0");
    inner.push_back(InnerLoop(nest, r, v));
  }
  std::vector<std::string> order = outer;
  order.insert(order.end(), slice.begin(), slice.end());
  order.insert(order.end(), inner.begin(), inner.end());
  order.insert(order.end(), nest.reduction_axes.begin(), nest.reduction_axes.end());
  steps.push_back(Reorder{nest.reduction, order});
  // One loop over all tiles, so that a pipeline runs through it from end to end.
  if (outer.size() > 1) steps.push_back(Fuse{nest.reduction, outer});
  if (!slice.empty()) steps.push_back(Bind{nest.reduction, slice[0], BindTo::kSlice});
  if (v[unroll_hole_] != 0 && v[prefetch_hole_] == 0) {
    steps.push_back(Unroll{nest.reduction, inner.back()});
  }
}

void TilingPlan::AppendInputSteps(const Nest& nest, const TiledInput& in, HoleValues v,
                                  std::vector<Step>& steps) const {
  const std::string at = nest.TileLoop();
  std::string tile = in.tensor;
  if (in.is_stage) {
    steps.push_back(SetScope{in.tensor, Scope::kShared});
  } else {
    steps.push_back(CacheRead{in.tensor, Scope::kShared, nest.reduction});
    tile = in.tensor + ".shared";
  }
  steps.push_back(ComputeAt{tile, nest.reduction, at});
  const int64_t align = v[in.first_hole + kAlign];
  if (align > 1) steps.push_back(Align{tile, in.axes.back(), align});
  std::vector<std::string> order;
  for (size_t d = 0; d < in.axes.size(); ++d) {
    if (static_cast<int>(d) != in.inner) order.push_back(in.axes[d]);
  }
  order.push_back(in.axes[static_cast<size_t>(in.inner)]);
  steps.push_back(StorageLayout{tile, order, v[in.first_hole + kPad], 0});
  steps.push_back(Fetch{tile, Threads(v), v[in.first_hole + kFetchVector]});
  // The fragment: a contiguous run along the innermost shared axis, in registers.
  steps.push_back(CacheRead{tile, Scope::kLocal, nest.reduction});
  const std::string fragment = tile + ".local";
  steps.push_back(ComputeAt{fragment, nest.reduction, InnerLoop(nest, FragmentLevel(v), v)});
  const auto& run = in.dims[static_cast<size_t>(in.inner)];
  if (run.size() != 1 || run[0].stride != 1 || run[0].axis >= static_cast<int>(axes_.size())) {
    return;
  }
  const int64_t length = v[axes_[static_cast<size_t>(run[0].axis)].first_hole + kTile];
  const int64_t vector = length % 4 == 0 ? 4 : (length % 2 == 0 ? 2 : 1);
  if (vector == 1) return;
  const std::string axis = in.axes[static_cast<size_t>(in.inner)];
  steps.push_back(Split{fragment, axis, {vector}});
  std::vector<std::string> loops;
  for (size_t d = 0; d < in.axes.size(); ++d) {
    if (static_cast<int>(d) != in.inner) loops.push_back(in.axes[d]);
  }
  loops.push_back(axis + ".0");
  loops.push_back(axis + ".1");
  steps.push_back(Reorder{fragment, loops});
  steps.push_back(Vectorize{fragment, axis + ".1"});
}

void TilingPlan::AppendSteps(HoleValues v, std::vector<Step>& steps) const {
  std::string thread;
  const Nest nest = AppendSplitSteps(v, steps);
  AppendRootSteps(nest, v, steps, thread);
  steps.push_back(SetScope{nest.reduction, Scope::kLocal});
  steps.push_back(ComputeAt{nest.reduction, nest.stage, thread});
  AppendReductionSteps(nest, v, steps);
  for (const TiledInput& in : inputs_) AppendInputSteps(nest, in, v, steps);
  const int64_t pipeline = v[pipeline_hole_];
  if (pipeline > 0) {
    steps.push_back(Pipeline{nest.reduction, nest.TileLoop(),
                             pipeline == 1 ? PipelineKind::kRegisters : PipelineKind::kAsyncCopy,
                             std::max<int64_t>(2, pipeline)});
  }
  if (v[prefetch_hole_] != 0) {
    const std::string inner = InnerLoop(nest, 0, v);
    steps.push_back(Pipeline{nest.reduction, inner, PipelineKind::kRegisters, 2});
  }
}

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
