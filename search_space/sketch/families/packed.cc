#include "search_space/sketch/families/packed.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/whole_factors.h"
#include "search_space/ir/windows.h"
#include "search_space/schedule/rewrites/axes/permute.h"
#include "search_space/sketch/matrix/packing.h"
#include "search_space/sketch/programs/combinations.h"
#include "search_space/sketch/programs/partition.h"
#include "search_space/sketch/programs/plans.h"

namespace heddle::search_space {
namespace {

// Copies in tiles take whole ones at least of what lies along the rows that they read.
constexpr int64_t kShortestTiledRow = 16;

// Of plans for a program with packed tensors: products are for the units that multiply matrices
// here, and each copy is made in one way.
void KeepPacked(const ProgramShape& shape, bool only_last, std::vector<Plans>& plans) {
  for (size_t k = 0; k < plans.size(); ++k) {
    const ScheduledStage& root = shape.stage(shape.kernels[k].root);
    Plans& made = plans[k];
    if (shape.kernels[k].reductions.empty() && root.materialized) {
      const std::vector<Expr> loads = LoadsIn(root.body);
      const bool in_tiles = std::all_of(loads.begin(), loads.end(), [](const Expr& load) {
        return load->buffer->shape.back() >= kShortestTiledRow;
      });
      const auto is_other = [&](const Plan& p) { return p.rule->is_fallback == in_tiles; };
      if (!std::all_of(made.begin(), made.end(), is_other)) std::erase_if(made, is_other);
    } else {
      KeepMatrices(only_last, made);
    }
  }
}

// Does a sum of products read the stage in windows that move along data, and nothing else it?
bool IsReadInWindows(const TensorProgram& program, const Stage& stage) {
  std::vector<const Stage*> readers;
  for (const Stage& reader : program.stages) {
    if (ReadsAny(reader.body, {stage.tensor.get()})) readers.push_back(&reader);
  }
  if (readers.size() != 1 || !AddsUpProducts(*readers[0])) return false;
  const Stage& sum = *readers[0];
  const std::vector<Expr> loads = LoadsIn(sum.body);
  return std::any_of(loads.begin(), loads.end(), [&](const Expr& load) {
    return load->buffer == stage.tensor &&
           std::any_of(sum.reduce_axes.begin(), sum.reduce_axes.end(),
                       [&](const Var& tap) { return MovesAlong(load, tap, sum.axes); });
  });
}

// The elementwise stages of 16-bit numbers that others read, too, of which a convolution reads a
// copy with a border, as the gradient behind a rectifier is, whose sums are a bias's.
std::vector<std::string> StagesWithinBorders(const TensorProgram& program) {
  std::vector<std::string> found;
  const auto is_elementwise = [](const Stage& stage) {
    return !stage.is_output && !stage.is_reduction() && IsHalf(stage.tensor->dtype);
  };
  for (const Stage& border : program.stages) {
    const std::vector<Expr> loads = LoadsIn(border.body);
    if (!is_elementwise(border) || loads.size() != 1 || !IsReadInWindows(program, border)) continue;
    const Stage* const stage = program.FindStage(loads[0]->buffer.get());
    const auto reads_it = [&](const Stage& reader) {
      return ReadsAny(reader.body, {loads[0]->buffer.get()});
    };
    if (stage == nullptr || !is_elementwise(*stage) ||
        std::count_if(program.stages.begin(), program.stages.end(), reads_it) < 2) {
      continue;
    }
    found.push_back(stage->name());
  }
  return found;
}

}  // namespace

void AddPacked(const std::shared_ptr<const TensorProgram>& program, const Target& target,
               const ProgramShape& shape, const std::string& name, std::vector<Sketch>& sketches) {
  const std::vector<std::vector<Packing>> choices = PackingsOf(shape, target);
  for (const std::vector<Packing>& packs : choices) {
    std::vector<Step> steps = shape.steps;
    for (const Packing& pack : packs) {
      std::erase_if(steps, [&](const Step& step) {
        const auto* const stored = std::get_if<Materialize>(&step);
        return stored != nullptr && stored->stage == pack.tensor;
      });
      steps.insert(steps.end(), pack.steps.begin(), pack.steps.end());
    }
    const auto packed = std::make_shared<const ProgramShape>(FindKernels(program, steps));
    std::vector<Plans> plans = PlansOf(*packed, false, target);
    const bool packs_all = &packs == &choices[0];
    KeepPacked(*packed, !packs_all, plans);
    const size_t first = sketches.size();
    AddCombinations(plans, packed, sketches);
    const std::string tensors = absl::StrJoin(
        packs, "|", [](std::string* out, const Packing& p) { out->append(p.tensor); });
    for (size_t s = first; s < sketches.size(); ++s) {
      sketches[s].name = absl::StrCat(name, "/", sketches[s].name, "[", tensors, "]");
      if (packs_all) sketches[s].draws = 2;
    }
  }
}

void AddSharedWindows(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                      const Algorithm& flattening, std::vector<Sketch>& sketches) {
  std::vector<std::string> windows = StagesOfSharedWindows(*program);
  for (const std::string& stage : StagesWithinBorders(*program)) windows.push_back(stage);
  if (windows.empty()) return;
  const Partition partition{.stored = {windows.begin(), windows.end()}};
  const auto shape =
      std::make_shared<const ProgramShape>(FindKernels(program, flattening.steps, partition));
  std::vector<Plans> plans = PlansOfPartition(*shape, target);
  if (!IsEachMade(plans) || CountMatrices(plans) == 0) return;
  for (Plans& of_kernel : plans) KeepMatrices(true, of_kernel);
  const size_t first = sketches.size();
  AddCombinations(plans, shape, sketches);
  for (size_t s = first; s < sketches.size(); ++s) {
    sketches[s].name = absl::StrCat(flattening.name, "/", sketches[s].name, NameOf(partition));
  }
  AddPacked(program, target, *shape, flattening.name + "+pack", sketches);
}

}  // namespace heddle::search_space
