// Which elements of an output are evaluated to check a kernel by.
#ifndef HEDDLE_SEARCH_SPACE_REFERENCE_SAMPLE_POINTS_H_
#define HEDDLE_SEARCH_SPACE_REFERENCE_SAMPLE_POINTS_H_

#include <cstdint>
#include <vector>

#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// Points of a cluster: one thread evaluates them one after another, with what they share.
inline constexpr int64_t kClusterPoints = 64;

// SplitMix64: the same numbers with every standard library.
class SampleRandom {
 public:
  explicit SampleRandom(uint64_t seed) : state_(seed) {}
  int64_t Below(int64_t bound) {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<int64_t>((z ^ (z >> 31)) % static_cast<uint64_t>(bound));
  }

 private:
  uint64_t state_;
};

using Cluster = std::vector<int64_t>;  // element offsets

// All elements where there are no more than `count`; otherwise random ones, the first and the last
// element always among them.
std::vector<Cluster> ChoosePoints(const TensorProgram& program, const Stage& output, int64_t count,
                                  SampleRandom& random);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_REFERENCE_SAMPLE_POINTS_H_
