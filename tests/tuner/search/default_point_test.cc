// The schedule of a workload of which nothing is known yet.
#include "tuner/search/default_point.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>

#include "search_space/notation/notation.h"
#include "search_space/schedule/step.h"
#include "tuner/model/features.h"

namespace heddle::tuner::default_point_test {
namespace {

using search_space::Point;
using search_space::SearchSpace;

std::shared_ptr<const search_space::TensorProgram> Workload(const std::string& op,
                                                            const std::string& shape) {
  return std::make_shared<const search_space::TensorProgram>(
      *search_space::FindOperator(search_space::BuiltinOperators(), op)
           ->Instantiate(*search_space::ParseShape(shape), search_space::DType::kFloat32));
}

double TimeOf(const SearchSpace& space, const Point& point) {
  return AnalyticTimeUs(*FeaturesOf(*space.Lower(point), space.target()));
}

// By the analytic time. A product without tiles is several times slower than one with.
TEST(DefaultPointTest, IsNoWorseThanTheSimplestAndATileForAProduct) {
  const search_space::Target target = *search_space::FindTarget("h100");
  for (const auto& [op, shape, most] :
       {std::tuple{"matmul", "m=1024,n=1024,k=1024", 0.2},
        std::tuple{"conv2d", "n=1,ci=64,h=56,w=56,co=64,kh=3,kw=3,pad=1", 0.5},
        std::tuple{"softmax", "m=4096,n=1000", 0.9}, std::tuple{"vector_add", "n=1048576", 1.0}}) {
    const SearchSpace space = *SearchSpace::Create(Workload(op, shape), target);
    const Point point = DefaultPoint(space);
    EXPECT_TRUE(space.Check(point).ok());
    EXPECT_LE(TimeOf(space, point), most * TimeOf(space, space.Default()))
        << op << ": " << space.Print(point);
  }
}

TEST(DefaultPointTest, IsTheSameEveryTime) {
  const auto program = Workload("conv2d_bias_relu", "n=1,ci=16,h=14,w=14,co=48,kh=3,kw=3,pad=1");
  const search_space::Target target = *search_space::FindTarget("h100");
  const SearchSpace one = *SearchSpace::Create(program, target);
  const SearchSpace other = *SearchSpace::Create(program, target);
  EXPECT_EQ(one.Print(DefaultPoint(one)), other.Print(DefaultPoint(other)));
  auto answer = FallBack(Fallback::kDefault, program, target, {}, nullptr);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->match, Match::kDefault);
  EXPECT_EQ(FallBack(Fallback::kNone, program, target, {}, nullptr)->match, Match::kNone);
  EXPECT_EQ(answer->steps, search_space::ToString(*one.Steps(DefaultPoint(one))));
}

}  // namespace
}  // namespace heddle::tuner::default_point_test
