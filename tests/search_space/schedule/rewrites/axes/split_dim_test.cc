// Dimensions of inputs that number two things, as two: which those are, what a program becomes, and
// what is refused.
#include "search_space/schedule/rewrites/axes/split_dim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/programs/form.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::split_dim_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kOperators = R"(
op heads(m, k, h, d) {
  in X[m, k], W[h * d, k]
  out Y[i: m, p: h, x: d] = sum(r: k) X[i, r] * W[p * d + x, r]
}
op packed_heads(s, h, d) {
  in Q[s, h * d], K[s, h * d]
  out Y[p: h, i: s, j: s] = sum(r: d) Q[i, p * d + r] * K[j, p * d + r]
}
op three(k, a, b, c) {
  in X[k, a * b * c]
  out Y[i: a, j: b, l: c] = sum(r: k) X[r, i * b * c + j * c + l] * X[r, 0]
}
op window(n, k) {
  in X[n + k - 1], W[k]
  out Y[i: n] = sum(r: k) X[i + r] * W[r]
}
op strided(n, k) {
  in X[2 * n + k], W[k]
  out Y[i: n] = sum(r: k) X[2 * i + r] * W[r]
}
op also_whole(m, k, h, d) {
  in X[m, k], W[h * d, k]
  T[i: m, j: h * d] = sum(r: k) X[i, r] * W[j, r]
  out Y[i: m, p: h, x: d] = sum(r: k) X[i, r] * W[p * d + x, r] + T[i, p]
}
op not_reduced(h, d) {
  in X[h * d]
  out Y[p: h, x: d] = X[p * d + x] * 2
}
)";

TensorProgram Made(const std::string& op, const std::string& shape, DType type = DType::kBFloat16) {
  return *InstantiatedFrom(kOperators, op, shape, type);
}

std::vector<std::string> SplitsOf(TensorProgram program) {
  std::vector<std::string> splits;
  while (const auto parts = DimWorthSplitting(program)) {
    splits.push_back(absl::StrCat(parts->input, " ", parts->dim, " ", parts->width));
    program = **WithSplitDim(program, parts->input, parts->dim, parts->width);
  }
  return splits;
}

TEST(SplitDimTest, DimensionsThatNumberTwoThingsAreTwo) {
  EXPECT_THAT(SplitsOf(Made("heads", "m=4,k=8,h=3,d=5")), ElementsAre("W 0 5"));
  EXPECT_THAT(SplitsOf(Made("packed_heads", "s=6,h=3,d=16")), ElementsAre("Q 1 16", "K 1 16"));
  EXPECT_THAT(SplitsOf(Made("three", "k=2,a=3,b=2,c=8")), ElementsAre("X 1 16", "X 2 8"));
}

TEST(SplitDimTest, OthersStay) {
  EXPECT_THAT(SplitsOf(Made("window", "n=16,k=4")), IsEmpty());
  EXPECT_THAT(SplitsOf(Made("strided", "n=16,k=4")), IsEmpty());
  EXPECT_THAT(SplitsOf(Made("also_whole", "m=4,k=8,h=3,d=5")), IsEmpty());
  EXPECT_THAT(SplitsOf(Made("not_reduced", "h=4,d=8")), IsEmpty());
  EXPECT_THAT(SplitsOf(Made("heads", "m=4,k=8,h=3,d=5", DType::kFloat32)), IsEmpty());
  // Rows of parts that no whole accesses read.
  EXPECT_THAT(SplitsOf(Made("packed_heads", "s=6,h=3,d=4")), IsEmpty());
}

TEST(SplitDimTest, ComputesTheSame) {
  for (const auto& [op, shape] : {std::pair("heads", "m=4,k=8,h=3,d=5"),
                                  {"packed_heads", "s=6,h=3,d=16"},
                                  {"three", "k=2,a=3,b=2,c=8"}}) {
    SCOPED_TRACE(op);
    ExpectFormComputes(std::make_shared<const TensorProgram>(Made(op, shape)));
  }
}

TEST(SplitDimTest, WhatItDoesNotDivideIsRefused) {
  const TensorProgram heads = Made("heads", "m=4,k=8,h=3,d=5");
  const auto refusal = [&](const std::string& input, int64_t dim, int64_t width) {
    return std::string(WithSplitDim(heads, input, dim, width).status().message());
  };
  EXPECT_THAT(refusal("V", 0, 5), HasSubstr("no input V"));
  EXPECT_THAT(refusal("W", 2, 5), HasSubstr("W has no dimension 2, but 2, from 0"));
  EXPECT_THAT(refusal("W", 0, 4), HasSubstr("parts of 4 of dimension 0 of W, which has 15"));
  EXPECT_THAT(refusal("W", 0, 15), HasSubstr("not two or more of two or more"));
  EXPECT_THAT(refusal("W", 0, 1), HasSubstr("not two or more of two or more"));
}

}  // namespace
}  // namespace heddle::search_space::split_dim_test
