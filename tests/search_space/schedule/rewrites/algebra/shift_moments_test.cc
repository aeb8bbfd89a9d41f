// Means and squared differences from them in one pass: which stages are such, what is made of them,
// and that schedules of that compute the definition, as exactly.
#include "search_space/schedule/rewrites/algebra/shift_moments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/sketch/programs/algorithms.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/drawn_points.h"

namespace heddle::search_space::shift_moments_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const TensorProgram> Make(const std::string& text, const std::string& shape) {
  const auto parsed = ParseOperators(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  const auto program = parsed->at(0).Instantiate(*ParseShape(shape), DType::kFloat32);
  EXPECT_TRUE(program.ok()) << program.status();
  return std::make_shared<const TensorProgram>(*program);
}

// Of channels, which lie neither first nor last.
constexpr const char* kBatchNorm =
    "op f(n, c, h) { in X[n, c, h], G[c] "
    "S[q: c] = sum(b: n, y: h) X[b, q, y] "
    "D[b: n, q: c, y: h] = X[b, q, y] - S[q] / (n*h) "
    "V[q: c] = sum(b: n, y: h) D[b, q, y] * D[b, q, y] "
    "out Y[b: n, q: c, y: h] = D[b, q, y] * rsqrt(V[q] / (n*h) + 0.00001) * G[q] }";

// Of columns, of what is computed.
constexpr const char* kColumns =
    "op f(n, c, h) { in X[n, c * h], Z[c * h] "
    "S[j: c * h] = sum(r: n) abs(X[r, j]) * Z[j] "
    "M[j: c * h] = S[j] / n "
    "V[j: c * h] = sum(r: n) (abs(X[r, j]) * Z[j] - M[j]) * (abs(X[r, j]) * Z[j] - M[j]) "
    "out Y[i: n, j: c * h] = (X[i, j] - M[j]) / sqrt(V[j] + 1) }";

TensorValues InputsOf(const TensorProgram& program, double mean) {
  TensorValues inputs;
  for (const BufferRef& input : program.inputs) {
    std::vector<double>& values = inputs[input->name];
    for (int64_t i = 0; i < input->elements; ++i) {
      const double noise = static_cast<double>((i * 7 + i / 11) % 9) / 4 - 1;
      values.push_back(input->name == "X" ? mean + noise : 1 + noise / 4);
    }
  }
  return inputs;
}

TEST(MomentsTest, DifferencesAreFromOneOfTheTerms) {
  const auto program = Make(kBatchNorm, "n=3,c=2,h=5");
  const auto shifted = WithShiftedMoments(*program, "V");
  ASSERT_TRUE(shifted.ok()) << shifted.status();
  std::vector<std::string> stages;
  for (const Stage& s : (*shifted)->stages) {
    stages.push_back(absl::StrCat(s.name(), " = ", ToString(s.body)));
  }
  // Neither the least nor the greatest of three.
  const std::string k =
      "max(min(X[0, q, 0], X[1, q, 2]), min(max(X[0, q, 0], X[1, q, 2]), X[2, q, 4]))";
  const std::string difference = absl::StrCat("X[b, q, y] - ", k);
  EXPECT_THAT(
      stages,
      ElementsAre(absl::StrCat("S.shifted = ", difference),
                  absl::StrCat("V.shifted = (", difference, ") * (", difference, ")"),
                  absl::StrCat("Y = (X[b, q, y] - (S.shifted[q] + 15 * ", k,
                               ") / (3 * 5)) * "
                               "rsqrt(max(V.shifted[q] - S.shifted[q] * S.shifted[q] / 15, 0) / (3 "
                               "* 5) + 9.9999997473787516e-06) * G[q]")));
}

TEST(MomentsTest, RefusesOtherSums) {
  const char* kOther[] = {
      // another number of terms
      "V[q: c] = sum(b: n, y: h) (X[b, q, y] - S[q] / n) * (X[b, q, y] - S[q] / n)",
      // other terms than the mean is of
      "V[q: c] = sum(b: n, y: h) (2 * X[b, q, y] - S[q] / (n*h)) * (2 * X[b, q, y] - S[q] / (n*h))",
      // no square
      "V[q: c] = sum(b: n, y: h) (X[b, q, y] - S[q] / (n*h)) * X[b, q, y]",
      // another combination
      "V[q: c] = max(b: n, y: h) (X[b, q, y] - S[q] / (n*h)) * (X[b, q, y] - S[q] / (n*h))",
      // rounded before what is subtracted would be
      "V[q: c]: float16 = sum(b: n, y: h) (X[b, q, y] - S[q]/(n*h)) * (X[b, q, y] - S[q]/(n*h))",
  };
  for (const char* v : kOther) {
    const auto program = Make(
        absl::StrCat("op f(n, c, h) { in X[n, c, h], G[c] S[q: c] = sum(b: n, y: h) X[b, q, y] ", v,
                     " out Y[b: n, q: c, y: h] = (X[b, q, y] - S[q]) * V[q] * G[q] }"),
        "n=3,c=4,h=6");
    EXPECT_THAT(std::string(WithShiftedMoments(*program, "V").status().message()),
                HasSubstr("no sum of (x - S / n) * (x - S / n)"))
        << v;
  }
  EXPECT_THAT(
      std::string(WithShiftedMoments(*Make(kBatchNorm, "n=3,c=2,h=5"), "W").status().message()),
      HasSubstr("W is no stage"));
}

// Also where the mean is a thousand times the standard deviation, at which the squares themselves,
// added up, would leave nothing of the variance.
TEST(MomentsTest, PointsComputeTheDefinition) {
  // Columns so long that no block holds them.
  for (const auto& [text, shape] :
       {std::pair(kBatchNorm, "n=9,c=3,h=37"), std::pair(kColumns, "n=4099,c=2,h=5")}) {
    for (const double mean : {0.0, 700.0}) {
      const auto program = Make(text, shape);
      const TensorValues inputs = InputsOf(*program, mean);
      TensorValues expected = inputs;
      EvaluateAll(*program, expected);
      const auto space = SearchSpace::Create(program, *FindTarget("h100"));
      ASSERT_TRUE(space.ok()) << space.status();
      ForDrawnPoints(*space, 12, BeginsWith("moments/"), inputs,
                     [&](const Program&, const TensorValues& values) {
                       for (size_t i = 0; i < expected.at("Y").size(); ++i) {
                         const double want = expected.at("Y")[i];
                         ASSERT_NEAR(values.at("Y")[i], want, 2e-4 * (1 + std::abs(want))) << i;
                       }
                     });
    }
  }
}

// Of a hundred thousand terms the first one, or the last, is far from all others.
TEST(MomentsTest, OneOutlierIsNoMeasure) {
  const auto program = Make(kBatchNorm, "n=64,c=2,h=1600");
  const auto space = SearchSpace::Create(program, *FindTarget("h100"));
  ASSERT_TRUE(space.ok()) << space.status();
  for (const bool first : {true, false}) {
    TensorValues inputs = InputsOf(*program, 0);
    std::vector<double>& x = inputs.at("X");
    (first ? x.front() : x.back()) = 3e4;  // of one of the channels
    TensorValues expected = inputs;
    EvaluateAll(*program, expected);
    ForDrawnPoints(*space, 3, BeginsWith("moments/"), inputs,
                   [&](const Program&, const TensorValues& values) {
                     for (size_t i = 0; i < expected.at("Y").size(); ++i) {
                       const double want = expected.at("Y")[i];
                       ASSERT_NEAR(values.at("Y")[i], want, 2e-4 * (1 + std::abs(want))) << i;
                     }
                   });
  }
}

// Rows that are held in registers are read once as they are.
TEST(MomentsTest, OneKernelNeedsNone) {
  const auto program = std::make_shared<const TensorProgram>(
      *FindOperator(BuiltinOperators(), "layer_norm")
           ->Instantiate(*ParseShape("m=64,n=256"), DType::kFloat32));
  const auto space = SearchSpace::Create(program, *FindTarget("h100"));
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_THAT(std::string(space->Parse("moments/none: ").status().message()),
              testing::Not(HasSubstr("moments/rows")));
}

}  // namespace
}  // namespace heddle::search_space::shift_moments_test
