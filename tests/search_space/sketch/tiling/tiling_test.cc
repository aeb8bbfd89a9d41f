// The decisions of the tiling rule, one at a time: the steps that each choice becomes, what it is
// refused for, and that what is drawn keeps the limits that its decisions know.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tests/golden.h"
#include "tests/search_space/products.h"

namespace heddle::search_space {
namespace {

using ::testing::HasSubstr;

// 16x8 threads in whole warps, 4x4 results each.
constexpr char kMatmul[] = "m=256,n=256,k=256";
constexpr char kBase[] =
    "tile: i.vthread=1 i.warps=2 i.lanes=8 i.tile=4 j.vthread=1 j.warps=2 j.lanes=4 j.tile=4 "
    "r.inner=8";
constexpr char kConv[] = "n=1,ci=16,h=16,w=16,co=32,kh=3,kw=3,pad=1";
constexpr char kStridedConv[] = "n=1,ci=16,h=32,w=32,co=32,kh=3,kw=3,stride=2,pad=1";
constexpr char kConvBase[] =
    "tile: o.warps=4 o.lanes=2 o.tile=4 y.lanes=4 x.lanes=4 x.tile=4 c.inner=4";

struct Choice {
  const char* name;  // of the decision, and of its golden
  const char* op;
  const char* shape;
  const char* point;
  const char* decided;  // holes beside those of `point`, in the order of the points
};
constexpr Choice kChoices[] = {
    {"axes", "matmul", kMatmul,
     "tile:", "i.vthread=2 i.warps=4 i.lanes=1 i.tile=3 j.lanes=32 j.tile=1 r.inner=8"},
    {"reduction", "conv2d", kConv, kConvBase, "ry.inner=1 rx.inner=3"},
    {"operands", "matmul", kMatmul, kBase, "A.fetch=4 A.pad=1 B.fetch=2 B.pad=4"},
    {"gathered", "conv2d", kStridedConv, kConvBase, "P.as=1"},
    {"fragments", "conv2d", kConv, kConvBase, "P.fetch=2 P.align=4 fragments_out=1"},
    {"pipeline", "matmul", kMatmul, kBase, "pipeline=3 unroll=1 prefetch=1 interleave=1"},
    {"occupancy", "matmul", kMatmul, kBase, "min_blocks=3"},
    {"raster", "matmul", kMatmul, kBase, "block_swizzle=2"},
    {"split", "matmul", kMatmul, kBase, "split_k=4"},
    {"slices", "matmul", kMatmul, kBase, "slice_k=2"},
};

SearchSpace SpaceOf(const std::string& op, const std::string& shape) {
  return *SearchSpace::Create(
      std::make_shared<const TensorProgram>(
          *FindOperator(BuiltinOperators(), op)->Instantiate(*ParseShape(shape), DType::kFloat32)),
      *FindTarget("h100"));
}

class TilingTest : public testing::TestWithParam<Choice> {};

TEST_P(TilingTest, DecisionsBecomeSteps) {
  const Choice& c = GetParam();
  const SearchSpace space = SpaceOf(c.op, c.shape);
  const auto point = space.Parse(absl::StrCat(c.point, " ", c.decided));
  ASSERT_TRUE(point.ok()) << point.status();
  const auto steps = space.Steps(*point);
  ASSERT_TRUE(steps.ok()) << steps.status();
  const auto program = std::make_shared<const TensorProgram>(space.program());
  const auto lowered = LowerSteps(program, *steps);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(ToString(*space.Lower(*point)), ToString(*lowered));
  tests::ExpectGolden(
      absl::StrCat("tiling/", c.name, ".txt"),
      absl::StrCat("# ", c.op, " ", c.shape, ": ", c.decided, "\n", ToString(*steps)));
}

INSTANTIATE_TEST_SUITE_P(Decisions, TilingTest, testing::ValuesIn(kChoices),
                         [](const auto& info) { return info.param.name; });

std::string Refusal(const std::string& shape, const std::string& point) {
  const SearchSpace space = SpaceOf("matmul", shape);
  return std::string(space.Check(*space.Parse(point)).message());
}

TEST(Tiling, EachDecisionKnowsItsLimits) {
  const std::string base = kBase;
  EXPECT_EQ(Refusal(kMatmul, base), "");
  EXPECT_THAT(Refusal(kMatmul, "tile: i.lanes=2 j.lanes=2"), HasSubstr("4 threads, at least 32"));
  EXPECT_THAT(Refusal(kMatmul, "tile: i.warps=8 i.lanes=32 j.lanes=4"),
              HasSubstr("1024 threads, at most 512"));
  EXPECT_THAT(Refusal("m=5,n=256,k=256", "tile: i.warps=4 i.lanes=4 j.lanes=32"),
              HasSubstr("16 elements in a tile, at most 10"));
  EXPECT_THAT(
      Refusal(kMatmul, "tile: i.vthread=4 i.lanes=4 i.tile=8 j.vthread=4 j.lanes=8 j.tile=2"),
      HasSubstr("256 accumulators, at most 128"));
  EXPECT_THAT(Refusal(kMatmul, "tile: i.lanes=32 i.tile=8 j.tile=4 r.inner=32"),
              HasSubstr("fetches a thread, at most 32"));
  // Of 4 elements that lie 8 apart 25 would be held.
  const auto strided = *ParseOperators(R"(op strided_sum(m, n) {
    in X[m, 8*n + 1]
    out Y[i: m, j: n] = sum(r: 9) X[i, j * 8 + r]
  })");
  const auto windows = std::make_shared<const TensorProgram>(
      *strided[0].Instantiate(*ParseShape("m=64,n=64"), DType::kFloat32));
  const SearchSpace space = *SearchSpace::Create(windows, *FindTarget("h100"));
  EXPECT_THAT(space.Check(*space.Parse("tile: i.lanes=4 j.lanes=8 j.tile=4 r.inner=8")).message(),
              HasSubstr("25 elements of a fragment, most unused, at most 16"));
  EXPECT_TRUE(space.Check(*space.Parse("tile: i.lanes=4 j.vthread=4 j.lanes=8 r.inner=8")).ok());
  EXPECT_THAT(Refusal(kMatmul, base + " prefetch=1"),
              HasSubstr("8 iterations of the inner loop, in which nothing runs ahead"));
  EXPECT_THAT(Refusal(kMatmul, base + " pipeline=1 unroll=1 interleave=1"),
              HasSubstr("is shared out"));
  EXPECT_THAT(Refusal("m=4096,n=4096,k=4096", base + " split_k=2"),
              HasSubstr("blocks need no reduction split 2 times"));
  EXPECT_THAT(Refusal("m=64,n=64,k=36", base + " split_k=4"),  // three are another choice
              HasSubstr("4 parts of 16 are not all needed"));
  EXPECT_EQ(Refusal("m=64,n=64,k=300", base + " split_k=16"), "");  // 13 are none
  EXPECT_THAT(Refusal("m=4096,n=4096,k=4096", base + " slice_k=2"),
              HasSubstr("2 slices do not divide the work"));
  EXPECT_THAT(Refusal("m=192,n=256,k=256", base + " block_swizzle=2"),
              HasSubstr("2 rows of blocks in a group, at most 1"));
  EXPECT_THAT(Refusal(kMatmul, base + " block_swizzle=2 split_k=2"),
              HasSubstr("2 rows of blocks in a group, at most 1"));
}

// What a decision takes is added up: of shared memory, of registers for each block that has to fit.
TEST(Tiling, CostsAreAddedUp) {
  const std::string big =
      "tile: i.vthread=2 i.warps=4 i.lanes=8 i.tile=4 j.vthread=2 j.warps=2 j.lanes=8 j.tile=4 "
      "r.inner=32";
  constexpr char kLarge[] = "m=4096,n=4096,k=4096";
  // (32 * 256 + 32 * 128) * 4 bytes, and a few for alignment.
  EXPECT_THAT(Refusal(kLarge, big + " A.fetch=4 A.pad=0 B.fetch=4 pipeline=4"), "");
  EXPECT_THAT(Refusal(kLarge, big + " A.fetch=4 B.fetch=4 pipeline=4 min_blocks=2"),
              HasSubstr("registers, at most 64"));
  EXPECT_THAT(Refusal("m=512,n=512,k=4096",
                      "tile: i.vthread=4 i.warps=4 i.lanes=8 i.tile=4 j.vthread=1 j.warps=1 "
                      "j.lanes=8 j.tile=8 r.inner=32 A.fetch=4 B.fetch=4 pipeline=4 slice_k=2"),
              HasSubstr("shared bytes, at most 232448"));
}

TEST(Tiling, DrawsMostlyMeetTheLimits) {
  const SearchSpace space = SpaceOf("matmul", kMatmul);
  Rng rng(1);
  for (int i = 0; i < 200; ++i) {
    const std::optional<Point> point = space.Sample(rng);
    ASSERT_TRUE(point.has_value());
    EXPECT_TRUE(space.Check(*point).ok()) << space.Print(*point);
  }
}

// A window of 9 by 9 is whole along one axis at least, and its few output channels have tiles, too.
TEST(TilingTest, LargeWindowsAreTiled) {
  const SearchSpace space = SpaceOf("conv2d", "n=2,ci=32,h=64,w=67,co=3,kh=9,kw=9,pad=4");
  Rng rng(1);
  size_t tiles = 0, whole = 0;
  for (int i = 0; i < 60; ++i) {
    const auto point = space.Sample(rng);
    ASSERT_TRUE(point.has_value());
    const std::string text = space.Print(*point);
    if (!absl::StartsWith(text, "tile:")) continue;
    ++tiles;
    whole += absl::StrContains(text, "rx.inner=9") ? 1 : 0;
    EXPECT_TRUE(space.Lower(*point).ok()) << text;
  }
  EXPECT_GT(tiles, 20U);
  EXPECT_GT(2 * whole, tiles);
  // Others have the parts that they had.
  const SearchSpace small = SpaceOf("conv2d", kConv);
  EXPECT_THAT(std::string(small.Parse(absl::StrCat(kConvBase, " ry.inner=8")).status().message()),
              HasSubstr("ry.inner= one of 3, 1"));
}

// Blocks for all multiprocessors, several of them each, share the rows of few columns.
TEST(TilingTest, LongSumsOfFewColumnsHaveManyParts) {
  const auto parts = [](const char* shape) {
    const auto program =
        InstantiatedFrom("op columns(m, n) { in X[m, n] out Y[j: n] = sum(i: m) X[i, j] }",
                         "columns", shape, DType::kFloat32);
    const SearchSpace space = *SearchSpace::Create(program, *FindTarget("h100"));
    return std::string(space.Parse("tile: split_k=3").status().message());
  };
  EXPECT_THAT(parts("m=200003,n=101"), HasSubstr("1024, 2048"));
  EXPECT_THAT(parts("m=10007,n=101"), testing::Not(HasSubstr("512")));
}

}  // namespace
}  // namespace heddle::search_space
