#include "absl/container/flat_hash_set.h"
#include "search_space/lower/passes.h"

namespace heddle::search_space {

void PlaceSharedBuffers(Kernel& kernel) {
  static constexpr int64_t kUnit = 16;
  const auto round_up = [](int64_t a, int64_t to) { return (a + to - 1) / to * to; };
  absl::flat_hash_set<const Buffer*> placed;
  VisitStmts(kernel.body, [&](const StmtNode& s) {
    const bool shared = s.buffer != nullptr && s.buffer->scope == Scope::kShared;
    if (!shared || !placed.insert(s.buffer.get()).second) return;
    const int64_t offset = round_up(kernel.shared_bytes, s.buffer->alignment);
    kernel.shared.push_back({s.buffer, offset});
    kernel.shared_bytes = offset + round_up(s.buffer->bytes(), kUnit);
  });
}

}  // namespace heddle::search_space
