#include "search_space/ir/whole_factors.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/narrow_expr.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostExact = int64_t{1} << 24;  // whole numbers that float32 has

// Up to which the type has all whole numbers.
int64_t MostWhole(DType type) { return type == DType::kFloat16 ? 2048 : 256; }

int64_t MagnitudeOf(Interval values) {
  return std::max(std::abs(values.min), std::abs(values.max));
}

Interval Around(std::initializer_list<int64_t> values) {
  return {std::min(values), std::max(values)};
}

// The values of an expression of indices and of numbers made of them; nullopt where they need not
// be whole, or may be greater than float32 has all of.
class WholeNumbers {
 public:
  static std::optional<Interval> Of(const Expr& e) {
    const std::optional<Interval> values = OfNode(e);
    return values.has_value() && MagnitudeOf(*values) <= kMostExact ? values : std::nullopt;
  }

 private:
  static std::optional<Interval> OfNode(const Expr& e) {
    switch (e->op) {
      case Op::kFloat:
        return OfFloat(e->float_value);
      case Op::kCast:
        return OfConverted(e);
      case Op::kLoad:
        if (e->buffer->index_extent == 0) return std::nullopt;
        return Interval{0, e->buffer->index_extent - 1};
      case Op::kSelect:
        return OfTwo(e->args[1], e->args[2], [](Interval a, Interval b) {
          return Around({a.min, a.max, b.min, b.max});
        });
      case Op::kNeg:
      case Op::kAbs:
        return OfMagnitudeOrNegative(e);
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
      case Op::kMax:
      case Op::kMin:
        return OfTwo(e->args[0], e->args[1],
                     [&](Interval a, Interval b) { return Combined(e->op, a, b); });
      case Op::kInt:
      case Op::kVar:
        return BoundsOf(e);
      default:
        return std::nullopt;
    }
  }

  // Types of 16 bits round what they have not.
  static std::optional<Interval> OfConverted(const Expr& e) {
    const std::optional<Interval> of = Of(e->args[0]);
    const bool is_kept =
        of.has_value() && e->type != DType::kBool &&
        (!IsNarrow(e->type) || (IsHalf(e->type) && MagnitudeOf(*of) <= MostWhole(e->type)));
    return is_kept ? of : std::nullopt;
  }

  static std::optional<Interval> OfFloat(double value) {
    const bool is_whole = std::abs(value) <= static_cast<double>(kMostExact) &&
                          value == static_cast<double>(static_cast<int64_t>(value));
    if (!is_whole) return std::nullopt;
    return Interval{static_cast<int64_t>(value), static_cast<int64_t>(value)};
  }

  template <typename F>
  static std::optional<Interval> OfTwo(const Expr& a, const Expr& b, const F& combined) {
    const std::optional<Interval> first = Of(a), second = Of(b);
    if (!first.has_value() || !second.has_value()) return std::nullopt;
    return combined(*first, *second);
  }

  static Interval Combined(Op op, Interval a, Interval b) {
    switch (op) {
      case Op::kAdd:
        return {a.min + b.min, a.max + b.max};
      case Op::kSub:
        return {a.min - b.max, a.max - b.min};
      case Op::kMul:
        return Around({a.min * b.min, a.min * b.max, a.max * b.min, a.max * b.max});
      case Op::kMax:
        return {std::max(a.min, b.min), std::max(a.max, b.max)};
      default:
        return {std::min(a.min, b.min), std::min(a.max, b.max)};
    }
  }

  static std::optional<Interval> OfMagnitudeOrNegative(const Expr& e) {
    const std::optional<Interval> of = Of(e->args[0]);
    if (!of.has_value()) return std::nullopt;
    if (e->op == Op::kNeg) return Interval{-of->max, -of->min};
    return Interval{0, MagnitudeOf(*of)};
  }
};

struct Factor {
  DType narrow = DType::kFloat32;  // that it is of already
  std::optional<Interval> whole;   // of others, where they are whole numbers
};

Factor FactorOf(const Expr& value) {
  if (const Expr narrow = AsHalf(value)) return {narrow->type, {}};
  return {DType::kFloat32, WholeNumbers::Of(value)};
}

bool Fits(const Factor& factor, DType type) {
  if (factor.narrow != DType::kFloat32) return factor.narrow == type;
  return factor.whole.has_value() && MagnitudeOf(*factor.whole) <= MostWhole(type);
}

// Units for matrices add exactly what float32 has exactly.
bool IsExact(const Stage& sum, const Factor& a, const Factor& b) {
  if (!a.whole.has_value() || !b.whole.has_value()) return false;
  const int64_t each = std::max<int64_t>(1, MagnitudeOf(*a.whole) * MagnitudeOf(*b.whole));
  return ExtentOf(sum.reduce_axes) <= kMostExact / each;
}

}  // namespace

bool AddsUpProducts(const Stage& stage) {
  const auto is_element = [](const Expr& e) { return WithoutCast(e)->op == Op::kLoad; };
  return stage.combiner == Combiner::kSum && stage.body->op == Op::kMul &&
         std::all_of(stage.body->args.begin(), stage.body->args.end(), is_element);
}

bool HasOwnAxis(const Stage& sum, const Expr& factor, const Expr& other) {
  return std::any_of(sum.axes.begin(), sum.axes.end(), [&](const Var& axis) {
    return MentionsAny(factor, {axis.get()}) && !MentionsAny(other, {axis.get()});
  });
}

Expr AsHalf(const Expr& factor) {
  const bool is_widened = factor->op == Op::kCast && IsHalf(factor->args[0]->type);
  const Expr narrow = is_widened ? factor->args[0] : AsNarrow(factor);
  return narrow != nullptr && IsHalf(narrow->type) ? narrow : nullptr;
}

ExprList FactorsOf(const Stage& sum) {
  const Expr& body = sum.body;
  if (sum.combiner != Combiner::kSum || body->type != DType::kFloat32) return {};
  if (body->op == Op::kMul) return body->args;
  const bool is_chosen = body->op == Op::kSelect && body->args[2]->op == Op::kFloat &&
                         body->args[2]->float_value == 0 && ReadsIndices(body->args[0]);
  if (!is_chosen) return {};
  return {Select(body->args[0], Float(1, body->type), body->args[2]), body->args[1]};
}

absl::StatusOr<DType> TypeOfWholeFactors(const TensorProgram& program, const Stage& sum) {
  const auto refuse = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat(sum.name(), why));
  };
  const ExprList factors = FactorsOf(sum);
  if (factors.empty() || !HasOwnAxis(sum, factors[0], factors[1]) ||
      !HasOwnAxis(sum, factors[1], factors[0])) {
    return refuse(" is no product of matrices in float32");
  }
  const Factor a = FactorOf(factors[0]), b = FactorOf(factors[1]);
  if (!a.whole.has_value() && !b.whole.has_value()) {
    return refuse(" has no factor of whole numbers");
  }
  const DType type = a.narrow != DType::kFloat32   ? a.narrow
                     : b.narrow != DType::kFloat32 ? b.narrow
                                                   : DType::kFloat16;
  if (!Fits(a, type) || !Fits(b, type)) {
    return refuse(" has factors that are no numbers of one type of 16 bits");
  }
  if (!IsHalf(program.dtype) && !IsExact(sum, a, b)) {
    return refuse(" may be more than 2^24, which units for matrices round otherwise");
  }
  return type;
}

}  // namespace heddle::search_space
