// A daemon with the fake device, and a scripted server for it.
#ifndef HEDDLE_TESTS_DAEMON_DAEMON_FIXTURE_H_
#define HEDDLE_TESTS_DAEMON_DAEMON_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/daemon.h"
#include "measure/run/detect.h"
#include "proto/values.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tests/daemon/fleet_server.h"
#include "tests/process.h"
#include "tests/support.h"

namespace heddle::measure {

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
    options.idle_limit = idle_limit_;
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
                    v1::Lease::Kind kind = v1::Lease::KIND_SCREENING) {
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
    *lease.mutable_budget_duration() = DurationOf(0.2);
    search_space::Rng rng(first);
    for (int i = 0; i < count; ++i) {
      auto point = i == 0 ? space->Default() : space->Sample(rng).value_or(space->Default());
      auto* candidate = lease.add_candidates();
      candidate->set_id(first + i);
      candidate->set_steps(search_space::ToString(*space->Steps(point)));
    }
    return lease;
  }

  // The steps of a simple schedule in work groups of 32, by which scripts recognise it: other
  // simple ones, the naive program among them, have larger groups.
  std::string MarkedSteps(const std::string& workload) const {
    auto program = search_space::ParseWorkload(workload);
    EXPECT_TRUE(program.ok()) << program.status();
    auto space = search_space::SearchSpace::Create(
        std::make_shared<const search_space::TensorProgram>(*std::move(program)), device_.target);
    search_space::Rng rng(1);
    for (int i = 0; i < 10000; ++i) {
      auto point = space->Sample(rng);
      if (point && space->Print(*point).rfind("stream: threads=32 ", 0) == 0) {
        return search_space::ToString(*space->Steps(*point));
      }
    }
    ADD_FAILURE() << "no such point in " << workload;
    return "";
  }
  // A lease of one such candidate, which rules for kMarked meet.
  v1::Lease LeaseOfMarked(int64_t id, int64_t candidate, int64_t n = 64,
                          v1::Lease::Kind kind = v1::Lease::KIND_SCREENING) {
    v1::Lease lease = LeaseOf(id, candidate, 1, n, kind);
    lease.mutable_candidates(0)->set_steps(MarkedSteps(lease.workload()));
    return lease;
  }
  static constexpr char kMarked[] = "reqd_work_group_size(32,";

  // Processes that were started with this test's lock folder.
  std::vector<pid_t> OurProcesses() const {
    const std::string mark = "HEDDLE_LOCK_FOLDER=" + folder_.path();
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const pid_t pid = atoi(entry.path().filename().c_str());
      if (pid <= 0 || pid == getpid()) continue;
      const std::string environment = tests::ReadAll(entry.path() / "environ");
      if (environment.find(mark) != std::string::npos) found.push_back(pid);
    }
    return found;
  }

  tests::TempFolder folder_;
  DeviceInfo device_;
  absl::Duration idle_limit_ = absl::Minutes(1);
  std::unique_ptr<FleetServer> server_;
  std::unique_ptr<Daemon> daemon_;
  std::atomic<bool> interrupted_ = false;
  std::thread thread_;
  absl::Status ended_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_TESTS_DAEMON_DAEMON_FIXTURE_H_
