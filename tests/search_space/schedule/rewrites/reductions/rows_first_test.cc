// Reductions over all rows in two: what a program becomes, which are worth it, and that a kernel
// that has the rows computes both.
#include "search_space/schedule/rewrites/reductions/rows_first.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/str_join.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::rows_first_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op squares(m, n) {
  in X[m, n], T[m, n]
  out L[a: 1] = sum(i: m, k: n) (X[i, k] - T[i, k]) * (X[i, k] - T[i, k])
  out G[i: m, k: n] = 2 * (X[i, k] - T[i, k])
}
op cross_entropy(m, n) {
  in X[m, n], T[m]: index(n)
  M[i: m] = max(k: n) X[i, k]
  S[i: m] = sum(k: n) exp((X[i, k] - M[i]) / 4)
  out L[a: 1] = sum(i: m) (log(S[i]) + M[i] - X[i, T[i]]) / m
  out G[i: m, k: n] = exp((X[i, k] - M[i]) / 4) / S[i] - select(T[i] == k, 1, 0)
}
op of_batches(z, m, n) {
  in X[z, m, n]
  out L[p: z] = max(i: m, k: n) abs(X[p, i, k])
  out G[p: z, i: m, k: n] = X[p, i, k] * 0.5
}
op read_again(m, n) {
  in X[m, n]
  out L[a: 1] = sum(i: m, k: n) X[i, k] * X[i, k]
  out N[a: 1] = sqrt(L[0])
  out G[i: m, k: n] = 2 * X[i, k]
}
op reduced_again(m, n) {
  in X[m, n], T[m, n]
  out L[a: 1] = sum(i: m, k: n) X[i, k]
  out N[k: n] = sum(i: m) abs(L[0] / 64 - T[i, k])
  out G[i: m, k: n] = 2 * X[i, k]
}
op moments(m, n) {
  in X[m, n]
  S[a: 1] = sum(i: m, k: n) X[i, k]
  out L[a: 1] = sum(i: m, k: n) (X[i, k] - S[0] / 64) * (X[i, k] - S[0] / 64)
  out N[a: 1] = sum(i: m, k: n) abs(X[i, k] - S[0] / 64)
  out G[i: m, k: n] = 2 * X[i, k]
}
op channels(n, c, h, w) {
  in X[n, c, h, w], T[n, c, h, w], S[c]
  out G[z: n, p: c, y: h, x: w] = T[z, p, y, x] * S[p]
  out B[p: c] = sum(z: n, y: h, x: w) G[z, p, y, x]
  out D[p: c] = max(z: n, y: h, x: w) T[z, p, y, x] * X[z, p, y, x]
}
op of_a_rate(m, n) {
  in X[m, n], Z[m, n], R[1]
  out L[a: 1] = sum(i: m, k: n) Z[i, k] * R[0]
  out G[i: m, k: n] = X[i, k] * R[0]
}
op needed(m, n) {
  in X[m, n]
  L[a: 1] = sum(i: m, k: n) X[i, k] * X[i, k]
  out G[i: m, k: n] = X[i, k] * L[0]
}
op columns(m, n) {
  in X[m, n]
  out B[k: n] = sum(i: m) X[i, k]
  out G[i: m, k: n] = X[i, k] * 0.5
}
op of_others(m, n) {
  in X[m, n], Z[m, n]
  out L[a: 1] = sum(i: m, k: n) Z[i, k] * Z[i, k]
  out G[i: m, k: n] = X[i, k] * 0.5
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kFloat32);
}

std::string Worth(const std::string& op, const std::string& shape) {
  return absl::StrJoin(
      ReductionsBesideRows(*Made(op, shape)), " ",
      [](std::string* out, const RowsFirst& s) { out->append(ToString(Step(s))); });
}

// Does one kernel store a tensor of this name and one whose name ends so?
bool WritesBoth(const Program& lowered, const std::string& name, const std::string& end) {
  return std::any_of(lowered.kernels.begin(), lowered.kernels.end(), [&](const Kernel& kernel) {
    bool has_name = false, has_end = false;
    for (size_t a = 0; a < kernel.arguments.size(); ++a) {
      if (!kernel.written[a]) continue;
      has_name = has_name || kernel.arguments[a]->name == name;
      has_end = has_end || kernel.arguments[a]->name.ends_with(end);
    }
    return has_name && has_end;
  });
}

TEST(RowsFirstTest, AreThoseOverAllRowsOfAnOutput) {
  EXPECT_EQ(Worth("squares", "m=8,n=32"), "rows_first(L, [i])");
  EXPECT_EQ(Worth("cross_entropy", "m=8,n=32"), "rows_first(L, [i])");
  EXPECT_EQ(Worth("of_batches", "z=3,m=8,n=32"), "rows_first(L, [i])");
  EXPECT_EQ(Worth("squares", "m=8,n=4"), "");  // short rows
  // A channel's axis stands between those that number its rows, whatever their extents.
  EXPECT_EQ(Worth("channels", "n=3,c=4,h=5,w=32"),
            "rows_first(B, [z, p, y]) rows_first(D, [z, p, y])");
  EXPECT_EQ(Worth("channels", "n=4,c=4,h=4,w=32"),
            "rows_first(B, [z, p, y]) rows_first(D, [z, p, y])");
  EXPECT_EQ(Worth("needed", "m=8,n=32"), "");
  EXPECT_EQ(Worth("columns", "m=32,n=32"), "");
  EXPECT_EQ(Worth("of_others", "m=8,n=32"), "");
  EXPECT_EQ(Worth("of_a_rate", "m=8,n=32"), "");
}

TEST(RowsFirstTest, ReduceEachRowAndThenAll) {
  const auto made = WithRowsFirst(*Made("squares", "m=8,n=32"), "L", {"i"});
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ((*made)->stages.size(), 3);
  const Stage &rows = (*made)->stages[0], &all = (*made)->stages[1];
  EXPECT_EQ(rows.name(), "L.rows");
  EXPECT_EQ(rows.tensor->shape, std::vector<int64_t>({8}));
  EXPECT_EQ(rows.combiner, Combiner::kSum);
  EXPECT_EQ(ToString(all.body), "L.rows[i]");
  EXPECT_TRUE(all.is_output);
  // Nothing of a row is left to reduce.
  const auto mean = WithRowsFirst(*Made("cross_entropy", "m=8,n=32"), "L", {"i"});
  ASSERT_TRUE(mean.ok()) << mean.status();
  EXPECT_EQ((*mean)->stages[2].combiner, Combiner::kNone);
}

TEST(RowsFirstTest, OtherAxesAreRefused) {
  const auto program = Made("squares", "m=8,n=32");
  EXPECT_THAT(std::string(WithRowsFirst(*program, "L", {"k", "i"}).status().message()),
              HasSubstr("L does not reduce over [k, i], in this order"));
  EXPECT_FALSE(WithRowsFirst(*program, "L", {}).ok());
  EXPECT_FALSE(WithRowsFirst(*Made("channels", "n=3,c=4,h=5,w=24"), "B", {"p"}).ok());
  EXPECT_FALSE(WithRowsFirst(*program, "G", {"i"}).ok());
  const auto once = WithRowsFirst(*program, "L", {"i"});
  EXPECT_THAT(std::string(WithRowsFirst(**once, "L", {"i"}).status().message()),
              HasSubstr("L reduces rows first already"));
}

TEST(RowsFirstTest, OneKernelComputesBothAndAnotherWhatIsLeft) {
  for (const auto& [op, shape] : {std::pair("squares", "m=67,n=48"),
                                  {"cross_entropy", "m=50,n=100"},
                                  {"of_batches", "z=3,m=20,n=64"},
                                  {"read_again", "m=40,n=64"},
                                  {"reduced_again", "m=40,n=64"},
                                  {"moments", "m=40,n=64"},
                                  {"channels", "n=3,c=4,h=5,w=24"}}) {
    const auto program = Made(op, shape);
    const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
    const TensorValues inputs = IntegerInputs(*program);
    TensorValues expected = inputs;
    EvaluateAll(*program, expected);
    ForDrawnPoints(space, 8, BeginsWith("rows_first/"), inputs,
                   [&](const Program& lowered, const TensorValues& got) {
                     EXPECT_TRUE(WritesBoth(lowered, "G", ".rows"));
                     ExpectOutputsNear(*program, expected, got, 1e-5);
                   });
  }
}

}  // namespace
}  // namespace heddle::search_space::rows_first_test
