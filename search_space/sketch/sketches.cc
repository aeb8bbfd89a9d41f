#include "search_space/sketch/sketches.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/families/apart.h"
#include "search_space/sketch/families/joined_rows.h"
#include "search_space/sketch/families/matrix_sketches.h"
#include "search_space/sketch/families/one_kernel.h"
#include "search_space/sketch/families/one_pass.h"
#include "search_space/sketch/families/packed.h"
#include "search_space/sketch/families/partitions.h"
#include "search_space/sketch/families/row_parts.h"
#include "search_space/sketch/families/together.h"
#include "search_space/sketch/programs/algorithms.h"
#include "search_space/sketch/programs/combinations.h"
#include "search_space/sketch/programs/form.h"
#include "search_space/sketch/programs/partition.h"
#include "search_space/sketch/programs/plans.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

// Has the one kernel fewer rows than the device has multiprocessors, each of many terms?
bool HasFewLongRows(const ProgramShape& shape, const Target& target) {
  constexpr int64_t kLong = 32 << 10;
  const std::vector<int>& reductions = shape.kernels[0].reductions;
  return std::any_of(reductions.begin(), reductions.end(), [&](int r) {
    const ScheduledStage& s = shape.stage(r);
    return s.tensor->elements < target.sm_count && ExtentOf(s.reduce_axes) >= kLong;
  });
}

// `plans` of the definition's kernels, `shape`.
std::vector<Sketch> SketchesOfDefinition(const std::shared_ptr<const TensorProgram>& program,
                                         const Target& target,
                                         const std::shared_ptr<const ProgramShape>& shape,
                                         const std::vector<Plans>& plans) {
  std::vector<Sketch> sketches;
  if (plans.size() > 1) {
    const auto fused = std::make_shared<const ProgramShape>(FuseKernels(program, {}));
    const std::vector<Plans> whole = PlansOf(*fused, true, target);
    // Where one kernel can do it all, combinations of several are not worth their trials, unless it
    // has too few rows for the device: each kernel of its own shares a row out over blocks.
    if (!whole.empty() && !whole[0].empty()) {
      sketches.push_back(MakeSketch(plans, shape, std::vector<size_t>(plans.size(), 0)));
      if (HasFewLongRows(*fused, target)) {
        std::vector<Plans> shared_out = PlansOfPartition(*shape, target);
        if (IsEachMade(shared_out)) AddCombinations(shared_out, shape, sketches);
      }
      AddCombinations(whole, fused, sketches);
      return sketches;
    }
  }
  AddCombinations(plans, shape, sketches);
  return sketches;
}

// What an algorithm makes of the program, with its name in front.
void AddAlgorithm(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                  const Algorithm& algorithm, std::vector<Sketch>& sketches) {
  // What a kernel that reads its input once does already has nothing to gain.
  if (algorithm.together && HasOneKernel(sketches)) return;
  const auto shape = std::make_shared<const ProgramShape>(
      algorithm.together ? FindKernelsTogether(program, {}, algorithm.steps)
                         : FindKernels(program, algorithm.steps));
  if (HasStridedRows(sketches) && shape->kernels.size() > 1) return;
  std::vector<Plans> made = PlansOf(*shape, false, target);
  if (algorithm.only_matrices) {
    if (CountMatrices(made) == 0) return;
    for (Plans& of_kernel : made) KeepMatrices(true, of_kernel);
  }
  const size_t first = sketches.size();
  AddCombinations(made, shape, sketches);
  for (size_t s = first; s < sketches.size(); ++s) {
    sketches[s].name = absl::StrCat(algorithm.name, "/", sketches[s].name);
  }
  if (!algorithm.together) AddPacked(program, target, *shape, algorithm.name + "+pack", sketches);
}

// One kernel that holds the rows of which prefixes are reduced, beside those of chunks.
void DrawHeldPrefixesMore(const std::vector<Algorithm>& algorithms, std::vector<Sketch>& sketches) {
  const bool has_scans = std::any_of(algorithms.begin(), algorithms.end(), [](const Algorithm& a) {
    return std::any_of(a.steps.begin(), a.steps.end(),
                       [](const Step& step) { return std::holds_alternative<ScanChunks>(step); });
  });
  for (Sketch& sketch : sketches) {
    const bool holds =
        sketch.name == kPrefixRule.name || (has_scans && sketch.name == kRowsRule.name);
    if (holds) sketch.draws = DrawsBeside(sketches);
  }
}

// Those of a program whose definition has the form that rules look for (form.h).
std::vector<Sketch> SketchesInForm(const std::shared_ptr<const TensorProgram>& program,
                                   const Target& target) {
  const auto definition = std::make_shared<const ProgramShape>(FindKernels(program, {}));
  const std::vector<Plans> plans = PlansOf(*definition, true, target);
  std::vector<Sketch> sketches = SketchesOfDefinition(program, target, definition, plans);
  AddTogether(program, target, plans, sketches);
  AddCollapsedRows(program, target, sketches);
  // Where one kernel reads all inputs once there is nothing to divide, unless it computes again.
  const bool has_one_kernel =
      definition->kernels.size() > 1 && HasOneKernel(sketches) && !ComputesAgain(*definition);
  AddChain(program, target, sketches);
  AddSites(program, target, sketches);
  const std::vector<Partitioned> parted = AddApart(program, target, *definition, sketches);
  const bool is_divided = IsDivisible(*definition)
                              ? !has_one_kernel
                              : std::any_of(parted.begin(), parted.end(), [](const Partitioned& p) {
                                  return IsDivisible(*p.shape);
                                });
  AddPacked(program, target, *definition, "pack", sketches);
  const std::vector<Algorithm> algorithms = AlgorithmsOf(program);
  for (const Algorithm& algorithm : algorithms) {
    const bool is_definition = algorithm.steps.empty();
    if (!is_definition && !algorithm.is_last) AddAlgorithm(program, target, algorithm, sketches);
    if (algorithm.name == "flatten") AddSharedWindows(program, target, algorithm, sketches);
  }
  if (is_divided) {
    AddPartitions(program, target, StartsOf(program, definition, parted), kAnyPartition, sketches);
  }
  DrawHeldPrefixesMore(algorithms, sketches);
  for (const Algorithm& algorithm : algorithms) {
    if (!algorithm.is_last) continue;
    AddForMatrices(program, target, algorithm, sketches);
    AddPaddedPartitions(program, target, algorithm, kAnyPartition, sketches);
  }
  AddRowParts(program, target, sketches);
  AddRecomputed(program, target, sketches);
  AddOutlined(program, target, *definition, sketches);
  AddPlaces(program, target, sketches);
  AddStacked(program, target, sketches);
  AddWholeRows(program, target, sketches);
  AddReduced(program, target, sketches);
  AddOwnStages(program, target, sketches);
  AddRowsFirst(program, target, sketches);
  AddBeside(program, target, sketches);
  AddLongRows(program, target, sketches);
  AddJoinedRows(target, sketches);
  return sketches;
}

// Points are printed, and found again, by the name of their sketch. Several ways may lead to
// kernels of the same rules and stages: those behind the first are numbered.
void TellNamesakesApart(std::vector<Sketch>& sketches) {
  std::map<std::string, int> ways;
  for (Sketch& sketch : sketches) {
    if (const int way = ++ways[sketch.name]; way > 1) {
      absl::StrAppend(&sketch.name, "[way=", way, "]");
    }
  }
}

}  // namespace

std::vector<Sketch> SketchesOf(const std::shared_ptr<const TensorProgram>& program,
                               const Target& target) {
  const auto& [steps, in_form] = FormOf(program);
  std::vector<Sketch> sketches = SketchesInForm(in_form, target);
  if (sketches.size() > kMostSketches) {
    sketches.erase(sketches.begin() + kMostSketches, sketches.end());
  }
  if (!steps.empty()) Prepend(steps, absl::MakeSpan(sketches));
  TellNamesakesApart(sketches);
  return sketches;
}

}  // namespace heddle::search_space
