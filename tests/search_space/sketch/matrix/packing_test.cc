// Which tensors of products are copied to other layouts, and that schedules of that compute the
// definition.
#include "search_space/sketch/matrix/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::packing_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kOperators[] = R"(
op matmul_tt(m, n, k) {
  in A[k, m], B[n, k]
  out C[i: m, j: n] = sum(r: k) A[r, i] * B[j, r]
}
op channels_first(n, h, w, ci, co) {
  in X[n, ci, h + 2, w + 2], W[co, ci, 3, 3]
  out Y[b: n, o: co, y: h, x: w] = sum(c: ci, r: 3, s: 3) X[b, c, y + r, x + s] * W[o, c, r, s]
}
op padded(n, ci, h, w, co) {
  in X[n, ci, h, w], W[co, ci, 3, 3], B[co]
  P[b: n, c: ci, y: h + 2, x: w + 2] = select(y >= 1 && y <= h && x >= 1 && x <= w, X[b, c, y - 1, x - 1], 0)
  C[b: n, o: co, y: h, x: w] = sum(c: ci, r: 3, s: 3) P[b, c, y + r, x + s] * W[o, c, r, s]
  out Y[b: n, o: co, y: h, x: w] = max(C[b, o, y, x] + B[o], 0)
}
op channels_last(n, h, w, ci, co) {
  in X[n, h + 2, w + 2, ci], W[co, 3, 3, ci]
  out Y[b: n, y: h, x: w, o: co] = sum(r: 3, s: 3, c: ci) X[b, y + r, x + s, c] * W[o, r, s, c]
}
op input_gradient(n, ci, co, h, w) {
  in D[n, co, h + 2, w + 2], W[co, ci, 3, 3]
  out G[b: n, c: ci, y: h, x: w] = sum(o: co, r: 3, s: 3) D[b, o, y + 2 - r, x + 2 - s] * W[o, c, r, s]
}
op weight_gradient(n, ci, co, h, w) {
  in X[n, ci, h + 2, w + 2], D[n, co, h, w]
  out G[o: co, c: ci, r: 3, s: 3] = sum(b: n, y: h, x: w) X[b, c, y + r, x + s] * D[b, o, y, x]
}
op gram(m, n) {
  in X[m, n]
  out G[i: n, j: n] = sum(r: m) X[r, i] * X[r, j]
}
op square(n) {
  in X[n, n]
  out Y[i: n, j: n] = sum(r: n) X[i, r] * X[r, j]
}
op gathered(m, n, k, v) {
  in E[v, k], I[m]: index(v), W[k, n]
  out Y[i: m, j: n] = sum(r: k) E[I[i], r] * W[r, j]
}
op rectified(m, n, k) {
  in A[m, k], B[k, n]
  out C[i: m, j: n] = sum(r: k) max(A[i, r], 0) * B[r, j]
}
op standardised(n, m) {
  in X[n, m], P[m]
  Z[i: n, r: m]: float16 = (X[i, r] - P[r]) * sigmoid(P[r])
  out K[i: n, j: n] = sum(r: m) Z[i, r] * Z[j, r]
}
op bytes(n, h, w, ci, co) {
  in X[n, h, w, ci]: index(256), W[co, 3, 3, ci]
  H[b: n, y: h, x: w, c: ci]: bfloat16 = X[b, y, x, c] - 128
  P[b: n, y: h + 2, x: w + 2, c: ci] = select(y >= 1 && y <= h && x >= 1 && x <= w, H[b, y - 1, x - 1, c], 0)
  out Y[b: n, y: h, x: w, o: co] = sum(r: 3, s: 3, c: ci) P[b, y + r, x + s, c] * W[o, r, s, c]
}
op einsum(m, n, k) {
  in A[m, k, 4], B[k, n, 4]
  out C[b: 4, i: m, j: n] = sum(r: k) A[i, r, b] * B[r, j, b]
}
)";

std::shared_ptr<const TensorProgram> Instantiated(const std::string& op, const std::string& shape,
                                                  DType type) {
  return InstantiatedFrom(kOperators, op, shape, type);
}

std::string PrintPacking(const Packing& p) {
  if (const auto* layout = std::get_if<PackLayout>(&p.steps[0])) {
    return absl::StrCat(p.tensor, " [", absl::StrJoin(layout->order, " "), "]",
                        layout->pad > 0 ? absl::StrCat(" + ", layout->pad) : "");
  }
  return absl::StrCat(p.tensor, " as read");
}

// "A, B" for each choice.
std::vector<std::string> Packings(const std::string& op, const std::string& shape, DType type,
                                  const Target& target) {
  std::vector<std::string> texts;
  for (const auto& packs : PackingsOf(FindKernels(Instantiated(op, shape, type), {}), target)) {
    texts.push_back(absl::StrJoin(packs, ", ", [](std::string* out, const Packing& p) {
      absl::StrAppend(out, PrintPacking(p));
    }));
  }
  return texts;
}

Target H100() { return *FindTarget("h100"); }

TEST(PackingsTest, MakeRowsAlongTheReduction) {
  const char* shape = "n=16,h=28,w=28,ci=128,co=128";
  EXPECT_THAT(Packings("channels_first", shape, DType::kBFloat16, H100()),
              ElementsAre("W [0 2 3 1], X [0 2 3 1]", "W [0 2 3 1]", "X [0 2 3 1]"));
  EXPECT_THAT(Packings("padded", shape, DType::kFloat16, H100()),
              ElementsAre("W [0 2 3 1], P [0 2 3 1]", "W [0 2 3 1]", "P [0 2 3 1]"));
  EXPECT_THAT(Packings("input_gradient", shape, DType::kBFloat16, H100()),
              ElementsAre("W [1 2 3 0], D [0 2 3 1]", "W [1 2 3 0]", "D [0 2 3 1]"));
  const char* square = "m=4096,n=4096,k=4096";
  EXPECT_THAT(Packings("matmul", square, DType::kTF32, H100()), ElementsAre("B [1 0]"));
  EXPECT_THAT(Packings("matmul_tn", square, DType::kTF32, H100()),
              ElementsAre("A [1 0], B [1 0]", "A [1 0]", "B [1 0]"));
  EXPECT_THAT(Packings("matmul_tt", square, DType::kTF32, H100()), ElementsAre("A [1 0]"));
  EXPECT_THAT(Packings("gram", "m=4096,n=4096", DType::kTF32, H100()), ElementsAre("X [1 0]"));
  EXPECT_THAT(Packings("einsum", "m=1024,n=1024,k=1024", DType::kBFloat16, H100()),
              ElementsAre("A [0 2 1], B [1 2 0]", "A [0 2 1]", "B [1 2 0]"));
}

// A batch of 16 makes rows of 32 bytes; those of 64 channels are lines.
TEST(PackingsTest, MakeRowsAlongTheResultWhereTheyAreLonger) {
  EXPECT_THAT(Packings("weight_gradient", "n=16,ci=64,co=64,h=56,w=56", DType::kBFloat16, H100()),
              ElementsAre("D [0 2 3 1], X [0 2 3 1]", "D [0 2 3 1]", "X [0 2 3 1]"));
}

TEST(PackingsTest, PadRowsThatBeginAnywhere) {
  EXPECT_THAT(Packings("matmul", "m=4095,n=4097,k=4099", DType::kBFloat16, H100()),
              ElementsAre("A [0 1] + 61, B [0 1] + 63", "A [0 1] + 61", "B [0 1] + 63"));
  EXPECT_THAT(Packings("matmul", "m=4096,n=50257,k=768", DType::kFloat16, H100()),
              ElementsAre("B [0 1] + 47"));
  EXPECT_THAT(Packings("matmul", "m=4095,n=4097,k=4099", DType::kTF32, H100()),
              ElementsAre("A [0 1] + 29, B [1 0] + 29", "A [0 1] + 29", "B [1 0] + 29"));
  EXPECT_THAT(Packings("matmul", "m=4096,n=4096,k=457", DType::kBFloat16, H100()),
              ElementsAre("A [0 1] + 55"));
  EXPECT_THAT(Packings("matmul", "m=4096,n=4096,k=449", DType::kBFloat16, H100()),
              ElementsAre("A [0 1] + 7"))
      << "whole lines would be an eighth of such rows";
  EXPECT_THAT(Packings("matmul", "m=4095,n=4097,k=4099", DType::kBFloat16, *FindTarget("a100")),
              IsEmpty())
      << "without bulk copies the ends of rows take as long";
}

TEST(PackingsTest, StoreFactorsThatNoBulkCopyFetches) {
  const char* gathered = "m=4096,n=1024,k=1024,v=32000";
  EXPECT_THAT(Packings("gathered", gathered, DType::kBFloat16, H100()), ElementsAre("E as read"));
  EXPECT_THAT(Packings("gathered", gathered, DType::kBFloat16, *FindTarget("a100")), IsEmpty());
  EXPECT_THAT(Packings("gathered", "m=4096,n=1024,k=1023,v=32000", DType::kBFloat16, H100()),
              IsEmpty())
      << "rows of a copy would be no boxes either";
  EXPECT_THAT(Packings("rectified", "m=4096,n=1024,k=1024", DType::kFloat16, H100()),
              ElementsAre("A as read"));
  EXPECT_THAT(Packings("gathered", gathered, DType::kTF32, H100()),
              ElementsAre("E as read, W [1 0]", "E as read", "W [1 0]"));
}

// A copy of what is read would have each pixel nine times.
TEST(PackingsTest, StoreWindowsOnce) {
  const auto packs = PackingsOf(
      FindKernels(Instantiated("bytes", "n=16,h=28,w=28,ci=64,co=64", DType::kBFloat16), {}),
      H100());
  ASSERT_EQ(packs.size(), 1);
  ASSERT_EQ(packs[0].size(), 1);
  EXPECT_THAT(ToString(packs[0][0].steps), HasSubstr("materialize(P)"));
}

TEST(PackingsTest, AreNoneWhereNothingIsToGain) {
  const char* shape = "n=16,h=28,w=28,ci=128,co=128";
  const char* square = "m=4096,n=4096,k=4096";
  EXPECT_THAT(Packings("channels_first", shape, DType::kFloat32, H100()), IsEmpty());
  EXPECT_THAT(Packings("channels_last", shape, DType::kBFloat16, H100()), IsEmpty());
  EXPECT_THAT(Packings("matmul", square, DType::kBFloat16, H100()), IsEmpty());
  EXPECT_THAT(Packings("matmul_nt", square, DType::kTF32, H100()), IsEmpty());
  EXPECT_THAT(Packings("square", "n=4096", DType::kTF32, H100()), IsEmpty())
      << "one factor would lose what the other gains";
  EXPECT_THAT(Packings("matmul", square, DType::kTF32, *FindTarget("a100")), IsEmpty())
      << "instructions of warps take any rows";
  EXPECT_THAT(Packings("matmul", "m=256,n=64,k=64", DType::kTF32, H100()), IsEmpty())
      << "a kernel more takes longer than the product";
  EXPECT_THAT(Packings("channels_first", "n=16,h=28,w=28,ci=3,co=128", DType::kBFloat16, H100()),
              IsEmpty())
      << "rows of 3 elements";
}

struct Case {
  const char* name;
  const char* op;
  const char* shape;
  DType type;
  const char* like = "pack/";  // the points hold this
};

class PackedPoints : public testing::TestWithParam<Case> {};

TEST_P(PackedPoints, ComputeTheDefinition) {
  const Case& c = GetParam();
  ExpectPointsCompute(Instantiated(c.op, c.shape, c.type), H100(), c.like);
}

constexpr Case kCases[] = {
    {"channels_first", "channels_first", "n=2,h=5,w=19,ci=24,co=17", DType::kBFloat16},
    {"padded", "padded", "n=1,h=7,w=18,ci=16,co=9", DType::kFloat16},
    {"input_gradient", "input_gradient", "n=1,h=5,w=17,ci=11,co=24", DType::kBFloat16},
    {"weight_gradient", "weight_gradient", "n=16,h=3,w=5,ci=24,co=16", DType::kBFloat16},
    {"shared_x", "weight_gradient", "n=16,h=2,w=18,ci=8,co=8", DType::kBFloat16, "G.split_k=9 "},
    {"nn_tf32", "matmul", "m=37,n=29,k=44", DType::kTF32},
    {"tn_tf32", "matmul_tn", "m=70,n=72,k=36", DType::kTF32},
    {"tt_tf32", "matmul_tt", "m=33,n=21,k=20", DType::kTF32},
    {"gram_tf32", "gram", "m=28,n=35", DType::kTF32},
    {"einsum", "einsum", "m=19,n=23,k=24", DType::kFloat16},
    {"odd", "matmul", "m=37,n=41,k=43", DType::kBFloat16},
    {"odd_tt", "matmul_tt", "m=65,n=41,k=51", DType::kFloat16},
    {"odd_tf32", "matmul", "m=37,n=29,k=43", DType::kTF32},
    {"gathered", "gathered", "m=37,n=24,k=40,v=11", DType::kBFloat16},
    {"gathered_tf32", "gathered", "m=70,n=36,k=20,v=11", DType::kTF32},
    {"rectified", "rectified", "m=67,n=24,k=40", DType::kFloat16},
    {"bytes", "bytes", "n=1,h=5,w=18,ci=16,co=16", DType::kBFloat16},
    // No product until its factor is stored, which both read, in rows that begin anywhere.
    {"standardised", "standardised", "n=37,m=1043", DType::kFloat16, " parts+pack/"},
};

INSTANTIATE_TEST_SUITE_P(Operators, PackedPoints, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::search_space::packing_test
