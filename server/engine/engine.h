// What the server does: jobs wait for a searcher and a device, searchers propose candidates,
// daemons lease them and report, watchers are told. The services (tuning_service.h,
// fleet_service.h) only carry calls to it.
//
// One lock guards everything in memory and is never held across a write, a read or a reply. What
// must survive is written first and believed in memory when the commit is done, in commit order.
// The clock is given and Tick is called from outside, so that tests decide what time it is.
#ifndef HEDDLE_SERVER_ENGINE_ENGINE_H_
#define HEDDLE_SERVER_ENGINE_ENGINE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "heddle/v1/fleet.pb.h"
#include "heddle/v1/tuning.pb.h"
#include "server/db/job_store.h"
#include "server/db/store.h"
#include "server/engine/metrics.h"
#include "server/engine/pool.h"
#include "server/engine/searcher.h"

namespace heddle::server {

template <typename T>
using Reply = std::function<void(absl::StatusOr<T>)>;

struct EngineOptions {
  std::function<absl::Time()> now = absl::Now;  // what is written down, and when jobs expire
  // Leases, sessions and waiting calls: the system's clock may jump.
  std::function<SteadyTime()> steady = SteadyNow;
  // Runs one search to its end; blocks.
  std::function<absl::StatusOr<searcher::Done>(const searcher::Setup&, const SearchPort&)> search =
      SearchInChild;
  int max_searchers = 4;
  int open_jobs_per_tenant = 1000;
  absl::Duration heartbeat = absl::Seconds(5);
  absl::Duration lease = absl::Seconds(30);
  // How long a request that is sent again is known as the same.
  absl::Duration remember_requests = absl::Hours(24 * 7);
};

// Two workers lost with a candidate are enough.
inline constexpr int kMaxKills = 2;
// How long an expired lease is kept for results that come late, and a silent session.
inline constexpr absl::Duration kLateResults = absl::Hours(1);

// Told of every event of a job, in order, on a thread that tells all: must be quick.
using Watcher = std::function<void(const std::shared_ptr<const v1::JobEvent>&)>;

class Engine {
 public:
  Engine(Store& store, Metrics& metrics, EngineOptions options);
  // Ends all searches; jobs go on when the database is opened again.
  ~Engine();

  // Takes up what the database has: jobs that have not ended, leases that may still be reported,
  // devices. To be called once, first.
  absl::Status Recover();
  int64_t epoch() const { return epoch_; }

  // Lets time pass: expires leases, sessions, waiting calls and jobs; starts what can start.
  void Tick();
  // No new searches or leases; waiting calls are answered.
  void Drain();

  // ------------------------------------------------------------------------------------------ jobs

  void CreateJob(const std::string& tenant, const std::string& method,
                 const std::string& request_id, const v1::JobSpec& spec,
                 std::vector<Workload> workloads, Reply<v1::Job> reply);
  void CancelJob(const std::string& tenant, int64_t id, Reply<v1::Job> reply);
  // Until the result is destroyed.
  std::shared_ptr<void> Watch(int64_t job, Watcher watcher);

  // ----------------------------------------------------------------------------------------- fleet

  void Register(const v1::RegisterRequest& request, Reply<v1::RegisterResponse> reply);
  void Acquire(const v1::AcquireRequest& request, Reply<v1::Lease> reply);
  void Report(const v1::ReportRequest& request, Reply<v1::ReportResponse> reply);
  void Heartbeat(const v1::HeartbeatRequest& request, Reply<v1::HeartbeatResponse> reply);
  void Release(const v1::ReleaseRequest& request, Reply<v1::ReleaseResponse> reply);
  void SetDeviceState(const v1::SetDeviceStateRequest& request, Reply<v1::FleetDevice> reply);
  // Every device that has registered once, by id.
  std::vector<v1::FleetDevice> Devices() const;
  // One device of each model that has registered once, as it was last: by model.
  std::map<std::string, v1::Device> Models() const;
  std::optional<v1::Device> FindModel(const std::string& model) const;

 private:
  using Actions = std::vector<std::function<void()>>;

  // A proposal that is not done.
  struct Candidate {
    TrialRow row;
    int64_t number = -1;  // the searcher's; -1: no searcher asks for it
  };
  struct Finals {
    Finals() {}  // clang: an optional<> in this class cannot see the initialisers below
    std::vector<int64_t> ids;  // in the searcher's order
    std::map<int64_t, v1::TrialResult> results;
    double budget_s = 0;
    bool queued = false;
  };
  struct ActiveJob {
    int64_t id = 0;
    std::string tenant;
    v1::JobSpec spec;
    v1::Job::State state = v1::Job::QUEUED;
    absl::Time created, expires = absl::InfiniteFuture();
    std::vector<Workload> workloads;
    std::vector<WorkloadUse> uses;
    int workload = 0;   // at work
    v1::Device device;  // of the model that it works on
    std::map<int64_t, Candidate> candidates;
    std::deque<int64_t> queue;  // of them, waiting for a device
    // Of them, by point: proposed by an earlier searcher, not asked for by this one yet.
    std::map<std::string, int64_t> outstanding;
    int usable = 1;  // devices that can work on it, at the last tick
    std::optional<Finals> finals;
    std::vector<searcher::Result> results;             // for the searcher
    std::map<std::string, v1::TrialResult> unclaimed;  // by point: nobody asked for them yet
    std::string default_point;
    double best_us = 0;
    bool stop = false;       // the searcher is to end
    bool searching = false;  // its thread runs
    bool cancelling = false, ending = false;
    int64_t served = 0;               // the round in which it was given a device last
    int restarts = 0;                 // searches that ended without a word, in a row
    SteadyTime last_usable;           // when a device could work on it last
    SteadyTime booked;                // up to when the time of its search is written down
    std::vector<std::string> errors;  // of workloads that ended without a schedule
  };
  struct DeviceEntry {
    v1::FleetDevice info;
    std::string session;  // "" = gone
    std::string request_id;
    v1::Lease last_lease;
    int64_t job = 0;
  };
  struct FleetSession {
    std::string id, host, boot_id;
    int generator = 0;
    SteadyTime last_seen;
    std::set<int64_t> running;
  };
  struct LeaseEntry {
    int64_t id = 0, job = 0;
    std::string host, device;
    Workload program;
    tuner::Environment environment;
    search_space::Target target;
    tuner::Provenance from;
    std::set<int64_t> open;  // candidates without a result
    SteadyTime last_seen;
    bool is_finals = false;
    bool expired = false, revoked = false;
  };
  struct Waiter {
    std::string session, device, request_id;
    int max = 1;
    SteadyTime deadline;
    Reply<v1::Lease> reply;
  };

  // engine.cc
  absl::Status RecoverJob(const v1::Job& job, tuner::Records& records);
  absl::Status RecoverLeases(tuner::Records& records);
  void JoinFinished();
  void UpdateGauges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // engine_jobs.cc
  ActiveJob* FindJob(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartJobs(Actions& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetJobState(ActiveJob& job, v1::Job::State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndJob(ActiveJob& job, v1::Job::State state, v1::Job::StopReason reason,
              const std::string& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Cancel(ActiveJob& job, const std::string& why, Actions& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishCancelling(ActiveJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Loads an event that has just been written and publishes it, on the thread of replies_.
  void Announce(int64_t job, int64_t seq, bool with_job);
  void Publish(int64_t job, int64_t seq, bool with_job);
  // Loads the job and replies with it, there too.
  void ReplyWith(int64_t job, const std::string& tenant, const Reply<v1::Job>& reply);
  // A job that this version cannot go on with has failed.
  absl::Status GiveUp(const v1::Job& job, const std::string& why, tuner::Records& records);

  // engine_search.cc
  void RunJob(int64_t id);
  // The next search of a job; ends the job when there is none, nullopt also when it is to stop.
  std::optional<searcher::Setup> PrepareSearch(int64_t id);
  // Writes down the time that the job's search took since the last time, so that what a lost
  // searcher or server has used of a budget stays used.
  void BookTime(ActiveJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: the job's thread is to end.
  bool HandleDone(int64_t id, const absl::StatusOr<searcher::Done>& done);
  searcher::ToSearcher Answer(int64_t job, const searcher::FromSearcher& question);
  void Propose(ActiveJob& job, const searcher::Proposal& proposal, bool is_final)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeResult(ActiveJob& job, int64_t candidate, const v1::TrialResult& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // engine_fleet.cc
  // A device's id in the fleet, and the host in it.
  static std::string DeviceKey(const std::string& host, const std::string& device);
  static std::string HostOf(const std::string& device_key);
  tuner::Environment EnvironmentOf(const v1::Device& device, v1::L2Policy l2) const;
  absl::StatusOr<FleetSession*> FindSession(const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Usable(const DeviceEntry& device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool Matches(const v1::DeviceSelector& selector, const v1::FleetDevice& device);
  int UsableDevices(const ActiveJob& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WorksOn(const ActiveJob& job, const DeviceEntry& device) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const v1::FleetDevice* ChooseDevice(const ActiveJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // engine_leases.cc
  static bool HasWork(const ActiveJob& job);
  ActiveJob* ChooseJob(const DeviceEntry& device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ServeWaiters(Actions& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Grant(Waiter waiter, DeviceEntry& device, ActiveJob& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeBackUnwritten(int64_t lease);
  // A report: first into the database, then believed.
  struct Reported;
  static absl::Status StoreReport(tuner::Records& records, Reported& report);
  static absl::Status StoreResult(tuner::Records& records, const v1::CandidateResult& reported,
                                  Reported& report);
  void TakeReport(const Reported& report);
  // Candidates of a lease come back. Whom the loss is counted for: nobody, all, or those that were
  // running at the last heartbeat; `how` says what was lost.
  enum class Blame : uint8_t { kNone, kAll, kRunning };
  struct Given;
  void ReturnCandidates(const LeaseEntry& lease, const std::vector<int64_t>& ids, Blame blame,
                        const std::string& how);
  void TakeBack(const LeaseEntry& lease, const std::vector<int64_t>& ids,
                const std::vector<Given>& given, const std::string& how);
  void CloseIfDone(LeaseEntry& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireLeases(Actions& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Time Now() const { return options_.now(); }
  SteadyTime SteadyNow() const { return options_.steady(); }
  static void Run(Actions& after) {
    for (auto& action : after) action();
  }

  Store& store_;
  Metrics& metrics_;
  const EngineOptions options_;
  int64_t epoch_ = 0;

  mutable absl::Mutex mutex_;
  // Writes whose completion is still to come: the engine must not go before.
  int writes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  int searchers_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t next_trial_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t next_lease_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<std::thread::id, std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread::id> finished_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, ActiveJob> jobs_ ABSL_GUARDED_BY(mutex_);
  std::set<int64_t> searching_ ABSL_GUARDED_BY(mutex_);  // of them, those that have a searcher
  std::map<std::string, FleetSession> sessions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, DeviceEntry> devices_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, LeaseEntry> leases_ ABSL_GUARDED_BY(mutex_);
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  SteadyTime next_deadline_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfiniteFuture();  // of waiters_
  SteadyTime pruned_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfinitePast();  // requests, last
  std::map<int64_t, std::vector<std::shared_ptr<Watcher>>> watchers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, v1::Device> models_ ABSL_GUARDED_BY(mutex_);

  // A write of the engine's own: its completion runs `done` and counts as one of writes_.
  void Write(Store::Body body, Store::Done done, Persistence persistence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // What is read for others after a write, in the order of the commits: the writer goes on
  // meanwhile. The last member, so that it ends first.
  Pool replies_{1, SIZE_MAX, SIZE_MAX};
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_ENGINE_ENGINE_H_
