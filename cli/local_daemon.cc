#include "cli/local_daemon.h"

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/time/clock.h"
#include "base/log.h"

extern char** environ;

namespace heddle::cli {
namespace {

constexpr char kCommand[] = "__local";
constexpr char kSelf[] = "/proc/self/exe";
constexpr absl::Duration kLongestBackoff = absl::Seconds(60);

}  // namespace

void LocalDaemon::Keep() {
  const SteadyTime now = SteadyNow();
  if (pid_ > 0) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return;
    LogEvent(Severity::kWarning, "local_daemon_ended",
             {{"pid", pid_}, {"status", status}, {"next_start_s", backoff_ / absl::Seconds(1)}});
    pid_ = -1;
    next_start_ = now + backoff_;
    backoff_ = std::min(2 * backoff_, kLongestBackoff);
  }
  if (now < next_start_) return;
  const std::string supervisor = std::to_string(getpid());
  std::vector<std::string> words{"heddle", kCommand, supervisor, "measured", "--server", server_};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // Ctrl-C in the terminal is the server's, which then tells the daemon.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  if (posix_spawn(&pid_, kSelf, nullptr, &attributes, argv.data(), environ) != 0) {
    pid_ = -1;
    next_start_ = now + backoff_;
  }
  posix_spawnattr_destroy(&attributes);
}

void LocalDaemon::Stop(absl::Duration grace) {
  if (pid_ <= 0) return;
  // A service manager may have told it already, and another SIGTERM would end it at once.
  kill(pid_, SIGUSR1);
  const SteadyTime deadline = SteadyNow() + grace;
  while (waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (SteadyNow() > deadline) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      break;
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  pid_ = -1;
}

std::optional<int> RunLocalCommand(int argc, char** argv) {
  if (argc < 4 || argv[1] != std::string(kCommand)) return std::nullopt;
  // Survives the exec.
  prctl(PR_SET_PDEATHSIG, SIGUSR1);
  if (getppid() != atoi(argv[2])) return 1;  // the server has gone already
  argv[2] = argv[0];
  execv(kSelf, argv + 2);
  return 1;
}

}  // namespace heddle::cli
