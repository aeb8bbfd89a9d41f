#include "search_space/schedule/rewrites/axes/collapse.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

// Which dimensions of every tensor are merged with the next one, and which axes of every stage.
class Merge {
 public:
  // `windows`: other uses of the two axes than as neighbours in a load are of their common number.
  Merge(const TensorProgram& program, bool windows) : program_(program), windows_(windows) {}

  // Merges axes `first` and first + 1 of a stage's tensor, and all that this takes elsewhere. False
  // where it cannot be; then nothing of this object holds.
  bool Add(const Stage& stage, size_t first) {
    AddTensor(stage.tensor.get(), first);
    while (possible_ && !pending_.empty()) {
      const auto [tensor, dim] = pending_.back();
      pending_.pop_back();
      for (const Stage& s : program_.stages) {
        if (s.tensor.get() == tensor) AddAxes(s, s.axes[dim], s.axes[dim + 1]);
        Visit(s.body, [&, tensor = tensor, dim = dim](const Expr& node) {
          if (node->op != Op::kLoad || node->buffer.get() != tensor) return;
          const Expr &y = node->args[dim], &x = node->args[dim + 1];
          const bool vars = y->op == Op::kVar && x->op == Op::kVar;
          possible_ = possible_ && vars && y->var->extent == tensor->shape[dim] &&
                      x->var->extent == tensor->shape[dim + 1];
          if (possible_) AddAxes(s, y->var, x->var);
        });
      }
    }
    return possible_;
  }

  bool HasDim(const Buffer* tensor, size_t dim) const { return dims_.contains({tensor, dim}); }
  bool HasAxis(const Var& first) const { return axes_.contains(first.get()); }

 private:
  void AddTensor(const Buffer* tensor, size_t dim) {
    if (!dims_.emplace(tensor, dim).second) return;
    // Three dimensions are merged two by two.
    possible_ = possible_ && !HasDim(tensor, dim + 1) && (dim == 0 || !HasDim(tensor, dim - 1));
    pending_.emplace_back(tensor, dim);
  }

  void AddAxes(const Stage& s, const Var& y, const Var& x) {
    const bool data = AreAdjacent(s.axes, y, x), reduced = AreAdjacent(s.reduce_axes, y, x);
    possible_ = possible_ && (data || reduced);
    if (!possible_ || !axes_.emplace(y.get()).second) return;
    if (data) AddTensor(s.tensor.get(), static_cast<size_t>(Position(s.axes, y)));
    if (!windows_) Follow(s.body, y, x);
  }

  // Every use of the two is as neighbours in a load.
  void Follow(const Expr& e, const Var& y, const Var& x) {
    if (e->op == Op::kVar && (e->var == y || e->var == x)) possible_ = false;
    for (size_t d = 0; possible_ && d < e->args.size(); ++d) {
      const bool pair = e->op == Op::kLoad && d + 1 < e->args.size() && IsVar(e->args[d], y) &&
                        IsVar(e->args[d + 1], x) && e->buffer->shape[d] == y->extent &&
                        e->buffer->shape[d + 1] == x->extent;
      if (pair) {
        AddTensor(e->buffer.get(), d++);
      } else {
        Follow(e->args[d], y, x);
      }
    }
  }

  static std::ptrdiff_t Position(const std::vector<Var>& axes, const Var& var) {
    return std::find(axes.begin(), axes.end(), var) - axes.begin();
  }
  static bool AreAdjacent(const std::vector<Var>& axes, const Var& y, const Var& x) {
    const auto at = static_cast<size_t>(Position(axes, y));
    return at + 1 < axes.size() && axes[at + 1] == x;
  }

  const TensorProgram& program_;
  const bool windows_;
  absl::flat_hash_set<std::pair<const Buffer*, size_t>> dims_;
  absl::flat_hash_set<const Variable*> axes_;  // merged with the next axis of their stage
  std::vector<std::pair<const Buffer*, size_t>> pending_;
  bool possible_ = true;
};

// A copy of a program over fewer dimensions: merged as `merge` says, and without those of extent 1.
class MergedProgram {
 public:
  explicit MergedProgram(const Merge& merge) : merge_(merge) {}

  TensorProgram Run(TensorProgram program) {
    for (BufferRef& input : program.inputs) input = TensorOf(input);
    for (Stage& stage : program.stages) RewriteStage(stage);
    return program;
  }

 private:
  // Calls use(d, merged) for every dimension that stays; the last one may be all there is.
  void ForEachDim(const Buffer* tensor, absl::FunctionRef<void(size_t, bool)> use) const {
    bool any = false;
    for (size_t d = 0; d < tensor->shape.size(); ++d) {
      const bool merged = merge_.HasDim(tensor, d);
      if (tensor->shape[d] == 1 && !merged && (any || d + 1 < tensor->shape.size())) continue;
      any = true;
      use(d, merged);
      if (merged) ++d;
    }
  }

  BufferRef TensorOf(const BufferRef& from) {
    BufferRef& to = tensors_[from.get()];
    if (to != nullptr) return to;
    std::vector<int64_t> shape;
    ForEachDim(from.get(), [&](size_t d, bool merged) {
      shape.push_back(from->shape[d] * (merged ? from->shape[d + 1] : 1));
    });
    Buffer merged = *MakeBuffer(from->name, from->dtype, from->scope, std::move(shape));
    merged.index_extent = from->index_extent;
    return to = std::make_shared<const Buffer>(std::move(merged));
  }

  // Axis `at` of a stage, one with the next where it is merged.
  Var AxisOf(const Stage& stage, const std::vector<Var>& axes, size_t at, bool merged) {
    const Var& y = axes[at];
    if (!merged) return y;
    const Var& x = axes[at + 1];
    const Var yx = MakeVar(stage.UnusedAxisName(y->name + x->name), y->extent * x->extent);
    values_[y.get()] = VarExpr(yx) / Int(x->extent);
    values_[x.get()] = VarExpr(yx) % Int(x->extent);
    return yx;
  }

  void RewriteStage(Stage& stage) {
    values_.clear();
    std::vector<Var> axes, reduce_axes;
    for (const Var& axis : stage.axes) {
      if (axis->extent == 1) values_[axis.get()] = Int(0);
    }
    ForEachDim(stage.tensor.get(), [&](size_t d, bool merged) {
      axes.push_back(AxisOf(stage, stage.axes, d, merged));
    });
    for (size_t r = 0; r < stage.reduce_axes.size(); ++r) {
      const Var& axis = stage.reduce_axes[r];
      const bool merged = merge_.HasAxis(axis), last = r + 1 == stage.reduce_axes.size();
      if (axis->extent == 1 && !merged && !(last && reduce_axes.empty())) {
        values_[axis.get()] = Int(0);
        continue;
      }
      reduce_axes.push_back(AxisOf(stage, stage.reduce_axes, r, merged));
      if (merged) ++r;
    }
    stage.body = Simplify(Rewrite(stage.body, [&](const Expr& e) { return RewriteNode(e); }));
    stage.tensor = TensorOf(stage.tensor);
    stage.axes = std::move(axes);
    stage.reduce_axes = std::move(reduce_axes);
  }

  // Null where the node stays; its arguments are rewritten already.
  Expr RewriteNode(const Expr& e) {
    if (e->op == Op::kVar) {
      const auto value = values_.find(e->var.get());
      return value == values_.end() ? nullptr : value->second;
    }
    if (e->op != Op::kLoad) return nullptr;
    ExprList args;
    ForEachDim(e->buffer.get(), [&](size_t d, bool merged) {
      args.push_back(merged ? e->args[d] * Int(e->buffer->shape[d + 1]) + e->args[d + 1]
                            : e->args[d]);
    });
    return Load(TensorOf(e->buffer), std::move(args));
  }

  const Merge& merge_;
  absl::flat_hash_map<const Buffer*, BufferRef> tensors_;
  absl::flat_hash_map<const Variable*, Expr> values_;  // of axes that are merged or gone
};

// Elements along which units for matrices multiply at once: a shorter axis leaves some idle.
constexpr int64_t kWhole = 64;

bool AreNeighbours(const Expr& load, const Var& y, const Var& x) {
  const auto is = [&](size_t d, const Var& axis) { return IsVar(load->args[d], axis); };
  for (size_t d = 0; d + 1 < load->args.size(); ++d) {
    if (is(d, y) && is(d + 1, x)) return true;
  }
  return false;
}

// Does the sum read windows at the positions y, x, or places of one factor that lie apart, of
// which x numbers few, and nothing along one of the two alone?
bool NumbersWindows(const Stage& stage, const Var& y, const Var& x) {
  bool together = true, windows = false, apart = false, is_alone = false;
  for (const Expr& load : LoadsIn(stage.body)) {
    const bool along_y = MentionsAny(load, {y.get()}), along_x = MentionsAny(load, {x.get()});
    together = together && along_y == along_x;
    is_alone = is_alone || !along_y;
    if (!along_y) continue;
    apart = apart || !AreNeighbours(load, y, x);
    windows = windows || std::any_of(load->args.begin(), load->args.end(), [&](const Expr& index) {
                return index->op != Op::kVar && MentionsAny(index, {y.get(), x.get()});
              });
  }
  return together && (windows || (apart && is_alone && x->extent < kWhole));
}

// Merges axes of the stage as long as there are some that can be.
absl::StatusOr<std::shared_ptr<const TensorProgram>> MergeAll(const TensorProgram& program,
                                                              const std::string& stage,
                                                              bool windows) {
  TensorProgram simple = program;
  for (Stage& s : simple.stages) s.body = Simplify(s.body);
  simple = MergedProgram(Merge(simple, windows)).Run(simple);
  bool any = false;
  for (bool more = true; more;) {
    more = false;
    HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(simple, stage));
    const Stage* const at = &simple.stages[number];
    for (size_t a = 0; !more && a + 1 < at->axes.size(); ++a) {
      Merge merge(simple, windows);
      if (windows && !NumbersWindows(*at, at->axes[a], at->axes[a + 1])) continue;
      if (!merge.Add(*at, a)) continue;
      simple = MergedProgram(merge).Run(simple);
      any = more = true;
    }
  }
  if (!any) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no two neighbouring axes of ", stage,
        windows ? " number the positions of windows, or places of one tensor that are few"
                : " are only ever walked together"));
  }
  return std::make_shared<const TensorProgram>(std::move(simple));
}

// Terms that units for matrices of 16-bit numbers multiply at once.
constexpr int64_t kTerms = 16;

// Nothing but tensors' elements, converted, zero where a condition says so, and multiplied? Which
// elements must follow from axes alone: behind the last term there is no index to read.
bool IsProduct(const Expr& e) {
  if (e->op == Op::kMul) return IsProduct(e->args[0]) && IsProduct(e->args[1]);
  if (e->op == Op::kCast) return IsProduct(e->args[0]);
  if (e->op != Op::kSelect) {
    return IsValueLoad(e) && std::none_of(e->args.begin(), e->args.end(), ReadsIndices);
  }
  return !ReadsIndices(e->args[0]) && e->args[2]->op == Op::kFloat &&
         e->args[2]->float_value == 0 && IsProduct(e->args[1]);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> Collapse(const TensorProgram& program,
                                                              const std::string& stage) {
  return MergeAll(program, stage, false);
}

absl::StatusOr<std::shared_ptr<const TensorProgram>> Flatten(const TensorProgram& program,
                                                             const std::string& stage) {
  return MergeAll(program, stage, true);
}

absl::StatusOr<std::shared_ptr<const TensorProgram>> FlattenSum(const TensorProgram& program,
                                                                const std::string& stage) {
  TensorProgram flattened = program;
  const auto at = std::find_if(flattened.stages.begin(), flattened.stages.end(),
                               [&](const Stage& s) { return s.name() == stage; });
  if (at == flattened.stages.end() || at->reduce_axes.size() < 2 ||
      at->combiner != Combiner::kSum || !IsProduct(at->body)) {
    return absl::InvalidArgumentError(
        absl::StrCat(stage, " is no sum of products along several axes"));
  }
  std::string name;
  for (const Var& axis : at->reduce_axes) name += axis->name;
  const int64_t terms = ExtentOf(at->reduce_axes);
  const Var all = MakeVar(at->UnusedAxisName(name), RoundUp(terms, kTerms));
  absl::flat_hash_map<const Variable*, Expr> values;
  int64_t inner = 1;
  for (size_t r = at->reduce_axes.size(); r-- > 0;) {
    const Var& axis = at->reduce_axes[r];
    const Expr number = VarExpr(all) / Int(inner);
    values[axis.get()] = r == 0 ? number : number % Int(axis->extent);
    inner *= axis->extent;
  }
  const Expr is_term = VarExpr(all) < Int(terms);
  at->body = Simplify(Rewrite(at->body, [&](const Expr& e) -> Expr {
    if (e->op == Op::kVar) {
      const auto value = values.find(e->var.get());
      return value == values.end() ? nullptr : value->second;
    }
    return IsValueLoad(e) ? Select(is_term, e, Float(0, e->type)) : nullptr;
  }));
  at->reduce_axes = {all};
  return std::make_shared<const TensorProgram>(std::move(flattened));
}

absl::Status CollapseAxes::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, Collapse);
}

absl::Status FlattenAxes::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, Flatten);
}

absl::Status FlattenSumAxes::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, FlattenSum);
}

}  // namespace heddle::search_space
