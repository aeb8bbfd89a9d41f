// Tensors that are read across their rows, several at a time, through tiles in shared memory.
#include <gtest/gtest.h>

#include <string>

#include "tests/search_space/products.h"

namespace heddle::search_space::staging_test {
namespace {

constexpr const char* kOperators = R"(
op two_across(m, n) {
  in A[m, n], B[m, n]: float32, C[n, m]
  out Y[j: n, i: m] = A[i, j] * B[i, j] + C[j, i]
}
op with_a_stage(m, n) {
  in A[m, n], B[m, n]
  S[i: m] = sum(r: n) A[i, r]
  P[i: m, j: n] = A[i, j] + S[i]
  out Y[j: n, i: m] = P[i, j] * B[i, j]
}
)";

struct Case {
  const char *op, *shape;
  DType type;
  const char* like;
};

class Staging : public testing::TestWithParam<Case> {};

TEST_P(Staging, ComputesItsProgram) {
  const auto program =
      InstantiatedFrom(kOperators, GetParam().op, GetParam().shape, GetParam().type);
  ExpectPointsCompute(program, *FindTarget("h100"), GetParam().like);
}

INSTANTIATE_TEST_SUITE_P(
    All, Staging,
    testing::Values(Case{"two_across", "m=50,n=72", DType::kFloat32, " stage:"},
                    Case{"two_across", "m=50,n=72", DType::kBFloat16, " stage:"},
                    Case{"with_a_stage", "m=24,n=40", DType::kFloat32, "+stage:"}),
    [](const auto& info) { return std::string(info.param.op) + std::to_string(info.index); });

}  // namespace
}  // namespace heddle::search_space::staging_test
