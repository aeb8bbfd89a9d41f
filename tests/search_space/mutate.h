// Damages programs on purpose: a net that does not catch these has a hole.
#ifndef HEDDLE_TESTS_SEARCH_SPACE_MUTATE_H_
#define HEDDLE_TESTS_SEARCH_SPACE_MUTATE_H_

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "search_space/ir/stmt.h"

namespace heddle::tests {

enum class Removal {
  kBarrier,
  kAsyncCommit,
  kAsyncWait,
  kOperandFence,
  kProductWait,
  kProxyFence,
  kPhaseInit,
  kPhaseExpect,
  kPhaseWait,
  kHandBack,
  kBulkCopy,
  kIf,      // the body stays, the condition goes
  kSelect,  // the value if true stays
};

// `program` without its n-th (from 0, in the order of traversal) intrinsic, If or select;
// nullopt when it has no more than n of them.
inline std::optional<search_space::Program> Remove(const search_space::Program& program,
                                                   Removal what, int n) {
  using namespace search_space;
  int seen = 0;
  const auto is_nth = [&](bool candidate) { return candidate && seen++ == n; };
  const auto is_intrinsic = [](const StmtNode& s, Intrinsic intrinsic) {
    return s.kind == StmtNode::Kind::kIntrin && s.intrinsic == intrinsic;
  };
  const auto statement = [&](const Stmt& s) -> Stmt {
    if (what == Removal::kIf) {
      return is_nth(s->kind == StmtNode::Kind::kIf) ? s->body[0] : nullptr;
    }
    static constexpr std::pair<Removal, Intrinsic> kIntrinsics[] = {
        {Removal::kBarrier, Intrinsic::kBarrier},
        {Removal::kAsyncCommit, Intrinsic::kAsyncCommit},
        {Removal::kAsyncWait, Intrinsic::kAsyncWait},
        {Removal::kOperandFence, Intrinsic::kOperandFence},
        {Removal::kProductWait, Intrinsic::kProductWait},
        {Removal::kProxyFence, Intrinsic::kProxyFence},
        {Removal::kPhaseInit, Intrinsic::kPhaseInit},
        {Removal::kPhaseExpect, Intrinsic::kPhaseExpect},
        {Removal::kPhaseWait, Intrinsic::kPhaseWait},
        {Removal::kHandBack, Intrinsic::kHandBack},
        {Removal::kBulkCopy, Intrinsic::kBulkCopy},
    };
    const bool candidate = std::any_of(
        std::begin(kIntrinsics), std::end(kIntrinsics),
        [&](const auto& row) { return row.first == what && is_intrinsic(*s, row.second); });
    return is_nth(candidate) ? Comment("removed") : nullptr;
  };
  const auto expression = [&](const Expr& e) {
    if (what != Removal::kSelect) return e;
    return Rewrite(e, [&](const Expr& node) -> Expr {
      return is_nth(node->op == Op::kSelect) ? node->args[1] : nullptr;
    });
  };
  Program out = program;
  for (Kernel& kernel : out.kernels) kernel.body = RewriteStmt(kernel.body, statement, expression);
  if (seen <= n) return std::nullopt;
  return out;
}

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_SEARCH_SPACE_MUTATE_H_
