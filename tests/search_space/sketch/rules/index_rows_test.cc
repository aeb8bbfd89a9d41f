// Tensors of indices that are read as numbers, such as masks and ratings: rows as others are, in
// wide accesses and in registers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "search_space/lower/lower.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::index_rows_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

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

// Threads share what they fetch of labels: a barrier stands between.
TEST(IndexRowsTest, AreSharedByThreads) {
  const auto program = InstantiatedFrom(kOperators, "rated", "m=8,n=64", DType::kFloat32);
  Schedule schedule(program);
  const auto steps = ParseSteps(R"(
    bind(S, i, thread)
    set_scope(S.acc, local)
    compute_at(S.acc, S, i)
    split(S.acc, r, [8])
    cache_read(K, shared, S.acc)
    compute_at(K.shared, S.acc, r.0)
    fetch(K.shared, 8, 1)
  )");
  ASSERT_TRUE(steps.ok()) << steps.status();
  for (const Step& step : *steps) {
    const absl::Status applied = Apply(step, schedule);
    ASSERT_TRUE(applied.ok()) << applied;
  }
  const auto lowered = Lower(schedule);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_THAT(ToString(*lowered), HasSubstr("shared int32 K.shared"));
  EXPECT_THAT(ToString(*lowered), HasSubstr("barrier"));
  ExpectComputes(*program, *lowered, 1);
}

TEST(IndexRowsTest, WhatSaysWhereOthersAreReadIsNotCopied) {
  const auto program = InstantiatedFrom(kOperators, "looked_up", "m=8,n=64,v=9", DType::kFloat32);
  Schedule schedule(program);
  const absl::Status copied = Apply(Step(CacheRead{"K", Scope::kLocal, "S.acc"}), schedule);
  EXPECT_THAT(std::string(copied.message()), HasSubstr("says where others are read"));
}

}  // namespace
}  // namespace heddle::search_space::index_rows_test
