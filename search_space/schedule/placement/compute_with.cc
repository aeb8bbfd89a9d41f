#include "search_space/schedule/placement/compute_with.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

bool Reads(const Schedule& schedule, int reader, int read) {
  const std::vector<int> readers = schedule.ReadersOf(schedule.stage(read).tensor.get());
  return std::find(readers.begin(), readers.end(), reader) != readers.end();
}

// The axes of `leader` that take the place of those of `stage`.
absl::StatusOr<std::vector<Var>> SharedAxes(const ComputeWith& step, const ScheduledStage& stage,
                                            const ScheduledStage& leader) {
  std::vector<Var> axes;
  bool same = step.axes.size() == stage.axes.size() &&
              stage.reduce_axes.size() == leader.reduce_axes.size() &&
              (!stage.is_reduction() || stage.axes.size() == leader.axes.size());
  for (size_t i = 0; same && i < step.axes.size(); ++i) {
    const int at = leader.FindAxis(step.axes[i]);
    if (at < 0) {
      return Refuse(absl::StrCat(step.leader, " has no axis ", step.axes[i]));
    }
    axes.push_back(leader.axes[static_cast<size_t>(at)]);
    same = axes.back()->extent == stage.axes[i]->extent &&
           std::count(axes.begin(), axes.end(), axes.back()) == 1;
  }
  for (size_t i = 0; same && i < stage.reduce_axes.size(); ++i) {
    same = stage.reduce_axes[i]->extent == leader.reduce_axes[i]->extent;
  }
  if (same) return axes;
  return Refuse(absl::StrCat(
      step.stage, " is not computed over these axes of ", step.leader,
      stage.is_reduction() ? ": reductions need the same ones, and to reduce the same in the same "
                             "order"
                           : ": there must be one of the same extent for each of its own"));
}

// Is there a reduction that both read, and not at the same element? It would be computed for both,
// over a region that is no thread's own.
bool ReadApart(const Schedule& schedule, const Expr& a, const Expr& b) {
  bool apart = false;
  Visit(a, [&](const Expr& load) {
    if (load->op != Op::kLoad) return;
    const int read = schedule.FindStage(load->buffer.get());
    if (read < 0 || !schedule.stage(read).is_reduction()) return;
    Visit(b, [&](const Expr& other) {
      apart = apart || (other->op == Op::kLoad && other->buffer == load->buffer &&
                        !StructurallyEqual(other, load));
    });
  });
  return apart;
}

bool SameIndices(const Expr& a, const Expr& b) {
  return std::equal(a->args.begin(), a->args.end(), b->args.begin(), b->args.end(),
                    StructurallyEqual);
}

// Do the loops of one nest read two reductions, and not at the same element of both?
bool AreReadApart(const Schedule& schedule, const ScheduledStage& a, const ScheduledStage& b) {
  bool apart = false;
  for (int i : schedule.ReadersOf(a.tensor.get())) {
    for (int j : schedule.ReadersOf(b.tensor.get())) {
      const ScheduledStage& one = schedule.stage(i);
      const ScheduledStage& other = schedule.stage(j);
      if (&schedule.NestOf(one) != &schedule.NestOf(other)) continue;
      Visit(one.body, [&](const Expr& read) {
        if (read->op != Op::kLoad || read->buffer != a.tensor) return;
        Visit(other.body, [&](const Expr& load) {
          apart = apart ||
                  (load->op == Op::kLoad && load->buffer == b.tensor && !SameIndices(read, load));
        });
      });
    }
  }
  return apart;
}

// The order of stages in which `together` follow one another; empty where something that lies
// between needs one of them and is needed by another.
std::vector<int> NextToOneAnother(const Schedule& schedule, const std::vector<int>& together) {
  const auto [first, last] = std::minmax_element(together.begin(), together.end());
  std::vector<int> order, between, members;
  for (int i = 0; i < static_cast<int>(schedule.stages().size()); ++i) {
    const bool member = std::find(together.begin(), together.end(), i) != together.end();
    if (i < *first || i > *last) {
      order.push_back(i);
      continue;
    }
    (member ? members : between).push_back(i);
  }
  bool needs = false, is_needed = false;
  for (int b : between) {
    for (int m : members) {
      needs = needs || Reads(schedule, b, m);
      is_needed = is_needed || Reads(schedule, m, b);
    }
  }
  std::vector<int> before, after;
  if (needs && is_needed) {
    const auto reads_any = [&](int reader, const std::vector<int>& read) {
      return std::any_of(read.begin(), read.end(),
                         [&](int r) { return Reads(schedule, reader, r); });
    };
    // What is computed with others is written where those are.
    const auto is_with_any = [&](int s, const std::vector<int>& others) {
      return std::any_of(others.begin(), others.end(), [&](int o) {
        return &schedule.NestOf(schedule.stage(o)) == &schedule.NestOf(schedule.stage(s));
      });
    };
    before = between;
    for (bool grew = true; grew;) {
      const auto is_behind = [&](int b) {
        return reads_any(b, members) || reads_any(b, after) || is_with_any(b, after);
      };
      const auto moved =
          std::stable_partition(before.begin(), before.end(), std::not_fn(is_behind));
      grew = moved != before.end();
      after.insert(after.end(), moved, before.end());
      before.erase(moved, before.end());
    }
    std::sort(after.begin(), after.end());
    const bool is_circle =
        std::any_of(members.begin(), members.end(), [&](int m) { return reads_any(m, after); });
    if (is_circle) return {};
  } else {
    (needs ? after : before) = std::move(between);
  }
  before.insert(before.end(), members.begin(), members.end());
  before.insert(before.end(), after.begin(), after.end());
  order.insert(order.begin() + *first, before.begin(), before.end());
  return order;
}

}  // namespace

absl::Status ComputeWith::ApplyTo(ScheduleEditor& editor) const {
  const Schedule& schedule = editor.schedule();
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(stage));
  HEDDLE_ASSIGN_OR_RETURN(nest, editor.FindStage(leader));
  if (here == nest) return Refuse(absl::StrCat(stage, " cannot be its own leader"));
  if (!IsFree(schedule, *here) || !IsFree(schedule, *nest) || here->scope != nest->scope ||
      schedule.HasCompanions(*here)) {
    return Refuse(
        absl::StrCat("compute_with comes before other changes to ", stage, " and ", leader));
  }
  if (here->is_reduction() != nest->is_reduction()) {
    return Refuse("a reduction is computed with a reduction, an elementwise stage with another");
  }
  const int own = schedule.IndexOf(*here);
  std::vector<int> together = {own};
  for (const ScheduledStage* s : schedule.Together(*nest)) {
    const int other = schedule.IndexOf(*s);
    if (Reads(schedule, own, other) || Reads(schedule, other, own)) {
      return Refuse(absl::StrCat("one of ", stage, " and ", s->name(), " reads the other"));
    }
    together.push_back(other);
  }
  HEDDLE_ASSIGN_OR_RETURN(shared, SharedAxes(*this, *here, *nest));
  const std::vector<int> order = NextToOneAnother(schedule, together);
  if (order.empty()) {
    return Refuse(absl::StrCat("a stage between ", stage, " and ", leader,
                               " needs the one and is needed by the other"));
  }
  const Expr body = Substitute(here->body, [&](const Var& v) -> Expr {
    for (size_t i = 0; i < here->axes.size(); ++i) {
      if (here->axes[i] == v) return VarExpr(shared[i]);
    }
    for (size_t i = 0; i < here->reduce_axes.size(); ++i) {
      if (here->reduce_axes[i] == v) return VarExpr(nest->reduce_axes[i]);
    }
    return nullptr;
  });
  for (const ScheduledStage* s : schedule.Together(*nest)) {
    const bool apart = ReadApart(schedule, body, s->body) ||
                       (here->is_reduction() && AreReadApart(schedule, *here, *s));
    if (!apart) continue;
    return Refuse(absl::StrCat(stage, " and ", s->name(),
                               " read reductions at different elements, or are read so"));
  }
  here->body = body;
  here->axes = std::move(shared);
  here->reduce_axes = nest->reduce_axes;
  here->leader = nest->tensor;
  here->loops.clear();
  here->values.clear();
  here->guards.clear();
  editor.Permute(order);
  return absl::OkStatus();
}

}  // namespace heddle::search_space
