#include "search_space/schedule/permute.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "search_space/ir/float_format.h"
#include "search_space/ir/simplify.h"
#include "search_space/schedule/operands.h"
#include "search_space/schedule/stage_number.h"

namespace heddle::search_space {
namespace {

// Of each of a stage's axes, which one of the tensor's dimensions it numbers.
using Order = std::vector<size_t>;

// Does the index depend on this axis of the stage, and on no other?
bool IsOfAxisAlone(const Stage& stage, const Expr& index, const Var& axis) {
  return std::all_of(stage.axes.begin(), stage.axes.end(), [&](const Var& own) {
    return MentionsAny(index, {own.get()}) == (own == axis);
  });
}

// That of `reader`, at whose own element the tensor is read; none where it is read otherwise. Of
// axes of one element the index may be 0, and along one axis it may be another place, as that of
// the other half.
std::optional<Order> OrderIn(const Stage& reader, const Expr& load) {
  if (reader.is_reduction() || reader.axes.size() != load->args.size()) return std::nullopt;
  const size_t none = load->args.size();
  Order order(reader.axes.size(), none);
  const auto find = [&](size_t axis, const auto& is_axis) {
    for (size_t d = 0; d < load->args.size() && order[axis] == none; ++d) {
      const bool is_taken = std::find(order.begin(), order.end(), d) != order.end();
      if (!is_taken && is_axis(reader.axes[axis], d)) order[axis] = d;
    }
  };
  for (size_t axis = 0; axis < order.size(); ++axis) {
    find(axis, [&](const Var& own, size_t d) {
      const Expr& index = load->args[d];
      const bool is_one = own->extent == 1 && load->buffer->shape[d] == 1 && IsInt(index, 0);
      return is_one || (index->op == Op::kVar && index->var == own);
    });
  }
  const auto left = std::find(order.begin(), order.end(), none);
  if (left == order.end()) return order;
  find(static_cast<size_t>(left - order.begin()), [&](const Var& own, size_t d) {
    return load->buffer->shape[d] == own->extent && IsOfAxisAlone(reader, load->args[d], own);
  });
  if (std::find(order.begin(), order.end(), none) != order.end()) return std::nullopt;
  return order;
}

// What readers say of a tensor: no order where they do not agree.
using Orders = absl::flat_hash_map<const Buffer*, std::optional<Order>>;

// `own`: the order into which the reader's axes are put, where they are.
void AddReads(const Stage& reader, const std::optional<Order>& own, Orders& orders) {
  Visit(reader.body, [&](const Expr& load) {
    if (load->op != Op::kLoad) return;
    std::optional<Order> order = OrderIn(reader, load);
    if (order.has_value() && own.has_value()) {
      Order moved;
      for (const size_t axis : *own) moved.push_back((*order)[axis]);
      order = std::move(moved);
    }
    const auto [known, is_new] = orders.emplace(load->buffer.get(), order);
    if (!is_new && known->second != order) known->second.reset();
  });
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithPermutedAxes(
    const TensorProgram& program, const std::string& name, const std::vector<std::string>& axes) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  auto permuted = std::make_shared<TensorProgram>(program);
  Stage* const stage = &permuted->stages[number];
  if (stage->is_output) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is an output"));
  }
  const Stage before = *stage;
  Order order;
  for (const std::string& axis : axes) {
    const auto at = std::find_if(before.axes.begin(), before.axes.end(),
                                 [&](const Var& own) { return own->name == axis; });
    const auto number = static_cast<size_t>(at - before.axes.begin());
    if (at == before.axes.end() || std::find(order.begin(), order.end(), number) != order.end()) {
      break;
    }
    order.push_back(number);
  }
  if (order.size() != axes.size() || order.size() != before.axes.size()) {
    const std::string own = absl::StrJoin(
        before.axes, ", ", [](std::string* out, const Var& axis) { out->append(axis->name); });
    return absl::InvalidArgumentError(
        absl::StrCat("the axes of ", name, " are ", own, ", each of which is named once"));
  }
  std::vector<int64_t> shape;
  for (size_t d = 0; d < order.size(); ++d) {
    stage->axes[d] = before.axes[order[d]];
    shape.push_back(stage->axes[d]->extent);
  }
  stage->tensor = MakeBuffer(name, before.tensor->dtype, before.tensor->scope, std::move(shape));
  for (Stage& reader : permuted->stages) {
    reader.body = Rewrite(reader.body, [&](const Expr& e) -> Expr {
      if (e->op != Op::kLoad || e->buffer != before.tensor) return nullptr;
      ExprList indices;
      for (const size_t d : order) indices.push_back(e->args[d]);
      return Load(stage->tensor, std::move(indices));
    });
  }
  return permuted;
}

std::vector<AxisOrder> OrdersOfReaders(const TensorProgram& program) {
  Orders orders;
  std::vector<AxisOrder> found;
  // Readers come behind what they read, so that their own orders are known first.
  for (auto stage = program.stages.rbegin(); stage != program.stages.rend(); ++stage) {
    const auto known = orders.find(stage->tensor.get());
    std::optional<Order> order;
    if (known != orders.end() && !stage->is_output) order = known->second;
    if (order.has_value() && std::is_sorted(order->begin(), order->end())) order.reset();
    if (order.has_value()) {
      AxisOrder& as_read = found.emplace_back(AxisOrder{stage->name(), {}});
      for (const size_t d : *order) as_read.axes.push_back(stage->axes[d]->name);
    }
    AddReads(*stage, order, orders);
  }
  return found;
}

std::vector<AxisOrder> OrdersOfBatches(const TensorProgram& program) {
  std::vector<AxisOrder> found;
  for (const Stage& stage : program.stages) {
    if (stage.combiner != Combiner::kSum || stage.body->op != Op::kMul || stage.is_output) continue;
    const std::vector<Expr> loads = LoadsIn(stage.body);
    const auto is_half = [](const Expr& load) { return IsHalf(load->type); };
    if (loads.size() != 2 || !std::all_of(loads.begin(), loads.end(), is_half)) continue;
    const auto have_both = [&](const Var& axis) {
      return MentionsAny(loads[0], {axis.get()}) && MentionsAny(loads[1], {axis.get()});
    };
    size_t rows = stage.axes.size();
    while (rows > 0 && have_both(stage.axes[rows - 1])) --rows;
    if (rows == 0 || rows == stage.axes.size()) continue;
    AxisOrder& order = found.emplace_back(AxisOrder{stage.name(), {}});
    for (size_t d = 0; d < stage.axes.size(); ++d) {
      order.axes.push_back(stage.axes[(rows + d) % stage.axes.size()]->name);
    }
  }
  return found;
}

}  // namespace heddle::search_space
