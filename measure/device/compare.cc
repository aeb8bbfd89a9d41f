#include "measure/device/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace heddle::measure {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool SameBits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, sizeof *a * static_cast<size_t>(count)) == 0;
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

Difference DifferenceOf(const float* a, const float* b, int64_t count, double slack, int threads) {
  std::mutex mutex;
  Difference all;
  Parallel(count, threads, [&](int64_t begin, int64_t end) {
    Difference part;
    // memcmp is several times faster than the loop, and a repetition has nothing to find.
    if (SameBits(a + begin, b + begin, end - begin)) return;
    for (int64_t i = begin; i < end; ++i) {
      if (SameBits(a + i, b + i, 1)) continue;
      ++part.elements;
      part.distance = std::max(part.distance, Distance(a[i], b[i], slack));
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

Mismatch FindMismatch(const float* got, const float* expected, int64_t count, double allowed,
                      double slack) {
  Mismatch found;
  for (int64_t i = 0; i < count; ++i) {
    const double error = ErrorOf(Distance(got[i], expected[i], slack), allowed);
    if (error > 1) ++found.elements;
    if (error > found.error) found.error = error, found.worst = i;
  }
  return found;
}

int64_t FirstDifference(const float* a, const float* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!SameBits(a + i, b + i, 1)) return i;
  }
  return count;
}

// Few threads find anything but rounding, and none of them the same element: one addition a block
// is what the blocks share.
static_assert(kCompareThreads == 256, "as the source has it");
const char kCompareSource[] = R"(
extern "C" __global__ void heddle_compare(const float* a, const float* b, long long count,
                                          double slack, unsigned long long* out) {
  __shared__ unsigned long long elements[256];
  __shared__ double distance[256];
  const int thread = threadIdx.x;
  unsigned long long different = 0;
  double largest = 0;
  for (long long i = blockIdx.x * 256LL + thread; i < count; i += gridDim.x * 256LL) {
    const float x = a[i], y = b[i];
    if (__float_as_int(x) == __float_as_int(y)) continue;
    ++different;
    if (x == y || (x != x && y != y)) continue;
    double d = fabs((double)x - (double)y);
    // Not a number where an operand is none, and then as far as can be.
    if (!(d <= 1e300)) d = __longlong_as_double(0x7ff0000000000000LL);
    else if (slack > 0) d = __ddiv_rn(d, fma(slack, fabs((double)y), 1.0));
    largest = fmax(largest, d);
  }
  elements[thread] = different;
  distance[thread] = largest;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) {
      elements[thread] += elements[thread + half];
      distance[thread] = fmax(distance[thread], distance[thread + half]);
    }
  }
  if (thread == 0 && elements[0] > 0) {
    atomicAdd(out, elements[0]);
    // Doubles that are not negative are ordered like their bits.
    atomicMax(out + 1, (unsigned long long)__double_as_longlong(distance[0]));
  }
}
)";

}  // namespace heddle::measure
