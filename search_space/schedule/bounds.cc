// Eager bounds: which region of a producer its readers need inside a loop.
#include "search_space/schedule/bounds.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/matrix/fragment.h"
#include "search_space/schedule/matrix/row_fragment.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/threads/dealt_axis.h"

namespace heddle::search_space {
namespace {

using VarSet = absl::flat_hash_set<const Variable*>;

// Variables that are fixed where the producer is computed: loops around the attach point. A shared
// stage is computed once for all threads, so thread and virtual thread loops do not fix anything.
VarSet FixedVars(const Schedule& schedule, Scope scope, int consumer, const Var& loop) {
  const ScheduledStage& c = schedule.stage(consumer);
  VarSet fixed;
  auto add = [&](const Loop& l) {
    const bool per_thread = l.kind == LoopKind::kThread || l.kind == LoopKind::kVthread;
    if (scope == Scope::kLocal || !per_thread) fixed.insert(l.var.get());
  };
  for (const Loop* l : EnclosingLoops(schedule, c)) add(*l);
  for (const Loop& l : c.loops) {
    add(l);
    if (l.var == loop) break;
  }
  return fixed;
}

// The threads of the kernel by groups of warps and their lanes, for what such a group holds
// together. A stage in whose loops it is computed may have a loop over all of them of its own.
struct Warps {
  Var thread, warp, lane, inner;

  Expr Split(const Expr& e) const {
    const Expr number = VarExpr(warp) * Int(lane->extent) + VarExpr(lane);
    return Simplify(
        Substitute(e, [&](const Var& v) { return v == thread || v == inner ? number : nullptr; }));
  }
  Expr Join(const Expr& e) const {
    const Expr number = VarExpr(thread) / Int(lane->extent);
    return Simplify(Substitute(e, [&](const Var& v) { return v == warp ? number : nullptr; }));
  }
};

absl::StatusOr<Warps> WarpsAround(const Schedule& schedule, int consumer, int64_t lanes) {
  const ScheduledStage& c = schedule.stage(consumer);
  for (const Loop& l : schedule.KernelOf(c).loops) {
    if (l.kind != LoopKind::kThread || l.var->extent % lanes != 0) continue;
    Warps warps{l.var, MakeVar("warp", l.var->extent / lanes), MakeVar("lane", lanes), nullptr};
    for (const Loop& own : c.loops) {
      const bool all = own.kind == LoopKind::kThread && own.var->extent == l.var->extent;
      if (all && !own.reduce) warps.inner = own.var;
    }
    return warps;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("fragments are held by warps: a loop over multiples of ", lanes,
                   " threads must be bound to thread first"));
}

bool IsInside(const Schedule& schedule, int stage, int consumer, const Var& loop) {
  const auto& stages = schedule.stages();
  for (int s = stage; s >= 0; s = stages[static_cast<size_t>(s)].consumer) {
    if (s == consumer) return true;
    const ScheduledStage& here = stages[static_cast<size_t>(s)];
    if (here.consumer != consumer) continue;
    const ScheduledStage& c = stages[static_cast<size_t>(consumer)];
    return c.FindLoop(here.attach_loop) >= c.FindLoop(loop);
  }
  return false;
}

// Product of the extents of the relaxed variables in `e`: as many elements as an access can touch.
int64_t RelaxedProduct(const Expr& e, const VarSet& fixed) {
  VarSet seen;
  int64_t product = 1;
  Visit(e, [&](const Expr& node) {
    if (node->op != Op::kVar || fixed.contains(node->var.get())) return;
    if (seen.insert(node->var.get()).second) product *= node->var->extent;
  });
  return product;
}

// What the accesses seen so far need along one axis.
struct AxisRegion {
  std::optional<Region> region;  // inside the attach loop
  Interval everywhere{0, 0};     // over all loops
  bool comparable = true;        // regions differ by constants

  void Include(const Region& other, const Interval& bounds) {
    if (!region.has_value()) {
      region = other;
      everywhere = bounds;
      return;
    }
    everywhere = {std::min(everywhere.min, bounds.min), std::max(everywhere.max, bounds.max)};
    const Expr difference = Simplify(other.base - region->base);
    comparable = comparable && difference->op == Op::kInt;
    if (!comparable) return;
    const int64_t d = difference->int_value;
    const int64_t low = std::min<int64_t>(0, d);
    const int64_t high = std::max(region->extent, d + other.extent);
    region = Region{Simplify(region->base + Int(low)), high - low};
  }

  // A region with a moving start, unless a fixed one is no larger.
  Region Result() const {
    const int64_t span = everywhere.max - everywhere.min + 1;
    if (!comparable || region->extent >= span) return {Int(everywhere.min), span};
    return *region;
  }
};

}  // namespace

absl::Status InferRegion(const Schedule& schedule, const ScheduledStage& producer, int consumer,
                         const Var& loop, std::vector<Expr>& base, std::vector<int64_t>& extent) {
  VarSet fixed_here = FixedVars(schedule, producer.scope, consumer, loop);
  const VarSet fixed_in_block = FixedVars(schedule, Scope::kShared, consumer, loop);
  const auto* fragment = producer.Note<Fragment>();
  const auto* rows = producer.Note<RowFragment>();
  const bool is_fragment = fragment != nullptr || rows != nullptr;
  const auto dealt = DealtAxisOf(producer);
  Warps warps;
  if (is_fragment) {
    const FragmentLayout& layout = fragment != nullptr ? fragment->layout() : rows->layout();
    HEDDLE_ASSIGN_OR_RETURN(found, WarpsAround(schedule, consumer, layout.lanes()));
    warps = found;
    fixed_here.insert(warps.warp.get());
  }
  std::vector<AxisRegion> regions(producer.axes.size());
  // Of all that is computed with the producer, which has its axes.
  const auto include = [&](const ScheduledStage& read, const ScheduledStage& reader) {
    const ScheduledStage& nest = schedule.NestOf(reader);
    if (!IsInside(schedule, schedule.IndexOf(nest), consumer, loop)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "loop ", loop->name, " does not enclose ", reader.name(), ", which also reads ",
          read.name(), "; compute it further out or attach ", reader.name(), " first"));
    }
    absl::Status hull_error;
    Visit(reader.body, [&](const Expr& node) {
      if (node->op != Op::kLoad || node->buffer != read.tensor) return;
      for (size_t i = 0; i < node->args.size(); ++i) {
        const auto axis = producer.AxisOf(read.axes[i]);
        Expr index = Simplify(Substitute(node->args[i], [&](const Var& v) -> Expr {
          for (size_t a = 0; a < nest.values.size(); ++a) {
            const bool is_data = a < nest.axes.size();
            if ((is_data ? nest.axes[a] : nest.reduce_axes[a - nest.axes.size()]) == v) {
              return schedule.AxisValue(nest, a);
            }
          }
          return nullptr;
        }));
        if (is_fragment) index = warps.Split(index);
        // What is spread over threads is held by all of them together.
        const bool is_dealt = dealt.has_value() && axis == dealt->axis;
        const VarSet& fixed = is_dealt ? fixed_in_block : fixed_here;
        const Region region =
            RegionOf(index, [&](const Var& v) { return !fixed.contains(v.get()); });
        if (producer.scope == Scope::kLocal && !is_fragment &&
            region.extent > kMaxHoles * RelaxedProduct(index, fixed)) {
          hull_error = absl::InvalidArgumentError(
              absl::StrCat("a register tile of ", producer.name(), " would have holes: axis ",
                           producer.axes[i]->name, " spans ", region.extent,
                           " elements of which few are used; make the strided loop a vthread"));
        }
        regions[axis].Include(region, BoundsOf(index));
      }
    });
    return hull_error;
  };
  for (const ScheduledStage* read : schedule.Together(producer)) {
    for (int r : schedule.ReadersOf(read->tensor.get())) {
      HEDDLE_RETURN_IF_ERROR(include(*read, schedule.stage(r)));
    }
  }
  base.clear();
  extent.clear();
  for (const AxisRegion& r : regions) {
    if (!r.region.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("nothing reads ", producer.name()));
    }
    const Region region = r.Result();
    base.push_back(is_fragment ? warps.Join(region.base) : region.base);
    extent.push_back(region.extent);
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
