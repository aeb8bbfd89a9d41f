// Stages of several outputs, computed for each of them: the scores of which all gradients of
// attention are made are stored for nobody then.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_OWN_STAGES_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_OWN_STAGES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/primitive.h"

namespace heddle::search_space {

// Gives the output `stage` large stages of its own. Comes before all other steps.
struct OwnStages {
  std::string stage;

  HEDDLE_PRIMITIVE(OwnStages, "own_stages", stage);
};

// The program in which the output `name` is made of copies S.of_name of the stages S that have more
// elements than it and of which other outputs are made, too. Others it shares as before.
// InvalidArgument where there are none, or an output is made of another one.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithOwnStages(const TensorProgram& program,
                                                                   const std::string& name);

// The steps, one behind the other, after which no output shares such stages with another, where
// sums of products of several tensors are among them; none of more than a few outputs.
std::vector<OwnStages> OutputsWorthOwnStages(const TensorProgram& program);

// Of an output of that program: the stages that it shares with no other output, itself included, as
// a program of which it is the only output and all else that they read are inputs.
TensorProgram ProgramOfOutput(const TensorProgram& program, const std::string& name);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_REDUCTIONS_OWN_STAGES_H_
