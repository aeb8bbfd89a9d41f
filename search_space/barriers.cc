// Shared memory: who waits for whom, and where buffers lie.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "search_space/passes.h"

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

class BarrierInserter {
 public:
  explicit BarrierInserter(const BufferSet& managed) : managed_(managed) {}

  // Rewrites `s`; `pending` holds the accesses since the last barrier before and after.
  Stmt Run(const Stmt& s, Accesses& pending) {
    if (s->kind == StmtNode::Kind::kIntrin && EffectsOf(s->intrinsic).orders_shared) {
      pending = {};
      return s;
    }
    const Accesses all = AccessesOf(s);
    // Ifs may diverge, so that no barrier can stand inside; what only reads or only writes needs
    // none.
    const bool atomic = s->kind == StmtNode::Kind::kStore || s->kind == StmtNode::Kind::kIf ||
                        s->kind == StmtNode::Kind::kIntrin ||
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

  Accesses AccessesOf(const Stmt& s) const {
    Accesses all;
    VisitStmts(s, [&](const StmtNode& node) {
      if (node.kind == StmtNode::Kind::kIntrin && EffectsOf(node.intrinsic).orders_shared) {
        all.has_barrier = true;
      }
      const bool writes = node.kind == StmtNode::Kind::kStore ||
                          (node.kind == StmtNode::Kind::kIntrin && node.buffer != nullptr);
      if (writes && Tracked(node.buffer)) all.writes.insert(node.buffer.get());
      VisitExprs(node, [&](const Expr& e) {
        Visit(e, [&](const Expr& x) {
          if (x->op == Op::kLoad && Tracked(x->buffer)) all.reads.insert(x->buffer.get());
        });
      });
    });
    return all;
  }

  const BufferSet& managed_;
};

}  // namespace

Stmt InsertBarriers(const Stmt& body, const BufferSet& managed) {
  Accesses pending;
  return BarrierInserter(managed).Run(body, pending);
}

namespace {

struct LiveRange {
  BufferRef buffer;
  int first, last;  // positions of statements in program order
};

// First and last access of every shared buffer; a loop that touches a buffer keeps it alive from
// its beginning to its end, when the buffer was alive before it or is alive after it in the loop.
class LivenessScan {
 public:
  void Scan(const Stmt& s) {
    const int begin = position_++;
    Touch(*s, begin);
    for (const Stmt& child : s->body) Scan(child);
    const int end = position_++;
    if (s->kind != StmtNode::Kind::kFor) return;
    for (LiveRange& r : ranges_) {
      if (r.last > begin) {
        r.first = std::min(r.first, begin);
        r.last = end;
      }
    }
  }
  std::vector<LiveRange> ranges_;

 private:
  void Touch(const StmtNode& s, int position) {
    if (s.buffer != nullptr && s.kind != StmtNode::Kind::kAlloc) Touch(s.buffer, position);
    VisitExprs(s, [&](const Expr& e) {
      Visit(e, [&](const Expr& x) {
        if (x->op == Op::kLoad) Touch(x->buffer, position);
      });
    });
  }
  void Touch(const BufferRef& b, int position) {
    if (b->scope != Scope::kShared) return;
    const auto it = std::find_if(ranges_.begin(), ranges_.end(),
                                 [&](const LiveRange& r) { return r.buffer == b; });
    if (it == ranges_.end()) {
      ranges_.push_back({b, position, position});
    } else {
      it->last = position;
    }
  }
  int position_ = 0;
};

}  // namespace

void PlaceSharedBuffers(Kernel& kernel) {
  static constexpr int64_t kAlignment = 16;
  LivenessScan scan;
  scan.Scan(kernel.body);
  for (const LiveRange& r : scan.ranges_) {
    // The lowest offset where it overlaps no placed buffer that is alive at the same time.
    int64_t offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < kernel.shared.size(); ++i) {
        const LiveRange& other = scan.ranges_[i];
        const Kernel::SharedBuffer& placed = kernel.shared[i];
        const bool together = r.first <= other.last && other.first <= r.last;
        const int64_t end = placed.offset + placed.buffer->bytes();
        if (!together || offset >= end || placed.offset >= offset + r.buffer->bytes()) continue;
        offset = (end + kAlignment - 1) / kAlignment * kAlignment;
        moved = true;
      }
    }
    kernel.shared.push_back({r.buffer, offset});
    kernel.shared_bytes = std::max(kernel.shared_bytes, offset + r.buffer->bytes());
  }
}

}  // namespace heddle::search_space
