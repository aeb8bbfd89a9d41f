// Candidates in, measured results out: the interface between the tuner and devices. Behind it stand
// compiler processes and one worker process that owns the device (worker_main.h).
#ifndef HEDDLE_MEASURE_RUN_MEASURER_H_
#define HEDDLE_MEASURE_RUN_MEASURER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "measure/device/device_info.h"
#include "measure/device/outcome.h"
#include "search_space/schedule/step.h"

namespace heddle::measure {

class DeviceLock;
class KeptProcesses;

struct MeasureOptions {
  L2Policy l2 = L2Policy::kCold;
  int compile_workers = 0;                           // 0 = chosen from the machine's cores
  absl::Duration compile_limit = absl::Seconds(20);  // without what it waits for a processor
  absl::Duration load_limit = absl::Seconds(5);
  absl::Duration validate_limit = absl::Seconds(10);
  absl::Duration first_sample_limit = absl::Seconds(1);  // at least; 20 x best when that is more
  absl::Duration trial_limit = absl::Seconds(30);
  absl::Duration timing_budget = absl::Milliseconds(120);  // per candidate while screening
  double screen_out_factor = 3;  // dropped after its first sample when slower than best x this
  double best_us = 0;            // known from elsewhere, for screening out; 0 = none
  uint64_t seed = 1;             // of inputs and sampled checks
  // false: StartMeasurer returns while the device starts, and AwaitDevice tells how that went.
  bool await_device = true;
  // Of the device, where the caller owns it already and for longer; nullptr = to be acquired.
  const DeviceLock* lock = nullptr;
  // Where measurers follow one another: each begins with the processes that the one before has
  // left, unless that was stopped or has candidates still. nullptr = each starts its own.
  KeptProcesses* kept = nullptr;
};

struct Candidate {
  int64_t id = 0;     // chosen by the caller, echoed in the result
  std::string point;  // as SearchSpace prints it; empty for steps of another origin
  std::vector<search_space::Step> steps;
};
struct Measured {
  int64_t id = 0;
  TrialResult result;
};

// Seconds since its start that the device had no candidate, or one that had been timed already.
struct DeviceWaits {
  double for_compilers_s = 0;   // while some were being compiled
  double for_candidates_s = 0;  // while none were submitted
  double sampling_s = 0;        // while some were being compiled, taking more samples meanwhile
};

// Measures candidates of one workload on one device. Not thread-safe: one caller. A failed
// candidate is a result, never an error; errors are the device's or ours.
class Measurer {
 public:
  virtual ~Measurer() = default;

  // Returns once the device is ready, or with the error that StartMeasurer would have had; the same
  // whenever it is asked again. Candidates may be submitted before: the compilers have them
  // then, except on a processor, which they would disturb.
  virtual absl::Status AwaitDevice() { return absl::OkStatus(); }
  // Lowers, compiles and queues a candidate for the device; returns at once.
  virtual void Submit(Candidate candidate) = 0;
  // Candidates submitted and not yet returned by Next.
  virtual int pending() const = 0;
  // Takes back those of `ids` that have not reached the device, and returns them: Next will not.
  // What runs already ends as usual.
  virtual std::vector<int64_t> Withdraw(const std::vector<int64_t>& /*ids*/) { return {}; }
  // The candidate that the device has at this moment. Thread-safe, as device_state is.
  virtual std::optional<int64_t> running() const { return std::nullopt; }
  // How many candidates to keep submitted so that neither compilers nor device idle.
  virtual int wanted_in_flight() const = 0;
  // The next finished result, in completion order; nullopt when `timeout` passes first. Unavailable
  // when the device is gone for good.
  virtual absl::StatusOr<std::optional<Measured>> Next(absl::Duration timeout) = 0;

  // Times already validated candidates again, interleaved sample by sample, validating each once
  // more afterwards; results in the order given. Blocks.
  virtual absl::StatusOr<std::vector<TrialResult>> MeasureFinalists(
      const std::vector<Candidate>& finalists, absl::Duration budget) = 0;

  // Ends whatever goes on: MeasureFinalists soon returns Cancelled, and Next that or nothing more,
  // for good. Thread-safe.
  virtual void Stop() = 0;

  virtual DeviceState device_state() const = 0;
  // How long the naive program took in the one launch after which the device was taken for sound; 0
  // where it is not known, as of devices elsewhere.
  virtual double naive_us() const { return 0; }
  // Until now; nothing where it is not known, as of devices elsewhere.
  virtual DeviceWaits device_waits() const { return {}; }
};

// MeasureFinalists, stopping the measurer when `interrupted`, which is polled, says so.
absl::StatusOr<std::vector<TrialResult>> MeasureFinalistsUnless(
    const std::function<bool()>& interrupted, Measurer& measurer,
    const std::vector<Candidate>& finalists, absl::Duration budget);

// Unavailable, as a process that cannot be killed holds the device.
absl::Status WedgedError(const std::string& message);
// Whether an error says so.
bool IsWedged(const absl::Status& status);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_RUN_MEASURER_H_
