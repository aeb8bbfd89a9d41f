// Reductions along the rows of a product, such as the maximum of each row of scores, in parts of
// some columns each: a tile of the product then holds all that its part needs.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_REDUCE_IN_PARTS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_REDUCE_IN_PARTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// The reductions of rows of `stage`, a sum that nothing else reads, or an input, are taken in parts
// of so many columns first. Comes before all other steps.
struct ReduceInParts {
  std::string stage;
  int64_t columns;

  HEDDLE_PRIMITIVE(ReduceInParts, "reduce_in_parts", stage, columns);
};

// The program with the reductions that read a sum S, stage `name`, along its last axis that all of
// them reduce, n long, taken over parts of that axis of `columns` elements, 8 to 1024, and then of
// the parts, and along other axes. Such as
//   M[i] = max(j) f(S[i, j]),  Z[i] = sum(j) exp(s * (S[i, j] - M[i])) * g
// become
//   M.part[i, t] = max(j: columns) f(S[i, t * columns + j])
//   Z.part[i, t] = sum(j: columns) exp(s * (S[i, t * columns + j] - M.part[i, t])) * g
//   S.parts[i, q, t] = select(q == 0, M.part[i, t], Z.part[i, t])
//   M[i] = max(t) S.parts[i, 0, t]
//   Z[i] = sum(t) S.parts[i, 1, t] * exp(s * (M[i] - S.parts[i, 0, t]))
// with terms past n that change nothing, and what is computed elementwise between them written out.
// A reduction may depend on one maximum or minimum before it: sums by exp(slope * (value - f)) with
// the f that it is of, as rolling_reductions.h describes, and others by being taken of where that
// is, as positions are. What is computed of M, such as max(M[i], A[i]), may stand for it in the
// exponent. M and M.part are Bounded where they are subtracted, so that of a part, or a row, which
// is all infinite nothing is left. Of an input, whose parts have up to 16384 columns, others may
// read elements, too, and reductions that cannot be taken so stay as they are. InvalidArgument
// where the stage is no such sum: its elements are read in another way than each once by each
// reduction, or reductions of them depend on one another in another way.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithReductionsInParts(
    const TensorProgram& program, const std::string& name, int64_t columns);

// The products of matrices, sums of products of two elements that have axes of their own, to which
// that applies, and how long their rows are.
struct ReducedRows {
  std::string stage;
  int64_t columns;
};
std::vector<ReducedRows> RowsWorthReducingInParts(const TensorProgram& program);
// The input with long rows, `most_rows` of them at most, of which several reductions can be taken
// so, if there is one: one pass over them makes all of these.
std::optional<ReducedRows> LongRowsWorthReducingInParts(const TensorProgram& program,
                                                        int64_t most_rows);

// The stages that the rewritten program has for a sum's parts: the tensor that holds them, and of a
// reduction its own.
std::string NameOfParts(const std::string& sum);
std::string NameOfPart(const std::string& reduction);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_REDUCE_IN_PARTS_H_
