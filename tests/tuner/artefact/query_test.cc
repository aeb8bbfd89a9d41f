// What a record says of what would be built now.
#include "tuner/artefact/query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "measure/codegen/codegen.h"
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
  best_.environment.generator_version = measure::kSameCodeSince - 1;
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

// As generator 12 recorded them, whose kernels differ in names and comments only.
TEST_F(QueryTest, WhatWasMeasuredUnderOtherNamesIsMeasured) {
  struct Case {
    const char* op;
    const char* shape;
    search_space::DType dtype;
    const char* point;
    const char* hash;
  };
  using search_space::DType;
  const Case cases[] = {
      {"matmul", "m=512,n=512,k=512", DType::kFloat32,
       "tile: i.vthread=2 i.warps=2 i.lanes=8 i.tile=4 j.vthread=1 j.warps=2 j.lanes=4 j.tile=4 "
       "r.inner=8 A.fetch=4 A.pad=4 A.align=1 B.fetch=4 B.pad=0 B.align=1 fragments_out=0 "
       "pipeline=4 unroll=1 prefetch=1 interleave=0 min_blocks=0 block_swizzle=1 split_k=16 "
       "slice_k=1",
       "828103bd1a25a808"},
      {"softmax", "m=512,n=1024", DType::kFloat32,
       "rows: threads=256 rows=2 vector=1 hold=1 unroll=1", "99d80eb418832146"},
      {"matmul_nt", "m=512,n=512,k=512", DType::kBFloat16,
       "matrix: swap=0 m.warps=1 n.warps=4 m.tiles=4 n.tiles=2 k.steps=4 split_k=1 pipeline=4 "
       "prefetch=1 block_swizzle=8 min_blocks=2 staged=0",
       "09083eade9ba8ddb"},
      {"transpose", "m=512,n=512", DType::kFloat32,
       "stage: rows=8 columns=128 threads_y=1 vector=1 pad=4 fetch=4", "2ee8155ab6edf71a"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.op);
    program_ = std::make_shared<const search_space::TensorProgram>(
        *search_space::FindOperator(search_space::BuiltinOperators(), c.op)
             ->Instantiate(*search_space::ParseShape(c.shape), c.dtype));
    const auto space = search_space::SearchSpace::Create(program_, device_.target);
    const auto point = space->Parse(c.point);
    ASSERT_TRUE(point.ok()) << point.status();
    best_.trial.steps = search_space::ToString(*space->Steps(*point));
    best_.trial.result.source_hash = c.hash;
    best_.environment.generator_version = 12;
    EXPECT_EQ(Now().standing, Standing::kMeasured);
    EXPECT_THAT(Now().changed, IsEmpty());
    best_.environment.generator_version = measure::kSameCodeSince - 1;
    EXPECT_THAT(Now().changed, ElementsAre("generator")) << "which rounded tf32 otherwise";
  }
}

TEST_F(QueryTest, ADeviceOfAnotherSizeIsForeign) {
  best_.environment.sm_count = 64;
  EXPECT_EQ(Now().standing, Standing::kForeign);
  best_.environment.generator_version = measure::kSameCodeSince - 1;
  EXPECT_EQ(Now().standing, Standing::kForeign);
  EXPECT_THAT(Now().changed, ElementsAre("device", "generator"));
}

}  // namespace
}  // namespace heddle::tuner
