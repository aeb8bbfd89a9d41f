#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "measure/device/backend.h"
#include "measure/device/drivers.h"
#include "measure/judge/timing.h"

namespace heddle::measure {
namespace {

class FakeDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!DetectOpenClDevices()[0].usable) GTEST_SKIP() << DetectOpenClDevices()[0].why_not;
    testing::GTEST_FLAG(death_test_style) = "threadsafe";
    path_ = absl::StrCat(testing::TempDir(), "/fake_device_", getpid(), ".json");
    setenv("HEDDLE_FAKE_DEVICE", path_.c_str(), 1);
  }
  void TearDown() override { unsetenv("HEDDLE_FAKE_DEVICE"); }

  void Script(const std::string& json) { std::ofstream(path_) << json; }

  // The kernel that adds one to each of 64 elements of C, with `text` as its comment.
  static KernelSource AddOne(const std::string& text) {
    return {{"add_one", 1, 64, 0, {"C"}},
            "// " + text +
                "\n__kernel __attribute__((reqd_work_group_size(64, 1, 1)))\n"
                "void add_one(__global float* c) { c[get_global_id(0)] += 1; }\n"};
  }

  void Load(const std::string& text) {
    c_.reset();
    program_.reset();
    device_ = OpenDevice("fake:0").value();
    KernelSource source = AddOne(text);
    std::string binary = CompileFake(source).value();
    program_ = device_->Load({{source.launch, binary}}).value();
    c_ = device_->Allocate(256).value();
    ASSERT_TRUE(device_->Fill(*c_, 0).ok());
  }

  absl::Status Run() { return device_->Run(*program_, {{"C", c_.get()}}); }
  std::vector<float> Values() {
    std::vector<float> values(64);
    EXPECT_TRUE(device_->Download(*c_, values.data(), 256).ok());
    return values;
  }

  std::string path_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<LoadedProgram> program_;
  std::unique_ptr<DeviceBuffer> c_;
};

TEST_F(FakeDeviceTest, ComputesForRealUnlessARuleApplies) {
  Script(R"({"rules": [{"match": "bad", "do": "wrong"}], "target": {"peak_gflops": 1234}})");
  Load("good");
  EXPECT_EQ(device_->info().id, "fake:0");
  EXPECT_EQ(device_->info().target.peak_gflops, 1234);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Values(), std::vector<float>(64, 1.0f));
  Load("bad");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Values().front(), 1.0f);
  EXPECT_EQ(Values().back(), 2.0f) << "the last element is wrong";
}

TEST_F(FakeDeviceTest, FailsAsScripted) {
  Script(
      R"({"rules": [{"match": "build", "do": "build_error"}, {"match": "load", "do": "load_error"},
                       {"match": "launch", "do": "launch_error"},
                       {"match": "access", "do": "illegal_access"},
                       {"match": "crash", "do": "crash"}, {"match": "exit", "do": "exit"}]})");
  EXPECT_EQ(CompileFake(AddOne("build")).status().code(), absl::StatusCode::kInvalidArgument);
  KernelSource source = AddOne("load");
  device_ = OpenDevice("fake:0").value();
  EXPECT_EQ(device_->Load({{source.launch, CompileFake(source).value()}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  Load("launch");
  EXPECT_EQ(OutcomeOf(Run()), Outcome::kLaunchError);
  Load("access");
  EXPECT_EQ(OutcomeOf(Run()), Outcome::kIllegalAccess);
}

TEST_F(FakeDeviceTest, EndsTheProcessAsScripted) {
  Script(R"({"rules": [{"match": "crash", "do": "crash"}, {"match": "exit", "do": "exit"}]})");
  Load("crash");
  EXPECT_EXIT(Run().IgnoreError(), testing::KilledBySignal(SIGSEGV), "");
  Load("exit");
  EXPECT_EXIT(Run().IgnoreError(), testing::ExitedWithCode(3), "");
  // A hang is ended by whoever watches: here by the alarm.
  Script(R"({"rules": [{"do": "hang"}]})");
  Load("hang");
  EXPECT_EXIT(
      {
        alarm(1);
        Run().IgnoreError();
      },
      testing::KilledBySignal(SIGALRM), "");
}

TEST_F(FakeDeviceTest, TheScriptedClockIsWhatTimingSees) {
  Script(R"({"rules": [{"match": "fast", "time_us": 5, "jitter": 0.001},
                       {"match": "slow", "time_us": 500}]})");
  for (auto [text, microseconds] : {std::pair("fast", 5.0), std::pair("slow", 500.0)}) {
    Load(text);
    auto timing = TimeProgram(*device_, {program_.get(), {{{"C", c_.get()}}}}, {});
    ASSERT_TRUE(timing.ok()) << timing.status();
    EXPECT_NEAR(timing->interval.median * 1e6, microseconds, 0.01 * microseconds);
    EXPECT_FALSE(timing->noisy);
  }
}

TEST_F(FakeDeviceTest, OneInNPicksByTheSourceItself) {
  Script(R"({"rules": [{"one_in": 4, "do": "build_error"}]})");
  int failed = 0;
  for (int i = 0; i < 8; ++i) {
    const bool first = CompileFake(AddOne(std::to_string(i))).ok();
    failed += !first;
    EXPECT_EQ(CompileFake(AddOne(std::to_string(i))).ok(), first) << "same source, same fate";
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 8);
}

TEST_F(FakeDeviceTest, BadScriptsAreNamed) {
  Script("not json");
  absl::Status status = OpenDevice("fake:0").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(path_), absl::string_view::npos) << status;
  EXPECT_FALSE(DetectFakeDevices()[0].usable);
  unsetenv("HEDDLE_FAKE_DEVICE");
  EXPECT_TRUE(DetectFakeDevices().empty());
}

}  // namespace
}  // namespace heddle::measure
