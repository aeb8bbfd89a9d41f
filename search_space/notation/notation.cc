#include "search_space/notation/notation.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/nearest_name.h"
#include "base/status.h"
#include "search_space/notation/builtin_operators.h"
#include "search_space/notation/notation_syntax.h"

namespace heddle::search_space {
namespace {

std::vector<Operator> ParseBuiltins() {
  std::vector<Operator> operators;
  for (const char* text : kBuiltinOperatorTexts) {
    absl::StatusOr<std::vector<Operator>> parsed = ParseOperators(text);
    // A test parses every built-in file; a broken one cannot be shipped.
    HEDDLE_CHECK(parsed.ok(), std::string(parsed.status().message()));
    operators.insert(operators.end(), parsed->begin(), parsed->end());
  }
  std::sort(operators.begin(), operators.end(),
            [](const Operator& a, const Operator& b) { return a.name() < b.name(); });
  return operators;
}

}  // namespace

Operator::Operator(std::shared_ptr<const OperatorSyntax> syntax) : syntax_(std::move(syntax)) {}

const std::string& Operator::name() const { return syntax_->name; }
const std::vector<OperatorParameter>& Operator::parameters() const { return syntax_->parameters; }
const std::string& Operator::text() const { return syntax_->text; }

absl::StatusOr<TensorProgram> Operator::Instantiate(const std::map<std::string, int64_t>& shape,
                                                    DType dtype) const {
  if (!IsFloat(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a workload's data type is a floating-point type, not ", NameOf(dtype)));
  }
  try {
    return search_space::Instantiate(*syntax_, shape, dtype);
  } catch (const NotationError& error) {
    return absl::InvalidArgumentError(error.message);
  }
}

absl::StatusOr<std::vector<Operator>> ParseOperators(const std::string& text) {
  try {
    std::vector<Operator> operators;
    for (OperatorSyntax& syntax : ParseSyntax(text)) {
      CheckNames(syntax);
      syntax.text = Print(syntax);
      operators.emplace_back(std::make_shared<const OperatorSyntax>(std::move(syntax)));
    }
    return operators;
  } catch (const NotationError& error) {
    return absl::InvalidArgumentError(error.message);
  }
}

absl::StatusOr<std::map<std::string, int64_t>> ParseShape(const std::string& text) {
  std::map<std::string, int64_t> shape;
  if (absl::StripAsciiWhitespace(text).empty()) return shape;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const absl::string_view pair = absl::StripAsciiWhitespace(part);
    const std::vector<absl::string_view> sides = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    const std::string name(absl::StripAsciiWhitespace(sides[0]));
    const bool is_name = !name.empty() && !absl::ascii_isdigit(name[0]) &&
                         std::all_of(name.begin(), name.end(), [](char c) {
                           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
                         });
    if (sides.size() != 2 || !is_name) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape: expected name=integer separated by commas, as in m=512,n=512; found "
                       "'",
                       absl::CHexEscape(pair), "'"));
    }
    const absl::string_view digits = absl::StripAsciiWhitespace(sides[1]);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc::result_out_of_range) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape: ", name, "=", digits, " does not fit a 64-bit integer"));
    }
    if (error != std::errc() || end != digits.data() + digits.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shape: the value of ", name, " must be an integer, found '", absl::CHexEscape(digits),
          "'; kernels are made for one size: tune each "
          "that occurs, or a few that others are "
          "padded to"));
    }
    if (!shape.emplace(name, value).second) {
      return absl::InvalidArgumentError(absl::StrCat("shape: ", name, " is given twice"));
    }
  }
  return shape;
}

absl::StatusOr<DType> ParseDType(const std::string& text) {
  std::vector<std::string> names;
  for (const DType type : kWorkloadTypes) {
    if (text == NameOf(type)) return type;
    names.push_back(NameOf(type));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown data type '", absl::CHexEscape(text), "'", Suggest(text, names)));
}

absl::StatusOr<TensorProgram> ParseWorkload(const std::string& canonical_text) {
  const size_t space = canonical_text.find(' ');
  if (space == std::string::npos) {
    return absl::InvalidArgumentError("workload: expected a data type and an operator");
  }
  HEDDLE_ASSIGN_OR_RETURN(dtype, ParseDType(canonical_text.substr(0, space)));
  HEDDLE_ASSIGN_OR_RETURN(operators, ParseOperators(canonical_text.substr(space + 1)));
  if (operators.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("workload: expected one operator, found ", operators.size()));
  }
  return operators.front().Instantiate({}, dtype);
}

const std::vector<Operator>& BuiltinOperators() {
  static const auto* operators = new std::vector<Operator>(ParseBuiltins());
  return *operators;
}

absl::StatusOr<Operator> FindOperator(const std::vector<Operator>& operators,
                                      const std::string& name) {
  std::vector<std::string> names;
  for (const Operator& op : operators) {
    if (op.name() == name) return op;
    names.push_back(op.name());
  }
  return absl::NotFoundError(
      absl::StrCat("unknown operator '", absl::CHexEscape(name), "'", Suggest(name, names)));
}

}  // namespace heddle::search_space
