#include "measure/codegen/rounded_values.h"

#include <utility>

#include "search_space/ir/expr/expr.h"
#include "search_space/ir/expr/float_format.h"

namespace heddle::measure {
namespace {

using search_space::BufferRef;
using search_space::Combiner;
using search_space::DType;
using search_space::Expr;
using search_space::Intrinsic;
using search_space::IsHalf;
using search_space::Op;
using search_space::Scope;
using search_space::Stmt;
using search_space::StmtNode;

bool IsRounding(const Expr& e) {
  return e->op == Op::kCast && IsHalf(e->type) && e->args[0]->type == DType::kFloat32;
}

// x - float32(bfloat16(x)): what the first of two parts leaves to the second.
bool IsSecondPart(const Expr& e) {
  if (e->op != Op::kSub || e->args[1]->op != Op::kCast) return false;
  const Expr& first = e->args[1]->args[0];
  return IsRounding(first) && StructurallyEqual(first->args[0], e->args[0]);
}

class Reads {
 public:
  explicit Reads(const Stmt& body) {
    VisitStmts(body, [&](const StmtNode& s) { Statement(s); });
  }

  std::set<BufferRef> RoundedAlone() && {
    for (const BufferRef& other : otherwise_) rounded_.erase(other);
    return std::move(rounded_);
  }

 private:
  void Statement(const StmtNode& s) {
    for (const Expr& index : s.indices) Value(index);
    if (s.condition != nullptr) Value(s.condition);
    if (s.kind == StmtNode::Kind::kStore) return Stored(s);
    // The sum of what several threads have added up is one more such sum.
    const bool adds = s.kind == StmtNode::Kind::kIntrin && s.intrinsic == Intrinsic::kWarpReduce &&
                      s.combiner == Combiner::kSum;
    if (adds || s.kind == StmtNode::Kind::kAlloc) return;
    if (s.value != nullptr) Value(s.value);
    if (s.buffer != nullptr) otherwise_.insert(s.buffer);
    if (s.base != nullptr) otherwise_.insert(s.base);
  }

  // What is added to, or scaled, is not read by that.
  void Stored(const StmtNode& s) {
    const Expr& v = s.value;
    const bool combines = v->op == Op::kAdd || v->op == Op::kMul;
    if (!combines) return Value(v);
    for (const Expr& side : v->args) {
      if (side->op != Op::kLoad || side->buffer != s.buffer) Value(side);
    }
  }

  void Value(const Expr& e) {
    if (IsRounding(e)) return Rounded(e->args[0]);
    if (e->op == Op::kLoad) otherwise_.insert(e->buffer);
    for (const Expr& arg : e->args) Value(arg);
  }

  // Of a value that is rounded at once.
  void Rounded(const Expr& e) {
    if (e->op == Op::kLoad) {
      if (e->buffer->scope != Scope::kLocal || e->type != DType::kFloat32) return Value(e);
      rounded_.insert(e->buffer);
      for (const Expr& index : e->args) Value(index);
    } else if (e->op == Op::kMul || e->op == Op::kDiv || IsSecondPart(e)) {
      Rounded(e->args[0]);
      if (e->op != Op::kSub) Rounded(e->args[1]);
    } else if (e->op == Op::kSelect) {
      Value(e->args[0]);
      Rounded(e->args[1]);
      Rounded(e->args[2]);
    } else {
      Value(e);
    }
  }

  std::set<BufferRef> rounded_, otherwise_;
};

}  // namespace

std::set<BufferRef> RoundedLater(const Stmt& body) { return Reads(body).RoundedAlone(); }

bool IsNeverNegative(const Expr& e) {
  switch (e->op) {
    case Op::kExp:
    case Op::kSigmoid:
      return true;
    case Op::kFloat:
      return e->float_value >= 0;
    case Op::kMul:
    case Op::kDiv:
      return IsNeverNegative(e->args[0]) && IsNeverNegative(e->args[1]);
    case Op::kSelect:
      return IsNeverNegative(e->args[1]) && IsNeverNegative(e->args[2]);
    default:
      return false;
  }
}

bool KeepExponentials(const Stmt& body, const std::set<BufferRef>& arrays) {
  bool found = false;
  VisitStmts(body, [&](const StmtNode& s) {
    if (s.kind != StmtNode::Kind::kStore || !arrays.contains(s.buffer)) return;
    Visit(s.value, [&](const Expr& e) { found = found || e->op == Op::kExp; });
  });
  return found;
}

}  // namespace heddle::measure
