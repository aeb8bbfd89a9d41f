// Features of many points of a space, before anything is compiled.
#ifndef HEDDLE_TUNER_SEARCH_PROPOSERS_SCREEN_H_
#define HEDDLE_TUNER_SEARCH_PROPOSERS_SCREEN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "search_space/sketch/search_space.h"
#include "tuner/model/features.h"

namespace heddle::tuner {

// Lowers points and keeps their features, and those of their kernels: most points of a search share
// some with earlier ones. Not thread-safe; uses `threads` threads itself. `space`
// must outlive it.
class Screen {
 public:
  Screen(const search_space::SearchSpace& space, int threads);

  // One for each point, in order; empty where a point does not lower (an error of the space's).
  // The pointers hold until Forget.
  std::vector<const FeatureVector*> Features(absl::Span<const search_space::Point> points);
  // The analytic time of each part, microseconds; 0 where it does not lower.
  std::vector<double> TimesUs(absl::Span<const search_space::Part> parts);
  // When more than `limit` points or kernels are kept, forgets those that were asked for longest
  // ago, so that half as many are left.
  void Forget(size_t limit);
  // Parts of points lowered so far: the work that what is kept saves.
  size_t lowered() const { return lowered_; }

  const search_space::SearchSpace& space() const { return space_; }

 private:
  // Lowers the parts that are not known yet.
  void LowerNew(absl::Span<const search_space::Part> parts);
  // The features of a point whose parts are known.
  FeatureVector Together(const search_space::Point& point) const;

  const search_space::SearchSpace& space_;
  int threads_;
  template <typename T>
  struct Kept {
    T value;
    uint64_t used = 0;  // the call that asked for it last
  };
  uint64_t calls_ = 0;
  size_t lowered_ = 0;
  // Empty where a part does not lower.
  absl::flat_hash_map<search_space::Part, Kept<std::vector<KernelFeatures>>> parts_;
  absl::flat_hash_map<search_space::Point, Kept<std::unique_ptr<const FeatureVector>>> known_;
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_PROPOSERS_SCREEN_H_
