#include "search_space/schedule/placement/gather_read.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/schedule/analysis/operands.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

constexpr double kMostElements = 0x1p62;  // that an index can count

// `e` with `load` in the place of an operand. What is equal to it inside another operand stays a
// part of that one, which would otherwise have to wait for this.
Expr Replace(const Expr& e, const Expr& gathered, const Expr& load,
             const std::vector<Expr>& operands) {
  if (StructurallyEqual(e, gathered)) return load;
  const auto is_operand = [&](const Expr& operand) { return StructurallyEqual(e, operand); };
  if (std::any_of(operands.begin(), operands.end(), is_operand)) return e;
  std::shared_ptr<ExprNode> changed;
  for (size_t i = 0; i < e->args.size(); ++i) {
    Expr arg = Replace(e->args[i], gathered, load, operands);
    if (arg == e->args[i]) continue;
    if (changed == nullptr) changed = std::make_shared<ExprNode>(*e);
    changed->args[i] = std::move(arg);
  }
  return changed == nullptr ? e : Expr(std::move(changed));
}

}  // namespace

absl::Status GatherRead::ApplyTo(ScheduleEditor& editor) const {
  HEDDLE_ASSIGN_OR_RETURN(here, editor.FindStage(reader));
  const Operands operands = OperandsOf(*here);
  const auto count = static_cast<int64_t>(operands.list.size());
  if (operand < 0 || operand >= count) {
    return Refuse(absl::StrCat(reader, " has ", count, " operands, counted from 0"));
  }
  const Expr& gathered = operands.list[static_cast<size_t>(operand)];
  Stage made;
  std::vector<int64_t> shape;
  std::vector<Var> from;
  ExprList indices;
  double elements = 1;
  for (size_t a : AxesInMemoryOrder(*here, gathered)) {
    from.push_back(a < here->axes.size() ? here->axes[a]
                                         : here->reduce_axes[a - here->axes.size()]);
    indices.push_back(VarExpr(from.back()));
    made.axes.push_back(MakeVar(from.back()->name, from.back()->extent));
    shape.push_back(from.back()->extent);
    elements *= static_cast<double>(shape.back());
  }
  if (shape.empty() || elements >= kMostElements) {
    return Refuse(absl::StrCat("operand ", operand, " of ", reader, " is ",
                               shape.empty() ? "the same everywhere" : "too large for a tensor"));
  }
  std::string name = absl::StrCat(reader, ".operand", operand);
  for (int n = 2; editor.schedule().FindStage(name) >= 0; ++n) {
    name = absl::StrCat(reader, ".operand", operand, ".", n);
  }
  made.tensor = MakeBuffer(std::move(name), gathered->type, Scope::kGlobal, std::move(shape));
  made.body = Substitute(gathered, [&](const Var& v) -> Expr {
    for (size_t a = 0; a < from.size(); ++a) {
      if (from[a] == v) return VarExpr(made.axes[a]);
    }
    return nullptr;
  });
  const Expr load = Load(made.tensor, std::move(indices));
  here->body = Replace(operands.body, gathered, load, operands.list);
  editor.Insert(editor.schedule().IndexOf(*here), {MakeScheduledStage(made)});
  return absl::OkStatus();
}

}  // namespace heddle::search_space
