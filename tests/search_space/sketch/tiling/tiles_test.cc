// Register tiles: reads an iteration ahead, what is refused of them, the order of the arithmetic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search_space/notation/notation.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"
#include "tests/golden.h"

namespace heddle::search_space {
namespace {

using ::testing::HasSubstr;

constexpr char kTiled[] = R"(split(C, i, [8])
split(C, j, [8])
reorder(C, [i.0, j.0, i.1, j.1])
fuse(C, [i.0, j.0])
fuse(C, [i.1, j.1])
bind(C, i.0@j.0, block)
bind(C, i.1@j.1, thread)
set_scope(C.acc, local)
compute_at(C.acc, C, i.1@j.1)
split(C.acc, r, [4])
reorder(C.acc, [r.0, r.1, i, j])
cache_read(A, shared, C.acc)
compute_at(A.shared, C.acc, r.0)
fetch(A.shared, 64, 1)
cache_read(A.shared, local, C.acc)
compute_at(A.shared.local, C.acc, r.1)
)";

std::string Loops(const std::string& steps) {
  const auto program = std::make_shared<const TensorProgram>(
      *FindOperator(BuiltinOperators(), "matmul")
           ->Instantiate(*ParseShape("m=16,n=16,k=16"), DType::kFloat32));
  const auto lowered = LowerSteps(program, *ParseSteps(steps));
  return lowered.ok() ? ToString(*lowered) : lowered.status().ToString();
}

// The first registers of the next tile are read behind the barrier, before the last use of this.
TEST(Tiles, RegistersRunAheadOfBarriers) {
  tests::ExpectGolden("loops/fragments_ahead.txt",
                      Loops(std::string(kTiled) +
                            "pipeline(C.acc, r.0, registers, 2)\npipeline(C.acc, r.1, registers, "
                            "2)\n"));
}

TEST(Tiles, RegistersRunAheadInAPipelineOnly) {
  const std::string why = "stands directly in one that is pipelined already";
  EXPECT_THAT(Loops(std::string(kTiled) + "pipeline(C.acc, r.1, registers, 2)\n"), HasSubstr(why));
  EXPECT_THAT(Loops(std::string(kTiled) +
                    "pipeline(C.acc, r.0, registers, 2)\npipeline(C.acc, r.1, async_copy, 2)\n"),
              HasSubstr(why));
}

// Behind the last tile, the last tile once more.
TEST(Tiles, CopiesAreStartedInParts) {
  const std::string pipeline = std::string(kTiled) + "pipeline(C.acc, r.0, async_copy, 3)\n";
  tests::ExpectGolden("loops/interleaved.txt", Loops(pipeline + "interleave(C.acc, r.1)\n"));
  tests::ExpectGolden("loops/interleaved_ahead.txt",
                      Loops(pipeline + "pipeline(C.acc, r.1, registers, 2)\n"
                                       "interleave(C.acc, r.1)\n"));
  // Two copies a thread, one in each of two iterations.
  std::string two = pipeline;
  for (const auto& [from, to] : {std::pair("[4]", "[2]"), std::pair("C, i, [8]", "C, i, [64]"),
                                 std::pair("C, j, [8]", "C, j, [1]")}) {
    two.replace(two.find(from), std::string(from).size(), to);
  }
  EXPECT_THAT(Loops(two + "interleave(C.acc, r.1)\n"),
              HasSubstr("\n      async_copy A.shared[(r.0.slot + 2) % 3, r.1 * 32 + i.1@j.1 / 2"));
}

// Where a loop around fills the buffers again, the copies of the last tile have to be done.
TEST(Tiles, CopiesStartedInPartsAreWaitedForBeforeTheyAreRepeated) {
  std::string steps = std::string(kTiled) + "pipeline(C.acc, r.0, async_copy, 3)\n";
  EXPECT_THAT(Loops(steps + "interleave(C.acc, r.1)\n"), ::testing::Not(HasSubstr("async_wait 0")));
  for (const auto& [from, to] :
       {std::pair("C, i, [8]", "C, i, [2, 8]"),
        std::pair("[i.0, j.0, i.1, j.1]", "[i.0, j.0, i.2, j.1, i.1]"),
        std::pair("fuse(C, [i.1, j.1])", "fuse(C, [i.2, j.1])"),
        std::pair("bind(C, i.1@j.1, thread)", "bind(C, i.2@j.1, thread)"),
        std::pair("compute_at(C.acc, C, i.1@j.1)", "compute_at(C.acc, C, i.1)")}) {
    ASSERT_NE(steps.find(from), std::string::npos) << from;
    steps.replace(steps.find(from), std::string(from).size(), to);
  }
  EXPECT_THAT(Loops(steps + "interleave(C.acc, r.1)\n"),
              HasSubstr("      async_commit\n    async_wait 0\n    barrier\n"));
}

TEST(Tiles, CopiesAreStartedInPartsInAPipelineOnly) {
  const std::string tiled = kTiled, async = "pipeline(C.acc, r.0, async_copy, 3)\n";
  EXPECT_THAT(Loops(tiled + "interleave(C.acc, r.1)\n"),
              HasSubstr("r.1 does not stand in one that is pipelined"));
  EXPECT_THAT(Loops(tiled + async + "interleave(C.acc, r.0)\n"),
              HasSubstr("r.0 does not stand in one that is pipelined"));
  EXPECT_THAT(Loops(tiled + "pipeline(C.acc, r.0, registers, 2)\ninterleave(C.acc, r.1)\n"),
              HasSubstr("only asynchronous copies are started in parts"));
  EXPECT_THAT(Loops(tiled + async + "interleave(C.acc, i)\n"), HasSubstr("repeated for every i"));
  const std::string interleaved = tiled + async + "interleave(C.acc, r.1)\n";
  EXPECT_THAT(Loops(interleaved + "pipeline(C.acc, r.1, registers, 2)\n"),
              HasSubstr("are interleaved already"));
  std::string free = interleaved;  // nothing else is computed at r.1
  const size_t fragment = free.find("cache_read(A.shared");
  free.erase(fragment, free.find("pipeline(") - fragment);
  EXPECT_THAT(Loops(free + "split(C.acc, r.1, [2])\n"),
              HasSubstr("copies are interleaved with it"));
  std::string one = tiled + async;
  one.replace(one.find("[4]"), 3, "[1]");
  EXPECT_THAT(Loops(one + "interleave(C.acc, r.1)\n"), HasSubstr("no two iterations"));
}

// Four by two results a thread: the two rows run inside the columns and turn back at every column.
TEST(Tiles, MultiplyAddsRunInASerpentine) {
  constexpr char kRegisterTile[] = R"(split(C, i, [4, 2])
split(C, j, [4, 4])
reorder(C, [i.0, j.0, i.1, j.1, i.2, j.2])
fuse(C, [i.0, j.0])
fuse(C, [i.1, j.1])
bind(C, i.0@j.0, block)
bind(C, i.1@j.1, thread)
set_scope(C.acc, local)
compute_at(C.acc, C, i.1@j.1)
reorder(C.acc, [r, i, j])
cache_read(A, local, C.acc)
compute_at(A.local, C.acc, r)
cache_read(B, local, C.acc)
compute_at(B.local, C.acc, r)
)";
  EXPECT_THAT(Loops(kRegisterTile),
              HasSubstr("    unrolled j in 0..4\n"
                        "      unrolled i in 0..2 backward if j % 2\n"
                        "        C.acc[i, j] = C.acc[i, j] + A.local[i, 0] * B.local[0, j]\n"));
}

}  // namespace
}  // namespace heddle::search_space
