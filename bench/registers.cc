// What tuner/model/analytic/register_estimate.cc is fitted to: kernels sampled from a suite, each
// with the terms of the estimate and what NVRTC reports. Needs no GPU.
//
//   bench/registers SUITE [--points N] [--seed N] > kernels.jsonl
//   python3 bench/fit_registers.py kernels.jsonl
//
// SUITE has a workload a line, as bench/suites/record.txt. A line of the output is a kernel.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_split.h"
#include "base/host.h"
#include "base/status.h"
#include "measure/codegen/codegen.h"
#include "measure/device/cuda/nvrtc.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tuner/model/analytic/profiler.h"
#include "tuner/model/analytic/register_estimate.h"

namespace heddle {
namespace {

using nlohmann::json;

struct Sample {
  std::string source;
  json line;
};

// Adds the kernels of random points of a suite's line, "matmul m=8,n=8,k=8 ...".
absl::Status Draw(const std::string& workload, int points, uint64_t seed,
                  std::vector<Sample>& samples) {
  const std::vector<std::string> words = absl::StrSplit(workload, ' ');
  HEDDLE_ASSIGN_OR_RETURN(op,
                          search_space::FindOperator(search_space::BuiltinOperators(), words[0]));
  HEDDLE_ASSIGN_OR_RETURN(shape, search_space::ParseShape(words.size() > 1 ? words[1] : ""));
  HEDDLE_ASSIGN_OR_RETURN(instance, op.Instantiate(shape, search_space::DType::kFloat32));
  const auto program = std::make_shared<const search_space::TensorProgram>(std::move(instance));
  HEDDLE_ASSIGN_OR_RETURN(target, search_space::FindTarget("h100"));
  HEDDLE_ASSIGN_OR_RETURN(space, search_space::SearchSpace::Create(program, target));
  search_space::Rng rng(seed);
  for (int i = 0; i < points; ++i) {
    const auto point = space.Sample(rng);
    if (!point) continue;
    const auto lowered = search_space::LowerSteps(program, *space.Steps(*point));
    if (!lowered.ok()) continue;
    const auto sources = measure::GenerateSource(*lowered, target, "");
    for (size_t k = 0; k < sources.size(); ++k) {
      const tuner::KernelProfile profile = tuner::ProfileOf(lowered->kernels[k]);
      const tuner::RegisterTerms terms = tuner::RegisterTermsOf(profile, target);
      samples.push_back({sources[k].source,
                         {{"op", words[0]},
                          {"point", space.Print(*point)},
                          {"kernel", k},
                          {"tiled", terms.tiled},
                          {"least", terms.least},
                          {"most", terms.most},
                          {"share", terms.share},
                          {"limit", tuner::RegisterLimit(profile, target)},
                          {"estimate", tuner::RegisterDemand(profile, target)}}});
    }
  }
  return absl::OkStatus();
}

void Compile(std::vector<Sample>& samples) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < UsableCores(); ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < samples.size(); i = next++) {
        const auto binary = measure::CompileCuda(samples[i].source, "candidate.cu", "sm_90");
        if (binary.ok()) samples[i].line["registers"] = binary->resources.registers;
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

int Main(int argc, char** argv) {
  int points = 30;
  uint64_t seed = 100;
  std::string suite;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--points") == 0 && i + 1 < argc) {
      points = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      suite = argv[i];
    }
  }
  std::ifstream file(suite);
  if (!file || points < 1) {
    std::cerr << "usage: registers SUITE [--points N] [--seed N]\n";
    return 2;
  }
  std::vector<Sample> samples;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (absl::Status s = Draw(line, points, seed++, samples); !s.ok()) {
      std::cerr << line << ": " << s.message() << "\n";
      return 2;
    }
  }
  Compile(samples);
  for (const Sample& s : samples) {
    if (s.line.contains("registers")) std::cout << s.line.dump() << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::Main(argc, argv); }
