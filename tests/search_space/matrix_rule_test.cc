// The rules for products of matrices: every point that they draw is valid and computes the product.
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/match.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/lower/lower.h"
#include "search_space/notation/notation.h"
#include "search_space/notation/reference.h"
#include "search_space/sketch/search_space.h"

namespace heddle::search_space {
namespace {

std::shared_ptr<const TensorProgram> Instantiated(const std::string& op, const std::string& shape,
                                                  DType type) {
  return std::make_shared<const TensorProgram>(
      *FindOperator(BuiltinOperators(), op)->Instantiate(*ParseShape(shape), type));
}

// Integers from -4 to 4: their sums are exact in any order.
TensorValues IntegerInputs(const TensorProgram& program) {
  TensorValues values;
  std::mt19937_64 rng(5);
  for (const BufferRef& input : program.inputs) {
    std::vector<double>& made = values[input->name];
    for (int64_t i = 0; i < input->elements; ++i) {
      made.push_back(static_cast<double>(rng() % 9) - 4);
    }
  }
  return values;
}

void ExpectComputes(const TensorProgram& program, const Program& lowered, uint64_t seed) {
  TensorValues expected = IntegerInputs(program), got = expected;
  EvaluateAll(program, expected);
  const absl::Status ran = Interpret(lowered, got, {.seed = seed});
  ASSERT_TRUE(ran.ok()) << ran << ToString(lowered);
  for (const BufferRef& output : lowered.outputs) {
    ASSERT_EQ(got.at(output->name), expected.at(output->name)) << ToString(lowered);
  }
}

struct Case {
  const char* op;
  const char* shape;
  DType type;
};

class MatrixRules : public testing::TestWithParam<std::tuple<const char*, Case>> {};

TEST_P(MatrixRules, EveryDrawnPointComputesTheProduct) {
  const auto& [sketch, c] = GetParam();
  const auto program = Instantiated(c.op, c.shape, c.type);
  const Target target = *FindTarget("h100");
  const auto space = SearchSpace::Create(program, target);
  ASSERT_TRUE(space.ok());
  Rng rng(3);
  int seen = 0;
  for (int i = 0; i < 400 && seen < 6; ++i) {
    const auto point = space->Sample(rng);
    ASSERT_TRUE(point.has_value());
    if (!absl::StartsWith(space->Print(*point), sketch)) continue;
    ++seen;
    SCOPED_TRACE(space->Print(*point));
    const auto steps = space->Steps(*point);
    ASSERT_TRUE(steps.ok()) << steps.status();
    const auto lowered = LowerSteps(program, *steps);
    ASSERT_TRUE(lowered.ok()) << lowered.status() << ToString(*steps);
    const absl::Status verified = Verify(*lowered, target);
    ASSERT_TRUE(verified.ok()) << verified << ToString(*lowered);
    ExpectComputes(*program, *lowered, rng());
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(seen, 6);
}

INSTANTIATE_TEST_SUITE_P(
    Operators, MatrixRules,
    testing::Combine(testing::Values("matrix", "warpgroup"),
                     testing::Values(Case{"matmul", "m=64,n=72,k=48", DType::kBFloat16},
                                     Case{"matmul_nt", "m=70,n=64,k=40", DType::kFloat16},
                                     Case{"matmul_tn", "m=48,n=33,k=96", DType::kBFloat16},
                                     Case{"batch_matmul", "b=3,m=40,n=24,k=32", DType::kFloat16},
                                     Case{"gemm_relu_add", "m=37,n=41,k=27", DType::kBFloat16})),
    [](const auto& info) {
      return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).op;
    });

}  // namespace
}  // namespace heddle::search_space
