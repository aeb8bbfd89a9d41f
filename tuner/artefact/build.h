// From a schedule to kernels outside a tuning session, for looking at them and taking them away.
#ifndef HEDDLE_TUNER_ARTEFACT_BUILD_H_
#define HEDDLE_TUNER_ARTEFACT_BUILD_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "measure/run/build.h"
#include "search_space/sketch/search_space.h"

namespace heddle::tuner {

// As measure::Build, each source under its workload and steps as a comment; the hash is that
// without, as trials record it. Every refusal is an InvalidArgument.
absl::StatusOr<measure::BuiltSource> BuildSource(
    const std::shared_ptr<const search_space::TensorProgram>& program,
    const std::vector<search_space::Step>& steps, const search_space::Target& target);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_ARTEFACT_BUILD_H_
