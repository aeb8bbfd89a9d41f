// Leases of candidates to devices, and the results that come back.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "measure/judge/criteria.h"
#include "measure/run/messages.h"
#include "proto/values.h"
#include "server/db/confirmations.h"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "server/fleet/fleet_state.h"

namespace heddle::server {
namespace {

using measure::Outcome;
using measure::TrialResult;

// What is stored of a result, which is its daemon's word.
tuner::TrialRecord RecordOf(const TrialRow& row, const v1::CandidateResult& reported,
                            const std::string& workload_hash, double fastest_us,
                            const tuner::Provenance& from, absl::Time now) {
  tuner::TrialRecord record;
  record.workload_hash = workload_hash;
  record.point = row.point;
  record.steps = row.steps;
  record.stage = row.is_final ? tuner::TrialStage::kFinal : tuner::TrialStage::kScreening;
  record.result = measure::FromProto(reported.result());
  TrialResult& result = record.result;
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

void FleetState::Acquire(const Caller& caller, const v1::AcquireRequest& request,
                         Reply<v1::Lease> reply) {
  auto session = FindSession(caller, request.session());
  if (!session.ok()) return Send<v1::Lease>(std::move(reply), session.status());
  const auto key = (*session)->devices.find(request.device());
  auto device = key == (*session)->devices.end() ? devices_.end() : devices_.find(key->second);
  if (device == devices_.end() || device->second.session != request.session()) {
    return Send<v1::Lease>(std::move(reply),
                           WrongField("device", absl::StrCat("the session has no device \"",
                                                             request.device(), "\"; register it")));
  }
  DeviceEntry& entry = device->second;
  if (entry.request_id == request.request_id() && entry.last_lease.id() != 0) {
    const auto unwritten = entry.unwritten.find(entry.last_lease.id());
    if (unwritten == entry.unwritten.end()) {
      return Send<v1::Lease>(std::move(reply), entry.last_lease);
    }
    unwritten->second.push_back(std::move(reply));
    return;
  }
  const std::string model = entry.info.device().target().name();
  std::list<Waiter>& waiters = uses_[model].waiters;
  // A device waits once: a call that was given up by its daemon gets nothing.
  std::erase_if(waiters, [&](Waiter& waiter) {
    if (waiter.device != device->first) return false;
    Send<v1::Lease>(std::move(waiter.reply), v1::Lease());
    return true;
  });
  entry.request_id = request.request_id();
  entry.last_lease.Clear();
  waiters.push_back({request.session(), device->first, request.request_id(), request.max(),
                     SteadyNow() + absl::Seconds(SecondsOf(request.wait_duration())),
                     std::move(reply)});
  next_deadline_ = std::min(next_deadline_, waiters.back().deadline);
  ServeWaiters(model);
  ExpireWaiters();
}

FleetState::LeaseEntry FleetState::NewLease(const Waiter& waiter, const DeviceEntry& device,
                                            const Workload& program, v1::L2Policy l2) {
  const FleetSession& session = sessions_.at(waiter.session);
  LeaseEntry entry;
  entry.id = next_lease_++;
  entry.host = session.host;
  entry.boot_id = session.boot_id;
  entry.instance = session.instance;
  entry.device = waiter.device;
  entry.program = program;
  entry.environment = EnvironmentOf(device.info.device(), l2);
  entry.fastest_us =
      measure::FastestPlausible(*program, measure::FromProto(ModelOf(device).device).target,
                                entry.environment.l2) *
      1e6;
  entry.last_seen = entry.begun = SteadyNow();
  return entry;
}

void FleetState::Grant(Waiter waiter, DeviceEntry& device, ActiveJob& job) {
  job.served = ++round_;
  device.turns = device.job == job.id ? device.turns + 1 : 1;
  device.job = job.id;
  LeaseEntry entry = NewLease(waiter, device, job.workloads[job.workload], job.spec.l2());
  entry.job = job.id;
  entry.tenant = job.tenant;
  entry.from = {job.tenant, sessions_.at(waiter.session).token, entry.host, JobName(job.id)};
  entry.default_point = job.default_point;
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
    ids = WaitingFinals(job);
    entry.is_finals = true;
    lease.set_kind(v1::Lease::KIND_FINALS);
    *lease.mutable_budget_duration() = DurationOf(job.finals->budget_s);
  } else {
    lease.set_kind(v1::Lease::KIND_SCREENING);
    // What there is, shared by the devices that could take some.
    const auto fair = static_cast<int>(job.queue.size()) / std::max(1, job.usable);
    const int count = std::clamp(fair, 1, waiter.max);
    while (static_cast<int>(ids.size()) < count && !job.queue.empty()) {
      ids.push_back(job.queue.front());
      job.queue.pop_front();
    }
  }
  std::vector<TrialRow*> rows;
  for (int64_t id : ids) rows.push_back(&job.candidates.at(id).row);
  entry.count = static_cast<int>(ids.size());
  entry.charged_s = job.pace_s * entry.count;
  lease_share_.Charge(job.tenant, entry.charged_s);
  GiveLease(std::move(waiter), device, std::move(entry), std::move(lease), rows);
}

void FleetState::GiveLease(Waiter waiter, DeviceEntry& device, LeaseEntry entry, v1::Lease lease,
                           const std::vector<TrialRow*>& given) {
  std::vector<TrialRow> rows;
  for (TrialRow* row : given) {
    row->state = v1::Trial::STATE_LEASED;
    row->lease = entry.id;
    row->device = waiter.device;
    rows.push_back(*row);
    entry.open.insert(row->id);
    v1::Candidate& candidate = *lease.add_candidates();
    candidate.set_id(row->id);
    candidate.set_steps(row->steps);
  }
  leases_.emplace(entry.id, std::move(entry));
  device.last_lease = lease;
  device.unwritten[lease.id()] = {std::move(waiter.reply)};
  Write(
      [rows](tuner::Records& records) {
        for (const TrialRow& row : rows) {
          if (absl::Status s = LeaseTrial(records, row); !s.ok()) return s;
        }
        return absl::OkStatus();
      },
      [=, this, key = waiter.device](const absl::Status& status) {
        if (!status.ok()) TakeBackUnwritten(lease.id());
        const auto device = devices_.find(key);
        if (device == devices_.end()) return;
        auto asked = device->second.unwritten.extract(lease.id());
        if (asked.empty()) return;
        for (Reply<v1::Lease>& reply : asked.mapped()) {
          Send<v1::Lease>(std::move(reply),
                          status.ok() ? absl::StatusOr<v1::Lease>(lease) : status);
        }
      },
      Persistence::kOnce);
}

// Nothing was written, so nothing was leased.
void FleetState::TakeBackUnwritten(int64_t lease) {
  auto given = leases_.find(lease);
  if (given == leases_.end()) return;
  const LeaseEntry taken = std::move(given->second);
  leases_.erase(given);
  auto device = devices_.find(taken.device);
  if (device != devices_.end() && device->second.last_lease.id() == lease) {
    device->second.last_lease.Clear();
  }
  if (!taken.settled) lease_share_.Charge(taken.tenant, -taken.charged_s);
  if (taken.confirms > 0) {
    Confirmation again = *taken.confirmation;
    again.measured.erase(taken.host);
    --again.attempts;  // nobody was asked
    return Ask(taken.environment.device_name, std::move(again));
  }
  ActiveJob* job = FindJob(taken.job);
  if (job == nullptr) return;
  for (auto id = taken.open.rbegin(); id != taken.open.rend(); ++id) {
    auto candidate = job->candidates.find(*id);
    if (candidate != job->candidates.end()) PutBack(*job, candidate->second);
  }
  FinishCancelling(*job);
}

void FleetState::PutBack(ActiveJob& job, Candidate& candidate) {
  TrialRow& row = candidate.row;
  row.state = v1::Trial::STATE_PROPOSED;
  if (!row.is_final) {
    if (!job.cancelling) job.queue.push_front(row.id);
    return;
  }
  // Finals are measured together; those of an earlier search nobody waits for.
  if (job.finals && std::count(job.finals->ids.begin(), job.finals->ids.end(), row.id) > 0) {
    job.finals->queued = true;
  }
}

// ------------------------------------------------------------------------------------- taking back

void FleetState::CloseIfDone(LeaseEntry& lease) {
  if (!lease.open.empty()) return;
  Settle(lease);
  const int64_t job = lease.job;
  leases_.erase(lease.id);
  if (ActiveJob* active = FindJob(job)) FinishCancelling(*active);
}

// What became of a candidate that comes back.
struct FleetState::Given {
  int64_t id = 0, seq = 0;
  int kills = 0;
  bool back = false;  // else quarantined
  v1::TrialResult result;
};

// A report on its way through the database.
struct FleetState::Reported {
  struct Written {
    int64_t id = 0, seq = 0;
    v1::TrialResult result;
  };
  v1::ReportRequest request;
  std::string host;
  int64_t token = 0;
  std::optional<LeaseEntry> lease;  // nullopt: closed, or never given
  std::string default_point;
  absl::Time now;
  // What was stored, as the transaction has it that was tried last.
  v1::ReportResponse response;
  std::vector<Written> written;  // counted in the job
  std::vector<Finalist> finals;
  std::vector<Given> lost;          // with their workers
  std::optional<std::string> best;  // after finals, the steps of what is served now
};

void FleetState::Report(const Caller& caller, const v1::ReportRequest& request,
                        const Reply<v1::ReportResponse>& reply) {
  auto session = FindSession(caller, request.session());
  if (!session.ok()) return Send<v1::ReportResponse>(reply, session.status());
  auto report = std::make_shared<Reported>();
  report->request = request;
  report->host = (*session)->host;
  report->token = (*session)->token;
  report->now = Now();
  auto found = leases_.find(request.lease());
  if (found != leases_.end() && found->second.host == report->host) {
    found->second.last_seen = SteadyNow();
    report->lease = found->second;
    report->default_point = report->lease->default_point;
    ActiveJob* job = FindJob(report->lease->job);
    if (report->default_point.empty() && job != nullptr) {  // it is of an earlier server
      report->default_point = job->default_point;
    }
  }
  Write([report](tuner::Records& records) { return StoreReport(records, *report); },
        [=, this](const absl::Status& stored) {
          if (stored.ok()) TakeReport(*report);
          Send<v1::ReportResponse>(
              reply, stored.ok() ? absl::StatusOr<v1::ReportResponse>(report->response) : stored);
        },
        Persistence::kOnce);
}

absl::Status FleetState::StoreReport(tuner::Records& records, Reported& report) {
  report.response = {};
  report.written.clear();
  report.lost.clear();
  report.finals.clear();
  report.best.reset();
  for (const v1::CandidateResult& result : report.request.results()) {
    HEDDLE_RETURN_IF_ERROR(StoreResult(records, result, report));
  }
  if (!report.lease || !report.lease->is_finals) return absl::OkStatus();
  const LeaseEntry& lease = *report.lease;
  const auto best = records.FindBest(lease.program->hash, tuner::BenchOf(lease.environment));
  if (!best.ok()) {
    // What was measured is stored all the same, and stays one host's word.
    LogEvent(Severity::kError, "best_unreadable",
             {{"lease", lease.id}, {"error", std::string(best.status().message())}});
  } else if (best->has_value()) {
    report.best = (*best)->trial.steps;
  }
  return absl::OkStatus();
}

absl::Status FleetState::StoreResult(tuner::Records& records, const v1::CandidateResult& reported,
                                     Reported& report) {
  const int64_t id = reported.candidate();
  auto row = LoadTrial(records, id);
  if (!row.ok()) return row.status();
  if (!row->has_value()) return absl::OkStatus();
  const bool done = (*row)->state > v1::Trial::STATE_LEASED;
  if (!report.lease || !report.lease->open.contains(id)) {
    // Sent again after the lease had closed: what it had is stored.
    if (done && HostOf((*row)->device) == report.host) report.response.add_committed(id);
    return absl::OkStatus();
  }
  report.response.add_committed(id);
  const LeaseEntry& lease = *report.lease;
  if (reported.result().outcome() == v1::OUTCOME_WORKER_LOST) {
    if (done || (*row)->state != v1::Trial::STATE_LEASED || (*row)->lease != lease.id) {
      return absl::OkStatus();
    }
    ++(*row)->kills;
    auto given = GiveBack(records, **row, lease, "its worker was lost", report.now);
    if (given.ok()) report.lost.push_back(*given);
    return given.status();
  }
  tuner::Provenance from = lease.from;
  from.token = report.token;
  const tuner::TrialRecord record =
      RecordOf(**row, reported, lease.program->hash, lease.fastest_us, from, report.now);
  const bool is_default = (*row)->point == report.default_point;
  const FinalOrigin origin{report.host, report.token, lease.id, is_default};
  // Sent again, or measured by two: the job counts it once, a measurement is kept.
  if (done) return AddMeasurement(records, *lease.program, lease.environment, record, origin);
  auto seq = FinishTrial(records, **row, v1::Trial::STATE_DONE, *lease.program, lease.environment,
                         record, origin);
  if (!seq.ok()) return seq.status();
  report.written.push_back({id, *seq, measure::ToProto(record.result)});
  if (lease.is_finals) {
    report.finals.push_back({**row, record.result.time_us, is_default});
  }
  return absl::OkStatus();
}

void FleetState::TakeReport(const Reported& report) {
  if (!report.lease) return;
  const LeaseEntry& lease = *report.lease;
  for (const Reported::Written& w : report.written) {
    metrics_.CountTrial(measure::FromProto(w.result), lease.environment.device_name);
    if (w.seq > 0) Announce(lease.job, w.seq, false);
  }
  if (!report.lost.empty()) TakeBack(lease, report.lost, "its worker was lost");
  if (ActiveJob* job = FindJob(lease.job)) {
    for (const Reported::Written& w : report.written) TakeResult(*job, w.id, w.result);
  }
  auto entry = leases_.find(lease.id);
  if (entry != leases_.end()) {
    for (int64_t id : report.response.committed()) entry->second.open.erase(id);
    CloseIfDone(entry->second);
  }
  ServeWaiters(lease.environment.device_name);
  if (report.best) AskConfirmation(lease, report.token, report.finals, *report.best);
}

// Another device gets the candidate, unless it has taken too many workers along, or its job has
// ended.
absl::StatusOr<FleetState::Given> FleetState::GiveBack(tuner::Records& records, TrialRow row,
                                                       const LeaseEntry& lease,
                                                       const std::string& how, absl::Time now) {
  if (row.kills < kMaxKills) {
    auto ended = HasEnded(records, row.job);
    if (!ended.ok()) return ended.status();
    absl::Status status = *ended && !lease.expired ? DropTrial(records, row.id)
                                                   : ReturnTrial(records, row.id, row.kills);
    if (!status.ok()) return status;
    return Given{row.id, 0, row.kills, true, {}};
  }
  // Recorded as what it is most likely, so that no search proposes it again.
  v1::CandidateResult reported;
  reported.mutable_result()->set_outcome(v1::OUTCOME_ILLEGAL_ACCESS);
  reported.mutable_result()->set_detail(
      absl::StrCat("quarantined after ", row.kills, " lost workers: ", how));
  const tuner::TrialRecord record =
      RecordOf(row, reported, lease.program->hash, lease.fastest_us, lease.from, now);
  auto seq =
      FinishTrial(records, row, v1::Trial::STATE_QUARANTINED, *lease.program, lease.environment,
                  record, {lease.host, lease.from.token, lease.id, false});
  if (!seq.ok()) return seq.status();
  return Given{row.id, *seq, row.kills, false, reported.result()};
}

void FleetState::ReturnCandidates(const LeaseEntry& lease, const std::vector<int64_t>& ids,
                                  Blame blame, const std::string& how) {
  auto given = std::make_shared<std::vector<Given>>();
  auto body = [=, now = Now()](tuner::Records& records) -> absl::Status {
    given->clear();
    for (int64_t id : ids) {
      auto row = LoadTrial(records, id);
      if (!row.ok()) return row.status();
      if (!row->has_value() || (*row)->state > v1::Trial::STATE_LEASED) continue;
      const bool ours = (*row)->state == v1::Trial::STATE_LEASED && (*row)->lease == lease.id;
      const bool ran = lease.running.contains(id) || (*row)->running;
      (*row)->kills += blame == Blame::kLater || (blame == Blame::kRunning && ran && ours);
      if (!ours && blame != Blame::kLater) continue;
      if (ours && lease.expired) {
        if (absl::Status s = AddLateTrial(records, **row, now); !s.ok()) return s;
      }
      if (!ours && (*row)->kills < kMaxKills) {
        if (absl::Status s = CountKills(records, id, (*row)->kills); !s.ok()) return s;
        continue;
      }
      auto back = GiveBack(records, **row, lease, how, now);
      if (!back.ok()) return back.status();
      given->push_back(*back);
    }
    return absl::OkStatus();
  };
  auto done = [=, this](const absl::Status& status) {
    if (!status.ok()) return;
    TakeBack(lease, *given, how);
    auto entry = leases_.find(lease.id);
    if (entry == leases_.end()) return;
    if (!entry->second.expired) {
      for (int64_t id : ids) entry->second.open.erase(id);
      CloseIfDone(entry->second);
    } else if (ActiveJob* job = FindJob(lease.job)) {
      FinishCancelling(*job);
    }
  };
  Write(std::move(body), std::move(done), Persistence::kUntilStored);
}

void FleetState::TakeBack(const LeaseEntry& lease, const std::vector<Given>& given,
                          const std::string& how) {
  for (const Given& g : given) {
    if (g.back) continue;
    metrics_.quarantined.Increment();
    LogEvent(
        Severity::kWarning, "quarantined",
        {{"job", JobName(lease.job)}, {"trial", g.id}, {"device", lease.device}, {"how", how}});
    if (g.seq > 0) Announce(lease.job, g.seq, false);
  }
  ActiveJob* job = FindJob(lease.job);
  for (const Given& g : given) {
    if (job == nullptr) break;
    if (!g.back) {
      TakeResult(*job, g.id, g.result);
      continue;
    }
    auto candidate = job->candidates.find(g.id);
    if (candidate == job->candidates.end()) continue;
    candidate->second.row.kills = g.kills;
    PutBack(*job, candidate->second);
  }
  if (lease.confirms > 0 && !given.empty()) AskAgain(lease);
  ServeWaiters(lease.environment.device_name);
}

bool FleetState::AllRefuse(ActiveJob& job, const FleetSession& session, const std::string& why) {
  job.refused[session.host] = session.token;
  LogEvent(Severity::kWarning, "workload_refused",
           {{"job", JobName(job.id)},
            {"host", session.host},
            {"token", session.token},
            {"detail", why}});
  if (Trusts(session.host)) return true;
  return std::any_of(job.refused.begin(), job.refused.end(), [&](const auto& other) {
    return IsAnother(other.first, other.second, session.host, session.token);
  });
}

void FleetState::Release(const Caller& caller, const v1::ReleaseRequest& request,
                         const Reply<v1::ReleaseResponse>& reply) {
  auto session = FindSession(caller, request.session());
  if (!session.ok()) return Send<v1::ReleaseResponse>(reply, session.status());
  auto found = leases_.find(request.lease());
  if (found == leases_.end() || found->second.host != (*session)->host) {
    return Send<v1::ReleaseResponse>(reply, v1::ReleaseResponse());
  }
  const LeaseEntry lease = found->second;
  std::vector<int64_t> ids;
  for (int64_t id : request.unstarted()) {
    if (lease.open.contains(id)) ids.push_back(id);
  }
  ActiveJob* job = FindJob(lease.job);
  const bool mine = job != nullptr && lease.confirms == 0 && !job->ending &&
                    lease.program == job->workloads[job->workload];
  bool is_result = false;
  if (request.fault() == v1::ReleaseRequest::FAULT_WORKLOAD && mine) {
    is_result = !AllRefuse(*job, **session, request.detail());
    if (!is_result) {
      EndJob(*job, v1::Job::STATE_FAILED, v1::Job::STOP_REASON_UNSPECIFIED, request.detail());
    }
  }
  if (is_result && !ids.empty()) {
    // One host's word: as if it had tried them.
    v1::ReportRequest report;
    report.set_session(request.session());
    report.set_lease(request.lease());
    for (int64_t id : ids) {
      v1::CandidateResult& result = *report.add_results();
      result.set_candidate(id);
      result.mutable_result()->set_outcome(v1::OUTCOME_LAUNCH_ERROR);
      result.mutable_result()->set_detail(request.detail());
    }
    return Report(caller, report, [reply](const absl::StatusOr<v1::ReportResponse>& stored) {
      if (!stored.ok()) return reply(stored.status());
      reply(v1::ReleaseResponse());
    });
  }
  ReturnCandidates(lease, ids, Blame::kNone, "");
  Send<v1::ReleaseResponse>(reply, v1::ReleaseResponse());
}

// ---------------------------------------------------------------------------------------- silence

bool FleetState::Died(const LeaseEntry& lease, const FleetSession& now) const {
  if (lease.host != now.host || lease.boot_id.empty()) return false;
  if (lease.boot_id != now.boot_id) return true;
  return lease.instance != now.instance &&
         std::any_of(now.devices.begin(), now.devices.end(),
                     [&](const auto& device) { return device.second == lease.device; });
}

void FleetState::BlameForDeath(const FleetSession& now) {
  for (auto& [id, lease] : leases_) {
    if (!Died(lease, now)) continue;
    if (!lease.expired) {
      ExpireLease(lease, Blame::kRunning);
    } else if (!lease.running.empty()) {
      ReturnCandidates(lease, {lease.running.begin(), lease.running.end()}, Blame::kLater,
                       "its host died");
      lease.running.clear();
    }
  }
}

void FleetState::ExpireLease(LeaseEntry& lease, Blame blame) {
  lease.expired = true;
  Settle(lease);
  metrics_.lease_expiries.Increment();
  LogEvent(Severity::kWarning, "lease_expired",
           {{"lease", lease.id},
            {"job", JobName(lease.job)},
            {"device", lease.device},
            {"open", lease.open.size()}});
  ReturnCandidates(lease, {lease.open.begin(), lease.open.end()}, blame, "its host died");
  if (blame == Blame::kRunning) lease.running.clear();
}

// Whether what ran is to blame for a host's silence is known when the host is back.
void FleetState::ExpireLeases() {
  const SteadyTime now = SteadyNow();
  for (auto it = leases_.begin(); it != leases_.end();) {
    LeaseEntry& lease = it->second;
    if (lease.expired && now - lease.last_seen > kLateResults) {
      it = leases_.erase(it);
      continue;
    }
    ++it;
    if (lease.expired || now - lease.last_seen <= options_.lease) continue;
    ExpireLease(lease, Blame::kNone);
  }
}

}  // namespace heddle::server
