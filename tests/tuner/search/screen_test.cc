#include "tuner/search/proposers/screen.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "search_space/notation/notation.h"

namespace heddle::tuner {
namespace {

using search_space::Point;
using search_space::SearchSpace;

struct Case {
  const char* op;
  const char* shape;
};
// Programs of one and more kernels: reductions that are split, rows, Winograd's algorithm.
constexpr Case kCases[] = {
    {"gemm_relu_add", "m=200,n=136,k=96"},
    {"matmul", "m=64,n=64,k=2048"},
    {"softmax", "m=64,n=257"},
    {"conv2d", "n=1,ci=32,h=28,w=28,co=32,kh=3,kw=3,pad=1"},
    {"conv2d_bias_relu", "n=1,ci=16,h=14,w=14,co=48,kh=3,kw=3,pad=1"},
};

class ScreenTest : public testing::TestWithParam<Case> {};

// A population and its mutants, in batches as a search asks for them.
TEST_P(ScreenTest, FeaturesAreThoseOfThePointsLoweredAlone) {
  const auto op = *search_space::FindOperator(search_space::BuiltinOperators(), GetParam().op);
  const auto program = std::make_shared<const search_space::TensorProgram>(
      *op.Instantiate(*search_space::ParseShape(GetParam().shape), search_space::DType::kFloat32));
  const SearchSpace space = *SearchSpace::Create(program, *search_space::FindTarget("h100"));
  search_space::Rng rng(7);
  std::vector<Point> points = {space.Default()};
  while (points.size() < 40) points.push_back(*space.Sample(rng));
  Screen screen(space, 3);
  size_t kernels = 0;
  for (int batch = 0; batch < 4; ++batch) {
    const auto features = screen.Features(points);
    for (size_t i = 0; i < points.size(); ++i) {
      const auto lowered = search_space::LowerSteps(program, *space.Steps(points[i]));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      kernels = std::max(kernels, lowered->kernels.size());
      EXPECT_EQ(*features[i], *FeaturesOf(*lowered, space.target())) << space.Print(points[i]);
    }
    for (Point& point : points) {
      if (auto mutant = space.Mutate(point, rng)) point = *std::move(mutant);
    }
    if (batch == 1) screen.Forget(10);
  }
  EXPECT_GT(kernels, 1u);
}

// What a search asks for again and again stays, however many others it has seen.
TEST(ScreenForgetTest, WhatWasUsedLastStays) {
  const auto op = *search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
  const auto program = std::make_shared<const search_space::TensorProgram>(
      *op.Instantiate(*search_space::ParseShape("m=64,n=64,k=64"), search_space::DType::kFloat32));
  const SearchSpace space = *SearchSpace::Create(program, *search_space::FindTarget("h100"));
  search_space::Rng rng(7);
  std::vector<Point> hot, others;
  while (hot.size() < 10) hot.push_back(*space.Sample(rng));
  Screen screen(space, 1);
  screen.Features(hot);
  for (int batch = 0; batch < 4; ++batch) {
    others.clear();
    while (others.size() < 20) others.push_back(*space.Sample(rng));
    screen.Features(others);
    screen.Features(hot);
    const size_t before = screen.lowered();
    screen.Forget(40);
    screen.Features(hot);
    EXPECT_EQ(screen.lowered(), before) << "lowered again";
  }
  const size_t before = screen.lowered();
  screen.Forget(2);
  screen.Features(others);
  EXPECT_GT(screen.lowered(), before);
}

INSTANTIATE_TEST_SUITE_P(Operators, ScreenTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.op); });

}  // namespace
}  // namespace heddle::tuner
