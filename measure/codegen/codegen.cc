#include "measure/codegen/codegen.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "measure/codegen/dialects.h"
#include "measure/codegen/helpers.h"
#include "measure/codegen/intrinsic_printer.h"
#include "measure/codegen/kernel_text.h"
#include "measure/codegen/rounded_values.h"
#include "measure/codegen/store_printer.h"
#include "search_space/ir/background.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::measure {
namespace {

using search_space::BufferRef;
using search_space::Combiner;
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

// Whether a statement below writes through `pointer`.
bool Writes(const Stmt& body, const BufferRef& pointer) {
  bool found = false;
  VisitStmts(body, [&](const StmtNode& s) { found = found || s.buffer == pointer; });
  return found;
}

// Does the kernel add floats up, or multiply them, in an order that differs from run to run?
bool ReordersSums(const Kernel& kernel) {
  bool reorders = false;
  VisitStmts(kernel.body, [&](const StmtNode& s) {
    const bool is_update =
        s.kind == StmtNode::Kind::kIntrin && s.intrinsic == Intrinsic::kAtomicCombine;
    reorders = reorders || (is_update && IsFloat(s.buffer->dtype) &&
                            (s.combiner == Combiner::kSum || s.combiner == Combiner::kProd));
  });
  return reorders;
}

// The buffers that the kernel writes, where these, or what it reads, may differ in their last bits
// from run to run: joins them to `anew`.
std::vector<std::string> RoundedAnew(const Kernel& kernel, std::set<std::string>& anew) {
  const bool differs =
      ReordersSums(kernel) ||
      std::any_of(kernel.arguments.begin(), kernel.arguments.end(),
                  [&](const BufferRef& argument) { return anew.contains(argument->name); });
  std::vector<std::string> written;
  for (size_t a = 0; differs && a < kernel.arguments.size(); ++a) {
    if (kernel.written[a]) written.push_back(kernel.arguments[a]->name);
  }
  anew.insert(written.begin(), written.end());
  return written;
}

// Prints one kernel, its signature and loops itself. For a single use.
class KernelPrinter {
 public:
  KernelPrinter(const Kernel& kernel, const search_space::Target& target)
      : kernel_(kernel),
        out_(DialectOf(target.api)),
        dynamic_shared_(out_.dialect.dynamic_shared_array != nullptr &&
                        kernel.shared_bytes > target.static_shared_bytes),
        stores_(out_, moving_, rounded_later_),
        intrinsics_(kernel, out_.dialect.async_copies && target.has_async_copy, out_, stores_) {}

  // The source with its launch, under `header` as a comment.
  KernelSource Generate(const std::string& header);

 private:
  void CommentLines(const std::string& text);
  std::string Signature();
  void DeclareIndex(const Var& var, const std::string& word, const char* value);
  // `word`: what the loop is, where it is no loop of the schedule.
  std::string DeclareLoop(const Var& var, const std::string& word = "");
  std::string Legend() const;
  void DeclareShared();

  void Print(const Stmt& s);
  void PrintFor(const StmtNode& s, const std::string& advance);
  void PrintVector(const Var& var, const Stmt& body);
  void PrintLets(Stmt s);
  void PrintAlloc(const StmtNode& s);

  const char* IndexType(const Var& var) const {
    return var->extent - 1 > INT32_MAX ? out_.dialect.long_type : "int";
  }

  const Kernel& kernel_;
  KernelText out_;
  const bool dynamic_shared_;
  std::set<BufferRef> rounded_later_;
  std::set<BufferRef> moving_;  // pointers that move with a loop, and views of them
  StorePrinter stores_;
  IntrinsicPrinter intrinsics_;
  bool names_loops_ = false;  // of the schedule, in comments
  std::string example_;       // of one in the code
};

void KernelPrinter::CommentLines(const std::string& text) {
  for (std::string line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    // A backslash at the end would continue the comment.
    while (!line.empty() && (line.back() == '\\' || line.back() == ' ' || line.back() == '\r')) {
      line.pop_back();
    }
    out_.Line(line.empty() ? "//" : absl::StrCat("// ", line));
  }
}

std::string KernelPrinter::Signature() {
  std::string out = out_.dialect.qualifiers(kernel_.thread->extent, kernel_.min_blocks);
  absl::StrAppend(&out, kernel_.name, "(");
  for (size_t i = 0; i < kernel_.arguments.size(); ++i) {
    const BufferRef& buffer = kernel_.arguments[i];
    out_.exprs.Bind(buffer, out_.names.Declare(NameKind::kArgument, buffer->name));
    absl::StrAppend(&out, i == 0 ? "" : ",\n    ", out_.dialect.global,
                    kernel_.written[i] ? "" : "const ", TypeName(out_.dialect, buffer->dtype), "* ",
                    out_.dialect.restrict_pointer, out_.exprs.NameOf(buffer));
    if (buffer->dtype == DType::kFloat64) out_.exprs.float64 = true;
  }
  return out + intrinsics_.MapParameters() + ")";
}

// The block or the thread, with the loop of the schedule that it is.
void KernelPrinter::DeclareIndex(const Var& var, const std::string& word, const char* value) {
  if (var->extent == 1) return;
  const bool explain = var->name != word;
  out_.Line("const int ", out_.exprs.NameOf(var), " = ", value, ";",
            explain ? out_.names.Aside("  // " + var->name) : "");
  if (explain) names_loops_ = true;
}

std::string KernelPrinter::DeclareLoop(const Var& var, const std::string& word) {
  // What a thread copies it copies in trips.
  constexpr absl::string_view kTrips = ".e";
  if (word.empty() && absl::EndsWith(var->name, kTrips)) {
    return out_.names.Declare(NameKind::kIndex, var->name,
                              absl::StrCat(absl::StripSuffix(var->name, kTrips), ".trip"));
  }
  const std::string name = out_.names.Declare(NameKind::kIndex, var->name, word);
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
  return absl::StrCat("// Loops: i.0 is the outermost part of i, then come i.1 and so on; ",
                      "i@j is i and j fused, j the faster.\n", example_);
}

void KernelPrinter::DeclareShared() {
  if (kernel_.shared.empty()) return;
  const std::string arena = out_.names.Declare(NameKind::kOther, "arena");
  const std::string size = dynamic_shared_ ? "" : absl::StrCat(kernel_.shared_bytes);
  int64_t alignment = 16;
  for (const Kernel::SharedBuffer& s : kernel_.shared) {
    alignment = std::max(alignment, s.buffer->alignment);
  }
  out_.Line(dynamic_shared_ ? out_.dialect.dynamic_shared_array : out_.dialect.shared_array,
            Aligned(out_.dialect, alignment), out_.dialect.byte_type, " ", arena, "[", size, "];");
  for (const Kernel::SharedBuffer& s : kernel_.shared) {
    out_.exprs.Bind(s.buffer, out_.names.Declare(NameKind::kShared, s.buffer->name));
    const std::string pointer =
        absl::StrCat(out_.dialect.shared, TypeName(out_.dialect, s.buffer->dtype), "*");
    const std::string offset =
        s.offset == 0 ? arena : absl::StrCat("(", arena, " + ", s.offset, ")");
    out_.Line(pointer, " const ", out_.exprs.NameOf(s.buffer), " = (", pointer, ")", offset, ";");
  }
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
  const std::string heading = std::exchange(out_.body, "");
  CommentLines(absl::StrCat(kernel_.name, ": grid ", out.launch.grid, ", block ", out.launch.block,
                            ", shared memory ", kernel_.shared_bytes, " bytes",
                            dynamic_shared_ ? " (dynamic)" : ""));
  const std::string launch = std::exchange(out_.body, "");

  Stmt body = kernel_.body;
  for (Pass pass : out_.dialect.passes) body = pass(body);
  rounded_later_ = RoundedLater(body);
  out_.exprs.keeps_small = KeepExponentials(body, rounded_later_);
  out_.exprs.Bind(kernel_.block,
                  out_.names.Declare(NameKind::kIndex, kernel_.block->name, "block"));
  out_.exprs.Bind(kernel_.thread,
                  out_.names.Declare(NameKind::kIndex, kernel_.thread->name, "thread"));
  out_.Open(Signature());
  DeclareIndex(kernel_.block, "block", out_.dialect.block_index);
  DeclareIndex(kernel_.thread, "thread", out_.dialect.thread_index);
  intrinsics_.Declare();
  DeclareShared();
  Print(body);
  out_.Close();
  const std::string prelude = Prelude(out_.dialect, out_.exprs.helpers, out_.exprs.float64);
  out.source = absl::StrCat(heading, launch, out_.names.Spell(Legend(), Naming::kReadable), "\n",
                            prelude, out_.names.Spell(out_.body, Naming::kReadable));
  out.normal = absl::StrCat(launch, "\n", prelude, out_.names.Spell(out_.body, Naming::kNormal));
  out.arch_suffix = search_space::AnyRunsInBackground(kernel_.body) ? "a" : "";
  return out;
}

void KernelPrinter::Print(const Stmt& s) {
  switch (s->kind) {
    case StmtNode::Kind::kSeq:
      for (size_t i = 0; i < s->body.size(); ++i) {
        // An array lives to the end of its block, so one that is not the last gets its own.
        const bool own = s->body[i]->kind == StmtNode::Kind::kAlloc && i + 1 < s->body.size();
        if (own) out_.Open();
        Print(s->body[i]);
        if (own) out_.Close();
      }
      return;
    case StmtNode::Kind::kFor:
      return PrintFor(*s, "");
    case StmtNode::Kind::kIf:
      out_.Open("if (", out_.exprs.Print(s->condition), ")");
      Print(s->body[0]);
      return out_.Close();
    case StmtNode::Kind::kStore:
      return stores_.Print(*s, nullptr);
    case StmtNode::Kind::kAlloc:
      return PrintAlloc(*s);
    case StmtNode::Kind::kIntrin:
      return intrinsics_.Print(*s);
    case StmtNode::Kind::kLet:
      return PrintLets(s);
    case StmtNode::Kind::kComment:
      return CommentLines(s->text);
  }
}

// `advance`: ", p += 4" for each pointer that moves with the loop.
void KernelPrinter::PrintFor(const StmtNode& s, const std::string& advance) {
  if (s.for_kind == ForKind::kVector) return PrintVector(s.var, s.body[0]);
  if (s.var->extent == 1) {  // every use prints as 0
    if (s.rotating != nullptr) out_.exprs.Bind(s.rotating, "0");
    Print(s.body[0]);
    return;
  }
  if (s.for_kind == ForKind::kUnrolled) out_.Line("#pragma unroll");
  // The names belong to the loop, but must be known before its block opens.
  const size_t mark = out_.names.Mark();
  const std::string v = DeclareLoop(s.var);
  out_.exprs.Bind(s.var, v);
  const bool strided = s.value != nullptr;
  const bool is_long = strided && s.var->extent - 1 > INT32_MAX - s.int_value;
  std::string init = absl::StrCat(is_long ? out_.dialect.long_type : IndexType(s.var), " ", v,
                                  " = ", strided ? out_.exprs.Print(s.value) : "0"),
              step = strided ? absl::StrCat(v, " += ", s.int_value) : absl::StrCat("++", v);
  if (s.rotating != nullptr) {
    const std::string r = DeclareLoop(s.rotating, "slot");
    out_.exprs.Bind(s.rotating, r);
    absl::StrAppend(&init, ", ", r, " = 0");
    absl::StrAppend(&step, ", ", r, " = ", r, " == ", s.rotating->extent - 1, " ? 0 : ", r, " + 1");
  }
  out_.Open("for (", init, "; ", v, " < ", IntLiteral(out_.dialect, s.var->extent), "; ", step,
            advance, ")");
  if (s.condition != nullptr) {
    const std::string turned = DeclareLoop(s.var, absl::StrCat(s.var->name, ".turned"));
    out_.Line("const int ", turned, " = ", out_.exprs.PrintCondition(s.condition), " != 0 ? ",
              s.var->extent - 1, " - ", v, " : ", v, ";");
    out_.exprs.Bind(s.var, turned);
  }
  Print(s.body[0]);
  out_.Close();
  out_.names.Release(mark);
}

void KernelPrinter::PrintVector(const Var& var, const Stmt& body) {
  if (body->kind == StmtNode::Kind::kStore) {
    stores_.Print(*body, var);
  } else if (body->kind == StmtNode::Kind::kIntrin && body->intrinsic == Intrinsic::kAsyncCopy) {
    intrinsics_.PrintAsyncCopy(*body, var);
  } else if (body->kind == StmtNode::Kind::kIntrin && body->lanes > 1 &&
             body->intrinsic == Intrinsic::kAtomicCombine) {
    intrinsics_.PrintAtomicCombine(*body, var);
  } else if (body->kind == StmtNode::Kind::kIf && !MentionsAny(body->condition, {var.get()})) {
    out_.Open("if (", out_.exprs.Print(body->condition), ")");
    PrintVector(var, body->body[0]);
    out_.Close();
  } else {
    // Not the shape that promises vector accesses: every iteration by itself.
    for (int64_t i = 0; i < var->extent; ++i) {
      const Chunk chunk{var, i, 1};
      Print(RewriteStmt(body, nullptr, [&](const Expr& e) { return chunk.At(e, 0); }));
    }
  }
}

// Offsets and pointers, and the loop that the latter move with. Their names live as long as the
// block around them.
void KernelPrinter::PrintLets(Stmt s) {
  std::string advance;
  for (; s->kind == StmtNode::Kind::kLet; s = s->body[0]) {
    if (s->buffer == nullptr) {
      const std::string name = out_.names.Declare(NameKind::kOffset, s->var->name);
      out_.exprs.Bind(s->var, name);
      out_.Line("const ", IndexType(s->var), " ", name, " = ", out_.exprs.Print(s->value), ";");
      continue;
    }
    const bool moves = s->int_value != 0;
    if (moves || moving_.contains(s->base)) moving_.insert(s->buffer);
    const std::string base = out_.exprs.NameOf(s->base);
    if (!moves && IsInt(s->value, 0)) {  // another view of the same
      out_.exprs.Bind(s->buffer, base);
      continue;
    }
    const std::string name = out_.names.Declare(NameKind::kPointer, s->base->name);
    out_.exprs.Bind(s->buffer, name);
    out_.Line(Writes(s->body[0], s->buffer) ? "" : "const ",
              AddressSpace(out_.dialect, s->buffer->scope),
              TypeName(out_.dialect, s->buffer->dtype), "* ", moves ? "" : "const ", name, " = &",
              base, "[", out_.exprs.Print(s->value), "];");
    if (moves) absl::StrAppend(&advance, ", ", name, " += ", s->int_value);
  }
  if (s->kind == StmtNode::Kind::kFor) return PrintFor(*s, advance);
  Print(s);
}

void KernelPrinter::PrintAlloc(const StmtNode& s) {
  out_.exprs.Bind(s.buffer, out_.names.Declare(NameKind::kRegisters, s.buffer->name));
  if (s.buffer->dtype == DType::kFloat64) out_.exprs.float64 = true;
  // Matrix instructions take several elements of 16 bits at once.
  out_.Line(SizeOf(s.buffer->dtype) == 2 ? Aligned(out_.dialect, 16) : "",
            TypeName(out_.dialect, s.buffer->dtype), " ", out_.exprs.NameOf(s.buffer), "[",
            s.buffer->elements, "];");
  Print(s.body[0]);
}

}  // namespace

std::vector<KernelSource> GenerateSource(const search_space::Program& program,
                                         const search_space::Target& target,
                                         const std::string& header) {
  std::vector<KernelSource> out;
  std::set<std::string> anew;
  for (const Kernel& kernel : program.kernels) {
    out.push_back(KernelPrinter(kernel, target).Generate(header));
    out.back().launch.rounded_anew = RoundedAnew(kernel, anew);
  }
  return out;
}

}  // namespace heddle::measure
