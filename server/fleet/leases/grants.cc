#include "server/fleet/leases/grants.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/errors.h"

namespace heddle::server {
namespace {

// Leases a device takes from one job before others that wait get their turn: a change of workload
// costs its daemon new inputs and a new reference.
constexpr int kTurn = 4;

v1::Lease MessageOf(const LeaseEntry& entry, v1::L2Policy l2, uint64_t seed) {
  v1::Lease lease;
  lease.set_id(entry.id);
  lease.set_kind(entry.is_finals ? v1::Lease::KIND_FINALS : v1::Lease::KIND_SCREENING);
  lease.set_job(JobName(entry.job));
  lease.set_workload(entry.program->canonical_text);
  lease.set_l2(l2 == v1::L2_POLICY_UNSPECIFIED ? v1::L2_POLICY_COLD : l2);
  lease.set_seed(seed);
  return lease;
}

}  // namespace

// ----------------------------------------------------------------------------------------- waiting

void Grants::Acquire(const Caller& caller, const v1::AcquireRequest& request,
                     Reply<v1::Lease> reply) {
  const auto session = p_.devices.FindSession(caller, request.session());
  if (!session.ok()) return p_.outbox.Send<v1::Lease>(std::move(reply), session.status());
  const DeviceEntry* device = p_.devices.Find(**session, request.device());
  if (device == nullptr) {
    return p_.outbox.Send<v1::Lease>(
        std::move(reply), WrongField("device", absl::StrCat("the session has no device \"",
                                                            request.device(), "\"; register it")));
  }
  const std::string& key = device->info.name();
  if (leases_.Repeats(key, request, reply)) return;
  std::list<Waiter>& waiters = waiters_[device->model()];
  // A device waits once: a call that was given up by its daemon gets nothing.
  std::erase_if(waiters, [&](Waiter& waiter) {
    if (waiter.device != key) return false;
    p_.outbox.Send<v1::Lease>(std::move(waiter.reply), v1::Lease());
    return true;
  });
  leases_.NewCall(key, request);
  const SteadyTime deadline =
      p_.options.steady() + absl::Seconds(SecondsOf(request.wait_duration()));
  waiters.push_back({request.session(), key, request.max(), deadline, std::move(reply)});
  next_deadline_ = std::min(next_deadline_, deadline);
  p_.changes.to_give.insert(device->model());
}

void Grants::Expire(bool all) {
  const SteadyTime now = p_.options.steady();
  if (!all && now < next_deadline_) return;
  next_deadline_ = SteadyTime::InfiniteFuture();
  for (auto& [model, waiters] : waiters_) {
    std::erase_if(waiters, [&](Waiter& waiter) {
      if (!all && now < waiter.deadline) {
        next_deadline_ = std::min(next_deadline_, waiter.deadline);
        return false;
      }
      p_.outbox.Send<v1::Lease>(std::move(waiter.reply), v1::Lease());
      return true;
    });
  }
}

void Grants::Serve(const std::string& model) {
  const auto of_model = waiters_.find(model);
  if (of_model == waiters_.end()) return;
  std::list<Waiter>& waiters = of_model->second;
  for (auto it = waiters.begin(); it != waiters.end() && AnyWork(model);) {
    const DeviceEntry* device = p_.devices.Find(it->device);
    if (device == nullptr || device->session != it->session) {
      p_.outbox.Send<v1::Lease>(std::move(it->reply), v1::Lease());
      it = waiters.erase(it);
    } else if (device->usable && Give(*it, *device)) {
      it = waiters.erase(it);
    } else {
      ++it;
    }
  }
}

// ---------------------------------------------------------------------------------------- choosing

bool Grants::AnyWork(const std::string& model) const {
  if (p_.confirmations.AnyWait(model)) return true;
  const auto& searching = queue_.searching();
  return std::any_of(searching.begin(), searching.end(), [&](const auto& s) {
    if (s.second.model != model) return false;
    const ActiveJob* job = p_.jobs.Find(s.first);
    return job != nullptr && job->HasWork();
  });
}

bool Grants::WorksOn(const ActiveJob& job, const DeviceEntry& device) {
  ++matches_;
  if (device.model() != job.model()) return false;
  const std::string& asked = job.spec.device().device();
  return asked.empty() || asked == device.info.name();
}

bool Grants::OthersRemain(const ActiveJob& job) const {
  const auto& all = p_.devices.all();
  return std::any_of(all.begin(), all.end(), [&](const auto& entry) {
    const DeviceEntry& device = entry.second;
    return device.usable && !job.refused.contains(HostOf(entry.first)) &&
           device.model() == job.model();
  });
}

// Of the tenant whose turn it is, the job that waits longest; the device's own one for a while.
ActiveJob* Grants::ChooseJob(const DeviceEntry& device) {
  const std::string host = HostOf(device.info.name());
  const auto turns = turns_.find(device.info.name());
  std::map<std::string, ActiveJob*> longest;  // by tenant
  ActiveJob* own = nullptr;
  for (const auto& [id, searching] : queue_.searching()) {
    ActiveJob* job = p_.jobs.Find(id);
    if (job == nullptr || !job->HasWork() || !WorksOn(*job, device)) continue;
    // Not to who refuses it, while there is another one.
    if (job->refused.contains(host) && OthersRemain(*job)) continue;
    if (turns != turns_.end() && turns->second.job == id && turns->second.count < kTurn) own = job;
    ActiveJob*& first = longest[job->tenant];
    if (first == nullptr || job->served < first->served) first = job;
  }
  if (longest.empty()) return nullptr;
  std::vector<std::string> tenants;
  for (const auto& [tenant, job] : longest) tenants.push_back(tenant);
  const std::string next = leases_.share().Next(tenants);
  return own != nullptr && leases_.share().HasCredit(own->tenant) ? own : longest.at(next);
}

int64_t Grants::JobOf(const std::string& device) const {
  const auto turns = turns_.find(device);
  return turns == turns_.end() ? 0 : turns->second.job;
}

// ------------------------------------------------------------------------------------------ giving

bool Grants::Give(Waiter& waiter, const DeviceEntry& device) {
  const FleetSession& session = *p_.devices.Session(waiter.session);
  auto confirmation = p_.confirmations.Take(device.model(), session.host, session.token);
  if (confirmation) {
    GiveOf(*std::move(confirmation), waiter, device);
    return true;
  }
  ActiveJob* job = ChooseJob(device);
  if (job != nullptr) GiveOf(*job, waiter, device);
  return job != nullptr;
}

void Grants::GiveOf(ActiveJob& job, Waiter& waiter, const DeviceEntry& device) {
  job.served = ++round_;
  Turns& turns = turns_[waiter.device];
  turns = {job.id, turns.job == job.id ? turns.count + 1 : 1};
  const FleetSession& session = *p_.devices.Session(waiter.session);
  LeaseEntry entry = leases_.New(session, device, job.workloads[job.workload], job.spec.l2());
  entry.job = job.id;
  entry.tenant = job.tenant;
  entry.from = {job.tenant, session.token, entry.host, JobName(job.id)};
  entry.default_point = job.default_point;
  entry.is_finals = job.candidates.FinalsWait();
  v1::Lease lease = MessageOf(entry, job.spec.l2(), std::max<uint64_t>(1, job.spec.seed()));
  lease.set_best_us(job.best_us);
  std::vector<TrialRow*> rows;
  if (entry.is_finals) {
    *lease.mutable_budget_duration() = DurationOf(job.candidates.finals_budget_s());
    rows = job.candidates.TakeFinals();
  } else {
    // What there is, shared by the devices that could take some.
    const auto fair = static_cast<int>(job.candidates.waiting()) / std::max(1, job.usable);
    rows = job.candidates.Take(std::clamp(fair, 1, waiter.max));
  }
  const double seconds = job.pace_s * static_cast<double>(rows.size());
  leases_.Give(std::move(entry), std::move(lease), rows, seconds, std::move(waiter.reply));
}

void Grants::GiveOf(Confirmation confirmation, Waiter& waiter, const DeviceEntry& device) {
  const FleetSession& session = *p_.devices.Session(waiter.session);
  confirmation.measured[session.host] = session.token;
  ++confirmation.attempts;
  auto given = std::make_shared<Confirmation>(std::move(confirmation));
  LeaseEntry entry = leases_.New(session, device, given->program, given->l2);
  entry.job = given->job;
  entry.tenant = given->tenant;
  entry.from = {entry.tenant, session.token, entry.host, JobName(entry.job)};
  entry.is_finals = true;
  entry.default_point = given->default_point;
  entry.confirms = given->attempts;
  v1::Lease lease = MessageOf(entry, given->l2, given->seed);
  *lease.mutable_budget_duration() = DurationOf(kConfirmationSeconds);
  std::vector<TrialRow*> rows;
  for (TrialRow& row : given->rows) {
    row.id = p_.jobs.next_trial()++;
    row.kills = 0;
    rows.push_back(&row);
  }
  entry.confirmation = given;
  const auto seconds = static_cast<double>(rows.size());
  leases_.Give(std::move(entry), std::move(lease), rows, seconds, std::move(waiter.reply));
}

}  // namespace heddle::server
