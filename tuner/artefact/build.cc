#include "tuner/artefact/build.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "measure/run/compile_pool.h"
#include "search_space/check/verify.h"

namespace heddle::tuner {

absl::StatusOr<BuiltSource> BuildSource(
    const std::shared_ptr<const search_space::TensorProgram>& program,
    const std::vector<search_space::Step>& steps, const search_space::Target& target) {
  auto lowered = search_space::LowerSteps(program, steps);
  if (!lowered.ok()) return lowered.status();
  if (absl::Status s = search_space::Verify(*lowered, target); !s.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the schedule is not valid on ", target.name, ": ", s.message()));
  }
  std::string header =
      absl::StrCat(absl::StripTrailingAsciiWhitespace(program->canonical_text), "\n\n",
                   absl::StripTrailingAsciiWhitespace(search_space::ToString(steps)));
  auto kernels = measure::GenerateSource(*lowered, target, header);
  std::string text;  // as the measurer compiles it, without the header
  for (const auto& kernel : measure::GenerateSource(*lowered, target, "")) text += kernel.source;
  return BuiltSource{*std::move(lowered), std::move(kernels), measure::HashOf(text)};
}

}  // namespace heddle::tuner
