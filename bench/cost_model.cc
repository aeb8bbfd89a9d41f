// Judges cost models on recorded trials that they were not trained on.
//
//   bench/cost_model FILE... [--rounds N] [--rate R] [--depth N] [--each]
//
// FILE is what `heddle records dump` writes. Held-out shapes: each workload is judged by a model of
// all others; held-out operators: by a model of the other operators' workloads. Pairs: share of
// pairs of points, more than 1 % apart in time, that are in the right order. Peak@k: best recorded
// time / best of the k points predicted fastest. Regret@k: how much slower those are than the best.
#include "tuner/model/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tuner/search/replay.h"

namespace heddle::tuner {
namespace {

struct Measured {
  const Replay* replay;
  std::vector<Example> examples;
};

struct Quality {
  double pairs = 0, peak1 = 0, peak5 = 0, regret20 = 0;
};

Quality Judge(const std::vector<Example>& examples, const std::vector<float>& scores) {
  Quality quality;
  double right = 0, all = 0, best = INFINITY;
  for (const Example& e : examples) {
    if (e.time_us > 0) best = std::min(best, e.time_us);
  }
  for (size_t i = 0; i < examples.size(); ++i) {
    for (size_t j = 0; j < examples.size(); ++j) {
      const double a = examples[i].time_us, b = examples[j].time_us;
      if (a <= 0 || b <= 0 || a * 1.01 >= b) continue;
      ++all;
      right += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  quality.pairs = all > 0 ? right / all : 0;
  std::vector<size_t> order(examples.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  double found = INFINITY;
  for (size_t k = 0; k < order.size() && k < 20; ++k) {
    const double time = examples[order[k]].time_us;
    if (time > 0) found = std::min(found, time);
    if (k == 0) quality.peak1 = best / found;
    if (k < 5) quality.peak5 = best / found;
    quality.regret20 = found / best - 1;
  }
  return quality;
}

struct Method {
  const char* name;
  bool analytic_only = false;
  CostModel::Options options;
};

// Trains on every other workload that `teaches` allows; NaN scores never occur.
std::vector<float> ScoresOf(const Method& method, const std::vector<Measured>& all,
                            const Measured& held_out,
                            const std::function<bool(const Replay&)>& teaches, double* seconds) {
  std::vector<FeatureVector> features;
  for (const Example& e : held_out.examples) features.push_back(e.features);
  std::vector<float> analytic;
  for (const FeatureVector& f : features) analytic.push_back(AnalyticScore(f));
  if (method.analytic_only) return analytic;
  std::vector<Example> lessons;
  for (const Measured& other : all) {
    if (&other == &held_out || !teaches(*other.replay)) continue;
    lessons.insert(lessons.end(), other.examples.begin(), other.examples.end());
  }
  const absl::Time start = absl::Now();
  auto model = CostModel::Train(lessons, method.options);
  *seconds = std::max(*seconds, absl::ToDoubleSeconds(absl::Now() - start));
  if (!model.ok()) {  // nothing else was recorded
    std::cerr << model.status().message() << "\n";
    return analytic;
  }
  auto scores = model->Score(features);
  return scores.ok() ? *scores : analytic;
}

void Report(const char* title, const std::vector<Method>& methods, const std::vector<Measured>& all,
            const std::function<bool(const Replay&, const Replay&)>& teaches, bool each) {
  std::cout << title << ":\n\n| model | pairs | peak@1 | peak@5 | regret@20 | training s |\n"
            << "|---|---|---|---|---|---|\n";
  std::string details;
  for (const Method& method : methods) {
    Quality mean;
    double seconds = 0;
    const double n = static_cast<double>(all.size());
    for (const Measured& held_out : all) {
      auto scores = ScoresOf(
          method, all, held_out,
          [&](const Replay& other) {
            return other.device == held_out.replay->device && teaches(other, *held_out.replay);
          },
          &seconds);
      Quality q = Judge(held_out.examples, scores);
      mean.pairs += q.pairs / n;
      mean.peak1 += q.peak1 / n;
      mean.peak5 += q.peak5 / n;
      mean.regret20 += q.regret20 / n;
      absl::StrAppendFormat(&details, "| %s | %s | %.3f | %.3f | %.3f | %.3f |\n", method.name,
                            held_out.replay->name, q.pairs, q.peak1, q.peak5, q.regret20);
    }
    std::cout << absl::StrFormat("| %s | %.3f | %.3f | %.3f | %.3f | %.2f |\n", method.name,
                                 mean.pairs, mean.peak1, mean.peak5, mean.regret20, seconds);
  }
  std::cout << "\n";
  if (each)
    std::cout
        << "| model | workload | pairs | peak@1 | peak@5 | regret@20 |\n|---|---|---|---|---|---|\n"
        << details << "\n";
}

int Main(int argc, char** argv) {
  CostModel::Options options;
  bool each = false;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--rounds") == 0 && more) {
      options.rounds = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--rate") == 0 && more) {
      options.learning_rate = std::atof(argv[++i]);
    } else if (std::strcmp(argv[i], "--depth") == 0 && more) {
      options.depth = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--each") == 0) {
      each = true;
    } else {
      files.push_back(argv[i]);
    }
  }
  if (files.empty() || options.rounds < 1) {
    std::cerr << "usage: cost_model FILE... [--rounds N] [--rate R] [--depth N] [--each]\n";
    return 2;
  }
  auto replays = ReadReplays(files);
  if (!replays.ok()) {
    std::cerr << replays.status().message() << "\n";
    return 1;
  }
  std::vector<Measured> all;
  size_t trials = 0, foreign = 0;
  const absl::Time start = absl::Now();
  for (const Replay& replay : *replays) {
    all.push_back({&replay, ExamplesOf(replay, static_cast<int64_t>(all.size()), 2)});
    trials += replay.points.size();
    foreign += replay.foreign;
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  std::cout << absl::StrFormat(
      "%d trials of %d workloads, %d of another space; features of %.0f points a second on two "
      "cores.\n\n",
      trials, all.size(), foreign, static_cast<double>(trials) / seconds);

  Method analytic{"analytic", true, options}, ranking{"ranking", false, options},
      bare{"ranking, no prior", false, options}, throughput{"throughput", false, options};
  bare.options.analytic_prior = false;
  throughput.options.objective = CostModel::Objective::kThroughput;
  const std::vector<Method> methods = {analytic, ranking, bare, throughput};
  Report(
      "Held-out shapes", methods, all, [](const Replay&, const Replay&) { return true; }, each);
  Report(
      "Held-out operators", methods, all,
      [](const Replay& a, const Replay& b) { return a.op != b.op; }, each);
  return 0;
}

}  // namespace
}  // namespace heddle::tuner

int main(int argc, char** argv) { return heddle::tuner::Main(argc, argv); }
