// Reductions over rows beside what is made of these, in one pass over few long rows.
#include "search_space/sketch/families/one_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/reference/reference.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::one_pass_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kOperators = R"(
op of_each(b, n) {
  in X[b, n], V[b, n], W[b]
  D[z: b, i: n] = V[z, i] - X[z, i]
  S[z: b] = sum(i: n) D[z, i] * D[z, i]
  out L[z: b]: float32 = W[z] * S[z] / n
  out G[z: b, i: n] = 2 * W[z] * D[z, i]
}
op of_all(n) {
  in X[n]
  out L[a: 1] = sum(i: n) X[i] * X[i]
  out G[i: n] = 2 * X[i]
}
op divided(b, n) {
  in X[b, n]
  S[z: b] = sum(i: n) X[z, i]
  out L[z: b] = 2 * S[z]
  out G[z: b, i: n] = X[z, i] / S[z]
}
)";

constexpr const char* kGradients = R"(
op of_images(n, c, h, w) {
  in X[n, c, h, w], G[n, c, h, w], W[c]
  A[z: n, k: c] = sum(y: h, x: w) G[z, k, y, x]
  B[z: n, k: c] = sum(y: h, x: w) G[z, k, y, x] * X[z, k, y, x]
  out D[z: n, k: c, y: h, x: w] = W[k] * (G[z, k, y, x] - (A[z, k] + X[z, k, y, x] * B[z, k]) / 16)
  out DW[k: c] = sum(z: n) B[z, k]
  out DB[k: c] = sum(z: n) A[z, k]
}
op of_rows(m, n) {
  in X[m, n], G[m, n]
  A[i: m] = sum(j: n) G[i, j] * X[i, j]
  out D[i: m, j: n] = G[i, j] - X[i, j] * A[i] / 16
  out T[a: 1] = sum(i: m) A[i] * A[i]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kFloat32);
}

// The ways that sketches' names begin with.
std::set<std::string> Ways(const std::string& op, const std::string& shape) {
  std::vector<Sketch> sketches;
  AddRowsFirst(Made(op, shape), *FindTarget("h100"), sketches);
  std::set<std::string> ways;
  for (const Sketch& sketch : sketches) {
    if (sketch.name.starts_with("row_parts[")) {
      ways.insert(sketch.name.substr(0, sketch.name.find('/')));
    }
  }
  return ways;
}

TEST(BesideLongRowsTest, FewLongRowsAreManyShorterOnes) {
  EXPECT_THAT(Ways("of_each", "b=264,n=8192"),
              ElementsAre("row_parts[1024]+rows_first", "row_parts[4096]+rows_first"));
  EXPECT_THAT(Ways("of_all", "n=9216"), ElementsAre("row_parts[1024]+rows_first"));
  EXPECT_THAT(Ways("of_each", "b=265,n=8192"), IsEmpty());  // are enough for the device
  EXPECT_THAT(Ways("of_each", "b=2,n=4096"), IsEmpty());
  EXPECT_THAT(Ways("of_each", "b=2,n=9000"), IsEmpty());  // no whole parts
  EXPECT_THAT(Ways("divided", "b=2,n=8192"), IsEmpty());  // waits for the sum
}

class BesideLongRows : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(BesideLongRows, ReadsRowsOnce) {
  const auto program = Made(GetParam().first, GetParam().second);
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const TensorValues inputs = IntegerInputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  ForDrawnPoints(space, 4, BeginsWith("row_parts["), inputs,
                 [&](const Program& lowered, const TensorValues& got) {
                   const auto reads = [](const Kernel& k) {
                     return std::any_of(k.arguments.begin(), k.arguments.end(),
                                        [](const BufferRef& b) { return b->name == "X"; });
                   };
                   EXPECT_EQ(std::count_if(lowered.kernels.begin(), lowered.kernels.end(), reads),
                             1);
                   ExpectOutputsNear(*program, expected, got, 1e-5);
                 });
}

INSTANTIATE_TEST_SUITE_P(All, BesideLongRows,
                         testing::Values(std::pair("of_each", "b=3,n=8192"),
                                         std::pair("of_all", "n=9216")),
                         [](const auto& info) { return info.param.first; });

// What rows' gradients are made of is stored beside them for those who reduce it over the rows.
TEST(StatisticsOfRowsTest, AreStoredByTheRowsKernel) {
  const Target target = *FindTarget("h100");
  for (const auto& [op, shape] :
       {std::pair("of_images", "n=3,c=2,h=4,w=5"), std::pair("of_images", "n=2,c=3,h=1,w=19"),
        std::pair("of_images", "n=3,c=3,h=4,w=5"), std::pair("of_rows", "m=5,n=40")}) {
    SCOPED_TRACE(op);
    const auto program = InstantiatedFrom(kGradients, op, shape, DType::kFloat32);
    ExpectPointsCompute(program, target, " rows_first/rows+");
    const auto space = *SearchSpace::Create(program, target);
    for (const Point& point : DrawnPoints(space, 2, BeginsWith("rows_first/rows+"))) {
      const Program lowered = *space.Lower(point);
      const auto reads = [](const Kernel& k) {
        return std::any_of(k.arguments.begin(), k.arguments.end(),
                           [](const BufferRef& b) { return b->name == "G"; });
      };
      EXPECT_EQ(std::count_if(lowered.kernels.begin(), lowered.kernels.end(), reads), 1);
    }
  }
}

}  // namespace
}  // namespace heddle::search_space::one_pass_test
