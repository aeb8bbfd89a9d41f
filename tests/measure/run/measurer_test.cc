// From schedules of the search space to times on the CPU's OpenCL device.
#include "measure/run/measurer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "measure/run/detect.h"
#include "measure/run/start_measurer.h"
#include "search_space/notation/notation.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"
#include "tests/measure/pipeline_support.h"
#include "tests/support.h"

namespace heddle::measure {
namespace {

using search_space::Step;
using testing::HasSubstr;

class MeasurerTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/heddle-measurer-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    setenv("HEDDLE_LOCK_FOLDER", folder, 1);
    setenv("XDG_CACHE_HOME", folder, 1);
    auto device = FindDevice("opencl:0");
    HEDDLE_NEEDS("pocl", device.ok(), device.status().message());
    device_ = *std::move(device);
  }
  void TearDown() override {
    measurer_.reset();
    std::filesystem::remove_all(folder_);
    unsetenv("HEDDLE_LOCK_FOLDER");
    unsetenv("XDG_CACHE_HOME");
  }

  void Start(const std::string& name, const std::map<std::string, int64_t>& shape) {
    auto operators = *search_space::ParseOperators(
        "op mse_loss(m, n) { in A[m, n], B[m, n]  S[i: 1] = "
        "sum(r: m, q: n) (A[r, q] - B[r, q]) * (A[r, q] - B[r, q])  out L[i: 1] = S[i] / (m * n) "
        "}");
    const auto& builtin = search_space::BuiltinOperators();
    operators.insert(operators.end(), builtin.begin(), builtin.end());
    auto op = search_space::FindOperator(operators, name);
    ASSERT_TRUE(op.ok()) << op.status();
    auto program = op->Instantiate(shape, search_space::DType::kFloat32);
    ASSERT_TRUE(program.ok()) << program.status();
    program_ = std::make_shared<search_space::TensorProgram>(*std::move(program));
    MeasureOptions options;
    options.compile_workers = 2;
    options.timing_budget = absl::Milliseconds(20);
    auto measurer = StartMeasurer(program_, device_, options);
    ASSERT_TRUE(measurer.ok()) << measurer.status();
    measurer_ = *std::move(measurer);
  }

  // The default schedule and `samples` random ones.
  std::vector<std::vector<Step>> Schedules(int samples) {
    auto space = search_space::SearchSpace::Create(program_, device_.target);
    EXPECT_TRUE(space.ok()) << space.status();
    std::vector<std::vector<Step>> all = {*space->Steps(space->Default())};
    search_space::Rng rng(7);
    while (static_cast<int>(all.size()) <= samples) {
      auto point = space->Sample(rng);
      EXPECT_TRUE(point.has_value());
      if (!point) break;
      all.push_back(*space->Steps(*point));
    }
    return all;
  }

  std::map<int64_t, TrialResult> Run(const std::vector<std::vector<Step>>& schedules) {
    for (const Candidate& candidate : CandidatesOf(schedules)) measurer_->Submit(candidate);
    std::map<int64_t, TrialResult> results;
    const absl::Time end = absl::Now() + absl::Minutes(3);
    while (measurer_->pending() > 0 && absl::Now() < end) {
      auto next = measurer_->Next(absl::Seconds(1));
      EXPECT_TRUE(next.ok()) << next.status();
      if (!next.ok()) break;
      if (next->has_value()) results[(*next)->id] = (*next)->result;
    }
    EXPECT_EQ(results.size(), schedules.size());
    return results;
  }

  std::string folder_;
  DeviceInfo device_;
  std::shared_ptr<search_space::TensorProgram> program_;
  std::unique_ptr<Measurer> measurer_;
};

TEST_F(MeasurerTest, SchedulesOfAMatrixProductAreRightAndTimed) {
  ASSERT_NO_FATAL_FAILURE(Start("gemm_relu_add", {{"m", 37}, {"n", 64}, {"k", 61}}));
  auto schedules = Schedules(5);
  for (const auto& [id, result] : Run(schedules)) {
    EXPECT_EQ(result.outcome, Outcome::kOk) << result.detail << "\n" << ToString(schedules[id]);
    EXPECT_GT(result.time_us, 0);
  }
  auto finals = measurer_->MeasureFinalists(CandidatesOf({schedules[0], schedules[1]}),
                                            absl::Milliseconds(100));
  ASSERT_TRUE(finals.ok()) << finals.status();
  for (const TrialResult& result : *finals) EXPECT_EQ(result.outcome, Outcome::kOk);
}

TEST_F(MeasurerTest, SeveralKernelsWithWorkspacesBetweenThem) {
  ASSERT_NO_FATAL_FAILURE(Start("softmax", {{"m", 13}, {"n", 101}}));
  auto schedules = Schedules(2);
  schedules.push_back(search_space::NaiveSteps(*program_));
  for (const auto& [id, result] : Run(schedules)) {
    EXPECT_EQ(result.outcome, Outcome::kOk) << result.detail << "\n" << ToString(schedules[id]);
  }
}

TEST_F(MeasurerTest, ALossOverAMillionElementsIsRight) {
  ASSERT_NO_FATAL_FAILURE(Start("mse_loss", {{"m", 1024}, {"n", 1024}}));
  auto schedules = Schedules(0);
  schedules.push_back(search_space::NaiveSteps(*program_));
  for (const auto& [id, result] : Run(schedules)) {
    EXPECT_EQ(result.outcome, Outcome::kOk) << result.detail << "\n" << ToString(schedules[id]);
  }
}

TEST_F(MeasurerTest, StepsThatDoNotApplyAreABuildError) {
  ASSERT_NO_FATAL_FAILURE(Start("transpose", {{"m", 16}, {"n", 24}}));
  auto results = Run({{search_space::Unroll{"B", "no_such_loop"}}});
  EXPECT_EQ(results[0].outcome, Outcome::kBuildError);
  EXPECT_THAT(results[0].detail, HasSubstr("no_such_loop"));
}

}  // namespace
}  // namespace heddle::measure
