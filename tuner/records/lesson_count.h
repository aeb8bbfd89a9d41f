// How many trials of a database a cost model may learn from.
#ifndef HEDDLE_TUNER_RECORDS_LESSON_COUNT_H_
#define HEDDLE_TUNER_RECORDS_LESSON_COUNT_H_

#include <cstdint>

namespace heddle::tuner {

// Of the newest 20,000 trials.
struct LessonCount {
  int64_t trials = 0;  // that teach
  int64_t newer = 0;   // those of them with an id above the one that is asked about
  int64_t newest = 0;  // id of the newest trial, to learn from or not; 0: there is none
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_LESSON_COUNT_H_
