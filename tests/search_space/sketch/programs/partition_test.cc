// Which ways to divide a program among kernels are offered, and what a partition makes of it.
#include "search_space/sketch/programs/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/programs/kernel_estimate.h"
#include "search_space/sketch/search_space.h"
#include "tests/golden.h"
#include "tests/partition_operators.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::partition_test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::shared_ptr<const TensorProgram> ProgramOf(const std::string& op, const std::string& shape) {
  return std::make_shared<const TensorProgram>(
      *FindOperator(*ParseOperators(tests::kPartitionOperators), op)
           ->Instantiate(*ParseShape(shape), DType::kFloat32));
}

std::vector<std::string> SketchesOf(const SearchSpace& space) {
  const std::string why(space.Parse("none:").status().message());
  return absl::StrSplit(why.substr(why.rfind("are ") + 4), ", ");
}

struct Case {
  const char* op;
  const char* shape;
};

constexpr Case kCases[] = {
    {"linear_ln", "m=4096,n=1024,k=256"},
    {"ln_linear", "m=8192,n=256,k=1024"},
    {"attention_norm", "b=2,h=8,s=512,d=64"},
    {"rms_qkv", "m=4096,n=512,k=1024"},
    {"softmax_product", "m=8192,n=128,k=2048"},
    {"gelu_readers", "m=4096,n=1024,k=1024"},
    {"three_products", "m=8192,k=1024,r=64,s=64,n=1024"},
    {"shared_branches", "m=4096,n=512,k=256,l=512"},
    {"logits_softmax", "m=4096,n=2048,k=128"},
    {"adapter_norm", "m=8192,d=512,h=64"},
    {"pairs", "b=1024,n=200"},
    {"sweeps", "n=4096"},
    {"softmax", "m=4096,n=1024"},
    {"gelu_product", "m=4096,n=1024,k=1024"},
};

// The names say what is stored, merged or apart, and by which rules kernels are planned. A program
// that is one kernel, by itself or along its rows, is divided only where it computes stages again.
TEST(PartitionTest, OfOperatorsOfSeveralKernels) {
  std::string text;
  for (const Case& c : kCases) {
    absl::StrAppend(&text, c.op, " ", c.shape, "\n");
    const auto space = SearchSpace::Create(ProgramOf(c.op, c.shape), *FindTarget("h100"));
    ASSERT_TRUE(space.ok()) << space.status();
    for (const std::string& name : SketchesOf(*space)) {
      if (absl::StartsWith(name, "parts/")) absl::StrAppend(&text, "  ", name, "\n");
    }
  }
  tests::ExpectGolden("partitions.txt", text);
}

// The sketches that were there before keep their numbers, as points keep their names.
TEST(PartitionTest, ComesAfterAllOthers) {
  const auto space =
      *SearchSpace::Create(ProgramOf("linear_ln", "m=4096,n=1024,k=256"), *FindTarget("h100"));
  const std::vector<std::string> names = SketchesOf(space);
  const auto first = std::find_if(names.begin(), names.end(), [](const std::string& name) {
    return absl::StartsWith(name, "parts/");
  });
  ASSERT_NE(first, names.end());
  EXPECT_THAT(std::vector<std::string>(names.begin(), first), Each(Not(StartsWith("parts/"))));
  EXPECT_THAT(std::vector<std::string>(first, names.end()), Each(StartsWith("parts/")));
}

// "Mu V Y*": the kernels' roots, one with a star into which others were merged.
std::string KernelsOf(const char* op, const char* shape, const Partition& partition) {
  const ProgramShape found = FindKernels(ProgramOf(op, shape), {}, partition);
  std::string names;
  for (const KernelShape& kernel : found.kernels) {
    absl::StrAppend(&names, names.empty() ? "" : " ", found.stage(kernel.root).name(),
                    kernel.fused ? "*" : "");
  }
  return names;
}

TEST(PartitionTest, SaysWhichKernelsThereAre) {
  const auto kernels = [](const Partition& p) { return KernelsOf("ln_linear", "m=9,n=8,k=20", p); };
  EXPECT_EQ(kernels({}), "Mu V Y");
  EXPECT_EQ(kernels({.stored = {"N"}}), "Mu V N Y");
  EXPECT_EQ(kernels({.stored = {"N"}, .merged = {"Mu", "V"}}), "N* Y");
  EXPECT_EQ(kernels({.merged = {"V"}}), "Mu Y*");
  // V and N need it, which are kernels of their own.
  EXPECT_EQ(kernels({.stored = {"N"}, .merged = {"Mu"}}), "");
  // Nobody is to read an output in place of memory, and no kernel has that name.
  EXPECT_EQ(kernels({.merged = {"Y"}}), "");
  EXPECT_EQ(kernels({.merged = {"N"}}), "");
  EXPECT_EQ(KernelsOf("shared_branches", "m=9,n=8,k=5,l=6", {.apart = {"A"}}), "T A.global Y");
}

// What others compute, too, is no reason to keep apart what is not, and is computed by each.
TEST(PartitionTest, ElementwiseStagesOfSeveralKernelsAreInlined) {
  const ProgramShape found =
      FindKernels(ProgramOf("linear_ln", "m=9,n=20,k=5"), {}, {.merged = {"V"}});
  ASSERT_EQ(found.kernels.size(), 3);
  const auto name_of = [&](int stage) { return found.stage(stage).name(); };
  EXPECT_EQ(name_of(found.kernels[2].root), "Y");
  std::vector<std::string> names;
  for (int s : StagesOf(found, found.kernels[2])) names.push_back(name_of(s));
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("D", "V.acc", "V", "Y"));
}

TEST(PartitionTest, MergedKernelsNeedARule) {
  const Target target = *FindTarget("h100");
  const auto program = ProgramOf("linear_ln", "m=4096,n=1024,k=256");
  const double whole = EstimateUs(FindKernels(program, {}), target);
  EXPECT_LT(EstimateUs(FindKernels(program, {}, {.merged = {"Mu", "V"}}), target), whole);
  // A product is no row.
  const ProgramShape product = FindKernels(program, {}, {.merged = {"H", "Mu", "V"}});
  ASSERT_EQ(product.kernels.size(), 1);
  EXPECT_EQ(EstimateUs(product, target), std::numeric_limits<double>::infinity());
}

// A maximum that a sum of exponentials needs, and all others that read both: one kernel makes them.
TEST(PartitionTest, StatisticsOfRowsThatOthersReadAreMadeTogether) {
  constexpr const char* kOperators = R"(
op weights_of_columns(m, n) {
  in X[m, n]
  M[i: m] = max(j: n) X[i, j]
  Z[i: m] = sum(j: n) exp(X[i, j] - M[i])
  out A[j: n] = sum(i: m) exp(X[i, j] - M[i]) / Z[i]
}
)";
  const auto program = std::make_shared<const TensorProgram>(
      *FindOperator(*ParseOperators(kOperators), "weights_of_columns")
           ->Instantiate(*ParseShape("m=2048,n=1100"), DType::kFloat32));
  const auto space = SearchSpace::Create(program, *FindTarget("h100"));
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_THAT(SketchesOf(*space), ::testing::Contains(StartsWith("parts/rows+tile[kept=M]")));
  const ProgramShape kept = FindKernels(program, {}, {.kept = {"M"}});
  ASSERT_EQ(kept.kernels.size(), 2);
  EXPECT_LT(EstimateUs(kept, *FindTarget("h100")),
            EstimateUs(FindKernels(program, {}), *FindTarget("h100")));
  const auto few = std::make_shared<const TensorProgram>(
      *FindOperator(*ParseOperators(kOperators), "weights_of_columns")
           ->Instantiate(*ParseShape("m=37,n=70"), DType::kFloat32));
  const TensorValues inputs = IntegerInputs(*few);
  TensorValues expected = inputs;
  EvaluateAll(*few, expected);
  ForDrawnPoints(*SearchSpace::Create(few, *FindTarget("h100")), 4,
                 BeginsWith("parts/rows+tile[kept=M]"), inputs,
                 [&](const Program& lowered, const TensorValues& values) {
                   EXPECT_GE(lowered.kernels.size(), 2);
                   for (size_t i = 0; i < values.at("A").size(); ++i) {
                     EXPECT_NEAR(values.at("A")[i], expected.at("A")[i], 1e-4) << i;
                   }
                 });
  // What no reduction of the same rows reads is not kept for one.
  EXPECT_TRUE(FindKernels(program, {}, {.kept = {"Z"}}).kernels.empty());
  EXPECT_TRUE(FindKernels(program, {}, {.kept = {"A"}}).kernels.empty());
}

// What is computed at several places of an elementwise chain, or for many elements of a reader at
// more than it costs to load it.
TEST(PartitionTest, StoresWhatIsComputedAgain) {
  constexpr const char* kOperators = R"(
op smooth_thrice(m, n) {
  in X[m, n]
  A[i: m, j: n] = exp(X[i, (j + 1) % n]) / (1 + exp(X[i, j]))
  B[i: m, j: n] = exp(A[i, (j + 2) % n]) / (1 + exp(A[i, j])) - A[i, (j + 5) % n]
  C[i: m, j: n] = exp(B[i, (j + 9) % n]) / (1 + exp(B[i, j])) - B[i, (j + 17) % n]
  out Y[i: m, j: n] = C[i, (j + 30) % n] - C[i, j]
}
op scaled_rows(m, n) {
  in X[m], S[m, n], C[n]
  V[i: m] = log(1 + exp(X[i]))
  out N[i: m, j: n] = S[i, j] * V[i]
  O[i: m] = sum(j: n) N[i, j] * C[j]
  U[a: 1] = sum(i: m) O[i] * O[i]
  out Y[i: m] = O[i] * rsqrt(U[0])
}
op scaled(m, n) {
  in X[m], S[m, n]
  V[i: m] = log(1 + exp(X[i]))
  out N[i: m, j: n] = S[i, j] * V[i]
}
)";
  const auto sketches = [&](const std::string& op, const std::string& shape) {
    const auto program = FindOperator(*ParseOperators(kOperators), op)
                             ->Instantiate(*ParseShape(shape), DType::kFloat32);
    const auto space =
        *SearchSpace::Create(std::make_shared<const TensorProgram>(*program), *FindTarget("h100"));
    return absl::StrJoin(SketchesOf(space), ", ");
  };
  EXPECT_THAT(sketches("smooth_thrice", "m=4096,n=2048"), HasSubstr("[stored=B]"));
  EXPECT_THAT(sketches("scaled_rows", "m=16384,n=4096"), HasSubstr("[stored=V]"));
  EXPECT_THAT(sketches("scaled", "m=4096,n=2048"), Not(HasSubstr("stored")));
}

// Rows that are normalised in front of attention, of whole matrices and of others: they are stored
// for the one kernel of the rest.
TEST(PartitionTest, StoresWhatAChainReadsFirst) {
  const auto op = ParseOperators(
      "op norm_attention(h, n, d) { in X[n, 3, h, d], G[2, d]  "
      "R[a: 2, p: h, i: n] = sum(x: d) X[i, a, p, x] * X[i, a, p, x] / d  "
      "N[a: 2, p: h, i: n, x: d]: bfloat16 = X[i, a, p, x] * rsqrt(R[a, p, i] + 0.000001) * G[a, "
      "x]  "
      "T[p: h, i: n, j: n] = sum(x: d) N[0, p, i, x] * N[1, p, j, x]  "
      "M[p: h, i: n] = max(j: n) T[p, i, j]  "
      "E[p: h, i: n, j: n]: bfloat16 = exp(0.125 * (T[p, i, j] - M[p, i]))  "
      "Z[p: h, i: n] = sum(j: n) E[p, i, j]  "
      "O[p: h, i: n, x: d] = sum(j: n) E[p, i, j] * X[j, 2, p, x]  "
      "out Y[i: n, p: h, x: d] = O[p, i, x] / Z[p, i] }");
  ASSERT_TRUE(op.ok()) << op.status();
  const auto sketches = [&](const std::string& shape) {
    const auto program = op->front().Instantiate(*ParseShape(shape), DType::kBFloat16);
    const auto space =
        *SearchSpace::Create(std::make_shared<const TensorProgram>(*program), *FindTarget("h100"));
    return SketchesOf(space);
  };
  const std::string made = "rows+rolling_warpgroup[stored=N][merged=M|R|T|Z]";
  EXPECT_THAT(sketches("h=24,n=4096,d=64"), testing::Contains("parts/" + made));
  EXPECT_THAT(sketches("h=24,n=4090,d=64"), testing::Contains("pad_terms/parts/" + made));
}

// Nor does a chain that could compute them on the way keep from that.
TEST(PartitionTest, StoresWhatAPaddedChainReadsFirst) {
  const auto op = ParseOperators(
      "op turned_attention(h, n, d) { in X[n, 3, h, d], C[n, d], S[n, d]  "
      "R[a: 2, p: h, i: n, x: d]: bfloat16 = X[i, a, p, x] * C[i, x] + select(x < d / 2, -X[i, a, "
      "p, x + d / 2], X[i, a, p, x - d / 2]) * S[i, x]  "
      "T[p: h, i: n, j: n] = sum(x: d) R[0, p, i, x] * R[1, p, j, x]  "
      "M[p: h, i: n] = max(j: n) T[p, i, j]  "
      "E[p: h, i: n, j: n]: bfloat16 = exp(0.125 * (T[p, i, j] - M[p, i]))  "
      "Z[p: h, i: n] = sum(j: n) E[p, i, j]  "
      "O[p: h, i: n, x: d] = sum(j: n) E[p, i, j] * X[j, 2, p, x]  "
      "out Y[i: n, p: h, x: d] = O[p, i, x] / Z[p, i] }");
  ASSERT_TRUE(op.ok()) << op.status();
  const auto program = op->front().Instantiate(*ParseShape("h=24,n=1029,d=64"), DType::kBFloat16);
  const auto space =
      *SearchSpace::Create(std::make_shared<const TensorProgram>(*program), *FindTarget("h100"));
  EXPECT_THAT(
      SketchesOf(space),
      testing::IsSupersetOf({"pad_terms/rolling_warpgroup",
                             "pad_terms/parts/stream+rolling_warpgroup[stored=R][merged=M|T|Z]"}));
}

// Two ways lead to the same rules and stages here: of a printed point it must be known which.
TEST(PartitionTest, SketchesHaveNamesOfTheirOwn) {
  const auto op = ParseOperators(
      "op linear_cross_entropy(m, v, d) { in H[m, d], W[v, d], T[m, v]  "
      "L[i: m, j: v] = sum(r: d) H[i, r] * W[j, r]  M[i: m] = max(j: v) L[i, j]  "
      "Z[i: m] = sum(j: v) exp(L[i, j] - M[i])  P[i: m] = sum(j: v) T[i, j] * L[i, j]  "
      "out Y[i: m] = log(Z[i]) + M[i] - P[i] }");
  ASSERT_TRUE(op.ok()) << op.status();
  const auto program = std::make_shared<const TensorProgram>(
      *op->front().Instantiate(*ParseShape("m=2048,v=8192,d=512"), DType::kFloat32));
  const SearchSpace space = *SearchSpace::Create(program, *FindTarget("h100"));
  std::vector<std::string> names = SketchesOf(space);
  EXPECT_THAT(names, testing::Contains(HasSubstr("[way=2]")));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  Rng rng(1);
  for (int i = 0; i < 200; ++i) {
    const auto point = space.Sample(rng, static_cast<SearchSpace::From>(i % 3));
    if (!point.has_value()) continue;
    EXPECT_EQ(*space.Parse(space.Print(*point)), *point);
  }
}

}  // namespace
}  // namespace heddle::search_space::partition_test
