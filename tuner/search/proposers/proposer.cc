#include "tuner/search/proposers/proposer.h"

#include <algorithm>
#include <optional>

namespace heddle::tuner {
namespace {

using search_space::Point;

// Draws in a row that may bring nothing new before what is left is listed, or, where that is too
// much to list, counts as exhausted. A space of which 1 % is left still yields with a probability
// of 1 - 0.99^1000.
constexpr int kFruitlessDraws = 1000;
constexpr double kMostListed = 1 << 18;  // points looked at for a list: some tenths of a second

class RandomProposer : public Proposer {
 public:
  RandomProposer(const search_space::SearchSpace& space, uint64_t seed)
      : fresh_(space), rng_(seed) {}

  std::vector<Point> Propose(int count, const std::function<bool(const Point&)>& tried) override {
    std::vector<Point> points;
    auto known = [&](const Point& point) {
      return tried(point) || std::find(points.begin(), points.end(), point) != points.end();
    };
    while (static_cast<int>(points.size()) < count) {
      std::optional<Point> point = fresh_.Draw(rng_, known);
      if (!point) break;
      points.push_back(*std::move(point));
    }
    return points;
  }

  void Observe(const Point&, const measure::TrialResult&) override {}

 private:
  FreshPoints fresh_;
  search_space::Rng rng_;
};

}  // namespace

std::optional<Point> FreshPoints::Draw(search_space::Rng& rng,
                                       absl::FunctionRef<bool(const Point&)> known) {
  for (int draw = 0; !listed_ && draw < kFruitlessDraws; ++draw) {
    std::optional<Point> point = space_.Sample(rng);
    if (!point) return std::nullopt;
    if (!known(*point)) return point;
  }
  if (!listed_ && !too_large_) {
    listed_ = space_.Enumerate(kMostListed);
    too_large_ = !listed_.has_value();
  }
  while (listed_ && !listed_->empty()) {
    const size_t at = std::uniform_int_distribution<size_t>(0, listed_->size() - 1)(rng);
    if (!known((*listed_)[at])) return (*listed_)[at];
    (*listed_)[at] = std::move(listed_->back());
    listed_->pop_back();
  }
  return std::nullopt;
}

std::unique_ptr<Proposer> MakeRandomProposer(const search_space::SearchSpace& space,
                                             uint64_t seed) {
  return std::make_unique<RandomProposer>(space, seed);
}

}  // namespace heddle::tuner
