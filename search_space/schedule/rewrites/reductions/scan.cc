#include "search_space/schedule/rewrites/reductions/scan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

// Terms count where reduce_axes[reduced] <= axes[axis], >= if reversed, not == if strict.
struct Mask {
  size_t axis, reduced;
  bool reversed, strict;

  Expr Allows(const Expr& r, const Expr& j) const {
    const Expr &low = reversed ? j : r, &high = reversed ? r : j;
    return MakeExpr(strict ? Op::kLt : Op::kLe, {low, high});
  }
};

struct Masked {
  Mask mask;
  std::vector<Expr> conditions;  // the other ones of the terms
};

std::optional<size_t> IndexIn(const std::vector<Var>& axes, const Term& t) {
  if (t.x->op != Op::kVar || t.div != 1 || t.mod != 0) return std::nullopt;
  const auto at = std::find(axes.begin(), axes.end(), t.x->var);
  if (at == axes.end()) return std::nullopt;
  return static_cast<size_t>(at - axes.begin());
}

// a < b that compares one reduced axis with one axis of the same extent.
std::optional<Mask> AsMask(const ScheduledStage& stage, const Expr& condition) {
  if (condition->op != Op::kLt && condition->op != Op::kLe) return std::nullopt;
  if (condition->args[0]->type != DType::kInt64) return std::nullopt;
  const Linear difference = Difference(condition->args[0], condition->args[1]);
  const int64_t constant = difference.constant - (condition->op == Op::kLe ? 1 : 0);
  if (difference.terms.size() != 2 || (constant != 0 && constant != -1)) return std::nullopt;
  for (size_t first : {0, 1}) {
    const Term &r = difference.terms[first], &j = difference.terms[1 - first];
    const auto reduced = IndexIn(stage.reduce_axes, r), axis = IndexIn(stage.axes, j);
    if (!reduced || !axis || r.coef != -j.coef || std::abs(r.coef) != 1) continue;
    if (r.x->var->extent != j.x->var->extent) return std::nullopt;
    return Mask{*axis, *reduced, r.coef < 0, constant == 0};
  }
  return std::nullopt;
}

bool Mentions(const Expr& e, const Var& var) {
  bool found = false;
  Visit(e, [&](const Expr& node) { found = found || (node->op == Op::kVar && node->var == var); });
  return found;
}

// A reduction of prefixes, whatever what it leaves out is replaced by.
std::optional<Masked> FindMasked(const ScheduledStage& stage) {
  if (!stage.is_reduction() || stage.body->op != Op::kSelect) return std::nullopt;
  const std::vector<Expr> conditions = Conjuncts(Simplify(stage.body->args[0]));
  for (size_t c = 0; c < conditions.size(); ++c) {
    const std::optional<Mask> mask = AsMask(stage, conditions[c]);
    if (!mask) continue;
    Masked scan{*mask, conditions};
    scan.conditions.erase(scan.conditions.begin() + static_cast<std::ptrdiff_t>(c));
    const Var& axis = stage.axes[mask->axis];
    const bool elsewhere =
        Mentions(stage.body->args[1], axis) ||
        std::any_of(scan.conditions.begin(), scan.conditions.end(),
                    [&](const Expr& condition) { return Mentions(condition, axis); });
    if (!elsewhere) return scan;
  }
  return std::nullopt;
}

std::optional<Masked> FindScan(const ScheduledStage& stage) {
  if (!stage.is_reduction() || stage.body->op != Op::kSelect) return std::nullopt;
  const Expr& other = stage.body->args[2];
  const Expr identity = IdentityOf(stage.combiner, stage.body->type);
  if (other->op != Op::kFloat || other->float_value != identity->float_value) return std::nullopt;
  return FindMasked(stage);
}

std::vector<Var> Renewed(const std::vector<Var>& axes) {
  std::vector<Var> own;
  for (const Var& axis : axes) own.push_back(MakeVar(axis->name, axis->extent));
  return own;
}

ExprList ValuesOf(const std::vector<Var>& axes) {
  ExprList values;
  for (const Var& axis : axes) values.push_back(VarExpr(axis));
  return values;
}

class ScanWriter {
 public:
  ScanWriter(const ScheduledStage& whole, Masked scan, int64_t chunk)
      : whole_(whole),
        scan_(std::move(scan)),
        identity_(IdentityOf(whole.combiner, whole.body->type)),
        chunk_(chunk),
        length_(whole.axes[scan_.mask.axis]->extent),
        chunks_((length_ + chunk - 1) / chunk) {}

  std::vector<ScheduledStage> Write() {
    std::vector<ScheduledStage> stages;
    const BufferRef part = AddWithCopy(Part(), "part", stages);
    const BufferRef offset = AddWithCopy(Offset(part), "offset", stages);
    Stage within = Within();
    Name(within, "within");
    stages.push_back(MakeScheduledStage(within));
    ExprList own = ValuesOf(whole_.axes), before = own;
    before[scan_.mask.axis] = before[scan_.mask.axis] / Int(chunk_);
    whole_.body = Combine(whole_.combiner, Load(offset, std::move(before)),
                          Load(within.tensor, std::move(own)));
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
    Var& q = stage.axes[scan_.mask.axis];
    Var& t = stage.reduce_axes[scan_.mask.reduced];
    q = MakeVar(q->name, chunks_);
    t = MakeVar(t->name, chunk_);
    return stage;
  }

  // What the terms of `stage` in the chunk q are where `allows`.
  Expr TermOf(const Stage& stage, const Expr& q, Expr allows) const {
    const Expr r = q * Int(chunk_) + VarExpr(stage.reduce_axes[scan_.mask.reduced]);
    const auto own = [&](const Expr& e) {
      return Substitute(e, [&](const Var& v) -> Expr {
        for (size_t i = 0; i < whole_.axes.size(); ++i) {
          if (v == whole_.axes[i]) return VarExpr(stage.axes[i]);
        }
        for (size_t i = 0; i < whole_.reduce_axes.size(); ++i) {
          if (v != whole_.reduce_axes[i]) continue;
          return i == scan_.mask.reduced ? r : VarExpr(stage.reduce_axes[i]);
        }
        return nullptr;
      });
    };
    // Reads are known to be inside of their tensors for terms that count for some element only.
    const Expr last = Int(length_ - (scan_.mask.strict && !scan_.mask.reversed ? 1 : 0));
    if (chunks_ * chunk_ > last->int_value) allows = AndAlso(allows, r < last);
    if (scan_.mask.strict && scan_.mask.reversed) allows = AndAlso(allows, Int(0) < r);
    for (const Expr& condition : scan_.conditions) allows = AndAlso(allows, own(condition));
    const Expr term = own(whole_.body->args[1]);
    return Simplify(allows == nullptr ? term : Select(allows, term, identity_));
  }

  Stage Part() const {
    Stage part = Chunked();
    part.body = TermOf(part, VarExpr(part.axes[scan_.mask.axis]), nullptr);
    return part;
  }

  Stage Offset(const BufferRef& part) const {
    Stage offset = Chunked();
    const Var p = MakeVar(offset.reduce_axes[scan_.mask.reduced]->name, chunks_);
    const Expr q = VarExpr(offset.axes[scan_.mask.axis]);
    offset.reduce_axes = {p};
    ExprList at = ValuesOf(offset.axes);
    at[scan_.mask.axis] = VarExpr(p);
    const Expr allows = scan_.mask.reversed ? q < VarExpr(p) : VarExpr(p) < q;
    offset.body = Select(allows, Load(part, std::move(at)), identity_);
    return offset;
  }

  Stage Within() const {
    Stage within = Chunked();
    Var& axis = within.axes[scan_.mask.axis];
    axis = MakeVar(axis->name, length_);
    const Expr j = VarExpr(axis), u = VarExpr(within.reduce_axes[scan_.mask.reduced]);
    within.body = TermOf(within, j / Int(chunk_), scan_.mask.Allows(u, j % Int(chunk_)));
    return within;
  }

  void Name(Stage& stage, const std::string& part) const {
    std::vector<int64_t> shape;
    for (const Var& axis : stage.axes) shape.push_back(axis->extent);
    stage.tensor = MakeBuffer(absl::StrCat(whole_.name(), ".", part), whole_.body->type,
                              Scope::kGlobal, std::move(shape));
  }

  // The reduction and what carries it to other kernels, which is returned.
  BufferRef AddWithCopy(Stage sum, const std::string& part,
                        std::vector<ScheduledStage>& stages) const {
    Name(sum, part + ".acc");
    Stage copy{.axes = Renewed(sum.axes)};
    copy.body = Load(sum.tensor, ValuesOf(copy.axes));
    Name(copy, part);
    stages.push_back(MakeScheduledStage(sum));
    stages.push_back(MakeScheduledStage(copy));
    stages.back().materialized = true;
    return copy.tensor;
  }

  ScheduledStage whole_;
  const Masked scan_;
  const Expr identity_;
  const int64_t chunk_, length_, chunks_;
};

}  // namespace

std::optional<Scan> ScanOf(const ScheduledStage& stage) {
  const std::optional<Masked> scan = FindScan(stage);
  if (!scan) return std::nullopt;
  const Mask& mask = scan->mask;
  const Var& r = stage.reduce_axes[mask.reduced];
  const Expr j = VarExpr(stage.axes[mask.axis]);
  const auto at_own = [&](const Expr& e) {
    return Substitute(e, [&](const Var& v) -> Expr { return v == r ? j : nullptr; });
  };
  // Reads are known to be inside of their tensors for terms that count for some element only.
  Expr counts;
  if (mask.strict) counts = mask.reversed ? Int(0) < j : j < Int(r->extent - 1);
  for (const Expr& condition : scan->conditions) counts = AndAlso(counts, at_own(condition));
  Expr term = at_own(stage.body->args[1]);
  if (counts != nullptr) {
    term = Select(counts, term, IdentityOf(stage.combiner, stage.body->type));
  }
  return Scan{mask.axis, mask.reduced, mask.reversed, mask.strict, term};
}

std::optional<BoundedScan> BoundedScanOf(const ScheduledStage& stage) {
  if (stage.combiner != Combiner::kMax && stage.combiner != Combiner::kMin) return std::nullopt;
  const std::optional<Masked> scan = FindMasked(stage);
  if (!scan || !scan->conditions.empty()) return std::nullopt;
  const Expr& value = stage.body->args[2];
  if (value->op != Op::kFloat || std::isinf(value->float_value)) return std::nullopt;
  const Mask& mask = scan->mask;
  const Var& axis = stage.axes[mask.axis];
  const Expr j = VarExpr(axis);
  Expr where;
  if (!mask.strict) where = mask.reversed ? Int(0) < j : j < Int(axis->extent - 1);
  return BoundedScan{Select(stage.body->args[0], stage.body->args[1],
                            IdentityOf(stage.combiner, stage.body->type)),
                     value, where};
}

int64_t ScanLength(const Schedule& schedule, int index) {
  const ScheduledStage& stage = schedule.stage(index);
  const std::optional<Masked> scan = FindScan(stage);
  return scan ? stage.axes[scan->mask.axis]->extent : 0;
}

absl::StatusOr<std::vector<ScheduledStage>> ScanStages(const Schedule& schedule, int index,
                                                       int64_t chunk) {
  const ScheduledStage& stage = schedule.stage(index);
  std::optional<Masked> scan = FindScan(stage);
  if (!scan) {
    return absl::InvalidArgumentError(
        absl::StrCat(stage.name(),
                     " is no reduction over select(r <= j, e, identity) of an axis j, which e does "
                     "not mention, and a reduced axis r as long"));
  }
  const int64_t length = stage.axes[scan->mask.axis]->extent;
  if (chunk < 2 || chunk >= length) {
    return absl::InvalidArgumentError(absl::StrCat("chunks of ", chunk, "; of an axis of ", length,
                                                   " at least 2 and fewer than all"));
  }
  return ScanWriter(stage, *std::move(scan), chunk).Write();
}

absl::Status ScanChunks::ApplyTo(ScheduleEditor& editor) const {
  return editor.Rewrite(stage, [&](const Schedule& schedule, int index) {
    return ScanStages(schedule, index, chunk);
  });
}

}  // namespace heddle::search_space
