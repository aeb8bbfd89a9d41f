// Stages of sums and of windows in two, one of which reads the other: what contract.h and
// separate_window.h have in common.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_DIVIDE_STAGE_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_DIVIDE_STAGE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// The factors of a product, however it is nested, from left to right.
std::vector<Expr> FactorsOfProduct(const Expr& e);

// A stage whose tensor has the name, and what is left of the whole, which reads it; `most_elements`
// may be stored of the one. nullopt where that is not worthwhile.
using DivideStage = std::function<std::optional<std::pair<Stage, Stage>>(
    const Stage& whole, const std::string& name, double most_elements)>;

// The program with stage `name` in two, and each of these again, as long as `divide` does that, up
// to eight times. New stages are `name`, `suffix` and a number. Each may have four times as many
// elements as inputs and outputs together. InvalidArgument with `otherwise` behind the stage's name
// where it is not divided at all.
absl::StatusOr<std::shared_ptr<const TensorProgram>> WithStageDivided(const TensorProgram& program,
                                                                      const std::string& name,
                                                                      const std::string& suffix,
                                                                      const DivideStage& divide,
                                                                      const std::string& otherwise);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_REWRITES_DIVIDE_STAGE_H_
