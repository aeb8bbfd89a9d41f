// Vector accesses up to the end of arrays whose length is no multiple of a vector.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "search_space/reference/reference.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::vector_tails_test {
namespace {

constexpr const char* kOperators = R"(
op step(n) {
  in X[n], Y[n]
  out A[i: n] = X[i] + Y[i]
  out B[i: n]: float32 = X[i] * Y[i]
  out C[i: n] = select(i >= 3 && i < n - 2, X[i], 0)
}
op sums(n) {
  in X[n], Y[n]
  out S[a: 1]: float32 = sum(i: n) X[i] * Y[i]
  out M[a: 1]: float32 = max(i: n) abs(X[i])
}
op indexed(m, n) {
  in X[m, n], I[m]: index(9)
  out Y[i: m, j: n] = select(i < m - 1, select(I[i + 1] < 7 && j < n - 3, X[i, j], 0), 1)
}
op of_one_image(n) {
  in X[1, n]
  out A[z: 1, i: n] = 2 * X[z, i]
}
)";

void ExpectWideAndRight(const std::string& op, DType type, const std::string& vector,
                        const char* rule = "stream:") {
  const auto program = InstantiatedFrom(kOperators, op, "n=1027", type);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const TensorValues inputs = IntegerInputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  const auto is_wanted = [&](const std::string& text) {
    return absl::StartsWith(text, rule) && absl::StrContains(text, vector);
  };
  ForDrawnPoints(space, 3, is_wanted, inputs, [&](const Program& lowered, const TensorValues& got) {
    EXPECT_TRUE(absl::StrContains(ToString(lowered), vector == " vector=8" ? "]:8" : "]:4"))
        << ToString(lowered);
    ExpectOutputsNear(*program, expected, got, 0);
  });
}

TEST(VectorTails, OfOutputsOfTwoTypes) {
  ExpectWideAndRight("step", DType::kFloat16, " vector=8");
  ExpectWideAndRight("step", DType::kFloat32, " vector=4");
}

// What is read past the end is nothing of the sum, nor of the maximum.
TEST(VectorTails, OfSumsOfOneRow) {
  ExpectWideAndRight("sums", DType::kFloat16, " vector=4", "rows:");
  ExpectWideAndRight("sums", DType::kFloat32, " vector=4", "rows:");
}

// What a guard loads may be there only where an outer one holds.
TEST(VectorTails, GuardsThatLoadStayWhereTheyAre) {
  const auto program = InstantiatedFrom(kOperators, "indexed", "m=5,n=64", DType::kFloat32);
  ExpectPointsCompute(program, *FindTarget("h100"), " vector=4");
}

TEST(VectorTails, OfOneRowBesideAxesOfOneElement) {
  ExpectWideAndRight("of_one_image", DType::kFloat32, " vector=4");
}

}  // namespace
}  // namespace heddle::search_space::vector_tails_test
