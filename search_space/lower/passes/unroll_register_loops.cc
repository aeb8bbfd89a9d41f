#include <memory>

#include "search_space/lower/passes/passes.h"

namespace heddle::search_space {

Stmt UnrollRegisterLoops(const Stmt& body) {
  const auto index_registers = RegisterIndices(body);
  return RewriteStmt(
      body,
      [&](const Stmt& s) -> Stmt {
        if (s->kind != StmtNode::Kind::kFor || s->for_kind != ForKind::kSerial ||
            !index_registers.contains(s->var.get())) {
          return nullptr;
        }
        auto out = std::make_shared<StmtNode>(*s);
        out->for_kind = ForKind::kUnrolled;
        return out;
      },
      nullptr);
}

}  // namespace heddle::search_space
