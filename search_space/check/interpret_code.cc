#include "search_space/check/interpret_code.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "search_space/check/verify_bulk.h"
#include "search_space/ir/background.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"

namespace heddle::search_space {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// Thrown inside this file only; becomes the status of CompileKernel.
struct Malformed {
  std::string message;
};

class Compiler {
 public:
  Compiler(const Kernel& kernel, const absl::flat_hash_map<std::string, int>& globals)
      : globals_(globals) {
    code_.kernel = &kernel;
    for (size_t i = 0; i < kernel.shared.size(); ++i) {
      shared_[kernel.shared[i].buffer.get()] = static_cast<int>(i);
    }
  }

  KernelCode Run() {
    code_.block_slot = Declare(code_.kernel->block);
    code_.thread_slot = Declare(code_.kernel->thread);
    code_.body = Statement(code_.kernel->body);
    return std::move(code_);
  }

 private:
  // ------------------------------------------------------------------------------- expressions
  struct Sum {
    int64_t constant = 0;
    std::vector<SumTerm> terms;
  };

  int Declare(const Var& var) {
    slots_[var.get()] = code_.slot_count;
    extents_.push_back(var->extent);
    return code_.slot_count++;
  }

  int Append(ExprCode e) {
    code_.exprs.push_back(e);
    return static_cast<int>(code_.exprs.size()) - 1;
  }

  int Expression(const Expr& e) {
    if (e->type == DType::kInt64) {
      Sum sum;
      AddTo(sum, e, 1);
      if (sum.constant == 0 && sum.terms.size() == 1 && sum.terms[0].slot < 0 &&
          sum.terms[0].coef == 1) {
        return sum.terms[0].expr;
      }
      return Append(sum);
    }
    return Operation(e);
  }

  // sum += factor * e
  void AddTo(Sum& sum, const Expr& e, int64_t factor) {
    switch (e->op) {
      case Op::kInt:
        sum.constant += factor * e->int_value;
        return;
      case Op::kVar: {
        auto slot = slots_.find(e->var.get());
        if (slot == slots_.end()) {
          throw Malformed{absl::StrCat("variable ", e->var->name, " is used outside its loop")};
        }
        AddTerm(sum, {slot->second, -1, factor});
        return;
      }
      case Op::kAdd:
      case Op::kSub:
        AddTo(sum, e->args[0], factor);
        AddTo(sum, e->args[1], e->op == Op::kAdd ? factor : -factor);
        return;
      case Op::kMul:
        for (int side = 0; side < 2; ++side) {
          if (e->args[side]->op == Op::kInt) {
            AddTo(sum, e->args[1 - side], factor * e->args[side]->int_value);
            return;
          }
        }
        break;
      case Op::kNeg:
        AddTo(sum, e->args[0], -factor);
        return;
      default:
        break;
    }
    AddTerm(sum, {-1, Operation(e), factor});
  }

  static void AddTerm(Sum& sum, SumTerm term) {
    for (SumTerm& t : sum.terms) {
      if (t.slot == term.slot && t.expr == term.expr) {
        t.coef += term.coef;
        return;
      }
    }
    sum.terms.push_back(term);
  }

  int Append(const Sum& sum) {
    ExprCode e{.op = Op::kAdd, .is_sum = true};
    e.constant = sum.constant;
    e.min = e.max = static_cast<double>(sum.constant);
    e.first_term = static_cast<int>(code_.terms.size());
    for (const SumTerm& t : sum.terms) {
      if (t.coef == 0) continue;
      const double low = t.slot >= 0 ? 0 : code_.exprs[t.expr].min;
      const double high =
          t.slot >= 0 ? static_cast<double>(extents_[t.slot] - 1) : code_.exprs[t.expr].max;
      const double coef = static_cast<double>(t.coef);
      e.min += coef * (coef > 0 ? low : high);
      e.max += coef * (coef > 0 ? high : low);
      code_.terms.push_back(t);
      ++e.term_count;
    }
    return Append(e);
  }

  int Operation(const Expr& e) {
    ExprCode out{.op = e->op};
    out.is_float = IsFloat(e->type);
    out.type = e->type;
    out.value = RoundTo(e->type, e->float_value);
    out.constant = e->int_value;
    out.min = -kUnbounded;
    out.max = kUnbounded;
    if (e->op == Op::kLoad) {
      out.access = Access(e->buffer, e->args, e->lanes, /*is_store=*/false);
      return Append(out);
    }
    // A select's type of evaluation is that of its values, not of its condition.
    if (!e->args.empty()) out.float_args = IsFloat(e->args.back()->type);
    for (size_t i = 0; i < e->args.size(); ++i) out.args[i] = Expression(e->args[i]);
    if ((e->op == Op::kDiv || e->op == Op::kMod) && !out.is_float) BoundDivision(e, out);
    return Append(out);
  }

  void BoundDivision(const Expr& e, ExprCode& out) {
    if (e->args[1]->op != Op::kInt || e->args[1]->int_value <= 0) {
      throw Malformed{absl::StrCat("the divisor of ", ToString(e), " is no positive constant")};
    }
    const double divisor = static_cast<double>(e->args[1]->int_value);
    const ExprCode& dividend = code_.exprs[out.args[0]];
    if (e->op == Op::kDiv) {
      out.min = std::floor(dividend.min / divisor);
      out.max = std::floor(dividend.max / divisor);
    } else {
      const bool inside = dividend.min >= 0 && dividend.max < divisor;
      out.min = inside ? dividend.min : 0;
      out.max = inside ? dividend.max : divisor - 1;
    }
  }

  // ----------------------------------------------------------------------------------- accesses
  int Access(const BufferRef& buffer, const ExprList& indices, int lanes, bool is_store) {
    AccessCode a{.buffer = buffer.get(), .storage = Locate(*buffer, is_store)};
    a.lanes = lanes;
    if (buffer->scope == Scope::kShared) a.byte_offset = code_.kernel->shared[a.storage].offset;
    if (indices.size() != buffer->shape.size()) {
      throw Malformed{absl::StrCat(buffer->name, " has ", buffer->shape.size(),
                                   " dimensions and is accessed with ", indices.size(),
                                   " indices")};
    }
    bool proven = buffer->swizzle == 0;
    Sum offset;
    for (size_t i = 0; i < indices.size(); ++i) {
      a.indices.push_back(Expression(indices[i]));
      const ExprCode& index = code_.exprs[a.indices.back()];
      proven = proven && index.min >= 0 && index.max < static_cast<double>(buffer->shape[i]);
    }
    if (proven) {
      for (size_t i = 0; i < indices.size(); ++i) AddTo(offset, indices[i], buffer->strides[i]);
      a.offset = Append(offset);
      proven = code_.exprs[a.offset].max < static_cast<double>(buffer->elements);
      if (!proven) a.offset = -1;
    }
    if (lanes > 1) {
      if (lane_slot_ < 0) {
        throw Malformed{
            absl::StrCat("an access to ", buffer->name, " has lanes outside a vector loop")};
      }
      a.lane_slot = lane_slot_;
      vector_accesses_.push_back(static_cast<int>(code_.accesses.size()));
    }
    code_.accesses.push_back(std::move(a));
    return static_cast<int>(code_.accesses.size()) - 1;
  }

  int Locate(const Buffer& buffer, bool is_store) {
    if (buffer.scope == Scope::kShared) {
      auto it = shared_.find(&buffer);
      if (it != shared_.end()) return it->second;
    } else if (buffer.scope == Scope::kLocal) {
      auto it = locals_.find(&buffer);
      if (it != locals_.end()) return it->second;
    } else {
      const std::vector<BufferRef>& arguments = code_.kernel->arguments;
      for (size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i]->name != buffer.name) continue;
        if (is_store && !code_.kernel->written[i]) {
          throw Malformed{absl::StrCat(buffer.name, " is stored to but not marked as written")};
        }
        auto it = globals_.find(buffer.name);
        if (it == globals_.end()) {
          throw Malformed{absl::StrCat(buffer.name, " is no buffer of the program")};
        }
        return it->second;
      }
    }
    throw Malformed{absl::StrCat(NameOf(buffer.scope), " buffer ", buffer.name,
                                 " is accessed where it is not declared")};
  }

  // --------------------------------------------------------------------------------- statements
  StmtCode Statement(const Stmt& s) {
    StmtCode out{.kind = s->kind};
    switch (s->kind) {
      case StmtNode::Kind::kSeq:
      case StmtNode::Kind::kComment:
        break;
      case StmtNode::Kind::kFor:
        return Loop(*s);
      case StmtNode::Kind::kIf:
        out.condition = Expression(s->condition);
        break;
      case StmtNode::Kind::kStore:
        Write(*s, out);
        break;
      case StmtNode::Kind::kAlloc:
        out.local_begin = code_.local_elements;
        out.local_size = s->buffer->elements;
        code_.local_elements += out.local_size;
        locals_[s->buffer.get()] = static_cast<int>(out.local_begin);
        break;
      case StmtNode::Kind::kIntrin:
        out.intrinsic = s->intrinsic;
        out.int_value = s->int_value;
        out.combiner = s->combiner;
        out.operands = s->operands;
        if (RunsInBackground(*s)) code_.has_products = true;
        out.scope = EffectsOf(s->intrinsic).scope;
        if (EffectsOf(s->intrinsic).writes_buffer) Write(*s, out);
        if (IsOfBulkCopies(*s)) OfBulkCopies(*s, out);
        break;
      case StmtNode::Kind::kLet:
        HEDDLE_CHECK(false, "Verify refuses names of values");
    }
    Children(*s, out);
    if (s->kind == StmtNode::Kind::kAlloc) locals_.erase(s->buffer.get());
    return out;
  }

  void Children(const StmtNode& s, StmtCode& out) {
    for (const Stmt& child : s.body) {
      out.body.push_back(Statement(child));
      out.scope = std::max(out.scope, out.body.back().scope);
    }
  }

  void Write(const StmtNode& s, StmtCode& out) {
    out.access = Access(s.buffer, s.indices, s.lanes, /*is_store=*/true);
    out.value = Expression(s.value);
    out.value_is_float = IsFloat(s.value->type);
  }

  void OfBulkCopies(const StmtNode& s, StmtCode& out) {
    const ExprList first(s.buffer->shape.size(), Int(0));
    out.access = Access(s.buffer, s.indices.empty() ? first : s.indices, 1, /*is_store=*/true);
    out.box = s.box;
    if (s.value != nullptr) out.value = Expression(s.value);
    if (s.base != nullptr) out.phases = Access(s.base, {s.indices[0]}, 1, /*is_store=*/true);
  }

  StmtCode Loop(const StmtNode& s) {
    StmtCode out{.kind = s.kind};
    if (s.value != nullptr) {
      out.value = Expression(s.value);
      out.stride = s.int_value;
    }
    out.is_vector = s.for_kind == ForKind::kVector;
    out.slot = Declare(s.var);
    out.extent = s.var->extent;
    if (s.rotating != nullptr) {
      out.rotating_slot = Declare(s.rotating);
      out.rotating_extent = s.rotating->extent;
    }
    if (s.condition != nullptr) out.condition = Expression(s.condition);
    if (out.is_vector) {
      CheckVectorForm(s);
      lane_slot_ = out.slot;
      vector_accesses_.clear();
    }
    Children(s, out);
    if (out.is_vector) {
      lane_slot_ = -1;
      out.vector_accesses = std::move(vector_accesses_);
    }
    slots_.erase(s.var.get());
    if (s.rotating != nullptr) slots_.erase(s.rotating.get());
    return out;
  }

  static void CheckVectorForm(const StmtNode& loop) {
    const std::string& name = loop.var->name;
    const StmtNode* body = loop.body[0].get();
    for (; body->kind == StmtNode::Kind::kIf; body = body->body[0].get()) {
      Visit(body->condition, [&](const Expr& e) {
        if (IsVar(e, loop.var)) {
          throw Malformed{absl::StrCat("a condition in the vector loop ", name, " depends on it")};
        }
      });
    }
    const bool writes =
        body->kind == StmtNode::Kind::kStore ||
        (body->kind == StmtNode::Kind::kIntrin && EffectsOf(body->intrinsic).writes_buffer);
    if (!writes) throw Malformed{absl::StrCat("the vector loop ", name, " holds no single store")};
  }

  const absl::flat_hash_map<std::string, int>& globals_;
  KernelCode code_;
  absl::flat_hash_map<const Variable*, int> slots_;
  std::vector<int64_t> extents_;  // by slot
  absl::flat_hash_map<const Buffer*, int> shared_;
  absl::flat_hash_map<const Buffer*, int> locals_;
  int lane_slot_ = -1;
  std::vector<int> vector_accesses_;
};

}  // namespace

absl::StatusOr<KernelCode> CompileKernel(const Kernel& kernel,
                                         const absl::flat_hash_map<std::string, int>& globals) {
  try {
    return Compiler(kernel, globals).Run();
  } catch (const Malformed& malformed) {
    return absl::InternalError(absl::StrCat("kernel ", kernel.name, ": ", malformed.message));
  }
}

}  // namespace heddle::search_space
