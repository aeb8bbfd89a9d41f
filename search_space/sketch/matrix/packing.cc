#include "search_space/sketch/matrix/packing.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/background.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/analysis/operands.h"
#include "search_space/schedule/placement/gather_read.h"
#include "search_space/schedule/placement/materialize.h"
#include "search_space/sketch/matrix/matrix_kernel.h"

namespace heddle::search_space {
namespace {

// What a product whose factors are fetched element by element may take beside what it takes at
// best, as a multiple of that: tf32 at 4096 was 3.7 times as slow as where it is fetched in boxes.
constexpr double kMostSaved = 3;
constexpr int64_t kLine = 128;         // bytes that are fetched together
constexpr int64_t kLeastRowOfPad = 8;  // elements of a row for each that it is padded by
// How often each element of a tensor is read if a copy of all that is read is not worth its bytes.
constexpr int64_t kLeastReads = 2;

// The one load of a factor, where it has one, and no index: those are stored as they are.
Expr LoadOf(const Expr& value) {
  const std::vector<Expr> loads = LoadsIn(value);
  return loads.size() == 1 && IsValueLoad(loads[0]) ? loads[0] : nullptr;
}

class PackingFinder {
 public:
  PackingFinder(const ProgramShape& shape, const KernelShape& kernel, const MatrixKernel& product)
      : shape_(shape),
        sum_(shape.stage(kernel.reductions[0])),
        product_(product),
        operands_(OperandsOf(sum_)),
        takes_depth_only_(
            !IsHalf(product.Type()) &&
            ShapeOf(WarpgroupInstructions(product.Type())[0]).IsOn(product.kernel.target)) {}

  // What pays for itself. A tensor that both factors read gets one layout, if that suits both.
  std::vector<Packing> Find() const {
    std::vector<Packing> packs;
    for (size_t i = 0; i < 2; ++i) {
      std::optional<Packing> pack = Layout(i);
      if (pack.has_value()) {
        const bool is_shared = Reads(1 - i, pack->tensor);
        if (is_shared && (i == 1 || Layout(1) != pack)) continue;
      } else {
        pack = AsRead(i);
      }
      if (pack.has_value()) packs.push_back(*std::move(pack));
    }
    return packs;
  }

 private:
  const Expr& ValueOf(size_t i) const { return operands_.list[product_.factors[i].operand.number]; }
  const Var& VarOf(size_t axis) const {
    return axis < sum_.axes.size() ? sum_.axes[axis] : sum_.reduce_axes[axis - sum_.axes.size()];
  }

  // Another layout of the tensor that the factor is.
  std::optional<Packing> Layout(size_t i) const {
    const Factor& factor = product_.factors[i];
    const Expr load = LoadOf(ValueOf(i));
    if (load == nullptr || !IsStored(load->buffer) || !Pays(BytesOf(*load->buffer))) {
      return std::nullopt;
    }
    const bool is_fit = !takes_depth_only_ || product_.IsAlongDepth(i);
    const int64_t now = is_fit ? factor.vector : 0;
    const std::optional<Rows> depth = RowsAlong(load, product_.DepthAxis(), now);
    const std::optional<Rows> own =
        takes_depth_only_ ? std::nullopt : RowsAlong(load, factor.own, now);
    if (!depth.has_value() && !own.has_value()) return std::nullopt;
    const Rows rows = Better(*load, depth.value_or(*own), own.value_or(*depth));
    PackLayout pack{load->buffer->name, sum_.name(), {}, rows.pad};
    for (size_t d = 0; d < load->args.size(); ++d) {
      if (d != rows.dim) pack.order.push_back(static_cast<int64_t>(d));
    }
    pack.order.push_back(static_cast<int64_t>(rows.dim));
    return Packing{pack.tensor, {pack}};
  }

  // Rows of a copy: the dimension of the tensor that numbers their elements, and what they are
  // padded by.
  struct Rows {
    size_t dim;
    int64_t pad;
  };

  // What are rows already stays so; else those along the reduction, unless they are short.
  static Rows Better(const ExprNode& load, const Rows& depth, const Rows& own) {
    const size_t last = load.args.size() - 1;
    if (depth.dim == last || own.dim == last) return depth.dim == last ? depth : own;
    const auto row = [&](const Rows& r) { return load.buffer->shape[r.dim] * SizeOf(load.type); };
    return row(depth) < kLine && row(own) > row(depth) ? own : depth;
  }

  // The factor as it is read, where that is no box of a tensor, but one of the copy.
  std::optional<Packing> AsRead(size_t i) const {
    const Factor& factor = product_.factors[i];
    const std::vector<Expr> loads = LoadsIn(ValueOf(i));
    // An indicator is computed from less than it would be read from.
    const bool is_stored = !factor.is_boxed && !loads.empty();
    if (!HasBulkCopies(product_.kernel.target) || !is_stored) return std::nullopt;
    const bool is_fit = factor.axes.back() == product_.DepthAxis() ||
                        (factor.axes.back() == factor.own && !takes_depth_only_);
    if (!is_fit) return std::nullopt;
    std::vector<int64_t> shape;
    for (size_t axis : factor.axes) shape.push_back(VarOf(axis)->extent);
    const auto number = static_cast<int64_t>(factor.operand.number);
    const std::string name = absl::StrCat(sum_.name(), ".operand", number);
    const BufferRef copy = MakeBuffer(name, factor.operand.dtype, Scope::kGlobal, shape);
    if (ReadsEachOften(ValueOf(i), factor, *copy)) {
      const BufferRef& stage = ValueOf(i)->buffer;
      const int made_by = shape_.schedule.FindStage(stage.get());
      if (made_by >= 0 && shape_.stage(made_by).materialized) return std::nullopt;
      const std::vector<BufferRef>& inlined = factor.operand.inlined;
      const bool is_inlined = std::find(inlined.begin(), inlined.end(), stage) != inlined.end();
      if (is_inlined && Pays(BytesOf(*stage))) {
        return Packing{stage->name, {Materialize{stage->name}}};
      }
    }
    if (!IsBulkCopied(*copy) || !Pays(BytesOf(*copy))) return std::nullopt;
    return Packing{loads[0]->buffer->name, {GatherRead{sum_.name(), number}, Materialize{name}}};
  }

  // Is the factor elements of a tensor that the product reads several times each, as windows do, in
  // whole lines where the tensor is stored?
  bool ReadsEachOften(const Expr& value, const Factor& factor, const Buffer& copy) const {
    if (value->op != Op::kLoad || value->args.empty()) return false;
    const Expr& last = value->args.back();
    const bool is_row = IsVar(last, VarOf(product_.DepthAxis())) || IsVar(last, VarOf(factor.own));
    return is_row && value->buffer->shape.back() % ElementsOfAccess(factor.operand.dtype) == 0 &&
           kLeastReads * value->buffer->elements <= copy.elements;
  }

  bool Reads(size_t i, const std::string& tensor) const {
    const std::vector<Expr> loads = LoadsIn(ValueOf(i));
    return std::any_of(loads.begin(), loads.end(),
                       [&](const Expr& load) { return load->buffer->name == tensor; });
  }

  // Can the tensor be copied from where it is stored, or computed where it is copied?
  bool IsStored(const BufferRef& tensor) const {
    const int made_by = shape_.schedule.FindStage(tensor.get());
    return made_by < 0 ||
           (!shape_.stage(made_by).is_reduction() && shape_.stage(made_by).is_root());
  }

  // Rows along the dimension that `axis` alone numbers, if more of their elements are fetched at
  // once than `now`, or if bulk copies fetch boxes of them once they are padded.
  std::optional<Rows> RowsAlong(const Expr& load, size_t axis, int64_t now) const {
    const Var& var = VarOf(axis);
    std::optional<size_t> found;
    for (size_t d = 0; d < load->args.size(); ++d) {
      const Expr& index = load->args[d];
      if (!MentionsAny(index, {var.get()})) continue;
      if (found.has_value() || index->op != Op::kVar) return std::nullopt;
      found = d;
    }
    if (!found.has_value()) return std::nullopt;
    const int64_t extent = load->buffer->shape[*found], access = ElementsOfAccess(load->type);
    const int64_t vector = std::gcd(extent, access), pad = PadOf(extent, load->type);
    const bool is_box = std::all_of(load->args.begin(), load->args.end(),
                                    [](const Expr& index) { return index->op == Op::kVar; });
    if (now < access && pad > 0 && is_box && HasBulkCopies(product_.kernel.target)) {
      return Rows{*found, pad};
    }
    return vector > now ? std::optional(Rows{*found, 0}) : std::nullopt;
  }

  // What rows of so many elements are padded by, so that bulk copies take them; 0 where rows are
  // too short for that. To whole lines where they are long enough: of a row that begins anywhere
  // else each box takes a line more.
  static int64_t PadOf(int64_t extent, DType type) {
    for (int64_t unit : {kLine / SizeOf(type), ElementsOfAccess(type)}) {
      const int64_t pad = RoundUp(extent, unit) - extent;
      if (pad * kLeastRowOfPad <= extent) return pad;
    }
    return 0;
  }

  // Does copying so much take less than it can save?
  bool Pays(double copied) const {
    const Target& target = product_.kernel.target;
    double terms = 1, bytes = BytesOf(*product_.kernel.root.tensor);
    for (const auto* axes : {&product_.kernel.axes, &product_.kernel.reduce_axes}) {
      for (const TiledAxis& axis : *axes) terms *= static_cast<double>(axis.extent);
    }
    for (size_t i = 0; i < 2; ++i) {
      for (const Expr& load : LoadsIn(ValueOf(i))) bytes += BytesOf(*load->buffer);
    }
    const double bytes_per_us = target.memory_gbs * 1e3;
    const double at_best =
        std::max(2 * terms / (MatrixGflops(target, product_.Type()) * 1e3), bytes / bytes_per_us);
    return kLaunchUs + 2 * copied / bytes_per_us <= kMostSaved * at_best;
  }

  const ProgramShape& shape_;
  const ScheduledStage& sum_;
  const MatrixKernel& product_;
  const Operands operands_;
  // Do instructions of warpgroups take factors along the reduction alone?
  const bool takes_depth_only_;
};

}  // namespace

bool Packing::operator==(const Packing& other) const {
  return tensor == other.tensor && ToString(steps) == ToString(other.steps);
}

std::vector<std::vector<Packing>> PackingsOf(const ProgramShape& shape, const Target& target) {
  std::vector<Packing> all;
  bool is_one_product = true;
  for (const KernelShape& kernel : shape.kernels) {
    const auto product = MatrixKernel::Find(shape, kernel, target, false);
    if (!product.has_value()) continue;
    const std::vector<Packing> packs = PackingFinder(shape, kernel, *product).Find();
    is_one_product = is_one_product && (all.empty() || packs.empty());
    for (const Packing& pack : packs) {
      if (std::find(all.begin(), all.end(), pack) == all.end()) all.push_back(pack);
    }
  }
  if (all.empty()) return {};
  std::vector<std::vector<Packing>> choices = {all};
  if (!is_one_product || all.size() == 1) return choices;
  for (const Packing& alone : all) choices.push_back({alone});
  return choices;
}

}  // namespace heddle::search_space
