// Products whose elements are not stored: reductions of the rows of tiles are (reduce_in_parts.h),
// or what is made of elements that stand at several places of an axis (split_axis.h).
#include <algorithm>
#include <set>
#include <utility>

#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/rewrites/axes/split_axis.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/matrix/matrix_kernel.h"

namespace heddle::search_space {
namespace {

// Of a kernel that several are merged into: the product whose elements the others read, without the
// stages that only hand on results.
class FusedProductFinder {
 public:
  FusedProductFinder(const ProgramShape& shape, const KernelShape& kernel)
      : whole_{{}, shape.schedule, {}}, schedule_(shape.schedule), root_(kernel.root) {
    for (int s : StagesOf(shape, kernel)) {
      if (!shape.stage(s).inlined) members_.push_back(s);
    }
  }

  std::optional<MatrixKernel> Find(const Target& target, bool in_warpgroups) {
    RowParts parts;
    std::vector<BufferRef> inlined;
    int product = -1, result = -1;
    for (int s : members_) {
      const ScheduledStage& stage = whole_.stage(s);
      if (s == root_) continue;
      if (schedule_.HasCompanions(stage)) return std::nullopt;
      if (stage.is_reduction()) {
        if (product >= 0) parts.reductions.push_back({stage.tensor});
        if (product < 0) product = s;
        continue;
      }
      inlined.push_back(stage.tensor);
      const Step inline_it = ComputeInline{stage.name()};
      if (stage.is_output || !Apply(inline_it, schedule_).ok()) return std::nullopt;
      // What stands before the product is part of its factors.
      if (product < 0 && !Apply(inline_it, whole_.schedule).ok()) return std::nullopt;
      if (product >= 0 && result < 0) result = s;
    }
    if (product < 0 || result < 0) return std::nullopt;
    auto found = MatrixKernel::Find(whole_, {.root = result, .reductions = {product}}, target,
                                    in_warpgroups);
    if (!found) return std::nullopt;
    found->kernel.root = {whole_.stage(root_).tensor};
    found->may_stage = false;
    found->inlined = std::move(inlined);
    const bool has_companions = schedule_.HasCompanions(whole_.stage(root_));
    const bool fits = parts.reductions.empty()
                          ? FindPlaces(product, *found)
                          : !has_companions && (FindReduced(product, parts, *found) ||
                                                AddRows(product, std::move(parts), *found));
    return fits ? found : std::nullopt;
  }

 private:
  const ScheduledStage& Computed(const StageRef& s) const {
    return schedule_.stage(schedule_.FindStage(s.tensor.get()));
  }

  // The axes of a part are the product's, but for that of its columns, and one that numbers parts,
  // which whole rows do not have.
  bool AddRows(int product, RowParts parts, MatrixKernel& found) const {
    const size_t axes = whole_.stage(product).axes.size();
    const ScheduledStage& root = whole_.stage(root_);
    parts.are_whole = root.axes.size() == axes;
    for (const StageRef& s : parts.reductions) {
      const ScheduledStage& reduction = Computed(s);
      const size_t numbers = parts.are_whole ? 0 : 1;
      if (reduction.axes.size() + 1 != axes + numbers || reduction.reduce_axes.size() != 1) {
        return false;
      }
      const std::optional<size_t> along = ColumnsOf(product, reduction);
      const int64_t columns = reduction.reduce_axes[0]->extent;
      if (!along || (s.tensor != parts.reductions[0].tensor &&
                     (*along != parts.along || columns != parts.columns))) {
        return false;
      }
      parts.along = *along;
      parts.columns = columns;
    }
    for (size_t f = 0; f < 2; ++f) {
      if (found.factors[f].own == parts.along) parts.rows = 1 - f;
    }
    if (found.factors[1 - parts.rows].own != parts.along) return false;
    if (parts.are_whole) {
      if (parts.columns != found.Extent(1 - parts.rows)) return false;
      found.may_stage = found.ResultInner().has_value();
    } else if (root.axes.size() != axes + 1) {
      return false;
    }
    found.row_parts = std::move(parts);
    return true;
  }

  // The one reduction goes through an axis of the product that no tile has, and reads it at its own
  // place along all others; so does the root read the reduction.
  bool FindReduced(int product, const RowParts& parts, MatrixKernel& found) const {
    if (parts.reductions.size() != 1 || found.kernel.makes_parts) return false;
    const ScheduledStage& reduction = Computed(parts.reductions[0]);
    const ScheduledStage& made = whole_.stage(product);
    const ScheduledStage& root = whole_.stage(root_);
    const std::optional<size_t> over = ColumnsOf(product, reduction);
    if (!over || reduction.reduce_axes.size() != 1 || *over == found.factors[0].own ||
        *over == found.factors[1].own || reduction.axes.size() + 1 != made.axes.size() ||
        root.axes.size() != reduction.axes.size() ||
        reduction.tensor->dtype != made.tensor->dtype) {
      return false;
    }
    const auto reads_own = [](const ScheduledStage& reader, const BufferRef& read,
                              const std::vector<Var>& at) {
      bool own = true;
      for (const Expr& load : LoadsIn(reader.body)) {
        for (size_t d = 0; own && load->buffer == read && d < at.size(); ++d) {
          const bool is_only = read->shape[d] == 1 && IsInt(load->args[d], 0);
          own = (is_only || IsVar(load->args[d], at[d])) && at[d]->extent == read->shape[d];
        }
      }
      return own;
    };
    std::vector<Var> at = reduction.axes;
    at.insert(at.begin() + static_cast<std::ptrdiff_t>(*over), reduction.reduce_axes[0]);
    const ScheduledStage& stored = Computed({root.tensor});
    if (!reads_own(reduction, made.tensor, at) ||
        !reads_own(stored, reduction.tensor, stored.axes)) {
      return false;
    }
    found.over = over;
    found.reduced = parts.reductions[0];
    return true;
  }

  // The root's axes are the product's, as long as these, but for one that only one factor has,
  // along which the root reads elements at fixed places, all of them, or has an axis and reads
  // elements at other places than its own, too.
  bool FindPlaces(int product, MatrixKernel& found) const {
    const ScheduledStage& root = Computed({whole_.stage(root_).tensor});
    const ScheduledStage& made = whole_.stage(product);
    found.stores_places = root.axes.size() == made.axes.size();
    if (found.kernel.makes_parts ||
        (!found.stores_places && root.axes.size() + 1 != made.axes.size())) {
      return false;
    }
    const bool has_companions = schedule_.HasCompanions(root);
    if (found.stores_places && has_companions) return false;
    const std::optional<size_t> places =
        found.stores_places ? PlacesMixed(root, made) : PlacesRead(root, made);
    if (!places.has_value()) return false;
    for (Factor& f : found.factors) {
      if (f.own == *places) return false;
      if (f.Has(*places)) HoldPlaces(*places, found.DepthAxis(), f);
    }
    found.places = places;
    found.may_stage = !has_companions && found.ResultInner().has_value() &&
                      !(found.stores_places && *places + 1 == made.axes.size());
    return found.HasPlaces(0) != found.HasPlaces(1);
  }

  // The axis along which the root, which has no such axis, and what is computed with it read the
  // product at all places.
  std::optional<size_t> PlacesRead(const ScheduledStage& root, const ScheduledStage& made) const {
    std::optional<size_t> places;
    std::set<int64_t> read;
    for (const ScheduledStage* stage : schedule_.Together(root)) {
      if (stage->axes.size() != root.axes.size()) return std::nullopt;
      for (const Expr& load : LoadsIn(stage->body)) {
        if (load->buffer == made.tensor && !AddPlace(*stage, load, made, places, read)) {
          return std::nullopt;
        }
      }
    }
    const bool are_all =
        places.has_value() && static_cast<int64_t>(read.size()) == made.axes[*places]->extent;
    return are_all ? places : std::nullopt;
  }

  // Is the product read there at the stage's own element and one of `places`, which `read` gets?
  static bool AddPlace(const ScheduledStage& stage, const Expr& load, const ScheduledStage& made,
                       std::optional<size_t>& places, std::set<int64_t>& read) {
    size_t own = 0;
    for (size_t d = 0; d < load->args.size(); ++d) {
      const Expr& index = load->args[d];
      if (own < stage.axes.size() && IsVar(index, stage.axes[own])) {
        if (stage.axes[own]->extent != made.axes[d]->extent) return false;
        ++own;
      } else if (index->op != Op::kInt || places.value_or(d) != d) {
        return false;
      } else {
        places = d;
        read.insert(index->int_value);
      }
    }
    return true;
  }

  // The axis, of at most four elements, along which the root reads the product at other places than
  // its own. Along all others it reads it at its own.
  static std::optional<size_t> PlacesMixed(const ScheduledStage& root, const ScheduledStage& made) {
    std::optional<size_t> places;
    for (const Expr& load : LoadsIn(root.body)) {
      if (load->buffer != made.tensor) continue;
      for (size_t d = 0; d < load->args.size(); ++d) {
        const Expr& index = load->args[d];
        if (root.axes[d]->extent != made.axes[d]->extent) return std::nullopt;
        if (IsVar(index, root.axes[d])) continue;
        bool is_alone = places.value_or(d) == d && !ReadsIndices(index);
        for (size_t other = 0; other < root.axes.size(); ++other) {
          is_alone = is_alone && (other == d || !MentionsAny(index, {root.axes[other].get()}));
        }
        if (!is_alone || root.axes[d]->extent > kMostPartsRead) return std::nullopt;
        places = d;
      }
    }
    return places;
  }

  // In the factor's tiles the matrix of one place stands behind that of another.
  static void HoldPlaces(size_t places, size_t depth, Factor& f) {
    // Of boxes each tile is at one place of what indices are computed from.
    f.is_boxed = f.is_boxed && !f.has_computed_index;
    const auto at = std::find_if(f.layout.begin(), f.layout.end(),
                                 [&](size_t d) { return f.axes[d] == places; });
    const auto matrix = std::find_if(f.layout.begin(), f.layout.end(), [&](size_t d) {
      return f.axes[d] == f.own || f.axes[d] == depth;
    });
    if (matrix < at) std::rotate(matrix, at, at + 1);
  }

  // The product's axis through which the terms of a reduction of its elements go.
  std::optional<size_t> ColumnsOf(int product, const ScheduledStage& reduction) const {
    std::optional<size_t> along;
    for (const Expr& load : LoadsIn(reduction.body)) {
      if (load->buffer != whole_.stage(product).tensor) continue;
      for (size_t d = 0; d < load->args.size(); ++d) {
        if (!MentionsAny(load->args[d], {reduction.reduce_axes[0].get()})) continue;
        if (along.has_value() && along != d) return std::nullopt;
        along = d;
      }
    }
    return along;
  }

  ProgramShape whole_;  // with what stands before the product inlined
  Schedule schedule_;
  const int root_;
  std::vector<int> members_;
};

}  // namespace

std::optional<MatrixKernel> MatrixKernel::FindFused(const ProgramShape& shape,
                                                    const KernelShape& kernel, const Target& target,
                                                    bool in_warpgroups) {
  if (!kernel.fused) return std::nullopt;
  return FusedProductFinder(shape, kernel).Find(target, in_warpgroups);
}

}  // namespace heddle::search_space
