// What back ends do to the body of a kernel before it is printed, each a function from statement to
// statement in a file of its own. A dialect's row lists those that its compilers need, in order.
#ifndef HEDDLE_MEASURE_CODEGEN_PASSES_PASSES_H_
#define HEDDLE_MEASURE_CODEGEN_PASSES_PASSES_H_

#include "search_space/ir/stmt.h"

namespace heddle::measure {

using Pass = search_space::Stmt (*)(const search_space::Stmt& body);

// Computes before a serial loop, once, the functions and quotients in it that are the same in all
// its iterations, such as the logarithm of a row's sum. Compilers do not: they hoist some of the
// instructions and leave the others, a dozen for a logarithm of registers.
search_space::Stmt HoistInvariants(const search_space::Stmt& body);

// Writes out nests of multiply-adds in registers that stand directly in an unrolled loop: nests
// that only update elements of register arrays from others, at most a few hundred times, in an
// order that depends on nothing outside. Compilers unroll such a nest themselves, but meet its
// index arithmetic once more for every statement of it and of the loops around it: written out
// they take less time and give about the same instructions. In other loops nests stay: whether the
// compiler unrolls those depends on how much it finds in them.
search_space::Stmt WriteOutUpdates(const search_space::Stmt& body);

// Unrolls the serial loops that lowering left although they index arrays of registers: those with
// a rotating companion that does.
search_space::Stmt UnrollRotatingRegisters(const search_space::Stmt& body);

// Counts addresses from pointers and offsets (kLet):
// - Guarded loads from global memory in a serial loop, select(condition, load, 0), go through
//   pointers that move with it. The address is then a constant away from a pointer and need not be
//   chosen, so that the load and its zeros are a few predicated instructions. Other loads are the
//   compiler's: moving them gained nothing.
// - What an unrolled nest accesses in global and shared memory is counted from pointers that stand
//   still before it, so that the compiler meets the arithmetic of thread and block once, not once
//   for every access. Offsets take their place for guarded loads, which choose between offsets, and
//   for the sources of asynchronous copies, whose instruction takes a whole address (one
//   multiply-add from an offset, two additions from a pointer). An address without arithmetic
//   outside the nest stays as it is.
search_space::Stmt CountFromPointers(const search_space::Stmt& body);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_PASSES_PASSES_H_
