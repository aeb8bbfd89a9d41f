// What a daemon tells Prometheus of itself: what the server cannot know while the two do not reach
// each other, and what each device costs.
#ifndef HEDDLE_DAEMON_METRICS_H_
#define HEDDLE_DAEMON_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>

#include <map>
#include <mutex>
#include <string>

#include "base/metrics_port.h"
#include "heddle/v1/fleet.pb.h"

namespace heddle::measure {

// All functions may be called from any thread. Devices are named as `heddle devices` does
// ("cuda:0").
class DaemonMetrics : public MetricsPort {
 public:
  DaemonMetrics();

  // The worker of the device is in this state now.
  void SetState(const std::string& device, v1::WorkerStatus::State state);
  // Results that the server has; seconds of the device in them.
  void CountReported(const std::string& device, const v1::TrialResult& result);
  // A call for results or what is given back that the server refused for good.
  void CountLost() { lost_.Increment(); }
  // The server has answered a heartbeat.
  void Beat() { last_beat_.SetToCurrentTime(); }

 private:
  prometheus::Family<prometheus::Counter>&trials_, &busy_seconds_, &failures_;
  prometheus::Family<prometheus::Gauge>& states_;
  prometheus::Counter& lost_;
  prometheus::Gauge& last_beat_;
  std::mutex mutex_;
  std::map<std::string, prometheus::Gauge*> state_of_;  // the one that is 1, by device
};

}  // namespace heddle::measure

#endif  // HEDDLE_DAEMON_METRICS_H_
