#include "base/process/subprocess.h"

#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "measure/device/device_lock.h"
#include "proto/worker.pb.h"
#include "tests/measure/test_child.h"

namespace heddle::measure {
namespace {

using testing::HasSubstr;

SteadyTime In(double seconds) { return SteadyNow() + absl::Seconds(seconds); }

std::unique_ptr<Subprocess> StartChild(const std::string& behaviour,
                                       const StopSignal* stop = nullptr) {
  auto child = Subprocess::Start(kTestChild, absl::StrSplit(behaviour, ' '), {stop, {}, {}});
  EXPECT_TRUE(child.ok()) << child.status();
  return child.ok() ? *std::move(child) : nullptr;
}

// What a child reports, or -1.
int ReportOf(Subprocess& child) {
  worker::Status report;
  absl::Status status = child.Receive(report, In(20));
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? report.code() : -1;
}

bool Exists(pid_t pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

bool Within(double seconds, const std::function<bool()>& condition) {
  for (SteadyTime end = In(seconds); SteadyNow() < end; absl::SleepFor(absl::Milliseconds(5))) {
    if (condition()) return true;
  }
  return condition();
}

TEST(SubprocessTest, MessagesOfAllSizesComeBack) {
  auto child = StartChild("echo");
  ASSERT_NE(child, nullptr);
  for (size_t size : {size_t{0}, size_t{1}, size_t{100000}, size_t{20} << 20}) {
    worker::Status sent, got;
    sent.set_message(std::string(size, 'x'));
    ASSERT_TRUE(child->Send(sent, In(20)).ok());
    ASSERT_TRUE(child->Receive(got, In(20)).ok());
    EXPECT_EQ(got.message(), sent.message());
  }
}

TEST(SubprocessTest, MessagesBeyondTheLimitAreRefused) {
  auto child = StartChild("echo");
  ASSERT_NE(child, nullptr);
  worker::Status message;
  message.set_message(std::string(kMaxMessageBytes + 1, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(child->Send(message, In(20))));
}

TEST(SubprocessTest, SendingToOneThatDoesNotReadEndsAtTheDeadline) {
  auto child = StartChild("hang");
  ASSERT_NE(child, nullptr);
  worker::Status message;
  message.set_message(std::string(size_t{8} << 20, 'x'));
  EXPECT_TRUE(absl::IsDeadlineExceeded(child->Send(message, In(0.2))));
}

// All are kept on one processor, where each has a sixth of the time.
TEST(SubprocessTest, WaitingForAProcessorDoesNotCount) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  std::vector<std::unique_ptr<Subprocess>> children;
  for (int i = 0; i < 6; ++i) children.push_back(StartChild("compute"));
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  for (const auto& child : children) {
    ASSERT_NE(child, nullptr);
    ASSERT_EQ(sched_setaffinity(child->pid(), sizeof one, &one), 0);
  }
  const absl::Time start = absl::Now();
  for (const auto& child : children) {
    worker::Status report;
    absl::Status status = child->ReceiveWithin(report, absl::Seconds(4));
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_GT(absl::Now() - start, absl::Seconds(6)) << "or nobody waited";
}

TEST(SubprocessTest, SleepingCounts) {
  auto child = StartChild("hang");
  ASSERT_NE(child, nullptr);
  EXPECT_EQ(ReportOf(*child), 0);
  worker::Status report;
  const absl::Time start = absl::Now();
  EXPECT_TRUE(absl::IsDeadlineExceeded(child->ReceiveWithin(report, absl::Milliseconds(300))));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
}

// A tracer is told of the end first: until it has looked, nobody else can reap the child.
TEST(SubprocessTest, OneThatCannotBeReapedIsWedged) {
  auto child = StartChild("hang");
  ASSERT_NE(child, nullptr);
  EXPECT_EQ(ReportOf(*child), 0);
  auto tracer = StartChild("trace " + std::to_string(child->pid()));
  ASSERT_NE(tracer, nullptr);
  if (int error = ReportOf(*tracer); error != 0) {
    GTEST_SKIP() << "ptrace is not allowed here: " << strerror(error);
  }
  absl::StatusOr<ExitStatus> end = child->End();
  EXPECT_TRUE(absl::IsDeadlineExceeded(end.status())) << end.status();
  EXPECT_THAT(std::string(end.status().message()), HasSubstr("wedged"));
  EXPECT_EQ(child->End().status(), end.status());
}

TEST(SubprocessTest, OneThatHangsIsKilledAndReaped) {
  auto child = StartChild("hang");
  ASSERT_NE(child, nullptr);
  ReportOf(*child);
  worker::Status message;
  EXPECT_TRUE(absl::IsDeadlineExceeded(child->Receive(message, In(0.1))));
  const pid_t pid = child->pid();
  auto exit = child->End();
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_EQ(exit->signal, SIGKILL);
  EXPECT_FALSE(Exists(pid));
}

TEST(SubprocessTest, ACrashIsToldWithItsEvidence) {
  auto child = StartChild("crash");
  ASSERT_NE(child, nullptr);
  worker::Status message;
  EXPECT_TRUE(absl::IsUnavailable(child->Receive(message, In(20))));
  auto exit = child->End(absl::Seconds(10));
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_EQ(exit->signal, SIGSEGV);
  EXPECT_THAT(exit->Describe(), HasSubstr("Segmentation fault"));
  EXPECT_THAT(child->Evidence(), HasSubstr("about to crash"));
}

TEST(SubprocessTest, AnExitCodeIsTold) {
  auto child = StartChild("exit");
  ASSERT_NE(child, nullptr);
  auto exit = child->End(absl::Seconds(10));
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_EQ(exit->Describe(), "exit code 7");
}

TEST(SubprocessTest, OutputNeverBlocksAndItsEndIsKept) {
  auto child = StartChild("chatter");
  ASSERT_NE(child, nullptr);
  ReportOf(*child);
  const std::string evidence = child->Evidence();
  EXPECT_LE(evidence.size(), kMaxEvidenceBytes);
  EXPECT_GT(evidence.size(), kMaxEvidenceBytes / 2);
  EXPECT_THAT(evidence, HasSubstr("65535\n"));
}

TEST(SubprocessTest, DescendantsDieWithTheirGroup) {
  auto child = StartChild("family");
  ASSERT_NE(child, nullptr);
  const pid_t descendant = ReportOf(*child);
  ASSERT_GT(descendant, 1);
  ASSERT_TRUE(Exists(descendant));
  ASSERT_TRUE(child->End().ok());
  EXPECT_FALSE(Exists(descendant));  // reaped too, not a zombie
}

TEST(SubprocessTest, ChildrenHaveAProcessGroupOfTheirOwn) {
  auto child = StartChild("hang");
  ASSERT_NE(child, nullptr);
  EXPECT_EQ(getpgid(child->pid()), child->pid());
  EXPECT_NE(getpgid(0), child->pid());
}

// Batch systems send them to every process of a job at once.
TEST(SubprocessTest, RequestsToStopAreNotTheChildrensToObey) {
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    auto child = StartChild("echo");
    ASSERT_NE(child, nullptr);
    ASSERT_EQ(kill(-child->pid(), signal), 0);  // before it has set anything up
    worker::Status sent, got;
    sent.set_code(signal);
    ASSERT_TRUE(child->Send(sent, In(20)).ok());
    ASSERT_TRUE(child->Receive(got, In(20)).ok()) << strsignal(signal);
    ASSERT_EQ(kill(-child->pid(), signal), 0);
    ASSERT_TRUE(child->Send(sent, In(20)).ok());
    EXPECT_TRUE(child->Receive(got, In(20)).ok()) << strsignal(signal);
  }
}

TEST(SubprocessTest, WithoutFileDescriptorsNoneIsStarted) {
  rlimit usual;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit none{3, usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto child = Subprocess::Start(kTestChild, {"echo"});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_TRUE(absl::IsUnavailable(child.status())) << child.status();
  EXPECT_NE(StartChild("echo"), nullptr);
}

TEST(SubprocessTest, FlagsAreSeenByTheChildrenThatInheritThem) {
  SharedFlag first, second;
  EXPECT_FALSE(IsReadable(first.fd()));
  auto child = Subprocess::Start(kTestChild, {"look"}, {nullptr, {first.fd(), second.fd()}, {}});
  ASSERT_TRUE(child.ok()) << child.status();
  auto seen = [&] {
    EXPECT_TRUE((*child)->Send(worker::Status(), In(20)).ok());
    return ReportOf(**child);
  };
  EXPECT_EQ(seen(), 0);
  second.Set(true);
  EXPECT_EQ(seen(), 2);
  second.Set(true);
  first.Set(true);
  EXPECT_EQ(seen(), 3);
  second.Set(false);
  EXPECT_EQ(seen(), 1);
  first.Set(false);
  EXPECT_EQ(seen(), 0);
  EXPECT_EQ(Subprocess::Start(kTestChild, {"look"},
                              {nullptr, std::vector<int>(kMaxInheritedFds + 1, 0), {}})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  // One that was not handed over reads as set.
  auto other = Subprocess::Start(kTestChild, {"look"}, {nullptr, {first.fd()}, {}});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE((*other)->Send(worker::Status(), In(20)).ok());
  EXPECT_EQ(ReportOf(**other), 2);
}

TEST(SubprocessTest, AStopSignalEndsEveryWait) {
  StopSignal stop;
  auto child = StartChild("hang", &stop);
  ASSERT_NE(child, nullptr);
  ReportOf(*child);
  std::thread stopper([&stop] {
    absl::SleepFor(absl::Milliseconds(50));
    stop.Set();
  });
  worker::Status message;
  EXPECT_TRUE(absl::IsCancelled(child->Receive(message, In(20))));
  stopper.join();
  EXPECT_TRUE(stop.IsSet());
}

TEST(SubprocessTest, ManyThreadsMayStartChildren) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      auto child = StartChild("echo");
      ASSERT_NE(child, nullptr);
      worker::Status sent, got;
      sent.set_code(i);
      ASSERT_TRUE(child->Send(sent, In(20)).ok());
      ASSERT_TRUE(child->Receive(got, In(20)).ok());
      EXPECT_EQ(got.code(), i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The threads have ended; the thread that made the children has not, or this one would die.
}

class DeviceLockTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/heddle-lock-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    setenv("HEDDLE_LOCK_FOLDER", folder, 1);
    device_.id = "test:0";
  }
  void TearDown() override {
    unsetenv("HEDDLE_LOCK_FOLDER");
    unlink((folder_ + "/heddle-test_0.lock").c_str());
    rmdir(folder_.c_str());
  }
  std::string folder_;
  DeviceInfo device_;
};

TEST_F(DeviceLockTest, TheSecondOwnerIsToldTheFirst) {
  {
    auto first = DeviceLock::Acquire(device_);
    ASSERT_TRUE(first.ok()) << first.status();
    auto second = DeviceLock::Acquire(device_);
    ASSERT_TRUE(absl::IsUnavailable(second.status())) << second.status();
    EXPECT_THAT(std::string(second.status().message()),
                HasSubstr("process " + std::to_string(getpid())));
  }
  EXPECT_TRUE(DeviceLock::Acquire(device_).ok());
}

TEST_F(DeviceLockTest, ASupervisorThatIsKilledLeavesNoOrphanAndAFreeLock) {
  auto supervisor = StartChild("supervise");
  ASSERT_NE(supervisor, nullptr);
  const pid_t orphan = ReportOf(*supervisor);
  ASSERT_GT(orphan, 1);
  ASSERT_TRUE(absl::IsUnavailable(DeviceLock::Acquire(device_).status()));
  // The supervisor alone, as the system would when it is out of memory.
  kill(supervisor->pid(), SIGKILL);
  EXPECT_TRUE(Within(5, [&] { return DeviceLock::Acquire(device_).ok(); }));
  // This process is a subreaper: the orphan is its child now.
  EXPECT_TRUE(Within(5, [&] { return waitpid(orphan, nullptr, WNOHANG) == orphan; }));
}

}  // namespace
}  // namespace heddle::measure
