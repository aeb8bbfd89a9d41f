// The measurement daemon: gives the devices of this host to a server's tuning jobs.
#ifndef HEDDLE_DAEMON_DAEMON_H_
#define HEDDLE_DAEMON_DAEMON_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/options.h"
#include "daemon/device_agent.h"
#include "daemon/metrics.h"
#include "daemon/session.h"

namespace heddle::measure {

struct DaemonOptions {
  client::ConnectOptions server;
  std::vector<std::string> devices;  // "cuda:0"; empty = all that are usable and free
  std::string host_id;               // empty = HostId (base/host.h)
  std::string build;                 // version of the program
  std::string metrics;               // "HOST:PORT" for Prometheus; "" = none
  // How long a candidate that runs when the daemon is told to end may go on.
  absl::Duration drain_limit = absl::Seconds(20);
  // After so long without work a device's memory is free for others, and its worker and compilers
  // end. The next lease starts them anew.
  absl::Duration idle_limit = absl::Minutes(1);
};

class Daemon {
 public:
  // Takes the devices. Unavailable: there is none, or another process has one that was asked for,
  // which is named, or the port of the metrics.
  static absl::StatusOr<std::unique_ptr<Daemon>> Create(const DaemonOptions& options);
  ~Daemon();
  DaemonMetrics& metrics() { return metrics_; }

  // Works until `interrupted`, which is polled, says true; then leases nothing more, finishes what
  // runs, reports and gives back the rest. OK: all of that was done. DeadlineExceeded: a device did
  // not end within the limit, and destroying the daemon may take as long. Other errors: the server
  // refuses this daemon.
  absl::Status Run(const std::function<bool()>& interrupted);

 private:
  Daemon(const DaemonOptions& options, v1::RegisterRequest registration);
  void HeartbeatLoop();
  void Beat(const StopSignal& stop);
  bool AllEnded() const;

  const DaemonOptions options_;
  DaemonMetrics metrics_;
  FleetSession session_;
  std::vector<std::unique_ptr<DeviceAgent>> agents_;
  StopSignal end_, give_up_;  // heartbeats: the last one; none at all
  std::mutex mutex_;
  absl::Status refused_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_DAEMON_DAEMON_H_
