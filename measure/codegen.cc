#include "measure/codegen.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "measure/expr_printer.h"
#include "measure/moving_pointers.h"
#include "measure/straight_line.h"
#include "search_space/simplify.h"

namespace heddle::measure {
namespace {

using search_space::BufferRef;
using search_space::DType;
using search_space::Expr;
using search_space::ExprList;
using search_space::ExprNode;
using search_space::ForKind;
using search_space::Intrinsic;
using search_space::Kernel;
using search_space::Op;
using search_space::Scope;
using search_space::Stmt;
using search_space::StmtNode;
using search_space::Var;

constexpr int64_t kAccessBytes = 16;  // the widest load or store
// A loop that indexes an array of registers is unrolled, or the array would live in memory; one
// longer than this indexes an array that cannot be in registers anyway.
constexpr int64_t kLongestRegisterLoop = 1024;

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

// The widest access of a store, its value included.
int WidestAccess(const StmtNode& store) {
  int widest = AccessLanes(store.buffer, store.lanes);
  Visit(store.value, [&](const Expr& e) {
    if (e->op == Op::kLoad) widest = std::max(widest, AccessLanes(e->buffer, e->lanes));
  });
  return widest;
}

constexpr const char* kComponents[] = {".x", ".y", ".z", ".w"};

// Iterations var = base .. base + count - 1 of a vector loop (count a multiple of every access
// in it); a null var is a statement outside such a loop, base 0 and count 1.
struct Chunk {
  Var var;
  int64_t base = 0;
  int count = 1;

  Expr At(const Expr& e, int lane) const {
    if (var == nullptr) return e;
    return Substitute(
        e, [&](const Var& v) { return v == var ? search_space::Int(base + lane) : nullptr; });
  }
  ExprList At(const ExprList& list, int lane) const {
    ExprList out;
    for (const Expr& e : list) out.push_back(At(e, lane));
    return out;
  }
};

class KernelPrinter {
 public:
  KernelPrinter(const Kernel& kernel, const search_space::Target& target)
      : kernel_(kernel),
        target_(target),
        dialect_(DialectOf(target.api)),
        printer_(dialect_),
        async_copies_(target.api == search_space::Api::kCuda && target.has_async_copy),
        dynamic_shared_(target.api == search_space::Api::kCuda &&
                        kernel.shared_bytes > target.static_shared_bytes) {}

  KernelSource Generate(const std::string& header);

 private:
  void Line(const std::string& text) {
    absl::StrAppend(&body_, std::string(static_cast<size_t>(indent_) * 2, ' '), text, "\n");
  }
  void CommentLines(const std::string& text);
  void Open(const std::string& head);
  void Close();

  std::string Signature();
  void DeclareIndex(const Var& var, const char* value);
  void DeclareShared();
  void DeclareLanes();
  void FindRegisterLoops();

  void Print(const Stmt& s);
  void PrintFor(const Stmt& loop);
  void PrintStraightLine(const StmtNode& nest, const Stmt& statements);
  Stmt DeclarePointers(const StmtNode& loop, bool unrolled, std::vector<MovingPointer>& pointers);
  void PrintAlloc(const StmtNode& s);
  void PrintIntrinsic(const StmtNode& s);
  void PrintVector(const Var& var, const Stmt& body);
  // Stores of a whole vector loop, or of one statement when var is null.
  void PrintStore(const StmtNode& s, const Var& var);
  void PrintChunk(const StmtNode& s, const Chunk& chunk);
  void PrintScalarStore(const StmtNode& s, const ExprList& indices, const Expr& value);
  void PrintAsyncCopy(const StmtNode& s, const Var& var);
  void PrintWarpReduce(const StmtNode& s);

  // The value of one lane as an expression over temporaries. Vector loads, and loads that a select
  // guards, become temporaries first: all loads are issued together, none stands behind a branch.
  // `guard`: when the value is needed (null = always). `vectors`: false where the lanes of one
  // access may differ in their guards, so that they must be loaded one by one.
  Expr Prepare(const Expr& e, const Chunk& chunk, int lane, const Expr& guard, bool vectors);
  Expr PrepareLoad(const Expr& e, const Chunk& chunk, int lane, const Expr& guard, bool vectors);
  Expr PrepareSelect(const Expr& e, const Chunk& chunk, int lane, const Expr& guard, bool vectors);
  Expr LoadOrZero(const Expr& condition, const Expr& e, const Chunk& chunk, int lane, bool vectors);
  // An expression that prints as a new constant of this scope with this value; the same type and
  // value in one chunk give the same constant.
  Expr Temporary(const std::string& name, const std::string& type, const std::string& value,
                 int lanes, int lane, DType dtype);
  std::string AddressSpace(const BufferRef& buffer) const {
    return buffer->scope == Scope::kGlobal ? dialect_.global : dialect_.shared;
  }

  const Kernel& kernel_;
  const search_space::Target& target_;
  const Dialect& dialect_;
  ExprPrinter printer_;
  const bool async_copies_;
  const bool dynamic_shared_;
  Names names_;
  std::vector<size_t> scopes_;
  // Of the chunk being printed: type and value -> name, and the width of those that are vectors.
  std::map<std::string, std::string> temporaries_;
  std::map<std::string, int> vector_lanes_;
  std::vector<Var> bound_;  // keeps the variables that stand for temporaries
  std::set<const search_space::Variable*> register_loops_;
  std::map<DType, std::string> lanes_;  // arrays for exchanges between threads
  std::set<BufferRef> moving_;          // pointers that move with a loop
  bool in_unrolled_ = false;            // addresses are relative to pointers already
  // The loop around is unrolled for certain: whether the compiler unrolls another depends on how
  // much it finds in it, so that nothing is written out there.
  bool around_unrolled_ = false;
  std::string body_;
  int indent_ = 0;
};

void KernelPrinter::CommentLines(const std::string& text) {
  for (std::string line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    // A backslash at the end would continue the comment.
    while (!line.empty() && (line.back() == '\\' || line.back() == ' ' || line.back() == '\r')) {
      line.pop_back();
    }
    Line(line.empty() ? "//" : absl::StrCat("// ", line));
  }
}

void KernelPrinter::Open(const std::string& head) {
  Line(head.empty() ? "{" : head + " {");
  ++indent_;
  scopes_.push_back(names_.Mark());
}

void KernelPrinter::Close() {
  names_.Release(scopes_.back());
  scopes_.pop_back();
  --indent_;
  Line("}");
}

std::string KernelPrinter::Signature() {
  std::string out = KernelQualifiers(dialect_, kernel_.thread->extent, kernel_.min_blocks);
  absl::StrAppend(&out, kernel_.name, "(");
  for (size_t i = 0; i < kernel_.arguments.size(); ++i) {
    const BufferRef& buffer = kernel_.arguments[i];
    printer_.Bind(buffer, names_.Declare("g_", buffer->name));
    absl::StrAppend(&out, i == 0 ? "" : ",\n    ", dialect_.global,
                    kernel_.written[i] ? "" : "const ", TypeName(dialect_, buffer->dtype), "* ",
                    dialect_.restrict_pointer, printer_.NameOf(buffer));
    if (buffer->dtype == DType::kFloat64) printer_.float64 = true;
  }
  return out + ")";
}

void KernelPrinter::DeclareIndex(const Var& var, const char* value) {
  printer_.Bind(var, names_.Declare("v_", var->name));
  if (var->extent > 1) Line(absl::StrCat("const int ", printer_.NameOf(var), " = ", value, ";"));
}

void KernelPrinter::DeclareShared() {
  DeclareLanes();
  if (kernel_.shared.empty()) return;
  const std::string arena = names_.Declare("", "arena");
  const std::string size = dynamic_shared_ ? "" : absl::StrCat(kernel_.shared_bytes);
  Line(absl::StrCat(dynamic_shared_ ? dialect_.dynamic_shared_array : dialect_.shared_array,
                    dialect_.aligned, dialect_.byte_type, " ", arena, "[", size, "];"));
  for (const Kernel::SharedBuffer& s : kernel_.shared) {
    printer_.Bind(s.buffer, names_.Declare("s_", s.buffer->name));
    const std::string pointer =
        absl::StrCat(dialect_.shared, TypeName(dialect_, s.buffer->dtype), "*");
    const std::string offset =
        s.offset == 0 ? arena : absl::StrCat("(", arena, " + ", s.offset, ")");
    Line(absl::StrCat(pointer, " const ", printer_.NameOf(s.buffer), " = (", pointer, ")", offset,
                      ";"));
  }
}

// Where there are no shuffles, threads exchange values through an array.
void KernelPrinter::DeclareLanes() {
  if (dialect_.api == search_space::Api::kCuda) return;
  VisitStmts(kernel_.body, [&](const StmtNode& s) {
    if (s.kind != StmtNode::Kind::kIntrin || s.intrinsic != Intrinsic::kWarpReduce) return;
    std::string& lanes = lanes_[s.buffer->dtype];
    if (!lanes.empty()) return;
    lanes = names_.Declare("", "lanes");
    Line(absl::StrCat(dialect_.shared_array, TypeName(dialect_, s.buffer->dtype), " ", lanes, "[",
                      kernel_.thread->extent, "];"));
  });
}

void KernelPrinter::FindRegisterLoops() {
  const auto add = [&](const BufferRef& buffer, const auto& indices) {
    if (buffer->scope != Scope::kLocal) return;
    for (const Expr& index : indices) {
      Visit(index, [&](const Expr& e) {
        if (e->op == Op::kVar) register_loops_.insert(e->var.get());
      });
    }
  };
  VisitStmts(kernel_.body, [&](const StmtNode& s) {
    if (s.buffer != nullptr) add(s.buffer, s.indices);
    VisitExprs(s, [&](const Expr& held) {
      Visit(held, [&](const Expr& e) {
        if (e->op == Op::kLoad) add(e->buffer, e->args);
      });
    });
  });
  // A rotating companion is as constant as its loop's variable.
  VisitStmts(kernel_.body, [&](const StmtNode& s) {
    if (s.rotating != nullptr && register_loops_.count(s.rotating.get()) != 0) {
      register_loops_.insert(s.var.get());
    }
  });
}

KernelSource KernelPrinter::Generate(const std::string& header) {
  KernelSource out;
  out.launch.entry = kernel_.name;
  out.launch.grid = kernel_.block->extent;
  out.launch.block = kernel_.thread->extent;
  out.launch.dynamic_shared_bytes = dynamic_shared_ ? kernel_.shared_bytes : 0;
  for (const BufferRef& b : kernel_.arguments) out.launch.arguments.push_back(b->name);

  if (!header.empty()) CommentLines(header);
  std::string launch = absl::StrCat(kernel_.name, ": grid ", out.launch.grid, ", block ",
                                    out.launch.block, ", shared memory ", kernel_.shared_bytes,
                                    " bytes", dynamic_shared_ ? " (dynamic)" : "");
  CommentLines(launch);
  const std::string comments = std::exchange(body_, "");

  FindRegisterLoops();
  Open(Signature());
  DeclareIndex(kernel_.block, dialect_.block_index);
  DeclareIndex(kernel_.thread, dialect_.thread_index);
  DeclareShared();
  Print(kernel_.body);
  Close();
  out.source =
      absl::StrCat(comments, "\n", Prelude(dialect_, printer_.helpers, printer_.float64), body_);
  return out;
}

void KernelPrinter::Print(const Stmt& s) {
  switch (s->kind) {
    case StmtNode::Kind::kSeq:
      for (size_t i = 0; i < s->body.size(); ++i) {
        // An array lives to the end of its block, so one that is not the last gets its own.
        const bool own = s->body[i]->kind == StmtNode::Kind::kAlloc && i + 1 < s->body.size();
        if (own) Open("");
        Print(s->body[i]);
        if (own) Close();
      }
      break;
    case StmtNode::Kind::kFor:
      PrintFor(s);
      break;
    case StmtNode::Kind::kIf:
      Open(absl::StrCat("if (", printer_.Print(s->condition), ")"));
      Print(s->body[0]);
      Close();
      break;
    case StmtNode::Kind::kStore:
      PrintStore(*s, nullptr);
      break;
    case StmtNode::Kind::kAlloc:
      PrintAlloc(*s);
      break;
    case StmtNode::Kind::kIntrin:
      PrintIntrinsic(*s);
      break;
    case StmtNode::Kind::kComment:
      CommentLines(s->text);
      break;
  }
}

void KernelPrinter::PrintFor(const Stmt& loop) {
  const StmtNode& s = *loop;
  if (s.for_kind == ForKind::kVector) {
    PrintVector(s.var, s.body[0]);
    return;
  }
  if (s.var->extent == 1) {  // every use prints as 0
    if (s.rotating != nullptr) printer_.Bind(s.rotating, "0");
    Print(s.body[0]);
    return;
  }
  const bool registers = register_loops_.count(s.var.get()) != 0;
  const bool unrolled =
      s.for_kind == ForKind::kUnrolled || (registers && s.var->extent <= kLongestRegisterLoop);
  const Stmt statements =
      unrolled && target_.api == search_space::Api::kCuda ? StraightLine(loop) : nullptr;
  if (statements != nullptr && around_unrolled_) {
    PrintStraightLine(s, statements);
    return;
  }
  const bool outermost = unrolled && !in_unrolled_;
  std::vector<MovingPointer> pointers;
  const Stmt body = DeclarePointers(s, unrolled, pointers);
  if (unrolled) Line("#pragma unroll");
  // The names belong to the loop, but must be known before its block opens.
  const size_t mark = names_.Mark();
  const std::string v = names_.Declare("v_", s.var->name);
  printer_.Bind(s.var, v);
  const char* type = s.var->extent - 1 > INT32_MAX ? dialect_.long_type : "int";
  std::string init = absl::StrCat(type, " ", v, " = 0"), step = absl::StrCat("++", v);
  if (s.rotating != nullptr) {
    const std::string r = names_.Declare("v_", s.rotating->name);
    printer_.Bind(s.rotating, r);
    absl::StrAppend(&init, ", ", r, " = 0");
    absl::StrAppend(&step, ", ", r, " = ", r, " == ", s.rotating->extent - 1, " ? 0 : ", r, " + 1");
  }
  for (const MovingPointer& p : pointers) {
    if (p.step != 0) absl::StrAppend(&step, ", ", printer_.NameOf(p.pointer), " += ", p.step);
  }
  Open(absl::StrCat("for (", init, "; ", v, " < ", IntLiteral(dialect_, s.var->extent), "; ", step,
                    ")"));
  if (s.condition != nullptr) {
    const std::string turned = names_.Declare("v_", s.var->name);
    Line(absl::StrCat("const int ", turned, " = ", printer_.PrintCondition(s.condition), " != 0 ? ",
                      s.var->extent - 1, " - ", v, " : ", v, ";"));
    printer_.Bind(s.var, turned);
  }
  in_unrolled_ = in_unrolled_ || unrolled;
  const bool around =
      std::exchange(around_unrolled_, s.for_kind == ForKind::kUnrolled && statements == nullptr);
  Print(body);
  around_unrolled_ = around;
  if (outermost) in_unrolled_ = false;
  Close();
  names_.Release(mark);
}

void KernelPrinter::PrintStraightLine(const StmtNode& nest, const Stmt& statements) {
  std::string loops;
  for (const StmtNode* s = &nest; s->kind == StmtNode::Kind::kFor; s = s->body[0].get()) {
    if (s->var->extent == 1) continue;
    absl::StrAppend(&loops, loops.empty() ? "" : ", ", s->var->name, " < ", s->var->extent,
                    s->condition != nullptr ? " to and fro" : "");
  }
  CommentLines(absl::StrCat("Unrolled: ", loops));
  Print(statements);
}

// The loop's body with addresses relative to pointers that are declared before it. Their names live
// as long as the block around the loop.
Stmt KernelPrinter::DeclarePointers(const StmtNode& loop, bool unrolled,
                                    std::vector<MovingPointer>& pointers) {
  if (target_.api != search_space::Api::kCuda || (unrolled && in_unrolled_)) return loop.body[0];
  Stmt body = unrolled ? FixPointers(loop, pointers) : MovePointers(loop, pointers);
  for (const MovingPointer& p : pointers) {
    const std::string name = names_.Declare(p.offset != nullptr ? "o_" : "p_", p.buffer->name);
    const std::string buffer = printer_.NameOf(p.buffer), start = printer_.Print(p.start);
    if (p.offset != nullptr) {
      const char* type = p.offset->extent - 1 > INT32_MAX ? dialect_.long_type : "int";
      Line(absl::StrCat("const ", type, " ", name, " = ", start, ";"));
      printer_.Bind(p.offset, name);
      printer_.Bind(p.pointer, buffer);
      if (moving_.contains(p.buffer)) moving_.insert(p.pointer);
      continue;
    }
    Line(absl::StrCat(p.written ? "" : "const ", TypeName(dialect_, p.buffer->dtype), "* ",
                      unrolled ? "const " : "", name, " = &", buffer, "[", start, "];"));
    printer_.Bind(p.pointer, name);
    if (!unrolled) moving_.insert(p.pointer);
  }
  return body;
}

void KernelPrinter::PrintAlloc(const StmtNode& s) {
  printer_.Bind(s.buffer, names_.Declare("r_", s.buffer->name));
  if (s.buffer->dtype == DType::kFloat64) printer_.float64 = true;
  Line(absl::StrCat(TypeName(dialect_, s.buffer->dtype), " ", printer_.NameOf(s.buffer), "[",
                    s.buffer->elements, "];"));
  Print(s.body[0]);
}

void KernelPrinter::PrintIntrinsic(const StmtNode& s) {
  switch (s.intrinsic) {
    case Intrinsic::kBarrier:
      Line(dialect_.barrier);
      break;
    case Intrinsic::kWarpReduce:
      PrintWarpReduce(s);
      return;
    case Intrinsic::kAsyncCopy:
      PrintAsyncCopy(s, nullptr);
      break;
    // Where a device has no asynchronous copies they are done at once, and nothing is pending.
    case Intrinsic::kAsyncCommit:
      if (async_copies_) Line("async_commit();");
      break;
    case Intrinsic::kAsyncWait:
      if (async_copies_) Line(absl::StrCat("async_wait<", s.int_value, ">();"));
      break;
  }
  if (async_copies_ && s.intrinsic != Intrinsic::kBarrier) printer_.helpers.insert("async_copy");
}

void KernelPrinter::PrintWarpReduce(const StmtNode& s) {
  const std::string mine = printer_.PrintElement(s.buffer, s.indices);
  const std::string type = TypeName(dialect_, s.buffer->dtype);
  const bool shuffles = dialect_.api == search_space::Api::kCuda;
  const size_t mark = names_.Mark();
  const std::string lane = names_.Declare("", shuffles ? "distance" : "lane");
  std::string other;
  temporaries_.clear();
  if (shuffles) {
    Line("#pragma unroll");
    Open(absl::StrCat("for (int ", lane, " = ", s.int_value / 2, "; ", lane, " > 0; ", lane,
                      " /= 2)"));
    other = absl::StrCat("__shfl_xor_sync(0xffffffffu, ", mine, ", ", lane, ")");
  } else {
    const std::string& lanes = lanes_.at(s.buffer->dtype);
    const std::string thread = printer_.NameOf(kernel_.thread);
    const std::string first = absl::StrCat(thread, " / ", s.int_value, " * ", s.int_value);
    Line(dialect_.barrier);  // the array may still be read
    Line(absl::StrCat(lanes, "[", thread, "] = ", mine, ";"));
    Line(dialect_.barrier);
    Line(absl::StrCat(mine, " = ", lanes, "[", first, "];"));
    Open(absl::StrCat("for (int ", lane, " = 1; ", lane, " < ", s.int_value, "; ++", lane, ")"));
    other = absl::StrCat(lanes, "[", first, " + ", lane, "]");
  }
  const Expr value = Temporary("other", type, other, 1, 0, s.buffer->dtype);
  PrintScalarStore(s, s.indices,
                   search_space::Combine(s.combiner, Load(s.buffer, s.indices), value));
  Close();
  names_.Release(mark);
}

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
  int count = WidestAccess(s);
  if (var->extent % count != 0) count = 1;
  for (int64_t base = 0; base < var->extent; base += count) PrintChunk(s, {var, base, count});
}

void KernelPrinter::PrintChunk(const StmtNode& s, const Chunk& chunk) {
  temporaries_.clear();
  vector_lanes_.clear();
  std::vector<Expr> values;
  for (int lane = 0; lane < chunk.count; ++lane) {
    values.push_back(Prepare(s.value, chunk, lane, nullptr, chunk.count > 1));
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
    std::string vector = VectorOf(dialect_, s.buffer->dtype, parts);
    const std::string stem = parts[0].substr(0, parts[0].rfind('.'));
    const auto loaded = vector_lanes_.find(stem);
    bool whole = loaded != vector_lanes_.end() && loaded->second == lanes;
    for (int i = 0; i < lanes; ++i) whole = whole && parts[i] == stem + kComponents[i];
    if (whole) vector = stem;
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
  const std::string type = TypeName(dialect_, e->type, lanes);
  const std::string value =
      lanes == 1 ? element
                 : absl::StrCat(
                       "*(", e->buffer->scope == Scope::kGlobal ? dialect_.global : dialect_.shared,
                       "const ", type, "*)&", element);
  return Temporary(absl::StrCat("x_", e->buffer->name), type, value, lanes, lane % lanes, e->type);
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
                                " : ", VectorOf(dialect_, e->type, zeros));
  return Temporary(absl::StrCat("x_", e->buffer->name), type,
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
    const char* type = dialect_.api == search_space::Api::kCuda ? "bool" : "int";
    c = Temporary("p", type, printer_.Print(c), 1, 0, DType::kBool);
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
  auto node = std::make_shared<ExprNode>(*e);
  for (Expr& arg : node->args) arg = Prepare(arg, chunk, lane, guard, vectors);
  return node;
}

Expr KernelPrinter::Temporary(const std::string& name, const std::string& type,
                              const std::string& value, int lanes, int lane, DType dtype) {
  std::string& known = temporaries_[absl::StrCat(type, " ", value)];
  if (known.empty()) {
    known = names_.Declare("", name);
    Line(absl::StrCat("const ", type, " ", known, " = ", value, ";"));
    if (lanes > 1) vector_lanes_[known] = lanes;
  }
  const Var var = search_space::MakeVar(name, 2);
  bound_.push_back(var);
  printer_.Bind(var, lanes > 1 ? known + kComponents[lane] : known);
  ExprNode node{.op = Op::kVar, .type = dtype};
  node.var = var;
  return std::make_shared<const ExprNode>(std::move(node));
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

}  // namespace

std::vector<KernelSource> GenerateSource(const search_space::Program& program,
                                         const search_space::Target& target,
                                         const std::string& header) {
  std::vector<KernelSource> out;
  for (const Kernel& kernel : program.kernels) {
    out.push_back(KernelPrinter(kernel, target).Generate(header));
  }
  return out;
}

}  // namespace heddle::measure
