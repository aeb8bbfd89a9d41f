#include "tuner/model/analytic/profiler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/base/attributes.h"
#include "base/math.h"
#include "search_space/ir/expr/simplify.h"
#include "tuner/model/analytic/address_pattern.h"
#include "tuner/model/analytic/kernel_footprint.h"

namespace heddle::tuner {
namespace {

using search_space::BufferRef;
using search_space::DType;
using search_space::Expr;
using search_space::ExprList;
using search_space::ForKind;
using search_space::Intrinsic;
using search_space::Op;
using search_space::Scope;
using search_space::Stmt;
using search_space::StmtNode;
using search_space::Var;

// Instructions of functions that are more than one, as nvcc 13 writes them for sm_90 without
// fast-math: {executions of the special function unit, others}, counted in its SASS.
struct FunctionCost {
  Op op;
  double special, others;
};
constexpr FunctionCost kFunctions[] = {
    {Op::kDiv, 1, 8},      {Op::kExp, 1, 6},   {Op::kLog, 1, 18},
    {Op::kSqrt, 1, 8},     {Op::kRsqrt, 1, 3}, {Op::kTanh, 2, 12},
    {Op::kSigmoid, 2, 15}, {Op::kErf, 1, 20},  {Op::kPow, 2, 40},
};

// Integer instructions of a division by a constant that is no power of two: a multiplication for
// the high half, shifts, and for the remainder one more multiply-add.
constexpr double kDivideCost = 3, kRemainderCost = 4;
// Counter, comparison and branch of a serial loop.
constexpr double kLoopCost = 3;
// Adding a run-time offset to a 64-bit pointer.
constexpr double kGlobalAddressCost = 2;

bool CopiesInBulk(const StmtNode& branch) {
  bool has = false;
  VisitStmts(branch.body[0], [&](const StmtNode& s) {
    has = has || (s.kind == StmtNode::Kind::kIntrin && s.intrinsic == Intrinsic::kBulkCopy);
  });
  return has;
}

// Does one thread start bulk copies there?
bool StartsBulkCopies(const StmtNode& branch) {
  return branch.condition->op == Op::kEq && CopiesInBulk(branch);
}

// Walks one kernel.
class Profiler {
 public:
  Profiler(KernelProfile& profile, const Var& thread)
      : p_(profile), vars_(profile.variables), thread_(thread) {
    mask_.values = vars_.lanes();
    mask_.Measure();
  }

  void Walk(const StmtNode& s);

 private:
  // Which lanes of the samples execute.
  struct Mask {
    Sampled values;                         // of full width; 0 or 1
    double share = 1;                       // of the iterations, where that is known exactly
    double warps = 1;                       // that times share of the sampled warps with any lane
    double lanes = 32;                      // mean active lanes of those warps
    bool partial = false;                   // a condition switches lanes or warps off
    std::array<double, kWarpSamples> on{};  // lanes of each warp

    void Measure() {
      double warps_on = 0, lanes_on = 0;
      for (size_t w = 0; w < kWarpSamples; ++w) {
        const auto first = values.v.begin() + static_cast<std::ptrdiff_t>(w * kLanes);
        on[w] = std::accumulate(first, first + kLanes, 0.0);
        warps_on += on[w] > 0 ? 1 : 0;
        lanes_on += on[w];
      }
      warps = share * warps_on / kWarpSamples;
      lanes = warps_on > 0 ? lanes_on / warps_on : 0;
    }
  };

  Mask Under(const Expr& condition, bool negated);
  ABSL_ATTRIBUTE_NOINLINE void Narrow(const Expr& condition, bool negated) {
    mask_ = Under(condition, negated);
  }
  // Is it what a block that stays begins for its next number?
  bool IsForNextTurn(const StmtNode& branch) const {
    const Expr& c = branch.condition;
    return p_.turns > 1 && c->op == Op::kLt && c->args[0]->op == Op::kVar &&
           c->args[1]->op == Op::kInt && vars_.SlotOf(c->args[0]->var) == p_.block_slot &&
           CopiesInBulk(branch);
  }
  void WalkFor(const StmtNode& s);
  void WalkWrite(const StmtNode& s);
  void WalkBulkCopy(const StmtNode& s);
  void WalkAtomicCombine(const StmtNode& s);
  void WalkLoadMatrix(const StmtNode& s);
  void WalkMatrixMultiply(const StmtNode& s);
  void Value(const Expr& e);
  void Operation(const Expr& e);
  void AddAccess(const BufferRef& buffer, const ExprList& indices, int lanes, bool store,
                 bool async);
  bool IsKnown(const Access& access, const ExprList& indices) const;
  void Count(double& kind, double cost = 1) {
    kind += cost * trips_ * mask_.warps;
    WorkHere() += cost * trips_ * mask_.warps;
    p_.code_size += cost * static_trips_;
  }
  void Flops(double n) {
    p_.flops += n * trips_ * mask_.warps * mask_.lanes * p_.warps * p_.blocks;
  }
  // What an index expression varies with: loops of stack_ as bits, and whether with anything that
  // is known at run time only (threads, blocks, serial loops).
  struct Varies {
    uint64_t loops = 0;
    bool at_run_time = false;
  };
  // Counts the integer instructions of an index expression. Where it is `linear` in an unrolled
  // loop's variable, that is a number in the instruction and costs nothing. Adds to `mixed_` the
  // unrolled loops that a division takes together with run-time values: every copy then has an
  // address of its own.
  Varies IndexCost(const Expr& e, bool linear);
  void CountIndex(double cost, const Varies& varies);
  int InnermostSerial() const;
  double& WorkHere();

  KernelProfile& p_;
  SampledVariables& vars_;
  const Var thread_;
  bool in_bulk_copy_ = false;
  struct OpenLoop {
    int id;
    const search_space::Variable* var;
    bool unrolled;
  };
  std::vector<OpenLoop> stack_;
  double trips_ = 1;         // executions a thread of what is walked
  double static_trips_ = 1;  // copies of it in the text
  double vector_ = 1;        // extent of the enclosing vector loop
  double locals_ = 0;        // 4-byte registers of the buffers that exist here
  // What fills local buffers, as bits; `source_` is that of the value being walked.
  static constexpr uint8_t kShared = 1, kGlobal = 2, kComputed = 4;
  uint8_t source_ = 0;
  absl::flat_hash_map<const search_space::Buffer*, uint8_t> sources_;
  uint64_t mixed_ = 0;  // see IndexCost
  Mask mask_;
};

void Profiler::Walk(const StmtNode& s) {
  switch (s.kind) {
    case StmtNode::Kind::kSeq:
      for (const Stmt& child : s.body) Walk(*child);
      return;
    case StmtNode::Kind::kFor:
      // Blocks that stay are looked at as if each iteration were one of its own.
      if (s.value != nullptr) return Walk(*s.body[0]);
      return WalkFor(s);
    case StmtNode::Kind::kIf: {
      const Mask outer = mask_;
      if (IsForNextTurn(s)) return;  // counted in front of the loop
      Value(s.condition);
      if (s.int_value != 0) return;  // hardly ever
      // What one thread starts for the block is counted as if all shared it.
      if (!StartsBulkCopies(s)) mask_ = Under(s.condition, false);
      Walk(*s.body[0]);
      mask_ = outer;
      return;
    }
    case StmtNode::Kind::kAlloc: {
      const double registers = static_cast<double>(s.buffer->bytes()) / 4;
      locals_ += registers;
      p_.live_locals = std::max(p_.live_locals, locals_);
      p_.largest_local = std::max(p_.largest_local, registers);
      Walk(*s.body[0]);
      locals_ -= registers;
      const uint8_t sources = sources_[s.buffer.get()];
      (sources == kShared   ? p_.fragments
       : sources == kGlobal ? p_.staged
                            : p_.accumulators) += registers;
      return;
    }
    case StmtNode::Kind::kStore:
      return WalkWrite(s);
    case StmtNode::Kind::kIntrin:
      if (s.intrinsic == Intrinsic::kAsyncCopy) return WalkWrite(s);
      if (s.intrinsic == Intrinsic::kBulkCopy) return WalkBulkCopy(s);
      if (s.intrinsic == Intrinsic::kAtomicCombine) return WalkAtomicCombine(s);
      if (s.intrinsic == Intrinsic::kMatrixMultiply ||
          s.intrinsic == Intrinsic::kWarpgroupMultiply) {
        return WalkMatrixMultiply(s);
      }
      if (s.intrinsic == Intrinsic::kLoadMatrix ||
          s.intrinsic == Intrinsic::kLoadMatrixTransposed) {
        return WalkLoadMatrix(s);
      }
      if (s.intrinsic != Intrinsic::kAsyncCommit) Count(p_.instructions.barrier);
      p_.locals_at_barriers = std::max(p_.locals_at_barriers, locals_);
      if (EffectsOf(s.intrinsic).orders_shared && InnermostSerial() >= 0) {
        p_.loops[static_cast<size_t>(InnermostSerial())].has_barrier = true;
      }
      return;
    case StmtNode::Kind::kComment:
    case StmtNode::Kind::kLet:  // made by back ends, after this
      return;
  }
}

// Traffic like that of threads which copy 16 bytes each, one after another, but none of their
// instructions.
void Profiler::WalkBulkCopy(const StmtNode& s) {
  constexpr int kWidth = 8;
  const int64_t elements =
      std::accumulate(s.box.begin(), s.box.end(), int64_t{1}, std::multiplies<>());
  const int64_t threads = std::min(thread_->extent, elements / kWidth);
  const Var trip = search_space::MakeVar("e", std::max<int64_t>(1, elements / kWidth / threads));
  const Var lane = search_space::MakeVar("v", kWidth);
  Expr at =
      (VarExpr(trip) * search_space::Int(threads) + VarExpr(thread_)) * search_space::Int(kWidth) +
      VarExpr(lane);
  ExprList indices = s.value->args;
  for (size_t d = indices.size(); d-- > 0; at = at / search_space::Int(s.box[d])) {
    indices[d] = search_space::Simplify(indices[d] + at % search_space::Int(s.box[d]));
  }
  const Stmt share = search_space::For(
      trip, ForKind::kUnrolled,
      search_space::For(
          lane, ForKind::kVector,
          search_space::AsyncCopy(s.buffer, s.indices,
                                  Load(s.value->buffer, std::move(indices), kWidth), kWidth)));
  const Mask outer = mask_;
  if (threads < thread_->extent) {
    mask_ = Under(VarExpr(thread_) < search_space::Int(threads), false);
  }
  in_bulk_copy_ = true;
  Walk(*share);
  in_bulk_copy_ = false;
  mask_ = outer;
  const int64_t rows = elements / s.box.back();
  const auto bytes = static_cast<double>(s.box.back() * SizeOf(s.buffer->dtype));
  p_.short_bulk_rows +=
      trips_ * static_cast<double>(rows) * std::max(0.0, 1 - bytes / kWholeBulkRow);
}

void Profiler::WalkFor(const StmtNode& s) {
  const bool unrolled = s.for_kind != ForKind::kSerial;
  LoopProfile loop;
  loop.slot = vars_.Bind(s.var, s.for_kind == ForKind::kVector);
  loop.extent = static_cast<double>(s.var->extent);
  loop.serial = !unrolled;
  loop.vector = s.for_kind == ForKind::kVector;
  loop.parent = stack_.empty() ? -1 : stack_.back().id;
  loop.trips = trips_ * loop.extent;
  if (s.rotating != nullptr) {
    vars_.Bind(s.rotating);
    loop.lookahead = std::max<int>(1, static_cast<int>(s.rotating->extent) - 1);
    p_.pipeline_depth = std::max(p_.pipeline_depth, static_cast<int>(s.rotating->extent));
  }
  stack_.push_back({static_cast<int>(p_.loops.size()), s.var.get(), unrolled});
  p_.loops.push_back(loop);
  const double trips = trips_, static_trips = static_trips_, vector = vector_;
  trips_ *= loop.extent;
  if (unrolled) static_trips_ *= loop.extent;
  if (s.for_kind == ForKind::kVector) vector_ = loop.extent;
  if (!unrolled) {
    Count(p_.instructions.integer, kLoopCost);
    const auto depth =
        std::count_if(stack_.begin(), stack_.end(), [](const OpenLoop& l) { return !l.unrolled; });
    p_.loop_depth = std::max(p_.loop_depth, static_cast<int>(depth));
  }
  Walk(*s.body[0]);
  trips_ = trips;
  static_trips_ = static_trips;
  vector_ = vector;
  stack_.pop_back();
}

Profiler::Mask Profiler::Under(const Expr& condition, bool negated) {
  Mask under = mask_;
  under.partial = true;
  // Samples are too few for the iterations of a loop that a number bounds.
  const bool bound = condition->op == Op::kLt && condition->args[0]->op == Op::kVar &&
                     condition->args[1]->op == Op::kInt;
  const auto loop = std::find_if(stack_.begin(), stack_.end(), [&](const OpenLoop& l) {
    return bound && l.var == condition->args[0]->var.get();
  });
  if (loop != stack_.end()) {
    const double holding = std::clamp(static_cast<double>(condition->args[1]->int_value) /
                                          p_.loops[static_cast<size_t>(loop->id)].extent,
                                      0.0, 1.0);
    under.share *= negated ? 1 - holding : holding;
    under.Measure();
    return under;
  }
  Sampled holds = vars_.Values(condition);
  holds.Widen(kSamples);
  for (size_t i = 0; i < kSamples; ++i) {
    under.values.v[i] *= (holds.v[i] != 0) != negated ? 1.0 : 0.0;
  }
  under.Measure();
  return under;
}

void Profiler::WalkWrite(const StmtNode& s) {
  const bool async = s.kind == StmtNode::Kind::kIntrin;
  if (async) {
    const bool selected = s.value->op == Op::kSelect;
    const Expr& load = selected ? s.value->args[1] : s.value;
    const Mask outer = mask_;
    if (selected) {
      Value(s.value->args[0]);
      mask_ = Under(s.value->args[0], false);
    }
    AddAccess(load->buffer, load->args, load->lanes, false, true);
    mask_ = outer;
    if (in_bulk_copy_) return;
  } else {
    source_ = 0;
    Value(s.value);
    if (s.buffer->scope == Scope::kLocal)
      sources_[s.buffer.get()] |= source_ == 0 ? kComputed : source_;
  }
  AddAccess(s.buffer, s.indices, s.lanes, true, async);
}

// One instruction updates integers, greatest and least ones (as integers), and sums in global
// memory. Of the others compilers write a loop that reads, combines, and writes unless somebody
// else has written.
void Profiler::WalkAtomicCombine(const StmtNode& s) {
  using search_space::Combiner;
  constexpr double kOfLoop = 4;  // comparisons and branches
  const bool is_global = s.buffer->scope == Scope::kGlobal;
  const bool is_one = s.buffer->dtype == DType::kInt32 || s.combiner == Combiner::kMax ||
                      s.combiner == Combiner::kMin || (is_global && s.combiner == Combiner::kSum);
  Value(s.value);
  if (!is_one) {
    Count(p_.instructions.add_mul);
    Count(p_.instructions.integer, kOfLoop);
    AddAccess(s.buffer, s.indices, 1, false, false);
  }
  AddAccess(s.buffer, s.indices, s.lanes, true, false);
  p_.accesses.back().update = is_global;
}

// Each lane names 16 bytes, which go through the banks as those of a wide load do.
void Profiler::WalkLoadMatrix(const StmtNode& s) {
  static constexpr int kRow = 8;
  sources_[s.buffer.get()] |= kShared;
  trips_ *= kRow;
  AddAccess(s.value->buffer, s.value->args, kRow, false, false);
  trips_ /= kRow;
}

void Profiler::WalkMatrixMultiply(const StmtNode& s) {
  const search_space::MatrixShape& shape = s.matrix();
  const double warps = shape.in_shared ? search_space::kWarpgroupThreads / kLanes : 1;
  const auto bytes = static_cast<double>(SizeOf(shape.of[0]));
  const auto flops = static_cast<double>(2 * shape.m * shape.n * shape.k) / warps;
  sources_[s.buffer.get()] |= kComputed;
  Count(p_.instructions.matrix);
  // As many as of 16 bits take as long.
  (shape.in_shared ? p_.warpgroup_flops : p_.matrix_flops) +=
      flops * bytes / 2 * trips_ * mask_.warps;
  if (shape.in_shared) {
    const bool is_held = search_space::MatrixOperandOf(s, 0)->buffer->scope == Scope::kLocal;
    const auto elements = static_cast<double>(((is_held ? 0 : shape.m) + shape.n) * shape.k);
    p_.warpgroup_bytes += elements * bytes / warps * trips_ * mask_.warps;
  }
  for (const OpenLoop& l : stack_) p_.loops[static_cast<size_t>(l.id)].multiplies_adds = true;
  Flops(flops / kLanes);
}

// The instructions of a value or a condition.
void Profiler::Value(const Expr& e) {
  if (e->op == Op::kLoad) return AddAccess(e->buffer, e->args, e->lanes, false, false);
  if (e->type == DType::kInt64) {
    IndexCost(e, false);
    return;
  }
  if (e->op == Op::kSelect) {
    Value(e->args[0]);
    // Masks take kilobytes, and definitions nest thousands of operations: none is on the stack.
    const auto outer = std::make_unique<const Mask>(mask_);
    Narrow(e->args[0], false);
    Value(e->args[1]);
    mask_ = *outer;
    if (e->args[2]->op != Op::kFloat) {
      Narrow(e->args[0], true);
      Value(e->args[2]);
      mask_ = *outer;
    }
    Count(p_.instructions.add_mul);
    return;
  }
  if (e->type == DType::kBool) {
    if (e->args.size() == 2 && e->args[0]->type == DType::kInt64) {
      IndexCost(e, false);
      return;
    }
    for (const Expr& arg : e->args) Value(arg);
    if (!e->args.empty() && IsFloat(e->args[0]->type)) Count(p_.instructions.add_mul);
    return;
  }
  Operation(e);
}

// Arithmetic on floats.
void Profiler::Operation(const Expr& e) {
  if (e->args.empty()) return;
  if (e->op == Op::kAdd || e->op == Op::kSub) {
    // nvcc contracts a product and a sum.
    for (size_t i = 0; i < 2; ++i) {
      if (e->args[i]->op != Op::kMul) continue;
      for (const Expr& factor : e->args[i]->args) Value(factor);
      Value(e->args[1 - i]);
      Count(p_.instructions.fma);
      for (const OpenLoop& l : stack_) {
        p_.loops[static_cast<size_t>(l.id)].multiplies_adds = true;
      }
      Flops(2);
      return;
    }
  }
  for (const Expr& arg : e->args) Value(arg);
  for (const FunctionCost& f : kFunctions) {
    if (f.op != e->op) continue;
    Count(p_.instructions.special, f.special);
    Count(p_.instructions.helper, f.others);
    Flops(1);
    return;
  }
  Count(p_.instructions.add_mul);
  if (e->op != Op::kCast) Flops(1);
}

// The compiler computes an index where the last serial loop it varies with stands, once for every
// copy that unrolled loops make of it.
void Profiler::CountIndex(double cost, const Varies& varies) {
  if (!varies.at_run_time) return;
  double times = 1;
  for (size_t i = stack_.size(); i-- > 0;) {
    if ((varies.loops >> i & 1U) == 0) continue;
    const LoopProfile& loop = p_.loops[static_cast<size_t>(stack_[i].id)];
    times *= loop.serial ? loop.trips : loop.extent;
    if (loop.serial) break;
  }
  p_.instructions.integer += cost * times * mask_.warps;
}

Profiler::Varies Profiler::IndexCost(const Expr& e, bool linear) {
  switch (e->op) {
    case Op::kInt:
    case Op::kFloat:
      return {};
    case Op::kVar:
      for (size_t i = stack_.size(); i-- > 0;) {
        if (stack_[i].var != e->var.get()) continue;
        if (linear && stack_[i].unrolled) return {};
        return {uint64_t{1} << i, !stack_[i].unrolled};
      }
      return {0, true};
    case Op::kLoad:
      AddAccess(e->buffer, e->args, e->lanes, false, false);
      return {(uint64_t{1} << stack_.size()) - 1, true};
    default:
      break;
  }
  const bool sum = e->op == Op::kAdd || e->op == Op::kSub || e->op == Op::kMul;
  Varies varies;
  int operands = 0;
  for (const Expr& arg : e->args) {
    const Varies v = IndexCost(arg, linear && sum);
    operands += v.at_run_time || v.loops != 0 ? 1 : 0;
    varies.loops |= v.loops;
    varies.at_run_time = varies.at_run_time || v.at_run_time;
  }
  switch (e->op) {
    case Op::kMul:  // by a constant: part of the multiply-add that adds it
    case Op::kAnd:  // of predicates: part of the comparison
    case Op::kOr:
    case Op::kNot:
      break;
    case Op::kAdd:
    case Op::kSub:
      if (!linear || operands > 1) CountIndex(1, varies);
      break;
    case Op::kDiv:
    case Op::kMod: {
      const bool shift = IsPowerOfTwo(e->args[1]->int_value);
      CountIndex(shift ? 1 : (e->op == Op::kDiv ? kDivideCost : kRemainderCost), varies);
      if (varies.at_run_time) mixed_ |= varies.loops;
      break;
    }
    default:
      CountIndex(1, varies);
  }
  return varies;
}

int Profiler::InnermostSerial() const {
  for (size_t i = stack_.size(); i-- > 0;) {
    if (!stack_[i].unrolled) return stack_[i].id;
  }
  return -1;
}

double& Profiler::WorkHere() {
  for (size_t i = stack_.size(); i-- > 0;) {
    LoopProfile& loop = p_.loops[static_cast<size_t>(stack_[i].id)];
    if (loop.repeats()) return loop.work;
  }
  return p_.work;
}

void Profiler::AddAccess(const BufferRef& buffer, const ExprList& indices, int lanes, bool store,
                         bool async) {
  const bool global = buffer->scope == Scope::kGlobal;
  source_ |= global ? kGlobal : buffer->scope == Scope::kShared ? kShared : kComputed;
  if (buffer->scope == Scope::kLocal) return;
  Access access{.buffer = buffer};
  access.store = store;
  access.async = async;
  access.bulk = in_bulk_copy_;
  access.conditional = mask_.partial;
  access.lanes = lanes;
  access.trips = trips_ / lanes;
  access.issued = access.trips * mask_.warps;
  access.active = mask_.lanes;
  for (const OpenLoop& l : stack_) access.loops.push_back(l.id);
  if (global && !store && IsKnown(access, indices)) return;

  Varies varies;
  mixed_ = 0;
  for (const Expr& index : indices) {
    if (in_bulk_copy_) break;
    const Varies v = IndexCost(index, true);
    varies.loops |= v.loops;
    varies.at_run_time = varies.at_run_time || v.at_run_time;
  }
  if (global && !in_bulk_copy_) CountIndex(kGlobalAddressCost, varies);
  for (size_t i = 0; i < stack_.size(); ++i) {
    const bool distinct = (mixed_ >> i & 1U) != 0 || buffer->swizzle != 0;
    if (distinct && stack_[i].unrolled)
      access.addresses *= p_.loops[static_cast<size_t>(stack_[i].id)].extent;
  }

  Instructions& n = p_.instructions;
  // The two halves of an asynchronous copy are one instruction.
  if (async && store) {
    Count(n.async_copy, 1.0 / lanes);
  } else if (!async) {
    Count(store ? (global ? n.global_store : n.shared_store)
                : (global ? n.global_load : n.shared_load),
          1.0 / lanes);
  }
  const int serial = InnermostSerial();
  if (!store) {
    bool& flag = serial < 0 ? (global ? p_.loads_global : p_.loads_shared)
                            : (global ? p_.loops[static_cast<size_t>(serial)].loads_global
                                      : p_.loops[static_cast<size_t>(serial)].loads_shared);
    flag = true;
  }
  MeasureAddresses(vars_, mask_.values, mask_.on, indices, access);
  access.indices = indices;  // last: values of nodes that two refer to would be kept
  p_.accesses.push_back(std::move(access));
}

// Has the same been loaded as often under the same conditions? The compiler loads it once (no
// kernel writes what it reads), which matters in the transforms of Winograd's convolution.
bool Profiler::IsKnown(const Access& access, const ExprList& indices) const {
  return std::any_of(p_.accesses.rbegin(), p_.accesses.rend(), [&](const Access& a) {
    return a.buffer == access.buffer && !a.store && a.async == access.async &&
           a.lanes == access.lanes && a.issued == access.issued && a.active == access.active &&
           a.loops.size() == access.loops.size() &&
           std::equal(a.indices.begin(), a.indices.end(), indices.begin(),
                      search_space::StructurallyEqual);
  });
}

void MeasureBursts(KernelProfile& p) {
  std::vector<double> issued(p.loops.size(), 0);
  for (const Access& a : p.accesses) {
    if (a.store || !a.async || a.bulk) continue;
    const auto around = std::find_if(a.loops.rbegin(), a.loops.rend(), [&](int l) {
      return p.loops[static_cast<size_t>(l)].multiplies_adds;
    });
    if (around != a.loops.rend()) issued[static_cast<size_t>(*around)] += a.issued;
  }
  for (size_t l = 0; l < issued.size(); ++l) {
    const double burst = issued[l] / p.loops[l].trips;
    if (burst <= p.burst) continue;
    p.burst = burst;
    p.bursts = p.loops[l].trips;
  }
}

// The number of what a block computes: its own, or that which blocks that stay share.
const Var& NumberOf(const search_space::Kernel& kernel) {
  const StmtNode* turns = search_space::SharedTurns(kernel);
  return turns != nullptr ? turns->var : kernel.block;
}

}  // namespace

KernelProfile ProfileOf(const search_space::Kernel& kernel) {
  const Var& number = NumberOf(kernel);
  const auto blocks = static_cast<double>(number->extent);
  const auto threads = static_cast<double>(kernel.thread->extent);
  KernelProfile p{.blocks = blocks,
                  .turns = blocks / static_cast<double>(kernel.block->extent),
                  .threads = threads,
                  .warps = std::ceil(threads / kLanes),
                  .shared_bytes = static_cast<double>(kernel.shared_bytes),
                  .min_blocks = static_cast<double>(kernel.min_blocks),
                  .variables = SampledVariables(kernel.thread)};
  p.block_slot = p.variables.Bind(number);
  p.variables.BindTo(kernel.block, p.block_slot);
  Profiler(p, kernel.thread).Walk(*kernel.body);
  MeasureFootprints(p);
  MeasureBursts(p);
  return p;
}

}  // namespace heddle::tuner
