// What happens to candidates, devices and processes must cost nothing but itself. Each test names
// the invariant that its fault keeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "measure/device/device_lock.h"
#include "tests/daemon/daemon_fixture.h"

namespace heddle::measure {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class DaemonFaultTest : public DaemonTest {
 protected:
  // What becomes of the marked candidate.
  static std::string Rule(const std::string& fault) {
    return absl::StrCat(R"({"match": ")", kMarked, R"(", "do": ")", fault, R"("})");
  }
};

// A kernel hangs: the next candidate runs within the limit and a restart.
TEST_F(DaemonFaultTest, AHangingKernelCostsItsLimitOnly) {
  Script(Rule("hang"));
  Begin();
  ASSERT_TRUE(server_->AwaitState(WorkerStatus::STATE_IDLE));
  v1::Lease lease = LeaseOfMarked(1, 100);
  *lease.add_candidates() = LeaseOf(1, 101, 1).candidates(0);
  const absl::Time begin = absl::Now();
  server_->Offer(lease);
  ASSERT_TRUE(server_->AwaitResults(2, absl::Seconds(120)));
  const MeasureOptions limits;
  EXPECT_LT(absl::Now() - begin, limits.validate_limit + absl::Seconds(60)) << "on a busy machine";
  End();
  EXPECT_EQ(server_->results[100].outcome(), v1::OUTCOME_RUN_TIMEOUT);
  EXPECT_EQ(server_->results[101].outcome(), v1::OUTCOME_OK) << server_->results[101].detail();
}

// A crash in each phase: the outcome names the phase, and the device works on.
TEST_F(DaemonFaultTest, ACrashInEachPhaseIsNamed) {
  struct Case {
    const char* fault;
    v1::Outcome outcome;
    const char* detail;
  };
  const std::vector<Case> cases = {
      {"build_crash", v1::OUTCOME_BUILD_ERROR, "compiler"},
      {"load_error", v1::OUTCOME_LAUNCH_ERROR, "load"},
      {"launch_error", v1::OUTCOME_LAUNCH_ERROR, "launch"},
      {"illegal_access", v1::OUTCOME_ILLEGAL_ACCESS, "illegal access"},
      {"crash", v1::OUTCOME_ILLEGAL_ACCESS, "while validating"},
      {"exit", v1::OUTCOME_WORKER_LOST, "while validating"},
  };
  Begin();
  int64_t id = 0;
  for (const Case& c : cases) {
    ++id;
    Script(Rule(c.fault));
    // A shape of its own, so that the compiler's cache does not know it.
    server_->Offer(LeaseOfMarked(id, 100 + id, 12 * (id + 1)));
    ASSERT_TRUE(server_->AwaitResults(static_cast<size_t>(id))) << c.fault;
  }
  Script("");
  server_->Offer(LeaseOf(id + 1, 200, 1));
  ASSERT_TRUE(server_->AwaitResults(cases.size() + 1));
  End();
  for (size_t i = 0; i < cases.size(); ++i) {
    const v1::TrialResult& result = server_->results[101 + static_cast<int64_t>(i)];
    EXPECT_EQ(result.outcome(), cases[i].outcome) << cases[i].fault << ": " << result.detail();
    EXPECT_THAT(result.detail(), HasSubstr(cases[i].detail)) << cases[i].fault;
  }
  EXPECT_EQ(server_->results[200].outcome(), v1::OUTCOME_OK);
}

// An endless compiler with children: none survives.
TEST_F(DaemonFaultTest, AnEndlessCompilerAndItsChildrenAreEnded) {
  Script(Rule("build_hang"));
  Begin();
  server_->Offer(LeaseOfMarked(1, 100));
  ASSERT_TRUE(server_->AwaitResults(1, absl::Seconds(120)));
  End();
  EXPECT_EQ(server_->results[100].outcome(), v1::OUTCOME_BUILD_TIMEOUT);
  EXPECT_THAT(OurProcesses(), IsEmpty());
}

// The supervisor is killed: no orphan, and the device is free in 5 s.
TEST_F(DaemonFaultTest, AKilledDaemonLeavesNothingBehind) {
  Script(R"({"match": "", "time_us": 200000})");
  tests::Process daemon({tests::HeddleBinary(), "measured", "--server",
                         "unix:" + (folder_ / "server"), "--device", "fake:0", "--host-id", "h"});
  server_->Offer(LeaseOf(1, 100, 16));
  ASSERT_TRUE(server_->AwaitResults(1)) << daemon.err();
  EXPECT_GE(OurProcesses().size(), 2u) << "a daemon and its worker";
  kill(daemon.pid(), SIGKILL);
  EXPECT_EQ(daemon.Wait().code, 128 + SIGKILL);
  absl::StatusOr<DeviceLock> lock = absl::UnavailableError("not tried");
  const absl::Time killed = absl::Now();
  while (!lock.ok() && absl::Now() - killed < absl::Seconds(5)) {
    absl::SleepFor(absl::Milliseconds(50));
    lock = DeviceLock::Acquire(device_);
  }
  EXPECT_TRUE(lock.ok()) << lock.status();
  while (!OurProcesses().empty() && absl::Now() - killed < absl::Seconds(5)) {
    absl::SleepFor(absl::Milliseconds(50));
  }
  EXPECT_THAT(OurProcesses(), IsEmpty());
}

// Two daemons, one GPU: the second refuses and names the owner.
TEST_F(DaemonFaultTest, ASecondDaemonIsToldTheFirst) {
  Begin();
  tests::Process second({tests::HeddleBinary(), "measured", "--server",
                         "unix:" + (folder_ / "server"), "--device", "fake:0", "--host-id", "h2"});
  const tests::Ran ran = second.Wait();
  EXPECT_EQ(ran.code, 4);
  EXPECT_THAT(ran.err, HasSubstr(absl::StrCat("process ", getpid())));
  EXPECT_EQ(server_->registrations, 1);
}

// The canary fails: no candidate is blamed, and the device gets work when it is well again.
TEST_F(DaemonFaultTest, ADeviceThatComputesWrongBlamesNoCandidate) {
  Begin();
  ASSERT_TRUE(server_->AwaitState(WorkerStatus::STATE_IDLE));
  Script(R"({"match": "", "do": "wrong"})");
  server_->Offer(LeaseOf(1, 100, 3));
  ASSERT_TRUE(server_->Await([](const FleetServer& s) { return !s.released.empty(); }));
  ASSERT_TRUE(server_->AwaitState(WorkerStatus::STATE_RESTARTING));
  server_->Offer(LeaseOf(2, 200, 1));
  ASSERT_TRUE(server_->AwaitState(WorkerStatus::STATE_RESTARTING));
  EXPECT_EQ(server_->acquired, 1) << "a device that fails its canary gets no work";
  Script("");
  ASSERT_TRUE(server_->AwaitResults(1));
  End();
  EXPECT_EQ(server_->released[0].fault(), v1::ReleaseRequest::FAULT_DEVICE);
  EXPECT_EQ(server_->released[0].unstarted_size(), 3);
  EXPECT_FALSE(server_->released[0].detail().empty());
  EXPECT_EQ(server_->results.count(100), 0u);
  EXPECT_EQ(server_->results[200].outcome(), v1::OUTCOME_OK);
}

// Wrong but fastest: never a time that could become a best, screening or finals.
TEST_F(DaemonFaultTest, AWrongAnswerHasNoTime) {
  Script(absl::StrCat(R"({"match": ")", kMarked, R"(", "do": "wrong", "time_us": 30})"));
  Begin();
  v1::Lease finals = LeaseOfMarked(2, 200, 64, v1::Lease::KIND_FINALS);
  *finals.add_candidates() = LeaseOf(2, 201, 1).candidates(0);
  server_->Offer(LeaseOfMarked(1, 100));
  server_->Offer(finals);
  ASSERT_TRUE(server_->AwaitResults(3));
  End();
  for (int64_t id : {100, 200}) {
    EXPECT_EQ(server_->results[id].outcome(), v1::OUTCOME_WRONG_ANSWER);
    EXPECT_EQ(server_->results[id].time_us(), 0);
  }
  EXPECT_EQ(server_->results[201].outcome(), v1::OUTCOME_OK);
}

// A failure at every start: UNHEALTHY, with the reason.
TEST_F(DaemonFaultTest, ADeviceThatKeepsFailingIsUnhealthy) {
  Script(R"({"match": "", "do": "crash"})");
  Begin();
  ASSERT_TRUE(server_->AwaitState(WorkerStatus::STATE_UNHEALTHY, absl::Seconds(120)));
  EXPECT_FALSE(server_->beat.device_states(0).detail().empty());
}

}  // namespace
}  // namespace heddle::measure
