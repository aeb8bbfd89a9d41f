// What the service tells Prometheus. Labels never name a job or a shape.
#ifndef HEDDLE_SERVER_METRICS_METRICS_H_
#define HEDDLE_SERVER_METRICS_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/metrics_port.h"
#include "measure/device/outcome.h"

namespace heddle::server {

class Metrics : public MetricsPort {
 public:
  Metrics();

  void CountTrial(const measure::TrialResult& result, const std::string& device_model);
  void CountQuery(const std::string& match, bool stale);
  void CountRpc(const std::string& method, const std::string& code, double seconds);
  void SetJobs(const std::string& state, double count);
  void SetDevices(const std::string& state, double count);
  void SetCallsWaiting(const std::string& pool, double count);

 private:
  prometheus::Family<prometheus::Counter>&trials_, &phase_seconds_, &queries_;
  prometheus::Family<prometheus::Gauge>&jobs_, &devices_, &calls_waiting_;
  prometheus::Family<prometheus::Histogram>& rpc_seconds_;
  prometheus::Counter &compile_seconds_, &load_seconds_, &validate_seconds_, &time_seconds_;
  absl::Mutex mutex_;
  std::set<std::string> models_ ABSL_GUARDED_BY(mutex_);  // that have a label
  // Series by their labels: to ask their family for one takes longer than to count.
  std::map<std::pair<measure::Outcome, std::string>, prometheus::Counter*> trials_of_
      ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, std::string>, prometheus::Histogram*> rpcs_of_
      ABSL_GUARDED_BY(mutex_);

 public:
  prometheus::Counter &lease_expiries, &quarantined, &commit_failures;
  prometheus::Gauge &ready_queue, &write_queue, &searchers, &wal_bytes, &watchers;
  prometheus::Histogram &commit_seconds, &queue_wait_seconds;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_METRICS_METRICS_H_
