#include "search_space/lower/lower.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/lower/kernel.h"
#include "search_space/lower/passes/passes.h"
#include "search_space/schedule/analysis/scattered_terms.h"
#include "search_space/schedule/threads/scatter_in_memory.h"

namespace heddle::search_space {
namespace {

// The global buffers that a kernel touches: those read in the program's order, then the written.
void CollectArguments(const Program& program, Kernel& kernel) {
  absl::flat_hash_set<const Buffer*> read, written;
  const bool has_indices =
      std::any_of(program.inputs.begin(), program.inputs.end(),
                  [](const BufferRef& input) { return input->dtype == DType::kInt32; });
  VisitStmts(kernel.body, [&](const StmtNode& s) {
    VisitExprs(s, [&](const Expr& e) {
      VisitLoads(e, [&](const Expr& load) { read.insert(load->buffer.get()); });
      if (!has_indices) return;
      Visit(e, [&](const Expr& node) {
        if (node->op == Op::kLoad) read.insert(node->buffer.get());
      });
    });
    if (s.buffer != nullptr && s.kind != StmtNode::Kind::kAlloc) written.insert(s.buffer.get());
  });
  for (const auto* list : {&program.inputs, &program.workspaces, &program.outputs}) {
    for (const BufferRef& b : *list) {
      if (!read.contains(b.get()) && !written.contains(b.get())) continue;
      kernel.arguments.push_back(b);
      kernel.written.push_back(written.contains(b.get()));
    }
  }
}

// Inlining may show that nothing is read of a reduction, such as where all that is left is padding:
// then no kernel computes it.
bool IsUnread(const Schedule& schedule, const ScheduledStage& nest) {
  const std::vector<const ScheduledStage*> all = schedule.Together(nest);
  return std::all_of(all.begin(), all.end(), [&](const ScheduledStage* s) {
    return s->is_reduction() && schedule.ReadersOf(s->tensor.get()).empty();
  });
}

// Does the stage store each element of what it reads where it lies, and nothing else?
bool IsCopy(const ScheduledStage& stage) {
  if (stage.is_reduction() || stage.body->op != Op::kLoad ||
      stage.body->buffer->dtype != stage.tensor->dtype ||
      stage.body->buffer->shape != stage.tensor->shape) {
    return false;
  }
  for (size_t i = 0; i < stage.axes.size(); ++i) {
    const Expr& index = stage.body->args[i];
    const bool is_own = index->op == Op::kVar ? index->var == stage.axes[i]
                                              : stage.axes[i]->extent == 1 && IsInt(index, 0);
    if (!is_own) return false;
  }
  return true;
}

// What a stage only repeats of a reduction that is scattered in global memory, and that nobody else
// reads; null of every other stage.
const ScheduledStage* RepeatedBy(const Schedule& schedule, const ScheduledStage& stage) {
  if (!IsCopy(stage)) return nullptr;
  const Buffer* read = stage.body->buffer.get();
  const int number = schedule.FindStage(read);
  if (number < 0 || schedule.ReadersOf(read).size() != 1) return nullptr;
  const ScheduledStage& reduced = schedule.stage(number);
  if (!IsScatteredInMemory(schedule, reduced)) return nullptr;
  // Integers are of another type, and what is stored in several turns is no result before the last.
  const std::vector<ScatteredTerms> terms = ScatteredTermsOf(reduced);
  const bool is_result =
      !terms.empty() && terms[0].whole == nullptr && terms[0].HasIdentity(reduced.combiner);
  return is_result ? &reduced : nullptr;
}

// Do all stages of a kernel only repeat such reductions? They are the same tensors then.
bool IsRepetition(const Schedule& schedule, const ScheduledStage& nest) {
  const std::vector<const ScheduledStage*> all = schedule.Together(nest);
  return nest.is_root() && std::all_of(all.begin(), all.end(), [&](const ScheduledStage* s) {
           return RepeatedBy(schedule, *s) != nullptr;
         });
}

bool IsRepeated(const Schedule& schedule, const ScheduledStage& reduced) {
  const std::vector<int> readers = schedule.ReadersOf(reduced.tensor.get());
  return readers.size() == 1 && IsRepetition(schedule, schedule.NestOf(schedule.stage(readers[0])));
}

// The tensors in global memory, by what loads refer to, among the program's.
Globals AddTensors(const Schedule& schedule, Program& program) {
  Globals globals;
  for (const BufferRef& input : program.inputs) globals[input.get()] = input;
  for (const ScheduledStage& s : schedule.stages()) {
    const ScheduledStage& nest = schedule.NestOf(s);
    if (!nest.is_root() || IsUnread(schedule, nest)) continue;
    BufferRef tensor = s.tensor;
    if (IsScatteredInMemory(schedule, s)) {
      if (IsRepeated(schedule, s)) continue;  // below, with what repeats it
      if (AddsIntegers(s)) {
        Buffer whole = *s.tensor;
        whole.dtype = DType::kInt32;
        tensor = std::make_shared<const Buffer>(std::move(whole));
      }
    }
    globals[s.tensor.get()] = tensor;
    if (IsRepetition(schedule, nest)) globals[RepeatedBy(schedule, s)->tensor.get()] = tensor;
    (s.is_output ? program.outputs : program.workspaces).push_back(tensor);
  }
  return globals;
}

}  // namespace

absl::StatusOr<Program> Lower(const Schedule& schedule) {
  return Lower(schedule, [](const ScheduledStage&) { return true; });
}

absl::StatusOr<Program> Lower(const Schedule& schedule,
                              absl::FunctionRef<bool(const ScheduledStage&)> wanted) {
  return Lower(schedule, wanted, [](absl::string_view, const Kernel&) {});
}

absl::StatusOr<Program> Lower(const Schedule& schedule,
                              absl::FunctionRef<bool(const ScheduledStage&)> wanted,
                              PassObserver observe) {
  Program program;
  program.op = schedule.program().op;
  program.inputs = schedule.program().inputs;
  const Globals globals = AddTensors(schedule, program);
  for (size_t i = 0; i < schedule.stages().size(); ++i) {
    const ScheduledStage& s = schedule.stages()[i];
    if (!s.is_root() || IsUnread(schedule, s) || !wanted(s)) continue;
    if (s.scope != Scope::kGlobal) {
      return absl::InvalidArgumentError(
          absl::StrCat("stage ", s.name(), " has scope ", NameOf(s.scope),
                       " but is not computed in any loop; add compute_at"));
    }
    if (IsRepetition(schedule, s)) continue;
    HEDDLE_ASSIGN_OR_RETURN(kernels, BuildKernels(schedule, static_cast<int>(i), globals,
                                                  program.kernels.size(), observe));
    for (Kernel& kernel : kernels) {
      CollectArguments(program, kernel);
      program.kernels.push_back(std::move(kernel));
    }
  }
  return program;
}

}  // namespace heddle::search_space
