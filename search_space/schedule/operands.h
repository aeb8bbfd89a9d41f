// What the terms of a reduction are made of.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_OPERANDS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_OPERANDS_H_

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
// dimensions of its load with most axes, after those that this load does not have.
std::vector<size_t> AxesInMemoryOrder(const ScheduledStage& stage, const Expr& operand);

// Does the stage read `tensor` only at its own element, [i, j] where its axes are i and j?
bool ReadsAtOwnElement(const ScheduledStage& stage, const BufferRef& tensor);

// Is `e`, a part of a stage's definition, zero wherever `axis` lies past its end? True for loads
// along that axis from tensors of the same extent, also through copies, conversions and padding,
// and for what is computed of nothing else and is zero for zeros: out there, lowering fills zeros.
// Of stages, those known to be in global memory: outputs and what is materialized, or, `placed`,
// all at the root, since where they are computed is decided (tails.cc).
bool IsZeroOutside(const Schedule& schedule, const Expr& e, const Var& axis, bool placed);

// Operations and operands of an expression, those of its indices among them.
int64_t NodesOf(const Expr& e);

// Does `e` read one of these tensors?
bool ReadsAny(const Expr& e, const absl::flat_hash_set<const Buffer*>& tensors);

// Does `e` read an element where an index input says?
bool ReadsByIndex(const Expr& e);

// Does an element of `tensor` say where `e` reads another one? Then there is no copy of it.
bool SaysWhere(const Expr& e, const Buffer* tensor);

// The loads of values in an operand, equal ones once: of numbers, and of indices that are converted
// to numbers. Those of indices that are used as such are not among them.
std::vector<Expr> LoadsIn(const Expr& e);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_OPERANDS_H_
