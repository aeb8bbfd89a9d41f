// Inputs that show one lost term of a long reduction: most elements are small, few are large, so
// that few terms make a sum and one a maximum, and every position is among them somewhere
// (docs/measurement.md).
#ifndef HEDDLE_MEASURE_JUDGE_PEAKS_H_
#define HEDDLE_MEASURE_JUDGE_PEAKS_H_

#include <cstdint>
#include <vector>

#include "search_space/ir/tensor_program.h"

namespace heddle::measure {

// True where there is a sum to lose terms of.
bool HasSums(const search_space::TensorProgram& program);

// True where there is a maximum or a minimum of several terms.
bool HasExtremes(const search_space::TensorProgram& program);

// Of the tensors that reductions of the kind in question are made of, one element in spacing() is
// large: in each run of that many neighbours along the last dimension exactly one, at a hashed
// place, which moves on by one from row to row, so that spacing() rows have each of their columns
// large once, and each column one large row. Where there are fewer rows, the ends of a reduction
// matter most: the first and the last element are large in every other one of these tensors, and
// small in the rest, from which they may be subtracted.
//
// For sums all values are positive, and tensors that no sum is made of are multiplied with or added
// to results: every second element is small there, by a hash. For extremes, of which one term in
// spacing() or fewer is large, the others are uniform in [-1, 1); what is large is that downwards
// where the program's first extreme is a minimum, and the ends are larger than all else.
class Peaks {
 public:
  enum class Of : uint8_t { kSums, kExtremes };
  Peaks(const search_space::TensorProgram& program, uint64_t seed, Of of = Of::kSums);

  float At(int tensor, int64_t offset) const;
  bool IsLarge(int tensor, int64_t offset) const;
  // A power of two, so large that one of a sum's large terms is several times the tolerance, and
  // that an extreme has one large term on average, or half as many.
  int64_t spacing() const { return int64_t{1} << log_spacing_; }

 private:
  struct Layout {
    bool reduced;  // by what it is for
    bool large_ends;
    int64_t width, last;  // of the last dimension; the last element's offset
  };
  std::vector<Layout> layouts_;  // of each input
  uint64_t seed_;
  Of of_;
  int log_spacing_;
  float large_, small_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_JUDGE_PEAKS_H_
