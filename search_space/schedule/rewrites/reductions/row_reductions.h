// The reductions of a sum's rows and how they depend on one another: what can be taken in parts of
// the rows' columns (reduce_in_parts.h).
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_ROW_REDUCTIONS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_ROW_REDUCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// A reduction of the sum's elements, along rows or more.
struct RowReduction {
  // How it depends on another one before it.
  struct Dependency {
    size_t on = 0;                // its number
    std::optional<double> slope;  // as exp(slope * value); none: on where that is
    double otherwise = 0;         // of those: what a term is elsewhere
    // Of those with a slope: whose value terms are relative to, where that is computed of the one
    // before, as the greater one of a maximum and of another score is; null: the one before itself.
    BufferRef reference;
  };

  const Stage* stage = nullptr;
  Expr body;              // with what lies between written out
  std::vector<Var> vars;  // its own, or what it reduces over, at which each axis of the sum is read
  std::optional<Dependency> depends;

  bool Reduces(const Var& v) const;
  // The sum's axis that is read at `v`; as many as it has where that is none, as of an axis of one
  // element that a number has.
  size_t AxisOf(const Var& v) const;
  bool IsOnly(const Var& axis) const { return AxisOf(axis) == vars.size(); }
  // Where each of its axes, but those of one element, is read at the place of `reader`'s terms.
  ExprList OwnPlace(const RowReduction& reader) const;
};

// All of one sum, or those of an input that can be taken so: at least one. The program must outlive
// it.
struct RowReductions {
  const Stage* sum = nullptr;
  bool of_input = false;  // whose elements others may read as they are
  size_t along = 0;       // the sum's axis of the rows' columns, the last one that all reduce
  absl::flat_hash_set<const Buffer*> dependents;  // the sum and all that depends on it
  absl::flat_hash_set<const Buffer*> between;     // of these what is computed of single elements
  std::vector<RowReduction> list;                 // in definition order

  int64_t RowLength() const { return sum->axes[along]->extent; }
  // Of the reduction that this is the tensor of.
  std::optional<size_t> NumberOf(const Buffer* tensor) const;
};

// InvalidArgument where `sum` is no such sum as WithReductionsInParts needs (reduce_in_parts.h). Of
// an input it is a stage that has its tensor and an axis for each dimension.
absl::StatusOr<RowReductions> FindRowReductions(const TensorProgram& program, const Stage& sum);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_ROW_REDUCTIONS_H_
