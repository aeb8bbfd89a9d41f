// The schedule of a workload of which nothing is known yet.
#ifndef HEDDLE_TUNER_SEARCH_DEFAULT_POINT_H_
#define HEDDLE_TUNER_SEARCH_DEFAULT_POINT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/sketch/search_space.h"
#include "tuner/artefact/query.h"

namespace heddle::tuner {

// What the analytic time makes the best guess: of the space's simplest point, points drawn with a
// fixed seed and mutations of the best of those, the one with the least analytic time among those
// that are not expected to spill. Trial 1 of every session, and what a query falls back to. The
// same in every process: it depends on program, target and the generator's and the features'
// versions alone. Looks at some hundred points, fewer where a program has many stages or long
// definitions, so that it takes a fraction of a second; of the largest ones it is the simplest.
search_space::Point DefaultPoint(const search_space::SearchSpace& space);

// What is answered where a workload was never tuned: nothing, the schedule of the nearest shape
// (FindNearest) or the steps of the default point.
enum class Fallback : uint8_t { kNone, kNearest, kDefault };
// kNearest, kDefault, or kNone where there is no such. Only kNearest reads `records`.
absl::StatusOr<Answer> FallBack(Fallback fallback,
                                const std::shared_ptr<const search_space::TensorProgram>& program,
                                const search_space::Target& target, const Bench& bench,
                                Records* records);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_DEFAULT_POINT_H_
