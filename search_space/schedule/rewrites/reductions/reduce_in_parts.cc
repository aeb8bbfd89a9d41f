#include "search_space/schedule/rewrites/reductions/reduce_in_parts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "base/status.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/whole_factors.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/operands.h"
#include "search_space/schedule/rewrites/stage_number.h"
#include "search_space/schedule/rolling.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kFewestColumns = 8, kMostColumns = 1024;
// Operations and operands of a reduction's term, with what lies between written out.
constexpr int64_t kMostOperations = 1024;

ExprList VarExprs(const std::vector<Var>& axes) {
  ExprList at;
  for (const Var& axis : axes) at.push_back(VarExpr(axis));
  return at;
}

BufferRef TensorOf(std::string name, const std::vector<Var>& axes) {
  std::vector<int64_t> shape;
  for (const Var& axis : axes) shape.push_back(axis->extent);
  return MakeBuffer(std::move(name), DType::kFloat32, Scope::kGlobal, std::move(shape));
}

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

// How a reduction depends on another one before it.
struct Dependency {
  size_t on = 0;                // its number
  std::optional<double> slope;  // as exp(slope * value); none: on where that is
  double otherwise = 0;         // of those: what a term is elsewhere
  // Of those with a slope: whose value terms are relative to, where that is computed of the one
  // before, as the greater one of a maximum and of another score is; null: the one before itself.
  BufferRef reference;
};

// A reduction of the sum's elements, along rows or more.
struct Reduction {
  const Stage* stage = nullptr;
  Expr body;              // with what lies between written out
  std::vector<Var> vars;  // its own, or what it reduces over, at which each axis of the sum is read
  std::optional<Dependency> depends;

  bool Reduces(const Var& v) const {
    return std::find(stage->reduce_axes.begin(), stage->reduce_axes.end(), v) !=
           stage->reduce_axes.end();
  }
  // The sum's axis that is read at `v`; as many as it has where that is none, as of an axis of one
  // element that a number has.
  size_t AxisOf(const Var& v) const {
    return static_cast<size_t>(std::find(vars.begin(), vars.end(), v) - vars.begin());
  }
  bool IsOnly(const Var& axis) const { return AxisOf(axis) == vars.size(); }
};

class Rewriter {
 public:
  Rewriter(const TensorProgram& program, const Stage& sum) : program_(program), sum_(sum) {}

  absl::Status Find();
  absl::StatusOr<std::shared_ptr<const TensorProgram>> Rewritten(int64_t columns) const;
  int64_t RowLength() const { return sum_.axes[along_]->extent; }

 private:
  const Stage* StageOf(const Expr& load) const {
    return load->op == Op::kLoad ? program_.FindStage(load->buffer.get()) : nullptr;
  }
  bool DependsOn(const Expr& e, const absl::flat_hash_set<const Buffer*>& tensors) const;
  std::optional<size_t> NumberOf(const Buffer* tensor) const;
  // Is its own element read?
  static bool IsOwn(const Expr& load, const Reduction& read, const Reduction& by);
  Expr WrittenOut(const Expr& body, int64_t& operations, const Buffer* but = nullptr) const;
  absl::Status AddReduction(const Stage& stage);
  absl::Status FindVars(Reduction& reduction) const;
  absl::Status FindColumns();
  absl::Status FindDependency(Reduction& reduction) const;
  const Stage* ReferenceOf(const Stage& stage) const;
  bool DependsOnReference(Reduction& reduction) const;
  static ExprList OwnPlace(const Reduction& other, const Reduction& reduction);
  bool DependsOnPlace(Reduction& reduction, size_t on) const;
  // The term of which `other` is the greatest or least, at the place of a term of `reduction`.
  static Expr TermOf(const Reduction& other, const Reduction& reduction);
  bool AreMaskedAs(const Expr& value, const Expr& body, const Buffer* tensor) const;
  bool IsRelative(const Reduction& reduction, const Reduction& other, double slope) const;

  // New variables for the sum's axes but that of the rows' columns, and one for the parts of these.
  std::vector<Var> PartAxes(int64_t columns) const;
  // `e`, of a reduction, with other variables for the sum's axes, and `column` for what it reduces
  // over.
  Expr InPart(const Expr& e, const Reduction& reduction, const std::vector<Var>& axes,
              const Expr& column) const;
  Stage PartOf(size_t number, int64_t columns, const std::vector<Stage>& parts) const;
  Stage AllParts(int64_t columns, const std::vector<Stage>& parts) const;
  Stage WholeOf(size_t number, const BufferRef& parts) const;

  const TensorProgram& program_;
  const Stage& sum_;
  size_t along_ = 0;                               // the sum's axis of the rows' columns
  absl::flat_hash_set<const Buffer*> dependents_;  // the sum and all that depends on it
  absl::flat_hash_set<const Buffer*> between_;     // of these what is computed of single elements
  std::vector<Reduction> reductions_;
};

bool Rewriter::DependsOn(const Expr& e, const absl::flat_hash_set<const Buffer*>& tensors) const {
  bool depends = false;
  Visit(e, [&](const Expr& node) {
    depends = depends || (node->op == Op::kLoad && tensors.contains(node->buffer.get()));
  });
  return depends;
}

std::optional<size_t> Rewriter::NumberOf(const Buffer* tensor) const {
  for (size_t n = 0; n < reductions_.size(); ++n) {
    if (reductions_[n].stage->tensor.get() == tensor) return n;
  }
  return std::nullopt;
}

bool Rewriter::IsOwn(const Expr& load, const Reduction& read, const Reduction& by) {
  for (size_t d = 0; d < load->args.size(); ++d) {
    const Expr& index = load->args[d];
    const Var& axis = read.stage->axes[d];
    const bool is_own = read.IsOnly(axis)
                            ? IsInt(index, 0)
                            : index->op == Op::kVar && index->var == by.vars[read.AxisOf(axis)];
    if (!is_own) return false;
  }
  return true;
}

// Of the sum's elements, the reductions and `but` alone, unless that would be more than so many
// operations, which are counted.
Expr Rewriter::WrittenOut(const Expr& body, int64_t& operations, const Buffer* but) const {
  return Rewrite(body, [&](const Expr& node) -> Expr {
    const Stage* stage = StageOf(node);
    if (stage == nullptr || stage == &sum_ || stage->is_reduction() || stage->tensor.get() == but ||
        !dependents_.contains(stage->tensor.get()) || operations > kMostOperations) {
      return nullptr;
    }
    operations += NodesOf(stage->body);
    const Expr element = Substitute(stage->body, [&](const Var& v) -> Expr {
      const auto axis = std::find(stage->axes.begin(), stage->axes.end(), v);
      return axis == stage->axes.end()
                 ? nullptr
                 : node->args[static_cast<size_t>(axis - stage->axes.begin())];
    });
    return WrittenOut(ToType(node->type, element), operations, but);
  });
}

absl::Status Rewriter::Find() {
  if (sum_.combiner != Combiner::kSum || sum_.is_output) {
    return absl::InvalidArgumentError(
        absl::StrCat(sum_.name(), " is no sum that only other stages read"));
  }
  dependents_.insert(sum_.tensor.get());
  for (const Stage& stage : program_.stages) {
    if (&stage == &sum_ || !DependsOn(stage.body, dependents_)) continue;
    dependents_.insert(stage.tensor.get());
    if (!DependsOn(stage.body, {sum_.tensor.get()}) && !DependsOn(stage.body, between_)) continue;
    if (stage.is_reduction()) {
      HEDDLE_RETURN_IF_ERROR(AddReduction(stage));
      continue;
    }
    if (stage.is_output) {
      return absl::InvalidArgumentError(
          absl::StrCat(stage.name(), ", an output, has elements of ", sum_.name()));
    }
    between_.insert(stage.tensor.get());
  }
  return FindColumns();
}

absl::Status Rewriter::AddReduction(const Stage& stage) {
  int64_t operations = NodesOf(stage.body);
  Reduction reduction{.stage = &stage, .body = WrittenOut(stage.body, operations)};
  if (reduction.body->type != DType::kFloat32 || stage.combiner == Combiner::kProd ||
      operations > kMostOperations) {
    return absl::InvalidArgumentError(
        absl::StrCat(stage.name(), " is no sum, maximum or minimum of float32 that ",
                     kMostOperations, " operations make of ", sum_.name()));
  }
  HEDDLE_RETURN_IF_ERROR(FindVars(reduction));
  if (!DependsOnReference(reduction)) HEDDLE_RETURN_IF_ERROR(FindDependency(reduction));
  reductions_.push_back(std::move(reduction));
  return absl::OkStatus();
}

// Every element of the sum is one term, and has a place of its own among them.
absl::Status Rewriter::FindVars(Reduction& reduction) const {
  const Stage& stage = *reduction.stage;
  bool is_own = true;
  Visit(reduction.body, [&](const Expr& node) {
    if (node->op != Op::kLoad || node->buffer != sum_.tensor || !is_own) return;
    std::vector<Var> vars;
    for (const Expr& index : node->args) {
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
absl::Status Rewriter::FindColumns() {
  std::optional<size_t> along;
  for (size_t a = 0; a < sum_.axes.size(); ++a) {
    const bool all = std::all_of(reductions_.begin(), reductions_.end(),
                                 [&](const Reduction& r) { return r.Reduces(r.vars[a]); });
    if (all) along = a;
  }
  if (!along || reductions_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no axis of ", sum_.name(), " along which all reduce it"));
  }
  along_ = *along;
  return absl::OkStatus();
}

// Is it select(f == value, x, c) with the f that the one before it is the greatest or least of, and
// a number c that counts nothing where it is summed up? Then only the parts that have that value
// have anything else.
bool Rewriter::DependsOnPlace(Reduction& reduction, size_t on) const {
  const Reduction& other = reductions_[on];
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
  const Expr number = otherwise->op == Op::kCast ? otherwise->args[0] : otherwise;
  const bool is_number = number->op == Op::kFloat || number->op == Op::kInt;
  if (!is_number || !StructurallyEqual(of_other, compared) ||
      DependsOn(body->args[1], {other.stage->tensor.get()})) {
    return false;
  }
  const double c =
      number->op == Op::kFloat ? number->float_value : static_cast<double>(number->int_value);
  if (reduction.stage->combiner == Combiner::kSum && c != 0) return false;
  reduction.depends = Dependency{.on = on, .slope = std::nullopt, .otherwise = c};
  return true;
}

Expr Rewriter::TermOf(const Reduction& other, const Reduction& reduction) {
  return Substitute(other.body, [&](const Var& v) -> Expr {
    return other.IsOnly(v) ? nullptr : VarExpr(reduction.vars[other.AxisOf(v)]);
  });
}

// Do exponentials that depend on the tensor stand only where all masks leave `value`, an element of
// what is reduced, as it is?
bool Rewriter::AreMaskedAs(const Expr& value, const Expr& body, const Buffer* tensor) const {
  if (value->op != Op::kSelect || Unmasked(value) == value) return true;
  const size_t kept = value->args[2]->op == Op::kFloat ? 1 : 2;
  const std::function<bool(const Expr&)> are_inside = [&](const Expr& e) -> bool {
    if (e->op == Op::kExp && DependsOn(e->args[0], {tensor})) return false;
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
bool Rewriter::IsRelative(const Reduction& reduction, const Reduction& other, double slope) const {
  const auto is_relative_to = [&](const Expr& f) {
    bool is_relative = true;
    Visit(reduction.body, [&](const Expr& node) {
      if (node->op != Op::kExp || !DependsOn(node->args[0], {other.stage->tensor.get()})) return;
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
const Stage* Rewriter::ReferenceOf(const Stage& stage) const {
  const Stage* reference = nullptr;
  bool is_only = true;
  const std::function<void(const Expr&)> look = [&](const Expr& body) {
    Visit(body, [&](const Expr& node) {
      const Stage* read = StageOf(node);
      if (read == nullptr || read == &sum_ || !dependents_.contains(read->tensor.get())) return;
      if (between_.contains(read->tensor.get())) return look(read->body);
      is_only = is_only && !read->is_reduction() && (reference == nullptr || reference == read);
      reference = read;
    });
  };
  look(stage.body);
  return is_only ? reference : nullptr;
}

// Where each axis of `other`, but those of one element, is read at the place of `reduction`'s
// terms.
ExprList Rewriter::OwnPlace(const Reduction& other, const Reduction& reduction) {
  ExprList own;
  for (const Var& axis : other.stage->axes) {
    own.push_back(other.IsOnly(axis) ? Int(0) : VarExpr(reduction.vars[other.AxisOf(axis)]));
  }
  return own;
}

// Are the terms relative to what is computed of a maximum or minimum, as they would be to that
// itself? A part's terms can then be relative to its own.
bool Rewriter::DependsOnReference(Reduction& reduction) const {
  const Stage* const reference = ReferenceOf(*reduction.stage);
  if (reference == nullptr || reduction.stage->combiner != Combiner::kSum) return false;
  int64_t operations = 0;
  const Expr body = WrittenOut(reduction.stage->body, operations, reference->tensor.get());
  const auto none = [](const Buffer*) -> std::optional<Definition> { return std::nullopt; };
  for (size_t n = 0; n < reductions_.size(); ++n) {
    const Reduction& other = reductions_[n];
    const ExprList own = OwnPlace(other, reduction);
    const auto is_own = [&](const Expr& load) {
      return std::equal(load->args.begin(), load->args.end(), own.begin(), own.end(),
                        [](const Expr& a, const Expr& b) { return StructurallyEqual(a, b); });
    };
    if (!IsIdempotent(other.stage->combiner) || other.depends.has_value() ||
        other.stage->tensor->dtype != DType::kFloat32) {
      continue;
    }
    const auto slope = SlopeIn(body, reference->tensor, is_own, none);
    if (!slope || !Shrinks(other.stage->combiner, *slope)) continue;
    Reduction relative = reduction;
    relative.body = Rewrite(body, [&](const Expr& node) -> Expr {
      const bool is_it = node->op == Op::kLoad && node->buffer == reference->tensor;
      return is_it ? Load(other.stage->tensor, own) : nullptr;
    });
    if (!IsRelative(relative, other, *slope)) continue;
    relative.depends = Dependency{.on = n, .slope = slope, .reference = reference->tensor};
    reduction = std::move(relative);
    return true;
  }
  return false;
}

absl::Status Rewriter::FindDependency(Reduction& reduction) const {
  // All others are written out.
  const auto definition_of = [&](const Buffer* tensor) -> std::optional<Definition> {
    const std::optional<size_t> n = NumberOf(tensor);
    if (!n.has_value()) return std::nullopt;
    return Definition{reductions_[*n].stage->axes, reductions_[*n].body, true};
  };
  for (size_t n = 0; n < reductions_.size(); ++n) {
    const Reduction& other = reductions_[n];
    if (!DependsOn(reduction.body, {other.stage->tensor.get()})) continue;
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
    reduction.depends = Dependency{.on = n, .slope = slope, .otherwise = 0};
  }
  // What is computed of reductions along other lines may depend on any element.
  bool is_known = true;
  Visit(reduction.body, [&](const Expr& node) {
    if (node->op != Op::kLoad || !dependents_.contains(node->buffer.get())) return;
    is_known = is_known && (node->buffer == sum_.tensor || NumberOf(node->buffer.get()));
  });
  if (is_known) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(reduction.stage->name(), " depends on what is made of all of ", sum_.name()));
}

std::vector<Var> Rewriter::PartAxes(int64_t columns) const {
  std::vector<Var> axes;
  for (size_t a = 0; a < sum_.axes.size(); ++a) {
    if (a != along_) axes.push_back(MakeVar(sum_.axes[a]->name, sum_.axes[a]->extent));
  }
  axes.push_back(MakeVar(sum_.UnusedAxisName("t"), CeilDiv(RowLength(), columns)));
  return axes;
}

Expr Rewriter::InPart(const Expr& e, const Reduction& reduction, const std::vector<Var>& axes,
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

Stage Rewriter::PartOf(size_t number, int64_t columns, const std::vector<Stage>& parts) const {
  const Reduction& reduction = reductions_[number];
  const auto& depends = reduction.depends;
  Stage part;
  part.axes = PartAxes(columns);
  part.reduce_axes = {MakeVar(sum_.axes[along_]->name, columns)};
  part.combiner = reduction.stage->combiner;
  part.tensor = TensorOf(NameOfPart(reduction.stage->name()), part.axes);
  const Expr column =
      Simplify(VarExpr(part.axes.back()) * Int(columns) + VarExpr(part.reduce_axes[0]));
  const Expr body = Rewrite(reduction.body, [&](const Expr& node) -> Expr {
    if (node->op != Op::kLoad || !depends) return nullptr;
    if (node->buffer != reductions_[depends->on].stage->tensor) return nullptr;
    const Expr value = Load(parts[depends->on].tensor, VarExprs(part.axes));
    return depends->slope ? Bounded(reductions_[depends->on].stage->combiner, value) : value;
  });
  part.body = InPart(body, reduction, part.axes, column);
  if (RowLength() % columns != 0) {
    part.body =
        Select(column < Int(RowLength()), part.body, IdentityOf(part.combiner, DType::kFloat32));
  }
  return part;
}

Stage Rewriter::AllParts(int64_t columns, const std::vector<Stage>& parts) const {
  Stage all;
  all.axes = PartAxes(columns);
  const ExprList at = VarExprs(all.axes);
  const Var number = MakeVar(sum_.UnusedAxisName("q"), static_cast<int64_t>(reductions_.size()));
  all.axes.insert(all.axes.end() - 1, number);
  all.tensor = TensorOf(NameOfParts(sum_.name()), all.axes);
  for (size_t n = parts.size(); n-- > 0;) {
    const Expr value = Load(parts[n].tensor, at);
    const Expr is_this = MakeExpr(Op::kEq, {VarExpr(number), Int(static_cast<int64_t>(n))});
    all.body = n + 1 == parts.size() ? value : Select(is_this, value, all.body);
  }
  return all;
}

Stage Rewriter::WholeOf(size_t number, const BufferRef& parts) const {
  const Reduction& reduction = reductions_[number];
  Stage whole = *reduction.stage;
  const Var part = MakeVar(whole.UnusedAxisName("t"), parts->shape.back());
  const bool is_one = part->extent == 1;
  std::erase(whole.reduce_axes, reduction.vars[along_]);
  if (!is_one) whole.reduce_axes.push_back(part);
  if (whole.reduce_axes.empty()) whole.combiner = Combiner::kNone;
  ExprList at;
  for (size_t a = 0; a < sum_.axes.size(); ++a) {
    if (a != along_) at.push_back(VarExpr(reduction.vars[a]));
  }
  at.push_back(nullptr);  // the reduction's number
  at.push_back(is_one ? Int(0) : VarExpr(part));
  const auto element = [&](size_t n) {
    at[at.size() - 2] = Int(static_cast<int64_t>(n));
    return Load(parts, at);
  };
  whole.body = element(number);
  if (!reduction.depends) return whole;
  const Reduction& other = reductions_[reduction.depends->on];
  const BufferRef& reference = reduction.depends->reference;
  const Expr value =
      Load(reference == nullptr ? other.stage->tensor : reference, OwnPlace(other, reduction));
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
    return stage.tensor != sum_.tensor && dependents_.contains(stage.tensor.get());
  };
  const auto first =
      std::find_if(program_.stages.begin(), program_.stages.end(),
                   [&](const Stage& stage) { return stage.is_output && depends(stage); });
  const auto is_last = [&](const Stage& stage) {
    if (depends(stage)) return true;
    return stage.is_output && &stage - program_.stages.data() > first - program_.stages.begin() &&
           std::none_of(program_.stages.begin(), program_.stages.end(), [&](const Stage& reader) {
             return DependsOn(reader.body, {stage.tensor.get()});
           });
  };
  for (const Stage& stage : program_.stages) {
    if (!is_last(stage)) stages.push_back(stage);
  }
  std::vector<Stage> parts;
  for (size_t n = 0; n < reductions_.size(); ++n) parts.push_back(PartOf(n, columns, parts));
  stages.insert(stages.end(), parts.begin(), parts.end());
  stages.push_back(AllParts(columns, parts));
  const BufferRef all = stages.back().tensor;
  for (const Stage& stage : program_.stages) {
    const Buffer* tensor = stage.tensor.get();
    if (const auto number = NumberOf(tensor)) {
      stages.push_back(WholeOf(*number, all));
    } else if (is_last(stage) && !between_.contains(tensor)) {
      stages.push_back(stage);
    }
  }
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

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithReductionsInParts(
    const TensorProgram& program, const std::string& name, int64_t columns) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  const Stage* const sum = &program.stages[number];
  if (columns < kFewestColumns || columns > kMostColumns) {
    return absl::InvalidArgumentError(absl::StrCat("parts have ", kFewestColumns, " to ",
                                                   kMostColumns, " columns, not ", columns));
  }
  Rewriter rewriter(program, *sum);
  HEDDLE_RETURN_IF_ERROR(rewriter.Find());
  return rewriter.Rewritten(columns);
}

std::vector<ReducedRows> RowsWorthReducingInParts(const TensorProgram& program) {
  const auto is_element = [](const Expr& e) {
    return (e->op == Op::kCast ? e->args[0] : e)->op == Op::kLoad;
  };
  std::vector<ReducedRows> worth;
  for (const Stage& stage : program.stages) {
    const bool is_product =
        stage.combiner == Combiner::kSum && stage.body->op == Op::kMul &&
        std::all_of(stage.body->args.begin(), stage.body->args.end(), is_element);
    if (!is_product) continue;
    const ExprList& factors = stage.body->args;
    if (!HasOwnAxis(stage, factors[0], factors[1]) || !HasOwnAxis(stage, factors[1], factors[0])) {
      continue;
    }
    Rewriter rewriter(program, stage);
    if (rewriter.Find().ok()) worth.push_back({stage.name(), rewriter.RowLength()});
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
