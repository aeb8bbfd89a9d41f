#include "search_space/schedule/rewrites/reductions/scan.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/analysis/prefix_reductions.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

std::vector<Var> Renewed(const std::vector<Var>& axes) {
  std::vector<Var> own;
  for (const Var& axis : axes) own.push_back(MakeVar(axis->name, axis->extent));
  return own;
}

class ScanWriter {
 public:
  ScanWriter(const ScheduledStage& whole, PrefixMask mask, int64_t chunk)
      : whole_(whole),
        mask_(std::move(mask)),
        identity_(IdentityOf(whole.combiner, whole.body->type)),
        chunk_(chunk),
        length_(whole.axes[mask_.axis]->extent),
        chunks_((length_ + chunk - 1) / chunk) {}

  std::vector<ScheduledStage> Write() {
    std::vector<ScheduledStage> stages;
    const BufferRef part = AddWithCopy(Part(), "part", stages);
    const BufferRef offset = AddWithCopy(Offset(part), "offset", stages);
    Stage within = Within();
    Name(within, "within");
    stages.push_back(MakeScheduledStage(within));
    whole_.body =
        Combine(whole_.combiner, Before(offset), Load(within.tensor, ExprsOf(whole_.axes)));
    whole_.combiner = Combiner::kNone;
    whole_.reduce_axes.clear();
    ResetLoops(whole_);
    stages.push_back(std::move(whole_));
    return stages;
  }

 private:
  // The stage with variables of its own and without its mask; the chunk of its axis takes the
  // axis' place, and the place within a chunk that of the reduced one.
  Stage Chunked() const {
    Stage stage{.axes = Renewed(whole_.axes),
                .reduce_axes = Renewed(whole_.reduce_axes),
                .combiner = whole_.combiner};
    Var& q = stage.axes[mask_.axis];
    Var& t = stage.reduce_axes[mask_.reduced];
    q = MakeVar(q->name, chunks_);
    t = MakeVar(t->name, chunk_);
    return stage;
  }

  // The element of chunk q up to which all of its others decay.
  Expr EdgeOf(const Expr& q) const {
    const Expr first = q * Int(chunk_);
    if (mask_.reversed) return first;
    const Expr last = first + Int(chunk_ - 1);
    return length_ % chunk_ == 0 ? last : MakeExpr(Op::kMin, {last, Int(length_ - 1)});
  }

  // What decays from element `from` to element `to` of the axis, the others being those of `stage`.
  Expr DecayOf(const Stage& stage, const Expr& from, const Expr& to) const {
    const auto level = [&](const Expr& j) {
      return Substitute(mask_.level, [&](const Var& v) -> Expr {
        const int axis = whole_.FindAxis(v);
        if (axis < 0) return nullptr;
        const auto i = static_cast<size_t>(axis);
        return i == mask_.axis ? j : VarExpr(stage.axes[i]);
      });
    };
    return search_space::DecayOf(mask_.slope, level(from), level(to));
  }

  // Of the chunks before an element's own, all of them.
  Expr Before(const BufferRef& offset) const {
    const Expr j = VarExpr(whole_.axes[mask_.axis]), q = j / Int(chunk_);
    ExprList at = ExprsOf(whole_.axes);
    if (mask_.level == nullptr) {
      at[mask_.axis] = q;
      return Load(offset, std::move(at));
    }
    const Stage axes{.axes = whole_.axes};
    const Expr next = mask_.reversed ? q + Int(1) : q - Int(1);
    const Expr exists = mask_.reversed ? j < Int((chunks_ - 1) * chunk_) : Int(chunk_) <= j;
    at[mask_.axis] = next;
    const Expr decayed = Load(offset, std::move(at)) * DecayOf(axes, EdgeOf(next), j);
    return Select(exists, decayed, identity_);
  }

  // What the terms of `stage` in the chunk q are where `allows`, decayed to element j of the axis.
  Expr TermOf(const Stage& stage, const Expr& q, const Expr& j, Expr allows) const {
    const Expr r = q * Int(chunk_) + VarExpr(stage.reduce_axes[mask_.reduced]);
    const auto own = [&](const Expr& e) {
      return Substitute(e, [&](const Var& v) -> Expr {
        for (size_t i = 0; i < whole_.axes.size(); ++i) {
          if (v == whole_.axes[i]) return i == mask_.axis ? j : VarExpr(stage.axes[i]);
        }
        for (size_t i = 0; i < whole_.reduce_axes.size(); ++i) {
          if (v != whole_.reduce_axes[i]) continue;
          return i == mask_.reduced ? r : VarExpr(stage.reduce_axes[i]);
        }
        return nullptr;
      });
    };
    // Reads are known to be inside of their tensors for terms that count for some element only.
    const Expr last = Int(length_ - (mask_.strict && !mask_.reversed ? 1 : 0));
    if (chunks_ * chunk_ > last->int_value) allows = AndAlso(allows, r < last);
    if (mask_.strict && mask_.reversed) allows = AndAlso(allows, Int(0) < r);
    for (const Expr& condition : mask_.conditions) allows = AndAlso(allows, own(condition));
    const Expr term = own(whole_.body->args[1]);
    return Simplify(allows == nullptr ? term : Select(allows, term, identity_));
  }

  Stage Part() const {
    Stage part = Chunked();
    const Expr q = VarExpr(part.axes[mask_.axis]);
    part.body = TermOf(part, q, EdgeOf(q), nullptr);
    return part;
  }

  Stage Offset(const BufferRef& part) const {
    Stage offset = Chunked();
    const Var p = MakeVar(offset.reduce_axes[mask_.reduced]->name, chunks_);
    const Expr q = VarExpr(offset.axes[mask_.axis]);
    offset.reduce_axes = {p};
    ExprList at = ExprsOf(offset.axes);
    at[mask_.axis] = VarExpr(p);
    const Expr &low = mask_.reversed ? q : at[mask_.axis],
               &high = mask_.reversed ? at[mask_.axis] : q;
    // What decays does so from the edge of one chunk to the edge of another, its own included.
    const Expr allows = mask_.level == nullptr ? low < high : low <= high;
    Expr value = Load(part, at);
    if (mask_.level != nullptr) value = value * DecayOf(offset, EdgeOf(VarExpr(p)), EdgeOf(q));
    offset.body = Select(allows, value, identity_);
    return offset;
  }

  Stage Within() const {
    Stage within = Chunked();
    Var& axis = within.axes[mask_.axis];
    axis = MakeVar(axis->name, length_);
    const Expr j = VarExpr(axis), u = VarExpr(within.reduce_axes[mask_.reduced]);
    within.body = TermOf(within, j / Int(chunk_), j, mask_.Allows(u, j % Int(chunk_)));
    return within;
  }

  void Name(Stage& stage, const std::string& part) const {
    stage.tensor =
        TensorOver(stage.axes, absl::StrCat(whole_.name(), ".", part), whole_.body->type);
  }

  // The reduction and what carries it to other kernels, which is returned.
  BufferRef AddWithCopy(Stage sum, const std::string& part,
                        std::vector<ScheduledStage>& stages) const {
    Name(sum, part + ".acc");
    Stage copy{.axes = Renewed(sum.axes)};
    copy.body = Load(sum.tensor, ExprsOf(copy.axes));
    Name(copy, part);
    stages.push_back(MakeScheduledStage(sum));
    stages.push_back(MakeScheduledStage(copy));
    stages.back().materialized = true;
    return copy.tensor;
  }

  ScheduledStage whole_;
  const PrefixMask mask_;
  const Expr identity_;
  const int64_t chunk_, length_, chunks_;
};

}  // namespace

absl::StatusOr<std::vector<ScheduledStage>> ScanStages(const Schedule& schedule, int index,
                                                       int64_t chunk) {
  const ScheduledStage& stage = schedule.stage(index);
  std::optional<PrefixMask> mask = PrefixMaskOf(stage);
  if (!mask || mask->in_windows) {
    return absl::InvalidArgumentError(
        absl::StrCat(stage.name(),
                     " is no reduction over select(r <= j, e, identity) of an axis j, which e does "
                     "not mention, or as a factor exp(L(j) - L(r)), and a reduced axis r as long"));
  }
  const int64_t length = stage.axes[mask->axis]->extent;
  if (chunk < 2 || chunk >= length) {
    return absl::InvalidArgumentError(absl::StrCat("chunks of ", chunk, "; of an axis of ", length,
                                                   " at least 2 and fewer than all"));
  }
  return ScanWriter(stage, *std::move(mask), chunk).Write();
}

absl::Status ScanChunks::ApplyTo(ScheduleEditor& editor) const {
  return editor.Rewrite(stage, [&](const Schedule& schedule, int index) {
    return ScanStages(schedule, index, chunk);
  });
}

}  // namespace heddle::search_space
