// Whose candidates a device gets: fair among tenants, and looked at only when something has
// changed.
#ifndef HEDDLE_SERVER_FLEET_LEASES_GRANTS_H_
#define HEDDLE_SERVER_FLEET_LEASES_GRANTS_H_

#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "base/clock.h"
#include "heddle/v1/fleet.pb.h"
#include "server/db/trust/auth.h"
#include "server/fleet/devices/devices.h"
#include "server/fleet/event/effects.h"
#include "server/fleet/event/options.h"
#include "server/fleet/jobs/job_queue.h"
#include "server/fleet/jobs/jobs.h"
#include "server/fleet/leases/confirmations.h"
#include "server/fleet/leases/leases.h"

namespace heddle::server {

// Calls of devices that wait for work, and who gets which.
class Grants {
 public:
  Grants(const LeaseParts& parts, JobQueue& queue, Leases& leases)
      : p_(parts), queue_(queue), leases_(leases) {}

  void Acquire(const Caller& caller, const v1::AcquireRequest& request, Reply<v1::Lease> reply);
  // Gives what there is to the model's devices that wait.
  void Serve(const std::string& model);
  // Answers calls that have waited as long as they would, or all, with nothing.
  void Expire(bool all);

  // The job at whose candidates the device was last; 0 = none.
  int64_t JobOf(const std::string& device) const;
  void ForgetDevice(const std::string& device) { turns_.erase(device); }
  int64_t matches() const { return matches_; }

 private:
  struct Waiter {
    std::string session, device;
    int max = 1;
    SteadyTime deadline;
    Reply<v1::Lease> reply;
  };
  // What a device works at.
  struct Turns {
    int64_t job = 0;
    int count = 0;  // leases of it in a row
  };

  // Whether anything waits for devices of the model.
  bool AnyWork(const std::string& model) const;
  // Gives the call what there is for it, if anything.
  bool Give(Waiter& waiter, const DeviceEntry& device);
  ActiveJob* ChooseJob(const DeviceEntry& device);
  bool WorksOn(const ActiveJob& job, const DeviceEntry& device);
  // Whether a device that takes work belongs to a host that has not refused the job.
  bool OthersRemain(const ActiveJob& job) const;
  void GiveOf(ActiveJob& job, Waiter& waiter, const DeviceEntry& device);
  void GiveOf(Confirmation confirmation, Waiter& waiter, const DeviceEntry& device);

  const LeaseParts& p_;
  JobQueue& queue_;
  Leases& leases_;
  std::map<std::string, std::list<Waiter>> waiters_;         // by model
  SteadyTime next_deadline_ = SteadyTime::InfiniteFuture();  // of waiters
  std::map<std::string, Turns> turns_;                       // by device
  int64_t round_ = 0;
  int64_t matches_ = 0;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_LEASES_GRANTS_H_
