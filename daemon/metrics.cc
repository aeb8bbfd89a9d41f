#include "daemon/metrics.h"

#include <utility>

#include "proto/values.h"

namespace heddle::measure {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using v1::WorkerStatus;

DaemonMetrics::DaemonMetrics()
    : trials_(BuildCounter()
                  .Name("heddle_daemon_trials_total")
                  .Help("Results that the server has acknowledged")
                  .Register(*registry_)),
      busy_seconds_(BuildCounter()
                        .Name("heddle_daemon_device_seconds_total")
                        .Help("Seconds of the device that those have taken")
                        .Register(*registry_)),
      failures_(BuildCounter()
                    .Name("heddle_daemon_worker_failures_total")
                    .Help("Workers that failed, by what became of them")
                    .Register(*registry_)),
      states_(BuildGauge()
                  .Name("heddle_daemon_worker")
                  .Help("1 for the state that the device's worker is in")
                  .Register(*registry_)),
      lost_(BuildCounter()
                .Name("heddle_daemon_refused_reports_total")
                .Help("Reports that the server has refused for good")
                .Register(*registry_)
                .Add({})),
      last_beat_(BuildGauge()
                     .Name("heddle_daemon_last_heartbeat_timestamp_seconds")
                     .Help("When the server last answered a heartbeat, in seconds since 1970")
                     .Register(*registry_)
                     .Add({})) {}

void DaemonMetrics::SetState(const std::string& device, WorkerStatus::State state) {
  const bool failed = state == WorkerStatus::STATE_RESTARTING ||
                      state == WorkerStatus::STATE_UNHEALTHY || state == WorkerStatus::STATE_WEDGED;
  if (failed) failures_.Add({{"device", device}, {"state", WordOf(state)}}).Increment();
  prometheus::Gauge& now = states_.Add({{"device", device}, {"state", WordOf(state)}});
  std::lock_guard lock(mutex_);
  if (prometheus::Gauge* before = std::exchange(state_of_[device], &now)) before->Set(0);
  now.Set(1);
}

void DaemonMetrics::CountReported(const std::string& device, const v1::TrialResult& result) {
  trials_.Add({{"device", device}, {"outcome", WordOf(result.outcome())}}).Increment();
  busy_seconds_.Add({{"device", device}})
      .Increment(SecondsOf(result.load_duration()) + SecondsOf(result.validate_duration()) +
                 SecondsOf(result.time_duration()));
}

}  // namespace heddle::measure
