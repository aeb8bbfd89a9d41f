#include "search_space/schedule/rewrites/reductions/rows_first.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

using Tensors = absl::flat_hash_set<const Buffer*>;

// What each stage reads, itself and through other stages.
absl::flat_hash_map<const Buffer*, Tensors> AllReads(const TensorProgram& program) {
  absl::flat_hash_map<const Buffer*, Tensors> reads;
  for (const Stage& stage : program.stages) {
    Tensors all;
    Visit(stage.body, [&](const Expr& e) {
      if (e->op != Op::kLoad) return;
      all.insert(e->buffer.get());
      const auto through = reads.find(e->buffer.get());
      if (through != reads.end()) all.insert(through->second.begin(), through->second.end());
    });
    reads.emplace(stage.tensor.get(), std::move(all));
  }
  return reads;
}

// Those that are longer than 1.
std::vector<Var> LongAxes(const std::vector<Var>& axes) {
  std::vector<Var> all;
  std::copy_if(axes.begin(), axes.end(), std::back_inserter(all),
               [](const Var& v) { return v->extent > 1; });
  return all;
}

bool IsReducedOver(const Stage& stage, const Var& axis) {
  return std::find(stage.reduce_axes.begin(), stage.reduce_axes.end(), axis) !=
         stage.reduce_axes.end();
}

// The largest elementwise output with rows.
const Stage* RowsIn(const TensorProgram& program) {
  const Stage* largest = nullptr;
  for (const Stage& stage : program.stages) {
    if (!stage.is_output || stage.is_reduction()) continue;
    const std::vector<Var> axes = LongAxes(stage.axes);
    if (axes.size() < 2 || axes.back() != stage.axes.back() || axes.back()->extent < kShortestRow) {
      continue;
    }
    if (largest == nullptr || stage.tensor->elements >= largest->tensor->elements) {
      largest = &stage;
    }
  }
  return largest;
}

// Do no two of these axes number dimensions of what is read the other way round? Axes as long as
// one another do not say which they are.
bool AreInOrder(const Expr& body, const std::vector<Var>& axes) {
  bool are = true;
  Visit(body, [&](const Expr& load) {
    if (load->op != Op::kLoad) return;
    auto behind = axes.begin();
    for (const Expr& index : load->args) {
      const auto at =
          index->op == Op::kVar ? std::find(axes.begin(), axes.end(), index->var) : axes.end();
      if (at == axes.end()) continue;
      are = are && at >= behind;
      behind = at;
    }
  });
  return are;
}

// The reduced axes that number rows of `rows`, where the reduction is over all of these, in the
// same order, and all of each row or one element of it.
std::optional<std::vector<std::string>> AxesOfRows(const Stage& reduction, const Stage& rows) {
  std::vector<Var> all = LongAxes(reduction.axes);
  const size_t own = all.size();
  for (const Var& axis : LongAxes(reduction.reduce_axes)) all.push_back(axis);
  const std::vector<Var> of_rows = LongAxes(rows.axes);
  const bool is_of_element = all.size() == of_rows.size();
  if (own + 1 > of_rows.size() - 1 || (!is_of_element && all.size() + 1 != of_rows.size())) {
    return std::nullopt;
  }
  for (size_t a = 0; a < all.size(); ++a) {
    if (all[a]->extent != of_rows[a]->extent) return std::nullopt;
  }
  if (!AreInOrder(reduction.body, all)) return std::nullopt;
  std::vector<std::string> axes;
  for (size_t a = own; a + 1 < of_rows.size(); ++a) axes.push_back(all[a]->name);
  return axes;
}

// The variables of a load that reads each element once, along as many dimensions as `axes` are;
// none of another one.
std::vector<Var> VarsOf(const Expr& load, size_t axes) {
  std::vector<Var> vars;
  for (const Expr& index : load->args) {
    if (index->op != Op::kVar || std::find(vars.begin(), vars.end(), index->var) != vars.end()) {
      return {};
    }
    vars.push_back(index->var);
  }
  return vars.size() == axes ? vars : std::vector<Var>();
}

// The reduction's variables where `rows` has its axes, by what both read, or the one reads of the
// other; none where that says nothing.
std::vector<Var> VarsAlongRows(const Stage& reduction, const Stage& rows) {
  std::vector<Var> found;
  Visit(reduction.body, [&](const Expr& load) {
    if (load->op != Op::kLoad || !found.empty()) return;
    const std::vector<Var> own = VarsOf(load, rows.axes.size());
    if (own.empty()) return;
    if (load->buffer == rows.tensor) found = own;
    Visit(rows.body, [&](const Expr& other) {
      if (other->op != Op::kLoad || other->buffer != load->buffer || !found.empty()) return;
      const std::vector<Var> of_rows = VarsOf(other, rows.axes.size());
      for (const Var& axis : rows.axes) {
        const auto at = std::find(of_rows.begin(), of_rows.end(), axis);
        if (at != of_rows.end()) found.push_back(own[static_cast<size_t>(at - of_rows.begin())]);
      }
      if (found.size() != rows.axes.size()) found.clear();
    });
  });
  return found;
}

// The same of a reduction whose own axes stand among those that number rows, as a channel's does
// between those of images and of their pixels: with these, in the rows' order. It reduces all of
// each row.
std::optional<std::vector<std::string>> AxesAmongRows(const Stage& reduction, const Stage& rows) {
  const std::vector<Var> vars = VarsAlongRows(reduction, rows);
  if (vars.empty() || reduction.axes.size() + reduction.reduce_axes.size() != vars.size() ||
      !IsReducedOver(reduction, vars.back())) {
    return std::nullopt;
  }
  std::vector<std::string> axes;
  std::vector<Var> own, reduced;
  for (size_t a = 0; a + 1 < vars.size(); ++a) {
    axes.push_back(vars[a]->name);
    (IsReducedOver(reduction, vars[a]) ? reduced : own).push_back(vars[a]);
  }
  reduced.push_back(vars.back());
  const bool in_order = own == reduction.axes && reduced == reduction.reduce_axes;
  const bool are_first = std::equal(own.begin(), own.end(), vars.begin());
  return in_order && !are_first ? std::optional(axes) : std::nullopt;
}

// Are these the axes that number rows?
bool NumberRows(const std::vector<Var>& axes, const Stage& rows) {
  return axes.size() + 1 == rows.axes.size() &&
         std::equal(axes.begin(), axes.end(), rows.axes.begin(),
                    [](const Var& a, const Var& b) { return a->extent == b->extent; });
}

}  // namespace

std::string NameOfRows(const std::string& stage) { return absl::StrCat(stage, ".rows"); }

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithRowsFirst(
    const TensorProgram& program, const std::string& name, const std::vector<std::string>& axes) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  const Stage& stage = program.stages[number];
  const bool is_done = std::any_of(program.stages.begin(), program.stages.end(),
                                   [&](const Stage& s) { return s.name() == NameOfRows(name); });
  if (is_done) return absl::InvalidArgumentError(absl::StrCat(name, " reduces rows first already"));
  const auto is_named = [&](const Var& axis) {
    return std::find(axes.begin(), axes.end(), axis->name) != axes.end();
  };
  Stage rows{.combiner = stage.combiner};
  std::vector<Var> named;  // of its own, those that stand among the rows
  for (const Var& axis : LongAxes(stage.axes)) {
    (is_named(axis) ? named : rows.axes).push_back(axis);
  }
  Stage result = stage;
  result.reduce_axes.clear();
  for (const Var& axis : stage.reduce_axes) {
    (is_named(axis) ? result.reduce_axes : rows.reduce_axes).push_back(axis);
  }
  auto own = named.begin();
  auto reduced = result.reduce_axes.begin();
  for (const std::string& axis : axes) {
    if (own != named.end() && (*own)->name == axis) {
      rows.axes.push_back(*own++);
    } else if (reduced != result.reduce_axes.end() && (*reduced)->name == axis) {
      rows.axes.push_back(*reduced++);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " does not reduce over [", absl::StrJoin(axes, ", "), "], in this order"));
    }
  }
  if (result.reduce_axes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " reduces over none of [", absl::StrJoin(axes, ", "), "]"));
  }
  if (rows.reduce_axes.empty()) rows.combiner = Combiner::kNone;
  std::vector<int64_t> shape;
  ExprList element;
  const std::vector<Var> before = rows.axes;
  for (Var& axis : rows.axes) {
    shape.push_back(axis->extent);
    element.push_back(VarExpr(axis));
    axis = MakeVar(axis->name, axis->extent);  // a stage's axes are its own
  }
  rows.body = Substitute(stage.body, [&](const Var& v) -> Expr {
    const auto at = std::find(before.begin(), before.end(), v);
    if (at != before.end()) return VarExpr(rows.axes[static_cast<size_t>(at - before.begin())]);
    return v->extent == 1 && !IsReducedOver(rows, v) ? Int(0) : nullptr;
  });
  rows.tensor = MakeBuffer(NameOfRows(name), stage.body->type, Scope::kGlobal, std::move(shape));
  result.body = Load(rows.tensor, std::move(element));
  auto made = std::make_shared<TensorProgram>(program);
  made->stages[number] = std::move(result);
  made->stages.insert(made->stages.begin() + static_cast<std::ptrdiff_t>(number), std::move(rows));
  return made;
}

absl::Status RowsFirst::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, [&](const TensorProgram& program, const std::string& name) {
    return WithRowsFirst(program, name, axes);
  });
}

std::vector<RowsFirst> ReductionsBesideRows(const TensorProgram& program) {
  std::vector<RowsFirst> found;
  const Stage* const rows = RowsIn(program);
  if (rows == nullptr) return found;
  const auto reads = AllReads(program);
  const Tensors& of_rows = reads.at(rows->tensor.get());
  for (const Stage& stage : program.stages) {
    if (!stage.is_reduction() || of_rows.contains(stage.tensor.get())) continue;
    const Tensors& own = reads.at(stage.tensor.get());
    // A number that both read is no reason to read rows once.
    const bool have_common = std::any_of(own.begin(), own.end(), [&](const Buffer* tensor) {
      return tensor->elements > 1 && of_rows.contains(tensor);
    });
    if (!have_common) continue;
    auto axes = AxesAmongRows(stage, *rows);
    if (!axes) axes = AxesOfRows(stage, *rows);
    if (axes.has_value()) found.push_back({stage.name(), *std::move(axes)});
  }
  return found;
}

std::vector<std::string> StatisticsOfRows(const TensorProgram& program) {
  std::vector<std::string> found;
  const Stage* const rows = RowsIn(program);
  if (rows == nullptr) return found;
  const Tensors of_rows = AllReads(program).at(rows->tensor.get());
  for (const Stage& stage : program.stages) {
    if (!stage.is_reduction() || stage.is_output || !of_rows.contains(stage.tensor.get()) ||
        !NumberRows(stage.axes, *rows)) {
      continue;
    }
    const bool is_reduced =
        std::any_of(program.stages.begin(), program.stages.end(), [&](const Stage& reader) {
          if (!reader.is_reduction() || of_rows.contains(reader.tensor.get())) return false;
          const std::vector<Expr> loads = LoadsIn(reader.body);
          Variables reduced;
          for (const Var& v : reader.reduce_axes) reduced.push_back(v.get());
          return std::any_of(loads.begin(), loads.end(), [&](const Expr& load) {
            return load->buffer == stage.tensor && MentionsAny(load, reduced);
          });
        });
    if (is_reduced) found.push_back(stage.name());
  }
  return found;
}

}  // namespace heddle::search_space
