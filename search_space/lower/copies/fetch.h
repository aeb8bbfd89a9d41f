// The nests by which the threads of a block move a fetched region.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_COPIES_FETCH_H_
#define HEDDLE_SEARCH_SPACE_LOWER_COPIES_FETCH_H_

#include <vector>

#include "search_space/lower/context/kernel_context.h"
#include "search_space/lower/copies/fetch_grid.h"

namespace heddle::search_space {

// One of so many equal shares of a fetch's trips; all of them where `of` is 1.
struct Share {
  Expr number;
  int64_t of = 1;
};

// What a stage's definition says at the grid's position: not resolved yet.
Expr ValueAt(const ScheduledStage& stage, const FetchGrid& grid);

// A value that an element has where a condition holds.
struct Case {
  Expr condition;  // null: always
  Expr value;
};
// The cases of an element that conditions choose, as that of one of several tensors which follow
// one another. select(c, x, 0) is a single case, and so is a choice among many.
std::vector<Case> CasesOf(const Expr& value);

// Where the elements of stage `s` go, and what of that is of use.
FetchGrid GridOf(const KernelContext& context, int s);

// `move`, of one element, for all that a thread moves: over the trips of its share and the lanes,
// under the grid's conditions.
Stmt FetchNest(const FetchGrid& grid, Stmt move, const Share& share);

// Fills the storage of stage `s`.
Stmt EmitFetch(KernelContext& context, int s, const Assumptions& assumptions);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_COPIES_FETCH_H_
