// Places that the terms of a reduction name by an index, as in histograms and sums by groups: of
//   S[.., i, ..] = combiner(.., r, ..) select(I[r] == i, value, otherwise)
// term r belongs to the place I[r] along the axis i.
#ifndef HEDDLE_SEARCH_SPACE_IR_NAMED_PLACE_H_
#define HEDDLE_SEARCH_SPACE_IR_NAMED_PLACE_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "search_space/ir/expr/expr.h"

namespace heddle::search_space {

struct NamedPlace {
  size_t axis;  // of the stage's
  Expr place;
};

bool MentionsAnyOf(const Expr& e, const std::vector<Var>& axes);

// What `condition` says about a term's place where it is the comparison of an axis with an integer
// that reads indices and depends on `reduce_axes`, however the two are written: I[r] + a - i == 2
// is one. Of the axes that have no place in `known` yet, which has one for each of `axes` or null.
std::optional<NamedPlace> NamedPlaceOf(const std::vector<Var>& axes,
                                       const std::vector<Var>& reduce_axes,
                                       const std::vector<Expr>& known, const Expr& condition);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_NAMED_PLACE_H_
