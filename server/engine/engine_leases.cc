// Leases of candidates to devices, and the results that come back.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "measure/judge/criteria.h"
#include "measure/run/messages.h"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "server/engine/engine.h"

namespace heddle::server {
namespace {

using measure::Outcome;
using measure::TrialResult;

// Leases a device takes from one job before others that wait get their turn: a change of workload
// costs its daemon new inputs and a new reference.
constexpr int kTurn = 4;

// What is stored of a result, which is its daemon's word.
tuner::TrialRecord RecordOf(const TrialRow& row, const v1::CandidateResult& reported,
                            const search_space::TensorProgram& program,
                            const search_space::Target& target, measure::L2Policy l2,
                            const tuner::Provenance& from, absl::Time now) {
  tuner::TrialRecord record;
  record.workload_hash = program.hash;
  record.point = row.point;
  record.steps = row.steps;
  record.stage = row.is_final ? tuner::TrialStage::kFinal : tuner::TrialStage::kScreening;
  record.result = measure::FromProto(reported.result());
  TrialResult& result = record.result;
  const double fastest_us = measure::FastestPlausible(program, target, l2) * 1e6;
  if (result.outcome == Outcome::kOk && result.time_us < fastest_us) {
    result.outcome = Outcome::kImplausible;
    result.detail =
        absl::StrCat(result.time_us, " us were reported; the device's peak rates allow ",
                     fastest_us, " at best");
  }
  if (result.outcome != Outcome::kOk) {
    result.time_us = result.ci_low_us = result.ci_high_us = 0;
  }
  record.throttled = reported.device_state().throttled();
  record.other_processes = reported.device_state().other_processes();
  record.from = from;
  record.when = now;
  return record;
}

}  // namespace

// ------------------------------------------------------------------------------------------ giving

bool Engine::HasWork(const ActiveJob& job) {
  return !job.stop && (!job.queue.empty() || (job.finals && job.finals->queued));
}

Engine::ActiveJob* Engine::ChooseJob(const DeviceEntry& device) {
  ActiveJob* chosen = nullptr;
  for (int64_t id : searching_) {
    ActiveJob* found = FindJob(id);
    if (found == nullptr || !HasWork(*found) || !WorksOn(*found, device)) continue;
    ActiveJob& job = *found;
    // The one that waits longest, but the device's own job for a while.
    const int64_t turn = job.served + (id == device.job ? -kTurn : 0);
    if (chosen == nullptr || turn < chosen->served + (chosen->id == device.job ? -kTurn : 0)) {
      chosen = &job;
    }
  }
  return chosen;
}

void Engine::Acquire(const v1::AcquireRequest& request, Reply<v1::Lease> reply) {
  Actions after;
  {
    absl::MutexLock lock(&mutex_);
    auto session = FindSession(request.session());
    auto device = session.ok() ? devices_.find(DeviceKey((*session)->host, request.device()))
                               : devices_.end();
    if (!session.ok()) {
      after.push_back([=, status = session.status()] { reply(status); });
    } else if (device == devices_.end() || device->second.session != request.session()) {
      after.push_back([=] {
        reply(WrongField("device", absl::StrCat("the session has no device \"", request.device(),
                                                "\"; register it")));
      });
    } else if (device->second.request_id == request.request_id() &&
               device->second.last_lease.id() != 0) {
      after.push_back([=, lease = device->second.last_lease] { reply(lease); });
    } else {
      // A device waits once: a call that was given up by its daemon gets nothing.
      std::erase_if(waiters_, [&](Waiter& waiter) {
        if (waiter.session != request.session() || waiter.device != device->first) return false;
        after.push_back([old = std::move(waiter.reply)] { old(v1::Lease()); });
        return true;
      });
      device->second.request_id = request.request_id();
      device->second.last_lease.Clear();
      waiters_.push_back({request.session(), device->first, request.request_id(), request.max(),
                          SteadyNow() + absl::Seconds(request.wait_s()), std::move(reply)});
      next_deadline_ = std::min(next_deadline_, waiters_.back().deadline);
      ServeWaiters(after);
    }
  }
  Run(after);
}

void Engine::ServeWaiters(Actions& after) {
  const bool work = std::any_of(searching_.begin(), searching_.end(), [this](int64_t id) {
    const ActiveJob* job = FindJob(id);
    return job != nullptr && HasWork(*job);
  });
  const SteadyTime now = SteadyNow();
  if (!work && !draining_ && now < next_deadline_) return;
  next_deadline_ = SteadyTime::InfiniteFuture();
  for (auto it = waiters_.begin(); it != waiters_.end();) {
    auto device = devices_.find(it->device);
    const bool ours = device != devices_.end() && device->second.session == it->session;
    ActiveJob* job =
        ours && !draining_ && Usable(device->second) ? ChooseJob(device->second) : nullptr;
    if (job != nullptr) {
      Grant(std::move(*it), device->second, *job);
      it = waiters_.erase(it);
    } else if (!ours || draining_ || now >= it->deadline) {
      after.push_back([reply = std::move(it->reply)] { reply(v1::Lease()); });
      it = waiters_.erase(it);
    } else {
      next_deadline_ = std::min(next_deadline_, it->deadline);
      ++it;
    }
  }
}

void Engine::Grant(Waiter waiter, DeviceEntry& device, ActiveJob& job) {
  job.served = ++round_;
  device.job = job.id;
  LeaseEntry entry;
  entry.id = next_lease_++;
  entry.job = job.id;
  entry.host = sessions_.at(waiter.session).host;
  entry.device = waiter.device;
  entry.program = job.workloads[job.workload];
  entry.environment = EnvironmentOf(device.info.device(), job.spec.l2());
  entry.target = measure::FromProto(device.info.device()).target;
  entry.from = {job.tenant, 0, entry.host, JobName(job.id)};
  entry.last_seen = SteadyNow();

  v1::Lease lease;
  lease.set_id(entry.id);
  lease.set_job(JobName(job.id));
  lease.set_workload(entry.program->canonical_text);
  lease.set_l2(job.spec.l2() == v1::L2_POLICY_UNSPECIFIED ? v1::L2_POLICY_COLD : job.spec.l2());
  lease.set_seed(std::max<uint64_t>(1, job.spec.seed()));
  lease.set_best_us(job.best_us);
  std::vector<int64_t> ids;
  if (job.finals && job.finals->queued) {
    job.finals->queued = false;
    ids = job.finals->ids;
    entry.is_finals = true;
    lease.set_kind(v1::Lease::FINALS);
    lease.set_budget_s(job.finals->budget_s);
  } else {
    lease.set_kind(v1::Lease::SCREENING);
    // What there is, shared by the devices that could take some.
    const auto fair = static_cast<int>(job.queue.size()) / std::max(1, job.usable);
    const int count = std::clamp(fair, 1, waiter.max);
    while (static_cast<int>(ids.size()) < count && !job.queue.empty()) {
      ids.push_back(job.queue.front());
      job.queue.pop_front();
    }
  }
  std::vector<TrialRow> rows;
  for (int64_t id : ids) {
    TrialRow& row = job.candidates.at(id).row;
    row.state = v1::Trial::LEASED;
    row.lease = entry.id;
    row.device = waiter.device;
    rows.push_back(row);
    entry.open.insert(id);
    v1::Candidate& candidate = *lease.add_candidates();
    candidate.set_id(id);
    candidate.set_steps(row.steps);
  }
  leases_.emplace(entry.id, entry);
  device.last_lease = lease;
  Write(
      [rows](tuner::Records& records) {
        for (const TrialRow& row : rows) {
          if (absl::Status s = LeaseTrial(records, row); !s.ok()) return s;
        }
        return absl::OkStatus();
      },
      [=, this, reply = std::move(waiter.reply)](const absl::Status& status) {
        if (status.ok()) return reply(lease);
        TakeBackUnwritten(lease.id());
        reply(status);
      },
      Persistence::kOnce);
}

// Nothing was written, so nothing was leased.
void Engine::TakeBackUnwritten(int64_t lease) {
  absl::MutexLock lock(&mutex_);
  auto given = leases_.find(lease);
  if (given == leases_.end()) return;
  auto device = devices_.find(given->second.device);
  if (device != devices_.end()) device->second.last_lease.Clear();
  if (ActiveJob* job = FindJob(given->second.job)) {
    for (int64_t id : given->second.open) {
      auto candidate = job->candidates.find(id);
      if (candidate == job->candidates.end()) continue;
      candidate->second.row.state = v1::Trial::PROPOSED;
      if (!given->second.is_finals) job->queue.push_back(id);
    }
    if (given->second.is_finals && job->finals) job->finals->queued = true;
  }
  leases_.erase(given);
}

// ------------------------------------------------------------------------------------- taking back

void Engine::CloseIfDone(LeaseEntry& lease) {
  if (!lease.open.empty()) return;
  const int64_t job = lease.job;
  leases_.erase(lease.id);
  if (ActiveJob* active = FindJob(job)) FinishCancelling(*active);
}

// A report on its way through the database.
struct Engine::Reported {
  struct Written {
    int64_t id = 0, seq = 0;
    v1::TrialResult result;
  };
  v1::ReportRequest request;
  std::string host;
  std::optional<LeaseEntry> lease;  // nullopt: closed, or never given
  std::string default_point;
  absl::Time now;
  // What was stored, as the transaction has it that was tried last.
  v1::ReportResponse response;
  std::vector<Written> written;  // counted in the job
  std::vector<int64_t> lost;     // with their workers
};

void Engine::Report(const v1::ReportRequest& request, Reply<v1::ReportResponse> reply) {
  auto report = std::make_shared<Reported>();
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    auto session = FindSession(request.session());
    status = session.status();
    if (status.ok()) {
      report->request = request;
      report->host = (*session)->host;
      report->now = Now();
      auto found = leases_.find(request.lease());
      if (found != leases_.end() && found->second.host == report->host) {
        found->second.last_seen = SteadyNow();
        report->lease = found->second;
        if (ActiveJob* job = FindJob(report->lease->job)) {
          report->default_point = job->default_point;
        }
      }
      Write([report](tuner::Records& records) { return StoreReport(records, *report); },
            [=, this](const absl::Status& stored) {
              if (!stored.ok()) return reply(stored);
              TakeReport(*report);
              reply(report->response);
            },
            Persistence::kOnce);
    }
  }
  if (!status.ok()) reply(status);
}

absl::Status Engine::StoreReport(tuner::Records& records, Reported& report) {
  report.response = {};
  report.written.clear();
  report.lost.clear();
  for (const v1::CandidateResult& result : report.request.results()) {
    if (absl::Status s = StoreResult(records, result, report); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Engine::StoreResult(tuner::Records& records, const v1::CandidateResult& reported,
                                 Reported& report) {
  const int64_t id = reported.candidate();
  auto row = LoadTrial(records, id);
  if (!row.ok()) return row.status();
  if (!row->has_value()) return absl::OkStatus();
  const bool done = (*row)->state > v1::Trial::LEASED;
  if (!report.lease || !report.lease->open.contains(id)) {
    // Sent again after the lease had closed: what it had is stored.
    if (done && HostOf((*row)->device) == report.host) report.response.add_committed(id);
    return absl::OkStatus();
  }
  report.response.add_committed(id);
  if (reported.result().outcome() == v1::OUTCOME_WORKER_LOST) {
    if (!done) report.lost.push_back(id);
    return absl::OkStatus();
  }
  const LeaseEntry& lease = *report.lease;
  const tuner::TrialRecord record = RecordOf(**row, reported, *lease.program, lease.target,
                                             lease.environment.l2, lease.from, report.now);
  // Sent again, or measured by two: the job counts it once, a measurement is kept.
  if (done) return AddMeasurement(records, *lease.program, lease.environment, record);
  auto seq = FinishTrial(records, **row, v1::Trial::DONE, *lease.program, lease.environment, record,
                         (*row)->point == report.default_point);
  if (!seq.ok()) return seq.status();
  report.written.push_back({id, *seq, measure::ToProto(record.result)});
  return absl::OkStatus();
}

void Engine::TakeReport(const Reported& report) {
  if (!report.lease) return;
  const LeaseEntry& lease = *report.lease;
  for (const Reported::Written& w : report.written) {
    metrics_.CountTrial(measure::FromProto(w.result), lease.environment.device_name);
    if (w.seq > 0) Announce(lease.job, w.seq, false);
  }
  if (!report.lost.empty()) {
    ReturnCandidates(lease, report.lost, Blame::kAll, "its worker was lost");
  }
  Actions after;
  {
    absl::MutexLock lock(&mutex_);
    if (ActiveJob* job = FindJob(lease.job)) {
      for (const Reported::Written& w : report.written) TakeResult(*job, w.id, w.result);
    }
    auto entry = leases_.find(lease.id);
    if (entry != leases_.end()) {
      for (int64_t id : report.response.committed()) {
        if (std::find(report.lost.begin(), report.lost.end(), id) == report.lost.end()) {
          entry->second.open.erase(id);
        }
      }
      CloseIfDone(entry->second);
    }
    ServeWaiters(after);
  }
  Run(after);
}

struct Engine::Given {
  int64_t id = 0, seq = 0;
  int kills = 0;
  bool back = false;  // else quarantined
  v1::TrialResult result;
};

void Engine::ReturnCandidates(const LeaseEntry& lease, const std::vector<int64_t>& ids, Blame blame,
                              const std::string& how) {
  auto given = std::make_shared<std::vector<Given>>();
  auto body = [=, now = Now()](tuner::Records& records) -> absl::Status {
    given->clear();
    for (int64_t id : ids) {
      auto row = LoadTrial(records, id);
      if (!row.ok()) return row.status();
      if (!row->has_value() || (*row)->state != v1::Trial::LEASED || (*row)->lease != lease.id) {
        continue;
      }
      if (lease.expired) {
        if (absl::Status s = AddLateTrial(records, **row, now); !s.ok()) return s;
      }
      (*row)->kills += blame == Blame::kAll || (blame == Blame::kRunning && (*row)->running);
      if ((*row)->kills < kMaxKills) {
        if (absl::Status s = ReturnTrial(records, id, (*row)->kills); !s.ok()) return s;
        given->push_back({id, 0, (*row)->kills, true, {}});
        continue;
      }
      // Recorded as what it is most likely, so that no search proposes it again.
      v1::CandidateResult reported;
      reported.mutable_result()->set_outcome(v1::OUTCOME_ILLEGAL_ACCESS);
      reported.mutable_result()->set_detail(
          absl::StrCat("quarantined after ", (*row)->kills, " lost workers: ", how));
      const tuner::TrialRecord record = RecordOf(**row, reported, *lease.program, lease.target,
                                                 lease.environment.l2, lease.from, now);
      auto seq = FinishTrial(records, **row, v1::Trial::QUARANTINED, *lease.program,
                             lease.environment, record, false);
      if (!seq.ok()) return seq.status();
      given->push_back({id, *seq, (*row)->kills, false, reported.result()});
    }
    return absl::OkStatus();
  };
  auto done = [=, this](const absl::Status& status) {
    if (status.ok()) TakeBack(lease, ids, *given, how);
  };
  absl::MutexLock lock(&mutex_);
  Write(std::move(body), std::move(done), Persistence::kUntilStored);
}

void Engine::TakeBack(const LeaseEntry& lease, const std::vector<int64_t>& ids,
                      const std::vector<Given>& given, const std::string& how) {
  for (const Given& g : given) {
    if (g.back) continue;
    metrics_.quarantined.Increment();
    LogEvent(
        Severity::kWarning, "quarantined",
        {{"job", JobName(lease.job)}, {"trial", g.id}, {"device", lease.device}, {"how", how}});
    if (g.seq > 0) Announce(lease.job, g.seq, false);
  }
  Actions after;
  {
    absl::MutexLock lock(&mutex_);
    ActiveJob* job = FindJob(lease.job);
    bool finals_back = false;
    for (const Given& g : given) {
      if (job == nullptr) break;
      if (!g.back) {
        TakeResult(*job, g.id, g.result);
        continue;
      }
      auto candidate = job->candidates.find(g.id);
      if (candidate == job->candidates.end()) continue;
      TrialRow& row = candidate->second.row;
      row.state = v1::Trial::PROPOSED;
      row.kills = g.kills;
      finals_back |= row.is_final;
      if (!row.is_final && !job->cancelling) job->queue.push_front(g.id);
    }
    // Finals are measured together, all or none.
    if (finals_back && job->finals) job->finals->queued = true;
    auto entry = leases_.find(lease.id);
    if (entry != leases_.end()) {
      if (!entry->second.expired) {
        for (int64_t id : ids) entry->second.open.erase(id);
        CloseIfDone(entry->second);
      } else if (job != nullptr) {
        FinishCancelling(*job);
      }
    }
    ServeWaiters(after);
  }
  Run(after);
}

void Engine::Release(const v1::ReleaseRequest& request, Reply<v1::ReleaseResponse> reply) {
  std::optional<LeaseEntry> lease;
  std::vector<int64_t> ids;
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    auto session = FindSession(request.session());
    status = session.status();
    auto found = leases_.find(request.lease());
    if (status.ok() && found != leases_.end() && found->second.host == (*session)->host) {
      lease = found->second;
      for (int64_t id : request.unstarted()) {
        if (lease->open.contains(id)) ids.push_back(id);
      }
      ActiveJob* job = FindJob(lease->job);
      if (request.fault() == v1::ReleaseRequest::FAULT_WORKLOAD && job != nullptr) {
        EndJob(*job, v1::Job::FAILED, v1::Job::STOP_REASON_UNSPECIFIED, request.detail());
      }
    }
  }
  if (!status.ok()) return reply(status);
  if (lease) ReturnCandidates(*lease, ids, Blame::kNone, "");
  reply(v1::ReleaseResponse());
}

void Engine::ExpireLeases(Actions& after) {
  const SteadyTime now = SteadyNow();
  for (auto it = leases_.begin(); it != leases_.end();) {
    LeaseEntry& lease = it->second;
    if (lease.expired && now - lease.last_seen > kLateResults) {
      it = leases_.erase(it);
      continue;
    }
    ++it;
    if (lease.expired || now - lease.last_seen <= options_.lease) continue;
    lease.expired = true;
    metrics_.lease_expiries.Increment();
    LogEvent(Severity::kWarning, "lease_expired",
             {{"lease", lease.id},
              {"job", JobName(lease.job)},
              {"device", lease.device},
              {"open", lease.open.size()}});
    after.push_back([this, lease] {
      ReturnCandidates(lease, {lease.open.begin(), lease.open.end()}, Blame::kRunning,
                       "its host fell silent");
    });
  }
}

}  // namespace heddle::server
