// Which reductions Winograd's filtering takes, what it makes of them, and how exact the result is.
// That its schedules compute the definition is the property test's to show.
#include "search_space/schedule/rewrites/algebra/winograd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "search_space/check/interpret.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/programs/algorithms.h"
#include "search_space/sketch/programs/least_flops.h"
#include "search_space/sketch/search_space.h"

namespace heddle::search_space::winograd_test {
namespace {

std::shared_ptr<const TensorProgram> Make(const char* op, const char* shape) {
  return std::make_shared<const TensorProgram>(
      *FindOperator(BuiltinOperators(), op)->Instantiate(*ParseShape(shape), DType::kFloat32));
}

TEST(WinogradTest, PutsFiveStagesInThePlaceOfTheReduction) {
  Schedule schedule(Make("conv2d", "n=2,ci=3,h=7,w=6,co=4,kh=3,kw=3,pad=1"));
  ASSERT_TRUE(Apply(Winograd{"Y.acc"}, schedule).ok());
  struct Expected {
    const char* name;
    std::vector<int64_t> shape;
    bool is_reduction, materialized;
  };
  // 4 x 3 tiles of 2x2 results cover 7 x 6.
  const Expected expected[] = {
      {"P", {2, 3, 9, 8}, false, false},         {"Y.acc.u", {16, 3, 4}, false, true},
      {"Y.acc.v", {16, 2, 3, 12}, false, true},  {"Y.acc.m.acc", {16, 2, 4, 12}, true, false},
      {"Y.acc.m", {16, 2, 4, 12}, false, false}, {"Y.acc", {2, 4, 7, 6}, false, false},
      {"Y", {2, 4, 7, 6}, false, false}};
  ASSERT_EQ(schedule.stages().size(), std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i) {
    const ScheduledStage& stage = schedule.stages()[i];
    EXPECT_EQ(stage.name(), expected[i].name);
    EXPECT_EQ(stage.tensor->shape, expected[i].shape) << stage.name();
    EXPECT_EQ(stage.is_reduction(), expected[i].is_reduction) << stage.name();
    EXPECT_EQ(stage.materialized, expected[i].materialized) << stage.name();
  }
}

TEST(WinogradTest, RefusesWhatIsNoWindowOfThree) {
  const std::pair<const char*, const char*> cases[] = {
      {"conv2d", "n=1,ci=4,h=8,w=8,co=4,kh=3,kw=3,stride=2,pad=1"},  // steps of two
      {"conv2d", "n=1,ci=4,h=8,w=8,co=4,kh=5,kw=5,pad=2"},           // another window
      {"conv2d", "n=1,ci=4,h=8,w=8,co=4,kh=3,kw=1"},                 // one-dimensional
      {"depthwise_conv2d", "n=1,c=4,h=8,w=8,kh=3,kw=3,pad=1"},       // nothing else to sum over
      {"matmul", "m=3,n=3,k=3"},
  };
  for (const auto& [op, shape] : cases) {
    const auto program = Make(op, shape);
    EXPECT_EQ(AlgorithmsOf(program).size(), 1) << op << " " << shape;
    Schedule schedule(program);
    const std::string reduction = std::string(op) == "matmul" ? "C.acc" : "Y.acc";
    const absl::Status status = Apply(Winograd{reduction}, schedule);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.ToString().find("3x3 window"), std::string::npos) << status;
  }
}

TEST(WinogradTest, TransformsCannotBeInlinedIntoTheProduct) {
  Schedule schedule(Make("conv2d", "n=1,ci=4,h=8,w=8,co=4,kh=3,kw=3,pad=1"));
  ASSERT_TRUE(Apply(Winograd{"Y.acc"}, schedule).ok());
  EXPECT_FALSE(Apply(ComputeInline{"Y.acc.v"}, schedule).ok());
}

TEST(WinogradTest, MultipliesSixteenWhereTheDefinitionMultipliesThirtySix) {
  // With many channels the transforms cost little: 16 / 36 of the operations remain.
  const auto program = Make("conv2d", "n=1,ci=512,h=64,w=64,co=512,kh=3,kw=3,pad=0");
  const double ratio = LeastFlops(*program) / program->Flops();
  EXPECT_GT(ratio, 16.0 / 36);
  EXPECT_LT(ratio, 1.1 * 16 / 36);
}

double NormOf(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return std::sqrt(sum);
}

// The transforms add a few roundings and the product saves more: at usual channel counts the error
// against exact arithmetic stays in the range of the direct sum's.
TEST(WinogradTest, Float32ErrorIsInTheRangeOfTheDirectSum) {
  const auto program = Make("conv2d", "n=1,ci=64,h=10,w=10,co=8,kh=3,kw=3,pad=1");
  TensorValues exact;
  std::mt19937_64 rng(3);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const BufferRef& input : program->inputs) {
    std::vector<double>& values = exact[input->name];
    values.resize(static_cast<size_t>(input->elements));
    for (double& v : values) v = uniform(rng);
  }
  TensorValues inputs = exact;
  EvaluateAll(*program, exact);
  const Target target = *FindTarget("h100");
  const SearchSpace space = *SearchSpace::Create(program, target);
  auto error = [&](const std::vector<Step>& steps) {
    TensorValues values = inputs;
    const absl::Status ran = Interpret(*LowerSteps(program, steps), values, {});
    EXPECT_TRUE(ran.ok()) << ran;
    return NormOf(values.at("Y"), exact.at("Y"));
  };
  const double direct = error(*space.Steps(space.Default()));
  ASSERT_GT(direct, 0) << "the interpreter does not round to float32";
  Rng points(1);
  bool seen = false;
  for (int i = 0; i < 200 && !seen; ++i) {
    const Point point = *space.Sample(points);
    seen = space.Print(point).rfind("winograd/", 0) == 0;
    if (seen) {
      EXPECT_LT(error(*space.Steps(point)), 2 * direct);
    }
  }
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace heddle::search_space::winograd_test
