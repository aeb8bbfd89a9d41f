// From a schedule to kernels outside a tuning session, for looking at them and taking them away.
#ifndef HEDDLE_TUNER_ARTEFACT_BUILD_H_
#define HEDDLE_TUNER_ARTEFACT_BUILD_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "measure/codegen/codegen.h"
#include "measure/run/measurer.h"
#include "search_space/sketch/search_space.h"

namespace heddle::tuner {

// A lowered, verified program and the source of its kernels, index by index.
struct BuiltSource {
  search_space::Program program;
  std::vector<measure::KernelSource> kernels;
  std::string source_hash;  // as trials of these steps record it
};

// InvalidArgument names the step that does not apply, or what `target` does not allow.
absl::StatusOr<BuiltSource> BuildSource(
    const std::shared_ptr<const search_space::TensorProgram>& program,
    const std::vector<search_space::Step>& steps, const search_space::Target& target);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_ARTEFACT_BUILD_H_
