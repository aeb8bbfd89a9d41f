// Rows along several axes, as those of a group's channels and pixels: one kernel of all of it, also
// where something is read along one of the axes alone and where statistics are outputs.
#include "search_space/sketch/families/row_axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/search_space/products.h"

namespace heddle::search_space::row_axes_test {
namespace {

constexpr const char* kOperators = R"(
op group_weights(n, g, c, h, w) {
  in X[n, g, c, h, w], W[g, c]
  M[z: n, p: g] = sum(k: c, y: h, x: w) X[z, p, k, y, x]
  V[z: n, p: g] = max(k: c, y: h, x: w) X[z, p, k, y, x] - M[z, p]
  out Y[z: n, p: g, k: c, y: h, x: w] = X[z, p, k, y, x] * W[p, k] + V[z, p]
}
op group_statistics(n, g, c, h, w) {
  in X[n, g, c, h, w], W[g, c]
  out M[z: n, p: g] = sum(k: c, y: h, x: w) X[z, p, k, y, x]
  V[z: n, p: g] = max(k: c, y: h, x: w) X[z, p, k, y, x] - M[z, p]
  out R[z: n, p: g] = 2 * V[z, p]
  out Y[z: n, p: g, k: c, y: h, x: w] = X[z, p, k, y, x] * W[p, k] + R[z, p]
}
op image_gradients(n, g, h, w) {
  in X[n, g, h, w], G[n, g, h, w], W[g]
  out A[z: n, p: g] = sum(y: h, x: w) G[z, p, y, x]
  out B[z: n, p: g] = sum(y: h, x: w) G[z, p, y, x] * X[z, p, y, x]
  out D[z: n, p: g, y: h, x: w] = W[p] * (G[z, p, y, x] - A[z, p] - X[z, p, y, x] * B[z, p])
}
op rows(n, g) {
  in X[n, g]
  M[z: n] = sum(p: g) X[z, p]
  out Y[z: n, p: g] = X[z, p] - M[z]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kFloat32);
}

TEST(RowAxes, AreAsFewAsWhatIsReadAlongThemAllows) {
  const RowAxes weights = RowsAlongFewerAxes(Made("group_weights", "n=2,g=3,c=4,h=5,w=6"), "Y");
  EXPECT_EQ(weights.name, "merge");
  EXPECT_EQ(ToString(weights.steps),
            "collapse(Y)\nmerge_axes(Y, k, yx)\nmerge_axes(M, k, yx)\nmerge_axes(V, k, yx)\n");
  const RowAxes gradients = RowsAlongFewerAxes(Made("image_gradients", "n=2,g=3,h=5,w=6"), "D");
  EXPECT_EQ(gradients.name, "collapse");
  EXPECT_EQ(ToString(gradients.steps), "collapse(D)\n");
  EXPECT_TRUE(RowsAlongFewerAxes(Made("rows", "n=2,g=3"), "Y").steps.empty());
}

TEST(RowAxes, OneKernelComputesTheDefinition) {
  const Target target = *FindTarget("h100");
  for (const char* op : {"group_weights", "group_statistics"}) {
    SCOPED_TRACE(op);
    ExpectPointsCompute(Made(op, "n=3,g=2,c=3,h=4,w=10"), target, " merge/rows:");
    ExpectPointsCompute(Made(op, "n=3,g=2,c=5,h=3,w=7"), target, " merge/rows:");
  }
  ExpectPointsCompute(Made("image_gradients", "n=3,g=2,h=5,w=7"), target, " collapse/rows:");
}

}  // namespace
}  // namespace heddle::search_space::row_axes_test
