// Judges cost models on recorded trials that they were not trained on.
//
//   bench/cost_model FILE... [--seeds N] [--rounds N] [--rate R] [--depth N] [--each]
//
// FILE is what `heddle records dump` writes. Held-out shapes: each workload is judged by a model of
// all others on the device; held-out families: by a model of those whose reductions are built
// differently (FamilyOf), so that no near relative has taught it. Each seed's models learn from
// four fifths of the trials, drawn at random; in brackets the deviation over seeds. Pairs: share of
// pairs of points, more than 1 % apart in time, that are in the right order. Peak@k: best recorded
// time / best of the k points predicted fastest. Regret@k: how much slower those are than the best.
#include "tuner/model/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tuner/search/proposers/replay.h"

namespace heddle::tuner {
namespace {

struct Measured {
  const Replay* replay;
  std::vector<Example> examples;
};

enum Figure : uint8_t { kPairs, kPeak1, kPeak5, kRegret20, kFigures };
using Quality = std::array<double, kFigures>;

constexpr double kTaught = 0.8;  // of the lessons, to a model

Quality Judge(const std::vector<Example>& examples, const std::vector<float>& scores) {
  Quality quality{};
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
  quality[kPairs] = all > 0 ? right / all : 0;
  std::vector<size_t> order(examples.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  double found = INFINITY;
  for (size_t k = 0; k < order.size() && k < 20; ++k) {
    const double time = examples[order[k]].time_us;
    if (time > 0) found = std::min(found, time);
    if (k == 0) quality[kPeak1] = best / found;
    if (k < 5) quality[kPeak5] = best / found;
    quality[kRegret20] = found / best - 1;
  }
  return quality;
}

struct Method {
  const char* name;
  bool analytic_only = false;
  CostModel::Options options;
};

// Who may teach: `held_out` is whoever is judged.
enum class HoldOut : uint8_t { kShape, kFamily };
bool Teaches(HoldOut hold_out, const Replay& teacher, const Replay& held_out) {
  if (teacher.device != held_out.device || teacher.workload == held_out.workload) return false;
  return hold_out == HoldOut::kShape || teacher.family != held_out.family;
}

// Models by whom they were held out for: workloads of one family have one.
class Trainer {
 public:
  Trainer(const Method& method, HoldOut hold_out, const std::vector<Measured>& all, uint64_t seed)
      : method_(method), hold_out_(hold_out), all_(all), seed_(seed) {}

  std::vector<float> ScoresFor(const Measured& held_out) {
    std::vector<FeatureVector> features;
    std::vector<float> analytic;
    for (const Example& e : held_out.examples) {
      features.push_back(e.features);
      analytic.push_back(AnalyticScore(e.features));
    }
    if (method_.analytic_only) return analytic;
    const CostModel* model = ModelFor(*held_out.replay);
    if (model == nullptr) return analytic;
    auto scores = model->Score(features);
    return scores.ok() ? *scores : analytic;
  }
  double seconds() const { return seconds_; }  // the longest training

 private:
  // nullptr: nobody teaches.
  const CostModel* ModelFor(const Replay& held_out) {
    const std::string key = absl::StrCat(
        held_out.device, "\n", hold_out_ == HoldOut::kShape ? held_out.workload : held_out.family);
    auto known = models_.find(key);
    if (known == models_.end()) known = models_.emplace(key, Train(held_out)).first;
    return known->second ? &*known->second : nullptr;
  }
  std::optional<CostModel> Train(const Replay& held_out) {
    std::mt19937_64 random(seed_);
    std::bernoulli_distribution taught(kTaught);
    std::vector<Example> lessons;
    for (const Measured& other : all_) {
      if (!Teaches(hold_out_, *other.replay, held_out)) continue;
      std::copy_if(other.examples.begin(), other.examples.end(), std::back_inserter(lessons),
                   [&](const Example&) { return taught(random); });
    }
    const absl::Time start = absl::Now();
    auto model = CostModel::Train(lessons, method_.options);
    seconds_ = std::max(seconds_, absl::ToDoubleSeconds(absl::Now() - start));
    if (model.ok()) return *std::move(model);
    std::cerr << held_out.name << ": " << model.status().message() << "\n";
    return std::nullopt;
  }

  const Method& method_;
  const HoldOut hold_out_;
  const std::vector<Measured>& all_;
  const uint64_t seed_;
  std::map<std::string, std::optional<CostModel>> models_;
  double seconds_ = 0;
};

Quality MeanOf(const std::vector<Quality>& values) {
  Quality mean{};
  for (const Quality& value : values) {
    for (int f = 0; f < kFigures; ++f) mean[f] += value[f] / static_cast<double>(values.size());
  }
  return mean;
}

// "0.912 (0.003)" for each figure: mean and standard deviation.
std::string Cells(const std::vector<Quality>& values) {
  const Quality mean = MeanOf(values);
  std::string cells;
  for (int f = 0; f < kFigures; ++f) {
    double squares = 0;
    for (const Quality& value : values) squares += std::pow(value[f] - mean[f], 2);
    const double others = std::max(1.0, static_cast<double>(values.size()) - 1);
    absl::StrAppendFormat(&cells, " %.3f (%.3f) |", mean[f], std::sqrt(squares / others));
  }
  return cells;
}

void Report(const char* title, HoldOut hold_out, const std::vector<Method>& methods,
            const std::vector<Measured>& all, int seeds, bool each) {
  constexpr char kColumns[] = "pairs | peak@1 | peak@5 | regret@20";
  std::cout << title << ":\n\n| model | " << kColumns
            << " | training s |\n|---|---|---|---|---|---|\n";
  std::string details;
  for (const Method& method : methods) {
    double seconds = 0;
    std::vector<Quality> of_seed;
    std::vector<std::vector<Quality>> of_workload(all.size());
    for (int seed = 1; seed <= (method.analytic_only ? 1 : seeds); ++seed) {
      Trainer trainer(method, hold_out, all, static_cast<uint64_t>(seed));
      std::vector<Quality> qualities;
      for (size_t i = 0; i < all.size(); ++i) {
        qualities.push_back(Judge(all[i].examples, trainer.ScoresFor(all[i])));
        of_workload[i].push_back(qualities.back());
      }
      of_seed.push_back(MeanOf(qualities));
      seconds = std::max(seconds, trainer.seconds());
    }
    std::cout << absl::StrFormat("| %s |%s %.2f |\n", method.name, Cells(of_seed), seconds);
    for (size_t i = 0; i < all.size(); ++i) {
      absl::StrAppend(&details, "| ", method.name, " | ", all[i].replay->name, " | ",
                      all[i].replay->family, " |", Cells(of_workload[i]), "\n");
    }
  }
  std::cout << "\n";
  if (!each) return;
  std::cout << "| model | workload | family | " << kColumns << " |\n|---|---|---|---|---|---|---|\n"
            << details << "\n";
}

int Main(int argc, char** argv) {
  CostModel::Options options;
  bool each = false;
  int seeds = 5;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--seeds") == 0 && more) {
      seeds = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--rounds") == 0 && more) {
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
  if (files.empty() || options.rounds < 1 || seeds < 1) {
    std::cerr
        << "usage: cost_model FILE... [--seeds N] [--rounds N] [--rate R] [--depth N] [--each]\n";
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
  Report("Held-out shapes", HoldOut::kShape, methods, all, seeds, each);
  Report("Held-out families", HoldOut::kFamily, methods, all, seeds, each);
  return 0;
}

}  // namespace
}  // namespace heddle::tuner

int main(int argc, char** argv) { return heddle::tuner::Main(argc, argv); }
