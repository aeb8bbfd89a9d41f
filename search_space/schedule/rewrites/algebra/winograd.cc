#include "search_space/schedule/rewrites/algebra/winograd.h"

#include <algorithm>
#include <array>
#include <functional>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kWindow = 3, kTile = 2, kPatch = kTile + kWindow - 1;

// One row of a transform's matrix: scale * sum of sign * input.
struct Term {
  int64_t input;
  int sign;
};
struct TransformRow {
  std::vector<Term> terms;
  double scale = 1;
};
using Transform = std::vector<TransformRow>;

const Transform& DataTransform() {  // B^T
  static const auto* rows = new Transform{
      {{{0, 1}, {2, -1}}}, {{{1, 1}, {2, 1}}}, {{{2, 1}, {1, -1}}}, {{{1, 1}, {3, -1}}}};
  return *rows;
}
const Transform& WeightTransform() {  // G
  static const auto* rows = new Transform{
      {{{0, 1}}}, {{{0, 1}, {1, 1}, {2, 1}}, 0.5}, {{{0, 1}, {1, -1}, {2, 1}}, 0.5}, {{{2, 1}}}};
  return *rows;
}
const Transform& ResultTransform() {  // A^T
  static const auto* rows = new Transform{{{{0, 1}, {1, 1}, {2, 1}}}, {{{1, 1}, {2, -1}, {3, -1}}}};
  return *rows;
}

// The conditions that an index is each row of `transform` but the last. Its value is known once
// loops are unrolled.
std::vector<Expr> RowsOf(const Transform& transform, const Expr& which) {
  std::vector<Expr> is_row;
  for (size_t i = 0; i + 1 < transform.size(); ++i) {
    is_row.push_back(MakeExpr(Op::kEq, {which, Int(static_cast<int64_t>(i))}));
  }
  return is_row;
}

Expr ApplyRow(const Transform& transform, const std::vector<Expr>& is_row,
              const std::function<Expr(int64_t)>& input) {
  std::array<Expr, kPatch> inputs;  // one node, however many rows use it
  auto row = [&](const TransformRow& r) {
    Expr sum;
    for (const Term& t : r.terms) {
      Expr& value = inputs[static_cast<size_t>(t.input)];
      if (value == nullptr) value = input(t.input);
      sum = sum == nullptr ? value : (t.sign > 0 ? sum + value : sum - value);
    }
    return r.scale == 1 ? sum : sum * Float(r.scale, sum->type);
  };
  Expr chosen = row(transform.back());
  for (size_t i = is_row.size(); i-- > 0;) chosen = Select(is_row[i], row(transform[i]), chosen);
  return chosen;
}

// T x T^T at [row, column], for a two-dimensional x.
Expr Transform2d(const Transform& transform, const Expr& row, const Expr& column,
                 const std::function<Expr(int64_t, int64_t)>& input) {
  const std::vector<Expr> is_column = RowsOf(transform, column);
  return ApplyRow(transform, RowsOf(transform, row), [&](int64_t i) {
    return ApplyRow(transform, is_column, [&](int64_t j) { return input(i, j); });
  });
}

// How one operand is read: the dimensions that the window moves along, all others by one axis each.
struct Operand {
  Expr load;
  size_t y = 0, x = 0;
};
struct Correlation {
  Var y, x, ry, rx;
  Operand data, weights;
};

// Finds the two dimensions of `weights` that are indexed by reductions of three iterations, and
// those of `data` that are indexed by a sum of one of these and an axis of the result.
bool Match(const ScheduledStage& stage, const Expr& data, const Expr& weights, Correlation& c) {
  if (data->op != Op::kLoad || weights->op != Op::kLoad) return false;
  int matched = 0;
  for (size_t w = 0; w < weights->args.size(); ++w) {
    const Expr& index = weights->args[w];
    if (!IsOneOf(index, stage.reduce_axes) || index->var->extent != kWindow) continue;
    for (size_t d = 0; d < data->args.size(); ++d) {
      const Expr& sum = data->args[d];
      if (sum->op != Op::kAdd) continue;
      for (int side = 0; side < 2; ++side) {
        const Expr &r = sum->args[static_cast<size_t>(side)],
                   &a = sum->args[static_cast<size_t>(1 - side)];
        if (!IsVar(r, index->var) || !IsOneOf(a, stage.axes)) continue;
        // The first match is y: rows come before columns in both operands or the roles swap.
        (matched == 0 ? c.y : c.x) = a->var;
        (matched == 0 ? c.ry : c.rx) = r->var;
        (matched == 0 ? c.weights.y : c.weights.x) = w;
        (matched == 0 ? c.data.y : c.data.x) = d;
        ++matched;
      }
    }
  }
  if (matched != 2 || c.data.y == c.data.x || c.y == c.x) return false;
  c.data.load = data;
  c.weights.load = weights;
  auto others_are_axes = [&](const Operand& operand) {
    std::vector<Var> seen = {c.y, c.x, c.ry, c.rx};
    for (size_t d = 0; d < operand.load->args.size(); ++d) {
      const Expr& index = operand.load->args[d];
      if (d == operand.y || d == operand.x || index->op == Op::kInt) continue;
      if (index->op != Op::kVar || IsOneOf(index, seen)) return false;
      seen.push_back(index->var);
    }
    return true;
  };
  return others_are_axes(c.data) && others_are_axes(c.weights);
}

bool FindCorrelation(const ScheduledStage& stage, Correlation& c) {
  return stage.combiner == Combiner::kSum && stage.reduce_axes.size() > 2 &&
         stage.body->op == Op::kMul &&
         (Match(stage, stage.body->args[0], stage.body->args[1], c) ||
          Match(stage, stage.body->args[1], stage.body->args[0], c));
}

class WinogradTransform {
 public:
  WinogradTransform(const ScheduledStage& stage, const Correlation& c)
      : stage_(stage),
        c_(c),
        columns_((c.x->extent + kTile - 1) / kTile),
        tiles_((c.y->extent + kTile - 1) / kTile * columns_) {}

  std::vector<ScheduledStage> Stages() {
    const ScheduledStage weights = Weights(), data = Data();
    ScheduledStage product = Product(weights.tensor, data.tensor);
    ScheduledStage copy = Copy(product);
    ScheduledStage result = Result(copy.tensor);
    return {weights, data, std::move(product), std::move(copy), std::move(result)};
  }

 private:
  Var Elements() const { return MakeVar("g", kPatch * kPatch); }
  static Expr Row(const Var& g) { return VarExpr(g) / Int(kPatch); }
  static Expr Column(const Var& g) { return VarExpr(g) % Int(kPatch); }

  ScheduledStage Make(const std::string& suffix, std::vector<Var> axes, Expr body) const {
    Stage made;
    std::vector<int64_t> shape;
    for (const Var& axis : axes) shape.push_back(axis->extent);
    made.tensor =
        MakeBuffer(stage_.name() + suffix, stage_.tensor->dtype, Scope::kGlobal, std::move(shape));
    made.axes = std::move(axes);
    made.body = std::move(body);
    return MakeScheduledStage(made);
  }

  // The dimensions of the transformed weights besides g: what the product sums over comes first, so
  // that its results' axis is contiguous.
  std::vector<size_t> WeightDims() const {
    std::vector<size_t> dims;
    for (const bool reduced : {true, false}) {
      for (size_t d = 0; d < c_.weights.load->args.size(); ++d) {
        const Expr& index = c_.weights.load->args[d];
        if (d == c_.weights.y || d == c_.weights.x || index->op == Op::kInt) continue;
        if (IsOneOf(index, stage_.reduce_axes) == reduced) dims.push_back(d);
      }
    }
    return dims;
  }
  std::vector<size_t> DataDims() const {
    std::vector<size_t> dims;
    for (size_t d = 0; d < c_.data.load->args.size(); ++d) {
      if (d != c_.data.y && c_.data.load->args[d]->op != Op::kInt) dims.push_back(d);
    }
    return dims;
  }

  ScheduledStage Weights() const {
    const Operand& w = c_.weights;
    std::vector<Var> axes = {Elements()};
    ExprList indices = w.load->args;
    for (const size_t d : WeightDims()) {
      axes.push_back(MakeVar(indices[d]->var->name, indices[d]->var->extent));
      indices[d] = VarExpr(axes.back());
    }
    const Expr body =
        Transform2d(WeightTransform(), Row(axes[0]), Column(axes[0]), [&](int64_t i, int64_t j) {
          indices[w.y] = Int(i);
          indices[w.x] = Int(j);
          return Load(w.load->buffer, indices);
        });
    ScheduledStage made = Make(".u", std::move(axes), body);
    made.materialized = true;
    return made;
  }

  ScheduledStage Data() const {
    const Operand& data = c_.data;
    std::vector<Var> axes = {Elements()};
    Var tile;
    ExprList indices = data.load->args;
    for (const size_t d : DataDims()) {
      const bool is_tile = d == data.x;
      axes.push_back(is_tile ? MakeVar(TileName(), tiles_)
                             : MakeVar(indices[d]->var->name, indices[d]->var->extent));
      if (is_tile) tile = axes.back();
      indices[d] = VarExpr(axes.back());
    }
    const Expr row = VarExpr(tile) / Int(columns_), column = VarExpr(tile) % Int(columns_);
    const Expr body =
        Transform2d(DataTransform(), Row(axes[0]), Column(axes[0]), [&](int64_t i, int64_t j) {
          indices[data.y] = row * Int(kTile) + Int(i);
          indices[data.x] = column * Int(kTile) + Int(j);
          return Load(data.load->buffer, indices);
        });
    ScheduledStage made = Make(".v", std::move(axes), body);
    made.materialized = true;
    return made;
  }

  ScheduledStage Product(const BufferRef& u, const BufferRef& v) const {
    Stage made;
    made.combiner = Combiner::kSum;
    std::vector<std::pair<Var, Var>> renamed;
    const Var g = Elements();
    made.axes.push_back(g);
    for (const Var& axis : stage_.axes) {
      if (axis == c_.y) continue;
      const bool is_tile = axis == c_.x;
      made.axes.push_back(
          MakeVar(is_tile ? TileName() : axis->name, is_tile ? tiles_ : axis->extent));
      renamed.emplace_back(axis, made.axes.back());
    }
    for (const Var& axis : stage_.reduce_axes) {
      if (axis == c_.ry || axis == c_.rx) continue;
      made.reduce_axes.push_back(MakeVar(axis->name, axis->extent));
      renamed.emplace_back(axis, made.reduce_axes.back());
    }
    auto read = [&](const BufferRef& tensor, const Operand& operand,
                    const std::vector<size_t>& dims) {
      ExprList indices = {VarExpr(g)};
      for (const size_t d : dims) {
        const Var from = d == operand.x ? c_.x : operand.load->args[d]->var;
        const auto to = std::find_if(renamed.begin(), renamed.end(),
                                     [&](const auto& pair) { return pair.first == from; });
        indices.push_back(VarExpr(to->second));
      }
      return Load(tensor, std::move(indices));
    };
    made.body = read(v, c_.data, DataDims()) * read(u, c_.weights, WeightDims());
    std::vector<int64_t> shape;
    for (const Var& axis : made.axes) shape.push_back(axis->extent);
    made.tensor = MakeBuffer(stage_.name() + ".m.acc", stage_.tensor->dtype, Scope::kGlobal,
                             std::move(shape));
    return MakeScheduledStage(made);
  }

  ScheduledStage Copy(const ScheduledStage& product) const {
    std::vector<Var> axes;
    ExprList indices;
    for (const Var& axis : product.axes) {
      axes.push_back(MakeVar(axis->name, axis->extent));
      indices.push_back(VarExpr(axes.back()));
    }
    return Make(".m", std::move(axes), Load(product.tensor, std::move(indices)));
  }

  ScheduledStage Result(const BufferRef& m) const {
    ScheduledStage made = stage_;
    made.combiner = Combiner::kNone;
    made.reduce_axes.clear();
    const Expr y = VarExpr(c_.y), x = VarExpr(c_.x);
    ExprList indices = {nullptr};
    for (const Var& axis : stage_.axes) {
      if (axis == c_.y) continue;
      indices.push_back(axis == c_.x ? y / Int(kTile) * Int(columns_) + x / Int(kTile)
                                     : VarExpr(axis));
    }
    made.body =
        Transform2d(ResultTransform(), y % Int(kTile), x % Int(kTile), [&](int64_t i, int64_t j) {
          indices[0] = Int(i * kPatch + j);
          return Load(m, indices);
        });
    ResetLoops(made);
    return made;
  }

  std::string TileName() const { return absl::StrCat(c_.y->name, c_.x->name); }

  const ScheduledStage& stage_;
  const Correlation& c_;
  const int64_t columns_, tiles_;
};

}  // namespace

absl::StatusOr<std::vector<ScheduledStage>> WinogradStages(const Schedule& schedule, int index) {
  const ScheduledStage& stage = schedule.stage(index);
  Correlation c;
  if (!FindCorrelation(stage, c)) {
    return absl::InvalidArgumentError(absl::StrCat(
        stage.name(),
        " is not a sum over a 3x3 window of step 1, and over another axis, of data[.., y + ry, "
        "x + rx] * weights[.., ry, rx]"));
  }
  return WinogradTransform(stage, c).Stages();
}

absl::Status Winograd::ApplyTo(ScheduleEditor& editor) const {
  return editor.Rewrite(stage, WinogradStages);
}

}  // namespace heddle::search_space
