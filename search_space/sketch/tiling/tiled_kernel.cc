#include "search_space/sketch/tiling/tiled_kernel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kLongestWindow = 8;
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
                   return index->op == Op::kVar && index->var == reduction.axes[axis];
                 });
  }
  return everywhere;
}

// The terms of an affine index; false when it is anything else.
bool AffineTerms(const Expr& index, const std::vector<Var>& vars, std::vector<IndexTerm>& terms) {
  if (index->op == Op::kInt) return true;
  if (index->op == Op::kVar) {
    for (size_t i = 0; i < vars.size(); ++i) {
      if (vars[i] == index->var) terms.push_back({i, 1});
    }
    return true;
  }
  if (index->op == Op::kAdd) {
    return AffineTerms(index->args[0], vars, terms) && AffineTerms(index->args[1], vars, terms);
  }
  if (index->op == Op::kSub && index->args[1]->op == Op::kInt) {
    return AffineTerms(index->args[0], vars, terms);
  }
  if (index->op == Op::kMul && index->args[1]->op == Op::kInt) {
    const size_t before = terms.size();
    if (!AffineTerms(index->args[0], vars, terms)) return false;
    for (size_t i = before; i < terms.size(); ++i) {
      terms[i].stride *= index->args[1]->int_value;
      if (terms[i].stride <= 0) return false;
    }
    return true;
  }
  return false;
}

// Each once.
void AddLoads(const ScheduledStage& stage, std::vector<Expr>& loads) {
  Visit(stage.body, [&](const Expr& node) {
    const auto same = [&](const Expr& load) { return StructurallyEqual(load, node); };
    if (node->op == Op::kLoad && std::none_of(loads.begin(), loads.end(), same)) {
      loads.push_back(node);
    }
  });
}
std::vector<Expr> LoadsOf(const ScheduledStage& stage) {
  std::vector<Expr> loads;
  AddLoads(stage, loads);
  return loads;
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
    for (const ScheduledStage* s : together) AddLoads(*s, loads);
    for (size_t a = 0; a < root.axes.size(); ++a) {
      found.axes.push_back(
          {root.axes[a]->name, root.axes[a]->extent, IsBatch(reduction_, loads, a)});
    }
    for (const Var& r : reduction_.reduce_axes) {
      found.reduce_axes.push_back({r->name, r->extent});
      if (r->extent > found.reduce_axes[found.shared_axis].extent) {
        found.shared_axis = found.reduce_axes.size() - 1;
      }
    }
    if (loads.size() < 2 || reduction_.axes.empty()) return false;
    bool reused = false;
    for (const Expr& load : loads) {
      for (const Operand& other : found.operands) {
        if (other.tensor == load->buffer) return false;
      }
      if (!AddOperand(load, found)) return false;
      reused = reused || IsReused(found.operands.back());
    }
    return reused;
  }

 private:
  bool IsReused(const Operand& in) const {
    std::vector<bool> used(vars_.size(), false);
    for (const auto& dim : in.dims) {
      for (const IndexTerm& t : dim) used[t.axis] = true;
    }
    for (size_t a = 0; a < reduction_.axes.size(); ++a) {
      if (!used[a] && reduction_.axes[a]->extent > 1) return true;
    }
    return false;
  }

  bool AddOperand(const Expr& load, TiledKernel& found) const {
    const int stage = shape_.schedule.FindStage(load->buffer.get());
    if (stage >= 0 && shape_.stage(stage).is_reduction()) return false;
    Operand in;
    in.tensor = load->buffer;
    in.is_stage = std::find(kernel_.stageable.begin(), kernel_.stageable.end(), stage) !=
                  kernel_.stageable.end();
    in.inner = load->args.size() - 1;
    size_t last_axis = 0;
    for (size_t d = 0; d < load->args.size(); ++d) {
      in.dims.emplace_back();
      if (!AffineTerms(load->args[d], vars_, in.dims.back())) return false;
      in.unit.push_back(load->args[d]->op == Op::kVar);
      for (const IndexTerm& t : in.dims.back()) {
        // The last data axis that the operand depends on lies innermost in shared memory, so that a
        // thread's fragment is contiguous.
        if (t.axis < found.axes.size() && found.axes[t.axis].extent > 1 && t.axis + 1 > last_axis) {
          last_axis = t.axis + 1;
          in.inner = d;
        }
      }
    }
    in.row_extent = (in.is_stage ? LoadsOf(shape_.stage(stage))[0] : load)->buffer->shape.back();
    // Windows that are fetched whole continue a row: weights [c, ky, kx] are runs of c * ky * kx.
    for (size_t d = in.dims.size(); d-- > 1 && !in.is_stage && IsWindow(in, d, found);) {
      in.row_extent *= load->buffer->shape[d - 1];
    }
    found.operands.push_back(std::move(in));
    return true;
  }

  // Is dimension `d` exactly one reduction axis that is short enough to be a window?
  static bool IsWindow(const Operand& in, size_t d, const TiledKernel& found) {
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

bool TiledAxis::is_window() const { return extent <= kLongestWindow; }

absl::Status TiledKernel::Refuse(const std::string& why) const {
  return absl::ResourceExhaustedError(absl::StrCat(root.tensor->name, ": ", why));
}

absl::Status TiledKernel::TooMany(int64_t count, const char* what, int64_t most) const {
  return Refuse(absl::StrCat(count, " ", what, ", at most ", most));
}

std::optional<TiledKernel> FindTiledKernel(const ProgramShape& shape, const KernelShape& kernel,
                                           const Target& target) {
  if (kernel.reductions.size() != 1) return std::nullopt;
  TiledKernel found{.target = target};
  if (!KernelFinder(shape, kernel).Find(found)) return std::nullopt;
  return found;
}

}  // namespace heddle::search_space
