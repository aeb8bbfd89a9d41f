// What rows, transposes and streams of 16-bit numbers move at a time: 16 bytes a thread.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <regex>
#include <string>

#include "absl/strings/str_cat.h"
#include "measure/codegen/codegen.h"
#include "measure/device/cuda/nvrtc.h"
#include "search_space/lower/lower.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tests/support.h"
#include "tuner/search/default_point.h"

namespace heddle::tuner {
namespace {

using namespace search_space;
using measure::FindNvrtc;

struct Moved {
  const char* op;
  const char* shape;
  const char* point;  // nullptr: the default schedule
};

// A transpose is as wide on both sides where tiles are; which widths are best is for the search.
constexpr Moved kMoved[] = {
    {"vector_add", "n=1048576", nullptr},
    {"softmax", "m=1024,n=1024", nullptr},
    {"layer_norm", "m=1024,n=1024", nullptr},
    {"transpose", "m=1024,n=1024", "stage: rows=64 columns=64 threads_y=8 vector=8 pad=2 fetch=8"},
};

class WidthsTest : public testing::TestWithParam<DType> {};

TEST_P(WidthsTest, SixteenBytesAreMovedAtATime) {
  HEDDLE_NEEDS("nvrtc", FindNvrtc().ok(), FindNvrtc().status().message());
  const Target target = *FindTarget("h100");
  for (const Moved& c : kMoved) {
    SCOPED_TRACE(absl::StrCat(c.op, " ", NameOf(GetParam())));
    const auto program = std::make_shared<const TensorProgram>(
        *FindOperator(BuiltinOperators(), c.op)->Instantiate(*ParseShape(c.shape), GetParam()));
    const auto space = SearchSpace::Create(program, target);
    ASSERT_TRUE(space.ok()) << space.status();
    const absl::StatusOr<Point> point =
        c.point == nullptr ? DefaultPoint(*space) : space->Parse(c.point);
    ASSERT_TRUE(point.ok()) << point.status();
    const auto lowered = space->Lower(*point);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    std::map<std::string, int> widths[2];  // of loads, of stores: how often each is in the text
    for (const measure::KernelSource& kernel : measure::GenerateSource(*lowered, target, "")) {
      const auto binary = measure::CompileCuda(kernel.source, "widths.cu", target.arch);
      ASSERT_TRUE(binary.ok()) << binary.status();
      const std::regex access(R"((ld|st)\.global(?:\.nc)?\.([a-z0-9.]+))");
      for (std::sregex_iterator i(binary->ptx.begin(), binary->ptx.end(), access), end; i != end;
           ++i) {
        ++widths[(*i)[1] == "st" ? 1 : 0][(*i)[2]];
      }
    }
    for (const auto& found : widths) {
      EXPECT_EQ(found.size(), 1u) << space->Print(*point);
      EXPECT_EQ(found.count("v4.u32"), 1u) << space->Print(*point);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, WidthsTest, testing::Values(DType::kBFloat16, DType::kFloat16),
                         [](const testing::TestParamInfo<DType>& info) {
                           return std::string(NameOf(info.param));
                         });

}  // namespace
}  // namespace heddle::tuner
