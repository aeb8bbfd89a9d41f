#include "server/fleet/leases/leases.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "measure/judge/criteria.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/trust/confirmations.h"

namespace heddle::server {
namespace {

// Seconds of devices that a tenant gets before the next one's turn.
constexpr double kLeaseQuantum = 4;
// How quickly what is known of a job's candidates follows what they take.
constexpr double kNewest = 0.3;
constexpr size_t kRemembered = 64;  // workloads that were leased

}  // namespace

Leases::Leases(const LeaseParts& parts) : p_(parts), share_(kLeaseQuantum) {}

absl::Status Leases::Recover(tuner::Records& records, int64_t epoch) {
  next_ = (epoch << 32) + 1;  // never one of an earlier epoch
  HEDDLE_ASSIGN_OR_RETURN(known, LoadLeases(records, p_.hosts, p_.devices));
  for (LeaseEntry& lease : known) {
    lease.last_seen = p_.options.steady();
    leases_.emplace(lease.id, std::move(lease));
  }
  return absl::OkStatus();
}

LeaseEntry* Leases::Find(int64_t id, const FleetSession& session) {
  const auto it = leases_.find(id);
  return it == leases_.end() || it->second.host != session.host ? nullptr : &it->second;
}

void Leases::Revoke(int64_t job) {
  for (auto& [id, lease] : leases_) lease.revoked |= lease.IsOf(job);
}

bool Leases::AnyOpen(int64_t job) const {
  return std::any_of(leases_.begin(), leases_.end(), [&](const auto& entry) {
    const LeaseEntry& lease = entry.second;
    return lease.IsOf(job) && !lease.expired && !lease.open.empty();
  });
}

// ------------------------------------------------------------------------------------------ giving

bool Leases::Repeats(const std::string& device, const v1::AcquireRequest& request,
                     const Reply<v1::Lease>& reply) {
  const auto it = hands_.find(device);
  if (it == hands_.end()) return false;
  Hand& hand = it->second;
  const bool same = hand.session == request.session() && hand.request_id == request.request_id();
  if (!same || hand.last == nullptr) return false;
  const auto unwritten = hand.unwritten.find(hand.last->id());
  if (unwritten == hand.unwritten.end()) {
    p_.outbox.Send<v1::Lease>(reply, *hand.last);
  } else {
    unwritten->second.push_back(reply);
  }
  return true;
}

void Leases::NewCall(const std::string& device, const v1::AcquireRequest& request) {
  Hand& hand = hands_[device];
  hand.session = request.session();
  hand.request_id = request.request_id();
  hand.last.reset();
}

LeaseEntry Leases::New(const FleetSession& session, const DeviceEntry& device,
                       const Workload& program, v1::L2Policy l2) {
  LeaseEntry entry;
  entry.id = next_++;
  entry.host = session.host;
  entry.boot_id = session.boot_id;
  entry.instance = session.instance;
  entry.device = device.info.name();
  entry.program = program;
  entry.environment = EnvironmentOf(device.info.device(), l2);
  entry.fastest_us = FastestOf(program, p_.devices.ModelOf(device), entry.environment.l2);
  entry.last_seen = entry.begun = p_.options.steady();
  return entry;
}

double Leases::FastestOf(const Workload& program, const DeviceModels::Model& model,
                         measure::L2Policy l2) {
  const auto key = std::tuple(program, model.revision, l2);
  const auto known = fastest_us_.find(key);
  if (known != fastest_us_.end()) return known->second;
  if (fastest_us_.size() >= kRemembered) fastest_us_.clear();
  return fastest_us_[key] = measure::FastestPlausible(*program, model.info.target, l2) * 1e6;
}

void Leases::Give(LeaseEntry entry, v1::Lease lease, const std::vector<TrialRow*>& candidates,
                  double seconds, Reply<v1::Lease> reply) {
  std::vector<TrialRow> rows;
  for (TrialRow* row : candidates) {
    row->state = v1::Trial::STATE_LEASED;
    row->lease = entry.id;
    row->device = entry.device;
    rows.push_back(*row);
    entry.open.insert(row->id);
    if (entry.is_finals && row->point == entry.default_point) entry.default_trial = row->id;
    v1::Candidate& candidate = *lease.add_candidates();
    candidate.set_id(row->id);
    candidate.set_steps(row->steps);
  }
  entry.count = static_cast<int>(rows.size());
  entry.charged_s = seconds;
  share_.Charge(entry.tenant, seconds);
  Hand& hand = hands_[entry.device];
  hand.last = std::make_shared<const v1::Lease>(std::move(lease));
  hand.unwritten[entry.id] = {std::move(reply)};
  p_.outbox.Write(
      [rows = std::move(rows)](tuner::Records& records) {
        for (const TrialRow& row : rows) HEDDLE_RETURN_IF_ERROR(LeaseTrial(records, row));
        return absl::OkStatus();
      },
      [this, given = hand.last, device = entry.device](const absl::Status& status) {
        if (!status.ok()) TakeBackUnwritten(given->id());
        auto asked = hands_[device].unwritten.extract(given->id());
        if (asked.empty()) return;
        for (Reply<v1::Lease>& waiting : asked.mapped()) {
          p_.outbox.Send<v1::Lease>(std::move(waiting),
                                    status.ok() ? absl::StatusOr<v1::Lease>(*given) : status);
        }
      },
      Persistence::kOnce);
  leases_.emplace(entry.id, std::move(entry));
}

void Leases::TakeBackUnwritten(int64_t lease) {
  const auto given = leases_.extract(lease);
  if (given.empty()) return;
  const LeaseEntry& taken = given.mapped();
  if (Hand& hand = hands_[taken.device]; hand.last != nullptr && hand.last->id() == lease) {
    hand.last.reset();
  }
  if (!taken.settled) share_.Charge(taken.tenant, -taken.charged_s);
  p_.changes.to_give.insert(taken.environment.device_name);
  if (taken.confirms > 0) {
    Confirmation again = *taken.confirmation;
    again.measured.erase(taken.host);
    --again.attempts;  // nobody was asked
    return p_.confirmations.Ask(taken.environment.device_name, std::move(again));
  }
  ActiveJob* job = p_.jobs.Find(taken.job);
  if (job == nullptr) return;
  for (auto id = taken.open.rbegin(); id != taken.open.rend(); ++id) {
    job->candidates.PutBack(*id, std::nullopt);
  }
  p_.changes.came_back.insert(taken.job);
}

// ----------------------------------------------------------------------------------------- reports

void Leases::Report(const Caller& caller, const v1::ReportRequest& request,
                    const Reply<v1::ReportResponse>& reply) {
  const auto session = p_.devices.FindSession(caller, request.session());
  if (!session.ok()) return p_.outbox.Send<v1::ReportResponse>(reply, session.status());
  auto report = std::make_shared<Reported>();
  report->request = request;
  report->host = (*session)->host;
  report->token = (*session)->token;
  report->now = p_.options.now();
  if (LeaseEntry* lease = Find(request.lease(), **session)) {
    lease->last_seen = p_.options.steady();
    report->lease = *lease;
    report->default_point = lease->default_point;
    const ActiveJob* job = p_.jobs.Find(lease->job);
    if (report->default_point.empty() && job != nullptr) {  // it is of an earlier server
      report->default_point = job->default_point;
    }
  }
  p_.outbox.Write(
      [report](tuner::Records& records) { return StoreReport(records, *report); },
      [=, this](const absl::Status& stored) {
        if (stored.ok()) TakeReport(*report);
        p_.outbox.Send<v1::ReportResponse>(
            reply, stored.ok() ? absl::StatusOr<v1::ReportResponse>(report->response) : stored);
      },
      Persistence::kOnce);
}

void Leases::TakeReport(const Reported& report) {
  if (!report.lease) return;
  const LeaseEntry& lease = *report.lease;
  for (const Reported::Written& w : report.written) {
    p_.metrics.CountTrial(w.stored, lease.environment.device_name);
    if (w.seq > 0) p_.outbox.Announce(lease.job, w.seq, false);
  }
  if (!report.lost.empty()) TakeBack(lease, report.lost, "its worker was lost");
  if (ActiveJob* job = p_.jobs.Find(lease.job)) {
    for (const Reported::Written& w : report.written) p_.searches.TakeResult(*job, w.id, w.result);
  }
  p_.changes.to_give.insert(lease.environment.device_name);
  for (const Finalist& final : report.finals) {
    if (final.is_default) NoteDefault(lease, final.row);
  }
  const auto entry = leases_.find(lease.id);
  if (entry == leases_.end()) return;
  LeaseEntry& now = entry->second;
  now.from.token = report.token;
  now.finals.insert(now.finals.end(), report.finals.begin(), report.finals.end());
  if (report.best) now.best = *report.best;
  const bool news = std::any_of(
      report.finals.begin(), report.finals.end(),
      [&](const Finalist& final) { return final.is_default || final.row.steps == now.best; });
  const auto& committed = report.response.committed();
  TakeOut(now, {committed.begin(), committed.end()}, news);
}

void Leases::NoteDefault(const LeaseEntry& lease, const TrialRow& row) {
  if (ActiveJob* job = p_.jobs.Find(lease.job)) {
    if (job->workload == row.workload) job->default_final = row;
  }
  p_.confirmations.AddDefault(lease.environment.device_name, lease.program,
                              ToProto(lease.environment.l2), row);
}

void Leases::TakeOut(LeaseEntry& lease, const std::vector<int64_t>& candidates, bool news) {
  // A best is confirmed with the default schedule beside it, which is waited for.
  const bool awaited = lease.open.contains(lease.default_trial);
  for (int64_t candidate : candidates) lease.open.erase(candidate);
  if ((news || awaited) && !lease.open.contains(lease.default_trial)) Confirm(lease);
  if (!lease.open.empty()) return;
  Settle(lease);
  p_.changes.came_back.insert(lease.job);
  leases_.erase(lease.id);
}

// ----------------------------------------------------------------------------------- confirmations

void Leases::Confirm(const LeaseEntry& lease) {
  const std::string& model = lease.environment.device_name;
  p_.changes.to_give.insert(model);
  if (lease.confirms == 0) {
    const auto winner =
        std::find_if(lease.finals.begin(), lease.finals.end(),
                     [&](const Finalist& final) { return final.row.steps == lease.best; });
    if (winner == lease.finals.end() || p_.hosts.Trusts(lease.host)) return;
    return p_.confirmations.Ask(model, ConfirmationOf(lease, *winner));
  }
  const Confirmation& asked = *lease.confirmation;
  const std::optional<Measured> again = asked.MeasuredBy(lease.finals);
  if (!again) return;
  const bool agrees = Agree(asked.found, *again);
  LogEvent(agrees ? Severity::kInfo : Severity::kWarning,
           agrees ? "best_confirmed" : "best_disputed",
           {{"job", JobName(lease.job)},
            {"host", lease.host},
            {"time_us", again->time_us},
            {"default_us", again->default_us},
            {"found_us", asked.found.time_us},
            {"found_default_us", asked.found.default_us}});
  if (!agrees && asked.attempts < kMaxConfirmations) p_.confirmations.Ask(model, asked);
}

Confirmation Leases::ConfirmationOf(const LeaseEntry& lease, const Finalist& winner) const {
  const ActiveJob* job = p_.jobs.Find(lease.job);
  Confirmation asked;
  asked.job = lease.job;
  asked.workload = winner.row.workload;
  asked.tenant = lease.tenant;
  asked.program = lease.program;
  asked.l2 = ToProto(lease.environment.l2);
  // Other inputs than those that it was found right on.
  asked.seed = 1 + std::max<uint64_t>(1, job == nullptr ? 1 : job->spec.seed());
  asked.measured[lease.host] = lease.from.token;
  asked.default_point = lease.default_point;
  asked.found.time_us = winner.time_us;
  asked.number = p_.confirmations.NextNumber();
  asked.AddRow(winner.row);
  for (const Finalist& final : lease.finals) {
    if (!final.is_default || final.row.steps == winner.row.steps) continue;
    asked.found.default_us = final.time_us;
    asked.AddDefault(final.row);
  }
  // Else it was another lease's: it is measured beside the best all the same.
  if (job != nullptr && job->default_final) asked.AddDefault(*job->default_final);
  return asked;
}

void Leases::AskAgain(const LeaseEntry& lease) {
  if (lease.confirmation->attempts >= kMaxConfirmations) return;
  Confirmation again = *lease.confirmation;
  again.measured.erase(lease.host);
  p_.confirmations.Ask(lease.environment.device_name, std::move(again));
}

// ------------------------------------------------------------------------------------- coming back

void Leases::Return(const LeaseEntry& lease, const std::vector<int64_t>& ids, Blame blame,
                    const std::string& how) {
  auto given = std::make_shared<std::vector<Given>>();
  p_.outbox.Write(
      [=, now = p_.options.now()](tuner::Records& records) {
        HEDDLE_ASSIGN_OR_RETURN(stored, StoreReturn(records, lease, ids, blame, how, now));
        *given = std::move(stored);
        return absl::OkStatus();
      },
      [=, this](const absl::Status& status) {
        if (!status.ok()) return;
        TakeBack(lease, *given, how);
        const auto entry = leases_.find(lease.id);
        if (entry == leases_.end()) return;
        if (entry->second.expired) {  // what it had open may still come
          p_.changes.came_back.insert(lease.job);
        } else {
          TakeOut(entry->second, ids, false);
        }
      },
      Persistence::kUntilStored);
}

void Leases::TakeBack(const LeaseEntry& lease, const std::vector<Given>& given,
                      const std::string& how) {
  for (const Given& g : given) {
    if (g.back) continue;
    p_.metrics.quarantined.Increment();
    LogEvent(
        Severity::kWarning, "quarantined",
        {{"job", JobName(lease.job)}, {"trial", g.id}, {"device", lease.device}, {"how", how}});
    if (g.seq > 0) p_.outbox.Announce(lease.job, g.seq, false);
  }
  if (ActiveJob* job = p_.jobs.Find(lease.job)) {
    for (const Given& g : given) {
      if (g.back) {
        job->candidates.PutBack(g.id, g.kills);
      } else {
        p_.searches.TakeResult(*job, g.id, g.result);
      }
    }
  }
  if (lease.confirms > 0 && !given.empty()) AskAgain(lease);
  p_.changes.to_give.insert(lease.environment.device_name);
}

bool Leases::AllRefuse(ActiveJob& job, const FleetSession& session, const std::string& why) {
  job.refused[session.host] = session.token;
  LogEvent(Severity::kWarning, "workload_refused",
           {{"job", JobName(job.id)},
            {"host", session.host},
            {"token", session.token},
            {"detail", why}});
  if (p_.hosts.Trusts(session.host)) return true;
  return std::any_of(job.refused.begin(), job.refused.end(), [&](const auto& other) {
    return IsAnother(other.first, other.second, session.host, session.token);
  });
}

void Leases::Release(const Caller& caller, const v1::ReleaseRequest& request,
                     const Reply<v1::ReleaseResponse>& reply) {
  const auto session = p_.devices.FindSession(caller, request.session());
  if (!session.ok()) return p_.outbox.Send<v1::ReleaseResponse>(reply, session.status());
  const LeaseEntry* lease = Find(request.lease(), **session);
  if (lease == nullptr) {
    return p_.outbox.Send<v1::ReleaseResponse>(reply, v1::ReleaseResponse());
  }
  std::vector<int64_t> ids;
  for (int64_t id : request.unstarted()) {
    if (lease->open.contains(id)) ids.push_back(id);
  }
  ActiveJob* job = p_.jobs.Find(lease->job);
  const bool mine = job != nullptr && lease->IsOf(job->id) && !job->ending &&
                    lease->program == job->workloads[job->workload];
  bool is_result = false;
  if (request.fault() == v1::ReleaseRequest::FAULT_WORKLOAD && mine) {
    is_result = !AllRefuse(*job, **session, request.detail());
    if (!is_result) {
      p_.jobs.End(*job, v1::Job::STATE_FAILED, v1::Job::STOP_REASON_UNSPECIFIED, request.detail());
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
  Return(*lease, ids, Blame::kNone, "");
  p_.outbox.Send<v1::ReleaseResponse>(reply, v1::ReleaseResponse());
}

void Leases::Settle(LeaseEntry& lease) {
  if (std::exchange(lease.settled, true) || lease.charged_s <= 0) return;
  const SteadyTime now = p_.options.steady();
  // It may have waited for the one before.
  Hand& hand = hands_[lease.device];
  const SteadyTime begun = std::max(lease.begun, std::exchange(hand.free_since, now));
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(now - begun));
  share_.Charge(lease.tenant, seconds - lease.charged_s);
  p_.budget.Add(lease.tenant, seconds);
  if (ActiveJob* job = p_.jobs.Find(lease.job); job != nullptr && lease.count > 0) {
    job->pace_s = (1 - kNewest) * job->pace_s + kNewest * seconds / lease.count;
  }
}

// ----------------------------------------------------------------------------------------- silence

void Leases::Beat(FleetSession& session, const v1::HeartbeatRequest& request,
                  v1::HeartbeatResponse& response) {
  const std::set<int64_t> claimed(request.running().begin(), request.running().end());
  std::set<int64_t> running;  // nobody brings another host's candidates into suspicion
  for (int64_t id : request.leases()) {
    LeaseEntry* lease = Find(id, session);
    if (lease == nullptr || lease->expired || lease->revoked) response.add_revoke(id);
    if (lease == nullptr) continue;
    lease->last_seen = p_.options.steady();
    lease->running.clear();
    std::set_intersection(claimed.begin(), claimed.end(), lease->open.begin(), lease->open.end(),
                          std::inserter(lease->running, lease->running.end()));
    running.insert(lease->running.begin(), lease->running.end());
  }
  std::vector<int64_t> started, stopped;
  std::set_difference(running.begin(), running.end(), session.running.begin(),
                      session.running.end(), std::back_inserter(started));
  std::set_difference(session.running.begin(), session.running.end(), running.begin(),
                      running.end(), std::back_inserter(stopped));
  if (started.empty() && stopped.empty()) return;
  session.running = std::move(running);
  p_.outbox.Write([=](tuner::Records& records) { return SetRunning(records, started, stopped); },
                  [=, this, id = session.id](const absl::Status& status) {
                    FleetSession* known = p_.devices.Session(id);
                    if (status.ok() || known == nullptr) return;
                    // The next heartbeat has it written.
                    for (int64_t candidate : started) known->running.erase(candidate);
                    known->running.insert(stopped.begin(), stopped.end());
                  },
                  Persistence::kOnce);
}

void Leases::BlameForDeath(const FleetSession& now) {
  for (auto& [id, lease] : leases_) {
    if (!lease.DiedBefore(now)) continue;
    if (!lease.expired) {
      Expire(lease, Blame::kRunning);
    } else if (!lease.running.empty()) {
      Return(lease, {lease.running.begin(), lease.running.end()}, Blame::kLater, "its host died");
      lease.running.clear();
    }
  }
}

void Leases::Expire(LeaseEntry& lease, Blame blame) {
  lease.expired = true;
  Settle(lease);
  p_.metrics.lease_expiries.Increment();
  LogEvent(Severity::kWarning, "lease_expired",
           {{"lease", lease.id},
            {"job", JobName(lease.job)},
            {"device", lease.device},
            {"open", lease.open.size()}});
  Return(lease, {lease.open.begin(), lease.open.end()}, blame, "its host died");
  if (blame == Blame::kRunning) lease.running.clear();
  // A best of it waits no longer for the default schedule's time.
  if (lease.open.contains(lease.default_trial)) Confirm(lease);
}

void Leases::Expire() {
  const SteadyTime now = p_.options.steady();
  for (auto it = leases_.begin(); it != leases_.end();) {
    LeaseEntry& lease = it->second;
    if (lease.expired && now - lease.last_seen > kLateResults) {
      it = leases_.erase(it);
      continue;
    }
    ++it;
    if (lease.expired) continue;
    // Of a daemon that is heard of and never comes to its end: the job's finals, its searcher and
    // its cancellation would wait for good. One that was loaded has no count: silence ends it.
    const bool is_endless =
        lease.count > 0 && now - lease.begun > kLongestLease + lease.count * kLongestCandidate;
    if (is_endless || now - lease.last_seen > p_.options.lease) Expire(lease, Blame::kNone);
  }
}

}  // namespace heddle::server
