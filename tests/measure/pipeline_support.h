// What the tests of the measuring pipeline share: a workload whose kernels are written by hand, and
// a pipeline on a device of the test's choice.
#ifndef HEDDLE_TESTS_MEASURE_PIPELINE_SUPPORT_H_
#define HEDDLE_TESTS_MEASURE_PIPELINE_SUPPORT_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "measure/run/detect.h"
#include "measure/run/pipeline.h"
#include "search_space/notation/notation.h"

namespace heddle::measure {

using search_space::Step;
using search_space::TensorProgram;
using search_space::Unroll;
using testing::HasSubstr;
namespace fs = std::filesystem;

inline constexpr int kElements = 1 << 16;
inline constexpr int kBlock = 64;

inline TensorProgram Workload(int64_t n) {
  auto operators =
      search_space::ParseOperators("op affine(n) { in A[n] out B[i: n] = A[i] * 2 + 1 }");
  EXPECT_TRUE(operators.ok()) << operators.status();
  auto program = operators->front().Instantiate({{"n", n}}, search_space::DType::kFloat32);
  EXPECT_TRUE(program.ok()) << program.status();
  return *std::move(program);
}

inline GeneratedProgram Source(bool cuda, int64_t elements, const std::string& body,
                               const std::string& before = "") {
  GeneratedProgram program;
  const std::string head =
      cuda ? "extern \"C\" __global__ void k(const float* A, float* B) {\n"
             "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  "
           : absl::StrCat("__kernel __attribute__((reqd_work_group_size(", kBlock,
                          ", 1, 1)))\nvoid k(__global const float* A, __global float* B) {\n"
                          "  int i = get_global_id(0);\n  ");
  KernelSource& kernel = program.kernels.emplace_back();
  kernel.launch = {"k", elements / kBlock, kBlock, 0, {"A", "B"}};
  kernel.source = absl::StrCat(before, "\n", head, body, "\n}\n");
  return program;
}

// A candidate here is one step that carries a body, which stands for what steps would generate.
inline std::vector<Step> Body(const std::string& body) { return {Unroll{"B", body}}; }

inline constexpr char kRight[] = "B[i] = A[i] * 2.0f + 1.0f;";

// No input is that large; the stores keep compilers from leaving the loop out.
inline constexpr char kEndless[] = "while (A[0] < 100.0f) B[i] += A[1];";

// Right, and different for every `variant`.
inline std::vector<Step> Right(int variant) {
  return Body(absl::StrCat("int variant = ", variant, "; ", kRight));
}

// Numbered from 0.
inline std::vector<Candidate> CandidatesOf(const std::vector<std::vector<Step>>& schedules) {
  std::vector<Candidate> candidates;
  for (const auto& steps : schedules) {
    candidates.push_back({static_cast<int64_t>(candidates.size()), "", steps});
  }
  return candidates;
}

class PipelineTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/heddle-pipeline-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    // Tests run side by side, and must neither wait for each other nor share compiled kernels.
    setenv("HEDDLE_LOCK_FOLDER", folder, 1);
    setenv("XDG_CACHE_HOME", folder, 1);
    options_.compile_workers = 2;
    options_.validate_limit = absl::Seconds(4);
    options_.timing_budget = absl::Milliseconds(20);
  }
  void TearDown() override {
    measurer_.reset();
    fs::remove_all(folder_);
    for (const char* name : {"HEDDLE_LOCK_FOLDER", "XDG_CACHE_HOME", "HEDDLE_FAKE_DEVICE"}) {
      unsetenv(name);
    }
  }

  void Script(const std::string& rules) {
    std::ofstream(folder_ + "/script.json") << "{\"rules\": [" << rules << "]}";
    setenv("HEDDLE_FAKE_DEVICE", (folder_ + "/script.json").c_str(), 1);
  }

  absl::Status Start(const std::string& device) {
    auto found = FindDevice(device);
    if (!found.ok()) return found.status();
    const bool cuda = found->target.api == search_space::Api::kCuda;
    auto started = StartPipeline(
        Workload(elements_), *found, options_,
        Source(cuda, elements_, absl::StrCat("/* naive */ ", kRight)),
        [this, cuda](const std::vector<Step>& steps) -> absl::StatusOr<GeneratedProgram> {
          GeneratedProgram program;  // a kernel a step
          for (const Step& step : steps) {
            const std::string& body = std::get<Unroll>(step).loop;
            const std::string before = before_.count(body) != 0 ? before_.at(body) : "";
            program.kernels.push_back(Source(cuda, elements_, body, before).kernels.at(0));
          }
          return program;
        });
    if (!started.ok()) return started.status();
    measurer_ = *std::move(started);
    return absl::OkStatus();
  }

  // Submits all, waits for all; results by id, each exactly once.
  std::map<int64_t, TrialResult> Run(const std::vector<std::vector<Step>>& candidates) {
    std::map<int64_t, TrialResult> results;
    for (const Candidate& candidate : CandidatesOf(candidates)) measurer_->Submit(candidate);
    const absl::Time end = absl::Now() + absl::Seconds(120);
    while (measurer_->pending() > 0 && absl::Now() < end) {
      auto next = measurer_->Next(absl::Seconds(1));
      EXPECT_TRUE(next.ok()) << next.status();
      if (!next.ok()) break;
      if (!next->has_value()) continue;
      EXPECT_TRUE(results.emplace((*next)->id, (*next)->result).second) << "twice: " << (*next)->id;
    }
    EXPECT_EQ(results.size(), candidates.size());
    return results;
  }

  // The faulty candidate between two good ones.
  void ExpectCostsOneTrial(const std::vector<Step>& faulty, Outcome outcome,
                           const std::string& detail = "") {
    static int variant = 0;
    auto results = Run({Right(++variant), faulty, Right(++variant)});
    EXPECT_EQ(results[0].outcome, Outcome::kOk) << results[0].detail;
    EXPECT_STREQ(NameOf(results[1].outcome), NameOf(outcome)) << results[1].detail;
    EXPECT_THAT(results[1].detail, HasSubstr(detail));
    EXPECT_EQ(results[1].time_us, 0);
    EXPECT_EQ(results[2].outcome, Outcome::kOk) << results[2].detail;
    EXPECT_GT(results[2].time_us, 0);
    after_ = results[2];
  }

  std::string folder_;
  int64_t elements_ = kElements;
  TrialResult after_;  // of the candidate after the last one that cost one trial
  MeasureOptions options_;
  std::map<std::string, std::string> before_;  // text in front of the kernel, by its body
  std::unique_ptr<Measurer> measurer_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_TESTS_MEASURE_PIPELINE_SUPPORT_H_
