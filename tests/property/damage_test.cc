// The nets have no holes: lowered programs with a barrier, a wait or a guard removed are reported.
#include <gtest/gtest.h>

#include <cmath>

#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/mutate.h"

namespace heddle {
namespace {

using namespace search_space;
using tests::Removal;

struct Subject {
  std::shared_ptr<const TensorProgram> program;
  Target target = *FindTarget("h100");
  TensorValues inputs;
  TensorValues expected;

  Subject(const char* op, const char* shape) {
    program = std::make_shared<const TensorProgram>(
        *FindOperator(BuiltinOperators(), op)->Instantiate(*ParseShape(shape), DType::kFloat32));
    for (const BufferRef& b : program->inputs) {
      std::vector<double>& values = inputs[b->name];
      values.resize(static_cast<size_t>(b->elements));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 7) + 1;
    }
    expected = inputs;
    EvaluateAll(*program, expected);
  }

  // Verified, interpreted without complaint, and right, whatever order threads run in.
  bool Passes(const Program& lowered) const {
    if (!Verify(lowered, target).ok()) return false;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      TensorValues values = inputs;
      if (!Interpret(lowered, values, {.seed = seed}).ok()) return false;
      for (const BufferRef& out : lowered.outputs) {
        if (values.at(out->name) != expected.at(out->name)) return false;
      }
    }
    return true;
  }
};

// Every single removal from some points must be noticed. Barriers before the first and after the
// last use are conservative where a kernel has a single round, so that several rounds are demanded.
void ExpectEveryRemovalIsNoticed(const Subject& subject, const std::string& hole, Removal removal) {
  const auto space = SearchSpace::Create(subject.program, subject.target);
  ASSERT_TRUE(space.ok()) << space.status();
  Rng rng(3);
  int removed = 0;
  for (int tries = 0; tries < 4000 && removed < 12; ++tries) {
    const auto point = space->Sample(rng);
    ASSERT_TRUE(point.has_value());
    if (space->Print(*point).find(hole) == std::string::npos) continue;
    const auto lowered = LowerSteps(subject.program, *space->Steps(*point));
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    ASSERT_TRUE(subject.Passes(*lowered)) << space->Print(*point);
    for (int n = 0;; ++n) {
      const auto damaged = tests::Remove(*lowered, removal, n);
      if (!damaged.has_value()) break;
      ++removed;
      EXPECT_FALSE(subject.Passes(*damaged))
          << "removal " << n << " was not noticed: " << space->Print(*point) << "\n"
          << ToString(*lowered);
    }
  }
  EXPECT_GE(removed, 12);
}

TEST(DamageTest, ARemovedGuardIsNoticed) {
  ExpectEveryRemovalIsNoticed(Subject("matmul", "m=13,n=11,k=7"), "pipeline=0", Removal::kIf);
}

TEST(DamageTest, ARemovedZeroFillIsNoticed) {
  ExpectEveryRemovalIsNoticed(Subject("matmul", "m=13,n=11,k=7"), "pipeline=0", Removal::kSelect);
}

TEST(DamageTest, ARemovedWaitIsNoticed) {
  ExpectEveryRemovalIsNoticed(Subject("matmul", "m=16,n=16,k=64"), "pipeline=2",
                              Removal::kAsyncWait);
}

// Removing the barriers one by one: those of the steady state must be missed. A kernel whose loop
// runs once, or whose threads form one group, keeps some that only a larger shape needs, so here
// the count of noticed removals is asserted.
TEST(DamageTest, ARemovedBarrierIsNoticed) {
  const Subject subject("matmul", "m=32,n=32,k=64");
  const auto space = SearchSpace::Create(subject.program, subject.target);
  ASSERT_TRUE(space.ok()) << space.status();
  for (const char* hole : {"pipeline=0", "pipeline=1", "pipeline=3"}) {
    Rng rng(5);
    int removed = 0, noticed = 0;
    for (int tries = 0; tries < 4000 && removed < 20; ++tries) {
      const auto point = space->Sample(rng);
      ASSERT_TRUE(point.has_value());
      const std::string text = space->Print(*point);
      if (text.find(hole) == std::string::npos) continue;
      const auto lowered = LowerSteps(subject.program, *space->Steps(*point));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      ASSERT_TRUE(subject.Passes(*lowered)) << text;
      for (int n = 0;; ++n) {
        const auto damaged = tests::Remove(*lowered, Removal::kBarrier, n);
        if (!damaged.has_value()) break;
        ++removed;
        noticed += !subject.Passes(*damaged);
      }
    }
    EXPECT_GE(removed, 20) << hole;
    EXPECT_GE(noticed * 2, removed) << hole << ": " << noticed << " of " << removed;
  }
}

}  // namespace
}  // namespace heddle
