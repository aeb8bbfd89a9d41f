#include "search_space/sketch/patterns/rolling_chain.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/analysis/operands.h"
#include "search_space/schedule/rewrites/reductions/split_operand.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {
namespace {

constexpr size_t kMostScores = 2;

// The one of `stages` of which the sum's terms have an element, converted, as a factor.
std::optional<Expr> FactorAmong(const ScheduledStage& sum, const std::vector<BufferRef>& stages) {
  if (sum.body->op != Op::kMul) return std::nullopt;
  for (const Expr& arg : sum.body->args) {
    const Expr& factor = WithoutCast(arg);
    if (factor->op != Op::kLoad || !IsHalf(factor->type)) continue;
    const bool is_among = std::find(stages.begin(), stages.end(), factor->buffer) != stages.end();
    if (is_among) return factor;
  }
  return std::nullopt;
}

std::optional<size_t> AxisWith(const Expr& load, const Var& index) {
  for (size_t a = 0; a < load->args.size(); ++a) {
    if (IsVar(load->args[a], index)) return a;
  }
  return std::nullopt;
}

std::optional<size_t> FactorOwning(const MatrixKernel& kernel, size_t axis) {
  for (size_t f = 0; f < 2; ++f) {
    if (kernel.factors[f].own == axis) return f;
  }
  return std::nullopt;
}

class RollingChainFinder {
 public:
  RollingChainFinder(const ProgramShape& shape, const Chain& chain, const Target& target,
                     bool in_warpgroups)
      : shape_{{}, shape.schedule, {}},
        chain_(chain),
        target_(target),
        in_warpgroups_(in_warpgroups) {}

  std::optional<RollingChain> Find() {
    const auto sum = Index(chain_.root.reduction);
    // Weights of which nothing else is made are the scores' own result.
    std::vector<BufferRef> stages = chain_.inlined;
    for (const ChainLink& link : chain_.links) stages.push_back(link.result.tensor);
    const auto factor = FactorAmong(shape_.stage(sum), stages);
    if (!factor || !chain_.row || chain_.columns.size() != 1) return std::nullopt;
    RollingChain found{.weights = {(*factor)->buffer}};
    std::erase(stages, found.weights.tensor);
    found.inlined = std::move(stages);
    if (!Inline(found) || !FindProducts(found)) return std::nullopt;
    for (ScoreProduct& scores : found.scores) KeepWholeBoxes(found, scores.product);
    KeepWholeBoxes(found, found.root);
    const ScheduledStage& reduction = shape_.stage(Index(chain_.root.reduction));
    const auto row = AxisWith(*factor, reduction.axes[*chain_.row]);
    const auto term = AxisWith(*factor, reduction.reduce_axes[found.root.depth]);
    if (!row || !term) return std::nullopt;
    found.weights_row = *row;
    found.weights_term = *term;
    for (const ChainLink& link : chain_.links) {
      if (link.tiled.has_value()) continue;
      if (!link.row.has_value()) return std::nullopt;
      found.statistics.push_back(link.reduction);
      found.statistic_rows.push_back(*link.row);
    }
    found.beside = Beside(found);
    for (size_t s = 0; s < found.scores.size(); ++s) {
      if (!AreValues(found, found.scores[s])) continue;
      found.keys_are_values = s;
      const Expr load = LoadOf(found.root.kernel.reduction, found.values());
      found.values_tensor = load->buffer;
      for (size_t d = 0; d < load->args.size(); ++d) {
        if (load->args[d]->op == Op::kVar) found.values_dims.push_back(d);
      }
    }
    Schedule skipping = shape_.schedule;
    found.is_masked =
        Apply(Step(SkipMasked{chain_.root.reduction.name()}), skipping).ok() &&
        std::all_of(found.statistics.begin(), found.statistics.end(), [&](const StageRef& s) {
          const auto stage = [&](const StageRef& of) -> const ScheduledStage& {
            return skipping.stage(skipping.FindStage(of.name()));
          };
          return MayBeLeftOutWith(skipping, stage(chain_.root.reduction), stage(s));
        });
    return found;
  }

 private:
  int Index(const StageRef& stage) const { return shape_.schedule.FindStage(stage.tensor.get()); }

  bool Inline(const RollingChain& found) {
    return std::all_of(found.inlined.begin(), found.inlined.end(), [&](const BufferRef& stage) {
      return Apply(Step(ComputeInline{stage->name}), shape_.schedule).ok();
    });
  }

  // What is computed where it is fetched is no box of a tensor, and tiles end anywhere in those
  // that follow one another.
  void KeepWholeBoxes(const RollingChain& found, MatrixKernel& product) const {
    const int sum = whole_.schedule.FindStage(product.kernel.reduction.tensor.get());
    const Operands operands = OperandsOf(whole_.stage(sum));
    for (Factor& factor : product.factors) {
      const Expr& value = operands.list[factor.operand.number];
      bool is_computed = false;
      for (const BufferRef& stage : found.inlined) {
        is_computed = is_computed || ReadsAny(value, {stage.get()});
      }
      factor.is_boxed = factor.is_boxed && !is_computed && !factor.seam.has_value();
    }
  }

  // Found while results are still stages of their own.
  std::optional<MatrixKernel> ProductOf(const StageRef& result, const StageRef& reduction) const {
    const auto index = [&](const StageRef& s) { return whole_.schedule.FindStage(s.tensor.get()); };
    return MatrixKernel::Find(whole_, {.root = index(result), .reductions = {index(reduction)}},
                              target_, in_warpgroups_);
  }

  // The load that an operand of a sum is, in the axes of the sum; null of anything else.
  Expr LoadOf(const StageRef& sum, const Factor& factor) const {
    const Expr operand = OperandsOf(shape_.stage(Index(sum))).list[factor.operand.number];
    return operand->op == Op::kLoad ? operand : nullptr;
  }

  // Are the keys of these scores the root's values? Each of both reads all that lies along the
  // other's axis of the reduction or of the result, and nobody else in the kernel reads them.
  bool AreValues(const RollingChain& found, const ScoreProduct& scores) const {
    const Expr keys = LoadOf(scores.sum(), scores.keys());
    const Expr values = LoadOf(found.root.kernel.reduction, found.values());
    if (keys == nullptr || values == nullptr || keys->buffer != values->buffer ||
        LoadsOf(found, keys->buffer) != 2) {
      return false;
    }
    const ScheduledStage& product = shape_.stage(Index(scores.sum()));
    const ScheduledStage& root = shape_.stage(Index(found.root.kernel.reduction));
    const Var& depth = product.reduce_axes[scores.product.depth];
    const Var& column = root.axes[found.values().own];
    const auto axes = AxesInRoot(found, scores);
    absl::flat_hash_set<const Variable*> seen;
    for (size_t d = 0; d < keys->args.size(); ++d) {
      const Expr &key = keys->args[d], &value = values->args[d];
      if (key->op == Op::kInt && StructurallyEqual(key, value)) continue;
      if (key->op != Op::kVar || value->op != Op::kVar || !seen.insert(key->var.get()).second) {
        return false;
      }
      if (key->var == depth) {
        if (value->var != column || column->extent != depth->extent) return false;
        continue;
      }
      const auto axis = axes.find(key->var.get());
      if (axis == axes.end() || value->var.get() != axis->second) return false;
    }
    return true;
  }

  // Loads of a tensor in all stages of the kernel.
  int LoadsOf(const RollingChain& found, const BufferRef& tensor) const {
    std::vector<StageRef> stages = found.statistics;
    stages.insert(stages.end(), {found.weights, found.root.kernel.reduction});
    if (found.root.kernel.root.tensor != found.root.kernel.reduction.tensor) {
      stages.push_back(found.root.kernel.root);
    }
    for (const ScoreProduct& s : found.scores) stages.push_back(s.sum());
    int loads = 0;
    for (const StageRef& s : stages) {
      Visit(shape_.stage(Index(s)).body,
            [&](const Expr& e) { loads += e->op == Op::kLoad && e->buffer == tensor ? 1 : 0; });
    }
    return loads;
  }

  // The root's axis, of data or of the reduction, of each axis of the scores that the weights read
  // them at.
  absl::flat_hash_map<const Variable*, const Variable*> AxesInRoot(
      const RollingChain& found, const ScoreProduct& scores) const {
    const ScheduledStage& root = shape_.stage(Index(found.root.kernel.reduction));
    const ScheduledStage& weights = shape_.stage(Index(found.weights));
    const ScheduledStage& product = shape_.stage(Index(scores.sum()));
    const auto add = [](const ScheduledStage& reader, const ScheduledStage& read) {
      absl::flat_hash_map<const Variable*, const Variable*> axes;
      Visit(reader.body, [&](const Expr& e) {
        if (e->op != Op::kLoad || e->buffer != read.tensor) return;
        for (size_t a = 0; a < e->args.size(); ++a) {
          if (e->args[a]->op == Op::kVar) axes[read.axes[a].get()] = e->args[a]->var.get();
        }
      });
      return axes;
    };
    auto axes = add(weights, product);
    const auto outer = add(root, weights);
    for (auto& [axis, in_weights] : axes) {
      const auto found_in_root = outer.find(in_weights);
      in_weights = found_in_root == outer.end() ? nullptr : found_in_root->second;
    }
    return axes;
  }

  // Tensors of which lanes that hold scores can hold the elements beside them, as copies of
  // float32: weights and statistics alone read them, one element for a score.
  std::vector<BesideScores> Beside(const RollingChain& found) const {
    const ScheduledStage& weights = shape_.stage(Index(found.weights));
    const Var& row = weights.axes[found.weights_row];
    const Var& term = weights.axes[found.weights_term];
    std::vector<BesideScores> all;
    std::vector<BufferRef> seen;
    for (const Expr& load : LoadsIn(weights.body)) {
      if (std::find(seen.begin(), seen.end(), load->buffer) != seen.end()) continue;
      seen.push_back(load->buffer);
      const auto at_row = AxisWith(load, row), at_term = AxisWith(load, term);
      if (!at_row || !at_term || !IsInMemory(load->buffer)) continue;
      const BesideScores beside{load->buffer, *at_row, *at_term};
      if (IsReadByChainOnly(found, load->buffer) && IsReadSo(weights, row, term, beside) &&
          IsReadSo(found, beside)) {
        all.push_back(beside);
      }
    }
    return all;
  }

  bool IsInMemory(const BufferRef& tensor) const {
    const int made_by = shape_.schedule.FindStage(tensor.get());
    return made_by < 0 || shape_.stage(made_by).materialized;
  }

  bool IsReadByChainOnly(const RollingChain& found, const BufferRef& tensor) const {
    std::vector<int> chain = {Index(found.weights)};
    for (const StageRef& s : found.statistics) chain.push_back(Index(s));
    const std::vector<int> readers = shape_.schedule.ReadersOf(tensor.get());
    return std::all_of(readers.begin(), readers.end(), [&](int r) {
      return std::find(chain.begin(), chain.end(), r) != chain.end();
    });
  }

  // At the score's own element, always at the same, and as float32.
  static bool IsReadSo(const ScheduledStage& reader, const Var& row, const Var& term,
                       const BesideScores& beside) {
    const bool is_float32 = beside.tensor->dtype == DType::kFloat32;
    int loads = 0, casts = 0;
    bool is_so = is_float32 || IsHalf(beside.tensor->dtype);
    Expr first;
    Visit(reader.body, [&](const Expr& e) {
      if (e->op == Op::kCast && e->args[0]->op == Op::kLoad &&
          e->args[0]->buffer == beside.tensor) {
        casts += e->type == DType::kFloat32 ? 1 : 0;
        is_so = is_so && e->type == DType::kFloat32;
      }
      if (e->op != Op::kLoad || e->buffer != beside.tensor) return;
      ++loads;
      is_so = is_so && (first == nullptr || StructurallyEqual(e, first));
      first = e;
    });
    if (first == nullptr) return true;
    for (size_t d = 0; d < first->args.size(); ++d) {
      const Var& var = d == beside.row ? row : d == beside.term ? term : nullptr;
      const Expr& index = first->args[d];
      is_so = is_so &&
              (var != nullptr ? IsVar(index, var) : !MentionsAny(index, {row.get(), term.get()}));
    }
    return is_so && (is_float32 || casts == loads);
  }

  bool IsReadSo(const RollingChain& found, const BesideScores& beside) const {
    for (size_t i = 0; i < found.statistics.size(); ++i) {
      const ScheduledStage& s = shape_.stage(Index(found.statistics[i]));
      if (!IsReadSo(s, s.axes[found.statistic_rows[i]], s.reduce_axes[0], beside)) return false;
    }
    return true;
  }

  bool FindProducts(RollingChain& found) {
    const auto root = ProductOf(chain_.root.root, chain_.root.reduction);
    if (!root || !IsHalf(root->Type())) return false;
    const auto weights = FactorOwning(*root, *chain_.row);
    if (!weights || root->factors[1 - *weights].own != chain_.columns[0]) return false;
    for (const ChainLink& link : chain_.links) {
      if (link.tiled.has_value() && !AddScores(link, found)) return false;
    }
    if (found.scores.empty() || found.scores.size() > kMostScores) return false;
    // Weights may be parts of float32 numbers, the sum of which the root makes, too.
    found.has_parts = IsOfParts(shape_.stage(Index(found.weights)));
    const size_t reduced = found.has_parts ? 2 : 1;
    if (root->kernel.reduce_axes.size() != reduced) return false;
    found.root = *root;
    found.weights_number = *weights;
    return true;
  }

  // Of the same type as others: one instruction makes them all.
  bool AddScores(const ChainLink& link, RollingChain& found) const {
    if (link.columns.size() != 1 || !link.row) return false;
    const auto product = ProductOf(link.result, link.reduction);
    if (!product || !IsHalf(product->Type()) || product->kernel.reduce_axes.size() != 1 ||
        (!found.scores.empty() && found.scores[0].product.Type() != product->Type())) {
      return false;
    }
    const auto queries = FactorOwning(*product, *link.row);
    if (!queries || product->factors[1 - *queries].own != link.columns[0]) return false;
    found.scores.push_back({*product, *queries});
    return true;
  }

  ProgramShape shape_;
  const ProgramShape whole_{{}, shape_.schedule, {}};
  const Chain& chain_;
  const Target& target_;
  const bool in_warpgroups_;
};

}  // namespace

std::optional<RollingChain> FindRollingChain(const ProgramShape& shape, const KernelShape& kernel,
                                             const Target& target, bool in_warpgroups) {
  const auto chain = FindChain(shape, kernel, target);
  if (!chain.has_value()) return std::nullopt;
  return RollingChainFinder(shape, *chain, target, in_warpgroups).Find();
}

}  // namespace heddle::search_space
