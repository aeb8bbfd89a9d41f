#include "search_space/sketch/families/one_kernel.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/sketch/families/matrix_sketches.h"
#include "search_space/sketch/families/row_axes.h"
#include "search_space/sketch/patterns/sites.h"
#include "search_space/sketch/programs/combinations.h"
#include "search_space/sketch/programs/plans.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

// Rows that a warpgroup's tile has, over those of the program: with more of them the tiles of warps
// may be faster.
constexpr double kMostWaste = 1.5;

}  // namespace
bool HasStridedRows(const std::vector<Sketch>& sketches) {
  return std::any_of(sketches.begin(), sketches.end(), [](const Sketch& s) {
    return s.plans.size() == 1 && absl::EndsWith(s.name, kStridedRowsRule.name);
  });
}

void AddCollapsedRows(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                      std::vector<Sketch>& sketches) {
  const bool has_strided = HasStridedRows(sketches);
  if (HasOneKernel(sketches) && !has_strided) return;
  const RowAxes rows = RowsAlongFewerAxes(program, program->stages.back().name());
  const std::string& name = rows.name;
  const std::vector<Step>& steps = rows.steps;
  if (steps.empty()) return;
  ProgramShape fused = FuseKernels(program, steps);
  // Statistics of the rows that are outputs, too, are stored with the last one.
  if (fused.kernels.empty()) fused = FuseKernelsTogether(program, steps);
  const auto shape = std::make_shared<const ProgramShape>(std::move(fused));
  const std::vector<Plans> plans = PlansOf(*shape, false, target);
  if (plans.size() != 1 || plans[0].empty()) return;
  if (has_strided) {
    if (plans[0][0].rule->name != sketches.back().name) return;
    sketches.pop_back();
  }
  const size_t first = sketches.size(), draws = DrawsBeside(sketches);
  AddCombinations(plans, shape, sketches);
  for (size_t s = first; s < sketches.size(); ++s) {
    sketches[s].name = absl::StrCat(name, "/", sketches[s].name);
    sketches[s].draws = draws;
  }
}

void AddChain(const std::shared_ptr<const TensorProgram>& program, const Target& target,
              std::vector<Sketch>& sketches) {
  const auto shape = std::make_shared<const ProgramShape>(FuseChain(program, {}));
  if (shape->kernels.empty()) return;
  const size_t first = sketches.size(), draws = DrawsBeside(sketches);
  for (const SketchRule* rule : {&kChainRule, &kRollingRule, &kWarpgroupRollingRule}) {
    const auto plan = PlanOf(*rule, *shape, shape->kernels[0], target);
    if (!plan.has_value()) continue;
    if (rule == &kWarpgroupRollingRule && WasteOfDefault(*plan->plan) <= kMostWaste) {
      for (size_t s = first; s < sketches.size(); ++s) sketches[s].superseded = true;
    }
    Sketch chain = MakeSketch({{*plan}}, shape, {0});
    // What units for matrices compute is many times faster than what is not.
    const bool is_best = plan->rule->multiplies_matrices && HasMoreThanTwo(shape->kernels[0]);
    chain.draws = is_best ? 4 * draws : draws;
    sketches.push_back(std::move(chain));
  }
}

void AddSites(const std::shared_ptr<const TensorProgram>& program, const Target& target,
              std::vector<Sketch>& sketches) {
  const auto shape = std::make_shared<const ProgramShape>(FuseSites(program));
  if (shape->kernels.empty()) return;
  const auto plan = PlanOf(kSitesRule, *shape, shape->kernels[0], target);
  if (!plan.has_value()) return;
  Sketch of_sites = MakeSketch({{*plan}}, shape, {0});
  of_sites.draws = DrawsBeside(sketches);
  absl::StrAppend(&of_sites.name, CompanionsIn(shape->schedule));
  sketches.push_back(std::move(of_sites));
}

}  // namespace heddle::search_space
