// The compiler's own speed, without a device: sampling points, lowering them, their features,
// printing kernels and NVRTC's part. One search round is a few of each per trial, so that their sum
// bounds how many devices a core feeds.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "bench/must_be.h"
#include "measure/codegen/codegen.h"
#include "measure/device/cuda/nvrtc.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tuner/model/features.h"
#include "tuner/search/proposers/evolution.h"
#include "tuner/search/proposers/screen.h"

namespace heddle {
namespace {

using search_space::Point;
using search_space::SearchSpace;
using search_space::TensorProgram;

struct Workload {
  const char* op;
  const char* shape;
};
// One of each kind of sketch, at sizes of bench/suites/h100.txt or like them.
constexpr Workload kWorkloads[] = {
    {"matmul", "m=1024,n=1024,k=1024"},
    {"gemm_relu_add", "m=2048,n=2048,k=2048"},
    {"conv2d", "n=1,ci=64,h=64,w=64,co=64,kh=3,kw=3,pad=1"},
    {"depthwise_conv2d", "n=1,c=144,h=56,w=56,kh=3,kw=3,pad=1"},
    {"softmax", "m=4096,n=1024"},
    {"transpose", "m=4096,n=4096"},
};
constexpr int kPoints = 64;  // different points, taken in turn

// A workload's space on an H100 and points of it.
struct Fixture {
  std::shared_ptr<const TensorProgram> program;
  std::unique_ptr<SearchSpace> space;
  std::vector<Point> points;
};

absl::StatusOr<search_space::Program> Lowered(const Fixture& f, const Point& point) {
  return f.space->Lower(point);
}

const Fixture& FixtureOf(const Workload& workload) {
  static auto& fixtures = *new std::map<std::string, Fixture>();
  Fixture& fixture = fixtures[workload.op];
  if (fixture.program != nullptr) return fixture;
  auto op = MustBe(search_space::FindOperator(search_space::BuiltinOperators(), workload.op));
  auto shape = MustBe(search_space::ParseShape(workload.shape));
  fixture.program =
      std::make_shared<TensorProgram>(MustBe(op.Instantiate(shape, search_space::DType::kFloat32)));
  fixture.space = std::make_unique<SearchSpace>(
      MustBe(SearchSpace::Create(fixture.program, MustBe(search_space::FindTarget("h100")))));
  search_space::Rng rng(1);
  while (fixture.points.size() < kPoints) {
    auto point = fixture.space->Sample(rng);
    if (point && Lowered(fixture, *point).ok()) fixture.points.push_back(*point);
  }
  return fixture;
}

void CreateSpace(benchmark::State& state, const Workload& workload) {
  const Fixture& f = FixtureOf(workload);
  for (auto _ : state) {
    benchmark::DoNotOptimize(MustBe(SearchSpace::Create(f.program, f.space->target())));
  }
}

void Sample(benchmark::State& state, const Workload& workload) {
  const Fixture& f = FixtureOf(workload);
  search_space::Rng rng(2);
  int64_t found = 0;
  for (auto _ : state) found += f.space->Sample(rng).has_value();
  state.SetItemsProcessed(found);
}

void Mutate(benchmark::State& state, const Workload& workload) {
  const Fixture& f = FixtureOf(workload);
  search_space::Rng rng(3);
  int64_t found = 0;
  size_t i = 0;
  for (auto _ : state) {
    found += f.space->Mutate(f.points[i++ % kPoints], rng).has_value();
  }
  state.SetItemsProcessed(found);
}

// From a point to a lowered program.
void Lower(benchmark::State& state, const Workload& workload) {
  const Fixture& f = FixtureOf(workload);
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(MustBe(Lowered(f, f.points[i++ % kPoints])));
  }
  state.SetItemsProcessed(state.iterations());
}

// From a lowered program to source.
void GenerateSource(benchmark::State& state, const Workload& workload) {
  const Fixture& f = FixtureOf(workload);
  std::vector<search_space::Program> lowered;
  for (const Point& point : f.points) lowered.push_back(MustBe(Lowered(f, point)));
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        measure::GenerateSource(lowered[i++ % kPoints], f.space->target(), "header"));
  }
  state.SetItemsProcessed(state.iterations());
}

// From a point's sources to cubins for an H100, all its kernels: NVRTC, in this thread.
void Compile(benchmark::State& state, const Workload& workload) {
  if (absl::StatusOr<measure::NvrtcInfo> nvrtc = measure::FindNvrtc(); !nvrtc.ok()) {
    state.SkipWithError(nvrtc.status().ToString().c_str());
    return;
  }
  const Fixture& f = FixtureOf(workload);
  size_t i = 0;
  for (auto _ : state) {
    const search_space::Program lowered = MustBe(Lowered(f, f.points[i++ % kPoints]));
    for (const measure::KernelSource& kernel :
         measure::GenerateSource(lowered, f.space->target(), "")) {
      benchmark::DoNotOptimize(MustBe(measure::CompileCuda(
          kernel.source, kernel.launch.entry, f.space->target().arch + kernel.arch_suffix)));
    }
  }
  state.SetItemsProcessed(state.iterations());
}

// From a lowered program to what the cost model sees of it.
void Features(benchmark::State& state, const Workload& workload) {
  const Fixture& f = FixtureOf(workload);
  std::vector<search_space::Program> lowered;
  for (const Point& point : f.points) lowered.push_back(MustBe(Lowered(f, point)));
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(MustBe(tuner::FeaturesOf(lowered[i++ % kPoints], f.space->target())));
  }
  state.SetItemsProcessed(state.iterations());
}

// All that a search spends on a random point.
void SampleLowerFeatures(benchmark::State& state, const Workload& workload) {
  const Fixture& f = FixtureOf(workload);
  search_space::Rng rng(4);
  int64_t found = 0;
  for (auto _ : state) {
    const std::optional<Point> point = f.space->Sample(rng);
    if (!point.has_value()) continue;
    const auto lowered = Lowered(f, *point);
    if (!lowered.ok()) continue;
    benchmark::DoNotOptimize(MustBe(tuner::FeaturesOf(*lowered, f.space->target())));
    ++found;
  }
  state.SetItemsProcessed(found);
}

// The same as a search does it: a batch is random points and generations of mutants of those that
// look best, and what a batch lowers is kept for the next. The memory is empty at first, and
// again after as many batches as 400 trials take.
void Search(benchmark::State& state, const Workload& workload) {
  using tuner::kElite, tuner::kGenerations, tuner::kPopulation, tuner::kRandom,
      tuner::kRandomAtFirst;
  constexpr int kBatches = 25;
  const Fixture& f = FixtureOf(workload);
  search_space::Rng rng(5);
  std::unique_ptr<tuner::Screen> screen;
  std::vector<Point> best;
  absl::flat_hash_set<Point> seen;  // points count once
  int64_t found = 0;
  for (int batch = 0; state.KeepRunning(); ++batch) {
    if (batch % kBatches == 0) {
      screen = std::make_unique<tuner::Screen>(*f.space, 1);
      best.clear();
      seen.clear();
    }
    for (int generation = 0; generation <= kGenerations; ++generation) {
      std::vector<Point> points;
      const size_t random = batch % kBatches == 0 ? kRandomAtFirst : kRandom;
      for (size_t i = 0; i < (generation == 0 ? random : kPopulation); ++i) {
        auto point = generation == 0 ? f.space->Sample(rng)
                                     : f.space->Mutate(best[rng() % best.size()], rng);
        if (point.has_value() && seen.insert(*point).second) points.push_back(*std::move(point));
      }
      found += static_cast<int64_t>(points.size());
      points.insert(points.end(), best.begin(), best.end());
      const auto features = screen->Features(points);
      std::vector<std::pair<double, const Point*>> order;
      for (size_t i = 0; i < points.size(); ++i) {
        if (!features[i]->empty())
          order.emplace_back(tuner::AnalyticTimeUs(*features[i]), &points[i]);
      }
      std::sort(order.begin(), order.end());
      std::vector<Point> elite;
      for (const auto& [time, point] : order) {
        if (elite.size() == kElite) break;
        if (elite.empty() || *point != elite.back()) elite.push_back(*point);
      }
      best = std::move(elite);
    }
  }
  state.SetItemsProcessed(found);
}

void Register() {
  using Function = void (*)(benchmark::State&, const Workload&);
  const std::pair<const char*, Function> functions[] = {
      {"CreateSpace", CreateSpace},
      {"Sample", Sample},
      {"Mutate", Mutate},
      {"Lower", Lower},
      {"GenerateSource", GenerateSource},
      {"Compile", Compile},
      {"Features", Features},
      {"SampleLowerFeatures", SampleLowerFeatures},
      {"Search", Search}};
  for (const auto& [name, function] : functions) {
    for (const Workload& workload : kWorkloads) {
      benchmark::RegisterBenchmark((std::string(name) + "/" + workload.op).c_str(), function,
                                   workload)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}
const bool registered = (Register(), true);

}  // namespace
}  // namespace heddle
