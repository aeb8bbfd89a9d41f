#include "search_space/sketch/matrix/whole_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "search_space/schedule/operands.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kLongestRow = 256;  // columns of the widest instruction

bool IsProduct(const Stage& stage) {
  const auto is_element = [](const Expr& e) {
    return (e->op == Op::kCast ? e->args[0] : e)->op == Op::kLoad;
  };
  return stage.combiner == Combiner::kSum && stage.body->op == Op::kMul && !stage.is_output &&
         std::all_of(stage.body->args.begin(), stage.body->args.end(), is_element);
}

// The stages that a tile with whole rows of a product can compute.
class RowsFinder {
 public:
  RowsFinder(const TensorProgram& program, const Stage& product, size_t along)
      : program_(program), product_(product), along_(along), members_{&product} {}

  // With the stage that is stored as the last; empty where there is none, or no row is reduced.
  std::vector<const Stage*> Find() {
    for (const Stage& stage : program_.stages) {
      if (&stage <= &product_ || !ReadsMembers(stage)) continue;
      if (stage.is_reduction() ? !IsRow(stage) : !HasElements(stage, 0)) break;
      members_.push_back(&stage);
    }
    while (members_.size() > 1 &&
           !(members_.back()->is_output && HasElements(*members_.back(), 0) && AreReadInside())) {
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

  // Are all but the last only read by others of them?
  bool AreReadInside() const {
    return std::none_of(members_.begin(), members_.end() - 1, [&](const Stage* s) {
      return s->is_output ||
             std::any_of(program_.stages.begin(), program_.stages.end(), [&](const Stage& reader) {
               const auto at = std::find(members_.begin(), members_.end(), &reader);
               return at == members_.end() && Reads(reader, *s);
             });
    });
  }
  static bool Reads(const Stage& reader, const Stage& s) {
    const std::vector<Expr> loads = LoadsIn(reader.body);
    return std::any_of(loads.begin(), loads.end(),
                       [&](const Expr& e) { return e->buffer == s.tensor; });
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
    if (!IsProduct(product)) continue;
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
