// Jobs: their life from creation to the last event.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "server/fleet/fleet_state.h"
#include "tuner/records/records_fields.h"

namespace heddle::server {
// ------------------------------------------------------------------------------------------- calls

void FleetState::CreateJob(const std::string& tenant, const std::string& method,
                           const std::string& request_id, const v1::JobSpec& spec,
                           std::vector<Workload> workloads, const Reply<v1::Job>& reply) {
  struct Created {
    int64_t id = 0;
    bool is_new = false;
  };
  auto created = std::make_shared<Created>();
  auto programs = std::make_shared<const std::vector<Workload>>(std::move(workloads));
  const absl::Time now = Now();
  const int most = options_.open_jobs_per_tenant;
  auto body = [=](tuner::Records& records) -> absl::Status {
    const uint64_t hash = HashOfRequest(spec);
    auto earlier = FindRequest(records, tenant, method, request_id, hash);
    if (!earlier.ok()) return earlier.status();
    *created = {};
    if (earlier->has_value()) {
      created->id = **earlier;
      return absl::OkStatus();
    }
    auto open = CountOpenJobs(records, tenant);
    if (!open.ok()) return open.status();
    if (*open >= most) {
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
    if (!status.ok()) return Send<v1::Job>(reply, status);
    if (created->is_new) {
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
      Enqueue(job);
      StartJobs();
    }
    effects_.job_replies.push_back({created->id, tenant, reply});
  };
  Write(std::move(body), std::move(done), Persistence::kOnce);
}

void FleetState::CancelJob(const Caller& caller, int64_t id, const Reply<v1::Job>& reply) {
  const std::string tenant = VisibleTenant(caller);
  ActiveJob* job = FindJob(id);
  const bool visible = job != nullptr && (tenant.empty() || job->tenant == tenant);
  if (visible && !job->cancelling && !job->ending) {
    LogEvent(Severity::kInfo, "job_cancelled",
             {{"job", JobName(id)},
              {"tenant", job->tenant},
              {"by", caller.tenant},
              {"token", caller.token},
              {"peer", caller.peer}});
    const bool own = job->tenant == caller.tenant;
    Cancel(*job, own ? "cancelled by its owner" : "cancelled by an administrator");
  }
  // Behind what cancelling writes.
  Write([](tuner::Records&) { return absl::OkStatus(); },
        [=, this](const absl::Status& status) {
          // Else it may be forgotten again, however it looks now.
          if (visible && !status.ok()) return Send<v1::Job>(reply, status);
          effects_.job_replies.push_back({id, tenant, reply});
        },
        Persistence::kOnce);
}

void FleetState::ReportRuns(int64_t id, const std::string& model, std::vector<WorkloadRun> runs) {
  ActiveJob* job = FindJob(id);
  if (job == nullptr || job->ending || job->cancelling) return;
  Write(
      [id, runs = std::move(runs)](tuner::Records& records) -> absl::Status {
        for (const WorkloadRun& run : runs) {
          if (absl::Status s = CountRun(records, id, run); !s.ok()) return s;
        }
        return absl::OkStatus();
      },
      nullptr, Persistence::kUntilStored);
  Unpark(*job);  // no device of a daemon's is to wake it
  job->device.mutable_target()->set_name(model);
  SetJobState(*job, v1::Job::STATE_RUNNING);
}

void FleetState::EndRuns(int64_t id, const std::string& error) {
  ActiveJob* job = FindJob(id);
  if (job == nullptr || job->cancelling) return;
  EndJob(*job, error.empty() ? v1::Job::STATE_SUCCEEDED : v1::Job::STATE_FAILED,
         v1::Job::STOP_REASON_UNSPECIFIED, error);
}

// -------------------------------------------------------------------------------------- life cycle

FleetState::ActiveJob* FleetState::FindJob(int64_t id) {
  auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

void FleetState::SetJobState(ActiveJob& job, v1::Job::State state) {
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

void FleetState::EndJob(ActiveJob& job, v1::Job::State state, v1::Job::StopReason reason,
                        const std::string& error) {
  if (job.ending) return;
  Unpark(job);
  job.ending = job.stop = true;
  for (auto& [id, lease] : leases_) lease.revoked |= lease.job == job.id && lease.confirms == 0;
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
                    {"state", WordOf(state)},
                    {"error", error}});
          Announce(id, *seq, true);
        }
        jobs_.erase(id);
      },
      Persistence::kUntilStored);
}

void FleetState::Cancel(ActiveJob& job, const std::string& why) {
  job.cancelling = job.stop = true;
  job.errors = {why};
  job.queue.clear();
  SetJobState(job, v1::Job::STATE_CANCELLING);
  for (auto& [id, lease] : leases_) lease.revoked |= lease.job == job.id && lease.confirms == 0;
  FinishCancelling(job);
}

void FleetState::FinishCancelling(ActiveJob& job) {
  if (!job.cancelling || job.searching) return;
  for (const auto& [id, lease] : leases_) {
    const bool mine = lease.job == job.id && lease.confirms == 0;
    if (mine && !lease.expired && !lease.open.empty()) return;
  }
  EndJob(job, v1::Job::STATE_CANCELLED, v1::Job::STOP_REASON_UNSPECIFIED,
         job.errors.empty() ? "cancelled" : job.errors.front());
}

}  // namespace heddle::server
