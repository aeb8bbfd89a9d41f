// What the server believes and decides: jobs wait for a searcher and a device, searchers propose
// candidates, daemons lease them and report. A state machine: an event goes in, and what it asks of
// the world comes out, writes, replies and searches to run. It has no thread, no lock and no
// database; the clock is given. engine.h drives it.
//
// What must survive is written first and believed when the commit is done: each write comes with
// what to tell the state then, which is an event as well. A state that is thrown away at any moment
// loses nothing that was acknowledged: another one recovers from what was committed.
//
// Its parts stand in order: each knows those before it only. What a part has changed that concerns
// a later one it notes in Changes, and FleetState sees to it when the event is over.
#ifndef HEDDLE_SERVER_FLEET_FLEET_STATE_H_
#define HEDDLE_SERVER_FLEET_FLEET_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "heddle/v1/fleet.pb.h"
#include "heddle/v1/tuning.pb.h"
#include "proto/searcher.pb.h"
#include "server/db/trust/auth.h"
#include "server/fleet/devices/devices.h"
#include "server/fleet/devices/hosts.h"
#include "server/fleet/event/effects.h"
#include "server/fleet/event/options.h"
#include "server/fleet/jobs/device_budget.h"
#include "server/fleet/jobs/job_queue.h"
#include "server/fleet/jobs/jobs.h"
#include "server/fleet/jobs/searches.h"
#include "server/fleet/leases/confirmations.h"
#include "server/fleet/leases/grants.h"
#include "server/fleet/leases/leases.h"
#include "server/metrics/metrics.h"

namespace heddle::server {

class FleetState {
 public:
  FleetState(Metrics& metrics, FleetOptions options);

  // The end of an event, or of some: what they have asked for.
  Effects TakeEffects();

  // Takes up what the database has: jobs that have not ended, leases that may still be reported,
  // devices. To be called once, first, in a write; Recovered when that is committed.
  absl::Status Recover(tuner::Records& records);
  void Recovered();
  // In its place on a replica, and again when that has changed: what is believed of models and
  // hosts, and no job. Ticks are not for it.
  absl::Status LoadFleet(tuner::Records& records);

  // Lets time pass: expires leases, sessions, waiting calls and jobs; starts what can start.
  void Tick();
  // No new searches or leases; waiting calls are answered.
  void Drain();
  bool draining() const { return draining_; }

  // ------------------------------------------------------------------------------------------ jobs

  void CreateJob(const std::string& tenant, const std::string& method,
                 const std::string& request_id, const v1::JobSpec& spec,
                 std::vector<Workload> workloads, const Reply<v1::Job>& reply) {
    jobs_.Create(tenant, method, request_id, spec, std::move(workloads), reply);
  }
  void CancelJob(const Caller& caller, int64_t id, const Reply<v1::Job>& reply);
  void RetryJob(const Caller& caller, v1::Job job, const std::string& request_id,
                std::vector<Workload> workloads, const Reply<v1::Job>& reply) {
    jobs_.Retry(caller, std::move(job), request_id, std::move(workloads), reply);
  }
  void UpdateJob(const Caller& caller, int64_t id, const JobUpdate& update,
                 const Reply<v1::Job>& reply) {
    jobs_.Update(caller, id, update, reply);
  }
  // As Engine has them.
  void ReportRuns(int64_t id, const std::string& model, std::vector<WorkloadRun> runs);
  void EndRuns(int64_t id, const std::string& error);

  // -------------------------------------------------------------------------------------- searches

  // The next search of a job in `searches`, on the database; ends the job when there is none,
  // nullopt also when it is to stop.
  std::optional<searcher::Setup> PrepareSearch(int64_t job, const std::string& database) {
    return searches_.Prepare(job, database);
  }
  // What a searcher asks. Its answer is ready when AnswerIsReady; or earlier, with what there is,
  // where it has not asked for finals, which are all or none.
  void Ask(int64_t job, const searcher::FromSearcher& question) { searches_.Ask(job, question); }
  bool AnswerIsReady(int64_t job, bool finals) const {
    return searches_.AnswerIsReady(job, finals);
  }
  searcher::ToSearcher TakeAnswer(int64_t job, bool finals) {
    return searches_.TakeAnswer(job, finals);
  }
  // How the search has ended. False: no other one is to be prepared.
  bool SearchDone(int64_t job, const absl::StatusOr<searcher::Done>& done) {
    return searches_.Done(job, done);
  }
  void SearchEnded(int64_t job);
  // That were asked for and have not ended.
  int searchers() const { return static_cast<int>(queue_.searching().size()); }

  // ----------------------------------------------------------------------------------------- fleet

  // `session`: a name that nobody guesses. `revoked`: the token that the host belonged to a moment
  // ago, where that is not valid any more.
  void Register(const Caller& caller, const v1::RegisterRequest& request,
                const std::string& session, std::optional<int64_t> revoked,
                const Reply<v1::RegisterResponse>& reply);
  void Acquire(const Caller& caller, const v1::AcquireRequest& request, Reply<v1::Lease> reply) {
    grants_.Acquire(caller, request, std::move(reply));
  }
  void Report(const Caller& caller, const v1::ReportRequest& request,
              const Reply<v1::ReportResponse>& reply) {
    leases_.Report(caller, request, reply);
  }
  void Heartbeat(const Caller& caller, const v1::HeartbeatRequest& request,
                 const Reply<v1::HeartbeatResponse>& reply);
  void Release(const Caller& caller, const v1::ReleaseRequest& request,
               const Reply<v1::ReleaseResponse>& reply) {
    leases_.Release(caller, request, reply);
  }
  void SetDeviceState(const Caller& caller, const v1::SetDeviceStateRequest& request,
                      const Reply<v1::FleetDevice>& reply);
  void PinModel(const Caller& caller, const v1::PinModelRequest& request,
                const Reply<v1::DeviceModel>& reply);
  void SetHost(const Caller& caller, const v1::SetHostRequest& request,
               const Reply<v1::FleetHost>& reply);

  // What is believed now; engine.h says what each is.
  int64_t epoch() const { return epoch_; }
  std::vector<v1::FleetDevice> Devices(const std::string& tenant) const;
  std::vector<v1::FleetHost> Hosts() const { return hosts_.All(); }
  std::vector<v1::DeviceModel> Models() const { return devices_.DescribeModels(); }
  std::shared_ptr<const DeviceModels::Model> FindModel(const std::string& model) const {
    return devices_.models().Get(model);
  }
  bool Trusts(const std::string& host) const { return hosts_.Trusts(host); }
  int64_t matches() const {
    return queue_.matches() + grants_.matches() + confirmations_.matches();
  }
  std::vector<std::string> ChangedSince(const tuner::Environment& then) const {
    return devices_.ChangedSince(then);
  }

 private:
  // What the event has changed and concerns other parts than those that changed it.
  void SeeToChanges();
  // What need not be looked at more often than once a second.
  void Sweep();
  void StopJobsWithoutDevices();
  // Forgets what is old.
  void Prune();
  void UpdateGauges();
  // What a daemon that has registered is told; `saved` are its devices.
  v1::RegisterResponse Welcome(const FleetSession& session,
                               const std::vector<v1::FleetDevice>& saved) const;
  // After a write of a host.
  void BelieveHost(const v1::FleetHost& stored, const absl::Status& status, bool claim);

  Metrics& metrics_;
  const FleetOptions options_;
  int64_t epoch_ = 0;
  bool draining_ = false;
  SteadyTime swept_ = SteadyTime::InfinitePast();
  SteadyTime pruned_ = SteadyTime::InfinitePast();
  SteadyTime recovered_;
  std::set<std::string> pinning_;  // models, until that is written
  Outbox outbox_;
  Changes changes_;
  server::Hosts hosts_;
  server::Devices devices_;
  Jobs jobs_;
  Searches searches_;
  DeviceBudget budget_;
  JobQueue queue_;
  Confirmations confirmations_;
  const LeaseParts parts_;
  Leases leases_;
  Grants grants_;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_FLEET_STATE_H_
