// From the checked syntax tree to a tensor program at a shape.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/nearest_name.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/narrow_expr.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/notation/notation_limits.h"
#include "search_space/notation/notation_syntax.h"

namespace heddle::search_space {
namespace {

using Kind = SyntaxNode::Kind;

// Indices stay within +-2^60, so that the index algebra cannot overflow.
constexpr int64_t kMaxIndex = int64_t{1} << 60;
// Indices are kept in 32 bits.
constexpr int64_t kMostIndices = int64_t{1} << 31;
// Conditions used for one proof; the innermost selects count first.
constexpr size_t kMaxFacts = 24;

class Instantiator {
 public:
  Instantiator(const OperatorSyntax& op, DType dtype) : op_(op), compute_(ComputedIn(dtype)) {
    program_.op = op.name;
    program_.dtype = dtype;
  }

  TensorProgram Run(const std::map<std::string, int64_t>& shape) {
    BindParameters(shape);
    for (const ItemSyntax& item : op_.items) {
      switch (item.kind) {
        case ItemSyntax::Kind::kLet:
          constants_[item.name] = Constant(*item.value);
          break;
        case ItemSyntax::Kind::kInput:
          AddInput(item);
          break;
        case ItemSyntax::Kind::kStage:
          AddStage(item);
          break;
      }
    }
    RefuseUnread();
    program_.canonical_text =
        absl::StrCat(NameOf(program_.dtype), " ", Print(op_, &program_.shape));
    program_.hash = HexHashOf(program_.canonical_text);
    return std::move(program_);
  }

 private:
  // ------------------------------------------------------------------- parameters and extents

  void BindParameters(const std::map<std::string, int64_t>& shape) {
    std::vector<std::string> names, missing;
    for (const OperatorParameter& parameter : op_.parameters) {
      names.push_back(parameter.name);
      const auto given = shape.find(parameter.name);
      if (given == shape.end() && !parameter.default_value) {
        missing.push_back(parameter.name);
      } else {
        program_.shape[parameter.name] =
            given != shape.end() ? given->second : *parameter.default_value;
      }
    }
    for (const auto& [name, value] : shape) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        throw NotationError{absl::StrCat("operator '", op_.name, "' has no parameter '", name, "'",
                                         Suggest(name, names))};
      }
    }
    if (!missing.empty()) {
      throw NotationError{absl::StrFormat("operator '%s' needs a value for %s", op_.name,
                                          absl::StrJoin(missing, ", "))};
    }
    constants_ = program_.shape;
  }

  [[noreturn]] void RefuseOverflow(const SyntaxNode& node) const {
    Refuse(node.at, absl::StrCat("'", Print(node), "' overflows 64 bits at this shape"));
  }

  [[noreturn]] void RefuseDivisor(const SyntaxNode& node, int64_t divisor) const {
    Refuse(node.at, absl::StrFormat("the divisor in '%s' is %d at this shape; it must be positive",
                                    Print(node), divisor));
  }

  int64_t Constant(const SyntaxNode& node) const {
    if (node.kind == Kind::kInteger) return node.integer;
    if (node.kind == Kind::kName) return constants_.at(node.text);
    const int64_t a = Constant(*node.args[0]);
    const int64_t b = node.args.size() > 1 ? Constant(*node.args[1]) : 0;
    if (node.text == "min") return std::min(a, b);
    if (node.text == "max") return std::max(a, b);
    if (node.text == "/" || node.text == "%") {
      if (b <= 0) RefuseDivisor(node, b);
      return node.text == "/" ? FloorDivide(a, b) : a - FloorDivide(a, b) * b;
    }
    int64_t result = 0;
    const bool overflow = node.kind == Kind::kUnary ? __builtin_sub_overflow(0, a, &result)
                          : node.text == "+"        ? __builtin_add_overflow(a, b, &result)
                          : node.text == "-"        ? __builtin_sub_overflow(a, b, &result)
                                                    : __builtin_mul_overflow(a, b, &result);
    if (overflow) RefuseOverflow(node);
    return result;
  }

  // `what` names the extent for messages: "axis 'i' of stage 'T'".
  int64_t Extent(const SyntaxNode& node, const std::string& what) const {
    const int64_t extent = Constant(node);
    if (extent >= 1 && extent <= kMaxProgramBytes) return extent;
    const std::string text = Print(node);
    const std::string value = absl::StrCat(extent);
    Refuse(node.at,
           absl::StrFormat("%s has extent %s%s; it must be %s", what, text,
                           text == value ? "" : absl::StrCat(" = ", value),
                           extent < 1 ? "at least 1" : absl::StrCat("at most ", kMaxProgramBytes)));
  }

  // A new tensor, its bytes counted into the program's.
  BufferRef AddTensor(const ItemSyntax& item, DType dtype, const std::vector<int64_t>& shape) {
    int64_t bytes = SizeOf(dtype);
    bool overflow = false;
    for (const int64_t extent : shape) overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
    if (overflow || bytes > kMaxProgramBytes - total_bytes_) {
      Refuse(item.at, absl::StrFormat("tensor '%s' of %s %s elements is too large: all tensors "
                                      "together may have %d bytes",
                                      item.name, absl::StrJoin(shape, " x "), NameOf(dtype),
                                      kMaxProgramBytes));
    }
    total_bytes_ += bytes;
    return tensors_[item.name] = MakeBuffer(item.name, dtype, Scope::kGlobal, shape);
  }

  void AddInput(const ItemSyntax& item) {
    std::vector<int64_t> shape;
    for (const SyntaxPtr& extent : item.extents) {
      shape.push_back(
          Extent(*extent, absl::StrFormat("dimension %d of input '%s'", shape.size(), item.name)));
    }
    const DType dtype = item.index_extent ? DType::kInt32 : item.dtype.value_or(program_.dtype);
    BufferRef input = AddTensor(item, dtype, shape);
    if (item.index_extent) {
      Buffer holds = *input;
      holds.index_extent =
          Extent(*item.index_extent, absl::StrFormat("what input '%s' indexes", item.name));
      if (holds.index_extent > kMostIndices) {
        Refuse(item.at, absl::StrFormat("input '%s' holds indices of %d elements, which do not fit "
                                        "32 bits: at most %d",
                                        item.name, holds.index_extent, kMostIndices));
      }
      input = tensors_[item.name] = std::make_shared<const Buffer>(std::move(holds));
    }
    program_.inputs.push_back(std::move(input));
  }

  // ------------------------------------------------------------------------------------ stages

  void AddStage(const ItemSyntax& item) {
    stage_ = &item;
    compute_ = ComputedIn(item.dtype.value_or(program_.dtype));
    Stage stage;
    stage.is_output = item.is_output;
    stage.axes = MakeAxes(item.axes);
    const SyntaxNode* body = item.value.get();
    if (body->kind == Kind::kReduce) {
      stage.combiner = FindCombiner(body->text);
      stage.reduce_axes = MakeAxes(body->axes);
      body = body->args[0].get();
    }
    RefuseTooMuchWork(stage);
    // Evaluated before the tensor exists: a stage does not read itself.
    stage.body = Simplify(ToType(compute_, Value(*body)));
    // Intermediate results keep the precision in which they were computed, if nothing else is
    // asked. No product reads an output: of tf32 it keeps all that memory has room for.
    const DType of_output = program_.dtype == DType::kTF32 ? DType::kFloat32 : program_.dtype;
    // What gives nothing but numbers of a narrow type, such as padding, leaves them as they are.
    const Expr narrow = stage.is_reduction() ? nullptr : AsNarrow(stage.body);
    const bool keeps = item.is_output && item.dtype.value_or(of_output) == stage.body->type;
    if (narrow != nullptr && !keeps) stage.body = narrow;
    std::vector<int64_t> shape;
    for (const Var& axis : stage.axes) shape.push_back(axis->extent);
    const DType usual = item.is_output ? of_output : stage.body->type;
    stage.tensor = AddTensor(item, item.dtype.value_or(usual), shape);
    if (item.is_position) RefuseInexactPositions(stage);
    axes_.clear();
    program_.stages.push_back(std::move(stage));
  }

  std::vector<Var> MakeAxes(const std::vector<AxisSyntax>& axes) {
    std::vector<Var> vars;
    for (const AxisSyntax& axis : axes) {
      const std::string what = absl::StrFormat("axis '%s' of stage '%s'", axis.name, stage_->name);
      vars.push_back(MakeVar(axis.name, Extent(*axis.extent, what)));
      axes_[axis.name] = vars.back();
    }
    return vars;
  }

  void RefuseTooMuchWork(const Stage& stage) const {
    int64_t iterations = 1;
    bool overflow = false;
    for (const std::vector<Var>* axes : {&stage.axes, &stage.reduce_axes}) {
      for (const Var& axis : *axes) {
        overflow |= __builtin_mul_overflow(iterations, axis->extent, &iterations);
      }
    }
    if (overflow || iterations > kMaxIterations) {
      Refuse(stage_->at, absl::StrFormat("the extents of stage '%s' multiply to more than %d",
                                         stage_->name, kMaxIterations));
    }
  }

  // Positions are values of the stage's type, the extent itself among them.
  void RefuseInexactPositions(const Stage& stage) const {
    const DType type = stage.tensor->dtype;
    const Var& axis = stage.reduce_axes[0];
    const int digits = -std::ilogb(UnitRoundoff(type));
    if (axis->extent <= int64_t{1} << digits) return;
    Refuse(stage_->value->at,
           absl::StrFormat("axis '%s' of stage '%s' has %d positions; %s, in which they are given, "
                           "tells apart whole numbers up to 2^%d only: take a wider type, or the "
                           "best of parts of the axis",
                           axis->name, stage_->name, axis->extent, NameOf(type), digits));
  }

  // At this shape a select may have been decided for good.
  void RefuseUnread() const {
    std::set<std::string> read;
    for (const Stage& stage : program_.stages) {
      Visit(stage.body, [&](const Expr& e) {
        if (e->op == Op::kLoad) read.insert(e->buffer->name);
      });
    }
    for (const ItemSyntax& item : op_.items) {
      if (item.kind == ItemSyntax::Kind::kLet || item.is_output || read.count(item.name) > 0) {
        continue;
      }
      if (item.index_extent && tensors_.at(item.name)->index_extent == 1) {
        Refuse(item.at,
               absl::StrFormat("input '%s' says which of one element is meant at this shape, which "
                               "is always the first: leave it out and read at 0, or take a shape "
                               "with at least 2",
                               item.name));
      }
      Refuse(item.at,
             absl::StrFormat("%s '%s' is never read at this shape: the conditions round "
                             "its reads are never true",
                             item.kind == ItemSyntax::Kind::kInput ? "input" : "stage", item.name));
    }
  }

  // ------------------------------------------------------------------------------------ values

  // Numbers are rounded to the compute type once, here, so that every back end and the reference
  // use the same ones.
  Expr Number(const SyntaxNode& node, double value) const {
    const double rounded =
        compute_ == DType::kFloat64 ? value : static_cast<double>(static_cast<float>(value));
    if (std::isinf(rounded) && !std::isinf(value)) {
      Refuse(node.at, absl::StrCat(Print(node), " is beyond the range of ", NameOf(compute_)));
    }
    return Float(rounded, compute_);
  }

  static DType ComputedIn(DType type) {
    return type == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  }

  // Arithmetic is done in float32 at least.
  static Expr Widen(const Expr& e) { return IsNarrow(e->type) ? Cast(DType::kFloat32, e) : e; }

  static Expr Both(Op op, Expr a, Expr b) {
    const DType type = std::max(a->type, b->type);
    return MakeExpr(op, {ToType(type, a), ToType(type, b)});
  }

  // Always float32 or float64.
  Expr Value(const SyntaxNode& node) {
    switch (node.kind) {
      case Kind::kInteger:
        return Number(node, static_cast<double>(node.integer));
      case Kind::kReal:
        return Number(node, node.real);
      case Kind::kName: {
        const auto axis = axes_.find(node.text);
        if (axis != axes_.end()) return Cast(compute_, VarExpr(axis->second));
        return Number(node, static_cast<double>(constants_.at(node.text)));
      }
      case Kind::kRead:
        return Widen(Read(node));
      case Kind::kIndexRead:
        return Cast(compute_, Index(node));
      case Kind::kCall:
        return Call(node);
      case Kind::kUnary: {
        const Expr value = Value(*node.args[0]);
        if (value->op == Op::kFloat) return Float(-value->float_value, value->type);
        return MakeExpr(Op::kNeg, {value});
      }
      default: {
        const Op op = node.text == "+"   ? Op::kAdd
                      : node.text == "-" ? Op::kSub
                      : node.text == "*" ? Op::kMul
                                         : Op::kDiv;
        const Expr left = Value(*node.args[0]);
        return Both(op, left, Value(*node.args[1]));
      }
    }
  }

  Expr Call(const SyntaxNode& node) {
    const Function function = *FindFunction(node.text);
    if (function.kind == Function::Kind::kSelect) return SelectValue(node);
    const Expr first = Value(*node.args[0]);
    if (function.kind == Function::Kind::kCast) return Widen(ToType(function.dtype, first));
    if (function.arguments == 1) return MakeExpr(function.op, {first});
    return Both(function.op, first, Value(*node.args[1]));
  }

  Expr SelectValue(const SyntaxNode& node) {
    const Expr condition = Condition(*node.args[0]);
    const size_t known = facts_.size();
    AddFacts(condition, true);
    Expr if_true = Value(*node.args[1]);
    facts_.resize(known);
    AddFacts(condition, false);
    Expr if_false = Value(*node.args[2]);
    facts_.resize(known);
    const DType type = std::max(if_true->type, if_false->type);
    return Select(condition, ToType(type, if_true), ToType(type, if_false));
  }

  Expr Condition(const SyntaxNode& node) {
    if (node.text == "!") return MakeExpr(Op::kNot, {Condition(*node.args[0])});
    if (node.text == "&&" || node.text == "||") {
      const Expr left = Condition(*node.args[0]);
      return MakeExpr(node.text == "&&" ? Op::kAnd : Op::kOr, {left, Condition(*node.args[1])});
    }
    const bool integers = IsIntegerComparison(node);
    Expr left = integers ? Index(*node.args[0]) : Value(*node.args[0]);
    Expr right = integers ? Index(*node.args[1]) : Value(*node.args[1]);
    if (node.text[0] == '>') std::swap(left, right);
    const Op op = node.text == "=="       ? Op::kEq
                  : node.text == "!="     ? Op::kNe
                  : node.text.size() == 1 ? Op::kLt
                                          : Op::kLe;
    return Both(op, left, right);
  }

  // ----------------------------------------------------------------------------------- indices

  static bool IsConstant(const Expr& e) { return e->op == Op::kInt; }

  Expr Index(const SyntaxNode& node) { return Simplify(RawIndex(node)); }

  // Every part is checked to stay far from overflow before the next operation is built on it.
  Expr RawIndex(const SyntaxNode& node) {
    Expr e;
    if (node.kind == Kind::kInteger) {
      e = Int(node.integer);
    } else if (node.kind == Kind::kName) {
      const auto axis = axes_.find(node.text);
      e = axis != axes_.end() ? VarExpr(axis->second) : Int(constants_.at(node.text));
    } else if (node.kind == Kind::kUnary) {
      e = Int(0) - RawIndex(*node.args[0]);
    } else if (node.kind == Kind::kIndexRead) {
      e = ReadIndex(tensors_.at(node.text), IndicesOf(node));
    } else {
      e = IndexOperation(node);
    }
    const Interval bounds = IsConstant(e) ? Interval{e->int_value, e->int_value} : BoundsOf(e);
    if (bounds.min < -kMaxIndex || bounds.max > kMaxIndex) {
      Refuse(node.at,
             absl::StrFormat("'%s' goes beyond +-2^60 in stage '%s'", Print(node), stage_->name));
    }
    return e;
  }

  Expr IndexOperation(const SyntaxNode& node) {
    const Expr a = RawIndex(*node.args[0]), b = RawIndex(*node.args[1]);
    if (node.text == "+") return Simplify(a + b);
    if (node.text == "-") return Simplify(a - b);
    if (node.text == "min") return MakeExpr(Op::kMin, {a, b});
    if (node.text == "max") return MakeExpr(Op::kMax, {a, b});
    if (node.text == "*") {
      const Interval x = BoundsOf(a), y = BoundsOf(b);
      for (const int64_t p : {x.min, x.max}) {
        for (const int64_t q : {y.min, y.max}) {
          int64_t product;
          if (__builtin_mul_overflow(p, q, &product)) RefuseOverflow(node);
        }
      }
      return Simplify(a * b);
    }
    const Expr divisor = Simplify(b);
    if (!IsConstant(divisor) || divisor->int_value <= 0) {
      RefuseDivisor(node, BoundsOf(divisor).min);
    }
    return Simplify(node.text == "/" ? a / divisor : a % divisor);
  }

  // ------------------------------------------------------------------------------------- reads

  Expr Read(const SyntaxNode& node) { return Load(tensors_.at(node.text), IndicesOf(node)); }

  ExprList IndicesOf(const SyntaxNode& node) {
    const BufferRef& tensor = tensors_.at(node.text);
    ExprList indices;
    for (size_t i = 0; i < node.args.size(); ++i) {
      indices.push_back(Index(*node.args[i]));
      CheckInside(node, i, indices.back(), tensor->shape[i]);
    }
    return indices;
  }

  // What is known where `condition` is `truth`.
  void AddFacts(const Expr& condition, bool truth) {
    const Expr fact = Simplify(truth ? condition : MakeExpr(Op::kNot, {condition}));
    if (condition->op == Op::kNot) {
      AddFacts(condition->args[0], !truth);
    } else if (condition->op == (truth ? Op::kAnd : Op::kOr)) {
      AddFacts(condition->args[0], truth);
      AddFacts(condition->args[1], truth);
    } else if (fact->op == Op::kNot && fact->args[0]->op == Op::kNe) {
      facts_.push_back(MakeExpr(Op::kEq, fact->args[0]->args));
    } else {
      facts_.push_back(fact);
    }
  }

  void CheckInside(const SyntaxNode& read, size_t dimension, const Expr& index, int64_t extent) {
    Interval bounds = BoundsOf(index);
    if (bounds.min >= 0 && bounds.max < extent) return;
    const size_t skipped = facts_.size() > kMaxFacts ? facts_.size() - kMaxFacts : 0;
    std::vector<Expr> facts(facts_.begin() + skipped, facts_.end());
    Expr narrowed = index;
    if (!Narrow(facts, narrowed)) return;  // never evaluated
    bounds = BoundsOf(narrowed);
    const bool above = bounds.min >= 0 || Proves(facts, Int(0) <= narrowed);
    const bool below = bounds.max < extent || Proves(facts, narrowed < Int(extent));
    if (above && below) return;
    Refuse(
        read.at,
        absl::StrFormat(
            "stage '%s' reads '%s' out of range: index %d, '%s', takes values from %d to %d, but "
            "that axis of '%s' has extent %d (0 to %d); guard the read with select or correct "
            "the extents",
            stage_->name, read.text, dimension, Print(*read.args[dimension]), bounds.min,
            bounds.max, read.text, extent, extent - 1));
  }

  // Facts about one axis alone narrow its range: the axis is replaced, in `facts` and in `index`,
  // by a shorter one plus an offset. Returns false when the facts contradict each other.
  static bool Narrow(std::vector<Expr>& facts, Expr& index) {
    std::map<Var, Interval> ranges;
    for (const Expr& fact : facts) {
      if (fact->op == Op::kInt && fact->int_value == 0) return false;
      if (fact->args.size() != 2) continue;
      const Expr &a = fact->args[0], &b = fact->args[1];
      const bool axis_left = a->op == Op::kVar && IsConstant(b);
      if (!axis_left && !(IsConstant(a) && b->op == Op::kVar)) continue;
      const Var& axis = axis_left ? a->var : b->var;
      const int64_t bound = axis_left ? b->int_value : a->int_value;
      Interval& range = ranges.try_emplace(axis, Interval{0, axis->extent - 1}).first->second;
      const int64_t strict = fact->op == Op::kLt ? 1 : 0;
      const bool ordered = fact->op == Op::kLt || fact->op == Op::kLe;
      const bool equal = fact->op == Op::kEq;
      if (equal || (ordered && axis_left)) range.max = std::min(range.max, bound - strict);
      if (equal || (ordered && !axis_left)) range.min = std::max(range.min, bound + strict);
      if (range.min > range.max) return false;
    }
    std::map<Var, Expr> shorter;
    for (const auto& [axis, range] : ranges) {
      shorter[axis] = VarExpr(MakeVar(axis->name, range.max - range.min + 1)) + Int(range.min);
    }
    const auto replace = [&](const Var& axis) {
      const auto it = shorter.find(axis);
      return it == shorter.end() ? nullptr : it->second;
    };
    for (Expr& fact : facts) fact = Simplify(Substitute(fact, replace));
    index = Simplify(Substitute(index, replace));
    return true;
  }

  const OperatorSyntax& op_;
  DType compute_;  // of the current stage
  TensorProgram program_;
  std::map<std::string, int64_t> constants_;  // parameters and lets
  std::map<std::string, BufferRef> tensors_;
  std::map<std::string, Var> axes_;  // of the current stage
  const ItemSyntax* stage_ = nullptr;
  std::vector<Expr> facts_;  // what the enclosing selects guarantee
  int64_t total_bytes_ = 0;
};

}  // namespace

TensorProgram Instantiate(const OperatorSyntax& op, const std::map<std::string, int64_t>& shape,
                          DType dtype) {
  return Instantiator(op, dtype).Run(shape);
}

}  // namespace heddle::search_space
