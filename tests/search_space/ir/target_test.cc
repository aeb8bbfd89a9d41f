#include "search_space/ir/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::search_space {
namespace {

TEST(Target, EveryNameIsFoundAndPlausible) {
  for (const std::string& name : TargetNames()) {
    const auto t = FindTarget(name);
    ASSERT_TRUE(t.ok()) << t.status();
    EXPECT_EQ(t->processor, name == "cpu") << name;
    if (t->processor) continue;
    EXPECT_EQ(t->arch.substr(0, 3), "sm_") << name;
    EXPECT_LT(t->max_shared_bytes_per_block, t->shared_bytes_per_sm + 1) << name;
    EXPECT_GT(t->peak_gflops, 5000) << name;
    EXPECT_GT(t->memory_gbs, 200) << name;
  }
}

TEST(Target, FiguresAreThePublishedOnes) {
  const Target h100 = *FindTarget("H100");
  EXPECT_EQ(h100.arch, "sm_90");
  EXPECT_NEAR(h100.peak_gflops, 66900, 100);
  EXPECT_EQ(h100.max_shared_bytes_per_block, 227 << 10);
  EXPECT_NEAR(FindTarget("sm_80")->peak_gflops, 19500, 50);
  EXPECT_TRUE(FindTarget("sm_80")->has_async_copy);
  EXPECT_FALSE(FindTarget("v100")->has_async_copy);
}

TEST(Target, AnUnknownNameListsTheKnownOnes) {
  const auto t = FindTarget("h1000");
  EXPECT_EQ(t.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(t.status().message()), ::testing::HasSubstr("h100, h100-pcie"));
}

}  // namespace
}  // namespace heddle::search_space
