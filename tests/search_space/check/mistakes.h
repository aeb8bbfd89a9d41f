// Kernels of products that are damaged on purpose, and whether each mistake is seen: with every one
// of 20 seeds, by a fault or by wrong integers.
#ifndef HEDDLE_TESTS_SEARCH_SPACE_CHECK_MISTAKES_H_
#define HEDDLE_TESTS_SEARCH_SPACE_CHECK_MISTAKES_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/mutate.h"
#include "tests/search_space/products.h"

namespace heddle::search_space {

inline constexpr uint64_t kSeeds = 20;

// A point of a product of integers.
struct PointOfProduct {
  std::shared_ptr<const TensorProgram> program;
  Target target;
  Program lowered;
  TensorValues inputs, expected;

  // `multiprocessors`: of the device; 0 = as many as it has.
  PointOfProduct(const char* op, const char* shape, const char* device, const std::string& point,
                 int64_t multiprocessors = 0)
      : program(InstantiatedFrom("", op, shape, DType::kBFloat16)),
        target(*FindTarget(device)),
        inputs(IntegerInputs(*program)),
        expected(inputs) {
    if (multiprocessors > 0) target.sm_count = multiprocessors;
    const auto space = SearchSpace::Create(program, target);
    const auto parsed = space->Parse(point);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    lowered = *space->Lower(*parsed);
    EvaluateAll(*program, expected);
  }

  absl::Status Run(const Program& what, uint64_t seed) const {
    TensorValues got = inputs;
    absl::Status ran = Interpret(what, got, {.seed = seed});
    for (const BufferRef& output : what.outputs) {
      if (ran.ok() && got.at(output->name) != expected.at(output->name)) {
        ran = absl::DataLossError("wrong results");
      }
    }
    return ran;
  }

  void ExpectRight() const {
    const absl::Status verified = Verify(lowered, target);
    EXPECT_TRUE(verified.ok()) << verified << ToString(lowered);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const absl::Status ran = Run(lowered, seed);
      EXPECT_TRUE(ran.ok()) << ran << ToString(lowered);
    }
  }

  // Whether every seed shows that something is wrong, each with a message that holds that text.
  bool IsSeen(const Program& damaged, const char* seen_as) const {
    bool always = true;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const absl::Status ran = Run(damaged, seed);
      always = always && !ran.ok();
      if (ran.ok()) continue;
      EXPECT_THAT(std::string(ran.message()), testing::HasSubstr(seen_as));
    }
    return always;
  }
};

// Something that is removed, how many of these there are, how many nothing depends on, and what the
// fault is called.
struct Mistake {
  tests::Removal removed;
  int count;
  int needless;
  const char* seen_as;
};

inline void ExpectSeen(const PointOfProduct& point, const Mistake& m) {
  std::vector<int> unseen;
  int n = 0;
  for (; const auto damaged = tests::Remove(point.lowered, m.removed, n); ++n) {
    if (!point.IsSeen(*damaged, m.seen_as)) unseen.push_back(n);
  }
  EXPECT_EQ(n, m.count) << m.seen_as;
  EXPECT_THAT(unseen, testing::SizeIs(m.needless)) << m.seen_as << ToString(point.lowered);
}

// The kernel with every intrinsic of a kind changed.
inline Program WithIntrinsics(const Program& program, Intrinsic which,
                              const std::function<void(StmtNode&)>& change) {
  Program out = program;
  for (Kernel& kernel : out.kernels) {
    kernel.body = RewriteStmt(
        kernel.body,
        [&](const Stmt& s) -> Stmt {
          if (s->kind != StmtNode::Kind::kIntrin || s->intrinsic != which) return nullptr;
          auto changed = std::make_shared<StmtNode>(*s);
          change(*changed);
          return changed;
        },
        nullptr);
  }
  return out;
}

inline void ExpectSeen(const PointOfProduct& point, Intrinsic which, const char* seen_as,
                       const std::function<void(StmtNode&)>& change) {
  EXPECT_TRUE(point.IsSeen(WithIntrinsics(point.lowered, which, change), seen_as))
      << ToString(point.lowered);
}

// Of a ring that bulk copies of two tensors fill, started at two places.
inline void ExpectMistakesOfBulkCopiesAreSeen(const PointOfProduct& ring) {
  using tests::Removal;
  for (const Mistake& m : {
           Mistake{Removal::kPhaseInit, 1, 0, "not made"},
           Mistake{Removal::kProxyFence, 1, 0, "not fenced"},
           Mistake{Removal::kPhaseExpect, 2, 0, "would never end"},
           Mistake{Removal::kPhaseWait, 2, 0, "bulk copy to it is not waited for"},
           Mistake{Removal::kBulkCopy, 4, 0, ""},
           // One thread makes the phases and starts copies, while there are tiles.
           Mistake{Removal::kIf, 3, 0, ""},
       }) {
    ExpectSeen(ring, m);
  }
}

}  // namespace heddle::search_space

#endif  // HEDDLE_TESTS_SEARCH_SPACE_CHECK_MISTAKES_H_
