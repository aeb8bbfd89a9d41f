#include "tuner/search/proposers/screen.h"

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
    auto [known, is_new] = parts_.try_emplace(part);
    known->second.used = calls_;
    if (is_new) missing.push_back(&part);
  }
  lowered_ += missing.size();
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
  for (size_t i = 0; i < missing.size(); ++i) parts_[*missing[i]].value = std::move(features[i]);
}

FeatureVector Screen::Together(const Point& point) const {
  std::vector<const KernelFeatures*> kernels;
  for (const Part& part : space_.PartsOf(point)) {
    const std::vector<KernelFeatures>& own = parts_.at(part).value;
    if (own.empty()) return {};
    for (const KernelFeatures& kernel : own) kernels.push_back(&kernel);
  }
  return Combine(kernels);
}

std::vector<const FeatureVector*> Screen::Features(absl::Span<const Point> points) {
  std::vector<const Point*> missing;
  std::vector<Part> parts;
  ++calls_;
  for (const Point& point : points) {
    auto [known, is_new] = known_.try_emplace(point);
    known->second.used = calls_;
    if (!is_new) continue;
    missing.push_back(&point);
    for (Part& part : space_.PartsOf(point)) parts.push_back(std::move(part));
  }
  LowerNew(parts);
  for (const Point* point : missing) {
    known_[*point].value = std::make_unique<const FeatureVector>(Together(*point));
  }
  std::vector<const FeatureVector*> all;
  all.reserve(points.size());
  for (const Point& point : points) all.push_back(known_[point].value.get());
  return all;
}

std::vector<double> Screen::TimesUs(absl::Span<const Part> parts) {
  ++calls_;
  LowerNew(parts);
  std::vector<double> times;
  for (const Part& part : parts) {
    std::vector<const KernelFeatures*> kernels;
    for (const KernelFeatures& kernel : parts_.at(part).value) kernels.push_back(&kernel);
    times.push_back(kernels.empty() ? 0 : AnalyticTimeUs(Combine(kernels)));
  }
  return times;
}

namespace {

// Leaves the `count` that were used last, or a few less where several were used at once.
template <typename Map>
void KeepNewest(Map& map, size_t count) {
  if (map.size() <= count) return;
  std::vector<uint64_t> used;
  for (const auto& [key, kept] : map) used.push_back(kept.used);
  const auto last = used.begin() + static_cast<ptrdiff_t>(used.size() - count);
  std::nth_element(used.begin(), last, used.end());
  size_t room = count - static_cast<size_t>(std::count_if(used.begin(), used.end(),
                                                          [&](uint64_t u) { return u > *last; }));
  absl::erase_if(map, [&](const auto& entry) {
    if (entry.second.used != *last) return entry.second.used < *last;
    if (room == 0) return true;
    --room;
    return false;
  });
}

}  // namespace

void Screen::Forget(size_t limit) {
  if (std::max(known_.size(), parts_.size()) <= limit) return;
  KeepNewest(known_, limit / 2);
  KeepNewest(parts_, limit / 2);
}

}  // namespace heddle::tuner
