// The supervisor's end of the process that owns a device: starts it, gives it programs, watches its
// phases, kills it when one takes too long, starts it again, and says whose fault an end was.
#ifndef HEDDLE_MEASURE_RUN_DEVICE_WORKER_H_
#define HEDDLE_MEASURE_RUN_DEVICE_WORKER_H_

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/process/subprocess.h"
#include "measure/device/outcome.h"
#include "measure/run/measurer.h"
#include "proto/worker.pb.h"

namespace heddle::measure {

class DeviceWorker {
 public:
  // `setup` is without the naive program. `options` gives the limits; a program that takes less
  // than `fastest_us` is kImplausible. child.stop, which is needed, ends every wait with Cancelled.
  // Of the inherited descriptors the second can be read while the process should lose no time
  // (TimingOptions::idle); the others it only keeps open. `process`: one that another DeviceWorker
  // of the device has left (TakeProcess), to begin with.
  DeviceWorker(worker::Setup setup, const MeasureOptions& options, double fastest_us,
               ChildOptions child, std::unique_ptr<Subprocess> process = nullptr);

  // Starts the process, unless there is one, which opens the device meanwhile: what is wrong then
  // is Start's to tell.
  void OpenAhead();
  // Starts the process, unless there is one, and waits until its canary, the naive program, has
  // passed. The status is the worker's own; Unavailable when the process ended or did not answer.
  absl::Status Start(worker::Program naive);

  // How long the naive program took then.
  double naive_s() const { return naive_s_; }

  // What becomes of a program, whatever that is; the process is started again first where the last
  // program has cost it. Errors are the device's: Unavailable when it is gone for good.
  absl::StatusOr<TrialResult> Measure(const worker::Program& program);
  // In turns. Where the process does not survive that, one at a time, and those that do in turns.
  absl::StatusOr<std::vector<TrialResult>> MeasureFinals(
      const std::vector<worker::Program>& programs, absl::Duration budget);

  // The process, for the device's next DeviceWorker; nullptr where none runs, or it has computed
  // something wrong.
  std::unique_ptr<Subprocess> TakeProcess() { return is_clean_ ? std::move(process_) : nullptr; }
  // OK unless the device is gone for good, with a process that cannot be ended.
  const absl::Status& gone() const { return gone_; }

  // Thread-safe, unlike everything else.
  DeviceState state() const;
  double spare_s() const;  // all that trials were sampled beyond what they needed

 private:
  // What a worker did with a request: results, or the reason of its end.
  struct Answer {
    std::vector<TrialResult> results;
    TrialResult death;  // when there are no results
    bool device_lost = false;
    // Has every program its result, and the device for itself?
    bool is_complete() const { return !results.empty() && !device_lost; }
  };

  absl::Status Launch();
  absl::Status Restart();
  absl::Status SetUp();
  absl::Status EnsureRunning();
  absl::StatusOr<Answer> Ask(const worker::WorkerRequest& request, absl::Duration total);
  absl::Duration LimitOf(worker::Phase phase) const;
  absl::StatusOr<TrialResult> Bury(worker::Phase phase, const absl::Status& why);
  absl::StatusOr<Answer> AskForFinals(const std::vector<worker::Program>& programs,
                                      absl::Duration budget);
  void Judge(TrialResult& result);

  worker::Setup setup_;
  const MeasureOptions options_;
  const double fastest_us_;
  const ChildOptions child_;
  std::unique_ptr<Subprocess> process_;
  bool is_new_ = false;  // started by OpenAhead
  absl::Status gone_;    // not OK: the device is gone for good
  // Has the process computed nothing wrong? What does may have written anywhere else, too.
  bool is_clean_ = true;
  double naive_s_ = 0, best_s_ = 0;
  mutable std::mutex state_mutex_;
  DeviceState state_;
  double spare_s_ = 0;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_RUN_DEVICE_WORKER_H_
