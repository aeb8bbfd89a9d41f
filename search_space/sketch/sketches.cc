#include "search_space/sketch/sketches.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "search_space/ir/matrix.h"
#include "search_space/ir/parts.h"
#include "search_space/schedule/operands.h"
#include "search_space/schedule/rewrites/axes/outline.h"
#include "search_space/schedule/rewrites/reductions/recompute.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/algorithms.h"
#include "search_space/sketch/combinations.h"
#include "search_space/sketch/form.h"
#include "search_space/sketch/joined_rows.h"
#include "search_space/sketch/matrix/packing.h"
#include "search_space/sketch/matrix_sketches.h"
#include "search_space/sketch/one_pass.h"
#include "search_space/sketch/partition.h"
#include "search_space/sketch/patterns/sites.h"
#include "search_space/sketch/plans.h"
#include "search_space/sketch/row_axes.h"
#include "search_space/sketch/row_parts.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

// With stages computed together: as one kernel, or else in the kernels that remain. They take the
// place of what the rules make of the `definition`'s stages one by one, but for the simplest and,
// where only a fallback can do a kernel of them, the last of these, whose kernels know most; and of
// nothing that multiplies matrices where they do not.
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

// Draws of a sketch of one kernel beside several of more kernels, which differ by little: half as
// many as of all of these.
size_t DrawsBeside(const std::vector<Sketch>& sketches) {
  const auto others = std::count_if(sketches.begin() + 1, sketches.end(),
                                    [](const Sketch& s) { return !s.superseded; });
  return std::max<size_t>(1, static_cast<size_t>(others) / 2);
}

bool HasStridedRows(const std::vector<Sketch>& sketches) {
  return std::any_of(sketches.begin(), sketches.end(), [](const Sketch& s) {
    return s.plans.size() == 1 && absl::EndsWith(s.name, kStridedRowsRule.name);
  });
}

// Rows along several axes that are only walked together are rows along one. Where the definition
// has rows along one already, that is the kernel which knows all of them; but strided rows lie side
// by side along as many axes, so that wider accesses read them.
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

// All in one kernel whose reductions read one another's results.
void AddChain(const std::shared_ptr<const TensorProgram>& program, const Target& target,
              std::vector<Sketch>& sketches) {
  const auto shape = std::make_shared<const ProgramShape>(FuseChain(program, {}));
  if (shape->kernels.empty()) return;
  const size_t draws = DrawsBeside(sketches);
  for (const SketchRule* rule : {&kChainRule, &kRollingRule, &kWarpgroupRollingRule}) {
    const auto plan = PlanOf(*rule, *shape, shape->kernels[0], target);
    if (!plan.has_value()) continue;
    Sketch chain = MakeSketch({{*plan}}, shape, {0});
    // What units for matrices compute is many times faster than what is not.
    const bool is_best = plan->rule->multiplies_matrices && HasMoreThanTwo(shape->kernels[0]);
    chain.draws = is_best ? 4 * draws : draws;
    sketches.push_back(std::move(chain));
  }
}

// All of it by one thread for each site.
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

// A program with kernels of its own for reductions that a kernel had together.
struct Parted {
  Partition partition;
  bool together;
  std::shared_ptr<const ProgramShape> shape;
  std::vector<Plans> plans;
};

// All reductions but one of those kernels that only a fallback can do. None where there are none.
std::optional<Parted> PartKernels(const std::shared_ptr<const TensorProgram>& program,
                                  const Target& target, bool together) {
  const auto find = [&](const Partition& p) {
    return together ? FindKernelsTogether(program, p) : FindKernels(program, {}, p);
  };
  const ProgramShape shape = find({});
  Partition partition;
  const std::vector<Plans> plans = PlansOf(shape, true, target);
  for (size_t k = 0; k < plans.size(); ++k) {
    const bool plain = std::all_of(plans[k].begin(), plans[k].end(),
                                   [](const Plan& p) { return p.rule->is_fallback; });
    if (plain) partition.apart.merge(OtherReductions(shape, shape.kernels[k]));
  }
  if (partition.apart.empty()) return std::nullopt;
  Parted parted{partition, together, std::make_shared<const ProgramShape>(find(partition)), {}};
  parted.plans = PlansOf(*parted.shape, false, target);
  return parted;
}

// Where only a fallback can do a kernel of several reductions, such as a sum of products that have
// no operand in common, all but one are kernels of their own, whose results it reads. Reductions
// that can be computed together are kept apart, too, where no rule knows them together, or where
// more of them multiply matrices so. Returns what was divided so.
std::vector<Parted> AddApart(const std::shared_ptr<const TensorProgram>& program,
                             const Target& target, const ProgramShape& definition,
                             std::vector<Sketch>& sketches) {
  const bool has_several =
      std::any_of(definition.kernels.begin(), definition.kernels.end(),
                  [](const KernelShape& k) { return k.reductions.size() > 1; });
  if (!has_several) return {};
  const ProgramShape shape = FindKernelsTogether(program);
  const std::vector<Plans> together = PlansOf(shape, false, target);
  // Of long sums that read one tensor at several places, as products by slices of a matrix do,
  // nothing is known together.
  bool is_known = !together.empty();
  for (size_t k = 0; k < together.size(); ++k) {
    const bool only_fallback = std::all_of(together[k].begin(), together[k].end(),
                                           [](const Plan& p) { return p.rule->is_fallback; });
    constexpr int64_t kMostOfWindow = 128;  // terms that one thread adds up, whatever they read
    const std::vector<int>& sums = shape.kernels[k].reductions;
    const bool are_long = std::any_of(sums.begin(), sums.end(), [&](int s) {
      return ExtentOf(shape.stage(s).reduce_axes) > kMostOfWindow &&
             shape.schedule.HasCompanions(shape.stage(s));
    });
    is_known = is_known && !(only_fallback && are_long);
  }
  std::vector<Parted> all;
  if (!together.empty()) {
    if (auto parted = PartKernels(program, target, true)) all.push_back(*std::move(parted));
  }
  const size_t matrices = CountMatrices(all.empty() ? together : all[0].plans);
  auto parted = PartKernels(program, target, false);
  if (parted && (!is_known || CountMatrices(parted->plans) > matrices)) {
    all.push_back(*std::move(parted));
  }
  const size_t first = sketches.size();
  for (const Parted& p : all) AddCombinations(p.plans, p.shape, sketches);
  for (size_t s = first; s < sketches.size(); ++s) {
    sketches[s].name =
        absl::StrCat("apart/", sketches[s].name, CompanionsIn(sketches[s].shape->schedule));
  }
  return all;
}

// Copies in tiles take whole ones at least of what lies along the rows that they read.
constexpr int64_t kShortestRow = 16;

// Of plans for a program with packed tensors: products are for the units that multiply matrices
// here, and each copy is made in one way.
void KeepPacked(const ProgramShape& shape, bool only_last, std::vector<Plans>& plans) {
  for (size_t k = 0; k < plans.size(); ++k) {
    const ScheduledStage& root = shape.stage(shape.kernels[k].root);
    Plans& made = plans[k];
    if (shape.kernels[k].reductions.empty() && root.materialized) {
      const std::vector<Expr> loads = LoadsIn(root.body);
      const bool in_tiles = std::all_of(loads.begin(), loads.end(), [](const Expr& load) {
        return load->buffer->shape.back() >= kShortestRow;
      });
      const auto is_other = [&](const Plan& p) { return p.rule->is_fallback == in_tiles; };
      if (!std::all_of(made.begin(), made.end(), is_other)) std::erase_if(made, is_other);
    } else {
      KeepMatrices(only_last, made);
    }
  }
}

// With the tensors of products in layouts that are read faster (packing.h), behind the steps of
// `shape`, which an algorithm of that name has made. What packs all it can is drawn more often.
// What these steps store is stored as the copy alone.
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

// Do units for matrices compute several of the program's reductions in one kernel?
bool HasMatrixChain(const ProgramShape& shape, const std::vector<Plans>& plans) {
  for (size_t k = 0; k < plans.size(); ++k) {
    if (shape.kernels[k].fused && CountMatrices({plans[k]}) > 0) return true;
  }
  return false;
}

// Which partitions of a program, with these plans, are wanted.
using IsWanted = absl::FunctionRef<bool(const Partitioned&, const std::vector<Plans>&)>;

// Has a partition nothing but what others read stored?
bool StoresAlone(const Partitioned& p) {
  return !p.together && p.partition.apart.empty() && p.partition.merged.empty() &&
         p.partition.kept.empty();
}

// The program divided among kernels in other ways, from `starts` on, the definition first. The best
// by the estimate is drawn more often, and with its tensors packed, too, where the definition has
// no products of which these are.
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

// Those of before: the definition, what is computed together and what is `parted`.
std::vector<Partitioned> StartsOf(const std::shared_ptr<const TensorProgram>& program,
                                  const std::shared_ptr<const ProgramShape>& definition,
                                  const std::vector<Parted>& parted) {
  std::vector<Partitioned> starts = {{{}, false, definition}};
  const auto together = std::make_shared<const ProgramShape>(FindKernelsTogether(program));
  if (!together->kernels.empty() && !CompanionsIn(together->schedule).empty()) {
    starts.push_back({{}, true, together});
  }
  for (const Parted& p : parted) starts.push_back({p.partition, p.together, p.shape});
  return starts;
}

// Puts `first` in front of the steps of all.
void Prepend(const std::vector<Step>& first, absl::Span<Sketch> sketches) {
  absl::flat_hash_map<const ProgramShape*, std::shared_ptr<const ProgramShape>> shapes;
  for (Sketch& sketch : sketches) {
    std::shared_ptr<const ProgramShape>& whole = shapes[sketch.shape.get()];
    if (whole == nullptr) {
      ProgramShape longer = *sketch.shape;
      longer.steps.insert(longer.steps.begin(), first.begin(), first.end());
      whole = std::make_shared<const ProgramShape>(std::move(longer));
    }
    sketch.shape = whole;
  }
}

// Partitions of the program behind the steps that pad its sums (pad_terms.h) that have a chain on
// units for matrices: what else reads its result has kernels of its own.
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

constexpr auto kAnyPartition = [](const Partitioned&, const std::vector<Plans>&) { return true; };

// With what elementwise stages compute anew for many elements (outline.h) stored.
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

// With elements of a product that few read reduced again (recompute.h), where its rows are reduced
// in parts then: with these reads it would be stored.
void AddRecomputed(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                   std::vector<Sketch>& sketches) {
  std::vector<Step> steps;
  std::shared_ptr<const TensorProgram> recomputed = program;
  for (const std::string& stage : ReductionsWorthRecomputing(*program)) {
    auto more = WithRecomputedReads(*recomputed, stage);
    if (!more.ok()) continue;
    steps.push_back(Recompute{stage});
    recomputed = *std::move(more);
  }
  if (steps.empty()) return;
  const size_t first = sketches.size();
  AddRowParts(recomputed, target, sketches);
  const absl::Span<Sketch> added = absl::MakeSpan(sketches).subspan(first);
  Prepend(steps, added);
  for (Sketch& sketch : added) sketch.name = absl::StrCat("recompute/", sketch.name);
}

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
  const std::vector<Parted> parted = AddApart(program, target, *definition, sketches);
  const bool is_divided = IsDivisible(*definition)
                              ? !has_one_kernel
                              : std::any_of(parted.begin(), parted.end(),
                                            [](const Parted& p) { return IsDivisible(*p.shape); });
  AddPacked(program, target, *definition, "pack", sketches);
  const std::vector<Algorithm> algorithms = AlgorithmsOf(program);
  for (const Algorithm& algorithm : algorithms) {
    const bool is_definition = algorithm.steps.empty();
    if (!is_definition && !algorithm.is_last) AddAlgorithm(program, target, algorithm, sketches);
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
