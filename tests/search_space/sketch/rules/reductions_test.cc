// Reductions in parallel: the loops that their steps give, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/match.h"
#include "search_space/check/verify.h"
#include "search_space/lower/lower.h"
#include "search_space/notation/notation.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"
#include "tests/golden.h"
#include "tests/search_space/products.h"

namespace heddle::search_space {
namespace {

using ::testing::HasSubstr;

std::string LoopsOf(const Operator& op, const std::string& shape, const std::string& steps) {
  const auto program =
      std::make_shared<const TensorProgram>(*op.Instantiate(*ParseShape(shape), DType::kFloat32));
  const absl::StatusOr<std::vector<Step>> parsed = ParseSteps(steps);
  if (!parsed.ok()) return parsed.status().ToString();
  EXPECT_EQ(ToString(*parsed), steps);
  const absl::StatusOr<Program> lowered = LowerSteps(program, *parsed);
  return lowered.ok() ? ToString(*lowered) : lowered.status().ToString();
}

std::string Loops(const std::string& op, const std::string& shape, const std::string& steps) {
  return LoopsOf(*FindOperator(BuiltinOperators(), op), shape, steps);
}

// The partial results of three blocks each, one kernel; their sum and the epilogue, another.
TEST(Reductions, SplitOverBlocks) {
  tests::ExpectGolden("loops/split_over_blocks.txt", Loops("gemm_relu_add", "m=4,n=4,k=20",
                                                           R"(split(T, r, [8])
rfactor(T, r.0)
cache_read(T.rf, global, T)
fuse(D, [i, j])
bind(D, i@j, thread)
set_scope(T, local)
compute_at(T, D, i@j)
fuse(T.rf.global, [r.0, i])
bind(T.rf.global, r.0@i, block)
bind(T.rf.global, j, thread)
set_scope(T.rf, local)
compute_at(T.rf, T.rf.global, j)
)"));
}

// Rows of 37 in two rounds of 8 threads with runs of 4; X and E stay in their registers.
constexpr char kSoftmax[] = R"(split(Y, j, [8, 4])
split(Y, i, [4])
reorder(Y, [i.0, i.1, j.1, j.0, j.2])
fuse(Y, [i.1, j.1])
bind(Y, i.0, block)
bind(Y, i.1@j.1, thread)
vectorize(Y, j.2)
set_scope(Sum, local)
compute_at(Sum, Y, i.1@j.1)
set_scope(Sum.acc, local)
compute_at(Sum.acc, Y, i.1@j.1)
set_scope(E, local)
spread(E, j, 8, 4)
compute_at(E, Y, i.1@j.1)
set_scope(Max, local)
compute_at(Max, Y, i.1@j.1)
set_scope(Max.acc, local)
compute_at(Max.acc, Y, i.1@j.1)
cache_read(X, local, all)
spread(X.local, d1, 8, 4)
compute_at(X.local, Y, i.1@j.1)
split(Max.acc, r, [8, 4])
bind(Max.acc, r.1, thread)
split(Sum.acc, r, [8, 4])
bind(Sum.acc, r.1, thread)
)";
TEST(Reductions, RowsInRegisters) {
  tests::ExpectGolden("loops/rows_in_registers.txt", Loops("softmax", "m=5,n=37", kSoftmax));
}

// Both stages of argmax are of the same rows, and so one kernel.
TEST(Reductions, PositionsAreFoundInOneKernel) {
  const auto op = ParseOperators("op f(m, n) { in X[m, n] out A[i: m] = argmax(r: n) X[i, r] }");
  ASSERT_TRUE(op.ok()) << op.status();
  const auto program = std::make_shared<const TensorProgram>(
      *op->front().Instantiate(*ParseShape("m=5,n=37"), DType::kFloat32));
  const auto space = SearchSpace::Create(program, *FindTarget("h100"));
  ASSERT_TRUE(space.ok()) << space.status();
  Rng rng(1);
  int rows = 0;
  for (int draw = 0; draw < 40; ++draw) {
    const Point point = *space->Sample(rng);
    if (!absl::StartsWith(space->Print(point), "rows:")) continue;
    const auto lowered = space->Lower(point);
    ASSERT_TRUE(lowered.ok()) << lowered.status() << space->Print(point);
    EXPECT_EQ(lowered->kernels.size(), 1) << space->Print(point);
    ++rows;
  }
  EXPECT_GT(rows, 4);
}

// What another thread holds cannot be read.
// The matrix that is reduced is no row of the one number, and computed where it is read.
TEST(Reductions, AllOfAMatrixIsOneRow) {
  const auto op = ParseOperators(
      "op f(m, n) { in X[m, n], T[m, n] L[i: m, j: n] = abs(X[i, j] - T[i, j]) "
      "S[z: 1] = sum(i: m, j: n) L[i, j] out Y[z: 1] = S[z] / 4 }");
  ASSERT_TRUE(op.ok()) << op.status();
  const auto of_shape = [&](const char* shape) {
    return std::make_shared<const TensorProgram>(
        *op->at(0).Instantiate(*ParseShape(shape), DType::kFloat32));
  };
  const Target target = *FindTarget("h100");
  const auto large = SearchSpace::Create(of_shape("m=4096,n=4096"), target);
  ASSERT_TRUE(large.ok()) << large.status();
  // One thread's sum of 16 million numbers is slow, and far from their sum.
  EXPECT_TRUE(absl::StartsWith(large->Print(large->Default()), "rows"));
  const auto program = of_shape("m=48,n=52");
  const auto space = SearchSpace::Create(program, target);
  ASSERT_TRUE(space.ok()) << space.status();
  Rng rng(1);
  int split = 0;
  for (int i = 0; i < 12; ++i) {
    const auto point = space->Sample(rng);
    ASSERT_TRUE(point.has_value());
    split += absl::StrContains(space->Print(*point), "split=1") ? 0 : 1;
    const auto lowered = LowerSteps(program, *space->Steps(*point));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_EQ(Verify(*lowered, target), absl::OkStatus()) << ToString(*lowered);
    ExpectComputes(*program, *lowered, rng());
  }
  EXPECT_GT(split, 0);
}

// A row of which one half is read beside the other is computed again for that.
TEST(Reductions, RotatedHalvesAreOfTheSameKernel) {
  const auto program = InstantiatedFrom(R"(
    op norm_and_rotate(m, d) {
      in X[m, d], G[d], C[d], N[d]
      Q[i: m] = sum(r: d) X[i, r] * X[i, r]
      B[i: m, x: d] = X[i, x] + Q[i]
      A[i: m, x: d] = B[i, x] * G[x]
      out Y[i: m, x: d] = A[i, x] * C[x] + select(x < d / 2, -A[i, (x + d / 2) % d], A[i, (x + d / 2) % d]) * N[x]
    })",
                                        "norm_and_rotate", "m=12,d=48", DType::kFloat32);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  Rng rng(1);
  std::optional<Point> rows;
  while (!rows || !absl::StartsWith(space.Print(*rows), "rows:")) rows = space.Sample(rng);
  EXPECT_EQ(space.Lower(*rows)->kernels.size(), 1);
  ExpectPointsCompute(program, *FindTarget("h100"), " rows:");
}

// Pairs of a row's elements are one long row, though each element is read for many terms: other
// rows have others. Windows have elements in common, which tiles read once.
TEST(Reductions, PairsInARowAreRows) {
  constexpr const char* kOperators = R"(
    op pairs(b, n) {
      in Q[b, n], T[b, n]
      out Y[z: b] = sum(i: n, j: n) max(T[z, j] - Q[z, i], 0) * (i + 1)
    }
    op windows(h, w, k) {
      in X[h + k, w + k]
      out Y[y: h, x: w] = sum(r: k, s: k) X[y + r, x + s]
    })";
  ExpectPointsCompute(InstantiatedFrom(kOperators, "pairs", "b=5,n=20", DType::kFloat32),
                      *FindTarget("h100"), " rows:");
  const auto windows = SearchSpace::Create(
      InstantiatedFrom(kOperators, "windows", "h=64,w=64,k=16", DType::kFloat32),
      *FindTarget("h100"));
  ASSERT_TRUE(windows.ok()) << windows.status();
  EXPECT_THAT(std::string(windows->Parse("none:").status().message()),
              ::testing::Not(HasSubstr("rows")));
}

// What each term reads once is computed where it is read; results of Winograd's algorithm, of which
// windows read each several times but an element takes hundreds of operations, are stored.
TEST(Reductions, OnlyWhatIsWorthItIsCopiedToTiles) {
  constexpr const char* kOperators = R"(
    op once(b, m, n) {
      in Q[b, m], T[b, n], W[n]
      H[z: b, i: m, j: n] = abs(Q[z, i] - T[z, j])
      out Y[z: b] = sum(i: m, j: n) H[z, i, j] * W[j]
    }
    op pooled(n, c, o, h, w) {
      in X[n, c, 2 * h + 2, 2 * w + 2], F[o, c, 3, 3]
      T[b: n, q: o, y: 2 * h, x: 2 * w] = sum(k: c, r: 3, s: 3) X[b, k, y + r, x + s] * F[q, k, r, s]
      out Y[b: n, q: o, y: h, x: w] = max(r: 2, s: 2) max(T[b, q, 2 * y + r, 2 * x + s], 0)
    })";
  const auto space_of = [&](const char* op, const char* shape) {
    return *SearchSpace::Create(InstantiatedFrom(kOperators, op, shape, DType::kFloat32),
                                *FindTarget("h100"));
  };
  const SearchSpace once = space_of("once", "b=1024,m=40,n=40");
  Rng rng(1);
  for (int draw = 0; draw < 20; ++draw) {
    EXPECT_THAT(ToString(*once.Steps(*once.Sample(rng))), HasSubstr("compute_inline(H)"));
  }
  const SearchSpace pooled = space_of("pooled", "n=2,c=32,o=64,h=24,w=24");
  EXPECT_THAT(std::string(pooled.Parse("none:").status().message()),
              ::testing::AllOf(HasSubstr("winograd/"),
                               ::testing::Not(HasSubstr("winograd/stream+stream+tile+tile"))));
}

// A row may begin anywhere in memory, as frames of a signal do.
TEST(Reductions, FramesAreRows) {
  for (const char* shape : {"b=2,f=9,w=40,hop=16", "b=2,f=9,w=33,hop=15"}) {
    const auto program = InstantiatedFrom(R"(
      op framed_energy(b, f, w, hop) {
        in X[b, f * hop + w], H[w]
        out Y[z: b, i: f] = sum(r: w) X[z, i * hop + r] * X[z, i * hop + r] * H[r]
      })",
                                          "framed_energy", shape, DType::kFloat32);
    ExpectPointsCompute(program, *FindTarget("h100"), " rows:");
  }
}

TEST(Reductions, ReadsOfOtherThreadsAreRefused) {
  std::string steps = kSoftmax;
  const std::string mine = "split(Sum.acc, r, [8, 4])";
  steps.replace(steps.find(mine), mine.size(), "split(Sum.acc, r, [8, 2])");
  EXPECT_THAT(Loops("softmax", "m=5,n=37", steps),
              HasSubstr("is read by another thread than the one that holds it"));
}

// A row of one block of two warps, whose result no axis of the output runs along.
constexpr char kRowSum[] = R"(replicate(S, 64)
split(S, i, [1])
fuse(S, [i.1, lane])
bind(S, i.0, block)
bind(S, i.1@lane, thread)
set_scope(S.acc, local)
compute_at(S.acc, S, i.1@lane)
split(S.acc, r, [64, 1])
bind(S.acc, r.1, thread)
)";
std::string RowSumLoops(const std::string& steps) {
  const auto op = ParseOperators("op row_sum(m, n) { in X[m, n] out S[i: m] = sum(r: n) X[i, r] }");
  EXPECT_TRUE(op.ok()) << op.status();
  return LoopsOf((*op)[0], "m=3,n=100", steps);
}
TEST(Reductions, RowOfABlock) {
  tests::ExpectGolden("loops/row_of_a_block.txt", RowSumLoops(kRowSum));
}

TEST(Reductions, BlocksAreWholeWarps) {
  std::string steps = kRowSum;
  for (size_t at = steps.find("64"); at != std::string::npos; at = steps.find("64")) {
    steps.replace(at, 2, "16");
  }
  EXPECT_THAT(RowSumLoops(steps), HasSubstr("it must be whole warps and whole groups"));
}

// Two parts of the block reduce halves of each tile; the second adds what the first found.
TEST(Reductions, Slices) {
  tests::ExpectGolden("loops/slices.txt", Loops("matmul", "m=8,n=32,k=16",
                                                R"(split(C, i, [2, 4])
split(C, j, [8, 4])
replicate(C, 2)
reorder(C, [i.0, j.0, i.1, lane, i.2, j.1, j.2])
fuse(C, [i.0, j.0])
bind(C, i.0@j.0, block)
bind(C, i.1, vthread)
fuse(C, [lane, i.2, j.1])
bind(C, lane@i.2@j.1, thread)
vectorize(C, j.2)
set_scope(C.acc, local)
compute_at(C.acc, C, lane@i.2@j.1)
split(C.acc, r, [2, 4])
reorder(C.acc, [r.0, r.1, r.2, i, j])
bind(C.acc, r.1, slice)
)"));
}

TEST(Reductions, RefusalsSayWhy) {
  EXPECT_THAT(Loops("matmul", "m=8,n=8,k=8", "bind(C.acc, r, thread)\n"),
              HasSubstr("a power of two of threads can share it in a local stage"));
  EXPECT_THAT(Loops("matmul", "m=8,n=8,k=8", "bind(C, i, slice)\n"),
              HasSubstr("only a reduction can be sliced"));
  EXPECT_THAT(Loops("softmax", "m=8,n=8", "spread(E, j, 8, 1)\n"),
              HasSubstr("spread wants an elementwise stage in scope local"));
  EXPECT_THAT(Loops("softmax", "m=8,n=8", "set_scope(E, local)\nspread(E, k, 8, 1)\n"),
              HasSubstr("E has no axis k to be spread"));
  EXPECT_THAT(Loops("softmax", "m=8,n=8", "set_scope(E, local)\nspread(E, j, 6, 1)\n"),
              HasSubstr("a power of two of threads"));
  EXPECT_THAT(Loops("matmul", "m=8,n=8,k=8", "replicate(C.acc, 8)\n"),
              HasSubstr("replicate the loops of a kernel's own stage"));
}

}  // namespace
}  // namespace heddle::search_space
