// What has to hold for every device.
#ifndef HEDDLE_TESTS_MEASURE_DEVICE_CHECKS_H_
#define HEDDLE_TESTS_MEASURE_DEVICE_CHECKS_H_

#include <gtest/gtest.h>

#include "measure/device/compare.h"
#include "measure/device/device.h"
#include "tests/measure/compared.h"

namespace heddle::tests {

// Compare finds what DifferenceOf finds, at sizes around those of blocks and grids.
inline void ExpectComparesLikeTheHost(measure::Device& device) {
  for (const int64_t count : {1, 3, 255, 256, 257, 4099, 1000003}) {
    for (const bool special : {false, true}) {
      const double slack = special ? 1e-3 : 0;
      SCOPED_TRACE(testing::Message() << count << (special ? " special" : "") << " elements");
      const Compared made = MakeCompared(count, special);
      auto a = device.Allocate(count * 4), b = device.Allocate(count * 4);
      ASSERT_TRUE(a.ok() && b.ok());
      // Beyond the last element they differ: nobody may look there.
      ASSERT_TRUE(device.Fill(**a, 0x3f800000).ok());
      ASSERT_TRUE(device.Fill(**b, 0x40000000).ok());
      ASSERT_TRUE(device.Upload(**a, made.a.data(), count * 4).ok());
      ASSERT_TRUE(device.Upload(**b, made.b.data(), count * 4).ok());
      const measure::Difference expected =
          measure::DifferenceOf(made.a.data(), made.b.data(), count, slack, 1);
      constexpr auto kType = search_space::DType::kFloat32;
      const auto found = device.Compare(**a, **b, count, slack, kType);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(found->elements, expected.elements);
      EXPECT_EQ(found->distance, expected.distance);
      const auto same = device.Compare(**a, **a, count, slack, kType);
      ASSERT_TRUE(same.ok()) << same.status();
      EXPECT_EQ(same->elements, 0);
      EXPECT_EQ(same->distance, 0);
    }
  }
}

// The same of 16-bit types: every number beside every other one's neighbour.
inline void ExpectComparesHalvesLikeTheHost(measure::Device& device) {
  constexpr int64_t kCount = 0x10000;
  std::vector<uint16_t> a(kCount), b(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    a[static_cast<size_t>(i)] = static_cast<uint16_t>(i);
    b[static_cast<size_t>(i)] = static_cast<uint16_t>(i % 3 == 0 ? i : i * 40503);
  }
  for (const auto type : {search_space::DType::kFloat16, search_space::DType::kBFloat16}) {
    for (const int64_t count : {int64_t{1}, int64_t{257}, kCount}) {
      auto there = device.Allocate(kCount * 2), other = device.Allocate(kCount * 2);
      ASSERT_TRUE(there.ok() && other.ok());
      ASSERT_TRUE(device.Upload(**there, a.data(), kCount * 2).ok());
      ASSERT_TRUE(device.Upload(**other, b.data(), kCount * 2).ok());
      const auto found = device.Compare(**there, **other, count, 1e-3, type);
      ASSERT_TRUE(found.ok()) << found.status();
      const measure::Difference expected =
          measure::DifferenceOf(a.data(), b.data(), count, 1e-3, 1, type);
      EXPECT_EQ(*found, expected) << search_space::NameOf(type) << " " << count;
    }
  }
}

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_MEASURE_DEVICE_CHECKS_H_
