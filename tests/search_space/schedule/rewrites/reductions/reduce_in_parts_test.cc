// Reductions of the rows of products in parts: of which sums, what a program becomes, that it is
// the same, and kernels that reduce a product's tile where it lies.
#include "search_space/schedule/rewrites/reductions/reduce_in_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::reduce_in_parts_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op log_sum_exp(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j] * 0.5
  E[i: m, j: n] = exp(S[i, j] * 0.5 - M[i])
  Z[i: m] = sum(j: n) E[i, j]
  out Y[i: m]: float32 = log(Z[i]) + M[i]
}
op softmin_of_columns(b, m, n, k) {
  in A[b, m, k], B[b, n, k], T[b, m, n]: float32
  S[z: b, i: m, j: n] = sum(r: k) A[z, i, r] * B[z, j, r]
  L[z: b, j: n] = min(i: m) S[z, i, j] + T[z, i, j]
  W[z: b, j: n] = sum(i: m) exp((L[z, j] - S[z, i, j] - T[z, i, j]) * 0.25)
  out Y[z: b, j: n]: float32 = L[z, j] - 4 * log(W[z, j])
}
op nearest(m, n, k) {
  in X[m, k], C[n, k], Q[n]: float32
  S[i: m, j: n] = sum(r: k) X[i, r] * C[j, r]
  D[i: m, j: n] = Q[j] - 2 * S[i, j]
  out Y[i: m]: float32 = argmin(j: n) D[i, j]
}
op nearest_code(m, n, k) {
  in A[m, k]: index(2), B[n, k]: index(2)
  H[i: m, r: k]: bfloat16 = 1 - 2 * A[i, r]
  G[j: n, r: k]: bfloat16 = 1 - 2 * B[j, r]
  S[i: m, j: n] = sum(r: k) H[i, r] * G[j, r]
  out Y[i: m]: float32 = max(j: n) S[i, j]
}
op late_interaction(q, d, x, y, k) {
  in Q[q, x, k], D[d, y, k]
  S[a: q, b: d, i: x, j: y] = sum(r: k) Q[a, i, r] * D[b, j, r]
  M[a: q, b: d, i: x] = max(j: y) S[a, b, i, j]
  out Y[a: q, b: d]: float32 = sum(i: x) M[a, b, i]
}
op symmetric_loss(n, k) {
  in A[n, k], B[n, k]
  S[i: n, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: n] = max(j: n) S[i, j]
  N[j: n] = max(i: n) S[i, j]
  P[i: n] = sum(j: n) exp(S[i, j] - M[i])
  Q[j: n] = sum(i: n) exp(S[i, j] - N[j])
  D[i: n] = sum(r: k) A[i, r] * B[i, r]
  L[z: 1] = sum(i: n) log(P[i]) + log(Q[i]) + M[i] + N[i] - 2 * D[i]
  out Y[z: 1]: float32 = L[z] / (2 * n)
}
op among_outputs(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  out U[i: m]: float32 = M[i] * 2
  out V[i: m]: float32 = sum(r: k) A[i, r]
  N[i: m] = min(j: n) S[i, j]
  out W[i: m]: float32 = M[i] - N[i]
}
op reduced_outputs(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  out V[i: m]: float32 = sum(r: k) A[i, r]
  out U[i: m]: float32 = max(j: n) S[i, j]
}
op output_before_reduction(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  out V[i: m]: float32 = M[i] * 2
  out U[i: m]: float32 = min(j: n) S[i, j]
}
op two_products(m, n, k) {
  in A[m, k], B[n, k], C[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  T[i: m, j: n] = sum(r: k) A[i, r] * C[j, r]
  N[i: m] = sum(j: n) T[i, j] * M[i]
  out Y[i: m]: float32 = N[i]
}
op whole_loss(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  N[z: 1] = sum(i: m, j: n) exp(S[i, j] - M[i])
  out Y[z: 1]: float32 = N[0]
  out R[i: m]: float32 = M[i]
}
op relative_to_all(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  G[z: 1] = max(i: m, j: n) S[i, j]
  Z[i: m] = sum(j: n) exp((S[i, j] - G[0]) * 0.25)
  out Y[i: m]: float32 = log(Z[i]) + G[0] * 0.25
}
op masked(m, n, k) {
  in A[m, k], B[n, k], P[n]: float32
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) (S[i, j] + P[j])
  Z[i: m] = sum(j: n) exp(S[i, j] + P[j] - M[i])
  out Y[i: m]: float32 = log(Z[i]) + M[i]
}
op without_own(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  L[i: m, j: n] = select(i % n == j, -1.0e30, S[i, j])
  M[i: m] = max(j: n) L[i, j]
  Z[i: m] = sum(j: n) exp(L[i, j] - M[i])
  out Y[i: m]: float32 = log(Z[i]) + M[i]
}
op beside_another(m, n, k) {
  in A[m, k], B[n, k], P[m]: float32
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  C[i: m] = max(j: n) S[i, j] * 0.5
  M[i: m] = max(C[i], P[i])
  E[i: m, j: n] = exp(S[i, j] * 0.5 - M[i])
  Z[i: m] = sum(j: n) E[i, j]
  out Y[i: m]: float32 = log(Z[i] + exp(P[i] - M[i])) + M[i] - P[i]
}
op less_than_all(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  C[i: m] = max(j: n) S[i, j]
  M[i: m] = C[i] * 0.5
  Z[i: m] = sum(j: n) exp(S[i, j] * 2 - M[i])
  out Y[i: m]: float32 = Z[i]
}
op masked_apart(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) select(j < i, S[i, j], -inf)
  Z[i: m] = sum(j: n) select(j <= i, exp(S[i, j] - M[i]), 0)
  out Y[i: m]: float32 = Z[i]
}
op lengths(m, n, k) {
  in A[m, k], B[n, k], N[m]: index(n)
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) select(j < N[i], S[i, j], -inf)
  Z[i: m] = sum(j: n) select(j < N[i], exp(S[i, j] - M[i]), 0)
  out Y[i: m]: float32 = Z[i]
}
op of_looked_up(m, n, k) {
  in A[9, k], D[m]: index(9), B[n, k]
  Q[i: m, r: k]: bfloat16 = 2 * A[D[i], r]
  S[i: m, j: n] = sum(r: k) Q[i, r] * B[j, r]
  out Y[i: m]: float32 = max(j: n) S[i, j]
}
op first_columns(m, n, h, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  out Y[i: m]: float32 = max(j: h) S[i, j]
}
op masked_maximum(m, n, k) {
  in A[m, k], B[n, k], P[n]: float32
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) (S[i, j] + P[j])
  Z[i: m] = sum(j: n) exp((S[i, j] - M[i]) * 0.25)
  out Y[i: m]: float32 = Z[i]
}
op columns_first(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  out Y[j: n]: float32 = max(i: m) S[i, j]
}
op mean_loss(m, n, k) {
  in A[m, k], B[n, k], L[m]: index(n)
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  Z[i: m] = sum(j: n) exp(S[i, j] - M[i])
  D[i: m] = sum(r: k) A[i, r] * B[L[i], r]
  W[z: 1] = sum(i: m) log(Z[i]) + M[i] - D[i]
  out Y[z: 1]: float32 = W[z] / m
}
op count_of_best(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  C[i: m] = sum(j: n) select(S[i, j] == M[i], 1, 0)
  out Y[i: m]: float32 = C[i]
}
op probabilities(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  Z[i: m] = sum(j: n) exp(S[i, j] - M[i])
  out Y[i: m, j: n]: float32 = exp(S[i, j] - M[i]) / Z[i]
}
op both_ways(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  out Y[i: m]: float32 = max(j: n) S[i, j]
  out X[j: n]: float32 = max(i: m) S[i, j]
}
op variance(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = sum(j: n) S[i, j]
  V[i: m] = sum(j: n) (S[i, j] - M[i] / n) * (S[i, j] - M[i] / n)
  out Y[i: m]: float32 = V[i]
}
op growing(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  Z[i: m] = sum(j: n) exp(M[i] - S[i, j])
  out Y[i: m]: float32 = Z[i]
}
op other_row(m, k) {
  in A[m, k], B[m, k]
  S[i: m, j: m] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: m) S[i, j]
  Z[i: m] = sum(j: m) exp(S[i, j] - M[j])
  out Y[i: m]: float32 = Z[i]
}
op twice(m, k) {
  in A[m, k], B[m, k]
  S[i: m, j: m] = sum(r: k) A[i, r] * B[j, r]
  out Y[i: m]: float32 = sum(j: m) S[i, j] * S[j, i]
}
op of_all_rows(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  G[z: 1] = max(i: m) M[i]
  Z[i: m] = sum(j: n) exp(S[i, j] - G[0])
  out Y[i: m]: float32 = Z[i]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kBFloat16);
}

std::string DefinitionOf(const TensorProgram& program, const std::string& name) {
  for (const Stage& stage : program.stages) {
    if (stage.name() != name) continue;
    return absl::StrCat(NameOf(stage.combiner), " ", ToString(stage.body));
  }
  return "no stage";
}

std::string WhyNot(const std::string& op, const std::string& shape, int64_t columns = 16) {
  return std::string(WithReductionsInParts(*Made(op, shape), "S", columns).status().message());
}

TEST(ReduceInPartsTest, PartsAreCombinedWithWhatTheirMaximumChanges) {
  const auto parted = WithReductionsInParts(*Made("log_sum_exp", "m=4,n=40,k=8"), "S", 16);
  ASSERT_TRUE(parted.ok()) << parted.status();
  EXPECT_EQ(DefinitionOf(**parted, "M.part"),
            "max select(t * 16 + j < 40, S[i, t * 16 + j] * 0.5, -inf)");
  EXPECT_THAT(
      DefinitionOf(**parted, "Z.part"),
      HasSubstr("exp(S[i, t * 16 + j] * 0.5 - max(M.part[i, t], -3.4028234663852886e+38))"));
  EXPECT_EQ(DefinitionOf(**parted, "S.parts"), "none select(q == 0, M.part[i, t], Z.part[i, t])");
  EXPECT_EQ(DefinitionOf(**parted, "M"), "max S.parts[i, 0, t]");
  EXPECT_EQ(DefinitionOf(**parted, "Z"),
            "sum S.parts[i, 1, t] * "
            "exp((max(M[i], -3.4028234663852886e+38) - "
            "max(S.parts[i, 0, t], -3.4028234663852886e+38)) * -1)");
  EXPECT_EQ(DefinitionOf(**parted, "E"), "no stage");
}

TEST(ReduceInPartsTest, OnePartIsTheWhole) {
  const auto parted = WithReductionsInParts(*Made("nearest", "m=4,n=16,k=8"), "S", 16);
  ASSERT_TRUE(parted.ok()) << parted.status();
  EXPECT_EQ(DefinitionOf(**parted, "Y_min"), "none S.parts[i, 0, 0]");
}

TEST(ReduceInPartsTest, TakesNoOtherReaders) {
  EXPECT_THAT(WhyNot("probabilities", "m=4,n=40,k=8"),
              HasSubstr("Y, an output, has elements of S"));
  EXPECT_THAT(WhyNot("both_ways", "m=4,n=40,k=8"), HasSubstr("no axis of S along which all"));
  EXPECT_THAT(WhyNot("variance", "m=4,n=40,k=8"), HasSubstr("V depends on M in a way"));
  EXPECT_THAT(WhyNot("growing", "m=4,n=40,k=8"), HasSubstr("Z depends on M in a way"));
  EXPECT_THAT(WhyNot("other_row", "m=40,k=8"), HasSubstr("Z depends on M in a way"));
  EXPECT_THAT(WhyNot("masked_apart", "m=40,n=40,k=8"), HasSubstr("Z depends on M in a way"));
  EXPECT_THAT(WhyNot("less_than_all", "m=4,n=40,k=8"), HasSubstr("Z depends on C in a way"));
  EXPECT_THAT(WhyNot("twice", "m=40,k=8"), HasSubstr("Y reads each element of S in another way"));
  EXPECT_THAT(WhyNot("of_all_rows", "m=4,n=40,k=8"), HasSubstr("depends on what is made of all"));
  EXPECT_THAT(WhyNot("first_columns", "m=4,n=40,h=20,k=8"), HasSubstr("in another way than once"));
  EXPECT_THAT(WhyNot("masked_maximum", "m=4,n=40,k=8"), HasSubstr("Z depends on M in a way"));
  EXPECT_THAT(WhyNot("nearest", "m=4,n=40,k=8", 4), HasSubstr("parts have 8 to 1024 columns"));
  const auto unknown = WithReductionsInParts(*Made("nearest", "m=4,n=40,k=8"), "P", 16);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("P is no stage of nearest"));
}

// Of sums that reduce one another's results, products alone.
TEST(ReduceInPartsTest, IsForProducts) {
  const auto worth = [](const char* op, const char* shape) {
    std::vector<std::string> names;
    for (const ReducedRows& rows : RowsWorthReducingInParts(*Made(op, shape))) {
      names.push_back(absl::StrCat(rows.stage, " ", rows.columns));
    }
    return names;
  };
  EXPECT_THAT(worth("symmetric_loss", "n=40,k=8"), testing::ElementsAre());
  EXPECT_THAT(worth("mean_loss", "m=4,n=40,k=8"), testing::ElementsAre("S 40"));
  EXPECT_THAT(worth("two_products", "m=4,n=40,k=8"), testing::ElementsAre("S 40", "T 40"));
  EXPECT_TRUE(SearchSpace::Create(Made("symmetric_loss", "n=256,k=64"), *FindTarget("h100")).ok());
}

struct Case {
  const char *op, *shape;
  int64_t columns = 16;
};

class ReducedInParts : public testing::TestWithParam<Case> {};

// Sums of exponentials in another order differ in the last digits, positions and counts not at all.
void ExpectNear(const TensorProgram& program, const TensorValues& got,
                const TensorValues& expected) {
  for (const Stage& stage : program.stages) {
    if (!stage.is_output) continue;
    const std::vector<double>&a = got.at(stage.name()), &b = expected.at(stage.name());
    ASSERT_EQ(a.size(), b.size());
    for (size_t e = 0; e < a.size(); ++e) {
      EXPECT_NEAR(a[e], b[e], 1e-5 * std::max(1.0, std::abs(b[e]))) << stage.name() << " " << e;
    }
  }
}

TEST_P(ReducedInParts, IsTheSame) {
  const auto program = Made(GetParam().op, GetParam().shape);
  const auto parted = WithReductionsInParts(*program, "S", GetParam().columns);
  ASSERT_TRUE(parted.ok()) << parted.status();
  TensorValues expected = IntegerInputs(*program), got = expected;
  EvaluateAll(*program, expected);
  EvaluateAll(**parted, got);
  ExpectNear(*program, got, expected);
}

INSTANTIATE_TEST_SUITE_P(
    All, ReducedInParts,
    testing::Values(Case{"log_sum_exp", "m=5,n=40,k=8"}, Case{"log_sum_exp", "m=5,n=48,k=8"},
                    Case{"softmin_of_columns", "b=2,m=33,n=3,k=4"}, Case{"nearest", "m=9,n=70,k=4"},
                    Case{"nearest", "m=9,n=16,k=4"},
                    Case{"late_interaction", "q=2,d=3,x=4,y=20,k=4"},
                    Case{"whole_loss", "m=5,n=40,k=4"}, Case{"whole_loss", "m=5,n=8,k=4"},
                    Case{"count_of_best", "m=9,n=50,k=2"}, Case{"relative_to_all", "m=5,n=40,k=4"},
                    Case{"among_outputs", "m=5,n=40,k=4"}, Case{"reduced_outputs", "m=5,n=40,k=4"},
                    Case{"lengths", "m=30,n=40,k=4"}, Case{"masked", "m=5,n=40,k=4", 8},
                    Case{"without_own", "m=45,n=40,k=4"}, Case{"beside_another", "m=9,n=40,k=4"},
                    Case{"output_before_reduction", "m=4,n=40,k=8"}),
    [](const auto& info) { return absl::StrCat(info.param.op, "_", info.index); });

// A part that a mask leaves out altogether counts nothing, though its maximum is -infinity.
TEST(ReduceInPartsTest, PartsMayBeMasked) {
  const auto program = Made("masked", "m=5,n=40,k=4");
  const auto parted = WithReductionsInParts(*program, "S", 16);
  ASSERT_TRUE(parted.ok()) << parted.status();
  TensorValues expected = IntegerInputs(*program);
  for (size_t j = 0; j < 35; ++j) expected.at("P")[j] = -HUGE_VAL;
  TensorValues got = expected;
  EvaluateAll(*program, expected);
  EvaluateAll(**parted, got);
  ExpectNear(*program, got, expected);
}

struct KernelCase {
  const char *op, *shape, *device, *like;
};

class RowPartsKernels : public testing::TestWithParam<KernelCase> {};

TEST_P(RowPartsKernels, ComputeTheirProgram) {
  const auto program = Made(GetParam().op, GetParam().shape);
  Target target = *FindTarget(GetParam().device);
  target.peak_gflops = 1;
  const auto space = SearchSpace::Create(program, target);
  ASSERT_TRUE(space.ok()) << space.status();
  TensorValues expected = IntegerInputs(*program);
  EvaluateAll(*program, expected);
  const auto is_wanted = [](const std::string& text) {
    return absl::StrContains(text, GetParam().like);
  };
  ForDrawnPoints(
      *space, 6, is_wanted, IntegerInputs(*program),
      [&](const Program&, const TensorValues& got) { ExpectNear(*program, got, expected); });
}

INSTANTIATE_TEST_SUITE_P(
    All, RowPartsKernels,
    testing::Values(
        KernelCase{"log_sum_exp", "m=70,n=256,k=40", "h100", "row_parts/warpgroup_rows"},
        KernelCase{"log_sum_exp", "m=40,n=120,k=24", "a100", "row_parts/matrix_rows"},
        KernelCase{"softmin_of_columns", "b=2,m=128,n=24,k=16", "a100", "matrix_rows"},
        KernelCase{"softmin_of_columns", "b=2,m=128,n=72,k=16", "h100", "warpgroup_rows"},
        KernelCase{"nearest", "m=40,n=190,k=16", "h100", "warpgroup_rows"},
        KernelCase{"nearest", "m=40,n=128,k=16", "a100", "matrix_rows"},
        KernelCase{"nearest_code", "m=40,n=190,k=16", "h100", "row_parts/warpgroup_rows"},
        KernelCase{"nearest_code", "m=40,n=128,k=16", "a100", "row_parts/matrix_rows"},
        KernelCase{"late_interaction", "q=2,d=2,x=16,y=64,k=16", "a100", "matrix_rows"},
        KernelCase{"late_interaction", "q=2,d=2,x=16,y=128,k=16", "h100", "warpgroup_rows"},
        KernelCase{"two_products", "m=40,n=128,k=16", "a100", "matrix_rows"},
        KernelCase{"lengths", "m=40,n=128,k=16", "h100", "warpgroup_rows"},
        KernelCase{"columns_first", "m=512,n=320,k=16", "h100", "warpgroup_rows"},
        KernelCase{"of_looked_up", "m=40,n=128,k=16", "h100", "row_parts/stream+warpgroup_rows"},
        KernelCase{"mean_loss", "m=40,n=128,k=16", "h100", "warpgroup_rows"},
        KernelCase{"relative_to_all", "m=40,n=128,k=16", "h100", "warpgroup_rows"},
        KernelCase{"whole_loss", "m=40,n=128,k=16", "h100", "warpgroup_rows"}),
    [](const auto& info) {
      return absl::StrCat(info.param.op, "_", info.param.device, "_", info.index);
    });

}  // namespace
}  // namespace heddle::search_space::reduce_in_parts_test
