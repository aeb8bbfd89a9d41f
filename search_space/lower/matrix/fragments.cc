#include "search_space/lower/matrix/fragments.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/parts.h"
#include "search_space/lower/context/held.h"
#include "search_space/lower/context/values.h"
#include "search_space/schedule/copies/in_flight.h"
#include "search_space/schedule/copies/pipeline.h"
#include "search_space/schedule/matrix/fragment.h"
#include "search_space/schedule/matrix/tensorize.h"
#include "search_space/schedule/rewrites/reductions/split_operand.h"
#include "search_space/schedule/storage/storage_layout.h"

namespace heddle::search_space {
namespace {

// `body` for all values of the variables, in unrolled loops.
Stmt ForAll(const std::vector<Var>& vars, Stmt body) {
  for (size_t i = vars.size(); i-- > 0;) {
    if (vars[i]->extent > 1) body = For(vars[i], ForKind::kUnrolled, std::move(body));
  }
  return body;
}

Expr At(const Var& var) { return var->extent == 1 ? Int(0) : VarExpr(var); }

// One LoadMatrix fills so many matrices that stand one after another along an axis.
struct Pack {
  size_t axis;
  int64_t matrices;
};

Pack ChoosePack(const ScheduledStage& stage, const Fragment& fragment) {
  constexpr int64_t kMostBlocks = 4;
  const int64_t most = kMostBlocks / fragment.layout().blocks();
  for (size_t a = stage.axes.size(); a-- > 0;) {
    const int64_t matrices = stage.extent[a] / fragment.Extent(stage.axes[a]->name);
    if (matrices > 1) return {a, matrices % most == 0 ? most : 1};
  }
  return {0, 1};
}

// Are neighbours along the columns, or else along the rows, of the fragment's matrix neighbours in
// shared memory? None: neither are.
std::optional<bool> HasRowsInMemory(const Fragment& fragment, const ScheduledStage& stage,
                                    const ScheduledStage& source, const Expr& load) {
  const auto* layout = source.Note<StorageLayout>();
  const size_t inner =
      layout == nullptr ? source.axes.size() - 1 : source.AxisOf(layout->order.back());
  const Expr& index = load->args[inner];
  for (const bool columns : {true, false}) {
    const Var& axis = stage.axes[stage.AxisOf(columns ? fragment.col : fragment.row)];
    if (!MentionsAny(Simplify(index - VarExpr(axis)), {axis.get()})) return columns;
  }
  return std::nullopt;
}

// An operand of a product, in loop variables: `load` from a fragment, without the position inside
// the matrix through whose rows and columns two loops go. Null where they do something else.
Expr MatrixAt(const KernelContext& context, const ScheduledStage& producer, ExprList index,
              const std::vector<Var>& loops, const Var& row, const Var& col) {
  const Fragment& fragment = *producer.Note<Fragment>();
  const KernelContext::Storage& storage = context.storage.at(context.schedule.IndexOf(producer));
  ExprList indices;
  if (storage.slot != nullptr) indices.push_back(storage.slot);
  for (size_t i = 0; i < index.size(); ++i) {
    const std::string& axis = producer.axes[i]->name;
    const Var through = axis == fragment.row ? row : axis == fragment.col ? col : nullptr;
    const Expr first = Simplify(through == nullptr ? index[i] : index[i] - VarExpr(through));
    const int64_t extent = fragment.Extent(axis);
    const ModRem m = ModulusRemainder(first);
    if (m.modulus % extent != 0 || m.remainder % extent != 0) return nullptr;
    for (const Var& loop : loops) {
      if (MentionsAny(first, {loop.get()})) return nullptr;
    }
    indices.push_back(Simplify(first / Int(extent)));
  }
  indices.push_back(Int(0));
  return Load(storage.buffer, std::move(indices));
}

ExprList RelativeTo(const ScheduledStage& producer, const ExprList& args) {
  ExprList relative;
  for (size_t i = 0; i < args.size(); ++i) {
    relative.push_back(Simplify(args[i] - producer.base[i]));
  }
  return relative;
}

// An operand of a product of a warpgroup: the element of `producer`, in shared memory, where the
// matrix begins through which two loops go. Nothing where they do something else.
struct InShared {
  Expr first;
  SharedMatrix matrix;
};

std::optional<InShared> SharedMatrixAt(const KernelContext& context, const ScheduledStage& producer,
                                       const ExprList& index, const std::vector<Var>& loops,
                                       const Var& row, const Var& col) {
  const int p = context.schedule.IndexOf(producer);
  const KernelContext::Storage& storage = context.storage.at(p);
  ExprList first;
  int found[2] = {-1, -1};  // the axes through which rows and columns go
  for (size_t i = 0; i < index.size(); ++i) {
    Expr here = index[i];
    for (int side = 0; side < 2; ++side) {
      const Var& through = side == 0 ? row : col;
      if (!MentionsAny(here, {through.get()})) continue;
      if (found[side] >= 0) return std::nullopt;
      found[side] = static_cast<int>(i);
      here = here - VarExpr(through);
    }
    here = Simplify(here);
    for (const Var& loop : loops) {
      if (MentionsAny(here, {loop.get()})) return std::nullopt;
    }
    first.push_back(here);
  }
  if (found[0] < 0 || found[1] < 0 || found[0] == found[1]) return std::nullopt;
  const Buffer& buffer = *storage.buffer;
  const auto outer = buffer.shape.size() - index.size();  // its copies and blocks
  const bool blocks = outer > (storage.slot != nullptr ? 1u : 0u);
  InShared in;
  in.first = Load(storage.buffer, context.IndicesOf(p, first, storage.slot));
  in.matrix = {.transposed = buffer.strides[outer + static_cast<size_t>(found[0])] == 1,
               .span = buffer.swizzle_row,
               .block = blocks ? buffer.strides[outer - 1] : 0};
  if (in.matrix.transposed && !IsHalf(buffer.dtype)) return std::nullopt;
  return in;
}

// What `value`, in axes of the stage, is where these have the given values.
Expr ValueAt(KernelContext& context, const ScheduledStage& stage, const Expr& value,
             const std::vector<Expr>& at, const Assumptions& assumptions) {
  return Resolve(context,
                 Substitute(value,
                            [&](const Var& v) -> Expr {
                              const int axis = stage.FindAxis(v);
                              return axis < 0 ? nullptr : at[static_cast<size_t>(axis)];
                            }),
                 assumptions);
}

// A reduction's term with loop variables for what it reduces over.
Expr AtReduceLoops(const ScheduledStage& stage) {
  return Substitute(stage.body, [&](const Var& v) -> Expr {
    for (size_t i = 0; i < stage.reduce_axes.size(); ++i) {
      if (stage.reduce_axes[i] == v) return stage.values[stage.axes.size() + i];
    }
    return nullptr;
  });
}

// Each lane's own elements one after another, of neighbours as many as it holds at once: what is
// computed, what is loaded where columns lie one behind the other and blocks cannot be transposed,
// and what is reduced.
Stmt EmitElements(KernelContext& context, int s, const Assumptions& assumptions) {
  const ScheduledStage& here = context.stage(s);
  const Fragment& fragment = *here.Note<Fragment>();
  const FragmentLayout& layout = fragment.layout();
  const Var run = MakeVar(absl::StrCat(here.name(), ".element"), layout.elements() / layout.packed);
  const Var packed = MakeVar(absl::StrCat(here.name(), ".packed"), layout.packed);
  const Expr element = At(run) * Int(layout.packed) + At(packed);
  const Expr lane = VarExpr(context.thread) % Int(layout.lanes());
  const bool is_of_parts = IsOfParts(here);
  std::vector<Var> vars;
  ExprList to;
  std::vector<Expr> from;
  for (size_t i = 0; i < here.axes.size(); ++i) {
    const std::string& axis = here.axes[i]->name;
    const int64_t extent = fragment.Extent(axis);
    vars.push_back(MakeVar(absl::StrCat(here.name(), ".", axis), here.extent[i] / extent));
    to.push_back(At(vars.back()));
    const Expr inside = axis == fragment.row   ? layout.Row(lane, element)
                        : axis == fragment.col ? layout.Col(lane, element)
                                               : Int(0);
    from.push_back(Simplify(here.base[i] + At(vars.back()) * Int(extent) + inside));
  }
  const KernelContext::Storage& storage = context.storage.at(s);
  if (storage.slot != nullptr) to.insert(to.begin(), storage.slot);
  to.push_back(Simplify(element));
  vars.push_back(run);
  const auto of_element = [&](Stmt store) {
    return layout.packed > 1 ? For(packed, ForKind::kVector, std::move(store)) : store;
  };
  // Parts are of one register, so that they are of the same value.
  if (is_of_parts) {
    const std::vector<Var> parts = {vars[0]};
    vars.erase(vars.begin());
    const Expr whole = WholeOf(WithoutCast(here.body));
    const BufferRef held = MakeBuffer(absl::StrCat(here.name(), ".whole"), whole->type,
                                      Scope::kLocal, {layout.packed});
    const Stmt hold = ForAll(
        {packed}, Store(held, {At(packed)}, ValueAt(context, here, whole, from, assumptions)));
    const Expr part = PartOf(from[0], Load(held, {At(packed)}));
    const Stmt store = of_element(Store(storage.buffer, to, Cast(kPartType, part)));
    return ForAll(vars, Alloc(held, Seq({hold, ForAll(parts, store)})));
  }
  if (here.is_reduction()) {
    const Expr term = ValueAt(context, here, AtReduceLoops(here), from, assumptions);
    const Expr sum = Combine(here.combiner, Load(storage.buffer, to), term);
    return ForAll(vars, of_element(Store(storage.buffer, to, sum)));
  }
  Expr value = ValueAt(context, here, here.body, from, assumptions);
  // What is copied from inputs may have more digits, which products would cut off.
  if (value->op == Op::kLoad) value = Cast(value->type, Cast(DType::kFloat32, value));
  return ForAll(vars, of_element(Store(storage.buffer, std::move(to), std::move(value))));
}

}  // namespace

Stmt EmitLoadMatrix(KernelContext& context, int s, const Assumptions& assumptions) {
  const ScheduledStage& here = context.stage(s);
  const Fragment& fragment = *here.Note<Fragment>();
  const FragmentLayout& layout = fragment.layout();
  // What is computed of other stages each lane computes for its own elements, and no instruction
  // loads what several warps hold together, or what lies as results do.
  if (here.body->op != Op::kLoad || layout.warps > 1 || fragment.operand == MatrixOperand::kD) {
    return EmitElements(context, s, assumptions);
  }
  const int source = context.schedule.FindStage(here.body->buffer.get());
  if (source < 0 || context.stage(source).scope != Scope::kShared) {
    return context.Fail(
        absl::StrCat("fragment ", here.name(), " is no copy of a stage in scope shared"));
  }
  const auto in_rows = HasRowsInMemory(fragment, here, context.stage(source), here.body);
  if (!in_rows.has_value()) {
    return context.Fail(absl::StrCat("neither rows nor columns of fragment ", here.name(),
                                     " lie one behind the other in ", here.body->buffer->name));
  }
  if (!*in_rows && !IsHalf(here.tensor->dtype)) return EmitElements(context, s, assumptions);
  const Pack pack = ChoosePack(here, fragment);
  const int64_t blocks = layout.blocks() * pack.matrices, block_rows = layout.rows / 8;
  // Of the lane that names a row of a block: whose it is, and where the block stands in a matrix.
  const Expr t = VarExpr(context.thread);
  const Expr block = t / Int(8) % Int(blocks), line = t % Int(8);
  const Expr matrix = block / Int(layout.blocks()), in_matrix = block % Int(layout.blocks());
  const Expr row = in_matrix % Int(block_rows) * Int(8) + (*in_rows ? line : Int(0));
  const Expr col =
      in_matrix / Int(block_rows) * Int(layout.block_cols()) + (*in_rows ? Int(0) : line);
  std::vector<Var> vars;
  ExprList to;
  std::vector<Expr> from;
  for (size_t i = 0; i < here.axes.size(); ++i) {
    const std::string& axis = here.axes[i]->name;
    const int64_t extent = fragment.Extent(axis), packed = i == pack.axis ? pack.matrices : 1;
    vars.push_back(MakeVar(absl::StrCat(here.name(), ".", axis), here.extent[i] / extent / packed));
    const Expr first = Simplify(At(vars.back()) * Int(packed));
    to.push_back(first);
    const Expr number = packed > 1 ? first + matrix : first;
    const Expr inside = axis == fragment.row ? row : axis == fragment.col ? col : Int(0);
    from.push_back(Simplify(here.base[i] + number * Int(extent) + inside));
  }
  const KernelContext::Storage& storage = context.storage.at(s);
  if (storage.slot != nullptr) to.insert(to.begin(), storage.slot);
  to.push_back(Int(0));
  const Expr load = ValueAt(context, here, here.body, from, assumptions);
  return ForAll(vars, LoadMatrix(storage.buffer, std::move(to), load, blocks, !*in_rows));
}

Stmt EmitReduceElements(KernelContext& context, int s, const Assumptions& assumptions) {
  return EmitElements(context, s, assumptions);
}

Stmt EmitInitFragment(KernelContext& context, int s) {
  const ScheduledStage& here = context.stage(s);
  const BufferRef& buffer = context.storage.at(s).buffer;
  std::vector<Var> vars;
  ExprList indices;
  for (size_t i = 0; i < buffer->shape.size(); ++i) {
    vars.push_back(MakeVar(absl::StrCat(here.name(), ".", i), buffer->shape[i]));
    indices.push_back(At(vars.back()));
  }
  return ForAll(vars, Store(buffer, indices, IdentityOf(here.combiner, buffer->dtype)));
}

bool MultipliesInBackground(const ScheduledStage& s) {
  const auto* fragment = s.Note<Fragment>();
  return fragment != nullptr && s.Note<Tensorize>() != nullptr &&
         ShapeOf(fragment->instruction).in_shared;
}

bool WaitsForGroups(const KernelContext& context, int s) {
  const ScheduledStage& here = context.stage(s);
  bool holds = false;
  Visit(here.body, [&](const Expr& node) {
    const int p = node->op == Op::kLoad ? context.schedule.FindStage(node->buffer.get()) : -1;
    holds = holds || (p >= 0 && context.stage(p).Note<Fragment>() != nullptr);
  });
  return holds || here.Note<Pipeline>() == nullptr;
}

// Products may read and write registers from the fence on.
Stmt EmitGroup(const KernelContext& context, int s, const Stmt& products) {
  std::vector<BufferRef> registers;
  VisitStmts(products, [&](const StmtNode& s) {
    if (s.kind != StmtNode::Kind::kIntrin || s.intrinsic != Intrinsic::kWarpgroupMultiply) return;
    for (const BufferRef& b : {s.buffer, MatrixOperandOf(s, 0)->buffer}) {
      const bool known = std::find(registers.begin(), registers.end(), b) != registers.end();
      if (b->scope == Scope::kLocal && !known) registers.push_back(b);
    }
  });
  std::vector<Stmt> out;
  for (const BufferRef& b : registers) out.push_back(OperandFence(b));
  out.insert(out.end(), {products, ProductCommit()});
  if (WaitsForGroups(context, s)) out.push_back(ProductWait(0, context.storage.at(s).buffer));
  return Seq(std::move(out));
}

Stmt EmitMatrixMultiply(KernelContext& context, int s) {
  const ScheduledStage& here = context.stage(s);
  const MatrixInstruction instruction = here.Note<Fragment>()->instruction;
  std::vector<Var> loops;
  for (size_t l = here.loops.size() - 3; l < here.loops.size(); ++l) {
    loops.push_back(here.loops[l].var);
  }
  const Var &m = loops[0], &n = loops[1], &k = loops[2];
  ExprList own(here.values.begin(), here.values.begin() + static_cast<int>(here.axes.size()));
  const Expr d = MatrixAt(context, here, std::move(own), loops, m, n);
  const bool in_background = MultipliesInBackground(here);
  Expr operands[2];
  std::array<SharedMatrix, 2> matrices;
  const Expr body = AtLoops(context.schedule, here, here.body);
  for (size_t i = 0; body->op == Op::kMul && i < 2; ++i) {
    const Expr& load = WithoutCast(body->args[i]);
    const int p = load->op == Op::kLoad ? context.schedule.FindStage(load->buffer.get()) : -1;
    if (p < 0 || !context.storage.contains(p)) continue;
    const ScheduledStage& producer = context.stage(p);
    const ExprList index = RelativeTo(producer, load->args);
    if (in_background && producer.scope == Scope::kShared) {
      const bool is_a = MentionsAny(load, {m.get()});
      const auto in = SharedMatrixAt(context, producer, index, loops, is_a ? m : n, k);
      if (!in.has_value()) continue;
      operands[is_a ? 0 : 1] = in->first;
      matrices[is_a ? 0 : 1] = in->matrix;
      continue;
    }
    const auto* fragment = producer.Note<Fragment>();
    // The next tile's would be written while products of this one read them.
    if (in_background && here.Note<InFlight>() != nullptr) continue;
    if (fragment == nullptr || fragment->instruction != instruction ||
        fragment->operand == MatrixOperand::kD) {
      continue;
    }
    const bool is_a = fragment->operand == MatrixOperand::kA;
    operands[is_a ? 0 : 1] = MatrixAt(context, producer, index, loops, is_a ? m : n, k);
  }
  if (d == nullptr || operands[0] == nullptr || operands[1] == nullptr) {
    return context.Fail(absl::StrCat(
        ShapeOf(instruction).name, " computes D[m, n] += A[m, k] * B[n, k] of ",
        !in_background                     ? "fragments"
        : here.Note<InFlight>() != nullptr ? "tiles in shared memory"
                                           : "tiles in shared memory and a fragment A",
        in_background && !IsHalf(ShapeOf(instruction).of[0]) ? ", rows along k; " : "; ",
        here.name(), " is ", ToString(here.body), " in loops ", m->name, ", ", n->name, ", ",
        k->name));
  }
  return in_background ? WarpgroupMultiply(instruction, d->buffer, d->args, operands[0],
                                           operands[1], matrices)
                       : MatrixMultiply(instruction, d->buffer, d->args, operands[0], operands[1]);
}

}  // namespace heddle::search_space
