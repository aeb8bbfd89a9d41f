// The naive schedule of long sums: what validation compares with must itself be right.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/sketch/search_space.h"

namespace heddle::search_space::naive_test {
namespace {

std::shared_ptr<const TensorProgram> Own(const std::string& text, const char* shape) {
  const auto operators = ParseOperators(text);
  EXPECT_TRUE(operators.ok()) << operators.status();
  return std::make_shared<const TensorProgram>(
      *operators->front().Instantiate(*ParseShape(shape), DType::kFloat32));
}

TEST(NaiveSteps, ALongSumIsAddedUpInParts) {
  const struct {
    const char *op, *shape;
    bool in_parts;
  } cases[] = {
      {"op f(n) { in A[n] out S[i: 1] = sum(r: n) A[r] * (i + 1) }", "n=5003", true},
      {"op f(m, n) { in A[m, n], B[m, n] S[i: 1] = sum(r: m, q: n) (A[r, q] - B[r, q]) * "
       "(A[r, q] - B[r, q]) out L[i: 1] = S[i] / (m * n) }",
       "m=83,n=61", true},
      {"op f(m, n) { in A[m, n] S[i: m] = sum(r: n) A[i, r] D[i: m, j: n] = A[i, j] - S[i] "
       "V[i: m] = sum(r: n) D[i, r] * D[i, r] out Y[i: m] = V[i] }",
       "m=3,n=4100", true},
      {"op f(n) { in A[n] out S[i: 1] = max(r: n) A[r] * (i + 1) }", "n=5003", false},
      {"op f(n) { in A[n] out S[i: 1] = sum(r: n) A[r] * (i + 1) }", "n=4096", false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.op);
    const auto program = Own(c.op, c.shape);
    TensorValues values, expected;
    for (const BufferRef& input : program->inputs) {
      for (int64_t i = 0; i < input->elements; ++i) {
        values[input->name].push_back(static_cast<double>((i * 7 + i / 11) % 9) - 4);
      }
    }
    expected = values;
    EvaluateAll(*program, expected);
    const Target target = *FindTarget("h100");
    const auto steps = NaiveSteps(*program);
    const auto lowered = LowerSteps(program, steps);
    ASSERT_TRUE(lowered.ok()) << lowered.status() << "\n" << ToString(steps);
    EXPECT_TRUE(Verify(*lowered, target).ok());
    EXPECT_TRUE(Interpret(*lowered, values, {.seed = 1}).ok());
    for (const BufferRef& output : lowered->outputs) {
      const auto &want = expected.at(output->name), &got = values.at(output->name);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], 1e-6 * (1 + std::abs(want[i])));
      }
    }
    EXPECT_EQ(ToString(steps).find("rfactor") != std::string::npos, c.in_parts) << ToString(steps);
  }
}

}  // namespace
}  // namespace heddle::search_space::naive_test
