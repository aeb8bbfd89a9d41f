// How far two buffers of one type are from each other: in the host's memory, and as the source of a
// kernel for a CUDA device, where the data need not leave it (docs/measurement.md). The types are
// float32, float16 and bfloat16.
#ifndef HEDDLE_MEASURE_DEVICE_COMPARE_H_
#define HEDDLE_MEASURE_DEVICE_COMPARE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "search_space/ir/expr/expr.h"
#include "search_space/ir/expr/float_format.h"

namespace heddle::measure {

// |a - b| / (1 + slack |b|), computed in double precision: 0 where both are the same infinity or
// both are NaN, infinite where a - b is no finite number.
double Distance(float a, float b, double slack);

// Element `offset` of a buffer in the host's memory, and setting it to what it is rounded to.
float ElementAt(const void* data, int64_t offset, search_space::DType type);
void SetElement(void* data, int64_t offset, search_space::DType type, double value);

// Of two buffers.
struct Difference {
  int64_t elements = 0;  // whose bits are not the same
  double distance = 0;   // the largest

  friend bool operator==(const Difference&, const Difference&) = default;
};

// Calls body(begin, end) on parts of [0, count), on up to `threads` threads when it is worth it.
void Parallel(int64_t count, int threads, const std::function<void(int64_t, int64_t)>& body);

Difference DifferenceOf(const void* a, const void* b, int64_t count, double slack, int threads,
                        search_space::DType type = search_space::DType::kFloat32);

// A distance in units of what is allowed; 0 allows nothing.
double ErrorOf(double distance, double allowed);

// Where and how often an answer is wrong.
struct Mismatch {
  int64_t elements = 0;  // further away than is allowed
  int64_t worst = 0;     // offset of the one that is furthest away
  double error = 0;      // of that one, in units of what is allowed
  // Of those that are not further away the largest error, and the offsets of the first
  // kMostMismatches of those that are.
  double error_of_others = 0;
  std::vector<int64_t> offsets;
};
inline constexpr size_t kMostMismatches = 1024;
Mismatch FindMismatch(const void* got, const void* expected, int64_t count, double allowed,
                      double slack, search_space::DType type = search_space::DType::kFloat32);

// Offset of the first element whose bits are not the same; `count` where there is none.
int64_t FirstDifference(const void* a, const void* b, int64_t count,
                        search_space::DType type = search_space::DType::kFloat32);

// CUDA C++ of DifferenceOf for one type: CompareEntry(type)(const T* a, const T* b, long long
// count, double slack, unsigned long long* out) in blocks of kCompareThreads threads, as many as
// fit the device. Adds `elements` to out[0] and raises out[1] to the bits of `distance`, a double.
std::string CompareSource(search_space::DType type);
// float32 and those of 16 bits.
inline constexpr auto kComparedTypes = [] {
  std::array<search_space::DType, 1 + search_space::kHalfTypes.size()> types{
      search_space::DType::kFloat32};
  std::copy(search_space::kHalfTypes.begin(), search_space::kHalfTypes.end(), types.begin() + 1);
  return types;
}();
std::string CompareEntry(search_space::DType type);
inline constexpr int kCompareThreads = 256;

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_COMPARE_H_
