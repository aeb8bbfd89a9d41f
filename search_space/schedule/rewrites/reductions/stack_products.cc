#include "search_space/schedule/rewrites/reductions/stack_products.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
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
    made_ = MadeOf(number_);
    for (const size_t own : {size_t{1}, size_t{0}}) {
      own_ = own;
      stacked_ = {number_};
      loads_ = {OwnLoadOf(stage.body->args[own])};
      if (loads_[0] == nullptr) continue;
      for (size_t o = number_ + 1; o < program_.stages.size(); ++o) {
        const bool may_go =
            std::ssize(stacked_) < kMostPartsRead && IsStackable(program_.stages[o]);
        if (may_go && AreReadTogether(o)) Add(o);
      }
      if (stacked_.size() > 1) return Made();
    }
    return nullptr;
  }

 private:
  // The elementwise stages that read the product, themselves or through others of these.
  std::vector<size_t> MadeOf(size_t product) const {
    std::vector<size_t> made;
    absl::flat_hash_set<const Buffer*> tensors = {program_.stages[product].tensor.get()};
    for (size_t s = product + 1; s < program_.stages.size(); ++s) {
      const Stage& reader = program_.stages[s];
      if (reader.is_reduction() || !ReadsAny(reader.body, tensors)) continue;
      made.push_back(s);
      tensors.insert(reader.tensor.get());
    }
    return made;
  }
  // Does one elementwise stage read both, itself or through others?
  bool AreReadTogether(size_t other) const {
    if (made_.empty()) return false;
    const std::vector<size_t> made = MadeOf(other);
    return std::any_of(made.begin(), made.end(), [&](size_t s) {
      return std::find(made_.begin(), made_.end(), s) != made_.end();
    });
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
  std::vector<size_t> made_;     // elementwise stages of the first one
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
