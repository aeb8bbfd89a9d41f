// How the threads of a block share the elements of a fetched region.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_COPIES_FETCH_GRID_H_
#define HEDDLE_SEARCH_SPACE_LOWER_COPIES_FETCH_GRID_H_

#include <vector>

#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

// Thread t moves `vector` neighbouring elements, v = 0 .. vector - 1, in each trip e.
struct FetchGrid {
  Var trip, lane;              // e and v
  std::vector<Expr> position;  // in the region, one an axis, in e, v and the thread
  Expr thread_guard;           // threads that move anything at all; null when all do
  Expr guard;                  // and in which trips; null when in all
  Expr useful;                 // for all threads alike: is anything to be moved? null = always
  bool whole_rows = false;     // without the guards, loads would reach past the region's rows

  // Under which anything is moved; null when always.
  Expr Moves() const { return AndAlso(thread_guard, guard); }
  // What holds where an element is moved.
  std::vector<Expr> Assume(std::vector<Expr> outer) const {
    if (const Expr moves = Moves(); moves != nullptr) outer.push_back(moves);
    return outer;
  }
};

// The number of trips that MakeFetchGrid chooses.
int64_t FetchTrips(const std::vector<int64_t>& extent, int64_t threads, int64_t vector);

// Neighbouring threads move neighbouring elements, row by row. Where a trip does not end with a
// row, every element would need divisions of its own; if it costs few threads, a trip then takes
// whole rows (or a row whole trips) instead: addresses are linear in e, and what depends on the
// thread is computed once.
FetchGrid MakeFetchGrid(const ScheduledStage& stage, const Var& thread);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_COPIES_FETCH_GRID_H_
