#include "tuner/records/shape_distance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace heddle::tuner {
namespace {

TEST(ShapeDistanceTest, CountsDoublingsOfAllParameters) {
  EXPECT_DOUBLE_EQ(Distance({{"m", 7}, {"n", 31}}, {{"m", 15}, {"n", 7}}), 3);
  EXPECT_DOUBLE_EQ(Distance({{"pad", 0}}, {{"pad", 1}}), 1);
  EXPECT_DOUBLE_EQ(Distance({{"n", std::numeric_limits<int64_t>::max()}}, {{"n", 0}}), 63);
}

TEST(ShapeDistanceTest, IsInfiniteWhereTheOtherLacksAParameter) {
  EXPECT_TRUE(std::isinf(Distance({{"m", 1}, {"n", 1}}, {{"m", 1}})));
  EXPECT_DOUBLE_EQ(Distance({{"m", 1}}, {{"m", 1}, {"n", 1}}), 0);
}

}  // namespace
}  // namespace heddle::tuner
