// Reductions of scattered terms, such as histograms and sums by groups: which stages are such, and
// what the kernels of the scatter rule compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/schedule/analysis/scattered_terms.h"
#include "search_space/schedule/schedule.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::scatter_test {
namespace {

constexpr const char* kOperators = R"(
op histogram(m, n) {
  in I[m]: index(n)
  out Y[j: n] = sum(r: m) select(I[r] == j, 1, 0)
}
op scatter_sum(m, n, d) {
  in X[m, d], I[m]: index(n)
  out Y[i: n, j: d] = sum(r: m) select(I[r] == i, X[r, j], 0)
}
op group_by(n, g) {
  in K[n]: index(g), V[n]
  out C[a: g] = sum(i: n) select(K[i] == a, 1, 0)
  out S[a: g] = sum(i: n) select(K[i] == a, V[i], 0)
  out L[a: g] = min(i: n) select(K[i] == a, V[i], 1.0e30)
  out H[a: g] = max(i: n) select(K[i] == a, V[i], -1.0e30)
  out M[a: g] = S[a] - 2 * C[a]
}
op confusion(n, c) {
  in P[n]: index(c), T[n]: index(c)
  out Y[a: c, b: c] = sum(i: n) select(T[i] == a && P[i] == b, 1, 0)
}
op graph_sum(n, e, f) {
  in X[n, f], A[e]: index(n), B[e]: index(n), W[e]
  out Y[i: n, j: f] = sum(r: e) select(B[r] == i, W[r] * X[A[r], j], 0)
}
op histograms(b, p, n) {
  in X[b, p]: index(n)
  H[z: b, j: n] = sum(i: p) select(X[z, i] == j, 1, 0)
  out C[z: b, j: n] = H[z, j] * 0.5
}
op masked_max(b, n, k, d) {
  in I[b, n]: index(k + 1), X[b, n, d]: float16, W[b, n]
  out Y[z: b, a: k, j: d] = max(i: n) select(I[z, i] == a && W[z, i] > 0, X[z, i, j], -60000)
}
op embedding_grad(b, s, v, d) {
  in I[b, s]: index(v), G[b, s, d]: bfloat16
  out D[i: v, j: d]: bfloat16 = sum(z: b, t: s) select(I[z, t] == i, G[z, t, j], 0)
}
op shifted(m, n) {
  in I[m]: index(n), X[m], W[n]
  out Y[j: n] = prod(r: m) select(I[r] + 1 == j, select(X[r] < W[j], -1, 1), 1)
}
op least(m, n) {
  in I[m]: index(n), X[m]
  out Y[j: n] = min(r: m) select(I[r] == j, X[r], 1)
}
op weighted(n, a, b) {
  in I[n]: index(a), J[n]: index(b), W[n]
  out Y[i: a, j: b] = sum(r: n) select(I[r] == i && J[r] == j, 1, 0) * W[r] * 2
}
op both_ends(n, e) {
  in X[n, 3], I[e]: index(n), J[e]: index(n)
  D[r: e, c: 3] = X[J[r], c] - X[I[r], c]
  out Y[i: n, c: 3] = sum(r: e) select(J[r] == i, D[r, c], 0) - select(I[r] == i, D[r, c], 0)
}
op degrees(n, e) {
  in I[e]: index(n), J[e]: index(n)
  out Y[i: n] = sum(r: e) select(J[r] == i, 1, 0) - select(I[r] == i, J[r], 0)
}
op nearest(n, v) {
  in P[n]: index(v), Z[n]
  out K[i: v] = argmin(r: n) select(P[r] == i && Z[r] > -3, Z[r], 2)
  out D[i: v] = min(r: n) select(P[r] == i && Z[r] > -3, Z[r], 2)
}
op last(b, n, v) {
  in P[b, n]: index(v), Z[b, n]
  out K[z: b, i: v] = argmax(r: n) select(P[z, r] == i, Z[z, r], -1.0e30)
}
op greatest(n, v) {
  in P[n]: index(v), Z[n]
  out K[i: v] = argmax(r: n) select(P[r] == i, Z[r] - 5, 0)
}
op masked_places(m, n) {
  in I[m]: index(n), X[m], W[n]
  out Y[i: n] = max(r: m) select(W[i] > 0, select(I[r] == i, X[r], -3), -inf)
}
op other_places(m, n) {
  in I[m]: index(n), J[m]: index(n), X[m]
  out Y[i: n] = max(r: m) select(J[r] != i, select(I[r] == i, X[r], 0), -inf)
}
op guarded_index(m, n, k) {
  in I[m]: index(n), J[k]: index(n), W[k]: index(7)
  out Y[i: n] = sum(r: m) select(r < k, select(I[r] == i, J[r], 0), 0) + select(i < k, select(I[r] == i, W[i], 0), 0)
}
op before(m, n) {
  in I[m]: index(n), X[m]
  out Y[i: n] = max(r: m + 1) select(r >= 1, select(I[r - 1] == i, X[r - 1], 0), -inf)
}
op sum_before(m, n) {
  in I[m]: index(n), X[m]
  out Y[i: n] = sum(r: m + 1) select(r >= 1, select(I[r - 1] == i, X[r - 1], 0), 0)
}
op many_guarded(m, n, k) {
  in I[m]: index(n), W[k]
  out Y[i: n] = sum(r: m) select(i < k, select(I[r] == i, W[i], 0), 0)
}
op masked_grad(m, n, d) {
  in I[m]: index(n), X[m, d], W[m, d]
  C[r: m, j: d] = select(W[r, j] > 0, X[r, j], 0)
  out Y[i: n, j: d] = sum(r: m) select(I[r] == i, C[r, j], 0)
}
op columns_first(b, n, k, d) {
  in I[b, n]: index(k), X[n, d]
  out Y[z: b, j: d, a: k] = sum(i: n) select(I[z, i] == a, X[i, j], 0)
}
)";

struct Case {
  const char *op, *shape, *like;
};

class Scatter : public testing::TestWithParam<Case> {};

TEST_P(Scatter, ComputeTheirProgram) {
  ExpectPointsCompute(
      InstantiatedFrom(kOperators, GetParam().op, GetParam().shape, DType::kFloat32),
      *FindTarget("h100"), GetParam().like);
}

INSTANTIATE_TEST_SUITE_P(
    All, Scatter,
    testing::Values(
        Case{"histogram", "m=3000,n=100", "scatter"},
        Case{"scatter_sum", "m=300,n=77,d=40", "scatter"},
        Case{"group_by", "n=2000,g=50", "scatter"}, Case{"confusion", "n=2000,c=12", "scatter"},
        Case{"graph_sum", "n=60,e=500,f=24", "scatter"},
        Case{"histograms", "b=3,p=2000,n=64", "scatter"},
        Case{"masked_max", "b=2,n=300,k=17,d=12", "scatter"},
        Case{"embedding_grad", "b=4,s=100,v=130,d=36", "scatter"},
        Case{"shifted", "m=400,n=30", "scatter"}, Case{"least", "m=100,n=30", "scatter"},
        Case{"weighted", "n=600,a=12,b=9", "scatter"}, Case{"both_ends", "n=40,e=300", "scatter"},
        Case{"degrees", "n=40,e=300", "scatter"}, Case{"masked_places", "m=300,n=20", "scatter"},
        Case{"other_places", "m=300,n=20", "scatter"},
        Case{"guarded_index", "m=301,n=20,k=11", "scatter"},
        Case{"before", "m=300,n=20", "scatter"}, Case{"sum_before", "m=300,n=20", "scatter"},
        Case{"many_guarded", "m=900,n=1500,k=700", "scatter"},
        Case{"nearest", "n=700,v=150", "scatter"}, Case{"nearest", "n=60,v=10", "scatter"},
        Case{"last", "b=3,n=500,v=40", "scatter"}, Case{"greatest", "n=777,v=12", "scatter"},
        Case{"columns_first", "b=3,n=200,k=20,d=9", "scatter"},
        Case{"histogram", "m=3000,n=300", "scatter_in_memory"},
        Case{"scatter_sum", "m=150,n=77,d=40", "scatter_in_memory"},
        Case{"scatter_sum", "m=151,n=77,d=6", "scatter_in_memory"},
        Case{"group_by", "n=2000,g=300", "scatter_in_memory"},
        Case{"confusion", "n=900,c=17", "scatter_in_memory"},
        Case{"graph_sum", "n=60,e=200,f=24", "scatter_in_memory"},
        Case{"masked_max", "b=2,n=100,k=17,d=12", "scatter_in_memory"},
        Case{"embedding_grad", "b=4,s=50,v=130,d=36", "scatter_in_memory"},
        Case{"shifted", "m=400,n=300", "scatter_in_memory"},
        Case{"least", "m=300,n=400", "scatter_in_memory"},
        Case{"both_ends", "n=100,e=300", "scatter_in_memory"},
        Case{"nearest", "n=700,v=300", "scatter_in_memory"},
        Case{"last", "b=3,n=500,v=140", "scatter_in_memory"},
        Case{"guarded_index", "m=301,n=300,k=11", "scatter_in_memory"},
        Case{"columns_first", "b=3,n=100,k=20,d=9", "scatter_in_memory"},
        Case{"masked_grad", "m=150,n=40,d=8", "scatter_in_memory"}),
    [](const auto& info) { return absl::StrCat(info.param.op, "_", info.index); });

// The loops of what is scattered stay as they were, but for one of all that is reduced.
TEST(ScatterTest, LoopsStayAsTheyWere) {
  const auto program = InstantiatedFrom(
      "op t(b, s, n) { in I[b, s]: index(n), X[b, s]\n"
      "out Y[i: n] = sum(z: b, r: s) select(I[z, r] == i, X[z, r], 0) }",
      "t", "b=3,s=40,n=20", DType::kFloat32);
  const std::string begin =
      "split(Y, i, [32])\nbind(Y, i.0, block)\nbind(Y, i.1, thread)\nset_scope(Y.acc, shared)\n"
      "scatter(Y.acc, 2)\ncompute_at(Y.acc, Y, i.0)\n";
  const std::string fused = begin + "fuse(Y.acc, [z, r])\n";
  const auto lowered = LowerSteps(program, *ParseSteps(fused));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ExpectComputes(*program, *lowered, 1);
  for (const std::string& other :
       {begin, fused + "split(Y.acc, i, [4])\n", fused + "split(Y.acc, z@r, [10])\n"}) {
    const auto refused = LowerSteps(program, *ParseSteps(other));
    ASSERT_FALSE(refused.ok()) << other;
    EXPECT_TRUE(
        absl::StrContains(refused.status().message(), "its loops must be one for each axis"))
        << refused.status();
  }
}

// What repeats a reduction alone is the same tensor; what makes something of it, what is added up
// as integers, or what others than its place have a part in, is a kernel behind that.
TEST(ScatterTest, WhatOnlyRepeatsIsTheSameTensor) {
  const auto kernels_of = [](const std::string& definition) {
    const auto program = InstantiatedFrom("op t(m, n) { in I[m]: index(n)" + definition + " }", "t",
                                          "m=50,n=20", DType::kFloat32);
    const auto lowered =
        LowerSteps(program, *ParseSteps("scatter_in_memory(Y.acc, 2, 32, 1, 1)\n"));
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    ExpectComputes(*program, *lowered, 1);
    return lowered->kernels.size();
  };
  EXPECT_EQ(kernels_of(", X[m] out Y[i: n] = sum(r: m) select(I[r] == i, X[r], 0)"), 2);
  EXPECT_EQ(kernels_of(" out Y[i: n] = sum(r: m) select(I[r] == i, 1, 0)"), 3);
  EXPECT_EQ(kernels_of(", X[m] out Y[i: n] = min(r: m) select(I[r] == i, X[r], 0)"), 4);
  // Others may read what repeats it.
  EXPECT_EQ(kernels_of(", X[m] out Y[i: n] = sum(r: m) select(I[r] == i, X[r], 0)\n"
                       "out Z[i: n, k: 3] = Y[i] * k + X[i]"),
            3);
}

// Vectors are of what is left when producers are inlined: every choice within the limits lowers.
TEST(ScatterTest, WidthsAreThoseBehindInlining) {
  const auto program =
      InstantiatedFrom(kOperators, "masked_grad", "m=9000,n=4000,d=64", DType::kFloat32);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  Rng rng(1);
  int seen = 0;
  for (int draw = 0; draw < 100; ++draw) {
    const Point point = *space.Sample(rng);
    if (!absl::StartsWith(space.Print(point), "scatter_in_memory: ")) continue;
    ++seen;
    EXPECT_TRUE(space.Lower(point).ok()) << space.Print(point);
  }
  EXPECT_GT(seen, 10);
}

// Steps in an order that the rule does not make: they are refused, or do as they say.
TEST(ScatterTest, StepsBehindScatterInMemory) {
  const auto lowered = [](const char* name, const char* shape, const std::string& steps) {
    const auto program = InstantiatedFrom(kOperators, name, shape, DType::kFloat32);
    auto result = LowerSteps(program, *ParseSteps(steps));
    if (result.ok()) ExpectComputes(*program, *result, 1);
    return std::string(result.status().message());
  };
  EXPECT_EQ(lowered("shifted", "m=60,n=40",
                    "split(Y, j, [16])\nbind(Y, j.0, block)\nbind(Y, j.1, thread)\n"
                    "scatter_in_memory(Y.acc, 2, 64, 1, 1)\nset_scope(Y.acc, shared)\n"
                    "scatter(Y.acc, 1)\ncompute_at(Y.acc, Y, j.0)\n"),
            "");
  EXPECT_THAT(lowered("masked_grad", "m=90,n=40,d=8",
                      "scatter_in_memory(Y.acc, 2, 64, 2, 4)\ncompute_inline(C)\n"),
              testing::HasSubstr("not added to at once any more"));
  EXPECT_THAT(lowered("shifted", "m=60,n=40",
                      "scatter_in_memory(Y.acc, 2, 64, 1, 1)\nbind(Y.acc, j, block)\n"),
              testing::HasSubstr("its loops must be one for each axis"));
}

TEST(ScatterTest, WidestUpdates) {
  const auto widest = [](const std::string& body, int d) {
    const auto program = InstantiatedFrom(
        "op t(m, n, d) { in I[m]: index(n), J[m, d]: index(n), X[m, d], W[d]\n"
        "out Y[i: n, j: d] = " +
            body + "\nout Z[r: m, j: d] = X[r, j] + W[j] + J[r, j] + I[r] }",
        "t", absl::StrCat("m=50,n=20,d=", d), DType::kFloat32);
    const Schedule schedule(program);
    return WidestUpdate(schedule, schedule.stages()[0]);
  };
  EXPECT_EQ(widest("sum(r: m) select(I[r] == i, X[r, j], 0)", 12), 4);
  EXPECT_EQ(widest("sum(r: m) select(I[r] == i, X[r, j], 0)", 6), 2);
  EXPECT_EQ(widest("sum(r: m) select(I[r] == i, X[r, j], 0)", 7), 1);
  EXPECT_EQ(widest("max(r: m) select(I[r] == i, X[r, j], -1.0e30)", 8), 1);
  EXPECT_EQ(widest("sum(r: m) select(I[r] == i, 2, 0)", 8), 1);
  EXPECT_EQ(widest("sum(r: m) select(J[r, j] == i, X[r, j], 0)", 8), 1);
  EXPECT_EQ(widest("sum(r: m) select(I[r] == i && W[j] > 0, X[r, j], 0)", 8), 1);
}

// Where all terms are of one place, that one has nothing of others'.
TEST(ScatterTest, APlaceOfAllTermsHasOnlyItsOwn) {
  const auto program = InstantiatedFrom(kOperators, "least", "m=90,n=12", DType::kFloat32);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  Rng rng(1);
  int seen = 0;
  for (int draw = 0; draw < 200 && seen < 5; ++draw) {
    const Point point = *space.Sample(rng);
    if (!absl::StartsWith(space.Print(point), "scatter: ")) continue;
    ++seen;
    TensorValues expected = {{"I", std::vector<double>(90, 7)}, {"X", std::vector<double>(90, 5)}};
    TensorValues got = expected;
    EvaluateAll(*program, expected);
    EXPECT_EQ(expected.at("Y")[7], 5);
    EXPECT_EQ(expected.at("Y")[6], 1);
    const absl::Status ran = Interpret(*space.Lower(point), got, {.seed = 1});
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_EQ(got.at("Y"), expected.at("Y"));
  }
  EXPECT_EQ(seen, 5);
}

std::vector<ScatteredTerms> TermsOf(const std::string& body) {
  const auto program = InstantiatedFrom(
      "op t(m, n) { in I[m]: index(n), J[m, n]: index(n), X[m], W[n]\nout Y[i: n] = " + body +
          "\nout Z[i: n] = W[i] + X[0] + J[0, i] + I[0] }",
      "t", "m=50,n=20", DType::kFloat32);
  return ScatteredTermsOf(Schedule(program).stages()[0]);
}

TEST(ScatterTest, WhatIsScattered) {
  const auto terms = TermsOf("sum(r: m) select(X[r] > 0 && 2 + I[r] == i, W[i], 0)");
  ASSERT_EQ(terms.size(), 1);
  EXPECT_EQ(ToString(terms[0].value).find("W[i]"), std::string::npos);
  EXPECT_NE(terms[0].condition, nullptr);
  EXPECT_EQ(terms[0].present, nullptr);
  EXPECT_EQ(terms[0].whole, nullptr);
  EXPECT_TRUE(terms[0].HasIdentity(Combiner::kSum));
  EXPECT_FALSE(TermsOf("max(r: m) select(I[r] == i, X[r], 0)")[0].HasIdentity(Combiner::kMax));
  const auto counts = TermsOf("sum(r: m) select(I[r] == i, 3, 0) - select(I[r] == i, I[r], 0)");
  ASSERT_EQ(counts.size(), 2);
  EXPECT_NE(counts[1].whole, nullptr);
  // The place does not depend on an index, or not on the term, or on itself; other places have
  // something of a sum.
  for (const char* other :
       {"sum(r: m) select(r == i, X[r], 0)", "sum(r: m) select(I[0] == i, X[r], 0)",
        "sum(r: m) select(J[r, i] == i, X[r], 0)", "sum(r: m) select(I[r] == i, X[r], 1)",
        "sum(r: m) select(I[r] <= i, X[r], 0)", "sum(r: m) select(I[r] == i, X[r], 0) + W[i]"}) {
    EXPECT_TRUE(TermsOf(other).empty()) << other;
  }
}

}  // namespace
}  // namespace heddle::search_space::scatter_test
