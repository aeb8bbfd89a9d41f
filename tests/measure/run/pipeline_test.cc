// The whole way of a candidate through compiler, worker and device, and every fault on it: each
// costs one trial with the right outcome, and the next candidate is measured. Here with real
// kernels, in pipeline_fault_test.cc with scripted faults.
#include "measure/run/pipeline.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/process/sandbox.h"
#include "measure/device/device_lock.h"
#include "measure/device/drivers.h"
#include "measure/run/detect.h"
#include "measure/run/device_worker.h"
#include "measure/run/processes/confine.h"
#include "measure/run/processes/kept_processes.h"
#include "measure/run/processes/messages.h"
#include "measure/run/processes/processes.h"
#include "proto/worker.pb.h"
#include "search_space/schedule/step.h"
#include "tests/measure/children.h"
#include "tests/measure/pipeline_support.h"
#include "tests/support.h"

namespace heddle::measure::pipeline_test {
namespace {

TEST(MustHurry, OnlyWhereOthersWaitOrNobodyComes) {
  EXPECT_TRUE(MustHurry(/*ready=*/1, /*coming=*/0));
  EXPECT_TRUE(MustHurry(1, 5));
  EXPECT_TRUE(MustHurry(0, 0));
  EXPECT_FALSE(MustHurry(0, 1));
}

// Opening a device takes as long as many trials.
TEST_F(PipelineTest, ASecondMeasurerTakesOverTheWorkerOfTheFirst) {
  HEDDLE_NEEDS("pocl", FindDevice("opencl:0").ok(), "no OpenCL device");
  KeptProcesses kept;
  options_.kept = &kept;
  ASSERT_EQ(Start("opencl:0"), absl::OkStatus());
  EXPECT_EQ(Run({Right(1)})[0].outcome, Outcome::kOk);
  const std::set<pid_t> workers = ChildrenOf("__worker");
  ASSERT_EQ(workers.size(), 1);
  measurer_.reset();
  EXPECT_EQ(ChildrenOf("__worker"), workers);

  elements_ = 2 * kElements;  // another workload
  ASSERT_EQ(Start("opencl:0"), absl::OkStatus());
  auto results = Run({Right(2), Body("B[i] = A[i];")});
  EXPECT_EQ(results[0].outcome, Outcome::kOk) << results[0].detail;
  EXPECT_EQ(results[1].outcome, Outcome::kWrongAnswer);
  EXPECT_EQ(ChildrenOf("__worker"), workers);

  // What was stopped leaves nothing, and the next one starts its own.
  measurer_->Stop();
  measurer_.reset();
  EXPECT_EQ(ChildrenOf("__worker"), std::set<pid_t>());
  ASSERT_EQ(Start("opencl:0"), absl::OkStatus());
  EXPECT_EQ(Run({Right(3)})[0].outcome, Outcome::kOk);
  const std::set<pid_t> others = ChildrenOf("__worker");
  EXPECT_EQ(others.size(), 1);
  EXPECT_NE(others, workers);

  // Nor does a worker that dies while nobody has it cost the next measurer more than its start.
  measurer_.reset();
  ASSERT_EQ(kill(*others.begin(), SIGKILL), 0);
  ASSERT_EQ(Start("opencl:0"), absl::OkStatus());
  EXPECT_EQ(Run({Right(4)})[0].outcome, Outcome::kOk);
  measurer_.reset();  // before what keeps its processes
}

TEST_F(PipelineTest, CandidatesMayBeSubmittedWhileTheDeviceStarts) {
  HEDDLE_NEEDS("pocl", FindDevice("opencl:0").ok(), "no OpenCL device");
  KeptProcesses kept;
  options_.kept = &kept;
  options_.await_device = false;
  for (int i = 0; i < 2; ++i) {
    elements_ = (i + 1) * kElements;
    ASSERT_EQ(Start("opencl:0"), absl::OkStatus());
    auto results = Run({Right(1), Right(2)});
    EXPECT_EQ(results[0].outcome, Outcome::kOk) << results[0].detail;
    EXPECT_EQ(results[1].outcome, Outcome::kOk) << results[1].detail;
    EXPECT_EQ(measurer_->AwaitDevice(), absl::OkStatus());
    EXPECT_GT(measurer_->naive_us(), 0);
    measurer_.reset();
    EXPECT_EQ(ChildrenOf("__worker").size(), 1) << "kept";
  }
  // One that is not wanted any more leaves nothing.
  options_.kept = nullptr;
  EXPECT_NE(kept.Take("opencl:0", options_.compile_workers), nullptr) << "and ends here";
  ASSERT_EQ(Start("opencl:0"), absl::OkStatus());
  measurer_.reset();
  EXPECT_TRUE(ChildrenOf("__worker").empty());
}

// Nothing is known of the candidate then: it must not look as if it had killed its worker.
TEST_F(PipelineTest, AHostThatStartsNoProcessIsNoCandidatesFault) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "whoever checks types of objects meanwhile needs descriptors of its own";
#endif
  HEDDLE_NEEDS("pocl", FindDevice("opencl:0").ok(), "no OpenCL device");
  ASSERT_EQ(Start("opencl:0"), absl::OkStatus());
  // Of the naive program.
  for (pid_t compiler : ChildrenOf("__compiler")) ASSERT_EQ(kill(compiler, SIGKILL), 0);
  rlimit usual;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit none{3, usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  measurer_->Submit({1, "", Right(1)});
  auto next = measurer_->Next(absl::Seconds(60));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_TRUE(absl::IsUnavailable(next.status())) << next.status();
  EXPECT_THAT(std::string(next.status().message()), HasSubstr("cannot start"));
}

#ifdef __x86_64__
// On a processor candidates are machine code of the worker: this one opens a file and a socket, and
// is right only where the kernel refused both.
TEST_F(PipelineTest, PoclCandidatesOpenNoFilesAndNoSockets) {
  HEDDLE_NEEDS("pocl", FindDevice("opencl:0").ok(), "no OpenCL device");
  HEDDLE_NEEDS("landlock", FindLandlock().ok(), FindLandlock());
  HEDDLE_NEEDS("seccomp", FindSeccomp().ok(), FindSeccomp());
  std::ofstream(folder_ + "/token") << "secret";
  const auto call = [](int number, const std::string& arguments) {
    return absl::StrCat("__asm__ volatile(\"syscall\" : \"=a\"(r) : \"a\"(", number, "L), ",
                        arguments, " : \"rcx\", \"r11\", \"memory\"); ");
  };
  const std::vector<Step> thief =
      Body(absl::StrCat("float held = 1.0f; long r; char path[] = \"", folder_,
                        "/token\"; if (i == 0) { ", call(2, "\"D\"(path), \"S\"(0L), \"d\"(0L)"),
                        "if (r != -13) held = 0.0f; ", call(41, "\"D\"(2L), \"S\"(1L), \"d\"(0L)"),
                        "if (r != -1) held = 0.0f; } ", "B[i] = A[i] * 2.0f + held;"));
  ASSERT_EQ(Start("opencl:0"), absl::OkStatus());
  auto results = Run({thief, Right(1)});
  EXPECT_STREQ(NameOf(results[0].outcome), "OK") << results[0].detail;
  EXPECT_STREQ(NameOf(results[1].outcome), "OK") << results[1].detail;
  // That it would have opened them otherwise.
  measurer_.reset();
  SetConfined(false);
  ASSERT_EQ(Start("opencl:0"), absl::OkStatus());
  EXPECT_STREQ(NameOf(Run({thief})[0].outcome), "WRONG_ANSWER");
  SetConfined(true);
}
#endif

// The worker's side of it, with the flag in the test's hand.
TEST_F(PipelineTest, AWorkerThatNeedNotHurryTakesMoreSamples) {
  // By a scripted clock: on a machine that others use an interval may stay wide for all of the
  // budget, and nothing would be spare.
  Script(R"({"time_us": 500, "jitter": 0.001})");
  auto device = FindDevice("fake:0");
  HEDDLE_NEEDS("pocl", device.ok(), device.status().message());
  const GeneratedProgram right = Source(/*cuda=*/false, elements_, kRight);
  auto binary = CompileFake(right.kernels[0]);
  ASSERT_TRUE(binary.ok()) << binary.status();
  worker::Program program;
  *program.add_kernels()->mutable_launch() = ToProto(right.kernels[0].launch);
  program.mutable_kernels(0)->set_binary(*binary);
  worker::Setup setup;
  setup.set_device("fake:0");
  setup.set_workload(Workload(elements_).canonical_text);
  setup.set_seed(1);
  setup.set_l2("warm");
  StopSignal stop;
  SharedFlag hurry;
  DeviceWorker worker(setup, options_, /*fastest_us=*/0,
                      ChildOptions{&stop, {stop.fd(), hurry.fd()}, {}});
  worker.OpenAhead();
  ASSERT_EQ(worker.Start(program), absl::OkStatus());

  hurry.Set(true);
  auto hurried = worker.Measure(program);
  ASSERT_TRUE(hurried.ok()) << hurried.status();
  EXPECT_EQ(hurried->outcome, Outcome::kOk) << hurried->detail;
  EXPECT_EQ(worker.spare_s(), 0);
  hurry.Set(false);
  auto unhurried = worker.Measure(program);
  ASSERT_TRUE(unhurried.ok()) << unhurried.status();
  EXPECT_EQ(unhurried->outcome, Outcome::kOk) << unhurried->detail;
  EXPECT_FALSE(unhurried->noisy);
  EXPECT_GT(worker.spare_s(), 0);
  EXPECT_GT(unhurried->samples, hurried->samples);
}

// ------------------------------------------------------------------------------ real kernels

class RealFaultTest : public PipelineTest, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    PipelineTest::SetUp();
    auto device = FindDevice(GetParam());
    const std::string what = GetParam() == "cuda:0" ? "gpu" : "pocl";
    HEDDLE_NEEDS(what, device.ok(), device.status().message());
  }
  absl::Status Start() { return PipelineTest::Start(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(OpenCl, RealFaultTest, testing::Values("opencl:0"));
INSTANTIATE_TEST_SUITE_P(Gpu, RealFaultTest, testing::Values("cuda:0"));

TEST_P(RealFaultTest, GoodCandidatesAreTimed) {
  ASSERT_EQ(Start(), absl::OkStatus());
  EXPECT_GE(measurer_->wanted_in_flight(), 2);
  auto results = Run({Right(1), Right(2), Right(3), Right(4), Right(5)});
  for (const auto& [id, result] : results) {
    EXPECT_EQ(result.outcome, Outcome::kOk) << id << ": " << result.detail;
    EXPECT_GT(result.time_us, 0);
    EXPECT_LE(result.ci_low_us, result.time_us);
    EXPECT_GE(result.ci_high_us, result.time_us);
    EXPECT_LT(result.max_error, 1);
    EXPECT_EQ(result.source_hash.size(), 16u);
    EXPECT_GT(result.compile_s, 0);
  }
}

TEST_P(RealFaultTest, WrongAndFast) {
  ASSERT_EQ(Start(), absl::OkStatus());
  ExpectCostsOneTrial(Body("if (i == 0) B[i] = 1.0f;"), Outcome::kWrongAnswer, "B[");
  ExpectCostsOneTrial(
      Body(absl::StrCat("B[i] = A[i] * 2.0f + (i == ", kElements - 1, " ? 1.001f : 1.0f);")),
      Outcome::kWrongAnswer, absl::StrCat("B[", kElements - 1, "]"));
}

TEST_P(RealFaultTest, NeverReturns) {
  ASSERT_EQ(Start(), absl::OkStatus());
  ExpectCostsOneTrial(Body(kEndless), Outcome::kRunTimeout, "validating");
}

TEST_P(RealFaultTest, WritesOutOfBounds) {
  ASSERT_EQ(Start(), absl::OkStatus());
  // Into the red zone, and far away from everything.
  ExpectCostsOneTrial(Body(absl::StrCat(kRight, " if (i == 0) B[", kElements, "] = 1.0f;")),
                      Outcome::kIllegalAccess);
  ExpectCostsOneTrial(Body(absl::StrCat(kRight, " B[i + ((long)1 << 40)] = 1.0f;")),
                      Outcome::kIllegalAccess,
                      GetParam() == "cuda:0" ? "ILLEGAL_ADDRESS" : "signal 11");
}

TEST_P(RealFaultTest, RefusedByTheCompiler) {
  ASSERT_EQ(Start(), absl::OkStatus());
  ExpectCostsOneTrial(Body("B[i] = nonsense;"), Outcome::kBuildError, "nonsense");
  // Of several kernels, which are compiled together.
  std::vector<Step> kernels;
  for (int k = 0; k < 4; ++k) kernels.push_back(Right(100 + k).at(0));
  EXPECT_EQ(Run({kernels})[0].outcome, Outcome::kOk);
  kernels.at(2) = Body("B[i] = absurd;").at(0);
  ExpectCostsOneTrial(kernels, Outcome::kBuildError, "absurd");
}

TEST_P(RealFaultTest, AbortsTheCompiler) {
  if (GetParam() == "cuda:0") GTEST_SKIP() << "no source is known that ends NVRTC";
  ASSERT_EQ(Start(), absl::OkStatus());
  std::string signs;
  for (int i = 0; i < 300000; ++i) signs += "- ";
  ExpectCostsOneTrial(Body("B[i] = " + signs + "1;"), Outcome::kBuildError, "compiler ended with");
}

TEST_P(RealFaultTest, TheCompilerNeverReturns) {
  options_.compile_limit = absl::Seconds(10);
  SetConfined(false);  // the pipe is in no folder that a confined compiler reads
  const absl::Cleanup confined = [] { SetConfined(true); };
  ASSERT_EQ(Start(), absl::OkStatus());
  const std::string pipe = folder_ + "/endless.h";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string body = absl::StrCat("/* endless */ ", kRight);
  before_[body] = absl::StrCat("#include \"", pipe, "\"");
  ExpectCostsOneTrial(Body(body), Outcome::kBuildTimeout, "did not return");
}

TEST_P(RealFaultTest, FinalistsAreMeasuredTogetherInOrder) {
  ASSERT_EQ(Start(), absl::OkStatus());
  auto results = measurer_->MeasureFinalists(
      CandidatesOf({Right(1), Body("B[i] = 1.0f;"), Right(2), Body("nonsense;")}),
      absl::Milliseconds(200));
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 4u);
  EXPECT_EQ((*results)[0].outcome, Outcome::kOk) << (*results)[0].detail;
  EXPECT_GT((*results)[0].samples, 5);
  EXPECT_EQ((*results)[1].outcome, Outcome::kWrongAnswer);
  EXPECT_EQ((*results)[2].outcome, Outcome::kOk) << (*results)[2].detail;
  EXPECT_EQ((*results)[3].outcome, Outcome::kBuildError);
}

TEST_P(RealFaultTest, AFinalistThatKillsTheWorkerDoesNotTakeTheOthersAlong) {
  ASSERT_EQ(Start(), absl::OkStatus());
  auto results = measurer_->MeasureFinalists(
      CandidatesOf({Right(1), Body("B[i + ((long)1 << 40)] = 1.0f;"), Right(2)}),
      absl::Milliseconds(100));
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 3u);
  EXPECT_EQ((*results)[0].outcome, Outcome::kOk) << (*results)[0].detail;
  EXPECT_EQ((*results)[1].outcome, Outcome::kIllegalAccess);
  EXPECT_EQ((*results)[2].outcome, Outcome::kOk) << (*results)[2].detail;
}

TEST_P(RealFaultTest, ItEndsAtOnceWhileACandidateHangs) {
  options_.validate_limit = absl::Seconds(60);
  ASSERT_EQ(Start(), absl::OkStatus());
  measurer_->Submit({1, "", Body(kEndless)});
  auto next = measurer_->Next(absl::Seconds(3));
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(next->has_value());
  const absl::Time start = absl::Now();
  measurer_.reset();
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST_P(RealFaultTest, TheFinalsEndSoonAfterAnInterruption) {
  ASSERT_EQ(Start(), absl::OkStatus());
  const absl::Time start = absl::Now();
  // At once: a fast device has two finals done in less time than any worth waiting here.
  auto results = MeasureFinalistsUnless([] { return true; }, *measurer_,
                                        CandidatesOf({Right(1), Right(2)}), absl::Minutes(5));
  EXPECT_TRUE(absl::IsCancelled(results.status())) << results.status();
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
  EXPECT_TRUE(absl::IsCancelled(measurer_->Next(absl::Minutes(5)).status()));
}

TEST_P(RealFaultTest, WhatHasNotReachedTheDeviceCanBeTakenBack) {
  ASSERT_EQ(Start(), absl::OkStatus());
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < 12; ++id) {
    measurer_->Submit({id, "", Right(static_cast<int>(id))});
    ids.push_back(id);
  }
  std::vector<int64_t> back = measurer_->Withdraw(ids);
  EXPECT_GE(back.size(), 4u);  // no device is that fast
  EXPECT_EQ(measurer_->pending(), static_cast<int>(ids.size() - back.size()));
  EXPECT_THAT(measurer_->Withdraw(ids), testing::IsEmpty());
  // Each is either taken back or measured, and the next ones are measured as ever.
  measurer_->Submit({100, "", Right(100)});
  while (measurer_->pending() > 0) {
    auto next = measurer_->Next(absl::Seconds(60));
    ASSERT_TRUE(next.ok() && next->has_value()) << next.status();
    back.push_back((*next)->id);
  }
  ids.push_back(100);
  EXPECT_THAT(back, testing::UnorderedElementsAreArray(ids));
  EXPECT_EQ(measurer_->running(), std::nullopt);
}

TEST_P(RealFaultTest, AnOwnerOfTheDeviceStartsOneMeasurerAfterAnother) {
  auto device = FindDevice(GetParam());
  ASSERT_TRUE(device.ok());
  auto lock = DeviceLock::Acquire(*device);
  ASSERT_TRUE(lock.ok()) << lock.status();
  options_.lock = &*lock;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Start(), absl::OkStatus());
    EXPECT_EQ(Run({Right(i)})[0].outcome, Outcome::kOk);
    measurer_.reset();
  }
}

TEST_F(PipelineTest, FoldersThatPoclHasLeftAreRemovedUnlessTheyAreInUse) {
  HEDDLE_NEEDS("pocl", FindDevice("opencl:0").ok(), "no OpenCL device");
  setenv("TMPDIR", folder_.c_str(), 1);
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const char* name : {"heddle-pocl-left", "heddle-pocl-used", "heddle-pocl-young", "other"}) {
    fs::create_directories(fs::path(folder_) / name / "inside");
    if (std::string(name) != "heddle-pocl-young")
      fs::last_write_time(fs::path(folder_) / name, old);
  }
  const int used = open((folder_ + "/heddle-pocl-used").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(used, LOCK_EX), 0);
  EXPECT_EQ(Start("opencl:0"), absl::OkStatus());
  const auto folders = [&] {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      if (name.rfind("heddle-pocl-", 0) == 0 || name == "other") names.insert(name);
    }
    return names;
  };
  EXPECT_EQ(folders().size(), 4u) << "its own too";
  measurer_.reset();
  EXPECT_THAT(folders(), testing::ElementsAre("heddle-pocl-used", "heddle-pocl-young", "other"));
  close(used);
  unsetenv("TMPDIR");
}

TEST_P(RealFaultTest, ASecondOwnerIsToldTheFirst) {
  ASSERT_EQ(Start(), absl::OkStatus());
  auto first = std::move(measurer_);
  absl::Status second = Start();
  EXPECT_TRUE(absl::IsUnavailable(second)) << second;
  EXPECT_THAT(std::string(second.message()), HasSubstr(absl::StrCat("process ", getpid())));
  first.reset();
  EXPECT_TRUE(Start().ok());
}

TEST_P(RealFaultTest, AWorkloadBeyondTheDevicesMemoryIsRefusedFirst) {
  auto device = FindDevice(GetParam());
  ASSERT_TRUE(device.ok());
  auto started = StartPipeline(Workload(int64_t{1} << 44), *device, options_, {}, nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(started.status())) << started.status();
  EXPECT_THAT(std::string(started.status().message()), HasSubstr("n=17592186044416"));
}

class GpuPipelineTest : public PipelineTest {};

// The rate that searching needs on a host with 16 cores, with every output of 2048 x 2048 checked.
TEST_F(GpuPipelineTest, MeasuresFiveTrialsASecond) {
  auto device = FindDevice("cuda:0");
  HEDDLE_NEEDS("gpu", device.ok(), device.status().message());
  elements_ = 2048 * 2048;
  options_ = MeasureOptions();
  ASSERT_TRUE(Start("cuda:0").ok());
  constexpr int kTrials = 100;
  std::vector<std::vector<Step>> candidates;
  for (int i = 0; i < kTrials; ++i) candidates.push_back(Right(i));
  const absl::Time start = absl::Now();
  auto results = Run(candidates);
  const double rate = kTrials / absl::ToDoubleSeconds(absl::Now() - start);
  double phases[4] = {};
  for (const auto& [id, result] : results) {
    ASSERT_EQ(result.outcome, Outcome::kOk) << result.detail;
    const double seconds[] = {result.compile_s, result.load_s, result.validate_s, result.time_s};
    for (int k = 0; k < 4; ++k) phases[k] += seconds[k] / kTrials;
  }
  RecordProperty("trials_per_second", std::to_string(rate));
  EXPECT_GE(rate, 5) << "mean seconds: compile " << phases[0] << ", load " << phases[1]
                     << ", validate " << phases[2] << ", time " << phases[3];
  EXPECT_LT(phases[2], 0.1);
}

TEST(DetectionTest, AnUnknownDeviceIsAnsweredWithWhatThereIs) {
  auto found = FindDevice("opencl:99");
  EXPECT_TRUE(absl::IsNotFound(found.status()));
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("there is no device opencl:99"));
  for (const DeviceInfo& device : ListDevices()) {
    EXPECT_THAT(std::string(found.status().message()), HasSubstr(device.id));
    EXPECT_TRUE(device.usable || !device.why_not.empty()) << device.id;
  }
}

}  // namespace
}  // namespace heddle::measure::pipeline_test
