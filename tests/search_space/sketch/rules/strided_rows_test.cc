// Rows along an axis that is not the innermost one: one kernel, in which threads side by side hold
// rows that lie side by side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/lower/lower.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"
#include "tests/golden.h"
#include "tests/search_space/drawn_points.h"

namespace heddle::search_space::strided_rows_test {
namespace {

using ::testing::HasSubstr;

constexpr char kNorm[] =
    "op f(n, c, h, w) { in X[n, c, h, w], G[c] S[b: n, y: h, x: w] = sum(k: c) X[b, k, y, x] "
    "V[b: n, y: h, x: w] = sum(k: c) (X[b, k, y, x] - S[b, y, x] / c) * (X[b, k, y, x] - S[b, y, "
    "x] / c) out Y[b: n, k: c, y: h, x: w] = (X[b, k, y, x] - S[b, y, x] / c) * rsqrt(V[b, y, x] / "
    "c + 0.001) * G[k] }";
// What is elementwise between the reductions is held, too; a bias along the innermost axis alone.
constexpr char kSoftmax[] =
    "op f(n, c, h, w) { in X[n, c, h, w], B[w] M[b: n, y: h, x: w] = max(k: c) X[b, k, y, x] + "
    "B[x] "
    "E[b: n, k: c, y: h, x: w] = exp(X[b, k, y, x] + B[x] - M[b, y, x]) "
    "S[b: n, y: h, x: w] = sum(k: c) E[b, k, y, x] "
    "out Y[b: n, k: c, y: h, x: w] = E[b, k, y, x] / S[b, y, x] }";
// A result for each row; what a mask leaves out; a second input that is read once.
constexpr char kMasked[] =
    "op f(n, c, h, w) { in X[n, c, h, w], W[n, c, h, w] "
    "M[b: n, y: h, x: w] = max(k: c) select(k <= x, X[b, k, y, x], -1.0e30) "
    "S[b: n, y: h, x: w] = sum(k: c) select(k <= x, exp(X[b, k, y, x] - M[b, y, x]) * "
    "W[b, k, y, x], 0) out Y[b: n, y: h, x: w] = log(abs(S[b, y, x]) + 1) + M[b, y, x] }";

// A statistic of the rows that is an output, too.
constexpr char kEntropy[] =
    "op f(n, c, w) { in X[n, c, w] M[b: n, x: w] = max(k: c) X[b, k, x] "
    "S[b: n, x: w] = sum(k: c) exp(X[b, k, x] - M[b, x]) "
    "D[b: n, x: w] = sum(k: c) exp(X[b, k, x] - M[b, x]) * (X[b, k, x] - M[b, x]) "
    "out Y[b: n, k: c, x: w] = exp(X[b, k, x] - M[b, x]) / S[b, x] "
    "out H[b: n, x: w] = log(S[b, x]) - D[b, x] / S[b, x] }";

std::shared_ptr<const TensorProgram> Make(const char* text, const std::string& shape,
                                          DType type = DType::kFloat32) {
  const auto op = ParseOperators(text);
  EXPECT_TRUE(op.ok()) << op.status();
  return std::make_shared<const TensorProgram>(*op->front().Instantiate(*ParseShape(shape), type));
}

TensorValues InputsOf(const TensorProgram& program) {
  TensorValues inputs;
  std::mt19937_64 rng(3);
  for (const BufferRef& input : program.inputs) {
    std::vector<double>& values = inputs[input->name];
    for (int64_t i = 0; i < input->elements; ++i) {
      values.push_back(static_cast<double>(rng() % 33) / 16 - 1);
    }
  }
  return inputs;
}

SearchSpace SpaceOf(const std::shared_ptr<const TensorProgram>& program) {
  auto space = SearchSpace::Create(program, *FindTarget("h100"));
  EXPECT_TRUE(space.ok()) << space.status();
  return *std::move(space);
}

bool IsStrided(const std::string& point) {
  return absl::EndsWith(point.substr(0, point.find(':')), "strided_rows");
}

// Hole "name=" of a point's text.
std::string HoleOf(const std::string& point, const std::string& name) {
  const size_t at = point.find(absl::StrCat(" ", name, "=")) + name.size() + 2;
  return point.substr(at, point.find(' ', at) - at);
}

// Rows of 37 that 16 threads share, 8 of them, which have 4 rows each, side by side: the last
// threads have no last element, and the last block has no last rows.
TEST(StridedRows, AreHeldByThreadsSideBySide) {
  const auto steps = ParseSteps(R"(split(Y, k, [16])
reorder(Y, [b, y, x, k.1, k.0])
fuse(Y, [b, y, x])
split(Y, b@y@x, [8, 4])
reorder(Y, [b@y@x.0, k.1, b@y@x.1, k.0, b@y@x.2])
fuse(Y, [k.1, b@y@x.1])
bind(Y, b@y@x.0, block)
bind(Y, k.1@b@y@x.1, thread)
vectorize(Y, b@y@x.2)
set_scope(V, local)
compute_at(V, Y, k.1@b@y@x.1)
set_scope(V.acc, local)
compute_at(V.acc, Y, k.1@b@y@x.1)
set_scope(S, local)
compute_at(S, Y, k.1@b@y@x.1)
set_scope(S.acc, local)
compute_at(S.acc, Y, k.1@b@y@x.1)
cache_read(X, local, all@Y)
spread(X.local, d1, 16, 1)
compute_at(X.local, Y, k.1@b@y@x.1)
vectorize(X.local, d3)
split(S.acc, k, [16])
reorder(S.acc, [k.0, k.1, b, y, x])
bind(S.acc, k.1, slice_all)
split(V.acc, k, [16])
reorder(V.acc, [k.0, k.1, b, y, x])
bind(V.acc, k.1, slice_all)
)");
  ASSERT_TRUE(steps.ok()) << steps.status();
  const auto lowered = LowerSteps(Make(kNorm, "n=2,c=37,h=9,w=8"), *steps);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  tests::ExpectGolden("loops/strided_rows.txt", ToString(*lowered));
}

struct Case {
  const char* text;
  const char* shape;
  DType type = DType::kFloat32;
};
constexpr Case kCases[] = {
    {kNorm, "n=2,c=37,h=3,w=7"},
    {kNorm, "n=1,c=24,h=5,w=8"},
    {kNorm, "n=3,c=19,h=2,w=16", DType::kBFloat16},
    {kNorm, "n=1,c=40,h=1,w=4"},  // down to one lane
    {kNorm, "n=1,c=40,h=1,w=3"},
    {kNorm, "n=2,c=17,h=12,w=1"},
    {kNorm, "n=5,c=3,h=4,w=12"},
    {kSoftmax, "n=2,c=21,h=3,w=9"},
    {kSoftmax, "n=2,c=40,h=1,w=24"},
    {kSoftmax, "n=1,c=13,h=2,w=24", DType::kFloat16},
    {kMasked, "n=2,c=23,h=3,w=12"},
    {kMasked, "n=1,c=70,h=1,w=33"},
    {kMasked, "n=2,c=9,h=2,w=40", DType::kBFloat16},
    {kEntropy, "n=3,c=21,w=24"},
    {kEntropy, "n=24,c=24,w=24"},
    {kEntropy, "n=2,c=17,w=40", DType::kBFloat16},
};
class StridedRowsTest : public testing::TestWithParam<Case> {};

// `seen`: values of holes that came up.
void ExpectPointsCompute(const Case& c, size_t points, std::set<std::string>& seen) {
  const auto program = Make(c.text, c.shape, c.type);
  const TensorValues inputs = InputsOf(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  const SearchSpace space = SpaceOf(program);
  const double tolerance = c.type == DType::kFloat32 ? 1e-4 : 2e-2;
  const auto is_wanted = [&](const std::string& text) {
    if (!IsStrided(text)) return false;
    for (const char* hole : {"hold", "vector", "unroll", "lanes", "threads"}) {
      seen.insert(absl::StrCat(hole, "=", HoleOf(text, hole)));
    }
    return true;
  };
  ForDrawnPoints(space, points, is_wanted, inputs,
                 [&](const Program& lowered, const TensorValues& values) {
                   ASSERT_EQ(lowered.kernels.size(), 1);
                   for (const char* output : {"Y", "H"}) {
                     if (!expected.contains(output)) continue;
                     for (size_t i = 0; i < expected.at(output).size(); ++i) {
                       const double want = expected.at(output)[i];
                       ASSERT_NEAR(values.at(output)[i], want, tolerance * (1 + std::abs(want)))
                           << output << i << ToString(lowered);
                     }
                   }
                 });
}

TEST_P(StridedRowsTest, PointsComputeTheDefinition) {
  std::set<std::string> seen;
  ExpectPointsCompute(GetParam(), 24, seen);
}
INSTANTIATE_TEST_SUITE_P(Cases, StridedRowsTest, testing::ValuesIn(kCases));

TEST(StridedRows, EveryWayToHoldThemComesUp) {
  std::set<std::string> seen;
  ExpectPointsCompute({kMasked, "n=1,c=61,h=2,w=64"}, 250, seen);
  for (const char* value : {"hold=0", "hold=1", "hold=2", "vector=1", "vector=4", "unroll=4",
                            "lanes=8", "lanes=64", "threads=1", "threads=32"}) {
    EXPECT_TRUE(seen.contains(value)) << value;
  }
}

// The names of the sketches that points are drawn of, and whether the first one is strided rows.
std::set<std::string> SketchesOf(const char* text, const char* shape,
                                 DType type = DType::kFloat32) {
  const SearchSpace space = SpaceOf(Make(text, shape, type));
  Rng rng(2);
  std::set<std::string> names;
  for (int draw = 0; draw < 60; ++draw) {
    const std::string point = space.Print(*space.Sample(rng));
    names.insert(point.substr(0, point.find(':')));
  }
  return names;
}

// The one kernel takes the place of those that read everything once for each stage.
TEST(StridedRows, AreOneKernelWhereABlockHoldsThem) {
  using ::testing::ElementsAre;
  EXPECT_THAT(SketchesOf(kNorm, "n=16,c=192,h=56,w=56"),
              ElementsAre("collapse/strided_rows", "stream+stream+stream"));
  // A bias along the innermost axis keeps the two axes apart.
  EXPECT_THAT(SketchesOf(kSoftmax, "n=16,c=192,h=56,w=56"),
              ElementsAre("stream+stream+stream", "strided_rows"));
}

TEST(StridedRows, AreNoneWhereNothingIsReadAgain) {
  for (const char* text : {
           "op f(n, c, w) { in X[n, c, w] out Y[b: n, x: w] = sum(k: c) X[b, k, x] }",
           // along the innermost axis
           "op f(n, c, w) { in X[n, c, w] M[b: n, k: c] = max(x: w) X[b, k, x] "
           "out Y[b: n, k: c] = sum(x: w) exp(X[b, k, x] - M[b, k]) }",
           // neighbours do not lie side by side
           "op f(n, c, w) { in X[c, n, w, 3] M[b: n, x: w] = max(k: c) X[k, b, x, 1] "
           "out Y[b: n, k: c, x: w] = X[k, b, x, 1] - M[b, x] }",
           // of other rows
           "op f(n, c, w) { in X[n, c, w] M[b: n, x: w] = max(k: c) X[b, k, x] "
           "out Y[b: n, k: c, x: w] = X[b, k, x] - M[b, w - 1 - x] }",
           // two axes are reduced
           "op f(n, c, w) { in X[n, c, w, 32] M[b: n, x: 32] = max(k: c, y: w) X[b, k, y, x] "
           "out Y[b: n, x: 32] = sum(k: c, y: w) exp(X[b, k, y, x] - M[b, x]) }",
       }) {
    for (const std::string& name : SketchesOf(text, "n=4,c=64,w=48")) {
      EXPECT_FALSE(absl::StrContains(name, "strided_rows")) << name << " of " << text;
    }
  }
}

// Eight rows of so many elements are more than half the registers.
TEST(StridedRows, AreNoneWhereNoBlockHoldsThem) {
  const char* text =
      "op f(m, n) { in X[m, n] M[j: n] = max(r: m) X[r, j] "
      "S[j: n] = sum(r: m) exp(X[r, j] - M[j]) out Y[j: n] = log(S[j]) + M[j] }";
  EXPECT_TRUE(SketchesOf(text, "m=4096,n=2048").contains("strided_rows"));
  EXPECT_FALSE(SketchesOf(text, "m=4104,n=2048").contains("strided_rows"));
  EXPECT_FALSE(SketchesOf(text, "m=4096,n=2048", DType::kBFloat16).contains("strided_rows"));
}

// A kernel of a program that other kernels are part of, too: what is normalised is a product.
TEST(StridedRows, ArePartOfLargerPrograms) {
  const auto names = SketchesOf(
      "op f(n, c, p, o) { in X[n, c, p], W[o, c] "
      "T[b: n, k: o, x: p] = sum(r: c) X[b, r, x] * W[k, r] "
      "S[b: n, x: p] = sum(k: o) T[b, k, x] "
      "V[b: n, x: p] = sum(k: o) (T[b, k, x] - S[b, x] / o) * (T[b, k, x] - S[b, x] / o) "
      "out Y[b: n, k: o, x: p] = (T[b, k, x] - S[b, x] / o) * rsqrt(V[b, x] / o + 0.001) }",
      "n=8,c=256,p=1024,o=128");
  bool has = false;
  for (const std::string& name : names) {
    has = has || absl::StrContains(name, "+strided_rows[merged=");
  }
  EXPECT_TRUE(has) << testing::PrintToString(names);
}

// What another thread of the column holds cannot be read.
TEST(StridedRows, ReadsOfOtherThreadsAreRefused) {
  const auto program = Make(kNorm, "n=2,c=37,h=9,w=8");
  const SearchSpace space = SpaceOf(program);
  const auto point =
      space.Parse("collapse/strided_rows: threads=16 lanes=8 vector=1 hold=1 unroll=1");
  ASSERT_TRUE(point.ok()) << point.status();
  std::string steps = ToString(*space.Steps(*point));
  const std::string mine = "split(S.acc, k, [16])";
  ASSERT_NE(steps.find(mine), std::string::npos) << steps;
  steps.replace(steps.find(mine), mine.size(), "split(S.acc, k, [8])");
  EXPECT_THAT(std::string(LowerSteps(program, *ParseSteps(steps)).status().message()),
              HasSubstr("is read by another thread than the one that holds it"));
}

}  // namespace
}  // namespace heddle::search_space::strided_rows_test
