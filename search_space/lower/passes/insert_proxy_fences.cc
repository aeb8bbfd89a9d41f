#include "search_space/ir/background.h"
#include "search_space/lower/passes.h"

namespace heddle::search_space {

Stmt InsertProxyFences(const Stmt& body) {
  bool stores = false;
  VisitStmts(body, [&](const StmtNode& s) {
    const bool writes = s.kind == StmtNode::Kind::kStore ||
                        (s.kind == StmtNode::Kind::kIntrin && EffectsOf(s.intrinsic).writes_buffer);
    stores = stores || (writes && s.buffer->scope == Scope::kShared);
  });
  if (!stores || !AnyRunsInBackground(body)) return body;
  return RewriteStmt(
      body,
      [](const Stmt& s) -> Stmt {
        const bool barrier =
            s->kind == StmtNode::Kind::kIntrin && s->intrinsic == Intrinsic::kBarrier;
        return barrier ? Seq({ProxyFence(), s}) : nullptr;
      },
      nullptr);
}

}  // namespace heddle::search_space
