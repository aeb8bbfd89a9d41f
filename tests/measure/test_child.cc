#include "tests/measure/test_child.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <future>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/process/subprocess.h"
#include "measure/device/backend.h"
#include "measure/device/device_lock.h"
#include "measure/run/processes/confine.h"
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

// What a confined process still can do of what it must not, and cannot of what it may: nothing.
std::string GetsThrough(const std::string& allowed, const std::string& secret) {
  std::string out;
  const auto expect = [&](const char* what, bool right) {
    if (!right) absl::StrAppend(&out, what, " (", strerror(errno), "); ");
  };
  const auto opens = [](const std::string& path, int flags) {
    const int fd = open(path.c_str(), flags | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    return fd >= 0;
  };
  expect("a file outside is read", !opens(secret, O_RDONLY) && errno == EACCES);
  expect("a file outside is written", !opens(secret, O_WRONLY) && errno == EACCES);
  expect("a file outside is emptied", truncate(secret.c_str(), 0) != 0);
  expect("a file outside is made", !opens(secret + ".new", O_WRONLY | O_CREAT));
  expect("a file outside is removed", unlink(secret.c_str()) != 0);
  // The supervisor is the same user's.
  const std::string environment = absl::StrCat("/proc/", getppid(), "/environ");
  expect("another process is looked into", !opens(environment, O_RDONLY));
  expect("another process is traced",
         ptrace(PTRACE_SEIZE, getppid(), nullptr, nullptr) != 0 && errno == EPERM);
  for (int family : {AF_INET, AF_INET6, AF_UNIX, AF_NETLINK}) {
    expect("a socket", socket(family, SOCK_STREAM, 0) < 0 && errno == EPERM);
  }
  expect("a mount", mount("none", allowed.c_str(), "tmpfs", 0, nullptr) != 0 && errno == EPERM);
  expect("a namespace", unshare(CLONE_NEWUSER) != 0 && errno == EPERM);
  expect("no file may be made where that is allowed",
         opens(allowed + "/a", O_WRONLY | O_CREAT) && mkdir((allowed + "/b").c_str(), 0700) == 0 &&
             rename((allowed + "/a").c_str(), (allowed + "/b/a").c_str()) == 0);
  expect("/dev/null is closed", opens("/dev/null", O_RDWR));
  return out;
}

// Also on a thread that is there before: drivers have some. Landlock is for the threads made after.
int Confined(const std::string& allowed, const std::string& secret) {
  const Backend* const backend = FindBackend("opencl:0");
  setenv("POCL_CACHE_DIR", allowed.c_str(), 1);
  worker::Status status;
  std::promise<void> confined;
  int socket_before = -1;
  std::thread before([&] {
    confined.get_future().wait();
    socket_before = socket(AF_INET, SOCK_STREAM, 0);
  });
  absl::Status done = ConfineCompiler(*backend);
  confined.set_value();
  before.join();
  if (!done.ok()) {
    status.set_message(std::string(done.message()));
  } else {
    status.set_message(GetsThrough(allowed, secret));
    if (socket_before >= 0) status.set_message("a socket on a thread of before");
    // What it starts is no freer, and programs can be started.
    const std::string command = absl::StrCat("cat ", secret, " 2>/dev/null");
    if (system("true") != 0 || system(command.c_str()) == 0) {
      status.set_message("a child of its own is freer, or cannot be started");
    }
  }
  return SendToSupervisor(status).ok() ? 0 : 1;
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
  if (behaviour == "confined") return Confined(argv[4], argv[5]);
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
