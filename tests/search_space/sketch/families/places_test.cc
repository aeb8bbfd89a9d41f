// Products of which what is made of their elements at several places of an axis is stored, such as
// of the gate and what it opens in one matrix: which they are, and what kernels compute.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/schedule/rewrites/axes/split_axis.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::places_test {
namespace {

constexpr const char* kOperators = R"(
op halves(m, k, f) {
  in X[m, k], W[2 * f, k]
  H[i: m, j: 2 * f] = sum(r: k) X[i, r] * W[j, r]
  out Y[i: m, j: f] = max(H[i, j], 0) * H[i, j + f]
}
op halves_of_columns(m, k, f) {
  in X[m, k], W[k, 2 * f], B[2 * f]
  H[i: m, j: 2 * f] = sum(r: k) X[i, r] * W[r, j]
  G[i: m, j: f] = H[i, j] + B[j]
  out Y[i: m, j: f]: float32 = max(G[i, j], 0) - H[i, j + f] * B[j + f]
}
op in_turns(b, m, k, f) {
  in X[b, m, k], W[2 * f, k]
  H[z: b, i: m, j: 2 * f] = sum(r: k) X[z, i, r] * W[j, r]
  out Y[z: b, i: m, j: f] = max(H[z, i, 2 * j], 0) * H[z, i, 2 * j + 1]
}
op experts(e, m, k, f) {
  in X[e, m, k], W[e, 2 * f, k]
  H[z: e, i: m, j: 2 * f] = sum(r: k) X[z, i, r] * W[z, j, r]
  out Y[z: e, i: m, j: f] = max(H[z, i, j], 0) * H[z, i, j + f]
}
op four_gates(m, k, f) {
  in X[m, k], W[4 * f, k], C[m, f]
  H[i: m, j: 4 * f] = sum(r: k) X[i, r] * W[j, r]
  out Y[i: m, j: f] = max(H[i, j], 0) * C[i, j] + max(H[i, j + f], H[i, j + 2 * f]) - H[i, j + 3 * f]
}
op rows(m, k, f) {
  in W[2 * f, k], X[m, k]
  H[j: 2 * f, i: m] = sum(r: k) W[j, r] * X[i, r]
  out Y[j: f, i: m] = max(H[j, i], 0) * H[j + f, i]
}
op rotary(m, k, h, d) {
  in X[m, k], W[h * d, k], C[m, d / 2], N[m, d / 2]
  T[i: m, p: h, x: d] = sum(r: k) X[i, r] * W[p * d + x, r]
  out Y[i: m, p: h, x: d] = T[i, p, x] * C[i, x % (d / 2)]
    + select(x < d / 2, -T[i, p, (x + d / 2) % d], T[i, p, (x + d / 2) % d]) * N[i, x % (d / 2)]
}
op rotary_heads(b, s, k, h, d) {
  in X[b, s, k], W[h, d, k], C[s, d], N[s, d]
  T[z: b, i: s, p: h, x: d] = sum(r: k) X[z, i, r] * W[p, x, r]
  out Y[z: b, p: h, i: s, x: d] = T[z, i, p, x] * C[i, x]
    + select(x < d / 2, -T[z, i, p, x + d / 2], T[z, i, p, x - d / 2]) * N[i, x]
}
op rotary_pairs(m, k, h, d) {
  in X[m, k], W[h * d, k], C[m, d / 2], N[m, d / 2]
  T[i: m, p: h, x: d] = sum(r: k) X[i, r] * W[p * d + x, r]
  out Y[i: m, p: h, x: d] = T[i, p, x] * C[i, x / 2]
    + select(x % 2 < 1, -T[i, p, x / 2 * 2 + (x + 1) % 2], T[i, p, x / 2 * 2 + (x + 1) % 2]) * N[i, x / 2]
}
op biased_halves(m, k, f) {
  in X[m, k], W[2 * f, k], B[2 * f]
  H[i: m, j: 2 * f] = sum(r: k) X[i, r] * W[j, r]
  U[i: m, j: 2 * f] = H[i, j] + B[j]
  out Y[i: m, j: f] = max(U[i, j], 0) * U[i, j + f]
}
op gates(m, k, f) {
  in X[m, k], W[2, f, k]
  H[i: m, g: 2, j: f] = sum(r: k) X[i, r] * W[g, j, r]
  out Y[i: m, j: f] = max(H[i, 0, j], 0) * H[i, 1, j]
}
op cell(m, k, f) {
  in X[m, k], W[4, f, k], B[4, f], C[m, f]: float32
  T[i: m, g: 4, j: f] = sum(r: k) X[i, r] * W[g, j, r]
  U[i: m, g: 4, j: f] = T[i, g, j] + B[g, j]
  N[i: m, j: f] = max(U[i, 0, j], 0) * C[i, j] - max(U[i, 1, j], U[i, 2, j])
  out Y[i: m, j: f] = N[i, j] + U[i, 3, j]
  out D[i: m, j: f]: float32 = N[i, j]
}
op packed_cell(m, k, f) {
  in X[m, k], W[4 * f, k], C[m, f]: float32
  T[i: m, j: 4 * f] = sum(r: k) X[i, r] * W[j, r]
  N[i: m, j: f] = max(T[i, j], 0) * C[i, j] - max(T[i, j + f], T[i, j + 2 * f])
  out D[i: m, j: f]: float32 = N[i, j]
  out Y[i: m, j: f] = N[i, j] + T[i, j + 3 * f]
}
op by_memory(m, k, d) {
  in X[m, k], W[d, k], J[1]: index(2)
  T[i: m, x: d] = sum(r: k) X[i, r] * W[x, r]
  out Y[i: m, x: d] = T[i, x] + T[i, x % (d / 2) + J[0] * (d / 2)]
}
op shorter(m, k, f) {
  in X[m, k], W[2 * f, k]
  H[i: m, j: 2 * f] = sum(r: k) X[i, r] * W[j, r]
  out Y[i: m, j: f / 2] = H[i, j] * H[i, j + f]
}
op shorter_rows(m, k, f) {
  in X[m, k], W[2 * f, k]
  H[i: m, j: 2 * f] = sum(r: k) X[i, r] * W[j, r]
  out Y[i: m / 2, j: f] = max(H[i, j], 0) * H[i, j + f]
}
op others(m, k, f) {
  in X[m, k], W[2 * f, k]
  H[i: m, j: 2 * f] = sum(r: k) X[i, r] * W[j, r]
  I[i: m, j: 2 * f] = sum(r: k) X[i, r] + W[j, r]
  out J[i: m, j: 2 * f] = sum(r: k) X[i, r] * W[j, r]
  M[i: m] = max(j: f) H[i, j] * H[i, j + f]
  out Y[i: m, j: f] = I[i, j] * I[i, j + 1] - M[i]
  out Z[i: m, j: f] = J[i, j] * J[i, j + f]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kBFloat16);
}

std::vector<std::string> PartsOf(const std::string& op, const std::string& shape) {
  std::vector<std::string> parts;
  for (const auto& [stage, axis, width] : AxesReadInParts(*Made(op, shape))) {
    parts.push_back(absl::StrCat(stage, " ", axis, " ", width));
  }
  return parts;
}

TEST(PlacesTest, AxesAreReadInParts) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(PartsOf("halves", "m=4,k=3,f=6"), Parts{"H j 6"});
  EXPECT_EQ(PartsOf("halves_of_columns", "m=4,k=3,f=6"), Parts{"H j 6"});
  EXPECT_EQ(PartsOf("in_turns", "b=2,m=4,k=3,f=6"), Parts{"H j 2"});
  EXPECT_EQ(PartsOf("four_gates", "m=4,k=3,f=6"), Parts{"H j 6"});
  EXPECT_EQ(PartsOf("rows", "m=4,k=3,f=6"), Parts{"H j 6"});
  EXPECT_EQ(PartsOf("biased_halves", "m=4,k=3,f=6"), Parts{"H j 6"});
  EXPECT_EQ(PartsOf("packed_cell", "m=4,k=3,f=6"), Parts{"T j 6"});
  EXPECT_EQ(PartsOf("rotary", "m=4,k=3,h=2,d=8"), Parts{"T x 4"});
  EXPECT_EQ(PartsOf("rotary_heads", "b=1,s=4,k=3,h=2,d=8"), Parts{"T x 4"});
  EXPECT_EQ(PartsOf("rotary_pairs", "m=4,k=3,h=2,d=8"), Parts{"T x 2"});
  EXPECT_EQ(PartsOf("by_memory", "m=4,k=3,d=8"), Parts{});
  // Parts of parts.
  EXPECT_EQ(PartsOf("shorter", "m=8,k=3,f=6"), Parts{});
  // By a reduction, at neighbours, of an output.
  EXPECT_EQ(PartsOf("others", "m=4,k=3,f=6"), Parts{});
}

TEST(PlacesTest, AxesAreReadByNumber) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(ReductionsReadByNumber(*Made("gates", "m=4,k=3,f=6")), Names{"H"});
  EXPECT_EQ(ReductionsReadByNumber(*Made("cell", "m=4,k=3,f=6")), Names{"T"});
  EXPECT_EQ(ReductionsReadByNumber(*Made("halves", "m=4,k=3,f=6")), Names{});
}

// What is stored is as long as the product, along all axes but that of the places.
TEST(PlacesTest, ShorterResultsKeepTheirProduct) {
  const auto space =
      *SearchSpace::Create(Made("shorter_rows", "m=128,k=64,f=64"), *FindTarget("h100"));
  Rng rng(1);
  for (int draw = 0; draw < 50; ++draw) {
    const Point point = *space.Sample(rng);
    EXPECT_TRUE(space.Lower(point).ok()) << space.Print(point);
    EXPECT_FALSE(absl::StrContains(space.Print(point), "places/")) << space.Print(point);
  }
}

// Boxes of tensors whose parts lie in another order than in a tile are copied one by one.
TEST(PlacesTest, BulkCopiesFetchAllParts) {
  const Target target = *FindTarget("h100");
  for (const auto& [op, shape] : {std::pair("halves", "m=70,k=40,f=72"),
                                  {"halves_of_columns", "m=70,k=40,f=72"},
                                  {"in_turns", "b=2,m=70,k=40,f=72"},
                                  {"experts", "e=2,m=70,k=40,f=72"}}) {
    const auto program = Made(op, shape);
    const auto space = *SearchSpace::Create(program, target);
    static constexpr size_t kPoints = 6;
    const auto is_wanted = [](const std::string& text) {
      return absl::StrContains(text, "places/") && absl::StrContains(text, "bulk=1");
    };
    const std::vector<Point> points = DrawnPoints(space, kPoints, is_wanted);
    EXPECT_EQ(points.size(), kPoints) << op;
    for (size_t i = 0; i < points.size(); ++i) {
      SCOPED_TRACE(absl::StrCat(op, " ", space.Print(points[i])));
      const auto lowered = space.Lower(points[i]);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      ASSERT_EQ(Verify(*lowered, target), absl::OkStatus());
      ExpectComputes(*program, *lowered, i + 1);
    }
  }
}

struct Case {
  const char *op, *shape, *device, *like;
};

class Places : public testing::TestWithParam<Case> {};

TEST_P(Places, ComputeTheirProgram) {
  ExpectPointsCompute(Made(GetParam().op, GetParam().shape), *FindTarget(GetParam().device),
                      GetParam().like);
}

INSTANTIATE_TEST_SUITE_P(
    All, Places,
    testing::Values(Case{"halves", "m=70,k=40,f=72", "h100", " places/warpgroup_places"},
                    Case{"halves", "m=40,k=24,f=40", "a100", " places/matrix_places"},
                    Case{"halves_of_columns", "m=70,k=40,f=72", "h100", "warpgroup_places"},
                    Case{"halves_of_columns", "m=40,k=24,f=40", "a100", "matrix_places"},
                    Case{"in_turns", "b=2,m=70,k=40,f=72", "h100", "warpgroup_places"},
                    Case{"in_turns", "b=2,m=40,k=24,f=40", "a100", "matrix_places"},
                    Case{"experts", "e=2,m=70,k=40,f=72", "h100", "warpgroup_places"},
                    Case{"four_gates", "m=70,k=40,f=72", "h100", "warpgroup_places"},
                    Case{"four_gates", "m=40,k=24,f=40", "a100", "matrix_places"},
                    Case{"rows", "m=40,k=40,f=136", "h100", "warpgroup_places"},
                    Case{"biased_halves", "m=70,k=40,f=72", "h100", " places/warpgroup_places"},
                    Case{"biased_halves", "m=40,k=24,f=40", "a100", " places/matrix_places"},
                    Case{"gates", "m=70,k=40,f=72", "h100", " places/warpgroup_places"},
                    Case{"cell", "m=70,k=40,f=72", "h100", " places/warpgroup_places"},
                    Case{"cell", "m=40,k=24,f=40", "a100", " places/matrix_places"},
                    Case{"packed_cell", "m=70,k=40,f=72", "h100", " places/warpgroup_places"},
                    Case{"packed_cell", "m=40,k=24,f=40", "a100", " places/matrix_places"},
                    Case{"rotary", "m=70,k=40,h=2,d=144", "h100", "warpgroup_places"},
                    Case{"rotary", "m=40,k=24,h=2,d=48", "a100", "matrix_places"},
                    Case{"rotary_heads", "b=2,s=70,k=40,h=2,d=128", "h100", "warpgroup_places"},
                    Case{"rotary_pairs", "m=70,k=40,h=2,d=144", "h100", "warpgroup_places"},
                    Case{"rotary_pairs", "m=40,k=24,h=2,d=48", "a100", "matrix_places"}),
    [](const auto& info) {
      return absl::StrCat(info.param.op, "_", info.param.device, "_", info.index);
    });

}  // namespace
}  // namespace heddle::search_space::places_test
