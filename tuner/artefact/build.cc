#include "tuner/artefact/build.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "search_space/schedule/step.h"

namespace heddle::tuner {

absl::StatusOr<measure::BuiltSource> BuildSource(
    const std::shared_ptr<const search_space::TensorProgram>& program,
    const std::vector<search_space::Step>& steps, const search_space::Target& target) {
  auto built = measure::Build(program, steps, target);
  if (!built.ok()) return absl::InvalidArgumentError(built.status().message());
  const std::string header =
      absl::StrCat(absl::StripTrailingAsciiWhitespace(program->canonical_text), "\n\n",
                   absl::StripTrailingAsciiWhitespace(search_space::ToString(steps)));
  built->kernels = measure::GenerateSource(built->program, target, header);
  return built;
}

}  // namespace heddle::tuner
