// The rules for products of matrices: every point that they draw is valid and computes the product.
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/lower/lower.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/sketch/search_space.h"
#include "tests/golden.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::matrix_rule_test {
namespace {

// Sums over several axes, of which matrices are multiplied along one.
constexpr char kOperators[] = R"(
op matmul_tt(m, n, k) {
  in A[k, m], B[n, k]
  out C[i: m, j: n] = sum(r: k) A[r, i] * B[j, r]
}
op two_sums(m, n, k, l) {
  in A[m, k, l], B[k, l, n]
  out C[i: m, j: n] = sum(r: k, q: l) A[i, r, q] * B[r, q, j]
}
op conv_last(n, h, w, ci, co) {
  in X[n, h + 2, w + 2, ci], W[co, 3, 3, ci]
  out Y[b: n, y: h, x: w, o: co] = sum(r: 3, s: 3, c: ci) X[b, y + r, x + s, c] * W[o, r, s, c]
}
op conv_padded(n, ci, h, w, co) {
  in X[n, ci, h, w], W[co, ci, 3, 3], B[co]
  P[b: n, c: ci, y: h + 2, x: w + 2] = select(y >= 1 && y <= h && x >= 1 && x <= w, X[b, c, y - 1, x - 1], 0)
  C[b: n, o: co, y: h, x: w] = sum(c: ci, r: 3, s: 3) P[b, c, y + r, x + s] * W[o, c, r, s]
  out Y[b: n, o: co, y: h, x: w] = max(C[b, o, y, x] + B[o], 0)
}
op conv_strided(n, ci, l, co) {
  in X[n, ci, 2 * l + 2], W[co, ci, 4]
  out Y[b: n, o: co, x: l] = sum(c: ci, r: 4) X[b, c, 2 * x + r] * W[o, c, r]
}
op gathered(m, n, k, v) {
  in I[m]: index(v), E[v, k], W[k, n]
  out Y[i: m, j: n] = sum(r: k) E[I[i], r] * W[r, j]
}
op gathered_terms(m, n, k, v) {
  in I[k]: index(v), E[v, m], W[k, n]
  out Y[i: m, j: n] = sum(r: k) E[I[r], i] * W[r, j]
}
op weight_gradient_odd(n, ci, co, h, w) {
  in X[n, ci, h + 2, w + 2], D[n, co, h, w]
  out G[o: co, c: ci, r: 3, s: 3] = sum(b: n, y: h, x: w) X[b, c, y + r, x + s] * D[b, o, y, x]
}
op masked(m, n) {
  in A[m, m], B[m, n]
  out C[i: m, j: n] = sum(r: m) select(r <= i, A[i, r], 0) * B[r, j]
}
op rectified(m, n, k) {
  in A[m, k], B[n, k]
  R[i: m, r: k] = max(A[i, r], 0)
  out C[i: m, j: n] = sum(r: k) R[i, r] * abs(B[j, r])
}
op channels_outside(m, n, k) {
  in A[m, k], B[k, n]
  out C[i: m, j: n, d: 2] = sum(r: k) A[i, r] * B[r, j]
}
op scaled(m, n, k) {
  in A[m, k]: float32, S[k]: float32, B[k, n]
  out C[i: m, j: n] = sum(r: k) bfloat16(A[i, r] * S[r]) * B[r, j]
}
op scaled_sum(m, n, k) {
  in Q[m, k], S[m], K[n, k]
  out C[i: m, j: n] = sum(r: k) 0.125 * Q[i, r] * K[j, r] * (S[i] + 3) / 4
}
op normalised_rows(m, n, k) {
  in Q[m, k], K[n, k]
  A[i: m] = sum(r: k) Q[i, r] * Q[i, r]
  B[j: n] = sum(r: k) K[j, r] * K[j, r]
  out C[i: m, j: n] =
    sum(r: k) Q[i, r] * select(A[i] < 200, 2, 0.5) * (K[j, r] * select(B[j] < 200, 4, 0.5))
}
op rounded_layers(m, n, k) {
  in X[m, k], W[k, n], B[n], V[n, k]
  T[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  H[i: m, j: n] = bfloat16(max(T[i, j] + B[j], 0))
  out Y[i: m, q: k] = sum(r: n) H[i, r] * V[r, q]
}
op transposed_layers(m, n, k, l) {
  in X[m, k], W[n, k], V[m, l]
  S[i: m, j: n] = sum(r: k) X[i, r] * W[j, r]
  T[i: m, j: n]: bfloat16 = max(S[i, j], 0)
  out Y[j: n, x: l] = sum(r: m) T[r, j] * V[r, x]
}
op conv_padded_last(n, h, w, ci, co) {
  in X[n, h, w, ci], W[3, 3, ci, co]
  P[b: n, y: h + 2, x: w + 2, c: ci] = select(y >= 1 && y <= h && x >= 1 && x <= w, X[b, y - 1, x - 1, c], 0)
  out Y[b: n, y: h, x: w, o: co] = sum(r: 3, s: 3, c: ci) P[b, y + r, x + s, c] * W[r, s, c, o]
}
op weight_gradient(n, ci, co, h, w) {
  in X[n, ci, h + 2, w + 2], D[n, co, h, w]
  out G[o: co, c: ci, r: 3, s: 3] = sum(b: n, y: h, x: w) X[b, c, y + r, x + s] * D[b, o, y, x]
}
)";

std::shared_ptr<const TensorProgram> Instantiated(const std::string& op, const std::string& shape,
                                                  DType type) {
  return InstantiatedFrom(kOperators, op, shape, type);
}

struct Case {
  const char* op;
  const char* shape;
  DType type;
};

// Bulk copies are a decision where rows of both tensors begin at multiples of 16 bytes.
TEST(WarpgroupRule, OffersBulkCopiesWhereTheyCanRead) {
  const auto point = [](const char* shape, const char* target, const char* bulk) {
    const auto space =
        SearchSpace::Create(Instantiated("matmul", shape, DType::kBFloat16), *FindTarget(target));
    return space
        ->Parse(
            absl::StrCat("warpgroup: swap=0 m.groups=1 n.groups=1 m.tiles=1 columns=16 k.steps=1 ",
                         "split_k=1 pipeline=2 in_flight=0 block_swizzle=1 min_blocks=0", bulk))
        .status();
  };
  EXPECT_TRUE(point("m=64,n=72,k=48", "h100", " bulk=1").ok());
  EXPECT_TRUE(point("m=64,n=72,k=48", "h100", "").ok()) << "points of before";
  EXPECT_FALSE(point("m=64,n=72,k=44", "h100", " bulk=1").ok());
  EXPECT_TRUE(point("m=64,n=72,k=44", "h100", " bulk=0").ok());
}

TEST(WarpgroupRule, WritesBulkCopies) {
  const auto space = SearchSpace::Create(
      Instantiated("matmul_nt", "m=64,n=128,k=192", DType::kBFloat16), *FindTarget("h100"));
  const auto point = space->Parse(
      "warpgroup: swap=0 m.groups=1 n.groups=1 m.tiles=1 columns=64 k.steps=4 split_k=1 pipeline=3 "
      "in_flight=1 block_swizzle=1 min_blocks=0 bulk=1");
  ASSERT_TRUE(point.ok()) << point.status();
  tests::ExpectGolden("loops/bulk_copies.txt", ToString(*space->Lower(*point)));
}

// A block that stays, whose result lies over tiles.
TEST(WarpgroupRule, HasBlocksThatStay) {
  Target two = *FindTarget("h100");
  two.sm_count = 2;
  const auto space =
      SearchSpace::Create(Instantiated("matmul_nt", "m=320,n=128,k=448", DType::kBFloat16), two);
  const auto point = space->Parse(
      "warpgroup: swap=0 m.groups=1 n.groups=1 m.tiles=1 columns=128 k.steps=4 split_k=1 "
      "pipeline=4 in_flight=1 block_swizzle=1 min_blocks=0 bulk=1 staged=1 persist=1");
  ASSERT_TRUE(point.ok()) << point.status();
  tests::ExpectGolden("loops/persist.txt", ToString(*space->Lower(*point)));
}

// Instructions of warpgroups, which read shared memory themselves, would cut off what tf32 does not
// keep of a float32 that registers bring there.
TEST(WarpgroupRule, RoundsWhatGoesThroughRegisters) {
  const auto lowered = [](DType type) {
    const auto space =
        SearchSpace::Create(Instantiated("matmul_nt", "m=65,n=70,k=67", type), *FindTarget("h100"));
    const auto point = space->Parse(
        "warpgroup: swap=0 m.groups=1 n.groups=1 m.tiles=1 columns=64 k.steps=1 split_k=1 "
        "pipeline=1 in_flight=0 block_swizzle=1 min_blocks=0 bulk=0");
    EXPECT_TRUE(point.ok()) << point.status();
    return ToString(*space->Lower(*point));
  };
  EXPECT_TRUE(absl::StrContains(lowered(DType::kTF32), "tf32(float32(C.acc.operand0.staged["));
  EXPECT_FALSE(absl::StrContains(lowered(DType::kBFloat16), "bfloat16(float32("));
}

// The result's tile lies where the tiles of the factors were, behind a barrier, and goes to memory
// in whole lines.
TEST(WarpgroupRule, StoresResultsFromSharedMemory) {
  const auto space = SearchSpace::Create(
      Instantiated("gemm_relu_add", "m=128,n=256,k=192", DType::kBFloat16), *FindTarget("h100"));
  const auto point = space->Parse(
      "warpgroup: swap=0 m.groups=1 n.groups=1 m.tiles=1 columns=256 k.steps=4 split_k=1 "
      "pipeline=3 in_flight=1 block_swizzle=1 min_blocks=0 bulk=1 staged=1");
  ASSERT_TRUE(point.ok()) << point.status();
  tests::ExpectGolden("loops/staged_result.txt", ToString(*space->Lower(*point)));
}

// Of results that do not lie one behind the other along an axis of a factor there is nothing to
// gain.
TEST(WarpgroupRule, StagesResultsWhereLinesAreOfOneBlock) {
  const auto offers = [](const char* op, const char* shape) {
    const auto space =
        SearchSpace::Create(Instantiated(op, shape, DType::kBFloat16), *FindTarget("h100"));
    Rng rng(1);
    for (int i = 0; i < 200; ++i) {
      if (absl::StrContains(space->Print(*space->Sample(rng)), "staged=1")) return true;
    }
    return false;
  };
  EXPECT_TRUE(offers("batch_matmul", "b=3,m=64,n=64,k=32"));
  EXPECT_FALSE(offers("channels_outside", "m=64,n=64,k=32"));
}

std::string NameOfCase(const testing::TestParamInfo<std::tuple<const char*, Case>>& info) {
  const auto& [sketch, c] = info.param;
  return absl::StrCat(absl::StrReplaceAll(sketch, {{"+", "_"}}), "_", c.op,
                      c.type == DType::kTF32 ? absl::StrCat("_", info.index) : "");
}

class MatrixRules : public testing::TestWithParam<std::tuple<const char*, Case>> {};

TEST_P(MatrixRules, EveryDrawnPointComputesTheProduct) {
  const auto& [sketch, c] = GetParam();
  const auto program = Instantiated(c.op, c.shape, c.type);
  const Target target = *FindTarget("h100");
  const auto space = SearchSpace::Create(program, target);
  ASSERT_TRUE(space.ok());
  Rng rng(3);
  int seen = 0;
  for (int i = 0; i < 400 && seen < 6; ++i) {
    const auto point = space->Sample(rng);
    ASSERT_TRUE(point.has_value());
    if (!absl::StrContains(space->Print(*point), sketch)) continue;
    ++seen;
    SCOPED_TRACE(space->Print(*point));
    const auto steps = space->Steps(*point);
    ASSERT_TRUE(steps.ok()) << steps.status();
    const auto lowered = LowerSteps(program, *steps);
    ASSERT_TRUE(lowered.ok()) << lowered.status() << ToString(*steps);
    const absl::Status verified = Verify(*lowered, target);
    ASSERT_TRUE(verified.ok()) << verified << ToString(*lowered);
    ExpectComputes(*program, *lowered, rng());
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(seen, 6);
}

INSTANTIATE_TEST_SUITE_P(
    Operators, MatrixRules,
    testing::Combine(
        testing::Values("matrix", "warpgroup"),
        testing::Values(Case{"matmul", "m=64,n=72,k=48", DType::kBFloat16},
                        Case{"matmul_nt", "m=70,n=64,k=40", DType::kFloat16},
                        Case{"matmul_tn", "m=48,n=33,k=96", DType::kBFloat16},
                        Case{"batch_matmul", "b=3,m=40,n=24,k=32", DType::kFloat16},
                        Case{"gemm_relu_add", "m=37,n=41,k=27", DType::kBFloat16},
                        Case{"two_sums", "m=24,n=40,k=3,l=24", DType::kFloat16},
                        Case{"conv_last", "n=2,h=3,w=6,ci=16,co=24", DType::kBFloat16},
                        Case{"conv_padded", "n=1,ci=10,h=3,w=17,co=9", DType::kBFloat16},
                        Case{"conv_strided", "n=2,ci=17,l=20,co=16", DType::kFloat16},
                        Case{"weight_gradient", "n=2,ci=16,co=20,h=3,w=16", DType::kBFloat16},
                        Case{"masked", "m=40,n=24", DType::kFloat16},
                        Case{"rectified", "m=24,n=33,k=40", DType::kBFloat16},
                        Case{"scaled", "m=24,n=40,k=48", DType::kBFloat16},
                        Case{"scaled_sum", "m=24,n=40,k=48", DType::kBFloat16},
                        Case{"normalised_rows", "m=24,n=40,k=48", DType::kBFloat16},
                        Case{"rounded_layers", "m=19,n=40,k=24", DType::kBFloat16},
                        Case{"conv_padded_last", "n=2,h=3,w=6,ci=16,co=24", DType::kBFloat16},
                        // Along w, sums would end inside a matrix.
                        Case{"weight_gradient_odd", "n=9,ci=8,co=8,h=2,w=7", DType::kFloat16})),
    NameOfCase);

// What another kernel has stored is zero past its end, where the last matrix has terms.
INSTANTIATE_TEST_SUITE_P(Stored, MatrixRules,
                         testing::Combine(testing::Values("matrix+matrix", "warpgroup+warpgroup"),
                                          testing::Values(Case{"transposed_layers",
                                                               "m=41,n=40,k=24,l=24",
                                                               DType::kBFloat16})),
                         NameOfCase);

// Of 32 bits, which no instruction transposes.
INSTANTIATE_TEST_SUITE_P(
    TF32, MatrixRules,
    testing::Combine(testing::Values("matrix"),
                     testing::Values(Case{"matmul", "m=64,n=72,k=48", DType::kTF32},
                                     Case{"matmul_tn", "m=48,n=33,k=96", DType::kTF32},
                                     Case{"matmul_tt", "m=37,n=41,k=27", DType::kTF32},
                                     Case{"gemm_relu_add", "m=37,n=41,k=27", DType::kTF32},
                                     Case{"conv_padded", "n=1,ci=10,h=3,w=17,co=9", DType::kTF32},
                                     Case{"conv_padded_last", "n=2,h=3,w=6,ci=16,co=24",
                                          DType::kTF32})),
    NameOfCase);
INSTANTIATE_TEST_SUITE_P(
    TF32InRows, MatrixRules,
    testing::Combine(testing::Values("matrix", "warpgroup"),
                     testing::Values(Case{"matmul_nt", "m=70,n=64,k=40", DType::kTF32},
                                     Case{"matmul_nt", "m=130,n=72,k=200", DType::kTF32},
                                     Case{"matmul_nt", "m=33,n=9,k=27", DType::kTF32},
                                     Case{"conv_last", "n=2,h=3,w=6,ci=16,co=24", DType::kTF32},
                                     Case{"rectified", "m=24,n=33,k=40", DType::kTF32})),
    NameOfCase);

// One matrix has all images; there are more pixels in a row.
TEST(MatrixRule, BlocksShareTheSumAlongTheAxisOfMostParts) {
  const auto space = SearchSpace::Create(
      Instantiated("weight_gradient_odd", "n=9,ci=8,co=8,h=2,w=7", DType::kFloat16),
      *FindTarget("h100"));
  ASSERT_TRUE(space.ok());
  const auto shares = [](const std::string& text) { return absl::StrContains(text, "split_k=7"); };
  EXPECT_EQ(DrawnPoints(*space, 1, shares).size(), 1);
}

TEST(WarpgroupRule, LeavesAloneWhatItCannotTranspose) {
  const auto offers = [](const char* op, const char* rule) {
    const auto space =
        SearchSpace::Create(Instantiated(op, "m=64,n=64,k=64", DType::kTF32), *FindTarget("h100"));
    Rng rng(3);
    for (int i = 0; i < 200; ++i) {
      if (absl::StartsWith(space->Print(*space->Sample(rng)), rule)) return true;
    }
    return false;
  };
  EXPECT_TRUE(offers("matmul_nt", "warpgroup"));
  EXPECT_FALSE(offers("matmul", "warpgroup"));
  EXPECT_FALSE(offers("matmul_tt", "warpgroup"));
  EXPECT_TRUE(offers("matmul", "matrix"));
}

TEST(MatrixRule, ReadsRowsOfTF32AsBlocksAndColumnsOneByOne) {
  const auto loops = [](const char* op) {
    const auto space =
        SearchSpace::Create(Instantiated(op, "m=64,n=64,k=64", DType::kTF32), *FindTarget("a100"));
    const auto point = space->Parse(
        "matrix: swap=0 m.warps=2 n.warps=1 m.tiles=2 n.tiles=4 k.steps=4 split_k=1 pipeline=3 "
        "prefetch=0 block_swizzle=1 min_blocks=0");
    EXPECT_TRUE(point.ok()) << point.status();
    return ToString(*space->Lower(*point));
  };
  tests::ExpectGolden("loops/tf32.txt", loops("matmul_nt") + "\n" + loops("matmul"));
}

}  // namespace
}  // namespace heddle::search_space::matrix_rule_test
