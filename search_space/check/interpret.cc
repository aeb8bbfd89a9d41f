#include "search_space/check/interpret.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "search_space/check/interpret_code.h"
#include "search_space/check/interpret_evaluator.h"
#include "search_space/check/interpret_globals.h"
#include "search_space/check/interpret_matrix.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {
namespace {

// Runs one kernel, block after block.
class Machine {
 public:
  Machine(KernelCode& code, int kernel_number, std::vector<Global>& globals, uint64_t seed)
      : code_(code),
        t_(code, kernel_number, globals),
        matrices_(t_),
        rng_(seed),
        order_(t_.threads()),
        end_(t_.threads()) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  absl::Status Run() {
    try {
      for (block_ = 0; block_ < code_.kernel->block->extent; ++block_) {
        t_.BeginBlock(block_);
        RunBlock(code_.body);
        matrices_.Finish();
        if (!t_.shared().HaveCopiesEnded()) throw Fault{t_.shared().problem()};
      }
    } catch (const Fault& fault) {
      return absl::InternalError(absl::StrCat(
          "kernel ", code_.kernel->name, ", block ", block_,
          t_.thread() < 0 ? "" : absl::StrCat(", thread ", t_.thread()), ": ", fault.message));
    }
    return absl::OkStatus();
  }

 private:
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
        for (int64_t i = FirstOf(s); i < s.extent; i += s.stride) {
          t_.SetLoop(s, i);
          RunBlock(s.body[0]);
        }
        return;
      case StmtNode::Kind::kIf:
        if (s.scope != ExecutionScope::kBlock) return RunGroups(s);
        if (IsTakenByAll(s)) RunBlock(s.body[0]);
        return;
      case StmtNode::Kind::kAlloc:
        for (int64_t t = first_; t < end_; ++t) t_.ForgetLocal(s, t);
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
    if (MatrixUnit::Executes(s.intrinsic)) return matrices_.Run(s, first_, end_);
    if (CombinesWarps(s.intrinsic)) return RunWarpReduce(s);
    if (s.intrinsic == Intrinsic::kHandBack) return t_.shared().HandBack();
    t_.shared().Barrier();
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

  void RunWarpReduce(const StmtCode& s) {
    std::vector<double> values;
    for (int64_t t = first_; t < end_; ++t) {
      t_.SetThread(t);
      values.push_back(t_.Value(s));
    }
    if (static_cast<int64_t>(values.size()) % s.int_value != 0) {
      throw Fault{"a reduction over threads that do not exist"};
    }
    AccessCode& target = code_.accesses[s.access];
    const DType type = target.buffer->dtype;
    if (s.intrinsic == Intrinsic::kWarpReduce) {
      Reduce(s, type, values);
    } else {
      Scan(s, type, values);
    }
    for (int64_t t = first_; t < end_; ++t) {
      t_.SetThread(t);
      t_.Write(target, t_.OffsetOf(target), values[static_cast<size_t>(t - first_)], false);
    }
    t_.ClearThread();
  }

  // Exchanges between threads whose numbers differ in one bit: all get the same result.
  static void Reduce(const StmtCode& s, DType type, std::vector<double>& values) {
    for (int64_t distance = s.int_value / 2; distance > 0; distance /= 2) {
      const std::vector<double> had = values;
      for (size_t t = 0; t < values.size(); ++t) {
        values[t] = RoundTo(
            type, CombineValues(s.combiner, had[t], had[t ^ static_cast<size_t>(distance)]));
      }
    }
  }

  // Each takes what is reduced so far at ever larger distances, then what its neighbour has (W. D.
  // Hillis, G. L. Steele, Data Parallel Algorithms, 1986).
  static void Scan(const StmtCode& s, DType type, std::vector<double>& values) {
    const bool backwards = s.intrinsic == Intrinsic::kWarpSuffix;
    const auto from = [&](size_t t, int64_t distance) -> std::optional<size_t> {
      const int64_t place = static_cast<int64_t>(t) % s.int_value;
      if (backwards ? place + distance >= s.int_value : place < distance) return std::nullopt;
      return backwards ? t + static_cast<size_t>(distance) : t - static_cast<size_t>(distance);
    };
    for (int64_t distance = 1; distance < s.int_value; distance *= 2) {
      const std::vector<double> had = values;
      for (size_t t = 0; t < values.size(); ++t) {
        const auto other = from(t, distance);
        if (other) values[t] = RoundTo(type, CombineValues(s.combiner, had[t], had[*other]));
      }
    }
    const std::vector<double> had = values;
    for (size_t t = 0; t < values.size(); ++t) {
      const auto other = from(t, 1);
      values[t] = other ? had[*other] : IdentityOf(s.combiner, type)->float_value;
    }
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
      t_.SetThread(t);
      const bool here = t_.Int(s.condition) != 0;
      if (t > first_ && here != taken) throw Fault{"a barrier in divergent control flow"};
      taken = here;
    }
    t_.ClearThread();
    return taken;
  }

  void RunThreads(std::span<const StmtCode> statements) {
    std::shuffle(order_.begin(), order_.end(), rng_);
    for (int64_t t : order_) {
      if (t < first_ || t >= end_) continue;
      t_.SetThread(t);
      for (const StmtCode& s : statements) RunStatement(s);
    }
    t_.ClearThread();
  }

  // Of a loop's iterations.
  int64_t FirstOf(const StmtCode& loop) { return loop.value < 0 ? 0 : t_.Int(loop.value); }

  void RunLoop(const StmtCode& s) {
    const bool backward = s.condition >= 0 && t_.Int(s.condition) != 0;
    for (int64_t i = FirstOf(s); i < s.extent; i += s.stride) {
      t_.SetLoop(s, backward ? s.extent - 1 - i : i);
      RunStatement(s.body[0]);
    }
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
        if (t_.Int(s.condition) != 0) RunStatement(s.body[0]);
        return;
      case StmtNode::Kind::kStore: {
        const double value = t_.Value(s);
        t_.Write(code_.accesses[s.access], t_.OffsetOf(code_.accesses[s.access]), value, false);
        return;
      }
      case StmtNode::Kind::kAlloc:
        t_.ForgetLocal(s, t_.thread());
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
      case Intrinsic::kAsyncCopy: {
        const double value = t_.Value(s);
        AccessCode& target = code_.accesses[s.access];
        return t_.Write(target, t_.OffsetOf(target), value, true);
      }
      case Intrinsic::kAtomicCombine:
        return RunAtomicCombine(s);
      case Intrinsic::kAsyncCommit:
        return t_.shared().Commit(t_.thread());
      case Intrinsic::kAsyncWait:
        return t_.shared().Wait(t_.thread(), s.int_value);
      case Intrinsic::kProxyFence:
        return t_.shared().ProxyFence(t_.thread());
      case Intrinsic::kPhaseInit:
      case Intrinsic::kPhaseExpect:
      case Intrinsic::kPhaseWait:
        return RunPhase(s);
      case Intrinsic::kBulkCopy:
        return RunBulkCopy(s);
      default:
        return;  // RunTogether's
    }
  }

  void RunAtomicCombine(const StmtCode& s) {
    const double value = t_.Value(s);
    Combine(s, t_.OffsetOf(code_.accesses[s.access]), value);
  }

  // What lies at the offset becomes the combiner of it and the value.
  void Combine(const StmtCode& s, int64_t offset, double value) {
    const AccessCode& target = code_.accesses[s.access];
    const auto combined = [&](double had) {
      return RoundTo(target.buffer->dtype, CombineValues(s.combiner, had, value));
    };
    if (target.buffer->scope == Scope::kGlobal) {
      return t_.CombineGlobal(target, offset, combined);
    }
    const int64_t byte = Evaluator::ByteOf(target, offset);
    if (!t_.shared().Combine(*target.buffer, byte, t_.thread(), combined)) {
      t_.FailAccess("atomic update of", target);
    }
  }

  void RunPhase(const StmtCode& s) {
    AccessCode& phase = code_.accesses[s.access];
    const int64_t byte = Evaluator::ByteOf(phase, t_.OffsetOf(phase));
    SharedMemory& shared = t_.shared();
    const bool done = s.intrinsic == Intrinsic::kPhaseInit
                          ? shared.InitPhases(*phase.buffer, byte, t_.thread())
                      : s.intrinsic == Intrinsic::kPhaseExpect
                          ? shared.ExpectBytes(byte, s.int_value)
                          : shared.WaitForPhase(byte, t_.Int(s.value), t_.thread());
    if (!done) t_.FailAccess(s.intrinsic == Intrinsic::kPhaseWait ? "wait for" : "phase of", phase);
  }

  // What it will have copied is there at once, but nobody may touch it before its phase has ended.
  void RunBulkCopy(const StmtCode& s) {
    AccessCode& to = code_.accesses[s.access];
    AccessCode& from = code_.accesses[code_.exprs[s.value].access];
    AccessCode& phase = code_.accesses[s.phases];
    const int64_t phase_byte = Evaluator::ByteOf(phase, t_.OffsetOf(phase));
    const Buffer &shared = *to.buffer, &tensor = *from.buffer;
    int64_t begin = 0, elements = 1;
    for (size_t i = 0; i < to.indices.size(); ++i)
      begin += t_.Int(to.indices[i]) * shared.strides[i];
    std::vector<int64_t> first;
    for (int index : from.indices) first.push_back(t_.Int(index));
    for (int64_t extent : s.box) elements *= extent;
    for (int64_t e = 0; e < elements; ++e) {
      int64_t rest = e, offset = 0;
      bool inside = true;
      for (size_t d = s.box.size(); d-- > 0; rest /= s.box[d]) {
        const int64_t at = first[d] + rest % s.box[d];
        inside = inside && at >= 0 && at < tensor.shape[d];
        offset += at * tensor.strides[d];
      }
      const double value = inside ? t_.ReadAt(from, offset) : 0;
      const int64_t there = SwizzledOffset(shared, begin + e);
      if (there < 0 || there >= shared.elements) t_.FailPromise(to, "ends outside");
      if (!t_.shared().WriteByBulkCopy(shared, Evaluator::ByteOf(to, there), phase_byte,
                                       t_.thread(), value)) {
        t_.FailAccess("bulk copy to", to);
      }
    }
  }

  // All lanes are evaluated before the first is stored.
  void RunVector(const StmtCode& s) {
    const StmtCode* leaf = &s.body[0];
    for (; leaf->kind == StmtNode::Kind::kIf; leaf = &leaf->body[0]) {
      if (t_.Int(leaf->condition) == 0) return;
    }
    for (int id : s.vector_accesses) code_.accesses[id].lanes_seen = 0;
    AccessCode& target = code_.accesses[leaf->access];
    lane_values_.clear();
    for (int64_t i = 0; i < s.extent; ++i) {
      t_.SetLoop(s, i);
      const double value = t_.Value(*leaf);
      lane_values_.push_back({t_.OffsetOf(target), value});
    }
    for (int id : s.vector_accesses) {
      if (code_.accesses[id].lanes_seen % code_.accesses[id].lanes != 0) {
        t_.FailPromise(code_.accesses[id], "is not made for all lanes");
      }
    }
    const bool is_update =
        leaf->kind == StmtNode::Kind::kIntrin && leaf->intrinsic == Intrinsic::kAtomicCombine;
    const bool is_async = leaf->kind == StmtNode::Kind::kIntrin && !is_update;
    for (size_t i = 0; i < lane_values_.size(); ++i) {
      t_.SetLoop(s, static_cast<int64_t>(i));  // for messages
      if (is_update) {
        Combine(*leaf, lane_values_[i].offset, lane_values_[i].value);
        continue;
      }
      t_.Write(target, lane_values_[i].offset, lane_values_[i].value, is_async);
    }
  }

  KernelCode& code_;
  Evaluator t_;
  MatrixUnit matrices_;
  std::mt19937_64 rng_;
  std::vector<int64_t> order_;
  struct LaneValue {
    int64_t offset;
    double value;
  };
  std::vector<LaneValue> lane_values_;
  int64_t block_ = 0;
  int64_t first_ = 0, end_;  // the threads that run: all, or those of a warp or warpgroup
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
