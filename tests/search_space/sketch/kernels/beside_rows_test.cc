// Reductions over the rows of which a kernel makes something else: in one pass, beside it.
#include "search_space/sketch/kernels/beside_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/lower/lower.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::beside_rows_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kOperators = R"(
op norm(m, n) {
  in X[m, n], G[m, n], W[n], R[m]
  A[i: m] = sum(j: n) G[i, j] * W[j] * X[i, j]
  out DX[i: m, j: n] = R[i] * (G[i, j] * W[j] - X[i, j] * A[i])
  out DW[j: n] = sum(i: m) G[i, j] * X[i, j] * R[i]
  out DB[j: n] = sum(i: m) G[i, j]
}
op activation(m, n) {
  in X[m, n], G[m, n], B[n]
  out DX[i: m, j: n] = select(X[i, j] + B[j] > 0, G[i, j], 0)
  out DB[j: n] = sum(i: m) DX[i, j]
}
op heads(m, h, d) {
  in X[m, h, d], G[m, h, d]
  A[i: m, p: h] = sum(x: d) X[i, p, x]
  out Y[i: m, p: h, x: d] = X[i, p, x] * A[i, p]
  out Z[i: m, p: h, x: d] = X[i, p, x] - A[i, p]
  out S[x: d] = sum(i: m, p: h) G[i, p, x] * A[i, p] * X[i, p, x]
  out T[x: d] = max(i: m, p: h) X[i, p, x]
}
op batches(b, s, d) {
  in X[b, s, d], C[b, d]
  out Y[z: b, i: s, x: d] = X[z, i, x] * C[z, x]
  out T[z: b, x: d] = sum(i: s) X[z, i, x]
}
op sum_first(m, n) {
  in X[m, n]
  S[j: n] = sum(i: m) X[i, j]
  out D[j: n] = 2 * S[j]
  out Y[i: m, j: n] = X[i, j] * 2
}
op made_later(m, n) {
  in X[m, n], G[m, n]
  out Y[i: m, j: n] = X[i, j] * 2
  H[i: m, j: n] = abs(X[i, j]) * G[i, j]
  T[i: m] = sum(j: n) G[i, j]
  out S[j: n] = sum(i: m) H[i, j] * T[i]
  out U[j: n] = max(i: m) H[i, j]
}
op read_again(m, n) {
  in X[m, n]
  out Y[i: m, j: n] = abs(X[i, j])
  out S[j: n] = sum(i: m) Y[i, j] / m
  out V[j: n] = sum(i: m) (Y[i, j] - S[j]) * (Y[i, j] - S[j])
}
op of_another_sum(m, n) {
  in X[m, n], G[m, n]
  C[j: n] = max(i: m) G[i, j]
  out Y[i: m, j: n] = X[i, j] * 2
  out S[j: n] = sum(i: m) X[i, j] * exp(-C[j])
}
op logarithms(m, n) {
  in X[m, n]
  S[i: m] = sum(j: n) X[i, j]
  U[i: m, j: n] = log(1 + X[i, j] * X[i, j]) * S[i]
  out Y[i: m, j: n] = U[i, j]
  M[j: n] = sum(i: m) U[i, j]
  out A[j: n] = M[j] / m
  V[j: n] = sum(i: m) (U[i, j] - M[j] / m) * (U[i, j] - M[j] / m)
  out B[j: n] = V[j] / m
}
op needed(m, n) {
  in X[m, n]
  S[j: n] = sum(i: m) X[i, j]
  out Y[i: m, j: n] = X[i, j] - S[j] / m
}
op of_others(m, n) {
  in X[m, n], Z[m, n]
  out Y[i: m, j: n] = X[i, j] * 2
  out S[j: n] = sum(i: m) Z[i, j]
}
op mirrored(m, n) {
  in X[m, n]
  out Y[i: m, j: n] = X[i, j] * 2
  out S[j: n] = sum(i: m) Y[m - 1 - i, j]
}
op product(m, n, k) {
  in X[m, k], W[n, k], G[m, n]
  T[i: m, j: n] = sum(x: k) X[i, x] * W[j, x]
  out S[j: n] = sum(i: m) T[i, j] * G[i, j]
  out Q[j: n] = max(i: m) T[i, j]
  out Y[i: m, j: n] = max(T[i, j], 0) * G[i, j]
}
op backward(m, n, k) {
  in G[m, n], Y[m, n], X[m, k], W[n, k]
  H[i: m, j: n]: bfloat16 = select(Y[i, j] > 0, G[i, j], 2 * G[i, j])
  out DX[i: m, x: k] = sum(j: n) H[i, j] * W[j, x]
  out DW[j: n, x: k] = sum(i: m) H[i, j] * X[i, x]
  out DB[j: n]: float32 = sum(i: m) H[i, j]
}
op waits(m, n, k) {
  in X[m, k], W[n, k], V[n, n]
  T[i: m, j: n] = sum(x: k) X[i, x] * W[j, x]
  out Y[i: m, j: n] = T[i, j] * 2
  U[i: m, j: n] = sum(r: n) T[i, r] * V[r, j]
  out Z[i: m, j: n] = U[i, j] * 2
  out S[j: n] = sum(i: m) U[i, j] * T[i, j]
}
op mean_first(m, n, k) {
  in X[m, k], W[n, k], G[m, n]
  T[i: m, j: n] = sum(x: k) X[i, x] * W[j, x]
  A[j: n] = sum(i: m) T[i, j]
  out Y[i: m, j: n] = T[i, j] * G[i, j]
  out Z[i: m, j: n] = T[i, j] - A[j]
}
op each_waits(m, n, k) {
  in X[m, k], W[n, k], V[n, k]
  T[i: m, j: n] = sum(x: k) X[i, x] * W[j, x]
  U[i: m, j: n] = sum(x: k) X[i, x] * V[j, x]
  out S1[j: n] = sum(i: m) T[i, j]
  out S2[j: n] = sum(i: m) U[i, j]
  out Z1[j: n] = S1[j] * 2
  out Z2[j: n] = S2[j] * 2
  out R1[i: m, j: n] = T[i, j] + Z2[j]
  out R2[i: m, j: n] = U[i, j] - Z1[j]
}
op waits_for_companion(m, n, k) {
  in X[m, k], W[n, k], V[n, k]
  T[i: m, j: n] = sum(x: k) X[i, x] * W[j, x]
  U[i: m, j: n] = sum(x: k) X[i, x] * V[j, x]
  out S1[j: n] = sum(i: m) T[i, j]
  out Za[i: m] = sum(j: n) U[i, j] * S1[j]
  out Zb[i: m] = max(j: n) U[i, j]
  out R1[i: m, j: n] = T[i, j] * Zb[m - 1 - i]
}
op of_sums_of_others(m, n, k) {
  in X[m, k], W[n, k], V[n, k]
  T[i: m, j: n] = sum(x: k) X[i, x] * W[j, x]
  U[i: m, j: n] = sum(x: k) X[i, x] * V[j, x]
  out S1[j: n] = sum(i: m) T[i, j]
  out S2[j: n] = sum(i: m) U[i, j]
  out R1[i: m, j: n] = T[i, j] * 2
  out R2[i: m, j: n] = U[i, j] - S1[j]
}
op of_rows(m, n) {
  in X[m, n]
  out Y[i: m, j: n] = X[i, j] * 2
  out S[i: m] = sum(j: n) X[i, j]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape,
                                          DType type = DType::kFloat32) {
  return InstantiatedFrom(kOperators, op, shape, type);
}

std::vector<std::string> Found(const std::string& op, const std::string& shape) {
  std::vector<std::string> names;
  for (const BufferRef& sum : SumsBesideRows(Schedule(Made(op, shape)))) {
    names.push_back(sum->name);
  }
  return names;
}

TEST(BesideRowsTest, SumsOverTheRowsOfAnOutputThatDoesNotNeedThem) {
  EXPECT_THAT(Found("norm", "m=40,n=32"), ElementsAre("DW.acc", "DB.acc"));
  EXPECT_THAT(Found("activation", "m=40,n=32"), ElementsAre("DB.acc"));
  EXPECT_THAT(Found("heads", "m=40,h=3,d=32"), ElementsAre("S.acc", "T.acc"));
  EXPECT_THAT(Found("batches", "b=3,s=40,d=32"), ElementsAre("T.acc"));
  EXPECT_THAT(Found("sum_first", "m=40,n=32"), ElementsAre("S"));
  EXPECT_THAT(Found("needed", "m=40,n=32"), IsEmpty());
  EXPECT_THAT(Found("of_others", "m=40,n=32"), IsEmpty());
  EXPECT_THAT(Found("of_rows", "m=32,n=32"), IsEmpty());  // which lie along the other axis
}

struct Case {
  const char *op, *shape;
  DType type;
  double error;  // rounded results beside those of float64
};

class BesideRows : public testing::TestWithParam<Case> {};

TEST_P(BesideRows, OnePassOverTheRowsMakesBoth) {
  const Case& c = GetParam();
  const auto program = Made(c.op, c.shape, c.type);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const TensorValues inputs = IntegerInputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  ForDrawnPoints(space, 6, BeginsWith("beside/rows"), inputs,
                 [&](const Program& lowered, const TensorValues& got) {
                   EXPECT_EQ(lowered.kernels.size(), 2);
                   EXPECT_EQ(KernelsWith(lowered, "X"), 1);
                   ExpectOutputsNear(*program, expected, got, c.error);
                 });
}

constexpr double kHalf = 1.0 / 128;  // of bfloat16, of what the reference does not round

INSTANTIATE_TEST_SUITE_P(All, BesideRows,
                         testing::Values(Case{"norm", "m=700,n=72", DType::kFloat32, 1e-5},
                                         Case{"norm", "m=531,n=60", DType::kBFloat16, kHalf},
                                         Case{"norm", "m=300,n=1030", DType::kFloat32, 1e-5},
                                         Case{"activation", "m=601,n=72", DType::kFloat32, 1e-5},
                                         Case{"activation", "m=1100,n=32", DType::kBFloat16, kHalf},
                                         Case{"heads", "m=113,h=5,d=40", DType::kFloat32, 1e-5},
                                         Case{"batches", "b=4,s=256,d=48", DType::kFloat32, 1e-5},
                                         Case{"made_later", "m=300,n=48", DType::kFloat32, 1e-5},
                                         Case{"sum_first", "m=600,n=32", DType::kFloat32, 1e-5}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.op, "_", info.index);
                         });

IsWanted BesideIn(const std::string& rules, const std::string& sums) {
  return [=](const std::string& text) {
    return text.starts_with(rules) && absl::StrContains(text, "[beside=" + sums + "]");
  };
}

// What a product or another kernel makes is read once, for its rows and the sums over them.
TEST(BesideRowsTest, KernelsAmongOthersMakeSumsBesideTheirRows) {
  struct Kernels {
    const char *op, *shape;
    DType type;
    const char *rules, *sums;
    const char* tensor;  // in so many kernels, that which makes it among them
    int64_t kernels;
  };
  for (const Kernels& k :
       {Kernels{"product", "m=600,n=24,k=7", DType::kFloat32, "tile+rows", "S.acc|Q.acc", "T", 2},
        {"product", "m=512,n=32,k=16", DType::kBFloat16, "warpgroup+rows", "S.acc|Q.acc", "T", 2},
        {"backward", "m=533,n=40,k=24", DType::kBFloat16,
         "parts/rows+warpgroup+warpgroup[stored=H]", "DB.acc", "Y", 1},
        {"waits", "m=512,n=32,k=16", DType::kBFloat16, "warpgroup+tile+rows", "S.acc", "U", 2},
        {"mean_first", "m=540,n=32,k=16", DType::kFloat32, "tile+rows+stream", "A.acc", "T", 3}}) {
    SCOPED_TRACE(absl::StrCat(k.op, " ", NameOf(k.type)));
    const auto program = Made(k.op, k.shape, k.type);
    Target target = *FindTarget("h100");
    target.peak_gflops = 1;  // so that what is computed twice is worth storing
    const auto space = *SearchSpace::Create(program, target);
    const TensorValues inputs = IntegerInputs(*program);
    TensorValues expected = inputs;
    EvaluateAll(*program, expected);
    ForDrawnPoints(space, 4, BesideIn(k.rules, k.sums), inputs,
                   [&](const Program& lowered, const TensorValues& got) {
                     EXPECT_EQ(KernelsWith(lowered, k.tensor), k.kernels);
                     ExpectOutputsNear(*program, expected, got,
                                       k.type == DType::kFloat32 ? 1e-5 : kHalf);
                   });
  }
}

// Sums that wait for one another, themselves or through what they are computed with, are beside
// rows as far as that goes.
TEST(BesideRowsTest, SumsThatWaitForOneAnotherAreNotAllBesideRows) {
  for (const char* op : {"each_waits", "waits_for_companion", "of_sums_of_others"}) {
    SCOPED_TRACE(op);
    const auto program = Made(op, "m=520,n=32,k=4");
    const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
    const TensorValues inputs = IntegerInputs(*program);
    TensorValues expected = inputs;
    EvaluateAll(*program, expected);
    const auto is_beside = [](const std::string& text) {
      return absl::StrContains(text, "[beside=");
    };
    ForDrawnPoints(space, 8, is_beside, inputs, [&](const Program&, const TensorValues& got) {
      ExpectOutputsNear(*program, expected, got, 1e-5);
    });
  }
}

// Those of which another kernel needs what only the first one has, or that needs another one's.
TEST(BesideRowsTest, OthersHaveKernelsOfTheirOwn) {
  for (const char* op : {"read_again", "of_another_sum", "logarithms"}) {
    const auto space = *SearchSpace::Create(Made(op, "m=300,n=48"), *FindTarget("h100"));
    EXPECT_TRUE(DrawnPoints(space, 1, BeginsWith("beside/"), 1, 300).empty()) << op;
  }
}

TEST(BesideRowsTest, StepsThatCannotBeAreRefused) {
  const auto why = [](const char* op, const char* steps) {
    Schedule schedule(Made(op, "m=32,n=32"));
    return std::string(Apply(*ParseSteps(steps), schedule).message());
  };
  EXPECT_THAT(why("activation", "reduce_beside(DB.acc, DX, [i, j], 4, 1)"),
              HasSubstr("axis j is not i, of the same extent, in the order of the leader's"));
  EXPECT_THAT(why("activation", "reduce_beside(DB.acc, DX, [j, i], 33, 1)"),
              HasSubstr("33 of 32 rows for 1 groups are no equal parts"));
  EXPECT_THAT(why("activation", "reduce_beside(DB.acc, DX, [j, i], 6, 4)"),
              HasSubstr("6 of 32 rows for 4 groups are no equal parts"));
  EXPECT_THAT(why("activation",
                  "compute_inline(DX)\nreduce_beside(DB.acc, DX, [j, i], 1, 1)\n"
                  "reduce_beside(DB.acc, DX, [j, i], 1, 1)"),
              HasSubstr("DB.acc has parts already"));
  EXPECT_THAT(why("needed", "reduce_beside(S.acc, Y, [j, i], 4, 1)"), HasSubstr("Y reads S"));
  EXPECT_THAT(why("of_rows", "reduce_beside(S.acc, Y, [i, j], 4, 1)"), HasSubstr("is not"));
  EXPECT_THAT(why("mirrored", "reduce_beside(S.acc, Y, [j, i], 4, 1)"),
              HasSubstr("S.acc reads what is made of Y at another element than its own"));
}

// Loops that do not give each block the rows of one part, and each thread rows outside of columns,
// are refused when they are lowered.
TEST(BesideRowsTest, PartsAreOfWholeBlocks) {
  const auto lowered = [](int rows, const char* order, const char* thread = "j.0") {
    Schedule schedule(Made("activation", "m=32,n=32"));
    const auto steps = ParseSteps(
        absl::StrCat("compute_inline(DX)\nreduce_beside(DB.acc, DX, [j, i], ", rows, R"(, 1)
split(DX, i, [4])
split(DX, j, [2])
reorder(DX, )",
                     order, R"()
bind(DX, i.0, block)
bind(DX, )",
                     thread, R"(, thread)
set_scope(DB.acc, local)
compute_at(DB.acc, DB, j)
)"));
    EXPECT_TRUE(Apply(*steps, schedule).ok());
    return std::string(Lower(schedule).status().message());
  };
  EXPECT_EQ(lowered(4, "[i.0, j.0, i.1, j.1]"), "");
  EXPECT_THAT(lowered(8, "[i.0, j.0, i.1, j.1]"), HasSubstr("DB.acc.parts is of 8 rows of one"));
  EXPECT_THAT(lowered(4, "[i.0, j.0, j.1, i.1]"), HasSubstr("all of its columns for one row"));
  // Threads that have other rows are groups of their own.
  EXPECT_THAT(lowered(4, "[i.0, i.1, j.0, j.1]", "i.1"), HasSubstr("groups of its threads"));
}

}  // namespace
}  // namespace heddle::search_space::beside_rows_test
