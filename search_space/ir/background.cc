#include "search_space/ir/background.h"

#include <algorithm>

#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {

bool HasBulkCopies(const Target& target) { return CudaArch(target) >= 90; }

bool IsBulkCopied(const Buffer& tensor) {
  constexpr int64_t kUnit = 16;  // bytes
  const size_t rank = tensor.shape.size();
  if (tensor.scope != Scope::kGlobal || rank == 0 || rank > kMostBulkRank ||
      !IsNarrow(tensor.dtype) || tensor.strides.back() != 1) {
    return false;
  }
  return std::all_of(tensor.strides.begin(), tensor.strides.end() - 1,
                     [&](int64_t stride) { return stride * SizeOf(tensor.dtype) % kUnit == 0; });
}

bool IsGuarded(const Expr& element) {
  return element->op == Op::kSelect && element->args[2]->op == Op::kFloat &&
         element->args[2]->float_value == 0;
}

Expr BulkLoadOf(const Expr& element) {
  if (element->op == Op::kLoad) return element;
  if (!IsGuarded(element) || element->args[1]->op != Op::kLoad) return nullptr;
  const Expr& load = element->args[1];
  const auto is_end = [&](const Expr& condition) {
    if (condition->op != Op::kLt || condition->args[1]->op != Op::kInt) return false;
    for (size_t d = 0; d < load->args.size(); ++d) {
      if (condition->args[1]->int_value == load->buffer->shape[d] &&
          StructurallyEqual(condition->args[0], load->args[d])) {
        return true;
      }
    }
    return false;
  };
  const std::vector<Expr> conditions = Conjuncts(element->args[0]);
  return std::all_of(conditions.begin(), conditions.end(), is_end) ? load : nullptr;
}

std::vector<const StmtNode*> BulkCopiesOf(const Stmt& body) {
  std::vector<const StmtNode*> found;
  VisitStmts(body, [&](const StmtNode& s) {
    if (s.kind != StmtNode::Kind::kIntrin || s.intrinsic != Intrinsic::kBulkCopy) return;
    const bool known = std::any_of(found.begin(), found.end(), [&](const StmtNode* other) {
      return other->value->buffer == s.value->buffer && other->box == s.box;
    });
    if (!known) found.push_back(&s);
  });
  return found;
}

bool RunsInBackground(const StmtNode& s) {
  if (s.kind != StmtNode::Kind::kIntrin) return false;
  const IntrinsicEffects& effects = EffectsOf(s.intrinsic);
  return effects.scope == ExecutionScope::kWarpgroup && effects.completion == Completion::kGroup;
}

bool AnyRunsInBackground(const Stmt& body) {
  bool any = false;
  VisitStmts(body, [&](const StmtNode& s) { any = any || RunsInBackground(s); });
  return any;
}

}  // namespace heddle::search_space
