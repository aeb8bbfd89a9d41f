#include "search_space/sketch/patterns/chain.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/analysis/operands.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/kernels/kernel_plan.h"

namespace heddle::search_space {
namespace {

constexpr size_t kMostLinks = 8;

// Axes of several stages that have the same values wherever one stage reads another: a union-find.
class AxisClasses {
 public:
  int Of(const Var& axis) {
    const auto [at, added] = number_.emplace(axis.get(), static_cast<int>(parent_.size()));
    if (added) parent_.push_back(at->second);
    return Root(at->second);
  }
  void Join(const Var& a, const Var& b) { parent_[static_cast<size_t>(Of(a))] = Of(b); }

 private:
  int Root(int c) {
    while (parent_[static_cast<size_t>(c)] != c) c = parent_[static_cast<size_t>(c)];
    return c;
  }
  std::map<const Variable*, int> number_;
  std::vector<int> parent_;
};

class ChainFinder {
 public:
  ChainFinder(const ProgramShape& shape, const KernelShape& kernel, const Target& target)
      : schedule_(shape.schedule),
        target_(target),
        root_(kernel.root),
        members_(StagesOf(shape, kernel)) {}

  bool Find(Chain& chain) {
    if (!FindRoot(chain) || !Inline(chain) || !Classify()) return false;
    for (int s : Results()) {
      if (!AddLink(s, chain)) return false;
    }
    if (!IsEachLinked(chain)) return false;
    if (chain.links.empty() || chain.links.size() > kMostLinks) return false;
    const auto root = TiledOf(root_, last_);
    if (!root.has_value() || !root->reuses || !ReadsLinks(chain)) return false;
    chain.root = *root;
    chain.root.has_other_work = true;
    chain.is_masked = IsMasked(last_);
    ChooseRow(chain);
    return true;
  }

 private:
  const ScheduledStage& stage(int i) const { return schedule_.stage(i); }
  bool IsComputed(int i) const { return members_.contains(i) && !stage(i).inlined; }

  // The reduction that only `reader` reads, at its own element; -1 without one or with several.
  int ReducedFor(int reader) const {
    int found = -1;
    for (int r : members_) {
      if (!stage(r).is_reduction() || stage(r).axes.size() != stage(reader).axes.size()) continue;
      if (schedule_.OnlyReaderOf(stage(r).tensor.get()) != reader) continue;
      if (!ReadsAtOwnElement(stage(reader), stage(r).tensor)) continue;
      if (found >= 0) return -1;
      found = r;
    }
    return found;
  }

  // One result, of a reduction. What stands between the two, such as a copy without an axis of one
  // element, is inlined.
  bool FindRoot(Chain& chain) {
    for (int i : members_) {
      if (i != root_ && (schedule_.HasCompanions(stage(i)) || stage(i).is_output)) return false;
    }
    if (stage(root_).is_reduction()) return false;
    last_ = ReducedFor(root_);
    for (auto i = members_.rbegin(); last_ < 0 && i != members_.rend(); ++i) {
      const BufferRef tensor = stage(*i).tensor;
      if (*i == root_ || ReducedFor(*i) < 0 || schedule_.OnlyReaderOf(tensor.get()) != root_ ||
          stage(*i).axes.size() != stage(root_).axes.size() ||
          !ReadsAtOwnElement(stage(root_), tensor)) {
        continue;
      }
      if (!Apply(Step(ComputeInline{tensor->name}), schedule_).ok()) return false;
      chain.inlined.push_back(tensor);
      last_ = ReducedFor(root_);
    }
    return last_ >= 0;
  }

  // Leaves reductions and the stages through which they are read.
  bool Inline(Chain& chain) {
    for (int i : members_) {
      if (i == root_ || !IsComputed(i) || stage(i).is_reduction() || ReducedFor(i) >= 0) continue;
      const BufferRef tensor = stage(i).tensor;
      if (!Apply(Step(ComputeInline{tensor->name}), schedule_).ok()) return false;
      chain.inlined.push_back(tensor);
    }
    return true;
  }

  std::vector<int> Results() const {
    std::vector<int> results;
    for (int i : members_) {
      if (i != root_ && IsComputed(i) && !stage(i).is_reduction()) results.push_back(i);
    }
    return results;
  }

  // Each stage reads others at variables of its own. Rows are the axes that all stages have and
  // none reduces over.
  bool Classify() {
    for (int i : members_) {
      for (const ScheduledStage* s : schedule_.Together(stage(i))) {
        if (IsComputed(i) && !JoinReads(*s)) return false;
      }
    }
    std::set<int> reduced;
    for (int i : members_) {
      if (!IsComputed(i)) continue;
      for (const Var& r : stage(i).reduce_axes) reduced.insert(classes_.Of(r));
    }
    for (const Var& axis : stage(root_).axes) {
      const int c = classes_.Of(axis);
      bool everywhere = !reduced.contains(c);
      for (int i : members_) {
        everywhere = everywhere && (!IsComputed(i) || HasOnce(stage(i), c, axis->extent));
      }
      if (everywhere) rows_.insert(c);
    }
    return !rows_.empty();
  }

  bool JoinReads(const ScheduledStage& s) {
    bool ok = true;
    for (const Expr& load : LoadsIn(s.body)) {
      const int p = schedule_.FindStage(load->buffer.get());
      for (size_t i = 0; IsComputed(p) && ok && i < load->args.size(); ++i) {
        if (stage(p).axes[i]->extent == 1) continue;
        ok = load->args[i]->op == Op::kVar;
        if (ok) classes_.Join(load->args[i]->var, stage(p).axes[i]);
      }
    }
    return ok;
  }

  bool HasOnce(const ScheduledStage& s, int c, int64_t extent) {
    int64_t axes = 0;
    for (const Var& axis : s.axes) {
      if (classes_.Of(axis) != c) continue;
      if (axis->extent != extent) return false;
      ++axes;
    }
    return axes == 1;
  }

  // What has one element only, of all stages that have it, is as good as a row.
  bool IsRow(const Var& axis) { return axis->extent == 1 || rows_.contains(classes_.Of(axis)); }

  std::optional<TiledKernel> TiledOf(int result, int reduction) const {
    const ProgramShape shape{{}, schedule_, {}};
    return FindTiledKernel(shape, {.root = result, .reductions = {reduction}}, target_);
  }

  bool IsMasked(int reduction) const {
    Schedule skipping = schedule_;
    return Apply(Step(SkipMasked{stage(reduction).name()}), skipping).ok();
  }

  bool AddLink(int result, Chain& chain) {
    const int reduction = ReducedFor(result);
    ChainLink link{.result = {stage(result).tensor}, .reduction = {stage(reduction).tensor}};
    const auto& axes = stage(result).axes;
    for (size_t a = 0; a < axes.size(); ++a) {
      if (!IsRow(axes[a])) link.columns.push_back(a);
    }
    if (link.columns.empty()) {
      AddRuns(stage(reduction), link);
    } else {
      link.tiled = TiledOf(result, reduction);
      if (!link.tiled.has_value()) return false;
    }
    link.is_masked = IsMasked(reduction);
    chain.links.push_back(std::move(link));
    return true;
  }

  void AddRuns(const ScheduledStage& reduction, ChainLink& link) const {
    const Var& last = reduction.reduce_axes.back();
    link.terms = ExtentOf(reduction.reduce_axes);
    std::vector<Expr> loads = LoadsIn(reduction.body);
    for (const Expr& load : loads) {
      const bool alone = std::none_of(loads.begin(), loads.end(), [&](const Expr& other) {
        return other != load && other->buffer == load->buffer;
      });
      const ExprList& at = load->args;
      const bool along = !at.empty() && at.back()->op == Op::kVar && at.back()->var == last &&
                         std::none_of(at.begin(), at.end() - 1, [&](const Expr& index) {
                           return MentionsAny(index, {last.get()});
                         });
      if (alone && along) link.runs.push_back(load->buffer);
    }
    if (link.runs.empty()) return;
    link.vector = ElementsOfAccess(link.runs[0]->dtype);
    for (const BufferRef& run : link.runs) {
      link.vector = std::min(link.vector, ElementsOfAccess(run->dtype));
    }
    while (last->extent % link.vector != 0) link.vector /= 2;
  }

  // Is each reduction a link's or the last? What is computed with the root may have others.
  bool IsEachLinked(const Chain& chain) const {
    return std::all_of(members_.begin(), members_.end(), [&](int i) {
      const auto is_of = [&](const ChainLink& l) { return l.reduction.tensor == stage(i).tensor; };
      return !stage(i).is_reduction() || i == last_ ||
             std::any_of(chain.links.begin(), chain.links.end(), is_of);
    });
  }

  // Does the last reduction read a result of another one? Else they are kernels of their own.
  bool ReadsLinks(const Chain& chain) const {
    const std::vector<Expr> loads = LoadsIn(stage(last_).body);
    return std::any_of(loads.begin(), loads.end(), [&](const Expr& load) {
      return std::any_of(chain.links.begin(), chain.links.end(),
                         [&](const ChainLink& link) { return link.result.tensor == load->buffer; });
    });
  }

  // A block makes several rows along the longest axis without which some operand does; of the
  // other axes of rows it has one.
  void ChooseRow(Chain& chain) {
    std::map<int, int64_t> reused;  // by class
    const auto add = [&](const TiledKernel& kernel, int result) {
      for (const Operand& operand : kernel.operands) {
        for (size_t a = 0; a < kernel.axes.size(); ++a) {
          const Var& axis = stage(result).axes[a];
          const auto& dims = operand.tiles[0].dims;
          const bool has = std::any_of(dims.begin(), dims.end(), [&](const auto& dim) {
            return std::any_of(dim.begin(), dim.end(),
                               [&](const IndexTerm& t) { return t.axis == a; });
          });
          if (!has && IsRow(axis)) reused[classes_.Of(axis)] = axis->extent;
        }
      }
    };
    add(chain.root, root_);
    for (const ChainLink& link : chain.links) {
      if (link.tiled.has_value()) add(*link.tiled, schedule_.FindStage(link.result.tensor.get()));
    }
    int chosen = -1;
    for (const Var& axis : stage(root_).axes) {
      const auto at = reused.find(classes_.Of(axis));
      if (at != reused.end() && (chosen < 0 || at->second >= reused[chosen])) chosen = at->first;
    }
    const auto mark = [&](int result, TiledKernel* kernel) {
      std::optional<size_t> row;
      const auto& axes = stage(result).axes;
      for (size_t a = 0; a < axes.size(); ++a) {
        const bool is_chosen = classes_.Of(axes[a]) == chosen;
        if (is_chosen) row = a;
        if (kernel != nullptr) kernel->axes[a].is_batch = IsRow(axes[a]) && !is_chosen;
      }
      return row;
    };
    chain.row = mark(root_, &chain.root);
    for (size_t a = 0; a < chain.root.axes.size(); ++a) {
      if (!IsRow(stage(root_).axes[a])) chain.columns.push_back(a);
    }
    for (ChainLink& link : chain.links) {
      link.row = mark(schedule_.FindStage(link.result.tensor.get()),
                      link.tiled.has_value() ? &*link.tiled : nullptr);
    }
  }

  Schedule schedule_;
  const Target& target_;
  const int root_;
  const std::set<int> members_;
  int last_ = -1;
  AxisClasses classes_;
  std::set<int> rows_;
};

}  // namespace

std::optional<Chain> FindChain(const ProgramShape& shape, const KernelShape& kernel,
                               const Target& target) {
  Chain chain;
  if (!ChainFinder(shape, kernel, target).Find(chain)) return std::nullopt;
  return chain;
}

}  // namespace heddle::search_space
