// The best known schedule of a workload, or the nearest to it.
#ifndef HEDDLE_TUNER_ARTEFACT_QUERY_H_
#define HEDDLE_TUNER_ARTEFACT_QUERY_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "measure/run/measurer.h"
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

// What a record says about the program that would be built and run now: measured, where source,
// generator, compiler and device are those that it was measured with; stale, where one of the first
// three has changed, so that its time is only what it was; foreign, where it was measured on a
// device of the same name and another size.
enum class Standing : uint8_t { kMeasured, kStale, kForeign };
const char* NameOf(Standing standing);  // "measured", ...

struct Verdict {
  Standing standing = Standing::kMeasured;
  std::vector<std::string> changed;  // of "device", "generator", "compiler", "driver", "source"
  // "stale: generator and compiler have changed since it was measured"; empty where it is measured.
  std::string Text() const;
};
// What has changed decides. A driver alone leaves a record measured.
Verdict VerdictOf(std::vector<std::string> changed);
// `device` may be a description without compiler or driver: then those are not compared.
Verdict Judge(const Records::Best& best,
              const std::shared_ptr<const search_space::TensorProgram>& program,
              const measure::DeviceInfo& device);
// The hash of the source that a record's steps give on a target now; empty where they give none.
std::string SourceHashNow(const TrialRecord& trial,
                          const std::shared_ptr<const search_space::TensorProgram>& program,
                          const search_space::Target& target);

// kExact or kNone: what was measured for this workload on this bench.
absl::StatusOr<Answer> FindExact(const search_space::TensorProgram& program, const Bench& bench,
                                 Records& records);

// The schedule of the nearest shape of the same operator that gives a valid program at this one,
// verified but never run; kNone where there is no such.
absl::StatusOr<Answer> FindNearest(
    const std::shared_ptr<const search_space::TensorProgram>& program,
    const search_space::Target& target, const Bench& bench, Records& records);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_ARTEFACT_QUERY_H_
