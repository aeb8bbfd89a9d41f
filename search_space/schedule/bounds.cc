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

// The region of a producer that everyone reads who stands in one iteration of a consumer's loop.
class ReadRegions {
 public:
  ReadRegions(const Schedule& schedule, const ScheduledStage& producer, int consumer,
              const Var& loop)
      : schedule_(schedule),
        producer_(producer),
        consumer_(consumer),
        loop_(loop),
        dealt_(DealtAxisOf(producer)),
        fixed_here_(FixedVars(schedule, producer.scope, consumer, loop)),
        fixed_in_block_(FixedVars(schedule, Scope::kShared, consumer, loop)),
        regions_(producer.axes.size()) {}

  // Of all that is computed with the producer, which has its axes.
  absl::Status Run() {
    HEDDLE_RETURN_IF_ERROR(FindWarps());
    for (const ScheduledStage* read : schedule_.Together(producer_)) {
      for (int r : schedule_.ReadersOf(read->tensor.get())) {
        HEDDLE_RETURN_IF_ERROR(Include(*read, schedule_.stage(r)));
      }
    }
    return absl::OkStatus();
  }

  // The region of axis `a`; InvalidArgument where nobody reads it.
  absl::StatusOr<Region> Of(size_t a) const {
    if (!regions_[a].region.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("nothing reads ", producer_.name()));
    }
    Region region = regions_[a].Result();
    if (warps_.has_value()) region.base = warps_->Join(region.base);
    return region;
  }

 private:
  // Around a fragment, which the lanes of warps hold together.
  absl::Status FindWarps() {
    const auto* fragment = producer_.Note<Fragment>();
    const auto* rows = producer_.Note<RowFragment>();
    if (fragment == nullptr && rows == nullptr) return absl::OkStatus();
    const FragmentLayout& layout = fragment != nullptr ? fragment->layout() : rows->layout();
    HEDDLE_ASSIGN_OR_RETURN(found, WarpsAround(schedule_, consumer_, layout.lanes()));
    warps_ = found;
    fixed_here_.insert(warps_->warp.get());
    return absl::OkStatus();
  }

  absl::Status Include(const ScheduledStage& read, const ScheduledStage& reader) {
    const ScheduledStage& nest = schedule_.NestOf(reader);
    if (!IsInside(schedule_, schedule_.IndexOf(nest), consumer_, loop_)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "loop ", loop_->name, " does not enclose ", reader.name(), ", which also reads ",
          read.name(), "; compute it further out or attach ", reader.name(), " first"));
    }
    absl::Status included;
    Visit(reader.body, [&](const Expr& node) {
      if (node->op != Op::kLoad || node->buffer != read.tensor) return;
      for (size_t i = 0; i < node->args.size() && included.ok(); ++i) {
        included = IncludeIndex(producer_.AxisOf(read.axes[i]), i, InLoops(node->args[i], nest));
      }
    });
    return included;
  }

  // An index in the loops of the nest that reads there.
  Expr InLoops(const Expr& index, const ScheduledStage& nest) const {
    const Expr in_loops = Simplify(Substitute(index, [&](const Var& v) -> Expr {
      for (size_t a = 0; a < nest.values.size(); ++a) {
        const bool is_data = a < nest.axes.size();
        if ((is_data ? nest.axes[a] : nest.reduce_axes[a - nest.axes.size()]) == v) {
          return schedule_.AxisValue(nest, a);
        }
      }
      return nullptr;
    }));
    return warps_.has_value() ? warps_->Split(in_loops) : in_loops;
  }

  absl::Status IncludeIndex(size_t axis, size_t dim, const Expr& index) {
    // What is spread over threads is held by all of them together.
    const bool is_dealt = dealt_.has_value() && axis == dealt_->axis;
    const VarSet& fixed = is_dealt ? fixed_in_block_ : fixed_here_;
    const Region region = RegionOf(index, [&](const Var& v) { return !fixed.contains(v.get()); });
    regions_[axis].Include(region, BoundsOf(index));
    if (producer_.scope != Scope::kLocal || warps_.has_value() ||
        region.extent <= kMaxHoles * RelaxedProduct(index, fixed)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("a register tile of ", producer_.name(), " would have holes: axis ",
                     producer_.axes[dim]->name, " spans ", region.extent,
                     " elements of which few are used; make the strided loop a vthread"));
  }

  const Schedule& schedule_;
  const ScheduledStage& producer_;
  const int consumer_;
  const Var& loop_;
  const std::optional<DealtAxis> dealt_;
  VarSet fixed_here_;
  const VarSet fixed_in_block_;
  std::optional<Warps> warps_;  // around fragments
  std::vector<AxisRegion> regions_;
};

}  // namespace

absl::Status InferRegion(const Schedule& schedule, const ScheduledStage& producer, int consumer,
                         const Var& loop, std::vector<Expr>& base, std::vector<int64_t>& extent) {
  ReadRegions regions(schedule, producer, consumer, loop);
  HEDDLE_RETURN_IF_ERROR(regions.Run());
  base.clear();
  extent.clear();
  for (size_t a = 0; a < producer.axes.size(); ++a) {
    HEDDLE_ASSIGN_OR_RETURN(region, regions.Of(a));
    base.push_back(region.base);
    extent.push_back(region.extent);
  }
  return absl::OkStatus();
}

}  // namespace heddle::search_space
