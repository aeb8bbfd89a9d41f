// Which trials of a database teach a cost model. However many there are, only so many rows are
// looked at.
#ifndef HEDDLE_TUNER_RECORDS_RECORDS_LESSONS_H_
#define HEDDLE_TUNER_RECORDS_RECORDS_LESSONS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "search_space/ir/tensor_program.h"
#include "tuner/records/lesson_count.h"

namespace heddle {
class Database;
}

namespace heddle::tuner {

// Ids of some `limit` trials on these benches (rows of `bench`): those of one workload side by
// side, oldest first. Records::Lessons says which.
absl::StatusOr<std::vector<int64_t>> ChooseLessons(Database& database,
                                                   absl::Span<const int64_t> benches,
                                                   const search_space::TensorProgram& tuned,
                                                   int64_t limit);

// Counts those to learn from on these benches, and those of them with an id above `after`.
absl::StatusOr<LessonCount> CountLessons(Database& database, absl::Span<const int64_t> benches,
                                         int64_t after);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_RECORDS_LESSONS_H_
