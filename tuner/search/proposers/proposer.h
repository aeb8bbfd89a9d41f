// Which point to try next: the interface between the tuning session and a search.
#ifndef HEDDLE_TUNER_SEARCH_PROPOSERS_PROPOSER_H_
#define HEDDLE_TUNER_SEARCH_PROPOSERS_PROPOSER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "measure/device/outcome.h"
#include "search_space/sketch/search_space.h"

namespace heddle::tuner {

class Proposer {
 public:
  virtual ~Proposer() = default;

  // Up to `count` different points for which `tried` is false. Fewer when the space has (nearly)
  // no more of them; none ends the session.
  virtual std::vector<search_space::Point> Propose(
      int count, const std::function<bool(const search_space::Point&)>& tried) = 0;

  // How a trial ended: first the earlier ones from the database, then each as it completes.
  virtual void Observe(const search_space::Point& point, const measure::TrialResult& result) = 0;
  // The earlier trials are known: what can be prepared before the first Propose may begin.
  virtual void Begin() {}
  // Spent on proposals on threads of its own; 0 where all of it is inside Propose.
  virtual double seconds() const { return 0; }
};

// Draws points that are not known yet: at random as long as that finds some, then from a list of
// what is left, where the space is small enough for one. Its state is part of what is drawn next.
class FreshPoints {
 public:
  explicit FreshPoints(const search_space::SearchSpace& space) : space_(space) {}

  // nullopt: there are none, or none to be found.
  std::optional<search_space::Point> Draw(
      search_space::Rng& rng, absl::FunctionRef<bool(const search_space::Point&)> known);

 private:
  const search_space::SearchSpace& space_;
  std::optional<std::vector<search_space::Point>> listed_;  // once made; what is known is removed
  bool too_large_ = false;                                  // for a list
};

// Independent random points; the same seed gives the same points. `space` must outlive it.
std::unique_ptr<Proposer> MakeRandomProposer(const search_space::SearchSpace& space, uint64_t seed);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_PROPOSERS_PROPOSER_H_
