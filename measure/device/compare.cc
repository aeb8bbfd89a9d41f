#include "measure/device/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "search_space/ir/expr/float_format.h"

namespace heddle::measure {

using search_space::DType;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool SameBits(const void* a, const void* b, int64_t first, int64_t count, DType type) {
  const size_t size = search_space::IsHalf(type) ? 2 : 4, begin = static_cast<size_t>(first) * size;
  return std::memcmp(static_cast<const char*>(a) + begin, static_cast<const char*>(b) + begin,
                     size * static_cast<size_t>(count)) == 0;
}

}  // namespace

void Parallel(int64_t count, int threads, const std::function<void(int64_t, int64_t)>& body) {
  constexpr int64_t kLeast = 1 << 16;
  const int64_t parts = std::clamp<int64_t>(count / kLeast, 1, std::max(1, threads));
  std::vector<std::thread> workers;
  for (int64_t p = 1; p < parts; ++p) {
    workers.emplace_back([&, p] { body(count * p / parts, count * (p + 1) / parts); });
  }
  body(0, count / parts);
  for (std::thread& worker : workers) worker.join();
}

double Distance(float a, float b, double slack) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double distance = std::abs(static_cast<double>(a) - b);
  if (!std::isfinite(distance)) return kInfinity;
  // Rounded once, so that a device finds the same bits.
  return slack > 0 ? distance / std::fma(slack, std::abs(static_cast<double>(b)), 1.0) : distance;
}

float ElementAt(const void* data, int64_t offset, DType type) {
  if (!search_space::IsHalf(type)) return static_cast<const float*>(data)[offset];
  return search_space::HalfValue(type, static_cast<const uint16_t*>(data)[offset]);
}

void SetElement(void* data, int64_t offset, DType type, double value) {
  if (search_space::IsHalf(type)) {
    static_cast<uint16_t*>(data)[offset] = search_space::HalfBits(type, value);
  } else if (type == DType::kInt32) {
    static_cast<int32_t*>(data)[offset] = static_cast<int32_t>(value);
  } else {
    static_cast<float*>(data)[offset] = static_cast<float>(value);
  }
}

Difference DifferenceOf(const void* a, const void* b, int64_t count, double slack, int threads,
                        DType type) {
  std::mutex mutex;
  Difference all;
  Parallel(count, threads, [&](int64_t begin, int64_t end) {
    Difference part;
    // memcmp is several times faster than the loop, and a repetition has nothing to find.
    if (SameBits(a, b, begin, end - begin, type)) return;
    for (int64_t i = begin; i < end; ++i) {
      if (SameBits(a, b, i, 1, type)) continue;
      ++part.elements;
      part.distance =
          std::max(part.distance, Distance(ElementAt(a, i, type), ElementAt(b, i, type), slack));
    }
    std::lock_guard<std::mutex> lock(mutex);
    all.elements += part.elements;
    all.distance = std::max(all.distance, part.distance);
  });
  return all;
}

double ErrorOf(double distance, double allowed) {
  if (distance == 0) return 0;
  const double error = distance / allowed;
  return error <= std::numeric_limits<double>::max() ? error : kInfinity;
}

Mismatch FindMismatch(const void* got, const void* expected, int64_t count, double allowed,
                      double slack, DType type) {
  Mismatch found;
  for (int64_t i = 0; i < count; ++i) {
    const double error =
        ErrorOf(Distance(ElementAt(got, i, type), ElementAt(expected, i, type), slack), allowed);
    if (error > 1) {
      ++found.elements;
      if (found.offsets.size() < kMostMismatches) found.offsets.push_back(i);
    } else {
      found.error_of_others = std::max(found.error_of_others, error);
    }
    if (error > found.error) found.error = error, found.worst = i;
  }
  return found;
}

int64_t FirstDifference(const void* a, const void* b, int64_t count, DType type) {
  for (int64_t i = 0; i < count; ++i) {
    if (!SameBits(a, b, i, 1, type)) return i;
  }
  return count;
}

}  // namespace heddle::measure
