// Child processes that are this executable again, under a hidden subcommand, and the messages that
// go to and fro. Nothing here forks without exec: drivers, compilers and OpenMP do not survive
// that.
//
// A child has its own process group, so that its descendants (PoCL runs `ld`) die with it. It ends
// when the supervisor ends, however that happens, or wants it to, and leaves no core files. Signals
// that ask programs to stop are the supervisor's to obey: batch systems and service managers send
// them to all processes at once, and children that went first would look like failed candidates.
#ifndef HEDDLE_BASE_PROCESS_SUBPROCESS_H_
#define HEDDLE_BASE_PROCESS_SUBPROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace google::protobuf {
class MessageLite;
}

namespace heddle {

inline constexpr size_t kMaxMessageBytes = size_t{64} << 20;
inline constexpr size_t kMaxEvidenceBytes = size_t{64} << 10, kLastWordsBytes = 2000;
// How long a killed process may take to disappear before it is given up as stuck in a driver.
inline constexpr absl::Duration kReapLimit = absl::Seconds(10);

// Set once, from any thread; interrupts every wait that looks at it.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  void Set();
  bool IsSet() const;
  // True when it was set before `timeout` passed.
  bool Wait(absl::Duration timeout) const;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Whether something can be read from the descriptor, or it is none, before `timeout` has passed.
bool IsReadable(int fd, absl::Duration timeout = absl::ZeroDuration());

// Tells whoever waits for its descriptor, which can be read while the flag is set: another thread,
// or a child that inherits it. Set by one thread at a time.
class SharedFlag {
 public:
  SharedFlag();
  ~SharedFlag();
  SharedFlag(const SharedFlag&) = delete;
  SharedFlag& operator=(const SharedFlag&) = delete;
  void Set(bool on);
  int fd() const { return fd_; }

 private:
  int fd_;
  bool on_ = false;
};

// How a child ended.
struct ExitStatus {
  bool known = false;            // false: it could not be reaped
  int code = 0;                  // when it exited
  int signal = 0;                // when a signal ended it; 0 otherwise
  std::string Describe() const;  // "signal 11 (Segmentation fault)", "exit code 3"
  // By a signal of its own doing. Others send SIGKILL: a person, a batch system, or the system when
  // its memory is used up.
  bool crashed() const { return signal != 0 && signal != SIGKILL; }
};

// Where a child finds the descriptors that it inherits.
inline constexpr int kMaxInheritedFds = 3;
constexpr int InheritedFd(int index) { return 4 + index; }

struct ChildOptions {
  const StopSignal* stop = nullptr;  // interrupts every wait; must outlive the child
  // Are InheritedFd(0), (1), ... in the child; kMaxInheritedFds at most, all valid.
  std::vector<int> inherited_fds;
  std::vector<std::string> environment;  // "NAME=value", over this process's own
};

// One child. Not thread-safe, but children of different threads are independent.
class Subprocess {
 public:
  // Runs `heddle COMMAND SUPERVISOR_PID ARGUMENTS...`.
  static absl::StatusOr<std::unique_ptr<Subprocess>> Start(
      const std::string& command, const std::vector<std::string>& arguments,
      const ChildOptions& options = {});
  ~Subprocess();  // kills
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  // DeadlineExceeded; Unavailable when the child has closed its end; Cancelled when stopped;
  // InvalidArgument for a message beyond kMaxMessageBytes.
  absl::Status Send(const google::protobuf::MessageLite& message, SteadyTime deadline);
  absl::Status Receive(google::protobuf::MessageLite& message, SteadyTime deadline);
  // The same, but the time that the child's main thread is ready and waits for a processor, because
  // others have them all, does not count against `limit`.
  absl::Status ReceiveWithin(google::protobuf::MessageLite& message, absl::Duration limit);

  // Waits up to `grace` for the child to end by itself, then kills its process group and reaps all
  // of it. DeadlineExceeded when it is still there after kReapLimit: then it is wedged.
  absl::StatusOr<ExitStatus> End(absl::Duration grace = absl::ZeroDuration());

  // The last kMaxEvidenceBytes of the child's standard output and error.
  std::string Evidence();
  // The last kLastWordsBytes of it, which show what happened to the child.
  std::string LastWords();
  pid_t pid() const { return pid_; }

 private:
  Subprocess() = default;
  absl::Status Wait(short events, SteadyTime deadline);
  absl::Duration Starved() const;  // since it was started
  void DrainOutput();

  pid_t pid_ = -1;
  int socket_ = -1, output_ = -1;
  const StopSignal* stop_ = nullptr;
  bool ended_ = false;
  absl::Status wedged_;
  ExitStatus exit_;
  std::string evidence_;
};

// ------------------------------------------------------------------------- in the child itself

// To be called first in a hidden subcommand: `argv` as Start made it. Ties the process to its
// supervisor; exits when that is gone already.
void EnterChild(int argc, char** argv);
// From now on the process has `bytes` of address space beyond what is mapped already; where it
// wants more, it ends with kOutOfMemoryCode. Without effect under sanitizers, which map terabytes.
inline constexpr int kOutOfMemoryCode = 77;
void LimitMemory(size_t bytes);
// Blocking. Unavailable when the supervisor has closed its end.
absl::Status SendToSupervisor(const google::protobuf::MessageLite& message);
absl::Status ReceiveFromSupervisor(google::protobuf::MessageLite& message);

}  // namespace heddle

#endif  // HEDDLE_BASE_PROCESS_SUBPROCESS_H_
