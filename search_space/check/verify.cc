#include "search_space/check/verify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "search_space/check/verify_bulk.h"
#include "search_space/check/verify_matrix.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {
namespace {

constexpr double kOverflow = 0x1p62;
constexpr int64_t kWidestAccess = 16;  // bytes

Expr Not(const Expr& condition) { return Simplify(MakeExpr(Op::kNot, {condition})); }

// The largest magnitude that computing `e` as it is written can meet.
double ReachOf(const Expr& e) {
  if (e->op == Op::kInt) return std::abs(static_cast<double>(e->int_value));
  if (e->op == Op::kVar) return static_cast<double>(e->var->extent - 1);
  if (e->op == Op::kLoad) return -static_cast<double>(INT32_MIN);
  double largest = 0, sum = 0, product = 1;
  for (const Expr& arg : e->args) {
    if (arg->type != DType::kInt64) continue;
    const double reach = ReachOf(arg);
    largest = std::max(largest, reach);
    sum += reach;
    product *= reach;
  }
  if (largest >= kOverflow) return largest;
  switch (e->op) {
    case Op::kAdd:
    case Op::kSub:
      return sum;
    case Op::kMul:
      return product;
    case Op::kDiv:
    case Op::kMod: {
      if (e->args[1]->op != Op::kInt || e->args[1]->int_value < 1) return largest;
      const double divisor = static_cast<double>(e->args[1]->int_value);
      const double dividend = ReachOf(e->args[0]);
      return e->op == Op::kDiv ? dividend / divisor + 1 : divisor - 1;
    }
    default:
      return largest;
  }
}

// Proves one kernel. The first problem found stays in `status_`.
class KernelVerifier {
 public:
  // `readable`: global buffers that hold something when the kernel begins.
  KernelVerifier(const Kernel& kernel, const Target& target,
                 const absl::flat_hash_set<std::string>& readable)
      : kernel_(kernel), target_(target), readable_(readable) {}

  absl::Status Run() {
    CheckLaunch();
    CheckArena();
    if (!status_.ok()) return status_;
    scope_[kernel_.block.get()] = Binding::kUniform;
    scope_[kernel_.thread.get()] = Binding::kDivergent;
    Statement(*kernel_.body);
    for (size_t i = 0; i < kernel_.arguments.size(); ++i) {
      const std::string& name = kernel_.arguments[i]->name;
      if (kernel_.written[i] != stored_.contains(name)) {
        Fail(absl::StrCat(name, kernel_.written[i] ? " is marked as written but never stored to"
                                                   : " is stored to but not marked as written"));
      }
    }
    return status_;
  }

  // Names of the global buffers it stores to.
  const absl::flat_hash_set<std::string>& stored() const { return stored_; }

 private:
  // For which threads a condition is the same.
  enum class Uniformity : uint8_t { kThread, kWarp, kWarpgroup, kBlock };

  // What the values of a variable are good for.
  enum class Binding : uint8_t {
    kDivergent,  // differs between threads
    kUniform,    // a serial loop or the block index
    kUnrolled,   // a constant once loops are expanded
  };

  void Fail(const std::string& message) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat("kernel ", kernel_.name, ": ", message));
    }
  }

  void CheckLimit(const char* what, int64_t value, int64_t limit) {
    if (value <= limit || !status_.ok()) return;
    status_ = absl::ResourceExhaustedError(absl::StrCat("kernel ", kernel_.name, ": ", value, " ",
                                                        what, "; the device allows ", limit));
  }

  void CheckLaunch() {
    CheckLimit("threads a block", kernel_.thread->extent, target_.max_threads_per_block);
    CheckLimit("blocks", kernel_.block->extent, target_.max_grid);
    CheckLimit("bytes of shared memory", kernel_.shared_bytes, target_.max_shared_bytes_per_block);
    if (kernel_.written.size() != kernel_.arguments.size()) {
      Fail("`written` does not have one entry for each argument");
    }
  }

  void CheckArena() {
    int64_t end = 0;
    for (const Kernel::SharedBuffer& s : kernel_.shared) {
      end = std::max(end, s.offset + s.buffer->bytes());
      if (s.offset < 0 || s.offset % std::max(kWidestAccess, s.buffer->alignment) != 0) {
        Fail(absl::StrCat("shared ", s.buffer->name, " begins at byte ", s.offset,
                          ", which is no multiple of ",
                          std::max(kWidestAccess, s.buffer->alignment)));
      }
      shared_[s.buffer.get()] = s.offset;
    }
    if (kernel_.shared_bytes < end || kernel_.shared_bytes >= end + kWidestAccess) {
      Fail(absl::StrCat("its shared buffers end at byte ", end, " of an arena of ",
                        kernel_.shared_bytes));
    }
  }

  // --------------------------------------------------------------------------------- statements
  void Statement(const StmtNode& s) {
    if (!status_.ok()) return;
    switch (s.kind) {
      case StmtNode::Kind::kSeq:
      case StmtNode::Kind::kComment:
        break;
      case StmtNode::Kind::kFor:
        return Loop(s);
      case StmtNode::Kind::kIf:
        return Branch(s);
      case StmtNode::Kind::kStore:
        return Write(s);
      case StmtNode::Kind::kAlloc:
        if (s.buffer->scope != Scope::kLocal) {
          Fail(absl::StrCat(s.buffer->name, " is allocated in a kernel but not local"));
        }
        locals_.insert(s.buffer.get());
        Statement(*s.body[0]);
        locals_.erase(s.buffer.get());
        return;
      case StmtNode::Kind::kIntrin:
        return Intrinsics(s);
      case StmtNode::Kind::kLet:
        return Fail("a pointer or an offset, which back ends make after this");
    }
    for (const Stmt& child : s.body) Statement(*child);
  }

  void Loop(const StmtNode& s) {
    const bool is_vector = s.for_kind == ForKind::kVector;
    const Binding binding = s.for_kind == ForKind::kSerial ? Binding::kUniform : Binding::kUnrolled;
    if (s.var->extent < 1) Fail(absl::StrCat("loop ", s.var->name, " has no iteration"));
    if (is_vector) CheckVectorForm(s);
    if (s.value != nullptr) CheckIterations(s);
    scope_[s.var.get()] = binding;
    if (s.rotating != nullptr) scope_[s.rotating.get()] = binding;
    if (is_vector) vector_ = s.var;
    Statement(*s.body[0]);
    if (is_vector) vector_ = nullptr;
    scope_.erase(s.var.get());
    if (s.rotating != nullptr) scope_.erase(s.rotating.get());
  }

  // Each once, by one of the blocks.
  void CheckIterations(const StmtNode& loop) {
    const bool by_block =
        IsVar(loop.value, kernel_.block) && loop.int_value == kernel_.block->extent;
    if (by_block && loop.for_kind == ForKind::kSerial && loop.rotating == nullptr &&
        loop.condition == nullptr) {
      return;
    }
    Fail(absl::StrCat("loop ", loop.var->name, " from ", ToString(loop.value), " by ",
                      loop.int_value, "; one of some iterations is serial, begins at the block's ",
                      "number and goes on by as many as there are blocks"));
  }

  void CheckVectorForm(const StmtNode& loop) {
    const StmtNode* body = loop.body[0].get();
    for (; body->kind == StmtNode::Kind::kIf; body = body->body[0].get()) {
      if (MentionsAny(body->condition, {loop.var.get()})) {
        Fail(absl::StrCat("the condition ", ToString(body->condition), " in the vector loop ",
                          loop.var->name, " depends on it"));
      }
    }
    const bool writes =
        body->kind == StmtNode::Kind::kStore ||
        (body->kind == StmtNode::Kind::kIntrin && EffectsOf(body->intrinsic).writes_buffer);
    if (!writes) Fail(absl::StrCat("the vector loop ", loop.var->name, " holds no single store"));
  }

  void Branch(const StmtNode& s) {
    Expression(s.condition);
    const Uniformity around = uniformity_;
    uniformity_ = std::min(around, UniformityOf(s.condition));
    assumptions_.push_back(s.condition);
    Statement(*s.body[0]);
    assumptions_.pop_back();
    uniformity_ = around;
  }

  Uniformity UniformityOf(const Expr& condition) const {
    if (IsUniform(condition)) return Uniformity::kBlock;
    if (IsSameWithin(condition, kWarpgroupThreads)) return Uniformity::kWarpgroup;
    return IsSameWithin(condition, kWarpThreads) ? Uniformity::kWarp : Uniformity::kThread;
  }

  // For each of so many neighbouring threads?
  bool IsSameWithin(const Expr& condition, int64_t lanes) const {
    const int64_t threads = kernel_.thread->extent;
    if (threads % lanes != 0) return false;
    const Var group = MakeVar("group", threads / lanes), lane = MakeVar("lane", lanes);
    const Expr thread = VarExpr(group) * Int(lanes) + VarExpr(lane);
    const Expr split = Simplify(Substitute(
        condition, [&](const Var& v) { return v == kernel_.thread ? thread : nullptr; }));
    return !ReadsValues(split) && !MentionsAny(split, {lane.get()});
  }

  // Threads read the same index at the same place: tensors of indices are inputs, which no kernel
  // writes. Of others, and of what threads keep of these, they may be what differs between threads.
  static bool ReadsValues(const Expr& condition) {
    bool reads = false;
    Visit(condition, [&](const Expr& e) {
      const bool is_input =
          e->type == DType::kInt64 && e->op == Op::kLoad && e->buffer->scope == Scope::kGlobal;
      reads = reads || (e->op == Op::kLoad && !is_input);
    });
    return reads;
  }

  bool IsUniform(const Expr& condition) const {
    bool uniform = !ReadsValues(condition);
    Visit(condition, [&](const Expr& e) {
      if (e->op != Op::kVar) return;
      auto binding = scope_.find(e->var.get());
      if (binding == scope_.end() || binding->second == Binding::kDivergent) uniform = false;
    });
    return uniform;
  }

  void Intrinsics(const StmtNode& s) {
    const IntrinsicEffects& effects = EffectsOf(s.intrinsic);
    if (static_cast<int>(uniformity_) < static_cast<int>(effects.scope)) {
      Fail(absl::StrCat(effects.name, " in control flow that differs between threads"));
    }
    if (s.intrinsic == Intrinsic::kAsyncCopy) CheckAsyncCopy(s);
    if (CombinesWarps(s.intrinsic)) CheckWarpReduce(s);
    if (s.intrinsic == Intrinsic::kAtomicCombine) CheckAtomicCombine(s);
    std::string problem = FindMatrixProblem(s, kernel_.thread->extent, target_);
    if (problem.empty()) problem = FindBulkProblem(s, target_);
    if (!problem.empty()) return Fail(problem);
    if (IsOfBulkCopies(s)) CheckBulkAccesses(s);
    if (effects.writes_buffer) Write(s);
  }

  // What is read may lie outside its tensor.
  void CheckBulkAccesses(const StmtNode& s) {
    const bool copies = s.intrinsic == Intrinsic::kBulkCopy;
    for (const Expr& index : s.indices) Expression(index);
    if (!s.indices.empty()) CheckAccess(*s.buffer, s.indices, 1);
    if (s.indices.empty() && !IsDeclared(*s.buffer)) Fail(s.buffer->name + " is not declared here");
    if (copies) CheckAccess(*s.base, {s.indices[0]}, 1);
    if (s.value == nullptr) return;
    if (!copies) return Expression(s.value);
    for (const Expr& index : s.value->args) Expression(index);
    const std::string& name = s.value->buffer->name;
    if (!IsDeclared(*s.value->buffer) || !readable_.contains(name)) {
      Fail(absl::StrCat("a bulk copy from ", name, ", which no earlier kernel has written"));
    }
  }

  void CheckWarpReduce(const StmtNode& s) {
    const bool group = s.int_value >= 2 && s.int_value <= kWarpThreads &&
                       std::has_single_bit(static_cast<uint64_t>(s.int_value));
    if (!group || s.buffer->scope != Scope::kLocal || kernel_.thread->extent % kWarpThreads != 0) {
      Fail(absl::StrCat("a reduction of ", s.buffer->name, " over ", s.int_value, " of ",
                        kernel_.thread->extent,
                        " threads; it must be of registers over a power of two, at most 32, in "
                        "whole warps"));
    }
  }

  void CheckAtomicCombine(const StmtNode& s) {
    const bool is_known = s.buffer->dtype == DType::kInt32
                              ? s.combiner == Combiner::kSum
                              : s.buffer->dtype == DType::kFloat32 && s.combiner != Combiner::kNone;
    const bool is_vector = s.lanes > 1 && s.buffer->scope == Scope::kGlobal &&
                           s.buffer->dtype == DType::kFloat32 && s.combiner == Combiner::kSum;
    if (is_vector && !UpdatesVectors(target_)) {
      Fail(absl::StrCat("the device adds to no ", s.lanes, " elements at a time"));
    }
    if (s.buffer->scope == Scope::kLocal || (s.lanes != 1 && !is_vector) || !is_known) {
      Fail(absl::StrCat("an atomic update of ", s.lanes, " elements of ", s.buffer->name,
                        "; it must combine one float32 in memory with a value, or add to one "
                        "int32"));
    }
  }

  // What the device's instruction can do (stmt.h).
  void CheckAsyncCopy(const StmtNode& s) {
    if (!target_.has_async_copy) Fail("the device has no asynchronous copies");
    const int64_t bytes = s.lanes * SizeOf(s.buffer->dtype);
    if (s.buffer->scope != Scope::kShared || (bytes != 4 && bytes != 8 && bytes != 16)) {
      Fail(absl::StrCat("an asynchronous copy of ", bytes, " bytes to ", s.buffer->name,
                        "; it must be 4, 8 or 16 to shared memory"));
    }
    const bool selected = s.value->op == Op::kSelect;
    const Expr& load = selected ? s.value->args[1] : s.value;
    const bool zero_else =
        !selected || (s.value->args[2]->op == Op::kFloat && s.value->args[2]->float_value == 0);
    if (load->op != Op::kLoad || load->buffer->scope != Scope::kGlobal || load->lanes != s.lanes ||
        !zero_else) {
      Fail(absl::StrCat("an asynchronous copy of ", ToString(s.value),
                        ", which is neither a global load of as many lanes nor one selected "
                        "against zero"));
    }
  }

  void Write(const StmtNode& s) {
    Expression(s.value);
    for (const Expr& index : s.indices) Expression(index);
    CheckAccess(*s.buffer, s.indices, s.lanes);
    if (s.buffer->scope == Scope::kGlobal) stored_.insert(s.buffer->name);
  }

  // -------------------------------------------------------------------------------- expressions
  void Expression(const Expr& e) {
    if (e->type == DType::kInt64 && ReachOf(e) >= kOverflow) {
      Fail(absl::StrCat("the integer ", ToString(e), " may overflow 64 bits"));
    }
    switch (e->op) {
      case Op::kVar:
        if (!scope_.contains(e->var.get())) {
          Fail(absl::StrCat("variable ", e->var->name, " is used outside its loop"));
        }
        return;
      case Op::kLoad:
        for (const Expr& index : e->args) Expression(index);
        return CheckLoad(*e);
      case Op::kSelect:
        Expression(e->args[0]);
        lane_conditions_.push_back(e->args[0]);
        Under(e->args[0], e->args[1]);
        Under(Not(e->args[0]), e->args[2]);
        lane_conditions_.pop_back();
        return;
      case Op::kAnd:
      case Op::kOr:
        Expression(e->args[0]);
        Under(e->op == Op::kAnd ? e->args[0] : Not(e->args[0]), e->args[1]);
        return;
      default:
        for (const Expr& arg : e->args) Expression(arg);
    }
  }

  void Under(const Expr& assumption, const Expr& e) {
    assumptions_.push_back(assumption);
    Expression(e);
    assumptions_.pop_back();
  }

  void CheckLoad(const ExprNode& load) {
    const Buffer& b = *load.buffer;
    if (b.scope == Scope::kGlobal && !readable_.contains(b.name) && !stored_.contains(b.name)) {
      Fail(absl::StrCat(b.name, " is read before any kernel has written it"));
    }
    CheckAccess(b, load.args, load.lanes);
    if (load.lanes == 1 || vector_ == nullptr) return;
    for (const Expr& condition : lane_conditions_) {
      if (MentionsAny(condition, {vector_.get()})) {
        Fail(absl::StrCat(Describe(b, load.args), " with ", load.lanes,
                          " lanes stands under the condition ", ToString(condition),
                          ", which differs between them"));
      }
    }
  }

  // ----------------------------------------------------------------------------------- accesses
  static std::string Describe(const Buffer& b, const ExprList& indices) {
    return absl::StrCat(
        NameOf(b.scope), " ", b.name, "[",
        absl::StrJoin(indices, ", ",
                      [](std::string* out, const Expr& e) { absl::StrAppend(out, ToString(e)); }),
        "]");
  }

  void CheckAccess(const Buffer& b, const ExprList& indices, int lanes) {
    if (!status_.ok()) return;
    if (!IsDeclared(b)) return Fail(absl::StrCat(Describe(b, indices), " is not declared here"));
    if (indices.size() != b.shape.size()) {
      return Fail(absl::StrCat(Describe(b, indices), " has ", b.shape.size(), " dimensions"));
    }
    int64_t last = 0;  // largest offset that the shape allows
    for (size_t i = 0; i < indices.size(); ++i) {
      CheckIndex(b, indices, i);
      last += (b.shape[i] - 1) * b.strides[i];
    }
    if (last >= b.elements) {
      Fail(absl::StrCat(b.name, " allocates ", b.elements, " elements and its shape reaches ",
                        last + 1));
    }
    if (b.scope == Scope::kLocal) CheckRegisterIndex(b, indices);
    if (lanes > 1) CheckLanes(b, indices, lanes);
  }

  bool IsDeclared(const Buffer& b) const {
    switch (b.scope) {
      case Scope::kLocal:
        return locals_.contains(&b);
      case Scope::kShared:
        return shared_.contains(&b);
      case Scope::kGlobal:
        return std::any_of(kernel_.arguments.begin(), kernel_.arguments.end(),
                           [&](const BufferRef& a) { return a->name == b.name; });
    }
    return false;
  }

  void CheckIndex(const Buffer& b, const ExprList& indices, size_t i) {
    const Interval range = BoundsOf(indices[i]);
    const bool above = range.min >= 0 || Proves(assumptions_, Int(0) <= indices[i]);
    const bool below = range.max < b.shape[i] || Proves(assumptions_, indices[i] < Int(b.shape[i]));
    if (above && below) return;
    Fail(absl::StrCat(Describe(b, indices), ": index ", i, " is not proven to lie in 0..",
                      b.shape[i] - 1, " (without conditions it spans ", range.min, "..", range.max,
                      assumptions_.empty() ? ")" : "), given ",
                      absl::StrJoin(assumptions_, " && ", [](std::string* out, const Expr& e) {
                        absl::StrAppend(out, ToString(e));
                      })));
  }

  // Registers have no addresses.
  void CheckRegisterIndex(const Buffer& b, const ExprList& indices) {
    for (const Expr& index : indices) {
      Visit(index, [&](const Expr& e) {
        if (e->op == Op::kLoad) Fail(absl::StrCat(Describe(b, indices), " is indexed by memory"));
        if (e->op != Op::kVar || e->var->extent == 1) return;
        auto binding = scope_.find(e->var.get());
        if (binding == scope_.end() || binding->second == Binding::kUnrolled) return;
        Fail(absl::StrCat(Describe(b, indices), ": ", e->var->name,
                          " is not the variable of an unrolled loop"));
      });
    }
  }

  void CheckLanes(const Buffer& b, const ExprList& indices, int lanes) {
    const auto fail = [&](const std::string& why) {
      Fail(absl::StrCat(Describe(b, indices), " with ", lanes, " lanes ", why));
    };
    if (vector_ == nullptr) return fail("stands outside a vector loop");
    if (!std::has_single_bit(static_cast<unsigned>(lanes)) ||
        lanes * SizeOf(b.dtype) > kWidestAccess || vector_->extent % lanes != 0) {
      return fail(absl::StrCat("is no access of 2, 4, 8 or 16 bytes that divides the loop of ",
                               vector_->extent));
    }
    if (b.swizzle != 0 && b.swizzle % lanes != 0) return fail("is torn apart by the swizzle");
    if (b.scope != Scope::kLocal && b.alignment % (lanes * SizeOf(b.dtype)) != 0) {
      return fail(absl::StrCat("is wider than the buffer's alignment of ", b.alignment));
    }
    Expr offset = Int(0);
    for (size_t i = 0; i < indices.size(); ++i) offset = offset + indices[i] * Int(b.strides[i]);
    // Where positions in a fetched tile are taken apart and put together again, only the whole
    // shows that lanes are neighbours: parts at multiples of the lanes lose their common form.
    offset = Simplify(offset);
    // The vector variable as chunk * lanes + lane.
    const Var chunk = MakeVar("chunk", vector_->extent / lanes), lane = MakeVar("lane", lanes);
    const Expr first = VarExpr(chunk) * Int(lanes);
    const Expr begin = At(offset, first), there = At(offset, first + VarExpr(lane));
    if (!IsInt(Simplify(there - begin - VarExpr(lane)), 0)) {
      return fail("is not proven contiguous");
    }
    const ModRem m = ModulusRemainder(begin);
    if (m.modulus % lanes != 0 || m.remainder % lanes != 0) fail("is not proven aligned");
  }

  Expr At(const Expr& e, const Expr& value) const {
    return Substitute(e, [&](const Var& v) { return v == vector_ ? value : nullptr; });
  }

  const Kernel& kernel_;
  const Target& target_;
  const absl::flat_hash_set<std::string>& readable_;
  absl::Status status_;
  absl::flat_hash_map<const Variable*, Binding> scope_;
  absl::flat_hash_map<const Buffer*, int64_t> shared_;
  absl::flat_hash_set<const Buffer*> locals_;
  absl::flat_hash_set<std::string> stored_;
  std::vector<Expr> assumptions_;               // conditions that hold here
  std::vector<Expr> lane_conditions_;           // of the selects around an expression
  Var vector_;                                  // of the enclosing vector loop
  Uniformity uniformity_ = Uniformity::kBlock;  // of the enclosing Ifs
};

}  // namespace

absl::Status Verify(const Program& program, const Target& target) {
  absl::flat_hash_set<std::string> inputs, readable, kernels;
  for (const BufferRef& input : program.inputs) inputs.insert(input->name);
  readable = inputs;
  for (const Kernel& kernel : program.kernels) {
    if (!kernels.insert(kernel.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two kernels are named ", kernel.name));
    }
    KernelVerifier verifier(kernel, target, readable);
    HEDDLE_RETURN_IF_ERROR(verifier.Run());
    for (const std::string& name : verifier.stored()) {
      if (inputs.contains(name)) {
        return absl::InvalidArgumentError(
            absl::StrCat("kernel ", kernel.name, ": input ", name, " is stored to"));
      }
      readable.insert(name);
    }
  }
  for (const BufferRef& output : program.outputs) {
    if (!readable.contains(output->name)) {
      return absl::InvalidArgumentError(absl::StrCat("no kernel writes the output ", output->name));
    }
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
