#include "server/fleet/jobs/jobs.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"
#include "proto/values.h"
#include "search_space/notation/notation.h"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "server/db/trial_store.h"

namespace heddle::server {
namespace {

// Of a job that the database has.
absl::Status CheckCanRetry(const v1::Job& job, absl::Time now) {
  if (job.state() != v1::Job::STATE_FAILED && job.state() != v1::Job::STATE_CANCELLED) {
    return absl::FailedPreconditionError(absl::StrCat(
        job.name(), " is ", WordOf(job.state()), ": one that is FAILED or CANCELLED begins again"));
  }
  if (job.spec().has_expire_time() && TimeOf(job.spec().expire_time()) <= now) {
    return absl::FailedPreconditionError(
        absl::StrCat(job.name(), " has expired: create another one"));
  }
  return CheckReadable(job);
}

}  // namespace

absl::StatusOr<std::vector<Workload>> ParseWorkloads(const std::vector<WorkloadUse>& uses) {
  std::vector<Workload> workloads;
  for (const WorkloadUse& use : uses) {
    HEDDLE_ASSIGN_OR_RETURN(program, search_space::ParseWorkload(use.text));
    workloads.push_back(std::make_shared<const search_space::TensorProgram>(std::move(program)));
  }
  return workloads;
}

ActiveJob* Jobs::Find(int64_t id) {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

const ActiveJob* Jobs::Find(int64_t id) const {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

void Jobs::Add(ActiveJob job) {
  const int64_t id = job.id;
  jobs_.emplace(id, std::move(job));
  changes_.waiting.insert(id);
}

// --------------------------------------------------------------------------------------- recovery

absl::Status Jobs::GiveUp(const v1::Job& job, const std::string& why, tuner::Records& records) {
  const std::string error =
      absl::StrCat("this version of heddle cannot go on with the job: ", why, "; submit it again");
  LogEvent(Severity::kError, "job_given_up",
           {{"job", job.name()}, {"tenant", job.tenant()}, {"error", error}});
  return server::SetState(records, JobId(job.name()), v1::Job::STATE_FAILED,
                          v1::Job::STOP_REASON_UNSPECIFIED, error, "", options_.now())
      .status();
}

absl::StatusOr<ActiveJob> Jobs::Load(const v1::Job& message, std::vector<Workload> workloads,
                                     tuner::Records& records) const {
  ActiveJob job;
  job.workloads = std::move(workloads);
  job.id = JobId(message.name());
  job.tenant = message.tenant();
  job.spec = message.spec();
  job.state = message.state();
  job.created = TimeOf(message.create_time());
  if (job.spec.has_expire_time()) job.expires = TimeOf(job.spec.expire_time());
  job.last_usable = options_.steady();
  job.device.mutable_target()->set_name(message.device_model());
  HEDDLE_ASSIGN_OR_RETURN(restarts, LoadRestarts(records, job.id));
  job.restarts = static_cast<int>(restarts);
  HEDDLE_ASSIGN_OR_RETURN(uses, LoadUse(records, job.id));
  job.uses = std::move(uses);
  if (job.state == v1::Job::STATE_CANCELLING) {
    job.cancelling = job.stop = true;
    job.candidates.Close();
  }
  HEDDLE_ASSIGN_OR_RETURN(trials, LoadOpenTrials(records, job.id));
  for (TrialRow& row : trials) {
    const bool leased = row.state == v1::Trial::STATE_LEASED;
    if (!leased && (row.is_final || job.cancelling)) {
      HEDDLE_RETURN_IF_ERROR(DropTrial(records, row.id));
    } else {
      job.candidates.Recover(std::move(row));
    }
  }
  return job;
}

absl::Status Jobs::Recover(const v1::Job& message, tuner::Records& records) {
  HEDDLE_ASSIGN_OR_RETURN(uses, LoadUse(records, JobId(message.name())));
  HEDDLE_ASSIGN_OR_RETURN(workloads, ParseWorkloads(uses));
  HEDDLE_ASSIGN_OR_RETURN(job, Load(message, std::move(workloads), records));
  if (!job.cancelling && job.state != v1::Job::STATE_QUEUED) {
    HEDDLE_RETURN_IF_ERROR(server::SetState(records, job.id, v1::Job::STATE_QUEUED,
                                            v1::Job::STOP_REASON_UNSPECIFIED, "", "",
                                            options_.now()));
    job.state = v1::Job::STATE_QUEUED;
  }
  LogEvent(Severity::kInfo, "job_recovered", {{"job", message.name()}, {"tenant", job.tenant}});
  Add(std::move(job));
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------------- calls

absl::Status Jobs::CheckQuota(const std::string& tenant, tuner::Records& records) const {
  HEDDLE_ASSIGN_OR_RETURN(open, CountOpenJobs(records, tenant));
  if (open < options_.open_jobs_per_tenant) return absl::OkStatus();
  return ErrorWithReason(absl::StatusCode::kResourceExhausted, "JOBS_LIMIT",
                         absl::StrCat("tenant ", tenant, " has ", open,
                                      " jobs that have not ended, which is the limit; wait for "
                                      "some, or cancel them"),
                         absl::Seconds(30));
}

void Jobs::Create(const std::string& tenant, const std::string& method,
                  const std::string& request_id, const v1::JobSpec& spec,
                  std::vector<Workload> workloads, const Reply<v1::Job>& reply) {
  struct Created {
    int64_t id = 0;
    bool is_new = false;
  };
  auto created = std::make_shared<Created>();
  auto programs = std::make_shared<const std::vector<Workload>>(std::move(workloads));
  const absl::Time now = options_.now();
  auto body = [=, this](tuner::Records& records) -> absl::Status {
    const uint64_t hash = HashOfRequest(spec);
    HEDDLE_ASSIGN_OR_RETURN(earlier, FindRequest(records, tenant, method, request_id, hash));
    *created = {};
    if (earlier.has_value()) {
      created->id = *earlier;
      return absl::OkStatus();
    }
    HEDDLE_RETURN_IF_ERROR(CheckQuota(tenant, records));
    HEDDLE_RETURN_IF_ERROR(
        PruneJobsOf(records, tenant, options_.ended_jobs_per_tenant, now - kLateResults));
    HEDDLE_ASSIGN_OR_RETURN(id, InsertJob(records, tenant, spec, *programs, now));
    *created = {id, true};
    return AddRequest(records, tenant, method, request_id, hash, id, now);
  };
  auto done = [=, this](const absl::Status& status) {
    if (!status.ok()) return outbox_.Send<v1::Job>(reply, status);
    if (created->is_new) {
      ActiveJob job;
      job.id = created->id;
      job.tenant = tenant;
      job.spec = spec;
      job.created = now;
      job.last_usable = options_.steady();
      if (spec.has_expire_time()) job.expires = TimeOf(spec.expire_time());
      job.workloads = *programs;
      for (const Workload& w : *programs) job.uses.push_back({w->canonical_text});
      LogEvent(Severity::kInfo, "job_created",
               {{"job", JobName(job.id)}, {"tenant", tenant}, {"request_id", request_id}});
      Add(std::move(job));
    }
    outbox_.SendJob(created->id, tenant, reply);
  };
  outbox_.Write(std::move(body), std::move(done), Persistence::kOnce);
}

void Jobs::Retry(const Caller& caller, v1::Job read, const std::string& request_id,
                 std::vector<Workload> workloads, const Reply<v1::Job>& reply) {
  const int64_t id = JobId(read.name());
  if (options_.max_searchers == 0) {
    return outbox_.Send<v1::Job>(
        reply, absl::FailedPreconditionError(
                   absl::StrCat("a cluster runs this server's jobs, and has ended ", JobName(id),
                                ": create another one, which knows what was measured")));
  }
  struct Retried {
    std::optional<ActiveJob> job;
    int64_t seq = 0;
  };
  auto retried = std::make_shared<Retried>();
  auto body = [=, this, read = std::move(read), workloads = std::move(workloads),
               now = options_.now()](tuner::Records& records) mutable -> absl::Status {
    *retried = {};
    const uint64_t hash = heddle::HashOf(JobName(id));
    HEDDLE_ASSIGN_OR_RETURN(earlier,
                            FindRequest(records, caller.tenant, "RetryJob", request_id, hash));
    if (earlier) return absl::OkStatus();
    HEDDLE_RETURN_IF_ERROR(RefreshJob(records, read));
    HEDDLE_RETURN_IF_ERROR(CheckCanRetry(read, now));
    HEDDLE_RETURN_IF_ERROR(CheckQuota(read.tenant(), records));
    HEDDLE_ASSIGN_OR_RETURN(seq, ReopenJob(records, id, now));
    read.set_state(v1::Job::STATE_QUEUED);
    HEDDLE_ASSIGN_OR_RETURN(job, Load(read, workloads, records));
    retried->job = std::move(job);
    retried->seq = seq;
    return AddRequest(records, caller.tenant, "RetryJob", request_id, hash, id, now);
  };
  auto done = [=, this](const absl::Status& status) {
    if (!status.ok()) return outbox_.Send<v1::Job>(reply, status);
    if (retried->job) {
      LogEvent(Severity::kInfo, "job_retried",
               {{"job", JobName(id)}, {"tenant", retried->job->tenant}, {"by", caller.tenant}});
      Add(*std::move(retried->job));
      outbox_.Announce(id, retried->seq, false);
    }
    outbox_.SendJob(id, VisibleTenant(caller), reply);
  };
  outbox_.Write(std::move(body), std::move(done), Persistence::kOnce);
}

void Jobs::Update(const Caller& caller, int64_t id, const JobUpdate& update,
                  const Reply<v1::Job>& reply) {
  outbox_.Write([=](tuner::Records& records) { return StoreUpdate(records, id, update); },
                [=, this](const absl::Status& status) {
                  if (!status.ok()) return outbox_.Send<v1::Job>(reply, status);
                  if (ActiveJob* job = Find(id)) update.ApplyTo(job->spec);
                  outbox_.SendJob(id, VisibleTenant(caller), reply);
                },
                Persistence::kOnce);
}

bool Jobs::Cancel(const Caller& caller, int64_t id) {
  const std::string tenant = VisibleTenant(caller);
  ActiveJob* job = Find(id);
  const bool visible = job != nullptr && (tenant.empty() || job->tenant == tenant);
  if (!visible || job->cancelling || job->ending) return visible;
  LogEvent(Severity::kInfo, "job_cancelled",
           {{"job", JobName(id)},
            {"tenant", job->tenant},
            {"by", caller.tenant},
            {"token", caller.token},
            {"peer", caller.peer}});
  const bool own = job->tenant == caller.tenant;
  Cancel(*job, own ? "cancelled by its owner" : "cancelled by an administrator");
  return true;
}

void Jobs::ReplyWhenWritten(const Caller& caller, int64_t id, bool must,
                            const Reply<v1::Job>& reply) {
  outbox_.Write([](tuner::Records&) { return absl::OkStatus(); },
                [=, this, tenant = VisibleTenant(caller)](const absl::Status& status) {
                  // It may be forgotten again, however it looks now.
                  if (must && !status.ok()) return outbox_.Send<v1::Job>(reply, status);
                  outbox_.SendJob(id, tenant, reply);
                },
                Persistence::kOnce);
}

void Jobs::ReportRuns(ActiveJob& job, const std::string& model, std::vector<WorkloadRun> runs) {
  outbox_.Write([id = job.id, model, runs = std::move(runs)](
                    tuner::Records& records) { return CountRuns(records, id, model, runs); },
                nullptr, Persistence::kUntilStored);
  job.device.mutable_target()->set_name(model);
  SetState(job, v1::Job::STATE_RUNNING);
}

// -------------------------------------------------------------------------------------- life cycle

void Jobs::SetState(ActiveJob& job, v1::Job::State state) {
  if (job.state == state) return;
  job.state = state;
  auto seq = std::make_shared<int64_t>(0);
  const absl::Time now = options_.now();
  const std::string model = job.model();
  outbox_.Write(
      [=, id = job.id](tuner::Records& records) -> absl::Status {
        HEDDLE_ASSIGN_OR_RETURN(
            appended,
            server::SetState(records, id, state, v1::Job::STOP_REASON_UNSPECIFIED, "", model, now));
        *seq = appended;
        return absl::OkStatus();
      },
      [=, this, id = job.id](const absl::Status& status) {
        if (status.ok() && *seq > 0) outbox_.Announce(id, *seq, false);
      },
      Persistence::kUntilStored);
}

void Jobs::Cancel(ActiveJob& job, const std::string& why) {
  job.cancelling = job.stop = true;
  job.errors = {why};
  job.candidates.Close();
  SetState(job, v1::Job::STATE_CANCELLING);
  changes_.stopped.insert(job.id);
  changes_.came_back.insert(job.id);
}

void Jobs::End(ActiveJob& job, v1::Job::State state, v1::Job::StopReason reason,
               const std::string& error) {
  if (job.ending) return;
  job.ending = job.stop = true;
  changes_.stopped.insert(job.id);
  job.state = state;
  auto seq = std::make_shared<int64_t>(0);
  const absl::Time now = options_.now();
  outbox_.Write(
      [=, id = job.id](tuner::Records& records) -> absl::Status {
        HEDDLE_ASSIGN_OR_RETURN(appended,
                                server::SetState(records, id, state, reason, error, "", now));
        *seq = appended;
        return absl::OkStatus();
      },
      [=, this, id = job.id, tenant = job.tenant](const absl::Status& status) {
        if (status.ok() && *seq > 0) {
          LogEvent(Severity::kInfo, "job_ended",
                   {{"job", JobName(id)},
                    {"tenant", tenant},
                    {"state", WordOf(state)},
                    {"error", error}});
          outbox_.Announce(id, *seq, true);
        }
        jobs_.erase(id);
      },
      Persistence::kUntilStored);
}

void Jobs::EndCancelled(ActiveJob& job) {
  End(job, v1::Job::STATE_CANCELLED, v1::Job::STOP_REASON_UNSPECIFIED,
      job.errors.empty() ? "cancelled" : job.errors.front());
}

}  // namespace heddle::server
