// The register estimate against what the compiler reports, over all operators at shapes that the
// fit has not seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "absl/strings/str_format.h"
#include "base/host.h"
#include "measure/codegen/codegen.h"
#include "measure/device/cuda/nvrtc.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tests/support.h"
#include "tuner/model/analytic/kernel_cost.h"
#include "tuner/model/analytic/profiler.h"

namespace heddle {
namespace {

using namespace search_space;

const std::pair<const char*, const char*> kWorkloads[] = {
    {"vector_add", "n=1048576"},
    {"window_sum", "n=16777216,w=5"},
    {"transpose", "m=4096,n=1000"},
    {"matmul", "m=2048,n=2048,k=2048"},
    {"matmul_nt", "m=512,n=512,k=512"},
    {"matmul_tn", "m=777,n=333,k=500"},
    {"batch_matmul", "b=12,m=128,n=128,k=256"},
    {"gemm_relu_add", "m=4096,n=4096,k=4096"},
    {"conv2d", "n=1,ci=128,h=28,w=28,co=128,kh=3,kw=3,stride=1,pad=1"},
    {"conv2d_bias_relu", "n=1,ci=64,h=56,w=56,co=64,kh=1,kw=1"},
    {"conv2d_nhwc", "n=1,ci=128,h=14,w=14,co=256,kh=3,kw=3,stride=2,pad=1"},
    {"depthwise_conv2d", "n=1,c=64,h=64,w=64,kh=5,kw=5,stride=1,pad=2"},
    {"softmax", "m=4096,n=8192"},
    {"layer_norm", "m=1024,n=4096"},
};
constexpr int kPoints = 30;  // an operator; some have several kernels

struct Sample {
  std::string op, source;
  double estimate = 0, reported = 0;
  double error() const { return std::abs(estimate - reported) / reported; }
};

std::vector<Sample> Draw(const Target& target) {
  std::vector<Sample> samples;
  for (const auto& [op, shape] : kWorkloads) {
    const auto program = std::make_shared<const TensorProgram>(
        *FindOperator(BuiltinOperators(), op)->Instantiate(*ParseShape(shape), DType::kFloat32));
    const auto space = SearchSpace::Create(program, target);
    Rng rng(2026);
    for (int i = 0; i < kPoints; ++i) {
      const std::optional<Point> point = space->Sample(rng);
      if (!point.has_value()) continue;
      const auto lowered = LowerSteps(program, *space->Steps(*point));
      if (!lowered.ok()) continue;
      const auto sources = measure::GenerateSource(*lowered, target, "");
      for (size_t k = 0; k < sources.size(); ++k) {
        tuner::KernelProfile profile = tuner::ProfileOf(lowered->kernels[k]);
        samples.push_back({op, sources[k].source, tuner::CostOf(profile, target).registers});
      }
    }
  }
  return samples;
}

void Compile(std::vector<Sample>& samples) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < UsableCores(); ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < samples.size(); i = next++) {
        const auto binary = measure::CompileCuda(samples[i].source, "candidate.cu", "sm_90");
        if (binary.ok()) samples[i].reported = binary->resources.registers;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  std::erase_if(samples, [](const Sample& s) { return s.reported == 0; });
}

TEST(LongRegisters, EstimateIsNearTheCompilers) {
  const auto nvrtc = measure::FindNvrtc();
  HEDDLE_NEEDS("nvrtc", nvrtc.ok(), std::string(nvrtc.status().message()));
  std::vector<Sample> samples = Draw(*FindTarget("h100"));
  Compile(samples);
  ASSERT_GE(samples.size(), 500U);
  std::map<std::string, std::vector<double>> errors;
  for (const Sample& s : samples) {
    errors[s.op].push_back(s.error());
    errors["all"].push_back(s.error());
  }
  const auto within = [](const std::vector<double>& e, double limit) {
    const auto n = std::count_if(e.begin(), e.end(), [&](double x) { return x <= limit; });
    return static_cast<double>(n) / static_cast<double>(e.size());
  };
  for (auto& [op, e] : errors) {
    std::sort(e.begin(), e.end());
    std::cout << absl::StrFormat("| %s | %d | %.0f %% | %.0f %% | %.0f %% | %.0f %% |\n", op,
                                 e.size(), 100 * within(e, 0.1), 100 * within(e, 0.2),
                                 100 * e[e.size() / 2], 100 * e[e.size() * 9 / 10]);
  }
  EXPECT_GE(within(errors["all"], 0.2), 0.8);
}

}  // namespace
}  // namespace heddle
