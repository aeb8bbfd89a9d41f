#include "search_space/ir/expr/narrow_expr.h"

#include <algorithm>
#include <utility>

#include "search_space/ir/expr/float_format.h"

namespace heddle::search_space {
namespace {

bool IsWidened(const Expr& e) { return e->op == Op::kCast && IsNarrow(e->args[0]->type); }

// The narrow type of a value that is widened in `e`; float32 where none is.
DType WidenedIn(const Expr& e) {
  DType type = DType::kFloat32;
  Visit(e, [&](const Expr& node) {
    if (IsWidened(node)) type = node->args[0]->type;
  });
  return type;
}

bool IsNumberOf(DType type, const Expr& e) {
  return e->op == Op::kFloat && RoundTo(type, e->float_value) == e->float_value;
}

// Without a conversion, where it is made of choices alone.
Expr Moved(DType type, const Expr& e) {
  if (IsWidened(e)) return e->args[0]->type == type ? e->args[0] : nullptr;
  if (IsNumberOf(type, e)) return Float(e->float_value, type);
  if (e->op != Op::kSelect) return nullptr;
  Expr if_true = Moved(type, e->args[1]), if_false = Moved(type, e->args[2]);
  if (if_true == nullptr || if_false == nullptr) return nullptr;
  return Select(e->args[0], std::move(if_true), std::move(if_false));
}

// Is each value of `e` a number of `type`?
bool IsOf(DType type, const Expr& e) {
  const auto is_of = [type](const Expr& arg) { return IsOf(type, arg); };
  switch (e->op) {
    case Op::kSelect:
      return is_of(e->args[1]) && is_of(e->args[2]);
    case Op::kNeg:
    case Op::kAbs:
    case Op::kMax:
    case Op::kMin:
      return std::all_of(e->args.begin(), e->args.end(), is_of);
    default:
      return IsNumberOf(type, e) || (IsWidened(e) && e->args[0]->type == type);
  }
}

}  // namespace

Expr AsNarrow(const Expr& e) {
  const DType type = WidenedIn(e);
  if (e->type != DType::kFloat32 || !IsNarrow(type)) return nullptr;
  if (Expr moved = Moved(type, e)) return moved;
  return IsOf(type, e) ? Cast(type, e) : nullptr;
}

}  // namespace heddle::search_space
