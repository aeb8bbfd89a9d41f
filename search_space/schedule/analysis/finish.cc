#include "search_space/schedule/analysis/finish.h"

#include <algorithm>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/analysis/prefix_reductions.h"
#include "search_space/schedule/scheduled_stage.h"

namespace heddle::search_space {
namespace {

// The stages from which each stage of a program is computed, directly or through others.
class Ancestry {
 public:
  explicit Ancestry(const TensorProgram& program) {
    for (const Stage& stage : program.stages) {  // they read earlier ones only
      of_stage_.emplace(stage.tensor.get(), Of(stage.body));
    }
  }

  std::set<const Buffer*> Of(const Expr& e) const {
    std::set<const Buffer*> found;
    Visit(e, [&](const Expr& node) {
      if (node->op != Op::kLoad) return;
      const auto read = of_stage_.find(node->buffer.get());
      if (read == of_stage_.end() || !found.insert(read->first).second) return;
      found.insert(read->second.begin(), read->second.end());
    });
    return found;
  }

 private:
  absl::flat_hash_map<const Buffer*, std::set<const Buffer*>> of_stage_;
};

class FinishFinder {
 public:
  FinishFinder(const Ancestry& ancestry, const Stage& sum) : ancestry_(ancestry), sum_(sum) {
    for (const Var& axis : sum.reduce_axes) reduce_axes_.push_back(axis.get());
  }

  FinishedReduction Find() {
    if (const auto scan = BoundedScanOf(MakeScheduledStage(sum_))) {
      return {scan->terms,
              {{sum_.combiner == Combiner::kMax ? Op::kMax : Op::kMin, scan->value, scan->where}}};
    }
    if (sum_.combiner != Combiner::kSum || !IsFloat(sum_.body->type)) return {sum_.body, {}};
    AddStagesOfTerms(sum_.body);
    Collect(sum_.body);
    if (terms_ == nullptr || by_.empty()) return {sum_.body, {}};
    return {terms_, by_};
  }

 private:
  bool IsTheSame(const Expr& e) const { return !MentionsAny(e, reduce_axes_); }

  // Is it the same in all terms, and computed from no stage from which they are computed? The
  // reciprocal of a sum of E that multiplies terms E[i, r] * V[r, x] stays among them, so that a
  // chain finds it there.
  bool IsOfAllTerms(const Expr& e) const {
    if (!IsTheSame(e)) return false;
    const std::set<const Buffer*> own = ancestry_.Of(e);
    return std::none_of(own.begin(), own.end(),
                        [&](const Buffer* s) { return stages_of_terms_.count(s) != 0; });
  }

  // Of what is not the same in all terms.
  void AddStagesOfTerms(const Expr& e) {
    if (IsTheSame(e)) return;
    if (e->op == Op::kMul || e->op == Op::kDiv) {
      for (const Expr& arg : e->args) AddStagesOfTerms(arg);
    } else {
      const std::set<const Buffer*> found = ancestry_.Of(e);
      stages_of_terms_.insert(found.begin(), found.end());
    }
  }

  void Collect(const Expr& e) {
    if (IsOfAllTerms(e)) {
      by_.push_back({Op::kMul, e, nullptr});
    } else if (e->op == Op::kMul) {
      Collect(e->args[0]);
      Collect(e->args[1]);
    } else if (e->op == Op::kDiv && IsOfAllTerms(e->args[1])) {
      Collect(e->args[0]);
      by_.push_back({Op::kDiv, e->args[1], nullptr});
    } else {
      terms_ = terms_ == nullptr ? e : terms_ * e;
    }
  }

  const Ancestry& ancestry_;
  const Stage& sum_;
  Variables reduce_axes_;
  std::set<const Buffer*> stages_of_terms_;
  Expr terms_;
  std::vector<Finish> by_;
};

}  // namespace

std::vector<FinishedReduction> FinishedReductions(const TensorProgram& program) {
  const Ancestry ancestry(program);
  std::vector<FinishedReduction> finished;
  for (const Stage& stage : program.stages) {
    finished.push_back(FinishFinder(ancestry, stage).Find());
  }
  return finished;
}

}  // namespace heddle::search_space
