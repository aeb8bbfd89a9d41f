// What holds of the points of known operators holds of those of random ones.
#include "tests/random_operators.h"

#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tests/property/computes.h"
#include "tests/support.h"

namespace heddle::search_space {
namespace {

constexpr int kPoints = 12;
constexpr double kTolerance = 1e-4;  // of an output's largest element

// Operators that begin with `seed`, each of it plus its number alone.
void ExpectPointsCompute(uint64_t seed, int operators) {
  const Target target = *FindTarget("h100");
  for (int i = 0; i < operators && !testing::Test::HasFatalFailure(); ++i) {
    const tests::RandomOperator made = tests::RandomOperators(seed + i).Next();
    SCOPED_TRACE(absl::StrCat("seed ", seed + i, ":\n", made.text));
    const auto parsed = ParseOperators(made.text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const auto program = (*parsed)[0].Instantiate(made.shape, DType::kFloat32);
    ASSERT_TRUE(program.ok()) << program.status();
    const tests::Subject subject(*program);
    subject.ExpectComputes(NaiveSteps(*program), target, kTolerance, 1);
    const auto space = SearchSpace::Create(subject.program(), target);
    ASSERT_TRUE(space.ok()) << space.status();
    tests::ForPoints(*space, seed + i, kPoints, [&](const Point& point, int number) {
      const auto steps = space->Steps(point);
      ASSERT_TRUE(steps.ok()) << steps.status();
      subject.ExpectComputes(*steps, target, kTolerance, static_cast<uint64_t>(number));
      if (!testing::Test::HasFatalFailure()) tests::ExpectPartsAreTheProgram(*space, point);
    });
  }
}

TEST(RandomOperatorsTest, EveryPointComputesTheDefinition) { ExpectPointsCompute(1, 30); }

// HEDDLE_SEED=N: other operators than those of N = 1.
TEST(RandomOperatorsTest, LongEveryPointComputesTheDefinition) {
  uint64_t seed = 0;
  ASSERT_TRUE(absl::SimpleAtoi(tests::EnvironmentOr("HEDDLE_SEED", "1"), &seed));
  ExpectPointsCompute(seed * 1000, 300);
}

}  // namespace
}  // namespace heddle::search_space
