// Replays searches over recorded trials: how fast random, cold and warm searches find the best.
//
//   bench/search FILE... [--trials N] [--seeds N] [--in-flight N] [--svg FILE]
//
// FILE is what `heddle records dump` writes. Only recorded points are proposed, and each one's
// recorded result is its trial. Warm: the model knows the trials of all other recorded workloads.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tuner/search/evolution.h"
#include "tuner/search/plot.h"
#include "tuner/search/replay.h"

namespace heddle::tuner {
namespace {

constexpr double kClose = 0.05;  // of the best: found
enum Kind { kRandom, kCold, kWarm, kKinds };
constexpr const char* kNames[] = {"random", "cold", "warm"};

struct Outcome {
  std::vector<double> log_curve;  // mean over workloads and seeds
  std::vector<int> needed;        // trials until kClose, each workload's median over seeds
};

int Median(std::vector<int> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// A model of what the other workloads' trials on the same device teach.
std::shared_ptr<const CostModel> TrainOnOthers(const std::vector<Replay>& all,
                                               const Replay& left_out) {
  std::vector<Example> examples;
  for (size_t i = 0; i < all.size(); ++i) {
    if (&all[i] == &left_out || all[i].device != left_out.device) continue;
    const std::vector<Example> some = ExamplesOf(all[i], static_cast<int64_t>(i), 2);
    examples.insert(examples.end(), some.begin(), some.end());
  }
  auto model = CostModel::Train(examples, {});
  if (!model.ok()) return nullptr;
  return std::make_shared<const CostModel>(*std::move(model));
}

Outcome Run(const std::vector<Replay>& all, Kind kind, int trials, int seeds, int in_flight) {
  Outcome outcome;
  outcome.log_curve.resize(static_cast<size_t>(trials));
  for (const Replay& replay : all) {
    std::shared_ptr<const CostModel> base;
    if (kind == kWarm) base = TrainOnOthers(all, replay);
    std::vector<int> needed;
    for (int seed = 1; seed <= seeds; ++seed) {
      EvolutionOptions options;
      options.seed = static_cast<uint64_t>(seed);
      options.only = replay.points;
      options.base = base;
      auto proposer = kind == kRandom ? MakeShuffledProposer(replay, options.seed)
                                      : MakeEvolutionProposer(replay.space, options);
      const std::vector<double> curve = PlayBack(replay, *proposer, trials, in_flight);
      for (size_t i = 0; i < curve.size(); ++i) {
        outcome.log_curve[i] += std::log(std::max(curve[i], 1e-3)) / seeds / all.size();
      }
      const auto found = std::find_if(curve.begin(), curve.end(),
                                      [](double share) { return share >= 1 / (1 + kClose); });
      needed.push_back(static_cast<int>(found - curve.begin()) + 1);
    }
    outcome.needed.push_back(Median(needed));
  }
  return outcome;
}

double ShareWithin(const std::vector<int>& needed, int trials) {
  return static_cast<double>(
             std::count_if(needed.begin(), needed.end(), [&](int n) { return n <= trials; })) /
         static_cast<double>(needed.size());
}

int Main(int argc, char** argv) {
  int trials = 200, seeds = 5, in_flight = 20;
  std::string svg;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--trials") == 0 && more) {
      trials = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--seeds") == 0 && more) {
      seeds = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--in-flight") == 0 && more) {
      in_flight = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--svg") == 0 && more) {
      svg = argv[++i];
    } else {
      files.push_back(argv[i]);
    }
  }
  if (files.empty() || trials < 1 || seeds < 1 || in_flight < 1) {
    std::cerr << "usage: search FILE... [--trials N] [--seeds N] [--in-flight N] [--svg FILE]\n";
    return 2;
  }
  auto all = ReadReplays(files);
  if (!all.ok()) {
    std::cerr << all.status().message() << "\n";
    return 1;
  }
  for (const Replay& replay : *all) {
    if (replay.foreign == 0) continue;
    std::cerr << replay.foreign << " trials of " << replay.name
              << " are no points of today's space, and left out\n";
  }

  std::vector<Outcome> outcomes;
  for (int kind = 0; kind < kKinds; ++kind) {
    outcomes.push_back(Run(*all, static_cast<Kind>(kind), trials, seeds, in_flight));
  }
  std::cout << "Best recorded time / best after N trials, geomean over " << all->size()
            << " workloads and " << seeds
            << " seeds:\n\n| N | random | cold | warm |\n|---|---|---|---|\n";
  for (int n : {1, 2, 4, 8, 16, 32, 64, 100, 150, 200, 300, 500, 1000}) {
    if (n > trials) break;
    std::cout << "| " << n << " |";
    for (const Outcome& o : outcomes) {
      std::cout << absl::StrFormat(" %.3f |", std::exp(o.log_curve[static_cast<size_t>(n) - 1]));
    }
    std::cout << "\n";
  }
  std::cout
      << "\nTrials until within 5 % of the best recorded (median of seeds; " << trials + 1
      << " = never):\n\n| workload | points | random | cold | warm |\n|---|---|---|---|---|\n";
  for (size_t w = 0; w < all->size(); ++w) {
    std::cout << "| " << (*all)[w].name << " | " << (*all)[w].points.size() << " |";
    for (const Outcome& o : outcomes) std::cout << " " << o.needed[w] << " |";
    std::cout << "\n";
  }
  for (int n : {60, 200}) {
    if (n > trials) break;
    std::cout << "\nFound within " << n << " trials:";
    for (int kind = 0; kind < kKinds; ++kind) {
      std::cout << absl::StrFormat(
          " %s %.0f %%", kNames[kind],
          100 * ShareWithin(outcomes[static_cast<size_t>(kind)].needed, n));
    }
  }
  std::cout << "\n";
  if (svg.empty()) return 0;
  std::vector<Line> lines;
  for (int kind = 0; kind < kKinds; ++kind) {
    Line line{kNames[kind], {}};
    for (double v : outcomes[static_cast<size_t>(kind)].log_curve)
      line.values.push_back(std::exp(v));
    lines.push_back(std::move(line));
  }
  std::ofstream out(svg);
  out << SvgLines(lines, "Share of the best recorded speed after N trials (geomean)");
  if (out.flush()) return 0;
  std::cerr << "cannot write " << svg << "\n";
  return 1;
}

}  // namespace
}  // namespace heddle::tuner

int main(int argc, char** argv) { return heddle::tuner::Main(argc, argv); }
