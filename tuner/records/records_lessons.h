// Which trials of a database teach a cost model. However many there are, only so many rows are
// looked at.
#ifndef HEDDLE_TUNER_RECORDS_RECORDS_LESSONS_H_
#define HEDDLE_TUNER_RECORDS_RECORDS_LESSONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "search_space/ir/tensor_program.h"

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

// Among the newest 20,000 trials of the database: those to learn from on these benches, and those
// of them with an id above `after`.
struct LessonCount {
  int64_t trials = 0, newer = 0;
  int64_t newest = 0;  // id of the newest trial, to learn from or not; 0: there is none
};
absl::StatusOr<LessonCount> CountLessons(Database& database, absl::Span<const int64_t> benches,
                                         int64_t after);

// How far two shapes are from each other: doublings over all parameters; infinity where a parameter
// of the first is none of the second.
double Distance(const std::map<std::string, int64_t>& a, const std::map<std::string, int64_t>& b);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_RECORDS_LESSONS_H_
