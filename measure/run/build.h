// From a schedule to source, the one way there is.
#ifndef HEDDLE_MEASURE_RUN_BUILD_H_
#define HEDDLE_MEASURE_RUN_BUILD_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "measure/codegen/codegen.h"
#include "search_space/ir/stmt.h"
#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/step.h"

namespace heddle::measure {

// A lowered, verified program and the source of its kernels, index by index.
struct BuiltSource {
  search_space::Program program;
  std::vector<KernelSource> kernels;
  std::string source_hash;  // HashOfSources(kernels)
};

// InvalidArgument names the step that does not apply; ResourceExhausted and others what `target`
// does not allow.
absl::StatusOr<BuiltSource> Build(const std::shared_ptr<const search_space::TensorProgram>& program,
                                  const std::vector<search_space::Step>& steps,
                                  const search_space::Target& target);

// As trials record it; names and comments do not count.
std::string HashOfSources(const std::vector<KernelSource>& kernels);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_RUN_BUILD_H_
