// Replays searches over recorded trials: how fast random, cold and warm searches find the best.
//
//   bench/search FILE... [--trials N] [--seeds N] [--in-flight N] [--svg FILE]
//
// FILE is what `heddle records dump` writes. Only recorded points are proposed, and each one's
// recorded result is its trial. Warm: the model knows the trials of all other recorded workloads on
// the device. Other families: only of those whose reductions are built differently (FamilyOf), so
// that no near relative has taught it.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tuner/search/plot.h"
#include "tuner/search/proposers/evolution.h"
#include "tuner/search/proposers/replay.h"

namespace heddle::tuner {
namespace {

constexpr double kClose = 0.05;  // of the best: found
enum Kind { kRandom, kCold, kFamilies, kWarm, kKinds };
constexpr const char* kNames[] = {"random", "cold", "other families", "warm"};

struct Outcome {
  std::vector<std::vector<double>> log_curves;  // of each seed: mean over workloads
  std::vector<int> needed;  // trials until kClose, each workload's median over seeds
};

int Median(std::vector<int> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// A model of what other workloads' trials on the same device teach.
std::shared_ptr<const CostModel> TrainOnOthers(const std::vector<Replay>& all,
                                               const Replay& left_out, Kind kind) {
  std::vector<Example> examples;
  for (size_t i = 0; i < all.size(); ++i) {
    const Replay& other = all[i];
    if (other.device != left_out.device || other.workload == left_out.workload) continue;
    if (kind == kFamilies && other.family == left_out.family) continue;
    const std::vector<Example> some = ExamplesOf(other, static_cast<int64_t>(i), 2);
    examples.insert(examples.end(), some.begin(), some.end());
  }
  auto model = CostModel::Train(examples, {});
  if (!model.ok()) return nullptr;
  return std::make_shared<const CostModel>(*std::move(model));
}

Outcome Run(const std::vector<Replay>& all, Kind kind, int trials, int seeds, int in_flight) {
  Outcome outcome;
  outcome.log_curves.assign(static_cast<size_t>(seeds),
                            std::vector<double>(static_cast<size_t>(trials)));
  for (const Replay& replay : all) {
    std::shared_ptr<const CostModel> base;
    if (kind == kWarm || kind == kFamilies) base = TrainOnOthers(all, replay, kind);
    std::vector<int> needed;
    for (int seed = 1; seed <= seeds; ++seed) {
      EvolutionOptions options;
      options.seed = static_cast<uint64_t>(seed);
      options.only = replay.points;
      options.base = base;
      auto proposer = kind == kRandom ? MakeShuffledProposer(replay, options.seed)
                                      : MakeEvolutionProposer(replay.space, options);
      const std::vector<double> curve = PlayBack(replay, *proposer, trials, in_flight);
      std::vector<double>& log_curve = outcome.log_curves[static_cast<size_t>(seed) - 1];
      for (size_t i = 0; i < curve.size(); ++i) {
        log_curve[i] += std::log(std::max(curve[i], 1e-3)) / static_cast<double>(all.size());
      }
      const auto found = std::find_if(curve.begin(), curve.end(),
                                      [](double share) { return share >= 1 / (1 + kClose); });
      needed.push_back(static_cast<int>(found - curve.begin()) + 1);
    }
    outcome.needed.push_back(Median(needed));
  }
  return outcome;
}

// Over seeds, of the geometric mean over workloads after `n` trials.
struct Spread {
  double mean = 0, deviation = 0;
};
Spread After(const Outcome& outcome, int n) {
  std::vector<double> values;
  for (const auto& curve : outcome.log_curves) {
    values.push_back(std::exp(curve[static_cast<size_t>(n) - 1]));
  }
  Spread spread;
  const auto count = static_cast<double>(values.size());
  for (double value : values) spread.mean += value / count;
  for (double value : values) spread.deviation += std::pow(value - spread.mean, 2);
  spread.deviation = count > 1 ? std::sqrt(spread.deviation / (count - 1)) : 0;
  return spread;
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
            << " workloads and " << seeds << " seeds (standard deviation over seeds):\n\n"
            << "| N | random | cold | other families | warm |\n|---|---|---|---|---|\n";
  for (int n : {1, 2, 4, 8, 16, 32, 64, 100, 150, 200, 300, 500, 1000}) {
    if (n > trials) break;
    std::cout << "| " << n << " |";
    for (const Outcome& o : outcomes) {
      const Spread spread = After(o, n);
      std::cout << absl::StrFormat(" %.3f (%.3f) |", spread.mean, spread.deviation);
    }
    std::cout << "\n";
  }
  std::cout << "\nTrials until within 5 % of the best recorded (median of seeds; " << trials + 1
            << " = never):\n\n| workload | family | points | random | cold | other families | warm "
            << "|\n|---|---|---|---|---|---|---|\n";
  for (size_t w = 0; w < all->size(); ++w) {
    std::cout << "| " << (*all)[w].name << " | " << (*all)[w].family << " | "
              << (*all)[w].points.size() << " |";
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
    for (int n = 1; n <= trials; ++n) {
      line.values.push_back(After(outcomes[static_cast<size_t>(kind)], n).mean);
    }
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
