#include "search_space/lower/kernel.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/lower/nests/nest.h"
#include "search_space/lower/nests/scatter.h"
#include "search_space/lower/passes/passes.h"
#include "search_space/schedule/threads/launch_bounds.h"
#include "search_space/schedule/threads/persist.h"
#include "search_space/schedule/threads/scatter_in_memory.h"

namespace heddle::search_space {
namespace {

// After virtual threads, before shared buffers have their places.
constexpr struct {
  const char* name;
  Stmt (*run)(const Stmt&);
} kPasses[] = {
    {"vectorize_accesses", VectorizeAccesses},
    {"expand_deciding_loops", ExpandDecidingLoops},
    {"unroll_register_loops", UnrollRegisterLoops},
    {"order_register_tiles", OrderRegisterTiles},
    {"insert_barriers", InsertBarriers},
    {"insert_proxy_fences", InsertProxyFences},
};

bool IsBound(const Loop& l) {
  return l.kind == LoopKind::kBlock || l.kind == LoopKind::kThread || l.kind == LoopKind::kVthread;
}

absl::Status CheckRoot(const ScheduledStage& root) {
  bool serial_seen = false;
  for (const Loop& l : root.loops) {
    if (IsBound(l) && serial_seen) {
      return absl::InvalidArgumentError(absl::StrCat("loop ", l.var->name, " of ", root.name(),
                                                     " is bound but stands inside a serial loop; "
                                                     "reorder bound loops outermost"));
    }
    serial_seen = serial_seen || !IsBound(l);
  }
  if (root.is_reduction() && root.Note<ScatterInMemory>() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(root.name(),
                     " reduces into global memory; compute it in scope local at a loop of the "
                     "stage that reads it"));
  }
  return absl::OkStatus();
}

// What a block of those that stay does: `body` for one number after another.
Stmt EmitTurns(KernelContext& context, const Var& block, Stmt body) {
  const KernelContext::Persistent& turns = *context.persistent;
  if (turns.begin == nullptr) {
    return context.Fail(absl::StrCat("blocks of ", turns.number->name, " stay (persist) where a ",
                                     "pipeline of bulk copies goes on for the next: add ",
                                     "pipeline(.., .., bulk_copy, ..)"));
  }
  return Seq({ReplaceVar(turns.begin, turns.number, VarExpr(block)),
              ForEvery(turns.number, VarExpr(block), turns.blocks, std::move(body))});
}

absl::Status RunPasses(const std::vector<Var>& vthreads, PassObserver observe, Kernel& kernel) {
  for (size_t i = vthreads.size(); i-- > 0;) {
    if (vthreads[i]->extent == 1) continue;
    HEDDLE_ASSIGN_OR_RETURN(injected, InjectVirtualThread(kernel.body, vthreads[i]));
    kernel.body = std::move(injected);
    observe("inject_virtual_thread", kernel);
  }
  for (const auto& pass : kPasses) {
    kernel.body = pass.run(kernel.body);
    observe(pass.name, kernel);
  }
  PlaceSharedBuffers(kernel);
  observe("place_shared_buffers", kernel);
  return absl::OkStatus();
}

std::string KernelName(size_t number, const std::string& stage) {
  std::string name = absl::StrCat("k", number, "_", stage);
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

absl::StatusOr<std::vector<Kernel>> BuildScatterKernels(const Schedule& schedule, int root_index,
                                                        const Globals& globals, size_t first,
                                                        PassObserver observe) {
  const ScheduledStage& root = schedule.stage(root_index);
  const auto& scatter = *root.Note<ScatterInMemory>();
  const Var block = MakeVar("block", scatter.blocks), thread = MakeVar("thread", scatter.threads);
  KernelContext context{
      .schedule = schedule, .root = root_index, .globals = globals, .thread = thread};
  const std::vector<Stmt> bodies = EmitScatterInMemory(context, root_index, block);
  HEDDLE_RETURN_IF_ERROR(context.status);
  std::vector<Kernel> kernels;
  for (const Stmt& body : bodies) {
    Kernel& kernel = kernels.emplace_back(Kernel{
        .name = KernelName(first + kernels.size(), root.name()), .block = block, .thread = thread});
    kernel.body = body;
    observe("emit", kernel);
    HEDDLE_RETURN_IF_ERROR(RunPasses({}, observe, kernel));
  }
  return kernels;
}

}  // namespace

absl::StatusOr<std::vector<Kernel>> BuildKernels(const Schedule& schedule, int root_index,
                                                 const Globals& globals, size_t first,
                                                 PassObserver observe) {
  const ScheduledStage& root = schedule.stage(root_index);
  HEDDLE_RETURN_IF_ERROR(CheckRoot(root));
  if (root.Note<ScatterInMemory>() != nullptr) {
    return BuildScatterKernels(schedule, root_index, globals, first, observe);
  }
  Kernel kernel{.name = KernelName(first, root.name()),
                .block = MakeVar("block", 1),
                .thread = MakeVar("thread", 1)};
  std::vector<Var> vthreads;
  for (const Loop& l : root.loops) {
    if (l.kind == LoopKind::kBlock) kernel.block = l.var;
    if (l.kind == LoopKind::kThread) kernel.thread = l.var;
    if (l.kind == LoopKind::kVthread) vthreads.push_back(l.var);
  }
  if (const auto* bounds = root.Note<LaunchBounds>()) {
    kernel.min_blocks = static_cast<int>(bounds->min_blocks);
  }
  KernelContext context{
      .schedule = schedule, .root = root_index, .globals = globals, .thread = kernel.thread};
  if (const auto* persist = root.Note<Persist>()) {
    context.persistent = {.number = kernel.block, .blocks = persist->blocks, .begin = nullptr};
    kernel.block = MakeVar("block", persist->blocks);
  }
  kernel.body = EmitStage(context, root_index, {});
  if (context.persistent.has_value()) kernel.body = EmitTurns(context, kernel.block, kernel.body);
  HEDDLE_RETURN_IF_ERROR(context.status);
  observe("emit", kernel);
  HEDDLE_RETURN_IF_ERROR(RunPasses(vthreads, observe, kernel));
  return std::vector<Kernel>{std::move(kernel)};
}

}  // namespace heddle::search_space
