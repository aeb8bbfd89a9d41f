#include "tuner/search/default_point.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tuner/search/proposers/screen.h"

namespace heddle::tuner {
namespace {

using search_space::Point;
using search_space::SearchSpace;

constexpr uint64_t kSeed = 1;
// Points times the program's size: lowering takes longer the more stages there are, and the longer
// their definitions.
constexpr int64_t kWork = 256;
constexpr int64_t kNodesOfStage = 256;
// Fewer would say little for what they cost: the simplest point is the default then.
constexpr int64_t kFewestDraws = 4;
// After the draws, so many rounds change the best so far, each in half as many ways.
constexpr int kRounds = 4;
constexpr size_t kParents = 4;

// Of the time with the kernels that are found first, what other ones may take to be taken instead.
constexpr double kMargin = 0.95;

struct Guess {
  Point point;
  double time_us;
};

int64_t DrawsFor(const search_space::TensorProgram& program) {
  int64_t nodes = 0;
  for (const search_space::Stage& stage : program.stages) {
    search_space::Visit(stage.body, [&](const search_space::Expr&) { ++nodes; });
  }
  const auto stages = static_cast<int64_t>(program.stages.size());
  return kWork / (stages + nodes / kNodesOfStage);
}

}  // namespace

Point DefaultPoint(const SearchSpace& space) {
  static const auto spilled = static_cast<size_t>(FeatureIndex("spilled"));
  const int64_t draws = DrawsFor(space.program());
  if (draws < kFewestDraws) return space.Default();
  Screen screen(space, 1);
  std::vector<Guess> best;  // by time, of equal ones the first first
  auto look_at = [&](const std::vector<Point>& points) {
    const std::vector<const FeatureVector*> features = screen.Features(points);
    for (size_t i = 0; i < points.size(); ++i) {
      if (features[i]->empty() || (*features[i])[spilled] > 0) continue;
      best.push_back({points[i], AnalyticTimeUs(*features[i])});
    }
    std::stable_sort(best.begin(), best.end(),
                     [](const Guess& a, const Guess& b) { return a.time_us < b.time_us; });
    best.resize(std::min(best.size(), kParents));
  };

  const auto best_of = [&](SearchSpace::From from, std::vector<Point> points) {
    search_space::Rng rng(kSeed);
    best.clear();
    for (int64_t i = 0; i < draws; ++i) {
      if (auto point = space.Sample(rng, from)) points.push_back(*std::move(point));
    }
    look_at(points);
    for (int round = 0; round < kRounds && !best.empty(); ++round) {
      points.clear();
      for (int64_t i = 0; i < draws / 2; ++i) {
        const Point& parent = best[static_cast<size_t>(i) % best.size()].point;
        if (auto child = space.Mutate(parent, rng)) points.push_back(*std::move(child));
      }
      look_at(points);
    }
    return best.empty() ? std::nullopt : std::optional<Guess>(best.front());
  };
  const std::optional<Guess> first = best_of(SearchSpace::From::kFirst, {space.Default()});
  const std::optional<Guess> other = best_of(SearchSpace::From::kPartitions, {});
  if (!first.has_value()) return other.has_value() ? other->point : space.Default();
  const bool is_better = other.has_value() && other->time_us < kMargin * first->time_us;
  return is_better ? other->point : first->point;
}

absl::StatusOr<Answer> FallBack(Fallback fallback,
                                const std::shared_ptr<const search_space::TensorProgram>& program,
                                const search_space::Target& target, const Bench& bench,
                                Records* records) {
  if (fallback == Fallback::kNone) return Answer{};
  if (fallback == Fallback::kNearest) return FindNearest(program, target, bench, *records);
  HEDDLE_ASSIGN_OR_RETURN(space, SearchSpace::Create(program, target));
  HEDDLE_ASSIGN_OR_RETURN(steps, space.Steps(DefaultPoint(space)));
  return Answer{Match::kDefault, search_space::ToString(steps), {}};
}

}  // namespace heddle::tuner
