#include "search_space/ir/stmt.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "search_space/ir/expr/make_node.h"

namespace heddle::search_space {

const IntrinsicEffects& EffectsOf(Intrinsic intrinsic) {
  static constexpr IntrinsicEffects kTable[] = {
      // name, scope, writes_buffer, completion, orders_shared
      {"barrier", ExecutionScope::kBlock, false, Completion::kImmediate, true},
      {"async_copy", ExecutionScope::kThread, true, Completion::kGroup, false},
      {"async_commit", ExecutionScope::kThread, false, Completion::kImmediate, false},
      {"async_wait", ExecutionScope::kThread, false, Completion::kImmediate, false},
      {"warp_reduce", ExecutionScope::kWarp, true, Completion::kImmediate, false},
      {"warp_prefix", ExecutionScope::kWarp, true, Completion::kImmediate, false},
      {"warp_suffix", ExecutionScope::kWarp, true, Completion::kImmediate, false},
      {"atomic_combine", ExecutionScope::kThread, true, Completion::kImmediate, false},
      {"load_matrix", ExecutionScope::kWarp, true, Completion::kImmediate, false},
      {"load_matrix_transposed", ExecutionScope::kWarp, true, Completion::kImmediate, false},
      {"matrix_multiply", ExecutionScope::kWarp, true, Completion::kImmediate, false},
      {"warpgroup_multiply", ExecutionScope::kWarpgroup, true, Completion::kGroup, false},
      {"operand_fence", ExecutionScope::kWarpgroup, false, Completion::kImmediate, false},
      {"product_commit", ExecutionScope::kWarpgroup, false, Completion::kImmediate, false},
      {"product_wait", ExecutionScope::kWarpgroup, false, Completion::kImmediate, false},
      {"proxy_fence", ExecutionScope::kThread, false, Completion::kImmediate, false},
      {"phase_init", ExecutionScope::kThread, false, Completion::kImmediate, false},
      {"phase_expect", ExecutionScope::kThread, false, Completion::kImmediate, false},
      {"phase_wait", ExecutionScope::kThread, false, Completion::kImmediate, false},
      {"hand_back", ExecutionScope::kBlock, false, Completion::kImmediate, false},
      {"bulk_copy", ExecutionScope::kThread, false, Completion::kPhase, false},
  };
  return kTable[static_cast<int>(intrinsic)];
}

namespace {
Stmt Make(StmtNode node) { return MakeNode<StmtNode>(std::move(node)); }
}  // namespace

Stmt Seq(std::vector<Stmt> body) {
  StmtNode node{.kind = StmtNode::Kind::kSeq};
  for (Stmt& s : body) {
    if (s == nullptr) continue;
    if (s->kind == StmtNode::Kind::kSeq) {
      node.body.insert(node.body.end(), s->body.begin(), s->body.end());
    } else {
      node.body.push_back(std::move(s));
    }
  }
  if (node.body.size() == 1) return node.body[0];
  return Make(std::move(node));
}

Stmt For(Var var, ForKind kind, Stmt body) {
  StmtNode node{.kind = StmtNode::Kind::kFor, .for_kind = kind, .var = std::move(var)};
  node.body.push_back(std::move(body));
  return Make(std::move(node));
}

Stmt ForEvery(Var var, Expr first, int64_t stride, Stmt body) {
  StmtNode node{.kind = StmtNode::Kind::kFor, .var = std::move(var)};
  node.value = std::move(first);
  node.int_value = stride;
  node.body.push_back(std::move(body));
  return Make(std::move(node));
}

Stmt If(Expr condition, Stmt body) {
  StmtNode node{.kind = StmtNode::Kind::kIf};
  node.condition = std::move(condition);
  node.body.push_back(std::move(body));
  return Make(std::move(node));
}

Stmt IfRarely(Expr condition, Stmt body) {
  StmtNode node = *If(std::move(condition), std::move(body));
  node.int_value = 1;
  return Make(std::move(node));
}

Stmt Store(BufferRef buffer, ExprList indices, Expr value, int lanes) {
  StmtNode node{.kind = StmtNode::Kind::kStore};
  node.buffer = std::move(buffer);
  node.indices = std::move(indices);
  node.value = std::move(value);
  node.lanes = lanes;
  return Make(std::move(node));
}

Stmt Alloc(BufferRef buffer, Stmt body) {
  StmtNode node{.kind = StmtNode::Kind::kAlloc};
  node.buffer = std::move(buffer);
  node.body.push_back(std::move(body));
  return Make(std::move(node));
}

Stmt Barrier() {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kBarrier;
  return Make(std::move(node));
}

Stmt HandBack(Expr number, int64_t numbers) {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kHandBack;
  node.indices = {std::move(number)};
  node.int_value = numbers;
  return Make(std::move(node));
}

Stmt AsyncCopy(BufferRef buffer, ExprList indices, Expr value, int lanes) {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kAsyncCopy;
  node.buffer = std::move(buffer);
  node.indices = std::move(indices);
  node.value = std::move(value);
  node.lanes = lanes;
  return Make(std::move(node));
}

Stmt AsyncCommit() {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kAsyncCommit;
  return Make(std::move(node));
}

Stmt AsyncWait(int64_t pending) {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kAsyncWait;
  node.int_value = pending;
  return Make(std::move(node));
}

namespace {
Stmt CombineWarp(Intrinsic intrinsic, Combiner combiner, BufferRef buffer, ExprList indices,
                 int64_t threads) {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = intrinsic;
  node.value = Load(buffer, indices);
  node.buffer = std::move(buffer);
  node.indices = std::move(indices);
  node.int_value = threads;
  node.combiner = combiner;
  return Make(std::move(node));
}
}  // namespace

Stmt WarpReduce(Combiner combiner, BufferRef buffer, ExprList indices, int64_t threads) {
  return CombineWarp(Intrinsic::kWarpReduce, combiner, std::move(buffer), std::move(indices),
                     threads);
}

Stmt WarpPrefix(Combiner combiner, BufferRef buffer, ExprList indices, int64_t threads) {
  return CombineWarp(Intrinsic::kWarpPrefix, combiner, std::move(buffer), std::move(indices),
                     threads);
}

Stmt WarpSuffix(Combiner combiner, BufferRef buffer, ExprList indices, int64_t threads) {
  return CombineWarp(Intrinsic::kWarpSuffix, combiner, std::move(buffer), std::move(indices),
                     threads);
}

Stmt AtomicCombine(Combiner combiner, BufferRef buffer, ExprList indices, Expr value, int lanes) {
  return Make({.kind = StmtNode::Kind::kIntrin,
               .buffer = std::move(buffer),
               .indices = std::move(indices),
               .value = std::move(value),
               .lanes = lanes,
               .intrinsic = Intrinsic::kAtomicCombine,
               .combiner = combiner});
}

Stmt LoadMatrix(BufferRef buffer, ExprList indices, Expr row, int64_t blocks, bool transposed) {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = transposed ? Intrinsic::kLoadMatrixTransposed : Intrinsic::kLoadMatrix;
  node.buffer = std::move(buffer);
  node.indices = std::move(indices);
  node.value = std::move(row);
  node.int_value = blocks;
  return Make(std::move(node));
}

Stmt MatrixMultiply(MatrixInstruction instruction, BufferRef d, ExprList indices, Expr a, Expr b) {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kMatrixMultiply;
  const DType sums = ShapeOf(instruction).result;
  node.value = Cast(sums, std::move(a)) * Cast(sums, std::move(b));
  node.buffer = std::move(d);
  node.indices = std::move(indices);
  node.int_value = static_cast<int64_t>(instruction);
  return Make(std::move(node));
}

Stmt WarpgroupMultiply(MatrixInstruction instruction, BufferRef d, ExprList indices, Expr a, Expr b,
                       const std::array<SharedMatrix, 2>& operands) {
  StmtNode node =
      *MatrixMultiply(instruction, std::move(d), std::move(indices), std::move(a), std::move(b));
  node.intrinsic = Intrinsic::kWarpgroupMultiply;
  node.operands = operands;
  return Make(std::move(node));
}

Stmt OperandFence(BufferRef d) {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kOperandFence;
  node.buffer = std::move(d);
  return Make(std::move(node));
}

Stmt ProductCommit() {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kProductCommit;
  return Make(std::move(node));
}

Stmt ProductWait(int64_t pending, BufferRef d) {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kProductWait;
  node.int_value = pending;
  node.buffer = std::move(d);
  return Make(std::move(node));
}

Stmt ProxyFence() {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kProxyFence;
  return Make(std::move(node));
}

Stmt PhaseInit(BufferRef phases) {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kPhaseInit;
  node.buffer = std::move(phases);
  return Make(std::move(node));
}

Stmt PhaseExpect(BufferRef phases, Expr slot, int64_t bytes) {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kPhaseExpect;
  node.buffer = std::move(phases);
  node.indices = {std::move(slot)};
  node.int_value = bytes;
  return Make(std::move(node));
}

Stmt PhaseWait(BufferRef phases, Expr slot, Expr parity) {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kPhaseWait;
  node.buffer = std::move(phases);
  node.indices = {std::move(slot)};
  node.value = std::move(parity);
  return Make(std::move(node));
}

Stmt BulkCopy(BufferRef buffer, ExprList indices, Expr first, std::vector<int64_t> box,
              BufferRef phases) {
  StmtNode node{.kind = StmtNode::Kind::kIntrin};
  node.intrinsic = Intrinsic::kBulkCopy;
  node.buffer = std::move(buffer);
  node.indices = std::move(indices);
  node.value = std::move(first);
  node.box = std::move(box);
  node.base = std::move(phases);
  return Make(std::move(node));
}

const Expr& MatrixOperandOf(const StmtNode& multiply, size_t operand) {
  return multiply.value->args[operand]->args[0];
}

Stmt Let(Var var, Expr value, Stmt body) {
  StmtNode node{.kind = StmtNode::Kind::kLet, .var = std::move(var)};
  node.value = std::move(value);
  node.body.push_back(std::move(body));
  return Make(std::move(node));
}

Stmt LetPointer(BufferRef pointer, BufferRef base, Expr start, int64_t step, Stmt body) {
  StmtNode node{.kind = StmtNode::Kind::kLet};
  node.buffer = std::move(pointer);
  node.base = std::move(base);
  node.value = std::move(start);
  node.int_value = step;
  node.body.push_back(std::move(body));
  return Make(std::move(node));
}

Stmt Comment(std::string text) {
  StmtNode node{.kind = StmtNode::Kind::kComment};
  node.text = std::move(text);
  return Make(std::move(node));
}

void VisitStmts(const Stmt& s, const std::function<void(const StmtNode&)>& visit) {
  visit(*s);
  for (const Stmt& child : s->body) VisitStmts(child, visit);
}

void VisitExprs(const StmtNode& s, const std::function<void(const Expr&)>& visit) {
  if (s.condition != nullptr) visit(s.condition);
  for (const Expr& index : s.indices) visit(index);
  if (s.value != nullptr) visit(s.value);
}

Stmt RewriteStmt(const Stmt& s, const std::function<Stmt(const Stmt&)>& stmt,
                 const std::function<Expr(const Expr&)>& expr) {
  std::shared_ptr<StmtNode> changed;
  auto mutable_node = [&]() -> StmtNode& {
    if (changed == nullptr) changed = MakeNode<StmtNode>(*s);
    return *changed;
  };
  for (size_t i = 0; i < s->body.size(); ++i) {
    Stmt child = RewriteStmt(s->body[i], stmt, expr);
    if (child != s->body[i]) mutable_node().body[i] = std::move(child);
  }
  if (expr) {
    if (s->condition != nullptr) {
      Expr e = expr(s->condition);
      if (e != s->condition) mutable_node().condition = std::move(e);
    }
    for (size_t i = 0; i < s->indices.size(); ++i) {
      Expr e = expr(s->indices[i]);
      if (e != s->indices[i]) mutable_node().indices[i] = std::move(e);
    }
    if (s->value != nullptr) {
      Expr e = expr(s->value);
      if (e != s->value) mutable_node().value = std::move(e);
    }
  }
  Stmt current = changed != nullptr ? Stmt(changed) : s;
  if (current->kind == StmtNode::Kind::kSeq && changed != nullptr) current = Seq(changed->body);
  if (!stmt) return current;
  Stmt replacement = stmt(current);
  return replacement != nullptr ? replacement : current;
}

Stmt RewriteBodies(const Stmt& s, absl::FunctionRef<Stmt(const Stmt&)> rewrite) {
  std::shared_ptr<StmtNode> changed;
  for (size_t i = 0; i < s->body.size(); ++i) {
    Stmt child = rewrite(s->body[i]);
    if (child == s->body[i]) continue;
    if (changed == nullptr) changed = MakeNode<StmtNode>(*s);
    changed->body[i] = std::move(child);
  }
  if (changed == nullptr) return s;
  return s->kind == StmtNode::Kind::kSeq ? Seq(std::move(changed->body)) : changed;
}

namespace {

using VariableSet = absl::flat_hash_set<const Variable*>;

void AddRegisterIndices(const BufferRef& buffer, const ExprList& indices, VariableSet& found) {
  if (buffer->scope != Scope::kLocal) return;
  for (const Expr& index : indices) {
    Visit(index, [&](const Expr& e) {
      if (e->op == Op::kVar) found.insert(e->var.get());
    });
  }
}

void AddRegisterIndices(const Expr& e, VariableSet& found) {
  if (e->op == Op::kLoad) return AddRegisterIndices(e->buffer, e->args, found);
  for (const Expr& arg : e->args) AddRegisterIndices(arg, found);
}

}  // namespace

absl::flat_hash_set<const Variable*> RegisterIndices(const Stmt& body) {
  VariableSet found;
  VisitStmts(body, [&](const StmtNode& s) {
    if (s.buffer != nullptr) AddRegisterIndices(s.buffer, s.indices, found);
    VisitExprs(s, [&](const Expr& held) { AddRegisterIndices(held, found); });
  });
  return found;
}

namespace {

std::string Access(const StmtNode& s) {
  std::string out = absl::StrCat(s.buffer->name, "[");
  for (size_t i = 0; i < s.indices.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ", ", ToString(s.indices[i]));
  }
  absl::StrAppend(&out, "]");
  if (s.lanes > 1) absl::StrAppend(&out, ":", s.lanes);
  return out;
}

std::string Describe(const Buffer& b) {
  std::string out = absl::StrCat(NameOf(b.scope), " ", NameOf(b.dtype), " ", b.name, "[",
                                 absl::StrJoin(b.shape, ", "), "]");
  int64_t tight = 1;
  bool is_tight = true;
  for (size_t i = b.shape.size(); i-- > 0;) {
    is_tight = is_tight && (b.shape[i] == 1 || b.strides[i] == tight);
    tight *= b.shape[i];
  }
  if (!is_tight) absl::StrAppend(&out, " strides [", absl::StrJoin(b.strides, ", "), "]");
  if (b.swizzle != 0) {
    absl::StrAppend(&out, " swizzle ", b.swizzle, " in rows of ", b.swizzle_row);
    if (b.swizzle_period > 1) absl::StrAppend(&out, ", ", b.swizzle_period, " alike");
  }
  return out;
}

std::string IntrinText(const StmtNode& s) {
  std::string out = EffectsOf(s.intrinsic).name;
  if (CombinesWarps(s.intrinsic)) {
    return absl::StrCat(out, " ", Access(s), " = ", NameOf(s.combiner), " over ", s.int_value,
                        " threads");
  }
  if (s.intrinsic == Intrinsic::kAtomicCombine) {
    return absl::StrCat(out, " ", Access(s), " = ", NameOf(s.combiner), " of it and ",
                        ToString(s.value));
  }
  const bool in_shared = s.intrinsic == Intrinsic::kWarpgroupMultiply;
  if (s.intrinsic == Intrinsic::kMatrixMultiply || in_shared) {
    const auto operand = [&](size_t i) {
      return absl::StrCat(ToString(MatrixOperandOf(s, i)),
                          in_shared && s.operands[i].transposed ? " transposed" : "");
    };
    return absl::StrCat(out, " ", Access(s), " += ", operand(0), " * ", operand(1), " by ",
                        s.matrix().name);
  }
  if (s.intrinsic == Intrinsic::kPhaseExpect || s.intrinsic == Intrinsic::kPhaseWait) {
    return s.value == nullptr ? absl::StrCat(out, " ", Access(s), " ", s.int_value, " bytes")
                              : absl::StrCat(out, " ", Access(s), " ", ToString(s.value));
  }
  if (s.intrinsic == Intrinsic::kBulkCopy) {
    return absl::StrCat(out, " ", Access(s), " = ", ToString(s.value), " of ",
                        absl::StrJoin(s.box, " x "), " in ", s.base->name);
  }
  if (s.intrinsic == Intrinsic::kHandBack) {
    return absl::StrCat(out, " ", ToString(s.indices[0]), " of ", s.int_value);
  }
  if (s.value != nullptr) {
    absl::StrAppend(&out, " ", Access(s), " = ", ToString(s.value));
  } else if (s.buffer != nullptr) {
    absl::StrAppend(&out, " ", s.buffer->name);
  }
  if (s.intrinsic == Intrinsic::kLoadMatrix || s.intrinsic == Intrinsic::kLoadMatrixTransposed) {
    absl::StrAppend(&out, " in ", s.int_value, " blocks");
  }
  if (s.intrinsic == Intrinsic::kAsyncWait || s.intrinsic == Intrinsic::kProductWait) {
    absl::StrAppend(&out, " ", s.int_value);
  }
  return out;
}

}  // namespace

std::string ToString(const Stmt& s, int indent) {
  const std::string pad(static_cast<size_t>(indent) * 2, ' ');
  std::string out;
  switch (s->kind) {
    case StmtNode::Kind::kSeq:
      for (const Stmt& child : s->body) out += ToString(child, indent);
      return out;
    case StmtNode::Kind::kFor: {
      static constexpr const char* kKinds[] = {"for", "unrolled", "vector"};
      absl::StrAppend(&out, pad, kKinds[static_cast<int>(s->for_kind)], " ", s->var->name, " in ",
                      s->value == nullptr ? "0" : ToString(s->value), "..", s->var->extent);
      if (s->value != nullptr) absl::StrAppend(&out, " by ", s->int_value);
      if (s->rotating != nullptr) {
        absl::StrAppend(&out, " rotating ", s->rotating->name, " % ", s->rotating->extent);
      }
      if (s->condition != nullptr) {
        absl::StrAppend(&out, " backward if ", ToString(s->condition));
      }
      return absl::StrCat(out, "\n", ToString(s->body[0], indent + 1));
    }
    case StmtNode::Kind::kIf:
      return absl::StrCat(pad, s->int_value != 0 ? "rarely if " : "if ", ToString(s->condition),
                          "\n", ToString(s->body[0], indent + 1));
    case StmtNode::Kind::kStore:
      return absl::StrCat(pad, Access(*s), " = ", ToString(s->value), "\n");
    case StmtNode::Kind::kAlloc:
      return absl::StrCat(pad, "alloc ", Describe(*s->buffer), "\n", ToString(s->body[0], indent));
    case StmtNode::Kind::kIntrin:
      return absl::StrCat(pad, IntrinText(*s), "\n");
    case StmtNode::Kind::kLet:
      absl::StrAppend(&out, pad, "let ", s->buffer != nullptr ? s->buffer->name : s->var->name,
                      " = ");
      if (s->buffer != nullptr) absl::StrAppend(&out, "&", s->base->name, "[");
      absl::StrAppend(&out, ToString(s->value), s->buffer != nullptr ? "]" : "");
      if (s->int_value != 0) absl::StrAppend(&out, " moving by ", s->int_value);
      return absl::StrCat(out, "\n", ToString(s->body[0], indent));
    case StmtNode::Kind::kComment:
      return absl::StrCat(pad, "# ", s->text, "\n");
  }
  HEDDLE_CHECK(false, "a statement without a text");
}

const StmtNode* SharedTurns(const Kernel& kernel) {
  const bool several = kernel.body->kind == StmtNode::Kind::kSeq && !kernel.body->body.empty();
  const StmtNode* last = several ? kernel.body->body.back().get() : kernel.body.get();
  return last->kind == StmtNode::Kind::kFor && last->value != nullptr ? last : nullptr;
}

std::string ToString(const Kernel& kernel) {
  std::string out = absl::StrCat("kernel ", kernel.name, " grid ", kernel.block->extent, " block ",
                                 kernel.thread->extent);
  if (kernel.min_blocks > 0) absl::StrAppend(&out, " min_blocks ", kernel.min_blocks);
  absl::StrAppend(&out, "\n");
  for (size_t i = 0; i < kernel.arguments.size(); ++i) {
    absl::StrAppend(&out, "  ", kernel.written[i] ? "writes " : "reads  ",
                    Describe(*kernel.arguments[i]), "\n");
  }
  for (const Kernel::SharedBuffer& s : kernel.shared) {
    absl::StrAppend(&out, "  ", Describe(*s.buffer), " at byte ", s.offset, "\n");
  }
  return absl::StrCat(out, ToString(kernel.body, 1));
}

std::string ToString(const Program& program) {
  std::string out;
  for (const Kernel& kernel : program.kernels) out += ToString(kernel);
  return out;
}

}  // namespace heddle::search_space
