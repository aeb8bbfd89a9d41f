// Whether a program computes what it should (docs/measurement.md): random inputs, poisoned
// outputs, the naive program's output as expectation, and that expectation checked against the
// tensor program in double precision.
#ifndef HEDDLE_MEASURE_JUDGE_VALIDATE_H_
#define HEDDLE_MEASURE_JUDGE_VALIDATE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "measure/device/device.h"
#include "measure/device/outcome.h"
#include "measure/judge/criteria.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/reference/samples.h"

namespace heddle::measure {

// Device memory that measuring `program` takes at least, bytes: two sets of inputs; the outputs of
// a candidate, those it is compared with, for either set, and those of its last run; the naive
// program's intermediate tensors.
int64_t MemoryNeeded(const search_space::TensorProgram& program);

// What Validate found.
struct Verdict {
  Outcome outcome = Outcome::kOk;  // kOk, kWrongAnswer, or what a device error maps to
  std::string detail;              // for kWrongAnswer: where, got, expected, how many
  double max_error = 0;            // largest |got - expected| / tolerance
};

// Intermediate tensors of one program, by name.
using Workspaces = std::vector<std::pair<std::string, std::unique_ptr<DeviceBuffer>>>;

struct ValidateOptions {
  uint64_t seed = 1;
  L2Policy l2 = L2Policy::kCold;
};

// Inputs, expectations and buffers of one workload on one device. Lives as long as the worker.
class Validator {
 public:
  // Allocates and uploads inputs; device and program must outlive it. ResourceExhausted when they
  // do not fit.
  static absl::StatusOr<std::unique_ptr<Validator>> Create(
      Device& device, const search_space::TensorProgram& program, const ValidateOptions& options);
  virtual ~Validator() = default;

  // Intermediate buffers for a program (search_space::Program::workspaces).
  virtual absl::StatusOr<Workspaces> AllocateWorkspaces(
      absl::Span<const search_space::BufferRef> buffers) = 0;

  // Runs the naive program and keeps its outputs as the expectation, after checking them at sampled
  // points. FailedPrecondition when they are wrong: then generator, driver or device is broken.
  virtual absl::Status SetReference(LoadedProgram& naive, Workspaces& workspaces) = 0;

  // Runs a candidate three times: on outputs, workspaces and shared memory poisoned with NaN, then
  // with a large number, on different inputs where the program allows it, and again on the outputs
  // as they are; compares every element, the repetition bit by bit, and looks at the red zones.
  // What is `rounded_anew` in each run (KernelLaunch) is compared with the expectation each time.
  // What is wrong may have written anywhere: inputs and expectations are then written afresh.
  virtual Verdict Validate(LoadedProgram& program, Workspaces& workspaces,
                           const std::set<std::string>& rounded_anew) = 0;

  // Other inputs from here on, and what `naive` makes of them as the expectation, as SetReference;
  // or the old ones, written afresh, where the others are not finite or too large to be exact.
  virtual absl::Status ChangeInputs(uint64_t seed, LoadedProgram& naive,
                                    Workspaces& workspaces) = 0;
  virtual uint64_t seed() const = 0;

  // The buffer sets to rotate while timing.
  virtual std::vector<BufferSet> TimingSets(const Workspaces& workspaces) = 0;

  // Before timing: poisons the outputs of the first and the last of the TimingSets, so that what is
  // timed has to write them.
  virtual absl::Status PoisonTimingSets() = 0;

  // After timing: the first set, and the last where all had their turn, have the outputs that
  // Validate saw, as its repetition had to have them, and the red zones stand. Only for the program
  // validated last.
  virtual Verdict CheckAfterTiming(bool all_sets) = 0;

  // The outputs of the first of the TimingSets are right, whichever program wrote them.
  virtual Verdict CheckFirstSet() = 0;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_JUDGE_VALIDATE_H_
