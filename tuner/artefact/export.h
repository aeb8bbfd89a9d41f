// The artefact: a folder with one schedule's kernels that any program can load (docs/artefact.md).
#ifndef HEDDLE_TUNER_ARTEFACT_EXPORT_H_
#define HEDDLE_TUNER_ARTEFACT_EXPORT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "measure/run/measurer.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/step.h"
#include "tuner/artefact/query.h"
#include "tuner/records/records.h"

namespace heddle::tuner {

struct Artefact {
  std::shared_ptr<const search_space::TensorProgram> program;
  std::vector<search_space::Step> steps;
  std::string point;           // empty where the steps were not made from one
  measure::DeviceInfo device;  // compiled for its target
  // What was measured of this schedule, and what that says now. Without it, where the source that
  // was measured is not the one that is written, or where the record is no longer "measured", the
  // manifest's times are null.
  std::optional<TrialRecord> measured;
  std::optional<Verdict> verdict;
  std::string version;  // of the program that writes
};

// Lowers, compiles and writes manifest.json (last, so that a folder with one is complete), sources,
// binaries, schedule.txt, loops.txt, samples.txt with expected values computed in double precision,
// and run.py and run.cc, which run the kernels and compare with them. InvalidArgument: the steps do
// not apply, or `folder` holds something else; Unimplemented: a data type that the launchers do not
// know; Unavailable: no compiler.
absl::Status Export(const Artefact& artefact, const std::string& folder);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_ARTEFACT_EXPORT_H_
