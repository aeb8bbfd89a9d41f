#include "measure/run/build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "measure/judge/memory.h"
#include "measure/judge/validate.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"

namespace heddle::measure {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const search_space::TensorProgram> Matmul() {
  auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
  return std::make_shared<const search_space::TensorProgram>(
      op->Instantiate({{"m", 64}, {"n", 64}, {"k", 64}}, search_space::DType::kFloat32).value());
}

TEST(Build, GivesVerifiedSource) {
  const auto program = Matmul();
  auto built =
      Build(program, search_space::NaiveSteps(*program), *search_space::FindTarget("h100"));
  ASSERT_TRUE(built.ok()) << built.status();
  ASSERT_EQ(built->kernels.size(), built->program.kernels.size());
  EXPECT_EQ(built->source_hash, HashOfSources(built->kernels));
}

TEST(Build, SaysWhichStepDoesNotApplyAndWhatTheTargetDoesNotAllow) {
  const auto program = Matmul();
  search_space::Target target = *search_space::FindTarget("h100");
  auto steps = search_space::NaiveSteps(*program);
  target.max_threads_per_block = 8;
  const absl::Status invalid = Build(program, steps, target).status();
  EXPECT_THAT(invalid.message(), HasSubstr("not valid on " + target.name));
  steps.push_back(steps.back());
  EXPECT_EQ(Build(program, steps, target).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CheckMemory, LeavesRoomForTheDriver) {
  const auto program = Matmul();
  const int64_t needed = MemoryNeeded(*program);
  EXPECT_TRUE(CheckMemory(*program, "a GPU", 2 * needed).ok());
  EXPECT_TRUE(CheckMemory(*program, "a GPU", 0).ok()) << "not known";
  const absl::Status full = CheckMemory(*program, "a GPU", needed);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("matmul at k=64,m=64,n=64"));
}

}  // namespace
}  // namespace heddle::measure
