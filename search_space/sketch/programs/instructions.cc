#include "search_space/sketch/programs/instructions.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/hash/hash.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {
namespace {

// Of a load at what another one reads.
constexpr double kGatherInstructions = 8;

// Instructions of an operation, about: one of the special function unit takes as long as eight.
double InstructionsOf(Op op) {
  switch (op) {
    case Op::kInt:
    case Op::kFloat:
    case Op::kVar:
    case Op::kLoad:
    case Op::kCast:
      return 0;
    case Op::kRsqrt:
      return 10;
    case Op::kDiv:
    case Op::kExp:
    case Op::kSqrt:
      return 12;
    case Op::kLog:
    case Op::kErf:
      return 18;
    case Op::kTanh:
    case Op::kSigmoid:
      return 24;
    case Op::kPow:
      return 36;
    default:
      return 1;
  }
}

// Counts the instructions of one evaluation, about: compilers compute what stands in several places
// once.
class InstructionCounter {
 public:
  // What `is_outside` counts nothing.
  explicit InstructionCounter(absl::FunctionRef<bool(const Expr&)> is_outside)
      : is_outside_(is_outside) {}

  double Count(const Expr& e) {
    Walk(e, true);
    return count_;
  }

 private:
  static bool IsGather(const Expr& load) {
    bool found = false;
    for (const Expr& index : load->args) {
      Visit(index, [&](const Expr& e) { found = found || e->op == Op::kLoad; });
    }
    return found;
  }

  // The hash of what the expression computes; equal ones are taken for the same.
  uint64_t Walk(const Expr& e, bool counts) {
    const bool is_shared = IsShared(e);
    const std::pair<const ExprNode*, bool> walk{e.get(), counts};
    if (is_shared) {
      if (const auto known = hashes_.find(walk); known != hashes_.end()) return known->second;
    }
    counts = counts && !is_outside_(e) && e->type != DType::kInt64 &&
             (e->op != Op::kLoad || IsGather(e));
    uint64_t hash = absl::HashOf(e->op, e->type, e->int_value, e->float_value, e->var, e->buffer);
    for (const Expr& arg : e->args) hash = absl::HashOf(hash, Walk(arg, counts));
    if (counts && counted_.insert(hash).second) {
      count_ += e->op == Op::kLoad ? kGatherInstructions : InstructionsOf(e->op);
    }
    if (is_shared) hashes_.emplace(walk, hash);
    return hash;
  }

  const absl::FunctionRef<bool(const Expr&)> is_outside_;
  absl::flat_hash_map<std::pair<const ExprNode*, bool>, uint64_t> hashes_;  // of nodes, as walked
  absl::flat_hash_set<uint64_t> counted_;
  double count_ = 0;
};

}  // namespace

double Instructions(const Expr& e, const std::vector<Expr>& outside) {
  const auto is_outside = [&](const Expr& node) {
    return std::any_of(outside.begin(), outside.end(),
                       [&](const Expr& o) { return o == node || StructurallyEqual(o, node); });
  };
  return InstructionCounter(is_outside).Count(e);
}

double InstructionsOfTerm(const Expr& e, const std::vector<Var>& reduce_axes) {
  Variables terms;
  for (const Var& axis : reduce_axes) terms.push_back(axis.get());
  const auto is_shared = [&](const Expr& node) { return !MentionsAny(node, terms); };
  return InstructionCounter(is_shared).Count(e);
}

}  // namespace heddle::search_space
