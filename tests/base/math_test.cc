#include "base/math.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(MathTest, FloorDivideRoundsDownwardsWhateverTheSigns) {
  for (int64_t b : {-5, -2, -1, 1, 2, 3, 7}) {
    for (int64_t a = -20; a <= 20; ++a) {
      const int64_t remainder = a - FloorDivide(a, b) * b;
      EXPECT_TRUE(b > 0 ? remainder >= 0 && remainder < b : remainder <= 0 && remainder > b)
          << a << " by " << b;
    }
  }
}

TEST(MathTest, CeilDivAndRoundUpCover) {
  for (int64_t b : {1, 2, 3, 16}) {
    for (int64_t a = 0; a <= 40; ++a) {
      EXPECT_GE(CeilDiv(a, b) * b, a);
      EXPECT_LT((CeilDiv(a, b) - 1) * b, a);
      EXPECT_EQ(RoundUp(a, b) % b, 0);
      EXPECT_GE(RoundUp(a, b), a);
      EXPECT_LT(RoundUp(a, b), a + b);
    }
  }
}

TEST(MathTest, PowersOfTwo) {
  for (int64_t v : {1, 2, 4, 1024}) EXPECT_TRUE(IsPowerOfTwo(v)) << v;
  for (int64_t v : {-2, 0, 3, 6, 1023}) EXPECT_FALSE(IsPowerOfTwo(v)) << v;
}

TEST(MathTest, TheUpperMedianIsOneOfTheValues) {
  EXPECT_EQ(UpperMedian({7}), 7);
  EXPECT_EQ(UpperMedian({3, 1, 2}), 2);
  EXPECT_EQ(UpperMedian({4, 1, 3, 2}), 3);
}

}  // namespace
}  // namespace heddle
