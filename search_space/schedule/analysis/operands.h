// What the terms of a reduction are made of.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_OPERANDS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_OPERANDS_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

// The body of a stage is a function of its operands: the largest subexpressions that read
// something and do not depend on all of the stage's axes, which makes them worth computing once for
// many terms; and the loads that depend on all. (A - B)^2 has A and B, exp((T - M) * c) * V the
// exponential and V, whatever the combiner.
struct Operands {
  // The stage's body, but factors of a product, and terms of a sum, stand together where they make
  // one operand: X[q, i] * W[p, i, j] * Z[q, j] is (X * Z) * W. One whose values are all numbers of
  // 16 bits, such as a masked or rectified matrix, is converted there and back, so that it is kept
  // so.
  Expr body;
  std::vector<Expr> list;  // in the order in which they stand there; equal ones are one
};
Operands OperandsOf(const ScheduledStage& stage);

// The axes of the stage, data axes first, on which an operand depends, so that neighbours along the
// last one are neighbours in memory where they are in what the operand reads: in the order of the
// dimensions of its load with most axes, after those that this load does not have. An axis of which
// a remainder numbers neighbours, as that of merged rows, comes behind those that stand after it.
std::vector<size_t> AxesInMemoryOrder(const ScheduledStage& stage, const Expr& operand);

// Does the stage read `tensor` only at its own element, [i, j] where its axes are i and j?
bool ReadsAtOwnElement(const ScheduledStage& stage, const BufferRef& tensor);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_OPERANDS_H_
