// The text of one kernel while it is printed. Internal to measure/codegen.
#ifndef HEDDLE_MEASURE_CODEGEN_KERNEL_TEXT_H_
#define HEDDLE_MEASURE_CODEGEN_KERNEL_TEXT_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "measure/codegen/dialects.h"
#include "measure/codegen/expr_printer.h"
#include "measure/codegen/names.h"

namespace heddle::measure {

// What the printers of a kernel's parts share: lines so far, and what may stand in the next.
struct KernelText {
  explicit KernelText(const Dialect& of) : dialect(of), exprs(of), names(of) {}

  // Of parts, as StrCat takes them.
  void Line(const auto&... parts) {
    absl::StrAppend(&body, std::string(static_cast<size_t>(indent) * 2, ' '), parts..., "\n");
  }
  // A line that needs the helper of this name.
  void Call(const std::string& helper, const auto&... parts) {
    exprs.helpers.insert(helper);
    Line(parts...);
  }
  // A block, with the names that are declared in it.
  void Open(const auto&... head) {
    Line(head..., sizeof...(head) == 0 ? "{" : " {");
    ++indent;
    scopes.push_back(names.Mark());
  }
  void Close() {
    names.Release(scopes.back());
    scopes.pop_back();
    --indent;
    Line("}");
  }

  const Dialect& dialect;
  ExprPrinter exprs;
  Names names;
  std::string body;
  int indent = 0;
  std::vector<size_t> scopes;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_CODEGEN_KERNEL_TEXT_H_
