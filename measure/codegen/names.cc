#include "measure/codegen/names.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "measure/codegen/helpers.h"

namespace heddle::measure {
namespace {

using search_space::DType;
using search_space::Op;

// Keywords of C++20 and OpenCL C, of their extensions in use, and the few macros in small letters.
constexpr char kWords[] =
    "alignas alignof and and_eq asm auto bitand bitor break case catch class co_await co_return "
    "co_yield compl complex concept const const_cast consteval constexpr constinit continue "
    "constant decltype default delete do dynamic_cast else enum explicit export extern false "
    "final for friend generic global goto if imaginary import inline kernel i386 linux local "
    "module mutable namespace new noexcept not not_eq nullptr operator or or_eq override pipe "
    "private protected public read_only read_write register reinterpret_cast requires restrict "
    "return sizeof static static_assert static_cast struct switch template this thread_local "
    "throw true try typedef typeid typename typeof uniform union unix using vec_step vector "
    "virtual volatile while write_only xor xor_eq blockDim blockIdx gridDim threadIdx warpSize";

// Types, which may end with a number: those of vectors do, and others mean none of ours.
constexpr char kTypes[] =
    "bool char dim double float half int long longlong quad short signed uchar uint ulong "
    "ulonglong unsigned ushort void";

using Words = absl::flat_hash_set<absl::string_view>;

// Letters, digits and single underscores, the first of them a letter.
std::string Identifier(absl::string_view wanted) {
  std::string out;
  for (char c : wanted) {
    if (absl::ascii_isalnum(c)) {
      out += c;
    } else if (!out.empty() && out.back() != '_') {
      out += '_';
    }
  }
  while (absl::EndsWith(out, "_")) out.pop_back();
  return out.empty() || absl::ascii_isdigit(out[0]) ? absl::StrCat("n", out) : out;
}

// 2, 3, ... as b, c, ..., z, aa, ...: numbers at the end are parts of loops.
std::string Letters(int n) {
  std::string out;
  for (; n > 0; n = (n - 1) / 26) out.insert(0, 1, static_cast<char>('a' + (n - 1) % 26));
  return out;
}

// The identifiers that stand in `code`, without members, which are behind a dot;
// `functions_only`: those before a parenthesis.
std::set<std::string> IdentifiersIn(absl::string_view code, bool functions_only) {
  std::set<std::string> out;
  for (size_t i = 0; i < code.size();) {
    size_t end = i;
    while (end < code.size() && (absl::ascii_isalnum(code[end]) || code[end] == '_')) ++end;
    const bool is_member = i > 0 && code[i - 1] == '.';
    const bool wanted = !functions_only || (end < code.size() && code[end] == '(');
    if (end > i && !absl::ascii_isdigit(code[i]) && !is_member && wanted) {
      out.emplace(code.substr(i, end - i));
    }
    i = std::max(end, i + 1);
  }
  return out;
}

// What a kernel in this dialect mentions and calls.
std::set<std::string> FindCalledIn(const Dialect& dialect) {
  std::set<std::string> out;
  const auto add = [&](const char* code, bool functions_only) {
    if (code != nullptr) out.merge(IdentifiersIn(code, functions_only));
  };
  for (const char* code : {dialect.nan32, dialect.nan64, dialect.infinity32, dialect.infinity64,
                           dialect.block_index, dialect.thread_index, dialect.barrier,
                           dialect.shuffle, dialect.shuffle_up, dialect.shuffle_down}) {
    add(code, /*functions_only=*/false);
  }
  for (const Helper& helper : HelpersOf(dialect)) add(helper.text.c_str(), /*functions_only=*/true);
  out.insert("TensorMap");
  VisitMadeHelpers([&](const std::string& name, auto /*text*/) { out.insert(name); });
  for (Op op : {Op::kExp, Op::kLog, Op::kSqrt, Op::kRsqrt, Op::kTanh, Op::kErf, Op::kAbs, Op::kPow,
                Op::kMin, Op::kMax}) {
    std::set<std::string> helpers;
    out.insert(FunctionName(dialect, op, DType::kFloat32, helpers));
    out.insert(FunctionName(dialect, op, DType::kFloat64, helpers));
  }
  for (int width : {2, 4}) {
    for (const char* type : {"int", "uint", "ushort", "uchar", "longlong", "float", "double"}) {
      out.insert(absl::StrCat("make_", type, width));
    }
  }
  return out;
}

const std::set<std::string>& CalledIn(const Dialect& dialect) {
  static const auto* const all = [] {
    auto* sets = new std::map<std::string, std::set<std::string>>;
    for (const Dialect& row : Dialects()) sets->emplace(row.name, FindCalledIn(row));
    return sets;
  }();
  return all->at(dialect.name);
}

// What a name's kind adds to it: before normal names, behind readable ones. In NameKind's order.
constexpr struct {
  const char* prefix;
  const char* suffix;
} kAffixes[] = {{"g_", ""},     {"s_", ""},       {"r_", ""},        {"v_", ""},
                {"m_", "_map"}, {"x_", "_value"}, {"x_", "_vector"}, {"o_", "_offset"},
                {"p_", "_ptr"}, {"", ""},         {"", ""}};
static_assert(std::size(kAffixes) == static_cast<size_t>(NameKind::kOther) + 1);

// A sign is this byte and the name's number, in bytes that no ASCII text has.
constexpr char kSign = '\1';
constexpr size_t kDigits = 3;
constexpr unsigned kDigitBits = 7;

}  // namespace

bool IsReserved(absl::string_view name) {
  static const auto* const words = new Words(absl::StrSplit(kWords, ' '));
  static const auto* const types = new Words(absl::StrSplit(kTypes, ' '));
  if (words->contains(name) || absl::EndsWith(name, "_t")) return true;
  absl::string_view type = name;
  while (!type.empty() && absl::ascii_isdigit(type.back())) type.remove_suffix(1);
  if (types->contains(type)) return true;
  // Macros are of capitals; tensors and axes are called by one, perhaps with a number.
  return !absl::EndsWith(name, "_") &&
         std::count_if(name.begin(), name.end(), absl::ascii_isalpha) > 1 &&
         std::none_of(name.begin(), name.end(), absl::ascii_islower);
}

Names::Names(const Dialect& dialect) : taken_(CalledIn(dialect)) {}

bool Names::IsFree(const std::string& name, std::string Spelled::*naming) const {
  return std::none_of(active_.begin(), active_.end(),
                      [&](size_t number) { return all_[number].*naming == name; });
}

std::string Names::NormalName(NameKind kind, absl::string_view wanted) const {
  std::string base = kAffixes[static_cast<size_t>(kind)].prefix;
  for (char c : wanted) base += absl::ascii_isalnum(c) ? c : '_';
  std::string name = base;
  for (int i = 2; !IsFree(name, &Spelled::normal); ++i) name = absl::StrCat(base, "_", i);
  return name;
}

std::string Names::ReadableName(NameKind kind, absl::string_view wanted) const {
  const std::string base = kind == NameKind::kCondition
                               ? "condition"
                               : Identifier(wanted) + kAffixes[static_cast<size_t>(kind)].suffix;
  const auto means_something = [&](const std::string& name) {
    return IsReserved(name) || taken_.contains(name);
  };
  std::string name = means_something(base) ? base + "_" : base;
  for (int i = 2; !IsFree(name, &Spelled::readable) || means_something(name); ++i) {
    name = absl::StrCat(base, "_", Letters(i));
  }
  return name;
}

std::string Names::Add(Spelled spelled) {
  size_t number = all_.size();
  HEDDLE_CHECK(number >> (kDigits * kDigitBits) == 0, "a kernel has too many names");
  all_.push_back(std::move(spelled));
  std::string sign(1, kSign);
  for (size_t i = 0; i < kDigits; ++i, number >>= kDigitBits) {
    sign += static_cast<char>(0x80 | (number & ((1U << kDigitBits) - 1)));
  }
  return sign;
}

std::string Names::Declare(NameKind kind, absl::string_view wanted, absl::string_view word) {
  const size_t number = all_.size();
  std::string sign =
      Add({ReadableName(kind, word.empty() ? wanted : word), NormalName(kind, wanted)});
  active_.push_back(number);
  return sign;
}

std::string Names::Aside(std::string text) { return Add({std::move(text), ""}); }

std::string Names::Spell(absl::string_view text, Naming naming) const {
  std::string out;
  out.reserve(text.size() * 3 / 2);
  for (;;) {
    const size_t plain = std::min(text.find(kSign), text.size());
    out.append(text.data(), plain);
    if (plain == text.size()) return out;
    size_t number = 0;
    for (size_t i = kDigits; i > 0; --i) {
      number = number << kDigitBits |
               (static_cast<unsigned char>(text[plain + i]) & ((1U << kDigitBits) - 1));
    }
    out += naming == Naming::kReadable ? all_[number].readable : all_[number].normal;
    text.remove_prefix(plain + 1 + kDigits);
  }
}

}  // namespace heddle::measure
