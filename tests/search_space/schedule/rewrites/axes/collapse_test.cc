// Which dimensions become one. That schedules of the collapsed programs compute the definition is
// the property test's to show.
#include "search_space/schedule/rewrites/axes/collapse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "search_space/notation/notation.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/programs/algorithms.h"
#include "search_space/sketch/search_space.h"

namespace heddle::search_space {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const TensorProgram> Make(const char* op, const char* shape,
                                          DType type = DType::kFloat32) {
  return std::make_shared<const TensorProgram>(
      *FindOperator(BuiltinOperators(), op)->Instantiate(*ParseShape(shape), type));
}

std::vector<std::string> AlgorithmNames(const std::shared_ptr<const TensorProgram>& program) {
  std::vector<std::string> names;
  for (const Algorithm& a : AlgorithmsOf(program)) names.push_back(a.name);
  return names;
}

TEST(CollapseTest, MakesAMatrixProductOfAPointwiseConvolution) {
  const auto program = Make("conv2d", "n=1,ci=6,h=5,w=7,co=4,kh=1,kw=1");
  const auto collapsed = Collapse(*program, "Y");
  ASSERT_TRUE(collapsed.ok()) << collapsed.status();
  ASSERT_EQ((*collapsed)->inputs.size(), 2);
  EXPECT_THAT((*collapsed)->inputs[0]->shape, ElementsAre(6, 35));
  EXPECT_THAT((*collapsed)->inputs[1]->shape, ElementsAre(4, 6));
  const Stage& y = (*collapsed)->stages.back();
  EXPECT_THAT(y.tensor->shape, ElementsAre(4, 35));
  ASSERT_EQ(y.reduce_axes.size(), 1);
  EXPECT_EQ(ToString(y.body), "P[c, yx] * W[o, c]");
  EXPECT_EQ((*collapsed)->canonical_text, program->canonical_text);
  EXPECT_EQ((*collapsed)->Flops(), program->Flops());
  EXPECT_THAT(AlgorithmNames(program), ElementsAre("definition", "collapse"));
}

TEST(CollapseTest, KeepsTheBatchApartWhereAnInputIsNotReadAlongIt) {
  const auto batch = Collapse(*Make("conv2d", "n=3,ci=6,h=5,w=7,co=4,kh=1,kw=1"), "Y");
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT((*batch)->inputs[0]->shape, ElementsAre(3, 6, 35));
  EXPECT_THAT((*batch)->stages.back().tensor->shape, ElementsAre(3, 4, 35));
  // Channels last, batch and image are all rows of one matrix.
  const auto last = Collapse(*Make("conv2d_nhwc", "n=3,ci=6,h=5,w=7,co=4,kh=1,kw=1"), "Y");
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_THAT((*last)->inputs[0]->shape, ElementsAre(105, 6));
  EXPECT_THAT((*last)->stages.back().tensor->shape, ElementsAre(105, 4));
}

TEST(CollapseTest, LeavesAloneWhatAWindowPaddingOrAStrideTakesApart) {
  struct Case {
    const char *op, *shape;
  };
  for (const auto& [op, shape] :
       {Case{"conv2d", "n=1,ci=6,h=5,w=7,co=4,kh=3,kw=3,pad=1"},
        Case{"conv2d", "n=1,ci=6,h=5,w=7,co=4,kh=1,kw=1,pad=1"},
        Case{"conv2d", "n=1,ci=6,h=5,w=7,co=4,kh=1,kw=1,stride=2"}, Case{"matmul", "m=4,n=5,k=6"},
        Case{"batch_matmul", "b=3,m=4,n=5,k=6"}, Case{"softmax", "m=4,n=5"}}) {
    const auto program = Make(op, shape);
    const auto collapsed = Collapse(*program, program->stages.back().name());
    EXPECT_THAT(std::string(collapsed.status().message()), HasSubstr("walked together"))
        << op << " " << shape;
    EXPECT_THAT(AlgorithmNames(program), ::testing::Not(::testing::Contains("collapse")));
  }
}

TEST(CollapseTest, NamesTheMergedAxisLikeNoOther) {
  const auto operators = ParseOperators(R"(
op rows_by_vector(n, m, k) {
  in A[n, m, k], W[k]
  out C[a: n, b: m] = sum(ab: k) A[a, b, ab] * W[ab]
})");
  ASSERT_TRUE(operators.ok()) << operators.status();
  const auto program = operators->at(0).Instantiate(*ParseShape("n=6,m=5,k=9"), DType::kFloat32);
  const auto collapsed = Collapse(*program, "C");
  ASSERT_TRUE(collapsed.ok()) << collapsed.status();
  const Stage& c = (*collapsed)->stages.back();
  EXPECT_EQ(c.axes[0]->name, "ab_");
  EXPECT_EQ(c.reduce_axes[0]->name, "ab");
}

// Two statistics of an image and what they scale it by.
TEST(CollapseTest, ImagesAreRowsOfOneKernel) {
  const auto kernels_of = [](const std::string& scaled_by) {
    const auto operators = ParseOperators(absl::StrCat(R"(
op normalised(n, c, h, w) {
  in X[n, c, h, w], G[c]
  S[b: n, q: c] = sum(y: h, x: w) X[b, q, y, x]
  V[b: n, q: c] = sum(y: h, x: w) (X[b, q, y, x] - S[b, q]) * (X[b, q, y, x] - S[b, q])
  out Y[b: n, q: c, y: h, x: w] = X[b, q, y, x] * V[b, q] * )",
                                                       scaled_by, "\n}"));
    const auto space =
        SearchSpace::Create(std::make_shared<const TensorProgram>(*operators->at(0).Instantiate(
                                *ParseShape("n=2,c=6,h=6,w=8"), DType::kFloat32)),
                            *FindTarget("h100"));
    const auto point = space->Parse("collapse/rows: threads=32 rows=1 vector=4 hold=1");
    return point.ok() ? space->Lower(*point)->kernels.size() : 0;
  };
  EXPECT_EQ(kernels_of("G[q]"), 1);
  EXPECT_EQ(kernels_of("G[y]"), 0) << "an image's rows differ";
}

TEST(FlattenTest, PositionsOfWindowsAreRowsOfOneMatrix) {
  const auto padded = Flatten(*Make("conv2d_nhwc", "n=3,ci=6,h=5,w=7,co=4,kh=3,kw=3,pad=1"), "Y");
  ASSERT_TRUE(padded.ok()) << padded.status();
  EXPECT_THAT((*padded)->inputs[0]->shape, ElementsAre(3, 5, 7, 6)) << "inputs stay";
  const Stage& y = (*padded)->stages.back();
  EXPECT_THAT(y.tensor->shape, ElementsAre(105, 4));
  EXPECT_EQ(ToString(y.body), "P[byx / 35, ry + byx / 7 % 5, rx + byx % 7, c] * W[ry, rx, c, o]");
  // Channels lie between the images of a batch and their rows.
  const auto first = Flatten(*Make("conv2d", "n=3,ci=6,h=5,w=7,co=4,kh=3,kw=3,stride=2"), "Y");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT((*first)->stages.back().tensor->shape, ElementsAre(3, 4, 6));
}

TEST(FlattenTest, IsAnAlgorithmForNumbersThatUnitsForMatricesTake) {
  const char* shape = "n=2,ci=6,h=5,w=7,co=4,kh=5,kw=5,pad=2";
  EXPECT_THAT(AlgorithmNames(Make("conv2d_nhwc", shape, DType::kTF32)),
              ElementsAre("definition", "flatten"));
  EXPECT_THAT(AlgorithmNames(Make("conv2d_nhwc", shape)), ElementsAre("definition"));
}

TEST(FlattenTest, WhatIsComputedWithTheSumHasItsAxes) {
  const auto biased =
      Flatten(*Make("conv2d_bias_relu", "n=2,ci=6,h=5,w=7,co=4,kh=3,kw=3,pad=1"), "T");
  ASSERT_TRUE(biased.ok()) << biased.status();
  EXPECT_THAT((*biased)->stages.back().tensor->shape, ElementsAre(2, 4, 35));
}

TEST(FlattenTest, LeavesAloneWhatIsNoWindowOrIsReadAlongOneAxis) {
  struct Case {
    const char *op, *shape;
  };
  for (const auto& [op, shape] :
       {Case{"matmul", "m=4,n=5,k=6"}, Case{"batch_matmul", "b=3,m=4,n=5,k=6"},
        Case{"conv2d", "n=2,ci=6,h=5,w=7,co=4,kh=1,kw=1"}, Case{"softmax", "m=4,n=5"}}) {
    const auto program = Make(op, shape, DType::kBFloat16);
    const auto flattened = Flatten(*program, program->stages.back().name());
    EXPECT_THAT(std::string(flattened.status().message()), HasSubstr("positions of windows"))
        << op << " " << shape;
    EXPECT_THAT(AlgorithmNames(program), ::testing::Not(::testing::Contains("flatten")));
  }
}

TEST(FlattenSumTest, TheElementsOfAWindowAreARowOfAMatrix) {
  const auto program = Make("conv2d_nhwc", "n=3,ci=3,h=5,w=7,co=4,kh=3,kw=3", DType::kBFloat16);
  const auto flattened = FlattenSum(*program, "Y");
  ASSERT_TRUE(flattened.ok()) << flattened.status();
  const Stage& y = (*flattened)->stages.back();
  ASSERT_THAT(y.reduce_axes.size(), 1);
  EXPECT_EQ(y.reduce_axes[0]->extent, 32) << "27 terms, and nothing up to whole matrices";
  EXPECT_EQ(ToString(y.body),
            "float32(select(ryrxc < 27, P[b, y + ryrxc / 9, x + ryrxc / 3 % 3, ryrxc % 3], 0)) * "
            "float32(select(ryrxc < 27, W[ryrxc / 9, ryrxc / 3 % 3, ryrxc % 3, o], 0))");
}

TEST(FlattenSumTest, IsForProductsOfWhichNoAxisFillsAMatrix) {
  const char* small = "n=3,ci=3,h=9,w=7,co=4,kh=3,kw=3,stride=2";
  const auto steps_of = [](const char* op, const char* shape, DType type) {
    std::string steps;
    for (const Algorithm& algorithm : AlgorithmsOf(Make(op, shape, type))) {
      if (algorithm.name == "flatten") steps += ToString(algorithm.steps);
    }
    return steps;
  };
  EXPECT_THAT(steps_of("conv2d_nhwc", small, DType::kBFloat16), HasSubstr("flatten_sum(Y"));
  EXPECT_THAT(steps_of("conv2d", small, DType::kFloat16), HasSubstr("flatten_sum(Y"));
  EXPECT_EQ(steps_of("conv2d", small, DType::kFloat32), "");
  const char* deep = "n=3,ci=8,h=9,w=7,co=4,kh=3,kw=3";
  EXPECT_THAT(steps_of("conv2d_nhwc", deep, DType::kBFloat16), Not(HasSubstr("flatten_sum")));
  // Of each channel by itself there is no matrix.
  EXPECT_THAT(steps_of("depthwise_conv2d", "n=3,c=8,h=9,w=7,kh=3,kw=3", DType::kBFloat16),
              Not(HasSubstr("flatten_sum")));
}

TEST(FlattenSumTest, LeavesAloneWhatIndicesChoose) {
  for (const char* value : {"select(I[r, s] == 0, X[i, r, s], 0)", "X[i, r, I[r, s]]"}) {
    const auto operators = ParseOperators(
        absl::StrCat("op chosen(m, n) {\n  in X[m, 3, 5], W[n, 3, 5], I[3, 5]: index(5)\n"
                     "  out Y[i: m, j: n] = sum(r: 3, s: 5) ",
                     value, " * W[j, r, s]\n}"));
    ASSERT_TRUE(operators.ok()) << operators.status();
    const auto program = operators->at(0).Instantiate(*ParseShape("m=4,n=6"), DType::kBFloat16);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_FALSE(FlattenSum(*program, "Y").ok()) << value;
  }
}

TEST(FlattenSumTest, LeavesAloneWhatIsNoSumOfProducts) {
  for (const auto& [op, shape] : {std::pair{"matmul", "m=4,n=5,k=6"}, {"softmax", "m=4,n=5"}}) {
    const auto program = Make(op, shape, DType::kBFloat16);
    const auto flattened = FlattenSum(*program, program->stages.back().name());
    EXPECT_THAT(std::string(flattened.status().message()), HasSubstr("along several axes")) << op;
  }
}

TEST(CollapseTest, ComesBeforeAllOtherSteps) {
  Schedule schedule(Make("conv2d", "n=1,ci=6,h=5,w=7,co=4,kh=1,kw=1"));
  ASSERT_TRUE(Apply(Split{"Y", "y", {5}}, schedule).ok());
  EXPECT_THAT(std::string(Apply(CollapseAxes{"Y"}, schedule).message()), HasSubstr("before all"));
  EXPECT_THAT(std::string(Apply(FlattenAxes{"Y"}, schedule).message()), HasSubstr("before all"));
  EXPECT_THAT(std::string(Apply(FlattenSumAxes{"Y"}, schedule).message()), HasSubstr("before all"));
}

}  // namespace
}  // namespace heddle::search_space
