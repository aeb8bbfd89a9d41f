// What a record says of what would be built now.
#include "tuner/artefact/query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"

namespace heddle::tuner {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class QueryTest : public testing::Test {
 protected:
  QueryTest() {
    auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
    program_ = std::make_shared<const search_space::TensorProgram>(
        *op->Instantiate({{"m", 64}, {"n", 64}, {"k", 64}}, search_space::DType::kFloat32));
    device_.target = *search_space::FindTarget("h100");
    device_.compiler = "NVRTC 13.0 (build 65be0db342ad51a0)";
    device_.driver = "580";
    device_.power_limit_w = 700;
    auto space = search_space::SearchSpace::Create(program_, device_.target);
    best_.trial.point = space->Print(space->Default());
    best_.trial.steps = search_space::ToString(*space->Steps(space->Default()));
    best_.trial.stage = TrialStage::kFinal;
    best_.trial.result.outcome = measure::Outcome::kOk;
    best_.trial.result.time_us = 10;
    best_.trial.result.source_hash = SourceHashNow(best_.trial, program_, device_.target);
    best_.environment = MakeEnvironment(device_, measure::L2Policy::kCold);
  }
  Verdict Now() const { return Judge(best_, program_, device_); }

  std::shared_ptr<const search_space::TensorProgram> program_;
  measure::DeviceInfo device_;
  Records::Best best_;
};

TEST_F(QueryTest, WhatIsMeasuredIsWhatWouldBeBuilt) {
  EXPECT_EQ(Now().standing, Standing::kMeasured);
  EXPECT_THAT(Now().changed, IsEmpty());
  EXPECT_EQ(Now().Text(), "");
  best_.environment.driver = "570";
  EXPECT_EQ(Now().standing, Standing::kMeasured) << "the source and its code are the same";
  EXPECT_THAT(Now().changed, ElementsAre("driver"));
}

TEST_F(QueryTest, OtherSourceGeneratorOrCompilerIsStale) {
  Records::Best was = best_;
  best_.trial.result.source_hash = "x";
  EXPECT_EQ(Now().standing, Standing::kStale);
  EXPECT_THAT(Now().changed, ElementsAre("source"));
  best_.trial.result.source_hash = "";
  EXPECT_THAT(Now().changed, ElementsAre("source")) << "nobody knows what ran";
  best_ = was;
  best_.environment.generator_version -= 1;
  EXPECT_THAT(Now().changed, ElementsAre("generator"));
  best_.environment.compiler = "NVRTC 13.0 (build 2cab07a344b5f541)";
  EXPECT_EQ(Now().standing, Standing::kStale);
  EXPECT_EQ(Now().Text(), "stale: generator, compiler have changed since it was measured");
  device_.compiler.clear();
  EXPECT_THAT(Now().changed, ElementsAre("generator")) << "a description has no compiler";
  best_ = was;
  best_.trial.steps = "no such step()";
  EXPECT_THAT(Now().changed, ElementsAre("source"));
}

TEST_F(QueryTest, ADeviceOfAnotherSizeIsForeign) {
  best_.environment.sm_count = 64;
  EXPECT_EQ(Now().standing, Standing::kForeign);
  best_.environment.generator_version -= 1;
  EXPECT_EQ(Now().standing, Standing::kForeign);
  EXPECT_THAT(Now().changed, ElementsAre("device", "generator"));
}

}  // namespace
}  // namespace heddle::tuner
