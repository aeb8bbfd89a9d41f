#include <memory>

#include "measure/codegen/passes/passes.h"

namespace heddle::measure {
namespace {

using search_space::ForKind;
using search_space::Stmt;
using search_space::StmtNode;

// A longer loop indexes an array that cannot be in registers anyway.
constexpr int64_t kLongestRegisterLoop = 1024;

}  // namespace

Stmt UnrollRotatingRegisters(const Stmt& body) {
  const auto index_registers = RegisterIndices(body);
  return RewriteStmt(
      body,
      [&](const Stmt& s) -> Stmt {
        if (s->kind != StmtNode::Kind::kFor || s->for_kind != ForKind::kSerial ||
            s->rotating == nullptr || !index_registers.contains(s->rotating.get()) ||
            s->var->extent > kLongestRegisterLoop) {
          return nullptr;
        }
        auto unrolled = std::make_shared<StmtNode>(*s);
        unrolled->for_kind = ForKind::kUnrolled;
        return unrolled;
      },
      nullptr);
}

}  // namespace heddle::measure
