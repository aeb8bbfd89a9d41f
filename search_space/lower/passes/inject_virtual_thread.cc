#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/make_node.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/passes/passes.h"

namespace heddle::search_space {
namespace {

class Injector {
 public:
  explicit Injector(const Var& vthread) : vthread_(vthread) {}

  absl::StatusOr<Stmt> Run(const Stmt& body) {
    HEDDLE_RETURN_IF_ERROR(Taint(body));
    return Push(Expand(body));
  }

 private:
  bool Mentions(const Expr& e) const {
    if (e->op == Op::kVar) return e->var == vthread_;
    if (e->op == Op::kLoad && expanded_.contains(e->buffer.get())) return true;
    return std::any_of(e->args.begin(), e->args.end(),
                       [&](const Expr& arg) { return Mentions(arg); });
  }
  bool MentionsHere(const StmtNode& s) const {
    bool found = s.buffer != nullptr && expanded_.contains(s.buffer.get());
    VisitExprs(s, [&](const Expr& e) { found = found || Mentions(e); });
    return found;
  }
  // Kept, because every statement around `s` asks as well.
  bool MentionsAnywhere(const Stmt& s) {
    if (const auto known = mentions_.find(s.get()); known != mentions_.end()) return known->second;
    bool found = s->kind != StmtNode::Kind::kAlloc && MentionsHere(*s);
    for (const Stmt& child : s->body) found = MentionsAnywhere(child) || found;
    return mentions_[s.get()] = found;
  }

  // Fixpoint of "stores something that depends on the virtual thread".
  absl::Status Taint(const Stmt& body) {
    for (bool changed = true; changed;) {
      changed = false;
      absl::Status status;
      TaintBelow(body, false, changed, status);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  void TaintBelow(const Stmt& s, bool under, bool& changed, absl::Status& status) {
    if (s->kind == StmtNode::Kind::kIf) under = under || Mentions(s->condition);
    const bool stores = s->buffer != nullptr && s->kind != StmtNode::Kind::kAlloc;
    if (stores && s->buffer->scope != Scope::kGlobal && (under || MentionsHere(*s)) &&
        !expanded_.contains(s->buffer.get())) {
      if (s->buffer->scope == Scope::kShared) {
        // Elements of the virtual thread's own need no copies.
        const bool own = std::any_of(s->indices.begin(), s->indices.end(),
                                     [&](const Expr& index) { return IsVar(index, vthread_); });
        if (own && !under) return;
        status = absl::InvalidArgumentError(
            absl::StrCat("shared buffer ", s->buffer->name, " depends on virtual thread ",
                         vthread_->name, "; compute it outside that loop"));
        return;
      }
      Buffer wide = *s->buffer;
      wide.shape.insert(wide.shape.begin(), vthread_->extent);
      wide.strides.insert(wide.strides.begin(), wide.elements);
      wide.elements *= vthread_->extent;
      expanded_[s->buffer.get()] = std::make_shared<const Buffer>(std::move(wide));
      changed = true;
    }
    for (const Stmt& child : s->body) TaintBelow(child, under, changed, status);
  }

  ExprList WithThread(const ExprList& indices) const {
    ExprList out = {VarExpr(vthread_)};
    out.insert(out.end(), indices.begin(), indices.end());
    return out;
  }

  Stmt Expand(const Stmt& body) {
    auto expr = [&](const Expr& e) {
      return Rewrite(e, [&](const Expr& node) -> Expr {
        if (node->op != Op::kLoad) return nullptr;
        const auto wide = expanded_.find(node->buffer.get());
        if (wide == expanded_.end()) return nullptr;
        return Load(wide->second, WithThread(node->args), node->lanes);
      });
    };
    auto stmt = [&](const Stmt& s) -> Stmt {
      const auto wide = s->buffer == nullptr ? expanded_.end() : expanded_.find(s->buffer.get());
      if (wide == expanded_.end()) return nullptr;
      auto changed = MakeNode<StmtNode>(*s);
      changed->buffer = wide->second;
      if (s->kind != StmtNode::Kind::kAlloc) changed->indices = WithThread(s->indices);
      return changed;
    };
    Stmt out = RewriteStmt(body, stmt, expr);
    expanded_.clear();  // from here on only the variable itself matters
    return out;
  }

  // A perfect nest of register loops over one store: the virtual thread loop goes around it.
  static bool IsStoreNest(const Stmt& s) {
    if (s->kind == StmtNode::Kind::kStore) return true;
    if (s->kind == StmtNode::Kind::kIntrin) return s->buffer != nullptr;
    const bool nests = s->kind == StmtNode::Kind::kFor || s->kind == StmtNode::Kind::kIf;
    return nests && IsStoreNest(s->body[0]);
  }

  Stmt Push(const Stmt& s) {
    if (!MentionsAnywhere(s)) return s;
    const bool here = s->kind == StmtNode::Kind::kIf && Mentions(s->condition);
    if (here || IsStoreNest(s)) {
      const Var copy = MakeVar(vthread_->name, vthread_->extent);  // every loop has its own
      return For(copy, ForKind::kUnrolled, RewriteStmt(s, nullptr, [&](const Expr& e) {
                   return Substitute(
                       e, [&](const Var& v) { return v == vthread_ ? VarExpr(copy) : nullptr; });
                 }));
    }
    auto out = MakeNode<StmtNode>(*s);
    for (Stmt& child : out->body) child = Push(child);
    return out;
  }

  Var vthread_;
  absl::flat_hash_map<const Buffer*, BufferRef> expanded_;
  absl::flat_hash_map<const StmtNode*, bool> mentions_;  // of the statements that are pushed into
};

}  // namespace

absl::StatusOr<Stmt> InjectVirtualThread(const Stmt& body, const Var& vthread) {
  return Injector(vthread).Run(body);
}

}  // namespace heddle::search_space
