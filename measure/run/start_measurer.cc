#include "measure/run/start_measurer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "measure/run/build.h"
#include "measure/run/pipeline.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"

namespace heddle::measure {

absl::StatusOr<std::unique_ptr<Measurer>> StartMeasurer(
    std::shared_ptr<const search_space::TensorProgram> program, const DeviceInfo& device,
    const MeasureOptions& options) {
  Generator generate =
      [program, target = device.target](
          const std::vector<search_space::Step>& steps) -> absl::StatusOr<GeneratedProgram> {
    HEDDLE_ASSIGN_OR_RETURN(built, Build(program, steps, target));
    return GeneratedProgram{std::move(built.kernels), std::move(built.program.workspaces)};
  };
  absl::StatusOr<GeneratedProgram> naive = generate(search_space::NaiveSteps(*program));
  if (!naive.ok()) {
    return absl::Status(naive.status().code(),
                        absl::StrCat("no naive program of ", program->op, " for ", device.id, ": ",
                                     std::string(naive.status().message())));
  }
  return StartPipeline(*program, device, options, *naive, generate);
}

}  // namespace heddle::measure
