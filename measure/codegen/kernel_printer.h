// Prints one kernel: its signature, loops and intrinsics (codegen.cc), and its stores with the
// loads of their values, as wide as they may be (print_accesses.cc). Internal to codegen.cc.
#ifndef HEDDLE_MEASURE_CODEGEN_KERNEL_PRINTER_H_
#define HEDDLE_MEASURE_CODEGEN_KERNEL_PRINTER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "measure/codegen/codegen.h"
#include "measure/codegen/dialects.h"
#include "measure/codegen/expr_printer.h"
#include "measure/codegen/names.h"
#include "search_space/ir/stmt.h"
#include "search_space/ir/target.h"

namespace heddle::measure {

// Iterations var = base .. base + count - 1 of a vector loop (count a multiple of every access
// in it); a null var is a statement outside such a loop, base 0 and count 1.
struct Chunk {
  search_space::Var var;
  int64_t base = 0;
  int count = 1;

  search_space::Expr At(const search_space::Expr& e, int lane) const {
    if (var == nullptr) return e;
    return Substitute(e, [&](const search_space::Var& v) {
      return v == var ? search_space::Int(base + lane) : nullptr;
    });
  }
  search_space::ExprList At(const search_space::ExprList& list, int lane) const {
    search_space::ExprList out;
    for (const search_space::Expr& e : list) out.push_back(At(e, lane));
    return out;
  }
};

// Writes the text of one kernel in the target's dialect; for a single use.
class KernelPrinter {
 public:
  KernelPrinter(const search_space::Kernel& kernel, const search_space::Target& target)
      : kernel_(kernel),
        dialect_(DialectOf(target.api)),
        printer_(dialect_),
        async_copies_(dialect_.async_copies && target.has_async_copy),
        dynamic_shared_(dialect_.dynamic_shared_array != nullptr &&
                        kernel.shared_bytes > target.static_shared_bytes),
        names_(dialect_) {}

  // The source with its launch, under `header` as a comment.
  KernelSource Generate(const std::string& header);

 private:
  void Line(const std::string& text) {
    body_.append(static_cast<size_t>(indent_) * 2, ' ');
    absl::StrAppend(&body_, text, "\n");
  }
  void CommentLines(const std::string& text);
  void Open(const std::string& head);
  void Close();

  std::string Signature();
  void DeclareIndex(const search_space::Var& var, const std::string& word, const char* value);
  // `word`: what the loop is, where it is no loop of the schedule.
  std::string DeclareLoop(const search_space::Var& var, const std::string& word = "");
  std::string Legend() const;
  void DeclareShared();
  void DeclareLanes();

  void Print(const search_space::Stmt& s);
  void PrintFor(const search_space::StmtNode& s, const std::string& advance);
  void PrintLets(search_space::Stmt s);
  void PrintAlloc(const search_space::StmtNode& s);
  void PrintIntrinsic(const search_space::StmtNode& s);
  void PrintWarpReduce(const search_space::StmtNode& s);
  void PrintWarpScan(const search_space::StmtNode& s);
  void PrintLoadMatrix(const search_space::StmtNode& s);
  void PrintMatrixMultiply(const search_space::StmtNode& s);
  void PrintWarpgroupMultiply(const search_space::StmtNode& s);
  void DeclareWarpgroup();
  // An index, with what is the same for all threads of a warpgroup said so.
  search_space::Expr ByWarpgroup(const search_space::Expr& index) const;
  std::string DescriptorOf(const search_space::Expr& load,
                           const search_space::SharedMatrix& matrix);
  std::string ArchSuffix() const;
  std::string MapParameters();
  void PrintBulkCopy(const search_space::StmtNode& s);
  void PrintPhase(const search_space::StmtNode& s);
  const std::string& MapOf(const search_space::StmtNode& copy) const;
  std::string PairsAt(const search_space::BufferRef& buffer, const search_space::ExprList& indices);

  void PrintVector(const search_space::Var& var, const search_space::Stmt& body);
  // Stores of a whole vector loop, or of one statement when var is null.
  void PrintStore(const search_space::StmtNode& s, const search_space::Var& var);
  void PrintChunk(const search_space::StmtNode& s, const Chunk& chunk);
  void PrintScalarStore(const search_space::StmtNode& s, const search_space::ExprList& indices,
                        const search_space::Expr& value);
  void PrintAsyncCopy(const search_space::StmtNode& s, const search_space::Var& var);

  // The value of one lane as an expression over temporaries. Vector loads, and loads that a select
  // guards, become temporaries first: all loads are issued together, none stands behind a branch.
  // `guard`: when the value is needed (null = always). `vectors`: false where the lanes of one
  // access may differ in their guards, so that they must be loaded one by one.
  search_space::Expr Prepare(const search_space::Expr& e, const Chunk& chunk, int lane,
                             const search_space::Expr& guard, bool vectors);
  search_space::Expr PrepareLoad(const search_space::Expr& e, const Chunk& chunk, int lane,
                                 const search_space::Expr& guard, bool vectors);
  search_space::Expr PrepareSelect(const search_space::Expr& e, const Chunk& chunk, int lane,
                                   const search_space::Expr& guard, bool vectors);
  search_space::Expr LoadOrZero(const search_space::Expr& condition, const search_space::Expr& e,
                                const Chunk& chunk, int lane, bool vectors);
  // An expression that prints as a new constant of this scope with this value; the same type and
  // value in one chunk give the same constant.
  search_space::Expr Temporary(NameKind kind, const std::string& name, const std::string& type,
                               const std::string& value, int lanes, int lane,
                               search_space::DType dtype);
  std::string AddressSpace(const search_space::BufferRef& buffer) const {
    return buffer->scope == search_space::Scope::kGlobal ? dialect_.global : dialect_.shared;
  }

  const char* IndexType(const search_space::Var& var) const {
    return var->extent - 1 > INT32_MAX ? dialect_.long_type : "int";
  }

  const search_space::Kernel& kernel_;
  const Dialect& dialect_;
  ExprPrinter printer_;
  const bool async_copies_;
  const bool dynamic_shared_;
  Names names_;
  search_space::Var warpgroup_;  // its number; null where nothing asks for it
  std::vector<size_t> scopes_;
  // Of the chunk being printed: type and value -> name, and all lanes of a vector -> its name.
  std::map<std::string, std::string> temporaries_;
  std::map<std::string, std::string> vectors_;
  std::vector<search_space::Var> bound_;  // keeps the variables that stand for temporaries
  std::map<search_space::DType, std::string> lanes_;  // arrays for exchanges between threads
  // Descriptions of tensors that the launch passes: each of the first copies from it, its name.
  std::vector<std::pair<const search_space::StmtNode*, std::string>> maps_;
  // Pointers that move with a loop, and views of them.
  std::set<search_space::BufferRef> moving_;
  bool names_loops_ = false;  // of the schedule, in comments
  std::string example_;       // of one in the code
  std::string body_;
  int indent_ = 0;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_KERNEL_PRINTER_H_
