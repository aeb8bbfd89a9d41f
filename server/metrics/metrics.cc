#include "server/metrics/metrics.h"

namespace heddle::server {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;

// Daemons name their models, and each is a series for as long as the server runs.
constexpr size_t kMaxModels = 64;

const prometheus::Histogram::BucketBoundaries kRpcBuckets{0.0001, 0.0003, 0.001, 0.003, 0.01,
                                                          0.03,   0.1,    0.3,   1,     10};
const prometheus::Histogram::BucketBoundaries kCommitBuckets{0.001, 0.003, 0.01, 0.03, 0.1, 1};
const prometheus::Histogram::BucketBoundaries kWaitBuckets{0.1, 1, 10, 60, 600, 3600};

prometheus::Gauge& OneGauge(prometheus::Registry& registry, const char* name, const char* help) {
  return BuildGauge().Name(name).Help(help).Register(registry).Add({});
}

}  // namespace

Metrics::Metrics()
    : trials_(BuildCounter()
                  .Name("heddle_trials_total")
                  .Help("Trials reported, finals included")
                  .Register(*registry_)),
      phase_seconds_(BuildCounter()
                         .Name("heddle_phase_seconds_total")
                         .Help("Seconds that trials spent in each phase")
                         .Register(*registry_)),
      queries_(BuildCounter()
                   .Name("heddle_query_total")
                   .Help("QueryBest by how it was answered")
                   .Register(*registry_)),
      jobs_(BuildGauge().Name("heddle_jobs").Help("Jobs that have not ended").Register(*registry_)),
      devices_(
          BuildGauge().Name("heddle_devices").Help("Devices by what they do").Register(*registry_)),
      calls_waiting_(BuildGauge()
                         .Name("heddle_calls_waiting")
                         .Help("Calls that wait for a thread")
                         .Register(*registry_)),
      rpc_seconds_(BuildHistogram()
                       .Name("heddle_rpc_seconds")
                       .Help("Calls by method and code")
                       .Register(*registry_)),
      compile_seconds_(phase_seconds_.Add({{"phase", "compile"}})),
      load_seconds_(phase_seconds_.Add({{"phase", "load"}})),
      validate_seconds_(phase_seconds_.Add({{"phase", "validate"}})),
      time_seconds_(phase_seconds_.Add({{"phase", "time"}})),
      lease_expiries(BuildCounter()
                         .Name("heddle_lease_expiries_total")
                         .Help("Leases whose daemon fell silent")
                         .Register(*registry_)
                         .Add({})),
      quarantined(BuildCounter()
                      .Name("heddle_quarantined_total")
                      .Help("Candidates that were given up after two lost workers")
                      .Register(*registry_)
                      .Add({})),
      commit_failures(BuildCounter()
                          .Name("heddle_commit_failures_total")
                          .Help("Commits of the database that failed")
                          .Register(*registry_)
                          .Add({})),
      ready_queue(OneGauge(*registry_, "heddle_ready_queue", "Candidates that wait for a device")),
      write_queue(OneGauge(*registry_, "heddle_write_queue", "Writes that wait for the disk")),
      searchers(OneGauge(*registry_, "heddle_searchers", "Searches under way")),
      wal_bytes(OneGauge(*registry_, "heddle_wal_bytes", "Size of the database's log")),
      watchers(OneGauge(*registry_, "heddle_watchers", "Open WatchJob streams and WaitJob calls")),
      commit_seconds(BuildHistogram()
                         .Name("heddle_commit_seconds")
                         .Help("Commits of the database")
                         .Register(*registry_)
                         .Add({}, kCommitBuckets)),
      queue_wait_seconds(BuildHistogram()
                             .Name("heddle_queue_wait_seconds")
                             .Help("From a job's creation to its start")
                             .Register(*registry_)
                             .Add({}, kWaitBuckets)) {}

void Metrics::CountTrial(const measure::TrialResult& result, const std::string& device_model) {
  {
    absl::MutexLock lock(&mutex_);
    if (models_.size() < kMaxModels) models_.insert(device_model);
    const std::string model = models_.contains(device_model) ? device_model : "other";
    prometheus::Counter*& trials = trials_of_[{result.outcome, model}];
    if (trials == nullptr) {
      trials = &trials_.Add({{"outcome", NameOf(result.outcome)}, {"device_model", model}});
    }
    trials->Increment();
  }
  compile_seconds_.Increment(result.compile_s);
  load_seconds_.Increment(result.load_s);
  validate_seconds_.Increment(result.validate_s);
  time_seconds_.Increment(result.time_s);
}

void Metrics::CountQuery(const std::string& match, bool stale) {
  queries_.Add({{"match", match}, {"stale", stale ? "true" : "false"}}).Increment();
}

void Metrics::CountRpc(const std::string& method, const std::string& code, double seconds) {
  prometheus::Histogram* calls = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    prometheus::Histogram*& known = rpcs_of_[{method, code}];
    if (known == nullptr) {
      known = &rpc_seconds_.Add({{"method", method}, {"code", code}}, kRpcBuckets);
    }
    calls = known;
  }
  calls->Observe(seconds);
}

void Metrics::SetJobs(const std::string& state, double count) {
  jobs_.Add({{"state", state}}).Set(count);
}

void Metrics::SetCallsWaiting(const std::string& pool, double count) {
  calls_waiting_.Add({{"pool", pool}}).Set(count);
}

void Metrics::SetDevices(const std::string& state, double count) {
  devices_.Add({{"state", state}}).Set(count);
}

}  // namespace heddle::server
