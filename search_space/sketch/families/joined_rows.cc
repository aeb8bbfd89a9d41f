#include "search_space/sketch/families/joined_rows.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/sketch/kernels/beside_rows.h"
#include "search_space/sketch/kernels/row_statistics.h"
#include "search_space/sketch/programs/combinations.h"
#include "search_space/sketch/programs/plans.h"

namespace heddle::search_space {
namespace {

// A way to have a kernel reduce the rows that it makes, and its name.
struct JoinedRows {
  const char* name;
  std::optional<ProgramShape> (*join)(const ProgramShape& shape);
};
constexpr JoinedRows kJoinedRows[] = {{"beside", WithSumsBeside},
                                      {"statistics", WithRowStatistics}};

// The reductions of kernels that `joined` has no more, by their names.
std::string JoinedIn(const ProgramShape& shape, const ProgramShape& joined) {
  std::vector<std::string> names;
  for (const KernelShape& kernel : shape.kernels) {
    const Buffer* const root = shape.stage(kernel.root).tensor.get();
    const bool is_left = std::any_of(
        joined.kernels.begin(), joined.kernels.end(),
        [&](const KernelShape& k) { return joined.stage(k.root).tensor.get() == root; });
    if (is_left) continue;
    for (const int r : kernel.reductions) names.push_back(shape.stage(r).name());
  }
  return absl::StrJoin(names, "|");
}

// What a sketch is called before the rules of its kernels, and behind them.
std::pair<std::string, std::string> AroundRules(const std::string& name) {
  const size_t end = std::min(name.find('['), name.size());
  const size_t slash = name.rfind('/', end);
  return {slash < end ? name.substr(0, slash + 1) : "", name.substr(end)};
}

}  // namespace

void AddJoinedRows(const Target& target, std::vector<Sketch>& sketches) {
  constexpr size_t kMostShapes = 4;
  if (HasOneKernel(sketches)) return;
  std::vector<Sketch> added;
  std::vector<const ProgramShape*> known;
  for (size_t i = 0; i < sketches.size() && known.size() < kMostShapes; ++i) {
    const Sketch& sketch = sketches[i];
    const ProgramShape* const shape = sketch.shape.get();
    const bool is_known = std::find(known.begin(), known.end(), shape) != known.end();
    if (sketch.superseded || is_known || shape->kernels.size() < 2) continue;
    known.push_back(shape);
    const auto [before, behind] = AroundRules(sketch.name);
    for (const JoinedRows& way : kJoinedRows) {
      auto with = way.join(*shape);
      if (!with.has_value() || with->kernels.size() < 2) continue;
      const auto joined = std::make_shared<const ProgramShape>(*std::move(with));
      const std::vector<Plans> plans = PlansOfPartition(*joined, target);
      if (!IsEachMade(plans)) continue;
      const size_t first = added.size();
      AddCombinations(plans, joined, added);
      for (size_t s = first; s < added.size(); ++s) {
        added[s].name = absl::StrCat(before, added[s].name, behind, "[", way.name, "=",
                                     JoinedIn(*shape, *joined), "]");
      }
    }
  }
  size_t others = 0;
  for (const Sketch& sketch : sketches) others += sketch.superseded ? 0 : sketch.draws;
  for (Sketch& sketch : added) {
    sketch.draws = std::max<size_t>(1, others / 2 / added.size());
    sketches.push_back(std::move(sketch));
  }
}

}  // namespace heddle::search_space
