#include "search_space/schedule/rewrites/axes/split_axis.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

// Of an index, where it lies behind the split: the number of the block, and the place in it.
struct BlockAndPlace {
  Expr block, place;
};

BlockAndPlace SplitOf(const Expr& index, int64_t width) {
  return {Simplify(index / Int(width)), Simplify(index % Int(width))};
}

// Is the index one that goes through all places of one block, or one place of all blocks?
bool IsAtFixedPart(const Stage& reader, const BlockAndPlace& index) {
  const auto is_axis = [&](const Expr& e) {
    return IsOneOf(e, reader.axes) || IsOneOf(e, reader.reduce_axes);
  };
  return (index.block->op == Op::kInt && is_axis(index.place)) ||
         (index.place->op == Op::kInt && is_axis(index.block));
}

// The one axis of a reader that an index goes through. By blocks: at its own place, in its own
// block or another one, such as (x + d / 2) % d for the other half of x. By places: in its own
// block, such as x / 2 * 2 + (x + 1) % 2 for its neighbour in a pair.
struct OtherOrder {
  Var axis;
  bool by_blocks, by_places;
};

std::optional<OtherOrder> OtherOrderOf(const Stage& reader, const Expr& index, int64_t width) {
  Var axis;
  if (ReadsIndices(index)) return std::nullopt;
  for (const auto* axes : {&reader.axes, &reader.reduce_axes}) {
    for (const Var& own : *axes) {
      if (!MentionsAny(index, {own.get()})) continue;
      if (axis != nullptr || axes == &reader.reduce_axes) return std::nullopt;
      axis = own;
    }
  }
  if (axis == nullptr || axis->extent % width != 0 || axis->extent == width) return std::nullopt;
  const Var block = MakeVar(axis->name, axis->extent / width), place = MakeVar("place", width);
  const auto parts = [&](const Var& var) -> Expr {
    return var == axis ? VarExpr(block) * Int(width) + VarExpr(place) : nullptr;
  };
  const BlockAndPlace split = SplitOf(Substitute(index, parts), width);
  const OtherOrder order{axis,
                         IsVar(split.place, place) && !MentionsAny(split.block, {place.get()}),
                         IsVar(split.block, block) && !MentionsAny(split.place, {block.get()})};
  return order.by_blocks || order.by_places ? std::optional(order) : std::nullopt;
}

// Which axes of a program's stages are split because one is.
class SplitAxes {
 public:
  SplitAxes(const TensorProgram& program, int64_t width) : program_(program), width_(width) {}

  // Adds axis `axis` of `stage` and those of all that reads the stage's elements along it, and then
  // of what it reads itself, where all readers of that allow it. False where the first cannot be;
  // then nothing of this object holds.
  bool Add(const Stage& stage, const Var& axis) {
    if (!AddWithReaders(stage, axis)) return false;
    // Readers come behind what they read, so that one walk from the last to the first finds all.
    for (auto reader = program_.stages.rbegin(); reader != program_.stages.rend(); ++reader) {
      Visit(reader->body, [&](const Expr& load) {
        if (load->op != Op::kLoad) return;
        const Stage* read = program_.FindStage(load->buffer.get());
        for (size_t d = 0; read != nullptr && d < load->args.size(); ++d) {
          if (load->args[d]->op != Op::kVar || !Has(load->args[d]->var)) continue;
          SplitAxes more = *this;
          if (more.AddWithReaders(*read, read->axes[d])) axes_ = std::move(more.axes_);
        }
      });
    }
    for (size_t before = 0; before != axes_.size();) {
      before = axes_.size();
      for (const BufferRef& input : program_.inputs) AddReductionsOf(input);
    }
    return true;
  }

  bool Has(const Var& axis) const { return axes_.contains(axis.get()); }

  // Is dimension `dim` of the input only ever read along axes that are split, as long as it is?
  bool HasDim(const BufferRef& input, size_t dim) const {
    bool any = false, all = true;
    for (const Stage& reader : program_.stages) {
      Visit(reader.body, [&](const Expr& load) {
        if (load->op != Op::kLoad || load->buffer != input) return;
        const Expr& index = load->args[dim];
        any = true;
        all = all && index->op == Op::kVar && Has(index->var) &&
              index->var->extent == input->shape[dim];
      });
    }
    return any && all;
  }

 private:
  // Of an input that is read along split axes, the axes along which reductions go through it.
  void AddReductionsOf(const BufferRef& input) {
    for (size_t d = 0; d < input->shape.size(); ++d) {
      bool is_split = false;
      std::vector<const Variable*> reduced;
      for (const Stage& reader : program_.stages) {
        Visit(reader.body, [&](const Expr& load) {
          if (load->op != Op::kLoad || load->buffer != input) return;
          const Expr& index = load->args[d];
          if (index->op != Op::kVar || index->var->extent != input->shape[d]) return;
          is_split = is_split || Has(index->var);
          if (IsOneOf(index, reader.reduce_axes)) reduced.push_back(index->var.get());
        });
      }
      if (is_split) axes_.insert(reduced.begin(), reduced.end());
    }
  }

  bool AddWithReaders(const Stage& stage, const Var& axis) {
    if (axis->extent % width_ != 0 || axis->extent == width_) return false;
    if (!axes_.emplace(axis.get()).second) return true;
    const auto dim = static_cast<size_t>(std::find(stage.axes.begin(), stage.axes.end(), axis) -
                                         stage.axes.begin());
    bool possible = true;
    for (const Stage& reader : program_.stages) {
      Visit(reader.body, [&](const Expr& load) {
        if (!possible || load->op != Op::kLoad || load->buffer != stage.tensor) return;
        const Expr& index = load->args[dim];
        if (IsAtFixedPart(reader, SplitOf(index, width_))) return;
        if (IsOneOf(index, reader.reduce_axes) && index->var->extent == axis->extent) {
          axes_.emplace(index->var.get());
          return;
        }
        const std::optional<OtherOrder> order = OtherOrderOf(reader, index, width_);
        possible = order.has_value() && AddWithReaders(reader, order->axis);
      });
    }
    return possible;
  }

  const TensorProgram& program_;
  const int64_t width_;
  absl::flat_hash_set<const Variable*> axes_;
};

// Makes inputs and stages anew, with two dimensions and two axes for each that is split.
class SplitStages {
 public:
  SplitStages(const SplitAxes& split, int64_t width) : split_(split), width_(width) {}

  void Run(BufferRef& input) {
    const BufferRef before = input;
    SplitTensor split;
    std::vector<int64_t> shape;
    for (size_t d = 0; d < before->shape.size(); ++d) {
      split.is_split.push_back(split_.HasDim(before, d));
      shape.push_back(split.is_split.back() ? before->shape[d] / width_ : before->shape[d]);
      if (split.is_split.back()) shape.push_back(width_);
    }
    if (shape.size() == before->shape.size()) return;
    Buffer made = *MakeBuffer(before->name, before->dtype, before->scope, std::move(shape));
    made.index_extent = before->index_extent;
    input = split.tensor = std::make_shared<const Buffer>(std::move(made));
    tensors_[before.get()] = std::move(split);
  }

  void Run(Stage& stage) {
    const BufferRef before = stage.tensor;
    std::vector<bool> is_split;
    for (const Var& axis : stage.axes) is_split.push_back(split_.Has(axis));
    std::vector<Var> axes = Parts(stage, stage.axes);
    std::vector<Var> reduce_axes = Parts(stage, stage.reduce_axes);
    stage.body = Simplify(Rewrite(stage.body, [&](const Expr& e) { return RewriteNode(e); }));
    stage.axes = std::move(axes);
    stage.reduce_axes = std::move(reduce_axes);
    if (stage.axes.size() == before->shape.size()) return;
    stage.tensor = TensorOver(stage.axes, before->name, before->dtype);
    tensors_[before.get()] = {stage.tensor, std::move(is_split), true};
  }

 private:
  struct SplitTensor {
    BufferRef tensor;
    std::vector<bool> is_split;  // of the dimensions before
    bool is_made = false;        // by a stage
  };

  // The axes with two in the place of each that is split.
  std::vector<Var> Parts(const Stage& stage, const std::vector<Var>& axes) {
    std::vector<Var> parts;
    for (const Var& axis : axes) {
      if (!split_.Has(axis)) {
        parts.push_back(axis);
        continue;
      }
      parts.push_back(MakeVar(axis->name, axis->extent / width_));
      parts.push_back(MakeVar(stage.UnusedAxisName(absl::StrCat(axis->name, "_in")), width_));
      values_[axis.get()] = VarExpr(parts[parts.size() - 2]) * Int(width_) + VarExpr(parts.back());
    }
    return parts;
  }

  // Null where the node stays; its arguments are rewritten already.
  Expr RewriteNode(const Expr& e) const {
    if (e->op == Op::kVar) {
      const auto value = values_.find(e->var.get());
      return value == values_.end() ? nullptr : value->second;
    }
    const auto read = e->op == Op::kLoad ? tensors_.find(e->buffer.get()) : tensors_.end();
    if (read == tensors_.end()) return nullptr;
    ExprList indices;
    for (size_t d = 0; d < e->args.size(); ++d) {
      if (!read->second.is_split[d]) {
        indices.push_back(e->args[d]);
        continue;
      }
      // Past the last block reads only what a select guards, and never evaluates. The remainder
      // says which block a thread that holds all of them would read, and is gone where there is
      // none such.
      const Expr block = e->args[d] / Int(width_);
      const int64_t blocks = read->second.tensor->shape[indices.size()];
      indices.push_back(read->second.is_made ? block % Int(blocks) : block);
      indices.push_back(e->args[d] % Int(width_));
    }
    return Load(read->second.tensor, std::move(indices));
  }

  const SplitAxes& split_;
  const int64_t width_;
  absl::flat_hash_map<const Buffer*, SplitTensor> tensors_;
  absl::flat_hash_map<const Variable*, Expr> values_;
};

// Are two factors of the stage's terms a product of matrices along the places, with rows that only
// the one has and columns that only the other has, the places among them?
bool IsProductOfPlaces(const Stage& stage, const Var& axis, int64_t width) {
  const std::vector<Expr> loads = LoadsIn(stage.body);
  for (const Expr& shared : loads) {
    const PartsRead of_shared = PartsReadBy(shared, axis, width);
    if (!of_shared.block || of_shared.place) continue;
    for (const Expr& other : loads) {
      if (!PartsReadBy(other, axis, width).place) continue;
      const auto is_own = [&](const Var& own) {
        return own != axis && own->extent > 1 && MentionsAny(shared, {own.get()}) &&
               !MentionsAny(other, {own.get()});
      };
      if (std::any_of(stage.axes.begin(), stage.axes.end(), is_own)) return true;
    }
  }
  return false;
}

// The divisors of quotients of an axis in a stage's reads, in the order in which they stand there.
std::vector<std::pair<Var, int64_t>> QuotientsIn(const Stage& stage) {
  std::vector<std::pair<Var, int64_t>> found;
  for (const Expr& load : LoadsIn(stage.body)) {
    Visit(load, [&](const Expr& e) {
      if (e->op != Op::kDiv || !IsOneOf(e->args[0], stage.axes)) return;
      found.emplace_back(e->args[0]->var, e->args[1]->int_value);
    });
  }
  return found;
}

// Shows `visit` every index at which other stages read a stage along one of its axes, until it says
// no; false then. What an elementwise stage reads at its own axis, and is no output of, it hands
// on: a product and a bias are read where their sum is.
class ReadsAlong {
 public:
  using Visitor = absl::FunctionRef<bool(const Stage& reader, const Expr& index)>;

  ReadsAlong(const TensorProgram& program, Visitor visit) : program_(program), visit_(visit) {}

  bool Run(const Stage& stage, size_t dim) {
    if (!seen_.insert({stage.tensor.get(), dim}).second) return true;
    bool goes_on = true;
    for (const Stage& reader : program_.stages) {
      std::set<size_t> handed_on;
      Visit(reader.body, [&](const Expr& load) {
        if (!goes_on || load->op != Op::kLoad || load->buffer != stage.tensor) return;
        const Expr& index = load->args[dim];
        if (const auto own = HandedOn(reader, index, stage.axes[dim]->extent)) {
          handed_on.insert(*own);
        } else {
          goes_on = visit_(reader, index);
        }
      });
      for (const size_t own : handed_on) goes_on = goes_on && Run(reader, own);
    }
    return goes_on;
  }

 private:
  static std::optional<size_t> HandedOn(const Stage& reader, const Expr& index, int64_t extent) {
    if (reader.is_reduction() || reader.is_output || index->op != Op::kVar) return std::nullopt;
    const auto own = std::find(reader.axes.begin(), reader.axes.end(), index->var);
    if (own == reader.axes.end() || (*own)->extent != extent) return std::nullopt;
    return static_cast<size_t>(own - reader.axes.begin());
  }

  const TensorProgram& program_;
  const Visitor visit_;
  absl::flat_hash_set<std::pair<const Buffer*, size_t>> seen_;
};

// Of how many parts of one width all readers of a stage read all elements along its axis: such as
// two of H[i, j] * H[i, j + width], or of H[i, 2 * j] and H[i, 2 * j + 1], where the parts are of
// every second element. 0 where they read it in another way.
size_t FixedPartsRead(const TensorProgram& program, const Stage& stage, size_t dim, int64_t width) {
  absl::flat_hash_set<int64_t> blocks, places;
  const auto is_part = [&](const Stage& reader, const Expr& at) {
    const BlockAndPlace index = SplitOf(at, width);
    if (reader.is_reduction() || !IsAtFixedPart(reader, index)) return false;
    if (index.block->op == Op::kInt) {
      blocks.insert(index.block->int_value);
      return index.place->var->extent == width;
    }
    places.insert(index.place->int_value);
    return index.block->var->extent == stage.axes[dim]->extent / width;
  };
  if (!ReadsAlong(program, is_part).Run(stage, dim)) return 0;
  return blocks.empty() || places.empty() ? blocks.size() + places.size() : 0;
}

// Is each element along the stage's axis, of a few, read by its number?
bool IsReadByNumber(const TensorProgram& program, const Stage& stage, size_t dim) {
  absl::flat_hash_set<int64_t> numbers;
  const auto is_number = [&](const Stage& reader, const Expr& index) {
    if (reader.is_reduction() || index->op != Op::kInt) return false;
    numbers.insert(index->int_value);
    return true;
  };
  const int64_t extent = stage.axes[dim]->extent;
  return extent > 1 && extent <= kMostPartsRead && ReadsAlong(program, is_number).Run(stage, dim) &&
         static_cast<int64_t>(numbers.size()) == extent;
}

// Do elements of the stage's readers, none of which reduces them, take the stage's elements of all
// parts along the axis, which are its blocks or what has the same place in all blocks, each at its
// own element of a part, as a rotary embedding does?
bool MixesParts(const TensorProgram& program, const Stage& stage, size_t dim, int64_t width,
                bool are_blocks) {
  bool possible = true, mixes = false;
  for (const Stage& reader : program.stages) {
    Visit(reader.body, [&](const Expr& load) {
      if (!possible || load->op != Op::kLoad || load->buffer != stage.tensor) return;
      const Expr& index = load->args[dim];
      const std::optional<OtherOrder> order = OtherOrderOf(reader, index, width);
      possible = !reader.is_reduction() && order.has_value() &&
                 order->axis->extent == stage.axes[dim]->extent &&
                 (are_blocks ? order->by_blocks : order->by_places);
      mixes = mixes || index->op != Op::kVar;
    });
  }
  return possible && mixes;
}

// Can it be split, where nobody reduces what is read along it?
bool SplitsOwnAxes(const TensorProgram& program, const Stage& stage, const Var& axis,
                   int64_t width) {
  const auto split = WithSplitAxis(program, stage.name(), axis->name, width);
  return split.ok() && std::equal(program.stages.begin(), program.stages.end(),
                                  (*split)->stages.begin(), [](const Stage& a, const Stage& b) {
                                    return a.reduce_axes.size() == b.reduce_axes.size();
                                  });
}

std::optional<AxisParts> AxisReadInParts(const TensorProgram& program, const Stage& stage) {
  for (size_t dim = 0; dim < stage.axes.size(); ++dim) {
    const Var& axis = stage.axes[dim];
    for (int64_t parts = 2; parts <= kMostPartsRead; ++parts) {
      if (axis->extent % parts != 0 || axis->extent == parts) continue;
      for (const bool are_blocks : {true, false}) {
        const int64_t width = are_blocks ? axis->extent / parts : parts;
        const bool is_read =
            FixedPartsRead(program, stage, dim, width) == static_cast<size_t>(parts) ||
            MixesParts(program, stage, dim, width, are_blocks);
        if (is_read && SplitsOwnAxes(program, stage, axis, width)) {
          return AxisParts{stage.name(), axis->name, width};
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithSplitAxis(const TensorProgram& program,
                                                                   const std::string& name,
                                                                   const std::string& axis,
                                                                   int64_t width) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  const Stage& stage = program.stages[number];
  const auto whole = std::find_if(stage.axes.begin(), stage.axes.end(),
                                  [&](const Var& own) { return own->name == axis; });
  if (whole == stage.axes.end()) {
    return absl::InvalidArgumentError(absl::StrCat(axis, " is no axis of ", name));
  }
  if (width < 2 || (*whole)->extent % width != 0 || (*whole)->extent == width) {
    return absl::InvalidArgumentError(
        absl::StrCat("parts of ", width, " of ", axis, ", which has ", (*whole)->extent,
                     " elements, are not two or more of two or more"));
  }
  SplitAxes split(program, width);
  if (!split.Add(stage, *whole)) {
    return absl::InvalidArgumentError(
        absl::StrCat("not all that reads ", name, " along ", axis, " has an axis for that"));
  }
  auto made = std::make_shared<TensorProgram>(program);
  SplitStages stages(split, width);
  for (BufferRef& input : made->inputs) stages.Run(input);
  for (Stage& s : made->stages) stages.Run(s);
  return made;
}

PartsRead PartsReadBy(const Expr& load, const Var& axis, int64_t width, int64_t shift) {
  const Var block = MakeVar(axis->name, (axis->extent - 1 + shift) / width + 1),
            place = MakeVar("place", width);
  const Expr split = Simplify(Substitute(load, [&](const Var& var) -> Expr {
    return var == axis ? VarExpr(block) * Int(width) + VarExpr(place) - Int(shift) : nullptr;
  }));
  return {MentionsAny(split, {block.get()}), MentionsAny(split, {place.get()})};
}

std::optional<AxisParts> AxisWorthSplitting(const TensorProgram& program) {
  for (const Stage& stage : program.stages) {
    if (!stage.is_reduction()) continue;
    for (const auto& [axis, width] : QuotientsIn(stage)) {
      if (!IsProductOfPlaces(stage, axis, width)) continue;
      if (SplitsOwnAxes(program, stage, axis, width)) {
        return AxisParts{stage.name(), axis->name, width};
      }
    }
  }
  return std::nullopt;
}

std::vector<AxisParts> AxesReadInParts(const TensorProgram& program) {
  std::vector<AxisParts> found;
  for (const Stage& stage : program.stages) {
    if (!stage.is_reduction() || stage.is_output) continue;
    if (auto parts = AxisReadInParts(program, stage)) found.push_back(*std::move(parts));
  }
  return found;
}

std::vector<std::string> ReductionsReadByNumber(const TensorProgram& program) {
  std::vector<std::string> found;
  for (const Stage& stage : program.stages) {
    if (!stage.is_reduction() || stage.is_output) continue;
    bool is_read = false;
    for (size_t dim = 0; dim < stage.axes.size(); ++dim) {
      is_read = is_read || IsReadByNumber(program, stage, dim);
    }
    if (is_read) found.push_back(stage.name());
  }
  return found;
}

absl::Status SplitAxis::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, [&](const TensorProgram& program, const std::string& name) {
    return WithSplitAxis(program, name, axis, width);
  });
}

}  // namespace heddle::search_space
