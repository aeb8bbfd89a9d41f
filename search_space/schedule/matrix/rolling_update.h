#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_MATRIX_ROLLING_UPDATE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_MATRIX_ROLLING_UPDATE_H_

#include <string>
#include <vector>

#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Computes `stage`, a row_fragment, along with the sum `consumer`, which reduces over the same
// terms: every iteration of `loop` takes the stage's terms of that iteration into what it has of
// those before. What is read of a maximum in the loop is the value so far; sums whose terms depend
// on it as exp(slope * value) are multiplied by what that changes when it does
// (rolling_reductions.h): online softmax (Milakov and Gimelshein, 2018), with which attention needs
// no rows of scores (Dao et al., FlashAttention, 2022). `loop` is the outermost of the consumer
// that reduces, and goes through the terms in order, in equal parts.
struct RollingUpdate {
  std::string stage, consumer, loop;

  HEDDLE_PRIMITIVE(RollingUpdate, "rolling_update", stage, consumer, loop);
  // The stage keeps it, as it would an annotation.
  static constexpr bool kIsNote = true;
};

// The stages that are rolled with `consumer`, in definition order.
std::vector<int> RolledWith(const Schedule& schedule, int consumer);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_MATRIX_ROLLING_UPDATE_H_
