// Reductions in parallel: the loops that their steps give, and what is refused.
#include <gtest/gtest.h>

#include "search_space/notation.h"
#include "search_space/search_space.h"
#include "tests/golden.h"

namespace heddle::search_space {
namespace {

std::string Loops(const std::string& op, const std::string& shape, const std::string& steps) {
  const auto program = std::make_shared<const TensorProgram>(
      *FindOperator(BuiltinOperators(), op)->Instantiate(*ParseShape(shape), DType::kFloat32));
  const absl::StatusOr<std::vector<Step>> parsed = ParseSteps(steps);
  if (!parsed.ok()) return parsed.status().ToString();
  EXPECT_EQ(ToString(*parsed), steps);
  const absl::StatusOr<Program> lowered = LowerSteps(program, *parsed, *FindTarget("h100"));
  return lowered.ok() ? ToString(*lowered) : lowered.status().ToString();
}

// The partial results of three blocks each, one kernel; their sum and the epilogue, another.
TEST(Reductions, SplitOverBlocks) {
  tests::ExpectGolden("loops/split_over_blocks.txt", Loops("gemm_relu_add", "m=4,n=4,k=20",
                                                           R"(split(T, r, [8])
rfactor(T, r.0)
cache_read(T.rf, global, T)
fuse(D, [i, j])
bind(D, i@j, thread)
set_scope(T, local)
compute_at(T, D, i@j)
fuse(T.rf.global, [r.0, i])
bind(T.rf.global, r.0@i, block)
bind(T.rf.global, j, thread)
set_scope(T.rf, local)
compute_at(T.rf, T.rf.global, j)
)"));
}

}  // namespace
}  // namespace heddle::search_space
