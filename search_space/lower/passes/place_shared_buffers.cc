#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/math.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/lower/passes/passes.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kUnit = 16;
// A barrier costs less than so much memory, which other blocks could have. Smaller buffers have
// places of their own.
constexpr int64_t kWorthABarrier = 16 << 10;

// Sequences and allocations, inside of which statements stand one behind the other.
bool IsAround(const Stmt& s) {
  return s->kind == StmtNode::Kind::kSeq || s->kind == StmtNode::Kind::kAlloc;
}

// The statements of a body that run once, one behind the other: loops and branches are whole ones.
void ForEachInOrder(const Stmt& s, const std::function<void(const Stmt&)>& visit) {
  if (!IsAround(s)) return visit(s);
  for (const Stmt& child : s->body) ForEachInOrder(child, visit);
}

// When a buffer holds something: from the first to the last such statement that mentions it.
struct Life {
  BufferRef buffer;
  int64_t first = 0, last = 0;
  bool is_result = true;   // do threads alone store to it, and only copy it to global memory?
  bool is_copied = false;  // by copies of threads, which may still go on at the end

  bool Meets(const Life& other) const { return first <= other.last && other.first <= last; }
  bool MayReplaceOthers() const { return is_result && buffer->bytes() >= kWorthABarrier; }
  int64_t bytes() const { return RoundUp(buffer->bytes(), kUnit); }
};

// In the order of their beginnings.
std::vector<Life> LivesIn(const Stmt& body) {
  std::vector<Life> lives;
  absl::flat_hash_map<const Buffer*, size_t> at;
  const auto mention = [&](const BufferRef& buffer, int64_t now) -> Life* {
    if (buffer == nullptr || buffer->scope != Scope::kShared) return nullptr;
    const auto [known, is_new] = at.emplace(buffer.get(), lives.size());
    if (is_new) lives.push_back({.buffer = buffer, .first = now});
    Life& life = lives[known->second];
    life.last = std::max(life.last, now);
    return &life;
  };
  int64_t now = 0;
  ForEachInOrder(body, [&](const Stmt& whole) {
    VisitStmts(whole, [&](const StmtNode& s) {
      mention(s.base, now);
      Life* written = mention(s.buffer, now);
      if (written != nullptr && s.kind == StmtNode::Kind::kIntrin) {
        written->is_result = false;
        written->is_copied = written->is_copied || s.intrinsic == Intrinsic::kAsyncCopy;
        // What counts copies is read by none of the statements, but by the device.
        if (s.intrinsic == Intrinsic::kPhaseInit) {
          written->last = std::numeric_limits<int64_t>::max();
        }
      }
      VisitExprs(s, [&](const Expr& e) {
        VisitLoads(e, [&](const Expr& load) {
          Life* read = mention(load->buffer, now);
          const bool is_copied_out = s.kind == StmtNode::Kind::kStore &&
                                     s.buffer->scope == Scope::kGlobal && load == s.value;
          if (read != nullptr) read->is_result = read->is_result && is_copied_out;
        });
      });
    });
    ++now;
  });
  return lives;
}

// The statements in front of which a barrier is added, and whether copies are waited for there.
using Added = absl::flat_hash_map<int64_t, bool>;

Stmt WithBarriers(const Stmt& s, const Added& added, int64_t& now) {
  if (!IsAround(s)) {
    const auto here = added.find(now++);
    if (here == added.end()) return s;
    return Seq({here->second ? AsyncWait(0) : nullptr, Barrier(), s});
  }
  auto out = std::make_shared<StmtNode>(*s);
  for (Stmt& child : out->body) child = WithBarriers(child, added, now);
  return out->kind == StmtNode::Kind::kSeq ? Seq(std::move(out->body)) : Stmt(out);
}

// What a block that stays does for each number, one statement behind the other; none of others.
std::vector<Stmt> TurnOf(const Kernel& kernel) {
  std::vector<Stmt> turn;
  if (const StmtNode* turns = SharedTurns(kernel); turns != nullptr) {
    ForEachInOrder(turns->body[0], [&](const Stmt& s) { turn.push_back(s); });
  }
  return turn;
}

bool IsIntrinsic(const Stmt& s, Intrinsic which) {
  return s->kind == StmtNode::Kind::kIntrin && s->intrinsic == which;
}

// Does it mention the buffer, but in bulk copies to the tiles before `tile`, by their number?
bool Mentions(const Stmt& whole, const BufferRef& buffer, int64_t tile = 0) {
  bool found = false;
  VisitStmts(whole, [&](const StmtNode& s) {
    const bool is_copy = s.kind == StmtNode::Kind::kIntrin && s.intrinsic == Intrinsic::kBulkCopy &&
                         s.indices[0]->op == Op::kInt && s.indices[0]->int_value < tile;
    found = found || (s.buffer == buffer && !is_copy);
    VisitExprs(s, [&](const Expr& e) {
      VisitLoads(e, [&](const Expr& load) { found = found || load->buffer == buffer; });
    });
  });
  return found;
}

// The tiles of `ring` that the next turn begins with: those that bulk copies name by their number
// behind the last statement that asks for others; 0 where there are none.
int64_t TilesAhead(const BufferRef& ring, const std::vector<Stmt>& turn) {
  int64_t ahead = 0;
  for (size_t i = turn.size(); i-- > 0 && !Mentions(turn[i], ring, ring->shape[0]);) {
    VisitStmts(turn[i], [&](const StmtNode& s) {
      if (s.buffer == ring) ahead = std::max(ahead, s.indices[0]->int_value + 1);
    });
  }
  return ahead;
}

// Where a result lies that a block which stays stores while the tiles are fetched that its next
// turn begins with: where others of `ring`, which begins at `offset`, will be. Statements that ask
// for these stand behind a fence with a barrier and in front of a barrier, and the result is
// mentioned behind that one only. nullopt where that is not so.
std::optional<int64_t> PlaceInTiles(const BufferRef& result, const BufferRef& ring, int64_t offset,
                                    const std::vector<Stmt>& turn) {
  const int64_t ahead = TilesAhead(ring, turn);
  const auto asks = [&](const Stmt& s) { return Mentions(s, ring, ahead); };
  const auto first = std::find_if(turn.begin(), turn.end(), asks);
  const auto last = std::find_if(turn.rbegin(), turn.rend(), asks).base();
  if (ahead == 0 || first == turn.end()) return std::nullopt;
  const auto barrier = [](const Stmt& s) { return IsIntrinsic(s, Intrinsic::kBarrier); };
  const auto before = std::find_if(turn.begin(), first, barrier);
  const bool is_fenced = before != first && before != turn.begin() &&
                         IsIntrinsic(*std::prev(before), Intrinsic::kProxyFence);
  const auto behind = std::find_if(last, turn.end(), barrier);
  const bool is_behind =
      std::none_of(turn.begin(), behind, [&](const Stmt& s) { return Mentions(s, result); });
  if (!is_fenced || !is_behind) return std::nullopt;
  const int64_t tile = ring->strides[0] * SizeOf(ring->dtype);
  return RoundUp(offset + ahead * tile, std::max(kUnit, result->alignment));
}

}  // namespace

void PlaceSharedBuffers(Kernel& kernel) {
  const std::vector<Life> lives = LivesIn(kernel.body);
  const std::vector<Stmt> turn = TurnOf(kernel);
  Added added;
  std::vector<std::pair<const Life*, int64_t>> placed;
  for (const Life& life : lives) {
    const auto keeps = [&](const Life& other) {
      return !life.MayReplaceOthers() || life.Meets(other);
    };
    const auto meets = [&](const std::pair<const Life*, int64_t>& other, int64_t place) {
      return place < other.second + other.first->bytes() && other.second < place + life.bytes();
    };
    // Behind one of those that keep their places, or at the beginning: where it meets none.
    std::vector<int64_t> places = {0};
    for (const auto& [other, offset] : placed) {
      if (!keeps(*other)) continue;
      places.push_back(RoundUp(offset + other->bytes(), std::max(kUnit, life.buffer->alignment)));
    }
    std::sort(places.begin(), places.end());
    int64_t place = *std::find_if(places.begin(), places.end(), [&](int64_t p) {
      return std::none_of(placed.begin(), placed.end(), [&](const auto& other) {
        return keeps(*other.first) && meets(other, p);
      });
    });
    // In tiles of the buffer that lies last, behind which there is nothing.
    const auto last =
        std::max_element(placed.begin(), placed.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (!turn.empty() && life.MayReplaceOthers() && last != placed.end()) {
      place = PlaceInTiles(life.buffer, last->first->buffer, last->second, turn).value_or(place);
    }
    for (const auto& other : placed) {
      if (!turn.empty() || !meets(other, place)) continue;
      bool& waits = added[life.first];
      waits = waits || other.first->is_copied;
    }
    placed.emplace_back(&life, place);
    kernel.shared.push_back({life.buffer, place});
    kernel.shared_bytes = std::max(kernel.shared_bytes, place + life.bytes());
  }
  int64_t now = 0;
  if (!added.empty()) kernel.body = WithBarriers(kernel.body, added, now);
}

}  // namespace heddle::search_space
