#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_COPIES_IN_FLIGHT_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_COPIES_IN_FLIGHT_H_

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// In the pipeline of a stage that instructions of a warpgroup compute: the products of so many
// tiles, 0 without this, may still be on their way when the threads go on to the next tile. Their
// buffers are filled that much later.
struct InFlight {
  std::string stage;
  int64_t tiles;

  HEDDLE_ANNOTATION(InFlight, "in_flight", stage, tiles);
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_COPIES_IN_FLIGHT_H_
