// The measurement daemon of `heddle serve --local`: this executable again, `heddle measured`, which
// is kept running and ends with the server, however that ends.
#ifndef HEDDLE_CLI_LOCAL_DAEMON_H_
#define HEDDLE_CLI_LOCAL_DAEMON_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"

namespace heddle::cli {

// To be used by one thread that lives as long as the daemon is to: the daemon ends with it.
class LocalDaemon {
 public:
  explicit LocalDaemon(std::string server) : server_(std::move(server)) {}
  // Starts the daemon when it does not run, after a while when it has ended.
  void Keep();
  // Lets it finish what it measures, for as long as `grace`.
  void Stop(absl::Duration grace);

 private:
  const std::string server_;
  pid_t pid_ = -1;
  SteadyTime next_start_ = SteadyTime::InfinitePast();
  absl::Duration backoff_ = absl::Seconds(1);
};

// To be called first in main(): becomes the daemon when the arguments are its.
//   heddle __local SUPERVISOR_PID ARGUMENTS...
std::optional<int> RunLocalCommand(int argc, char** argv);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_LOCAL_DAEMON_H_
