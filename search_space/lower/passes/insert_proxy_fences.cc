#include "search_space/lower/passes.h"

namespace heddle::search_space {

Stmt InsertProxyFences(const Stmt& body) {
  const auto is = [](const StmtNode& s, Intrinsic intrinsic) {
    return s.kind == StmtNode::Kind::kIntrin && s.intrinsic == intrinsic;
  };
  bool in_background = false;
  VisitStmts(body, [&](const StmtNode& s) {
    in_background = in_background || is(s, Intrinsic::kWarpgroupMultiply);
  });
  if (!in_background) return body;
  return RewriteStmt(
      body,
      [&](const Stmt& s) -> Stmt {
        return is(*s, Intrinsic::kBarrier) ? Seq({ProxyFence(), s}) : nullptr;
      },
      nullptr);
}

}  // namespace heddle::search_space
