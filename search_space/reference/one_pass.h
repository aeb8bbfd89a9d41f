// Whole stages whose terms name their places, each term looked at once. Not for users of the
// reference.
#ifndef HEDDLE_SEARCH_SPACE_REFERENCE_ONE_PASS_H_
#define HEDDLE_SEARCH_SPACE_REFERENCE_ONE_PASS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/reference/kept.h"
#include "search_space/reference/on_demand.h"
#include "search_space/reference/placed_terms.h"

namespace heddle::search_space {

// A term's place says for which element it is evaluated, and no more: what it is there is what the
// stage's body makes of it, as it is written.
class OnePass {
 public:
  // All must outlive it.
  OnePass(const TensorProgram& program, const Kept& kept, int stage, const PlacedTerms& placed);

  // Calls `add(offset, term)` for each term and each element that has more of it than the identity,
  // an element's terms in their order. Evaluates them on so many threads, and adds on this one: the
  // result is the same whatever the threads. False, and not to be used, where it turns out that
  // other elements may have something of a term, too.
  bool Run(int threads, absl::FunctionRef<void(int64_t offset, const Scalar& term)> add) const;

 private:
  struct Placed {
    int64_t offset;
    Scalar term;
  };
  void AppendStages(const std::vector<Expr>& bodies);
  bool Evaluate(OnDemand& source, int64_t begin, int64_t end, std::vector<Placed>& found) const;
  // Of `count` terms that are neighbours along the last axis: has none anything of them but its
  // place? And the elements at these places, -1 where there is none.
  bool HaveOnePlace(OnDemand& source, int64_t begin, int count) const;
  void FindOffsets(OnDemand& source, int64_t begin, int count, int64_t* offsets) const;
  int64_t OwnOffset(int64_t at) const;

  const Kept& kept_;
  const int stage_;
  const PlacedTerms& placed_;
  // Along which each element has terms of its own, and their steps in the stage's tensor.
  std::vector<Var> own_axes_;
  std::vector<int64_t> own_strides_;
  int64_t own_elements_ = 1;
  // The program, and behind its stages one for each of PlacedTerms: elements of terms, then of
  // own_axes_.
  TensorProgram program_;
  int first_compared_, first_factor_, first_key_;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_REFERENCE_ONE_PASS_H_
