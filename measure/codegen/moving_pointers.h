// Pointers that move with a loop, for loads from global memory that a condition guards: the address
// is then a constant away from a pointer and need not be chosen, so that the load and its zeros are
// a few predicated instructions. And pointers or offsets that stand still before an unrolled nest,
// so that the compiler meets the arithmetic of thread and block once, not once for every access.
#ifndef HEDDLE_MEASURE_CODEGEN_MOVING_POINTERS_H_
#define HEDDLE_MEASURE_CODEGEN_MOVING_POINTERS_H_

#include <vector>

#include "search_space/ir/stmt.h"

namespace heddle::measure {

struct MovingPointer {
  search_space::BufferRef pointer;  // stands for it in the rewritten loads, which have one index
  search_space::BufferRef buffer;   // where it points to
  search_space::Expr start;         // element of `buffer` in the first iteration
  int64_t step;                     // elements from one iteration to the next; 0 = stands still
  bool written = false;             // a store goes through it
  // Not null: `start` is to be a named offset, `pointer` is another view of `buffer` itself.
  search_space::Var offset;
};

// The body of a serial loop with such loads, select(condition, load, 0), made relative to pointers,
// which are appended to `pointers`. Other loads are the compiler's: moving them gained nothing.
search_space::Stmt MovePointers(const search_space::StmtNode& loop,
                                std::vector<MovingPointer>& pointers);

// The body of an unrolled loop with its accesses to global and shared memory made relative to
// pointers that stand still while it runs, or to offsets: those of guarded loads, which choose
// between offsets, and of the sources of asynchronous copies, whose instruction takes a whole
// address (one multiply-add from an offset, two additions from a pointer). An address without
// arithmetic outside the loop stays as it is.
search_space::Stmt FixPointers(const search_space::StmtNode& loop,
                               std::vector<MovingPointer>& pointers);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_MOVING_POINTERS_H_
