#include "search_space/ir/background.h"

namespace heddle::search_space {

bool RunsInBackground(const StmtNode& s) {
  if (s.kind != StmtNode::Kind::kIntrin) return false;
  const IntrinsicEffects& effects = EffectsOf(s.intrinsic);
  return effects.scope == ExecutionScope::kWarpgroup && effects.completion == Completion::kGroup;
}

bool AnyRunsInBackground(const Stmt& body) {
  bool any = false;
  VisitStmts(body, [&](const StmtNode& s) { any = any || RunsInBackground(s); });
  return any;
}

}  // namespace heddle::search_space
