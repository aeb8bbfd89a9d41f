// What a service tells the manager that has started it (systemd's sd_notify(3) protocol): that it
// is ready, that it still works, that it ends.
#ifndef HEDDLE_BASE_PROCESS_SERVICE_MANAGER_H_
#define HEDDLE_BASE_PROCESS_SERVICE_MANAGER_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"

namespace heddle {

// Does nothing where no manager listens ($NOTIFY_SOCKET). Not thread-safe.
class ServiceManager {
 public:
  // Takes $NOTIFY_SOCKET and $WATCHDOG_USEC out of the environment: they are not for children.
  ServiceManager();
  void Ready() { Send("READY=1"); }
  void Stopping() { Send("STOPPING=1"); }
  // To be called often. Where the manager kills who is silent for $WATCHDOG_USEC, it is told that
  // this process works, twice in that time, as long as `progress` changes from one time to the
  // next.
  void KeepAlive(int64_t progress);

 private:
  void Send(const std::string& state) const;

  std::string socket_;  // a path, or '@' and an abstract name; "" = none
  absl::Duration every_ = absl::InfiniteDuration();
  SteadyTime next_;
  int64_t progress_ = -1;
};

}  // namespace heddle

#endif  // HEDDLE_BASE_PROCESS_SERVICE_MANAGER_H_
