#include "tuner/proposer.h"

#include <algorithm>
#include <optional>

namespace heddle::tuner {
namespace {

using search_space::Point;

// Draws in a row that may bring nothing new before the space counts as exhausted. A space of which
// 1 % is left still yields with a probability of 1 - 0.99^1000.
constexpr int kFruitlessDraws = 1000;

class RandomProposer : public Proposer {
 public:
  RandomProposer(const search_space::SearchSpace& space, uint64_t seed)
      : space_(space), rng_(seed) {}

  std::vector<Point> Propose(int count, const std::function<bool(const Point&)>& tried) override {
    std::vector<Point> points;
    int fruitless = 0;
    while (static_cast<int>(points.size()) < count && fruitless < kFruitlessDraws) {
      std::optional<Point> point = space_.Sample(rng_);
      if (!point) break;
      bool known = tried(*point) || std::find(points.begin(), points.end(), *point) != points.end();
      if (known) {
        ++fruitless;
        continue;
      }
      fruitless = 0;
      points.push_back(*std::move(point));
    }
    return points;
  }

  void Observe(const Point&, const measure::TrialResult&) override {}

 private:
  const search_space::SearchSpace& space_;
  search_space::Rng rng_;
};

}  // namespace

std::unique_ptr<Proposer> MakeRandomProposer(const search_space::SearchSpace& space,
                                             uint64_t seed) {
  return std::make_unique<RandomProposer>(space, seed);
}

}  // namespace heddle::tuner
