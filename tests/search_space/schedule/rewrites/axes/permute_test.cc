// Stages with their axes in the order in which they are read: of which that is found, what a
// program becomes, and which orders are refused.
#include "search_space/schedule/rewrites/axes/permute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/schedule/step.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::permute_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kOperators = R"(
op heads_last(b, h, s, d) {
  in E[b, h, s, s], V[b, s, h, d], L[b, h, s]
  O[z: b, p: h, i: s, x: d] = sum(r: s) E[z, p, i, r] * V[z, r, p, x]
  out Y[z: b, i: s, p: h, x: d] = O[z, p, i, x] * L[z, p, i]
}
op one_behind_the_other(m, n, k) {
  in A[m, n, k]
  S[i: m, j: n, l: k] = A[i, j, l] * 2
  T[l: k, i: m, j: n] = S[i, j, l] + 1
  out Y[j: n, l: k, i: m] = T[l, i, j]
}
op heads_normalised(b, h, s, d) {
  in E[b, h, s, s], V[b, s, h, d]
  O[z: b, p: h, i: s, x: d] = sum(r: s) E[z, p, i, r] * V[z, r, p, x]
  S[z: b, p: h, i: s] = sum(x: d) O[z, p, i, x] * O[z, p, i, x]
  N[z: b, p: h, i: s] = S[z, p, i] + 1
  out Y[z: b, i: s, p: h, x: d] = O[z, p, i, x] * N[z, p, i]
}
op rows_of_input(b, h, s) {
  in X[b, h, s, s]
  M[z: b, p: h, i: s] = max(j: s) X[z, p, i, j]
  out Y[z: b, i: s, p: h, j: s] = X[z, p, i, j] - M[z, p, i]
}
op rows_of_factor(b, h, s, d) {
  in X[b, h, s, s], V[b, s, h, d]
  E[z: b, p: h, i: s, j: s] = X[z, p, i, j] * X[z, p, i, j]
  L[z: b, p: h, i: s] = sum(j: s) E[z, p, i, j]
  O[z: b, p: h, i: s, x: d] = sum(r: s) E[z, p, i, r] * V[z, r, p, x]
  out Y[z: b, i: s, p: h, x: d] = O[z, p, i, x] + L[z, p, i]
}
op columns(m) {
  in A[m, m, m]
  U[i: m, j: m] = A[i, j, 0]
  M[i: m] = max(r: m) U[r, i]
  out Y[i: m, j: m] = U[j, i] - M[i]
}
op two_of_one_image(n, c, h, w, k) {
  in X[n, c, h, w], U[k, 3, c], V[k, 3, c]
  P[z: n, r: c, y: h, x: w + 2] = select(x >= 1 && x <= w, X[z, r, y, x - 1], 0)
  S[z: n, q: k, y: h, x: w] = sum(r: c, e: 3) P[z, r, y, x + e] * U[q, e, r]
  T[z: n, q: k, y: h, x: w] = sum(r: c, e: 3) P[z, r, y, x + e] * V[q, e, r]
  out Y[z: n, q: k, y: h, x: w] = S[z, q, y, x] * sigmoid(T[z, q, y, x])
}
op one_of_an_image(n, c, w, k) {
  in X[n, c, w], U[k, c, 3]
  P[z: n, r: c, x: w + 2] = select(x >= 1 && x <= w, X[z, r, x - 1], 0)
  out Y[z: n, q: k, x: w] = sum(r: c, e: 3) P[z, r, x + e] * U[q, r, e]
}
op image_read_again(n, c, w, k) {
  in X[n, c, w], U[k, c, 3], V[k, c, 3]
  P[z: n, r: c, x: w + 2] = select(x >= 1 && x <= w, X[z, r, x - 1], 0)
  S[z: n, q: k, x: w] = sum(r: c, e: 3) P[z, r, x + e] * U[q, r, e]
  T[z: n, q: k, x: w] = sum(r: c, e: 3) P[z, r, x + e] * V[q, r, e]
  out Y[z: n, q: k, x: w] = S[z, q, x] * T[z, q, x] + P[z, q, x]
}
op gates(b, h, s, d) {
  in X[b, h, s, d], A[b, s, d], W[h, d]
  G[z: b, p: h, i: s] = sum(r: d) A[z, i, r] * W[p, r]
  out Y[z: b, i: s, p: h, x: d] = X[z, p, i, x] * G[z, p, i]
}
op other_orders(m) {
  in A[m, m, m]
  S[i: m, j: m] = sum(r: m) A[i, j, r]
  T[i: m, j: m] = sum(r: m) A[j, i, r]
  U[i: m, j: m] = A[i, j, 0]
  W[i: m, j: m] = A[i, j, 1]
  M[i: m] = max(r: m) U[i, r]
  out Y[i: m, j: m] = S[j, i] + S[i, j] + U[j, i] + W[j, j]
  out Z[i: m, j: m] = Y[j, i] + T[i, j] + M[i]
}
)";

TensorProgram Made(const std::string& op, const std::string& shape) {
  return *InstantiatedFrom(kOperators, op, shape, DType::kFloat32);
}

std::vector<std::string> OrdersOf(const TensorProgram& program) {
  std::vector<std::string> orders;
  for (const auto& [stage, axes] : OrdersOfReaders(program)) {
    orders.push_back(absl::StrCat(stage, ": ", absl::StrJoin(axes, " ")));
  }
  return orders;
}

TensorProgram InOrder(const TensorProgram& program) {
  TensorProgram permuted = program;
  for (const auto& [stage, axes] : OrdersOfReaders(program)) {
    permuted = **WithPermutedAxes(permuted, stage, axes);
  }
  return permuted;
}

TEST(PermuteTest, AxesGoAsTheyAreRead) {
  EXPECT_THAT(OrdersOf(Made("heads_last", "b=2,h=3,s=4,d=5")), ElementsAre("O: z i p x"));
  EXPECT_THAT(OrdersOf(Made("heads_last", "b=1,h=3,s=4,d=5")), ElementsAre("O: z i p x"));
  EXPECT_THAT(OrdersOf(Made("one_behind_the_other", "m=2,n=3,k=4")),
              ElementsAre("T: j l i", "S: j l i"));
  // What has no axis for the columns, and what that is reduced of.
  EXPECT_THAT(OrdersOf(Made("heads_normalised", "b=2,h=3,s=4,d=5")),
              ElementsAre("N: z i p", "S: z i p", "O: z i p x"));
  EXPECT_THAT(OrdersOf(Made("rows_of_input", "b=2,h=3,s=4")), ElementsAre("M: z i p"));
  EXPECT_THAT(OrdersOf(Made("columns", "m=3")), ElementsAre("U: j i"));
  // Factors of products keep their order, and so does what is reduced of them; results of products
  // that have fewer axes do, too.
  EXPECT_THAT(OrdersOf(Made("rows_of_factor", "b=2,h=3,s=4,d=5")), ElementsAre("O: z i p x"));
  EXPECT_THAT(OrdersOf(Made("gates", "b=2,h=3,s=4,d=5")), IsEmpty());
  // Orders that differ, elements beside the own one, reductions of others, and outputs.
  EXPECT_THAT(OrdersOf(Made("other_orders", "m=3")), IsEmpty());
}

TEST(PermuteTest, ComputesTheSame) {
  for (const auto& [op, shape] : {std::pair("heads_last", "b=2,h=3,s=4,d=5"),
                                  {"one_behind_the_other", "m=2,n=3,k=4"},
                                  {"heads_normalised", "b=2,h=3,s=4,d=5"},
                                  {"rows_of_input", "b=2,h=3,s=4"},
                                  {"columns", "m=3"},
                                  {"rows_of_factor", "b=2,h=3,s=4,d=5"}}) {
    SCOPED_TRACE(op);
    const TensorProgram program = Made(op, shape), permuted = InOrder(program);
    EXPECT_THAT(OrdersOf(permuted), IsEmpty());
    TensorValues expected = IntegerInputs(program), got = expected;
    EvaluateAll(program, expected);
    EvaluateAll(permuted, got);
    EXPECT_EQ(got.at("Y"), expected.at("Y"));
  }
}

TEST(PermuteTest, WindowsOfSeveralHaveTheirTermsLast) {
  const auto worth = [](const std::string& op, const std::string& shape, DType type) {
    std::string all;
    for (const auto& [stage, axes] :
         OrdersOfWindows(*InstantiatedFrom(kOperators, op, shape, type)))
      absl::StrAppend(&all, stage, ": ", absl::StrJoin(axes, " "), ";");
    return all;
  };
  const char* image = "n=2,c=16,h=3,w=9,k=16";
  EXPECT_EQ(worth("two_of_one_image", image, DType::kFloat16), "P: z y x r;");
  EXPECT_EQ(worth("two_of_one_image", image, DType::kFloat32), "");
  EXPECT_EQ(worth("two_of_one_image", "n=2,c=8,h=3,w=9,k=16", DType::kFloat16), "");  // few terms
  const char* shape = "n=2,c=16,w=9,k=16";
  EXPECT_EQ(worth("one_of_an_image", shape, DType::kFloat16), "");
  EXPECT_EQ(worth("image_read_again", shape, DType::kFloat16), "");
  const auto program = InstantiatedFrom(kOperators, "two_of_one_image", image, DType::kFloat16);
  EXPECT_THAT(StagesOfSharedWindows(*program), ElementsAre("P"));
  const auto permuted = WithPermutedAxes(*program, "P", {"z", "y", "x", "r"});
  ASSERT_TRUE(permuted.ok()) << permuted.status();
  EXPECT_THAT(StagesOfSharedWindows(**permuted), ElementsAre("P"));
  EXPECT_TRUE(OrdersOfWindows(**permuted).empty());
}

// Channels of what several products read, or of what is made of one for another, where a channel's
// rows end inside vectors.
TEST(PermuteTest, TermsOfProductsAreLastWhereRowsEndInsideVectors) {
  constexpr char kLayers[] = R"(
    op gated(b, c, l) {
      in X[b, c, l], R[b, c, l], U[c, c], V[c, c], W[c, c]
      H[z: b, k: c, i: l]: float16 = X[z, k, i] + R[z, k, i]
      P[z: b, k: c, i: l] = sum(r: c) H[z, r, i] * U[k, r]
      Q[z: b, k: c, i: l] = sum(r: c) H[z, r, i] * V[k, r]
      G[z: b, k: c, i: l]: float16 = max(P[z, k, i], Q[z, k, i])
      out Y[z: b, q: c, i: l] = sum(r: c) G[z, r, i] * W[q, r]
    }
    op one_reader(b, c, l) {
      in X[b, c, l], R[b, c, l], W[c, c]
      H[z: b, k: c, i: l]: float16 = X[z, k, i] + R[z, k, i]
      out Y[z: b, q: c, i: l] = sum(r: c) H[z, r, i] * W[q, r]
    }
    op read_otherwise(b, c, l) {
      in X[b, c, l], R[b, c, l], W[c, c]
      H[z: b, k: c, i: l]: float16 = X[z, k, i] + R[z, k, i]
      T[z: b, q: c, i: l] = sum(r: c) H[z, r, i] * W[q, r]
      out Y[z: b, q: c, i: l] = T[z, q, i] + H[z, q, i]
    })";
  const auto orders = [&](const char* op, const char* shape, DType type) {
    std::string all;
    for (const auto& [stage, axes] : OrdersOfTerms(*InstantiatedFrom(kLayers, op, shape, type))) {
      absl::StrAppend(&all, stage, ": ", absl::StrJoin(axes, " "), ";");
    }
    return all;
  };
  EXPECT_EQ(orders("gated", "b=2,c=16,l=21", DType::kFloat16), "H: z i k;G: z i k;");
  EXPECT_EQ(orders("gated", "b=2,c=16,l=24", DType::kFloat16), "");
  EXPECT_EQ(orders("gated", "b=2,c=20,l=21", DType::kFloat16), "");
  EXPECT_EQ(orders("one_reader", "b=2,c=16,l=21", DType::kFloat16), "");
  EXPECT_EQ(orders("read_otherwise", "b=2,c=16,l=21", DType::kFloat16), "");
  const auto program = InstantiatedFrom(kLayers, "gated", "b=2,c=16,l=21", DType::kFloat16);
  ExpectFormComputes(program);
  ExpectPointsCompute(program, *FindTarget("h100"), "matrix+");
}

TEST(PermuteTest, WindowsOfSeveralAreStoredOnce) {
  const auto program =
      InstantiatedFrom(kOperators, "two_of_one_image", "n=1,c=16,h=5,w=18,k=16", DType::kFloat16);
  ExpectFormComputes(program);
  ExpectPointsCompute(program, *FindTarget("h100"), " flatten/");
  // It is stored: a copy for each convolution would have each place as often as windows do.
  const auto larger =
      InstantiatedFrom(kOperators, "two_of_one_image", "n=2,c=64,h=28,w=56,k=64", DType::kFloat16);
  const SearchSpace space = *SearchSpace::Create(larger, *FindTarget("h100"));
  for (const Point& point : DrawnPoints(space, 200, [](const std::string&) { return true; })) {
    EXPECT_FALSE(absl::StrContains(space.Print(point), "[P|P]")) << space.Print(point);
  }
}

TEST(PermuteTest, OtherOrdersAreRefused) {
  const TensorProgram program = Made("heads_last", "b=2,h=3,s=4,d=5");
  const auto refusal = [&](const std::string& stage, const std::vector<std::string>& axes) {
    return std::string(WithPermutedAxes(program, stage, axes).status().message());
  };
  EXPECT_EQ(refusal("O", {"x", "z", "i", "p"}), "");
  EXPECT_THAT(refusal("Y", {"z", "p", "i", "x"}), HasSubstr("Y is an output"));
  EXPECT_THAT(refusal("Q", {"z"}), HasSubstr("Q is no stage of heads_last"));
  for (const std::vector<std::string>& axes : {std::vector<std::string>{"z", "i", "p"},
                                               {"z", "i", "p", "p"},
                                               {"z", "i", "p", "r"},
                                               {"z", "i", "p", "x", "x"}}) {
    EXPECT_THAT(refusal("O", axes),
                HasSubstr("the axes of O are z, p, i, x, each of which is named once"))
        << absl::StrJoin(axes, " ");
  }
}

// A sum's result goes to memory once, in the kernel of the sum, whatever the order there.
TEST(PermuteTest, ResultsAreStoredByTheKernelOfTheirSum) {
  const auto program =
      std::make_shared<const TensorProgram>(Made("heads_last", "b=2,h=8,s=64,d=64"));
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  EXPECT_EQ(space.Lower(space.Default())->kernels.size(), 1);
  const std::vector<Step> steps = *space.Steps(space.Default());
  EXPECT_EQ(ToString(steps.at(0)), "permute(O, [z, i, p, x])");
}

TEST(PermuteTest, ProductsOfChannelsAreStoredOneByOne) {
  constexpr const char* kChannels = R"(
    op channels(n, c) {
      in P[n, n, c], Q[n, n, c], O[n, n, c]
      T[i: n, j: n, x: c] = sum(k: n) P[i, k, x] * Q[j, k, x]
      out Y[i: n, j: n, x: c] = T[i, j, x] * O[i, j, x]
    }
    op is_output(n, c) {
      in P[n, n, c], Q[n, n, c]
      out T[i: n, j: n, x: c] = sum(k: n) P[i, k, x] * Q[j, k, x]
    }
    op batches(n, c) {
      in P[c, n, n], Q[c, n, n]
      T[x: c, i: n, j: n] = sum(k: n) P[x, i, k] * Q[x, j, k]
      out Y[x: c, i: n, j: n] = T[x, i, j] * 2
    }
    op depthwise(n, c) {
      in X[n + 2, c], F[c, 3]
      T[i: n, x: c] = sum(k: 3) X[i + k, x] * F[x, k]
      out Y[i: n, x: c] = max(T[i, x], 0)
    }
    op windows(n, c) {
      in X[n + 2, n, c], F[n, n, 3, c]
      T[i: n, j: n, x: c] = sum(k: n, r: 3) X[i + r, k, x] * F[j, k, r, x]
      out Y[i: n, j: n, x: c] = max(T[i, j, x], 0)
    }
    op phases(n, c) {
      in P[n, n, c + 1], Q[n, n, 4]
      T[i: n, j: n, x: 2 * c] = sum(k: n, r: 2) P[i, k, x / 2 + r] * Q[j, k, x % 2 + 2 * r]
      out Y[i: n, j: n, x: 2 * c] = max(T[i, j, x], 0)
    }
    op vectors(n, c) {
      in P[n, n, c], Q[1, n, c]
      T[i: n, j: 1, x: c] = sum(k: n) P[i, k, x] * Q[j, k, x]
      out Y[i: n, j: 1, x: c] = max(T[i, j, x], 0)
    })";
  const auto orders = [&](const std::string& op, DType type) {
    return OrdersOfBatches(*InstantiatedFrom(kChannels, op, "n=4,c=3", type));
  };
  const std::vector<AxisOrder> found = orders("channels", DType::kBFloat16);
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].stage, "T");
  EXPECT_THAT(found[0].axes, ElementsAre("x", "i", "j"));
  EXPECT_THAT(orders("channels", DType::kFloat32), IsEmpty());
  EXPECT_THAT(orders("is_output", DType::kBFloat16), IsEmpty());
  EXPECT_THAT(orders("batches", DType::kBFloat16), IsEmpty());
  // A factor without rows of its own is no matrix, and convolutions are tiled along their channels.
  EXPECT_THAT(orders("depthwise", DType::kBFloat16), IsEmpty());
  EXPECT_THAT(orders("vectors", DType::kBFloat16), IsEmpty());
  EXPECT_THAT(orders("windows", DType::kBFloat16), IsEmpty());
  EXPECT_EQ(orders("phases", DType::kBFloat16).size(), 1);
  const auto depthwise = std::make_shared<const TensorProgram>(
      *InstantiatedFrom(kChannels, "depthwise", "n=4096,c=512", DType::kBFloat16));
  const auto space = *SearchSpace::Create(depthwise, *FindTarget("h100"));
  EXPECT_EQ(space.Lower(space.Default())->kernels.size(), 1);
}

}  // namespace
}  // namespace heddle::search_space::permute_test
