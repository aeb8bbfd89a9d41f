#include "search_space/schedule/step.h"

#include <cctype>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "search_space/schedule/editor.h"

namespace heddle::search_space {
namespace {

// Calls `f` on the primitive's fields, as long as it returns true.
template <typename S, typename F>
bool Walk(S& step, F&& f) {
  return std::apply([&](auto&... fields) { return (f(fields) && ...); }, step.Fields());
}

struct Printer {
  std::string out;
  bool first = true;

  bool Append(const std::string& text) {
    absl::StrAppend(&out, first ? "" : ", ", text);
    first = false;
    return true;
  }
  bool operator()(const std::string& v) { return Append(v); }
  bool operator()(int64_t v) { return Append(absl::StrCat(v)); }
  template <typename T>
  bool operator()(const std::vector<T>& v) {
    return Append(absl::StrCat("[", absl::StrJoin(v, ", "), "]"));
  }
  template <typename E>
  requires std::is_enum_v<E>
  bool operator()(E v) { return Append(WordsOf(v)[static_cast<size_t>(v)]); }
};

class LineParser {
 public:
  explicit LineParser(const std::string& line) : line_(line) {}

  absl::StatusOr<Step> Parse() {
    const std::string name = Word();
    std::optional<Step> step =
        StepNamed(name, std::make_index_sequence<std::variant_size_v<Step>>());
    if (!step.has_value()) {
      column_ = 0;
      return Error(absl::StrCat("a schedule primitive, found '", name, "'"));
    }
    if (!Eat('(')) return Error("'('");
    const bool ok = std::visit([&](auto& s) { return Walk(s, *this); }, *step);
    if (!ok) return Error(expected_);
    if (!Eat(')')) return Error("')'");
    SkipSpace();
    if (column_ < line_.size() && line_[column_] != '#') return Error("the end of the line");
    return *step;
  }

  bool operator()(std::string& v) {
    if (!Separator()) return false;
    v = Word();
    expected_ = "a name";
    return !v.empty();
  }
  bool operator()(int64_t& v) { return Separator() && Number(v); }
  template <typename T>
  bool operator()(std::vector<T>& v) {
    if (!Separator()) return false;
    expected_ = "'['";
    if (!Eat('[')) return false;
    first_ = true;
    while (!Eat(']')) {
      if (!(*this)(v.emplace_back())) return false;
      if (v.size() > kMaxListLength) {
        expected_ = "a shorter list";
        return false;
      }
    }
    first_ = false;
    return true;
  }
  template <typename E>
  requires std::is_enum_v<E>
  bool operator()(E& v) {
    if (!Separator()) return false;
    const size_t start = column_;
    const std::string word = Word();
    for (size_t i = 0; i < WordsOf(v).size(); ++i) {
      if (word != WordsOf(v)[i]) continue;
      v = static_cast<E>(i);
      return true;
    }
    column_ = start;
    expected_ = absl::StrCat("one of ", absl::StrJoin(WordsOf(v), ", "));
    return false;
  }

 private:
  static constexpr size_t kMaxListLength = 64;

  template <size_t... I>
  static std::optional<Step> StepNamed(const std::string& name, std::index_sequence<I...>) {
    std::optional<Step> found;
    auto test = [&]<size_t Index>() {
      using S = std::variant_alternative_t<Index, Step>;
      if (name == S::kName) found = S{};
    };
    (test.template operator()<I>(), ...);
    return found;
  }

  absl::Status Error(const std::string& expected) const {
    return absl::InvalidArgumentError(absl::StrCat(column_ + 1, ": expected ", expected));
  }
  void SkipSpace() {
    while (column_ < line_.size() && std::isspace(static_cast<unsigned char>(line_[column_]))) {
      ++column_;
    }
  }
  bool Eat(char c) {
    SkipSpace();
    if (column_ >= line_.size() || line_[column_] != c) return false;
    ++column_;
    return true;
  }
  bool Separator() {
    expected_ = "','";
    if (!first_ && !Eat(',')) return false;
    first_ = false;
    SkipSpace();
    return true;
  }
  static bool IsNameChar(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '@';
  }
  std::string Word() {
    SkipSpace();
    const size_t start = column_;
    while (column_ < line_.size() && IsNameChar(line_[column_])) ++column_;
    return line_.substr(start, column_ - start);
  }
  bool Number(int64_t& v) {
    expected_ = "an integer";
    const size_t start = column_;
    if (column_ < line_.size() && line_[column_] == '-') ++column_;
    while (column_ < line_.size() && std::isdigit(static_cast<unsigned char>(line_[column_]))) {
      ++column_;
    }
    if (absl::SimpleAtoi(line_.substr(start, column_ - start), &v)) return true;
    column_ = start;
    return false;
  }

  const std::string& line_;
  size_t column_ = 0;
  bool first_ = true;
  std::string expected_;
};

}  // namespace

absl::Status Apply(const Step& step, Schedule& schedule) {
  const absl::Status status =
      std::visit([&](const auto& s) { return ScheduleEditor(schedule).Apply(s); }, step);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(ToString(step), " does not apply: ", std::string(status.message())));
}

absl::Status Apply(const std::vector<Step>& steps, Schedule& schedule) {
  for (const Step& step : steps) HEDDLE_RETURN_IF_ERROR(Apply(step, schedule));
  return absl::OkStatus();
}

std::string ToString(const Step& step) {
  Printer printer;
  const char* name = std::visit(
      [&](const auto& s) {
        Walk(s, printer);
        return s.kName;
      },
      step);
  return absl::StrCat(name, "(", printer.out, ")");
}

std::string ToString(const std::vector<Step>& steps) {
  std::string out;
  for (const Step& step : steps) absl::StrAppend(&out, ToString(step), "\n");
  return out;
}

absl::StatusOr<std::vector<Step>> ParseSteps(const std::string& text) {
  static constexpr size_t kMaxSteps = 4096;
  std::vector<Step> steps;
  size_t start = 0;
  for (int line_number = 1; start < text.size(); ++line_number) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    start = end + 1;
    const size_t content = line.find_first_not_of(" \t\r");
    if (content == std::string::npos || line[content] == '#') continue;
    if (steps.size() == kMaxSteps) {
      return absl::InvalidArgumentError(
          absl::StrCat("a schedule has at most ", kMaxSteps, " steps"));
    }
    absl::StatusOr<Step> step = LineParser(line).Parse();
    if (!step.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("schedule ", line_number, ":", std::string(step.status().message())));
    }
    steps.push_back(*std::move(step));
  }
  return steps;
}

}  // namespace heddle::search_space
