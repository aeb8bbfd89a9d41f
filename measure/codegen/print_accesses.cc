// Stores, and the loads of what they store: as wide as they may be, and none behind a branch.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "measure/codegen/kernel_printer.h"
#include "search_space/ir/float_format.h"
#include "search_space/ir/make_node.h"
#include "search_space/ir/simplify.h"

namespace heddle::measure {
namespace {

using search_space::BufferRef;
using search_space::DType;
using search_space::Expr;
using search_space::ExprList;
using search_space::ExprNode;
using search_space::Intrinsic;
using search_space::IsHalf;
using search_space::Op;
using search_space::Scope;
using search_space::Stmt;
using search_space::StmtNode;
using search_space::Var;

constexpr int64_t kAccessBytes = 16;  // the widest load or store

bool Mentions(const Expr& e, const Var& var) {
  bool found = false;
  Visit(e, [&](const Expr& node) { found = found || (node->op == Op::kVar && node->var == var); });
  return found;
}

bool LoadsMemory(const Expr& e) {
  bool found = false;
  Visit(e, [&](const Expr& node) {
    found = found || (node->op == Op::kLoad && node->buffer->scope != Scope::kLocal);
  });
  return found;
}

// How many elements one access covers. Registers are accessed one by one: that costs nothing.
int AccessLanes(const BufferRef& buffer, int lanes) {
  if (buffer->scope == Scope::kLocal || (lanes & (lanes - 1)) != 0) return 1;
  return std::min<int>(lanes, static_cast<int>(kAccessBytes / SizeOf(buffer->dtype)));
}

// Are two neighbours that are kept in registers converted to 16 bits by one instruction?
bool IsPair(const StmtNode& store, const Dialect& dialect) {
  return dialect.packs && store.lanes == 2 && store.buffer->scope == Scope::kLocal &&
         IsHalf(store.buffer->dtype) && store.value->op == Op::kCast &&
         store.value->args[0]->type == DType::kFloat32;
}

// The widest access of a store, its value included.
int WidestAccess(const StmtNode& store, const Dialect& dialect) {
  int widest = IsPair(store, dialect) ? 2 : AccessLanes(store.buffer, store.lanes);
  Visit(store.value, [&](const Expr& e) {
    if (e->op == Op::kLoad) widest = std::max(widest, AccessLanes(e->buffer, e->lanes));
  });
  return widest;
}

}  // namespace

void KernelPrinter::PrintVector(const Var& var, const Stmt& body) {
  if (body->kind == StmtNode::Kind::kStore) {
    PrintStore(*body, var);
  } else if (body->kind == StmtNode::Kind::kIntrin && body->intrinsic == Intrinsic::kAsyncCopy) {
    PrintAsyncCopy(*body, var);
  } else if (body->kind == StmtNode::Kind::kIf && !Mentions(body->condition, var)) {
    Open(absl::StrCat("if (", printer_.Print(body->condition), ")"));
    PrintVector(var, body->body[0]);
    Close();
  } else {
    // Not the shape that promises vector accesses: every iteration by itself.
    for (int64_t i = 0; i < var->extent; ++i) {
      const Chunk chunk{var, i, 1};
      Print(RewriteStmt(body, nullptr, [&](const Expr& e) { return chunk.At(e, 0); }));
    }
  }
}

void KernelPrinter::PrintStore(const StmtNode& s, const Var& var) {
  if (var == nullptr) {
    PrintChunk(s, Chunk{});
    return;
  }
  int count = WidestAccess(s, dialect_);
  if (var->extent % count != 0) count = 1;
  for (int64_t base = 0; base < var->extent; base += count) PrintChunk(s, {var, base, count});
}

void KernelPrinter::PrintChunk(const StmtNode& s, const Chunk& chunk) {
  temporaries_.clear();
  vectors_.clear();
  std::vector<Expr> values;
  for (int lane = 0; lane < chunk.count; ++lane) {
    values.push_back(Prepare(s.value, chunk, lane, nullptr, chunk.count > 1));
  }
  if (chunk.count == 2 && IsPair(s, dialect_)) {
    const std::string pack = absl::StrCat("pack_", search_space::NameOf(s.buffer->dtype));
    printer_.helpers.insert(pack);
    Line(absl::StrCat("*(unsigned*)&", printer_.PrintElement(s.buffer, chunk.At(s.indices, 0)),
                      " = ", pack, "(", printer_.PrintRounded(values[0]->args[0]), ", ",
                      printer_.PrintRounded(values[1]->args[0]), ");"));
    return;
  }
  const int lanes = std::min(chunk.count, AccessLanes(s.buffer, s.lanes));
  for (int lane = 0; lane < chunk.count; lane += lanes) {
    const ExprList indices = chunk.At(s.indices, lane);
    if (lanes == 1) {
      PrintScalarStore(s, indices, values[lane]);
      continue;
    }
    std::vector<std::string> parts;
    for (int i = 0; i < lanes; ++i) parts.push_back(printer_.Print(values[lane + i]));
    // A vector that was loaded whole is stored whole.
    const auto loaded = vectors_.find(absl::StrJoin(parts, ", "));
    const std::string vector = loaded != vectors_.end()
                                   ? loaded->second
                                   : VectorOf(dialect_, s.buffer->dtype, parts, printer_.helpers);
    Line(absl::StrCat("*(", AddressSpace(s.buffer), TypeName(dialect_, s.buffer->dtype, lanes),
                      "*)&", printer_.PrintElement(s.buffer, indices), " = ", vector, ";"));
  }
}

// buffer[indices] = value, or the updating form where the value adds to or multiplies the old one.
void KernelPrinter::PrintScalarStore(const StmtNode& s, const ExprList& indices,
                                     const Expr& value) {
  const std::string element = printer_.PrintElement(s.buffer, indices);
  if (value->op == Op::kAdd || value->op == Op::kMul) {
    for (int side = 0; side < 2; ++side) {
      const Expr& old = value->args[side];
      if (old->op != Op::kLoad || old->buffer != s.buffer || printer_.Print(old) != element) {
        continue;
      }
      Line(absl::StrCat(element, value->op == Op::kAdd ? " += " : " *= ",
                        printer_.Print(value->args[1 - side]), ";"));
      return;
    }
  }
  Line(absl::StrCat(element, " = ", printer_.Print(value), ";"));
}

Expr KernelPrinter::PrepareLoad(const Expr& e, const Chunk& chunk, int lane, const Expr& guard,
                                bool vectors) {
  const bool memory = e->buffer->scope != Scope::kLocal;
  const int lanes = vectors ? std::min(chunk.count, AccessLanes(e->buffer, e->lanes)) : 1;
  if (!memory || (lanes == 1 && guard == nullptr)) return Load(e->buffer, chunk.At(e->args, lane));
  const int first = lane - lane % lanes;
  // Where the guard does not hold the first element is read instead: an address that exists, and
  // aligned for any width.
  std::string offset = printer_.PrintOffset(*e->buffer, chunk.At(e->args, first));
  if (guard != nullptr) {
    offset = absl::StrCat(printer_.PrintCondition(guard), " ? ", offset, " : 0");
  }
  const std::string element = absl::StrCat(printer_.NameOf(e->buffer), "[", offset, "]");
  const DType held = e->buffer->dtype;
  const std::string type = TypeName(dialect_, held, lanes);
  const std::string value =
      lanes == 1 ? element
                 : absl::StrCat("*(", AddressSpace(e->buffer), "const ", type, "*)&", element);
  return Temporary(lanes > 1 ? NameKind::kVector : NameKind::kValue, e->buffer->name, type, value,
                   lanes, lane % lanes, held);
}

// A load through a moving pointer, which points to an element only where the condition holds.
Expr KernelPrinter::LoadOrZero(const Expr& condition, const Expr& e, const Chunk& chunk, int lane,
                               bool vectors) {
  const int lanes = vectors ? std::min(chunk.count, AccessLanes(e->buffer, e->lanes)) : 1;
  const std::string type = TypeName(dialect_, e->type, lanes);
  const std::string element =
      printer_.PrintElement(e->buffer, chunk.At(e->args, lane - lane % lanes));
  const std::string zero = printer_.Print(search_space::Float(0, e->type));
  const std::vector<std::string> zeros(static_cast<size_t>(lanes), zero);
  const std::string value =
      lanes == 1 ? absl::StrCat(" ? ", element, " : ", zero)
                 : absl::StrCat(" ? *(", AddressSpace(e->buffer), "const ", type, "*)&", element,
                                " : ", VectorOf(dialect_, e->type, zeros, printer_.helpers));
  return Temporary(lanes > 1 ? NameKind::kVector : NameKind::kValue, e->buffer->name, type,
                   printer_.PrintCondition(condition) + value, lanes, lane % lanes, e->type);
}

Expr KernelPrinter::PrepareSelect(const Expr& e, const Chunk& chunk, int lane, const Expr& guard,
                                  bool vectors) {
  const Expr condition = Simplify(chunk.At(e->args[0], lane));
  if (condition->op == Op::kInt) {
    return Prepare(e->args[condition->int_value != 0 ? 1 : 2], chunk, lane, guard, vectors);
  }
  for (int i = 0; i < chunk.count && vectors; ++i) {
    vectors = StructurallyEqual(condition, Simplify(chunk.At(e->args[0], i)));
  }
  Expr c = LoadsMemory(e->args[0]) ? Prepare(e->args[0], chunk, lane, guard, vectors) : condition;
  if (guard == nullptr && e->args[1]->op == Op::kLoad && moving_.contains(e->args[1]->buffer)) {
    return LoadOrZero(c, e->args[1], chunk, lane, vectors);
  }
  const bool loads = LoadsMemory(e->args[1]) || LoadsMemory(e->args[2]);
  if (loads) {
    c = Temporary(NameKind::kCondition, "p", dialect_.bool_type, printer_.Print(c), 1, 0,
                  DType::kBool);
  }
  const auto also = [&](const Expr& more) { return guard == nullptr ? more : guard && more; };
  const Expr a = Prepare(e->args[1], chunk, lane, also(c), vectors);
  const Expr b = LoadsMemory(e->args[2])
                     ? Prepare(e->args[2], chunk, lane, also(MakeExpr(Op::kNot, {c})), vectors)
                     : Prepare(e->args[2], chunk, lane, guard, vectors);
  return Select(c, a, b);
}

Expr KernelPrinter::Prepare(const Expr& e, const Chunk& chunk, int lane, const Expr& guard,
                            bool vectors) {
  if (e->op == Op::kLoad) return PrepareLoad(e, chunk, lane, guard, vectors);
  if (e->op == Op::kSelect) return PrepareSelect(e, chunk, lane, guard, vectors);
  if (e->type == DType::kInt64 && !LoadsMemory(e)) return Simplify(chunk.At(e, lane));
  if (e->args.empty()) return chunk.At(e, lane);
  auto node = search_space::MakeNode<ExprNode>(*e);
  for (Expr& arg : node->args) arg = Prepare(arg, chunk, lane, guard, vectors);
  return node;
}

Expr KernelPrinter::Temporary(NameKind kind, const std::string& name, const std::string& type,
                              const std::string& value, int lanes, int lane, DType dtype) {
  std::string& known = temporaries_[absl::StrCat(type, " ", value)];
  if (known.empty()) {
    known = names_.Declare(kind, name);
    Line(absl::StrCat("const ", type, " ", known, " = ", value, ";"));
    if (lanes > 1) {
      std::vector<std::string> all;
      for (int i = 0; i < lanes; ++i) {
        all.push_back(LaneOf(dialect_, dtype, known, lanes, i, printer_.helpers));
      }
      vectors_[absl::StrJoin(all, ", ")] = known;
    }
  }
  // Of an index: as many values as it may have before it is clamped.
  const bool is_index = dtype == DType::kInt32;
  const Var var = search_space::MakeVar(name, is_index ? int64_t{1} << 31 : 2);
  bound_.push_back(var);
  printer_.Bind(var,
                lanes > 1 ? LaneOf(dialect_, dtype, known, lanes, lane, printer_.helpers) : known);
  ExprNode node{.op = Op::kVar, .type = is_index ? DType::kInt64 : dtype};
  node.var = var;
  return search_space::MakeNode<ExprNode>(std::move(node));
}

void KernelPrinter::PrintAsyncCopy(const StmtNode& s, const Var& var) {
  const int64_t bytes = s.lanes * SizeOf(s.buffer->dtype);
  const bool possible = bytes == 4 || bytes == 8 || bytes == 16;
  if (!async_copies_ || !possible) {  // at once: as good as a copy that completes early
    PrintStore(s, var);
    return;
  }
  const Expr load = s.value->op == Op::kSelect ? s.value->args[1] : s.value;
  for (int64_t base = 0; base < (var == nullptr ? 1 : var->extent); base += s.lanes) {
    const Chunk chunk{var, base, s.lanes};
    std::string valid;
    if (s.value->op == Op::kSelect) {
      valid = absl::StrCat(", ", printer_.Print(Simplify(chunk.At(s.value->args[0], 0))));
    }
    Line(absl::StrCat("async_copy<", bytes, ">(&",
                      printer_.PrintElement(s.buffer, chunk.At(s.indices, 0)), ", &",
                      printer_.PrintElement(load->buffer, chunk.At(load->args, 0)), valid, ");"));
  }
  printer_.helpers.insert("async_copy");
}

}  // namespace heddle::measure
