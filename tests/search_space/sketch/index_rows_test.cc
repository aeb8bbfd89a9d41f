// Tensors of indices that are read as numbers, such as masks and ratings: rows as others are, in
// wide accesses and in registers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::index_rows_test {
namespace {

using ::testing::ContainsRegex;

constexpr const char* kOperators = R"(
op rated(m, n) {
  in K[m, n]: index(7), T[m]
  out S[i: m] = sum(r: n) select(K[i, r] == 2, T[i], K[i, r])
}
op masked(m, n) {
  in X[m, n], K[m, n]: index(2)
  M[i: m] = max(r: n) select(K[i, r] == 1, X[i, r], -100)
  S[i: m] = sum(r: n) select(K[i, r] == 1, X[i, r] - M[i], 0)
  out Y[i: m, j: n] = select(K[i, j] == 1, X[i, j] - S[i], 0)
}
op looked_up(m, n, v) {
  in K[m, n]: index(v), E[v]
  out S[i: m] = sum(r: n) select(K[i, r] == 1, 0, E[K[i, r]])
}
op all(m, n) {
  in K[m, n]: index(9), X[m, n]
  out S[a: 1] = sum(i: m, r: n) select(K[i, r] == 3, 0, X[i, r] * K[i, r])
}
)";

struct Case {
  const char *op, *shape, *like;
};

class IndexRows : public testing::TestWithParam<Case> {};

TEST_P(IndexRows, ComputeTheirProgram) {
  const auto& [op, shape, like] = GetParam();
  ExpectPointsCompute(InstantiatedFrom(kOperators, op, shape, DType::kFloat32), *FindTarget("h100"),
                      like);
}

// Lengths of whole accesses, with a tail of threads, and odd ones.
INSTANTIATE_TEST_SUITE_P(
    All, IndexRows,
    testing::Values(Case{"rated", "m=40,n=256", " rows:"}, Case{"rated", "m=9,n=300", " vector=4"},
                    Case{"rated", "m=9,n=75", " rows:"}, Case{"masked", "m=12,n=128", " hold=1"},
                    Case{"masked", "m=5,n=300", " vector=4"}, Case{"masked", "m=7,n=33", " rows:"},
                    Case{"looked_up", "m=7,n=64,v=12", " rows:"},
                    Case{"all", "m=64,n=100", " rows:"}),
    [](const auto& info) { return absl::StrCat(info.param.op, "_", info.index); });

TEST(IndexRowsTest, AreReadInWideAccesses) {
  const auto program = InstantiatedFrom(kOperators, "masked", "m=64,n=1024", DType::kFloat32);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  for (const char* hold : {"0", "1"}) {
    const auto point =
        space.Parse(absl::StrCat("rows: threads=32 rows=4 vector=4 hold=", hold, " unroll=1"));
    ASSERT_TRUE(point.ok()) << point.status();
    EXPECT_THAT(ToString(*space.Lower(*point)), ContainsRegex(R"(K\.local\[.*\]:4 = .*K\[.*\]:4)"));
  }
}

}  // namespace
}  // namespace heddle::search_space::index_rows_test
