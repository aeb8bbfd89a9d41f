#include "search_space/sketch/programs/form.h"

#include <utility>

#include "base/check.h"
#include "search_space/schedule/rewrites/algebra/hoist_factors.h"
#include "search_space/schedule/rewrites/algebra/quotient.h"
#include "search_space/schedule/rewrites/algebra/separate_decay.h"
#include "search_space/schedule/rewrites/axes/merge_axes.h"
#include "search_space/schedule/rewrites/axes/permute.h"
#include "search_space/schedule/rewrites/axes/split_axis.h"
#include "search_space/schedule/rewrites/axes/split_dim.h"

namespace heddle::search_space {
namespace {

using Rewritten = absl::StatusOr<std::shared_ptr<const TensorProgram>>;

// `step` has made `rewritten` of the form's program.
void Add(Step step, Rewritten rewritten, Form& form) {
  HEDDLE_CHECK(rewritten.ok(), ToString(step) + ": " + rewritten.status().ToString());
  form.steps.push_back(std::move(step));
  form.program = *std::move(rewritten);
}

}  // namespace

Form FormOf(const std::shared_ptr<const TensorProgram>& program) {
  Form form{{}, program};
  while (const auto parts = AxisWorthSplitting(*form.program)) {
    const auto& [stage, axis, width] = *parts;
    Add(SplitAxis{stage, axis, width}, WithSplitAxis(*form.program, stage, axis, width), form);
  }
  while (const auto parts = DimWorthSplitting(*form.program)) {
    const auto& [input, dim, width] = *parts;
    Add(SplitDim{input, dim, width}, WithSplitDim(*form.program, input, dim, width), form);
  }
  for (const Stage& s : std::vector<Stage>(form.program->stages)) {
    auto separate = WithSeparateDecay(*form.program, s.name());
    if (separate.ok()) Add(SeparateDecay{s.name()}, std::move(separate), form);
  }
  for (const Stage& s : std::vector<Stage>(form.program->stages)) {
    auto hoisted = WithHoistedFactors(*form.program, s.name());
    if (hoisted.ok()) Add(HoistFactors{s.name()}, std::move(hoisted), form);
  }
  for (std::vector<AxesToMerge> axes; !(axes = AxesWorthMerging(*form.program)).empty();) {
    for (const auto& [stage, outer, inner] : axes) {
      Add(MergeAxes{stage, outer, inner}, WithMergedAxes(*form.program, stage, outer, inner), form);
    }
  }
  for (const Stage& s : std::vector<Stage>(form.program->stages)) {
    auto divided = WithQuotient(*form.program, s.name());
    if (divided.ok()) Add(Quotient{s.name()}, std::move(divided), form);
  }
  for (const auto& orders_of : {OrdersOfTerms, OrdersOfReaders, OrdersOfBatches, OrdersOfWindows}) {
    for (const auto& [stage, axes] : orders_of(*form.program)) {
      Add(PermuteAxes{stage, axes}, WithPermutedAxes(*form.program, stage, axes), form);
    }
  }
  return form;
}

}  // namespace heddle::search_space
