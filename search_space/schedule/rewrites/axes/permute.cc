#include "search_space/schedule/rewrites/axes/permute.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/whole_factors.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

// Terms that units for matrices multiply at once.
constexpr int64_t kFewestChannels = 16;
// That a thread reads at once.
constexpr int64_t kAccessBytes = 16;

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
std::optional<Order> OrderOfElements(const Stage& reader, const Expr& load) {
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
      return is_one || IsVar(index, own);
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

// The tensors that a reduction reduces, where each has all its axes, as the rows of which a norm's
// squares are added up; none where one lacks some, as each factor of a product does.
std::vector<const Buffer*> RowsReducedBy(const Stage& stage) {
  std::vector<const Buffer*> rows;
  bool are_rows = true;
  Visit(stage.body, [&](const Expr& load) {
    if (load->op != Op::kLoad || !are_rows) return;
    const auto has = [&](const Var& axis) {
      return axis->extent == 1 || MentionsAny(load, {axis.get()});
    };
    const bool is_reduced =
        std::any_of(stage.reduce_axes.begin(), stage.reduce_axes.end(),
                    [&](const Var& axis) { return MentionsAny(load, {axis.get()}); });
    if (!is_reduced) return;
    are_rows = std::all_of(stage.axes.begin(), stage.axes.end(), has);
    rows.push_back(load->buffer.get());
  });
  return are_rows ? rows : std::vector<const Buffer*>();
}
// Of all reductions of rows.
using RowsOfReductions = absl::flat_hash_map<const Stage*, std::vector<const Buffer*>>;

RowsOfReductions RowsReducedIn(const TensorProgram& program) {
  RowsOfReductions all;
  for (const Stage& stage : program.stages) {
    std::vector<const Buffer*> rows;
    if (stage.is_reduction()) rows = RowsReducedBy(stage);
    if (!rows.empty()) all[&stage] = std::move(rows);
  }
  return all;
}

// The dimensions of a tensor that a reader with some of its axes as indices reads, in the order of
// `axes`; none where it reads it otherwise.
std::optional<Order> OrderAlong(const std::vector<Var>& axes, const Expr& load) {
  Order order;
  for (const Var& axis : axes) {
    for (size_t d = 0; d < load->args.size(); ++d) {
      const Expr& index = load->args[d];
      if (IsVar(index, axis)) order.push_back(d);
    }
  }
  return order.size() == load->args.size() ? std::optional(order) : std::nullopt;
}

// What the readers of each tensor say of its dimensions.
class ReadOrders {
 public:
  // `stages` keep the order that they have.
  ReadOrders(const TensorProgram& program, const RowsOfReductions& rows,
             const absl::flat_hash_set<const Buffer*>& stages)
      : program_(program), rows_(rows) {
    for (const Buffer* stage : stages) reads_[stage] = {};
  }

  // None where they do not agree, or nothing but reductions reads it.
  std::optional<Order> Of(const Buffer* tensor) const {
    const auto read = reads_.find(tensor);
    if (read == reads_.end() || !read->second.is_read_elementwise) return std::nullopt;
    return read->second.order;
  }

  // `own`: the order into which the reader's axes are put, where they are.
  void Add(const Stage& reader, const std::optional<Order>& own) {
    Visit(reader.body, [&](const Expr& load) {
      if (load->op != Op::kLoad) return;
      const std::optional<Order> order = OrderIn(reader, own, load);
      const auto [known, is_new] = reads_.emplace(load->buffer.get(), Read{order});
      Read& read = known->second;
      if (!is_new && read.order != order) read.order.reset();
      read.is_read_elementwise = read.is_read_elementwise || !reader.is_reduction();
    });
  }

 private:
  struct Read {
    std::optional<Order> order;
    bool is_read_elementwise = false;
  };

  std::optional<Order> OrderIn(const Stage& reader, const std::optional<Order>& own,
                               const Expr& load) const {
    const bool has_all = reader.axes.size() == load->args.size();
    if (!reader.is_reduction() && has_all) {
      const std::optional<Order> order = OrderOfElements(reader, load);
      if (!order.has_value() || !own.has_value()) return order;
      Order moved;
      for (const size_t axis : *own) moved.push_back((*order)[axis]);
      return moved;
    }
    // Of what is no row, as of a product's result, some layouts are slower to store than others.
    const Stage* const read = program_.FindStage(load->buffer.get());
    const bool is_row = read != nullptr && (!read->is_reduction() || rows_.contains(read));
    if (reader.is_reduction() ? !rows_.contains(&reader) : !is_row) return std::nullopt;
    std::vector<Var> axes = reader.axes;
    for (size_t a = 0; own.has_value() && a < axes.size(); ++a) axes[a] = reader.axes[(*own)[a]];
    axes.insert(axes.end(), reader.reduce_axes.begin(), reader.reduce_axes.end());
    return OrderAlong(axes, load);
  }

  const TensorProgram& program_;
  const RowsOfReductions& rows_;
  absl::flat_hash_map<const Buffer*, Read> reads_;
};

// The orders of the stages that have another one than their own, those that others read behind the
// others.
using StageOrders = std::vector<std::pair<const Stage*, Order>>;

StageOrders OrdersBut(const TensorProgram& program, const RowsOfReductions& rows,
                      const absl::flat_hash_set<const Buffer*>& kept) {
  ReadOrders reads(program, rows, kept);
  StageOrders orders;
  // Readers come behind what they read, so that their own orders are known first.
  for (auto stage = program.stages.rbegin(); stage != program.stages.rend(); ++stage) {
    std::optional<Order> order;
    if (!stage->is_output) order = reads.Of(stage->tensor.get());
    if (order.has_value() && std::is_sorted(order->begin(), order->end())) order.reset();
    if (order.has_value()) orders.emplace_back(&*stage, *order);
    reads.Add(*stage, order);
  }
  return orders;
}

// Reductions of other stages' rows that keep their order, which keep theirs, too.
std::vector<const Stage*> ReductionsOfKept(const TensorProgram& program,
                                           const RowsOfReductions& rows,
                                           const StageOrders& orders) {
  absl::flat_hash_set<const Buffer*> moved;
  for (const auto& [stage, order] : orders) moved.insert(stage->tensor.get());
  const auto is_kept = [&](const Buffer* tensor) {
    return !moved.contains(tensor) && program.FindStage(tensor) != nullptr;
  };
  std::vector<const Stage*> found;
  for (const auto& [stage, order] : orders) {
    const auto reduced = rows.find(stage);
    if (reduced == rows.end()) continue;
    if (std::any_of(reduced->second.begin(), reduced->second.end(), is_kept)) {
      found.push_back(stage);
    }
  }
  return found;
}

// Has the factor a matrix for each of a batch: rows of its own, that are no windows which a
// convolution moves along them?
bool IsMatrix(const Stage& product, const Expr& factor, const Expr& other) {
  const auto mentions_term = [&](const Expr& index) {
    return std::any_of(product.reduce_axes.begin(), product.reduce_axes.end(),
                       [&](const Var& axis) { return MentionsAny(index, {axis.get()}); });
  };
  bool has_rows = false, is_window = false;
  for (const Var& axis : product.axes) {
    if (axis->extent == 1 || MentionsAny(other, {axis.get()})) continue;
    for (const Expr& index : factor->args) {
      const bool is_row = MentionsAny(index, {axis.get()});
      has_rows = has_rows || is_row;
      is_window = is_window || (is_row && mentions_term(index));
    }
  }
  return has_rows && !is_window;
}

// The dimension of what a sum of products loads that numbers terms by itself, where another one is
// a window's; none otherwise.
std::optional<size_t> TermsBesideWindow(const Stage& sum, const Expr& load) {
  const auto mentions_term = [&](const Expr& index) {
    return std::any_of(sum.reduce_axes.begin(), sum.reduce_axes.end(),
                       [&](const Var& axis) { return MentionsAny(index, {axis.get()}); });
  };
  bool has_window = false;
  std::optional<size_t> terms;
  for (size_t d = 0; d < load->args.size(); ++d) {
    const Expr& index = load->args[d];
    if (!mentions_term(index)) continue;
    if (index->op != Op::kVar) {
      has_window = true;
    } else if (terms.has_value() || index->var->extent != load->buffer->shape[d]) {
      return std::nullopt;
    } else {
      terms = d;
    }
  }
  const bool fills = terms.has_value() && load->buffer->shape[*terms] >= kFewestChannels;
  return has_window && fills ? terms : std::nullopt;
}

// The dimension that numbers the terms of all sums of products that read the stage in windows, two
// at least, where nobody else reads it; none otherwise.
std::optional<size_t> TermsOfSharedWindows(const TensorProgram& program, const Stage& stage) {
  if (stage.is_output || stage.is_reduction() || !IsHalf(stage.tensor->dtype)) return std::nullopt;
  std::optional<size_t> terms;
  size_t readers = 0;
  for (const Stage& reader : program.stages) {
    if (!ReadsAny(reader.body, {stage.tensor.get()})) continue;
    ++readers;
    const std::vector<Expr> loads = LoadsIn(reader.body);
    if (!AddsUpProducts(reader) || loads.size() != 2) return std::nullopt;
    for (const Expr& load : loads) {
      if (load->buffer != stage.tensor) continue;
      const std::optional<size_t> here = TermsBesideWindow(reader, load);
      if (!here.has_value() || (terms.has_value() && terms != here)) return std::nullopt;
      terms = here;
    }
  }
  return readers > 1 ? terms : std::nullopt;
}

// The dimension of the elementwise stage's tensor that numbers the terms of all that read it, sums
// of products alone, where it is not the last, at whose ends no vectors end; none otherwise.
std::optional<size_t> TermsOfProducts(const TensorProgram& program, const Stage& stage) {
  const int64_t vector = kAccessBytes / SizeOf(stage.tensor->dtype);
  if (stage.is_output || stage.is_reduction() || !IsHalf(stage.tensor->dtype) ||
      stage.axes.empty() || stage.axes.back()->extent % vector == 0) {
    return std::nullopt;
  }
  std::optional<size_t> terms;
  bool are_all = true;
  const auto add = [&](const Stage& reader, const Expr& load) {
    std::optional<size_t> here;
    for (size_t d = 0; d + 1 < load->args.size(); ++d) {
      const Expr& index = load->args[d];
      const bool is_term = std::any_of(reader.reduce_axes.begin(), reader.reduce_axes.end(),
                                       [&](const Var& axis) { return IsVar(index, axis); }) &&
                           index->var->extent == load->buffer->shape[d];
      if (is_term) here = d;
    }
    are_all = are_all && here.has_value() && (!terms.has_value() || terms == here);
    terms = here;
  };
  for (const Stage& reader : program.stages) {
    if (!ReadsAny(reader.body, {stage.tensor.get()})) continue;
    if (reader.combiner != Combiner::kSum || reader.body->op != Op::kMul) return std::nullopt;
    for (const Expr& load : LoadsIn(reader.body)) {
      if (load->buffer == stage.tensor) add(reader, load);
    }
  }
  if (!are_all || !terms.has_value()) return std::nullopt;
  const int64_t extent = stage.tensor->shape[*terms];
  return extent >= kFewestChannels && extent % vector == 0 ? terms : std::nullopt;
}

// Do several stages read it, or is it made of a reduction, in whose kernel it is stored?
bool IsStoredOnce(const TensorProgram& program, const Stage& stage) {
  const auto reads_it = [&](const Stage& reader) {
    return ReadsAny(reader.body, {stage.tensor.get()});
  };
  if (std::count_if(program.stages.begin(), program.stages.end(), reads_it) > 1) return true;
  return std::any_of(program.stages.begin(), program.stages.end(), [&](const Stage& read) {
    return read.is_reduction() && ReadsAny(stage.body, {read.tensor.get()});
  });
}

// The stage's axes with that one last.
AxisOrder WithLast(const Stage& stage, size_t last) {
  AxisOrder order{stage.name(), {}};
  for (size_t d = 0; d < stage.axes.size(); ++d) {
    if (d != last) order.axes.push_back(stage.axes[d]->name);
  }
  order.axes.push_back(stage.axes[last]->name);
  return order;
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
  const RowsOfReductions rows = RowsReducedIn(program);
  absl::flat_hash_set<const Buffer*> kept;
  StageOrders orders = OrdersBut(program, rows, kept);
  // Each turn keeps a stage at least.
  for (std::vector<const Stage*> more; !(more = ReductionsOfKept(program, rows, orders)).empty();) {
    for (const Stage* stage : more) kept.insert(stage->tensor.get());
    orders = OrdersBut(program, rows, kept);
  }
  std::vector<AxisOrder> found;
  for (const auto& [stage, order] : orders) {
    AxisOrder& as_read = found.emplace_back(AxisOrder{stage->name(), {}});
    for (const size_t d : order) as_read.axes.push_back(stage->axes[d]->name);
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
    if (!IsMatrix(stage, loads[0], loads[1]) || !IsMatrix(stage, loads[1], loads[0])) continue;
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

std::vector<std::string> StagesOfSharedWindows(const TensorProgram& program) {
  std::vector<std::string> found;
  for (const Stage& stage : program.stages) {
    if (TermsOfSharedWindows(program, stage).has_value()) found.push_back(stage.name());
  }
  return found;
}

std::vector<AxisOrder> OrdersOfWindows(const TensorProgram& program) {
  std::vector<AxisOrder> found;
  for (const Stage& stage : program.stages) {
    const std::optional<size_t> terms = TermsOfSharedWindows(program, stage);
    if (!terms.has_value() || *terms + 1 == stage.axes.size()) continue;
    found.push_back(WithLast(stage, *terms));
  }
  return found;
}

std::vector<AxisOrder> OrdersOfTerms(const TensorProgram& program) {
  std::vector<AxisOrder> found;
  for (const Stage& stage : program.stages) {
    const std::optional<size_t> terms = TermsOfProducts(program, stage);
    if (terms.has_value() && IsStoredOnce(program, stage)) {
      found.push_back(WithLast(stage, *terms));
    }
  }
  return found;
}

absl::Status PermuteAxes::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, [&](const TensorProgram& program, const std::string& name) {
    return WithPermutedAxes(program, name, axes);
  });
}

}  // namespace heddle::search_space
