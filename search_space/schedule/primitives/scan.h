#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SCAN_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SCAN_H_

#include "search_space/schedule/primitives/primitive.h"

namespace heddle::search_space {

// Computes reductions of all prefixes of an axis chunk by chunk: puts the stages of
// schedule/scan.h in the place of `stage`.
struct ScanChunks {
  std::string stage;
  int64_t chunk;

  HEDDLE_PRIMITIVE(ScanChunks, "scan", stage, chunk);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_SCAN_H_
