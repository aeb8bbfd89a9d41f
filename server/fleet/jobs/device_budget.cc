#include "server/fleet/jobs/device_budget.h"

#include "absl/time/time.h"
#include "base/status.h"
#include "server/db/fleet_store.h"

namespace heddle::server {

int64_t DeviceBudget::Today() const {
  return absl::ToInt64Hours(options_.now() - absl::UnixEpoch()) / 24;
}

absl::Status DeviceBudget::Load(tuner::Records& records) {
  const int64_t today = Today();
  HEDDLE_ASSIGN_OR_RETURN(used, LoadDeviceTime(records, today));
  day_ = today;
  used_s_.clear();
  for (const DeviceTime& time : used) used_s_[time.tenant] = time.seconds;
  return absl::OkStatus();
}

void DeviceBudget::Add(const std::string& tenant, double seconds) {
  used_s_[tenant] += seconds;
  unbooked_s_[tenant] += seconds;
}

bool DeviceBudget::UsedUp(const std::string& tenant) const {
  const auto used = used_s_.find(tenant);
  return options_.device_seconds_per_day > 0 && used != used_s_.end() &&
         used->second >= options_.device_seconds_per_day;
}

void DeviceBudget::Book() {
  if (options_.steady() - booked_ < kBookEvery) return;
  booked_ = options_.steady();
  const int64_t today = Today();
  if (today != day_) {
    day_ = today;
    used_s_ = unbooked_s_;
  }
  for (const auto& [tenant, seconds] : unbooked_s_) {
    outbox_.Write(
        [=, tenant = tenant, seconds = seconds](tuner::Records& records) {
          return AddDeviceTime(records, tenant, today, seconds);
        },
        nullptr, Persistence::kUntilStored);
  }
  unbooked_s_.clear();
}

}  // namespace heddle::server
