// What a daemon tells Prometheus of itself: what the server cannot know while the two do not reach
// each other, and what each device costs.
#ifndef HEDDLE_DAEMON_METRICS_H_
#define HEDDLE_DAEMON_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "heddle/v1/fleet.pb.h"

namespace heddle::measure {

// All functions may be called from any thread. Devices are named as `heddle devices` does
// ("cuda:0").
class DaemonMetrics {
 public:
  DaemonMetrics();
  // Serves http://ADDRESS/metrics. Unavailable when the port cannot be had.
  absl::Status Listen(const std::string& address);

  // The worker of the device is in this state now.
  void SetState(const std::string& device, v1::WorkerStatus::State state);
  // Results that the server has; seconds of the device in them.
  void CountReported(const std::string& device, const v1::TrialResult& result);
  // A call for results or what is given back that the server refused for good.
  void CountLost() { lost_.Increment(); }
  // The server has answered a heartbeat.
  void Beat() { last_beat_.SetToCurrentTime(); }

  prometheus::Registry& registry() { return *registry_; }

 private:
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  prometheus::Family<prometheus::Counter>&trials_, &busy_seconds_, &failures_;
  prometheus::Family<prometheus::Gauge>& states_;
  prometheus::Counter& lost_;
  prometheus::Gauge& last_beat_;
  std::mutex mutex_;
  std::map<std::string, prometheus::Gauge*> state_of_;  // the one that is 1, by device
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_DAEMON_METRICS_H_
