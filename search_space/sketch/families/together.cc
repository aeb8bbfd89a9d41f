#include "search_space/sketch/families/together.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/programs/combinations.h"

namespace heddle::search_space {
void AddTogether(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                 const std::vector<Plans>& definition, std::vector<Sketch>& sketches) {
  std::vector<Sketch> added;
  size_t kept = sketches.size();
  enum class Way : uint8_t { kOneKernel, kRows, kOthers };
  for (const Way way : {Way::kOneKernel, Way::kRows, Way::kOthers}) {
    const auto shape = std::make_shared<const ProgramShape>(
        way == Way::kOneKernel ? FuseKernelsTogether(program)
                               : FindKernelsTogether(program, {}, {}, way == Way::kRows));
    if (CompanionsIn(shape->schedule).empty() &&
        shape->kernels.size() >= sketches[0].plans.size()) {
      continue;
    }
    const std::vector<Plans> plans = PlansOf(*shape, false, target);
    if (plans.empty() || !IsEachMade(plans)) continue;
    AddCombinations(plans, shape, added);
    const bool plain = std::any_of(plans.begin(), plans.end(),
                                   [](const Plans& p) { return p[0].rule->is_fallback; });
    if (plain) --kept;
    if (CountMatrices(plans) < CountMatrices(definition)) kept = 0;
    break;
  }
  for (size_t s = 0; s < sketches.size() && !added.empty(); ++s) {
    sketches[s].superseded = s > 0 && (sketches[s].superseded || s < kept);
    for (Sketch& sketch : added) {
      if (sketches[s].name != sketch.name) continue;
      absl::StrAppend(&sketch.name, CompanionsIn(sketch.shape->schedule));
      sketches[s].superseded = s > 0;
    }
  }
  sketches.insert(sketches.end(), std::make_move_iterator(added.begin()),
                  std::make_move_iterator(added.end()));
}

}  // namespace heddle::search_space
