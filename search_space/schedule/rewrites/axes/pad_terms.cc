#include "search_space/schedule/rewrites/axes/pad_terms.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "base/status.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/windows.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

// Loads of values in an expression, equal ones as often as they stand there.
int CountLoads(const Expr& e) {
  int loads = 0;
  Visit(e, [&](const Expr& node) { loads += IsValueLoad(node) ? 1 : 0; });
  return loads;
}

// Which axes of a program's stages stand for the same: what one stage is summed along is what those
// that it reads there have elements for. Data axes of outputs are alike to none that is read along
// them: as many elements of it are read as before, and so it is where a stage reads a dimension
// along several of its axes, as scores of rows among themselves do. All in one pass over the
// program, since anybody may have written it.
class AlikeAxes {
 public:
  explicit AlikeAxes(const TensorProgram& program) : program_(program) {
    for (const Stage& stage : program.stages) {
      const bool is_product = stage.combiner == Combiner::kSum && CountLoads(stage.body) > 1;
      for (const Var& axis : stage.axes) {
        parents_[axis.get()] = axis.get();
        classes_[axis.get()] = {is_product, stage.is_output};
        if (stage.is_output) outputs_.insert(axis.get());
      }
      for (const Var& axis : stage.reduce_axes) parents_[axis.get()] = axis.get();
    }
    for (const Stage& stage : program.stages) {
      // Which axis reads a dimension; null where several do, as of keys that are queries, too.
      absl::flat_hash_map<const Variable*, Var> readers;
      VisitIndices(stage, [&](const Var& reader, const Var& read) {
        const auto [known, is_new] = readers.try_emplace(read.get(), reader);
        if (!is_new && known->second != reader) known->second = nullptr;
      });
      VisitIndices(stage, [&](const Var& reader, const Var& read) {
        if (readers[read.get()] != nullptr) Unite(reader, read);
      });
    }
  }

  const Variable* ClassOf(const Var& axis) const {
    const Variable* root = axis.get();
    while (parents_.at(root) != root) root = parents_.at(root);
    return root;
  }
  bool AreAlike(const Var& a, const Var& b) const { return ClassOf(a) == ClassOf(b); }
  // Does a sum of several tensors' elements make one for each of it, and is it no axis of an
  // output?
  bool IsOfChain(const Var& axis) const {
    const auto known = classes_.find(ClassOf(axis));
    return known != classes_.end() && known->second.has_product && !known->second.has_output;
  }
  // Does it stand for an axis of an output, which would be longer, too?
  bool IsOfOutput(const Var& axis) const {
    const auto known = classes_.find(ClassOf(axis));
    return known != classes_.end() && known->second.has_output;
  }
  // Is dimension `dim` of a stage's tensor along it?
  bool HasDim(const Buffer* tensor, size_t dim, const Var& axis) const {
    return AreAlike(program_.FindStage(tensor)->axes[dim], axis);
  }

 private:
  struct Class {
    bool has_product = false, has_output = false;
  };

  // visit(r, a) for each dimension, axis a of another stage, that `stage` reads at its own axis r.
  template <typename Visitor>
  void VisitIndices(const Stage& stage, const Visitor& visit) const {
    Visit(stage.body, [&](const Expr& load) {
      const Stage* const read =
          load->op == Op::kLoad ? program_.FindStage(load->buffer.get()) : nullptr;
      for (size_t d = 0; read != nullptr && d < load->args.size(); ++d) {
        if (load->args[d]->op == Op::kVar) visit(load->args[d]->var, read->axes[d]);
      }
    });
  }

  void Unite(const Var& reader, const Var& read) {
    if (outputs_.contains(reader.get()) || reader->extent != read->extent) return;
    const Variable *const from = ClassOf(reader), *const to = ClassOf(read);
    if (from == to) return;
    parents_[from] = parents_[reader.get()] = to;
    const Class joined = classes_[from];
    classes_[to].has_product |= joined.has_product;
    classes_[to].has_output |= joined.has_output;
  }

  const TensorProgram& program_;
  absl::flat_hash_map<const Variable*, const Variable*> parents_;
  absl::flat_hash_map<const Variable*, Class> classes_;  // of those that are their own parents
  absl::flat_hash_set<const Variable*> outputs_;         // data axes of outputs
};

class Padding {
 public:
  Padding(const TensorProgram& program, const AlikeAxes& alike, const Var& axis, int64_t longer)
      : program_(program), alike_(alike), axis_(axis), extent_(axis->extent), longer_(longer) {}

  TensorProgram Run() {
    TensorProgram longer = program_;
    for (Stage& stage : longer.stages) Pad(stage);
    return longer;
  }

 private:
  void Pad(Stage& stage) {
    const Stage before = stage;
    absl::flat_hash_map<const Variable*, Expr> values;
    std::vector<Var> rows, all;  // axes that are longer now
    for (auto* axes : {&stage.axes, &stage.reduce_axes}) {
      for (Var& axis : *axes) {
        if (!alike_.AreAlike(axis, axis_)) continue;
        const Var longer = MakeVar(axis->name, longer_);
        values[axis.get()] = VarExpr(longer);
        axis = longer;
        all.push_back(axis);
        if (axes == &stage.axes) rows.push_back(axis);
      }
    }
    const Expr body = Rewrite(before.body, [&](const Expr& e) -> Expr {
      if (e->op == Op::kVar) {
        const auto value = values.find(e->var.get());
        return value == values.end() ? nullptr : value->second;
      }
      if (e->op != Op::kLoad) return nullptr;
      const auto longer = tensors_.find(e->buffer.get());
      return longer == tensors_.end() ? nullptr : Load(longer->second, e->args);
    });
    const bool is_sum = stage.combiner == Combiner::kSum;
    if (!all.empty()) {
      stage.body = Simplify(is_sum ? WithZeros(body, all)
                                   : Under(all, body, IdentityOf(stage.combiner, body->type)));
    } else {
      stage.body = body;
    }
    if (rows.empty()) return;
    stage.tensor = TensorOver(stage.axes, before.name(), before.tensor->dtype);
    tensors_[before.tensor.get()] = stage.tensor;
    // A value is zero behind the end of each axis that it mentions; of a sum one factor of each
    // term is, so that it is where the others are finite.
    const bool is_zero = std::all_of(rows.begin(), rows.end(), [&](const Var& axis) {
      return MentionsAny(stage.body, {axis.get()});
    });
    if (is_zero && (is_sum || !stage.is_reduction()))
      zeros_[stage.tensor.get()] = before.tensor.get();
  }

  // `body` where those of the axes that it mentions are before their end.
  Expr Under(const std::vector<Var>& axes, const Expr& body, const Expr& otherwise) const {
    Expr inside;
    for (const Var& axis : axes) {
      if (MentionsAny(body, {axis.get()})) {
        inside = AndAlso(inside, VarExpr(axis) < Int(extent_));
      }
    }
    if (inside == nullptr) return body;
    // A condition that reads indices is looked at before the end only.
    const bool is_same = body->op == Op::kSelect && !ReadsIndices(body->args[0]) &&
                         StructurallyEqual(body->args[2], otherwise);
    return is_same ? Select(AndAlso(inside, body->args[0]), body->args[1], otherwise)
                   : Select(inside, body, otherwise);
  }

  // Every factor of the terms by itself, so that they stay products of tensors' elements.
  Expr WithZeros(const Expr& e, const std::vector<Var>& axes) const {
    if (e->op == Op::kMul) {
      return MakeExpr(Op::kMul, {WithZeros(e->args[0], axes), WithZeros(e->args[1], axes)});
    }
    const auto mentions = [&](const Var& axis) { return MentionsAny(e->args[1], {axis.get()}); };
    if (e->op == Op::kDiv && std::none_of(axes.begin(), axes.end(), mentions)) {
      return MakeExpr(Op::kDiv, {WithZeros(e->args[0], axes), e->args[1]});
    }
    if (e->op == Op::kCast && IsFloat(e->args[0]->type)) {
      return Cast(e->type, WithZeros(e->args[0], axes));
    }
    return IsZeroBehind(e, axes) ? e : Under(axes, e, Float(0, e->type));
  }

  // Is it read where it is zero already?
  bool IsZeroBehind(const Expr& e, const std::vector<Var>& axes) const {
    const auto longer = e->op == Op::kLoad ? zeros_.find(e->buffer.get()) : zeros_.end();
    if (longer == zeros_.end()) return false;
    for (size_t d = 0; d < e->args.size(); ++d) {
      for (const Var& axis : axes) {
        const bool is_other = !IsVar(e->args[d], axis) || !alike_.HasDim(longer->second, d, axis_);
        if (is_other && MentionsAny(e->args[d], {axis.get()})) return false;
      }
    }
    return true;
  }

  const TensorProgram& program_;
  const AlikeAxes& alike_;
  const Var axis_;
  const int64_t extent_, longer_;
  absl::flat_hash_map<const Buffer*, BufferRef> tensors_;  // with longer dimensions
  // Those of them that are zero behind the end, and what they were.
  absl::flat_hash_map<const Buffer*, const Buffer*> zeros_;
};

constexpr int64_t kMatrixTerms = 16;  // terms that units for 16-bit matrices multiply at once
// Terms of an iteration, which are more than a matrix where that adds few of them.
constexpr int64_t kIterationTerms[] = {64, 32};
constexpr int64_t kFewTerms = 6;        // at most one in so many
constexpr int64_t kMostMultiple = 256;  // no plan takes more terms at once
constexpr double kMostCounted = 0x1p61;

// Does an element of a factor lie where a tensor of indices says, which is read along `axis`?
bool IsGatheredAlong(const Expr& body, const Var& axis) {
  bool is = false;
  Visit(body, [&](const Expr& load) {
    if (!IsValueLoad(load)) return;
    is = is || std::any_of(load->args.begin(), load->args.end(), [&](const Expr& index) {
           return ReadsIndices(index) && MentionsAny(index, {axis.get()});
         });
  });
  return is;
}

// Are these the channels of a convolution of 16-bit numbers: does each element of a factor lie
// where `axis` says, and one of them in a window that moves along data?
bool AreChannels(const Stage& sum, const Var& axis) {
  bool are = true;
  Visit(sum.body, [&](const Expr& load) {
    if (!IsValueLoad(load)) return;
    const auto is_axis = [&](const Expr& index) { return IsVar(index, axis); };
    are = are && std::count_if(load->args.begin(), load->args.end(), is_axis) == 1 &&
          IsHalf(load->type);
    for (const Expr& index : load->args) {
      are = are && (is_axis(index) || !MentionsAny(index, {axis.get()}));
    }
  });
  return are && TapsOf(sum.body, sum.axes, sum.reduce_axes) > 1;
}

// The last axis along which the sum multiplies two tensors' elements, of which a sum makes those of
// one, or else along which one is gathered, or that of a convolution's channels; null where there
// is none.
Var PaddedAxisOf(const AlikeAxes& alike, const Stage& sum) {
  if (sum.combiner != Combiner::kSum || CountLoads(sum.body) != 2) return nullptr;
  const auto last = [&](auto is_it) {
    const auto axis = std::find_if(sum.reduce_axes.rbegin(), sum.reduce_axes.rend(), is_it);
    return axis == sum.reduce_axes.rend() ? nullptr : *axis;
  };
  const Var of_chain = last([&](const Var& r) { return alike.IsOfChain(r); });
  if (of_chain != nullptr) return of_chain;
  return last([&](const Var& r) {
    return (IsGatheredAlong(sum.body, r) || AreChannels(sum, r)) && !alike.IsOfOutput(r);
  });
}

// The program in which sum `number` reads stages that are copies of the inputs that it reads, so
// that what is made longer is a tensor like any other, for which a layout can be chosen.
TensorProgram WithCopiesOfInputs(const TensorProgram& program, size_t number) {
  TensorProgram with = program;
  std::vector<Stage> copies;
  absl::flat_hash_map<const Buffer*, BufferRef> read;  // in the place of inputs
  // A sum that was padded before has copies, too.
  const auto is_taken = [&](const std::string& name) {
    return std::any_of(program.stages.begin(), program.stages.end(),
                       [&](const Stage& stage) { return stage.name() == name; });
  };
  Stage& sum = with.stages[number];
  sum.body = Rewrite(sum.body, [&](const Expr& load) -> Expr {
    if (load->op != Op::kLoad || !IsValueLoad(load)) return nullptr;
    if (program.FindStage(load->buffer.get()) != nullptr) return nullptr;
    const auto known = read.find(load->buffer.get());
    if (known != read.end()) return Load(known->second, load->args);
    std::string name = absl::StrCat(load->buffer->name, ".padded");
    for (int n = 2; is_taken(name); ++n) {
      name = absl::StrCat(load->buffer->name, ".padded", n);
    }
    Stage& copy = copies.emplace_back();
    ExprList place;
    for (size_t d = 0; d < load->args.size(); ++d) {
      copy.axes.push_back(MakeVar(absl::StrCat("d", d), load->buffer->shape[d]));
      place.push_back(VarExpr(copy.axes.back()));
    }
    copy.tensor = TensorOver(copy.axes, name, load->buffer->dtype);
    copy.body = Load(load->buffer, std::move(place));
    read[load->buffer.get()] = copy.tensor;
    return Load(copy.tensor, load->args);
  });
  with.stages.insert(with.stages.begin(), copies.begin(), copies.end());
  return with;
}

int64_t WorthPaddingTo(int64_t extent) {
  if (extent % kMatrixTerms == 0 || extent < kMatrixTerms) return 0;
  for (const int64_t multiple : kIterationTerms) {
    if (kFewTerms * (RoundUp(extent, multiple) - extent) <= extent) return multiple;
  }
  return kMatrixTerms;
}

// Can a stage with these axes, as long as they are then, still be counted?
absl::Status CheckCounts(const Stage& stage) {
  double iterations = static_cast<double>(SizeOf(stage.tensor->dtype));
  for (const auto* axes : {&stage.axes, &stage.reduce_axes}) {
    for (const Var& axis : *axes) iterations *= static_cast<double>(axis->extent);
  }
  if (iterations <= kMostCounted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(stage.name(), " would have too many elements or terms to count"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithPaddedTerms(const TensorProgram& program,
                                                                     const std::string& name,
                                                                     int64_t multiple) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  const Stage* const sum = &program.stages[number];
  if (multiple < 1 || multiple > kMostMultiple) {
    return absl::InvalidArgumentError(
        absl::StrCat("the multiple must be 1 to ", kMostMultiple, ", not ", multiple));
  }
  const Var axis = PaddedAxisOf(AlikeAxes(program), *sum);
  if (axis == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(name,
                     " is no sum over products of two tensors' elements, of which a sum of "
                     "products makes those of one, or one is read by an index, or in windows "
                     "beside channels of 16-bit numbers"));
  }
  if (axis->extent % multiple == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", axis->extent, " terms of ", name, " are multiples of ", multiple));
  }
  const int64_t longer = RoundUp(axis->extent, multiple);
  const bool are_channels = AreChannels(*sum, axis);
  const TensorProgram before = are_channels ? WithCopiesOfInputs(program, number) : program;
  const AlikeAxes alike(before);
  // Before anything is made of it: the extents alone.
  for (Stage stage : before.stages) {
    for (auto* axes : {&stage.axes, &stage.reduce_axes}) {
      for (Var& own : *axes) {
        if (alike.AreAlike(own, axis)) own = MakeVar(own->name, longer);
      }
    }
    HEDDLE_RETURN_IF_ERROR(CheckCounts(stage));
  }
  return std::make_shared<const TensorProgram>(Padding(before, alike, axis, longer).Run());
}

std::vector<TermsToPad> TermsWorthPadding(const TensorProgram& program) {
  const AlikeAxes alike(program);
  absl::flat_hash_set<const Variable*> seen;
  std::vector<TermsToPad> worth;
  for (const Stage& stage : program.stages) {
    const Var axis = PaddedAxisOf(alike, stage);
    if (axis == nullptr || !alike.IsOfChain(axis)) continue;
    if (!seen.insert(alike.ClassOf(axis)).second) continue;
    const int64_t multiple = WorthPaddingTo(axis->extent);
    if (multiple > 0) worth.push_back({stage.name(), multiple});
  }
  return worth;
}

std::vector<TermsToPad> GatheredTermsWorthPadding(const TensorProgram& program) {
  const AlikeAxes alike(program);
  std::vector<TermsToPad> worth;
  for (const Stage& stage : program.stages) {
    const Var axis = PaddedAxisOf(alike, stage);
    const bool is_gathered =
        axis != nullptr && !alike.IsOfChain(axis) && IsGatheredAlong(stage.body, axis);
    if (!is_gathered || axis->extent < kMatrixTerms) continue;
    for (int64_t multiple = kMatrixTerms; multiple <= kMostMultiple; multiple *= 2) {
      const int64_t added = RoundUp(axis->extent, multiple) - axis->extent;
      if (added == 0) continue;
      if (kFewTerms * added <= axis->extent) worth.push_back({stage.name(), multiple});
      break;
    }
  }
  return worth;
}

std::vector<TermsToPad> ChannelsWorthPadding(const TensorProgram& program) {
  const AlikeAxes alike(program);
  std::vector<TermsToPad> worth;
  for (const Stage& stage : program.stages) {
    const Var axis = PaddedAxisOf(alike, stage);
    if (axis == nullptr || alike.IsOfChain(axis) || !AreChannels(stage, axis)) continue;
    const int64_t multiple = WorthPaddingTo(axis->extent);
    if (multiple > 0) worth.push_back({stage.name(), multiple});
  }
  return worth;
}

absl::Status PadTerms::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, [&](const TensorProgram& program, const std::string& sum) {
    return WithPaddedTerms(program, sum, multiple);
  });
}

}  // namespace heddle::search_space
