#include "measure/codegen/store_printer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "measure/codegen/rounded_values.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/make_node.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::measure {
namespace {

using search_space::BufferRef;
using search_space::DType;
using search_space::Expr;
using search_space::ExprList;
using search_space::ExprNode;
using search_space::IsHalf;
using search_space::Op;
using search_space::Scope;
using search_space::StmtNode;
using search_space::Var;

constexpr int64_t kAccessBytes = 16;  // the widest load or store

bool LoadsMemory(const Expr& e) {
  bool found = false;
  Visit(e, [&](const Expr& node) {
    found = found || (node->op == Op::kLoad && node->buffer->scope != Scope::kLocal);
  });
  return found;
}

// However wide the accesses are.
bool IsSameElement(const Expr& a, const Expr& b) {
  return a->buffer == b->buffer && std::equal(a->args.begin(), a->args.end(), b->args.begin(),
                                              b->args.end(), search_space::StructurallyEqual);
}

ExprList LoadsNeeded(const Expr& e);

ExprList NeededByBoth(const Expr& a, const Expr& b) {
  ExprList both;
  const ExprList second = LoadsNeeded(b);
  for (const Expr& load : LoadsNeeded(a)) {
    const auto equal = [&load](const Expr& other) { return IsSameElement(load, other); };
    if (std::any_of(second.begin(), second.end(), equal)) both.push_back(load);
  }
  return both;
}

// The loads from memory that a value needs, whichever sides of its choices it takes.
ExprList LoadsNeeded(const Expr& e) {
  if (e->op == Op::kLoad) return e->buffer->scope == Scope::kLocal ? ExprList{} : ExprList{e};
  ExprList needed;
  const bool chooses = e->op == Op::kSelect || e->op == Op::kAnd || e->op == Op::kOr;
  for (size_t i = 0; i < (chooses ? 1 : e->args.size()); ++i) {
    for (const Expr& load : LoadsNeeded(e->args[i])) needed.push_back(load);
  }
  if (e->op != Op::kSelect) return needed;
  for (const Expr& load : NeededByBoth(e->args[1], e->args[2])) needed.push_back(load);
  return needed;
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

void StorePrinter::Print(const StmtNode& s, const Var& var) {
  if (var == nullptr) return PrintChunk(s, Chunk{});
  int count = WidestAccess(s, out_.dialect);
  if (var->extent % count != 0) count = 1;
  for (int64_t base = 0; base < var->extent; base += count) PrintChunk(s, {var, base, count});
}

void StorePrinter::PrintChunk(const StmtNode& s, const Chunk& chunk) {
  temporaries_.clear();
  vectors_.clear();
  bool chooses = false;
  Visit(s.value, [&](const Expr& e) { chooses = chooses || e->op == Op::kSelect; });
  std::vector<Expr> values;
  for (int lane = 0; lane < chunk.count; ++lane) {
    Lane at{chunk, lane, nullptr, chunk.count > 1};
    if (chooses) at.Need(LoadsNeeded(s.value));
    values.push_back(Prepare(s.value, at));
  }
  if (chunk.count == 2 && IsPair(s, out_.dialect)) {
    const std::string pack = absl::StrCat("pack_", search_space::NameOf(s.buffer->dtype));
    out_.Call(pack, "*(unsigned*)&", out_.exprs.PrintElement(s.buffer, chunk.At(s.indices, 0)),
              " = ", pack, "(", out_.exprs.PrintRounded(values[0]->args[0]), ", ",
              out_.exprs.PrintRounded(values[1]->args[0]), ");");
    return;
  }
  const int lanes = std::min(chunk.count, AccessLanes(s.buffer, s.lanes));
  for (int lane = 0; lane < chunk.count; lane += lanes) {
    const ExprList indices = chunk.At(s.indices, lane);
    if (lanes == 1) {
      PrintScalar(s.buffer, indices, values[lane]);
      continue;
    }
    std::vector<std::string> parts;
    for (int i = 0; i < lanes; ++i) parts.push_back(out_.exprs.Print(values[lane + i]));
    // A vector that was loaded whole is stored whole.
    const auto loaded = vectors_.find(absl::StrJoin(parts, ", "));
    const std::string vector = loaded != vectors_.end() ? loaded->second
                                                        : VectorOf(out_.dialect, s.buffer->dtype,
                                                                   parts, out_.exprs.helpers);
    out_.Line("*(", AddressSpace(out_.dialect, s.buffer->scope),
              TypeName(out_.dialect, s.buffer->dtype, lanes), "*)&",
              out_.exprs.PrintElement(s.buffer, indices), " = ", vector, ";");
  }
}

void StorePrinter::PrintScalar(const BufferRef& buffer, const ExprList& indices,
                               const Expr& value) {
  const std::string element = out_.exprs.PrintElement(buffer, indices);
  if (value->op == Op::kAdd || value->op == Op::kMul) {
    for (int side = 0; side < 2; ++side) {
      const Expr& old = value->args[side];
      if (old->op != Op::kLoad || old->buffer != buffer || out_.exprs.Print(old) != element) {
        continue;
      }
      const Expr& by = value->args[1 - side];
      if (value->op == Op::kMul) {
        out_.Line(element, " *= ", out_.exprs.Print(by), ";");
      } else {
        out_.Line(element,
                  " += ", IsNeverNegative(by) ? PrintFor(buffer, by) : out_.exprs.Print(by), ";");
      }
      return;
    }
  }
  out_.Line(element, " = ", PrintFor(buffer, value), ";");
}

// A value that `buffer` gets, or that is added to one of its and never negative.
std::string StorePrinter::PrintFor(const BufferRef& buffer, const Expr& value) {
  return rounded_later_.contains(buffer) ? out_.exprs.PrintRoundedLater(value)
                                         : out_.exprs.Print(value);
}

int StorePrinter::Lane::WidthOf(const Expr& load) const {
  return vectors ? std::min(chunk.count, AccessLanes(load->buffer, load->lanes)) : 1;
}

StorePrinter::Lane StorePrinter::Lane::Where(const Expr& condition) const {
  return {chunk, lane, guard == nullptr ? condition : guard && condition, vectors, needed};
}

void StorePrinter::Lane::Need(const ExprList& loads) {
  for (const Expr& load : loads) {
    const auto known = [&load](const Needed& n) { return IsSameElement(n.load, load); };
    if (std::none_of(needed.begin(), needed.end(), known)) {
      needed.push_back({load, guard, vectors});
    }
  }
}

// `condition` and `otherwise` stand around the load.
Expr StorePrinter::Loaded(const Expr& load, const Lane& at, DType type,
                          const std::string& condition, const std::string& element,
                          const std::string& otherwise) {
  const int width = at.WidthOf(load);
  const std::string cast = width == 1
                               ? ""
                               : absl::StrCat("*(", AddressSpace(out_.dialect, load->buffer->scope),
                                              "const ", TypeName(out_.dialect, type, width), "*)&");
  return Temporary(width > 1 ? NameKind::kVector : NameKind::kValue, load->buffer->name,
                   absl::StrCat(condition, cast, element, otherwise), type, width, at.lane % width);
}

Expr StorePrinter::PrepareLoad(const Expr& e, const Lane& at) {
  const bool in_place = at.guard == nullptr;
  for (const Lane::Needed& n : at.needed) {
    if (!IsSameElement(n.load, e)) continue;
    return LoadedAt(n.load, Lane{at.chunk, at.lane, n.guard, n.vectors}, in_place);
  }
  return LoadedAt(e, at, in_place);
}

// `in_place`: what is no vector is loaded where it is needed.
Expr StorePrinter::LoadedAt(const Expr& e, const Lane& at, bool in_place) {
  const int width = at.WidthOf(e);
  if (e->buffer->scope == Scope::kLocal || (width == 1 && in_place)) {
    return Load(e->buffer, at.chunk.At(e->args, at.lane));
  }
  // Where the guard does not hold the first element is read instead: an address that exists, and
  // aligned for any width.
  const int first = at.lane - at.lane % width;
  std::string offset = out_.exprs.PrintOffset(*e->buffer, at.chunk.At(e->args, first));
  if (at.guard != nullptr) {
    offset = absl::StrCat(out_.exprs.PrintCondition(at.guard), " ? ", offset, " : 0");
  }
  return Loaded(e, at, e->buffer->dtype, "",
                absl::StrCat(out_.exprs.NameOf(e->buffer), "[", offset, "]"), "");
}

// A load through a moving pointer, which points to an element only where the condition holds.
Expr StorePrinter::LoadOrZero(const Expr& condition, const Expr& e, const Lane& at) {
  const int width = at.WidthOf(e), first = at.lane - at.lane % width;
  std::string zero = out_.exprs.Print(search_space::Float(0, e->type));
  if (width > 1) {
    const std::vector<std::string> zeros(static_cast<size_t>(width), zero);
    zero = VectorOf(out_.dialect, e->type, zeros, out_.exprs.helpers);
  }
  return Loaded(e, at, e->type, out_.exprs.PrintCondition(condition) + " ? ",
                out_.exprs.PrintElement(e->buffer, at.chunk.At(e->args, first)), " : " + zero);
}

Expr StorePrinter::PrepareSelect(const Expr& e, Lane at) {
  const Expr condition = Simplify(at.chunk.At(e->args[0], at.lane));
  if (condition->op == Op::kInt) return Prepare(e->args[condition->int_value != 0 ? 1 : 2], at);
  at.Need(NeededByBoth(e->args[1], e->args[2]));
  for (int i = 0; i < at.chunk.count && at.vectors; ++i) {
    at.vectors = StructurallyEqual(condition, Simplify(at.chunk.At(e->args[0], i)));
  }
  Expr c = LoadsMemory(e->args[0]) ? Prepare(e->args[0], at) : condition;
  if (at.guard == nullptr && e->args[1]->op == Op::kLoad && moving_.contains(e->args[1]->buffer)) {
    return LoadOrZero(c, e->args[1], at);
  }
  const bool guards_second = LoadsMemory(e->args[2]);
  if (guards_second || LoadsMemory(e->args[1])) {
    c = Temporary(NameKind::kCondition, "p", out_.exprs.Print(c), DType::kBool);
  }
  const Expr a = Prepare(e->args[1], at.Where(c));
  const Expr b = Prepare(e->args[2], guards_second ? at.Where(MakeExpr(Op::kNot, {c})) : at);
  return Select(c, a, b);
}

Expr StorePrinter::Prepare(const Expr& e, const Lane& at) {
  if (e->op == Op::kLoad) return PrepareLoad(e, at);
  if (e->op == Op::kSelect) return PrepareSelect(e, at);
  const bool is_index = e->type == DType::kInt64 && !LoadsMemory(e);
  if (is_index) return Simplify(at.chunk.At(e, at.lane));
  if (e->args.empty()) return at.chunk.At(e, at.lane);
  auto node = search_space::MakeNode<ExprNode>(*e);
  for (Expr& arg : node->args) arg = Prepare(arg, at);
  return node;
}

Expr StorePrinter::Constant(const std::string& name, const std::string& value, DType dtype) {
  temporaries_.clear();
  return Temporary(NameKind::kOther, name, value, dtype);
}

Expr StorePrinter::Temporary(NameKind kind, const std::string& name, const std::string& value,
                             DType dtype, int lanes, int lane) {
  const std::string type =
      kind == NameKind::kCondition ? out_.dialect.bool_type : TypeName(out_.dialect, dtype, lanes);
  const auto lane_of = [&](const std::string& constant, int i) {
    return lanes == 1 ? constant
                      : LaneOf(out_.dialect, dtype, constant, lanes, i, out_.exprs.helpers);
  };
  std::string& known = temporaries_[absl::StrCat(type, " ", value)];
  if (known.empty()) {
    known = out_.names.Declare(kind, name);
    out_.Line("const ", type, " ", known, " = ", value, ";");
    if (lanes > 1) {
      std::vector<std::string> all;
      for (int i = 0; i < lanes; ++i) all.push_back(lane_of(known, i));
      vectors_[absl::StrJoin(all, ", ")] = known;
    }
  }
  // Of an index: as many values as it may have before it is clamped.
  const bool is_index = dtype == DType::kInt32;
  const Var var = search_space::MakeVar(name, is_index ? int64_t{1} << 31 : 2);
  bound_.push_back(var);
  out_.exprs.Bind(var, lane_of(known, lane));
  ExprNode node{.op = Op::kVar, .type = is_index ? DType::kInt64 : dtype};
  node.var = var;
  return search_space::MakeNode<ExprNode>(std::move(node));
}

}  // namespace heddle::measure
