#include "search_space/sketch/tiling/tiled_kernel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/windows.h"
#include "search_space/schedule/analysis/operands.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kLongestWhole = 8;
constexpr size_t kMostOperands = 16;  // whose tiles fit into shared memory together
constexpr double kFullResult = 4096;  // elements that fill a few blocks

// An axis that every input is read along, and not the one that lies innermost in memory. Others
// must be large enough to fill blocks.
bool IsBatch(const ScheduledStage& reduction, const std::vector<Expr>& loads, size_t axis) {
  double others = 1;
  for (size_t a = 0; a < reduction.axes.size(); ++a) {
    if (a != axis) others *= static_cast<double>(reduction.axes[a]->extent);
  }
  bool everywhere = axis + 1 < reduction.axes.size() && others >= kFullResult;
  for (const Expr& load : loads) {
    everywhere = everywhere && std::any_of(load->args.begin(), load->args.end(), [&](auto& index) {
                   return IsVar(index, reduction.axes[axis]);
                 });
  }
  return everywhere;
}

// The terms of an affine index times `factor`, one an axis; false when it is anything else.
bool AddTerms(const Expr& index, int64_t factor, const std::vector<Var>& vars,
              std::vector<IndexTerm>& terms) {
  const ExprList& args = index->args;
  if (index->op == Op::kInt) return true;
  if (index->op == Op::kVar) {
    const auto axis =
        static_cast<size_t>(std::find(vars.begin(), vars.end(), index->var) - vars.begin());
    const auto term = std::find_if(terms.begin(), terms.end(),
                                   [&](const IndexTerm& t) { return t.axis == axis; });
    if (term == terms.end()) {
      terms.push_back({axis, factor});
    } else if ((term->stride += factor) == 0) {
      terms.erase(term);
    }
    return true;
  }
  if (index->op == Op::kAdd || index->op == Op::kSub) {
    return AddTerms(args[0], factor, vars, terms) &&
           AddTerms(args[1], index->op == Op::kAdd ? factor : -factor, vars, terms);
  }
  return index->op == Op::kMul && args[1]->op == Op::kInt &&
         AddTerms(args[0], factor * args[1]->int_value, vars, terms);
}

class KernelFinder {
 public:
  KernelFinder(const ProgramShape& shape, const KernelShape& kernel)
      : shape_(shape), kernel_(kernel), reduction_(shape.stage(kernel.reductions[0])) {
    vars_ = reduction_.axes;
    vars_.insert(vars_.end(), reduction_.reduce_axes.begin(), reduction_.reduce_axes.end());
  }

  bool Find(TiledKernel& found) {
    const ScheduledStage& root = shape_.stage(kernel_.root);
    found.root = {root.tensor};
    found.reduction = {reduction_.tensor};
    const std::vector<const ScheduledStage*> together = shape_.schedule.Together(reduction_);
    found.results = static_cast<int64_t>(together.size());
    std::vector<Expr> loads;
    for (const ScheduledStage* s : together) {
      for (const Expr& load : LoadsIn(s->body)) {
        const auto same = [&](const Expr& other) { return StructurallyEqual(load, other); };
        const bool is_new = std::none_of(loads.begin(), loads.end(), same);
        if (is_new) loads.push_back(load);
      }
    }
    int64_t longest = 1;
    const size_t first = found.makes_parts ? 1 : 0;
    for (size_t a = first; a < root.axes.size(); ++a) {
      found.axes.push_back(
          {root.axes[a]->name, root.axes[a]->extent, IsBatch(reduction_, loads, a - first)});
      longest = std::max(longest, root.axes[a]->extent);
    }
    for (const Var& r : reduction_.reduce_axes) {
      const bool moves = std::any_of(loads.begin(), loads.end(), [&](const Expr& load) {
        return MovesAlong(load, r, reduction_.axes);
      });
      found.reduce_axes.push_back({.name = r->name, .extent = r->extent, .moves = moves});
      if (r->extent > found.reduce_axes[found.shared_axis].extent) {
        found.shared_axis = found.reduce_axes.size() - 1;
      }
    }
    if (found.results > 1) {
      std::erase_if(loads, [](const Expr& load) { return !IsValueLoad(load); });
    }
    const std::vector<Expr> operands = found.results > 1 ? loads : OperandsOf(reduction_).list;
    if (operands.size() > kMostOperands) return false;
    for (const Expr& operand : operands) FindInlined(operand, found);
    for (size_t k = 0; k < operands.size(); ++k) {
      if (!AddOperand(operands, k, found)) return false;
    }
    return longest > 1 && !found.operands.empty();
  }

 private:
  // Is the operand the same in all terms?
  bool IsOfElement(absl::Span<const size_t> axes) const {
    return std::all_of(axes.begin(), axes.end(),
                       [&](size_t a) { return a < reduction_.axes.size(); });
  }

  void FindInlined(const Expr& operand, TiledKernel& found) const {
    const std::vector<size_t> axes = AxesInMemoryOrder(reduction_, operand);
    if (!IsOfElement(axes) || (found.results == 1 && !axes.empty())) return;
    for (const Expr& load : LoadsIn(operand)) {
      if (IsStageable(shape_.schedule.FindStage(load->buffer.get()))) {
        found.inlined.push_back(load->buffer);
      }
    }
  }

  // Reductions that are computed together share copies of what they load; a gathered operand would
  // be one's alone.
  bool AddOperand(const std::vector<Expr>& operands, size_t number, TiledKernel& found) const {
    const bool is_alone = found.results == 1;
    const Expr& operand = operands[number];
    const std::vector<Expr> loads = LoadsIn(operand);
    const BufferRef tensor = loads.empty() ? IndicesIn(operand) : loads[0]->buffer;
    if (tensor == nullptr) return false;
    std::vector<BufferRef> inlined;
    for (const Expr& load : loads) {
      const int stage = shape_.schedule.FindStage(load->buffer.get());
      if (stage >= 0 && shape_.stage(stage).is_reduction()) return false;
      if (IsStageable(stage)) inlined.push_back(load->buffer);
    }
    const std::vector<size_t> axes = AxesInMemoryOrder(reduction_, operand);
    const auto has = [&](size_t a) { return std::find(axes.begin(), axes.end(), a) != axes.end(); };
    if (IsOfElement(axes)) {
      if (is_alone && !axes.empty()) found.held.push_back({number, axes, std::move(inlined)});
      return true;
    }
    bool is_reused = false;
    for (size_t a = 0; a < found.axes.size(); ++a) {
      is_reused = is_reused || (found.axes[a].extent > 1 && !has(a));
    }
    Operand in{.name = NameFor(*tensor, found), .number = number, .dtype = operand->type};
    const bool is_one = loads.size() == 1 && IsValueLoad(loads[0]);
    if (is_one && IsReadOnce(loads[0], operands, found)) AddHull(loads[0], found, in);
    const bool is_better_dense =
        is_reused &&
        (operand->op != Op::kLoad || (!in.tiles.empty() && HasStrides(in.tiles[0], found)));
    if (is_alone && (in.tiles.empty() || is_better_dense)) AddGathered(operand, axes, found, in);
    if (in.tiles.empty()) return false;
    in.inlined = std::move(inlined);
    found.reuses = found.reuses || is_reused;
    found.operands.push_back(std::move(in));
    return true;
  }

  // The tensor by which an indicator, such as select(I[r] == i, 1, 0), is called; null where an
  // operand reads none.
  static BufferRef IndicesIn(const Expr& operand) {
    BufferRef indices;
    Visit(operand, [&](const Expr& e) {
      if (e->op == Op::kLoad && indices == nullptr) indices = e->buffer;
    });
    return indices;
  }

  static std::string NameFor(const Buffer& tensor, const TiledKernel& found) {
    std::string name = tensor.name;
    const auto is_taken = [&](const Operand& other) { return other.name == name; };
    for (int n = 2; std::any_of(found.operands.begin(), found.operands.end(), is_taken); ++n) {
      name = absl::StrCat(tensor.name, ".", n);
    }
    return name;
  }

  // A tensor's copy is the same for all that the reduction reads of it: is it read in one place?
  bool IsReadOnce(const Expr& load, const std::vector<Expr>& operands,
                  const TiledKernel& found) const {
    int readers = 0;
    const auto count = [&](const Expr& e) {
      for (const Expr& other : LoadsIn(e)) readers += other->buffer == load->buffer ? 1 : 0;
    };
    for (const Expr& operand : operands) count(operand);
    for (const BufferRef& stage : found.inlined) {
      count(shape_.stage(shape_.schedule.FindStage(stage.get())).body);
    }
    return readers == 1;
  }

  bool IsStageable(int stage) const {
    return std::find(kernel_.stageable.begin(), kernel_.stageable.end(), stage) !=
           kernel_.stageable.end();
  }

  void AddHull(const Expr& load, const TiledKernel& found, Operand& in) const {
    const int stage = shape_.schedule.FindStage(load->buffer.get());
    in.tensor = load->buffer;
    in.is_stage = IsStageable(stage);
    OperandTile tile;
    for (const Expr& index : load->args) {
      if (!AddTerms(index, 1, vars_, tile.dims.emplace_back())) return;
      tile.unit.push_back(index->op == Op::kVar);
    }
    BufferRef rows = load->buffer;
    if (in.is_stage) {
      const std::vector<Expr> read = LoadsIn(shape_.stage(stage).body);
      rows = read.empty() ? rows : read[0]->buffer;
    }
    tile.row_extent = rows->shape.back();
    SetInner(found, tile);
    // Windows that are fetched whole continue a row: weights [c, ky, kx] are runs of c * ky * kx.
    for (size_t d = tile.dims.size(); d-- > 1 && !in.is_stage && IsWindow(tile, d, found);) {
      tile.row_extent *= load->buffer->shape[d - 1];
    }
    in.tiles.push_back(std::move(tile));
  }

  void AddGathered(const Expr& operand, const std::vector<size_t>& axes, const TiledKernel& found,
                   Operand& in) const {
    OperandTile tile{.is_gathered = true};
    for (size_t a : axes) {
      tile.dims.push_back({{a, 1}});
      tile.unit.push_back(true);
    }
    // Neighbours are neighbours in memory where a load's last index is the last axis itself.
    for (const Expr& load : LoadsIn(operand)) {
      const Expr step = Simplify(load->args.back() - VarExpr(vars_[axes.back()]));
      const bool in_rows = step->op == Op::kInt;
      if (in_rows) tile.row_extent = std::max(tile.row_extent, load->buffer->shape.back());
    }
    SetInner(found, tile);
    in.tiles.push_back(std::move(tile));
  }

  // The last data axis that the operand depends on lies innermost in shared memory, so that a
  // thread's fragment is contiguous.
  static void SetInner(const TiledKernel& found, OperandTile& tile) {
    size_t last_axis = 0;
    tile.inner = tile.dims.size() - 1;
    for (size_t d = 0; d < tile.dims.size(); ++d) {
      for (const IndexTerm& t : tile.dims[d]) {
        if (t.axis < found.axes.size() && found.axes[t.axis].extent > 1 && t.axis + 1 > last_axis) {
          last_axis = t.axis + 1;
          tile.inner = d;
        }
      }
    }
  }

  // Does a thread's run along the result read with gaps?
  static bool HasStrides(const OperandTile& tile, const TiledKernel& found) {
    return std::any_of(tile.dims.begin(), tile.dims.end(), [&](const auto& dim) {
      return std::any_of(dim.begin(), dim.end(), [&](const IndexTerm& t) {
        return t.axis < found.axes.size() && found.axes[t.axis].extent > 1 &&
               std::abs(t.stride) > 1;
      });
    });
  }

  // Is dimension `d` exactly one reduction axis that is short enough to be a window?
  static bool IsWindow(const OperandTile& in, size_t d, const TiledKernel& found) {
    const auto& terms = in.dims[d];
    return in.unit[d] && terms.size() == 1 && terms[0].axis >= found.axes.size() &&
           found.reduce_axes[terms[0].axis - found.axes.size()].is_window();
  }

  const ProgramShape& shape_;
  const KernelShape& kernel_;
  const ScheduledStage& reduction_;
  std::vector<Var> vars_;  // data axes, then reduction axes
};

}  // namespace

bool TiledAxis::is_window() const { return extent <= (moves ? kLongestWindow : kLongestWhole); }

absl::Status TiledKernel::Refuse(const std::string& why) const {
  return absl::ResourceExhaustedError(absl::StrCat(root.tensor->name, ": ", why));
}

absl::Status TiledKernel::TooMany(int64_t count, const char* what, int64_t most) const {
  return Refuse(absl::StrCat(count, " ", what, ", at most ", most));
}

std::optional<TiledKernel> FindTiledKernel(const ProgramShape& shape, const KernelShape& kernel,
                                           const Target& target, bool may_make_parts) {
  if (kernel.reductions.size() != 1 || StoresRows(shape, kernel)) return std::nullopt;
  TiledKernel found{.target = target, .makes_parts = MakesParts(shape, kernel)};
  if (found.makes_parts && !may_make_parts) return std::nullopt;
  if (!KernelFinder(shape, kernel).Find(found)) return std::nullopt;
  return found;
}

}  // namespace heddle::search_space
