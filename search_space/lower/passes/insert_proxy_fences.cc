#include "search_space/ir/background.h"
#include "search_space/lower/passes.h"

namespace heddle::search_space {

Stmt InsertProxyFences(const Stmt& body) {
  if (!AnyRunsInBackground(body)) return body;
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
