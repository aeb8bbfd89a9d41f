#include "base/process/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"

namespace heddle {
namespace {

// Empty where it is not set; it is not any more.
std::string TakeVariable(const char* name) {
  const char* value = getenv(name);
  const std::string taken = value == nullptr ? "" : value;
  unsetenv(name);
  return taken;
}

}  // namespace

ServiceManager::ServiceManager() : socket_(TakeVariable("NOTIFY_SOCKET")), next_(SteadyNow()) {
  const std::string pid = TakeVariable("WATCHDOG_PID"), limit = TakeVariable("WATCHDOG_USEC");
  int64_t micros = 0, owner = 0;
  const bool mine = pid.empty() || (absl::SimpleAtoi(pid, &owner) && owner == getpid());
  if (mine && absl::SimpleAtoi(limit, &micros) && micros > 0) {
    every_ = absl::Microseconds(micros) / 2;
  }
}

void ServiceManager::KeepAlive(int64_t progress) {
  if (every_ == absl::InfiniteDuration() || SteadyNow() < next_ || progress == progress_) return;
  next_ = SteadyNow() + every_;
  progress_ = progress;
  Send("WATCHDOG=1");
}

void ServiceManager::Send(const std::string& state) const {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (socket_.empty() || socket_.size() > sizeof address.sun_path) return;
  std::copy(socket_.begin(), socket_.end(), address.sun_path);
  if (socket_.front() == '@') address.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  // A manager that does not listen any more is no reason to end.
  static_cast<void>(sendto(fd, state.data(), state.size(), MSG_NOSIGNAL,
                           reinterpret_cast<const sockaddr*>(&address),
                           offsetof(sockaddr_un, sun_path) + socket_.size()));
  close(fd);
}

}  // namespace heddle
