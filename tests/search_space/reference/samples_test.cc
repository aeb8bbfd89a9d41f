// Samples of outputs against values worked out here by plain loops, and against whole evaluation.
#include "search_space/reference/samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "tests/search_space/reference/reference_support.h"

namespace heddle::search_space {
namespace {

std::vector<SamplePoint> Sample(const TensorProgram& program, int64_t count, int64_t operations,
                                uint64_t seed = 1, int threads = 1) {
  return EvaluateSamples(program, Pattern, count, seed, operations, threads);
}

// Every operator: what is computed on demand is what is computed whole.
TEST(EvaluateSamples, AgreeWithWholeEvaluation) {
  const std::pair<const char*, const char*> cases[] = {
      {"vector_add", "n=37"},
      {"window_sum", "n=41,w=5"},
      {"transpose", "m=5,n=7"},
      {"matmul", "m=5,n=7,k=3"},
      {"batch_matmul", "b=2,m=3,n=5,k=4"},
      {"gemm_relu_add", "m=9,n=8,k=5"},
      {"conv2d", "n=1,ci=2,h=6,w=7,co=3,kh=3,kw=3,stride=2,pad=1"},
      {"conv2d_bias_relu", "n=1,ci=2,h=6,w=7,co=3,kh=3,kw=3,pad=1"},
      {"conv2d_nhwc", "n=1,ci=2,h=6,w=7,co=3,kh=3,kw=3,pad=1"},
      {"depthwise_conv2d", "n=1,c=3,h=6,w=7,kh=3,kw=3,pad=1"},
      {"softmax", "m=5,n=11"},
      {"layer_norm", "m=5,n=11"}};
  for (const auto& [op, shape] : cases) {
    SCOPED_TRACE(op);
    const TensorProgram program = Builtin(op, shape);
    TensorValues values = Inputs(program);
    EvaluateAll(program, values);
    const Stage& output = program.stages.back();
    std::set<int64_t> seen;
    for (const SamplePoint& point : Sample(program, 1 << 20, int64_t{1} << 40, 1, 3)) {
      ASSERT_EQ(point.output, 0);
      EXPECT_EQ(point.value, values.at(output.name()).at(static_cast<size_t>(point.offset)));
      EXPECT_GE(point.magnitude, std::abs(point.value));
      seen.insert(point.offset);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), output.tensor->elements) << "all of few";
  }
}

TEST(EvaluateSamples, MagnitudeIsTheSumOfAbsoluteProducts) {
  const TensorProgram program = Builtin("matmul", "m=2,n=3,k=9");
  for (const SamplePoint& point : Sample(program, 100, 1 << 30)) {
    const int64_t i = point.offset / 3, j = point.offset % 3;
    double sum = 0;
    for (int64_t r = 0; r < 9; ++r) {
      sum += std::abs(static_cast<double>(Pattern(0, i * 9 + r)) * Pattern(1, r * 3 + j));
    }
    EXPECT_DOUBLE_EQ(point.magnitude, sum) << point.offset;
  }
}

// Sums of products of elements have a loop of their own; multiplied by 1 they are summed up as
// others are.
TEST(EvaluateSamples, ProductsAreSummedUpAsOthersAre) {
  const auto sampled = [](const std::string& product, const std::string& times) {
    const auto op = ParseOperators(
        "op f(n) { in A[n, 3, 2 * n], B[5, 3, n]: float32, I[n]: index(n) "
        "S[i: n, c: 3, r: n] = A[i, c, 2 * r] * 0.3  T[i: n, c: 3, r: n]: float32 = sum(q: 2) "
        "A[i, c, r + q] out Y[i: n, j: 5] = sum(c: 3, r: n) " +
        product + times + "  out Z[i: n] = S[i, 0, 0] + T[i, 0, 0] + A[I[i], 0, 0] }");
    EXPECT_TRUE(op.ok()) << op.status();
    return Sample(*op->front().Instantiate({{"n", 70}}, DType::kBFloat16), 100, 1 << 30);
  };
  for (const char* product :
       {"A[i, c, 2 * r] * B[j, c, r]", "S[i, c, r] * B[j, c, r]", "B[j, c, r] * T[i, c, r]",
        "S[i, c, r] * T[i, c, r] * B[j, c, r]", "S[i, c, r] * (T[i, c, r] * B[j, c, r])",
        "A[I[i], c, r] * B[j, c, r]"}) {
    SCOPED_TRACE(product);
    const std::vector<SamplePoint> products = sampled(product, ""),
                                   others = sampled(product, " * 1");
    ASSERT_EQ(products.size(), others.size());
    for (size_t p = 0; p < products.size(); ++p) {
      EXPECT_EQ(products[p].offset, others[p].offset);
      EXPECT_EQ(products[p].value, others[p].value);
      EXPECT_EQ(products[p].magnitude, others[p].magnitude);
    }
  }
}

// What most samples read is made once, and products of it are added up several at a time.
TEST(EvaluateSamples, InputsThatAreReadOftenAreMadeOnce) {
  constexpr int64_t kM = 20, kN = 300, kK = 20003;
  for (const bool transposed : {false, true}) {
    const TensorProgram program =
        Own(std::string("op f(m, n, k) { in X[m, k], W[") + (transposed ? "k, n" : "n, k") +
                "]  L[i: m, j: n] = sum(r: k) X[i, r] * W[" + (transposed ? "r, j" : "j, r") +
                "]  A[i: m] = max(j: n) L[i, j]  out Y[i: m, j: n] = L[i, j] - A[i] }",
            "m=20,n=300,k=20003");
    std::atomic<int64_t> reads{0};
    const auto input = [&](int tensor, int64_t offset) {
      ++reads;
      return Pattern(tensor, offset);
    };
    const auto points = EvaluateSamples(program, input, 100, 1, int64_t{1} << 20, 2);
    EXPECT_GE(points.size(), 16u);
    EXPECT_LE(reads, (kM + kN) * kK);
    const auto score = [&](int64_t i, int64_t j) {
      double sum = 0;
      for (int64_t r = 0; r < kK; ++r) {
        sum += static_cast<double>(Pattern(0, i * kK + r)) *
               Pattern(1, transposed ? r * kN + j : j * kK + r);
      }
      return sum;
    };
    const int64_t row = points[0].offset / kN;
    double best = score(row, 0);
    for (int64_t j = 1; j < kN; ++j) best = std::max(best, score(row, j));
    EXPECT_NEAR(points[0].value, score(row, points[0].offset % kN) - best, 1e-9 * best);
  }
}

// Each of the first clusters remembers what its points share, as much as that may be.
TEST(EvaluateSamples, PointsOfAClusterShareAlsoAMillionElements) {
  const TensorProgram program =
      Own("op f(b, n, k) { in X[b, n, k]  L[z: b, i: n, j: n] = sum(r: k) X[z, i, r] * X[z, j, r]"
          "  M[z: b] = max(i: n, j: n) L[z, i, j]  out Y[z: b, i: n] = M[z] * X[z, i, 0] }",
          "b=40,n=1024,k=8");
  // Three clusters take about 2^25 operations each, and then little is left.
  const auto points = EvaluateSamples(program, Pattern, 1024, 1, int64_t{1} << 27, 2);
  EXPECT_GT(points.size(), 16u);
}

double LargestMagnitude(const TensorProgram& program) {
  double largest = 0;
  for (const SamplePoint& point : Sample(program, 4096, 1 << 30)) {
    largest = std::max(largest, point.magnitude);
  }
  return largest;
}

// Masks and padding that lose against a value round nothing: what their magnitude were would be
// allowed as an error.
TEST(EvaluateSamples, ALargeConstantThatLosesHasNoMagnitude) {
  const std::string softmax =
      "M[i: n] = max(r: n) Z[i, r]  E[i: n, j: n] = exp(Z[i, j] - M[i])  "
      "S[i: n] = sum(r: n) E[i, r]  out Y[i: n, j: n] = E[i, j] / S[i] }";
  const std::string head = "op f(n) { in X[n, n]  ";
  for (const char* masked : {
           "select(j <= i, X[i, j], -3.0e38)",
           "select(j <= i, X[i, j], -1.0e9)",
           "(X[i, j] + select(j <= i, 0, -1.0e9))",
           "select(j < i, X[i, j], -3.0e38)",  // nothing is left of the first row
           "select(j <= i, X[i, j] * X[j, i], -3.0e38)",
       }) {
    const TensorProgram program = Own(head + "Z[i: n, j: n] = " + masked + "  " + softmax, "n=40");
    EXPECT_LT(LargestMagnitude(program), 100) << masked;
  }
  const TensorProgram pool =
      Own("op f(n) { in X[n]  out Y[i: n] = max(r: 3) "
          "select(i + r >= 1 && i + r <= n, X[min(max(i + r - 1, 0), n - 1)], -3.0e38) }",
          "n=100");
  EXPECT_LT(LargestMagnitude(pool), 3) << "11 / 4 is the largest input";
}

// Rounding may decide which of two sums is the larger one.
TEST(EvaluateSamples, OfTwoThatRoundingMaySwapTheLargerMagnitudeCounts) {
  const TensorProgram near = Own(
      "op f(n) { in A[n]  S[i: n] = sum(r: 2) select(r < 1, A[i] * 100, 0)  D[i: n] = S[i] - S[i]  "
      "out B[i: n] = max(D[i], 0) }",
      "n=50");
  EXPECT_GT(LargestMagnitude(near), 500);
  const TensorProgram far = Own(
      "op f(n) { in A[n]  S[i: n] = sum(r: 2) select(r < 1, A[i] * 100, 0)  D[i: n] = S[i] - S[i]  "
      "out B[i: n] = max(D[i], 5000) }",
      "n=50");
  EXPECT_EQ(LargestMagnitude(far), 5000);
}

TEST(EvaluateSamples, DependOnTheSeedAndNotOnTheThreads) {
  const TensorProgram program = Builtin("matmul", "m=100,n=90,k=4");
  const auto offsets = [&](uint64_t seed, int threads) {
    std::vector<int64_t> all;
    for (const SamplePoint& point : Sample(program, 300, 1 << 30, seed, threads)) {
      all.push_back(point.offset);
    }
    return all;
  };
  EXPECT_EQ(offsets(1, 1), offsets(1, 4));
  EXPECT_NE(offsets(1, 1), offsets(2, 1));
  EXPECT_EQ(offsets(1, 1).size(), 300u);
  const std::vector<int64_t> all = offsets(3, 2);
  EXPECT_EQ(std::count(all.begin(), all.end(), 0), 1) << "the first element";
  EXPECT_EQ(std::count(all.begin(), all.end(), 100 * 90 - 1), 1) << "and the last";
}

// Points that take long are computed by several threads from the first ones on.
TEST(EvaluateSamples, ThoseThatTakeLongDependOnTheThreadsNeither) {
  const TensorProgram program = Own(
      "op f(n, k) { in A[n, k]  S[i: n] = sum(r: k) A[i, r]  out B[i: n] = S[i] * S[n - 1 - i] }",
      "n=70,k=200000");
  const auto all = [&](int threads) {
    std::vector<std::pair<int64_t, double>> found;
    for (const SamplePoint& point : Sample(program, 40, int64_t{1} << 26, 1, threads)) {
      found.emplace_back(point.offset, point.value);
    }
    return found;
  };
  EXPECT_GE(all(1).size(), 16u);
  EXPECT_EQ(all(1), all(4));
}

// One element of which every term is a sum, more of them than are remembered.
TEST(EvaluateSamples, ALongReductionIsTheSameForAnyThreads) {
  const TensorProgram program =
      Own("op f(m, n, k) { in A[m, k], B[n, k]  D[i: m, j: n] = sum(r: k) A[i, r] * B[j, r]  "
          "S[z: 1] = sum(i: m, j: n) D[i, j]  out Y[z: 1] = S[z] / 2  "
          "out Z[z: 1] = max(i: m, j: n) D[i, j] - S[0] }",
          "m=1100,n=1000,k=8");
  double sum = 0, most = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < 1100; ++i) {
    for (int64_t j = 0; j < 1000; ++j) {
      double d = 0;
      for (int64_t r = 0; r < 8; ++r) {
        d +=
            static_cast<double>(Pattern(0, 8 * i + r)) * static_cast<double>(Pattern(1, 8 * j + r));
      }
      sum += d;
      most = std::max(most, d);
    }
  }
  for (const int threads : {1, 4}) {
    const auto points = Sample(program, 40, int64_t{1} << 26, 1, threads);
    ASSERT_EQ(points.size(), 2u);
    EXPECT_EQ(points[0].value, sum / 2);
    EXPECT_EQ(points[1].value, most - sum);
  }
}

// Reductions in parts have each of their terms once, however few these are for so many parts.
TEST(EvaluateSamples, PartsOfALongReductionHaveEachTermOnce) {
  for (const int terms : {64, 65, 66, 127, 130}) {
    const TensorProgram program =
        Own("op f(m, k) { in A[m, k], B[k]  D[i: m] = sum(r: k) A[i, r] * B[r]  "
            "out S[z: 1] = sum(i: m) D[i] }",
            ("m=" + std::to_string(terms) + ",k=200000").c_str());
    double sum = 0;
    for (int64_t i = 0; i < terms; ++i) {
      for (int64_t r = 0; r < 200000; ++r) {
        sum += static_cast<double>(Pattern(0, 200000 * i + r)) * static_cast<double>(Pattern(1, r));
      }
    }
    EXPECT_EQ(Sample(program, 1, int64_t{1} << 26).at(0).value, sum) << terms;
  }
}

// Later points know part of what they need, and are computed in the same order all the same.
TEST(EvaluateSamples, SeveralLongReductionsAreTheSameForAnyThreads) {
  const TensorProgram program =
      Own("op f(b, m, n, k) { in A[m, k], B[n, k], G[b]  "
          "D[i: m, j: n] = sum(r: k) A[i, r] * B[j, r] / 3  "
          "out S[z: b] = sum(i: m, j: n) D[i, j] / (G[z] * G[z] + 1) }",
          "b=20,m=400,n=300,k=70");
  const auto all = [&](int threads) {
    std::vector<std::pair<int64_t, double>> found;
    for (const SamplePoint& point : Sample(program, 20, int64_t{1} << 40, 1, threads)) {
      found.emplace_back(point.offset, point.value);
    }
    return found;
  };
  EXPECT_EQ(all(1).size(), 20u);
  EXPECT_EQ(all(1), all(3));
}

// Every element takes the whole of a long reduction: there are fewer samples then, but some.
TEST(EvaluateSamples, WorkIsBoundedButNeverToNothing) {
  const TensorProgram program = Builtin("matmul", "m=64,n=64,k=10000");
  EXPECT_EQ(Sample(program, 4096, 1).size(), 16u);
  const size_t some = Sample(program, 4096, int64_t{1} << 24).size();
  EXPECT_GT(some, 16u);
  EXPECT_LT(some, 4096u);
}

// Prefixes of two dimensions: elements of one column share what takes long, and those of the first
// column are sums of few terms. The tolerance is made of the largest magnitude.
TEST(EvaluateSamples, TheFewestAreNotAllOfTheFirstElementsCluster) {
  const TensorProgram program =
      Own("op integral(h, w) { in X[h, w]\n"
          "A[y: h, x: w] = sum(r: w) select(r <= x, X[y, r], 0)\n"
          "out S[y: h, x: w] = sum(r: h) select(r <= y, A[r, x], 0) }",
          "h=40,w=60");
  for (const int64_t count : {1000, 4096}) {  // fewer than there are, and all of few
    std::set<int64_t> columns;
    const auto samples = Sample(program, count, 1);
    for (const SamplePoint& point : samples) columns.insert(point.offset % 60);
    EXPECT_EQ(samples.size(), 16);
    EXPECT_EQ(columns.size(), 3);
    EXPECT_TRUE(columns.contains(0));
    EXPECT_TRUE(columns.contains(59));
  }
}

// The last cluster may have fewer than its share.
TEST(EvaluateSamples, ThereAreSixteenAtLeast) {
  const TensorProgram program = Builtin("matmul", "m=1,n=70,k=2000");
  EXPECT_EQ(Sample(program, 1000, 1).size(), 16);
}

TEST(EvaluateSamples, EveryOutputHasItsSamples) {
  const TensorProgram program =
      Own("op f(n) { in A[n]  out B[i: n] = A[i] * 2  out C[i: n] = B[i] + 1 }", "n=1000");
  int counts[2] = {};
  for (const SamplePoint& point : Sample(program, 50, 1 << 30)) {
    ++counts[point.output];
    const double b = 2 * static_cast<double>(Pattern(0, point.offset));
    EXPECT_EQ(point.value, point.output == 0 ? b : b + 1);
  }
  EXPECT_EQ(counts[0], 50);
  EXPECT_EQ(counts[1], 50);
}

// What most of a sample hangs on is computed once, however many terms need it.
TEST(EvaluateSamples, StagesOfWhichASampleNeedsMostAreEvaluatedOnce) {
  constexpr int64_t kN = 700;
  const TensorProgram program = Own(
      "op f(n) { in X[n, 3]  D[i: n, j: n] = sum(r: 3) (X[i, r] - X[j, r]) * (X[i, r] - X[j, r])"
      "  P[i: n] = sum(j: n) sqrt(D[i, j])  "
      "out C[z: 1] = sum(i: n, j: n) (sqrt(D[i, j]) - P[i] / n) * (sqrt(D[i, j]) - P[j] / n) }",
      "n=700");
  std::vector<double> roots(kN * kN), means(kN);
  for (int64_t i = 0; i < kN; ++i) {
    for (int64_t j = 0; j < kN; ++j) {
      double sum = 0;
      for (int64_t r = 0; r < 3; ++r) {
        const double d = Pattern(0, 3 * i + r) - Pattern(0, 3 * j + r);
        sum += d * d;
      }
      roots[i * kN + j] = std::sqrt(sum);
      means[i] += std::sqrt(sum) / kN;
    }
  }
  double expected = 0;
  for (int64_t i = 0; i < kN; ++i) {
    for (int64_t j = 0; j < kN; ++j) {
      expected += (roots[i * kN + j] - means[i]) * (roots[i * kN + j] - means[j]);
    }
  }
  std::vector<double> found;
  for (const int threads : {1, 3}) {
    std::atomic<int64_t> reads{0};
    const auto input = [&](int tensor, int64_t offset) {
      ++reads;
      return Pattern(tensor, offset);
    };
    const auto points = EvaluateSamples(program, input, 10, 1, int64_t{1} << 26, threads);
    ASSERT_EQ(points.size(), 1u);
    EXPECT_NEAR(points[0].value, expected, 1e-9 * expected);
    EXPECT_LE(reads, 3 * kN);
    found.push_back(points[0].value);
  }
  EXPECT_EQ(found[0], found[1]);
}

// A row's best and what is next to it. Columns 1 and 2 are nearly equal in every third row.
TEST(EvaluateSamples, WhatHangsOnAComparisonThatRoundingMayTurnIsUncertain) {
  const TensorProgram program =
      Own("op f(n) { in X[n, 4, 2]  S[i: n, j: 4] = sum(r: 2) X[i, j, r]  "
          "A[i: n] = max(j: 4) S[i, j]  "
          "out Y[i: n, j: 4] = select(S[i, j] >= A[i], S[i, j], 0)  out Z[i: n] = A[i] * 2 }",
          "n=30");
  const auto input = [](int, int64_t offset) {
    const int64_t i = offset / 8, j = offset / 2 % 4;
    if (offset % 2 == 1) return j == 2 && i % 3 == 0 ? 1e-7 : 0.0;
    return j == 0 ? 0.25 : j == 3 ? -5.0 : j == 1 || i % 3 == 0 ? 1.0 : 0.5;
  };
  for (const SamplePoint& point : EvaluateSamples(program, input, 1000, 1, 1 << 26, 1)) {
    const int64_t i = point.offset / 4, j = point.offset % 4;
    const bool expected = point.output == 0 && i % 3 == 0 && (j == 1 || j == 2);
    EXPECT_EQ(point.uncertain, expected) << point.output << " " << point.offset;
  }
  const std::vector<int64_t> offsets = {0, 1, 2, 5, 6};
  const auto found = EvaluateElements(program, 0, offsets, input, 1 << 20, 2);
  ASSERT_EQ(found.size(), offsets.size());
  for (size_t i = 0; i < offsets.size(); ++i) {
    EXPECT_EQ(found[i].offset, offsets[i]);
    EXPECT_EQ(found[i].uncertain, offsets[i] == 1 || offsets[i] == 2);
  }
  EXPECT_TRUE(EvaluateElements(program, 0, offsets, input, 1, 2).empty());
  const auto turned = EvaluateElements(program, 0, offsets, input, 1 << 20, 2, true);
  ASSERT_EQ(turned.size(), offsets.size());
  EXPECT_EQ(found[2].value, 1 + 1e-7);
  EXPECT_EQ(turned[2].value, 0);
  EXPECT_EQ(found[1].value, 0);
  EXPECT_EQ(turned[1].value, 1);
  EXPECT_EQ(turned[0].value, found[0].value);
}

// A row's maximum takes all of its scores, each of which takes as long: points of one row share
// them.
TEST(EvaluateSamples, PointsOfARowShareWhatItsMaximumTakes) {
  const TensorProgram program =
      Own("op f(m, n, k) { in X[m, k], W[n, k]  L[i: m, j: n] = sum(r: k) X[i, r] * W[j, r]  "
          "A[i: m] = max(j: n) L[i, j]  out Y[i: m, j: n] = exp(L[i, j] - A[i]) }",
          "m=2000,n=64,k=500");
  std::set<int64_t> rows;
  const auto points = Sample(program, 1024, int64_t{1} << 23);
  for (const SamplePoint& point : points) rows.insert(point.offset / 64);
  EXPECT_GE(points.size(), 500u);
  EXPECT_GE(rows.size(), 8u);
  EXPECT_LE(rows.size(), points.size() / 32);
}

// What a sample needs one element of is not evaluated whole for what it needs all of.
TEST(EvaluateSamples, StagesOfWhichASampleNeedsLittleAreNotEvaluatedWhole) {
  const TensorProgram program =
      Own("op f(m, k, p) { in X[m, k], W[m, k], Z[p, 4]  "
          "L[i: m, j: m] = sum(r: k) X[i, r] * W[j, r]  "
          "D[i: p, j: p] = sum(r: 4) Z[i, r] * Z[j, r]  N[z: 1] = sum(i: p, j: p) abs(D[i, j])  "
          "out Y[i: m, j: m] = L[i, j] / N[0] }",
          "m=3000,k=6000,p=1500");
  std::atomic<int64_t> reads{0};
  const auto input = [&](int tensor, int64_t offset) {
    ++reads;
    return Pattern(tensor, offset);
  };
  EXPECT_GE(EvaluateSamples(program, input, 64, 1, 1 << 20, 2).size(), 16u);
  EXPECT_LE(reads, 64 * 2 * 6000 + 4 * 1500) << "X and W are too large to be kept";
}

// Inputs are what they are: no rounding turns a comparison of two.
TEST(EvaluateSamples, ComparisonsOfInputsAreCertain) {
  const TensorProgram program =
      Own("op f(n) { in X[n]  M[z: 1] = max(i: n) X[i]  "
          "out Y[i: n] = select(X[i] >= M[0], 1, 0)  out I[z: 1] = argmax(i: n) X[i] }",
          "n=50");
  for (const SamplePoint& point : Sample(program, 1000, 1 << 26)) EXPECT_FALSE(point.uncertain);
}

}  // namespace
}  // namespace heddle::search_space
