// Stores, and the loads of what they store: as wide as they may be, and none behind a branch.
// Internal to measure/codegen.
#ifndef HEDDLE_MEASURE_CODEGEN_STORE_PRINTER_H_
#define HEDDLE_MEASURE_CODEGEN_STORE_PRINTER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "measure/codegen/kernel_text.h"
#include "search_space/ir/stmt.h"

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

class StorePrinter {
 public:
  // `moving`: pointers that move with a loop around what is printed, and views of them.
  // `rounded_later`: as RoundedLater has it.
  StorePrinter(KernelText& out, const std::set<search_space::BufferRef>& moving,
               const std::set<search_space::BufferRef>& rounded_later)
      : out_(out), moving_(moving), rounded_later_(rounded_later) {}

  // Stores of a whole vector loop, or of one statement when var is null.
  void Print(const search_space::StmtNode& s, const search_space::Var& var);
  // buffer[indices] = value; += or *= where the value adds to or multiplies the old one.
  void PrintScalar(const search_space::BufferRef& buffer, const search_space::ExprList& indices,
                   const search_space::Expr& value);
  // An expression that prints as a new constant of this scope with this value.
  search_space::Expr Constant(const std::string& name, const std::string& value,
                              search_space::DType dtype);

 private:
  // Where a value is computed. `guard`: when it is needed (null = always). `vectors`: false where
  // the lanes of one access may differ in their guards, so that they must be loaded one by one.
  struct Lane {
    const Chunk& chunk;
    int lane;
    search_space::Expr guard;
    bool vectors;
    // Loads that all sides of some choice around this need, or the value in any case: they are
    // guarded as the choice is.
    struct Needed {
      search_space::Expr load;
      search_space::Expr guard;
      bool vectors;
    };
    std::vector<Needed> needed = {};

    Lane Where(const search_space::Expr& condition) const;  // when that holds, too
    void Need(const search_space::ExprList& loads);
    int WidthOf(const search_space::Expr& load) const;  // elements that one access covers
  };
  std::string PrintFor(const search_space::BufferRef& buffer, const search_space::Expr& value);
  void PrintChunk(const search_space::StmtNode& s, const Chunk& chunk);
  // The value of one lane as an expression over temporaries. Vector loads, and loads that a select
  // guards, become temporaries first: all loads are issued together, none stands behind a branch.
  search_space::Expr Prepare(const search_space::Expr& e, const Lane& at);
  search_space::Expr PrepareLoad(const search_space::Expr& e, const Lane& at);
  search_space::Expr LoadedAt(const search_space::Expr& e, const Lane& at, bool in_place);
  search_space::Expr PrepareSelect(const search_space::Expr& e, Lane at);
  search_space::Expr LoadOrZero(const search_space::Expr& condition, const search_space::Expr& e,
                                const Lane& at);
  // The lane of a constant that holds what a load gives as `type`.
  search_space::Expr Loaded(const search_space::Expr& load, const Lane& at,
                            search_space::DType type, const std::string& condition,
                            const std::string& element, const std::string& otherwise);
  // A lane of a new constant; the same type and value in one chunk give the same constant.
  search_space::Expr Temporary(NameKind kind, const std::string& name, const std::string& value,
                               search_space::DType dtype, int lanes = 1, int lane = 0);

  KernelText& out_;
  const std::set<search_space::BufferRef>& moving_;
  const std::set<search_space::BufferRef>& rounded_later_;
  // Of the chunk being printed: type and value -> name, and all lanes of a vector -> its name.
  std::map<std::string, std::string> temporaries_;
  std::map<std::string, std::string> vectors_;
  std::vector<search_space::Var> bound_;  // keeps the variables that stand for temporaries
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_STORE_PRINTER_H_
