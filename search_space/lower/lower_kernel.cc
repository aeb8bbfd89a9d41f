#include "search_space/lower/lower_kernel.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/lower/collectives.h"
#include "search_space/lower/passes.h"

namespace heddle::search_space {

Stmt KernelBuilder::Fail(const std::string& why) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(why);
  return Seq({});
}

int KernelBuilder::DepthOf(const ScheduledStage& stage, const Expr& e) {
  int depth = -1;
  Visit(e, [&](const Expr& node) {
    if (node->op == Op::kVar) depth = std::max(depth, stage.FindLoop(node->var));
  });
  return depth;
}

Stmt KernelBuilder::ReplaceVar(const Stmt& s, const Var& var, const Expr& value) {
  return RewriteStmt(s, nullptr, [&](const Expr& e) { return SimplifyAt(e, var, value); });
}

std::vector<int> KernelBuilder::AttachedAt(int consumer, const Var& loop) const {
  std::vector<int> attached;
  for (size_t i = 0; i < schedule_.stages().size(); ++i) {
    const ScheduledStage& s = schedule_.stages()[i];
    if (s.consumer == consumer && s.attach_loop == loop) attached.push_back(static_cast<int>(i));
  }
  return attached;
}

// Is a stage that threads compute together computed, or are its copies started, in the loops of `s`
// at `depth` or deeper?
bool KernelBuilder::HasCollectiveBelow(int s, size_t depth) const {
  const std::vector<Loop>& loops = stage(s).loops;
  for (size_t l = depth; l < loops.size(); ++l) {
    if (interleaved_.contains(s) && stage(s).Note<Interleave>()->loop == loops[l].var->name)
      return true;
    for (int a : AttachedAt(s, loops[l].var)) {
      if (stage(a).scope == Scope::kShared || stage(a).shared_reduction() != nullptr ||
          HasCollectiveBelow(a, 0)) {
        return true;
      }
    }
  }
  return false;
}

void KernelBuilder::Allocate(int s, int64_t copies) {
  const ScheduledStage& here = stage(s);
  Buffer buffer;
  buffer.name = here.name();
  buffer.dtype = here.tensor->dtype;
  buffer.scope = here.scope;
  buffer.shape = here.extent;
  if (here.Note<Spread>() != nullptr) buffer.shape.back() /= here.Note<Spread>()->threads;
  buffer.strides.resize(here.extent.size());
  const auto* layout = here.Note<StorageLayout>();
  const auto* fetch = here.Note<Fetch>();
  const int64_t swizzle = layout != nullptr ? layout->swizzle : 0;
  int64_t stride = 1;
  for (size_t i = here.extent.size(); i-- > 0;) {
    const size_t axis =
        layout == nullptr ? i : static_cast<size_t>(here.FindAxis(layout->order[i]));
    buffer.strides[axis] = stride;
    stride *= buffer.shape[axis];
    if (i + 1 == here.extent.size()) {
      const int64_t row = stride;
      stride += layout != nullptr ? layout->pad : 0;
      const int64_t chunks = swizzle > 0 ? row / swizzle : 0;
      if (chunks > 1 && row % swizzle == 0 && (chunks & (chunks - 1)) == 0) {
        buffer.swizzle = swizzle;
        buffer.swizzle_row = row;
      }
    }
  }
  if (buffer.swizzle > 0 && fetch != nullptr) {
    // A wide access of the fetch that runs across rows stores to that many of them at once: the
    // next ones meet other banks.
    const int64_t rows = buffer.strides.back() / buffer.swizzle_row;
    buffer.swizzle_period = std::max<int64_t>(1, rows * fetch->vector);
  }
  buffer.elements = stride;
  if (copies > 1) {
    // Each copy starts 16-byte aligned.
    const int64_t unit = std::max<int64_t>(1, 16 / SizeOf(buffer.dtype));
    stride = (stride + unit - 1) / unit * unit;
    if (buffer.swizzle > 0) {
      stride = (stride + buffer.swizzle_row - 1) / buffer.swizzle_row * buffer.swizzle_row;
      buffer.swizzle_copy = stride;
    }
    buffer.shape.insert(buffer.shape.begin(), copies);
    buffer.strides.insert(buffer.strides.begin(), stride);
    buffer.elements = stride * copies;
  }
  storage_[s] = std::make_shared<const Buffer>(std::move(buffer));
}

Stmt KernelBuilder::EmitStage(int s, Assumptions assumptions) {
  const ScheduledStage& here = stage(s);
  if (here.Note<Fetch>() != nullptr) {
    return EmitFetch(s, FetchPart::kWhole, nullptr, nullptr, assumptions);
  }
  if (here.scope == Scope::kShared) {
    const bool spread = std::any_of(here.loops.begin(), here.loops.end(),
                                    [](const Loop& l) { return l.kind == LoopKind::kThread; });
    if (!spread) {
      return Fail(absl::StrCat("shared stage ", here.name(),
                               " needs fetch, or a loop bound to thread: now every thread would "
                               "compute all of it"));
    }
  }
  Stmt nest = EmitLoops(s, 0, GuardsOf(s), std::move(assumptions));
  const Loop* shared = here.shared_reduction();
  return shared != nullptr ? Seq({nest, EmitCombine(s, *shared)}) : nest;
}

Stmt KernelBuilder::EmitCombine(int s, const Loop& shared) {
  const int64_t threads = thread_->extent, parts = shared.var->extent;
  if (threads % kWarpThreads != 0 || threads % parts != 0) {
    return Fail(absl::StrCat(parts, " threads share the reduction ", stage(s).name(),
                             ", but the block has ", threads,
                             ": it must be whole warps and whole groups"));
  }
  const BufferRef& registers = storage_.at(s);
  if (!shared.sliced) return CombineNeighbours(stage(s).combiner, registers, thread_, parts);
  std::vector<Var> vthreads;
  for (const Loop& l : stage(root_).loops) {
    if (l.kind == LoopKind::kVthread && l.var->extent > 1) vthreads.push_back(l.var);
  }
  return CombineSlices(stage(s).combiner, registers, thread_, parts, vthreads);
}

Stmt KernelBuilder::EmitLoops(int s, size_t depth, std::vector<Expr> guards,
                              Assumptions assumptions) {
  const ScheduledStage& here = stage(s);
  if (depth == here.loops.size()) {
    for (const Expr& g : guards) assumptions.push_back(g);
    Stmt compute = EmitCompute(s, assumptions);
    Expr condition;
    for (const Expr& g : guards) condition = AndAlso(condition, g);
    return condition == nullptr ? compute : If(condition, compute);
  }
  const Loop& loop = here.loops[depth];
  Stmt init;
  const bool first_reduce =
      loop.reduce &&
      std::none_of(here.loops.begin(), here.loops.begin() + static_cast<std::ptrdiff_t>(depth),
                   [](const Loop& l) { return l.reduce; });
  if (first_reduce) init = EmitInit(s, depth, guards);
  // Guards whose variables are all bound now stand here, unless barriers stand below.
  Expr condition;
  if (!HasCollectiveBelow(s, depth)) {
    std::vector<Expr> later;
    for (const Expr& g : guards) {
      if (DepthOf(here, g) <= static_cast<int>(depth)) {
        condition = AndAlso(condition, g);
        assumptions.push_back(g);
      } else {
        later.push_back(g);
      }
    }
    guards = std::move(later);
  }
  const auto* pipeline = here.Note<Pipeline>();
  const bool pipelined = pipeline != nullptr && pipeline->loop == loop.var->name;
  if (pipelined) return Seq({init, EmitPipeline(s, depth, guards, assumptions)});
  Stmt body = EmitLoopBody(s, depth, guards, assumptions);
  if (condition != nullptr) body = If(condition, body);
  switch (loop.kind) {
    case LoopKind::kSerial:
    case LoopKind::kUnrolled:
    case LoopKind::kVector: {
      static constexpr ForKind kKinds[] = {ForKind::kSerial, ForKind::kUnrolled, ForKind::kVector};
      if (loop.var->extent > 1) body = For(loop.var, kKinds[static_cast<int>(loop.kind)], body);
      break;
    }
    case LoopKind::kThread:
      if (s == root_) break;  // the kernel's own thread variable
      if (loop.var->extent > thread_->extent) {
        return Fail(absl::StrCat("loop ", loop.var->name, " of ", here.name(), " wants ",
                                 loop.var->extent, " threads; the kernel has ", thread_->extent));
      }
      if (here.scope == Scope::kLocal) {
        body = ReplaceVar(body, loop.var, PartOf(loop));
        break;
      }
      body = ReplaceVar(body, loop.var, VarExpr(thread_));
      if (loop.var->extent < thread_->extent) {
        body = If(VarExpr(thread_) < Int(loop.var->extent), body);
      }
      break;
    case LoopKind::kBlock:
    case LoopKind::kVthread:
      break;
  }
  return Seq({init, body});
}

// What stands inside one loop: attached stages, then the rest of the nest.
Stmt KernelBuilder::EmitLoopBody(int s, size_t depth, const std::vector<Expr>& guards,
                                 const Assumptions& assumptions) {
  std::vector<Stmt> body;
  std::vector<BufferRef> locals;
  for (int a : AttachedAt(s, stage(s).loops[depth].var)) {
    if (storage_.contains(a)) continue;  // moved by a pipeline
    Allocate(a, 1);
    Stmt nest = EmitStage(a, assumptions);
    if (stage(a).scope == Scope::kLocal) locals.push_back(storage_.at(a));
    body.push_back(std::move(nest));
  }
  if (interleaved_.contains(s) &&
      stage(s).Note<Interleave>()->loop == stage(s).loops[depth].var->name) {
    body.push_back(interleaved_.at(s));
  }
  body.push_back(EmitLoops(s, depth + 1, guards, assumptions));
  Stmt out = Seq(std::move(body));
  for (const BufferRef& local : locals) out = Alloc(local, out);
  return out;
}

Stmt KernelBuilder::EmitInit(int s, size_t first_reduce, const std::vector<Expr>& guards) {
  const ScheduledStage& here = stage(s);
  ExprList indices;
  for (size_t i = 0; i < here.axes.size(); ++i) indices.push_back(Simplify(here.values[i]));
  const BufferRef& buffer = storage_.at(s);
  Stmt init = Store(buffer, std::move(indices), IdentityOf(here.combiner, buffer->dtype));
  Expr condition;
  for (const Expr& g : guards) {
    bool reduces = false;
    Visit(g, [&](const Expr& node) {
      const int l = node->op == Op::kVar ? here.FindLoop(node->var) : -1;
      reduces = reduces || (l >= 0 && here.loops[static_cast<size_t>(l)].reduce);
    });
    if (!reduces) condition = AndAlso(condition, g);
  }
  if (condition != nullptr) init = If(condition, init);
  for (size_t l = here.loops.size(); l-- > first_reduce;) {
    const Loop& loop = here.loops[l];
    if (loop.reduce || loop.var->extent == 1) continue;
    const Var fresh = MakeVar(loop.var->name, loop.var->extent);
    init = For(fresh, ForKind::kSerial, ReplaceVar(init, loop.var, VarExpr(fresh)));
  }
  return init;
}

Stmt KernelBuilder::EmitCompute(int s, const Assumptions& assumptions) {
  const ScheduledStage& here = stage(s);
  ExprList indices;
  for (size_t i = 0; i < here.axes.size(); ++i) indices.push_back(Simplify(here.values[i]));
  Expr value = Resolve(AtLoops(s, here.body), assumptions);
  const BufferRef buffer = here.is_root() ? globals_.at(here.tensor.get()) : storage_.at(s);
  if (slots_.contains(s)) indices.insert(indices.begin(), slots_.at(s));
  if (here.Note<Spread>() != nullptr) indices.back() = HeldAt(*here.Note<Spread>(), indices.back());
  if (here.is_reduction()) value = Combine(here.combiner, Load(buffer, indices), value);
  return Store(buffer, std::move(indices), std::move(value));
}

absl::StatusOr<Kernel> KernelBuilder::Build(const std::string& name) {
  const ScheduledStage& root = stage(root_);
  Kernel kernel;
  kernel.name = name;
  std::vector<Var> vthreads;
  bool serial_seen = false;
  for (const Loop& l : root.loops) {
    const bool bound =
        l.kind == LoopKind::kBlock || l.kind == LoopKind::kThread || l.kind == LoopKind::kVthread;
    if (bound && serial_seen) {
      return absl::InvalidArgumentError(absl::StrCat("loop ", l.var->name, " of ", root.name(),
                                                     " is bound but stands inside a serial loop; "
                                                     "reorder bound loops outermost"));
    }
    serial_seen = serial_seen || !bound;
    if (l.kind == LoopKind::kBlock) kernel.block = l.var;
    if (l.kind == LoopKind::kThread) kernel.thread = l.var;
    if (l.kind == LoopKind::kVthread) vthreads.push_back(l.var);
  }
  if (root.is_reduction()) {
    return absl::InvalidArgumentError(
        absl::StrCat(root.name(),
                     " reduces into global memory; compute it in scope local at a loop of the "
                     "stage that reads it"));
  }
  if (kernel.block == nullptr) kernel.block = MakeVar("block", 1);
  if (kernel.thread == nullptr) kernel.thread = MakeVar("thread", 1);
  thread_ = kernel.thread;
  kernel.min_blocks = root.Note<LaunchBounds>() == nullptr
                          ? 0
                          : static_cast<int>(root.Note<LaunchBounds>()->min_blocks);
  Stmt body = EmitStage(root_, {});
  if (!status_.ok()) return status_;
  for (size_t i = vthreads.size(); i-- > 0;) {
    if (vthreads[i]->extent == 1) continue;
    absl::StatusOr<Stmt> injected = InjectVirtualThread(body, vthreads[i]);
    if (!injected.ok()) return injected.status();
    body = *std::move(injected);
  }
  body = VectorizeAccesses(body);
  body = ExpandDecidingLoops(body);
  body = UnrollRegisterLoops(body);
  body = OrderRegisterTiles(body);
  kernel.body = InsertBarriers(body, managed_);
  PlaceSharedBuffers(kernel);
  return kernel;
}

}  // namespace heddle::search_space
