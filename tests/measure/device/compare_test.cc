#include "measure/device/compare.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/measure/compared.h"

namespace heddle::measure {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Distance, IsInfiniteWhereItIsNoNumber) {
  EXPECT_EQ(Distance(1, 1.5f, 0), 0.5);
  EXPECT_EQ(Distance(0.0f, -0.0f, 0), 0);
  EXPECT_EQ(Distance(kNan, -kNan, 0), 0);
  EXPECT_EQ(Distance(kInfinity, kInfinity, 0), 0);
  EXPECT_EQ(Distance(kInfinity, -kInfinity, 0), kInfinity);
  EXPECT_EQ(Distance(kInfinity, 3e38f, 0), kInfinity);
  EXPECT_EQ(Distance(kNan, 1, 0), kInfinity);
  EXPECT_EQ(Distance(1, kNan, 0), kInfinity);
  EXPECT_EQ(Distance(3e38f, -3e38f, 0), 2.0 * 3e38f) << "in double precision";
  EXPECT_EQ(Distance(1, -1.5f, 2), 2.5 / 4);
  EXPECT_EQ(Distance(1, kInfinity, 2), kInfinity);
}

TEST(ErrorOf, IsInUnitsOfTheTolerance) {
  EXPECT_EQ(ErrorOf(0.5, 0.25), 2);
  EXPECT_EQ(ErrorOf(0, 0), 0);
  EXPECT_EQ(ErrorOf(1e-30, 0), kInfinity);
  EXPECT_EQ(ErrorOf(kInfinity, 1), kInfinity);
}

TEST(DifferenceOf, CountsBitsAndMeasuresDistances) {
  for (const int64_t count : {1, 7, 1000, 300000}) {
    for (const bool special : {false, true}) {
      const double slack = special ? 0 : 3;
      const tests::Compared made = tests::MakeCompared(count, special);
      int64_t elements = 0;
      double largest = 0;
      for (int64_t i = 0; i < count; ++i) {
        const float a = made.a[i], b = made.b[i];
        if (std::bit_cast<uint32_t>(a) != std::bit_cast<uint32_t>(b)) ++elements;
        largest = std::max(largest, Distance(a, b, slack));
      }
      for (const int threads : {1, 3, 8}) {
        const Difference found = DifferenceOf(made.a.data(), made.b.data(), count, slack, threads);
        EXPECT_EQ(found.elements, elements);
        EXPECT_EQ(found.distance, largest);
      }
    }
  }
}

TEST(FindMismatch, NamesTheWorst) {
  std::vector<float> expected(1000, 1), got = expected;
  EXPECT_EQ(FindMismatch(got.data(), expected.data(), 1000, 0, 0).elements, 0);
  got[10] = 1.05f;  // tolerated
  got[20] = 1.2f;
  got[30] = 1.4f;
  got[40] = 1.3f;
  Mismatch found = FindMismatch(got.data(), expected.data(), 1000, 0.1, 0);
  EXPECT_EQ(found.elements, 3);
  EXPECT_EQ(found.worst, 30);
  EXPECT_NEAR(found.error, 4, 1e-5);
  got[500] = kNan;
  found = FindMismatch(got.data(), expected.data(), 1000, 0.1, 0);
  EXPECT_EQ(found.elements, 4);
  EXPECT_EQ(found.worst, 500);
  EXPECT_EQ(found.error, kInfinity);
  // Where more is allowed of what is larger, the worst is another one.
  found = FindMismatch(got.data(), expected.data(), 500, 0.1, 9);
  EXPECT_EQ(found.elements, 0);
  EXPECT_NEAR(found.error, 0.4, 1e-6);
}

TEST(FirstDifference, LooksAtBits) {
  std::vector<float> a(100, 0.0f), b = a;
  EXPECT_EQ(FirstDifference(a.data(), b.data(), 100), 100);
  b[99] = -0.0f;
  EXPECT_EQ(FirstDifference(a.data(), b.data(), 100), 99);
  b[17] = 1;
  EXPECT_EQ(FirstDifference(a.data(), b.data(), 100), 17);
}

TEST(Parallel, CallsEveryPartOnce) {
  for (const int64_t count : {0, 1, 65536, 1000003}) {
    for (const int threads : {1, 4, 64}) {
      std::vector<std::atomic<int>> visits(count);
      Parallel(count, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits[i];
      });
      for (const std::atomic<int>& n : visits) ASSERT_EQ(n, 1);
    }
  }
}

}  // namespace
}  // namespace heddle::measure
