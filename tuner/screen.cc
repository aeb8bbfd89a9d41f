#include "tuner/screen.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

namespace heddle::tuner {

using search_space::Point;

Screen::Screen(const search_space::SearchSpace& space, int threads)
    : space_(space),
      program_(std::make_shared<const search_space::TensorProgram>(space.program())),
      threads_(std::max(1, threads)) {}

std::vector<const FeatureVector*> Screen::Features(absl::Span<const Point> points) {
  std::vector<const Point*> missing;
  for (const Point& point : points) {
    if (known_.try_emplace(point).second) missing.push_back(&point);
  }
  std::vector<FeatureVector> features(missing.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i = next++; i < missing.size(); i = next++) {
      auto steps = space_.Steps(*missing[i]);
      if (!steps.ok()) continue;
      auto lowered = search_space::LowerSteps(program_, *steps, space_.target());
      if (!lowered.ok()) continue;
      auto found = FeaturesOf(*lowered, space_.target());
      if (found.ok()) features[i] = *std::move(found);
    }
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads_ && static_cast<size_t>(t) < missing.size(); ++t) {
    helpers.emplace_back(work);
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  for (size_t i = 0; i < missing.size(); ++i) {
    known_[*missing[i]] = std::make_unique<const FeatureVector>(std::move(features[i]));
  }
  std::vector<const FeatureVector*> all;
  all.reserve(points.size());
  for (const Point& point : points) all.push_back(known_[point].get());
  return all;
}

void Screen::Forget(size_t limit) {
  if (known_.size() > limit) known_.clear();
}

}  // namespace heddle::tuner
