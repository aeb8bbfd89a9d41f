// What tenants have used of their seconds of devices today.
#ifndef HEDDLE_SERVER_FLEET_JOBS_DEVICE_BUDGET_H_
#define HEDDLE_SERVER_FLEET_JOBS_DEVICE_BUDGET_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "server/fleet/event/effects.h"
#include "server/fleet/event/options.h"
#include "tuner/records/records.h"

namespace heddle::server {

// Days are those of UTC.
class DeviceBudget {
 public:
  DeviceBudget(const FleetOptions& options, Outbox& outbox) : options_(options), outbox_(outbox) {}

  absl::Status Load(tuner::Records& records);
  void Add(const std::string& tenant, double seconds);
  // Whether the tenant has had what it may have today.
  bool UsedUp(const std::string& tenant) const;
  // Writes down what was used, now and then; a new day begins at zero.
  void Book();

 private:
  int64_t Today() const;

  const FleetOptions& options_;
  Outbox& outbox_;
  // By tenant, on `day_`; `unbooked_` of them is not written yet.
  std::map<std::string, double> used_s_, unbooked_s_;
  int64_t day_ = 0;  // since 1970
  SteadyTime booked_ = SteadyTime::InfinitePast();
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_JOBS_DEVICE_BUDGET_H_
