#include "search_space/schedule/rewrites/reductions/expand.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostTerms = 8;
// Operations and operands of all terms together, which are computed again by each reader.
constexpr int64_t kMostNodes = 1024;

int64_t TermsOf(const Stage& stage) {
  int64_t terms = 1;
  for (const Var& r : stage.reduce_axes) terms *= std::min(r->extent, kMostTerms + 1);
  return terms;
}

bool IsShort(const Stage& stage) {
  return stage.is_reduction() && TermsOf(stage) <= kMostTerms &&
         TermsOf(stage) * NodesOf(stage.body) <= kMostNodes;
}

// The body at term number `term`, the last axis of the reduction running fastest.
Expr TermOf(const Stage& stage, int64_t term) {
  std::vector<int64_t> at(stage.reduce_axes.size());
  for (size_t r = at.size(); r-- > 0;) {
    at[r] = term % stage.reduce_axes[r]->extent;
    term /= stage.reduce_axes[r]->extent;
  }
  return Simplify(Substitute(stage.body, [&](const Var& var) -> Expr {
    const auto axis = std::find(stage.reduce_axes.begin(), stage.reduce_axes.end(), var);
    return axis == stage.reduce_axes.end()
               ? nullptr
               : Int(at[static_cast<size_t>(axis - stage.reduce_axes.begin())]);
  }));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithExpandedTerms(const TensorProgram& program,
                                                                       const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  auto expanded = std::make_shared<TensorProgram>(program);
  Stage* const stage = &expanded->stages[number];
  if (!IsShort(*stage)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is no reduction of at most ", kMostTerms,
                                                   " terms and ", kMostNodes, " operations"));
  }
  Expr body = TermOf(*stage, 0);
  for (int64_t term = 1; term < TermsOf(*stage); ++term) {
    body = Combine(stage->combiner, body, TermOf(*stage, term));
  }
  stage->body = std::move(body);
  stage->combiner = Combiner::kNone;
  stage->reduce_axes.clear();
  return expanded;
}

std::vector<std::string> TermsWorthExpanding(const TensorProgram& program) {
  absl::flat_hash_set<const Buffer*> reduced;  // of which reductions read elements
  // Whose elements are looked for, as that at the least distance: computed anew where they are
  // read, they need not be the same in each place, to the last bit.
  absl::flat_hash_set<const Buffer*> compared;
  std::vector<std::string> worth;
  for (auto stage = program.stages.rbegin(); stage != program.stages.rend(); ++stage) {
    const bool is_reduced = reduced.contains(stage->tensor.get());
    const bool is_compared = compared.contains(stage->tensor.get());
    if (is_reduced && !is_compared && IsShort(*stage)) worth.push_back(stage->name());
    Visit(stage->body, [&](const Expr& e) {
      const bool compares = e->op == Op::kEq || e->op == Op::kNe;
      if (!compares && (!is_compared || stage->is_reduction())) return;
      if (e->op == Op::kLoad) compared.insert(e->buffer.get());
      for (const Expr& arg : e->args) {
        if (arg->op == Op::kLoad) compared.insert(arg->buffer.get());
      }
    });
    if (!is_reduced && !stage->is_reduction()) continue;
    Visit(stage->body, [&](const Expr& e) {
      if (e->op == Op::kLoad) reduced.insert(e->buffer.get());
    });
  }
  std::reverse(worth.begin(), worth.end());
  return worth;
}

absl::Status ExpandTerms::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithExpandedTerms);
}

}  // namespace heddle::search_space
