// What an expression is, and what it reads.
#ifndef HEDDLE_SEARCH_SPACE_IR_EXPR_QUERIES_H_
#define HEDDLE_SEARCH_SPACE_IR_EXPR_QUERIES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "search_space/ir/expr/expr.h"

namespace heddle::search_space {

inline bool IsVar(const Expr& e, const Var& var) { return e->op == Op::kVar && e->var == var; }
inline bool IsOneOf(const Expr& e, const std::vector<Var>& vars) {
  return e->op == Op::kVar && std::find(vars.begin(), vars.end(), e->var) != vars.end();
}

// What is converted, where it is a conversion.
inline const Expr& WithoutCast(const Expr& e) { return e->op == Op::kCast ? e->args[0] : e; }

// Operations and operands of an expression, those of its indices among them, each as often as it
// stands there.
int64_t NodesOf(const Expr& e);

// Adds `e` to a list that has none that is equal.
void AddIfNew(const Expr& e, std::vector<Expr>& list);

// The loads of values in an expression, equal ones once: of numbers, and of indices that are
// converted to numbers. Those of indices that are used as such are not among them.
std::vector<Expr> LoadsIn(const Expr& e);

// Calls `visit` on every load of a value, or of a number of a tensor of indices. What a load is
// indexed by is not looked into: it reads inputs at most, which nobody writes.
void VisitLoads(const Expr& e, absl::FunctionRef<void(const Expr&)> visit);

// Are there values of more than one tensor in it? Where a reduction reads one alone nothing is
// reused, and the shape of tiles does not matter.
bool ReadsSeveralTensors(const Expr& e);

// Is there any load in it?
bool ReadsMemory(const Expr& e);

// Does `e` read one of these tensors?
bool ReadsAny(const Expr& e, const absl::flat_hash_set<const Buffer*>& tensors);

// Does `e` read an element where an index input says?
bool ReadsByIndex(const Expr& e);

// Does an element of `tensor` say where `e` reads another one? Then there is no copy of it.
bool SaysWhere(const Expr& e, const Buffer* tensor);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_EXPR_QUERIES_H_
