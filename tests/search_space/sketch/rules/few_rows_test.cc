// A few results of long reductions, whatever these read: threads share each, and have several.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "search_space/check/verify.h"
#include "search_space/ir/stmt.h"
#include "search_space/reference/reference.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::few_rows_test {
namespace {

constexpr const char* kOperators = R"(
op two_places(c, a) {
  in X[c, c, a]
  out Y[i: a] = sum(r: c, q: c) abs(X[r, q, i] - X[r, r, i])
}
op every_third(n) { in X[n, 3] out S[i: 1] = sum(y: n) X[y, 0] }
op neighbours(n) { in X[n] out S[i: 1] = max(y: n / 2) X[2 * y] * X[2 * y + 1] }
op gathered(n, m) { in X[m], I[n]: index(m) out S[i: 1] = sum(y: n) X[I[y]] }
op of_labels(n, c) {
  in X[n, c], L[n]: index(c)
  S[i: 1] = sum(y: n) X[y, L[y]]
  out O[i: 1] = S[i] / n
}
op columns(n) { in X[n, 3] out S[c: 3] = sum(y: n) X[y, c] }
op gram(n, c) { in X[n, c] out S[a: c, b: c] = sum(y: n) X[y, a] * X[y, b] }
op inertia(n) {
  in X[n, 3], M[n]
  out S[a: 3, b: 3] = sum(y: n) M[y] *
      (select(a == b, X[y, 0] * X[y, 0] + X[y, 1] * X[y, 1] + X[y, 2] * X[y, 2], 0) - X[y, a] * X[y, b])
}
op of_batches(z, n) { in X[z, n, 3] out S[b: z, c: 3] = min(y: n) X[b, y, c] }
)";

struct Case {
  const char *op, *shape;
  DType type = DType::kFloat32;
};

std::shared_ptr<const TensorProgram> ProgramOf(const Case& c) {
  return InstantiatedFrom(kOperators, c.op, c.shape, c.type);
}

std::set<std::string> SketchesOf(const Case& c) {
  std::set<std::string> names;
  const auto space = SearchSpace::Create(ProgramOf(c), *FindTarget("h100"));
  EXPECT_TRUE(space.ok()) << space.status();
  Rng rng(1);
  for (int i = 0; i < 30; ++i) {
    const auto point = space->Sample(rng);
    if (!point.has_value()) continue;
    const std::string text = space->Print(*point);
    names.insert(text.substr(0, text.find(':')));
  }
  return names;
}

class FewRows : public testing::TestWithParam<Case> {};

TEST_P(FewRows, ComputeTheirProgram) {
  ExpectPointsCompute(ProgramOf(GetParam()), *FindTarget("h100"), "rows:");
}

INSTANTIATE_TEST_SUITE_P(All, FewRows,
                         testing::Values(Case{"every_third", "n=1000"}, Case{"neighbours", "n=998"},
                                         Case{"gathered", "n=1025,m=40"},
                                         Case{"of_labels", "n=512,c=9"}, Case{"columns", "n=777"},
                                         Case{"columns", "n=777", DType::kBFloat16},
                                         Case{"gram", "n=500,c=3"}, Case{"gram", "n=300,c=5"},
                                         Case{"inertia", "n=640"}, Case{"of_batches", "z=5,n=400"}),
                         [](const auto& info) {
                           return std::string(info.param.op) + std::to_string(info.index);
                         });

// One thread for a million terms, as where each result has its own, is no way to compute them.
TEST(FewRows, AreNeverOneThreadsWork) {
  for (const Case& c : {Case{"every_third", "n=4194304"}, Case{"neighbours", "n=8388608"},
                        Case{"gathered", "n=4194304,m=1048576"}}) {
    EXPECT_EQ(SketchesOf(c), (std::set<std::string>{"rows"})) << c.op;
  }
  EXPECT_EQ(SketchesOf({"gram", "n=2097152,c=3"}), (std::set<std::string>{"rows", "tile"}));
}

// A thread with all results reads what a term has of an input once, in registers; one with some of
// them knows only at run time which elements these are of.
TEST(FewRows, TermsAreReadOnceForAllResults) {
  const auto space = *SearchSpace::Create(ProgramOf({"gram", "n=65536,c=4"}), *FindTarget("h100"));
  const auto reads_once = [&](const std::string& results) {
    const std::string point =
        "rows: threads=256 rows=1 vector=1 hold=0 unroll=1 results=" + results + " split=64";
    const auto lowered = space.Lower(*space.Parse(point));
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_TRUE(Verify(*lowered, space.target()).ok());
    return ToString(lowered->kernels[0]).find("X.local[0, d1]:4 = X[") != std::string::npos;
  };
  EXPECT_TRUE(reads_once("16"));
  EXPECT_FALSE(reads_once("4"));
}

// No register's number would depend on both.
TEST(FewRows, TwoPlacesOfATermHaveNoCopy) {
  const auto program = ProgramOf({"two_places", "c=13,a=4"});
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const TensorValues inputs = IntegerInputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  const auto has_results = [](const std::string& text) {
    return text.find("results=4") != text.npos;
  };
  ForDrawnPoints(space, 6, has_results, inputs, [&](const Program&, const TensorValues& got) {
    EXPECT_EQ(got.at("Y"), expected.at("Y"));
  });
}

// Where the device's threads have results enough, they need not share them.
TEST(FewRows, ManyHaveThreadsOfTheirOwn) {
  EXPECT_EQ(SketchesOf({"of_batches", "z=1048576,n=40"}).count("rows"), 0);
}

}  // namespace
}  // namespace heddle::search_space::few_rows_test
