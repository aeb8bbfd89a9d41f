#include "search_space/schedule/rewrites/reductions/stack_products.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/axes/split_axis.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

// Of all definitions together: every pair of products is compared.
constexpr int64_t kMostNodesOfStacked = 2000;

bool IsStackable(const Stage& stage) {
  return stage.combiner == Combiner::kSum && !stage.is_output && stage.body->op == Op::kMul &&
         IsFloat(stage.body->type);
}

// The load of a factor that is an element of a tensor, converted perhaps; null of another one.
Expr OwnLoadOf(const Expr& factor) {
  const Expr& value = WithoutCast(factor);
  return value->op == Op::kLoad ? value : nullptr;
}

// With another element in its place.
Expr WithOwnLoad(const Expr& factor, Expr load) {
  return factor->op == Op::kCast ? Cast(factor->type, std::move(load)) : load;
}

class Stacker {
 public:
  Stacker(const TensorProgram& program, size_t number) : program_(program), number_(number) {}

  // Null where nothing goes with the product.
  std::shared_ptr<const TensorProgram> Run() {
    const Stage& stage = program_.stages[number_];
    if (!IsStackable(stage)) return nullptr;
    const std::optional<size_t> end = EndOf(number_);
    if (!end.has_value()) return nullptr;
    for (const size_t own : {size_t{1}, size_t{0}}) {
      own_ = own;
      stacked_ = {number_};
      loads_ = {OwnLoadOf(stage.body->args[own])};
      if (loads_[0] == nullptr) continue;
      for (size_t o = number_ + 1; o < program_.stages.size(); ++o) {
        const bool may_go =
            std::ssize(stacked_) < kMostPartsRead && IsStackable(program_.stages[o]);
        if (may_go && EndOf(o) == end) Add(o);
      }
      if (stacked_.size() > 1) return Made();
    }
    return nullptr;
  }

 private:
  // The elementwise stage that the product's only reader, or the only reader of that and so on,
  // ends with: others than elementwise stages read it, or several, or it is an output.
  std::optional<size_t> EndOf(size_t product) const {
    size_t end = product;
    while (!program_.stages[end].is_output) {
      const std::optional<size_t> reader = OnlyReaderOf(program_.stages[end].tensor.get());
      if (!reader.has_value() || program_.stages[*reader].is_reduction()) break;
      end = *reader;
    }
    return end == product ? std::nullopt : std::optional(end);
  }
  std::optional<size_t> OnlyReaderOf(const Buffer* tensor) const {
    std::optional<size_t> only;
    for (size_t s = 0; s < program_.stages.size(); ++s) {
      if (!ReadsAny(program_.stages[s].body, {tensor})) continue;
      if (only.has_value()) return std::nullopt;
      only = s;
    }
    return only;
  }

  // Adds a product behind the first one that shares a factor with it.
  void Add(size_t o) {
    const Stage &stage = program_.stages[number_], &other = program_.stages[o];
    if (other.tensor->dtype != stage.tensor->dtype || other.tensor->shape != stage.tensor->shape ||
        other.reduce_axes.size() != stage.reduce_axes.size()) {
      return;
    }
    for (size_t r = 0; r < stage.reduce_axes.size(); ++r) {
      if (other.reduce_axes[r]->extent != stage.reduce_axes[r]->extent) return;
    }
    const Expr& own = stage.body->args[own_];
    const Expr& shared = stage.body->args[1 - own_];
    for (const size_t side : {0, 1}) {
      const Expr here = Renamed(other, other.body->args[side]);
      const Expr load = OwnLoadOf(here);
      if (load == nullptr || !StructurallyEqual(Renamed(other, other.body->args[1 - side]), shared))
        continue;
      const Expr& first = loads_[0];
      const bool is_alike = here->op == own->op && here->type == own->type &&
                            load->type == first->type &&
                            load->buffer->shape == first->buffer->shape &&
                            load->buffer->dtype == first->buffer->dtype &&
                            std::equal(load->args.begin(), load->args.end(), first->args.begin(),
                                       first->args.end(), StructurallyEqual);
      if (!is_alike || !IsThere(load->buffer.get())) continue;
      stacked_.push_back(o);
      loads_.push_back(load);
      return;
    }
  }
  // In the first product's axes.
  Expr Renamed(const Stage& other, const Expr& e) const {
    const Stage& stage = program_.stages[number_];
    return Substitute(e, [&](const Var& v) -> Expr {
      for (size_t a = 0; a < other.axes.size(); ++a) {
        if (other.axes[a] == v) return VarExpr(stage.axes[a]);
      }
      for (size_t r = 0; r < other.reduce_axes.size(); ++r) {
        if (other.reduce_axes[r] == v) return VarExpr(stage.reduce_axes[r]);
      }
      return nullptr;
    });
  }
  // Is it an input, or computed in front of the first product?
  bool IsThere(const Buffer* tensor) const {
    for (size_t s = number_; s < program_.stages.size(); ++s) {
      if (program_.stages[s].tensor.get() == tensor) return false;
    }
    return true;
  }

  std::shared_ptr<const TensorProgram> Made() const {
    const auto count = static_cast<int64_t>(stacked_.size());
    Stage made = program_.stages[number_];
    const Var place = MakeVar(absl::StrCat(made.name(), ".place"), count);
    Expr load = loads_.back();
    for (size_t i = loads_.size() - 1; i-- > 0;) {
      load = Select(VarExpr(place) < Int(static_cast<int64_t>(i) + 1), loads_[i], load);
    }
    ExprList factors = made.body->args;
    factors[own_] = WithOwnLoad(factors[own_], load);
    made.body = MakeExpr(Op::kMul, std::move(factors));
    made.axes.insert(made.axes.begin(), place);
    std::vector<int64_t> shape = made.tensor->shape;
    shape.insert(shape.begin(), count);
    made.tensor = MakeBuffer(made.name(), made.tensor->dtype, made.tensor->scope, std::move(shape));
    auto with = std::make_shared<TensorProgram>(program_);
    for (size_t s = 0; s < with->stages.size(); ++s) {
      Stage& reader = with->stages[s];
      reader.body = Rewrite(reader.body, [&](const Expr& e) -> Expr {
        for (size_t i = 0; e->op == Op::kLoad && i < stacked_.size(); ++i) {
          if (e->buffer != program_.stages[stacked_[i]].tensor) continue;
          ExprList indices = e->args;
          indices.insert(indices.begin(), Int(static_cast<int64_t>(i)));
          return Load(made.tensor, std::move(indices));
        }
        return nullptr;
      });
    }
    with->stages[number_] = std::move(made);
    for (size_t i = stacked_.size(); i-- > 1;) {
      with->stages.erase(with->stages.begin() + static_cast<std::ptrdiff_t>(stacked_[i]));
    }
    return with;
  }

  const TensorProgram& program_;
  const size_t number_;
  size_t own_ = 1;               // the factor that each product has alone
  std::vector<size_t> stacked_;  // stages
  std::vector<Expr> loads_;      // of each its own factor, in the first one's axes
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithStackedProducts(
    const TensorProgram& program, const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  int64_t nodes = 0;
  for (const Stage& stage : program.stages) nodes += NodesOf(stage.body);
  auto stacked = nodes <= kMostNodesOfStacked ? Stacker(program, number).Run() : nullptr;
  if (stacked != nullptr) return stacked;
  return absl::InvalidArgumentError(absl::StrCat(
      name, " is no product that shares a factor with another one of which the same is made"));
}

absl::Status StackProducts::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithStackedProducts);
}

}  // namespace heddle::search_space
