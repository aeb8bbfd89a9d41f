#include "search_space/lower.h"

#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "search_space/collectives.h"
#include "search_space/fetch_grid.h"
#include "search_space/passes.h"
#include "search_space/simplify.h"

namespace heddle::search_space {
namespace {

// A condition that holds for everything emitted below the point where it was assumed.
using Assumptions = std::vector<Expr>;

constexpr int64_t kMaxUnrolledFetch = 32;

// Builds the body of one kernel: the loop nest of its root stage with the nests of the attached
// stages inside.
class KernelBuilder {
 public:
  KernelBuilder(const Schedule& schedule, int root,
                const absl::flat_hash_map<const Buffer*, BufferRef>& globals)
      : schedule_(schedule), root_(root), globals_(globals) {}

  absl::StatusOr<Kernel> Build(const std::string& name);

 private:
  // How deep in the stage's nest a loop variable is bound; -1 when outside.
  static int DepthOf(const ScheduledStage& stage, const Expr& e);
  // One load or store with the loop variable of a pipeline replaced.
  static Stmt ReplaceVar(const Stmt& s, const Var& var, const Expr& value);

  const ScheduledStage& stage(int i) const { return schedule_.stages()[static_cast<size_t>(i)]; }
  std::vector<int> AttachedAt(int consumer, const Var& loop) const;
  bool HasCollectiveBelow(int s, size_t depth) const;

  Stmt EmitStage(int s, Assumptions assumptions);
  Stmt EmitLoops(int s, size_t depth, std::vector<Expr> guards, Assumptions assumptions);
  Stmt EmitInit(int s, size_t first_reduce, const std::vector<Expr>& guards);
  Stmt EmitCompute(int s, const Assumptions& assumptions);
  // Combines what the threads that share the loop have reduced.
  Stmt EmitCombine(int s, const Loop& shared);
  Stmt EmitLoopBody(int s, size_t depth, const std::vector<Expr>& guards,
                    const Assumptions& assumptions);
  Stmt EmitPipeline(int s, size_t depth, const std::vector<Expr>& guards,
                    const Assumptions& assumptions);

  // The nest that moves a fetched region. Register pipelines need it in two halves.
  enum class FetchPart { kWhole, kLoadHalf, kStoreHalf, kAsync };
  Stmt EmitFetch(int s, FetchPart part, const BufferRef& registers, const Expr& slot,
                 const Assumptions& assumptions);

  void Allocate(int s, int64_t copies);
  BufferRef StagingRegisters(int s) const;
  Expr AtLoops(int s, const Expr& definition) const;
  Expr PartOf(const Loop& loop) const;
  Expr OnThread(const Expr& e) const;
  Expr HeldAt(const Spread& spread, const Expr& index);
  // Redirects loads from tensors to storage; loads from global memory that are not proven inside
  // read zero outside.
  Expr Resolve(const Expr& e, const Assumptions& assumptions);
  // What holds where an expression stands, and what became of its nodes that stand in several
  // places: it is the same wherever nothing else is known about their variables.
  struct Known {
    Assumptions assumptions;
    Variables concerned;      // by the last assumption
    Known* around = nullptr;  // what holds without the last assumption
    absl::flat_hash_map<const ExprNode*, Expr> resolved;
  };
  Expr Resolve(const Expr& e, Known& known);
  Expr ResolveNode(const Expr& e, Known& known);
  Expr ResolveSelect(const Expr& e, Known& known);
  Expr ResolveLoad(const Expr& load, const Assumptions& assumptions);
  std::vector<Expr> GuardsOf(int s) const;
  Stmt Fail(const std::string& why);

  const Schedule& schedule_;
  const int root_;
  const absl::flat_hash_map<const Buffer*, BufferRef>& globals_;
  Var thread_;
  absl::flat_hash_map<int, BufferRef> storage_;
  absl::flat_hash_map<int, Expr> slots_;  // of multi-buffered stages: which buffer to read
  absl::flat_hash_set<const Buffer*> managed_;
  absl::Status status_;
};

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

// Is a stage that threads compute together computed in the loops of `s` at `depth` or deeper?
bool KernelBuilder::HasCollectiveBelow(int s, size_t depth) const {
  const std::vector<Loop>& loops = stage(s).loops;
  for (size_t l = depth; l < loops.size(); ++l) {
    for (int a : AttachedAt(s, loops[l].var)) {
      if (stage(a).scope == Scope::kShared || stage(a).shared_reduction() != nullptr ||
          HasCollectiveBelow(a, 0)) {
        return true;
      }
    }
  }
  return false;
}

// Definition variables (axes) replaced by loop variables.
Expr KernelBuilder::AtLoops(int s, const Expr& definition) const {
  const ScheduledStage& here = stage(s);
  return Substitute(definition, [&](const Var& v) -> Expr {
    for (size_t i = 0; i < here.axes.size(); ++i) {
      if (here.axes[i] == v) return schedule_.AxisValue(here, i);
    }
    for (size_t i = 0; i < here.reduce_axes.size(); ++i) {
      if (here.reduce_axes[i] == v) return here.values[here.axes.size() + i];
    }
    return nullptr;
  });
}

// The iteration of a loop of a local stage that this thread makes.
Expr KernelBuilder::PartOf(const Loop& loop) const {
  const int64_t parts = loop.var->extent;
  const Expr thread = VarExpr(thread_);
  return Simplify(loop.sliced ? thread / Int(thread_->extent / parts) : thread % Int(parts));
}

// Loop variables of attached stages that are bound to thread, as the thread's number.
Expr KernelBuilder::OnThread(const Expr& e) const {
  return Simplify(Substitute(e, [&](const Var& v) -> Expr {
    for (const ScheduledStage& s : schedule_.stages()) {
      const int l = s.consumer < 0 ? -1 : s.FindLoop(v);
      if (l < 0 || s.loops[static_cast<size_t>(l)].kind != LoopKind::kThread) continue;
      return PartOf(s.loops[static_cast<size_t>(l)]);
    }
    return nullptr;
  }));
}

// Where a thread holds element `index` of a spread axis, which must be one of its own.
Expr KernelBuilder::HeldAt(const Spread& spread, const Expr& index) {
  const Expr holder = OnThread(index / Int(spread.vector) % Int(spread.threads));
  if (!IsInt(Simplify(holder - VarExpr(thread_) % Int(spread.threads)), 0)) {
    Fail(absl::StrCat(spread.stage, " is spread over threads, and element ", ToString(index),
                      " is read by another thread than the one that holds it"));
  }
  const int64_t round = spread.threads * spread.vector;
  return Simplify(index / Int(round) * Int(spread.vector) + index % Int(spread.vector));
}

Expr KernelBuilder::ResolveLoad(const Expr& load, const Assumptions& assumptions) {
  const int producer = schedule_.FindStage(load->buffer.get());
  ExprList indices;
  if (producer >= 0 && storage_.contains(producer)) {
    const ScheduledStage& p = stage(producer);
    if (slots_.contains(producer)) indices.push_back(slots_.at(producer));
    for (size_t i = 0; i < load->args.size(); ++i) {
      const Expr index = Simplify(load->args[i] - p.base[i]);
      const bool spread = p.spread.has_value() && i + 1 == load->args.size();
      indices.push_back(spread ? HeldAt(*p.spread, index) : index);
    }
    return Load(storage_.at(producer), std::move(indices));
  }
  const auto global = globals_.find(load->buffer.get());
  if (global == globals_.end()) {
    Fail(absl::StrCat(load->buffer->name, " is read where it is not computed yet"));
    return load;
  }
  Expr condition;
  for (size_t i = 0; i < load->args.size(); ++i) {
    const Expr index = Simplify(load->args[i]);
    const int64_t size = load->buffer->shape[i];
    const Interval bounds = BoundsOf(index);
    if (const Expr below = Int(0) <= index; bounds.min < 0 && !Proves(assumptions, below)) {
      condition = AndAlso(condition, below);
    }
    if (const Expr above = index < Int(size); bounds.max >= size && !Proves(assumptions, above)) {
      condition = AndAlso(condition, above);
    }
    indices.push_back(index);
  }
  const Expr safe = Load(global->second, std::move(indices));
  return condition == nullptr ? safe : Select(condition, safe, Float(0, safe->type));
}

Expr KernelBuilder::Resolve(const Expr& e, const Assumptions& assumptions) {
  Known known{.assumptions = assumptions};
  return Resolve(e, known);
}

Expr KernelBuilder::Resolve(const Expr& e, Known& known) {
  const bool shared = !e->args.empty() && e.use_count() > 1;
  if (!shared) return ResolveNode(e, known);
  for (Known* k = &known; k != nullptr; k = k->around) {
    if (const auto done = k->resolved.find(e.get()); done != k->resolved.end()) return done->second;
  }
  Known* k = &known;
  while (k->around != nullptr && !MentionsAny(e, k->concerned)) k = k->around;
  Expr resolved = ResolveNode(e, *k);
  k->resolved.emplace(e.get(), resolved);
  return resolved;
}

Expr KernelBuilder::ResolveNode(const Expr& e, Known& known) {
  if (e->op == Op::kLoad) return ResolveLoad(e, known.assumptions);
  if (e->op == Op::kSelect) return ResolveSelect(e, known);
  const bool compares_indices = e->args.size() == 2 && e->args[0]->type == DType::kInt64;
  if (e->type == DType::kInt64 || compares_indices) return Simplify(e);
  std::shared_ptr<ExprNode> changed;
  for (size_t i = 0; i < e->args.size(); ++i) {
    Expr arg = Resolve(e->args[i], known);
    if (arg == e->args[i]) continue;
    if (changed == nullptr) changed = std::make_shared<ExprNode>(*e);
    changed->args[i] = std::move(arg);
  }
  return changed != nullptr ? Expr(changed) : e;
}

Expr KernelBuilder::ResolveSelect(const Expr& e, Known& known) {
  const Expr condition = Simplify(Resolve(e->args[0], known));
  if (condition->op == Op::kInt) return Resolve(e->args[condition->int_value != 0 ? 1 : 2], known);
  if (Proves(known.assumptions, condition)) return Resolve(e->args[1], known);
  auto under = [&](const Expr& assumption, const Expr& side) {
    Known inside{.assumptions = known.assumptions,
                 .concerned = ConcernedBy(known.assumptions, assumption),
                 .around = &known};
    inside.assumptions.push_back(assumption);
    return Resolve(side, inside);
  };
  const Expr taken = under(condition, e->args[1]);
  const Expr other = under(Simplify(MakeExpr(Op::kNot, {condition})), e->args[2]);
  // One condition for a padded read: select(c, select(d, x, 0), 0) is select(c && d, x, 0).
  if (taken->op == Op::kSelect && StructurallyEqual(taken->args[2], other)) {
    return Select(AndAlso(condition, taken->args[0]), taken->args[1], other);
  }
  return Select(condition, taken, other);
}

// Conditions under which an iteration of the stage's loops may store.
std::vector<Expr> KernelBuilder::GuardsOf(int s) const {
  const ScheduledStage& here = stage(s);
  std::vector<Expr> guards;
  for (const Expr& g : here.guards) {
    if (!VanishesOutside(schedule_, here, g, true)) guards.push_back(g);
  }
  for (size_t i = 0; here.is_root() && i < here.axes.size(); ++i) {
    const Expr inside = Simplify(here.values[i] < Int(here.axes[i]->extent));
    if (!Proves(guards, inside)) guards.push_back(inside);
  }
  return guards;
}

void KernelBuilder::Allocate(int s, int64_t copies) {
  const ScheduledStage& here = stage(s);
  Buffer buffer;
  buffer.name = here.name();
  buffer.dtype = here.tensor->dtype;
  buffer.scope = here.scope;
  buffer.shape = here.extent;
  if (here.spread.has_value()) buffer.shape.back() /= here.spread->threads;
  buffer.strides.resize(here.extent.size());
  int64_t stride = 1;
  for (size_t i = here.extent.size(); i-- > 0;) {
    const size_t axis = here.order.empty() ? i : static_cast<size_t>(here.order[i]);
    buffer.strides[axis] = stride;
    stride *= buffer.shape[axis];
    if (i + 1 == here.extent.size()) {
      const int64_t row = stride;
      stride += here.pad;
      const int64_t chunks = here.swizzle > 0 ? row / here.swizzle : 0;
      if (chunks > 1 && row % here.swizzle == 0 && (chunks & (chunks - 1)) == 0) {
        buffer.swizzle = here.swizzle;
        buffer.swizzle_row = row;
      }
    }
  }
  buffer.elements = stride;
  if (copies > 1) {
    // Each copy starts 16-byte aligned.
    const int64_t unit = std::max<int64_t>(1, 16 / SizeOf(buffer.dtype));
    stride = (stride + unit - 1) / unit * unit;
    if (buffer.swizzle > 0)
      stride = (stride + buffer.swizzle_row - 1) / buffer.swizzle_row * buffer.swizzle_row;
    buffer.shape.insert(buffer.shape.begin(), copies);
    buffer.strides.insert(buffer.strides.begin(), stride);
    buffer.elements = stride * copies;
  }
  storage_[s] = std::make_shared<const Buffer>(std::move(buffer));
}

Stmt KernelBuilder::EmitStage(int s, Assumptions assumptions) {
  const ScheduledStage& here = stage(s);
  if (here.fetch.has_value()) {
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
  const bool pipelined = here.pipeline.has_value() && here.pipeline->loop == loop.var;
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
  if (here.spread.has_value()) indices.back() = HeldAt(*here.spread, indices.back());
  if (here.is_reduction()) value = Combine(here.combiner, Load(buffer, indices), value);
  return Store(buffer, std::move(indices), std::move(value));
}

BufferRef KernelBuilder::StagingRegisters(int s) const {
  const ScheduledStage& here = stage(s);
  return MakeBuffer(
      here.name() + ".staged", here.tensor->dtype, Scope::kLocal,
      {FetchTrips(here.extent, here.fetch->threads, here.fetch->vector), here.fetch->vector});
}

Stmt KernelBuilder::EmitFetch(int s, FetchPart part, const BufferRef& registers, const Expr& slot,
                              const Assumptions& outer_assumptions) {
  const ScheduledStage& here = stage(s);
  const FetchGrid grid = MakeFetchGrid(here, thread_);
  const Var &e = grid.trip, &v = grid.lane;
  const std::vector<Expr>& position = grid.position;
  Assumptions assumptions = outer_assumptions;
  const Expr moves = AndAlso(grid.thread_guard, grid.guard);
  const bool load_half = part == FetchPart::kLoadHalf;
  if (moves != nullptr && !load_half) assumptions.push_back(moves);
  const Expr value = [&]() -> Expr {
    if (part == FetchPart::kStoreHalf) return Load(registers, {VarExpr(e), VarExpr(v)});
    Expr at = Substitute(here.body, [&](const Var& var) -> Expr {
      for (size_t i = 0; i < here.axes.size(); ++i) {
        if (here.axes[i] == var) return Simplify(here.base[i] + position[i]);
      }
      return nullptr;
    });
    if (load_half && grid.whole_rows && moves != nullptr) {
      at = Select(moves, at, Float(0, at->type));
    }
    return Resolve(at, assumptions);
  }();
  Stmt move;
  if (load_half) {
    move = Store(registers, {VarExpr(e), VarExpr(v)}, value);
  } else {
    ExprList indices;
    if (slot != nullptr) indices.push_back(slot);
    indices.insert(indices.end(), position.begin(), position.end());
    if (part == FetchPart::kAsync) {
      const bool zero_filled = value->op == Op::kSelect && value->args[1]->op == Op::kLoad &&
                               value->args[2]->op == Op::kFloat && value->args[2]->float_value == 0;
      if (value->op != Op::kLoad && !zero_filled) {
        return Fail(absl::StrCat(here.name(),
                                 " cannot be copied asynchronously: its value is not "
                                 "a plain or zero-filled load"));
      }
      move = AsyncCopy(storage_.at(s), std::move(indices), value, 1);
    } else {
      move = Store(storage_.at(s), std::move(indices), value);
    }
  }
  if (grid.guard != nullptr && !load_half) move = If(grid.guard, move);
  if (v->extent > 1) move = For(v, ForKind::kVector, move);
  if (e->extent > 1) {
    move = For(e, e->extent <= kMaxUnrolledFetch ? ForKind::kUnrolled : ForKind::kSerial, move);
  }
  return grid.thread_guard != nullptr && !load_half ? If(grid.thread_guard, move) : move;
}

// One skeleton for pipelines: a prologue that fills, a steady state that issues the next fetch
// around the computation, and nothing left to drain.
Stmt KernelBuilder::EmitPipeline(int s, size_t depth, const std::vector<Expr>& guards,
                                 const Assumptions& assumptions) {
  const ScheduledStage& here = stage(s);
  const Var loop = here.pipeline->loop;
  const int64_t buffers = here.pipeline->depth;
  const int64_t trips = loop->extent;
  const Var slot = MakeVar(loop->name + ".slot", buffers);
  const Expr k = VarExpr(loop);
  std::vector<int> fetched;
  for (int a : AttachedAt(s, loop)) {
    if (!stage(a).fetch.has_value()) continue;
    Allocate(a, buffers);
    managed_.insert(storage_.at(a).get());
    slots_[a] = VarExpr(slot);
    fetched.push_back(a);
  }
  const bool registers = here.pipeline->kind == PipelineKind::kRegisters;
  std::vector<BufferRef> staged;
  for (int a : fetched) staged.push_back(registers ? StagingRegisters(a) : nullptr);
  auto move = [&](FetchPart part, const Expr& iteration, const Expr& to) {
    std::vector<Stmt> moves;
    for (size_t i = 0; i < fetched.size(); ++i) {
      moves.push_back(
          ReplaceVar(EmitFetch(fetched[i], part, staged[i], to, assumptions), loop, iteration));
    }
    return Seq(std::move(moves));
  };
  std::vector<BufferRef> fragments;
  if (here.prefetch != nullptr) {
    for (int a : AttachedAt(s, here.prefetch)) {
      Allocate(a, 2);
      slots_[a] = Simplify(VarExpr(here.prefetch) % Int(2));
      fragments.push_back(storage_.at(a));
    }
  }
  // The register stages of iteration `at` of the inner loop, of the tile `iteration` in slot
  // `from`.
  auto read = [&](const Expr& iteration, const Expr& from, const Expr& at) {
    std::vector<Stmt> reads;
    for (int a : AttachedAt(s, here.prefetch)) {
      const Stmt nest = ReplaceVar(EmitStage(a, assumptions), here.prefetch, at);
      reads.push_back(ReplaceVar(ReplaceVar(nest, slot, from), loop, iteration));
    }
    return Seq(std::move(reads));
  };
  auto use = [&](const Expr& at) {
    return ReplaceVar(EmitLoops(s, depth + 2, guards, assumptions), here.prefetch, at);
  };
  Stmt compute, last;
  if (here.prefetch != nullptr) {
    // All but the last iteration read ahead within the tile; the last reads the next tile's first
    // fragments, which the barrier must come before.
    const int64_t steps = here.prefetch->extent;
    const Var step = MakeVar(here.prefetch->name, steps - 1);
    const Expr i = VarExpr(step);
    compute = For(step, ForKind::kSerial, Seq({read(k, VarExpr(slot), i + Int(1)), use(i)}));
    const Expr after = Simplify((VarExpr(slot) + Int(1)) % Int(buffers));
    if (trips > 1) {
      last = If(Simplify(k + Int(1) < Int(trips)), read(Simplify(k + Int(1)), after, Int(0)));
    }
    last = Seq({last, use(Int(steps - 1))});
  } else {
    compute = EmitLoopBody(s, depth, guards, assumptions);
  }
  const int64_t ahead = registers ? 1 : buffers - 1;
  const bool more = trips > ahead;
  const Expr next = k + Int(ahead);
  const Expr in_range = Simplify(next < Int(trips));
  const Expr next_slot = Simplify((VarExpr(slot) + Int(ahead)) % Int(buffers));
  auto if_more = [&](const Stmt& st) { return more ? If(in_range, st) : nullptr; };
  std::vector<Stmt> prologue, steady;
  if (registers) {
    prologue = {move(FetchPart::kLoadHalf, Int(0), nullptr),
                move(FetchPart::kStoreHalf, Int(0), Int(0)), Barrier()};
    steady = {if_more(move(FetchPart::kLoadHalf, next, nullptr)), compute,
              if_more(move(FetchPart::kStoreHalf, next, next_slot)), Barrier(), last};
  } else {
    for (int64_t i = 0; i < ahead; ++i) {
      if (i < trips) prologue.push_back(move(FetchPart::kAsync, Int(i), Int(i)));
      prologue.push_back(AsyncCommit());
    }
    const Stmt issue = if_more(move(FetchPart::kAsync, next, next_slot));
    const Stmt wait = Seq({AsyncWait(buffers - 2), Barrier()});
    if (here.prefetch != nullptr) {
      prologue.push_back(wait);
      steady = {issue, AsyncCommit(), compute, trips > 1 ? wait : nullptr, last};
    } else {
      steady = {wait, issue, AsyncCommit(), compute};
    }
  }
  if (here.prefetch != nullptr) prologue.push_back(read(Int(0), Int(0), Int(0)));
  auto steady_loop = std::make_shared<StmtNode>(*For(loop, ForKind::kSerial, Seq(steady)));
  steady_loop->rotating = slot;
  prologue.push_back(Stmt(steady_loop));
  // A loop around this one fills the buffers again: everyone must be done with them.
  if (!registers) prologue.push_back(Barrier());
  Stmt out = Seq(std::move(prologue));
  for (const BufferRef& r : staged) {
    if (r != nullptr) out = Alloc(r, out);
  }
  for (const BufferRef& f : fragments) out = Alloc(f, out);
  return out;
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
  kernel.min_blocks = static_cast<int>(root.min_blocks);
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

// The global buffers that a kernel touches: those read in the program's order, then the written.
void CollectArguments(const Program& program, Kernel& kernel) {
  absl::flat_hash_set<const Buffer*> read, written;
  VisitStmts(kernel.body, [&](const StmtNode& s) {
    VisitExprs(s, [&](const Expr& e) {
      VisitLoads(e, [&](const Expr& load) { read.insert(load->buffer.get()); });
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

}  // namespace

absl::StatusOr<Program> Lower(const Schedule& schedule) {
  Program program;
  program.op = schedule.program().op;
  program.inputs = schedule.program().inputs;
  absl::flat_hash_map<const Buffer*, BufferRef> globals;
  for (const BufferRef& input : program.inputs) globals[input.get()] = input;
  for (const ScheduledStage& s : schedule.stages()) {
    if (!s.is_root()) continue;
    globals[s.tensor.get()] = s.tensor;
    (s.is_output ? program.outputs : program.workspaces).push_back(s.tensor);
  }
  for (size_t i = 0; i < schedule.stages().size(); ++i) {
    const ScheduledStage& s = schedule.stages()[i];
    if (!s.is_root()) continue;
    if (s.scope != Scope::kGlobal) {
      return absl::InvalidArgumentError(
          absl::StrCat("stage ", s.name(), " has scope ", NameOf(s.scope),
                       " but is not computed in any loop; add compute_at"));
    }
    KernelBuilder builder(schedule, static_cast<int>(i), globals);
    absl::StatusOr<Kernel> kernel = builder.Build(KernelName(program.kernels.size(), s.name()));
    if (!kernel.ok()) return kernel.status();
    CollectArguments(program, *kernel);
    program.kernels.push_back(*std::move(kernel));
  }
  return program;
}

}  // namespace heddle::search_space
