// What holds of other points holds of those that divide a program among kernels in their own way.
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/match.h"
#include "search_space/check/verify.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tests/partition_operators.h"
#include "tests/property/computes.h"

namespace heddle::search_space::partitions_test {
namespace {

constexpr int kPoints = 24;
constexpr double kTolerance = 1e-4;  // of an output's largest element

struct Case {
  const char* op;
  const char* shape;
  // What names of its sketches hold, on one device or the other.
  std::vector<std::string> decisions;
};

const Case kCases[] = {
    {"linear_ln", "m=7,n=20,k=9", {"[merged=Mu|V]"}},
    {"linear_ln", "m=40,n=64,k=16", {"[merged=Mu|V]", "[merged=V]"}},
    {"ln_linear", "m=13,n=33,k=36", {"[stored=N][merged=Mu|V]"}},
    {"attention_norm", "b=2,h=3,s=18,d=8", {"chain", "[merged=S]"}},
    {"rms_qkv", "m=11,n=16,k=20", {"[stored=N]"}},
    {"softmax_product", "m=9,n=40,k=52", {"[stored=P]"}},
    {"gelu_readers", "m=17,n=24,k=20", {"[stored=G]"}},
    {"three_products", "m=21,k=12,r=8,s=16,n=20", {"chain"}},
    {"shared_branches", "m=10,n=12,k=7,l=9", {"[apart="}},
    {"logits_softmax", "m=12,n=40,k=8", {"[merged=M|S]"}},
    {"adapter_norm", "m=12,d=32,h=8", {"[merged=S]"}},
    {"stored_factor", "b=3,n=40", {"[stored=E]"}},
    {"pairs", "b=2,n=48", {"[stored=G"}},
    {"sweeps", "n=18", {"[stored=A]"}},
};

// One on which no launch is long, and reading or computing something again is.
Target SlowTarget() {
  Target target = *FindTarget("h100");
  target.name = "slow";
  target.peak_gflops /= 1e6;
  target.memory_gbs /= 1e6;
  return target;
}

class PartitionsTest : public testing::TestWithParam<Case> {};

TEST_P(PartitionsTest, EveryPointComputesTheDefinition) {
  const auto op = FindOperator(*ParseOperators(tests::kPartitionOperators), GetParam().op);
  ASSERT_TRUE(op.ok()) << op.status();
  const tests::Subject subject(*op->Instantiate(*ParseShape(GetParam().shape), DType::kFloat32));
  std::set<std::string> drawn;
  for (const Target& target : {*FindTarget("h100"), SlowTarget()}) {
    const auto space = SearchSpace::Create(subject.program(), target);
    ASSERT_TRUE(space.ok()) << space.status();
    Rng rng(1);
    std::optional<Point> last;
    for (int i = 0; i < kPoints; ++i) {
      std::optional<Point> point;
      if (i % 3 == 2 && last.has_value()) point = space->Mutate(*last, rng);
      if (!point.has_value()) point = space->Sample(rng, SearchSpace::From::kPartitions);
      if (!point.has_value()) break;  // there are none on this target
      last = point;
      const std::string text = space->Print(*point);
      SCOPED_TRACE(text);
      EXPECT_TRUE(absl::StartsWith(text, "parts/"));
      drawn.insert(text.substr(0, text.find(':')));
      const auto parsed = space->Parse(text);
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_EQ(*parsed, *point);
      const auto steps = space->Steps(*point);
      ASSERT_TRUE(steps.ok()) << steps.status();
      subject.ExpectComputes(*steps, target, kTolerance, static_cast<uint64_t>(i));
      if (testing::Test::HasFatalFailure()) return;
      tests::ExpectPartsAreTheProgram(*space, *point);
    }
  }
  for (const std::string& decision : GetParam().decisions) {
    EXPECT_TRUE(std::any_of(drawn.begin(), drawn.end(), [&](const std::string& name) {
      return name.find(decision) != std::string::npos;
    })) << decision;
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, PartitionsTest, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::string(info.param.op) + std::to_string(info.index);
                         });

}  // namespace
}  // namespace heddle::search_space::partitions_test
