// Rows along several axes as rows along one, which is what rules for rows know best.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_ROW_AXES_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_ROW_AXES_H_

#include <memory>
#include <string>
#include <vector>

#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {

// Steps behind which the output `root` has fewer axes along its rows, and what is reduced of these
// is reduced along as few: axes that are only walked together are one (collapse.h), and neighbours
// that a reduction of rows goes along are, too, where something is read along one of them alone
// (merge_axes.h), as the weights of a group's channels are. Empty where there are none.
struct RowAxes {
  std::string name;  // of the steps, as in sketches' names
  std::vector<Step> steps;
  std::shared_ptr<const TensorProgram> program;  // behind them
};
RowAxes RowsAlongFewerAxes(const std::shared_ptr<const TensorProgram>& program,
                           const std::string& root);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_ROW_AXES_H_
