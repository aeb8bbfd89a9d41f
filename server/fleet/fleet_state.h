// What the server believes and decides: jobs wait for a searcher and a device, searchers propose
// candidates, daemons lease them and report. A state machine: an event goes in, and what it asks of
// the world comes out, writes, replies and searches to run. It has no thread, no lock and no
// database; the clock is given. engine.h drives it.
//
// What must survive is written first and believed when the commit is done: each write comes with
// what to tell the state then, which is an event as well. A state that is thrown away at any moment
// loses nothing that was acknowledged: another one recovers from what was committed.
#ifndef HEDDLE_SERVER_FLEET_FLEET_STATE_H_
#define HEDDLE_SERVER_FLEET_FLEET_STATE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "heddle/v1/fleet.pb.h"
#include "heddle/v1/tuning.pb.h"
#include "proto/searcher.pb.h"
#include "server/db/auth.h"
#include "server/db/store.h"
#include "server/db/trial_store.h"
#include "server/fleet/device_models.h"
#include "server/fleet/fair_queue.h"
#include "server/fleet/metrics.h"

namespace heddle::server {

template <typename T>
using Reply = std::function<void(absl::StatusOr<T>)>;

struct FleetOptions {
  std::function<absl::Time()> now = absl::Now;  // what is written down, and when jobs expire
  // Leases, sessions and waiting calls: the system's clock may jump.
  std::function<SteadyTime()> steady = SteadyNow;
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

// What events ask of the world. Writes go to the store in this order; the rest follows.
struct Effects {
  struct Write {
    Store::Body body;  // touches the database and what it was given only
    Store::Done done;  // an event: the commit's end
    Persistence persistence = Persistence::kOnce;
  };
  // An event of a job that is in the database, for those who watch it.
  struct Announcement {
    int64_t job = 0, seq = 0;
    bool with_job = false;  // as it is now
  };
  // A reply with the job as the database has it.
  struct JobReply {
    int64_t job = 0;
    std::string tenant;  // who asks, "" = an administrator
    Reply<v1::Job> reply;
  };
  std::vector<Write> writes;
  std::vector<std::function<void()>> replies;
  std::vector<Announcement> announcements;
  std::vector<JobReply> job_replies;
  std::vector<int64_t> searches;  // jobs that are to be searched now, until SearchEnded
};

class FleetState {
 public:
  FleetState(Metrics& metrics, FleetOptions options);

  // What has been asked for since the last time.
  Effects TakeEffects() { return std::exchange(effects_, {}); }

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

  // ------------------------------------------------------------------------------------------ jobs

  void CreateJob(const std::string& tenant, const std::string& method,
                 const std::string& request_id, const v1::JobSpec& spec,
                 std::vector<Workload> workloads, const Reply<v1::Job>& reply);
  void CancelJob(const Caller& caller, int64_t id, const Reply<v1::Job>& reply);
  // As Engine has them.
  void ReportRuns(int64_t id, const std::string& model, std::vector<WorkloadRun> runs);
  void EndRuns(int64_t id, const std::string& error);

  // -------------------------------------------------------------------------------------- searches

  // The next search of a job in `searches`, on the database; ends the job when there is none,
  // nullopt also when it is to stop.
  std::optional<searcher::Setup> PrepareSearch(int64_t job, const std::string& database);
  // What a searcher asks. Its answer is ready when AnswerIsReady; or earlier, with what there is,
  // where it has not asked for finals, which are all or none.
  void Ask(int64_t job, const searcher::FromSearcher& question);
  bool AnswerIsReady(int64_t job, bool finals) const;
  searcher::ToSearcher TakeAnswer(int64_t job, bool finals);
  // How the search has ended. False: no other one is to be prepared.
  bool SearchDone(int64_t job, const absl::StatusOr<searcher::Done>& done);
  void SearchEnded(int64_t job);
  // That were asked for and have not ended.
  int searchers() const { return searchers_; }

  // ----------------------------------------------------------------------------------------- fleet

  // `session`: a name that nobody guesses. `revoked`: the token that the host belonged to a moment
  // ago, where that is not valid any more.
  void Register(const Caller& caller, const v1::RegisterRequest& request,
                const std::string& session, std::optional<int64_t> revoked,
                const Reply<v1::RegisterResponse>& reply);
  void Acquire(const Caller& caller, const v1::AcquireRequest& request, Reply<v1::Lease> reply);
  void Report(const Caller& caller, const v1::ReportRequest& request,
              const Reply<v1::ReportResponse>& reply);
  void Heartbeat(const Caller& caller, const v1::HeartbeatRequest& request,
                 const Reply<v1::HeartbeatResponse>& reply);
  void Release(const Caller& caller, const v1::ReleaseRequest& request,
               const Reply<v1::ReleaseResponse>& reply);
  void SetDeviceState(const Caller& caller, const v1::SetDeviceStateRequest& request,
                      const Reply<v1::FleetDevice>& reply);
  void PinModel(const Caller& caller, const v1::PinModelRequest& request,
                const Reply<v1::DeviceModel>& reply);
  void SetHost(const Caller& caller, const v1::SetHostRequest& request,
               const Reply<v1::FleetHost>& reply);

  // What is believed now; engine.h says what each is.
  int64_t epoch() const { return epoch_; }
  std::vector<v1::FleetDevice> Devices(const std::string& tenant) const;
  std::vector<v1::FleetHost> Hosts() const;
  std::vector<v1::DeviceModel> Models() const;
  std::shared_ptr<const DeviceModels::Model> FindModel(const std::string& model) const {
    return models_.Get(model);
  }
  bool Trusts(const std::string& host) const;
  int64_t matches() const { return matches_; }
  std::vector<std::string> ChangedSince(const tuner::Environment& then) const;

 private:
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
    // Whom leases that are not written yet were given: the call, and the same call again.
    std::map<int64_t, std::vector<Reply<v1::Lease>>> unwritten;
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
    std::optional<v1::FleetHost> stored;  // in the database
    int claims = 0;                       // of the token, that are not written yet
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
    double fastest_us = 0;  // measure::FastestPlausible: what is faster is not believed
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
    int64_t number = 0;  // grows with each best that is asked for

    // Whether only one of them is to wait.
    bool Concerns(const Confirmation& other) const {
      return program->hash == other.program->hash && l2 == other.l2;
    }
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

  // fleet_state.cc
  absl::Status RecoverJob(const v1::Job& job, tuner::Records& records);
  absl::Status RecoverLeases(tuner::Records& records);
  void UpdateGauges();
  // What need not be looked at more often than once a second.
  void Sweep();
  // Forgets what is old.
  void Prune();

  // jobs.cc
  ActiveJob* FindJob(int64_t id);
  void SetJobState(ActiveJob& job, v1::Job::State state);
  void EndJob(ActiveJob& job, v1::Job::State state, v1::Job::StopReason reason,
              const std::string& error);
  void Cancel(ActiveJob& job, const std::string& why);
  void FinishCancelling(ActiveJob& job);
  void SetRestarts(ActiveJob& job, int restarts);
  // A job that this version cannot go on with has failed.
  absl::Status GiveUp(const v1::Job& job, const std::string& why, tuner::Records& records);

  // schedule.cc
  // What a job waits for that no device matches: its key in parked_.
  static std::string WaitsFor(const ActiveJob& job);
  std::optional<std::string> ChooseModel(const ActiveJob& job);
  // A job that has no searcher: for one, or for a device.
  void Enqueue(ActiveJob& job);
  void Park(ActiveJob& job);
  void Unpark(const ActiveJob& job);
  // Counts the device as usable or not, and lets jobs know that wait for such.
  void Refresh(DeviceEntry& device);
  void MatchParked(const std::string& model);
  // Whether the tenant has had its seconds of devices for today.
  bool UsedUp(const std::string& tenant) const;
  std::vector<std::string> ReadyTenants() const;
  // Gives searchers that are free to jobs that are ready.
  void StartJobs();
  void StartJob(ActiveJob& job, const std::string& model);
  void EndSlices();
  void ForgetSearching(int64_t job);
  int UsableDevices(const ActiveJob& job);
  bool WorksOn(const ActiveJob& job, const DeviceEntry& device);
  static bool HasWork(const ActiveJob& job);
  // Of the job's finals those that no device has and that have no result.
  static std::vector<int64_t> WaitingFinals(const ActiveJob& job);
  bool AnyWork(const std::string& model);
  ActiveJob* ChooseJob(const DeviceEntry& device);
  // Whether a device that takes work belongs to a host that has not refused the job.
  bool OthersRemain(const ActiveJob& job) const;
  void ServeWaiters(const std::string& model);
  void ExpireWaiters();
  // A lease that ends: its tenant pays for what it took.
  void Settle(LeaseEntry& lease);
  void BookDeviceTime();

  // search.cc
  // Writes down the time that the job's search took since the last time, so that what a lost
  // searcher or server has used of a budget stays used.
  void BookTime(ActiveJob& job);
  void Propose(ActiveJob& job, const searcher::Proposal& proposal, bool is_final);
  void TakeResult(ActiveJob& job, int64_t candidate, const v1::TrialResult& result);

  // hosts.cc
  // A device's id in the fleet, and the host in it.
  static std::string DeviceKey(const std::string& host, const v1::Device& device);
  static std::string HostOf(const std::string& device_key);
  // Gives the host to the caller, or says why not.
  absl::Status ClaimHost(const Caller& caller, const std::string& host,
                         std::optional<int64_t> revoked);
  // Which of the devices another living process has, if any.
  absl::Status CheckOwners(const FleetSession& session) const;
  // Sessions of the host that the new one replaces end.
  void EndSessionsBefore(const FleetSession& session);
  void EndSession(const std::string& id);
  bool Lives(const FleetSession& session) const;
  const v1::FleetDevice& TakeDevice(const FleetSession& session, const v1::Device& device,
                                    const std::string& hostname);
  // What devices of a model are shown as, after what is believed of it has changed.
  v1::DeviceModel BelieveAgain(const std::string& model);
  // What a pin says, or what is wrong with it.
  absl::StatusOr<v1::Device> DeviceToPin(const v1::PinModelRequest& request) const;
  // After a write of a host, a claim or not: what is stored is so, but for claims on their way.
  void BelieveHost(const v1::FleetHost& stored, const absl::Status& status, bool claim);
  v1::FleetHost Describe(const std::string& host) const;
  v1::DeviceModel Describe(const DeviceModels::Model& model) const;

  // devices.cc
  // Of a device that registers (1), or is another one from now on (-1).
  void CountVersions(const v1::Device& device, int count);
  tuner::Environment EnvironmentOf(const v1::Device& device, v1::L2Policy l2) const;
  const DeviceModels::Model& ModelOf(const DeviceEntry& device) const;
  absl::StatusOr<FleetSession*> FindSession(const Caller& caller, const std::string& id);
  bool Usable(const DeviceEntry& device) const;
  void TakeWorker(const FleetSession& session, const v1::WorkerStatus& worker);

  // leases.cc
  void Grant(Waiter waiter, DeviceEntry& device, ActiveJob& job);
  // The candidates as they are now the lease's, in it and in the database; then the reply.
  void GiveLease(Waiter waiter, DeviceEntry& device, LeaseEntry entry, v1::Lease lease,
                 const std::vector<TrialRow*>& rows);
  LeaseEntry NewLease(const Waiter& waiter, const DeviceEntry& device, const Workload& program,
                      v1::L2Policy l2);
  void TakeBackUnwritten(int64_t lease);
  // A candidate that no device has any more waits for another one, unless nobody asks for it.
  void PutBack(ActiveJob& job, Candidate& candidate);
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
  void CloseIfDone(LeaseEntry& lease);
  void ExpireLeases();
  void ExpireLease(LeaseEntry& lease, Blame blame);
  // Whether the daemon that had the lease is known to have ended: its host has booted again, or
  // another process has the device.
  bool Died(const LeaseEntry& lease, const FleetSession& now) const;
  // A daemon registered: what ran when an earlier one on its devices died is to blame.
  void BlameForDeath(const FleetSession& now);
  // Whether a second host, or one that is trusted, has said that it cannot measure the workload.
  bool AllRefuse(ActiveJob& job, const FleetSession& session, const std::string& why);

  // confirm.cc
  // After finals: asks for another host's word on what is served now, unless there is one.
  // `best`: the steps of what is served.
  void AskConfirmation(const LeaseEntry& lease, int64_t token, const std::vector<Finalist>& finals,
                       const std::string& best);
  Confirmation ConfirmationOf(const LeaseEntry& lease, int64_t token, const Finalist& winner,
                              const std::vector<Finalist>& finals);
  // Another host's word has come: asks a third one where they do not agree.
  void JudgeConfirmation(const LeaseEntry& lease, const std::vector<Finalist>& finals);
  Confirmation* ChooseConfirmation(const DeviceEntry& device);
  void GrantConfirmation(Waiter waiter, DeviceEntry& device, Confirmation& confirmation);
  // A lease of a confirmation came back without its results.
  void AskAgain(const LeaseEntry& lease);
  // Of a workload the newest best waits to be confirmed, whichever of them was asked for last, or
  // came back.
  void Ask(const std::string& model, Confirmation confirmation);

  absl::Time Now() const { return options_.now(); }
  SteadyTime SteadyNow() const { return options_.steady(); }

  // What is asked for, in the order of the calls.
  void Write(Store::Body body, Store::Done done, Persistence persistence) {
    effects_.writes.push_back({std::move(body), std::move(done), persistence});
  }
  template <typename T>
  void Send(Reply<T> reply, absl::StatusOr<T> value) {
    effects_.replies.push_back(
        [reply = std::move(reply), value = std::move(value)] { reply(value); });
  }
  // An administrator's word: written, then believed and answered with what is so then. What comes
  // meanwhile goes by what was, and a write that fails has changed nothing.
  template <typename T>
  void WriteThenBelieve(Store::Body body, std::function<absl::StatusOr<T>()> believe,
                        const Reply<T>& reply) {
    Write(
        std::move(body),
        [=, this](const absl::Status& status) {
          Send<T>(reply, status.ok() ? believe() : absl::StatusOr<T>(status));
        },
        Persistence::kOnce);
  }
  void Announce(int64_t job, int64_t seq, bool with_job) {
    effects_.announcements.push_back({job, seq, with_job});
  }

  Metrics& metrics_;
  const FleetOptions options_;
  int64_t epoch_ = 0;
  bool draining_ = false;
  int searchers_ = 0;
  int64_t round_ = 0;
  int64_t next_trial_ = 1;
  int64_t next_lease_ = 1;
  std::map<int64_t, ActiveJob> jobs_;
  std::map<int64_t, Searching> searching_;  // of them
  // Jobs without a searcher: what no device matches, by what it waits for, and what waits for a
  // searcher, by tenant.
  std::map<std::string, std::set<int64_t>> parked_;
  std::map<std::string, std::deque<int64_t>> ready_;
  FairQueue searcher_share_, lease_share_;
  int64_t matches_ = 0;
  // Seconds of devices by tenant, on `day_`; `unbooked_` of them are not written yet.
  std::map<std::string, double> used_s_, unbooked_s_;
  int64_t day_ = 0;
  std::map<std::string, FleetSession> sessions_;
  std::map<std::string, HostEntry> hosts_;
  std::map<std::string, DeviceEntry> devices_;
  std::map<int64_t, LeaseEntry> leases_;
  std::map<std::string, ModelUse> uses_;                     // by model
  SteadyTime next_deadline_ = SteadyTime::InfiniteFuture();  // of waiters
  SteadyTime swept_ = SteadyTime::InfinitePast();
  SteadyTime booked_ = SteadyTime::InfinitePast();  // the time of devices
  SteadyTime pruned_ = SteadyTime::InfinitePast();  // what is old, last
  SteadyTime recovered_;
  DeviceModels models_;
  std::set<std::string> pinning_;  // models, until that is written
  int64_t next_confirmation_ = 1;
  std::map<std::string, Versions> versions_;  // by model
  Effects effects_;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_FLEET_STATE_H_
