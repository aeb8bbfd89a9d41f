// A sum of products of a float32 stage and of bfloat16 numbers as one of bfloat16 numbers alone,
// for units that multiply small matrices of these (search_space/ir/parts.h).
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_SPLIT_OPERAND_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_SPLIT_OPERAND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Multiplies a float32 stage as two parts of bfloat16, as the first step of a schedule: `stage` is
// the sum of the products.
struct SplitOperand {
  std::string stage;

  HEDDLE_PRIMITIVE(SplitOperand, "split_operand", stage);
};

// The program with stage `name`, D[a] = sum(r) f * t, where f is a float32 factor that may be split
// (FindSplittable) and t is of bfloat16, in two stages:
//   F.parts[p, c]: bfloat16 = PartOf(p, f)
//   D[a] = sum(p, r) F.parts[p, b] * t
// where c are the dimensions of the tensor whose elements f is a function of, b the indices at
// which it is read, or, where f is made of several tensors, both the axes that f mentions. By the
// distributive law that is the sum for F.parts[0] + F.parts[1], which is within kPartsLoss of f
// where that is finite. What f reads stays where others read it; sums with the same f share its
// parts. InvalidArgument where D is no such sum.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithSplitOperand(const TensorProgram& program,
                                                                      const std::string& name);

// Is it such a stage, whatever may be inlined in it?
bool IsOfParts(const ScheduledStage& stage);
// Does it store them in a workspace, as they are computed or copied from where they were?
bool StoresParts(const Schedule& schedule, const ScheduledStage& stage);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_SPLIT_OPERAND_H_
