// Several workloads on several devices: whose turn it is, and what all turns of a workload came to.
#ifndef HEDDLE_CLI_TUNE_TURNS_H_
#define HEDDLE_CLI_TUNE_TURNS_H_

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/tune_one.h"
#include "cli/tuned.h"
#include "measure/device/device_info.h"
#include "tuner/records/records.h"
#include "tuner/search/shared_budget.h"

namespace heddle::cli {

// What one workload's turns came to.
struct Turns {
  std::optional<Tuned> tuned;  // all of them together
  absl::Status failed;         // of the last, where it ended in an error
};

// Is that the fault of the workload, or of its schedules, so that others may do better?
bool IsItsOwn(const absl::Status& failed);

// The turns of all devices, each of which has an owner: a thread that calls Work.
class Tuning {
 public:
  Tuning(const TuneFlags& flags, const std::vector<TuneJob>& jobs, size_t devices);

  // Turn after turn until the budget is used up, or an error that is not one workload's own: the
  // device's or the database's. What a device fails at is another's to try, since a broken one
  // fails at everything.
  void Work(const measure::DeviceInfo& device, tuner::Records& records);

  size_t at_a_time() const { return at_a_time_; }
  const std::vector<Turns>& turns() const { return turns_; }

 private:
  std::string Count(size_t workload) const;
  // What a line is about, where devices' lines mix.
  std::string Place(size_t workload, const measure::DeviceInfo& device) const;
  void SayTurn(const tuner::SharedBudget::Turn& turn, const measure::DeviceInfo& device) const;
  void Book(const tuner::SharedBudget::Turn& turn, Tuned tuned, const measure::DeviceInfo& device);
  // The last device's error is the run's, the others' cost nothing but time.
  void Leave(size_t workload, absl::Status failed, const measure::DeviceInfo& device);

  const TuneFlags& flags_;
  const std::vector<TuneJob>& jobs_;
  const size_t at_a_time_;  // devices that can have turns at once
  std::mutex mutex_;        // of all below
  std::condition_variable changed_;
  tuner::SharedBudget budget_;
  size_t working_;   // devices that have not failed
  int running_ = 0;  // turns
  std::vector<Turns> turns_;
};

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_TUNE_TURNS_H_
