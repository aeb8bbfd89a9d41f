// Whole rows: stages that reduce rows, and what is computed from the results along the same rows,
// in one kernel. A group of neighbouring threads, part of a warp up to a whole block, makes a row:
// each thread reduces the runs that it reads, the group combines what they found, and where a row
// fits into registers it is read once. Where rows are few, several blocks make parts of each, and a
// second kernel combines these.
#include <algorithm>
#include <optional>
#include <set>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "search_space/ir/simplify.h"
#include "search_space/ir/stmt.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/sketch/rules.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kShortestRow = 16;      // shorter ones are one thread's work
constexpr int64_t kMostReuse = 4;         // of an input's elements; beyond it tiling is better
constexpr int64_t kMaxHeldElements = 64;  // of one tensor's row, by one thread
constexpr int64_t kMaxHeldInAll = 128;    // of all rows that it holds
constexpr int64_t kMaxRowsOfBlock = 32;
constexpr int64_t kMostParts = 1024;       // of a row, over blocks
constexpr int64_t kMostBlocks = 16;        // a multiprocessor, of split rows
constexpr int64_t kMostPartThreads = 256;  // that combine them

bool IsAxis(const Expr& index, const Var& axis) {
  return index->op == Op::kVar && index->var == axis;
}

// Is what is read a row of the tensor? A diagonal is none.
bool IsAlong(const ExprList& indices, const Var& column) {
  return !indices.empty() && IsAxis(indices.back(), column) &&
         std::none_of(indices.begin(), indices.end() - 1,
                      [&](const Expr& index) { return MentionsAny(index, {column.get()}); });
}

// What is computed of a tensor of the kernel.
struct RowStage {
  StageRef stage;
  bool reduces, has_column;  // has it an axis along the row?
  size_t readers;
};
// An input that is read along the rows.
struct RowInput {
  BufferRef tensor;
  size_t readers;
  bool holdable;                      // every reader reads it along one row, which is its own
  ExprList row;                       // the indices before the last, in the root's axes
  bool is_one_row;                    // is it the same of all reads along a row?
  std::vector<BufferRef> reductions;  // that read it run by run
};

// The stages that one kernel computes, and what its plan must know of them; valid only if `ok`.
struct Rows {
  StageRef root;
  std::vector<int64_t> extents;   // of the rows' axes, the root's first ones
  bool has_column = false;        // has the root an axis along the row, its last one?
  int64_t length = 1;             // the longest reduction or column
  int64_t vector = 1;             // the widest access that all rows allow
  std::vector<RowStage> stages;   // all but the root, in definition order
  std::vector<StageRef> inlined;  // elementwise ones that are no rows; not in `stages`
  std::vector<RowInput> inputs;
  bool can_split = false;  // do the results depend on nothing but one reduction's, and its like?
  bool ok = false;
};

class RowFinder {
 public:
  RowFinder(const ProgramShape& shape, const KernelShape& kernel)
      : schedule_(&shape.schedule),
        root_(kernel.root),
        units_(!kernel.fused),
        stages_(StagesOf(shape, kernel)) {}

  Rows Run() {
    const ScheduledStage& root = stage(root_);
    size_t rank = root.axes.size();
    for (int s : stages_) {
      if (stage(s).is_reduction()) rank = std::min(rank, stage(s).axes.size());
    }
    rank_ = rank;
    rows_.root = {root.tensor};
    for (size_t a = 0; a < rank; ++a) rows_.extents.push_back(root.axes[a]->extent);
    rows_.has_column = HasColumn(root);
    if (rank > 0) InlineOthers();
    rows_.ok = rank > 0 && stages_.size() > 1 && AreRows() && IsWorthwhile();
    rows_.can_split = stages_.size() == 2 && !rows_.has_column;
    return rows_;
  }

 private:
  const ScheduledStage& stage(int i) const { return schedule_->stages()[static_cast<size_t>(i)]; }

  // Elementwise stages that are no rows of this kernel, such as a matrix of which all is reduced to
  // one number, are computed where they are read.
  void InlineOthers() {
    for (const int i : std::vector<int>(stages_.begin(), stages_.end())) {
      const ScheduledStage& s = stage(i);
      if (i == root_ || s.is_reduction() || s.is_output || IsOfRows(s)) continue;
      const BufferRef tensor = s.tensor;
      if (!own_.has_value()) schedule_ = &own_.emplace(*schedule_);
      if (!own_->Apply(Step(ComputeInline{tensor->name})).ok()) continue;  // then there are no rows
      rows_.inlined.push_back({tensor});
      stages_.erase(i);
    }
  }
  bool IsOfRows(const ScheduledStage& s) const {
    bool is = s.axes.size() == rank_ || HasColumn(s);
    for (size_t a = 0; is && a < rank_; ++a) is = s.axes[a]->extent == rows_.extents[a];
    return is;
  }

  // The stage whose loops compute a tensor; -1 for inputs.
  int NestOf(const Buffer* tensor) const {
    const int s = schedule_->FindStage(tensor);
    return s < 0 ? -1 : schedule_->IndexOf(schedule_->NestOf(stage(s)));
  }
  // How many nests of this kernel read it.
  size_t Readers(const Buffer* tensor) const {
    std::set<int> nests;
    for (int r : schedule_->ReadersOf(tensor)) {
      const int nest = NestOf(stage(r).tensor.get());
      if (stages_.contains(nest)) nests.insert(nest);
    }
    return nests.size();
  }
  // Calls `visit` on the loads of all values that the loops of a stage compute. What indices are
  // read of is nobody's row.
  void VisitLoads(const ScheduledStage& s, absl::FunctionRef<void(const Expr&)> visit) const {
    for (const ScheduledStage* member : schedule_->Together(s)) {
      Visit(member->body, [&](const Expr& e) {
        if (IsValueLoad(e)) visit(e);
      });
    }
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
      ok = ok && (i == root_ || !s.is_output) && IsOfRows(s) && !(s.is_reduction() && HasColumn(s));
      if (!ok) return false;
      reduces = reduces || s.is_reduction();
      AddStage(i);
      VisitLoads(s, [&](const Expr& load) { ok = ok && Read(s, load); });
    }
    for (RowInput& in : rows_.inputs) FindRuns(in);
    return ok && reduces;
  }

  // What is read otherwise than along one row, too, belongs to no thread alone, and is no run of
  // its reader's: nor of any reduction where the reader may be inlined into it.
  void FindRuns(RowInput& in) const {
    for (const auto& [tensor, reader] : elsewhere_) {
      if (tensor != in.tensor) continue;
      in.holdable = false;
      std::erase(in.reductions, reader);
      if (IsInlinable(reader.get())) in.reductions.clear();
    }
    const std::vector<int> readers = schedule_->ReadersOf(in.tensor.get());
    if (!in.is_one_row && std::any_of(readers.begin(), readers.end(),
                                      [&](int r) { return IsInlinable(stage(r).tensor.get()); })) {
      in.reductions.clear();
    }
  }
  bool IsInlinable(const Buffer* tensor) const {
    const int s = schedule_->FindStage(tensor);
    return stages_.contains(s) && s != root_ && !stage(s).is_reduction();
  }

  void AddStage(int i) {
    const ScheduledStage& s = stage(i);
    int64_t reduced = 1;
    for (const Var& r : s.reduce_axes) reduced *= r->extent;
    rows_.length = std::max({rows_.length, reduced, HasColumn(s) ? s.axes.back()->extent : 1});
    if (i == root_) return;
    rows_.stages.push_back({{s.tensor}, s.is_reduction(), HasColumn(s), Readers(s.tensor.get())});
  }

  // The indices of a load before its last, in the root's axes.
  ExprList RowOf(const ScheduledStage& s, const Expr& load) const {
    ExprList row;
    for (size_t i = 0; i + 1 < load->args.size(); ++i) {
      row.push_back(Substitute(load->args[i], [&](const Var& v) -> Expr {
        for (size_t a = 0; a < rank_; ++a) {
          if (s.axes[a] == v) return VarExpr(stage(root_).axes[a]);
        }
        return nullptr;
      }));
    }
    return row;
  }

  // A load of `s`: rows of the kernel's own stages are read at the same row; an input that is
  // read along the row may be held or read in vectors.
  bool Read(const ScheduledStage& s, const Expr& load) {
    const int p = NestOf(load->buffer.get());
    const bool own = p >= 0 && stages_.contains(p);
    const Var column = ColumnOf(s);
    bool same_row = load->args.size() >= rank_;
    for (size_t a = 0; same_row && a < rank_; ++a) {
      same_row = IsAxis(load->args[a], s.axes[a]) ||
                 (units_ && s.axes[a]->extent == 1 && IsInt(load->args[a], 0));
    }
    const bool along = column != nullptr && IsAlong(load->args, column);
    if (own) {
      return same_row && (!HasColumn(stage(p)) || (along && s.reduce_axes.size() <= 1 &&
                                                   column->extent == stage(p).axes.back()->extent));
    }
    if (along) {
      AddInput(s, load, column);
    } else {
      elsewhere_.emplace_back(load->buffer, s.tensor);
    }
    return true;
  }

  void AddInput(const ScheduledStage& s, const Expr& load, const Var& column) {
    for (const Expr& other : loads_) {
      if (StructurallyEqual(other, load)) return;  // the same of the same stage
    }
    loads_.push_back(load);
    auto input = std::find_if(rows_.inputs.begin(), rows_.inputs.end(),
                              [&](const RowInput& in) { return in.tensor == load->buffer; });
    if (input == rows_.inputs.end()) {
      rows_.inputs.push_back(
          {load->buffer, Readers(load->buffer.get()), true, RowOf(s, load), true, {}});
      input = rows_.inputs.end() - 1;
    }
    // Held elements belong to threads by their place along the row alone.
    input->holdable = input->holdable && s.reduce_axes.size() <= 1 &&
                      load->buffer->shape.back() == column->extent;
    const ExprList row = RowOf(s, load);
    for (size_t i = 0; i < row.size(); ++i) {
      input->is_one_row = input->is_one_row && StructurallyEqual(row[i], input->row[i]);
    }
    input->holdable = input->holdable && input->is_one_row;
    if (s.is_reduction()) input->reductions.push_back(s.tensor);
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
      Expr largest;
      VisitLoads(s, [&](const Expr& load) {
        if (largest == nullptr || load->buffer->elements > largest->buffer->elements) {
          largest = load;
        }
      });
      ok = ok && largest != nullptr && IsAxis(largest->args.back(), s.reduce_axes.back()) &&
           iterations <= static_cast<double>(kMostReuse * largest->buffer->elements);
    }
    return ok && FindVector();
  }

  bool FindVector() {
    rows_.vector = ElementsOfAccess(stage(root_).tensor->dtype);
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

  const Schedule* schedule_;
  std::optional<Schedule> own_;  // with what is inlined
  const int root_;
  const bool units_;  // is 0 the index of an axis of extent 1? (kernels.h)
  std::set<int> stages_;
  size_t rank_ = 0;
  std::vector<Expr> loads_;                                 // of inputs, along rows
  std::vector<std::pair<BufferRef, BufferRef>> elsewhere_;  // read not along the row, and by whom
  Rows rows_;
};

enum RowHole { kThreads, kRowsOfBlock, kVector, kHold, kUnroll, kSplit };
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
    if (!rows_.can_split || Blocks(1, 1) >= 2 * target.sm_count) return;
    holes_.push_back({"split", {1}, 0});
    for (int64_t p = 2; p <= std::min(kMostParts, rows_.length / kShortestRow); p *= 2) {
      holes_[kSplit].domain.push_back(p);
    }
  }

  std::vector<uint8_t> Default() const override {  // a warp a row
    std::vector<uint8_t> choices(holes_.size(), 0);
    choices[kThreads] = choices[kRowsOfBlock] = 3;
    const std::vector<int64_t>& threads = holes_[kThreads].domain;
    while (rows_.length > kMostSerialTerms * threads[choices[kThreads]] &&
           choices[kThreads] + size_t{1} < threads.size()) {
      ++choices[kThreads];
      choices[kRowsOfBlock] -= choices[kRowsOfBlock] > 0 ? 1 : 0;
    }
    return choices;
  }

  absl::Status Check(HoleValues v) const override {
    const auto refuse = [&](const std::string& why) {
      return absl::ResourceExhaustedError(absl::StrCat(rows_.root.tensor->name, ": ", why));
    };
    const int64_t threads = v[kThreads] * v[kRowsOfBlock];
    if (threads % kWarpThreads != 0 || threads > target_.max_threads_per_block) {
      return refuse(absl::StrCat(threads, " threads a block"));
    }
    const int64_t blocks = Blocks(v[kRowsOfBlock], Parts(v)), part = PartLength(v);
    if (v[kThreads] > kWarpThreads && v[kThreads] * v[kVector] >= 2 * part) {
      return refuse(absl::StrCat(v[kThreads], " threads for a row of ", part));
    }
    if (blocks > target_.max_grid) return refuse(absl::StrCat(blocks, " blocks"));
    if (Parts(v) > 1 && (blocks > kMostBlocks * target_.sm_count || v[kHold] != kNothing ||
                         CeilDiv(rows_.length, part) != Parts(v))) {
      return refuse(absl::StrCat(Parts(v), " parts of a row are not all needed"));
    }
    const int64_t held = Elements(v);
    if (held > kMostSerialTerms) return refuse(absl::StrCat(held, " terms a thread"));
    if (v[kHold] != kNothing &&
        (held > kMaxHeldElements || held * HeldTensors(v[kHold]) > kMaxHeldInAll ||
         held * HeldTensors(v[kHold]) * threads > target_.registers_per_sm / 2)) {
      return refuse(absl::StrCat(held, " elements a thread"));
    }
    if (v[kUnroll] > 1 && (v[kHold] != kNothing || v[kUnroll] * v[kThreads] * v[kVector] > part)) {
      return refuse("nothing to unroll");
    }
    return absl::OkStatus();
  }

  double Waste(HoleValues v) const override {
    const double row = static_cast<double>(Elements(v) * v[kThreads] * Parts(v));
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

  void Write(ScheduleWriter& w, HoleValues v) const override;

 private:
  int64_t Parts(HoleValues v) const { return holes_.size() > kSplit ? v[kSplit] : 1; }
  // Elements of a row that one block makes: of a part, whole rounds of its threads.
  int64_t PartLength(HoleValues v) const {
    if (Parts(v) == 1) return rows_.length;
    const int64_t round = v[kThreads] * v[kVector];
    return RoundUp(CeilDiv(rows_.length, Parts(v)), round);
  }
  // Of these, what one thread makes.
  int64_t Elements(HoleValues v) const {
    return CeilDiv(PartLength(v), v[kThreads] * v[kVector]) * v[kVector];
  }
  int64_t Blocks(int64_t rows_of_block, int64_t parts) const {
    int64_t rows = parts;
    for (int64_t e : rows_.extents) rows *= e;
    return CeilDiv(rows, rows_of_block);
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
  LoopRef WriteRoot(ScheduleWriter& w, HoleValues v) const;
  void WriteReduction(ScheduleWriter& w, const StageRef& reduction, const BufferRef& of,
                      HoleValues v) const;
  void WriteParts(ScheduleWriter& w, HoleValues v) const;

  const Rows rows_;
  const Target target_;
};

// `rows` of a block, each of `threads`, of a stage without an axis along the row. Returns the loop
// of the threads.
LoopRef WriteGroups(ScheduleWriter& w, const StageRef& root, int64_t rows, int64_t threads) {
  LoopList axes = w.Loops(root);
  const LoopRef lane = w.Replicate(root, threads);
  const auto [block, row] = w.Split(w.Fuse(axes), rows);
  w.Reorder({block, row, lane});
  const LoopRef thread = w.Fuse({row, lane});
  w.Bind(block, BindTo::kBlock);
  w.Bind(thread, BindTo::kThread);
  return thread;
}

// Returns the loop of the threads.
LoopRef RowsPlan::WriteRoot(ScheduleWriter& w, HoleValues v) const {
  const StageRef& root = rows_.root;
  if (!rows_.has_column) return WriteGroups(w, root, v[kRowsOfBlock], v[kThreads]);
  LoopList axes = w.Loops(root), rest;
  const auto parts = w.Split(axes.back(), v[kThreads], v[kVector]);
  const LoopRef& lane = parts[1];
  rest = {parts[0], parts[2]};
  axes.pop_back();
  const auto [block, row] = w.Split(w.Fuse(axes), v[kRowsOfBlock]);
  w.Reorder(Join({{block, row, lane}, rest}));
  const LoopRef thread = w.Fuse({row, lane});
  w.Bind(block, BindTo::kBlock);
  w.Bind(thread, BindTo::kThread);
  if (v[kVector] > 1) w.Vectorize(rest.back());
  return thread;
}

// `of`: the row's reduction, of which `reduction` makes all or parts.
void RowsPlan::WriteReduction(ScheduleWriter& w, const StageRef& reduction, const BufferRef& of,
                              HoleValues v) const {
  const LoopRef whole = w.Fuse(w.ReduceLoops(reduction));
  LoopRef lane;
  if (v[kUnroll] > 1) {
    const auto parts = w.Split(whole, v[kUnroll], v[kThreads], v[kVector]);
    w.Unroll(parts[1]);
    lane = parts[2];
  } else {
    lane = w.Split(whole, v[kThreads], v[kVector])[1];
  }
  w.Bind(lane, BindTo::kThread);
  if (v[kVector] == 1) return;
  for (const RowInput& in : rows_.inputs) {
    const auto& readers = in.reductions;
    if (IsHeld(in, v[kHold]) || std::count(readers.begin(), readers.end(), of) != 1) {
      continue;
    }
    const StageRef run = w.CacheRead(in.tensor, Scope::kLocal, reduction);
    w.ComputeAt(run, lane);
    w.Vectorize(w.Loops(run).back());
  }
}

// One kernel makes parts of the rows, which another reads as rows that are as long as there are
// parts.
void RowsPlan::WriteParts(ScheduleWriter& w, HoleValues v) const {
  const StageRef& whole = rows_.stages[0].stage;
  const LoopRef row = w.Fuse(w.ReduceLoops(whole));
  const StageRef part = w.Rfactor(w.Split(row, PartLength(v))[0]);
  const StageRef results = w.Materialize(part, whole)[0];
  w.SetScope(part, Scope::kLocal);
  w.ComputeAt(part, WriteGroups(w, results, v[kRowsOfBlock], v[kThreads]));
  WriteReduction(w, part, whole.tensor, v);
  int64_t threads = kWarpThreads;
  while (threads < std::min(Parts(v), kMostPartThreads)) threads *= 2;
  w.SetScope(whole, Scope::kLocal);
  w.ComputeAt(whole, WriteGroups(w, rows_.root, 1, threads));
  w.Bind(w.Split(w.ReduceLoops(whole)[0], threads, 1)[1], BindTo::kThread);
}

void RowsPlan::Write(ScheduleWriter& w, HoleValues v) const {
  for (const StageRef& s : rows_.inlined) w.ComputeInline(s);
  if (Parts(v) > 1) return WriteParts(w, v);
  const auto is_inlined = [&](const RowStage& s) {
    return !s.reduces && s.has_column && !IsHeld(s, v[kHold]);
  };
  for (const RowStage& s : rows_.stages) {
    if (is_inlined(s)) w.ComputeInline(s.stage);
  }
  const LoopRef thread = WriteRoot(w, v);
  for (size_t i = rows_.stages.size(); i-- > 0;) {
    const RowStage& s = rows_.stages[i];
    if (is_inlined(s)) continue;
    w.SetScope(s.stage, Scope::kLocal);
    if (IsHeld(s, v[kHold])) w.Spread(s.stage, v[kThreads], v[kVector]);
    w.ComputeAt(s.stage, thread);
  }
  for (const RowInput& in : rows_.inputs) {
    if (!IsHeld(in, v[kHold])) continue;
    const StageRef row = w.CacheReadForKernel(in.tensor, Scope::kLocal, rows_.root);
    w.Spread(row, v[kThreads], v[kVector]);
    w.ComputeAt(row, thread);
  }
  for (const RowStage& s : rows_.stages) {
    if (s.reduces) WriteReduction(w, s.stage, s.stage.tensor, v);
  }
}

Rows FindRows(const ProgramShape& shape, const KernelShape& kernel) {
  return RowFinder(shape, kernel).Run();
}

class RowsRule : public SketchRule {
 public:
  const char* name() const override { return "rows"; }
  bool takes_fused_kernels() const override { return true; }
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
