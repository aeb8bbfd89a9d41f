#include "measure/codegen/rounded_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "measure/codegen/codegen.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"

namespace heddle::measure {
namespace {

using namespace search_space;  // NOLINT: statements are built from these names
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class RoundedValues : public ::testing::Test {
 protected:
  static BufferRef Registers(const char* name) {
    return MakeBuffer(name, DType::kFloat32, Scope::kLocal, {4});
  }
  static Expr First(const BufferRef& buffer) { return Load(buffer, {Int(0)}); }
  static Stmt Give(const BufferRef& buffer, const Expr& value) {
    return Store(buffer, {Int(0)}, value);
  }
  static Expr Rounded(const Expr& value) { return Cast(DType::kBFloat16, value); }

  const BufferRef x_ = Registers("x"), sum_ = Registers("sum"), scale_ = Registers("scale"),
                  half_ = MakeBuffer("half", DType::kBFloat16, Scope::kGlobal, {4}),
                  whole_ = MakeBuffer("whole", DType::kFloat32, Scope::kGlobal, {4});
  // The sum of exponentials over several threads, rescaled on the way.
  const Stmt add_ =
      Seq({Give(sum_, First(sum_) + MakeExpr(Op::kExp, {First(x_)})),
           Give(sum_, First(sum_) * First(scale_)), WarpReduce(Combiner::kSum, sum_, {Int(0)}, 4)});
};

TEST_F(RoundedValues, AreDivisorsAndFactorsOfWhatIsRounded) {
  const Stmt body = Seq({add_, Give(half_, Rounded(First(whole_) / First(sum_)))});
  EXPECT_THAT(RoundedLater(body), ElementsAre(sum_));
  EXPECT_TRUE(KeepExponentials(body, {sum_}));
  const Expr chosen = Select(First(x_) < First(x_), First(sum_) * First(x_), First(scale_));
  EXPECT_THAT(RoundedLater(Seq({add_, Give(half_, Rounded(chosen))})), ElementsAre(sum_));
}

TEST_F(RoundedValues, AreTwoPartsOfANumber) {
  const Expr rest = First(sum_) - Cast(DType::kFloat32, Rounded(First(sum_)));
  const Stmt parts = Seq({Give(half_, Rounded(First(sum_))), Give(half_, Rounded(rest))});
  EXPECT_THAT(RoundedLater(parts), ElementsAre(sum_));
  EXPECT_FALSE(KeepExponentials(parts, {sum_}));
  // Of another number: what is subtracted is rounded, what is left is not.
  const Expr other = First(sum_) - Cast(DType::kFloat32, Rounded(First(x_)));
  EXPECT_THAT(RoundedLater(Give(half_, Rounded(other))), ElementsAre(x_));
}

TEST_F(RoundedValues, AreReadByNobodyElse) {
  const Stmt rounded = Give(half_, Rounded(First(whole_) / First(sum_)));
  const auto with = [&](const Stmt& s) { return RoundedLater(Seq({add_, rounded, s})); };
  EXPECT_THAT(with(Give(whole_, First(sum_))), IsEmpty());
  EXPECT_THAT(with(Give(x_, First(sum_))), IsEmpty());
  EXPECT_THAT(with(Give(half_, Rounded(First(sum_) + First(x_)))), IsEmpty());
  EXPECT_THAT(with(Give(half_, Rounded(MakeExpr(Op::kLog, {First(sum_)})))), IsEmpty());
  EXPECT_THAT(with(If(First(sum_) < First(x_), rounded)), IsEmpty());
  EXPECT_THAT(with(WarpReduce(Combiner::kMax, sum_, {Int(0)}, 4)), IsEmpty());
  EXPECT_THAT(with(Give(sum_, MakeExpr(Op::kMax, {First(sum_), First(x_)}))), IsEmpty());
  EXPECT_THAT(RoundedLater(add_), IsEmpty());
}

// Of terms of both signs little may be left but their errors.
TEST_F(RoundedValues, AreAddedUpOfTermsThatAreNotNegative) {
  const Expr exp = MakeExpr(Op::kExp, {First(x_)}), two = Float(2, DType::kFloat32);
  const Expr condition = First(x_) < First(scale_);
  EXPECT_TRUE(IsNeverNegative(exp * two));
  EXPECT_TRUE(IsNeverNegative(Select(condition, exp, Float(0, DType::kFloat32))));
  EXPECT_FALSE(IsNeverNegative(exp * First(x_)));
  EXPECT_FALSE(IsNeverNegative(Select(condition, exp, Float(-1, DType::kFloat32))));
}

// The lines of attention's source, on warps' matrices, that take exponentials of its scores.
std::string Exponentials(const std::string& weight, const std::string& result,
                         const std::string& algorithm) {
  const auto operators =
      ParseOperators(absl::StrCat("op a(s, d) {\n  in Q[s, d], K[s, d], V[s, d]\n"
                                  "  T[i: s, j: s] = sum(r: d) Q[i, r] * K[j, r]\n"
                                  "  M[i: s] = max(j: s) T[i, j]\n"
                                  "  Z[i: s] = sum(j: s) exp(T[i, j] - M[i])\n  P[i: s, j: s]",
                                  weight, " = exp(T[i, j] - M[i]) / Z[i]\n  out O[i: s, c: d]",
                                  result, " = sum(j: s) P[i, j] * V[j, c]\n}\n"));
  const auto program = std::make_shared<const TensorProgram>(
      *operators->front().Instantiate({{"s", 128}, {"d", 64}}, DType::kBFloat16));
  const Target target = *FindTarget("h100");
  const auto space = SearchSpace::Create(program, target);
  const auto point =
      space->Parse(absl::StrCat(algorithm,
                                "rolling: warps=4 tiles=1 terms=32 held=0 pipeline=2 min_blocks=0 "
                                "skip_masked=0 last_first=0 read_ahead=0"));
  EXPECT_EQ(point.status(), absl::OkStatus());
  std::string lines;
  for (const KernelSource& kernel : GenerateSource(*space->Lower(*point), target, "")) {
    for (const absl::string_view line : absl::StrSplit(kernel.source, '\n')) {
      if (absl::StrContains(line, "(T_acc[")) absl::StrAppend(&lines, line, "\n");
    }
  }
  return lines;
}

// Compilers find one exponential in two that are spelled alike.
TEST(RoundedWeights, AreSpelledAsTheirSum) {
  const std::string rounded = Exponentials(": bfloat16", "", "");
  EXPECT_THAT(rounded, HasSubstr("] += rough_exp2("));
  EXPECT_THAT(rounded, HasSubstr("= pack_bfloat16(rough_exp2("));
  EXPECT_THAT(rounded, Not(HasSubstr("rough_exp2_or_zero(")));
  const std::string parts = Exponentials("", "", "split_operand/");
  EXPECT_THAT(parts, HasSubstr("] += rough_exp2("));
  EXPECT_THAT(parts, HasSubstr("whole[O_sum_factor_parts_packed] = rough_exp2("));
}

TEST(RoundedWeights, HaveAnExactSumOfAnExactResult) {
  EXPECT_THAT(Exponentials(": bfloat16", ": float32", ""), HasSubstr("] += expf("));
}

}  // namespace
}  // namespace heddle::measure
