// Staging through shared memory: tensors that are read across their rows are fetched as tiles,
// along their rows, and read from shared memory in the order of the output. They may be read beside
// the output's place, as an image in whose result a border lies around it.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

// Elements of a row of which a tile has some, at least; all numbers of them are multiples of it.
constexpr int64_t kLeastRows = 8;

// An index that grows with one axis of who reads, as x - 1, 2 * x + 1 and (x + 1) / 2 do. It is
// divided by what tiles are multiples of, at most once.
struct AlongAxis {
  Var axis;
  int64_t coef = 1, div = 1;

  // Of a run of `elements` along the axis, how many are read at most.
  int64_t Span(int64_t elements) const { return (elements - 1) * coef / div + 2; }
};

std::optional<AlongAxis> FindAlong(const Expr& index) {
  if (index->op == Op::kVar) return AlongAxis{index->var};
  const Linear linear = ToLinear(index);
  if (linear.terms.size() != 1) return std::nullopt;
  const Term& term = linear.terms[0];
  if (term.mod != 0 || term.coef < 1 || StructurallyEqual(term.x, index)) return std::nullopt;
  std::optional<AlongAxis> along = FindAlong(term.x);
  const bool is_divided = along.has_value() && along->div > 1;
  if (kLeastRows % term.div != 0 || (is_divided && (term.coef > 1 || term.div > 1))) {
    return std::nullopt;
  }
  if (along.has_value()) {
    along->coef *= term.coef;
    along->div *= term.div;
  }
  return along;
}

// How the rows of the tensor that `load` reads lie against those of `root`: the axis that runs
// along them, where it is none that runs along the output's rows, which numbers others of them.
// Nothing where they run the same way, or the indices are more than functions of an axis each.
std::optional<AlongAxis> FindCrossAxis(const ScheduledStage& root, const Expr& load) {
  std::vector<Var> axes;
  std::optional<AlongAxis> along;
  for (const Expr& index : load->args) {
    if (index->op == Op::kInt) continue;
    along = FindAlong(index);
    if (!along.has_value() || std::find(axes.begin(), axes.end(), along->axis) != axes.end()) {
      return std::nullopt;
    }
    axes.push_back(along->axis);
  }
  const Var& row = root.axes.back();
  const bool crosses = std::find(axes.begin(), axes.end(), row) != axes.end() &&
                       axes.back() != row && load->args.back()->op != Op::kInt;
  return crosses ? along : std::nullopt;
}

// A tensor that is read across its rows.
struct CrossRead {
  BufferRef tensor;
  AlongAxis along;
  bool is_shifted;  // does a tile of its rows begin elsewhere than one of the output?

  // Elements of a row that a tile of `rows` of the output reads, in whole accesses of `fetch`.
  int64_t Row(int64_t rows, int64_t fetch) const {
    return is_shifted ? RoundUp(along.Span(rows), fetch) + fetch : rows;
  }
};

// All that are read along the same axis of the root. What is read elsewhere, too, would make larger
// tiles than those of one read. Kernels before this one have stored what it reads of other stages.
std::vector<CrossRead> FindCrossReads(const Schedule& schedule, const ScheduledStage& root) {
  std::vector<CrossRead> found;
  const std::vector<Expr> loads = LoadsIn(root.body);
  for (const Expr& load : loads) {
    const auto reads_it = [&](const CrossRead& read) { return read.tensor == load->buffer; };
    const bool is_known = std::any_of(found.begin(), found.end(), reads_it);
    const int made_by = schedule.FindStage(load->buffer.get());
    const bool is_stored = made_by < 0 || schedule.stage(made_by).is_root();
    const bool is_alone = std::all_of(loads.begin(), loads.end(), [&](const Expr& other) {
      return other->buffer != load->buffer || StructurallyEqual(other, load);
    });
    if (is_known || !IsValueLoad(load) || !is_stored || !is_alone) continue;
    const std::optional<AlongAxis> along = FindCrossAxis(root, load);
    if (!along || (!found.empty() && along->axis != found[0].along.axis)) continue;
    found.push_back({load->buffer, *along, load->args.back()->op != Op::kVar});
  }
  return found;
}

class StagingPlan : public KernelPlan {
 public:
  StagingPlan(const ScheduledStage& root, std::vector<CrossRead> read, const Target& target)
      : target_(target),
        root_{root.tensor},
        read_(std::move(read)),
        axis_(root.AxisOf(read_[0].along.axis)) {
    for (const Var& axis : root.axes) extents_.push_back(axis->extent);
    int64_t alike = 0;
    DType widest = read_[0].tensor->dtype;
    for (const CrossRead& read : read_) {
      const DType type = read.tensor->dtype;
      alike = std::gcd(alike, read.tensor->shape.back());
      if (SizeOf(type) > SizeOf(widest)) widest = type;
    }
    rows_ = AddHole("rows", {kLeastRows, 16, 32, 64}, 0);
    columns_ = AddHole("columns", {32, 64, 128}, 0);
    threads_y_ = AddHole("threads_y", {1, 2, 4, 8, 16}, 0);
    vector_ = AddHole("vector", AccessWidths(extents_.back(), root.tensor->dtype), 0);
    pad_ = AddHole("pad", {0, 1, 2, 4}, 1);
    fetch_ = AddHole("fetch", AccessWidths(alike, widest), 1);
  }

  std::vector<uint8_t> Default() const override { return {2, 0, 3, 0, 1, 0}; }

  absl::Status Check(HoleValues v) const override {
    int64_t bytes = 0;
    for (const CrossRead& read : read_) {
      const int64_t row = read.Row(v[rows_], v[fetch_]) + v[pad_];
      bytes += v[columns_] * row * SizeOf(read.tensor->dtype);
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
    return padded(extents_[axis_], v[rows_]) * padded(extents_.back(), v[columns_]);
  }

  void Write(ScheduleWriter& w, HoleValues v) const override {
    LoopList blocks = w.Loops(root_), lanes;
    // row -> block, per thread, thread; column -> block, thread (, lane)
    const auto [row_block, row, row_thread] =
        w.Split(blocks[axis_], v[rows_] / v[threads_y_], v[threads_y_]);
    std::vector<int64_t> columns = {v[columns_] / v[vector_]};
    if (v[vector_] > 1) columns.push_back(v[vector_]);
    const LoopList column = w.Split(blocks.back(), columns);
    if (v[vector_] > 1) lanes.push_back(column[2]);
    blocks[axis_] = row_block;
    blocks.back() = column[0];
    w.Reorder(Join({blocks, {row_thread, column[1], row}, lanes}));
    const LoopRef block = w.Fuse(blocks);
    const LoopRef thread = w.Fuse({row_thread, column[1]});
    w.Bind(block, BindTo::kBlock);
    w.Bind(thread, BindTo::kThread);
    w.Unroll(row);
    if (!lanes.empty()) w.Vectorize(lanes[0]);
    for (const CrossRead& read : read_) {
      const StageRef tile = w.CacheRead(read.tensor, Scope::kShared, root_);
      std::vector<size_t> as_it_is(read.tensor->shape.size());
      w.ComputeAt(tile, thread);
      if (read.is_shifted) w.Align(tile, as_it_is.size() - 1, v[fetch_]);
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
  const std::vector<CrossRead> read_;
  const size_t axis_;
  std::vector<int64_t> extents_;
  HoleId rows_, columns_, threads_y_, vector_, pad_, fetch_;
};

std::unique_ptr<KernelPlan> PlanStaging(const ProgramShape& shape, const KernelShape& kernel,
                                        const Target& target) {
  const ScheduledStage& root = shape.stage(kernel.root);
  if (!kernel.reductions.empty() || shape.schedule.HasCompanions(root)) return nullptr;
  std::vector<CrossRead> read = FindCrossReads(shape.schedule, root);
  if (read.empty()) return nullptr;
  return std::make_unique<StagingPlan>(root, std::move(read), target);
}

}  // namespace

const SketchRule kStagingRule = {.name = "stage", .apply = PlanStaging};

}  // namespace heddle::search_space
