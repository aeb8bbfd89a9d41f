// Products over the positions of windows: that their schedules compute the definition.
#include <gtest/gtest.h>

#include <string>

#include "search_space/sketch/programs/algorithms.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::flatten_test {
namespace {

constexpr char kOperators[] = R"(
op channels_first(n, h, w, ci, co) {
  in X[n, ci, h + 2, w + 2], W[co, ci, 3, 3]
  out Y[b: n, o: co, y: h, x: w] = sum(c: ci, r: 3, s: 3) X[b, c, y + r, x + s] * W[o, c, r, s]
}
op channels_last(n, h, w, ci, co) {
  in X[n, h + 2, w + 2, ci], W[co, 3, 3, ci], B[co], R[n, h, w, co]
  C[b: n, y: h, x: w, o: co] = sum(r: 3, s: 3, c: ci) X[b, y + r, x + s, c] * W[o, r, s, c]
  out Y[b: n, y: h, x: w, o: co] = max(C[b, y, x, o] + B[o], 0) + R[b, y, x, o]
}
op along_a_line(n, l, ci, co) {
  in X[n, l + 4, ci], W[co, 3, ci]
  out Y[b: n, i: l, o: co] = sum(r: 3, c: ci) X[b, i + 2*r, c] * W[o, r, c]
}
op small_windows(n, h, w, ci, co, k) {
  in X[n, h*2 + k - 2, w*2 + k - 2, ci], W[co, k, k, ci], B[co]
  C[b: n, y: h, x: w, o: co] = sum(r: k, s: k, c: ci) X[b, y*2 + r, x*2 + s, c] * W[o, r, s, c]
  out Y[b: n, y: h, x: w, o: co] = max(C[b, y, x, o] + B[o], 0)
}
op weight_gradient(n, ci, co, h, w) {
  in X[n, ci, h + 2, w + 2], D[n, co, h, w]
  out G[o: co, c: ci, r: 3, s: 3] = sum(b: n, y: h, x: w) X[b, c, y + r, x + s] * D[b, o, y, x]
}
op patches(n, h, w, o) {
  in X[n, 3, 4 * h, 4 * w], G[n, h * w, o]
  out D[q: o, c: 3, r: 4, s: 4] = sum(z: n, y: h, x: w) G[z, y * w + x, q] * X[z, c, 4 * y + r, 4 * x + s]
}
op heads(b, h, s, d) {
  in Q[b, s, h, d], K[b, s, h, d]
  out T[z: b, p: h, i: s, j: s] = sum(r: d) Q[z, i, p, r] * K[z, j, p, r]
}
)";

struct Case {
  const char* name;
  const char* op;
  const char* shape;
  DType type;
  const char* target;
};

class FlattenedPoints : public testing::TestWithParam<Case> {};

TEST_P(FlattenedPoints, ComputeTheDefinition) {
  const Case& c = GetParam();
  ExpectPointsCompute(InstantiatedFrom(kOperators, c.op, c.shape, c.type), *FindTarget(c.target),
                      " flatten");
}

constexpr Case kCases[] = {
    {"channels_last", "channels_last", "n=2,h=5,w=7,ci=16,co=24", DType::kBFloat16, "h100"},
    {"of_warps", "channels_last", "n=2,h=5,w=7,ci=16,co=24", DType::kFloat16, "a100"},
    {"in_tf32", "channels_last", "n=3,h=3,w=5,ci=12,co=9", DType::kTF32, "h100"},
    {"channels_first", "channels_first", "n=2,h=5,w=9,ci=24,co=17", DType::kBFloat16, "h100"},
    {"one_image", "channels_last", "n=1,h=9,w=11,ci=16,co=8", DType::kFloat16, "h100"},
    {"padded", "conv2d_nhwc", "n=2,ci=16,h=6,w=5,co=24,kh=3,kw=3,pad=1", DType::kBFloat16, "h100"},
    {"strided", "conv2d_nhwc", "n=2,ci=16,h=9,w=7,co=8,kh=3,kw=3,stride=2,pad=1", DType::kBFloat16,
     "h100"},
    {"with_bias", "conv2d_bias_relu", "n=2,ci=16,h=5,w=7,co=9,kh=3,kw=3,pad=1", DType::kFloat16,
     "h100"},
    {"small_windows", "small_windows", "n=2,h=5,w=7,ci=3,co=24,k=7", DType::kBFloat16, "h100"},
    {"small_windows_of_warps", "small_windows", "n=2,h=3,w=5,ci=3,co=17,k=3", DType::kFloat16,
     "a100"},
    {"small_windows_in_tf32", "small_windows", "n=1,h=5,w=5,ci=3,co=16,k=3", DType::kTF32, "h100"},
    {"first_layer", "conv2d_bias_relu", "n=2,ci=3,h=9,w=8,co=16,kh=5,kw=5,stride=2,pad=2",
     DType::kBFloat16, "h100"},
    {"along_a_line", "along_a_line", "n=3,l=21,ci=16,co=16", DType::kBFloat16, "h100"},
    {"patches", "patches", "n=16,h=3,w=5,o=24", DType::kBFloat16, "h100"},
    {"patches_of_warps", "patches", "n=16,h=2,w=2,o=16", DType::kFloat16, "a100"},
    {"weight_gradient", "weight_gradient", "n=16,h=3,w=5,ci=8,co=16", DType::kBFloat16, "h100"},
};

INSTANTIATE_TEST_SUITE_P(Operators, FlattenedPoints, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// Heads are no places of one factor alone.
TEST(FlattenTest, BatchesStayAxes) {
  const auto program = InstantiatedFrom(kOperators, "heads", "b=2,h=4,s=32,d=16", DType::kBFloat16);
  for (const Algorithm& algorithm : AlgorithmsOf(program)) EXPECT_NE(algorithm.name, "flatten");
}

// Only units for matrices take positions as rows: others tile images both ways.
TEST(FlattenTest, IsForUnitsForMatrices) {
  const auto sketches_of = [](DType type, const char* target) {
    const auto space = SearchSpace::Create(
        InstantiatedFrom(kOperators, "channels_last", "n=2,h=16,w=16,ci=32,co=32", type),
        *FindTarget(target));
    return space->Parse("flatten/warpgroup:").status().message().find("no sketch") ==
           std::string::npos;
  };
  EXPECT_TRUE(sketches_of(DType::kBFloat16, "h100"));
  EXPECT_FALSE(sketches_of(DType::kFloat32, "h100"));
  EXPECT_FALSE(sketches_of(DType::kBFloat16, "cpu"));
}

}  // namespace
}  // namespace heddle::search_space::flatten_test
