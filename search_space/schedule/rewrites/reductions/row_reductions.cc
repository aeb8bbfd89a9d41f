#include "search_space/schedule/rewrites/reductions/row_reductions.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/analysis/rolling_reductions.h"

namespace heddle::search_space {
namespace {

// Operations and operands of a reduction's term, with what lies between written out.
constexpr int64_t kMostOperations = 1024;

// A sum of multiples of what is no sum.
struct Summands {
  std::vector<std::pair<Expr, double>> terms;
  double constant = 0;

  void Add(const Expr& e, double factor) {
    const auto number = [](const Expr& x) { return x->op == Op::kFloat; };
    if (e->op == Op::kFloat) {
      constant += factor * e->float_value;
    } else if (e->op == Op::kAdd || e->op == Op::kSub) {
      Add(e->args[0], factor);
      Add(e->args[1], e->op == Op::kAdd ? factor : -factor);
    } else if (e->op == Op::kNeg) {
      Add(e->args[0], -factor);
    } else if (e->op == Op::kMul && (number(e->args[0]) || number(e->args[1]))) {
      const size_t n = number(e->args[0]) ? 0 : 1;
      Add(e->args[1 - n], factor * e->args[n]->float_value);
    } else if (e->op == Op::kDiv && number(e->args[1])) {
      Add(e->args[0], factor / e->args[1]->float_value);
    } else {
      const auto same = std::find_if(terms.begin(), terms.end(), [&](const auto& term) {
        return StructurallyEqual(term.first, e);
      });
      if (same != terms.end()) {
        same->second += factor;
      } else {
        terms.emplace_back(e, factor);
      }
    }
  }
  // But for the rounding of factors.
  bool IsZero(double scale) const {
    const double most = scale * 1e-6;
    return std::abs(constant) <= most &&
           std::all_of(terms.begin(), terms.end(),
                       [&](const auto& term) { return std::abs(term.second) <= most; });
  }
};

// What `e` is where masks leave it: of selects between a value and a number the value.
Expr Unmasked(Expr e) {
  while (e->op == Op::kSelect) {
    const bool first = e->args[2]->op == Op::kFloat, second = e->args[1]->op == Op::kFloat;
    if (first == second) break;
    e = e->args[first ? 1 : 2];
  }
  return e;
}

class Finder {
 public:
  Finder(const TensorProgram& program, const Stage& sum) : program_(program), sum_(sum) {
    found_.sum = &sum;
  }

  absl::StatusOr<RowReductions> Find();

 private:
  const Stage* StageOf(const Expr& load) const {
    return load->op == Op::kLoad ? program_.FindStage(load->buffer.get()) : nullptr;
  }
  // Is it read at its own place (OwnPlace)?
  static bool IsOwn(const Expr& load, const RowReduction& read, const RowReduction& by);
  Expr WrittenOut(const Expr& body, int64_t& operations, const Buffer* but = nullptr) const;
  absl::Status AddReduction(const Stage& stage);
  absl::Status FindVars(RowReduction& reduction) const;
  absl::Status FindColumns();
  absl::Status FindDependency(RowReduction& reduction) const;
  const Stage* ReferenceOf(const Stage& stage) const;
  bool DependsOnReference(RowReduction& reduction) const;
  bool DependsOnPlace(RowReduction& reduction, size_t on) const;
  // The term of which `other` is the greatest or least, at the place of a term of `reduction`.
  static Expr TermOf(const RowReduction& other, const RowReduction& reduction);
  static bool AreMaskedAs(const Expr& value, const Expr& body, const Buffer* tensor);
  static bool IsRelative(const RowReduction& reduction, const RowReduction& other, double slope);

  const TensorProgram& program_;
  const Stage& sum_;
  RowReductions found_;
};

bool Finder::IsOwn(const Expr& load, const RowReduction& read, const RowReduction& by) {
  const ExprList own = read.OwnPlace(by);
  return std::equal(load->args.begin(), load->args.end(), own.begin(), own.end(),
                    StructurallyEqual);
}

// Of the sum's elements, the reductions and `but` alone, unless that would be more than so many
// operations, which are counted.
Expr Finder::WrittenOut(const Expr& body, int64_t& operations, const Buffer* but) const {
  return Rewrite(body, [&](const Expr& node) -> Expr {
    const Stage* stage = StageOf(node);
    if (stage == nullptr || stage == &sum_ || stage->is_reduction() || stage->tensor.get() == but ||
        !found_.dependents.contains(stage->tensor.get()) || operations > kMostOperations) {
      return nullptr;
    }
    operations += NodesOf(stage->body);
    const Expr element = Substitute(stage->body, stage->axes, node->args);
    return WrittenOut(ToType(node->type, element), operations, but);
  });
}

absl::StatusOr<RowReductions> Finder::Find() {
  found_.of_input = program_.FindStage(sum_.tensor.get()) == nullptr;
  if (!found_.of_input && (sum_.combiner != Combiner::kSum || sum_.is_output)) {
    return absl::InvalidArgumentError(
        absl::StrCat(sum_.name(), " is no sum that only other stages read"));
  }
  found_.dependents.insert(sum_.tensor.get());
  for (const Stage& stage : program_.stages) {
    if (&stage == &sum_ || !ReadsAny(stage.body, found_.dependents)) continue;
    found_.dependents.insert(stage.tensor.get());
    if (!ReadsAny(stage.body, {sum_.tensor.get()}) && !ReadsAny(stage.body, found_.between))
      continue;
    if (stage.is_reduction()) {
      const absl::Status added = AddReduction(stage);
      if (!found_.of_input) HEDDLE_RETURN_IF_ERROR(added);
      continue;
    }
    if (stage.is_output && !found_.of_input) {
      return absl::InvalidArgumentError(
          absl::StrCat(stage.name(), ", an output, has elements of ", sum_.name()));
    }
    found_.between.insert(stage.tensor.get());
  }
  HEDDLE_RETURN_IF_ERROR(FindColumns());
  return std::move(found_);
}

absl::Status Finder::AddReduction(const Stage& stage) {
  int64_t operations = NodesOf(stage.body);
  RowReduction reduction{.stage = &stage, .body = WrittenOut(stage.body, operations)};
  if (reduction.body->type != DType::kFloat32 || stage.combiner == Combiner::kProd ||
      operations > kMostOperations) {
    return absl::InvalidArgumentError(
        absl::StrCat(stage.name(), " is no sum, maximum or minimum of float32 that ",
                     kMostOperations, " operations make of ", sum_.name()));
  }
  HEDDLE_RETURN_IF_ERROR(FindVars(reduction));
  if (!DependsOnReference(reduction)) HEDDLE_RETURN_IF_ERROR(FindDependency(reduction));
  found_.list.push_back(std::move(reduction));
  return absl::OkStatus();
}

// Every element of the sum is one term, and has a place of its own among them.
absl::Status Finder::FindVars(RowReduction& reduction) const {
  const Stage& stage = *reduction.stage;
  bool is_own = true;
  Visit(reduction.body, [&](const Expr& node) {
    if (node->op != Op::kLoad || node->buffer != sum_.tensor || !is_own) return;
    std::vector<Var> vars;
    for (const Expr& index : node->args) {
      // The one element of an input's dimension of extent 1.
      const Var& axis = sum_.axes[vars.size()];
      if (found_.of_input && axis->extent == 1 && IsInt(index, 0)) {
        vars.push_back(axis);
        continue;
      }
      is_own = is_own && index->op == Op::kVar &&
               std::find(vars.begin(), vars.end(), index->var) == vars.end();
      if (is_own) vars.push_back(index->var);
    }
    is_own = is_own && (reduction.vars.empty() || reduction.vars == vars);
    if (is_own) reduction.vars = std::move(vars);
  });
  const auto is_row = [&](const Var& axis) { return axis->extent == 1 || !reduction.IsOnly(axis); };
  // All of what the sum has there, too.
  const auto is_column = [&](const Var& axis) {
    return !reduction.IsOnly(axis) && axis->extent == sum_.axes[reduction.AxisOf(axis)]->extent;
  };
  is_own = is_own && std::all_of(stage.axes.begin(), stage.axes.end(), is_row) &&
           std::all_of(stage.reduce_axes.begin(), stage.reduce_axes.end(), is_column);
  if (is_own) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(stage.name(), " reads each element of ",
                                                 sum_.name(), " in another way than once"));
}

// The last axis along which all reduce.
absl::Status Finder::FindColumns() {
  std::optional<size_t> along;
  for (size_t a = 0; a < sum_.axes.size(); ++a) {
    const bool all = std::all_of(found_.list.begin(), found_.list.end(),
                                 [&](const RowReduction& r) { return r.Reduces(r.vars[a]); });
    if (all) along = a;
  }
  if (!along || found_.list.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no axis of ", sum_.name(), " along which all reduce it"));
  }
  found_.along = *along;
  return absl::OkStatus();
}

// Is it select(f == value, x, c) with the f that the one before it is the greatest or least of, and
// a number c that counts nothing where it is summed up? Then only the parts that have that value
// have anything else.
bool Finder::DependsOnPlace(RowReduction& reduction, size_t on) const {
  const RowReduction& other = found_.list[on];
  const Expr& body = reduction.body;
  if (body->op != Op::kSelect || body->args[0]->op != Op::kEq) return false;
  const ExprList& sides = body->args[0]->args;
  const bool first = sides[0]->op == Op::kLoad && sides[0]->buffer == other.stage->tensor;
  const Expr &value = sides[first ? 0 : 1], &compared = sides[first ? 1 : 0];
  if (value->op != Op::kLoad || value->buffer != other.stage->tensor ||
      !IsOwn(value, other, reduction)) {
    return false;
  }
  const Expr of_other = TermOf(other, reduction);
  const Expr otherwise = Simplify(body->args[2]);
  const Expr& number = WithoutCast(otherwise);
  const bool is_number = number->op == Op::kFloat || number->op == Op::kInt;
  if (!is_number || !StructurallyEqual(of_other, compared) ||
      ReadsAny(body->args[1], {other.stage->tensor.get()})) {
    return false;
  }
  const double c =
      number->op == Op::kFloat ? number->float_value : static_cast<double>(number->int_value);
  if (reduction.stage->combiner == Combiner::kSum && c != 0) return false;
  reduction.depends = RowReduction::Dependency{.on = on, .slope = std::nullopt, .otherwise = c};
  return true;
}

Expr Finder::TermOf(const RowReduction& other, const RowReduction& reduction) {
  return Substitute(other.body, [&](const Var& v) -> Expr {
    return other.IsOnly(v) ? nullptr : VarExpr(reduction.vars[other.AxisOf(v)]);
  });
}

// Do exponentials that depend on the tensor stand only where all masks leave `value`, an element of
// what is reduced, as it is?
bool Finder::AreMaskedAs(const Expr& value, const Expr& body, const Buffer* tensor) {
  if (value->op != Op::kSelect || Unmasked(value) == value) return true;
  const size_t kept = value->args[2]->op == Op::kFloat ? 1 : 2;
  const std::function<bool(const Expr&)> are_inside = [&](const Expr& e) -> bool {
    if (e->op == Op::kExp && ReadsAny(e->args[0], {tensor})) return false;
    const bool is_mask = e->op == Op::kSelect && StructurallyEqual(e->args[0], value->args[0]);
    for (size_t i = 0; i < e->args.size(); ++i) {
      if (is_mask && i == kept) continue;
      if (!are_inside(e->args[i])) return false;
    }
    return true;
  };
  return are_inside(body) && AreMaskedAs(value->args[kept], body, tensor);
}

// Is each exponential's argument slope * (value - f), with the f of which the value is the greatest
// or least, or with what that is where masks, of the term as well, leave it? Then none is greater
// than 1, also of the terms of a part alone, which masks may leave out altogether.
bool Finder::IsRelative(const RowReduction& reduction, const RowReduction& other, double slope) {
  const auto is_relative_to = [&](const Expr& f) {
    bool is_relative = true;
    Visit(reduction.body, [&](const Expr& node) {
      if (node->op != Op::kExp || !ReadsAny(node->args[0], {other.stage->tensor.get()})) return;
      Summands rest;
      rest.Add(Rewrite(node->args[0],
                       [&](const Expr& e) -> Expr {
                         const bool is_value =
                             e->op == Op::kLoad && e->buffer == other.stage->tensor;
                         return is_value ? f : nullptr;
                       }),
               1);
      is_relative = is_relative && rest.IsZero(std::abs(slope));
    });
    return is_relative;
  };
  const Expr f = TermOf(other, reduction);
  return is_relative_to(f) ||
         (AreMaskedAs(f, reduction.body, other.stage->tensor.get()) && is_relative_to(Unmasked(f)));
}

// What is computed of reductions and stands for them, itself or through what is computed of single
// elements, in the stage; null where there is none, or are several.
const Stage* Finder::ReferenceOf(const Stage& stage) const {
  const Stage* reference = nullptr;
  bool is_only = true;
  const std::function<void(const Expr&)> look = [&](const Expr& body) {
    Visit(body, [&](const Expr& node) {
      const Stage* read = StageOf(node);
      if (read == nullptr || read == &sum_ || !found_.dependents.contains(read->tensor.get()))
        return;
      if (found_.between.contains(read->tensor.get())) return look(read->body);
      is_only = is_only && !read->is_reduction() && (reference == nullptr || reference == read);
      reference = read;
    });
  };
  look(stage.body);
  return is_only ? reference : nullptr;
}

// Are the terms relative to what is computed of a maximum or minimum, as they would be to that
// itself? A part's terms can then be relative to its own.
bool Finder::DependsOnReference(RowReduction& reduction) const {
  const Stage* const reference = ReferenceOf(*reduction.stage);
  if (reference == nullptr || reduction.stage->combiner != Combiner::kSum) return false;
  int64_t operations = 0;
  const Expr body = WrittenOut(reduction.stage->body, operations, reference->tensor.get());
  const auto none = [](const Buffer*) -> std::optional<Definition> { return std::nullopt; };
  for (size_t n = 0; n < found_.list.size(); ++n) {
    const RowReduction& other = found_.list[n];
    const auto is_own = [&](const Expr& load) { return IsOwn(load, other, reduction); };
    if (!IsIdempotent(other.stage->combiner) || other.depends.has_value() ||
        other.stage->tensor->dtype != DType::kFloat32) {
      continue;
    }
    const auto slope = SlopeIn(body, reference->tensor, is_own, none);
    if (!slope || !Shrinks(other.stage->combiner, *slope)) continue;
    RowReduction relative = reduction;
    relative.body = Rewrite(body, [&](const Expr& node) -> Expr {
      const bool is_it = node->op == Op::kLoad && node->buffer == reference->tensor;
      return is_it ? Load(other.stage->tensor, other.OwnPlace(reduction)) : nullptr;
    });
    if (!IsRelative(relative, other, *slope)) continue;
    relative.depends =
        RowReduction::Dependency{.on = n, .slope = slope, .reference = reference->tensor};
    reduction = std::move(relative);
    return true;
  }
  return false;
}

absl::Status Finder::FindDependency(RowReduction& reduction) const {
  // All others are written out.
  const auto definition_of = [&](const Buffer* tensor) -> std::optional<Definition> {
    const std::optional<size_t> n = found_.NumberOf(tensor);
    if (!n.has_value()) return std::nullopt;
    return Definition{found_.list[*n].stage->axes, found_.list[*n].body, true};
  };
  for (size_t n = 0; n < found_.list.size(); ++n) {
    const RowReduction& other = found_.list[n];
    if (!ReadsAny(reduction.body, {other.stage->tensor.get()})) continue;
    const auto is_own = [&](const Expr& load) { return IsOwn(load, other, reduction); };
    const bool may = !reduction.depends.has_value() && IsIdempotent(other.stage->combiner) &&
                     !other.depends.has_value() && other.stage->tensor->dtype == DType::kFloat32;
    if (may && DependsOnPlace(reduction, n)) continue;
    const auto slope = SlopeIn(reduction.body, other.stage->tensor, is_own, definition_of);
    const bool is_relative = may && slope && Shrinks(other.stage->combiner, *slope) &&
                             IsRelative(reduction, other, *slope);
    if (!is_relative || reduction.stage->combiner != Combiner::kSum) {
      return absl::InvalidArgumentError(absl::StrCat(reduction.stage->name(), " depends on ",
                                                     other.stage->name(),
                                                     " in a way that parts cannot make good for"));
    }
    reduction.depends = RowReduction::Dependency{.on = n, .slope = slope, .otherwise = 0};
  }
  // What is computed of reductions along other lines may depend on any element.
  bool is_known = true;
  Visit(reduction.body, [&](const Expr& node) {
    if (node->op != Op::kLoad || !found_.dependents.contains(node->buffer.get())) return;
    is_known = is_known && (node->buffer == sum_.tensor || found_.NumberOf(node->buffer.get()));
  });
  if (is_known) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(reduction.stage->name(), " depends on what is made of all of ", sum_.name()));
}

}  // namespace

bool RowReduction::Reduces(const Var& v) const {
  return std::find(stage->reduce_axes.begin(), stage->reduce_axes.end(), v) !=
         stage->reduce_axes.end();
}

size_t RowReduction::AxisOf(const Var& v) const {
  return static_cast<size_t>(std::find(vars.begin(), vars.end(), v) - vars.begin());
}

ExprList RowReduction::OwnPlace(const RowReduction& reader) const {
  ExprList own;
  for (const Var& axis : stage->axes) {
    own.push_back(IsOnly(axis) ? Int(0) : VarExpr(reader.vars[AxisOf(axis)]));
  }
  return own;
}

std::optional<size_t> RowReductions::NumberOf(const Buffer* tensor) const {
  for (size_t n = 0; n < list.size(); ++n) {
    if (list[n].stage->tensor.get() == tensor) return n;
  }
  return std::nullopt;
}

absl::StatusOr<RowReductions> FindRowReductions(const TensorProgram& program, const Stage& sum) {
  return Finder(program, sum).Find();
}

}  // namespace heddle::search_space
