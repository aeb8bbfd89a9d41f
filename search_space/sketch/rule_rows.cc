// Whole rows: stages that reduce rows, and what is computed from the results along the same rows,
// in one kernel. A group of neighbouring threads, part of a warp up to a whole block, makes a row:
// each thread reduces the runs that it reads, the group combines what they found, and where a row
// fits into registers it is read once.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/ir/stmt.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/sketch/sketch.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kShortestRow = 16;      // shorter ones are one thread's work
constexpr int64_t kMostReuse = 4;         // of an input's elements; beyond it tiling is better
constexpr int64_t kMaxHeldElements = 64;  // of one tensor's row, by one thread
constexpr int64_t kMaxHeldInAll = 128;    // of all rows that it holds
constexpr int64_t kMaxRowsOfBlock = 32;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool IsAxis(const Expr& index, const Var& axis) {
  return index->op == Op::kVar && index->var == axis;
}

// What is computed of a tensor of the kernel.
struct RowStage {
  std::string name, column;  // its axis along the row, if it has one
  bool reduces, has_column;
  size_t readers;
  std::vector<std::string> reduce_axes;
  int64_t length = 1;  // what it reduces
};
// An input that is read along the rows; `dim` is the name of its last axis in a copy.
struct RowInput {
  std::string tensor, dim;
  size_t readers;
  bool holdable;                        // every reader reads it along its own row
  std::vector<std::string> reductions;  // that read it run by run
};

// The stages that one kernel computes, and what its plan must know of them; valid only if `ok`.
struct Rows {
  std::string root;
  std::vector<std::string> axes;  // of the rows
  std::string column;             // the root's axis along the row; empty when it has none
  std::vector<int64_t> extents;   // of the rows
  int64_t length = 1;             // the longest reduction or column
  int64_t vector = 1;             // the widest access that all rows allow
  std::vector<RowStage> stages;   // all but the root, in definition order
  std::vector<RowInput> inputs;
  bool ok = false;
};

class RowFinder {
 public:
  RowFinder(const Schedule& schedule, int root, const std::set<int>& other_kernels)
      : schedule_(schedule), root_(root), other_kernels_(other_kernels) {}

  Rows Run() {
    Collect(root_);
    const ScheduledStage& root = stage(root_);
    size_t rank = root.axes.size();
    for (int s : stages_) {
      if (stage(s).is_reduction()) rank = std::min(rank, stage(s).axes.size());
    }
    rank_ = rank;
    rows_.root = root.name();
    for (size_t a = 0; a < rank; ++a) {
      rows_.axes.push_back(root.axes[a]->name);
      rows_.extents.push_back(root.axes[a]->extent);
    }
    if (root.axes.size() == rank + 1) rows_.column = root.axes.back()->name;
    rows_.ok = rank > 0 && stages_.size() > 1 && AreRows() && IsWorthwhile();
    return rows_;
  }

 private:
  const ScheduledStage& stage(int i) const { return schedule_.stages()[static_cast<size_t>(i)]; }

  // The stages computed in the kernel of `s`: itself and what it reads, up to other kernels.
  void Collect(int s) {
    if (!stages_.insert(s).second) return;
    Visit(stage(s).body, [&](const Expr& e) {
      const int p = e->op == Op::kLoad ? schedule_.FindStage(e->buffer.get()) : -1;
      if (p >= 0 && !other_kernels_.contains(p)) Collect(p);
    });
  }

  bool HasColumn(const ScheduledStage& s) const { return s.axes.size() == rank_ + 1; }
  // The axis along which the stage walks its row; null when it does not.
  Var ColumnOf(const ScheduledStage& s) const {
    if (s.is_reduction()) return s.reduce_axes.back();
    return HasColumn(s) ? s.axes.back() : nullptr;
  }

  bool AreRows() {
    bool ok = true, reduces = false;
    for (int i : stages_) {
      const ScheduledStage& s = stage(i);
      ok = ok && (i == root_ || !s.is_output) && s.axes.size() >= rank_ &&
           s.axes.size() <= rank_ + 1 && !(s.is_reduction() && HasColumn(s));
      for (size_t a = 0; ok && a < rank_; ++a) ok = s.axes[a]->extent == rows_.extents[a];
      if (!ok) return false;
      reduces = reduces || s.is_reduction();
      AddStage(i);
      Visit(s.body, [&](const Expr& e) {
        if (e->op == Op::kLoad) ok = ok && Read(s, *e);
      });
    }
    return ok && reduces;
  }

  void AddStage(int i) {
    const ScheduledStage& s = stage(i);
    RowStage row{s.name(), s.axes.back()->name, s.is_reduction(), HasColumn(s), 0, {}, 1};
    row.readers = schedule_.ReadersOf(s.tensor.get()).size();
    for (const Var& r : s.reduce_axes) {
      row.reduce_axes.push_back(r->name);
      row.length *= r->extent;
    }
    rows_.length = std::max({rows_.length, row.length, row.has_column ? s.axes.back()->extent : 1});
    if (i != root_) rows_.stages.push_back(std::move(row));
  }

  // A load of `s`: rows of the kernel's own stages are read at the same row; an input that is
  // read along the row may be held or read in vectors.
  bool Read(const ScheduledStage& s, const ExprNode& load) {
    const int p = schedule_.FindStage(load.buffer.get());
    const bool own = p >= 0 && stages_.contains(p);
    const Var column = ColumnOf(s);
    bool same_row = load.args.size() >= rank_;
    for (size_t a = 0; same_row && a < rank_; ++a) same_row = IsAxis(load.args[a], s.axes[a]);
    const bool along = column != nullptr && !load.args.empty() && IsAxis(load.args.back(), column);
    if (own) {
      return same_row && (!HasColumn(stage(p)) || (along && s.reduce_axes.size() <= 1 &&
                                                   column->extent == stage(p).axes.back()->extent));
    }
    if (along) AddInput(s, load, p, column);
    return true;
  }

  void AddInput(const ScheduledStage& s, const ExprNode& load, int producer, const Var& column) {
    auto input = std::find_if(rows_.inputs.begin(), rows_.inputs.end(),
                              [&](const RowInput& in) { return in.tensor == load.buffer->name; });
    if (input == rows_.inputs.end()) {
      const size_t last = load.args.size() - 1;
      const std::string dim =
          producer < 0 ? absl::StrCat("d", last) : stage(producer).axes[last]->name;
      const size_t readers = schedule_.ReadersOf(load.buffer.get()).size();
      rows_.inputs.push_back({load.buffer->name, dim, readers, true, {}});
      input = rows_.inputs.end() - 1;
    }
    // Held elements belong to threads by their place along the row alone.
    input->holdable =
        input->holdable && s.reduce_axes.size() <= 1 && load.buffer->shape.back() == column->extent;
    for (size_t i = 0; i + 1 < load.args.size(); ++i) {
      Visit(load.args[i],
            [&](const Expr& e) { input->holdable = input->holdable && e->var != column; });
    }
    if (s.is_reduction()) input->reductions.push_back(s.name());
  }

  // The largest input of each reduction is read along the rows, and seldom more than once.
  bool IsWorthwhile() {
    bool ok = rows_.length >= kShortestRow;
    for (int i : stages_) {
      const ScheduledStage& s = stage(i);
      if (!s.is_reduction()) continue;
      double iterations = 1;
      for (const Var& v : s.axes) iterations *= static_cast<double>(v->extent);
      for (const Var& v : s.reduce_axes) iterations *= static_cast<double>(v->extent);
      const ExprNode* largest = nullptr;
      Visit(s.body, [&](const Expr& e) {
        if (e->op != Op::kLoad) return;
        if (largest == nullptr || e->buffer->elements > largest->buffer->elements)
          largest = e.get();
      });
      ok = ok && largest != nullptr && IsAxis(largest->args.back(), s.reduce_axes.back()) &&
           iterations <= static_cast<double>(kMostReuse * largest->buffer->elements);
    }
    return ok && FindVector();
  }

  bool FindVector() {
    rows_.vector = 4;
    const auto fit = [&](int64_t extent) {
      while (extent % rows_.vector != 0) rows_.vector /= 2;
    };
    for (int i : stages_) {
      const ScheduledStage& s = stage(i);
      if (s.is_reduction()) fit(s.reduce_axes.back()->extent);
      if (HasColumn(s)) fit(s.axes.back()->extent);
    }
    return true;
  }

  const Schedule& schedule_;
  const int root_;
  const std::set<int>& other_kernels_;
  size_t rank_ = 0;
  std::set<int> stages_;
  Rows rows_;
};

enum RowHole { kThreads, kRowsOfBlock, kVector, kHold, kUnroll };
// What is held in registers: nothing; what several stages read; all that is read along the row, so
// that it is on its way before the first reduction ends.
enum Hold : int64_t { kNothing, kShared, kEverything };

class RowsPlan : public KernelPlan {
 public:
  RowsPlan(Rows rows, const Target& target) : rows_(std::move(rows)), target_(target) {
    holes_ = {{"threads", {}, 0},
              {"rows", {1}, 0},
              {"vector", {1}, 0},
              {"hold", {kNothing}, 0},
              {"unroll", {1, 2, 4}, 0}};
    for (int64_t t = 4; t <= std::min<int64_t>(1024, target.max_threads_per_block); t *= 2) {
      holes_[kThreads].domain.push_back(t);
    }
    for (int64_t r = 2; r <= kMaxRowsOfBlock; r *= 2) holes_[kRowsOfBlock].domain.push_back(r);
    for (int64_t v = 2; v <= rows_.vector; v *= 2) holes_[kVector].domain.push_back(v);
    if (HeldTensors(kShared) > 0) holes_[kHold].domain.push_back(kShared);
    if (HeldTensors(kEverything) > HeldTensors(kShared)) {
      holes_[kHold].domain.push_back(kEverything);
    }
  }

  std::vector<uint8_t> Default() const override { return {3, 3, 0, 0, 0}; }  // a warp a row

  absl::Status Check(HoleValues v) const override {
    const auto refuse = [&](const std::string& why) {
      return absl::ResourceExhaustedError(absl::StrCat(rows_.root, ": ", why));
    };
    const int64_t threads = v[kThreads] * v[kRowsOfBlock];
    if (threads % kWarpThreads != 0 || threads > target_.max_threads_per_block) {
      return refuse(absl::StrCat(threads, " threads a block"));
    }
    if (v[kThreads] > kWarpThreads && v[kThreads] * v[kVector] >= 2 * rows_.length) {
      return refuse(absl::StrCat(v[kThreads], " threads for a row of ", rows_.length));
    }
    if (Blocks(v) > target_.max_grid) return refuse(absl::StrCat(Blocks(v), " blocks"));
    const int64_t held = Elements(v);
    if (v[kHold] != kNothing &&
        (held > kMaxHeldElements || held * HeldTensors(v[kHold]) > kMaxHeldInAll ||
         held * HeldTensors(v[kHold]) * threads > target_.registers_per_sm / 2)) {
      return refuse(absl::StrCat(held, " elements a thread"));
    }
    if (v[kUnroll] > 1 &&
        (v[kHold] != kNothing || v[kUnroll] * v[kThreads] * v[kVector] > rows_.length)) {
      return refuse("nothing to unroll");
    }
    return absl::OkStatus();
  }

  double Waste(HoleValues v) const override {
    const double row = static_cast<double>(Elements(v) * v[kThreads]);
    return row / static_cast<double>(rows_.length);
  }

  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override {
    // Rows that fit are best read once, so most draws hold them.
    for (int attempt = 0; attempt < 3; ++attempt) {
      KernelPlan::Draw(rng, values);
      if (values[kHold] == kNothing) continue;
      values[kUnroll] = 1;
      if (Check(values).ok()) break;
    }
  }

  void AppendSteps(HoleValues v, std::vector<Step>& steps) const override;

 private:
  // Elements of a row that one thread makes.
  int64_t Elements(HoleValues v) const {
    return CeilDiv(rows_.length, v[kThreads] * v[kVector]) * v[kVector];
  }
  int64_t Blocks(HoleValues v) const {
    int64_t rows = 1;
    for (int64_t e : rows_.extents) rows *= e;
    return CeilDiv(rows, v[kRowsOfBlock]);
  }
  static bool IsHeld(const RowStage& s, int64_t hold) {
    return hold != kNothing && !s.reduces && s.has_column && s.readers > 1;
  }
  static bool IsHeld(const RowInput& in, int64_t hold) {
    return in.holdable && hold != kNothing && (hold == kEverything || in.readers > 1);
  }
  int64_t HeldTensors(int64_t hold) const {
    const auto held = [hold](const auto& x) { return IsHeld(x, hold); };
    return std::count_if(rows_.stages.begin(), rows_.stages.end(), held) +
           std::count_if(rows_.inputs.begin(), rows_.inputs.end(), held);
  }
  std::string AppendRootSteps(HoleValues v, std::vector<Step>& steps) const;
  void AppendReductionSteps(const RowStage& s, HoleValues v, std::vector<Step>& steps) const;

  const Rows rows_;
  const Target target_;
};

// Returns the loop of the threads.
std::string RowsPlan::AppendRootSteps(HoleValues v, std::vector<Step>& steps) const {
  const std::string& root = rows_.root;
  std::string lane = "lane", row = absl::StrJoin(rows_.axes, "@");
  std::vector<std::string> rest;
  if (rows_.column.empty()) {
    steps.push_back(Replicate{root, v[kThreads]});
  } else {
    steps.push_back(Split{root, rows_.column, {v[kThreads], v[kVector]}});
    lane = rows_.column + ".1";
    rest = {rows_.column + ".0", rows_.column + ".2"};
  }
  if (rows_.axes.size() > 1) steps.push_back(Fuse{root, rows_.axes});
  steps.push_back(Split{root, row, {v[kRowsOfBlock]}});
  std::vector<std::string> order = {row + ".0", row + ".1", lane};
  order.insert(order.end(), rest.begin(), rest.end());
  steps.push_back(Reorder{root, order});
  steps.push_back(Fuse{root, {row + ".1", lane}});
  const std::string thread = row + ".1@" + lane;
  steps.push_back(Bind{root, row + ".0", BindTo::kBlock});
  steps.push_back(Bind{root, thread, BindTo::kThread});
  if (!rest.empty() && v[kVector] > 1) steps.push_back(Vectorize{root, rest.back()});
  return thread;
}

void RowsPlan::AppendReductionSteps(const RowStage& s, HoleValues v,
                                    std::vector<Step>& steps) const {
  std::string loop = absl::StrJoin(s.reduce_axes, "@");
  if (s.reduce_axes.size() > 1) steps.push_back(Fuse{s.name, s.reduce_axes});
  std::string lane = loop + ".1";
  if (v[kUnroll] > 1) {
    steps.push_back(Split{s.name, loop, {v[kUnroll], v[kThreads], v[kVector]}});
    steps.push_back(Unroll{s.name, loop + ".1"});
    lane = loop + ".2";
  } else {
    steps.push_back(Split{s.name, loop, {v[kThreads], v[kVector]}});
  }
  steps.push_back(Bind{s.name, lane, BindTo::kThread});
  if (v[kVector] == 1) return;
  for (const RowInput& in : rows_.inputs) {
    const auto& readers = in.reductions;
    if (IsHeld(in, v[kHold]) || std::count(readers.begin(), readers.end(), s.name) != 1) continue;
    steps.push_back(CacheRead{in.tensor, Scope::kLocal, s.name});
    // The first copy of a tensor is called .local, the next .local2 and so on.
    int copies = 0;
    for (const Step& step : steps) {
      const auto* read = std::get_if<CacheRead>(&step);
      copies += read != nullptr && read->tensor == in.tensor;
    }
    const std::string run =
        absl::StrCat(in.tensor, ".local", copies > 1 ? absl::StrCat(copies) : "");
    steps.push_back(ComputeAt{run, s.name, lane});
    steps.push_back(Vectorize{run, in.dim});
  }
}

void RowsPlan::AppendSteps(HoleValues v, std::vector<Step>& steps) const {
  for (const RowStage& s : rows_.stages) {
    if (!s.reduces && s.has_column && !IsHeld(s, v[kHold])) steps.push_back(ComputeInline{s.name});
  }
  const std::string thread = AppendRootSteps(v, steps);
  for (size_t i = rows_.stages.size(); i-- > 0;) {
    const RowStage& s = rows_.stages[i];
    if (!s.reduces && s.has_column && !IsHeld(s, v[kHold])) continue;
    steps.push_back(SetScope{s.name, Scope::kLocal});
    if (IsHeld(s, v[kHold])) {
      steps.push_back(Spread{s.name, s.column, v[kThreads], v[kVector]});
    }
    steps.push_back(ComputeAt{s.name, rows_.root, thread});
  }
  for (const RowInput& in : rows_.inputs) {
    if (!IsHeld(in, v[kHold])) continue;
    steps.push_back(CacheRead{in.tensor, Scope::kLocal, "all"});
    const std::string row = in.tensor + ".local";
    steps.push_back(Spread{row, in.dim, v[kThreads], v[kVector]});
    steps.push_back(ComputeAt{row, rows_.root, thread});
  }
  for (const RowStage& s : rows_.stages) {
    if (s.reduces) AppendReductionSteps(s, v, steps);
  }
}

Rows FindRows(const ProgramShape& shape, const KernelShape& kernel) {
  std::set<int> others;
  for (const KernelShape& k : shape.kernels) {
    if (k.root != kernel.root) others.insert(k.root);
  }
  return RowFinder(shape.schedule, kernel.root, others).Run();
}

class RowsRule : public SketchRule {
 public:
  const char* name() const override { return "rows"; }
  bool Applies(const ProgramShape& shape, const KernelShape& kernel, const Target&) const override {
    return FindRows(shape, kernel).ok;
  }
  std::unique_ptr<KernelPlan> Apply(const ProgramShape& shape, const KernelShape& kernel,
                                    const Target& target) const override {
    return std::make_unique<RowsPlan>(FindRows(shape, kernel), target);
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeRowsRule() { return std::make_unique<RowsRule>(); }

}  // namespace heddle::search_space
