// What need not be exact because it becomes 16 bits later. Internal to measure/codegen.
#ifndef HEDDLE_MEASURE_CODEGEN_ROUNDED_VALUES_H_
#define HEDDLE_MEASURE_CODEGEN_ROUNDED_VALUES_H_

#include <set>

#include "search_space/ir/stmt.h"

namespace heddle::measure {

// Arrays of float32 in registers whose elements nobody reads but who rounds them to 16 bits at
// once, in one part or in two, or as a factor or a divisor of what is rounded so: weights of
// attention, and the sums of such by which results are divided. An error of some 2^-15 of a value,
// or of a term that is added to one where none is negative, is then as good as none.
std::set<search_space::BufferRef> RoundedLater(const search_space::Stmt& body);

// Is the value known not to be negative? Errors of terms of both signs may be all that is left of
// them.
bool IsNeverNegative(const search_space::Expr& e);

// Does a statement give an exponential to one of `arrays`, or add one to it?
bool KeepExponentials(const search_space::Stmt& body,
                      const std::set<search_space::BufferRef>& arrays);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_ROUNDED_VALUES_H_
