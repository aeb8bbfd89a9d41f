#include "base/process/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <google/protobuf/message_lite.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <future>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace heddle {
namespace {

// File descriptors of a child beyond the standard three.
constexpr int kControlFd = 3, kFirstClosedFd = InheritedFd(kMaxInheritedFds);
static_assert(InheritedFd(0) == kControlFd + 1);

absl::Status ErrnoStatus(const std::string& what) {
  return absl::InternalError(absl::StrCat(what, ": ", strerror(errno)));
}

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// A copy above the numbers that the child uses, so that moving descriptors to their places there
// never overwrites one that is still to be moved.
Fd MoveUp(int fd) { return Fd(fcntl(fd, F_DUPFD_CLOEXEC, kFirstClosedFd)); }

// What people and batch systems ask a program to stop with, or to do something that children
// cannot: blocked in them from their first moment on, and in what they start.
sigset_t StopRequests() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  return set;
}

struct SpawnRequest {
  std::vector<std::string> argv, environment;
  int control, output;
  std::vector<int> inherited;
};

absl::StatusOr<pid_t> SpawnHere(const SpawnRequest& request) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, request.output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, request.output, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, request.control, kControlFd);
  const int inherited = static_cast<int>(request.inherited.size());
  for (int i = 0; i < inherited; ++i) {
    posix_spawn_file_actions_adddup2(&actions, request.inherited[i], InheritedFd(i));
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, InheritedFd(inherited));

  sigset_t all, requests = StopRequests();
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &requests);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<char*> argv, environment;
  for (const std::string& a : request.argv) argv.push_back(const_cast<char*>(a.c_str()));
  // The first of two equal names counts.
  for (const std::string& e : request.environment)
    environment.push_back(const_cast<char*>(e.c_str()));
  for (char** e = environ; *e != nullptr; ++e) environment.push_back(*e);
  argv.push_back(nullptr);
  environment.push_back(nullptr);
  pid_t pid = -1;
  int error =
      posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, argv.data(), environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot start a ", request.argv[1], " process: ", strerror(error)));
  }
  return pid;
}

// Starts every child from one thread that never ends: the parent-death signal fires when the
// thread that made the child ends, not the process.
class Spawner {
 public:
  static Spawner& Get() {
    static Spawner* spawner = new Spawner;
    return *spawner;
  }

  absl::StatusOr<pid_t> Spawn(const SpawnRequest& request) {
    std::packaged_task<absl::StatusOr<pid_t>()> task([&] { return SpawnHere(request); });
    auto result = task.get_future();
    {
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
    return result.get();
  }

 private:
  Spawner() {
    // Orphans of a killed child come to this process, which reaps them with the child's group.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);  // signals are for the program's own threads
    std::thread([this] { Loop(); }).detach();
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
  }

  [[noreturn]] void Loop() {
    while (true) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return !tasks_.empty(); });
      // Its own: the caller goes on as soon as there is a result, which is before the call ends.
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::packaged_task<absl::StatusOr<pid_t>()>> tasks_;
};

// Moves all of `size` bytes through a socket; `wait` blocks until it is ready again.
template <typename WaitFunction>
absl::Status Transfer(int fd, short events, char* data, size_t size, const WaitFunction& wait) {
  while (size > 0) {
    ssize_t n = events == POLLIN ? recv(fd, data, size, MSG_DONTWAIT)
                                 : send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      data += n;
      size -= n;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      HEDDLE_RETURN_IF_ERROR(wait(events));
    } else if (n == 0 || errno != EINTR) {
      return absl::UnavailableError("the other process has closed its end");
    }
  }
  return absl::OkStatus();
}

// A frame: the length of the message as 32 bits of this machine's byte order, and the message.
template <typename WaitFunction>
absl::Status SendFrame(int fd, const google::protobuf::MessageLite& message,
                       const WaitFunction& wait) {
  const size_t size = message.ByteSizeLong();
  if (size > kMaxMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", size, " bytes: ", kMaxMessageBytes, " is the limit"));
  }
  const uint32_t length = static_cast<uint32_t>(size);
  std::string frame(reinterpret_cast<const char*>(&length), sizeof length);
  message.AppendToString(&frame);
  return Transfer(fd, POLLOUT, frame.data(), frame.size(), wait);
}

template <typename WaitFunction>
absl::Status ReceiveFrame(int fd, google::protobuf::MessageLite& message,
                          const WaitFunction& wait) {
  uint32_t length = 0;
  HEDDLE_RETURN_IF_ERROR(
      Transfer(fd, POLLIN, reinterpret_cast<char*>(&length), sizeof length, wait));
  if (length > kMaxMessageBytes) {
    return absl::InternalError(absl::StrCat("a frame of ", length, " bytes was announced"));
  }
  std::string body(length, '\0');
  HEDDLE_RETURN_IF_ERROR(Transfer(fd, POLLIN, body.data(), body.size(), wait));
  if (!message.ParseFromString(body)) return absl::InternalError("a message that does not parse");
  return absl::OkStatus();
}

// Rounded up, so that the last of several waits does not spin.
int PollMilliseconds(absl::Duration left) {
  if (left == absl::InfiniteDuration()) return -1;
  return static_cast<int>(std::clamp(std::ceil(absl::ToDoubleMilliseconds(left)), 0.0, 1e9));
}

}  // namespace

StopSignal::StopSignal() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
StopSignal::~StopSignal() { close(fd_); }
void StopSignal::Set() { eventfd_write(fd_, 1); }
bool StopSignal::IsSet() const { return Wait(absl::ZeroDuration()); }
bool StopSignal::Wait(absl::Duration timeout) const { return IsReadable(fd_, timeout); }

bool IsReadable(int fd, absl::Duration timeout) {
  pollfd ready{fd, POLLIN, 0};
  // A signal handled meanwhile shortens the wait, which callers repeat anyway. POLLNVAL counts.
  return poll(&ready, 1, PollMilliseconds(timeout)) > 0;
}

SharedFlag::SharedFlag() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
SharedFlag::~SharedFlag() { close(fd_); }
void SharedFlag::Set(bool on) {
  if (std::exchange(on_, on) == on) return;
  eventfd_t value = 0;
  on ? eventfd_write(fd_, 1) : eventfd_read(fd_, &value);
}

std::string ExitStatus::Describe() const {
  if (!known) return "an unknown end";
  if (signal != 0) return absl::StrCat("signal ", signal, " (", strsignal(signal), ")");
  if (code == kOutOfMemoryCode) return "more memory than it may have";
  return absl::StrCat("exit code ", code);
}

absl::StatusOr<std::unique_ptr<Subprocess>> Subprocess::Start(
    const std::string& command, const std::vector<std::string>& arguments,
    const ChildOptions& options) {
  // Nothing that the child was to do is to blame for.
  const auto cannot_start = [&](const char* what) {
    return absl::UnavailableError(
        absl::StrCat("cannot start a ", command, " process: ", what, ": ", strerror(errno)));
  };
  int sockets[2], pipe_fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return cannot_start("socketpair");
  }
  Fd ours(sockets[0]), theirs(sockets[1]);
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return cannot_start("pipe");
  Fd output(pipe_fds[0]), their_output(pipe_fds[1]);
  fcntl(output.get(), F_SETFL, O_NONBLOCK);

  Fd control = MoveUp(theirs.get()), out = MoveUp(their_output.get());
  if (control.get() < 0 || out.get() < 0) return cannot_start("duplicating a file descriptor");
  SpawnRequest request{{"heddle", command, absl::StrCat(getpid())},
                       options.environment,
                       control.get(),
                       out.get(),
                       {}};
  if (options.inherited_fds.size() > kMaxInheritedFds) {
    return absl::InvalidArgumentError(
        absl::StrCat("a child inherits ", kMaxInheritedFds, " descriptors at most"));
  }
  std::vector<Fd> inherited;
  for (int fd : options.inherited_fds) {
    inherited.push_back(MoveUp(fd));
    if (inherited.back().get() < 0) return cannot_start("duplicating a file descriptor");
    request.inherited.push_back(inherited.back().get());
  }
  request.argv.insert(request.argv.end(), arguments.begin(), arguments.end());
  HEDDLE_ASSIGN_OR_RETURN(pid, Spawner::Get().Spawn(request));

  std::unique_ptr<Subprocess> child(new Subprocess);
  child->pid_ = pid;
  child->socket_ = ours.Release();
  child->output_ = output.Release();
  child->stop_ = options.stop;
  return child;
}

Subprocess::~Subprocess() {
  End().IgnoreError();
  close(socket_);
  close(output_);
}

absl::Status Subprocess::Wait(short events, SteadyTime deadline) {
  while (true) {
    pollfd fds[] = {{socket_, events, 0},
                    {output_, POLLIN, 0},
                    {stop_ != nullptr ? stop_->fd() : -1, POLLIN, 0}};
    int n = poll(fds, 3, PollMilliseconds(deadline - SteadyNow()));
    if (n < 0 && errno != EINTR) return ErrnoStatus("poll");
    if (n > 0 && fds[2].revents != 0) return absl::CancelledError("stopped");
    if (n > 0 && fds[1].revents != 0) {
      DrainOutput();
      // An end that stays closed would be ready for ever.
      if ((fds[1].revents & POLLIN) == 0) close(std::exchange(output_, -1));
    }
    if (n > 0 && fds[0].revents != 0) return absl::OkStatus();
    if (SteadyNow() >= deadline) return absl::DeadlineExceededError("no answer in time");
  }
}

absl::Status Subprocess::Send(const google::protobuf::MessageLite& message, SteadyTime deadline) {
  return SendFrame(socket_, message, [&](short events) { return Wait(events, deadline); });
}

absl::Status Subprocess::Receive(google::protobuf::MessageLite& message, SteadyTime deadline) {
  return ReceiveFrame(socket_, message, [&](short events) { return Wait(events, deadline); });
}

absl::Duration Subprocess::Starved() const {
  // "Time spent on the cpu, time spent waiting on a runqueue", both in nanoseconds
  // (Documentation/scheduler/sched-stats.rst of the kernel). Nothing where the kernel keeps none.
  std::ifstream in(absl::StrCat("/proc/", pid_, "/schedstat"));
  int64_t ran = 0, waited = 0;
  return in >> ran >> waited ? absl::Nanoseconds(waited) : absl::ZeroDuration();
}

absl::Status Subprocess::ReceiveWithin(google::protobuf::MessageLite& message,
                                       absl::Duration limit) {
  const SteadyTime start = SteadyNow();
  const absl::Duration starved_before = Starved();
  return ReceiveFrame(socket_, message, [&](short events) {
    SteadyTime deadline = start + limit;
    while (true) {
      absl::Status status = Wait(events, deadline);
      if (!absl::IsDeadlineExceeded(status)) return status;
      const SteadyTime later = start + limit + (Starved() - starved_before);
      // What is below the scheduler's own grain is no reason to go on.
      if (later < SteadyNow() + absl::Milliseconds(10)) return status;
      deadline = later;
    }
  });
}

static std::string EndOf(const std::string& text, size_t bytes) {
  return text.size() <= bytes ? text : text.substr(text.size() - bytes);
}

void Subprocess::DrainOutput() {
  char buffer[4096];
  ssize_t n;
  while (output_ >= 0 && (n = read(output_, buffer, sizeof buffer)) > 0) {
    evidence_.append(buffer, n);
    if (evidence_.size() > 2 * kMaxEvidenceBytes) {
      evidence_.erase(0, evidence_.size() - kMaxEvidenceBytes);
    }
  }
}

std::string Subprocess::Evidence() {
  DrainOutput();
  return EndOf(evidence_, kMaxEvidenceBytes);
}

std::string Subprocess::LastWords() { return EndOf(Evidence(), kLastWordsBytes); }

absl::StatusOr<ExitStatus> Subprocess::End(absl::Duration grace) {
  if (ended_) {
    HEDDLE_RETURN_IF_ERROR(wedged_);
    return exit_;
  }
  const SteadyTime kill_at = SteadyNow() + grace;
  // Looked at and not reaped while the group lives: its number must not be given to others before
  // the group is killed.
  siginfo_t info{};
  while (SteadyNow() < kill_at) {
    if (waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_) break;
    DrainOutput();
    absl::SleepFor(absl::Milliseconds(1));
  }
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);

  const SteadyTime deadline = SteadyNow() + kReapLimit;
  for (absl::Duration pause = absl::Microseconds(100);;
       pause = std::min(pause * 2, absl::Milliseconds(20))) {
    // One that was killed while it was being started never had its group: hence by its own number
    // first. The rest of the group are orphans of the child.
    int status = 0;
    const pid_t reaped = exit_.known ? -1 : waitpid(pid_, &status, WNOHANG);
    if (reaped == pid_) {
      exit_.known = true;
      if (WIFEXITED(status)) exit_.code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) exit_.signal = WTERMSIG(status);
    }
    pid_t orphan;
    while ((orphan = waitpid(-pid_, nullptr, WNOHANG)) > 0) continue;
    if (orphan < 0 && errno == ECHILD && reaped != 0) break;
    if (SteadyNow() >= deadline) {
      wedged_ = absl::DeadlineExceededError(
          absl::StrCat("process ", pid_, " is wedged: it was killed and did not end within ",
                       absl::FormatDuration(kReapLimit)));
      ended_ = true;
      return wedged_;
    }
    absl::SleepFor(pause);
  }
  ended_ = true;
  DrainOutput();
  return exit_;
}

// ------------------------------------------------------------------------- in the child itself

void EnterChild(int argc, char** argv) {
  // The supervisor's death ends the whole group, which holds the child's own children too. It is
  // told by a signal that nobody else sends.
  const int orphaned = SIGRTMIN;
  struct sigaction action {};
  action.sa_handler = [](int) { kill(0, SIGKILL); };
  sigaction(orphaned, &action, nullptr);
  prctl(PR_SET_PDEATHSIG, orphaned);
  if (argc < 3 || getppid() != atoi(argv[2])) _exit(1);

  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  for (int fd = kControlFd; fd < kFirstClosedFd; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void LimitMemory(size_t bytes) {
#ifdef HEDDLE_SANITIZED
  (void)bytes;
#else
  std::set_new_handler([] { _exit(kOutOfMemoryCode); });
  std::ifstream in("/proc/self/statm");
  rlim_t pages = 0;
  if (!(in >> pages)) return;
  const rlim_t limit = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit both{limit, limit};
  setrlimit(RLIMIT_AS, &both);
#endif
}

namespace {
absl::Status WaitForSupervisor(short events) {
  pollfd ready{kControlFd, events, 0};
  poll(&ready, 1, -1);
  return absl::OkStatus();
}
}  // namespace

absl::Status SendToSupervisor(const google::protobuf::MessageLite& message) {
  return SendFrame(kControlFd, message, WaitForSupervisor);
}

absl::Status ReceiveFromSupervisor(google::protobuf::MessageLite& message) {
  return ReceiveFrame(kControlFd, message, WaitForSupervisor);
}

}  // namespace heddle
