// Reductions over all rows of what is computed of them, such as a loss beside its gradient, in two:
// of each row, which whoever has the row computes beside everything else of it, and of the rows'
// results.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_ROWS_FIRST_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_ROWS_FIRST_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Reduces a stage's terms of each row before those of all rows, which differ by the reduced `axes`.
// Comes before all other steps.
struct RowsFirst {
  std::string stage;
  std::vector<std::string> axes;

  HEDDLE_PRIMITIVE(RowsFirst, "rows_first", stage, axes);
};

// The program in which stage `name`, S[a] = combiner(i, k) e, is for the reduced axes i
//   S.rows[a, i] = combiner(k) e      or, where nothing else is reduced, e
//   S[a]         = combiner(i) S.rows[a, i]
// without those of its own axes that have one element. Of its own axes those that `axes` name stand
// where these do, the others in front.
// InvalidArgument where there is no such stage, or `axes` are none of its reduced axes in their
// order, and of its own in theirs.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithRowsFirst(
    const TensorProgram& program, const std::string& name, const std::vector<std::string>& axes);
// What the results of the rows are called.
std::string NameOfRows(const std::string& stage);

// The reductions that are worth it: over all rows of the largest output that is computed
// elementwise along rows, or all of its elements, or over all rows of each of its channels, which
// that does not depend on, and of something that both read. By one pass over the rows both are
// computed.
std::vector<RowsFirst> ReductionsBesideRows(const TensorProgram& program);

// Names of the reductions along each row that the same output is made of, and that something else
// reduces over rows, such as the gradients of a norm's weights. Whoever makes the output has them.
std::vector<std::string> StatisticsOfRows(const TensorProgram& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_ROWS_FIRST_H_
