// What the inference of regions (bounds.cc) allows, for those who want to know in advance.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_BOUNDS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_BOUNDS_H_

#include <cstdint>

namespace heddle::search_space {

// A register tile may span this many times the elements that are used: strided convolutions read
// every second to fourth element of a row.
inline constexpr int64_t kMaxHoles = 4;

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_BOUNDS_H_
