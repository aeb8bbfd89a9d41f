#include "search_space/reference/reference_program.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numbers>
#include <optional>

#include "base/check.h"
#include "base/math.h"
#include "search_space/ir/expr/float_format.h"

namespace heddle::search_space {
namespace {

// Whether rounding errors may have swapped a and b. An error is rarely more than the square root of
// the number of additions times a rounding (docs/measurement.md): 2^12 leaves room for some 2^17.
bool MayBeSwapped(const Scalar& a, const Scalar& b) {
  constexpr double kRoundings = 0x1p-24 * 0x1p12;
  if (a.exact && b.exact) return false;
  const double distance = std::abs(a.value - b.value);
  return std::isfinite(distance) && distance <= kRoundings * (a.magnitude + b.magnitude);
}

Scalar Winner(const Scalar& a, const Scalar& b, bool first) {
  Scalar winner = first ? a : b;
  winner.exact = a.exact && b.exact;
  winner.uncertain = a.uncertain || b.uncertain;
  if (MayBeSwapped(a, b)) {
    winner.magnitude = std::max(a.magnitude, b.magnitude);
    winner.contested = winner.contested || a.value != b.value;
  }
  return winner;
}

// A result that has been rounded.
Scalar Rounded(double value, double magnitude, const Scalar& a) {
  return {value, magnitude, false, false, a.uncertain};
}
Scalar Rounded(double value, double magnitude, const Scalar& a, const Scalar& b) {
  return {value, magnitude, false, false, a.uncertain || b.uncertain};
}

}  // namespace

bool MayTurn(const Scalar& a, const Scalar& b) {
  if (a.uncertain || b.uncertain) return true;
  return MayBeSwapped(a, b) && (a.value != b.value || a.contested || b.contested);
}

Scalar Converted(DType type, const Scalar& a) {
  if (!IsNarrow(type)) return a;
  const double value = RoundTo(type, a.value);
  // A number in memory that `type` has is not rounded.
  if (a.exact && value == a.value) return a;
  const double rounding = std::abs(a.value) * UnitRoundoff(type) / UnitRoundoff(DType::kFloat32);
  return {value, a.magnitude + rounding, false, a.contested, a.uncertain};
}

Scalar Combined(Combiner combiner, const Scalar& a, const Scalar& b) {
  switch (combiner) {
    case Combiner::kNone:
      return b;
    case Combiner::kSum:
      return Rounded(a.value + b.value, a.magnitude + b.magnitude, a, b);
    case Combiner::kMax:
      return Winner(a, b, std::isnan(a.value) || a.value > b.value);
    case Combiner::kMin:
      return Winner(a, b, std::isnan(a.value) || a.value < b.value);
    case Combiner::kProd:
      return Rounded(a.value * b.value, a.magnitude * b.magnitude, a, b);
  }
  HEDDLE_CHECK(false, "a combiner without a rule");
}

// ------------------------------------------------------------------------------------ operations

int64_t StageProgram::OfIntegers(Op op, int64_t a, int64_t b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return FloorDivide(a, b);
    case Op::kMod:
      return a - FloorDivide(a, b) * b;
    case Op::kMin:
      return std::min(a, b);
    case Op::kMax:
      return std::max(a, b);
    case Op::kLt:
      return a < b ? 1 : 0;
    case Op::kLe:
      return a <= b ? 1 : 0;
    case Op::kEq:
      return a == b ? 1 : 0;
    case Op::kNe:
      return a != b ? 1 : 0;
    case Op::kAnd:
      return a & b;
    case Op::kOr:
      return a | b;
    default:
      HEDDLE_CHECK(false, "no operation on truth values");
  }
}

bool StageProgram::Compare(Op op, double a, double b) {
  switch (op) {
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    default:
      HEDDLE_CHECK(false, "no comparison");
  }
}

// |f'(a)| times the argument's magnitude, plus the rounding of the result itself.
Scalar StageProgram::Unary(Op op, DType type, const Scalar& a) {
  double value = 0, slope = 0;
  const double x = a.value;
  switch (op) {
    case Op::kCast:
      return Converted(type, a);
    case Op::kNeg:
      return {-x, a.magnitude, a.exact, a.contested, a.uncertain};
    case Op::kAbs:
      return {std::abs(x), a.magnitude, a.exact, a.contested, a.uncertain};
    case Op::kExp:
      value = slope = std::exp(x);
      break;
    case Op::kLog:
      value = std::log(x);
      slope = 1 / x;
      break;
    case Op::kSqrt:
      value = std::sqrt(x);
      slope = x > 0 ? 0.5 / value : 0;
      break;
    case Op::kRsqrt:
      value = 1 / std::sqrt(x);
      slope = 0.5 * value / x;
      break;
    case Op::kTanh:
      value = std::tanh(x);
      slope = 1 - value * value;
      break;
    case Op::kErf:
      value = std::erf(x);
      slope = 2 * std::numbers::inv_sqrtpi * std::exp(-x * x);
      break;
    case Op::kSigmoid:
      value = 1 / (1 + std::exp(-x));
      slope = value * (1 - value);
      break;
    default:
      HEDDLE_CHECK(false, "no function of one value");
  }
  return AtLeastValue(Rounded(value, std::abs(value) + std::abs(slope) * a.magnitude, a));
}

Scalar StageProgram::Binary(Op op, const Scalar& a, const Scalar& b) {
  switch (op) {
    case Op::kAdd:
      return Combined(Combiner::kSum, a, b);
    case Op::kSub: {
      const double value = a.value - b.value;
      // Of numbers that nothing has rounded, as in X - max X, only the result is rounded.
      const bool are_exact = a.exact && b.exact;
      return Rounded(value, are_exact ? std::abs(value) : a.magnitude + b.magnitude, a, b);
    }
    case Op::kMul:
      return Combined(Combiner::kProd, a, b);
    case Op::kMax:
      return Combined(Combiner::kMax, a, b);
    case Op::kMin:
      return Combined(Combiner::kMin, a, b);
    case Op::kDiv: {
      const double value = a.value / b.value;
      const double lost = a.magnitude + std::abs(value) * b.magnitude;
      return AtLeastValue(Rounded(value, lost / std::abs(b.value), a, b));
    }
    case Op::kPow: {
      const double value = std::pow(a.value, b.value);
      const double by_base =
          b.value == 0 ? 0 : std::abs(b.value * std::pow(a.value, b.value - 1)) * a.magnitude;
      const double by_exponent =
          a.value == 0 ? 0 : std::abs(value * std::log(std::abs(a.value))) * b.magnitude;
      return AtLeastValue(Rounded(value, std::abs(value) + by_base + by_exponent, a, b));
    }
    default:
      HEDDLE_CHECK(false, "no operation on two values");
  }
}

// ------------------------------------------------------------------------------------ compilation

class StageCompiler {
 public:
  StageCompiler(const TensorProgram& program, const Stage& stage, StageProgram& out)
      : program_(program), out_(out) {
    int slot = 0;
    for (const Var& axis : stage.axes) slots_[axis.get()] = slot++;
    for (const Var& axis : stage.reduce_axes) slots_[axis.get()] = slot++;
    Emit(stage.body);
  }

 private:
  using Code = StageProgram::Code;
  using Affine = StageProgram::Affine;
  using Instruction = StageProgram::Instruction;

  Instruction& Add(Code code, Op op = Op::kInt) {
    out_.code_.push_back({code, op});
    // No instruction pushes more than one element: a bound on both stacks.
    out_.depth_ = out_.code_.size();
    return out_.code_.back();
  }
  int Here() const { return static_cast<int>(out_.code_.size()); }

  // The expression as a sum of multiples of axes, if it is one.
  std::optional<Affine> ToAffine(const Expr& e) const {
    if (e->type != DType::kInt64) return std::nullopt;
    if (e->op == Op::kInt) return Affine{e->int_value, {}};
    if (e->op == Op::kVar) return Affine{0, {{slots_.at(e->var.get()), 1}}};
    if (e->op != Op::kAdd && e->op != Op::kSub && e->op != Op::kMul) return std::nullopt;
    std::optional<Affine> a = ToAffine(e->args[0]), b = ToAffine(e->args[1]);
    if (!a || !b) return std::nullopt;
    if (e->op == Op::kMul) {
      if (!a->terms.empty()) std::swap(a, b);
      if (!a->terms.empty()) return std::nullopt;
      return Sum(Affine{}, *b, a->constant);
    }
    return Sum(*a, *b, e->op == Op::kAdd ? 1 : -1);
  }

  // a + factor * b
  static Affine Sum(Affine a, const Affine& b, int64_t factor) {
    a.constant += factor * b.constant;
    for (const auto& [axis, own] : b.terms) {
      const auto same = std::find_if(a.terms.begin(), a.terms.end(),
                                     [axis = axis](const auto& t) { return t.first == axis; });
      if (same != a.terms.end()) {
        same->second += factor * own;
      } else {
        a.terms.push_back({axis, factor * own});
      }
    }
    return a;
  }

  int AddAffine(Affine affine) {
    out_.affines_.push_back(std::move(affine));
    return static_cast<int>(out_.affines_.size()) - 1;
  }

  void EmitLoad(const Expr& e) {
    Expr offset = Int(0);
    int64_t stride = 1;
    for (size_t d = e->args.size(); d-- > 0;) {
      offset = offset + e->args[d] * Int(stride);
      stride *= e->buffer->shape[d];
    }
    if (e->type == DType::kInt64) {
      Emit(offset);
      Add(Code::kLoadIndex).tensor = IdOf(e->buffer.get());
      return;
    }
    if (std::optional<Affine> affine = ToAffine(offset)) {
      const int target = AddAffine(*std::move(affine));
      Instruction& load = Add(Code::kLoadAffine);
      load.target = target;
      load.tensor = IdOf(e->buffer.get());
      return;
    }
    Emit(offset);
    Add(Code::kLoad).tensor = IdOf(e->buffer.get());
  }

  TensorId IdOf(const Buffer* tensor) const {
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      if (program_.inputs[i].get() == tensor) return {true, static_cast<int>(i)};
    }
    return {false, static_cast<int>(program_.FindStage(tensor) - program_.stages.data())};
  }

  void EmitSelect(const Expr& e) {
    Emit(e->args[0]);
    const int branch = Here();
    Add(Code::kJumpIfFalse);
    Emit(e->args[1]);
    const int leave = Here();
    Add(Code::kJump);
    out_.code_[branch].target = Here();
    Emit(e->args[2]);
    out_.code_[leave].target = Here();
  }

  void Emit(const Expr& e) {
    if (std::optional<Affine> affine = ToAffine(e)) {
      const int target = AddAffine(*std::move(affine));
      Add(Code::kAffine).target = target;
      return;
    }
    switch (e->op) {
      case Op::kInt:  // a decided condition
        Add(Code::kAffine).target = AddAffine({e->int_value, {}});
        return;
      case Op::kFloat:
        Add(Code::kNumber).number = e->float_value;
        return;
      case Op::kLoad:
        EmitLoad(e);
        return;
      case Op::kSelect:
        EmitSelect(e);
        return;
      default:
        break;
    }
    for (const Expr& arg : e->args) Emit(arg);
    const bool from_integer = !IsFloat(e->args[0]->type);
    if (e->op == Op::kCast && from_integer) {
      Add(Code::kToValue);
    } else if (from_integer) {
      Add(Code::kIntegers, e->op);
    } else if (e->type == DType::kBool) {
      Add(Code::kCompare, e->op);
    } else {
      Add(Code::kValues, e->op).type = e->type;
    }
  }

  const TensorProgram& program_;
  StageProgram& out_;
  std::map<const Variable*, int> slots_;
};

StageProgram::StageProgram(const TensorProgram& program, const Stage& stage) {
  const StageCompiler compiled(program, stage, *this);
  FindFactors();
}

void StageProgram::FindFactors() {
  std::vector<Factor> factors;
  size_t apart = 0;  // factors that are not multiplied yet
  for (const Instruction& i : code_) {
    if (i.code == Code::kLoadAffine) {
      factors.push_back({i.tensor, affines_[static_cast<size_t>(i.target)]});
      ++apart;
    } else if (i.code == Code::kValues && i.op == Op::kMul) {
      --apart;
    } else if (i.code != Code::kValues || i.op != Op::kCast || IsNarrow(i.type)) {
      return;
    }
    if (apart > 2 || (apart == 2 && factors.size() > 2 && i.code != Code::kLoadAffine)) return;
  }
  if (apart == 1 && factors.size() > 1) factors_ = std::move(factors);
}

}  // namespace heddle::search_space
