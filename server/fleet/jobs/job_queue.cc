#include "server/fleet/jobs/job_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace heddle::server {

// ----------------------------------------------------------------------------- waiting for a
// device

std::string JobQueue::WaitsFor(const ActiveJob& job) {
  const v1::DeviceSelector& asked = job.spec.device();
  if (!asked.device().empty()) return absl::StrCat("device ", asked.device());
  if (!job.model().empty()) return absl::StrCat("model ", job.model());
  if (!asked.model().empty()) return absl::StrCat("model ", asked.model());
  return absl::StrCat("api ", asked.api());
}

// The one that has the most devices for each job at work on it.
std::optional<std::string> JobQueue::ChooseModel(const ActiveJob& job) {
  const v1::DeviceSelector& asked = job.spec.device();
  const std::string& bound = job.model();
  std::string only = bound.empty() ? asked.model() : bound;
  if (!asked.device().empty()) {
    const DeviceEntry* device = devices_.Find(asked.device());
    ++matches_;
    if (device == nullptr || !device->usable) return std::nullopt;
    only = device->model();
  }
  std::optional<std::string> best;
  double most = 0;
  const auto consider = [&](const std::string& name, int usable) {
    ++matches_;
    if (usable == 0 || (!bound.empty() && bound != name)) return;
    if (!asked.model().empty() && asked.model() != name) return;
    const v1::Device& device = devices_.models().Find(name)->device;
    if (!asked.api().empty() && asked.api() != device.target().api()) return;
    const auto searching = searching_on_.find(name);
    const double share = static_cast<double>(usable) /
                         (1 + (searching == searching_on_.end() ? 0 : searching->second));
    if (share <= most) return;
    most = share;
    best = name;
  };
  if (only.empty()) {
    for (const auto& [name, usable] : devices_.usable()) consider(name, usable);
  } else {
    consider(only, devices_.Usable(only));
  }
  return best;
}

void JobQueue::Park(ActiveJob& job) {
  Remove(job.id);
  const std::string& key = parked_at_[job.id] = WaitsFor(job);
  parked_[key].insert(job.id);
  jobs_.SetState(job, v1::Job::STATE_WAITING_DEVICE);
}

void JobQueue::Remove(int64_t job) {
  if (const auto at = parked_at_.extract(job); !at.empty()) {
    const auto parked = parked_.find(at.mapped());
    parked->second.erase(job);
    if (parked->second.empty()) parked_.erase(parked);
  }
  if (const auto of = ready_of_.extract(job); !of.empty()) {
    const auto ready = ready_.find(of.mapped());
    std::erase(ready->second, job);
    if (ready->second.empty()) ready_.erase(ready);
  }
}

void JobQueue::Add(ActiveJob& job) {
  if (job.searching || job.ending || job.cancelling || ready_of_.contains(job.id)) return;
  if (searching_.contains(job.id)) return;  // the searcher of before it began again is still ending
  if (!ChooseModel(job)) return Park(job);
  Remove(job.id);
  const bool stays = static_cast<int>(searching_.size()) >= options_.max_searchers;
  if (job.state == v1::Job::STATE_RUNNING ||
      (stays && job.state == v1::Job::STATE_WAITING_DEVICE)) {
    jobs_.SetState(job, v1::Job::STATE_QUEUED);
  }
  ready_[job.tenant].push_back(job.id);
  ready_of_[job.id] = job.tenant;
  may_start_ = true;
}

void JobQueue::Match() {
  std::vector<std::string> due;
  for (const auto& [model, came] : devices_.came()) {
    const auto last = matched_.find(model);
    if (last == matched_.end() || options_.steady() - last->second >= options_.match_every) {
      due.push_back(model);
    }
  }
  for (const std::string& model : due) {
    matched_[model] = options_.steady();
    const std::string& api = devices_.models().Find(model)->device.target().api();
    std::vector<std::string> keys{absl::StrCat("model ", model), "api ", absl::StrCat("api ", api)};
    for (const std::string& device : devices_.TakeCame(model)) {
      keys.push_back(absl::StrCat("device ", device));
    }
    for (const std::string& key : keys) {
      const auto parked = parked_.find(key);
      if (parked == parked_.end()) continue;
      const std::set<int64_t> jobs = parked->second;  // it changes meanwhile
      for (int64_t id : jobs) Add(*jobs_.Find(id));
    }
  }
}

// --------------------------------------------------------------------------- waiting for a
// searcher

std::vector<std::string> JobQueue::ReadyTenants() const {
  std::vector<std::string> tenants;
  for (const auto& [tenant, queue] : ready_) {
    const auto running =
        std::count_if(searching_.begin(), searching_.end(),
                      [&, t = &tenant](const auto& s) { return s.second.tenant == *t; });
    if (options_.running_jobs_per_tenant > 0 && running >= options_.running_jobs_per_tenant) {
      continue;
    }
    if (!budget_.UsedUp(tenant)) tenants.push_back(tenant);
  }
  return tenants;
}

void JobQueue::Start() {
  if (!std::exchange(may_start_, false)) return;
  while (static_cast<int>(searching_.size()) < options_.max_searchers) {
    const std::vector<std::string> tenants = ReadyTenants();
    if (tenants.empty()) return;
    const std::deque<int64_t>& ready = ready_.at(share_.Next(tenants));
    // Of equals the first, which has waited longest.
    ActiveJob& job =
        *jobs_.Find(*std::max_element(ready.begin(), ready.end(), [this](int64_t a, int64_t b) {
          return jobs_.Find(a)->spec.priority() < jobs_.Find(b)->spec.priority();
        }));
    Remove(job.id);
    if (const auto model = ChooseModel(job)) {
      StartJob(job, *model);
    } else {
      Park(job);
    }
  }
}

void JobQueue::StartJob(ActiveJob& job, const std::string& model) {
  if (job.model().empty()) {
    metrics_.queue_wait_seconds.Observe(absl::ToDoubleSeconds(options_.now() - job.created));
  }
  job.device = devices_.models().Find(model)->device;
  job.usable = UsableDevices(job);
  job.stop = false;
  job.searching = true;
  job.last_usable = job.booked = options_.steady();
  searching_[job.id] = {job.tenant, model, options_.steady()};
  ++searching_on_[model];
  share_.Charge(job.tenant, absl::ToDoubleSeconds(options_.slice));
  jobs_.SetState(job, v1::Job::STATE_RUNNING);
  outbox_.Search(job.id);
}

void JobQueue::End(int64_t job) {
  const auto ended = searching_.extract(job);
  --searching_on_[ended.mapped().model];
  // What is left is given back, and what was taken beyond the slice is charged.
  const absl::Duration left = options_.slice - (options_.steady() - ended.mapped().slice_begun);
  share_.Charge(ended.mapped().tenant, -absl::ToDoubleSeconds(left));
  may_start_ = true;
}

void JobQueue::EndSlices() {
  may_start_ = true;
  for (const auto& [id, searching] : searching_) {
    ActiveJob* job = jobs_.Find(id);
    if (job != nullptr && budget_.UsedUp(searching.tenant)) job->stop = true;
  }
  if (static_cast<int>(searching_.size()) < options_.max_searchers) return;
  std::vector<const ActiveJob*> waiting;
  for (const std::string& tenant : ReadyTenants()) {
    for (int64_t id : ready_.at(tenant)) waiting.push_back(jobs_.Find(id));
  }
  for (auto& [id, searching] : searching_) {
    if (options_.steady() - searching.slice_begun < options_.slice) continue;
    ActiveJob* job = jobs_.Find(id);
    if (job == nullptr || job->stop) continue;
    // One of its tenant's that comes after it would not get its searcher.
    const auto next = std::find_if(waiting.begin(), waiting.end(), [job](const ActiveJob* other) {
      return other->tenant != job->tenant || other->spec.priority() >= job->spec.priority();
    });
    if (next == waiting.end()) {
      searching.slice_begun = options_.steady();  // for nothing: nobody wants it
    } else if (!job->candidates.FinalsAsked()) {  // which are bounded, and would be begun again
      job->stop = true;
      waiting.erase(next);
    }
  }
}

int JobQueue::UsableDevices(const ActiveJob& job) {
  ++matches_;
  const std::string& asked = job.spec.device().device();
  if (asked.empty()) return devices_.Usable(job.model());
  const DeviceEntry* device = devices_.Find(asked);
  return device != nullptr && device->usable ? 1 : 0;
}

}  // namespace heddle::server
