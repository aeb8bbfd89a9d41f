// The best known schedule of a workload, or the nearest to it.
#ifndef HEDDLE_TUNER_SEARCH_QUERY_H_
#define HEDDLE_TUNER_SEARCH_QUERY_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/step.h"
#include "tuner/records/records.h"

namespace heddle::tuner {

enum class Match : uint8_t { kNone, kExact, kNearest, kDefault };
const char* NameOf(Match match);  // "none", "exact", ...

// How a query was answered.
struct Answer {
  Match match = Match::kNone;
  std::string steps;                    // text; for the workload that was asked for
  std::optional<Records::Best> source;  // kExact: of the steps; kNearest: the neighbour's
};

// kExact or kNone: what was measured for this workload on this bench.
absl::StatusOr<Answer> FindExact(const search_space::TensorProgram& program, const Bench& bench,
                                 Records& records);

// The schedule of the nearest shape of the same operator that gives a valid program at this one,
// verified but never run; kNone where there is no such.
absl::StatusOr<Answer> FindNearest(
    const std::shared_ptr<const search_space::TensorProgram>& program,
    const search_space::Target& target, const Bench& bench, Records& records);

// kDefault: the default schedule.
absl::StatusOr<Answer> MakeDefault(
    const std::shared_ptr<const search_space::TensorProgram>& program,
    const search_space::Target& target);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_QUERY_H_
