// Operators of a test's own, and whether their kernels compute them, bit by bit: products of
// integers, whose sums are exact in any order.
#ifndef HEDDLE_TESTS_SEARCH_SPACE_PRODUCTS_H_
#define HEDDLE_TESTS_SEARCH_SPACE_PRODUCTS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/sketch/programs/form.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/drawn_points.h"

namespace heddle::search_space {

// Products that are not built in: both factors across the sum, and what is fused behind one.
inline constexpr char kProducts[] = R"(
op matmul_tt(m, n, k) {
  in A[k, m], B[n, k]
  out C[i: m, j: n] = sum(r: k) A[r, i] * B[j, r]
}
op linear_relu(m, n, k) {
  in X[m, k], W[n, k], B[n]
  P[i: m, j: n] = sum(r: k) X[i, r] * W[j, r]
  out Y[i: m, j: n]: float32 = max(P[i, j] + B[j], 0)
}
op linear_gelu(m, n, k) {
  in X[m, k], W[n, k], B[n]
  P[i: m, j: n] = sum(r: k) X[i, r] * W[j, r]
  H[i: m, j: n] = P[i, j] + B[j]
  out Y[i: m, j: n] = H[i, j] * 0.5 * (1 + erf(H[i, j] * 0.70710678))
}
op scaled_residual(m, n, k) {
  in X[m, k], W[k, n], S[m]: float32, R[m, n]
  P[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  out Y[i: m, j: n] = P[i, j] * S[i] + R[i, j]
  out Z[i: m, j: n]: float32 = P[i, j] * S[i]
}
)";

// Whether the point's main kernel is of a rule for units that multiply matrices.
inline bool IsOnMatrixUnits(const std::string& point) {
  const std::string sketch = point.substr(0, point.find(':'));
  return absl::StrContains(sketch, "matrix") || absl::StrContains(sketch, "warpgroup");
}

// A built-in operator, or one of those that `operators` defines.
inline std::shared_ptr<const TensorProgram> InstantiatedFrom(const std::string& operators,
                                                             const std::string& op,
                                                             const std::string& shape, DType type) {
  auto found = FindOperator(BuiltinOperators(), op);
  if (!found.ok()) found = FindOperator(*ParseOperators(operators), op);
  return std::make_shared<const TensorProgram>(*found->Instantiate(*ParseShape(shape), type));
}

// From -4 to 4; indices of all values that they may have, and up to 8.
inline TensorValues IntegerInputs(const TensorProgram& program) {
  TensorValues values;
  std::mt19937_64 rng(5);
  for (const BufferRef& input : program.inputs) {
    std::vector<double>& made = values[input->name];
    const double least = input->dtype == DType::kInt32 ? 0 : -4;
    const auto choices = static_cast<uint64_t>(std::max<int64_t>(9, input->index_extent));
    for (int64_t i = 0; i < input->elements; ++i) {
      made.push_back(static_cast<double>(rng() % choices) + least);
    }
  }
  return values;
}

inline void ExpectComputes(const TensorProgram& program, const Program& lowered, uint64_t seed) {
  TensorValues expected = IntegerInputs(program), got = expected;
  EvaluateAll(program, expected);
  const absl::Status ran = Interpret(lowered, got, {.seed = seed});
  ASSERT_TRUE(ran.ok()) << ran << ToString(lowered);
  for (const BufferRef& output : lowered.outputs) {
    ASSERT_EQ(got.at(output->name), expected.at(output->name)) << ToString(lowered);
  }
}

// That the program has another form (form.h), in which its output Y is the same.
inline void ExpectFormComputes(const std::shared_ptr<const TensorProgram>& program) {
  const Form form = FormOf(program);
  EXPECT_FALSE(form.steps.empty());
  TensorValues expected = IntegerInputs(*program), got = expected;
  EvaluateAll(*program, expected);
  EvaluateAll(*form.program, got);
  EXPECT_EQ(got.at("Y"), expected.at("Y"));
}

// Random points whose text, behind a space, holds `like`: that each is read back from its text,
// passes the verifier and computes the program. The device is so slow that copies are worth it for
// small products.
inline void ExpectPointsCompute(const std::shared_ptr<const TensorProgram>& program, Target target,
                                const std::string& like) {
  static constexpr size_t kPoints = 8;
  target.peak_gflops = 1;
  const auto space = SearchSpace::Create(program, target);
  ASSERT_TRUE(space.ok()) << space.status();
  const auto is_wanted = [&](const std::string& text) {
    return absl::StrContains(absl::StrCat(" ", text), like);
  };
  const std::vector<Point> points = DrawnPoints(*space, kPoints, is_wanted);
  for (size_t i = 0; i < points.size(); ++i) {
    const std::string text = space->Print(points[i]);
    SCOPED_TRACE(text);
    const auto parsed = space->Parse(text);
    ASSERT_TRUE(parsed.ok() && *parsed == points[i]);
    const auto lowered = space->Lower(points[i]);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    const absl::Status verified = Verify(*lowered, target);
    ASSERT_TRUE(verified.ok()) << verified;
    ExpectComputes(*program, *lowered, i + 1);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_EQ(points.size(), kPoints);
}

}  // namespace heddle::search_space

#endif  // HEDDLE_TESTS_SEARCH_SPACE_PRODUCTS_H_
