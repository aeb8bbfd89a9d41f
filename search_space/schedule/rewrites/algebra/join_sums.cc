#include "search_space/schedule/rewrites/algebra/join_sums.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

// Of all definitions together: every pair of sums is looked for in every one of them.
constexpr int64_t kMostNodes = 2000;
// Of a sum's own body.
constexpr size_t kMostProducts = 8;

// Of a stage's data axes, those that `e` mentions.
std::vector<bool> AxesMentioned(const Stage& stage, const Expr& e) {
  std::vector<bool> mentioned;
  for (const Var& axis : stage.axes) mentioned.push_back(MentionsAny(e, {axis.get()}));
  return mentioned;
}

// A sum of products of two numbers that is no result, along one axis, or along several, each of
// which is an index by itself: elements of windows, which are not, are read several times.
bool IsSumOfProducts(const Stage& stage) {
  const bool is_one = stage.combiner == Combiner::kSum && !stage.is_output &&
                      stage.body->op == Op::kMul && IsFloat(stage.body->type);
  if (!is_one || stage.reduce_axes.size() == 1) return is_one;
  const std::vector<Expr> loads = LoadsIn(stage.body);
  return std::all_of(loads.begin(), loads.end(), [&](const Expr& load) {
    return std::all_of(load->args.begin(), load->args.end(), [&](const Expr& index) {
      return index->op == Op::kVar ||
             std::none_of(stage.reduce_axes.begin(), stage.reduce_axes.end(),
                          [&](const Var& axis) { return MentionsAny(index, {axis.get()}); });
    });
  });
}

void AddAddends(const Expr& e, std::vector<Expr>& addends) {
  if (e->op != Op::kAdd) {
    addends.push_back(e);
    return;
  }
  for (const Expr& arg : e->args) AddAddends(arg, addends);
}

// `e`, terms that are added up, with the first that is equal to `addend` left out, or `other` in
// its place; null where there is none.
Expr WithInPlaceOf(const Expr& e, const Expr& addend, const Expr& other) {
  if (e->op != Op::kAdd) return nullptr;
  for (const size_t i : {0, 1}) {
    const bool is_here = StructurallyEqual(e->args[i], addend);
    if (is_here && other == nullptr) return e->args[1 - i];
    const Expr arg = is_here ? other : WithInPlaceOf(e->args[i], addend, other);
    if (arg == nullptr) continue;
    ExprList args = e->args;
    args[i] = arg;
    return MakeExpr(Op::kAdd, std::move(args));
  }
  return nullptr;
}

// An element of a tensor, some times.
struct Multiple {
  Expr load;
  double times = 1;
};

// Null: of anything else.
Multiple MultipleOf(const Expr& e) {
  if (e->op == Op::kLoad) return {e};
  for (const size_t i : {0, 1}) {
    if (e->op != Op::kMul || e->args[i]->op != Op::kFloat) continue;
    const Expr& other = e->args[1 - i];
    if (other->op == Op::kLoad) return {other, e->args[i]->float_value};
  }
  return {nullptr};
}

// With elements of `sum` wherever those of `one` and, so many times, of `other` at the same place
// are added. As often everywhere as where that is first, which `times` says then.
Expr WithElementsOf(const Buffer* one, const Buffer* other, const BufferRef& sum, const Expr& body,
                    std::optional<double>& times) {
  return Rewrite(body, [&](const Expr& e) -> Expr {
    std::vector<Expr> addends;
    if (e->op == Op::kAdd) AddAddends(e, addends);
    Expr changed;
    for (const Expr& a : addends) {
      if (a->op != Op::kLoad || a->buffer.get() != one) continue;
      for (const Expr& b : addends) {
        const auto [load, often] = MultipleOf(b);
        if (load == nullptr || load->buffer.get() != other) continue;
        const bool are_alike = std::equal(a->args.begin(), a->args.end(), load->args.begin(),
                                          load->args.end(), StructurallyEqual);
        if (!are_alike || times.value_or(often) != often) continue;
        const Expr rest = WithInPlaceOf(changed == nullptr ? e : changed, b, nullptr);
        if (rest == nullptr) continue;
        const Expr with = StructurallyEqual(rest, a) ? Load(sum, a->args)
                                                     : WithInPlaceOf(rest, a, Load(sum, a->args));
        if (with == nullptr) continue;
        changed = with;
        times = often;
      }
    }
    return changed;
  });
}

// A conversion that both have stands around the choice, so that a tensor's elements are chosen.
Expr Choose(const Expr& first, const Expr& a, const Expr& b) {
  const bool are_converted = a->op == Op::kCast && b->op == Op::kCast && a->type == b->type &&
                             a->args[0]->type == b->args[0]->type;
  if (are_converted) return Cast(a->type, Choose(first, a->args[0], b->args[0]));
  return Select(first, a, b);
}

// Are both factors elements of the same types, and of the same of the axes?
bool AreAlike(const Stage& stage, const Expr& f, const Stage& other, const Expr& h) {
  const auto type_of = [](const Expr& e) {
    return e->op == Op::kCast ? e->args[0]->type : e->type;
  };
  return type_of(f) == type_of(h) && f->type == h->type &&
         AxesMentioned(stage, f) == AxesMentioned(other, h);
}

// Of the terms of both; nothing where these are not alike.
std::optional<Stage> Joined(const Stage& stage, const Stage& other) {
  ExprList factors = stage.body->args, others = other.body->args;
  const auto are_alike = [&] {
    return AreAlike(stage, factors[0], other, others[0]) &&
           AreAlike(stage, factors[1], other, others[1]);
  };
  if (!are_alike()) std::swap(others[0], others[1]);
  if (!are_alike()) return std::nullopt;
  const int64_t own = ExtentOf(stage.reduce_axes), its = ExtentOf(other.reduce_axes);
  const Var all = MakeVar(stage.reduce_axes[0]->name, own + its);
  const Expr is_own = VarExpr(all) < Int(own);
  // The axis that stands for several is the last one's fastest.
  const auto place = [](const std::vector<Var>& axes, const Expr& term, const Var& v) -> Expr {
    int64_t stride = 1;
    for (size_t a = axes.size(); a-- > 0; stride *= axes[a]->extent) {
      if (axes[a] != v) continue;
      const Expr from = stride == 1 ? term : term / Int(stride);
      return a == 0 ? from : from % Int(v->extent);
    }
    return nullptr;
  };
  Stage joined = stage;
  joined.reduce_axes = {all};
  ExprList chosen;
  for (size_t i = 0; i < 2; ++i) {
    const Expr here = Substitute(
        factors[i], [&](const Var& v) { return place(stage.reduce_axes, VarExpr(all), v); });
    const Expr there = Substitute(others[i], [&](const Var& v) -> Expr {
      if (const Expr term = place(other.reduce_axes, VarExpr(all) - Int(own), v)) return term;
      const auto axis = std::find(other.axes.begin(), other.axes.end(), v);
      if (axis == other.axes.end()) return nullptr;
      return VarExpr(stage.axes[static_cast<size_t>(axis - other.axes.begin())]);
    });
    chosen.push_back(Choose(is_own, here, there));
  }
  joined.body = Simplify(MakeExpr(Op::kMul, std::move(chosen)));
  return joined;
}

// Products that `e` adds up or subtracts, these with their second factor negated; false if there is
// something else in it.
bool AddProducts(const Expr& e, bool is_negative, std::vector<Expr>& products) {
  if (e->op == Op::kAdd || e->op == Op::kSub) {
    const bool is_other = is_negative != (e->op == Op::kSub);
    return AddProducts(e->args[0], is_negative, products) &&
           AddProducts(e->args[1], is_other, products);
  }
  if (e->op != Op::kMul) return false;
  const auto negated = [](const Expr& f) { return MakeExpr(Op::kNeg, {f}); };
  products.push_back(is_negative ? e->args[0] * negated(e->args[1]) : e);
  return true;
}

// Are there elements of the sum that have each of its factors in common? Of others nothing is read
// less often in one sum than in several.
bool SharesFactors(const Stage& stage) {
  return std::all_of(stage.body->args.begin(), stage.body->args.end(), [&](const Expr& factor) {
    const std::vector<bool> mentioned = AxesMentioned(stage, factor);
    return std::find(mentioned.begin(), mentioned.end(), false) != mentioned.end();
  });
}

// A sum of sums of products, as one of all their terms; nothing if the stage is none, or if they
// are not alike.
std::optional<Stage> OfOneProduct(const Stage& stage) {
  std::vector<Expr> products;
  if (stage.reduce_axes.size() != 1 || !AddProducts(stage.body, false, products) ||
      products.size() < 2 || products.size() > kMostProducts) {
    return std::nullopt;
  }
  std::optional<Stage> joined;
  for (const Expr& product : products) {
    Stage of_product = stage;
    of_product.body = product;
    of_product.is_output = false;
    if (!IsSumOfProducts(of_product) || !SharesFactors(of_product)) return std::nullopt;
    joined = joined.has_value() ? Joined(*joined, of_product) : of_product;
    if (!joined.has_value()) return std::nullopt;
  }
  joined->is_output = stage.is_output;
  return joined;
}

bool IsRead(const TensorProgram& program, const Buffer* tensor) {
  return std::any_of(program.stages.begin(), program.stages.end(),
                     [&](const Stage& stage) { return ReadsAny(stage.body, {tensor}); });
}

// Is the scale one that numbers of the type are multiplied with and stay in its range, whatever
// they are about? Those of float16 may be next to its greatest, or few digits away from its least.
bool KeepsRange(double times, DType type) {
  const double size = std::abs(times);
  return type == DType::kFloat16 ? size >= 0x1p-3 && size <= 1 : size >= 0x1p-20 && size <= 0x1p20;
}

// So many times `value`, rounded as that is.
Expr Scaled(const Expr& value, double times) {
  if (value->op == Op::kCast && IsFloat(value->args[0]->type)) {
    return Cast(value->type, Scaled(value->args[0], times));
  }
  if (value->type == DType::kFloat32) return value * Float(times, value->type);
  return Cast(value->type, Cast(DType::kFloat32, value) * Float(times, DType::kFloat32));
}

// The elementwise stage of which `sum` alone has elements, as one factor, and nowhere else; none
// where there is none.
std::optional<size_t> OwnFactor(const TensorProgram& program, const Stage& sum) {
  const auto loads_of = [](const Expr& body, const BufferRef& tensor) {
    int loads = 0;
    Visit(body, [&](const Expr& e) { loads += e->op == Op::kLoad && e->buffer == tensor ? 1 : 0; });
    return loads;
  };
  for (const Expr& factor : sum.body->args) {
    const Expr& load = WithoutCast(factor);
    if (load->op != Op::kLoad) continue;
    for (size_t s = 0; s < program.stages.size(); ++s) {
      const Stage& stage = program.stages[s];
      const bool is_it = stage.tensor == load->buffer && !stage.is_output &&
                         !stage.is_reduction() && IsFloat(stage.body->type);
      const auto is_other = [&](const Stage& reader) {
        return loads_of(reader.body, stage.tensor) > (reader.tensor == sum.tensor ? 1 : 0);
      };
      if (is_it && std::none_of(program.stages.begin(), program.stages.end(), is_other)) return s;
    }
  }
  return std::nullopt;
}

// With the first stage that can be joined to this one; null where there is none.
std::shared_ptr<TensorProgram> WithOneMore(const TensorProgram& program, size_t number) {
  const Stage& stage = program.stages[number];
  for (size_t o = 0; o < program.stages.size(); ++o) {
    const Stage& other = program.stages[o];
    if (o == number || !IsSumOfProducts(other) || other.tensor->dtype != stage.tensor->dtype ||
        other.tensor->shape != stage.tensor->shape) {
      continue;
    }
    std::optional<Stage> joined = Joined(stage, other);
    if (!joined.has_value()) continue;
    joined->tensor =
        MakeBuffer(stage.name(), stage.tensor->dtype, stage.tensor->scope, stage.tensor->shape);
    auto with = std::make_shared<TensorProgram>(program);
    std::optional<double> times;
    for (Stage& reader : with->stages) {
      reader.body = WithElementsOf(stage.tensor.get(), other.tensor.get(), joined->tensor,
                                   reader.body, times);
    }
    if (times.has_value() && *times != 1) {
      const std::optional<size_t> scaled = OwnFactor(program, other);
      if (!scaled.has_value() || !KeepsRange(*times, program.stages[*scaled].tensor->dtype)) {
        continue;
      }
      Expr& body = with->stages[*scaled].body;
      body = Scaled(body, *times);
    }
    if (IsRead(*with, stage.tensor.get()) || IsRead(*with, other.tensor.get())) continue;
    // Behind all that either reads.
    with->stages[std::max(number, o)] = *std::move(joined);
    with->stages.erase(with->stages.begin() + static_cast<std::ptrdiff_t>(std::min(number, o)));
    return with;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithJoinedSums(const TensorProgram& program,
                                                                    const std::string& name) {
  std::shared_ptr<const TensorProgram> joined;
  int64_t nodes = 0;
  for (const Stage& stage : program.stages) nodes += NodesOf(stage.body);
  if (nodes > kMostNodes) {
    return absl::InvalidArgumentError(absl::StrCat(program.op, " is longer than the ", kMostNodes,
                                                   " nodes in which sums that ",
                                                   "are added to each other are looked for"));
  }
  HEDDLE_ASSIGN_OR_RETURN(first, StageNumber(program, name));
  if (std::optional<Stage> one = OfOneProduct(program.stages[first]); one.has_value()) {
    auto with = std::make_shared<TensorProgram>(program);
    with->stages[first] = *std::move(one);
    joined = std::move(with);
  }
  for (const TensorProgram* now = joined != nullptr ? joined.get() : &program;;
       now = joined.get()) {
    HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(*now, name));
    auto more = IsSumOfProducts(now->stages[number]) ? WithOneMore(*now, number) : nullptr;
    if (more == nullptr) break;
    joined = std::move(more);
  }
  if (joined != nullptr) return joined;
  return absl::InvalidArgumentError(absl::StrCat(
      name,
      " is no sum of products of two elements to which all that read it add another one, nor ",
      "one of several products that are alike"));
}

absl::Status JoinSums::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithJoinedSums);
}

}  // namespace heddle::search_space
