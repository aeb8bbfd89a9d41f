#include "search_space/check/interpret.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "search_space/check/interpret_code.h"
#include "search_space/check/interpret_globals.h"
#include "search_space/check/interpret_memory.h"
#include "search_space/ir/float_format.h"
#include "search_space/ir/simplify.h"

namespace heddle::search_space {
namespace {

// Thrown inside this file only; becomes the status of Interpret.
struct Fault {
  std::string message;
};

int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

// Runs one kernel, block after block.
class Machine {
 public:
  Machine(KernelCode& code, int kernel_number, std::vector<Global>& globals, uint64_t seed)
      : code_(code),
        kernel_number_(kernel_number),
        globals_(globals),
        rng_(seed),
        threads_(code.kernel->thread->extent),
        slots_(code.slot_count),
        local_(threads_ * code.local_elements, kUnwritten),
        shared_(*code.kernel),
        order_(threads_),
        end_(threads_),
        registers_(code.has_products ? local_.size() : 0),
        warpgroups_(threads_ / kWarpgroupThreads) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  absl::Status Run() {
    try {
      for (block_ = 0; block_ < code_.kernel->block->extent; ++block_) {
        slots_[code_.block_slot] = block_;
        shared_.BeginBlock();
        RunBlock(code_.body);
        for (const Warpgroup& group : warpgroups_) {
          if (!group.locked.empty()) throw Fault{"the block ends before its products do"};
        }
      }
    } catch (const Fault& fault) {
      return absl::InternalError(absl::StrCat("kernel ", code_.kernel->name, ", block ", block_,
                                              thread_ < 0 ? "" : absl::StrCat(", thread ", thread_),
                                              ": ", fault.message));
    }
    return absl::OkStatus();
  }

 private:
  // A register into which products in background add.
  struct Register {
    int64_t product = 0;  // the group of the last that is under way, from 1; 0 = none is
    int64_t written = 0;  // by the thread itself, behind so many fences; 0 = never
  };
  struct Warpgroup {
    int64_t fences = 0;    // of operands, so far
    int64_t products = 0;  // groups committed so far
    std::vector<Register*> locked;
  };

  // -------------------------------------------------------------------------------- statements

  // Whatever contains an intrinsic that threads execute together is run by the block as a whole, or
  // by the warp or warpgroup where a condition that stands around it may differ between these; the
  // rest by each thread in turn.
  void RunBlock(const StmtCode& s) {
    if (s.scope == ExecutionScope::kThread) return RunThreads(std::span(&s, 1));
    switch (s.kind) {
      case StmtNode::Kind::kSeq:
        return RunBlockSequence(s.body);
      case StmtNode::Kind::kFor:
        for (int64_t i = 0; i < s.extent; ++i) {
          SetLoop(s, i);
          RunBlock(s.body[0]);
        }
        return;
      case StmtNode::Kind::kIf:
        if (s.scope != ExecutionScope::kBlock) return RunGroups(s);
        if (IsTakenByAll(s)) RunBlock(s.body[0]);
        return;
      case StmtNode::Kind::kAlloc:
        for (int64_t t = first_; t < end_; ++t) ForgetLocal(s, t);
        return RunBlock(s.body[0]);
      default:
        return RunTogether(s);
    }
  }

  void RunGroups(const StmtCode& branch) {
    const int64_t first = first_, end = end_;
    for (first_ = first; first_ < end; first_ = end_) {
      end_ = std::min(first_ + ThreadsOf(branch.scope), end);
      if (IsTakenByAll(branch)) RunBlock(branch.body[0]);
    }
    first_ = first;
    end_ = end;
  }

  void RunTogether(const StmtCode& s) {
    switch (s.intrinsic) {
      case Intrinsic::kWarpReduce:
        return RunWarpReduce(s);
      case Intrinsic::kLoadMatrix:
      case Intrinsic::kLoadMatrixTransposed:
        return ForEachWarp([&] { RunLoadMatrix(s); });
      case Intrinsic::kMatrixMultiply:
        return ForEachWarp([&] { RunMatrixMultiply(s); });
      case Intrinsic::kWarpgroupMultiply:
        return ForEachWarpgroup([&](Warpgroup& group) { RunWarpgroupMultiply(s, group); });
      case Intrinsic::kOperandFence:
        return ForEachWarpgroup([](Warpgroup& group) { ++group.fences; });
      case Intrinsic::kProductCommit:
        return ForEachWarpgroup([&](Warpgroup& group) {
          ++group.products;
          shared_.CommitProducts(warp_ / kWarpgroupThreads);
        });
      case Intrinsic::kProductWait:
        return ForEachWarpgroup([&](Warpgroup& group) { RunProductWait(s, group); });
      default:
        shared_.Barrier();
    }
  }

  void RunBlockSequence(const std::vector<StmtCode>& body) {
    for (size_t i = 0; i < body.size();) {
      size_t end = i;
      while (end < body.size() && body[end].scope == ExecutionScope::kThread) ++end;
      if (end > i) {
        RunThreads(std::span(&body[i], end - i));
      } else {
        RunBlock(body[end++]);
      }
      i = end;
    }
  }

  // Calls `run` with warp_ for each of those that run now.
  template <typename F>
  void ForEachWarp(const F& run) {
    if (first_ % kWarpThreads != 0 || end_ % kWarpThreads != 0) {
      throw Fault{"a matrix instruction in a block that is no whole warps"};
    }
    for (warp_ = first_; warp_ < end_; warp_ += kWarpThreads) run();
    thread_ = -1;
  }

  // The same of warpgroups.
  template <typename F>
  void ForEachWarpgroup(const F& run) {
    if (first_ % kWarpgroupThreads != 0 || end_ % kWarpgroupThreads != 0) {
      throw Fault{"an instruction of a warpgroup in threads that are none"};
    }
    for (warp_ = first_; warp_ < end_; warp_ += kWarpgroupThreads) {
      run(warpgroups_[static_cast<size_t>(warp_ / kWarpgroupThreads)]);
    }
    thread_ = -1;
  }

  // Each lane reads its elements of the rows that lanes of the warp name.
  void RunLoadMatrix(const StmtCode& s) {
    static constexpr int64_t kRows = 8;
    const bool transposed = s.intrinsic == Intrinsic::kLoadMatrixTransposed;
    AccessCode& source = code_.accesses[code_.exprs[s.value].access];
    AccessCode& target = code_.accesses[s.access];
    std::array<int64_t, kWarpThreads> row{};
    for (int64_t lane = 0; lane < kRows * s.int_value; ++lane) {
      SetThread(warp_ + lane);
      const int64_t offset = row[static_cast<size_t>(lane)] = OffsetOf(source);
      const int64_t bytes = ByteOf(source, offset), size = SizeOf(source.buffer->dtype);
      if (bytes % (kRows * size) != 0) FailPromise(source, "is not aligned");
      if (offset + kRows > source.buffer->elements) FailPromise(source, "ends outside");
    }
    for (int64_t lane = 0; lane < kWarpThreads; ++lane) {
      SetThread(warp_ + lane);
      const int64_t to = OffsetOf(target);
      for (int64_t e = 0; e < 2 * s.int_value; ++e) {
        const int64_t r = lane / 4, c = lane % 4 * 2 + e % 2;
        const auto named = static_cast<size_t>(e / 2 * kRows + (transposed ? c : r));
        CheckElement(target, to + e);
        Write(target, to + e, ReadAt(source, row[named] + (transposed ? r : c)), false);
      }
    }
  }

  // A matrix that the registers of a warp hold from the access on, row by row.
  std::vector<double> GatherMatrix(AccessCode& from, const FragmentLayout& layout) {
    std::vector<double> matrix(static_cast<size_t>(layout.rows * layout.cols));
    for (size_t i = 0; i < matrix.size(); ++i) {
      const Place& place = PlacesOf(layout)[i];
      SetThread(warp_ + place.lane);
      const int64_t offset = OffsetOf(from) + place.element;
      CheckElement(from, offset);
      matrix[i] = ReadAt(from, offset);
    }
    return matrix;
  }

  // The products are exact and added up in double precision; a sum is rounded once.
  void RunMatrixMultiply(const StmtCode& s) {
    const MatrixShape& shape = ShapeOf(static_cast<MatrixInstruction>(s.int_value));
    const ExprCode& product = code_.exprs[s.value];
    AccessCode& target = code_.accesses[s.access];
    const FragmentLayout& layout = shape.Layout(MatrixOperand::kD);
    std::vector<double> operands[2], d = GatherMatrix(target, layout);
    for (size_t i = 0; i < 2; ++i) {
      const ExprCode& load = code_.exprs[code_.exprs[product.args[i]].args[0]];
      operands[i] = GatherMatrix(code_.accesses[load.access],
                                 shape.Layout(i == 0 ? MatrixOperand::kA : MatrixOperand::kB));
    }
    for (int64_t i = 0; i < shape.m * shape.n; ++i) {
      const double* a = operands[0].data() + i / shape.n * shape.k;
      const double* b = operands[1].data() + i % shape.n * shape.k;
      const auto at = static_cast<size_t>(i);
      d[at] = std::inner_product(a, a + shape.k, b, d[at]);
    }
    for (size_t i = 0; i < d.size(); ++i) {
      const Place& place = PlacesOf(layout)[i];
      SetThread(warp_ + place.lane);
      Write(target, OffsetOf(target) + place.element, d[i], false);
    }
  }

  // A matrix that lies in shared memory from the access on, row by row.
  std::vector<double> ReadShared(AccessCode& from, const SharedMatrix& matrix, int64_t rows,
                                 int64_t cols) {
    const Buffer& b = *from.buffer;
    SetThread(warp_);
    int64_t first = 0;
    for (size_t i = 0; i < from.indices.size(); ++i) {
      first += Int(from.indices[i]) * b.strides[i];
    }
    std::vector<double> values;
    for (int64_t i = 0; i < rows * cols; ++i) {
      const int64_t offset = SwizzledOffset(b, first + matrix.OffsetOf(i / cols, i % cols));
      if (offset < 0 || offset >= b.elements) FailPromise(from, "ends outside");
      const int64_t group = warp_ / kWarpgroupThreads;
      if (!shared_.ReadByProduct(b, ByteOf(from, offset), group, values.emplace_back())) {
        FailAccess("product of", from);
      }
    }
    return values;
  }

  // Computed at once: what it reads and what it adds to cannot change until it is waited for.
  void RunWarpgroupMultiply(const StmtCode& s, Warpgroup& group) {
    const MatrixShape& shape = ShapeOf(static_cast<MatrixInstruction>(s.int_value));
    const ExprCode& product = code_.exprs[s.value];
    const auto operand = [&](size_t i, int64_t rows) {
      const ExprCode& load = code_.exprs[code_.exprs[product.args[i]].args[0]];
      return ReadShared(code_.accesses[load.access], s.operands[i], rows, shape.k);
    };
    const std::vector<double> a = operand(0, shape.m), b = operand(1, shape.n);
    AccessCode& target = code_.accesses[s.access];
    const FragmentLayout& layout = shape.Layout(MatrixOperand::kD);
    for (int64_t i = 0; i < shape.m * shape.n; ++i) {
      const Place& place = PlacesOf(layout)[static_cast<size_t>(i)];
      SetThread(warp_ + place.lane);
      const int64_t offset = OffsetOf(target) + place.element;
      CheckElement(target, offset);
      double& d = my_local_[target.storage + offset];
      Register& state = StateOf(target.storage + offset);
      if (state.written > group.fences) {
        throw Fault{absl::StrCat(Name(target), " was written since the last fence of operands")};
      }
      if (IsUnwritten(d)) throw Fault{absl::StrCat("product into ", Name(target), ", not set")};
      if (state.product == 0) group.locked.push_back(&state);
      state.product = group.products + 1;
      const double* row = a.data() + i / shape.n * shape.k;
      const double* col = b.data() + i % shape.n * shape.k;
      d = RoundTo(shape.result, std::inner_product(row, row + shape.k, col, d));
    }
  }

  void RunProductWait(const StmtCode& s, Warpgroup& group) {
    shared_.WaitForProducts(warp_ / kWarpgroupThreads, s.int_value);
    std::erase_if(group.locked, [&](Register* state) {
      if (state->product > group.products - s.int_value) return false;
      state->product = 0;
      return true;
    });
  }

  // Who holds the elements of a matrix, row by row, by what matrix.h says.
  struct Place {
    int64_t lane, element;
  };
  const std::vector<Place>& PlacesOf(const FragmentLayout& layout) {
    std::vector<Place>& places = places_[&layout];
    for (int64_t i = std::ssize(places); i < layout.rows * layout.cols; ++i) {
      const Expr row = search_space::Int(i / layout.cols), col = search_space::Int(i % layout.cols);
      places.push_back({Simplify(layout.Lane(row, col))->int_value,
                        Simplify(layout.Element(row, col))->int_value});
    }
    return places;
  }

  // What products in background make of this thread's register.
  Register& StateOf(int64_t element) {
    return registers_[static_cast<size_t>(my_local_ - local_.data() + element)];
  }

  void CheckElement(AccessCode& a, int64_t offset) {
    if (offset >= a.buffer->elements) FailPromise(a, "ends outside");
  }

  // Exchanges between threads whose numbers differ in one bit: all get the same result.
  void RunWarpReduce(const StmtCode& s) {
    std::vector<double> values(static_cast<size_t>(end_ - first_)), partners;
    for (int64_t t = first_; t < end_; ++t) {
      SetThread(t);
      values[static_cast<size_t>(t - first_)] = Value(s);
    }
    AccessCode& target = code_.accesses[s.access];
    for (int64_t distance = s.int_value / 2; distance > 0; distance /= 2) {
      partners = values;
      for (size_t t = 0; t < values.size(); ++t) {
        const size_t partner = t ^ static_cast<size_t>(distance);
        if (partner >= values.size()) throw Fault{"a reduction over threads that do not exist"};
        values[t] = RoundTo(target.buffer->dtype,
                            CombineValues(s.combiner, partners[t], partners[partner]));
      }
    }
    for (int64_t t = first_; t < end_; ++t) {
      SetThread(t);
      Write(target, OffsetOf(target), values[static_cast<size_t>(t - first_)], false);
    }
    thread_ = -1;
  }

  static double CombineValues(Combiner combiner, double a, double b) {
    switch (combiner) {
      case Combiner::kSum:
        return a + b;
      case Combiner::kProd:
        return a * b;
      case Combiner::kMin:
        return std::isnan(a) || a < b ? a : b;
      case Combiner::kMax:
        return std::isnan(a) || a > b ? a : b;
      case Combiner::kNone:
        break;
    }
    throw Fault{"a reduction without an operation"};
  }

  bool IsTakenByAll(const StmtCode& s) {
    bool taken = false;
    for (int64_t t = first_; t < end_; ++t) {
      SetThread(t);
      const bool here = Int(s.condition) != 0;
      if (t > first_ && here != taken) throw Fault{"a barrier in divergent control flow"};
      taken = here;
    }
    thread_ = -1;
    return taken;
  }

  void RunThreads(std::span<const StmtCode> statements) {
    std::shuffle(order_.begin(), order_.end(), rng_);
    for (int64_t t : order_) {
      if (t < first_ || t >= end_) continue;
      SetThread(t);
      for (const StmtCode& s : statements) RunStatement(s);
    }
    thread_ = -1;
  }

  void SetThread(int64_t t) {
    thread_ = static_cast<int32_t>(t);
    slots_[code_.thread_slot] = t;
    my_local_ = local_.data() + t * code_.local_elements;
  }

  void SetLoop(const StmtCode& s, int64_t i) {
    slots_[s.slot] = i;
    if (s.rotating_slot >= 0) slots_[s.rotating_slot] = i % s.rotating_extent;
  }

  void RunLoop(const StmtCode& s) {
    const bool backward = s.condition >= 0 && Int(s.condition) != 0;
    for (int64_t i = 0; i < s.extent; ++i) {
      SetLoop(s, backward ? s.extent - 1 - i : i);
      RunStatement(s.body[0]);
    }
  }

  void ForgetLocal(const StmtCode& s, int64_t t) {
    double* first = local_.data() + t * code_.local_elements + s.local_begin;
    std::fill(first, first + s.local_size, kUnwritten);
  }

  void RunStatement(const StmtCode& s) {
    switch (s.kind) {
      case StmtNode::Kind::kSeq:
        for (const StmtCode& child : s.body) RunStatement(child);
        return;
      case StmtNode::Kind::kFor:
        if (s.is_vector) return RunVector(s);
        RunLoop(s);
        return;
      case StmtNode::Kind::kIf:
        if (Int(s.condition) != 0) RunStatement(s.body[0]);
        return;
      case StmtNode::Kind::kStore: {
        const double value = Value(s);
        Write(code_.accesses[s.access], OffsetOf(code_.accesses[s.access]), value, false);
        return;
      }
      case StmtNode::Kind::kAlloc:
        ForgetLocal(s, thread_);
        return RunStatement(s.body[0]);
      case StmtNode::Kind::kIntrin:
        return RunIntrinsic(s);
      case StmtNode::Kind::kComment:
      case StmtNode::Kind::kLet:
        return;
    }
  }

  void RunIntrinsic(const StmtCode& s) {
    switch (s.intrinsic) {
      case Intrinsic::kBarrier:
      case Intrinsic::kWarpReduce:
      case Intrinsic::kLoadMatrix:
      case Intrinsic::kLoadMatrixTransposed:
      case Intrinsic::kMatrixMultiply:
      case Intrinsic::kWarpgroupMultiply:
      case Intrinsic::kOperandFence:
      case Intrinsic::kProductCommit:
      case Intrinsic::kProductWait:
        return;  // RunTogether's
      case Intrinsic::kProxyFence:
        return shared_.ProxyFence(thread_);
      case Intrinsic::kAsyncCopy: {
        const double value = Value(s);
        Write(code_.accesses[s.access], OffsetOf(code_.accesses[s.access]), value, true);
        return;
      }
      case Intrinsic::kAsyncCommit:
        return shared_.Commit(thread_);
      case Intrinsic::kAsyncWait:
        return shared_.Wait(thread_, s.int_value);
    }
  }

  // All lanes are evaluated before the first is stored.
  void RunVector(const StmtCode& s) {
    const StmtCode* leaf = &s.body[0];
    for (; leaf->kind == StmtNode::Kind::kIf; leaf = &leaf->body[0]) {
      if (Int(leaf->condition) == 0) return;
    }
    for (int id : s.vector_accesses) code_.accesses[id].lanes_seen = 0;
    AccessCode& target = code_.accesses[leaf->access];
    lane_values_.clear();
    for (int64_t i = 0; i < s.extent; ++i) {
      SetLoop(s, i);
      const double value = Value(*leaf);
      lane_values_.push_back({OffsetOf(target), value});
    }
    for (int id : s.vector_accesses) {
      if (code_.accesses[id].lanes_seen % code_.accesses[id].lanes != 0) {
        FailPromise(code_.accesses[id], "is not made for all lanes");
      }
    }
    const bool is_async = leaf->kind == StmtNode::Kind::kIntrin;
    for (size_t i = 0; i < lane_values_.size(); ++i) {
      slots_[s.slot] = static_cast<int64_t>(i);  // for messages
      Write(target, lane_values_[i].offset, lane_values_[i].value, is_async);
    }
  }

  // ------------------------------------------------------------------------------- expressions
  double Value(const StmtCode& s) {
    return s.value_is_float ? Float(s.value) : static_cast<double>(Int(s.value));
  }

  int64_t Sum(const ExprCode& e) {
    int64_t sum = e.constant;
    const SumTerm* t = code_.terms.data() + e.first_term;
    for (const SumTerm* end = t + e.term_count; t != end; ++t) {
      sum += t->coef * (t->slot >= 0 ? slots_[t->slot] : Int(t->expr));
    }
    return sum;
  }

  bool Compare(const ExprCode& e) {
    if (e.float_args) {
      const double a = Float(e.args[0]), b = Float(e.args[1]);
      return e.op == Op::kLt ? a < b : e.op == Op::kLe ? a <= b : e.op == Op::kEq ? a == b : a != b;
    }
    const int64_t a = Int(e.args[0]), b = Int(e.args[1]);
    return e.op == Op::kLt ? a < b : e.op == Op::kLe ? a <= b : e.op == Op::kEq ? a == b : a != b;
  }

  // Integers and conditions.
  int64_t Int(int id) {
    const ExprCode& e = code_.exprs[id];
    if (e.is_sum) return Sum(e);
    switch (e.op) {
      case Op::kInt:
        return e.constant;
      case Op::kLoad:
        return static_cast<int64_t>(Read(code_.accesses[e.access]));
      case Op::kMul:
        return Int(e.args[0]) * Int(e.args[1]);
      case Op::kDiv:
        return FloorDivide(Int(e.args[0]), Int(e.args[1]));
      case Op::kMod: {
        const int64_t a = Int(e.args[0]), b = Int(e.args[1]);
        return a - FloorDivide(a, b) * b;
      }
      case Op::kMin:
        return std::min(Int(e.args[0]), Int(e.args[1]));
      case Op::kMax:
        return std::max(Int(e.args[0]), Int(e.args[1]));
      case Op::kLt:
      case Op::kLe:
      case Op::kEq:
      case Op::kNe:
        return Compare(e);
      case Op::kAnd:
        return Int(e.args[0]) != 0 && Int(e.args[1]) != 0;
      case Op::kOr:
        return Int(e.args[0]) != 0 || Int(e.args[1]) != 0;
      case Op::kNot:
        return Int(e.args[0]) == 0;
      case Op::kSelect:
        return Int(e.args[Int(e.args[0]) != 0 ? 1 : 2]);
      case Op::kCast:
        return e.float_args ? static_cast<int64_t>(Float(e.args[0])) : Int(e.args[0]);
      case Op::kAbs:
        return std::abs(Int(e.args[0]));
      default:
        throw Fault{absl::StrCat(NameOf(e.op), " of integers")};
    }
  }

  double Float(int id) {
    const ExprCode& e = code_.exprs[id];
    const double value = FloatOperation(e);
    return RoundTo(e.type, value);
  }

  double FloatOperation(const ExprCode& e) {
    switch (e.op) {
      case Op::kFloat:
        return e.value;
      case Op::kLoad:
        return Read(code_.accesses[e.access]);
      case Op::kSelect:
        return Float(e.args[Int(e.args[0]) != 0 ? 1 : 2]);
      case Op::kCast:
        return e.float_args ? Float(e.args[0]) : static_cast<double>(Int(e.args[0]));
      default:
        break;
    }
    const double a = Float(e.args[0]);
    if (e.args[1] < 0) return UnaryFunction(e.op, a);
    const double b = Float(e.args[1]);
    switch (e.op) {
      case Op::kAdd:
        return a + b;
      case Op::kSub:
        return a - b;
      case Op::kMul:
        return a * b;
      case Op::kDiv:
        return a / b;
      case Op::kMin:
        return std::isnan(a) || a < b ? a : b;
      case Op::kMax:
        return std::isnan(a) || a > b ? a : b;
      case Op::kPow:
        return std::pow(a, b);
      default:
        throw Fault{absl::StrCat(NameOf(e.op), " of floats")};
    }
  }

  static double UnaryFunction(Op op, double a) {
    switch (op) {
      case Op::kNeg:
        return -a;
      case Op::kExp:
        return std::exp(a);
      case Op::kLog:
        return std::log(a);
      case Op::kSqrt:
        return std::sqrt(a);
      case Op::kRsqrt:
        return 1 / std::sqrt(a);
      case Op::kTanh:
        return std::tanh(a);
      case Op::kErf:
        return std::erf(a);
      case Op::kSigmoid:
        return 1 / (1 + std::exp(-a));
      case Op::kAbs:
        return std::abs(a);
      default:
        throw Fault{absl::StrCat(NameOf(op), " of one float")};
    }
  }

  // ---------------------------------------------------------------------------------- accesses
  std::string Name(const AccessCode& a) {
    return absl::StrCat(
        NameOf(a.buffer->scope), " ", a.buffer->name, "[",
        absl::StrJoin(a.indices, ", ",
                      [this](std::string* out, int index) { absl::StrAppend(out, Int(index)); }),
        "]");
  }

  [[noreturn]] void FailPromise(const AccessCode& a, const char* what) {
    throw Fault{absl::StrCat("the access to ", Name(a), " with ", a.lanes, " lanes ", what)};
  }

  // The physical element offset, checked.
  int64_t OffsetOf(AccessCode& a) {
    int64_t offset = 0;
    if (a.offset >= 0) {
      offset = Sum(code_.exprs[a.offset]);
    } else {
      const Buffer& b = *a.buffer;
      for (size_t i = 0; i < a.indices.size(); ++i) {
        const int64_t index = Int(a.indices[i]);
        if (index < 0 || index >= b.shape[i]) {
          throw Fault{absl::StrCat("access out of bounds: ", Name(a), ", shape [",
                                   absl::StrJoin(b.shape, ", "), "]")};
        }
        offset += index * b.strides[i];
      }
      offset = SwizzledOffset(b, offset);
      if (offset >= b.elements) {
        throw Fault{absl::StrCat("access out of bounds: ", Name(a), " is element ", offset, " of ",
                                 b.elements, " allocated")};
      }
    }
    if (a.lanes > 1) CheckLane(a, offset);
    return offset;
  }

  void CheckLane(AccessCode& a, int64_t offset) {
    const int64_t lane = slots_[a.lane_slot] % a.lanes;
    if (lane != a.lanes_seen % a.lanes) FailPromise(a, "is not made for all lanes");
    ++a.lanes_seen;
    if (lane == 0) {
      a.chunk_offset = offset;
      const int64_t size = SizeOf(a.buffer->dtype), width = a.lanes * size;
      const bool is_local = a.buffer->scope == Scope::kLocal;
      if ((!is_local && width > a.buffer->alignment) ||
          (a.byte_offset + offset * size) % width != 0) {
        FailPromise(a, "is not aligned");
      }
    } else if (offset != a.chunk_offset + lane) {
      FailPromise(a, "is not contiguous");
    }
  }

  double Read(AccessCode& a) { return ReadAt(a, OffsetOf(a)); }

  double ReadAt(AccessCode& a, int64_t offset) {
    double value = 0;
    switch (a.buffer->scope) {
      case Scope::kLocal:
        CheckRegister(a, offset);
        value = my_local_[a.storage + offset];
        break;
      case Scope::kShared:
        if (!shared_.Read(*a.buffer, ByteOf(a, offset), thread_, value)) FailAccess("read of", a);
        return value;
      case Scope::kGlobal: {
        const Global& g = globals_[a.storage];
        value = g.data[offset];
        if (g.role == Role::kInput) break;
        const Global::Writer& w = g.writers[offset];
        if (w.kernel == kernel_number_ && w.thread != GlobalThread()) {
          throw Fault{absl::StrCat("read of ", Name(a), ", which ", NameOfThread(w.thread),
                                   " wrote in the same kernel")};
        }
        break;
      }
    }
    if (IsUnwritten(value)) {
      throw Fault{absl::StrCat("read of ", Name(a), ": it was never written")};
    }
    return value;
  }

  void Write(const AccessCode& a, int64_t offset, double value, bool is_async) {
    value = RoundTo(a.buffer->dtype, value);
    switch (a.buffer->scope) {
      case Scope::kLocal:
        CheckRegister(a, offset);
        if (!registers_.empty()) {
          StateOf(a.storage + offset).written =
              warpgroups_[static_cast<size_t>(thread_ / kWarpgroupThreads)].fences + 1;
        }
        my_local_[a.storage + offset] = value;
        return;
      case Scope::kShared:
        if (!shared_.Write(*a.buffer, ByteOf(a, offset), thread_, value, is_async)) {
          FailAccess("store to", a);
        }
        return;
      case Scope::kGlobal:
        return WriteGlobal(a, offset, value);
    }
  }

  void CheckRegister(const AccessCode& a, int64_t offset) {
    if (registers_.empty() || StateOf(a.storage + offset).product == 0) return;
    throw Fault{absl::StrCat("access to ", Name(a), ", into which products are under way")};
  }

  void WriteGlobal(const AccessCode& a, int64_t offset, double value) {
    Global& g = globals_[a.storage];
    if (g.role == Role::kInput) throw Fault{absl::StrCat("store to input ", Name(a))};
    Global::Writer& w = g.writers[offset];
    const bool same_thread = w.kernel == kernel_number_ && w.thread == GlobalThread();
    const bool written_before =
        g.role == Role::kOutput ? w.kernel != 0 : w.kernel == kernel_number_;
    if (written_before && !same_thread) {
      throw Fault{absl::StrCat("store to ", Name(a), ", which ", NameOfThread(w.thread),
                               " of kernel ", w.kernel - 1, " has written already")};
    }
    w = {kernel_number_, GlobalThread()};
    g.data[offset] = value;
  }

  int64_t GlobalThread() const { return block_ * threads_ + thread_; }
  std::string NameOfThread(int64_t global_thread) const {
    return absl::StrCat("block ", global_thread / threads_, ", thread ", global_thread % threads_);
  }

  static int64_t ByteOf(const AccessCode& a, int64_t offset) {
    return a.byte_offset + offset * SizeOf(a.buffer->dtype);
  }

  [[noreturn]] void FailAccess(const char* what, const AccessCode& a) {
    throw Fault{absl::StrCat(what, " ", Name(a), ": ", shared_.problem())};
  }

  KernelCode& code_;
  const int32_t kernel_number_;  // from 1
  std::vector<Global>& globals_;
  std::mt19937_64 rng_;
  const int64_t threads_;
  std::vector<int64_t> slots_;
  std::vector<double> local_;  // of all threads of the block
  SharedMemory shared_;
  std::vector<int64_t> order_;
  struct LaneValue {
    int64_t offset;
    double value;
  };
  std::vector<LaneValue> lane_values_;

  int64_t block_ = 0;
  int32_t thread_ = -1;
  int64_t first_ = 0, end_;  // the threads that run: all, or those of a warp
  int64_t warp_ = 0;         // the first thread of the one whose instruction is executed
  absl::flat_hash_map<const FragmentLayout*, std::vector<Place>> places_;
  double* my_local_ = nullptr;
  std::vector<Register> registers_;  // beside local_, where products go on in background
  std::vector<Warpgroup> warpgroups_;
};

}  // namespace

absl::Status Interpret(const Program& program, TensorValues& values,
                       const InterpretOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(globals, MakeGlobals(program, values));
  absl::flat_hash_map<std::string, int> by_name;
  for (size_t i = 0; i < globals.size(); ++i) {
    by_name[globals[i].buffer->name] = static_cast<int>(i);
  }
  for (size_t k = 0; k < program.kernels.size(); ++k) {
    HEDDLE_ASSIGN_OR_RETURN(code, CompileKernel(program.kernels[k], by_name));
    Machine machine(code, static_cast<int>(k) + 1, globals, options.seed + k);
    HEDDLE_RETURN_IF_ERROR(machine.Run());
  }
  for (const Global& g : globals) {
    if (g.role != Role::kOutput) continue;
    HEDDLE_ASSIGN_OR_RETURN(written, ValuesOf(g));
    values[g.buffer->name] = std::move(written);
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
