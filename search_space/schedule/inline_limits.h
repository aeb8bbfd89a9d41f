// How large definitions may become by inlining.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_INLINE_LIMITS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_INLINE_LIMITS_H_

#include <cstdint>

namespace heddle::search_space {

// Operands and operations of a definition into which others were inlined, and of one index in it:
// each stage that reads the one before twice doubles what is inlined. The largest that is wanted is
// the transform of padded data in Winograd's algorithm, some 5,000 nodes.
inline constexpr int64_t kMaxInlinedNodes = 8192, kMaxInlinedIndexNodes = 256;

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_INLINE_LIMITS_H_
