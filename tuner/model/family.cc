#include "tuner/model/family.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace heddle::tuner {
namespace {

using search_space::Expr;
using search_space::Stage;
using search_space::Var;

std::set<std::string> VariablesOf(const Expr& e) {
  std::set<std::string> names;
  search_space::Visit(e, [&](const Expr& node) {
    // An axis of one element is there in name only.
    if (node->op == search_space::Op::kVar && node->var->extent > 1) names.insert(node->var->name);
  });
  return names;
}

std::set<std::string> NamesOf(const std::vector<Var>& axes) {
  std::set<std::string> names;
  for (const Var& axis : axes) {
    if (axis->extent > 1) names.insert(axis->name);
  }
  return names;
}

bool Meet(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& name) { return b.contains(name); });
}

// "2 reads, 2 free, window": what is read along the reduction, how much of it has an axis that not
// all of it has, and whether an index combines an axis with a reduced one.
std::string SignatureOf(const Stage& stage) {
  const std::set<std::string> reduced = NamesOf(stage.reduce_axes), kept = NamesOf(stage.axes);
  std::map<std::string, std::set<std::string>> reads;  // by text: the axes of each
  bool window = false;
  search_space::Visit(stage.body, [&](const Expr& node) {
    if (node->op != search_space::Op::kLoad) return;
    std::set<std::string> axes;
    bool combines = false;
    for (const Expr& index : node->args) {
      const std::set<std::string> here = VariablesOf(index);
      combines = combines || (Meet(here, reduced) && Meet(here, kept));
      axes.insert(here.begin(), here.end());
    }
    if (!Meet(axes, reduced)) return;  // a constant of the reduction
    window = window || combines;
    reads[search_space::ToString(node)] = axes;
  });
  int free = 0;
  for (const auto& [text, axes] : reads) {
    const bool own = std::any_of(axes.begin(), axes.end(), [&](const std::string& axis) {
      return kept.contains(axis) && std::any_of(reads.begin(), reads.end(), [&](const auto& other) {
               return !other.second.contains(axis);
             });
    });
    free += own ? 1 : 0;
  }
  return absl::StrCat(reads.size(), reads.size() == 1 ? " read" : " reads",
                      free > 0 ? absl::StrCat(", ", free, " free") : "", window ? ", window" : "");
}

}  // namespace

std::string FamilyOf(const search_space::TensorProgram& program) {
  std::set<std::string> signatures;
  for (const Stage& stage : program.stages) {
    if (stage.is_reduction()) signatures.insert(SignatureOf(stage));
  }
  return signatures.empty() ? "no reduction" : absl::StrJoin(signatures, " + ");
}

}  // namespace heddle::tuner
