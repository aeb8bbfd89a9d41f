// No host decides alone what is served as validated: what one has found another one measures.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "measure/run/messages.h"
#include "proto/values.h"
#include "server/db/confirmations.h"
#include "server/db/convert.h"
#include "server/fleet/fleet_state.h"

namespace heddle::server {
namespace {

// Hosts that are asked for their word on one schedule, and bests of a model that wait for one: the
// oldest are given up, and found again when they are tuned again.
constexpr int kMaxAttempts = 3;
constexpr size_t kMaxWaiting = 1000;
// For a schedule and the default one.
constexpr double kBudgetSeconds = 10;

}  // namespace

bool FleetState::Trusts(const std::string& host) const {
  auto it = hosts_.find(host);
  return it != hosts_.end() && it->second.trusted;
}

void FleetState::Ask(const std::string& model, Confirmation confirmation) {
  std::deque<Confirmation>& waiting = uses_[model].confirmations;
  const auto other = std::find_if(waiting.begin(), waiting.end(),
                                  [&](const Confirmation& c) { return c.Concerns(confirmation); });
  if (other != waiting.end()) {
    if (other->number > confirmation.number) return;
    waiting.erase(other);
  }
  waiting.push_back(std::move(confirmation));
  if (waiting.size() > kMaxWaiting) waiting.pop_front();
}

void FleetState::AskAgain(const LeaseEntry& lease) {
  if (lease.confirmation->attempts >= kMaxAttempts) return;
  Confirmation again = *lease.confirmation;
  again.measured.erase(lease.host);
  Ask(lease.environment.device_name, std::move(again));
}

FleetState::Confirmation* FleetState::ChooseConfirmation(const DeviceEntry& device) {
  const std::string host = HostOf(device.info.id());
  auto session = sessions_.find(device.session);
  if (session == sessions_.end()) return nullptr;
  for (Confirmation& c : uses_[device.info.device().target().name()].confirmations) {
    ++matches_;
    const bool another =
        std::all_of(c.measured.begin(), c.measured.end(), [&](const auto& measured) {
          return IsAnother(measured.first, measured.second, host, session->second.token);
        });
    if (another) return &c;
  }
  return nullptr;
}

void FleetState::GrantConfirmation(Waiter waiter, DeviceEntry& device, Confirmation& chosen) {
  auto confirmation = std::make_shared<Confirmation>(chosen);
  std::erase_if(uses_[device.info.device().target().name()].confirmations,
                [&](const Confirmation& c) { return &c == &chosen; });
  const FleetSession& session = sessions_.at(waiter.session);
  confirmation->measured[session.host] = session.token;
  ++confirmation->attempts;
  LeaseEntry entry = NewLease(waiter, device, confirmation->program, confirmation->l2);
  entry.job = confirmation->job;
  entry.tenant = confirmation->tenant;
  entry.from = {entry.tenant, session.token, entry.host, JobName(entry.job)};
  entry.is_finals = true;
  entry.default_point = confirmation->default_point;
  entry.confirms = confirmation->attempts;
  v1::Lease lease;
  lease.set_id(entry.id);
  lease.set_kind(v1::Lease::KIND_FINALS);
  lease.set_job(JobName(entry.job));
  lease.set_workload(entry.program->canonical_text);
  lease.set_l2(confirmation->l2 == v1::L2_POLICY_UNSPECIFIED ? v1::L2_POLICY_COLD
                                                             : confirmation->l2);
  lease.set_seed(confirmation->seed);
  *lease.mutable_budget_duration() = DurationOf(kBudgetSeconds);
  std::vector<TrialRow*> rows;
  for (TrialRow& row : confirmation->rows) {
    row.id = next_trial_++;
    row.kills = 0;
    rows.push_back(&row);
  }
  entry.count = static_cast<int>(rows.size());
  entry.charged_s = entry.count;
  lease_share_.Charge(entry.tenant, entry.charged_s);
  entry.confirmation = confirmation;
  GiveLease(std::move(waiter), device, std::move(entry), std::move(lease), rows);
}

void FleetState::AskConfirmation(const LeaseEntry& lease, int64_t token,
                                 const std::vector<Finalist>& finals, const std::string& best) {
  const auto winner = std::find_if(finals.begin(), finals.end(),
                                   [&](const Finalist& final) { return final.row.steps == best; });
  if (lease.confirms > 0) {
    JudgeConfirmation(lease, finals);
  } else if (winner != finals.end() && !Trusts(lease.host)) {
    Ask(lease.environment.device_name, ConfirmationOf(lease, token, *winner, finals));
  }
  ServeWaiters(lease.environment.device_name);
}

FleetState::Confirmation FleetState::ConfirmationOf(const LeaseEntry& lease, int64_t token,
                                                    const Finalist& winner,
                                                    const std::vector<Finalist>& finals) {
  ActiveJob* job = FindJob(lease.job);
  Confirmation asked;
  asked.job = lease.job;
  asked.workload = winner.row.workload;
  asked.tenant = lease.tenant;
  asked.program = lease.program;
  asked.l2 = ToProto(lease.environment.l2);
  // Other inputs than those that it was found right on.
  asked.seed = 1 + std::max<uint64_t>(1, job == nullptr ? 1 : job->spec.seed());
  asked.measured[lease.host] = token;
  asked.default_point = lease.default_point;
  asked.time_us = winner.time_us;
  asked.number = next_confirmation_++;
  for (const Finalist& final : finals) {
    if (final.is_default && &final != &winner) asked.default_us = final.time_us;
    if (&final != &winner && !final.is_default) continue;
    TrialRow row = final.row;
    row.lease = 0;
    row.running = false;
    asked.rows.insert(&final == &winner ? asked.rows.begin() : asked.rows.end(), std::move(row));
  }
  return asked;
}

void FleetState::JudgeConfirmation(const LeaseEntry& lease, const std::vector<Finalist>& finals) {
  const Confirmation& asked = *lease.confirmation;
  const std::string& schedule = asked.rows.front().steps;
  double time_us = 0, default_us = 0;
  bool measured = false;
  for (const Finalist& final : finals) {
    measured |= final.row.steps == schedule;
    (final.row.steps == schedule ? time_us : default_us) = final.time_us;
  }
  if (!measured) return;  // the report was sent again, or is of the default schedule alone
  const bool agrees = Agree({asked.time_us, asked.default_us}, {time_us, default_us});
  LogEvent(agrees ? Severity::kInfo : Severity::kWarning,
           agrees ? "best_confirmed" : "best_disputed",
           {{"job", JobName(lease.job)},
            {"host", lease.host},
            {"time_us", time_us},
            {"default_us", default_us},
            {"found_us", asked.time_us},
            {"found_default_us", asked.default_us}});
  if (!agrees && asked.attempts < kMaxAttempts) Ask(lease.environment.device_name, asked);
}

}  // namespace heddle::server
