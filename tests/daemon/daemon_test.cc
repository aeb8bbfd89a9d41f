// The daemon against a scripted server, on a device that misbehaves on request.
#include "measure/daemon/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "search_space/notation.h"
#include "search_space/search_space.h"
#include "tests/daemon/fleet_server.h"
#include "tests/process.h"
#include "tests/support.h"

namespace heddle::measure {
namespace {

using testing::HasSubstr;
using tests::FleetServer;
using v1::WorkerStatus;

class DaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("HEDDLE_LOCK_FOLDER", folder_.path().c_str(), 1);
    setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    setenv("HEDDLE_FAKE_DEVICE", (folder_ / "script.json").c_str(), 1);
    Script("");
    auto found = FindDevice("fake:0");
    HEDDLE_NEEDS("pocl", found.ok() && found->usable, "the fake device computes with PoCL");
    device_ = *found;
    server_ = std::make_unique<FleetServer>("unix:" + (folder_ / "server"));
  }
  void TearDown() override {
    End();
    for (const char* name : {"HEDDLE_LOCK_FOLDER", "XDG_CACHE_HOME", "HEDDLE_FAKE_DEVICE"}) {
      unsetenv(name);
    }
  }

  void Script(const std::string& rules) {
    const std::string path = folder_ / "script.json";
    std::ofstream(path + ".new") << R"({"rules": [)" << rules << "]}";
    std::filesystem::rename(path + ".new", path);
  }

  void Begin() {
    DaemonOptions options;
    options.server.server = "unix:" + (folder_ / "server");
    options.devices = {"fake:0"};
    options.host_id = "test-host";
    options.build = "test";
    auto daemon = Daemon::Create(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    thread_ =
        std::thread([this] { ended_ = daemon_->Run([this] { return interrupted_.load(); }); });
  }
  void End() {
    interrupted_ = true;
    if (thread_.joinable()) thread_.join();
    daemon_.reset();
    interrupted_ = false;
  }

  // A lease of `count` schedules of the workload; the first is the default one, the others random.
  // Candidates are numbered from `first`.
  v1::Lease LeaseOf(int64_t id, int64_t first, int count, int64_t n = 64,
                    v1::Lease::Kind kind = v1::Lease::SCREENING) {
    auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
    auto program = std::make_shared<const search_space::TensorProgram>(
        *op->Instantiate({{"m", n}, {"n", n}, {"k", n}}, search_space::DType::kFloat32));
    auto space = search_space::SearchSpace::Create(program, device_.target);
    EXPECT_TRUE(space.ok()) << space.status();
    v1::Lease lease;
    lease.set_id(id);
    lease.set_kind(kind);
    lease.set_workload(program->canonical_text);
    lease.set_seed(1);
    lease.set_budget_s(0.2);
    search_space::Rng rng(first);
    for (int i = 0; i < count; ++i) {
      auto point = i == 0 ? space->Default() : space->Sample(rng).value_or(space->Default());
      auto* candidate = lease.add_candidates();
      candidate->set_id(first + i);
      candidate->set_steps(search_space::ToString(*space->Steps(point)));
    }
    return lease;
  }

  int Ok() const {
    int ok = 0;
    for (const auto& [id, result] : server_->results) ok += result.outcome() == v1::OUTCOME_OK;
    return ok;
  }

  tests::TempFolder folder_;
  DeviceInfo device_;
  std::unique_ptr<FleetServer> server_;
  std::unique_ptr<Daemon> daemon_;
  std::atomic<bool> interrupted_ = false;
  std::thread thread_;
  absl::Status ended_;
};

TEST_F(DaemonTest, MeasuresWhatItLeasesAndReportsIt) {
  Begin();
  server_->Offer(LeaseOf(1, 100, 4));
  server_->Offer(LeaseOf(2, 200, 2, /*n=*/96));  // another workload
  server_->Offer(LeaseOf(3, 300, 2, /*n=*/96, v1::Lease::FINALS));
  ASSERT_TRUE(server_->AwaitResults(8));
  End();
  EXPECT_TRUE(ended_.ok()) << ended_;
  EXPECT_EQ(server_->registered.host_uuid(), "test-host");
  ASSERT_EQ(server_->registered.devices_size(), 1);
  EXPECT_EQ(server_->registered.devices(0).id(), "fake:0");
  for (int64_t id : {100, 200, 300}) {  // the default schedules
    EXPECT_EQ(server_->results[id].outcome(), v1::OUTCOME_OK) << server_->results[id].detail();
    EXPECT_GT(server_->results[id].time_us(), 0);
    EXPECT_FALSE(server_->results[id].source_hash().empty());
  }
  EXPECT_TRUE(server_->released.empty());
  EXPECT_EQ(server_->beat.device_states(0).state(), WorkerStatus::GONE);
}

TEST_F(DaemonTest, ResultsSurviveLostRepliesAndForgottenSessions) {
  Begin();
  server_->LoseReportReplies(2);
  server_->Offer(LeaseOf(1, 100, 2));
  ASSERT_TRUE(server_->AwaitResults(2));
  server_->ForgetSession();
  server_->Offer(LeaseOf(2, 200, 2));
  ASSERT_TRUE(server_->AwaitResults(4));
  End();
  EXPECT_GE(server_->registrations, 2);
  EXPECT_GE(server_->reports, 4);
  EXPECT_EQ(server_->results.size(), 4u);
}

TEST_F(DaemonTest, AServerThatGoesAwayGetsTheResultsWhenItIsBack) {
  Begin();
  server_->Offer(LeaseOf(1, 100, 3));
  ASSERT_TRUE(server_->Await([](const FleetServer& s) { return s.acquired == 1; }));
  server_->Stop();
  absl::SleepFor(absl::Seconds(3));
  server_->ForgetSession();
  server_->Start();
  EXPECT_TRUE(server_->AwaitResults(3));
}

TEST_F(DaemonTest, ARevokedLeaseStops) {
  // Slow candidates, so that most have not begun when the lease is revoked.
  Script(R"({"match": "", "time_us": 200000})");
  Begin();
  ASSERT_TRUE(server_->AwaitState(WorkerStatus::IDLE));
  server_->Revoke(1);
  server_->Offer(LeaseOf(1, 100, 16));
  ASSERT_TRUE(server_->Await([](const FleetServer& s) { return !s.released.empty(); }));
  server_->Offer(LeaseOf(2, 200, 1));
  ASSERT_TRUE(server_->Await([](const FleetServer& s) { return s.results.count(200) > 0; }));
  End();
  EXPECT_EQ(server_->released[0].lease(), 1);
  EXPECT_EQ(server_->released[0].fault(), v1::ReleaseRequest::FAULT_NONE);
  // Each candidate was reported or given back, none both.
  EXPECT_EQ(server_->results.size() - 1 + server_->released[0].unstarted_size(), 16u);
  EXPECT_GE(server_->released[0].unstarted_size(), 8);
}

TEST_F(DaemonTest, ToldToEndItGivesBackWhatHasNotRun) {
  Script(R"({"match": "", "time_us": 200000})");
  Begin();
  server_->Offer(LeaseOf(1, 100, 16));
  ASSERT_TRUE(server_->AwaitResults(1));
  const absl::Time told = absl::Now();
  End();
  EXPECT_LT(absl::Now() - told, absl::Seconds(15));
  EXPECT_TRUE(ended_.ok()) << ended_;
  ASSERT_EQ(server_->released.size(), 1u);
  EXPECT_EQ(server_->results.size() + server_->released[0].unstarted_size(), 16u);
}

TEST_F(DaemonTest, AWorkloadThatCannotBeMeasuredIsGivenBackAsSuch) {
  Begin();
  v1::Lease lease = LeaseOf(1, 100, 2);
  lease.set_workload("no workload");
  server_->Offer(lease);
  ASSERT_TRUE(server_->Await([](const FleetServer& s) { return !s.released.empty(); }));
  server_->Offer(LeaseOf(2, 200, 1));
  EXPECT_TRUE(server_->AwaitResults(1)) << "the device still works";
  End();
  EXPECT_EQ(server_->released[0].fault(), v1::ReleaseRequest::FAULT_WORKLOAD);
  EXPECT_EQ(server_->released[0].unstarted_size(), 2);
  EXPECT_FALSE(server_->released[0].detail().empty());
}

TEST_F(DaemonTest, ASecondDaemonIsToldTheFirst) {
  Begin();
  DaemonOptions options;
  options.server.server = "unix:" + (folder_ / "server");
  options.devices = {"fake:0"};
  auto second = Daemon::Create(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("process ", getpid())));
}

}  // namespace
}  // namespace heddle::measure
