#include "search_space/schedule/rewrites/reductions/split_operand.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/parts.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

// The parts of a sum's factor, along an axis in front of its own: the dimensions of the tensor
// whose elements make it, or the sum's axes that it mentions.
struct Parts {
  Stage stage;
  ExprList at;  // where the sum reads them, behind the part's number
};

Parts MakeParts(const TensorProgram& program, const Stage& sum, const SplittableFactor& factor) {
  Parts parts;
  const Expr& load = factor.load;
  const Stage* const made = load == nullptr ? &sum : program.FindStage(load->buffer.get());
  std::vector<Var> axes;
  std::vector<int64_t> shape = {kPartCount};
  const auto add = [&](std::string name, int64_t extent, Expr at) {
    axes.push_back(MakeVar(std::move(name), extent));
    shape.push_back(extent);
    parts.at.push_back(std::move(at));
  };
  Expr value;
  if (load != nullptr) {
    for (size_t d = 0; d < load->args.size(); ++d) {
      add(made == nullptr ? absl::StrCat("d", d) : made->axes[d]->name, load->buffer->shape[d],
          load->args[d]);
    }
    ExprList at;
    for (const Var& axis : axes) at.push_back(VarExpr(axis));
    const Expr element = Load(load->buffer, std::move(at));
    value = Rewrite(factor.value, [&](const Expr& node) -> Expr {
      return StructurallyEqual(node, load) ? element : nullptr;
    });
  } else {
    std::vector<Var> mentioned;
    for (const auto* of : {&sum.axes, &sum.reduce_axes}) {
      for (const Var& axis : *of) {
        if (!MentionsAny(factor.value, {axis.get()})) continue;
        mentioned.push_back(axis);
        add(axis->name, axis->extent, VarExpr(axis));
      }
    }
    value = Substitute(factor.value, [&](const Var& var) -> Expr {
      const auto axis = std::find(mentioned.begin(), mentioned.end(), var);
      if (axis == mentioned.end()) return nullptr;
      return VarExpr(axes[static_cast<size_t>(axis - mentioned.begin())]);
    });
  }
  const Var part = MakeVar(made == nullptr ? "p" : made->UnusedAxisName("p"), kPartCount);
  // Other factors of a sum that is itself split have other names than its own parts.
  const bool is_stage = load != nullptr && made != nullptr && factor.value->op == Op::kLoad;
  const std::string of = is_stage ? load->buffer->name : absl::StrCat(sum.name(), ".factor");
  parts.stage.tensor =
      MakeBuffer(absl::StrCat(of, ".parts"), kPartType, Scope::kGlobal, std::move(shape));
  parts.stage.axes = std::move(axes);
  parts.stage.axes.insert(parts.stage.axes.begin(), part);
  parts.stage.body = PartOf(VarExpr(part), value);
  return parts;
}

// The place of a stage of the program that is the same parts already; the number of stages where
// there is none.
size_t PlaceOfKnown(const TensorProgram& program, const Stage& parts) {
  const auto is_same = [&](const Stage& s) {
    if (s.is_reduction() || s.tensor->dtype != kPartType ||
        s.tensor->shape != parts.tensor->shape) {
      return false;
    }
    const Expr body = Substitute(parts.body, [&](const Var& var) -> Expr {
      const auto axis = std::find(parts.axes.begin(), parts.axes.end(), var);
      if (axis == parts.axes.end()) return nullptr;
      return VarExpr(s.axes[static_cast<size_t>(axis - parts.axes.begin())]);
    });
    return StructurallyEqual(body, s.body);
  };
  const auto known = std::find_if(program.stages.begin(), program.stages.end(), is_same);
  return static_cast<size_t>(known - program.stages.begin());
}

// `sum` with an axis more, along which it reads `parts` at `at` in the place of the factors.
Stage OverParts(const Stage& sum, const std::vector<Expr>& factors, const BufferRef& parts,
                ExprList at) {
  Stage over = sum;
  const Var part = MakeVar(sum.UnusedAxisName("p"), kPartCount);
  over.reduce_axes.insert(over.reduce_axes.begin(), part);
  at.insert(at.begin(), VarExpr(part));
  const Expr load = Cast(sum.body->type, Load(parts, std::move(at)));
  const Expr none = Float(1, sum.body->type);
  over.body = Rewrite(sum.body, [&](const Expr& node) -> Expr {
    const auto factor = std::find(factors.begin(), factors.end(), node);
    if (factor != factors.end()) return factor == factors.begin() ? load : none;
    if (node->op != Op::kMul || (node->args[0] != none && node->args[1] != none)) return nullptr;
    return node->args[node->args[0] == none ? 1 : 0];
  });
  return over;
}

}  // namespace

bool IsOfParts(const ScheduledStage& stage) {
  if (stage.is_reduction() || stage.tensor->dtype != kPartType || stage.axes.empty() ||
      stage.axes[0]->extent != kPartCount || stage.body->op != Op::kCast) {
    return false;
  }
  const Expr& value = stage.body->args[0];
  if (WholeOf(value) == nullptr) return false;
  const Expr& part = value->args[0]->args[0];
  return IsVar(part, stage.axes[0]);
}

bool StoresParts(const Schedule& schedule, const ScheduledStage& stage) {
  if (!stage.materialized || IsOfParts(stage)) return stage.materialized;
  const int copied =
      stage.body->op == Op::kLoad ? schedule.FindStage(stage.body->buffer.get()) : -1;
  return copied >= 0 && IsOfParts(schedule.stage(copied));
}

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithSplitOperand(const TensorProgram& program,
                                                                      const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(at, StageNumber(program, name));
  const Stage* const sum = &program.stages[at];
  const std::optional<SplittableFactor> factor = FindSplittable(program, *sum);
  if (!factor.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is no sum of products of a float32 factor and of numbers that are bfloat16"));
  }
  auto split = std::make_shared<TensorProgram>(program);
  Parts parts = MakeParts(program, *sum, *factor);
  const size_t known = PlaceOfKnown(program, parts.stage);
  if (known < program.stages.size()) parts.stage = program.stages[known];
  split->stages[at] = OverParts(*sum, factor->factors, parts.stage.tensor, std::move(parts.at));
  if (known < at) return split;
  // Before the first that reads it: what it is made of is there already.
  if (known < program.stages.size()) {
    split->stages.erase(split->stages.begin() + static_cast<std::ptrdiff_t>(known));
  }
  split->stages.insert(split->stages.begin() + static_cast<std::ptrdiff_t>(at),
                       std::move(parts.stage));
  return split;
}

absl::Status SplitOperand::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithSplitOperand);
}

}  // namespace heddle::search_space
