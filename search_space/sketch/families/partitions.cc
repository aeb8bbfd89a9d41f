#include "search_space/sketch/families/partitions.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "search_space/schedule/rewrites/axes/outline.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/families/packed.h"
#include "search_space/sketch/matrix/packing.h"
#include "search_space/sketch/programs/combinations.h"

namespace heddle::search_space {
namespace {

// Do units for matrices compute several of the program's reductions in one kernel?
bool HasMatrixChain(const ProgramShape& shape, const std::vector<Plans>& plans) {
  for (size_t k = 0; k < plans.size(); ++k) {
    if (shape.kernels[k].fused && CountMatrices({plans[k]}) > 0) return true;
  }
  return false;
}

// Has a partition nothing but what others read stored?
bool StoresAlone(const Partitioned& p) {
  return !p.together && p.partition.apart.empty() && p.partition.merged.empty() &&
         p.partition.kept.empty();
}

}  // namespace

void AddPartitions(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                   const std::vector<Partitioned>& starts, IsWanted is_wanted,
                   std::vector<Sketch>& sketches) {
  const size_t before = sketches.size();
  std::shared_ptr<const ProgramShape> best;
  for (const Partitioned& p : PartitionsOf(program, starts, target)) {
    const std::vector<Plans> plans = PlansOfPartition(*p.shape, target);
    if (!IsEachMade(plans) || !is_wanted(p, plans)) continue;
    const size_t first = sketches.size();
    AddCombinations(plans, p.shape, sketches);
    for (size_t s = first; s < sketches.size(); ++s) {
      sketches[s].name = absl::StrCat("parts/", sketches[s].name, NameOf(p.partition),
                                      CompanionsIn(p.shape->schedule));
      sketches[s].is_partition = true;
      sketches[s].draws = first == before ? 2 : 1;
    }
    if (first == before && StoresAlone(p)) best = p.shape;
  }
  if (best != nullptr && PackingsOf(*starts[0].shape, target).empty()) {
    AddPacked(program, target, *best, "parts+pack", sketches);
  }
}

std::vector<Partitioned> StartsOf(const std::shared_ptr<const TensorProgram>& program,
                                  const std::shared_ptr<const ProgramShape>& definition,
                                  const std::vector<Partitioned>& parted) {
  std::vector<Partitioned> starts = {{{}, false, definition}};
  const auto together = std::make_shared<const ProgramShape>(FindKernelsTogether(program));
  if (!together->kernels.empty() && !CompanionsIn(together->schedule).empty()) {
    starts.push_back({{}, true, together});
  }
  starts.insert(starts.end(), parted.begin(), parted.end());
  return starts;
}

void AddPaddedPartitions(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                         const Algorithm& algorithm, IsWanted is_wanted,
                         std::vector<Sketch>& sketches) {
  const bool pads =
      std::any_of(algorithm.steps.begin(), algorithm.steps.end(),
                  [](const Step& step) { return std::holds_alternative<PadTerms>(step); });
  Schedule schedule(program);
  if (!pads || !Apply(algorithm.steps, schedule).ok()) return;
  const auto padded = std::make_shared<const TensorProgram>(schedule.program());
  const auto definition = std::make_shared<const ProgramShape>(FindKernels(padded, {}));
  if (!IsDivisible(*definition)) return;
  const auto has_chain = [&](const Partitioned& p, const std::vector<Plans>& plans) {
    return HasMatrixChain(*p.shape, plans) && is_wanted(p, plans);
  };
  std::vector<Sketch> added;
  AddPartitions(padded, target, StartsOf(padded, definition, {}), has_chain, added);
  Prepend(algorithm.steps, absl::MakeSpan(added));
  for (Sketch& sketch : added) sketch.name = absl::StrCat(algorithm.name, "/", sketch.name);
  AddAsOften(std::move(added), sketches);
}

void AddOutlined(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                 const ProgramShape& definition, std::vector<Sketch>& sketches) {
  if (!IsDivisible(definition)) return;
  std::vector<Step> steps;
  std::shared_ptr<const TensorProgram> outlined = program;
  for (const Stage& stage : program->stages) {
    auto more = WithOutlined(*outlined, stage.name());
    if (!more.ok()) continue;
    steps.push_back(Outline{stage.name()});
    outlined = *std::move(more);
  }
  if (steps.empty()) return;
  const auto kernels = std::make_shared<const ProgramShape>(FindKernels(outlined, {}));
  const auto stores_parts = [](const Partitioned& p, const std::vector<Plans>&) {
    return std::any_of(p.partition.stored.begin(), p.partition.stored.end(), IsOutlined);
  };
  std::vector<Sketch> added;
  AddPartitions(outlined, target, StartsOf(outlined, kernels, {}), stores_parts, added);
  for (const Algorithm& algorithm : AlgorithmsOf(outlined)) {
    if (algorithm.is_last) AddPaddedPartitions(outlined, target, algorithm, stores_parts, added);
  }
  Prepend(steps, absl::MakeSpan(added));
  for (Sketch& sketch : added) sketch.name = absl::StrCat("outline/", sketch.name);
  AddAsOften(std::move(added), sketches);
}

}  // namespace heddle::search_space
