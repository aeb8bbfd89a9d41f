#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "cli/command.h"

namespace heddle::cli {
namespace {

std::atomic<int> signals_seen{0};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

// Only async-signal-safe calls.
void OnSignal(int signal) {
  if (signals_seen.fetch_add(1) > 0) {
    if (signal == SIGUSR1) return;
    _exit(kInterrupted);
  }
  constexpr char kText[] = "\nStopping; what was measured is kept. Once more stops at once.\n";
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kText, sizeof kText - 1);
}

}  // namespace

void CatchInterrupts() {
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;  // database and pipes are not to see EINTR; waits are short
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
}

bool Interrupted() { return signals_seen.load() > 0; }

}  // namespace heddle::cli
