// Reductions each term of which belongs to one place of some axes, which an index names:
// histograms, sums by groups, what is added to rows that are looked up. Which stages are such, and
// their terms.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_SCATTERED_TERMS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_SCATTERED_TERMS_H_

#include <cstdint>
#include <vector>

#include "search_space/schedule/schedule.h"
#include "search_space/schedule/scheduled_stage.h"

namespace heddle::search_space {

// Which terms a stage
//   S[.., i, ..] = combiner(.., r, ..) select(I[.., r, ..] == i, value, otherwise)
// reduces. Several axes may have such a comparison, further conditions may stand beside it, and
// selects against the identity around it. In a sum factors may stand beside the select, which must
// be finite for terms that are left out, and other terms of the same axes. In a minimum
//   select(select(I[r] == i, v, s) == D[i], r, n)
// is such a term, too: the position of what is least or greatest of a place.
struct ScatteredTerms {
  // By axis: the place i along it that the term belongs to; null where each element of the axis has
  // terms of its own. In reduced axes and such axes, as are `condition`, `value` and `whole`.
  std::vector<Expr> keys;
  Expr condition;  // beside the keys, under which its place has `value`; null = always
  Expr value;
  // Of a sum: the value as an integer, where all values are and the sum has 31 bits; null
  // otherwise.
  Expr whole;
  // Under which places have anything of the term, in all axes; null = always.
  Expr present;
  // What others than its place have then, in all axes: the identity, or of minima and maxima
  // another number. Of the position of a place's least or greatest what depends on the term, too,
  // and is least of the first one.
  Expr otherwise;

  bool HasKey(size_t axis) const { return keys[axis] != nullptr; }
  bool HasIdentity(Combiner combiner) const;  // as `otherwise`
};
// One for each such term of a sum, with keys of the same axes; one of other combiners. Empty of
// every other stage.
std::vector<ScatteredTerms> ScatteredTermsOf(const ScheduledStage& stage);
// Is such a stage a sum of integers that are added up as such?
bool AddsIntegers(const ScheduledStage& stage);
// How many elements side by side a term of a stage, and of all that is computed with it, can be
// added to at once, in vectors: 4, 2 or 1. Of sums of floats whose places do not depend on where
// along the last axis an element is.
int64_t WidestUpdate(const Schedule& schedule, const ScheduledStage& stage);
// Of how many places a term of such a stage may be, which is of one; 1 of every other stage.
int64_t PlacesOfTerm(const ScheduledStage& stage);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_SCATTERED_TERMS_H_
