#include "search_space/lower/lower.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/lower/kernel.h"
#include "search_space/lower/passes.h"

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

std::string KernelName(size_t index, const std::string& stage) {
  std::string name = absl::StrCat("k", index, "_", stage);
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

// Inlining may show that nothing is read of a reduction, such as where all that is left is padding:
// then no kernel computes it.
bool IsUnread(const Schedule& schedule, const ScheduledStage& s) {
  return s.is_reduction() && schedule.ReadersOf(s.tensor.get()).empty();
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
  Globals globals;
  for (const BufferRef& input : program.inputs) globals[input.get()] = input;
  for (const ScheduledStage& s : schedule.stages()) {
    if (!schedule.NestOf(s).is_root() || IsUnread(schedule, s)) continue;
    globals[s.tensor.get()] = s.tensor;
    (s.is_output ? program.outputs : program.workspaces).push_back(s.tensor);
  }
  for (size_t i = 0; i < schedule.stages().size(); ++i) {
    const ScheduledStage& s = schedule.stages()[i];
    if (!s.is_root() || IsUnread(schedule, s) || !wanted(s)) continue;
    if (s.scope != Scope::kGlobal) {
      return absl::InvalidArgumentError(
          absl::StrCat("stage ", s.name(), " has scope ", NameOf(s.scope),
                       " but is not computed in any loop; add compute_at"));
    }
    HEDDLE_ASSIGN_OR_RETURN(kernel,
                            BuildKernel(schedule, static_cast<int>(i), globals,
                                        KernelName(program.kernels.size(), s.name()), observe));
    CollectArguments(program, kernel);
    program.kernels.push_back(std::move(kernel));
  }
  return program;
}

}  // namespace heddle::search_space
