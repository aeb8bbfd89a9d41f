#include "measure/codegen/helpers.h"

#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "search_space/ir/background.h"
#include "search_space/ir/expr/float_format.h"

namespace heddle::measure {
namespace {

using search_space::DType;
using search_space::IsHalf;

std::vector<Helper> ParseHelpers(const Dialect& dialect) {
  std::vector<Helper> helpers;
  std::vector<std::vector<std::string>> headings;  // of the text below
  const std::vector<std::string> parts = absl::StrSplit(dialect.helpers, "//// ");
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::pair<std::string, std::string> part =
        absl::StrSplit(parts[i], absl::MaxSplits('\n', 1));
    headings.push_back(absl::StrSplit(part.first, ' '));
    if (part.second.empty()) continue;
    for (const std::vector<std::string>& words : headings) {
      std::vector<std::pair<std::string, std::string>> values = {{"$helper ", dialect.helper}};
      for (size_t k = 0; k < words.size(); ++k) values.emplace_back(absl::StrCat("$", k), words[k]);
      helpers.push_back({words[0], absl::StrReplaceAll(part.second, values)});
    }
    headings.clear();
  }
  return helpers;
}

// "%4, %5, %6", `count` of them.
std::string Operands(int64_t first, int64_t count) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) absl::StrAppend(&out, i == 0 ? "%" : ", %", first + i);
  return out;
}

// "+f"(d[0]), "+f"(d[1]), `count` of them.
std::string Elements(const char* constraint, const char* array, int64_t count) {
  std::string out;
  for (int64_t i = 0; i < count; ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ", ", "\"", constraint, "\"(", array, "[", i, "])");
  }
  return out;
}

std::string WarpgroupHelperText(const Dialect& dialect, const search_space::MatrixShape& shape,
                                DType type, bool held) {
  const int64_t results = shape.Layout(search_space::MatrixOperand::kD).elements();
  const bool transposes = IsHalf(type);
  const char* const name = type == DType::kFloat16 ? "f16" : transposes ? "bf16" : "tf32";
  // Only what is read from shared memory can be transposed there.
  std::vector<std::string> flags;
  if (transposes && !held) flags.push_back("kTransposeA");
  if (transposes) flags.push_back("kTransposeB");
  const int64_t registers = shape.Layout(search_space::MatrixOperand::kA).elements() *
                            SizeOf(type) / SizeOf(DType::kFloat32);
  const int64_t inputs = held ? registers : 1;  // that say what A is
  const int64_t behind = results + inputs + 1;
  return absl::StrCat(
      "// d += a * b of a warpgroup: ", shape.m, " x ", shape.n, ", ", shape.m, " x ", shape.k,
      " and ", shape.n, " x ", shape.k, " elements, d", held ? " and a" : "",
      " spread over its lanes.\n",
      flags.empty() ? "" : absl::StrCat("template <int ", absl::StrJoin(flags, ", int "), ">\n"),
      dialect.helper, "void ", WarpgroupHelper(shape, type, held), "(float* d, ",
      held ? "const unsigned* a" : "unsigned long long a", ", unsigned long long b) {\n",
      "  asm volatile(\"{.reg .pred add; setp.ne.b32 add, 1, 0; \"\n",
      "               \"wgmma.mma_async.sync.aligned.m", shape.m, "n", shape.n, "k", shape.k,
      ".f32.", name, ".", name, " {", Operands(0, results), "}, ",
      held ? absl::StrCat("{", Operands(results, inputs), "}, ", Operands(results + inputs, 1))
           : Operands(results, 2),
      ", add, 1, 1", flags.empty() ? "" : absl::StrCat(", ", Operands(behind, std::ssize(flags))),
      ";}\"\n", "               : ", Elements("+f", "d", results),
      "\n               : ", held ? Elements("r", "a", registers) : "\"l\"(a)", ", \"l\"(b)",
      flags.empty() ? "" : absl::StrCat(", \"n\"(", absl::StrJoin(flags, "), \"n\"("), ")"),
      " : \"memory\");\n}\n");
}

std::string BulkCopyHelperText(const Dialect& dialect, size_t rank) {
  std::string parameters, firsts, values;
  for (size_t d = 0; d < rank; ++d) {
    absl::StrAppend(&parameters, ", int x", d);
    absl::StrAppend(&firsts, d == 0 ? "%" : ", %", d + 3);
    absl::StrAppend(&values, ", \"r\"(x", d, ")");
  }
  return absl::StrCat(
      "// Starts to copy a box of a tensor of ", rank,
      " dimensions, from its element x, innermost ", "first; zeros for what lies outside.\n",
      dialect.helper, "void ", BulkCopyHelper(rank), "(void* to, const TensorMap* map", parameters,
      ", long long* phase) {\n", "  asm volatile(\"cp.async.bulk.tensor.", rank,
      "d.shared::cluster.global.mbarrier::complete_tx::bytes \"\n", "               \"[%0], [%1, {",
      firsts, "}], [%2];\"\n",
      "               : : \"r\"((unsigned)__cvta_generic_to_shared(to)), \"l\"(map),\n",
      "                   \"r\"((unsigned)__cvta_generic_to_shared(phase))", values,
      " : \"memory\");\n}\n");
}

}  // namespace

const std::vector<Helper>& HelpersOf(const Dialect& dialect) {
  static const auto* const all = [] {
    auto* helpers = new std::map<std::string, std::vector<Helper>>;
    for (const Dialect& row : Dialects()) helpers->emplace(row.name, ParseHelpers(row));
    return helpers;
  }();
  return all->at(dialect.name);
}

std::string WarpgroupHelper(const search_space::MatrixShape& shape, DType type, bool held) {
  return absl::StrCat(shape.name, "_", NameOf(type), held ? "_held" : "");
}

std::string BulkCopyHelper(size_t rank) { return absl::StrCat("bulk_copy_", rank, "d"); }

void VisitMadeHelpers(
    absl::FunctionRef<void(const std::string& name,
                           absl::FunctionRef<std::string(const Dialect& dialect)> text)>
        visit) {
  for (size_t rank = 1; rank <= search_space::kMostBulkRank; ++rank) {
    visit(BulkCopyHelper(rank), [&](const Dialect& d) { return BulkCopyHelperText(d, rank); });
  }
  for (DType type : {DType::kFloat16, DType::kBFloat16, DType::kTF32}) {
    for (search_space::MatrixInstruction instruction : search_space::WarpgroupInstructions(type)) {
      const search_space::MatrixShape& shape = search_space::ShapeOf(instruction);
      for (const bool held : {false, true}) {
        visit(WarpgroupHelper(shape, type, held),
              [&](const Dialect& d) { return WarpgroupHelperText(d, shape, type, held); });
      }
    }
  }
}

std::string Prelude(const Dialect& dialect, const std::set<std::string>& helpers, bool float64) {
  std::string out = absl::StrCat(float64 ? dialect.prelude64 : "", dialect.prelude);
  for (const Helper& helper : HelpersOf(dialect)) {
    if (helpers.contains(helper.name)) absl::StrAppend(&out, helper.text, "\n");
  }
  VisitMadeHelpers([&](const std::string& name, auto text) {
    if (helpers.contains(name)) absl::StrAppend(&out, text(dialect), "\n");
  });
  return out;
}

}  // namespace heddle::measure
