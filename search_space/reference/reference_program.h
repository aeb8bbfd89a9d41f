// One stage's definition as a compact postfix program over doubles: the reference's machine. Not
// for other users.
#ifndef HEDDLE_SEARCH_SPACE_REFERENCE_REFERENCE_PROGRAM_H_
#define HEDDLE_SEARCH_SPACE_REFERENCE_REFERENCE_PROGRAM_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// A value, and the scale to which its rounding error is proportional: an error analysis to first
// order, in units of one rounding.
struct Scalar {
  double value = 0;
  double magnitude = 0;
  bool exact = false;  // a number in memory or in the definition: nothing has rounded it yet
  // The larger or smaller one of several that rounding may swap: what it is is about right all the
  // same, but not which of them it is equal to.
  bool contested = false;
  // Rounding may turn a comparison that it was chosen by: it may be another number altogether.
  bool uncertain = false;
};

inline Scalar Exact(double value) { return {value, std::abs(value), true}; }
// Also where the analysis met infinities and lost itself in NaN.
inline Scalar AtLeastValue(Scalar x) {
  const double least = std::abs(x.value);
  if (!(x.magnitude >= least)) x.magnitude = least;
  return x;
}
// May rounding turn a comparison of the two? Not where they are the same number: the largest of a
// row is equal to the element that it was taken from, in whatever order sums were added up.
bool MayTurn(const Scalar& a, const Scalar& b);

// The larger and the smaller of two have the magnitude of the one that is taken, so that a mask of
// -3e38 that loses hides nothing; of both where rounding may decide which one that is.
Scalar Combined(Combiner combiner, const Scalar& a, const Scalar& b);

// Conversions to float32 and wider lose nothing that matters beside the comparison's tolerance.
// A narrower one may go to either neighbour: its magnitude grows by its unit, measured in
// float32's.
Scalar Converted(DType type, const Scalar& a);

struct TensorId {
  bool is_input;
  int index;  // into program.inputs or program.stages
};

class StageProgram {
 public:
  StageProgram(const TensorProgram& program, const Stage& stage);

  // A number at a sum of multiples of axes.
  struct Affine {
    int64_t constant = 0;
    std::vector<std::pair<int, int64_t>> terms;  // axis and factor
    int64_t At(const int64_t* axes) const {
      int64_t sum = constant;
      for (const auto& [axis, factor] : terms) sum += axes[axis] * factor;
      return sum;
    }
    int64_t FactorOf(int axis) const {
      for (const auto& [own, factor] : terms) {
        if (own == axis) return factor;
      }
      return 0;
    }
  };
  // An element of a tensor.
  struct Factor {
    TensorId tensor;
    Affine offset;
  };

  int64_t size() const { return static_cast<int64_t>(code_.size()); }
  // Two elements or more whose product, taken from left to right, the body is, converted to wider
  // types or not at all: what most terms are that there are many of. Empty where it is something
  // else.
  const std::vector<Factor>& factors() const { return factors_; }
  size_t stack_depth() const { return depth_; }

  // Evaluates the body for `count` values of one axis, up to kLanes, from that in `axes` on: the
  // results are values[0] and so on. `axes` holds the values of the stage's axes, then of its
  // reduction axes; `values` and `integers` are working memory of kLanes times stack_depth()
  // elements; `load(tensor, offset, step, count, values)` gives elements that lie `step` apart.
  // With `turned` comparisons that rounding may turn are. False, and no result, where a condition
  // is not the same for all of them, as it is for one.
  static constexpr int kLanes = 32;
  template <typename Loader>
  bool Run(const int64_t* axes, int axis, int count, Scalar* values, int64_t* integers, bool turned,
           const Loader& load) const;

 private:
  enum class Code : uint8_t {
    kNumber,       // push number
    kAffine,       // push affines_[target]
    kLoad,         // pop an offset, push the element of `tensor`
    kLoadIndex,    // the same as an integer, of an input that holds indices
    kLoadAffine,   // push the element of `tensor` at affines_[target]
    kToValue,      // pop an integer, push it as a value
    kJump,         // to target
    kJumpIfFalse,  // pop an integer; to target where it is 0
    kIntegers,     // op on integers (conditions are integers too)
    kCompare,      // op on two values, push an integer
    kValues,       // op on values
  };
  struct Instruction {
    Code code;
    Op op = Op::kInt;
    DType type = DType::kFloat32;
    int target = 0;
    TensorId tensor{true, 0};
    double number = 0;
  };
  void FindFactors();
  static int64_t OfIntegers(Op op, int64_t a, int64_t b);
  static bool Compare(Op op, double a, double b);
  static int64_t Compared(Op op, const Scalar& a, const Scalar& b, bool turned, bool& uncertain) {
    const bool holds = Compare(op, a.value, b.value), may_turn = MayTurn(a, b);
    uncertain = uncertain || may_turn;
    return holds != (turned && may_turn) ? 1 : 0;
  }
  static Scalar Unary(Op op, DType type, const Scalar& a);
  static Scalar Binary(Op op, const Scalar& a, const Scalar& b);
  static bool IsUnary(Op op) { return op >= Op::kCast && op != Op::kPow; }

  friend class StageCompiler;
  std::vector<Instruction> code_;
  std::vector<Affine> affines_;
  size_t depth_ = 0;
  std::vector<Factor> factors_;
};

template <typename Loader>
bool StageProgram::Run(const int64_t* axes, int axis, int count, Scalar* values, int64_t* integers,
                       bool turned, const Loader& load) const {
  Scalar* value = values - kLanes;  // the top of each stack
  int64_t* integer = integers - kLanes;
  std::array<bool, kLanes> uncertain{};
  const auto for_lanes = [count](const auto& each) {
    for (int lane = 0; lane < count; ++lane) each(lane);
  };
  for (size_t next = 0; next < code_.size(); ++next) {
    const Instruction& i = code_[next];
    switch (i.code) {
      case Code::kNumber:
        value += kLanes;
        std::fill_n(value, count, Exact(i.number));
        break;
      case Code::kAffine: {
        integer += kLanes;
        const Affine& affine = affines_[static_cast<size_t>(i.target)];
        const int64_t first = affine.At(axes), step = affine.FactorOf(axis);
        for_lanes([&](int lane) { integer[lane] = first + lane * step; });
        break;
      }
      case Code::kLoad:
        value += kLanes;
        for_lanes([&](int lane) { load(i.tensor, integer[lane], 0, 1, value + lane); });
        integer -= kLanes;
        break;
      case Code::kLoadIndex:
        for_lanes([&](int lane) {
          Scalar index;
          load(i.tensor, integer[lane], 0, 1, &index);
          integer[lane] = static_cast<int64_t>(index.value);
        });
        break;
      case Code::kLoadAffine: {
        value += kLanes;
        const Affine& affine = affines_[static_cast<size_t>(i.target)];
        load(i.tensor, affine.At(axes), affine.FactorOf(axis), count, value);
        break;
      }
      case Code::kToValue:
        value += kLanes;
        for_lanes([&](int lane) { value[lane] = Exact(static_cast<double>(integer[lane])); });
        integer -= kLanes;
        break;
      case Code::kJump:
        next = static_cast<size_t>(i.target) - 1;
        break;
      case Code::kJumpIfFalse: {
        const bool goes_on = integer[0] != 0;
        for (int lane = 1; lane < count; ++lane) {
          if ((integer[lane] != 0) != goes_on) return false;
        }
        integer -= kLanes;
        if (!goes_on) next = static_cast<size_t>(i.target) - 1;
        break;
      }
      case Code::kIntegers:
        if (i.op == Op::kNot) {
          for_lanes([&](int lane) { integer[lane] = integer[lane] == 0 ? 1 : 0; });
        } else {
          integer -= kLanes;
          for_lanes([&](int lane) {
            integer[lane] = OfIntegers(i.op, integer[lane], integer[kLanes + lane]);
          });
        }
        break;
      case Code::kCompare:
        value -= 2 * kLanes;
        integer += kLanes;
        for_lanes([&](int lane) {
          integer[lane] = Compared(i.op, value[kLanes + lane], value[2 * kLanes + lane], turned,
                                   uncertain[static_cast<size_t>(lane)]);
        });
        break;
      case Code::kValues:
        if (IsUnary(i.op)) {
          for_lanes([&](int lane) { value[lane] = Unary(i.op, i.type, value[lane]); });
        } else {
          value -= kLanes;
          for_lanes(
              [&](int lane) { value[lane] = Binary(i.op, value[lane], value[kLanes + lane]); });
        }
        break;
    }
  }
  for_lanes([&](int lane) { value[lane].uncertain |= uncertain[static_cast<size_t>(lane)]; });
  return true;
}

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_REFERENCE_REFERENCE_PROGRAM_H_
