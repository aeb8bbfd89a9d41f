#include "measure/codegen/expr_printer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/math.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/queries.h"

namespace heddle::measure {

using search_space::BoundsOf;
using search_space::Buffer;
using search_space::DType;
using search_space::Expr;
using search_space::ExprList;
using search_space::Interval;
using search_space::IsHalf;
using search_space::IsNarrow;
using search_space::Op;

namespace {

// Bounds at or beyond this mean that nothing is known.
constexpr int64_t kUnknown = int64_t{1} << 61;

bool FitsInt(const Interval& b) { return b.min > INT32_MIN && b.max <= INT32_MAX; }
bool IsKnown(const Interval& b) { return b.min > -kUnknown && b.max < kUnknown; }

int64_t Clamp(__int128 v) {
  return static_cast<int64_t>(std::clamp<__int128>(v, -2 * __int128{kUnknown}, 2 * kUnknown));
}

Interval Combine(Op op, const Interval& a, const Interval& b) {
  if (op == Op::kAdd) return {Clamp(__int128{a.min} + b.min), Clamp(__int128{a.max} + b.max)};
  if (op == Op::kSub) return {Clamp(__int128{a.min} - b.max), Clamp(__int128{a.max} - b.min)};
  const __int128 p[] = {__int128{a.min} * b.min, __int128{a.min} * b.max, __int128{a.max} * b.min,
                        __int128{a.max} * b.max};
  return {Clamp(*std::min_element(p, p + 4)), Clamp(*std::max_element(p, p + 4))};
}

// Two neighbours of which one register is, as one of them is converted to float32.
struct Pair {
  Expr first;  // the offset in their array
  bool is_second;
};

std::optional<Pair> PairOf(const Expr& cast) {
  const Expr& held = cast->args[0];
  if (cast->type != DType::kFloat32 || held->op != Op::kLoad) return std::nullopt;
  const Buffer& array = *held->buffer;
  if (array.dtype != DType::kBFloat16 || array.scope != search_space::Scope::kLocal ||
      array.elements % 2 != 0) {
    return std::nullopt;
  }
  const Expr offset = OffsetOf(array, held->args);
  const search_space::ModRem m = search_space::ModulusRemainder(Simplify(offset));
  if (m.modulus % 2 != 0) return std::nullopt;
  return Pair{Simplify(offset - search_space::Int(m.remainder % 2)), m.remainder % 2 != 0};
}

// A number of the definition, or a product of such, that is far from where reciprocals end.
bool HasReciprocal(const Expr& divisor) {
  double value = 1;
  bool constant = true;
  search_space::Visit(divisor, [&](const Expr& e) {
    if (e->op == Op::kFloat) value *= e->float_value;
    constant = constant && (e->op == Op::kFloat || e->op == Op::kMul);
  });
  return constant && std::abs(value) > 0x1p-100 && std::abs(value) < 0x1p100;
}

// Of whole numbers powers of what is negative are numbers, too, and the larger ones are off by
// more.
bool IsRoughExponent(const Expr& y) {
  constexpr double kLargest = 16;
  return y->op == Op::kFloat && std::abs(y->float_value) <= kLargest &&
         std::nearbyint(y->float_value) != y->float_value;
}

// Is it one condition or another one, or something and that? What is denied has none of its own.
bool HasAlternatives(const Expr& e) {
  if (e->op == Op::kOr) return true;
  return e->op == Op::kAnd && (HasAlternatives(e->args[0]) || HasAlternatives(e->args[1]));
}

// Is the condition made of comparisons of integers that no memory is read for?
bool ComparesIntegersAlone(const Expr& e) {
  if (e->op == Op::kAnd || e->op == Op::kOr) {
    return ComparesIntegersAlone(e->args[0]) && ComparesIntegersAlone(e->args[1]);
  }
  if (e->op == Op::kNot) return ComparesIntegersAlone(e->args[0]);
  return e->args.size() == 2 && e->args[0]->type == DType::kInt64 && !ReadsMemory(e);
}

// Looked at so deep, since the sides of a sum may share what they are made of.
constexpr int kDeepest = 8;

// Is it a number of at least 1 and something that is not negative?
bool IsOneAndMore(const Expr& e, int depth);

// Is it at least 0, or no finite number, by what it is made of?
bool IsNonNegative(const Expr& e, int depth = kDeepest) {
  if (depth == 0) return false;
  const auto is = [&](size_t arg) { return IsNonNegative(e->args[arg], depth - 1); };
  switch (e->op) {
    case Op::kFloat:
      return e->float_value >= 0;
    case Op::kExp:
    case Op::kSigmoid:
    case Op::kAbs:
    case Op::kSqrt:
    case Op::kRsqrt:
      return true;
    case Op::kLog:
      return IsOneAndMore(e->args[0], depth - 1);
    case Op::kMax:
      return is(0) || is(1);
    case Op::kMul:
      return StructurallyEqual(e->args[0], e->args[1]) || (is(0) && is(1));
    case Op::kAdd:
    case Op::kDiv:
    case Op::kMin:
      return is(0) && is(1);
    case Op::kSelect:
      return is(1) && is(2);
    default:
      return false;
  }
}

bool IsOneAndMore(const Expr& e, int depth) {
  if (e->op != Op::kAdd || depth == 0) return false;
  const auto is_one = [&](size_t arg) {
    return e->args[arg]->op == Op::kFloat && e->args[arg]->float_value >= 1;
  };
  return (is_one(0) && IsNonNegative(e->args[1], depth)) ||
         (is_one(1) && IsNonNegative(e->args[0], depth));
}

// Is it a choice between numbers that are made of registers alone, one of them by a function?
// Compilers branch around that for each element, where computing both costs less.
bool IsOfFunctionsInRegisters(const Expr& e) {
  if (e->type != DType::kFloat32) return false;
  bool applies = false, loads = false;
  for (const size_t arg : {1, 2}) {
    Visit(e->args[arg], [&](const Expr& x) {
      loads = loads || (x->op == Op::kLoad && x->buffer->scope != search_space::Scope::kLocal);
      const bool is_costly = IsFunction(x->op) || x->op == Op::kDiv;
      applies = applies || (x->type == DType::kFloat32 && is_costly);
    });
  }
  return applies && !loads;
}

Interval Intersect(const Interval& a, const Interval& b) {
  return {std::max(a.min, b.min), std::min(a.max, b.max)};
}

// max(min(x, greatest), least), as numbers of tensors of indices are read, as min(max(x, least),
// greatest), which says the same. Null for anything else. Where the first is compared with the
// greatest, ptxas 13.0 takes a wrong predicate for sm_90 (docs/notebook.md), also where it sees the
// number only once a loop is unrolled.
Expr LeastFirst(const Expr& e) {
  if (e->op != Op::kMax || e->args[0]->op != Op::kMin) return nullptr;
  const Expr &x = e->args[0]->args[0], &greatest = e->args[0]->args[1], &least = e->args[1];
  const bool are_ordered =
      greatest->op == Op::kInt && least->op == Op::kInt && least->int_value <= greatest->int_value;
  if (!are_ordered) return nullptr;
  return search_space::MakeExpr(Op::kMin, {search_space::MakeExpr(Op::kMax, {x, least}), greatest});
}

}  // namespace

Expr OffsetOf(const Buffer& buffer, const ExprList& indices) {
  Expr offset = search_space::Int(0);
  for (size_t i = 0; i < indices.size(); ++i) {
    offset = offset + indices[i] * search_space::Int(buffer.strides[i]);
  }
  return offset;
}

std::string ExprPrinter::At(const Text& t, Level level) {
  return t.level < level ? absl::StrCat("(", t.text, ")") : t.text;
}

ExprPrinter::Text ExprPrinter::Widened(Text t) const {
  if (t.wide) return t;
  return {absl::StrCat("(", dialect_.long_type, ")", At(t, kUnary)), kUnary, true, t.bounds};
}

ExprPrinter::Text ExprPrinter::Narrowed(Text t) const {
  if (!t.wide) return t;
  return {absl::StrCat("(int)", At(t, kUnary)), kUnary, false, t.bounds};
}

std::string ExprPrinter::PrintCondition(const Expr& e) { return At(Convert(e), kEquality); }

std::string ExprPrinter::PrintOffset(const Buffer& buffer, const ExprList& indices) {
  const Expr offset = Simplify(OffsetOf(buffer, indices));
  if (buffer.swizzle == 0) return Print(offset);
  // Chunks of `swizzle` elements and their number a row are powers of two: XORing the chunk's
  // number is XORing the offset.
  const Expr within =
      buffer.swizzle_copy > 0 ? offset % search_space::Int(buffer.swizzle_copy) : offset;
  const Expr row = within / search_space::Int(buffer.swizzle_row * buffer.swizzle_period);
  const Expr key = row % search_space::Int(buffer.swizzle_row / buffer.swizzle);
  const Expr flipped = Simplify(key * search_space::Int(buffer.swizzle));
  if (IsInt(flipped, 0)) return Print(offset);
  if (SizeOf(buffer.dtype) < 4) {
    // What counts whole rows stands apart, where XORing cannot reach: compilers then see what is
    // the same in all of them.
    const search_space::Linear all = search_space::ToLinear(offset);
    search_space::Linear within_row, rows;
    for (const search_space::Term& t : all.terms) {
      (t.coef % buffer.swizzle_row == 0 ? rows : within_row).terms.push_back(t);
    }
    within_row.constant = all.constant % buffer.swizzle_row;
    rows.constant = all.constant - within_row.constant;
    return absl::StrCat(At(Convert(FromLinear(rows)), kSum), " + (",
                        At(Convert(FromLinear(within_row)), kPrimary), " ^ ",
                        At(Convert(flipped), kPrimary), ")");
  }
  return absl::StrCat(At(Convert(offset), kPrimary), " ^ ", At(Convert(flipped), kPrimary));
}

std::string ExprPrinter::PrintElement(const search_space::BufferRef& buffer,
                                      const ExprList& indices) {
  return absl::StrCat(NameOf(buffer), "[", PrintOffset(*buffer, indices), "]");
}

ExprPrinter::Text ExprPrinter::Convert(const Expr& e) {
  return e->type == DType::kInt64 ? ConvertInt(e) : ConvertValue(e);
}

ExprPrinter::Text ExprPrinter::ConvertInt(const Expr& e) {
  switch (e->op) {
    case Op::kInt: {
      const Interval b = {e->int_value, e->int_value};
      return {IntLiteral(dialect_, e->int_value), e->int_value < 0 ? kUnary : kPrimary, !FitsInt(b),
              b};
    }
    case Op::kVar: {
      const Interval b = {0, e->var->extent - 1};
      if (e->var->extent == 1) return {"0", kPrimary, false, b};
      return {NameOf(e->var), kPrimary, !FitsInt(b), b};
    }
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
      return ConvertArithmetic(e);
    case Op::kDiv:
    case Op::kMod:
      return ConvertDivision(e);
    case Op::kNeg:
      return ConvertInt(search_space::Int(0) - e->args[0]);
    case Op::kMin:
    case Op::kMax: {
      if (const Expr ordered = LeastFirst(e)) return ConvertInt(ordered);
      const Text a = ConvertInt(e->args[0]), b = ConvertInt(e->args[1]);
      // Both languages have functions, which say what is loaded only once.
      if (ReadsIndices(e) && !a.wide && !b.wide) {
        return {absl::StrCat(search_space::NameOf(e->op), "(", a.text, ", ", b.text, ")"), kPrimary,
                false, BoundsOf(e)};
      }
      const char* op = e->op == Op::kMin ? " < " : " > ";
      Text condition{absl::StrCat(At(a, kSum), op, At(b, kSum)), kRelation};
      Text t = ConvertChoice(condition, a, b);
      t.bounds = Intersect(t.bounds, BoundsOf(e));
      return t;
    }
    case Op::kSelect:
      return ConvertChoice(Convert(e->args[0]), ConvertInt(e->args[1]), ConvertInt(e->args[2]));
    case Op::kCast: {
      const Text a = Convert(e->args[0]);
      if (e->args[0]->type == DType::kInt64) return a;
      if (e->args[0]->type == DType::kBool) {
        return {absl::StrCat("(int)", At(a, kUnary)), kUnary, false, {0, 1}};
      }
      return {absl::StrCat("(", dialect_.long_type, ")", At(a, kUnary)), kUnary, true, BoundsOf(e)};
    }
    case Op::kLoad:
      return {PrintElement(e->buffer, e->args), kPrimary, e->buffer->dtype != DType::kInt32,
              BoundsOf(e)};
    default:
      HEDDLE_CHECK(false, "no other operation gives an integer");
  }
}

// Computed in 32 bits where both operands and the result are proven to fit.
ExprPrinter::Text ExprPrinter::ConvertArithmetic(const Expr& e) {
  Text a = ConvertInt(e->args[0]), b = ConvertInt(e->args[1]);
  Text out;
  out.bounds = Combine(e->op, a.bounds, b.bounds);
  if (!FitsInt(out.bounds)) out.bounds = Intersect(out.bounds, BoundsOf(e));
  out.wide = !FitsInt(out.bounds) || !FitsInt(a.bounds) || !FitsInt(b.bounds);
  if (out.wide) {
    // One operand of 64 bits is enough for C to widen the other.
    if (!b.wide) a = Widened(a);
  } else {
    a = Narrowed(a);
    b = Narrowed(b);
  }
  if (e->op == Op::kMul) {
    out.level = kProduct;
    out.text = absl::StrCat(At(a, kProduct), " * ", At(b, kUnary));
  } else {
    out.level = kSum;
    const char* op = e->op == Op::kAdd ? " + " : " - ";
    out.text = absl::StrCat(At(a, kSum), op, At(b, kProduct));
  }
  return out;
}

// Floor division: C's operators round towards zero, so the numerator must not be negative, or is
// made so by adding a multiple of the divisor.
ExprPrinter::Text ExprPrinter::ConvertDivision(const Expr& e) {
  const bool is_div = e->op == Op::kDiv;
  const int64_t d = e->args[1]->int_value;
  Text a = ConvertInt(e->args[0]);
  if (a.bounds.min < 0) a.bounds = Intersect(a.bounds, BoundsOf(e->args[0]));
  if (FitsInt(a.bounds)) a = Narrowed(a);
  Text out{.text = "", .level = kPrimary, .wide = a.wide, .bounds = {0, d - 1}};
  if (is_div) {
    const auto floor_div = [d](int64_t v) { return v / d - (v % d < 0 ? 1 : 0); };
    out.bounds = {floor_div(a.bounds.min), floor_div(a.bounds.max)};
  } else if (a.bounds.min >= 0) {
    out.bounds.max = std::min(out.bounds.max, a.bounds.max);
  }
  const std::string divisor = IntLiteral(dialect_, d);
  const char* op = is_div ? " / " : " % ";
  if (a.bounds.min >= 0) {
    out.text = absl::StrCat("(", At(a, kUnary), op, divisor, ")");
    return out;
  }
  if (IsPowerOfTwo(d)) {  // arithmetic shift and mask round downwards
    const int shift = __builtin_ctzll(static_cast<uint64_t>(d));
    out.text = is_div ? absl::StrCat("(", At(a, kUnary), " >> ", shift, ")")
                      : absl::StrCat("(", At(a, kUnary), " & ", IntLiteral(dialect_, d - 1), ")");
    return out;
  }
  if (IsKnown(a.bounds)) {
    const int64_t periods = -(a.bounds.min + 1) / d + 1;  // the fewest that cover the minimum
    const Interval shifted = {0, Clamp(__int128{a.bounds.max} + __int128{periods} * d)};
    if (!FitsInt(shifted)) a = Widened(a);
    out.wide = a.wide;
    const std::string sum =
        absl::StrCat("((", a.text, " + ", IntLiteral(dialect_, periods * d), ")", op, divisor);
    out.text = is_div ? absl::StrCat(sum, " - ", periods, ")") : absl::StrCat(sum, ")");
    return out;
  }
  const std::string remainder = absl::StrCat(At(a, kUnary), " % ", divisor);
  out.text = is_div ? absl::StrCat("(", At(a, kUnary), " / ", divisor, " - (", remainder, " < 0))")
                    : absl::StrCat("((", remainder, " + ", divisor, ") % ", divisor, ")");
  return out;
}

ExprPrinter::Text ExprPrinter::ConvertChoice(const Text& condition, const Text& a, const Text& b) {
  return {absl::StrCat("(", At(condition, kOr), " ? ", a.text, " : ", b.text, ")"),
          kPrimary,
          a.wide || b.wide,
          {std::min(a.bounds.min, b.bounds.min), std::max(a.bounds.max, b.bounds.max)}};
}

ExprPrinter::Text ExprPrinter::ConvertSelect(const Expr& e, const Text& condition, const Text& a,
                                             const Text& b) {
  if (!dialect_.approximates || !IsOfFunctionsInRegisters(e)) return ConvertChoice(condition, a, b);
  return CallHelper("choose", absl::StrCat(condition.text, ", ", a.text, ", ", b.text));
}

// Both sides are asked: where one decides by itself compilers branch on it, for every element of a
// mask, and compute what the elements of a row have in common for each of them.
ExprPrinter::Text ExprPrinter::ConvertMask(const Expr& e) {
  if (e->op != Op::kAnd && e->op != Op::kOr) return Convert(e);
  const Text a = ConvertMask(e->args[0]), b = ConvertMask(e->args[1]);
  return {absl::StrCat(At(a, kPrimary), e->op == Op::kAnd ? " & " : " | ", At(b, kPrimary)), kAnd};
}

std::optional<ExprPrinter::Text> ExprPrinter::ConvertInfix(const Expr& e) {
  static constexpr struct {
    Op op;
    const char* text;
    Level level;
  } kOperators[] = {
      {Op::kAdd, " + ", kSum},      {Op::kSub, " - ", kSum},      {Op::kMul, " * ", kProduct},
      {Op::kDiv, " / ", kProduct},  {Op::kLt, " < ", kRelation},  {Op::kLe, " <= ", kRelation},
      {Op::kEq, " == ", kEquality}, {Op::kNe, " != ", kEquality}, {Op::kAnd, " && ", kAnd}};
  for (const auto& [op, text, level] : kOperators) {
    if (op != e->op) continue;
    const auto next = static_cast<Level>(level + 1);
    return Text{absl::StrCat(At(Convert(e->args[0]), level), text, At(Convert(e->args[1]), next)),
                level};
  }
  return std::nullopt;
}

// Rounding to 16 bits is off by 2^-12, a quotient by some 2^-22 anywhere: what is rounded may be
// off by some 2^-17 before, an exponential or a power beyond the range of float16 by some 2^-15,
// which the sides of a choice and factors hand on as it is.
ExprPrinter::Text ExprPrinter::ConvertRounded(const Expr& e, Rounded rounded) {
  rounded_ = rounded;
  Text text = Convert(e);
  rounded_ = Rounded::kNot;
  return text;
}

ExprPrinter::Text ExprPrinter::CallHelper(const char* name, absl::string_view operands) {
  helpers.insert(name);
  return {absl::StrCat(name, "(", operands, ")")};
}

// 2^(x * log2(e)): what is off most is the argument, by |x| * 2^-24, where |x| is less than 104 or
// else nothing is left. Zero in place of what is less than 2^-126, unless it is multiplied.
ExprPrinter::Text ExprPrinter::ConvertRoughExp(const Expr& x, Rounded rounded) {
  static constexpr double kLog2E = 1.4426950408889634;
  double factor = kLog2E;
  Expr rest = x;
  for (size_t side = 0; x->op == Op::kMul && side < 2; ++side) {
    if (x->args[side]->op != Op::kFloat) continue;
    factor *= x->args[side]->float_value;
    rest = x->args[1 - side];
    break;
  }
  const bool or_zero = rounded == Rounded::kWhole && !keeps_small;
  return CallHelper(or_zero ? "rough_exp2_or_zero" : "rough_exp2",
                    Print(rest * search_space::Float(factor, x->type)));
}

std::optional<ExprPrinter::Text> ExprPrinter::ConvertRough(const Expr& e, Rounded rounded) {
  if (rounded == Rounded::kNot || e->type != DType::kFloat32) return std::nullopt;
  if (e->op == Op::kMul || e->op == Op::kDiv) {
    const Text a = ConvertRounded(e->args[0], Rounded::kFactor);
    const Text b = ConvertRounded(e->args[1], Rounded::kFactor);
    if (e->op == Op::kDiv) return RoughQuotient(a, b, e->args[1]);
    return Text{absl::StrCat(At(a, kProduct), " * ", At(b, kUnary)), kProduct};
  }
  if (e->op == Op::kSelect) {
    const Text condition = Convert(e->args[0]);
    const Text a = ConvertRounded(e->args[1], rounded), b = ConvertRounded(e->args[2], rounded);
    return ConvertSelect(e, condition, a, b);
  }
  if (!dialect_.approximates) return std::nullopt;
  // What cannot cancel: a sum is no further off than its sides are.
  if (e->op == Op::kAdd && IsNonNegative(e->args[0]) && IsNonNegative(e->args[1])) {
    const Text a = ConvertRounded(e->args[0], Rounded::kFactor);
    const Text b = ConvertRounded(e->args[1], Rounded::kFactor);
    return Text{absl::StrCat(At(a, kSum), " + ", At(b, kProduct)), kSum};
  }
  const Expr& x = e->args.empty() ? e : e->args[0];
  if (e->op == Op::kExp) return ConvertRoughExp(x, rounded);
  if (e->op == Op::kSigmoid) {
    return CallHelper(rounded == Rounded::kWhole ? "rough_sigmoid_or_zero" : "rough_sigmoid",
                      Print(x));
  }
  // The logarithm of 1 + x is no further off than x is.
  if (e->op == Op::kLog) {
    const bool takes_rough = IsOneAndMore(x, kDeepest);
    return CallHelper("rough_log",
                      takes_rough ? ConvertRounded(x, Rounded::kFactor).text : Print(x));
  }
  if (e->op == Op::kPow && IsRoughExponent(e->args[1])) {
    return CallHelper("rough_power", absl::StrCat(Print(x), ", ", Print(e->args[1])));
  }
  return std::nullopt;
}

// By a number of the definition: times its reciprocal, which is no further off than `rough_divide`.
ExprPrinter::Text ExprPrinter::RoughQuotient(const Text& a, const Text& b, const Expr& divisor) {
  if (!dialect_.approximates) {
    return {absl::StrCat(At(a, kProduct), " / ", At(b, kUnary)), kProduct};
  }
  if (HasReciprocal(divisor)) {
    return {absl::StrCat(At(a, kProduct), " * (1.0f / ", At(b, kUnary), ")"), kProduct};
  }
  return CallHelper("rough_divide", absl::StrCat(a.text, ", ", b.text));
}

ExprPrinter::Text ExprPrinter::ConvertValue(const Expr& e) {
  if (e->type == DType::kFloat64) float64 = true;
  const Rounded rounded = std::exchange(rounded_, Rounded::kNot);
  if (std::optional<Text> rough = ConvertRough(e, rounded)) return *std::move(rough);
  if (HasAlternatives(e) && ComparesIntegersAlone(e)) return ConvertMask(e);
  if (std::optional<Text> infix = ConvertInfix(e)) return *std::move(infix);
  switch (e->op) {
    case Op::kInt:
      return {e->int_value != 0 ? "1" : "0"};
    case Op::kFloat: {
      const std::string text = FloatLiteral(dialect_, e->float_value, e->type);
      return {text, text[0] == '-' ? kUnary : kPrimary};
    }
    case Op::kVar:
      return {NameOf(e->var)};
    case Op::kLoad:
      return {PrintElement(e->buffer, e->args)};
    case Op::kOr: {
      // Compilers warn of && inside || without parentheses.
      const Text a = Convert(e->args[0]), b = Convert(e->args[1]);
      return {absl::StrCat(At(a, a.level == kOr ? kOr : kEquality), " || ", At(b, kEquality)), kOr};
    }
    case Op::kNot:
      return {absl::StrCat("!", At(Convert(e->args[0]), kUnary)), kUnary};
    case Op::kNeg: {
      const Text a = Convert(e->args[0]);
      return {absl::StrCat("-", At(a, a.text[0] == '-' ? kPrimary : kUnary)), kUnary};
    }
    case Op::kSelect:
      return ConvertSelect(e, Convert(e->args[0]), Convert(e->args[1]), Convert(e->args[2]));
    case Op::kCast:
      return ConvertCast(e);
    case Op::kMod:
      HEDDLE_CHECK(false, "the notation refuses % on values");
    default:
      return ConvertFunction(e);
  }
}

ExprPrinter::Text ExprPrinter::ConvertCast(const Expr& e) {
  const Expr& from = e->args[0];
  if (e->type == DType::kBool) return {At(Convert(from), kRelation) + " != 0", kEquality};
  if (const auto pair = PairOf(e); pair.has_value() && dialect_.packs) {
    helpers.insert("from_bfloat16_pairs");
    return {absl::StrCat(pair->is_second ? "from_second_bfloat16(&" : "from_first_bfloat16(&",
                         NameOf(from->buffer), "[", Print(pair->first), "])")};
  }
  if (!IsNarrow(from->type) && !IsNarrow(e->type)) {
    return {absl::StrCat("(", TypeName(dialect_, e->type), ")", At(Convert(from), kUnary)), kUnary};
  }
  const Text value = IsHalf(e->type) ? ConvertRounded(from, Rounded::kWhole) : Convert(from);
  const Text number{ConvertNarrow(e->type, from->type, value.text, helpers)};
  if (e->type != DType::kFloat64) return number;
  return {absl::StrCat("(double)", number.text), kUnary};
}

ExprPrinter::Text ExprPrinter::ConvertFunction(const Expr& e) {
  if (e->op == Op::kSigmoid) {
    const std::string one = FloatLiteral(dialect_, 1, e->type);
    const std::string exp = FunctionName(dialect_, Op::kExp, e->type, helpers);
    return {absl::StrCat("(", one, " / (", one, " + ", exp, "(-", At(Convert(e->args[0]), kPrimary),
                         ")))")};
  }
  std::string text = absl::StrCat(FunctionName(dialect_, e->op, e->type, helpers), "(");
  for (size_t i = 0; i < e->args.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", Convert(e->args[i]).text);
  }
  return {text + ")"};
}

}  // namespace heddle::measure
