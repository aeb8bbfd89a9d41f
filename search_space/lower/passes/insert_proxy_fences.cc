#include "absl/container/flat_hash_set.h"
#include "search_space/ir/background.h"
#include "search_space/lower/passes/passes.h"

namespace heddle::search_space {

Stmt InsertProxyFences(const Stmt& body) {
  absl::flat_hash_set<const Buffer*> multiplied;
  VisitStmts(body, [&](const StmtNode& s) {
    if (!RunsInBackground(s)) return;
    for (size_t operand : {0, 1}) {
      const Buffer* buffer = MatrixOperandOf(s, operand)->buffer.get();
      if (buffer->scope == Scope::kShared) multiplied.insert(buffer);
    }
  });
  bool stores = false;
  VisitStmts(body, [&](const StmtNode& s) {
    const bool writes = s.kind == StmtNode::Kind::kStore ||
                        (s.kind == StmtNode::Kind::kIntrin && EffectsOf(s.intrinsic).writes_buffer);
    stores = stores || (writes && multiplied.contains(s.buffer.get()));
  });
  if (!stores) return body;
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
