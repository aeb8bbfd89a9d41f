#include "search_space/sketch/patterns/rows.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/functional/function_ref.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/stmt.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/analysis/prefix_reductions.h"
#include "search_space/schedule/placement/reduce_beside.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/kernels/kernel_plan.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kShortestStridedRow = 2;  // one thread has many of them, side by side
constexpr int64_t kMostReuse = 4;           // of an input's elements; beyond it tiling is better
constexpr int64_t kMostResults = 32;        // that a thread adds up at once

class RowFinder {
 public:
  // `column_at`: where the axis along the row is among those of what has one; none = it is the
  // last. `most_few`: of so many results at most it does not matter how they are read.
  RowFinder(const ProgramShape& shape, const KernelShape& kernel, std::optional<size_t> column_at,
            int64_t most_few = 0)
      : schedule_(&shape.schedule),
        root_(kernel.root),
        most_few_(most_few),
        units_(column_at.has_value() || !kernel.fused),
        strided_(column_at.has_value()),
        stages_(StagesOf(shape, kernel)) {
    rank_ = stage(root_).axes.size() - (kernel.beside.empty() ? 0 : 1);
    has_beside_ = !kernel.beside.empty();
    has_all_ = std::all_of(kernel.reductions.begin(), kernel.reductions.end(),
                           [&](int r) { return stages_.contains(r); });
    for (int s : stages_) {
      if (stage(s).is_reduction()) rank_ = std::min(rank_, stage(s).axes.size());
    }
    rows_.column_at = column_at.value_or(rank_);
    for (size_t a = 0; a < rank_; ++a) {
      if (RowAxis(stage(root_), a)->extent > 1) innermost_ = a;
    }
  }

  Rows Run() {
    const ScheduledStage& root = stage(root_);
    rows_.root = {root.tensor};
    if (rank_ == 0 || (stages_.size() < 2 && !has_beside_) ||
        rows_.column_at + (strided_ ? 1 : 0) > rank_) {
      return rows_;
    }
    FindResultsAxis();
    for (size_t a = 0; a < rank_; ++a) rows_.extents.push_back(RowAxis(root, a)->extent);
    rows_.has_column = HasColumn(root);
    InlineOthers();
    if (has_beside_ && (!rows_.has_column || strided_ || !has_all_)) return rows_;
    rows_.ok = (stages_.size() > 1 || has_beside_) && AreRows() && IsWorthwhile();
    rows_.can_split = !strided_ && stages_.size() == 2 && !rows_.has_column;
    if (most_few_ > 0 && rows_.can_split) {
      FindResults();
      if (rows_.results.size() > 1) FindTermInputs();
    }
    return rows_;
  }

 private:
  const ScheduledStage& stage(int i) const { return schedule_->stage(i); }

  // Elementwise stages that are no rows of this kernel, such as a matrix of which all is reduced to
  // one number, or of which others read other elements than their own, as a rotated half, are
  // computed where they are read.
  void InlineOthers() {
    // Readers first: what is inlined has what it reads be read there.
    for (const int i : std::vector<int>(stages_.rbegin(), stages_.rend())) {
      const ScheduledStage& s = stage(i);
      if (i == root_ || s.is_reduction() || s.is_output) continue;
      if (IsOfRows(s) && IsReadAsRows(s)) continue;
      const BufferRef tensor = s.tensor;
      if (!own_.has_value()) schedule_ = &own_.emplace(*schedule_);
      if (!Apply(Step(ComputeInline{tensor->name}), *own_).ok())
        continue;  // then there are no rows
      rows_.inlined.push_back({tensor});
      stages_.erase(i);
    }
  }
  bool IsReadAsRows(const ScheduledStage& s) const {
    bool is = true;
    for (const int r : stages_) {
      const ScheduledStage& reader = stage(r);
      if (!IsOfRows(reader)) continue;  // inlined, too
      VisitLoads(reader, [&](const Expr& load) {
        is = is && (load->buffer != s.tensor || IsOwnRow(reader, load, s));
      });
    }
    return is;
  }
  bool IsOfRows(const ScheduledStage& s) const {
    bool is = s.axes.size() == rank_ || HasColumn(s);
    for (size_t a = 0; is && a < rank_; ++a) is = RowAxis(s, a)->extent == rows_.extents[a];
    return is;
  }

  // The stage whose loops compute a tensor; -1 for inputs.
  int NestOf(const Buffer* tensor) const {
    const int s = schedule_->FindStage(tensor);
    return s < 0 ? -1 : schedule_->IndexOf(schedule_->NestOf(stage(s)));
  }
  // How many nests of this kernel read it, what is reduced beside the root counting as one each.
  size_t Readers(const Buffer* tensor) const {
    std::set<int> nests;
    for (int r : schedule_->ReadersOf(tensor)) {
      const int nest = NestOf(stage(r).tensor.get());
      if (!stages_.contains(nest)) continue;
      nests.insert(has_beside_ && nest == root_ ? r : nest);
    }
    return nests.size();
  }
  // Calls `visit` on the loads of all values that the loops of a stage compute, numbers of tensors
  // of indices among them, such as labels. What says where something is read is nobody's row.
  void VisitLoads(const ScheduledStage& s, absl::FunctionRef<void(const Expr&)> visit) const {
    for (const ScheduledStage* m : schedule_->Together(s)) search_space::VisitLoads(m->body, visit);
  }
  bool HasColumn(const ScheduledStage& s) const { return s.axes.size() == rank_ + 1; }
  bool HasResults(const ScheduledStage& s) const {
    return rows_.results_at.has_value() && &s == &stage(root_);
  }
  size_t ColumnAt(const ScheduledStage& s) const {
    return HasResults(s) ? *rows_.results_at : rows_.column_at;
  }
  const Var& Column(const ScheduledStage& s) const { return s.axes[ColumnAt(s)]; }
  // Axis `a` of the rows, as that of a stage.
  const Var& RowAxis(const ScheduledStage& s, size_t a) const {
    return s.axes[HasColumn(s) && a >= ColumnAt(s) ? a + 1 : a];
  }
  // Does the root read reductions alone, along all of its axes but the last one but one?
  void FindResultsAxis() {
    const ScheduledStage& root = stage(root_);
    bool stores_results = !strided_ && !has_beside_ && HasColumn(root) && rank_ > 0;
    VisitLoads(root, [&](const Expr& load) {
      stores_results = stores_results && stages_.contains(NestOf(load->buffer.get())) &&
                       load->args.size() == rank_;
      for (size_t a = 0; stores_results && a < rank_; ++a) {
        stores_results = IsVar(load->args[a], root.axes[a + 1 < rank_ ? a : a + 1]);
      }
    });
    if (stores_results) rows_.results_at = rank_ - 1;
  }
  // The axis along which the stage walks its row; null when it does not.
  Var ColumnOf(const ScheduledStage& s) const {
    if (HasResults(s)) return nullptr;
    if (s.is_reduction()) return s.reduce_axes.back();
    return HasColumn(s) ? Column(s) : nullptr;
  }

  // Is the index that of the axis, or one that begins anywhere, as windows of a signal do?
  bool RunsAlong(const Expr& index, const Var& axis) const {
    return IsVar(index, axis) ||
           (!strided_ && !MentionsAny(Simplify(index - VarExpr(axis)), {axis.get()}));
  }

  // Which index runs along the row, if what is read is one, of which neighbours lie side by side
  // where it is strided. A diagonal is none.
  std::optional<size_t> AlongAt(const ScheduledStage& s, const Expr& load) const {
    const Var column = ColumnOf(s);
    const ExprList& indices = load->args;
    if (column == nullptr || indices.empty()) return std::nullopt;
    size_t at = indices.size() - 1;
    if (strided_) {
      while (at > 0 && load->buffer->shape[at] == 1) --at;
      if (!IsVar(indices[at], RowAxis(s, innermost_))) return std::nullopt;
      while (at > 0 && !IsVar(indices[at], column)) --at;
    }
    if (!RunsAlong(indices[at], column)) return std::nullopt;
    for (size_t i = 0; i < indices.size(); ++i) {
      if (i != at && MentionsAny(indices[i], {column.get()})) return std::nullopt;
    }
    return at;
  }

  bool AreRows() {
    bool ok = true, reduces = false;
    for (int i : stages_) {
      const ScheduledStage& s = stage(i);
      ok = ok && (i == root_ || !s.is_output) && IsOfRows(s) &&
           (!s.is_reduction() || IsScan(s) ||
            !(HasColumn(s) || (strided_ && s.reduce_axes.size() > 1)));
      if (!ok) return false;
      reduces = reduces || s.is_reduction();
      AddStage(i);
      VisitLoads(s, [&](const Expr& load) { ok = ok && Read(s, load); });
    }
    for (RowInput& in : rows_.inputs) FindRuns(in);
    return ok && (reduces || has_beside_);
  }

  // Does it reduce all prefixes of its row, for others?
  bool IsScan(const ScheduledStage& s) const {
    if (strided_ || has_beside_ || !s.is_reduction() || !HasColumn(s) ||
        s.reduce_axes.size() != 1 || schedule_->HasCompanions(s)) {
      return false;
    }
    const std::optional<Scan> scan = ScanOf(s);
    return scan.has_value() && scan->level == nullptr && !scan->in_windows &&
           scan->axis == rows_.column_at;
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
    rows_.length =
        std::max({rows_.length, ExtentOf(s.reduce_axes), HasColumn(s) ? Column(s)->extent : 1});
    if (i == root_) return;
    rows_.stages.push_back({{s.tensor}, s.is_reduction(), HasColumn(s), Readers(s.tensor.get())});
  }

  // The indices of a load, in the root's axes: of the one along the row where that begins.
  ExprList RowOf(const ScheduledStage& s, const Expr& load, size_t along) const {
    ExprList row;
    for (size_t i = 0; i < load->args.size(); ++i) {
      const Expr& index = load->args[i];
      const Expr first = i == along ? Simplify(index - VarExpr(ColumnOf(s))) : index;
      row.push_back(Substitute(first, [&](const Var& v) -> Expr {
        for (size_t a = 0; a < rank_; ++a) {
          if (RowAxis(s, a) == v) return VarExpr(RowAxis(stage(root_), a));
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
    if (p >= 0 && stages_.contains(p)) return IsOwnRow(s, load, stage(p));
    const std::optional<size_t> along = SaysWhere(load->buffer) ? std::nullopt : AlongAt(s, load);
    if (along.has_value()) {
      AddInput(s, load, *along);
    } else {
      elsewhere_.emplace_back(load->buffer, s.tensor);
    }
    return true;
  }

  // Does the kernel read others at places that this tensor of indices says? Then nobody holds it.
  bool SaysWhere(const BufferRef& tensor) const {
    if (tensor->dtype != DType::kInt32) return false;
    return std::any_of(stages_.begin(), stages_.end(), [&](int i) {
      const std::vector<const ScheduledStage*> all = schedule_->Together(stage(i));
      return std::any_of(all.begin(), all.end(), [&](const ScheduledStage* s) {
        return search_space::SaysWhere(s->body, tensor.get());
      });
    });
  }

  // Does `s` read a stage of the kernel, `read`, at its own row, and there at its own element?
  bool IsOwnRow(const ScheduledStage& s, const Expr& load, const ScheduledStage& read) const {
    const bool has_column = HasColumn(read);
    if (!IsSameRow(s, load->args, has_column)) return false;
    if (!has_column) return true;
    const Var column = ColumnOf(s);
    return column != nullptr && IsVar(load->args[rows_.column_at], column) &&
           AlongAt(s, load) == rows_.column_at && s.reduce_axes.size() <= 1 &&
           column->extent == Column(read)->extent;
  }

  bool IsSameRow(const ScheduledStage& s, const ExprList& indices, bool has_column) const {
    bool is = indices.size() == rank_ + (has_column ? 1 : 0);
    for (size_t a = 0; is && a < rank_; ++a) {
      const Expr& index = indices[has_column && a >= rows_.column_at ? a + 1 : a];
      const Var& axis = RowAxis(s, a);
      is = IsVar(index, axis) || (units_ && axis->extent == 1 && IsInt(index, 0));
    }
    return is;
  }

  void AddInput(const ScheduledStage& s, const Expr& load, size_t along) {
    for (const Expr& other : loads_) {
      if (StructurallyEqual(other, load)) return;  // the same of the same stage
    }
    loads_.push_back(load);
    auto input = std::find_if(rows_.inputs.begin(), rows_.inputs.end(),
                              [&](const RowInput& in) { return in.tensor == load->buffer; });
    if (input == rows_.inputs.end()) {
      rows_.inputs.push_back({load->buffer,
                              Readers(load->buffer.get()),
                              true,
                              along,
                              RowOf(s, load, along),
                              true,
                              {}});
      input = rows_.inputs.end() - 1;
    }
    // Held elements belong to threads by their place along the row alone.
    input->holdable = input->holdable && s.reduce_axes.size() <= 1 &&
                      IsVar(load->args[along], ColumnOf(s)) &&
                      load->buffer->shape[along] == ColumnOf(s)->extent;
    const ExprList row = RowOf(s, load, along);
    input->is_one_row = input->is_one_row && along == input->along;
    for (size_t i = 0; i < row.size(); ++i) {
      input->is_one_row = input->is_one_row && StructurallyEqual(row[i], input->row[i]);
    }
    input->holdable = input->holdable && input->is_one_row;
    if (s.is_reduction()) input->reductions.push_back(s.tensor);
  }

  void FindResults() {
    int64_t results = 1;
    for (size_t a = rows_.extents.size(); a-- > 0;) {
      results *= rows_.extents[a];
      if (results > kMostResults) break;
      if (results > rows_.results.back()) rows_.results.push_back(results);
    }
  }

  void FindTermInputs() {
    for (const int r : stages_) {
      if (!stage(r).is_reduction()) continue;
      VisitLoads(stage(r), [&](const Expr& load) {
        const BufferRef& tensor = load->buffer;
        std::vector<BufferRef>& found = rows_.term_inputs;
        const bool is_there = std::find(found.begin(), found.end(), tensor) != found.end();
        const bool is_wide = std::any_of(rows_.inputs.begin(), rows_.inputs.end(),
                                         [&](const RowInput& in) { return in.tensor == tensor; });
        if (!is_wide && !is_there && tensor->dtype != DType::kInt32 &&
            HasFewOfTerm(stage(r), tensor)) {
          found.push_back(tensor);
        }
      });
    }
  }
  // Does each term read it at its own place, and there few elements?
  bool HasFewOfTerm(const ScheduledStage& s, const BufferRef& tensor) const {
    bool ok = schedule_->FindStage(tensor.get()) < 0;
    std::map<size_t, const Variable*> term_at;  // by dimension, the reduced axis
    VisitLoads(s, [&](const Expr& load) {
      if (load->buffer != tensor) return;
      int64_t elements = 1;
      size_t terms = 0;
      for (size_t d = 0; d < load->args.size(); ++d) {
        const Expr& index = load->args[d];
        const auto is_term = [&](const Var& axis) { return IsVar(index, axis); };
        if (std::any_of(s.reduce_axes.begin(), s.reduce_axes.end(), is_term)) {
          // Of two places in a term, such as X[r, q] and X[r, r], registers hold no copy.
          ok = ok && term_at.emplace(d, index->var.get()).first->second == index->var.get();
          ++terms;
          continue;
        }
        Visit(index, [&](const Expr& e) { ok = ok && e->op != Op::kLoad; });
        for (const Var& axis : s.reduce_axes) ok = ok && !MentionsAny(index, {axis.get()});
        elements *= tensor->shape[d];
      }
      ok = ok && terms == s.reduce_axes.size() && elements > 1 && elements <= kMostResults;
    });
    return ok;
  }

  // The largest input of each reduction is read along the rows, and seldom more than once, but for
  // other terms of the same row: tiles of several results have nothing in common then. Where terms
  // read no values but indices, as a histogram's do, nobody has tiles for them.
  bool IsWorthwhile() {
    bool ok = rows_.length >= (strided_ ? kShortestStridedRow : kShortestRow) &&
              (!strided_ || rows_.HeldTensors(kHoldShared) > 0);
    if (most_few_ > 0) {
      int64_t results = 1;
      for (int64_t e : rows_.extents) results *= e;
      if (!ok || results > most_few_) return false;
      FindVector();
      return true;
    }
    for (int i : stages_) {
      const ScheduledStage& s = stage(i);
      if (!s.is_reduction() || IsScan(s)) continue;
      double iterations = 1;
      for (const Var& v : s.axes) iterations *= static_cast<double>(v->extent);
      for (const Var& v : s.reduce_axes) iterations *= static_cast<double>(v->extent);
      const Expr largest = LargestRead(s);
      if (largest == nullptr) {
        Visit(s.body, [&](const Expr& e) {
          const bool walks = e->op == Op::kLoad && MentionsAny(e, {s.reduce_axes.back().get()});
          ok = ok && (!walks || IsReadAlong(s, e));
        });
        continue;
      }
      // What stores an element for each term has nothing to gain from reading less.
      const bool stores_each =
          rows_.has_column && static_cast<double>(stage(root_).tensor->elements) >= iterations;
      ok = ok && IsReadAlong(s, largest) &&
           (iterations <= static_cast<double>(kMostReuse * largest->buffer->elements) ||
            (!strided_ && (stores_each || ReusesInRowAlone(s))));
    }
    if (ok) FindVector();
    return ok;
  }
  // Null where no values are read. Those that indices of the row name lie anywhere: there these
  // indices count.
  Expr LargestRead(const ScheduledStage& s) const {
    Expr largest;
    const auto consider = [&](const Expr& load) {
      const int64_t more =
          largest == nullptr ? 1 : load->buffer->elements - largest->buffer->elements;
      if (more > 0 || (more == 0 && !IsReadAlong(s, largest))) largest = load;
    };
    VisitLoads(s, [&](const Expr& load) {
      const ExprList indices = IndicesOfRow(s, load);
      for (const Expr& index : indices) consider(index);
      if (indices.empty()) consider(load);
    });
    return largest;
  }
  // Read along the row to find what is loaded; none where that lies side by side along another
  // axis.
  ExprList IndicesOfRow(const ScheduledStage& s, const Expr& load) const {
    const auto lies_along = [&](const Var& v) { return RunsAlong(load->args.back(), v); };
    ExprList indices;
    if (strided_ || std::any_of(s.axes.begin(), s.axes.end(), lies_along)) return indices;
    for (const Expr& index : load->args) {
      Visit(index, [&](const Expr& e) {
        if (e->op == Op::kLoad && IsReadAlong(s, e)) indices.push_back(e);
      });
    }
    return indices;
  }
  // Has each row elements of its own, of all that is read? Those of windows have not.
  bool ReusesInRowAlone(const ScheduledStage& s) const {
    bool alone = true;
    VisitLoads(s, [&](const Expr& load) {
      for (const Var& axis : s.axes) {
        alone = alone && (axis->extent == 1 ||
                          std::any_of(load->args.begin(), load->args.end(),
                                      [&](const Expr& index) { return IsVar(index, axis); }));
      }
    });
    return alone;
  }
  bool IsReadAlong(const ScheduledStage& s, const Expr& load) const {
    return strided_ ? AlongAt(s, load).has_value()
                    : RunsAlong(load->args.back(), s.reduce_axes.back());
  }

  void FindVector() {
    rows_.vector = ElementsOfAccess(stage(root_).tensor->dtype);
    const auto fit = [&](int64_t extent) {
      while (extent % rows_.vector != 0) rows_.vector /= 2;
    };
    if (strided_) return fit(rows_.extents[innermost_]);
    const bool is_one_row = std::all_of(rows_.extents.begin(), rows_.extents.end(),
                                        [](int64_t extent) { return extent == 1; });
    for (int i : stages_) {
      const ScheduledStage& s = stage(i);
      // Of one long row the last vector alone crosses its end.
      const bool is_long =
          is_one_row && s.reduce_axes.size() == 1 && s.reduce_axes[0]->extent >= kLongBesideVector;
      if (s.is_reduction() && !is_long) fit(s.reduce_axes.back()->extent);
      if (HasColumn(s) && !HasResults(s)) fit(Column(s)->extent);
    }
  }

  const Schedule* schedule_;
  std::optional<Schedule> own_;  // with what is inlined
  const int root_;
  const int64_t most_few_;
  const bool units_;  // is 0 the index of an axis of extent 1? (kernels.h)
  const bool strided_;
  bool has_beside_ = false;  // is something reduced over the rows?
  bool has_all_ = true;      // does what it computes read all of the kernel's reductions?
  std::set<int> stages_;
  size_t rank_ = 0;
  size_t innermost_ = 0;     // of the rows' axes the last one that is longer than 1
  std::vector<Expr> loads_;  // of inputs, along rows
  std::vector<std::pair<BufferRef, BufferRef>> elsewhere_;  // read not along the row, and by whom
  Rows rows_;
};

}  // namespace

int64_t Rows::HeldTensors(int64_t hold) const {
  const auto held = [hold](const auto& x) { return IsHeld(x, hold); };
  const auto scans = [](const RowStage& s) { return s.scans(); };
  return std::count_if(stages.begin(), stages.end(), held) +
         std::count_if(inputs.begin(), inputs.end(), held) +
         2 * std::count_if(stages.begin(), stages.end(), scans);
}

bool Rows::HasScans() const {
  return std::any_of(stages.begin(), stages.end(), [](const RowStage& s) { return s.scans(); });
}

bool Rows::IsKept(const RowInput& in, int64_t hold) const {
  const auto scans = [&](const RowStage& s) {
    return s.scans() && std::count(in.reductions.begin(), in.reductions.end(), s.stage.tensor) > 0;
  };
  return IsHeld(in, hold) || (in.holdable && std::any_of(stages.begin(), stages.end(), scans));
}

Rows FindRows(const ProgramShape& shape, const KernelShape& kernel) {
  if (kernel.beside.empty()) return RowFinder(shape, kernel, std::nullopt).Run();
  // As if each row had a part of its own.
  ProgramShape with{shape.steps, shape.schedule, {}};
  const auto number = [&](int stage) {
    return with.schedule.FindStage(shape.stage(stage).tensor.get());
  };
  for (const int s : kernel.beside) {
    const Step step = BesideRowsOf(with.stage(number(kernel.root)), with.stage(number(s)), 1, 1);
    if (!Apply(step, with.schedule).ok()) return {};
  }
  for (const KernelShape& other : shape.kernels) {
    KernelShape& there = with.kernels.emplace_back(KernelShape{.root = number(other.root)});
    for (const int sum : other.beside) there.beside.push_back(number(sum));
  }
  KernelShape whole = kernel;
  whole.root = number(kernel.root);
  std::transform(kernel.reductions.begin(), kernel.reductions.end(), whole.reductions.begin(),
                 number);
  Rows rows = RowFinder(with, whole, std::nullopt).Run();
  for (const int s : kernel.beside) {
    const ScheduledStage& reduction = shape.stage(s);
    const int root = *shape.schedule.OnlyReaderOf(reduction.tensor.get());
    rows.beside.push_back({{shape.schedule.NestOf(shape.stage(root)).tensor}, {reduction.tensor}});
    rows.sums_beside += static_cast<int64_t>(shape.schedule.Together(reduction).size());
    const int64_t of_sum = ExtentOf(reduction.reduce_axes);
    rows.ok = rows.ok && (rows.rows_of_sum == 1 || rows.rows_of_sum == of_sum);
    rows.rows_of_sum = of_sum;
  }
  return rows;
}

Rows FindFewRows(const ProgramShape& shape, const KernelShape& kernel, int64_t most_results) {
  return RowFinder(shape, kernel, std::nullopt, most_results).Run();
}

Rows FindStridedRows(const ProgramShape& shape, const KernelShape& kernel) {
  Rows rows;
  const size_t axes = shape.stage(kernel.root).axes.size();
  for (size_t at = 0; at < axes && !rows.ok; ++at) rows = RowFinder(shape, kernel, at).Run();
  return rows;
}

}  // namespace heddle::search_space
