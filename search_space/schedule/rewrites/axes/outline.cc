#include "search_space/schedule/rewrites/axes/outline.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

constexpr char kSuffix[] = ".outer";
// Elements with the same value that make it worth a stage.
constexpr int64_t kLeastShared = 4;
constexpr size_t kMostParts = 8;

class Outliner {
 public:
  explicit Outliner(const Stage& stage) : stage_(stage) {}

  // The stage that is left; its parts are in parts() then.
  Stage Run() {
    Stage rest = stage_;
    rest.body = WithoutParts(stage_.body);
    return rest;
  }
  std::vector<Stage>& parts() { return parts_; }

 private:
  // Conditions, and what is computed under them, stand as they are.
  Expr WithoutParts(const Expr& e) {
    // What is widened is stored as narrow as it is.
    const bool is_widened = e->op == Op::kCast && IsFloat(e->args[0]->type);
    if (!is_widened && IsPart(e)) return PartOf(e);
    if (!IsFloat(e->type) || e->op == Op::kLoad || e->op == Op::kSelect) return e;
    ExprList args;
    bool is_changed = false;
    for (const Expr& arg : e->args) {
      args.push_back(WithoutParts(arg));
      is_changed = is_changed || args.back() != arg;
    }
    if (!is_changed) return e;
    return e->op == Op::kCast ? Cast(e->type, args[0]) : MakeExpr(e->op, std::move(args));
  }

  bool IsPart(const Expr& e) const {
    if (!IsFloat(e->type) || parts_.size() == kMostParts) return false;
    int64_t same = 1;
    bool mentions_any = false;
    for (const Var& axis : stage_.axes) {
      const bool mentions = MentionsAny(e, {axis.get()});
      mentions_any = mentions_any || mentions;
      if (!mentions) same *= axis->extent;
    }
    return mentions_any && same >= kLeastShared && ReadsByIndex(e);
  }

  // An element of the stage that has its value, a new one where none has.
  Expr PartOf(const Expr& e) {
    ExprList at;
    std::vector<Var> mentioned;
    for (const Var& axis : stage_.axes) {
      if (!MentionsAny(e, {axis.get()})) continue;
      mentioned.push_back(axis);
      at.push_back(VarExpr(axis));
    }
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (StructurallyEqual(values_[p], e)) return Load(parts_[p].tensor, std::move(at));
    }
    Stage part;
    for (const Var& axis : mentioned) part.axes.push_back(MakeVar(axis->name, axis->extent));
    part.tensor =
        TensorOver(part.axes, absl::StrCat(stage_.name(), kSuffix, parts_.size()), e->type);
    part.body = Substitute(e, mentioned, ExprsOf(part.axes));
    parts_.push_back(part);
    values_.push_back(e);
    return Load(part.tensor, std::move(at));
  }

  const Stage& stage_;
  std::vector<Stage> parts_;
  std::vector<Expr> values_;  // what the parts are, in the axes of the stage
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithOutlined(const TensorProgram& program,
                                                                  const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  Outliner outliner(program.stages[number]);
  Stage rest = outliner.Run();
  if (program.stages[number].is_reduction() || outliner.parts().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is no elementwise stage with a part that is read where an index says and ",
        "that several of its elements share"));
  }
  auto outlined = std::make_shared<TensorProgram>(program);
  outlined->stages[number] = std::move(rest);
  outlined->stages.insert(outlined->stages.begin() + static_cast<std::ptrdiff_t>(number),
                          outliner.parts().begin(), outliner.parts().end());
  return outlined;
}

bool IsOutlined(const std::string& name) { return absl::StrContains(name, kSuffix); }

absl::Status Outline::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithOutlined);
}

}  // namespace heddle::search_space
