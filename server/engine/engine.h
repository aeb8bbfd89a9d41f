// What the server does, as its services call it: drives FleetState. An event is applied under one
// lock, which is never held across a write, a read or a reply. What it asks to be written goes to
// the store in the order of events, and the state is told when it is committed; then come replies,
// searches, and events for watchers.
#ifndef HEDDLE_SERVER_ENGINE_ENGINE_H_
#define HEDDLE_SERVER_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "heddle/v1/fleet.pb.h"
#include "heddle/v1/tuning.pb.h"
#include "server/db/store.h"
#include "server/db/trust/auth.h"
#include "server/engine/pool.h"
#include "server/engine/searcher.h"
#include "server/fleet/fleet_state.h"
#include "server/metrics/metrics.h"

namespace heddle::server {

struct EngineOptions : FleetOptions {
  // Runs one search to its end; blocks.
  std::function<absl::StatusOr<searcher::Done>(const searcher::Setup&, const SearchPort&)> search =
      SearchInChild;
};

// Told of every event of a job, in order, on a thread that tells all, and of null, on any thread,
// once the engine is drained: nobody need wait for more. Must be quick.
using Watcher = std::function<void(const std::shared_ptr<const v1::JobEvent>&)>;

// That read jobs for calls that wait for what they have written.
inline constexpr int kReplyThreads = 3;

class Engine {
 public:
  Engine(Store& store, Metrics& metrics, EngineOptions options);
  // Ends all searches; jobs go on when the database is opened again.
  ~Engine();

  // Takes up what the database has: jobs that have not ended, leases that may still be reported,
  // devices. To be called once, first.
  absl::Status Recover();
  // In its place on a replica, and again when that has changed: what is believed of models and
  // hosts, and no job. Ticks are not for it.
  absl::Status LoadFleet();

  // Lets time pass: expires leases, sessions, waiting calls and jobs; starts what can start.
  void Tick();
  // No new searches or leases; waiting calls are answered, and watchers told.
  void Drain();

  // ------------------------------------------------------------------------------------------ jobs

  void CreateJob(const std::string& tenant, const std::string& method,
                 const std::string& request_id, const v1::JobSpec& spec,
                 std::vector<Workload> workloads, const Reply<v1::Job>& reply) {
    Do([&](FleetState& state) {
      state.CreateJob(tenant, method, request_id, spec, std::move(workloads), reply);
    });
  }
  void CancelJob(const Caller& caller, int64_t id, const Reply<v1::Job>& reply) {
    Do([&](FleetState& state) { state.CancelJob(caller, id, reply); });
  }
  // Not on gRPC's own thread: the one parses the job's workloads, the other its specification.
  void RetryJob(const Caller& caller, int64_t id, const std::string& request_id,
                const Reply<v1::Job>& reply);
  void UpdateJob(const Caller& caller, int64_t id, const JobUpdate& update,
                 const Reply<v1::Job>& reply);
  // What a cluster's engine has come to with a job that it runs in the fleet's place (with
  // max_searchers = 0): the runs of its workloads, as far as they are collected, on devices of
  // `model`. Of a job that has ended nothing.
  void ReportRuns(int64_t id, const std::string& model, std::vector<WorkloadRun> runs) {
    Do([&](FleetState& state) { state.ReportRuns(id, model, std::move(runs)); });
  }
  // Its end: SUCCEEDED, or FAILED with an error.
  void EndRuns(int64_t id, const std::string& error) {
    Do([&](FleetState& state) { state.EndRuns(id, error); });
  }
  // Until the result is destroyed.
  std::shared_ptr<void> Watch(int64_t job, Watcher watcher);

  // ----------------------------------------------------------------------------------------- fleet

  void Register(const Caller& caller, const v1::RegisterRequest& request,
                const Reply<v1::RegisterResponse>& reply);
  void Acquire(const Caller& caller, const v1::AcquireRequest& request,
               const Reply<v1::Lease>& reply) {
    Do([&](FleetState& state) { state.Acquire(caller, request, reply); });
  }
  void Report(const Caller& caller, const v1::ReportRequest& request,
              const Reply<v1::ReportResponse>& reply) {
    Do([&](FleetState& state) { state.Report(caller, request, reply); });
  }
  void Heartbeat(const Caller& caller, const v1::HeartbeatRequest& request,
                 const Reply<v1::HeartbeatResponse>& reply) {
    Do([&](FleetState& state) { state.Heartbeat(caller, request, reply); });
  }
  void Release(const Caller& caller, const v1::ReleaseRequest& request,
               const Reply<v1::ReleaseResponse>& reply) {
    Do([&](FleetState& state) { state.Release(caller, request, reply); });
  }
  void SetDeviceState(const Caller& caller, const v1::SetDeviceStateRequest& request,
                      const Reply<v1::FleetDevice>& reply) {
    Do([&](FleetState& state) { state.SetDeviceState(caller, request, reply); });
  }
  void PinModel(const Caller& caller, const v1::PinModelRequest& request,
                const Reply<v1::DeviceModel>& reply) {
    Do([&](FleetState& state) { state.PinModel(caller, request, reply); });
  }
  void SetHost(const Caller& caller, const v1::SetHostRequest& request,
               const Reply<v1::FleetHost>& reply) {
    Do([&](FleetState& state) { state.SetHost(caller, request, reply); });
  }

  // Every device that has registered once, by name. Jobs are named where they are the tenant's; ""
  // = everybody's.
  std::vector<v1::FleetDevice> Devices(const std::string& tenant = "") const {
    return Look([&](const FleetState& state) { return state.Devices(tenant); });
  }
  std::vector<v1::FleetHost> Hosts() const {
    return Look([](const FleetState& state) { return state.Hosts(); });
  }
  std::vector<v1::DeviceModel> Models() const {
    return Look([](const FleetState& state) { return state.Models(); });
  }
  // What is believed of a model that has registered once; nullptr: none has.
  std::shared_ptr<const DeviceModels::Model> FindModel(const std::string& model) const {
    return Look([&](const FleetState& state) { return state.FindModel(model); });
  }
  // Whether an administrator trusts what the host measures.
  bool TrustsHost(const std::string& host) const {
    return Look([&](const FleetState& state) { return state.Trusts(host); });
  }
  // How often a job or a daemon that waits was held against what it waits for, so far: the work of
  // scheduling.
  int64_t matches() const {
    return Look([](const FleetState& state) { return state.matches(); });
  }
  // What has changed since: "driver", "compiler", where no device of the model has that any more.
  std::vector<std::string> ChangedSince(const tuner::Environment& then) const {
    return Look([&](const FleetState& state) { return state.ChangedSince(then); });
  }
  int64_t epoch() const {
    return Look([](const FleetState& state) { return state.epoch(); });
  }

 private:
  // An event: what it changes, and then what it asks for.
  template <typename Event>
  std::invoke_result_t<Event, FleetState&> Do(const Event& event) ABSL_LOCKS_EXCLUDED(mutex_) {
    mutex_.Lock();
    if constexpr (std::is_void_v<std::invoke_result_t<Event, FleetState&>>) {
      event(state_);
      Finish();
    } else {
      auto result = event(state_);
      Finish();
      return result;
    }
  }
  void Finish() ABSL_UNLOCK_FUNCTION(mutex_);
  template <typename Question>
  std::invoke_result_t<Question, const FleetState&> Look(const Question& question) const {
    absl::MutexLock lock(&mutex_);
    return question(state_);
  }
  // Tells the state of writes that have ended.
  void TakeWritten(const std::vector<Store::Written>& written);
  // Loads an event that has just been written, for its watchers.
  void Publish(const Effects::Announcement& announcement);
  // A job's searches, one after the other: a thread of its own.
  void RunJob(int64_t id);
  searcher::ToSearcher Answer(int64_t job, const searcher::FromSearcher& question);
  void JoinFinished();

  Store& store_;
  Metrics& metrics_;
  const EngineOptions options_;
  const Store::Taker taker_;
  mutable absl::Mutex mutex_;
  FleetState state_ ABSL_GUARDED_BY(mutex_);
  // Writes whose completion is still to come: the engine must not go before.
  int writes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::thread::id, std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread::id> finished_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::vector<std::shared_ptr<Watcher>>> watchers_ ABSL_GUARDED_BY(mutex_);
  // What is read for others after a write, while the writer goes on: events in the order of the
  // commits, jobs each for the call that waits for it. The last members, so that they end first.
  Pool news_{1, SIZE_MAX, SIZE_MAX};
  Pool replies_{kReplyThreads, SIZE_MAX, SIZE_MAX};
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_ENGINE_ENGINE_H_
