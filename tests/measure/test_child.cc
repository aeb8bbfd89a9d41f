#include "tests/measure/test_child.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <time.h>
#include <unistd.h>

#include <string>

#include "absl/time/clock.h"
#include "base/subprocess.h"
#include "measure/device/device_lock.h"
#include "proto/worker.pb.h"

namespace heddle::measure {
namespace {

void Report(int code) {
  worker::Status status;
  status.set_code(code);
  SendToSupervisor(status).IgnoreError();
}

[[noreturn]] void Hang() {
  for (int signal : {SIGINT, SIGHUP, SIGQUIT, SIGUSR1}) ::signal(signal, SIG_IGN);
  while (true) pause();
}

[[noreturn]] void Crash() {
  fprintf(stderr, "about to crash\n");
  signal(SIGSEGV, SIG_DFL);  // also under a sanitizer, which would turn it into an exit
  raise(SIGSEGV);
  _exit(1);
}

// Answers after so many seconds of computing.
int Compute(double seconds) {
  while (static_cast<double>(clock()) / CLOCKS_PER_SEC < seconds) continue;
  Report(0);
  return 0;
}

int Echo() {
  worker::Status status;
  while (ReceiveFromSupervisor(status).ok()) {
    if (!SendToSupervisor(status).ok()) return 1;
  }
  return 0;
}

// Answers every message with a report of which of the first two inherited descriptors can be read:
// bit by bit.
int Look() {
  worker::Status status;
  while (ReceiveFromSupervisor(status).ok()) {
    int readable = 0;
    for (int i = 0; i < 2; ++i) readable |= IsReadable(InheritedFd(i)) << i;
    Report(readable);
  }
  return 0;
}

[[noreturn]] void Family() {
  char sleep[] = "sleep", seconds[] = "1000";
  char* argv[] = {sleep, seconds, nullptr};
  pid_t pid = 0;
  posix_spawnp(&pid, "sleep", nullptr, nullptr, argv, environ);
  Report(pid);
  Hang();
}

[[noreturn]] void Supervise() {
  DeviceInfo device;
  device.id = "test:0";
  auto lock = DeviceLock::Acquire(device);
  auto child =
      Subprocess::Start(kTestChild, {"hang"}, {nullptr, {lock.ok() ? lock->fds()[0] : -1}, {}});
  worker::Status ready;
  const bool ok =
      lock.ok() && child.ok() && (*child)->Receive(ready, SteadyTime::InfiniteFuture()).ok();
  Report(ok ? (*child)->pid() : -1);
  Hang();
}

}  // namespace

int TestChildMain(int argc, char** argv) {
  EnterChild(argc, argv);
  const std::string behaviour = argv[3];
  if (behaviour == "echo") return Echo();
  if (behaviour == "look") return Look();
  if (behaviour == "compute") return Compute(1.5);
  if (behaviour == "trace") {
    Report(ptrace(PTRACE_SEIZE, atoi(argv[4]), nullptr, nullptr) == 0 ? 0 : errno);
    Hang();
  }
  if (behaviour == "exit") return 7;
  if (behaviour == "crash") Crash();
  if (behaviour == "family") Family();
  if (behaviour == "supervise") Supervise();
  if (behaviour == "chatter") {
    for (int i = 0; i < 1 << 16; ++i) fprintf(stderr, "%15d\n", i);
    Report(0);
    return 0;
  }
  Report(0);
  Hang();
}

}  // namespace heddle::measure
