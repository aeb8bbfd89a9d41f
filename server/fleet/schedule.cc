// Who gets a searcher, and whose candidates a device gets: fair among tenants, and looked at only
// when something has changed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "measure/run/messages.h"
#include "server/db/convert.h"
#include "server/db/fleet_store.h"
#include "server/fleet/fleet_state.h"

namespace heddle::server {
namespace {

// Leases a device takes from one job before others that wait get their turn: a change of workload
// costs its daemon new inputs and a new reference.
constexpr int kTurn = 4;
// How quickly what is known of a job's candidates follows what they take.
constexpr double kNewest = 0.3;

}  // namespace

// ------------------------------------------------------------------------------- jobs and
// searchers

std::string FleetState::WaitsFor(const ActiveJob& job) {
  const v1::DeviceSelector& asked = job.spec.device();
  if (!asked.device().empty()) return absl::StrCat("device ", asked.device());
  const std::string& bound = job.device.target().name();
  if (!bound.empty()) return absl::StrCat("model ", bound);
  if (!asked.model().empty()) return absl::StrCat("model ", asked.model());
  return absl::StrCat("api ", asked.api());
}

// The one that has the most devices for each job at work on it.
std::optional<std::string> FleetState::ChooseModel(const ActiveJob& job) {
  const v1::DeviceSelector& asked = job.spec.device();
  const std::string& bound = job.device.target().name();
  std::string only = bound.empty() ? asked.model() : bound;
  if (!asked.device().empty()) {
    auto device = devices_.find(asked.device());
    ++matches_;
    if (device == devices_.end() || !device->second.usable) return std::nullopt;
    only = device->second.info.device().target().name();
  }
  std::optional<std::string> best;
  double most = 0;
  const auto consider = [&](const std::string& name, const ModelUse& use) {
    ++matches_;
    if (use.usable == 0 || (!bound.empty() && bound != name)) return;
    if (!asked.model().empty() && asked.model() != name) return;
    if (!asked.api().empty() && asked.api() != models_.Find(name)->device.target().api()) return;
    const double share = static_cast<double>(use.usable) / (1 + use.searching);
    if (share <= most) return;
    most = share;
    best = name;
  };
  if (only.empty()) {
    for (const auto& [name, use] : uses_) consider(name, use);
  } else if (auto it = uses_.find(only); it != uses_.end()) {
    consider(it->first, it->second);
  }
  return best;
}

void FleetState::Park(ActiveJob& job) {
  parked_[WaitsFor(job)].insert(job.id);
  SetJobState(job, v1::Job::STATE_WAITING_DEVICE);
}

void FleetState::Unpark(const ActiveJob& job) {
  auto it = parked_.find(WaitsFor(job));
  if (it == parked_.end()) return;
  it->second.erase(job.id);
  if (it->second.empty()) parked_.erase(it);
}

void FleetState::Enqueue(ActiveJob& job) {
  if (job.searching || job.ready || job.ending || job.cancelling) return;
  if (!ChooseModel(job)) return Park(job);
  Unpark(job);
  const bool stays = searchers_ >= options_.max_searchers;
  if (job.state == v1::Job::STATE_RUNNING ||
      (stays && job.state == v1::Job::STATE_WAITING_DEVICE)) {
    SetJobState(job, v1::Job::STATE_QUEUED);
  }
  job.ready = true;
  ready_[job.tenant].push_back(job.id);
}

void FleetState::Refresh(DeviceEntry& device) {
  const bool usable = Usable(device);
  if (usable == device.usable) return;
  device.usable = usable;
  const std::string& model = device.info.device().target().name();
  ModelUse& use = uses_[model];
  use.usable += usable ? 1 : -1;
  if (!usable) return;
  use.came.insert(device.info.id());
  if (SteadyNow() - use.matched >= options_.match_every) MatchParked(model);
}

void FleetState::MatchParked(const std::string& model) {
  ModelUse& use = uses_[model];
  use.matched = SteadyNow();
  std::vector<std::string> keys{absl::StrCat("model ", model), "api ",
                                absl::StrCat("api ", models_.Find(model)->device.target().api())};
  for (const std::string& device : use.came) keys.push_back(absl::StrCat("device ", device));
  use.came.clear();
  for (const std::string& key : keys) {
    auto parked = parked_.find(key);
    if (parked == parked_.end()) continue;
    const std::set<int64_t> jobs = parked->second;
    for (int64_t id : jobs) Enqueue(jobs_.at(id));
  }
}

bool FleetState::UsedUp(const std::string& tenant) const {
  auto used = used_s_.find(tenant);
  return options_.device_seconds_per_day > 0 && used != used_s_.end() &&
         used->second >= options_.device_seconds_per_day;
}

std::vector<std::string> FleetState::ReadyTenants() const {
  std::vector<std::string> tenants;
  for (const auto& [tenant, queue] : ready_) {
    const auto running =
        std::count_if(searching_.begin(), searching_.end(),
                      [&, t = &tenant](const auto& s) { return s.second.tenant == *t; });
    if (options_.running_jobs_per_tenant > 0 && running >= options_.running_jobs_per_tenant) {
      continue;
    }
    if (!UsedUp(tenant)) tenants.push_back(tenant);
  }
  return tenants;
}

void FleetState::StartJobs() {
  while (!draining_ && searchers_ < options_.max_searchers) {
    const std::vector<std::string> tenants = ReadyTenants();
    if (tenants.empty()) return;
    auto queue = ready_.find(searcher_share_.Next(tenants));
    ActiveJob* job = FindJob(queue->second.front());
    queue->second.pop_front();
    if (queue->second.empty()) ready_.erase(queue);
    if (job == nullptr || !job->ready) continue;
    job->ready = false;
    if (job->ending || job->cancelling) continue;
    if (auto model = ChooseModel(*job)) {
      StartJob(*job, *model);
    } else {
      Park(*job);
    }
  }
}

void FleetState::StartJob(ActiveJob& job, const std::string& model) {
  if (job.device.target().name().empty()) {
    metrics_.queue_wait_seconds.Observe(absl::ToDoubleSeconds(Now() - job.created));
  }
  job.device = models_.Find(model)->device;
  job.usable = UsableDevices(job);
  job.stop = false;
  job.searching = true;
  job.last_usable = job.booked = SteadyNow();
  searching_[job.id] = {job.tenant, model, SteadyNow()};
  ++uses_[model].searching;
  searcher_share_.Charge(job.tenant, absl::ToDoubleSeconds(options_.slice));
  ++searchers_;
  SetJobState(job, v1::Job::STATE_RUNNING);
  effects_.searches.push_back(job.id);
}

void FleetState::ForgetSearching(int64_t job) {
  auto it = searching_.find(job);
  --uses_[it->second.model].searching;
  const absl::Duration left = options_.slice - (SteadyNow() - it->second.slice_begun);
  if (left > absl::ZeroDuration()) {
    searcher_share_.Charge(it->second.tenant, -absl::ToDoubleSeconds(left));
  }
  searching_.erase(it);
}

void FleetState::EndSlices() {
  for (const auto& [id, searching] : searching_) {
    ActiveJob* job = FindJob(id);
    if (job != nullptr && UsedUp(searching.tenant)) job->stop = true;
  }
  if (searchers_ < options_.max_searchers) return;
  size_t waiting = 0;
  for (const std::string& tenant : ReadyTenants()) waiting += ready_.at(tenant).size();
  for (auto& [id, searching] : searching_) {
    if (SteadyNow() - searching.slice_begun < options_.slice) continue;
    ActiveJob* job = FindJob(id);
    if (job == nullptr || job->stop) continue;
    if (waiting == 0) {
      searching.slice_begun = SteadyNow();  // for nothing: nobody wants it
    } else if (!job->finals) {              // which are bounded, and would be begun again
      job->stop = true;
      --waiting;
    }
  }
}

// ----------------------------------------------------------------------------- candidates and
// devices

bool FleetState::WorksOn(const ActiveJob& job, const DeviceEntry& device) {
  ++matches_;
  if (device.info.device().target().name() != job.device.target().name()) return false;
  const std::string& asked = job.spec.device().device();
  return asked.empty() || asked == device.info.id();
}

int FleetState::UsableDevices(const ActiveJob& job) {
  ++matches_;
  const std::string& asked = job.spec.device().device();
  if (asked.empty()) return uses_[job.device.target().name()].usable;
  auto device = devices_.find(asked);
  return device != devices_.end() && device->second.usable ? 1 : 0;
}

bool FleetState::HasWork(const ActiveJob& job) {
  return !job.stop && (!job.queue.empty() || (job.finals && job.finals->queued));
}

std::vector<int64_t> FleetState::WaitingFinals(const ActiveJob& job) {
  std::vector<int64_t> waiting;
  if (!job.finals) return waiting;
  for (int64_t id : job.finals->ids) {
    const auto candidate = job.candidates.find(id);
    if (candidate == job.candidates.end()) continue;
    if (candidate->second.row.state == v1::Trial::STATE_PROPOSED) waiting.push_back(id);
  }
  return waiting;
}

bool FleetState::AnyWork(const std::string& model) {
  if (!uses_[model].confirmations.empty()) return true;
  return std::any_of(searching_.begin(), searching_.end(), [&](const auto& s) {
    if (s.second.model != model) return false;
    const ActiveJob* job = FindJob(s.first);
    return job != nullptr && HasWork(*job);
  });
}

// Of the tenant whose turn it is, the job that waits longest; the device's own one for a while.
FleetState::ActiveJob* FleetState::ChooseJob(const DeviceEntry& device) {
  const std::string host = HostOf(device.info.id());
  std::map<std::string, ActiveJob*> longest;  // by tenant
  ActiveJob* own = nullptr;
  for (const auto& [id, searching] : searching_) {
    ActiveJob* job = FindJob(id);
    if (job == nullptr || !HasWork(*job) || !WorksOn(*job, device)) continue;
    // Not to who refuses it, while there is another one.
    if (job->refused.contains(host) && OthersRemain(*job)) continue;
    if (id == device.job && device.turns < kTurn) own = job;
    ActiveJob*& first = longest[job->tenant];
    if (first == nullptr || job->served < first->served) first = job;
  }
  if (longest.empty()) return nullptr;
  std::vector<std::string> tenants;
  for (const auto& [tenant, job] : longest) tenants.push_back(tenant);
  const std::string next = lease_share_.Next(tenants);
  return own != nullptr && lease_share_.HasCredit(own->tenant) ? own : longest.at(next);
}

bool FleetState::OthersRemain(const ActiveJob& job) const {
  return std::any_of(devices_.begin(), devices_.end(), [&](const auto& entry) {
    const DeviceEntry& device = entry.second;
    return device.usable && !job.refused.contains(HostOf(entry.first)) &&
           device.info.device().target().name() == job.device.target().name();
  });
}

void FleetState::ServeWaiters(const std::string& model) {
  ModelUse& use = uses_[model];
  for (auto it = use.waiters.begin(); it != use.waiters.end() && AnyWork(model);) {
    auto device = devices_.find(it->device);
    const bool ours = device != devices_.end() && device->second.session == it->session;
    if (!ours) {
      Send<v1::Lease>(std::move(it->reply), v1::Lease());
      it = use.waiters.erase(it);
      continue;
    }
    const bool takes = device->second.usable && !draining_;
    Confirmation* confirmation = takes ? ChooseConfirmation(device->second) : nullptr;
    ActiveJob* job = takes && confirmation == nullptr ? ChooseJob(device->second) : nullptr;
    if (confirmation == nullptr && job == nullptr) {
      ++it;
      continue;
    }
    Waiter waiter = std::move(*it);
    it = use.waiters.erase(it);
    if (confirmation != nullptr) {
      GrantConfirmation(std::move(waiter), device->second, *confirmation);
    } else {
      Grant(std::move(waiter), device->second, *job);
    }
  }
}

void FleetState::ExpireWaiters() {
  const SteadyTime now = SteadyNow();
  if (!draining_ && now < next_deadline_) return;
  next_deadline_ = SteadyTime::InfiniteFuture();
  for (auto& [model, use] : uses_) {
    std::erase_if(use.waiters, [&](Waiter& waiter) {
      if (!draining_ && now < waiter.deadline) {
        next_deadline_ = std::min(next_deadline_, waiter.deadline);
        return false;
      }
      Send<v1::Lease>(std::move(waiter.reply), v1::Lease());
      return true;
    });
  }
}

// ---------------------------------------------------------------------------------------
// accounting

void FleetState::Settle(LeaseEntry& lease) {
  if (std::exchange(lease.settled, true) || lease.charged_s <= 0) return;
  const SteadyTime now = SteadyNow();
  SteadyTime begun = lease.begun;
  auto device = devices_.find(lease.device);
  if (device != devices_.end()) {
    // It may have waited for the one before.
    begun = std::max(begun, device->second.free_since);
    device->second.free_since = now;
  }
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(now - begun));
  lease_share_.Charge(lease.tenant, seconds - lease.charged_s);
  used_s_[lease.tenant] += seconds;
  unbooked_s_[lease.tenant] += seconds;
  if (ActiveJob* job = FindJob(lease.job); job != nullptr && lease.count > 0) {
    job->pace_s = (1 - kNewest) * job->pace_s + kNewest * seconds / lease.count;
  }
}

void FleetState::BookDeviceTime() {
  const int64_t today = absl::ToInt64Hours(Now() - absl::UnixEpoch()) / 24;
  if (today != day_) {
    day_ = today;
    used_s_ = unbooked_s_;
  }
  for (const auto& [tenant, seconds] : unbooked_s_) {
    Write([=, tenant = tenant, seconds = seconds](
              tuner::Records& records) { return AddDeviceTime(records, tenant, today, seconds); },
          nullptr, Persistence::kUntilStored);
  }
  unbooked_s_.clear();
}

}  // namespace heddle::server
