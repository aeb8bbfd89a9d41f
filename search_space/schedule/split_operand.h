// A sum of products of a float32 stage and of bfloat16 numbers as one of bfloat16 numbers alone,
// for units that multiply small matrices of these (search_space/ir/parts.h).
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_SPLIT_OPERAND_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_SPLIT_OPERAND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

// The program with stage `name`, D[a] = sum(r) S[b] * t, where S is a stage of float32, t is of
// bfloat16, and b are indices, in two stages:
//   S.parts[p, c]: bfloat16 = PartOf(p, S[c])            c: the axes of S
//   D[a] = sum(p, r) S.parts[p, b] * t
// By the distributive law that is the sum for S.parts[0] + S.parts[1], which is within kPartsLoss
// of S where that is finite. S stays where others read it; sums that read the same S share its
// parts. InvalidArgument where D is no such sum.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithSplitOperand(const TensorProgram& program,
                                                                      const std::string& name);

// What WithSplitOperand calls the parts of a stage.
std::string PartsNameOf(const std::string& stage);

// Is it such a stage, whatever may be inlined in it?
bool IsOfParts(const ScheduledStage& stage);
// Does it store them in a workspace, as they are computed or copied from where they were?
bool StoresParts(const Schedule& schedule, const ScheduledStage& stage);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_SPLIT_OPERAND_H_
