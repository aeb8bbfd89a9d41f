// Elements of products that few read: of which reductions they are made again, that the program is
// the same, and kernels that then reduce a product's tile where it lies.
#include "search_space/schedule/rewrites/reductions/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::recompute_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op cross_entropy(m, n, k) {
  in A[m, k], B[n, k], G[m]: index(n)
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  Z[i: m] = sum(j: n) exp(S[i, j] - M[i])
  out Y[i: m]: float32 = log(Z[i]) + M[i] - S[i, G[i]]
}
op biased(m, n, k) {
  in A[m, k], B[n, k], P[n]: float32, G[m]: index(n)
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  L[i: m, j: n] = 2 * S[i, j] + P[j]
  M[i: m] = max(j: n) L[i, j]
  Z[i: m] = sum(j: n) exp(L[i, j] - M[i])
  D[z: 1] = sum(i: m) log(Z[i]) + M[i] - L[i, G[i]] - L[i, 0]
  out Y[z: 1]: float32 = D[z] / m
}
op guarded(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  out Y[i: m]: float32 = M[i] - select(i < n, S[i, i], 0)
}
op half(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  out Y[i: m, j: n / 2]: float32 = M[i] - S[i, j]
}
op accuracy(m, n, k) {
  in A[m, k], B[n, k], G[m]: index(n)
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  out Y[i: m]: float32 = select(S[i, G[i]] == M[i], 1, 0)
}
op rank_of_label(m, n, k) {
  in A[m, k], B[n, k], G[m]: index(n)
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  out L[i: m]: float32 = S[i, G[i]]
  out Y[i: m]: float32 = sum(j: n) select(S[i, j] > L[i], 1, 0)
}
op next_label(m, n, k) {
  in A[m, k], B[n, k], G[m]: index(n)
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  out Y[i: m]: float32 = M[i] - select(i + 1 < m, S[i, G[i + 1]], 0)
}
op normalised(m, n, k) {
  in A[m, k], B[n, k], R[m, n]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  Q[i: m] = max(j: n) S[i, j]
  out Y[i: m, j: n]: float32 = R[i, j] + S[i, j] * Q[i]
}
op root_of_difference(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  D[i: m, j: n] = M[i] - S[i, j]
  out Y[i: m, j: n]: float32 = sqrt(D[i, j])
}
op two_outputs(m, n, k) {
  in A[m, k], B[n, k]
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n) S[i, j]
  out Y[i: m, j: n]: float32 = M[i] - S[i, j]
  out Z[i: m, j: n]: float32 = M[i] + S[i, j]
}
op several_times(m, n, k) {
  in A[m, k], B[n + 4, k]
  S[i: m, j: n + 4] = sum(r: k) A[i, r] * B[j, r]
  M[i: m] = max(j: n + 4) S[i, j]
  out Y[i: m, j: n, e: 5]: float32 = M[i] - S[i, j + e]
}
op only_read(m, n, k) {
  in A[m, k], B[n, k], G[m]: index(n)
  S[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]
  out Y[i: m]: float32 = S[i, G[i]]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kBFloat16);
}

std::string WhyNot(const std::string& op, const std::string& shape) {
  return std::string(WithRecomputedReads(*Made(op, shape), "S").status().message());
}

TEST(Recompute, GivesReadersReductionsOfTheirOwn) {
  const auto recomputed = WithRecomputedReads(*Made("biased", "m=5,n=40,k=8"), "S");
  ASSERT_TRUE(recomputed.ok()) << recomputed.status();
  std::string stages;
  for (const Stage& stage : (*recomputed)->stages) {
    absl::StrAppend(&stages, stage.name(), " = ", NameOf(stage.combiner), " ", ToString(stage.body),
                    "\n");
  }
  EXPECT_THAT(stages,
              HasSubstr("S.at0 = sum float32(A[i, r]) * float32(B[max(min(G[i], 39), 0), r])\n"
                        "S.at1 = sum float32(A[i, r]) * float32(B[0, r])\n"
                        "D = sum log(Z[i]) + M[i] - (2 * S.at0[i] + P[max(min(G[i], 39), 0)]) - "
                        "(2 * S.at1[i] + P[0])\n"));
}

TEST(Recompute, TakesFewElementsThatAreThere) {
  EXPECT_THAT(WhyNot("guarded", "m=50,n=40,k=8"), HasSubstr("no reduction of which others read"));
  EXPECT_THAT(WhyNot("half", "m=50,n=40,k=513"), HasSubstr("no reduction of which others read"));
  EXPECT_THAT(WhyNot("cross_entropy", "m=50,n=15,k=513"), HasSubstr("at most a sixteenth"));
  for (const char* op : {"accuracy", "rank_of_label", "next_label"}) {
    EXPECT_THAT(WhyNot(op, "m=50,n=40,k=8"), HasSubstr("and compare none")) << op;
  }
  EXPECT_TRUE(ReductionsWorthRecomputing(*Made("only_read", "m=50,n=40,k=8")).empty());
  EXPECT_THAT(ReductionsWorthRecomputing(*Made("cross_entropy", "m=50,n=40,k=8")),
              testing::ElementsAre("S"));
}

// Of few terms a product is as soon computed again as stored for who waits for its rows.
TEST(Recompute, GivesAnOutputThatWaitsForItsRowsAProductOfItsOwn) {
  EXPECT_THAT(ReductionsWorthRecomputing(*Made("normalised", "m=6,n=40,k=512")),
              testing::ElementsAre("S"));
  EXPECT_THAT(WhyNot("normalised", "m=6,n=40,k=513"), HasSubstr("as soon computed again"));
  const auto wide = InstantiatedFrom(kOperators, "normalised", "m=6,n=40,k=8", DType::kFloat32);
  EXPECT_FALSE(WithRecomputedReads(*wide, "S").ok());
  // A last bit would be no number, and what is read several times would be made as often.
  for (const char* op : {"root_of_difference", "two_outputs", "several_times"}) {
    EXPECT_THAT(WhyNot(op, "m=6,n=40,k=8"), HasSubstr("as soon computed again")) << op;
  }
  ExpectPointsCompute(Made("normalised", "m=70,n=128,k=32"), *FindTarget("h100"),
                      " recompute/row_parts/");
}

TEST(Recompute, MayBeAskedTwice) {
  const auto once = WithRecomputedReads(*Made("biased", "m=5,n=40,k=8"), "S");
  ASSERT_TRUE(once.ok()) << once.status();
  EXPECT_THAT(std::string(WithRecomputedReads(**once, "S").status().message()),
              HasSubstr("no reduction of which others read"));
}

class Recomputed : public testing::TestWithParam<const char*> {};

TEST_P(Recomputed, IsTheSame) {
  const auto program = Made(GetParam(), "m=12,n=40,k=8");
  const auto recomputed = WithRecomputedReads(*program, "S");
  ASSERT_TRUE(recomputed.ok()) << recomputed.status();
  TensorValues expected = IntegerInputs(*program), got = expected;
  EvaluateAll(*program, expected);
  EvaluateAll(**recomputed, got);
  EXPECT_EQ(got.at("Y"), expected.at("Y"));
}

INSTANTIATE_TEST_SUITE_P(All, Recomputed, testing::Values("cross_entropy", "biased", "normalised"));

// The product goes to no memory.
TEST(Recompute, KernelsReduceTheTileWhereItLies) {
  const auto program = Made("cross_entropy", "m=64,n=256,k=32");
  Target target = *FindTarget("h100");
  target.peak_gflops = 1;
  const auto space = SearchSpace::Create(program, target);
  ASSERT_TRUE(space.ok()) << space.status();
  TensorValues expected = IntegerInputs(*program);
  EvaluateAll(*program, expected);
  ForDrawnPoints(*space, 6, BeginsWith("recompute/row_parts/"), IntegerInputs(*program),
                 [&](const Program& lowered, const TensorValues& got) {
                   for (const BufferRef& workspace : lowered.workspaces) {
                     EXPECT_LT(workspace->elements, int64_t{64} * 256);
                   }
                   for (size_t i = 0; i < expected.at("Y").size(); ++i) {
                     EXPECT_NEAR(got.at("Y")[i], expected.at("Y")[i], 1e-4) << i;
                   }
                 });
}

}  // namespace
}  // namespace heddle::search_space::recompute_test
