// Limits that keep hostile text cheap.
#ifndef HEDDLE_SEARCH_SPACE_NOTATION_NOTATION_LIMITS_H_
#define HEDDLE_SEARCH_SPACE_NOTATION_NOTATION_LIMITS_H_

#include <cstdint>

namespace heddle::search_space {

inline constexpr int kMaxNotationBytes = 64 << 10;
inline constexpr int kMaxExpressionDepth = 64;
inline constexpr int kMaxStages = 64;
inline constexpr int kMaxAxes = 16;          // of one stage, reduction axes included
inline constexpr int kMaxStageNodes = 2048;  // operands and operations of one stage
inline constexpr int kMaxIndexNodes = 128;   // of one index, extent or integer comparison
// All tensors of a program together: 256 TiB, far beyond any device and far from overflow.
inline constexpr int64_t kMaxProgramBytes = int64_t{1} << 48;
// Values of one stage's definition: extents of axes and reduction axes multiplied.
inline constexpr int64_t kMaxIterations = int64_t{1} << 61;

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_NOTATION_NOTATION_LIMITS_H_
