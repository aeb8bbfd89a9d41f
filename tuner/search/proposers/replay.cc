#include "tuner/search/proposers/replay.h"

#include <algorithm>
#include <deque>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/notation/notation.h"
#include "tuner/model/family.h"
#include "tuner/search/proposers/evolution.h"
#include "tuner/search/proposers/screen.h"
#include "tuner/search/proposers/taught.h"

namespace heddle::tuner {
namespace {

using measure::TrialResult;
using search_space::Point;

class ShuffledProposer : public Proposer {
 public:
  ShuffledProposer(std::vector<Point> points, uint64_t seed) : left_(std::move(points)) {
    search_space::Rng rng(seed);
    std::shuffle(left_.begin(), left_.end(), rng);
  }
  std::vector<Point> Propose(int count, const std::function<bool(const Point&)>& tried) override {
    std::vector<Point> points;
    while (static_cast<int>(points.size()) < count && !left_.empty()) {
      if (!tried(left_.back())) points.push_back(left_.back());
      left_.pop_back();
    }
    return points;
  }
  void Observe(const Point&, const TrialResult&) override {}

 private:
  std::vector<Point> left_;
};

std::string DeviceOf(const TrialSet& set) {
  return absl::StrCat(set.environment.device_name, ", ", NameOf(set.environment.l2));
}

// Several sets of a workload on a device as one.
void Merge(TrialSet set, std::vector<TrialSet>& sets) {
  for (TrialSet& other : sets) {
    if (other.workload != set.workload || DeviceOf(other) != DeviceOf(set)) continue;
    for (TrialSet::Trial& trial : set.trials) other.trials.push_back(std::move(trial));
    return;
  }
  sets.push_back(std::move(set));
}

}  // namespace

absl::StatusOr<Replay> MakeReplay(const TrialSet& set) {
  HEDDLE_ASSIGN_OR_RETURN(program, search_space::ParseWorkload(set.workload));
  HEDDLE_ASSIGN_OR_RETURN(target, search_space::FindTarget(set.environment.arch));
  if (target.processor) target.sm_count = set.environment.sm_count;
  auto shared = std::make_shared<const search_space::TensorProgram>(std::move(program));
  HEDDLE_ASSIGN_OR_RETURN(space, search_space::SearchSpace::Create(shared, target));
  std::string name = shared->op;
  for (const auto& [parameter, value] : shared->shape) {
    absl::StrAppend(&name, name == shared->op ? " " : ",", parameter, "=", value);
  }
  Replay replay{name, shared->canonical_text, FamilyOf(*shared), DeviceOf(set), std::move(space)};
  for (const TrialSet::Trial& trial : set.trials) {
    auto point = replay.space.Parse(trial.point);
    if (!point.ok() || !replay.space.Check(*point).ok()) {
      ++replay.foreign;
      continue;
    }
    if (!replay.results.try_emplace(*point, trial.result).second) continue;
    replay.points.push_back(*std::move(point));
    const double time = trial.result.time_us;
    if (time > 0 && (replay.best_us == 0 || time < replay.best_us)) replay.best_us = time;
  }
  return replay;
}

absl::StatusOr<std::vector<Replay>> ReadReplays(const std::vector<std::string>& paths) {
  std::vector<TrialSet> merged;
  for (const std::string& path : paths) {
    std::ifstream file(path);
    if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
    auto sets = ReadTrialSets(file);
    if (!sets.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", std::string(sets.status().message())));
    }
    for (TrialSet& set : *sets) Merge(std::move(set), merged);
  }
  std::vector<Replay> replays;
  for (const TrialSet& set : merged) {
    HEDDLE_ASSIGN_OR_RETURN(replay, MakeReplay(set));
    replays.push_back(std::move(replay));
  }
  return replays;
}

std::vector<Example> ExamplesOf(const Replay& replay, int64_t workload, int threads) {
  Screen screen(replay.space, threads);
  const auto features = screen.Features(replay.points);
  std::vector<Example> examples;
  for (size_t i = 0; i < features.size(); ++i) {
    if (features[i]->empty()) continue;
    const TrialResult& result = replay.results.at(replay.points[i]);
    examples.push_back({*features[i], workload, result.time_us, WeightOf(result)});
  }
  return examples;
}

std::unique_ptr<Proposer> MakeShuffledProposer(const Replay& replay, uint64_t seed) {
  return std::make_unique<ShuffledProposer>(replay.points, seed);
}

std::vector<double> PlayBack(const Replay& replay, Proposer& proposer, int trials, int in_flight) {
  std::vector<double> curve;
  std::deque<Point> flying;
  double best = 0;
  auto none_tried = [](const Point&) { return false; };
  proposer.Begin();
  while (static_cast<int>(curve.size()) < trials) {
    const int room = in_flight - static_cast<int>(flying.size());
    for (Point& point : proposer.Propose(room, none_tried)) flying.push_back(std::move(point));
    if (flying.empty()) break;
    const TrialResult& result = replay.results.at(flying.front());
    proposer.Observe(flying.front(), result);
    flying.pop_front();
    if (result.time_us > 0 && (best == 0 || result.time_us < best)) best = result.time_us;
    curve.push_back(best == 0 ? 0 : replay.best_us / best);
  }
  curve.resize(static_cast<size_t>(trials), curve.empty() ? 0 : curve.back());
  return curve;
}

}  // namespace heddle::tuner
