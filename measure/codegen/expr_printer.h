// Expressions as C text: which integers need 64 bits, how floor division is spelled, where
// parentheses go. Internal to measure/codegen.
#ifndef HEDDLE_MEASURE_CODEGEN_EXPR_PRINTER_H_
#define HEDDLE_MEASURE_CODEGEN_EXPR_PRINTER_H_

#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/string_view.h"
#include "measure/codegen/dialects.h"
#include "search_space/ir/expr/expr.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::measure {

// The element of an access before swizzling.
search_space::Expr OffsetOf(const search_space::Buffer& buffer,
                            const search_space::ExprList& indices);

class ExprPrinter {
 public:
  explicit ExprPrinter(const Dialect& dialect) : dialect_(dialect) {}

  std::string Print(const search_space::Expr& e) { return Convert(e).text; }
  // A value that is rounded to 16 bits at once, before that.
  std::string PrintRounded(const search_space::Expr& e) {
    return ConvertRounded(e, Rounded::kWhole).text;
  }
  // A value that becomes 16 bits later, as RoundedLater has it.
  std::string PrintRoundedLater(const search_space::Expr& e) {
    return ConvertRounded(e, Rounded::kFactor).text;
  }
  // As an operand of && or ?: needs it.
  std::string PrintCondition(const search_space::Expr& e);
  // The physical element offset of an access.
  std::string PrintOffset(const search_space::Buffer& buffer,
                          const search_space::ExprList& indices);
  // "s_A[...]"
  std::string PrintElement(const search_space::BufferRef& buffer,
                           const search_space::ExprList& indices);

  // The C name of a variable or of a temporary that stands for a prepared value.
  void Bind(const search_space::Var& var, std::string name) { vars_[var.get()] = std::move(name); }
  void Bind(const search_space::BufferRef& buffer, std::string name) {
    buffers_[buffer.get()] = std::move(name);
  }
  const std::string& NameOf(const search_space::Var& var) const { return vars_.at(var.get()); }
  const std::string& NameOf(const search_space::BufferRef& buffer) const {
    return buffers_.at(buffer.get());
  }

  std::set<std::string> helpers;  // used so far, see Prelude
  bool float64 = false;           // double precision was used
  // Exponentials that are rounded keep what is less than 2^-126. Those that are rounded later do:
  // where both are of the same values, compilers then compute one.
  bool keeps_small = false;

 private:
  // C's precedence levels, as far as they are used without parentheses.
  enum Level { kTernary, kOr, kAnd, kEquality, kRelation, kSum, kProduct, kUnary, kPrimary };
  struct Text {
    std::string text;
    Level level = kPrimary;
    // Integers only: whether the C type is 64 bits wide, and all values it can have.
    bool wide = false;
    search_space::Interval bounds = {0, 0};
  };

  Text Convert(const search_space::Expr& e);
  Text ConvertInt(const search_space::Expr& e);
  Text ConvertArithmetic(const search_space::Expr& e);
  Text ConvertDivision(const search_space::Expr& e);
  Text ConvertChoice(const Text& condition, const Text& a, const Text& b);
  // The same of numbers that `e` chooses between.
  Text ConvertSelect(const search_space::Expr& e, const Text& condition, const Text& a,
                     const Text& b);
  Text ConvertValue(const search_space::Expr& e);
  Text ConvertCast(const search_space::Expr& e);
  Text ConvertFunction(const search_space::Expr& e);
  // Of comparisons of integers, of which some are alternatives.
  Text ConvertMask(const search_space::Expr& e);
  // nullopt: no operator between operands.
  std::optional<Text> ConvertInfix(const search_space::Expr& e);
  // What becomes of a value that is rounded to 16 bits at once: all of it, or a factor.
  enum class Rounded : uint8_t { kNot, kWhole, kFactor };
  Text ConvertRounded(const search_space::Expr& e, Rounded rounded);
  // nullopt: as exact as elsewhere.
  std::optional<Text> ConvertRough(const search_space::Expr& e, Rounded rounded);
  Text ConvertRoughExp(const search_space::Expr& x, Rounded rounded);  // of e^x
  Text RoughQuotient(const Text& a, const Text& b, const search_space::Expr& divisor);
  Text CallHelper(const char* name, absl::string_view operands);
  Text Widened(Text t) const;   // to a 64-bit C type
  Text Narrowed(Text t) const;  // to a 32-bit C type, which its bounds must fit
  static std::string At(const Text& t, Level level);  // parenthesised where it binds less tightly

  const Dialect& dialect_;
  Rounded rounded_ = Rounded::kNot;  // the value that is converted next
  std::unordered_map<const search_space::Variable*, std::string> vars_;
  std::unordered_map<const search_space::Buffer*, std::string> buffers_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_EXPR_PRINTER_H_
