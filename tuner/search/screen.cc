#include "tuner/search/screen.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

namespace heddle::tuner {

using search_space::Part;
using search_space::Point;

Screen::Screen(const search_space::SearchSpace& space, int threads)
    : space_(space), threads_(std::max(1, threads)) {}

void Screen::LowerNew(absl::Span<const Part> parts) {
  std::vector<const Part*> missing;
  for (const Part& part : parts) {
    if (parts_.try_emplace(part).second) missing.push_back(&part);
  }
  std::vector<std::vector<KernelFeatures>> features(missing.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i = next++; i < missing.size(); i = next++) {
      auto lowered = space_.Lower(*missing[i]);
      if (!lowered.ok()) continue;
      auto found = FeaturesOfKernels(*lowered, space_.target());
      if (found.ok()) features[i] = *std::move(found);
    }
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads_ && static_cast<size_t>(t) < missing.size(); ++t) {
    helpers.emplace_back(work);
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  for (size_t i = 0; i < missing.size(); ++i) parts_[*missing[i]] = std::move(features[i]);
}

FeatureVector Screen::Together(const Point& point) const {
  std::vector<const KernelFeatures*> kernels;
  for (const Part& part : space_.PartsOf(point)) {
    const std::vector<KernelFeatures>& own = parts_.at(part);
    if (own.empty()) return {};
    for (const KernelFeatures& kernel : own) kernels.push_back(&kernel);
  }
  return Combine(kernels);
}

std::vector<const FeatureVector*> Screen::Features(absl::Span<const Point> points) {
  std::vector<const Point*> missing;
  std::vector<Part> parts;
  for (const Point& point : points) {
    if (!known_.try_emplace(point).second) continue;
    missing.push_back(&point);
    for (Part& part : space_.PartsOf(point)) parts.push_back(std::move(part));
  }
  LowerNew(parts);
  for (const Point* point : missing) {
    known_[*point] = std::make_unique<const FeatureVector>(Together(*point));
  }
  std::vector<const FeatureVector*> all;
  all.reserve(points.size());
  for (const Point& point : points) all.push_back(known_[point].get());
  return all;
}

void Screen::Forget(size_t limit) {
  if (std::max(known_.size(), parts_.size()) <= limit) return;
  known_.clear();
  parts_.clear();
}

}  // namespace heddle::tuner
