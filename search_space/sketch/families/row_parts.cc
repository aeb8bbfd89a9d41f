#include "search_space/sketch/families/row_parts.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/matrix.h"
#include "search_space/schedule/rewrites/reductions/recompute.h"
#include "search_space/schedule/rewrites/reductions/reduce_in_parts.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/kernels/kernels.h"
#include "search_space/sketch/programs/combinations.h"
#include "search_space/sketch/programs/plans.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

// What is computed, as 16-bit numbers, for the products whose rows `steps` reduce in parts.
std::set<std::string> ComputedFactors(const TensorProgram& program,
                                      const std::vector<Step>& steps) {
  std::set<std::string> computed;
  for (const Step& step : steps) {
    const Stage& product = *program.FindStage(std::get<ReduceInParts>(step).stage);
    for (const Expr& load : LoadsIn(product.body)) {
      const Stage* made_by = program.FindStage(load->buffer.get());
      const bool is_computed = made_by != nullptr && !made_by->is_reduction() &&
                               !made_by->is_output && IsHalf(load->buffer->dtype);
      if (is_computed) computed.insert(made_by->name());
    }
  }
  return computed;
}

// The program behind `steps`, which reduce rows of products in parts, in kernels that make these
// where a product's tile lies, with `stored` in kernels in front: with what combines the parts in
// the kernel that reads it, and with that in kernels of its own.
std::vector<std::shared_ptr<const ProgramShape>> FindRowParts(
    const std::shared_ptr<const TensorProgram>& program, const std::vector<Step>& steps,
    const std::set<std::string>& stored) {
  std::set<std::string> parts;
  for (const Step& step : steps) parts.insert(NameOfParts(std::get<ReduceInParts>(step).stage));
  Partition partition{.stored = stored};
  partition.stored.insert(parts.begin(), parts.end());
  const ProgramShape apart = FindKernels(program, steps, partition);
  std::set<std::string> inside, combined;
  const auto reads_parts = [&](const Stage& stage) {
    const std::vector<Expr> loads = LoadsIn(stage.body);
    return std::any_of(loads.begin(), loads.end(),
                       [&](const Expr& load) { return parts.contains(load->buffer->name); });
  };
  for (const Stage& stage : apart.schedule.program().stages) {
    if (reads_parts(stage)) combined.insert(stage.name());
    if (!parts.contains(stage.name())) continue;
    for (const Expr& part : LoadsIn(stage.body)) inside.insert(part->buffer->name);
  }
  for (const Step& step : steps) inside.insert(std::get<ReduceInParts>(step).stage);
  Partition merged = partition;
  for (const KernelShape& kernel : apart.kernels) {
    const std::string& root = apart.stage(kernel.root).name();
    if (inside.contains(root)) partition.merged.insert(root);
    if (inside.contains(root) || combined.contains(root)) merged.merged.insert(root);
  }
  return {std::make_shared<const ProgramShape>(FindKernels(program, steps, merged)),
          std::make_shared<const ProgramShape>(FindKernels(program, steps, partition))};
}

// Of plans that differ little those of whole rows, or else the first that is no fallback.
void KeepWholeRows(std::vector<Plans>& plans) {
  for (Plans& made : plans) {
    const auto first_of = [&](auto is_wanted) {
      return std::find_if(made.begin(), made.end(), is_wanted);
    };
    auto kept = first_of([](const Plan& p) { return p.rule == &kRowsRule; });
    if (kept == made.end()) kept = first_of([](const Plan& p) { return !p.rule->is_fallback; });
    if (kept == made.end()) continue;
    Plan only = std::move(*kept);
    made.clear();
    made.push_back(std::move(only));
  }
}

// The first of `shapes`, of rows in parts of so many columns, of which all kernels can be made.
void AddFirst(const std::vector<std::shared_ptr<const ProgramShape>>& shapes, int64_t columns,
              bool only_matrices, const Target& target, std::vector<Sketch>& added) {
  for (const auto& shape : shapes) {
    std::vector<Plans> plans = PlansOfPartition(*shape, target);
    if (!IsEachMade(plans) || (only_matrices && CountMatrices(plans) == 0)) continue;
    if (!only_matrices) KeepWholeRows(plans);
    const size_t first = added.size();
    AddCombinations(plans, shape, added);
    for (size_t s = first; s < added.size(); ++s) {
      added[s].name = absl::StrCat("row_parts/", added[s].name, "[", columns, "]");
    }
    return;
  }
}

}  // namespace

void AddRowParts(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                 std::vector<Sketch>& sketches) {
  if (!ShapeOf(WarpInstruction(DType::kBFloat16)).IsOn(target)) return;
  const std::vector<ReducedRows> rows = RowsWorthReducingInParts(*program);
  std::vector<Sketch> added;
  for (const int64_t columns : {64, 128, 256}) {
    std::vector<Step> steps;
    std::shared_ptr<const TensorProgram> parted = program;
    for (const ReducedRows& r : rows) {
      // Not of columns that are mostly past the end.
      if (3 * RoundUp(r.columns, columns) > 4 * r.columns) continue;
      const auto more = WithReductionsInParts(*parted, r.stage, columns);
      if (!more.ok()) continue;
      steps.push_back(ReduceInParts{r.stage, columns});
      parted = *more;
    }
    if (steps.empty()) continue;
    AddFirst(FindRowParts(program, steps, {}), columns, /*only_matrices=*/true, target, added);
    // A factor that is computed where it is read is computed for each tile that reads it.
    const std::set<std::string> computed = ComputedFactors(*program, steps);
    if (computed.empty()) continue;
    AddFirst(FindRowParts(program, steps, computed), columns, /*only_matrices=*/true, target,
             added);
  }
  AddAsOften(std::move(added), sketches);
}

void AddLongRows(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                 std::vector<Sketch>& sketches) {
  // A kernel of whole rows has enough of them for all multiprocessors.
  const auto rows = LongRowsWorthReducingInParts(*program, kFewLongRows * target.sm_count);
  if (!rows) return;
  // What is made of all elements of the rows is for more blocks than combine the parts.
  const bool has_rows = std::any_of(
      program->stages.begin(), program->stages.end(),
      [&](const Stage& s) { return s.is_output && s.tensor->elements >= rows->columns; });
  std::vector<Sketch> added;
  for (const int64_t columns : {1024, 4096, 16384}) {
    if (2 * columns > rows->columns) break;
    auto shapes = FindRowParts(program, {ReduceInParts{rows->stage, columns}}, {});
    if (has_rows) shapes.erase(shapes.begin());
    AddFirst(shapes, columns, /*only_matrices=*/false, target, added);
  }
  AddAsOften(std::move(added), sketches);
}

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

}  // namespace heddle::search_space
