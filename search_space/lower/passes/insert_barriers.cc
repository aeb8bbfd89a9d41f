#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/passes/passes.h"

namespace heddle::search_space {
namespace {

using BufferSet = absl::flat_hash_set<const Buffer*>;

struct Accesses {
  BufferSet reads, writes;
  bool has_barrier = false;

  bool empty() const { return reads.empty() && writes.empty(); }
  void Add(const Accesses& other) {
    reads.insert(other.reads.begin(), other.reads.end());
    writes.insert(other.writes.begin(), other.writes.end());
  }
};

bool Intersect(const BufferSet& a, const BufferSet& b) {
  return std::any_of(a.begin(), a.end(), [&](const Buffer* x) { return b.contains(x); });
}

// The shared buffers of pipelines, which wait for their tiles themselves: those that are indexed by
// the companion of a loop.
BufferSet ManagedByPipelines(const Stmt& body) {
  BufferSet managed;
  VisitStmts(body, [&](const StmtNode& loop) {
    if (loop.kind != StmtNode::Kind::kFor || loop.rotating == nullptr) return;
    const auto add = [&](const BufferRef& buffer, const ExprList& indices) {
      const bool shared = buffer->scope == Scope::kShared && !indices.empty();
      if (shared && MentionsAny(indices[0], {loop.rotating.get()})) {
        managed.insert(buffer.get());
      }
    };
    VisitStmts(loop.body[0], [&](const StmtNode& s) {
      if (s.buffer != nullptr) add(s.buffer, s.indices);
      VisitExprs(s, [&](const Expr& e) {
        VisitLoads(e, [&](const Expr& load) { add(load->buffer, load->args); });
      });
    });
  });
  return managed;
}

class BarrierInserter {
 public:
  explicit BarrierInserter(BufferSet managed) : managed_(std::move(managed)) {}

  // Rewrites `s`; `pending` holds the accesses since the last barrier before and after.
  Stmt Run(const Stmt& s, Accesses& pending) {
    if (s->kind == StmtNode::Kind::kIntrin && EffectsOf(s->intrinsic).orders_shared) {
      pending = {};
      return s;
    }
    const Accesses& all = AccessesOf(s);
    // Ifs may diverge, so that no barrier can stand inside; what only reads or only writes needs
    // none, nor does a loop that writes other buffers than it reads.
    const bool atomic = s->kind == StmtNode::Kind::kStore || s->kind == StmtNode::Kind::kIf ||
                        s->kind == StmtNode::Kind::kIntrin ||
                        (s->kind == StmtNode::Kind::kFor && !Intersect(all.reads, all.writes)) ||
                        (!all.has_barrier && (all.reads.empty() || all.writes.empty()));
    if (atomic && !all.has_barrier) {
      const bool conflict = Intersect(all.reads, pending.writes) ||
                            Intersect(all.writes, pending.reads) ||
                            Intersect(all.writes, pending.writes);
      if (conflict) pending = {};
      pending.Add(all);
      return conflict ? Seq({Barrier(), s}) : s;
    }
    if (s->kind == StmtNode::Kind::kFor) {
      // Once to learn what one iteration leaves for the next, once to insert.
      Accesses after_one = pending;
      Run(s->body[0], after_one);
      pending.Add(after_one);
    }
    auto out = std::make_shared<StmtNode>(*s);
    for (Stmt& child : out->body) child = Run(child, pending);
    if (out->kind == StmtNode::Kind::kSeq) return Seq(std::move(out->body));
    return out;
  }

 private:
  bool Tracked(const BufferRef& b) const {
    return b->scope == Scope::kShared && !managed_.contains(b.get());
  }

  // Everything in `s`. Kept, because every statement around `s` asks as well.
  const Accesses& AccessesOf(const Stmt& s) {
    if (const auto known = accesses_.find(s.get()); known != accesses_.end()) return known->second;
    Accesses all;
    const bool intrinsic = s->kind == StmtNode::Kind::kIntrin;
    all.has_barrier = intrinsic && EffectsOf(s->intrinsic).orders_shared;
    const bool writes = s->kind == StmtNode::Kind::kStore || (intrinsic && s->buffer != nullptr);
    if (writes && Tracked(s->buffer)) all.writes.insert(s->buffer.get());
    VisitExprs(*s, [&](const Expr& e) {
      VisitLoads(e, [&](const Expr& load) {
        if (Tracked(load->buffer)) all.reads.insert(load->buffer.get());
      });
    });
    for (const Stmt& child : s->body) {
      const Accesses& inside = AccessesOf(child);
      all.Add(inside);
      all.has_barrier = all.has_barrier || inside.has_barrier;
    }
    return accesses_.emplace(s.get(), std::move(all)).first->second;
  }

  const BufferSet managed_;
  absl::node_hash_map<const StmtNode*, Accesses> accesses_;
};

}  // namespace

Stmt InsertBarriers(const Stmt& body) {
  Accesses pending;
  return BarrierInserter(ManagedByPipelines(body)).Run(body, pending);
}

}  // namespace heddle::search_space
