#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_SHARE_SCAN_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_SHARE_SCAN_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

enum class ScanGroup : uint8_t { kNeighbours, kSlices };
constexpr auto WordsOf(ScanGroup /*unused*/) { return std::array{"neighbours", "slices"}; }

// Has groups of `threads` threads make a reduction of prefixes (ScanOf) together, of which each
// term is computed once: a local stage that is not attached yet is held spread along the scanned
// axis, runs of `vector` elements dealt out in turn to neighbours, or to the threads of the same
// place in equal parts of the block. Each reduces the prefixes of its runs, and learns from the
// others what is before them. Who reads an element must be the thread that holds it.
struct ShareScan {
  std::string stage;
  int64_t threads, vector;
  ScanGroup group;

  HEDDLE_ANNOTATION(ShareScan, "share_scan", stage, threads, vector, group);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_THREADS_SHARE_SCAN_H_
