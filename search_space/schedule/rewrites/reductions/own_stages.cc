#include "search_space/schedule/rewrites/reductions/own_stages.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

using Tensors = absl::flat_hash_set<const Buffer*>;

// The stages that the stage is made of, itself among them.
Tensors MadeOf(const TensorProgram& program, const Stage& stage) {
  Tensors of = {stage.tensor.get()};
  for (auto s = program.stages.rbegin(); s != program.stages.rend(); ++s) {
    if (!of.contains(s->tensor.get())) continue;
    Visit(s->body, [&](const Expr& e) {
      if (e->op == Op::kLoad) of.insert(e->buffer.get());
    });
  }
  return of;
}

// What other outputs are made of.
Tensors MadeOfOthers(const TensorProgram& program, const Stage& output) {
  Tensors of;
  for (const Stage& other : program.stages) {
    if (other.is_output && other.tensor != output.tensor) of.merge(MadeOf(program, other));
  }
  return of;
}

// Whether an output is made of another one.
bool HasOutputsOfOthers(const TensorProgram& program) {
  return std::any_of(program.stages.begin(), program.stages.end(), [&](const Stage& output) {
    return output.is_output && MadeOfOthers(program, output).contains(output.tensor.get());
  });
}

// The large stages that the output shares with others.
Tensors SharedStages(const TensorProgram& program, const Stage& output) {
  const Tensors of = MadeOf(program, output), others = MadeOfOthers(program, output);
  Tensors shared;
  for (const Stage& s : program.stages) {
    const Buffer* tensor = s.tensor.get();
    if (of.contains(tensor) && others.contains(tensor) &&
        tensor->elements > output.tensor->elements) {
      shared.insert(tensor);
    }
  }
  return shared;
}

Stage WithOwnAxes(Stage stage) {
  absl::flat_hash_map<const Variable*, Expr> own;
  for (std::vector<Var>* axes : {&stage.axes, &stage.reduce_axes}) {
    for (Var& axis : *axes) {
      const Var fresh = MakeVar(axis->name, axis->extent);
      own.emplace(axis.get(), VarExpr(fresh));
      axis = fresh;
    }
  }
  stage.body = Substitute(stage.body, [&](const Var& v) -> Expr {
    const auto found = own.find(v.get());
    return found == own.end() ? nullptr : found->second;
  });
  return stage;
}

// A sum of what several tensors hold, such as a product of matrices.
bool IsProduct(const Stage& stage) {
  Tensors read;
  for (const Expr& load : LoadsIn(stage.body)) read.insert(load->buffer.get());
  return stage.combiner == Combiner::kSum && read.size() > 1;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithOwnStages(const TensorProgram& program,
                                                                   const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  const Stage& output = program.stages[number];
  const Tensors shared = SharedStages(program, output);
  if (!output.is_output || shared.empty() || HasOutputsOfOthers(program)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is no output that shares stages of more elements with others, none ",
                     "of which is made of another one"));
  }
  const Tensors of = MadeOf(program, output), others = MadeOfOthers(program, output);
  auto owning = std::make_shared<TensorProgram>(program);
  owning->stages.clear();
  absl::flat_hash_map<const Buffer*, BufferRef> copies;
  const auto of_copies = [&](Stage stage) {
    stage.body = Rewrite(stage.body, [&](const Expr& e) -> Expr {
      const auto copy = e->op == Op::kLoad ? copies.find(e->buffer.get()) : copies.end();
      return copy == copies.end() ? nullptr : Load(copy->second, e->args);
    });
    return stage;
  };
  for (const Stage& stage : program.stages) {
    const Buffer* tensor = stage.tensor.get();
    const bool is_own = of.contains(tensor) && !others.contains(tensor);
    owning->stages.push_back(is_own ? of_copies(stage) : stage);
    if (!shared.contains(tensor)) continue;
    Stage copy = WithOwnAxes(of_copies(stage));
    copy.tensor = MakeBuffer(absl::StrCat(stage.name(), ".of_", name), tensor->dtype,
                             Scope::kGlobal, tensor->shape);
    copies.emplace(tensor, copy.tensor);
    owning->stages.push_back(std::move(copy));
  }
  return owning;
}

std::vector<OwnStages> OutputsWorthOwnStages(const TensorProgram& program) {
  constexpr int64_t kMostOutputs = 8;
  std::vector<OwnStages> steps;
  const auto outputs = std::count_if(program.stages.begin(), program.stages.end(),
                                     [](const Stage& s) { return s.is_output; });
  if (outputs < 2 || outputs > kMostOutputs) return steps;
  TensorProgram owning = program;
  for (const Stage& output : program.stages) {
    if (!output.is_output) continue;
    const Stage& now = *owning.FindStage(output.tensor.get());
    const Tensors shared = SharedStages(owning, now);
    const bool is_worth = std::any_of(
        owning.stages.begin(), owning.stages.end(),
        [&](const Stage& s) { return shared.contains(s.tensor.get()) && IsProduct(s); });
    if (!is_worth) continue;
    auto more = WithOwnStages(owning, output.name());
    if (!more.ok()) return {};
    owning = **more;
    steps.push_back({output.name()});
  }
  return steps;
}

TensorProgram ProgramOfOutput(const TensorProgram& program, const std::string& name) {
  TensorProgram own = program;
  own.stages.clear();
  own.inputs.clear();
  const Stage* const at = program.FindStage(name);
  const Tensors of = MadeOf(program, *at), others = MadeOfOthers(program, *at);
  Tensors made;
  for (const Stage& s : program.stages) {
    const Buffer* tensor = s.tensor.get();
    if (!of.contains(tensor) || others.contains(tensor)) continue;
    made.insert(tensor);
    own.stages.push_back(s);
    own.stages.back().is_output = tensor == at->tensor.get();
  }
  Tensors seen;
  for (const Stage& s : own.stages) {
    Visit(s.body, [&](const Expr& e) {
      if (e->op != Op::kLoad || made.contains(e->buffer.get())) return;
      if (seen.insert(e->buffer.get()).second) own.inputs.push_back(e->buffer);
    });
  }
  return own;
}

absl::Status OwnStages::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithOwnStages);
}

}  // namespace heddle::search_space
