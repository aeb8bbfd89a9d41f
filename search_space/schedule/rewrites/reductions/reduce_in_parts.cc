#include "search_space/schedule/rewrites/reductions/reduce_in_parts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/whole_factors.h"
#include "search_space/schedule/analysis/rolling_reductions.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/reductions/row_reductions.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kFewestColumns = 8, kMostColumns = 1024, kMostOfInput = 16384;
// Elements of a row of an input that are worth several blocks.
constexpr int64_t kShortestLongRow = 4096;

// In a row, of the element `column` of a part, which has as many as that has values.
Expr ColumnOf(const Var& part, const Var& column) {
  return Simplify(VarExpr(part) * Int(column->extent) + VarExpr(column));
}

// `e`, with every load of the input that `elements` has the parts of at this place of these.
Expr WithElements(const Expr& e, const Stage& elements, const ExprList& place) {
  BufferRef input;
  Visit(elements.body, [&](const Expr& node) {
    if (node->op == Op::kLoad) input = node->buffer;
  });
  return Rewrite(e, [&](const Expr& node) -> Expr {
    const bool is_it = node->op == Op::kLoad && node->buffer == input;
    return is_it ? Load(elements.tensor, place) : nullptr;
  });
}

// What neither is an output nor is read by what is left.
void EraseUnread(std::vector<Stage>& stages) {
  for (size_t s = stages.size(); s-- > 0;) {
    const bool is_read = std::any_of(
        stages.begin() + static_cast<std::ptrdiff_t>(s), stages.end(),
        [&](const Stage& reader) { return ReadsAny(reader.body, {stages[s].tensor.get()}); });
    if (!is_read && !stages[s].is_output) {
      stages.erase(stages.begin() + static_cast<std::ptrdiff_t>(s));
    }
  }
}

class Rewriter {
 public:
  Rewriter(const TensorProgram& program, const RowReductions& rows)
      : program_(program), rows_(rows), sum_(*rows.sum), along_(rows.along) {}

  absl::StatusOr<std::shared_ptr<const TensorProgram>> Rewritten(int64_t columns) const;

 private:
  // New variables for the sum's axes but that of the rows' columns, and one for the parts of these.
  std::vector<Var> PartAxes(int64_t columns) const;
  // `e`, of a reduction, with other variables for the sum's axes, and `column` for what it reduces
  // over.
  Expr InPart(const Expr& e, const RowReduction& reduction, const std::vector<Var>& axes,
              const Expr& column) const;
  // Of an input: its elements, and of what others ask where it is greatest or least, its terms:
  // what several reductions of a part read, who makes a part may hold.
  std::vector<Stage> SharedOf(int64_t columns) const;
  Stage TermsOf(size_t number, int64_t columns, const std::vector<Stage>& shared) const;
  // The terms of a part, with what is shared where they compute it.
  Expr WithShared(const Stage& part, const std::vector<Stage>& shared) const;
  Stage PartOf(size_t number, int64_t columns, const std::vector<Stage>& parts,
               const std::vector<Stage>& shared) const;
  Stage AllParts(int64_t columns, const std::vector<Stage>& parts) const;
  Stage WholeOf(size_t number, const BufferRef& parts) const;

  const TensorProgram& program_;
  const RowReductions& rows_;
  const Stage& sum_;
  const size_t along_;
};

std::vector<Var> Rewriter::PartAxes(int64_t columns) const {
  std::vector<Var> axes;
  for (size_t a = 0; a < sum_.axes.size(); ++a) {
    if (a != along_) axes.push_back(MakeVar(sum_.axes[a]->name, sum_.axes[a]->extent));
  }
  axes.push_back(MakeVar(sum_.UnusedAxisName("t"), CeilDiv(rows_.RowLength(), columns)));
  return axes;
}

Expr Rewriter::InPart(const Expr& e, const RowReduction& reduction, const std::vector<Var>& axes,
                      const Expr& column) const {
  return Substitute(e, [&](const Var& v) -> Expr {
    const size_t axis = reduction.AxisOf(v);
    const auto& own = reduction.stage->axes;
    if (axis == reduction.vars.size()) {
      return std::find(own.begin(), own.end(), v) == own.end() ? nullptr : Int(0);
    }
    return axis == along_ ? column : VarExpr(axes[axis < along_ ? axis : axis - 1]);
  });
}

std::vector<Stage> Rewriter::SharedOf(int64_t columns) const {
  std::vector<Stage> shared;
  if (!rows_.of_input) return shared;
  Stage& elements = shared.emplace_back();
  elements.axes = PartAxes(columns);
  elements.axes.push_back(MakeVar(sum_.axes[along_]->name, columns));
  const Expr column = ColumnOf(elements.axes[elements.axes.size() - 2], elements.axes.back());
  ExprList at;
  for (size_t a = 0; a < sum_.axes.size(); ++a) {
    at.push_back(a == along_ ? column : VarExpr(elements.axes[a < along_ ? a : a - 1]));
  }
  elements.tensor = TensorOver(elements.axes, NameOfPart(sum_.name()), sum_.tensor->dtype);
  elements.body = Load(sum_.tensor, std::move(at));
  if (rows_.RowLength() % columns != 0) {
    const DType type = elements.body->type;
    elements.body = Select(column < Int(rows_.RowLength()), elements.body,
                           IsFloat(type) ? Float(0, type) : Int(0));
  }
  for (size_t n = 0; n < rows_.list.size(); ++n) {
    const bool is_asked = std::any_of(rows_.list.begin(), rows_.list.end(), [&](const auto& r) {
      return r.depends && r.depends->on == n && !r.depends->slope;
    });
    if (is_asked && rows_.list[n].body->op != Op::kLoad) {
      shared.push_back(TermsOf(n, columns, shared));
    }
  }
  return shared;
}

Stage Rewriter::TermsOf(size_t number, int64_t columns, const std::vector<Stage>& shared) const {
  const RowReduction& reduction = rows_.list[number];
  Stage terms;
  terms.axes = PartAxes(columns);
  terms.axes.push_back(MakeVar(sum_.axes[along_]->name, columns));
  const Expr column = ColumnOf(terms.axes[terms.axes.size() - 2], terms.axes.back());
  terms.tensor =
      TensorOver(terms.axes, absl::StrCat(reduction.stage->name(), ".terms"), DType::kFloat32);
  terms.body = WithElements(InPart(reduction.body, reduction, terms.axes, column), shared[0],
                            ExprsOf(terms.axes));
  return terms;
}

Expr Rewriter::WithShared(const Stage& part, const std::vector<Stage>& shared) const {
  ExprList place = ExprsOf(part.axes);
  place.push_back(VarExpr(part.reduce_axes[0]));
  Expr body = WithElements(part.body, shared[0], place);
  for (size_t t = 1; t < shared.size(); ++t) {
    const Expr terms = Substitute(shared[t].body, shared[t].axes, place);
    body = Rewrite(body, [&](const Expr& node) -> Expr {
      return StructurallyEqual(node, terms) ? Load(shared[t].tensor, place) : nullptr;
    });
  }
  return body;
}

Stage Rewriter::PartOf(size_t number, int64_t columns, const std::vector<Stage>& parts,
                       const std::vector<Stage>& shared) const {
  const RowReduction& reduction = rows_.list[number];
  const auto& depends = reduction.depends;
  Stage part;
  part.axes = PartAxes(columns);
  part.reduce_axes = {MakeVar(sum_.axes[along_]->name, columns)};
  part.combiner = reduction.stage->combiner;
  part.tensor = TensorOver(part.axes, NameOfPart(reduction.stage->name()), DType::kFloat32);
  const Expr column = ColumnOf(part.axes.back(), part.reduce_axes[0]);
  const Expr body = Rewrite(reduction.body, [&](const Expr& node) -> Expr {
    if (node->op != Op::kLoad || !depends) return nullptr;
    if (node->buffer != rows_.list[depends->on].stage->tensor) return nullptr;
    const Expr value = Load(parts[depends->on].tensor, ExprsOf(part.axes));
    return depends->slope ? Bounded(rows_.list[depends->on].stage->combiner, value) : value;
  });
  part.body = InPart(body, reduction, part.axes, column);
  if (!shared.empty()) part.body = WithShared(part, shared);
  if (rows_.RowLength() % columns != 0) {
    part.body = Select(column < Int(rows_.RowLength()), part.body,
                       IdentityOf(part.combiner, DType::kFloat32));
  }
  return part;
}

Stage Rewriter::AllParts(int64_t columns, const std::vector<Stage>& parts) const {
  Stage all;
  all.axes = PartAxes(columns);
  const ExprList at = ExprsOf(all.axes);
  const Var number = MakeVar(sum_.UnusedAxisName("q"), static_cast<int64_t>(rows_.list.size()));
  all.axes.insert(all.axes.end() - 1, number);
  all.tensor = TensorOver(all.axes, NameOfParts(sum_.name()), DType::kFloat32);
  for (size_t n = parts.size(); n-- > 0;) {
    const Expr value = Load(parts[n].tensor, at);
    const Expr is_this = MakeExpr(Op::kEq, {VarExpr(number), Int(static_cast<int64_t>(n))});
    all.body = n + 1 == parts.size() ? value : Select(is_this, value, all.body);
  }
  return all;
}

Stage Rewriter::WholeOf(size_t number, const BufferRef& parts) const {
  const RowReduction& reduction = rows_.list[number];
  Stage whole = *reduction.stage;
  const Var part = MakeVar(whole.UnusedAxisName("t"), parts->shape.back());
  const bool is_one = part->extent == 1;
  std::erase(whole.reduce_axes, reduction.vars[along_]);
  if (!is_one) whole.reduce_axes.push_back(part);
  if (whole.reduce_axes.empty()) whole.combiner = Combiner::kNone;
  ExprList at;
  for (size_t a = 0; a < sum_.axes.size(); ++a) {
    if (a == along_) continue;
    const Var& own = reduction.vars[a];
    at.push_back(own->extent == 1 && rows_.of_input ? Int(0) : VarExpr(own));
  }
  at.push_back(nullptr);  // the reduction's number
  at.push_back(is_one ? Int(0) : VarExpr(part));
  const auto element = [&](size_t n) {
    at[at.size() - 2] = Int(static_cast<int64_t>(n));
    return Load(parts, at);
  };
  whole.body = element(number);
  if (!reduction.depends) return whole;
  const RowReduction& other = rows_.list[reduction.depends->on];
  const BufferRef& reference = reduction.depends->reference;
  const Expr value =
      Load(reference == nullptr ? other.stage->tensor : reference, other.OwnPlace(reduction));
  const Expr of_part = element(reduction.depends->on);
  if (const auto slope = reduction.depends->slope) {
    const Combiner combiner = other.stage->combiner;
    const Expr change = Bounded(combiner, value) - Bounded(combiner, of_part);
    whole.body = whole.body * MakeExpr(Op::kExp, {change * Float(*slope, DType::kFloat32)});
  } else {
    whole.body = Select(MakeExpr(Op::kEq, {of_part, value}), whole.body,
                        Float(reduction.depends->otherwise, DType::kFloat32));
  }
  return whole;
}

absl::StatusOr<std::shared_ptr<const TensorProgram>> Rewriter::Rewritten(int64_t columns) const {
  auto rewritten = std::make_shared<TensorProgram>(program_);
  std::vector<Stage>& stages = rewritten->stages;
  stages.clear();
  // Outputs that nobody reads stay behind those that depend on the sum.
  const auto depends = [&](const Stage& stage) {
    return stage.tensor != sum_.tensor && rows_.dependents.contains(stage.tensor.get());
  };
  const auto first =
      std::find_if(program_.stages.begin(), program_.stages.end(),
                   [&](const Stage& stage) { return stage.is_output && depends(stage); });
  const auto is_last = [&](const Stage& stage) {
    if (depends(stage)) return true;
    return stage.is_output && &stage - program_.stages.data() > first - program_.stages.begin() &&
           std::none_of(program_.stages.begin(), program_.stages.end(), [&](const Stage& reader) {
             return ReadsAny(reader.body, {stage.tensor.get()});
           });
  };
  for (const Stage& stage : program_.stages) {
    if (!is_last(stage)) stages.push_back(stage);
  }
  std::vector<Stage> parts;
  const std::vector<Stage> shared = SharedOf(columns);
  stages.insert(stages.end(), shared.begin(), shared.end());
  for (size_t n = 0; n < rows_.list.size(); ++n) parts.push_back(PartOf(n, columns, parts, shared));
  stages.insert(stages.end(), parts.begin(), parts.end());
  stages.push_back(AllParts(columns, parts));
  const BufferRef all = stages.back().tensor;
  for (const Stage& stage : program_.stages) {
    const Buffer* tensor = stage.tensor.get();
    if (const auto number = rows_.NumberOf(tensor)) {
      stages.push_back(WholeOf(*number, all));
    } else if (is_last(stage) && (rows_.of_input || !rows_.between.contains(tensor))) {
      stages.push_back(stage);
    }
  }
  if (rows_.of_input) EraseUnread(stages);
  const auto outputs = [](const TensorProgram& program) {
    std::vector<std::string> names;
    for (const Stage& stage : program.stages) {
      if (stage.is_output) names.push_back(stage.name());
    }
    return names;
  };
  if (outputs(*rewritten) != outputs(program_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("reductions of ", sum_.name(), " are outputs that would change places"));
  }
  return rewritten;
}

// Does an element of the input say where a stage reads another one?
bool SaysWhere(const TensorProgram& program, const BufferRef& input) {
  return std::any_of(program.stages.begin(), program.stages.end(),
                     [&](const Stage& stage) { return SaysWhere(stage.body, input.get()); });
}

// An input as a stage of its elements.
Stage ElementsOf(const BufferRef& input) {
  Stage elements{.tensor = input};
  for (size_t d = 0; d < input->shape.size(); ++d) {
    elements.axes.push_back(MakeVar(absl::StrCat("d", d), input->shape[d]));
  }
  return elements;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithReductionsInParts(
    const TensorProgram& program, const std::string& name, int64_t columns) {
  const auto input = std::find_if(program.inputs.begin(), program.inputs.end(),
                                  [&](const BufferRef& b) { return b->name == name; });
  const bool is_input = input != program.inputs.end();
  const int64_t most = is_input ? kMostOfInput : kMostColumns;
  if (columns < kFewestColumns || columns > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("parts have ", kFewestColumns, " to ", most, " columns, not ", columns));
  }
  if (is_input && SaysWhere(program, *input)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " says where others are read, not through a copy"));
  }
  const bool is_done = std::any_of(program.stages.begin(), program.stages.end(),
                                   [&](const Stage& s) { return s.name() == NameOfParts(name); });
  if (is_done) return absl::InvalidArgumentError(absl::StrCat(name, " has parts already"));
  Stage elements;
  const Stage* sum = &elements;
  if (is_input) {
    elements = ElementsOf(*input);
  } else {
    HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
    sum = &program.stages[number];
  }
  HEDDLE_ASSIGN_OR_RETURN(rows, FindRowReductions(program, *sum));
  return Rewriter(program, rows).Rewritten(columns);
}

std::optional<ReducedRows> LongRowsWorthReducingInParts(const TensorProgram& program,
                                                        int64_t most_rows) {
  std::optional<ReducedRows> worth;
  size_t most = 1;
  for (const BufferRef& input : program.inputs) {
    const Stage elements = ElementsOf(input);
    const auto rows = FindRowReductions(program, elements);
    if (!rows.ok() || SaysWhere(program, input) || rows->along + 1 != elements.axes.size() ||
        rows->RowLength() < kShortestLongRow || input->elements / rows->RowLength() > most_rows) {
      continue;
    }
    // Of one reduction parts are the rule's own (rows).
    if (rows->list.size() <= most) continue;
    most = rows->list.size();
    worth = {input->name, rows->RowLength()};
  }
  return worth;
}

std::vector<ReducedRows> RowsWorthReducingInParts(const TensorProgram& program) {
  std::vector<ReducedRows> worth;
  for (const Stage& stage : program.stages) {
    if (!AddsUpProducts(stage)) continue;
    const ExprList& factors = stage.body->args;
    if (!HasOwnAxis(stage, factors[0], factors[1]) || !HasOwnAxis(stage, factors[1], factors[0])) {
      continue;
    }
    const auto rows = FindRowReductions(program, stage);
    if (rows.ok()) worth.push_back({stage.name(), rows->RowLength()});
  }
  return worth;
}

std::string NameOfParts(const std::string& sum) { return absl::StrCat(sum, ".parts"); }

std::string NameOfPart(const std::string& reduction) { return absl::StrCat(reduction, ".part"); }

absl::Status ReduceInParts::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, [&](const TensorProgram& program, const std::string& sum) {
    return WithReductionsInParts(program, sum, columns);
  });
}

}  // namespace heddle::search_space
