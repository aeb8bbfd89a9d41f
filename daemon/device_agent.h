// One device of the daemon: leases candidates for it, measures them with the offline tuner's own
// measurer, and reports what became of them.
#ifndef HEDDLE_DAEMON_DEVICE_AGENT_H_
#define HEDDLE_DAEMON_DEVICE_AGENT_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "daemon/metrics.h"
#include "daemon/session.h"
#include "heddle/v1/fleet.pb.h"
#include "measure/device/device_lock.h"
#include "measure/run/measurer.h"

namespace heddle::measure {

// Two threads: one waits for leases, so that the next ones are there before the device idles, the
// other measures. All public functions may be called from any thread.
class DeviceAgent {
 public:
  // `lock` is the device's own. `session` and `metrics` must outlive the agent. What was started
  // for a workload ends after `idle_limit` without a lease.
  DeviceAgent(DeviceInfo device, DeviceLock lock, int compile_workers, absl::Duration idle_limit,
              FleetSession& session, DaemonMetrics& metrics);
  ~DeviceAgent();  // stops at once
  DeviceAgent(const DeviceAgent&) = delete;
  DeviceAgent& operator=(const DeviceAgent&) = delete;

  // Leases nothing more, gives back what has not reached the device, reports what has, and ends.
  void Drain();
  bool ended() const { return ended_; }
  // While true no leases are acquired.
  void Pause(bool paused);
  // These leases are no longer wanted by the server.
  void Revoke(const std::vector<int64_t>& leases);

  // For heartbeats.
  v1::WorkerStatus Status() const;
  std::optional<int64_t> Running() const;
  std::vector<int64_t> Leases() const;

 private:
  using State = v1::WorkerStatus::State;

  void AcquireLoop();
  int Wanted() const;
  void MeasureLoop();
  std::optional<v1::Lease> TakeLease();
  void EndAll();
  void EndMeasurer();
  void Begin(const v1::Lease& lease);
  bool StartFor(const v1::Lease& lease);
  void Screen(const v1::Lease& lease);
  void MeasureFinals(const v1::Lease& lease);
  // Takes results for up to `timeout` and reports them.
  void Collect(absl::Duration timeout);
  void FinishPending();
  void DropRevoked();
  void GiveUp(const absl::Status& status);
  void Report(int64_t lease, const std::vector<v1::CandidateResult>& results);
  void Release(int64_t lease, const std::vector<int64_t>& unstarted,
               v1::ReleaseRequest::Fault fault, const std::string& detail);
  void ReleaseAll(const v1::Lease& lease, v1::ReleaseRequest::Fault fault,
                  const std::string& detail);
  absl::Status Canary();
  void Recover(const absl::Status& why);
  void Enter(State state, const std::string& detail = "");
  v1::CandidateResult ResultOf(int64_t candidate, const TrialResult& result) const;

  const DeviceInfo device_;
  const DeviceLock lock_;
  const int compile_workers_;
  const absl::Duration idle_limit_;
  FleetSession& session_;
  DaemonMetrics& metrics_;
  StopSignal drain_, stop_;  // no more leases; at once
  std::atomic<bool> ended_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = v1::WorkerStatus::STATE_STARTING;
  std::string detail_;
  bool paused_ = false;
  std::deque<v1::Lease> inbox_;
  std::map<int64_t, int64_t> lease_of_;  // of each candidate that the measurer has
  std::optional<int64_t> current_;       // the lease that the measuring thread has taken up
  std::set<int64_t> revoked_;
  std::unique_ptr<Measurer> measurer_;  // replaced by the measuring thread, under the mutex

  // Of the measuring thread alone.
  std::string measured_workload_;  // what measurer_ was started for
  std::deque<SteadyTime> failures_;
  std::thread acquirer_, measuring_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_DAEMON_DEVICE_AGENT_H_
