#include <algorithm>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "measure/codegen/passes/passes.h"
#include "search_space/ir/expr/queries.h"

namespace heddle::measure {
namespace {

using search_space::BufferRef;
using search_space::DType;
using search_space::Expr;
using search_space::ForKind;
using search_space::Int;
using search_space::Op;
using search_space::Scope;
using search_space::Stmt;
using search_space::StmtNode;

// Is it many instructions? Products and sums stay where they are, so that they become
// multiply-adds with what stands around them as they do elsewhere, and so do quotients by numbers.
bool IsCostly(const Expr& e) {
  if (e->type != DType::kFloat32) return false;
  return IsFunction(e->op) || (e->op == Op::kDiv && ReadsMemory(e->args[1]));
}

// What one loop computes again and again.
class Invariants {
 public:
  Invariants(const Stmt& loop, const absl::flat_hash_set<BufferRef>& written) : written_(written) {
    VisitStmts(loop, [this](const StmtNode& s) {
      if (s.buffer != nullptr) changed_.insert(s.buffer);
      if (s.var != nullptr) bound_.insert(s.var.get());
      if (s.rotating != nullptr) bound_.insert(s.rotating.get());
    });
  }

  // With elements of an array for them.
  Expr Replace(const Expr& e) {
    if (e->type == DType::kInt64) return e;
    if (IsCostly(e) && IsInvariant(e) && ReadsMemory(e)) return Element(e);
    return MapDecided(e, [this](const Expr& arg) { return Replace(arg); });
  }

  // `loop`, in which they were replaced, behind them.
  Stmt Before(Stmt loop) {
    if (values_.empty()) return loop;
    array_->shape = {std::ssize(values_)};
    array_->elements = std::ssize(values_);
    std::vector<Stmt> body;
    for (int64_t i = 0; i < std::ssize(values_); ++i) {
      body.push_back(Store(array_, {Int(i)}, values_[static_cast<size_t>(i)]));
    }
    body.push_back(std::move(loop));
    return Alloc(array_, Seq(std::move(body)));
  }

 private:
  Expr Element(const Expr& value) {
    const auto found = std::find_if(values_.begin(), values_.end(), [&](const Expr& other) {
      return StructurallyEqual(value, other);
    });
    const int64_t element = found - values_.begin();
    if (found == values_.end()) values_.push_back(value);
    return Load(array_, {Int(element)});
  }

  // Registers, which the loop leaves as they are, and single elements of inputs: what is read where
  // a condition holds may not exist elsewhere.
  bool IsFixed(const Expr& load) const {
    const bool registers = load->buffer->scope == Scope::kLocal;
    if (changed_.contains(load->buffer) || load->type == DType::kInt64) return false;
    if (!registers && (load->buffer->scope != Scope::kGlobal || written_.contains(load->buffer))) {
      return false;
    }
    return std::all_of(load->args.begin(), load->args.end(), [&](const Expr& index) {
      return index->op == Op::kInt ||
             (registers && index->op == Op::kVar && !bound_.contains(index->var.get()));
    });
  }

  bool IsInvariant(const Expr& e) const {
    if (e->op == Op::kLoad) return IsFixed(e);
    if (e->op == Op::kVar) return !bound_.contains(e->var.get());
    return std::all_of(e->args.begin(), e->args.end(),
                       [this](const Expr& arg) { return IsInvariant(arg); });
  }

  const absl::flat_hash_set<BufferRef>& written_;  // by the kernel
  absl::flat_hash_set<BufferRef> changed_;         // by the loop
  absl::flat_hash_set<const search_space::Variable*> bound_;
  std::vector<Expr> values_;
  const std::shared_ptr<search_space::Buffer> array_ = std::make_shared<search_space::Buffer>(
      *search_space::MakeBuffer("invariant", DType::kFloat32, Scope::kLocal, {1}));
};

Stmt Hoist(const Stmt& s, const absl::flat_hash_set<BufferRef>& written) {
  const auto below = [&](const Stmt& child) { return Hoist(child, written); };
  const bool repeats =
      s->kind == StmtNode::Kind::kFor && s->for_kind == ForKind::kSerial && s->var->extent > 1;
  if (!repeats) return RewriteBodies(s, below);
  Invariants invariants(s, written);
  const Stmt loop = RewriteStmt(s, nullptr, [&](const Expr& e) { return invariants.Replace(e); });
  return invariants.Before(RewriteBodies(loop, below));
}

}  // namespace

Stmt HoistInvariants(const Stmt& body) {
  absl::flat_hash_set<BufferRef> written;
  VisitStmts(body, [&](const StmtNode& s) {
    if (s.buffer != nullptr) written.insert(s.buffer);
  });
  return Hoist(body, written);
}

}  // namespace heddle::measure
