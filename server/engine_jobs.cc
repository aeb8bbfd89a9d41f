// Jobs: their life from creation to the last event, and what their searchers ask.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "measure/log.h"
#include "measure/messages.h"
#include "measure/validate.h"
#include "search_space/notation.h"
#include "server/convert.h"
#include "server/engine.h"
#include "server/errors.h"
#include "tuner/records_fields.h"

namespace heddle::server {
namespace {

// Candidates proposed ahead for each device: a lease of some while another is measured.
constexpr int kInFlightPerDevice = 16;
// A search that ends without a word so often in a row fails its job.
constexpr int kMaxRestarts = 3;
// Of a device's memory, for a workload's buffers, their copies and the driver.
constexpr double kMemoryShare = 0.6;

// The same for equal messages, maps included.
uint64_t HashOf(const google::protobuf::Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&out);
  }
  return tuner::HashOf(bytes);
}

v1::Job::StopReason StopReasonOf(const std::string& name) {
  if (name == "trials") return v1::Job::TRIALS;
  if (name == "seconds") return v1::Job::SECONDS;
  if (name == "plateau") return v1::Job::PLATEAU;
  if (name == "exhausted") return v1::Job::EXHAUSTED;
  return v1::Job::STOP_REASON_UNSPECIFIED;
}

}  // namespace

Engine::Engine(Store& store, Metrics& metrics, EngineOptions options)
    : store_(store), metrics_(metrics), options_(std::move(options)) {}

Engine::~Engine() {
  Drain();
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return searchers_ == 0; };
  const auto written = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return writes_ == 0; };
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&idle));
    if (!mutex_.AwaitWithTimeout(absl::Condition(&written), absl::Seconds(5))) {
      store_.StopRetrying();
      mutex_.Await(absl::Condition(&written));
    }
  }
  JoinFinished();
}

void Engine::Write(Store::Body body, Store::Done done, Persistence persistence) {
  ++writes_;
  store_.Write(
      std::move(body),
      [this, done = std::move(done)](const absl::Status& status) {
        if (done) done(status);
        absl::MutexLock lock(&mutex_);
        --writes_;
      },
      persistence);
}

void Engine::JoinFinished() {
  std::vector<std::thread> ended;
  {
    absl::MutexLock lock(&mutex_);
    for (std::thread::id id : finished_) {
      auto it = threads_.find(id);
      ended.push_back(std::move(it->second));
      threads_.erase(it);
    }
    finished_.clear();
  }
  for (std::thread& thread : ended) thread.join();
}

// ---------------------------------------------------------------------------------------- recovery

absl::Status Engine::Recover() {
  absl::Status status = store_.WriteAndWait([&](tuner::Records& records) -> absl::Status {
    auto epoch = NextEpoch(records);
    if (!epoch.ok()) return epoch.status();
    auto trial = LargestTrial(records);
    if (!trial.ok()) return trial.status();
    auto devices = LoadDevices(records);
    if (!devices.ok()) return devices.status();
    auto jobs = LoadOpenJobs(records);
    if (!jobs.ok()) return jobs.status();
    epoch_ = *epoch;
    {
      absl::MutexLock lock(&mutex_);
      next_trial_ = *trial + 1;
      next_lease_ = (epoch_ << 32) + 1;  // never one of an earlier epoch
      for (v1::FleetDevice& device : *devices) {
        const std::string id = device.id();
        models_[device.device().target().name()] = device.device();
        devices_[id].info = std::move(device);
      }
    }
    for (const v1::Job& job : *jobs) {
      if (absl::Status s = RecoverJob(job, records); !s.ok()) return s;
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  Tick();
  return absl::OkStatus();
}

absl::Status Engine::RecoverJob(const v1::Job& message, tuner::Records& records) {
  ActiveJob job;
  job.id = JobId(message.id());
  job.tenant = message.tenant();
  job.spec = message.spec();
  job.state = message.state();
  job.created = FromProto(message.create_time());
  if (job.spec.has_expire_time()) job.expires = FromProto(job.spec.expire_time());
  job.last_usable = SteadyNow();
  job.device.mutable_target()->set_name(message.device_model());
  auto uses = LoadUse(records, job.id);
  if (!uses.ok()) return uses.status();
  job.uses = *std::move(uses);
  for (const WorkloadUse& use : job.uses) {
    auto program = search_space::ParseWorkload(use.text);
    if (!program.ok()) return program.status();
    job.workloads.push_back(
        std::make_shared<const search_space::TensorProgram>(*std::move(program)));
  }
  if (job.state == v1::Job::CANCELLING) {
    job.cancelling = job.stop = true;
  } else if (job.state != v1::Job::QUEUED) {
    auto seq =
        SetState(records, job.id, v1::Job::QUEUED, v1::Job::STOP_REASON_UNSPECIFIED, "", "", Now());
    if (!seq.ok()) return seq.status();
    job.state = v1::Job::QUEUED;
  }
  auto trials = LoadOpenTrials(records, job.id);
  if (!trials.ok()) return trials.status();
  absl::MutexLock lock(&mutex_);
  for (TrialRow& row : *trials) {
    const bool leased = row.state == v1::Trial::LEASED;
    if (!leased && (row.is_final || job.cancelling)) {
      if (absl::Status s = DropTrial(records, row.id); !s.ok()) return s;
      continue;
    }
    if (leased) {
      auto [it, added] = leases_.try_emplace(row.lease);
      LeaseEntry& lease = it->second;
      lease.id = row.lease;
      lease.job = job.id;
      lease.device = row.device;
      lease.host = row.device.substr(0, row.device.rfind('/'));
      lease.workload = row.workload;
      lease.program = job.workloads.at(row.workload);
      const v1::Device& device = devices_[row.device].info.device();
      lease.environment = EnvironmentOf(device, job.spec.l2());
      lease.target = measure::FromProto(device).target;
      lease.is_finals = row.is_final;
      lease.last_seen = SteadyNow();
      lease.open.insert(row.id);
    } else {
      job.queue.push_back(row.id);
    }
    job.candidates[row.id].row = std::move(row);
  }
  LogEvent(Severity::kInfo, "job_recovered", {{"job", message.id()}, {"tenant", job.tenant}});
  jobs_.emplace(job.id, std::move(job));
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------------- calls

void Engine::CreateJob(const std::string& tenant, const std::string& method,
                       const std::string& request_id, const v1::JobSpec& spec,
                       std::vector<Workload> workloads, Reply<v1::Job> reply) {
  struct Created {
    int64_t id = 0;
    bool is_new = false;
  };
  auto created = std::make_shared<Created>();
  auto programs = std::make_shared<const std::vector<Workload>>(std::move(workloads));
  const absl::Time now = Now();
  auto body = [=, this](tuner::Records& records) -> absl::Status {
    const uint64_t hash = HashOf(spec);
    auto earlier = FindRequest(records, tenant, method, request_id, hash);
    if (!earlier.ok()) return earlier.status();
    *created = {};
    if (earlier->has_value()) {
      created->id = **earlier;
      return absl::OkStatus();
    }
    auto open = CountOpenJobs(records, tenant);
    if (!open.ok()) return open.status();
    if (*open >= options_.open_jobs_per_tenant) {
      return ErrorWithReason(absl::StatusCode::kResourceExhausted, "JOBS_LIMIT",
                             absl::StrCat("tenant ", tenant, " has ", *open,
                                          " jobs that have not ended, which is the limit; wait for "
                                          "some, or cancel them"),
                             absl::Seconds(30));
    }
    auto id = InsertJob(records, tenant, spec, *programs, now);
    if (!id.ok()) return id.status();
    *created = {*id, true};
    return AddRequest(records, tenant, method, request_id, hash, *id, now);
  };
  auto done = [=, this](const absl::Status& status) {
    if (!status.ok()) return reply(status);
    Actions after;
    if (created->is_new) {
      absl::MutexLock lock(&mutex_);
      ActiveJob& job = jobs_[created->id];
      job.id = created->id;
      job.tenant = tenant;
      job.spec = spec;
      job.created = now;
      job.last_usable = SteadyNow();
      if (spec.has_expire_time()) job.expires = FromProto(spec.expire_time());
      job.workloads = *programs;
      for (const Workload& w : *programs) job.uses.push_back({w->canonical_text});
      LogEvent(Severity::kInfo, "job_created",
               {{"job", JobName(job.id)}, {"tenant", tenant}, {"request_id", request_id}});
      StartJobs(after);
    }
    Run(after);
    auto reader = store_.Read();
    reply(LoadJob(*reader, created->id, tenant));
  };
  absl::MutexLock lock(&mutex_);
  Write(std::move(body), std::move(done), Persistence::kOnce);
}

void Engine::CancelJob(const std::string& tenant, int64_t id, Reply<v1::Job> reply) {
  Actions after;
  {
    absl::MutexLock lock(&mutex_);
    ActiveJob* job = FindJob(id);
    if (job != nullptr && job->tenant == tenant && !job->cancelling && !job->ending) {
      Cancel(*job, "cancelled by its owner", after);
    }
    // Behind what cancelling writes.
    Write([](tuner::Records&) { return absl::OkStatus(); },
          [=, this](const absl::Status&) {
            auto reader = store_.Read();
            reply(LoadJob(*reader, id, tenant));
          },
          Persistence::kOnce);
  }
  Run(after);
}

std::shared_ptr<void> Engine::Watch(int64_t job, Watcher watcher) {
  auto shared = std::make_shared<Watcher>(std::move(watcher));
  absl::MutexLock lock(&mutex_);
  watchers_[job].push_back(shared);
  return {nullptr, [this, job, shared](void*) {
            absl::MutexLock inner(&mutex_);
            auto it = watchers_.find(job);
            std::erase(it->second, shared);
            if (it->second.empty()) watchers_.erase(it);
          }};
}

void Engine::Drain() {
  Actions after;
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
    for (auto& [id, job] : jobs_) job.stop = true;
    for (Waiter& waiter : waiters_) {
      after.push_back([reply = std::move(waiter.reply)] { reply(v1::Lease()); });
    }
    waiters_.clear();
  }
  Run(after);
}

// -------------------------------------------------------------------------------------- life cycle

Engine::ActiveJob* Engine::FindJob(int64_t id) {
  auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

void Engine::Announce(int64_t job, int64_t seq, bool with_job) {
  {
    absl::MutexLock lock(&mutex_);
    if (!watchers_.contains(job)) return;
  }
  auto event = std::make_shared<v1::JobEvent>();
  {
    auto reader = store_.Read();
    auto events = LoadEvents(*reader, job, seq - 1, 1);
    if (!events.ok() || events->empty()) return;  // watchers find it when they read themselves
    *event = std::move(events->front());
    if (with_job) {
      auto loaded = LoadJob(*reader, job, "");
      if (!loaded.ok()) return;
      *event->mutable_job() = *std::move(loaded);
    }
  }
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    absl::MutexLock lock(&mutex_);
    auto it = watchers_.find(job);
    if (it == watchers_.end()) return;
    watchers = it->second;
  }
  const std::shared_ptr<const v1::JobEvent> shared = std::move(event);
  for (const auto& watcher : watchers) (*watcher)(shared);
}

void Engine::SetJobState(ActiveJob& job, v1::Job::State state) {
  if (job.state == state) return;
  job.state = state;
  auto seq = std::make_shared<int64_t>(0);
  const absl::Time now = Now();
  const std::string model = job.device.target().name();
  Write(
      [=, id = job.id](tuner::Records& records) -> absl::Status {
        auto appended =
            SetState(records, id, state, v1::Job::STOP_REASON_UNSPECIFIED, "", model, now);
        if (!appended.ok()) return appended.status();
        *seq = *appended;
        return absl::OkStatus();
      },
      [=, this, id = job.id](const absl::Status& status) {
        if (status.ok() && *seq > 0) Announce(id, *seq, false);
      },
      Persistence::kUntilStored);
}

void Engine::EndJob(ActiveJob& job, v1::Job::State state, v1::Job::StopReason reason,
                    const std::string& error) {
  if (job.ending) return;
  job.ending = job.stop = true;
  job.state = state;
  auto seq = std::make_shared<int64_t>(0);
  const absl::Time now = Now();
  Write(
      [=, id = job.id](tuner::Records& records) -> absl::Status {
        auto appended = SetState(records, id, state, reason, error, "", now);
        if (!appended.ok()) return appended.status();
        *seq = *appended;
        return absl::OkStatus();
      },
      [=, this, id = job.id, tenant = job.tenant](const absl::Status& status) {
        if (status.ok() && *seq > 0) {
          LogEvent(Severity::kInfo, "job_ended",
                   {{"job", JobName(id)},
                    {"tenant", tenant},
                    {"state", v1::Job::State_Name(state)},
                    {"error", error}});
          Announce(id, *seq, true);
        }
        Actions after;
        {
          absl::MutexLock lock(&mutex_);
          jobs_.erase(id);
          StartJobs(after);
        }
        Run(after);
      },
      Persistence::kUntilStored);
}

void Engine::Cancel(ActiveJob& job, const std::string& why, Actions&) {
  job.cancelling = job.stop = true;
  job.errors = {why};
  job.queue.clear();
  SetJobState(job, v1::Job::CANCELLING);
  for (auto& [id, lease] : leases_) lease.revoked |= lease.job == job.id;
  FinishCancelling(job);
}

void Engine::FinishCancelling(ActiveJob& job) {
  if (!job.cancelling || job.searching) return;
  for (const auto& [id, lease] : leases_) {
    if (lease.job == job.id && !lease.expired && !lease.open.empty()) return;
  }
  EndJob(job, v1::Job::CANCELLED, v1::Job::STOP_REASON_UNSPECIFIED,
         job.errors.empty() ? "cancelled" : job.errors.front());
}

void Engine::StartJobs(Actions& after) {
  for (auto& [id, job] : jobs_) {
    if (draining_ || searchers_ >= options_.max_searchers) break;
    if (job.searching || job.ending || job.cancelling) continue;
    const v1::FleetDevice* device = ChooseDevice(job);
    if (device == nullptr) {
      SetJobState(job, v1::Job::WAITING_DEVICE);
      continue;
    }
    if (job.device.id().empty() && job.device.target().name().empty()) {
      metrics_.queue_wait_seconds.Observe(absl::ToDoubleSeconds(Now() - job.created));
    }
    job.device = device->device();
    job.usable = UsableDevices(job);
    job.stop = false;
    job.searching = true;
    searching_.insert(id);
    job.last_usable = SteadyNow();
    ++searchers_;
    SetJobState(job, v1::Job::RUNNING);
    std::thread thread([this, id = id] { RunJob(id); });
    threads_.emplace(thread.get_id(), std::move(thread));
  }
  ServeWaiters(after);
}

// --------------------------------------------------------------------------------------- searching

void Engine::RunJob(int64_t id) {
  while (std::optional<searcher::Setup> setup = PrepareSearch(id)) {
    auto done = options_.search(
        *setup, [&](const searcher::FromSearcher& question) { return Answer(id, question); });
    if (!HandleDone(id, done)) break;
  }
  Actions after;
  {
    absl::MutexLock lock(&mutex_);
    --searchers_;
    searching_.erase(id);
    finished_.push_back(std::this_thread::get_id());
    if (ActiveJob* job = FindJob(id)) {
      job->searching = false;
      FinishCancelling(*job);
    }
    StartJobs(after);
  }
  Run(after);
}

std::optional<searcher::Setup> Engine::PrepareSearch(int64_t id) {
  absl::MutexLock lock(&mutex_);
  ActiveJob* job = FindJob(id);
  if (job == nullptr || job->stop) return std::nullopt;
  const auto next = std::find_if(job->uses.begin(), job->uses.end(),
                                 [](const WorkloadUse& use) { return !use.ended; });
  if (next == job->uses.end()) return std::nullopt;
  const int number = static_cast<int>(next - job->uses.begin());
  // Nobody waits for what another workload has left.
  std::erase_if(job->candidates, [&](const auto& entry) {
    const TrialRow& row = entry.second.row;
    return row.state != v1::Trial::LEASED && (row.workload != number || row.is_final);
  });
  std::erase_if(job->queue, [&](int64_t trial) { return !job->candidates.contains(trial); });
  job->workload = number;
  job->finals.reset();
  job->results.clear();
  job->unclaimed.clear();
  job->best_us = next->best_us;
  job->outstanding.clear();

  const Workload& program = job->workloads[number];
  const int64_t needed = measure::MemoryNeeded(*program);
  const int64_t memory = job->device.target().memory_bytes();
  if (memory > 0 && static_cast<double>(needed) > kMemoryShare * static_cast<double>(memory)) {
    EndJob(*job, v1::Job::FAILED, v1::Job::STOP_REASON_UNSPECIFIED,
           absl::StrCat(program->op, " needs ", needed >> 20, " MiB and ",
                        job->device.target().name(), " has ", memory >> 20, ", of which ",
                        kMemoryShare * 100, " % may be used: choose a smaller shape"));
    return std::nullopt;
  }
  const v1::Budget& budget = job->spec.budget();
  searcher::Setup setup;
  setup.set_database(store_.path());
  setup.set_workload(program->canonical_text);
  setup.set_job(id);
  setup.set_workload_number(number);
  *setup.mutable_device() = job->device;
  setup.set_l2(job->spec.l2());
  setup.set_search(job->spec.search());
  // Another stretch of random numbers than that of the trials which are known already.
  setup.set_seed(std::max<uint64_t>(1, job->spec.seed()) + 1000003 * next->trials);
  setup.set_plateau(budget.plateau());
  bool used_up = false;
  if (budget.trials() > 0) {
    setup.set_trials(budget.trials() - next->trials);
    used_up = setup.trials() <= 0;
  }
  if (budget.seconds() > 0) {
    setup.set_seconds(budget.seconds() - next->search_s);
    used_up |= setup.seconds() <= 0;
  }
  if (used_up) {
    setup.set_trials(-1);
    setup.set_seconds(0);
  }
  for (auto& [trial, candidate] : job->candidates) {
    candidate.number = -1;
    if (candidate.row.workload != number || candidate.row.is_final) continue;
    setup.add_outstanding(candidate.row.point);
    job->outstanding.emplace(candidate.row.point, trial);
  }
  return setup;
}

bool Engine::HandleDone(int64_t id, const absl::StatusOr<searcher::Done>& done) {
  absl::MutexLock lock(&mutex_);
  ActiveJob* job = FindJob(id);
  if (job == nullptr || job->ending) return false;
  if (!done.ok() && !job->stop) {
    LogEvent(Severity::kError, "searcher_lost",
             {{"job", JobName(id)}, {"error", std::string(done.status().message())}});
    if (++job->restarts < kMaxRestarts) return true;
    EndJob(*job, v1::Job::FAILED, v1::Job::STOP_REASON_UNSPECIFIED,
           std::string(done.status().message()));
    return false;
  }
  job->restarts = 0;
  const double seconds = done.ok() ? done->seconds() : 0;
  const bool ended = done.ok() && done->code() == 0 && done->stop_reason() != "interrupted";
  WorkloadUse& use = job->uses[job->workload];
  use.search_s += seconds;
  use.ended = ended;
  Write(
      [=, number = job->workload,
       default_us = ended ? done->default_us() : 0](tuner::Records& records) {
        return EndWorkload(records, id, number, default_us, seconds, ended);
      },
      nullptr, Persistence::kUntilStored);
  if (!ended) {
    if (!job->stop) {
      EndJob(*job, v1::Job::FAILED, v1::Job::STOP_REASON_UNSPECIFIED, done->error());
    }
    return false;
  }
  if (!done->found()) {
    job->errors.push_back(absl::StrCat("no valid schedule of ", job->workloads[job->workload]->op,
                                       " among ", use.trials, " trials (", done->failures(), ")"));
  }
  const bool all =
      std::all_of(job->uses.begin(), job->uses.end(), [](const WorkloadUse& u) { return u.ended; });
  if (all && !job->cancelling) {
    EndJob(*job, job->errors.empty() ? v1::Job::SUCCEEDED : v1::Job::FAILED,
           StopReasonOf(done->stop_reason()), absl::StrJoin(job->errors, "; "));
  }
  return !all;
}

searcher::ToSearcher Engine::Answer(int64_t id, const searcher::FromSearcher& question) {
  searcher::ToSearcher answer;
  Actions after;
  {
    absl::MutexLock lock(&mutex_);
    ActiveJob* job = FindJob(id);
    if (job == nullptr || job->stop) {
      answer.set_stop(true);
      return answer;
    }
    job->default_point = question.default_point();
    for (const auto& proposal : question.exchange().proposals()) Propose(*job, proposal, false);
    if (question.has_finals()) {
      job->finals.emplace();
      job->finals->budget_s = question.finals().budget_s();
      job->finals->queued = true;
      for (const auto& finalist : question.finals().finalists()) Propose(*job, finalist, true);
    }
    ServeWaiters(after);
  }
  Run(after);

  absl::MutexLock lock(&mutex_);
  // The job cannot go while its searcher is answered, unless it is ending.
  const auto ready = [this, id]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    auto it = jobs_.find(id);
    if (it == jobs_.end() || it->second.stop || !it->second.results.empty()) return true;
    const auto& finals = it->second.finals;
    return finals && finals->results.size() == finals->ids.size();
  };
  if (question.has_finals()) {
    mutex_.Await(absl::Condition(&ready));
  } else {
    mutex_.AwaitWithTimeout(absl::Condition(&ready), absl::Seconds(question.exchange().wait_s()));
  }
  ActiveJob* job = FindJob(id);
  if (job == nullptr || job->stop) {
    answer.set_stop(true);
    return answer;
  }
  answer.set_wanted(kInFlightPerDevice * std::max(1, job->usable));
  if (question.has_finals()) {
    for (int64_t trial : job->finals->ids) {
      searcher::Result& result = *answer.add_results();
      *result.mutable_result() = job->finals->results[trial];
    }
    job->finals.reset();
    return answer;
  }
  for (searcher::Result& result : job->results) *answer.add_results() = std::move(result);
  job->results.clear();
  return answer;
}

void Engine::Propose(ActiveJob& job, const searcher::Proposal& proposal, bool is_final) {
  if (!is_final) {
    auto early = job.unclaimed.find(proposal.point());
    if (early != job.unclaimed.end()) {
      searcher::Result result;
      result.set_number(proposal.number());
      *result.mutable_result() = std::move(early->second);
      job.results.push_back(std::move(result));
      job.unclaimed.erase(early);
      return;
    }
    auto known = job.outstanding.find(proposal.point());
    if (known != job.outstanding.end()) {
      auto candidate = job.candidates.find(known->second);
      job.outstanding.erase(known);
      if (candidate != job.candidates.end()) {
        candidate->second.number = proposal.number();
        return;
      }
    }
  }
  Candidate candidate;
  candidate.number = proposal.number();
  candidate.row.id = next_trial_++;
  candidate.row.job = job.id;
  candidate.row.workload = job.workload;
  candidate.row.point = proposal.point();
  candidate.row.steps = proposal.steps();
  candidate.row.is_final = is_final;
  if (is_final) {
    job.finals->ids.push_back(candidate.row.id);
  } else {
    job.queue.push_back(candidate.row.id);
  }
  job.candidates.emplace(candidate.row.id, std::move(candidate));
}

void Engine::TakeResult(ActiveJob& job, int64_t id, const v1::TrialResult& result) {
  auto it = job.candidates.find(id);
  if (it == job.candidates.end()) return;
  const Candidate candidate = std::move(it->second);
  job.candidates.erase(it);
  // A result that came after its lease had ended: it needs no other device.
  if (candidate.row.state == v1::Trial::PROPOSED) std::erase(job.queue, id);
  const TrialRow& row = candidate.row;
  if (!row.is_final) ++job.uses[row.workload].trials;
  if (row.workload != job.workload) return;
  if (result.outcome() == v1::OUTCOME_OK && (job.best_us == 0 || result.time_us() < job.best_us)) {
    job.best_us = job.uses[row.workload].best_us = result.time_us();
  }
  if (row.is_final) {
    if (job.finals) job.finals->results[id] = result;
  } else if (candidate.number >= 0) {
    searcher::Result taken;
    taken.set_number(candidate.number);
    *taken.mutable_result() = result;
    job.results.push_back(std::move(taken));
  } else {
    job.unclaimed[row.point] = result;
  }
}

}  // namespace heddle::server
