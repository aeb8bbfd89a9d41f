// Reductions each term of which belongs to one place of some axes, which an index names, as
// histograms and sums by groups: what tells that place of a term, and that no other has anything of
// it. Not for users of the reference.
#ifndef HEDDLE_SEARCH_SPACE_REFERENCE_PLACED_TERMS_H_
#define HEDDLE_SEARCH_SPACE_REFERENCE_PLACED_TERMS_H_

#include <optional>
#include <vector>

#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// Which terms a stage
//   S[.., i, ..] = combiner(.., r, ..) select(I[.., r, ..] == i, value, identity)
// reduces: at the place i = I[.., r, ..] a term is what the stage's body says, at all others the
// combiner's identity. Several axes may have such a comparison, further conditions may stand beside
// it, and factors beside a sum's select. What is listed may be evaluated for every term, depends on
// no axis that has a key, and so is the same at all places of the term.
struct PlacedTerms {
  // By axis: the place along it, an integer, or a value that is none anywhere if it is not whole;
  // null where each element of the axis has terms of its own.
  std::vector<Expr> keys;
  // Values that conditions compare. Where one is not exact, rounding may turn its comparison: then
  // elements of other places are uncertain, too.
  std::vector<Expr> compared;
  // Factors beside the select. Where one is not finite, or uncertain, so is zero times it.
  std::vector<Expr> factors;

  bool HasKey(size_t axis) const { return keys[axis] != nullptr; }
};
std::optional<PlacedTerms> PlacedTermsOf(const TensorProgram& program, const Stage& stage);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_REFERENCE_PLACED_TERMS_H_
