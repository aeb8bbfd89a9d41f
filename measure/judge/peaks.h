// Inputs that show one lost term of a long sum: most elements are small, few are large, so that a
// sum is made of few terms, and every position is among them somewhere (docs/measurement.md).
#ifndef HEDDLE_MEASURE_JUDGE_PEAKS_H_
#define HEDDLE_MEASURE_JUDGE_PEAKS_H_

#include <cstdint>
#include <vector>

#include "search_space/ir/tensor_program.h"

namespace heddle::measure {

// True where there is a sum to lose terms of.
bool HasSums(const search_space::TensorProgram& program);

// All values are positive. Of the tensors that sums are made of, one element in spacing() is large:
// in each run of that many neighbours along the last dimension exactly one, at a hashed place,
// which moves on by one from row to row, so that spacing() rows have each of their columns large
// once, and each column one large row. Where there are fewer rows, the ends of a sum matter most:
// the first and the last element of a tensor are large in every other input, and small in the rest,
// from which they may be subtracted. Tensors that no sum is made of are multiplied with or added to
// results: every second element is small there, by a hash.
class Peaks {
 public:
  Peaks(const search_space::TensorProgram& program, uint64_t seed);

  float At(int tensor, int64_t offset) const;
  bool IsLarge(int tensor, int64_t offset) const;
  // A power of two, so large that one of a sum's large terms is several times the tolerance.
  int64_t spacing() const { return int64_t{1} << log_spacing_; }

 private:
  struct Layout {
    bool summed;
    int64_t width, last;  // of the last dimension; the last element's offset
  };
  std::vector<Layout> layouts_;  // of each input
  uint64_t seed_;
  int log_spacing_;
  float large_, small_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_JUDGE_PEAKS_H_
