#include "search_space/sketch/matrix/whole_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/whole_factors.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kLongestRow = 256;  // columns of the widest instruction

// The stages that a tile with whole rows of a product can compute.
class RowsFinder {
 public:
  RowsFinder(const TensorProgram& program, const Stage& product, size_t along)
      : program_(program), product_(product), along_(along), members_{&product} {}

  // With the stage that is stored as the last; empty where there is none, or no row is reduced.
  std::vector<const Stage*> Find() {
    for (const Stage& stage : program_.stages) {
      if (&stage <= &product_ || !ReadsMembers(stage)) continue;
      const bool fits = stage.is_reduction() ? IsRow(stage) : HasElements(stage, 0);
      if (!fits || !ReadsItsOwn(stage)) break;  // what it reads is stored, and so the rest is
      members_.push_back(&stage);
    }
    while (members_.size() > 1 &&
           !(HasElements(*members_.back(), 0) && IsStored(*members_.back()) && AreReadInside())) {
      members_.pop_back();
    }
    const bool reduces = std::any_of(members_.begin() + 1, members_.end(),
                                     [](const Stage* s) { return s->is_reduction(); });
    return reduces ? members_ : std::vector<const Stage*>();
  }

 private:
  bool IsMember(const Expr& load) const {
    return std::any_of(members_.begin(), members_.end(),
                       [&](const Stage* s) { return s->tensor == load->buffer; });
  }
  bool ReadsMembers(const Stage& stage) const {
    const std::vector<Expr> loads = LoadsIn(stage.body);
    return std::any_of(loads.begin(), loads.end(), [&](const Expr& e) { return IsMember(e); });
  }

  // Has the stage the product's axes, `fewer` less, and those as long?
  bool HasElements(const Stage& stage, size_t fewer) const {
    if (stage.axes.size() + fewer != product_.axes.size()) return false;
    for (size_t d = 0, own = 0; d < product_.axes.size(); ++d) {
      if (fewer > 0 && d == along_) continue;
      if (stage.axes[own++]->extent != product_.axes[d]->extent) return false;
    }
    return true;
  }
  bool IsRow(const Stage& stage) const {
    return HasElements(stage, 1) && stage.reduce_axes.size() == 1 &&
           stage.reduce_axes[0]->extent == product_.axes[along_]->extent;
  }

  // Reads the stage elements and rows of the others at its own, so that one lane has all of them?
  // Along a row it may be another element that the same lane has.
  bool ReadsItsOwn(const Stage& stage) const {
    const bool is_row = stage.is_reduction();
    const auto axis_at = [&](size_t d) -> const Var& {  // by the product's axes
      if (!is_row) return stage.axes[d];
      if (d == along_) return stage.reduce_axes[0];
      return stage.axes[d < along_ ? d : d - 1];
    };
    const std::vector<Expr> loads = LoadsIn(stage.body);
    return std::all_of(loads.begin(), loads.end(), [&](const Expr& load) {
      if (!IsMember(load)) return true;
      const bool of_row = load->args.size() < product_.axes.size();
      for (size_t d = 0; d < load->args.size(); ++d) {
        const size_t axis = of_row && d >= along_ ? d + 1 : d;
        const Expr& index = load->args[d];
        const bool is_own = IsVar(index, axis_at(axis));
        const bool is_held = !is_row && axis == along_ && IsInLane(stage, index, axis_at(axis));
        if (!is_own && !is_held) return false;
      }
      return true;
    });
  }
  // Lanes have every eighth column from theirs on, two of them.
  static bool IsInLane(const Stage& stage, const Expr& index, const Var& axis) {
    static constexpr int64_t kColumns = 8;
    for (const Var& other : stage.axes) {
      if (other != axis && MentionsAny(index, {other.get()})) return false;
    }
    return !ReadsIndices(index) && StructurallyEqual(Simplify(index % Int(kColumns)),
                                                     Simplify(VarExpr(axis) % Int(kColumns)));
  }

  // Is it an output, or is all that reads it summed up along other axes than the rows' columns?
  bool IsStored(const Stage& stage) const {
    if (stage.is_output) return true;
    bool is_read_across = true;
    for (const Stage& reader : program_.stages) {
      Visit(reader.body, [&](const Expr& load) {
        if (load->op != Op::kLoad || load->buffer != stage.tensor) return;
        const auto is_column = [&](const Var& axis) {
          return MentionsAny(load->args[along_], {axis.get()});
        };
        is_read_across =
            is_read_across && reader.combiner == Combiner::kSum &&
            std::none_of(reader.reduce_axes.begin(), reader.reduce_axes.end(), is_column);
      });
    }
    return is_read_across;
  }

  // Are all but the last only read by others of them?
  bool AreReadInside() const {
    return std::none_of(members_.begin(), members_.end() - 1, [&](const Stage* s) {
      return s->is_output ||
             std::any_of(program_.stages.begin(), program_.stages.end(), [&](const Stage& reader) {
               const auto at = std::find(members_.begin(), members_.end(), &reader);
               return at == members_.end() && ReadsAny(reader.body, {s->tensor.get()});
             });
    });
  }

  const TensorProgram& program_;
  const Stage& product_;
  const size_t along_;
  std::vector<const Stage*> members_;
};

}  // namespace

std::vector<WholeRows> WholeRowsOf(const TensorProgram& program) {
  std::vector<WholeRows> found;
  for (const Stage& product : program.stages) {
    if (!AddsUpProducts(product) || product.is_output) continue;
    for (size_t along = product.axes.size(); along-- > 0;) {
      if (product.axes[along]->extent > kLongestRow) continue;
      const std::vector<const Stage*> rows = RowsFinder(program, product, along).Find();
      if (rows.empty()) continue;
      WholeRows& whole = found.emplace_back(WholeRows{{}, rows.back()->name()});
      for (const Stage* s : rows) {
        if (s != rows.back()) whole.inside.insert(s->name());
      }
      break;
    }
  }
  return found;
}

}  // namespace heddle::search_space
