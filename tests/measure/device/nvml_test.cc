// What a GPU's clocks tell of it.
#include <gtest/gtest.h>

#include "measure/device/cuda/cuda_driver.h"

namespace heddle::measure {
namespace {

// The bits of nvml.h.
TEST(Nvml, HeatAndHardwareThrottleButThePowerLimitDoesNot) {
  for (unsigned long long usual : {0x0, 0x1, 0x2, 0x4, 0x10, 0x100}) {
    EXPECT_FALSE(IsThrottled(usual)) << usual;
  }
  for (unsigned long long throttling : {0x8, 0x20, 0x40, 0x80}) {
    EXPECT_TRUE(IsThrottled(throttling | 0x4)) << throttling;
  }
}

}  // namespace
}  // namespace heddle::measure
