#include "search_space/sketch/families/matrix_sketches.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/matrix.h"
#include "search_space/ir/parts.h"
#include "search_space/schedule/rewrites/axes/split_axis.h"
#include "search_space/schedule/rewrites/reductions/own_stages.h"
#include "search_space/schedule/rewrites/reductions/reduce_in_parts.h"
#include "search_space/schedule/rewrites/reductions/stack_products.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/matrix/in_parts.h"
#include "search_space/sketch/matrix/whole_rows.h"
#include "search_space/sketch/programs/combinations.h"
#include "search_space/sketch/programs/kernel_estimate.h"

namespace heddle::search_space {
namespace {

// Products of parts are for the units that multiply matrices of these.
void AddInParts(const InParts& parts, bool only_last, const Target& target,
                std::vector<Sketch>& sketches) {
  std::vector<Plans> plans = PlansOf(*parts.shape, false, target);
  for (size_t k = 0; k < plans.size(); ++k) {
    KeepMatrices(only_last, plans[k]);
    const bool is_product = MultipliesParts(*parts.shape, parts.shape->kernels[k]);
    if (plans[k].empty() || (is_product && !plans[k][0].rule->multiplies_matrices)) return;
  }
  // Parts that are made where they are read may be in no product that the units take.
  if (CountMatrices(plans) == 0) return;
  const size_t first = sketches.size();
  AddCombinations(plans, parts.shape, sketches);
  for (size_t s = first; s < sketches.size(); ++s) sketches[s].name += NameOf(parts.partition);
}

// Adds what is made of kernels that merge what reads a product, where that can be, called by what
// it is.
void AddMerged(const std::shared_ptr<const ProgramShape>& shape, const char* called,
               const Target& target, std::vector<Sketch>& sketches) {
  std::vector<Plans> plans = PlansOfPartition(*shape, target);
  if (!IsEachMade(plans) || CountMatrices(plans) == 0) return;
  std::vector<Sketch> added;
  AddCombinations(plans, shape, added);
  for (Sketch& sketch : added) sketch.name = absl::StrCat(called, sketch.name);
  AddAsOften(std::move(added), sketches);
}

void AddMerged(const std::shared_ptr<const TensorProgram>& program, const std::vector<Step>& steps,
               const Partition& partition, const char* called, const Target& target,
               std::vector<Sketch>& sketches) {
  AddMerged(std::make_shared<const ProgramShape>(FindKernels(program, steps, partition)), called,
            target, sketches);
}

// What several outputs read is merged where one kernel computes them all, which need not be the
// best: each of them is stored as the registers of a product lie.
void AddMergedOutputs(const std::shared_ptr<const TensorProgram>& program,
                      const std::vector<Step>& steps, const char* called, const Target& target,
                      std::vector<Sketch>& sketches) {
  std::vector<Sketch> added;
  AddMerged(std::make_shared<const ProgramShape>(FuseKernelsTogether(program, steps)), called,
            target, added);
  sketches.insert(sketches.end(), std::make_move_iterator(added.begin()),
                  std::make_move_iterator(added.end()));
}

// Those that store what is made of one of these reductions alone, by their roots.
std::set<std::string> KernelsWith(const std::set<std::string>& reductions,
                                  const ProgramShape& shape) {
  std::set<std::string> roots;
  for (const KernelShape& kernel : shape.kernels) {
    const ScheduledStage& root = shape.stage(kernel.root);
    const bool is_one = std::any_of(kernel.reductions.begin(), kernel.reductions.end(), [&](int r) {
      return reductions.contains(shape.stage(r).name());
    });
    if (!root.is_output && (is_one || reductions.contains(root.name()))) roots.insert(root.name());
  }
  return roots;
}

// The partition of a program of one output that takes least, that into one kernel among them.
Partition BestPartitionOf(const std::shared_ptr<const TensorProgram>& program,
                          const Target& target) {
  const auto definition = std::make_shared<const ProgramShape>(FindKernels(program, {}));
  if (!IsDivisible(*definition)) return {};
  Partition whole;
  for (const KernelShape& kernel : definition->kernels) {
    const ScheduledStage& root = definition->stage(kernel.root);
    if (!root.is_output) whole.merged.insert(root.name());
  }
  const double defined_us = EstimateUs(*definition, target);
  const ProgramShape one = FindKernels(program, {}, whole);
  const double whole_us = one.kernels.empty() ? defined_us : EstimateUs(one, target);
  const std::vector<Partitioned> others =
      PartitionsOf(program, {{{}, false, definition, defined_us}}, target);
  if (!others.empty() && others[0].us < std::min(whole_us, defined_us)) return others[0].partition;
  return whole_us < defined_us ? whole : Partition();
}

}  // namespace

bool HasMoreThanTwo(const KernelShape& chain) { return chain.reductions.size() > 2; }

void AddForMatrices(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                    const Algorithm& algorithm, std::vector<Sketch>& sketches) {
  if (!ShapeOf(WarpInstruction(kPartType)).IsOn(target)) return;
  std::vector<Sketch> added;
  const auto fused = std::make_shared<const ProgramShape>(FuseChain(program, algorithm.steps));
  for (const SketchRule* rule : {&kRollingRule, &kWarpgroupRollingRule}) {
    if (fused->kernels.empty()) continue;
    const auto plan = PlanOf(*rule, *fused, fused->kernels[0], target);
    if (plan.has_value()) added.push_back(MakeSketch({{*plan}}, fused, {0}));
  }
  const bool only_splits =
      std::all_of(algorithm.steps.begin(), algorithm.steps.end(),
                  [](const Step& step) { return std::holds_alternative<SplitOperand>(step); });
  const bool is_best = !added.empty() && HasMoreThanTwo(fused->kernels[0]);
  if (!is_best && only_splits) {
    const std::vector<Step> steps = WorthSplitting(program, algorithm.steps, target);
    for (const bool stored : {false, true}) {
      if (!steps.empty()) AddInParts(FindInParts(program, steps, stored), !stored, target, added);
    }
  }
  for (Sketch& sketch : added) sketch.name = absl::StrCat(algorithm.name, "/", sketch.name);
  AddAsOften(std::move(added), sketches);
}

void AddPlaces(const std::shared_ptr<const TensorProgram>& program, const Target& target,
               std::vector<Sketch>& sketches) {
  if (!ShapeOf(WarpInstruction(DType::kBFloat16)).IsOn(target)) return;
  std::vector<Step> steps;
  std::set<std::string> products;
  std::shared_ptr<const TensorProgram> split = program;
  for (const auto& [stage, axis, width] : AxesReadInParts(*program)) {
    const auto more = WithSplitAxis(*split, stage, axis, width);
    if (!more.ok()) continue;
    steps.push_back(SplitAxis{stage, axis, width});
    products.insert(stage);
    split = *more;
  }
  for (std::string& stage : ReductionsReadByNumber(*program)) products.insert(std::move(stage));
  if (products.empty()) return;
  const Partition partition{.merged = KernelsWith(products, FindKernels(program, steps))};
  AddMerged(program, steps, partition, "places/", target, sketches);
  AddMergedOutputs(program, steps, "places/", target, sketches);
}

void AddStacked(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                std::vector<Sketch>& sketches) {
  if (!ShapeOf(WarpInstruction(DType::kBFloat16)).IsOn(target)) return;
  std::vector<Step> steps;
  Partition partition;
  std::shared_ptr<const TensorProgram> stacked = program;
  for (const Stage& stage : program->stages) {
    auto more = WithStackedProducts(*stacked, stage.name());
    if (!more.ok()) continue;
    steps.push_back(StackProducts{stage.name()});
    partition.merged.insert(stage.name());
    stacked = *std::move(more);
  }
  if (steps.empty()) return;
  AddMerged(program, steps, partition, "stacked/", target, sketches);
  AddMergedOutputs(program, steps, "stacked/", target, sketches);
}

void AddReduced(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                std::vector<Sketch>& sketches) {
  if (!ShapeOf(WarpInstruction(DType::kBFloat16)).IsOn(target)) return;
  const Schedule schedule(program);
  Partition partition;
  for (const Stage& product : program->stages) {
    if (product.combiner != Combiner::kSum || product.is_output || product.axes.size() < 3)
      continue;
    // What is computed of its elements is what its kernel would store.
    std::string stored = product.name();
    std::optional<int> reader = schedule.OnlyReaderOf(product.tensor.get());
    while (reader && !schedule.stage(*reader).is_reduction() &&
           !schedule.stage(*reader).is_output) {
      stored = schedule.stage(*reader).name();
      reader = schedule.OnlyReaderOf(schedule.stage(*reader).tensor.get());
    }
    if (!reader) continue;
    const ScheduledStage& reduction = schedule.stage(*reader);
    if (reduction.is_reduction() && reduction.reduce_axes.size() == 1 &&
        reduction.axes.size() + 1 == product.axes.size()) {
      partition.merged.insert(stored);
    }
  }
  if (partition.merged.empty()) return;
  AddMerged(program, {}, partition, "reduced/", target, sketches);
}

void AddWholeRows(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                  std::vector<Sketch>& sketches) {
  if (!ShapeOf(WarpInstruction(DType::kBFloat16)).IsOn(target)) return;
  std::set<std::string> inside;
  Partition partition;
  for (WholeRows& rows : WholeRowsOf(*program)) {
    inside.merge(rows.inside);
    partition.stored.insert(rows.stored);
  }
  if (inside.empty()) return;
  const ProgramShape apart = FindKernels(program, {}, partition);
  for (const KernelShape& kernel : apart.kernels) {
    const std::string& root = apart.stage(kernel.root).name();
    if (inside.contains(root)) partition.merged.insert(root);
  }
  if (!partition.merged.empty()) AddMerged(program, {}, partition, "", target, sketches);
}

void AddOwnStages(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                  std::vector<Sketch>& sketches) {
  if (!ShapeOf(WarpInstruction(DType::kBFloat16)).IsOn(target)) return;
  std::vector<Step> steps;
  Schedule schedule(program);
  for (OwnStages& step : OutputsWorthOwnStages(*program)) {
    steps.emplace_back(std::move(step));
    if (!Apply(steps.back(), schedule).ok()) return;
  }
  if (steps.empty()) return;
  const TensorProgram& owning = schedule.program();
  Partition all;
  for (const Stage& output : owning.stages) {
    if (!output.is_output) continue;
    Partition best = BestPartitionOf(
        std::make_shared<const TensorProgram>(ProgramOfOutput(owning, output.name())), target);
    all.apart.merge(best.apart);
    all.stored.merge(best.stored);
    all.merged.merge(best.merged);
  }
  // Where one of them is stored all the same, sharing it is better.
  const auto shape = std::make_shared<const ProgramShape>(FindKernels(program, steps, all));
  int64_t largest = 0;
  for (const Stage& s : owning.stages) {
    if (s.is_output) largest = std::max(largest, s.tensor->elements);
  }
  const bool stores_shared =
      std::any_of(shape->kernels.begin(), shape->kernels.end(), [&](const KernelShape& kernel) {
        return shape->stage(kernel.root).tensor->elements > largest;
      });
  if (!stores_shared) AddMerged(shape, "own_stages/", target, sketches);
}

}  // namespace heddle::search_space
