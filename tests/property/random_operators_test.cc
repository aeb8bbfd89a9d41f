// What holds of the points of known operators holds of those of random ones.
#include "tests/random_operators.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tests/property/computes.h"
#include "tests/support.h"

namespace heddle::search_space::random_operators_test {
namespace {

constexpr int kPoints = 12;
// Of an output's largest element; of one of 16 bits, which is rounded.
constexpr double kTolerance = 1e-4, kTolerance16 = 2e-2;

void ExpectPointsCompute(const tests::RandomOperator& made, uint64_t seed, int points,
                         DType type = DType::kFloat32) {
  const Target target = *FindTarget("h100");
  const double tolerance = type == DType::kFloat32 ? kTolerance : kTolerance16;
  SCOPED_TRACE(absl::StrCat("seed ", seed, " in ", NameOf(type), ":\n", made.text));
  const auto parsed = ParseOperators(made.text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto program = (*parsed)[0].Instantiate(made.shape, type);
  ASSERT_TRUE(program.ok()) << program.status();
  const tests::Subject subject(*program);
  subject.ExpectComputes(NaiveSteps(*program), target, tolerance, 1);
  const auto space = SearchSpace::Create(subject.program(), target);
  ASSERT_TRUE(space.ok()) << space.status();
  tests::ForPoints(*space, seed, points, [&](const Point& point, int number) {
    const auto steps = space->Steps(point);
    ASSERT_TRUE(steps.ok()) << steps.status();
    subject.ExpectComputes(*steps, target, tolerance, static_cast<uint64_t>(number));
    if (!testing::Test::HasFatalFailure()) tests::ExpectPartsAreTheProgram(*space, point);
  });
}

// Operators that begin with `seed`, each of it plus its number alone.
void ExpectPointsCompute(uint64_t seed, int operators) {
  for (int i = 0; i < operators && !testing::Test::HasFatalFailure(); ++i) {
    static constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat32, DType::kBFloat16,
                                       DType::kFloat16};
    ExpectPointsCompute(tests::RandomOperators(seed + i).Next(), seed + i, kPoints,
                        kTypes[static_cast<size_t>(i) % std::size(kTypes)]);
  }
}

// What points of random operators were refused for, without the rest of these.
const tests::RandomOperator kOnceRefused[] = {
    // a row that is a diagonal, in parts
    {"op f(a, b) { in X[a, b] in Y[a, a, b] "
     "out C[i: a] = max(r: a, s: b) Y[i, r, s] * X[s % a, s] }",
     {{"a", 7}, {"b", 20}}},
    // an elementwise stage that is the same for all elements
    {"op f(a) { in X[a, a] in Z[a] S[u: 1] = sum(r: a) Z[r] T[u: 1] = tanh(S[u]) * tanh(S[u]) "
     "out C[i: a, u: 1] = sum(r: a) X[i, r] * sigmoid(T[u]) }",
     {{"a", 13}}},
    // one that reads what tiles are fetched of
    {"op f(a, b) { in X[a, b, a] M[i: a, j: b] = max(r: a) X[i, j, r] S[u: 1] = sum(r: a) X[r, 0, "
     "0] "
     "T[u: 1] = S[u] + M[u % a, u % b] "
     "out C[j: b, u: 1] = min(r: a) M[r, j] * sigmoid(T[u]) }",
     {{"a", 7}, {"b", 3}}},
    // tiles that are stored as wide as positions in them are counted
    {"op f(a, b) { in X[a, b, a] "
     "out C[i: a, j: b, k: 8] = sum(r: 3) max(X[i, j, k * 2 + r * 2], 0) }",
     {{"a", 20}, {"b", 2}}},
    // a copy of padding alone
    {"op f(a, b) { in X[a, b, a] in Y[a] "
     "P[i: a, j: b, k: a + 2] = select(k >= 1 && k < a + 1, X[i, j, k - 1], 0) "
     "out D[i: a] = sum(r: b, s: a + 2) P[i, r, s] "
     "out C[i: b] = sum(r: a) max(Y[r], 0) * select(r <= i, P[r, i, 0], -1) }",
     {{"a", 3}, {"b", 5}}},
    // padding that inlining shows to be all that is read
    {"op f(a, b) { in X[a, b, b] in Y[a, a, b] "
     "P[i: a + 2, j: a, k: b] = select(i >= 1 && i < a + 1, Y[i - 1, j, k], 0) "
     "T[i: a, j: b, k: b] = select(i <= j, X[i, k, j] * exp(0 - abs(P[0, i, k])), -1) "
     "S[i: b, j: b] = sum(r: a) T[r, i, j] "
     "out C[i: b, j: b, k: a] = T[k, j, i] * S[j, i] }",
     {{"a", 17}, {"b", 4}}},
    // rows read at two places, one of them inside an elementwise stage
    {"op f(a, b, c) { in X[b, a] in Y[c] T[i: a, j: c] = sum(r: b) X[r, i] * Y[j] "
     "U[i: a, j: c] = max(T[i, j], 0) "
     "out C[i: a] = max(r: c) U[i, r] * select(i <= 1, T[a - 1 - i, r], 1) "
     "out D[j: c] = T[min(j, a - 1), j] }",
     {{"a", 7}, {"b", 3}, {"c", 20}}},
    // a quotient of what another quotient bounds
    {"op f(b) { in X[b] U[i: b * 2] = X[i / 2] "
     "P[i: b * 2 + 2] = select(i >= 1 && i < b * 2 + 1, U[i - 1], 0) "
     "out C[i: (b * 2 + 2) * 2 + 1] = sum(r: 3) select((i + 1 - r) >= 0 && "
     "(i + 1 - r) / 2 < b * 2 + 2 && (i + 1 - r) % 2 == 0, P[(i + 1 - r) / 2], 0) }",
     {{"b", 2}}},
    // rounds of a chain in which nothing is fetched, to be pipelined
    {"op f(a, b) { in I[b, a] in J[a] T[i: a, j: a] = J[i] * select(j <= i, I[0, i], 1) "
     "U[i: (a - 2) / 2 + 1, j: a] = sum(r: 2) max(T[i * 2 + r, j], 0) "
     "out C[i: (a - 2) / 2 + 1] = sum(r: a) abs(U[i, r] - J[r]) }",
     {{"a", 17}, {"b", 3}}},
    // a reduction of which nothing is left once its readers are inlined
    {"op f(a) { in X[a, a] T[i: a] = max(r: a) X[i, r] S[i: a - 2] = max(r: 3) T[i + r] "
     "U[i: a - 2] = select(i >= 1 && i < a - 2, S[i] * X[0, i % a], 1) "
     "out C[i: 1] = sigmoid(U[i % (a - 2)]) }",
     {{"a", 13}}},
    // an index that is read at a constant, in padding
    {"op f(b) { in J[1]: index(3) in X[b] S[i: 1] = sum(r: b) X[r] "
     "P[i: 3] = select(i >= 1 && i < 2, S[i - 1], -1) "
     "out C[i: 1] = max(r: 3) P[r] * P[J[i]] }",
     {{"b", 20}}},
    // one that is read at a quotient
    {"op f(a) { in J[a]: index(a) in X[a] T[i: a] = select(i <= 1, X[J[i]], 0) * X[i] "
     "out C[i: a * 2 + 1] = sum(r: 3) select((i + 1 - r) >= 0 && (i + 1 - r) / 2 < a && "
     "(i + 1 - r) % 2 == 0, T[(i + 1 - r) / 2], 0) }",
     {{"a", 7}}},
    // two guards together about a digit
    {"op f(a) { in X[a, a, a] "
     "out C[i: a] = min(r: a, s: a) X[i, r, s] + select(i <= r, X[i, r, i], -1) }",
     {{"a", 4}}},
};

class OnceRefusedTest : public testing::TestWithParam<tests::RandomOperator> {};

TEST_P(OnceRefusedTest, EveryPointComputesTheDefinition) { ExpectPointsCompute(GetParam(), 1, 64); }

INSTANTIATE_TEST_SUITE_P(Operators, OnceRefusedTest, testing::ValuesIn(kOnceRefused));

// HEDDLE_SEED=N: other operators than those of N = 1.
TEST(RandomOperatorsTest, EveryPointComputesTheDefinition) {
  ExpectPointsCompute(tests::Seed() * 1000, 30);
}

TEST(RandomOperatorsTest, LongEveryPointComputesTheDefinition) {
  ExpectPointsCompute(tests::Seed() * 1000, 300);
}

}  // namespace
}  // namespace heddle::search_space::random_operators_test
