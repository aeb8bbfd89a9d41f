// Nests of multiply-adds in registers, written out. Compilers unroll such a nest themselves, but
// meet its index arithmetic once more for every statement of it and of the loops around it: written
// out they take less time and give about the same instructions.
#ifndef HEDDLE_MEASURE_CODEGEN_STRAIGHT_LINE_H_
#define HEDDLE_MEASURE_CODEGEN_STRAIGHT_LINE_H_

#include "search_space/ir/stmt.h"

namespace heddle::measure {

// Does a loop nest only update elements of register arrays from others, at most a few hundred
// times, in an order that depends on nothing outside it?
bool IsStraightLine(const search_space::Stmt& loop);

// The statements of such a nest, in order.
search_space::Stmt StraightLine(const search_space::Stmt& loop);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_STRAIGHT_LINE_H_
