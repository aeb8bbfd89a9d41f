#include "search_space/sketch/families/one_pass.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "search_space/schedule/rewrites/axes/split_axis.h"
#include "search_space/schedule/rewrites/reductions/rows_first.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/families/row_axes.h"
#include "search_space/sketch/families/row_parts.h"
#include "search_space/sketch/kernels/kernels.h"
#include "search_space/sketch/programs/combinations.h"
#include "search_space/sketch/programs/plans.h"

namespace heddle::search_space {
namespace {

// Elements of a row that are worth several blocks, and those of a block: what its threads hold at
// once, or in a few rounds.
constexpr int64_t kShortestLongRow = 8192;
constexpr int64_t kParts[] = {1024, 4096};

// What the rows' kernel stores for others: the rows' results of `reductions`, and statistics.
std::set<std::string> EndsOf(std::shared_ptr<const TensorProgram> program,
                             const std::vector<RowsFirst>& reductions) {
  std::set<std::string> ends;
  for (const RowsFirst& first : reductions) {
    auto more = WithRowsFirst(*program, first.stage, first.axes);
    if (!more.ok()) continue;
    program = *std::move(more);
    ends.insert(NameOfRows(first.stage));
  }
  for (std::string& statistic : StatisticsOfRows(*program)) ends.insert(std::move(statistic));
  return ends;
}

// Steps in front of those that reduce rows first, and the program behind them.
struct Prepared {
  std::string name;  // of the way, in front of sketches' names
  std::vector<Step> steps;
  std::shared_ptr<const TensorProgram> program;
  std::vector<RowsFirst> reductions = ReductionsBesideRows(*program);
  std::set<std::string> ends = EndsOf(program, reductions);
};

// Has a reduction an axis of its own among those that number rows, as one of a channel's has?
bool AreOfChannels(const TensorProgram& program, const std::vector<RowsFirst>& reductions) {
  return std::any_of(reductions.begin(), reductions.end(), [&](const RowsFirst& first) {
    return std::any_of(program.stages.begin(), program.stages.end(), [&](const Stage& s) {
      return s.name() == first.stage &&
             std::any_of(s.axes.begin(), s.axes.end(), [&](const Var& axis) {
               return std::count(first.axes.begin(), first.axes.end(), axis->name) > 0;
             });
    });
  });
}

// The reductions over rows in two; those of channels, and rows with statistics that others reduce,
// over longer rows where the axes of an output's rows and of their elements, as those of an image's
// pixels, can be one.
Prepared Prepare(const std::shared_ptr<const TensorProgram>& program) {
  Prepared plain{"", {}, program};
  for (const Stage& s : program->stages) {
    if (!s.is_output || s.is_reduction()) continue;
    RowAxes axes = RowsAlongFewerAxes(program, s.name());
    if (axes.steps.empty()) continue;
    Prepared longer{"", std::move(axes.steps), std::move(axes.program)};
    const bool is_better = AreOfChannels(*longer.program, longer.reductions)
                               ? AreOfChannels(*program, plain.reductions)
                               : longer.ends.size() > plain.ends.size();
    if (is_better) return longer;
  }
  return plain;
}

// The largest elementwise output, where it has few long rows.
const Stage* FewLongRows(const TensorProgram& program, const Target& target) {
  const Stage* largest = nullptr;
  for (const Stage& s : program.stages) {
    if (!s.is_output || s.is_reduction()) continue;
    if (largest == nullptr || s.tensor->elements >= largest->tensor->elements) largest = &s;
  }
  if (largest == nullptr || largest->axes.back()->extent < kShortestLongRow) return nullptr;
  const int64_t rows = largest->tensor->elements / largest->axes.back()->extent;
  return rows <= kFewLongRows * target.sm_count ? largest : nullptr;
}

// Those over parts of few long rows, for as many blocks as a device has.
std::vector<Prepared> PrepareParts(const std::shared_ptr<const TensorProgram>& program,
                                   const Target& target) {
  std::vector<Prepared> all;
  const Stage* const rows = FewLongRows(*program, target);
  if (rows == nullptr) return all;
  for (const int64_t columns : kParts) {
    const SplitAxis step{rows->name(), rows->axes.back()->name, columns};
    const auto split = WithSplitAxis(*program, step.stage, step.axis, step.width);
    if (!split.ok()) continue;
    all.push_back({absl::StrCat("row_parts[", columns, "]+"), {step}, *split});
  }
  return all;
}

std::vector<Sketch> RowsFirstSketches(const std::shared_ptr<const TensorProgram>& program,
                                      const Prepared& prepared, const Target& target) {
  std::vector<Step> steps = prepared.steps;
  steps.insert(steps.end(), prepared.reductions.begin(), prepared.reductions.end());
  if (prepared.ends.empty()) return {};
  const auto shape =
      std::make_shared<const ProgramShape>(FuseKernelsTogether(program, steps, prepared.ends));
  std::vector<Plans> plans = PlansOf(*shape, false, target);
  for (Plans& made : plans) {
    std::erase_if(made, [&](const Plan& p) { return !p.plan->IsWritable(shape->schedule); });
  }
  if (!IsEachMade(plans)) return {};
  std::vector<Sketch> added;
  AddCombinations(plans, shape, added);
  for (Sketch& sketch : added) {
    sketch.name =
        absl::StrCat(prepared.name, "rows_first/", sketch.name, CompanionsIn(shape->schedule));
  }
  return added;
}

}  // namespace

void AddRowsFirst(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                  std::vector<Sketch>& sketches) {
  AddAsOften(RowsFirstSketches(program, Prepare(program), target), sketches);
  std::vector<Sketch> of_parts;
  for (const Prepared& parts : PrepareParts(program, target)) {
    std::vector<Sketch> more = RowsFirstSketches(program, parts, target);
    std::move(more.begin(), more.end(), std::back_inserter(of_parts));
  }
  AddAsOften(std::move(of_parts), sketches);
}

void AddBeside(const std::shared_ptr<const TensorProgram>& program, const Target& target,
               std::vector<Sketch>& sketches) {
  const auto shape = std::make_shared<const ProgramShape>(FuseBeside(program));
  if (shape->kernels.empty()) return;
  const std::vector<Plans> plans = PlansOf(*shape, false, target);
  if (!IsEachMade(plans)) return;
  std::vector<Sketch> added;
  AddCombinations(plans, shape, added);
  for (Sketch& sketch : added) sketch.name = absl::StrCat("beside/", sketch.name);
  AddAsOften(std::move(added), sketches);
}

}  // namespace heddle::search_space
