#include "search_space/schedule/rewrites/algebra/shift_moments.h"

#include <algorithm>
#include <cmath>
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

// What is found of V: the stage S, x in the axes of V, and n.
struct Moments {
  const Stage* sum;
  Expr x;
  double terms;
};

// The value of what reads nothing, such as a product of extents.
std::optional<double> ConstantOf(const Expr& e) {
  if (e->op == Op::kFloat) return e->float_value;
  if (e->op == Op::kInt) return static_cast<double>(e->int_value);
  if (e->op == Op::kCast) return ConstantOf(e->args[0]);
  if (e->op != Op::kMul && e->op != Op::kDiv) return std::nullopt;
  const auto a = ConstantOf(e->args[0]), b = ConstantOf(e->args[1]);
  if (!a || !b) return std::nullopt;
  return e->op == Op::kMul ? *a * *b : *a / *b;
}

class MomentFinder {
 public:
  MomentFinder(const TensorProgram& program, const Stage& squares)
      : program_(program), squares_(squares) {}

  std::optional<Moments> Find() const {
    if (!IsPlainSum(squares_)) return std::nullopt;
    const Expr product = Expanded(squares_.body);
    if (product->op != Op::kMul || !StructurallyEqual(product->args[0], product->args[1])) {
      return std::nullopt;
    }
    const Expr& difference = product->args[0];
    if (difference->op != Op::kSub) return std::nullopt;
    const Stage* sum = SumOf(difference->args[1]);
    if (sum == nullptr || !IsSumOf(*sum, difference->args[0])) return std::nullopt;
    return Moments{sum, difference->args[0], Terms()};
  }

  // With the definitions of elementwise stages in the place of loads from them.
  Expr Expanded(const Expr& e) const {
    return Simplify(Rewrite(e, [&](const Expr& node) -> Expr {
      const Stage* s = node->op == Op::kLoad ? program_.FindStage(node->buffer.get()) : nullptr;
      if (s == nullptr || !IsBetween(*s)) return nullptr;
      return Expanded(Substitute(s->body, s->axes, node->args));
    }));
  }

  // An elementwise stage, which is the same wherever it is computed.
  static bool IsBetween(const Stage& s) {
    return !s.is_reduction() && !s.is_output && s.tensor->dtype == s.body->type;
  }

 private:
  double Terms() const {
    double terms = 1;
    for (const Var& r : squares_.reduce_axes) terms *= static_cast<double>(r->extent);
    return terms;
  }

  // The stage S where `e` is S[a] / n, or S[a] times 1 / n, a being the axes of V.
  const Stage* SumOf(const Expr& e) const {
    if (e->op != Op::kDiv && e->op != Op::kMul) return nullptr;
    const Expr& load = e->args[0];
    const std::optional<double> by = ConstantOf(e->args[1]);
    if (load->op != Op::kLoad || !by) return nullptr;
    const double n = e->op == Op::kDiv ? *by : 1 / *by;
    if (!(std::abs(n - Terms()) <= 1e-6 * Terms())) return nullptr;
    const Stage* sum = program_.FindStage(load->buffer.get());
    bool own = sum != nullptr && load->args.size() == squares_.axes.size();
    for (size_t i = 0; own && i < load->args.size(); ++i) {
      own = IsVar(load->args[i], squares_.axes[i]);
    }
    return own ? sum : nullptr;
  }

  // One that nobody else needs as it is, and from which another is subtracted before it is rounded.
  static bool IsPlainSum(const Stage& s) {
    return s.combiner == Combiner::kSum && !s.is_output && s.tensor->dtype == s.body->type;
  }

  bool IsSumOf(const Stage& sum, const Expr& x) const {
    if (!IsPlainSum(sum) || sum.reduce_axes.size() != squares_.reduce_axes.size()) {
      return false;
    }
    for (size_t r = 0; r < sum.reduce_axes.size(); ++r) {
      if (sum.reduce_axes[r]->extent != squares_.reduce_axes[r]->extent) return false;
    }
    const Expr body = Substitute(Expanded(sum.body), [&](const Var& v) -> Expr {
      for (size_t a = 0; a < sum.axes.size(); ++a) {
        if (sum.axes[a] == v) return VarExpr(squares_.axes[a]);
      }
      for (size_t r = 0; r < sum.reduce_axes.size(); ++r) {
        if (sum.reduce_axes[r] == v) return VarExpr(squares_.reduce_axes[r]);
      }
      return nullptr;
    });
    return StructurallyEqual(Simplify(body), x);
  }

  const TensorProgram& program_;
  const Stage& squares_;
};

class MomentWriter {
 public:
  MomentWriter(const TensorProgram& program, const Stage& squares, const Moments& found)
      : program_(program), squares_(squares), found_(found) {}

  TensorProgram Write() {
    TensorProgram shifted = program_;
    const Expr difference = found_.x - Typical(ExprsOf(squares_.axes));
    const Stage sum = Shifted(*found_.sum, difference);
    const Stage of_squares = Shifted(squares_, difference * difference);
    sum_ = sum.tensor;
    of_squares_ = of_squares.tensor;
    for (Stage& s : shifted.stages) {
      if (s.tensor == squares_.tensor) {
        s = of_squares;
      } else if (s.tensor == found_.sum->tensor) {
        s = sum;
      } else {
        s.body = Simplify(Replaced(s.body));
      }
    }
    DropUnread(shifted);
    return shifted;
  }

 private:
  // A term for the given indices, at so many of `parts` parts of the reduced axes.
  Expr TermAt(const ExprList& at, int64_t part, int64_t parts) const {
    return Simplify(Substitute(found_.x, [&](const Var& v) -> Expr {
      for (size_t a = 0; a < squares_.axes.size(); ++a) {
        if (squares_.axes[a] == v) return at[a];
      }
      return Int((v->extent - 1) * part / parts);
    }));
  }

  // Of the first term, the one in the middle and the last, the one that lies between the others: no
  // outlier, unless two of them are.
  Expr Typical(const ExprList& at) const {
    const Expr first = TermAt(at, 0, 2), middle = TermAt(at, 1, 2), last = TermAt(at, 2, 2);
    const auto least = [](const Expr& a, const Expr& b) { return MakeExpr(Op::kMin, {a, b}); };
    const auto most = [](const Expr& a, const Expr& b) { return MakeExpr(Op::kMax, {a, b}); };
    return most(least(first, middle), least(most(first, middle), last));
  }

  // A sum over the axes of V, in the place of `stage`.
  Stage Shifted(const Stage& stage, const Expr& body) const {
    Stage sum{.combiner = Combiner::kSum};
    for (const Var& axis : squares_.axes) sum.axes.push_back(MakeVar(axis->name, axis->extent));
    for (const Var& r : squares_.reduce_axes) {
      sum.reduce_axes.push_back(MakeVar(r->name, r->extent));
    }
    sum.tensor = MakeBuffer(stage.name() + ".shifted", stage.tensor->dtype, Scope::kGlobal,
                            stage.tensor->shape);
    sum.body = Simplify(Substitute(body, [&](const Var& v) -> Expr {
      for (size_t a = 0; a < sum.axes.size(); ++a) {
        if (squares_.axes[a] == v) return VarExpr(sum.axes[a]);
      }
      for (size_t r = 0; r < sum.reduce_axes.size(); ++r) {
        if (squares_.reduce_axes[r] == v) return VarExpr(sum.reduce_axes[r]);
      }
      return nullptr;
    }));
    return sum;
  }

  // What others read of S and V, and of what is computed elementwise from them, in their place: so
  // that whoever reads one sum reads the other one, too.
  Expr Replaced(const Expr& e) const {
    return Rewrite(e, [&](const Expr& node) -> Expr {
      if (node->op != Op::kLoad) return nullptr;
      const DType type = node->type;
      const Expr n = Float(found_.terms, type);
      if (node->buffer == found_.sum->tensor) {
        return Load(sum_, node->args) + n * Typical(node->args);
      }
      if (node->buffer == squares_.tensor) {
        const Expr sum = Load(sum_, node->args);
        return MakeExpr(Op::kMax, {Load(of_squares_, node->args) - sum * sum / n, Float(0, type)});
      }
      const Stage* s = program_.FindStage(node->buffer.get());
      if (s == nullptr || !MomentFinder::IsBetween(*s) || !Depends(*s)) return nullptr;
      return Replaced(Substitute(s->body, s->axes, node->args));
    });
  }

  bool Depends(const Stage& s) const {
    bool depends = false;
    Visit(s.body, [&](const Expr& node) {
      if (node->op != Op::kLoad || depends) return;
      const Stage* read = program_.FindStage(node->buffer.get());
      depends = node->buffer == found_.sum->tensor || node->buffer == squares_.tensor ||
                (read != nullptr && MomentFinder::IsBetween(*read) && Depends(*read));
    });
    return depends;
  }

  static void DropUnread(TensorProgram& program) {
    const auto is_read = [&](const Stage& stage) {
      bool read = stage.is_output;
      for (const Stage& s : program.stages) {
        Visit(s.body, [&](const Expr& e) {
          read = read || (e->op == Op::kLoad && e->buffer == stage.tensor);
        });
      }
      return read;
    };
    for (size_t i = program.stages.size(); i-- > 0;) {
      if (is_read(program.stages[i])) continue;
      program.stages.erase(program.stages.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  const TensorProgram& program_;
  const Stage& squares_;
  const Moments found_;
  BufferRef sum_, of_squares_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithShiftedMoments(
    const TensorProgram& program, const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  const Stage* const squares = &program.stages[number];
  const auto found = MomentFinder(program, *squares).Find();
  if (!found) {
    return absl::InvalidArgumentError(
        absl::StrCat(name,
                     " is no sum of (x - S / n) * (x - S / n), where S is the sum of the n "
                     "terms x, and neither is an output or rounded as it is stored"));
  }
  return std::make_shared<const TensorProgram>(MomentWriter(program, *squares, *found).Write());
}

absl::Status ShiftMoments::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithShiftedMoments);
}

}  // namespace heddle::search_space
