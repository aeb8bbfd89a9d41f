#include "absl/container/flat_hash_set.h"
#include "search_space/lower/passes.h"

namespace heddle::search_space {

void PlaceSharedBuffers(Kernel& kernel) {
  static constexpr int64_t kAlignment = 16;
  absl::flat_hash_set<const Buffer*> placed;
  VisitStmts(kernel.body, [&](const StmtNode& s) {
    const bool shared = s.buffer != nullptr && s.buffer->scope == Scope::kShared;
    if (!shared || !placed.insert(s.buffer.get()).second) return;
    kernel.shared.push_back({s.buffer, kernel.shared_bytes});
    kernel.shared_bytes += (s.buffer->bytes() + kAlignment - 1) / kAlignment * kAlignment;
  });
}

}  // namespace heddle::search_space
