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
#include "server/db/auth.h"
#include "server/db/store.h"
#include "server/db/trial_store.h"
#include "server/engine/device_models.h"
#include "server/engine/fair_queue.h"
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
  int max_searchers = 4;  // 0: another executor than the fleet runs the jobs
  int open_jobs_per_tenant = 1000;
  // Of a tenant: jobs that are searched at a time, and seconds of devices a day (UTC); 0 = no
  // limit. What exceeds them waits.
  int running_jobs_per_tenant = 0;
  double device_seconds_per_day = 0;
  // How long a job keeps its searcher while others wait for one.
  absl::Duration slice = absl::Seconds(60);
  // Jobs that wait for a model are held against its devices so often at most.
  absl::Duration match_every = absl::Seconds(1);
  // The host of the server itself, whose daemon comes over the server's socket: nobody else gets
  // the name, and its measurements are trusted. "" = none.
  std::string own_host;
  absl::Duration heartbeat = absl::Seconds(5);
  absl::Duration lease = absl::Seconds(30);
  // How long a request that is sent again is known as the same.
  absl::Duration remember_requests = absl::Hours(24 * 7);
  // How long jobs that have ended are kept, and devices that nobody has seen.
  absl::Duration keep_jobs = absl::Hours(24 * 90);
  absl::Duration keep_devices = absl::Hours(24 * 30);
};

// Two workers lost with a candidate are enough.
inline constexpr int kMaxKills = 2;
// Candidates that a search proposes ahead for each device: a lease of some while another is
// measured.
inline constexpr int kInFlightPerDevice = 16;
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
  // In its place on a replica, and again when that has changed: what is believed of models and
  // hosts, and no job. Ticks are not for it.
  absl::Status LoadFleet();
  int64_t epoch() const { return epoch_; }

  // Lets time pass: expires leases, sessions, waiting calls and jobs; starts what can start.
  void Tick();
  // No new searches or leases; waiting calls are answered.
  void Drain();

  // ------------------------------------------------------------------------------------------ jobs

  void CreateJob(const std::string& tenant, const std::string& method,
                 const std::string& request_id, const v1::JobSpec& spec,
                 std::vector<Workload> workloads, Reply<v1::Job> reply);
  void CancelJob(const Caller& caller, int64_t id, Reply<v1::Job> reply);
  // What a cluster's engine has come to with a job that it runs in the fleet's place (with
  // max_searchers = 0): the runs of its workloads, as far as they are collected, on devices of
  // `model`. Of a job that has ended nothing.
  void ReportRuns(int64_t id, const std::string& model, std::vector<WorkloadRun> runs);
  // Its end: SUCCEEDED, or FAILED with an error.
  void EndRuns(int64_t id, const std::string& error);
  // Until the result is destroyed.
  std::shared_ptr<void> Watch(int64_t job, Watcher watcher);

  // ----------------------------------------------------------------------------------------- fleet

  void Register(const Caller& caller, const v1::RegisterRequest& request,
                Reply<v1::RegisterResponse> reply);
  void Acquire(const Caller& caller, const v1::AcquireRequest& request, Reply<v1::Lease> reply);
  void Report(const Caller& caller, const v1::ReportRequest& request,
              Reply<v1::ReportResponse> reply);
  void Heartbeat(const Caller& caller, const v1::HeartbeatRequest& request,
                 Reply<v1::HeartbeatResponse> reply);
  void Release(const Caller& caller, const v1::ReleaseRequest& request,
               Reply<v1::ReleaseResponse> reply);
  void SetDeviceState(const Caller& caller, const v1::SetDeviceStateRequest& request,
                      Reply<v1::FleetDevice> reply);
  void PinModel(const Caller& caller, const v1::PinModelRequest& request,
                Reply<v1::DeviceModel> reply);
  void SetHost(const Caller& caller, const v1::SetHostRequest& request, Reply<v1::FleetHost> reply);
  // Every device that has registered once, by id. Jobs are named where they are the tenant's; "" =
  // everybody's.
  std::vector<v1::FleetDevice> Devices(const std::string& tenant = "") const;
  std::vector<v1::FleetHost> Hosts() const;
  std::vector<v1::DeviceModel> Models() const;
  // What is believed of a model that has registered once.
  std::optional<DeviceModels::Model> FindModel(const std::string& model) const;
  // Whether an administrator trusts what the host measures.
  bool TrustsHost(const std::string& host) const;
  // How often a job or a daemon that waits was held against what it waits for, so far: the work of
  // scheduling.
  int64_t matches() const;
  // What has changed since: "driver", "compiler", where no device of the model has that any more.
  std::vector<std::string> ChangedSince(const tuner::Environment& then) const;

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
    v1::Job::State state = v1::Job::STATE_QUEUED;
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
    double pace_s = 1;                       // of a device for a candidate, lately
    std::map<std::string, int64_t> refused;  // by hosts: they cannot measure the workload; tokens
    bool ready = false;                      // waits for a searcher, in ready_
    bool stop = false;                       // the searcher is to end
    bool searching = false;                  // its thread runs
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
    bool usable = false;  // as it was counted in uses_
    std::string request_id;
    v1::Lease last_lease;
    // The same call again, before the lease was written.
    std::vector<Reply<v1::Lease>> asked_again;
    bool written = false;  // last_lease
    int64_t job = 0;
    int turns = 0;          // leases of it in a row
    SteadyTime free_since;  // when its last lease closed
  };
  // A job that has a searcher, for as long as its thread runs.
  struct Searching {
    std::string tenant, model;
    SteadyTime slice_begun;
  };
  struct FleetSession {
    std::string id, host, boot_id, instance;
    int64_t token = 0;        // whose it is
    std::string certificate;  // and with what it came
    int generator = 0;
    SteadyTime last_seen;
    std::set<int64_t> running;
    std::map<std::string, std::string> devices;  // Device.id to the id in the fleet
  };
  // Who may speak for a host, and whether what it says needs no second one.
  struct HostEntry {
    int64_t token = 0;
    bool trusted = false, released = false;
  };
  // What the devices of a model have, and how many of them.
  struct Versions {
    std::map<std::string, int> drivers, compilers;
  };
  struct Confirmation;
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
    std::string default_point;  // of the workload
    bool expired = false, revoked = false;
    // Of the daemon that has it, and what it ran at its last heartbeat.
    std::string boot_id, instance;
    std::set<int64_t> running;
    std::string tenant;
    SteadyTime begun;
    int count = 0;         // of candidates
    double charged_s = 0;  // to the tenant in advance
    bool settled = false;
    int confirms = 0;  // attempts so far, where it is to confirm a best, which is:
    std::shared_ptr<const Confirmation> confirmation;
  };
  // One of the schedules that a lease of finals measured.
  struct Finalist {
    TrialRow row;
    double time_us = 0;  // 0 = it failed
    bool is_default = false;
  };
  // A best that another host is to measure, with the default schedule beside it.
  struct Confirmation {
    int64_t job = 0;
    int workload = 0;
    std::string tenant;
    Workload program;
    v1::L2Policy l2 = v1::L2_POLICY_UNSPECIFIED;
    uint64_t seed = 1;
    std::vector<TrialRow> rows;          // its own first
    double time_us = 0, default_us = 0;  // as they were found
    std::string default_point;
    std::map<std::string, int64_t> measured;  // by hosts so far, with their tokens
    int attempts = 0;
  };
  struct Waiter {
    std::string session, device, request_id;
    int max = 1;
    SteadyTime deadline;
    Reply<v1::Lease> reply;
  };
  // What waits for the devices of a model, and what they do.
  struct ModelUse {
    int usable = 0;     // devices
    int searching = 0;  // jobs
    std::list<Waiter> waiters;
    std::deque<Confirmation> confirmations;
    SteadyTime matched = SteadyTime::InfinitePast();  // jobs that wait for it, last
    std::set<std::string> came;                       // devices that became usable since
  };

  // engine.cc
  absl::Status RecoverJob(const v1::Job& job, tuner::Records& records);
  absl::Status RecoverLeases(tuner::Records& records);
  void JoinFinished();
  void UpdateGauges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What need not be looked at more often than once a second.
  void Sweep(Actions& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets what is old.
  void Prune() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // engine_jobs.cc
  ActiveJob* FindJob(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
  void SetRestarts(ActiveJob& job, int restarts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A job that this version cannot go on with has failed.
  absl::Status GiveUp(const v1::Job& job, const std::string& why, tuner::Records& records);

  // engine_schedule.cc
  // What a job waits for that no device matches: its key in parked_.
  static std::string WaitsFor(const ActiveJob& job);
  std::optional<std::string> ChooseModel(const ActiveJob& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A job that has no searcher: for one, or for a device.
  void Enqueue(ActiveJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Park(ActiveJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unpark(const ActiveJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts the device as usable or not, and lets jobs know that wait for such.
  void Refresh(DeviceEntry& device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MatchParked(const std::string& model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the tenant has had its seconds of devices for today.
  bool UsedUp(const std::string& tenant) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::string> ReadyTenants() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives searchers that are free to jobs that are ready.
  void StartJobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartJob(ActiveJob& job, const std::string& model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndSlices() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetSearching(int64_t job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int UsableDevices(const ActiveJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WorksOn(const ActiveJob& job, const DeviceEntry& device)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool HasWork(const ActiveJob& job);
  bool AnyWork(const std::string& model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ActiveJob* ChooseJob(const DeviceEntry& device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a device that takes work belongs to a host that has not refused the job.
  bool OthersRemain(const ActiveJob& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ServeWaiters(const std::string& model, Actions& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireWaiters(Actions& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A lease that ends: its tenant pays for what it took.
  void Settle(LeaseEntry& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BookDeviceTime() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

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

  // engine_hosts.cc
  // A device's id in the fleet, and the host in it.
  static std::string DeviceKey(const std::string& host, const v1::Device& device);
  static std::string HostOf(const std::string& device_key);
  // Gives the host to the caller, or says why not.
  absl::Status ClaimHost(const Caller& caller, const std::string& host, bool owner_revoked)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Which of the devices another living process has, if any.
  absl::Status CheckOwners(const FleetSession& session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sessions of the host that the new one replaces end.
  void EndSessionsBefore(const FleetSession& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndSession(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Lives(const FleetSession& session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const v1::FleetDevice& TakeDevice(const FleetSession& session, const v1::Device& device,
                                    const std::string& hostname)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What devices of a model are shown as, after what is believed of it has changed.
  v1::DeviceModel BelieveAgain(const std::string& model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::FleetHost Describe(const std::string& host) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::DeviceModel Describe(const DeviceModels::Model& model) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // engine_fleet.cc
  // Of a device that registers (1), or is another one from now on (-1).
  void CountVersions(const v1::Device& device, int count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  tuner::Environment EnvironmentOf(const v1::Device& device, v1::L2Policy l2) const;
  const DeviceModels::Model& ModelOf(const DeviceEntry& device) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<FleetSession*> FindSession(const Caller& caller, const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Usable(const DeviceEntry& device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // engine_leases.cc
  void Grant(Waiter waiter, DeviceEntry& device, ActiveJob& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The candidates as they are now the lease's, in it and in the database; then the reply.
  void GiveLease(Waiter waiter, DeviceEntry& device, LeaseEntry entry, v1::Lease lease,
                 const std::vector<TrialRow*>& rows) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  LeaseEntry NewLease(const Waiter& waiter, const DeviceEntry& device, const Workload& program,
                      v1::L2Policy l2) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeBackUnwritten(int64_t lease);
  // A report: first into the database, then believed.
  struct Given;
  struct Reported;
  static absl::Status StoreReport(tuner::Records& records, Reported& report);
  static absl::Status StoreResult(tuner::Records& records, const v1::CandidateResult& reported,
                                  Reported& report);
  void TakeReport(const Reported& report);
  // Candidates of a lease come back. Whom the loss is counted for: nobody, or those that were
  // running at the last heartbeat; kLater: they came back before it was known that their host died.
  // `how` says what was lost.
  enum class Blame : uint8_t { kNone, kRunning, kLater };
  void ReturnCandidates(const LeaseEntry& lease, const std::vector<int64_t>& ids, Blame blame,
                        const std::string& how);
  static absl::StatusOr<Given> GiveBack(tuner::Records& records, TrialRow row,
                                        const LeaseEntry& lease, const std::string& how,
                                        absl::Time now);
  void TakeBack(const LeaseEntry& lease, const std::vector<Given>& given, const std::string& how);
  void CloseIfDone(LeaseEntry& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireLeases(Actions& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireLease(LeaseEntry& lease, Blame blame, Actions& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the daemon that had the lease is known to have ended: its host has booted again, or
  // another process has the device.
  bool Died(const LeaseEntry& lease, const FleetSession& now) const;
  // A daemon registered: what ran when an earlier one on its devices died is to blame.
  void BlameForDeath(const FleetSession& now, Actions& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a second host, or one that is trusted, has said that it cannot measure the workload.
  bool AllRefuse(ActiveJob& job, const FleetSession& session, const std::string& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // engine_confirm.cc
  // After finals: asks for another host's word on what is served now, unless there is one.
  void AskConfirmation(const LeaseEntry& lease, int64_t token, const std::vector<Finalist>& finals);
  Confirmation ConfirmationOf(const LeaseEntry& lease, int64_t token, const Finalist& winner,
                              const std::vector<Finalist>& finals)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Another host's word has come: asks a third one where they do not agree.
  void JudgeConfirmation(const LeaseEntry& lease, const std::vector<Finalist>& finals)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Confirmation* ChooseConfirmation(const DeviceEntry& device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GrantConfirmation(Waiter waiter, DeviceEntry& device, Confirmation& confirmation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A lease of a confirmation came back without its results.
  void AskAgain(const LeaseEntry& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Ask(const std::string& model, Confirmation confirmation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Trusts(const std::string& host) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

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
  std::map<int64_t, Searching> searching_ ABSL_GUARDED_BY(mutex_);  // of them
  // Jobs without a searcher: what no device matches, by what it waits for, and what waits for a
  // searcher, by tenant.
  std::map<std::string, std::set<int64_t>> parked_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::deque<int64_t>> ready_ ABSL_GUARDED_BY(mutex_);
  FairQueue searcher_share_ ABSL_GUARDED_BY(mutex_), lease_share_ ABSL_GUARDED_BY(mutex_);
  int64_t matches_ ABSL_GUARDED_BY(mutex_) = 0;
  // Seconds of devices by tenant, on `day_`; `unbooked_` of them are not written yet.
  std::map<std::string, double> used_s_ ABSL_GUARDED_BY(mutex_), unbooked_s_
      ABSL_GUARDED_BY(mutex_);
  int64_t day_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, FleetSession> sessions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, HostEntry> hosts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, DeviceEntry> devices_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, LeaseEntry> leases_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, ModelUse> uses_ ABSL_GUARDED_BY(mutex_);                     // by model
  SteadyTime next_deadline_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfiniteFuture();  // of waiters
  SteadyTime swept_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
  SteadyTime booked_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfinitePast();  // the time of devices
  SteadyTime pruned_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfinitePast();  // what is old, last
  SteadyTime recovered_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::vector<std::shared_ptr<Watcher>>> watchers_ ABSL_GUARDED_BY(mutex_);
  DeviceModels models_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Versions> versions_ ABSL_GUARDED_BY(mutex_);  // by model

  // A write of the engine's own: its completion runs `done` and counts as one of writes_.
  void Write(Store::Body body, Store::Done done, Persistence persistence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // What is read for others after a write, in the order of the commits: the writer goes on
  // meanwhile. The last member, so that it ends first.
  Pool replies_{1, SIZE_MAX, SIZE_MAX};
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_ENGINE_ENGINE_H_
