// The daemon against a scripted server, on a device that misbehaves on request.
#include "daemon/daemon.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/time/clock.h"
#include "base/host.h"
#include "tests/daemon/daemon_fixture.h"

namespace heddle::measure {
namespace {

using tests::FleetServer;
using v1::WorkerStatus;

TEST(HostIdTest, IsTheMachinesOrElseNameAndBoot) {
  const std::string file = ::testing::TempDir() + "/machine-id";
  std::ofstream(file) << "0123456789abcdef\n";
  EXPECT_EQ(HostId(file), "0123456789abcdef");
  for (const char* unset : {"", "uninitialized\n"}) {
    std::ofstream(file) << unset;
    const std::string id = HostId(file);
    EXPECT_GE(id.size(), 36U) << id;  // a boot's UUID
    EXPECT_LE(id.size(), 64U) << id;
    EXPECT_EQ(
        id.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"),
        std::string::npos)
        << id;
    EXPECT_EQ(HostId(file + ".missing"), id);
  }
  setenv("HEDDLE_HOST", "node-7.example_org", 1);
  EXPECT_EQ(HostId(file), "node-7-exampleorg");
  unsetenv("HEDDLE_HOST");
}

TEST_F(DaemonTest, MeasuresWhatItLeasesAndReportsIt) {
  Begin();
  server_->Offer(LeaseOf(1, 100, 4));
  server_->Offer(LeaseOf(2, 200, 2, /*n=*/96));  // another workload
  server_->Offer(LeaseOf(3, 300, 2, /*n=*/96, v1::Lease::KIND_FINALS));
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
  EXPECT_EQ(server_->beat.device_states(0).state(), WorkerStatus::STATE_GONE);
}

// The value of a metric with this label; -1 where there is none.
double ValueOf(Daemon& daemon, const std::string& family, const std::string& label) {
  for (const prometheus::MetricFamily& f : daemon.metrics().registry().Collect()) {
    if (f.name != family) continue;
    for (const prometheus::ClientMetric& metric : f.metric) {
      for (const auto& l : metric.label) {
        if (l.value == label) return metric.counter.value + metric.gauge.value;
      }
      if (metric.label.empty()) return metric.counter.value + metric.gauge.value;
    }
  }
  return -1;
}

TEST_F(DaemonTest, ItsOwnMetricsTellWhatTheServerHas) {
  server_->Offer(LeaseOf(1, 10, 2));
  Begin();
  ASSERT_TRUE(server_->AwaitResults(2));
  // The reply is on its way.
  for (int i = 0; i < 2000 && ValueOf(*daemon_, "heddle_daemon_trials_total", "OK") < 1; ++i) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_GE(ValueOf(*daemon_, "heddle_daemon_trials_total", "OK"), 1);
  EXPECT_GT(ValueOf(*daemon_, "heddle_daemon_device_seconds_total", "fake:0"), 0);
  EXPECT_GT(ValueOf(*daemon_, "heddle_daemon_last_heartbeat_timestamp_seconds", ""), 1.7e9);
  EXPECT_EQ(ValueOf(*daemon_, "heddle_daemon_worker", "STARTING"), 0) << "it was once";
  EXPECT_EQ(ValueOf(*daemon_, "heddle_daemon_refused_reports_total", ""), 0);
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

// A full disk, a failed write, a busy database: none of it is the report's fault.
TEST_F(DaemonTest, ResultsAreKeptThroughRefusalsThatAreNotTheirs) {
  Begin();
  server_->Refuse(
      5, {grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::DATA_LOSS,
          grpc::StatusCode::INTERNAL, grpc::StatusCode::ABORTED, grpc::StatusCode::CANCELLED});
  server_->Offer(LeaseOf(1, 100, 1));
  ASSERT_TRUE(server_->AwaitResults(1));
  EXPECT_TRUE(server_->Await([](const FleetServer& s) { return s.beat.leases().empty(); }))
      << "a lease that is done is no longer held";
  End();
  EXPECT_EQ(server_->refused, 5);
  EXPECT_EQ(server_->results.count(100), 1u);
}

TEST_F(DaemonTest, WhatIsGivenBackIsKeptThroughRefusals) {
  Begin();
  server_->Refuse(2, {grpc::StatusCode::RESOURCE_EXHAUSTED});
  v1::Lease broken = LeaseOf(1, 100, 1);
  broken.set_workload("no workload");
  server_->Offer(broken);
  ASSERT_TRUE(server_->Await([](const FleetServer& s) { return !s.released.empty(); }));
  EXPECT_EQ(server_->released[0].fault(), v1::ReleaseRequest::FAULT_WORKLOAD);
  EXPECT_EQ(server_->refused, 2);
}

// What the call itself is to blame for stays refused, and the device goes on.
TEST_F(DaemonTest, AReportThatIsWrongIsSentOnce) {
  Begin();
  server_->Refuse(1, {grpc::StatusCode::INVALID_ARGUMENT});
  server_->Offer(LeaseOf(1, 100, 1));
  ASSERT_TRUE(server_->Await([](const FleetServer& s) { return s.refused == 1; }));
  server_->Offer(LeaseOf(2, 200, 1));
  ASSERT_TRUE(server_->AwaitResults(1));
  EXPECT_EQ(server_->results.count(100), 0u);
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
  ASSERT_TRUE(server_->AwaitState(WorkerStatus::STATE_IDLE));
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

TEST_F(DaemonTest, AnIdleDeviceIsFree) {
  idle_limit_ = absl::Seconds(2);
  Begin();
  server_->Offer(LeaseOf(1, 100, 2));
  ASSERT_TRUE(server_->AwaitResults(2));
  EXPECT_FALSE(OurProcesses().empty());
  const absl::Time deadline = absl::Now() + absl::Seconds(120);
  while (!OurProcesses().empty() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(50));
  EXPECT_TRUE(OurProcesses().empty()) << "the worker still has the device's memory";
  // The same workload again.
  server_->Offer(LeaseOf(2, 200, 2));
  ASSERT_TRUE(server_->AwaitResults(4));
  EXPECT_EQ(server_->results[200].outcome(), v1::OUTCOME_OK) << server_->results[200].detail();
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

}  // namespace
}  // namespace heddle::measure
