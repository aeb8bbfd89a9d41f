#include "measure/run/build.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status.h"
#include "search_space/check/verify.h"
#include "search_space/sketch/search_space.h"

namespace heddle::measure {

absl::StatusOr<BuiltSource> Build(const std::shared_ptr<const search_space::TensorProgram>& program,
                                  const std::vector<search_space::Step>& steps,
                                  const search_space::Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(lowered, search_space::LowerSteps(program, steps));
  if (absl::Status s = search_space::Verify(lowered, target); !s.ok()) {
    return absl::Status(
        s.code(), absl::StrCat("the schedule is not valid on ", target.name, ": ", s.message()));
  }
  std::vector<KernelSource> kernels = GenerateSource(lowered, target, /*header=*/"");
  std::string hash = HashOfSources(kernels);
  return BuiltSource{std::move(lowered), std::move(kernels), std::move(hash)};
}

std::string HashOfSources(const std::vector<KernelSource>& kernels) {
  std::string text;
  for (const KernelSource& kernel : kernels) text += kernel.normal;
  return HexHashOf(text);
}

}  // namespace heddle::measure
