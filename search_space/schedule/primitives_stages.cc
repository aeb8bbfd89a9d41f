// Primitives that change what stages there are, where they are computed and how they are kept.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/ir/simplify.h"
#include "search_space/schedule/collapse.h"
#include "search_space/schedule/primitives.h"
#include "search_space/schedule/winograd.h"

namespace heddle::search_space {
namespace {

// Nodes of an expression, a shared one as often as it stands there; no further than beyond `most`.
// `inner`: how many take the place of a node, 1 for itself.
int64_t CountNodes(const Expr& e, int64_t most, absl::FunctionRef<int64_t(const Expr&)> inner) {
  int64_t count = inner(e);
  for (const Expr& arg : e->args) {
    if (count > most) return count;
    count += CountNodes(arg, most - count, inner);
  }
  return count;
}

int64_t CountNodes(const Expr& e, int64_t most) {
  return CountNodes(e, most, [](const Expr&) { return 1; });
}

// What InlineLoads makes of a definition, at least: nodes of all of it and of its longest index.
struct InlinedSize {
  int64_t nodes = 0, index_nodes = 0;
};
InlinedSize SizeWithInlined(const Expr& e, const ScheduledStage& producer) {
  InlinedSize size;
  size.nodes = CountNodes(e, kMaxInlinedNodes, [&](const Expr& load) -> int64_t {
    if (load->op != Op::kLoad || load->buffer != producer.tensor) return 1;
    const auto at_load = [&](const Expr& node) -> int64_t {
      for (size_t i = 0; node->op == Op::kVar && i < producer.axes.size(); ++i) {
        if (producer.axes[i] == node->var) return CountNodes(load->args[i], kMaxInlinedNodes);
      }
      return 1;
    };
    return CountNodes(producer.body, kMaxInlinedNodes, [&](const Expr& node) -> int64_t {
      for (size_t i = 0; node->op == Op::kLoad && i < node->args.size(); ++i) {
        const int64_t index = CountNodes(node->args[i], kMaxInlinedIndexNodes, at_load);
        size.index_nodes = std::max(size.index_nodes, index);
      }
      return at_load(node);
    });
  });
  return size;
}

// Substitutes an elementwise definition into an expression that reads it.
Expr InlineLoads(const Expr& e, const ScheduledStage& producer) {
  return Rewrite(e, [&](const Expr& node) -> Expr {
    if (node->op != Op::kLoad || node->buffer != producer.tensor) return nullptr;
    return Substitute(producer.body, [&](const Var& v) -> Expr {
      for (size_t i = 0; i < producer.axes.size(); ++i) {
        if (producer.axes[i] == v) return node->args[i];
      }
      return nullptr;
    });
  });
}

}  // namespace

absl::Status StepApplier::operator()(const CacheRead& step) {
  std::vector<ScheduledStage*> readers;
  const bool all = step.reader == "all" && schedule_.FindStage(step.reader) < 0;
  if (all) {
    for (ScheduledStage& s : stages_) readers.push_back(&s);
  } else {
    HEDDLE_ASSIGN_OR_RETURN(reader, FindStage(step.reader));
    readers.push_back(reader);
  }
  BufferRef tensor;
  for (const ScheduledStage* s : readers) {
    Visit(s->body, [&](const Expr& node) {
      if (node->op == Op::kLoad && node->buffer->name == step.tensor) tensor = node->buffer;
    });
  }
  if (tensor == nullptr) {
    return Refuse(absl::StrCat("stage ", step.reader, " does not read ", step.tensor));
  }
  std::string name = absl::StrCat(step.tensor, ".", NameOf(step.scope));
  for (int n = 2; schedule_.FindStage(name) >= 0; ++n) {
    name = absl::StrCat(step.tensor, ".", NameOf(step.scope), n);
  }
  Stage copy;
  copy.tensor = MakeBuffer(name, tensor->dtype, Scope::kGlobal, tensor->shape);
  const int producer = schedule_.FindStage(tensor.get());
  ExprList indices;
  for (size_t i = 0; i < tensor->shape.size(); ++i) {
    const std::string axis =
        producer >= 0 ? stages_[static_cast<size_t>(producer)].axes[i]->name : absl::StrCat("d", i);
    copy.axes.push_back(MakeVar(axis, tensor->shape[i]));
    indices.push_back(VarExpr(copy.axes.back()));
  }
  copy.body = Load(tensor, std::move(indices));
  for (ScheduledStage* s : readers) {
    s->body = Rewrite(s->body, [&](const Expr& node) -> Expr {
      if (node->op != Op::kLoad || node->buffer != tensor) return nullptr;
      return Load(copy.tensor, node->args);
    });
  }
  ScheduledStage made;
  made.tensor = copy.tensor;
  made.axes = copy.axes;
  made.body = copy.body;
  made.scope = step.scope;
  for (const Var& axis : made.axes) {
    made.base.push_back(Int(0));
    made.extent.push_back(axis->extent);
  }
  ResetLoops(made);
  // As early as it can be when it is shared, so that its loads are under way first.
  const int at = all ? producer + 1 : IndexOf(*readers[0]);
  for (ScheduledStage& s : stages_) {
    if (s.consumer >= at) ++s.consumer;
  }
  stages_.insert(stages_.begin() + at, std::move(made));
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const SetScope& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  if (stage->consumer >= 0) {
    return Refuse(absl::StrCat("set the scope of ", step.stage,
                               " before compute_at: its region depends on it"));
  }
  if (stage->is_output && step.scope != Scope::kGlobal) {
    return Refuse(absl::StrCat(step.stage, " is an output; outputs live in global memory"));
  }
  stage->scope = step.scope;
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const ComputeAt& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  HEDDLE_ASSIGN_OR_RETURN(consumer, FindStage(step.consumer));
  HEDDLE_ASSIGN_OR_RETURN(loop, FindLoop(*consumer, step.loop));
  if (stage->consumer >= 0) return Refuse(absl::StrCat(step.stage, " is attached already"));
  if (stage->is_output) return Refuse(absl::StrCat(step.stage, " is an output: it is a kernel"));
  if (stage->scope == Scope::kGlobal) {
    return Refuse(absl::StrCat("set the scope of ", step.stage,
                               " to shared or local first: only caches are computed inside loops"));
  }
  if (!stage->untouched || HasAttached(*stage)) {
    return Refuse(absl::StrCat("compute_at must come before other changes to the loops of ",
                               step.stage, ", because it changes their extents"));
  }
  if (IndexOf(*stage) >= IndexOf(*consumer)) {
    return Refuse(absl::StrCat(step.consumer, " does not read ", step.stage));
  }
  std::vector<Expr> base;
  std::vector<int64_t> extent;
  const Var at = consumer->loops[loop].var;
  if (absl::Status s = InferRegion(schedule_, *stage, IndexOf(*consumer), at, base, extent);
      !s.ok()) {
    return s;
  }
  stage->base = std::move(base);
  stage->extent = std::move(extent);
  stage->consumer = IndexOf(*consumer);
  stage->attach_loop = at;
  ResetLoops(*stage);
  if (stage->spread.has_value()) SpreadLoops(*stage);
  return absl::OkStatus();
}

// The loop of a spread axis: rounds, the threads of a group, a run of each.
void StepApplier::SpreadLoops(ScheduledStage& stage) {
  const int64_t threads = stage.spread->threads, vector = stage.spread->vector;
  const Loop whole = stage.loops.back();
  const int64_t rounds = (stage.extent.back() - 1) / (threads * vector) + 1;
  stage.extent.back() = rounds * threads * vector;
  const auto part = [&](int i, int64_t extent, LoopKind kind) {
    return Loop{.var = MakeVar(absl::StrCat(whole.var->name, ".", i), extent), .kind = kind};
  };
  stage.loops.pop_back();
  stage.loops.push_back(part(0, rounds, LoopKind::kSerial));
  stage.loops.push_back(part(1, threads, LoopKind::kThread));
  stage.loops.push_back(part(2, vector, vector > 1 ? LoopKind::kVector : LoopKind::kSerial));
  const auto at = stage.loops.end() - 3;
  stage.values.back() = VarExpr(at[0].var) * Int(threads * vector) +
                        VarExpr(at[1].var) * Int(vector) + VarExpr(at[2].var);
  stage.untouched = false;
}

absl::Status StepApplier::operator()(const Spread& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  if (stage->scope != Scope::kLocal || stage->is_reduction() || stage->consumer >= 0) {
    return Refuse(
        absl::StrCat("spread wants an elementwise stage in scope local before its "
                     "compute_at; ",
                     step.stage, " is not one"));
  }
  if (stage->axes.empty() || stage->axes.back()->name != step.axis) {
    return Refuse(absl::StrCat("only the last axis of ", step.stage, " can be spread"));
  }
  if (!IsPowerOfTwo(step.threads) || !IsVectorWidth(step.vector)) {
    return Refuse("spread wants a power of two of threads and a vector of 1, 2, 4, 8 or 16");
  }
  stage->spread = step;
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const Replicate& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  if (!stage->is_root() || stage->is_reduction() || HasAttached(*stage)) {
    return Refuse(
        absl::StrCat("replicate the loops of a kernel's own stage, before other stages "
                     "are computed in them; ",
                     step.stage, " is not one"));
  }
  if (!IsPowerOfTwo(step.threads) || stage->FindLoop("lane") >= 0) {
    return Refuse("replicate wants a power of two of threads, once");
  }
  const Loop lane{.var = MakeVar("lane", step.threads)};
  stage->guards.push_back(Int(step.threads - 1) <= VarExpr(lane.var));
  stage->loops.push_back(lane);
  stage->untouched = false;
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const ComputeInline& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  if (stage->is_reduction()) {
    return Refuse(absl::StrCat(step.stage, " reduces; only elementwise stages can be inlined"));
  }
  if (stage->is_output) return Refuse(absl::StrCat(step.stage, " is an output"));
  if (stage->materialized) return Refuse(absl::StrCat(step.stage, " is a kernel of its own"));
  if (stage->consumer >= 0 || HasAttached(*stage) || !stage->untouched) {
    return Refuse(absl::StrCat(step.stage, " is scheduled already"));
  }
  const std::vector<int> readers = schedule_.ReadersOf(stage->tensor.get());
  for (int r : readers) {
    const ScheduledStage& reader = stages_[static_cast<size_t>(r)];
    const InlinedSize size = SizeWithInlined(reader.body, *stage);
    const bool long_index = size.index_nodes > kMaxInlinedIndexNodes;
    if (size.nodes <= kMaxInlinedNodes && !long_index) continue;
    return Refuse(absl::StrCat("with ", step.stage, " inlined ", long_index ? "an index in " : "",
                               "the definition of ", reader.name(), " would have more than ",
                               long_index ? kMaxInlinedIndexNodes : kMaxInlinedNodes,
                               " operands and operations; compute ", step.stage,
                               " in a kernel of its own"));
  }
  for (int r : readers) {
    ScheduledStage& reader = stages_[static_cast<size_t>(r)];
    reader.body = InlineLoads(reader.body, *stage);
  }
  stage->inlined = true;
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const Fetch& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  if (stage->scope != Scope::kShared || stage->consumer < 0 || stage->is_reduction()) {
    return Refuse(
        absl::StrCat("fetch fills a shared elementwise stage that is computed inside a "
                     "loop; ",
                     step.stage, " is not one"));
  }
  if (!stage->untouched) return Refuse(absl::StrCat("the loops of ", step.stage, " were changed"));
  if (step.threads < 1 || !IsVectorWidth(step.vector)) {
    return Refuse("fetch wants threads >= 1 and a vector of 1, 2, 4, 8 or 16 elements");
  }
  const std::vector<const Loop*> enclosing = EnclosingLoops(schedule_, *stage);
  const auto thread = std::find_if(enclosing.begin(), enclosing.end(),
                                   [](const Loop* l) { return l->kind == LoopKind::kThread; });
  if (thread == enclosing.end() || (*thread)->var->extent != step.threads) {
    return Refuse(absl::StrCat("fetch with ", step.threads, " threads, but the kernel around ",
                               step.stage, " has ",
                               thread == enclosing.end() ? 0 : (*thread)->var->extent));
  }
  stage->fetch = step;
  stage->untouched = false;
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const StorageLayout& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  if (stage->scope == Scope::kGlobal) {
    return Refuse(absl::StrCat(step.stage, " is in global memory; only caches have a layout"));
  }
  std::vector<int> order;
  for (const std::string& name : step.order) {
    const auto axis = std::find_if(stage->axes.begin(), stage->axes.end(),
                                   [&](const Var& v) { return v->name == name; });
    const int index = static_cast<int>(axis - stage->axes.begin());
    if (axis == stage->axes.end() || std::count(order.begin(), order.end(), index) > 0) {
      return Refuse(absl::StrCat("the layout of ", step.stage, " must name each of its ",
                                 stage->axes.size(), " axes once"));
    }
    order.push_back(index);
  }
  if (order.size() != stage->axes.size() || step.pad < 0 || step.swizzle < 0 ||
      (step.swizzle > 0 && (!IsVectorWidth(step.swizzle) || step.pad > 0))) {
    return Refuse(absl::StrCat("a layout orders all axes of ", step.stage,
                               " and either pads or swizzles by a vector width"));
  }
  stage->order = std::move(order);
  stage->pad = step.pad;
  stage->swizzle = step.swizzle;
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const Align& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  const auto axis = std::find_if(stage->axes.begin(), stage->axes.end(),
                                 [&](const Var& v) { return v->name == step.axis; });
  if (axis == stage->axes.end()) {
    return Refuse(absl::StrCat(step.stage, " has no axis ", step.axis));
  }
  if (stage->consumer < 0 || !stage->untouched || HasAttached(*stage) || step.multiple < 1) {
    return Refuse(absl::StrCat("align comes between compute_at and other changes to ", step.stage,
                               ", with a multiple of at least 1"));
  }
  const size_t i = static_cast<size_t>(axis - stage->axes.begin());
  // Padding shifts the address that is read against the axis: x - 1 is aligned where x is not.
  int64_t shift = 0;
  Visit(stage->body, [&](const Expr& node) {
    if (node->op != Op::kLoad) return;
    for (const Expr& index : node->args) {
      const Expr d = Simplify(index - VarExpr(*axis));
      if (d->op == Op::kInt) shift = d->int_value;
    }
  });
  const Expr multiple = Int(step.multiple);
  const Expr start = Simplify((stage->base[i] + Int(shift)) / multiple * multiple - Int(shift));
  // How far the old start can lie behind the new one.
  const int64_t slack = BoundsOf(stage->base[i] - start).max;
  stage->base[i] = start;
  stage->extent[i] = (stage->extent[i] + slack + step.multiple - 1) / step.multiple * step.multiple;
  ResetLoops(*stage);
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const Pipeline& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*stage, step.loop));
  const Loop& loop = stage->loops[at];
  if (loop.kind != LoopKind::kSerial) {
    return Refuse(absl::StrCat("only a serial loop can be pipelined; ", step.loop, " is not"));
  }
  const int64_t most = step.kind == PipelineKind::kRegisters ? 2 : 8;
  if (step.depth < 2 || step.depth > most) {
    return Refuse(absl::StrCat("a pipeline of this kind is 2 to ", most, " buffers deep"));
  }
  const bool any = std::any_of(stages_.begin(), stages_.end(), [&](const ScheduledStage& s) {
    return s.consumer == IndexOf(*stage) && s.attach_loop == loop.var && s.fetch.has_value();
  });
  if (!any && AnyAttachedAt(*stage, loop.var)) return PrefetchRegisters(step, *stage, at);
  if (!any) return Refuse(absl::StrCat("no stage is fetched in loop ", step.loop));
  if (stage->pipeline.has_value()) return Refuse(absl::StrCat(step.stage, " is pipelined already"));
  stage->pipeline = ScheduledStage::PipelinedLoop{loop.var, step.kind, step.depth};
  return absl::OkStatus();
}

bool StepApplier::AnyAttachedAt(const ScheduledStage& stage, const Var& loop) const {
  return std::any_of(stages_.begin(), stages_.end(), [&](const ScheduledStage& s) {
    return s.consumer == IndexOf(stage) && s.attach_loop == loop;
  });
}

absl::Status StepApplier::PrefetchRegisters(const Pipeline& step, ScheduledStage& stage,
                                            size_t at) {
  const bool inside =
      at > 0 && stage.pipeline.has_value() && stage.pipeline->loop == stage.loops[at - 1].var;
  if (!inside || step.kind != PipelineKind::kRegisters || stage.loops[at].var->extent % 2 != 0) {
    return Refuse(absl::StrCat(
        "the registers read in loop ", step.loop, " run ahead only with kind registers, in a loop ",
        "of an even extent that stands directly in one that is pipelined already"));
  }
  if (stage.interleave != nullptr) {
    return Refuse(absl::StrCat("copies of ", stage.name(),
                               " are interleaved already; let its registers run ahead first"));
  }
  stage.prefetch = stage.loops[at].var;
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const Interleave& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*stage, step.loop));
  const int pipelined = stage->pipeline.has_value() ? stage->FindLoop(stage->pipeline->loop) : -1;
  if (pipelined < 0 || static_cast<int>(at) <= pipelined) {
    return Refuse(absl::StrCat("loop ", step.loop, " does not stand in one that is pipelined"));
  }
  if (stage->pipeline->kind != PipelineKind::kAsyncCopy) {
    return Refuse("only asynchronous copies are started in parts");
  }
  if (stage->prefetch != nullptr && stage->prefetch != stage->loops[at].var) {
    return Refuse(absl::StrCat("the registers of ", step.stage, " run ahead in loop ",
                               stage->prefetch->name, "; interleave with that one"));
  }
  int64_t parts = 1;
  for (size_t l = static_cast<size_t>(pipelined) + 1; l <= at; ++l) {
    const Loop& loop = stage->loops[l];
    if (loop.IsIterated()) parts *= loop.var->extent;
    if (!loop.reduce) {
      return Refuse(absl::StrCat("the fetches would be repeated for every ", loop.var->name));
    }
  }
  if (stage->prefetch != nullptr) --parts;  // the last iteration reads past the barrier
  if (parts < 2) {
    return Refuse(absl::StrCat("loop ", step.loop, " has no two iterations to share the fetches"));
  }
  stage->interleave = stage->loops[at].var;
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const Rfactor& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  HEDDLE_ASSIGN_OR_RETURN(at, FindLoop(*stage, step.loop));
  const Loop factored = stage->loops[at];
  if (!factored.reduce || stage->consumer >= 0 || HasAttached(*stage)) {
    return Refuse(
        absl::StrCat("rfactor wants a reduction loop of a stage that is not attached "
                     "yet; ",
                     step.loop, " of ", step.stage, " is not one"));
  }
  // Partial results: the data axes and the factored loop in front; reduces over what is left.
  ScheduledStage partial;
  partial.axes.push_back(MakeVar(step.loop, factored.var->extent));
  std::vector<int64_t> shape = {factored.var->extent};
  for (const Var& axis : stage->axes) {
    partial.axes.push_back(MakeVar(axis->name, axis->extent));
    shape.push_back(axis->extent);
  }
  std::vector<std::pair<Var, Expr>> renamed = {{factored.var, VarExpr(partial.axes[0])}};
  for (const Loop& l : stage->loops) {
    if (!l.reduce || l.var == factored.var) continue;
    partial.reduce_axes.push_back(MakeVar(l.var->name, l.var->extent));
    renamed.emplace_back(l.var, VarExpr(partial.reduce_axes.back()));
  }
  auto rename = [&](const Expr& e) {
    return Substitute(e, [&](const Var& v) -> Expr {
      for (const auto& [from, to] : renamed) {
        if (from == v) return to;
      }
      return nullptr;
    });
  };
  Expr body = Substitute(stage->body, [&](const Var& v) -> Expr {
    for (size_t i = 0; i < stage->axes.size(); ++i) {
      if (stage->axes[i] == v) return VarExpr(partial.axes[i + 1]);
    }
    for (size_t i = 0; i < stage->reduce_axes.size(); ++i) {
      if (stage->reduce_axes[i] == v) return rename(stage->values[stage->axes.size() + i]);
    }
    return nullptr;
  });
  for (const Expr& guard : stage->guards) {
    bool reduces = false;
    Visit(guard, [&](const Expr& node) {
      if (node->op != Op::kVar) return;
      const int l = stage->FindLoop(node->var);
      reduces = reduces || (l >= 0 && stage->loops[static_cast<size_t>(l)].reduce);
    });
    if (!reduces)
      return Refuse(absl::StrCat("rfactor before splitting the data axes of ", step.stage));
    if (VanishesOutside(schedule_, *stage, guard, false)) continue;
    body = Select(rename(guard), body, IdentityOf(stage->combiner, stage->tensor->dtype));
  }
  partial.tensor = MakeBuffer(step.stage + ".rf", stage->tensor->dtype, Scope::kGlobal, shape);
  partial.combiner = partial.reduce_axes.empty() ? Combiner::kNone : stage->combiner;
  partial.body = Simplify(body);
  for (const Var& axis : partial.axes) {
    partial.base.push_back(Int(0));
    partial.extent.push_back(axis->extent);
  }
  ResetLoops(partial);
  const Var combine = MakeVar(step.loop, factored.var->extent);
  ExprList indices = {VarExpr(combine)};
  for (const Var& axis : stage->axes) indices.push_back(VarExpr(axis));
  stage->body = Load(partial.tensor, std::move(indices));
  stage->reduce_axes = {combine};
  ResetLoops(*stage);
  const int index = IndexOf(*stage);
  for (ScheduledStage& s : stages_) {
    if (s.consumer >= index) ++s.consumer;
  }
  stages_.insert(stages_.begin() + index, std::move(partial));
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const Winograd& step) {
  HEDDLE_ASSIGN_OR_RETURN(stage, FindStage(step.stage));
  if (stage->consumer >= 0 || HasAttached(*stage) || !stage->untouched) {
    return Refuse(absl::StrCat(step.stage, " is scheduled already"));
  }
  const int index = IndexOf(*stage);
  HEDDLE_ASSIGN_OR_RETURN(made, WinogradStages(schedule_, index));
  const int added = static_cast<int>(made.size()) - 1;
  for (ScheduledStage& s : stages_) {
    if (s.consumer >= index) s.consumer += added;
  }
  *stage = std::move(made.back());
  stages_.insert(stages_.begin() + index, made.begin(), made.end() - 1);
  return absl::OkStatus();
}

absl::Status StepApplier::operator()(const CollapseAxes& step) {
  const bool scheduled = std::any_of(stages_.begin(), stages_.end(), [](const ScheduledStage& s) {
    return s.consumer >= 0 || !s.untouched;
  });
  if (scheduled || stages_.size() != Schedule(schedule_.program_).stages().size()) {
    return Refuse("it comes before all other steps");
  }
  HEDDLE_ASSIGN_OR_RETURN(program, Collapse(*schedule_.program_, step.stage));
  schedule_ = Schedule(std::move(program));
  return absl::OkStatus();
}

}  // namespace heddle::search_space
