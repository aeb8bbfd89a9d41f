#include "search_space/schedule/split_operand.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/ir/parts.h"

namespace heddle::search_space {
namespace {

// The parts of `stage`, along an axis in front of its own.
Stage PartsOf(const Stage& stage) {
  Stage parts;
  parts.axes.push_back(MakeVar(stage.UnusedAxisName("p"), kPartCount));
  std::vector<int64_t> shape = {kPartCount};
  ExprList at;
  for (const Var& axis : stage.axes) {
    parts.axes.push_back(MakeVar(axis->name, axis->extent));
    shape.push_back(axis->extent);
    at.push_back(VarExpr(parts.axes.back()));
  }
  parts.tensor = MakeBuffer(PartsNameOf(stage.name()), kPartType, Scope::kGlobal, std::move(shape));
  parts.body = PartOf(VarExpr(parts.axes[0]), Load(stage.tensor, std::move(at)));
  return parts;
}

// `sum` with an axis more, along which it reads `parts` in the place of `load`.
Stage OverParts(const Stage& sum, const Expr& load, const BufferRef& parts) {
  Stage over = sum;
  const Var part = MakeVar(sum.UnusedAxisName("p"), kPartCount);
  over.reduce_axes.insert(over.reduce_axes.begin(), part);
  over.body = Rewrite(sum.body, [&](const Expr& node) -> Expr {
    if (node != load) return nullptr;
    ExprList at = load->args;
    at.insert(at.begin(), VarExpr(part));
    return Cast(load->type, Load(parts, std::move(at)));
  });
  return over;
}

}  // namespace

std::string PartsNameOf(const std::string& stage) { return absl::StrCat(stage, ".parts"); }

bool IsOfParts(const ScheduledStage& stage) {
  if (stage.is_reduction() || stage.tensor->dtype != kPartType || stage.axes.empty() ||
      stage.axes[0]->extent != kPartCount || stage.body->op != Op::kCast) {
    return false;
  }
  const Expr& value = stage.body->args[0];
  if (WholeOf(value) == nullptr) return false;
  const Expr& part = value->args[0]->args[0];
  return part->op == Op::kVar && part->var == stage.axes[0];
}

bool StoresParts(const Schedule& schedule, const ScheduledStage& stage) {
  if (!stage.materialized || IsOfParts(stage)) return stage.materialized;
  const int copied =
      stage.body->op == Op::kLoad ? schedule.FindStage(stage.body->buffer.get()) : -1;
  return copied >= 0 && IsOfParts(schedule.stages()[static_cast<size_t>(copied)]);
}

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithSplitOperand(const TensorProgram& program,
                                                                      const std::string& name) {
  const auto named = [&](const std::string& stage) {
    return std::find_if(program.stages.begin(), program.stages.end(),
                        [&](const Stage& s) { return s.name() == stage; });
  };
  const auto sum = named(name);
  if (sum == program.stages.end()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is no stage of ", program.op));
  }
  const Expr load = SplittableFactor(program, *sum);
  if (load == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is no sum of products of a float32 stage and of numbers that are bfloat16"));
  }
  auto split = std::make_shared<TensorProgram>(program);
  const auto known = named(PartsNameOf(load->buffer->name));
  const auto at = split->stages.begin() + (sum - program.stages.begin());
  if (known != program.stages.end()) {
    *at = OverParts(*sum, load, known->tensor);
    return split;
  }
  Stage parts = PartsOf(*program.FindStage(load->buffer.get()));
  *at = OverParts(*sum, load, parts.tensor);
  split->stages.insert(at, std::move(parts));
  return split;
}

}  // namespace heddle::search_space
