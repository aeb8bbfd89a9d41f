#include "measure/codegen/codegen.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "measure/codegen/kernel_printer.h"
#include "measure/codegen/made_helpers.h"
#include "search_space/ir/background.h"
#include "search_space/ir/float_format.h"

namespace heddle::measure {
namespace {

using search_space::BufferRef;
using search_space::DType;
using search_space::Expr;
using search_space::ForKind;
using search_space::Intrinsic;
using search_space::Kernel;
using search_space::Stmt;
using search_space::StmtNode;
using search_space::Var;

TensorMap MapFor(const StmtNode& copy) {
  const search_space::Buffer& tensor = *copy.value->buffer;
  const int64_t size = SizeOf(tensor.dtype);
  TensorMap map{.buffer = tensor.name,
                .element_bytes = size,
                .shape = tensor.shape,
                .box = copy.box,
                .swizzle_bytes = copy.box.back() * size};
  for (size_t d = 0; d + 1 < tensor.strides.size(); ++d) {
    map.strides.push_back(tensor.strides[d] * size);
  }
  return map;
}

// The element before swizzling, which those that take whole lines do themselves.
Expr UnswizzledOffset(const search_space::Buffer& buffer, const search_space::ExprList& indices) {
  Expr offset = search_space::Int(0);
  for (size_t i = 0; i < indices.size(); ++i) {
    offset = offset + indices[i] * search_space::Int(buffer.strides[i]);
  }
  return offset;
}

// Whether a statement below writes through `pointer`.
bool Writes(const Stmt& body, const BufferRef& pointer) {
  bool found = false;
  VisitStmts(body, [&](const StmtNode& s) { found = found || s.buffer == pointer; });
  return found;
}

}  // namespace

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
  std::string out = dialect_.qualifiers(kernel_.thread->extent, kernel_.min_blocks);
  absl::StrAppend(&out, kernel_.name, "(");
  for (size_t i = 0; i < kernel_.arguments.size(); ++i) {
    const BufferRef& buffer = kernel_.arguments[i];
    printer_.Bind(buffer, names_.Declare(NameKind::kArgument, buffer->name));
    absl::StrAppend(&out, i == 0 ? "" : ",\n    ", dialect_.global,
                    kernel_.written[i] ? "" : "const ", TypeName(dialect_, buffer->dtype), "* ",
                    dialect_.restrict_pointer, printer_.NameOf(buffer));
    if (buffer->dtype == DType::kFloat64) printer_.float64 = true;
  }
  return out + MapParameters() + ")";
}

// Behind the buffers; their order is that of KernelLaunch::maps.
std::string KernelPrinter::MapParameters() {
  std::string out;
  for (const StmtNode* copy : search_space::BulkCopiesOf(kernel_.body)) {
    maps_.emplace_back(copy, names_.Declare(NameKind::kMap, copy->value->buffer->name));
    absl::StrAppend(&out, ",\n    const __grid_constant__ TensorMap ", maps_.back().second);
  }
  return out;
}

const std::string& KernelPrinter::MapOf(const StmtNode& copy) const {
  return std::find_if(maps_.begin(), maps_.end(),
                      [&](const auto& map) {
                        return map.first->value->buffer == copy.value->buffer &&
                               map.first->box == copy.box;
                      })
      ->second;
}

// The block or the thread, with the loop of the schedule that it is.
void KernelPrinter::DeclareIndex(const Var& var, const std::string& word, const char* value) {
  if (var->extent == 1) return;
  const bool explain = var->name != word;
  Line(absl::StrCat("const int ", printer_.NameOf(var), " = ", value, ";",
                    explain ? names_.Aside("  // " + var->name) : ""));
  if (explain) names_loops_ = true;
}

std::string KernelPrinter::DeclareLoop(const Var& var, const std::string& word) {
  // What a thread copies it copies in trips.
  constexpr absl::string_view kTrips = ".e";
  if (word.empty() && absl::EndsWith(var->name, kTrips)) {
    return names_.Declare(NameKind::kIndex, var->name,
                          absl::StrCat(absl::StripSuffix(var->name, kTrips), ".trip"));
  }
  const std::string name = names_.Declare(NameKind::kIndex, var->name, word);
  const bool is_axis = std::all_of(var->name.begin(), var->name.end(),
                                   [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
  if (word.empty() && !is_axis && example_.empty()) {
    example_ = absl::StrCat("// ", name, " is the loop ", var->name, ".\n");
  }
  return name;
}

// What the names of loops stand for, once a kernel.
std::string KernelPrinter::Legend() const {
  if (!names_loops_ && example_.empty()) return "";
  return absl::StrCat(
      "// Loops: i.0 is the outermost part of i, then come i.1 and so on; i@j is i and j fused, j "
      "the "
      "faster.\n",
      example_);
}

void KernelPrinter::DeclareShared() {
  DeclareLanes();
  if (kernel_.shared.empty()) return;
  const std::string arena = names_.Declare(NameKind::kOther, "arena");
  const std::string size = dynamic_shared_ ? "" : absl::StrCat(kernel_.shared_bytes);
  int64_t alignment = 16;
  for (const Kernel::SharedBuffer& s : kernel_.shared) {
    alignment = std::max(alignment, s.buffer->alignment);
  }
  Line(absl::StrCat(dynamic_shared_ ? dialect_.dynamic_shared_array : dialect_.shared_array,
                    Aligned(dialect_, alignment), dialect_.byte_type, " ", arena, "[", size, "];"));
  for (const Kernel::SharedBuffer& s : kernel_.shared) {
    printer_.Bind(s.buffer, names_.Declare(NameKind::kShared, s.buffer->name));
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
  if (dialect_.shuffle != nullptr) return;
  VisitStmts(kernel_.body, [&](const StmtNode& s) {
    if (s.kind != StmtNode::Kind::kIntrin || !search_space::CombinesWarps(s.intrinsic)) return;
    std::string& lanes = lanes_[s.buffer->dtype];
    if (!lanes.empty()) return;
    lanes = names_.Declare(NameKind::kOther, "lanes");
    Line(absl::StrCat(dialect_.shared_array, TypeName(dialect_, s.buffer->dtype), " ", lanes, "[",
                      kernel_.thread->extent, "];"));
  });
}

KernelSource KernelPrinter::Generate(const std::string& header) {
  KernelSource out;
  out.launch.entry = kernel_.name;
  out.launch.grid = kernel_.block->extent;
  out.launch.block = kernel_.thread->extent;
  out.launch.dynamic_shared_bytes = dynamic_shared_ ? kernel_.shared_bytes : 0;
  for (const BufferRef& b : kernel_.arguments) out.launch.arguments.push_back(b->name);
  for (const StmtNode* copy : search_space::BulkCopiesOf(kernel_.body)) {
    out.launch.maps.push_back(MapFor(*copy));
  }

  if (!header.empty()) CommentLines(header);
  const std::string heading = std::exchange(body_, "");
  CommentLines(absl::StrCat(kernel_.name, ": grid ", out.launch.grid, ", block ", out.launch.block,
                            ", shared memory ", kernel_.shared_bytes, " bytes",
                            dynamic_shared_ ? " (dynamic)" : ""));
  const std::string launch = std::exchange(body_, "");

  Stmt body = kernel_.body;
  for (Pass pass : dialect_.passes) body = pass(body);
  printer_.Bind(kernel_.block, names_.Declare(NameKind::kIndex, kernel_.block->name, "block"));
  printer_.Bind(kernel_.thread, names_.Declare(NameKind::kIndex, kernel_.thread->name, "thread"));
  Open(Signature());
  DeclareIndex(kernel_.block, "block", dialect_.block_index);
  DeclareIndex(kernel_.thread, "thread", dialect_.thread_index);
  DeclareWarpgroup();
  DeclareShared();
  Print(body);
  Close();
  const std::string prelude = Prelude(dialect_, printer_.helpers, printer_.float64);
  out.source = absl::StrCat(heading, launch, names_.Spell(Legend(), Naming::kReadable), "\n",
                            prelude, names_.Spell(body_, Naming::kReadable));
  out.normal = absl::StrCat(launch, "\n", prelude, names_.Spell(body_, Naming::kNormal));
  out.arch_suffix = ArchSuffix();
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
      PrintFor(*s, "");
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
    case StmtNode::Kind::kLet:
      PrintLets(s);
      break;
    case StmtNode::Kind::kComment:
      CommentLines(s->text);
      break;
  }
}

// `advance`: ", p += 4" for each pointer that moves with the loop.
void KernelPrinter::PrintFor(const StmtNode& s, const std::string& advance) {
  if (s.for_kind == ForKind::kVector) {
    PrintVector(s.var, s.body[0]);
    return;
  }
  if (s.var->extent == 1) {  // every use prints as 0
    if (s.rotating != nullptr) printer_.Bind(s.rotating, "0");
    Print(s.body[0]);
    return;
  }
  if (s.for_kind == ForKind::kUnrolled) Line("#pragma unroll");
  // The names belong to the loop, but must be known before its block opens.
  const size_t mark = names_.Mark();
  const std::string v = DeclareLoop(s.var);
  printer_.Bind(s.var, v);
  const bool strided = s.value != nullptr;
  const bool is_long = strided && s.var->extent - 1 > INT32_MAX - s.int_value;
  std::string init = absl::StrCat(is_long ? dialect_.long_type : IndexType(s.var), " ", v, " = ",
                                  strided ? printer_.Print(s.value) : "0"),
              step = strided ? absl::StrCat(v, " += ", s.int_value) : absl::StrCat("++", v);
  if (s.rotating != nullptr) {
    const std::string r = DeclareLoop(s.rotating, "slot");
    printer_.Bind(s.rotating, r);
    absl::StrAppend(&init, ", ", r, " = 0");
    absl::StrAppend(&step, ", ", r, " = ", r, " == ", s.rotating->extent - 1, " ? 0 : ", r, " + 1");
  }
  Open(absl::StrCat("for (", init, "; ", v, " < ", IntLiteral(dialect_, s.var->extent), "; ", step,
                    advance, ")"));
  if (s.condition != nullptr) {
    const std::string turned = DeclareLoop(s.var, absl::StrCat(s.var->name, ".turned"));
    Line(absl::StrCat("const int ", turned, " = ", printer_.PrintCondition(s.condition), " != 0 ? ",
                      s.var->extent - 1, " - ", v, " : ", v, ";"));
    printer_.Bind(s.var, turned);
  }
  Print(s.body[0]);
  Close();
  names_.Release(mark);
}

// Offsets and pointers, and the loop that the latter move with. Their names live as long as the
// block around them.
void KernelPrinter::PrintLets(Stmt s) {
  std::string advance;
  for (; s->kind == StmtNode::Kind::kLet; s = s->body[0]) {
    if (s->buffer == nullptr) {
      const std::string name = names_.Declare(NameKind::kOffset, s->var->name);
      printer_.Bind(s->var, name);
      Line(absl::StrCat("const ", IndexType(s->var), " ", name, " = ", printer_.Print(s->value),
                        ";"));
      continue;
    }
    const bool moves = s->int_value != 0;
    if (moves || moving_.contains(s->base)) moving_.insert(s->buffer);
    const std::string base = printer_.NameOf(s->base);
    if (!moves && IsInt(s->value, 0)) {  // another view of the same
      printer_.Bind(s->buffer, base);
      continue;
    }
    const std::string name = names_.Declare(NameKind::kPointer, s->base->name);
    printer_.Bind(s->buffer, name);
    Line(absl::StrCat(Writes(s->body[0], s->buffer) ? "" : "const ", AddressSpace(s->buffer),
                      TypeName(dialect_, s->buffer->dtype), "* ", moves ? "" : "const ", name,
                      " = &", base, "[", printer_.Print(s->value), "];"));
    if (moves) absl::StrAppend(&advance, ", ", name, " += ", s->int_value);
  }
  if (s->kind == StmtNode::Kind::kFor) {
    PrintFor(*s, advance);
  } else {
    Print(s);
  }
}

void KernelPrinter::PrintAlloc(const StmtNode& s) {
  printer_.Bind(s.buffer, names_.Declare(NameKind::kRegisters, s.buffer->name));
  if (s.buffer->dtype == DType::kFloat64) printer_.float64 = true;
  // Matrix instructions take several elements of 16 bits at once.
  Line(absl::StrCat(SizeOf(s.buffer->dtype) == 2 ? Aligned(dialect_, 16) : "",
                    TypeName(dialect_, s.buffer->dtype), " ", printer_.NameOf(s.buffer), "[",
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
    case Intrinsic::kWarpPrefix:
    case Intrinsic::kWarpSuffix:
      PrintWarpScan(s);
      return;
    case Intrinsic::kLoadMatrix:
    case Intrinsic::kLoadMatrixTransposed:
      PrintLoadMatrix(s);
      return;
    case Intrinsic::kMatrixMultiply:
      PrintMatrixMultiply(s);
      return;
    case Intrinsic::kWarpgroupMultiply:
      PrintWarpgroupMultiply(s);
      return;
    case Intrinsic::kOperandFence:
      Line(absl::StrCat("operand_fence(", printer_.NameOf(s.buffer), ");"));
      return;
    case Intrinsic::kProductCommit:
      Line("product_commit();");
      return;
    case Intrinsic::kProductWait:
      Line(absl::StrCat("product_wait<", s.int_value, ">(", printer_.NameOf(s.buffer), ");"));
      return;
    case Intrinsic::kProxyFence:
      Line("proxy_fence();");
      return;
    case Intrinsic::kPhaseInit:
    case Intrinsic::kPhaseExpect:
    case Intrinsic::kPhaseWait:
      PrintPhase(s);
      return;
    case Intrinsic::kHandBack:
      Line(absl::StrCat("hand_back<", kernel_.thread->extent, ">(", printer_.Print(s.indices[0]),
                        ");"));
      printer_.helpers.insert("phases");
      return;
    case Intrinsic::kBulkCopy:
      PrintBulkCopy(s);
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

// Elements in registers of 32 bits, as instructions take them: of 16 bits two by two.
std::string KernelPrinter::PairsAt(const BufferRef& buffer, const search_space::ExprList& indices) {
  return absl::StrCat("(unsigned*)&", printer_.PrintElement(buffer, indices));
}

void KernelPrinter::PrintLoadMatrix(const StmtNode& s) {
  const bool transposed = s.intrinsic == Intrinsic::kLoadMatrixTransposed;
  Line(absl::StrCat("load_matrix<", s.int_value, ", ", transposed ? "true" : "false", ">(",
                    PairsAt(s.buffer, s.indices), ", &",
                    printer_.PrintElement(s.value->buffer, s.value->args), ");"));
  printer_.helpers.insert("load_matrix");
  // What is copied from inputs may have more digits, which products would cut off.
  if (s.buffer->dtype == DType::kTF32) {
    Line(absl::StrCat("round_tf32<", s.int_value, ">(", PairsAt(s.buffer, s.indices), ");"));
    printer_.helpers.insert("round_tf32");
  }
}

void KernelPrinter::PrintMatrixMultiply(const StmtNode& s) {
  const Expr &a = MatrixOperandOf(s, 0), &b = MatrixOperandOf(s, 1);
  const std::string name = absl::StrCat(s.matrix().name, "_", NameOf(a->type));
  Line(absl::StrCat(name, "(&", printer_.PrintElement(s.buffer, s.indices), ", ",
                    PairsAt(a->buffer, a->args), ", ", PairsAt(b->buffer, b->args), ");"));
  printer_.helpers.insert(name);
}

// The number of the thread's warpgroup, where descriptors depend on it: compilers keep what one
// lane tells the others in a register of the whole warp, as descriptors must be.
void KernelPrinter::DeclareWarpgroup() {
  bool multiplies = false;
  VisitStmts(kernel_.body, [&](const StmtNode& s) {
    multiplies = multiplies || (s.kind == StmtNode::Kind::kIntrin &&
                                s.intrinsic == Intrinsic::kWarpgroupMultiply);
  });
  const int64_t groups = kernel_.thread->extent / search_space::kWarpgroupThreads;
  if (!multiplies || groups == 1) return;
  warpgroup_ = search_space::MakeVar("warpgroup", groups);
  const std::string name = names_.Declare(NameKind::kIndex, warpgroup_->name, "warpgroup");
  printer_.Bind(warpgroup_, name);
  Line(absl::StrCat("const int ", name, " = __shfl_sync(0xffffffffu, ",
                    printer_.NameOf(kernel_.thread), " / ", search_space::kWarpgroupThreads,
                    ", 0);"));
}

Expr KernelPrinter::ByWarpgroup(const Expr& index) const {
  if (warpgroup_ == nullptr) return index;
  return Rewrite(index, [&](const Expr& e) -> Expr {
    const bool is_number =
        e->op == search_space::Op::kDiv && e->args[0]->op == search_space::Op::kVar &&
        e->args[0]->var == kernel_.thread && IsInt(e->args[1], search_space::kWarpgroupThreads);
    return is_number ? search_space::VarExpr(warpgroup_) : nullptr;
  });
}

// Of the matrix that begins at the load: instructions swizzle addresses themselves.
std::string KernelPrinter::DescriptorOf(const Expr& load,
                                        const search_space::SharedMatrix& matrix) {
  static constexpr int64_t kUnit = 16;  // bytes, in which descriptors count
  const int64_t size = SizeOf(load->buffer->dtype);
  const Expr offset =
      Simplify(UnswizzledOffset(*load->buffer, load->args) / search_space::Int(kUnit / size));
  return absl::StrCat("matrix_descriptor<", matrix.span * size, ", ", matrix.block * size, ">(",
                      printer_.NameOf(load->buffer), ", ", printer_.Print(ByWarpgroup(offset)),
                      ")");
}

void KernelPrinter::PrintWarpgroupMultiply(const StmtNode& s) {
  const Expr &a = MatrixOperandOf(s, 0), &b = MatrixOperandOf(s, 1);
  const bool held = a->buffer->scope == search_space::Scope::kLocal;
  const std::string name = WarpgroupHelper(s.matrix(), a->type, held);
  const std::string of_a = held ? "" : absl::StrCat(s.operands[0].transposed ? 1 : 0, ", ");
  const std::string transposes =
      search_space::IsHalf(a->type) ? absl::StrCat("<", of_a, s.operands[1].transposed ? 1 : 0, ">")
                                    : "";
  Line(absl::StrCat(name, transposes, "(&", printer_.PrintElement(s.buffer, s.indices), ", ",
                    held ? PairsAt(a->buffer, a->args) : DescriptorOf(a, s.operands[0]), ", ",
                    DescriptorOf(b, s.operands[1]), ");"));
  printer_.helpers.insert("products");
  if (held) printer_.helpers.insert("held_operand");
  printer_.helpers.insert(name);
}

void KernelPrinter::PrintPhase(const StmtNode& s) {
  const std::string name = printer_.NameOf(s.buffer);
  if (s.intrinsic == Intrinsic::kPhaseInit) {
    Line(absl::StrCat("phase_init<", s.buffer->elements, ">(", name, ");"));
  } else {
    const bool waits = s.intrinsic == Intrinsic::kPhaseWait;
    Line(absl::StrCat(waits ? "phase_wait(&" : "phase_expect(&", name, "[",
                      printer_.Print(s.indices[0]), "], ",
                      waits ? printer_.Print(s.value) : absl::StrCat(s.int_value), ");"));
  }
  printer_.helpers.insert("phases");
}

void KernelPrinter::PrintBulkCopy(const StmtNode& s) {
  const Expr offset = Simplify(UnswizzledOffset(*s.buffer, s.indices));
  std::string first;  // innermost dimension first
  for (size_t d = s.value->args.size(); d-- > 0;) {
    absl::StrAppend(&first, ", ", printer_.Print(s.value->args[d]));
  }
  const std::string helper = BulkCopyHelper(s.box.size());
  Line(absl::StrCat(helper, "(", printer_.NameOf(s.buffer), " + (", printer_.Print(offset), "), &",
                    MapOf(s), first, ", &", printer_.NameOf(s.base), "[",
                    printer_.Print(s.indices[0]), "]);"));
  printer_.helpers.insert("phases");
  printer_.helpers.insert(helper);
}

std::string KernelPrinter::ArchSuffix() const {
  return search_space::AnyRunsInBackground(kernel_.body) ? "a" : "";
}

void KernelPrinter::PrintWarpReduce(const StmtNode& s) {
  const std::string mine = printer_.PrintElement(s.buffer, s.indices);
  const std::string type = TypeName(dialect_, s.buffer->dtype);
  const bool shuffles = dialect_.shuffle != nullptr;
  const size_t mark = names_.Mark();
  const std::string lane = names_.Declare(NameKind::kOther, shuffles ? "distance" : "lane");
  std::string other;
  temporaries_.clear();
  if (shuffles) {
    Line("#pragma unroll");
    Open(absl::StrCat("for (int ", lane, " = ", s.int_value / 2, "; ", lane, " > 0; ", lane,
                      " /= 2)"));
    other = absl::StrCat(dialect_.shuffle, "(0xffffffffu, ", mine, ", ", lane, ")");
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
  const Expr value = Temporary(NameKind::kOther, "other", type, other, 1, 0, s.buffer->dtype);
  PrintScalarStore(s, s.indices,
                   search_space::Combine(s.combiner, Load(s.buffer, s.indices), value));
  Close();
  names_.Release(mark);
}

void KernelPrinter::PrintWarpScan(const StmtNode& s) {
  const bool backwards = s.intrinsic == Intrinsic::kWarpSuffix;
  const std::string mine = printer_.PrintElement(s.buffer, s.indices);
  const std::string type = TypeName(dialect_, s.buffer->dtype);
  const std::string thread = printer_.NameOf(kernel_.thread);
  const std::string place = absl::StrCat(thread, " % ", s.int_value);
  const std::string none = printer_.Print(IdentityOf(s.combiner, s.buffer->dtype));
  const auto combine = [&](const std::string& other) {
    temporaries_.clear();
    const Expr value = Temporary(NameKind::kOther, "other", type, other, 1, 0, s.buffer->dtype);
    return search_space::Combine(s.combiner, Load(s.buffer, s.indices), value);
  };
  const size_t mark = names_.Mark();
  if (dialect_.shuffle == nullptr) {
    const std::string& lanes = lanes_.at(s.buffer->dtype);
    const std::string lane = names_.Declare(NameKind::kOther, "lane");
    Line(dialect_.barrier);  // the array may still be read
    Line(absl::StrCat(lanes, "[", thread, "] = ", mine, ";"));
    Line(dialect_.barrier);
    Line(absl::StrCat(mine, " = ", none, ";"));
    const std::string first =
        backwards ? absl::StrCat(thread, " + 1") : absl::StrCat(thread, " - ", place);
    const std::string end =
        backwards ? absl::StrCat(thread, " - ", place, " + ", s.int_value) : thread;
    Open(absl::StrCat("for (int ", lane, " = ", first, "; ", lane, " < ", end, "; ++", lane, ")"));
    PrintScalarStore(s, s.indices, combine(absl::StrCat(lanes, "[", lane, "]")));
    Close();
    names_.Release(mark);
    return;
  }
  const std::string distance = names_.Declare(NameKind::kOther, "distance");
  const auto shuffled = [&](const std::string& by) {
    return absl::StrCat(backwards ? dialect_.shuffle_down : dialect_.shuffle_up, "(0xffffffffu, ",
                        mine, ", ", by, ", ", s.int_value, ")");
  };
  Line("#pragma unroll");
  Open(absl::StrCat("for (int ", distance, " = 1; ", distance, " < ", s.int_value, "; ", distance,
                    " *= 2)"));
  const Expr value = combine(shuffled(distance));
  Open(backwards ? absl::StrCat("if (", place, " + ", distance, " < ", s.int_value, ")")
                 : absl::StrCat("if (", place, " >= ", distance, ")"));
  PrintScalarStore(s, s.indices, value);
  Close();
  Close();
  Line(absl::StrCat(mine, " = ", shuffled("1"), ";"));
  Line(absl::StrCat("if (", place, " == ", backwards ? s.int_value - 1 : 0, ") ", mine, " = ", none,
                    ";"));
  names_.Release(mark);
}

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
