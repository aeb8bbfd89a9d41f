// The Measurer behind StartMeasurer, without the way from steps to source: tests put in sources of
// their own.
#ifndef HEDDLE_MEASURE_RUN_PIPELINE_H_
#define HEDDLE_MEASURE_RUN_PIPELINE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "measure/codegen/codegen.h"
#include "measure/run/measurer.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/step.h"

namespace heddle::measure {

// Whether the device should lose no time over the candidate that it has: others wait for it, or it
// need not wait for others. Where the compilers are what limits, more samples cost nothing.
// `coming`: candidates queued for the compilers or in them, withdrawn ones not counted.
constexpr bool MustHurry(size_t ready, size_t coming) { return ready > 0 || coming == 0; }

struct GeneratedProgram {
  std::vector<KernelSource> kernels;
  std::vector<search_space::BufferRef> workspaces;
};

// From steps to source; called from several threads. ResourceExhausted for what exceeds the
// device's limits.
using Generator =
    std::function<absl::StatusOr<GeneratedProgram>(const std::vector<search_space::Step>&)>;

// As StartMeasurer. `naive` computes `program` in the simplest way.
absl::StatusOr<std::unique_ptr<Measurer>> StartPipeline(const search_space::TensorProgram& program,
                                                        const DeviceInfo& device,
                                                        const MeasureOptions& options,
                                                        const GeneratedProgram& naive,
                                                        Generator generator);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_RUN_PIPELINE_H_
