// Windows along one axis after the other: of which reductions, what a program becomes, that it is
// the definition, and which reductions are left alone.
#include "search_space/schedule/rewrites/algebra/separate_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/programs/least_flops.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::separate_window_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kOperators = R"(
op box(h, w, k) {
  in X[h, w]
  out Y[y: h - k + 1, x: w - k + 1] = sum(r: k, s: k) X[y + r, x + s]
}
op erosion(c, h, w, k) {
  in X[c, h, w]
  M[z: c, y: h, x: w] = min(r: k, s: k) X[z, min(max(y + r - k / 2, 0), h - 1), min(max(x + s - k / 2, 0), w - 1)]
  out Y[z: c, y: h, x: w] = X[z, y, x] - M[z, y, x]
}
op pooling(c, h, w, k, t) {
  in X[c, h, w]
  out Y[z: c, y: (h - k) / t + 1, x: (w - k) / t + 1] = max(r: k, s: k) X[z, y * t + r, x * t + s]
}
op dilated(h, w, k, d) {
  in X[h, w]
  out Y[y: h - (k - 1) * d, x: w - (k - 1) * d] = sum(r: k, s: k) X[y + d * r, x + d * s] * X[y + d * r, x + d * s]
}
op padded(h, w, k) {
  in X[h, w], G[k]
  out Y[y: h, x: w] = sum(r: k, s: k) G[r] * G[s] * select(y + r >= k / 2 && y + r - k / 2 < h && x + s >= k / 2 && x + s - k / 2 < w, X[y + r - k / 2, x + s - k / 2], 0)
}
op flipped(h, w, k) {
  in X[h, w]
  out Y[y: h - k + 1, x: w - k + 1] = prod(r: k, s: k) (1 + X[y - r + k - 1, x + k - 1 - s] / 1024)
}
op cube(d, h, w, k) {
  in X[d, h, w]
  out Y[z: d - k + 1, y: h - k + 1, x: w - k + 1] = sum(q: k, r: k, s: k) X[z + q, y + r, x + s]
}
op periodic(h, w, k) {
  in X[h, w]
  out Y[y: h, x: w] = max(r: k, s: k) X[(y + r) % h, (x + s) % w]
}
op channels(c, h, w, k) {
  in X[c, h, w]
  out Y[y: h - k + 1, x: w - k + 1] = sum(z: c, r: k, s: k) abs(X[z, y + r, x + s])
}
op convolution(c, o, h, w, k) {
  in X[c, h, w], W[o, c, k, k]
  out Y[z: o, y: h - k + 1, x: w - k + 1] = sum(q: c, r: k, s: k) X[q, y + r, x + s] * W[z, q, r, s]
}
op disc(h, w, k) {
  in X[h, w]
  out Y[y: h - k + 1, x: w - k + 1] = max(r: k, s: k) select(r + s < k, X[y + r, x + s], -9)
}
op apart(h, w, k) {
  in X[h, w]
  out Y[y: h / k, x: w / k] = sum(r: k, s: k) X[y * k + r, x * k + s]
}
op gaps(h, w, k) {
  in X[h, w]
  out Y[y: h, x: 3] = sum(r: k, s: k) X[y, x + 5 * r + s]
}
op centred(h, w, k) {
  in X[h, w]
  out Y[y: h - k + 1, x: w - k + 1] = sum(r: k, s: k) abs(X[y + r, x + s] - X[y, x])
}
op line(w, k) {
  in X[w]
  out Y[x: w - k + 1] = sum(r: k) X[x + r]
}
)";

std::shared_ptr<const TensorProgram> Made(const std::string& op, const std::string& shape) {
  return InstantiatedFrom(kOperators, op, shape, DType::kFloat32);
}

std::vector<std::string> StagesOf(const TensorProgram& program) {
  std::vector<std::string> stages;
  for (const Stage& s : program.stages) {
    std::string text = absl::StrCat(s.name(), "[");
    for (const Var& v : s.axes) absl::StrAppend(&text, v->name, ":", v->extent, " ");
    absl::StrAppend(&text, "|");
    for (const Var& v : s.reduce_axes) absl::StrAppend(&text, " ", v->name);
    stages.push_back(absl::StrCat(text, "] = ", ToString(s.body)));
  }
  return stages;
}

std::vector<std::string> Separated(const std::string& op, const std::string& shape) {
  const auto program = WithSeparateWindow(*Made(op, shape), "Y");
  EXPECT_TRUE(program.ok()) << op << ": " << program.status();
  return program.ok() ? StagesOf(**program) : std::vector<std::string>{};
}

TEST(SeparateWindow, GoesAlongOneAxisAfterTheOther) {
  EXPECT_THAT(Separated("box", "h=20,w=16,k=5"),
              ElementsAre("Y.window0[y:20 x:12 | s] = X[y, x + s]",
                          "Y[y:16 x:12 | r] = Y.window0[y + r, x]"));
  // Strides, along which the last row is that of the last window.
  EXPECT_THAT(Separated("pooling", "c=2,h=25,w=25,k=9,t=2"),
              ElementsAre("Y.window0[z:2 y:25 x:9 | s] = X[z, y, x * 2 + s]",
                          "Y[z:2 y:9 x:9 | r] = Y.window0[z, y * 2 + r, x]"));
  EXPECT_THAT(Separated("dilated", "h=48,w=48,k=5,d=3"),
              ElementsAre("Y.window0[y:48 x:36 | s] = X[y, s * 3 + x] * X[y, s * 3 + x]",
                          "Y[y:36 x:36 | r] = Y.window0[r * 3 + y, x]"));
  EXPECT_THAT(Separated("flipped", "h=16,w=16,k=5"),
              ElementsAre("Y.window0[y:16 x:12 | s] = 1 + X[y, x - s + 4] / 1024",
                          "Y[y:12 x:12 | r] = Y.window0[y - r + 4, x]"));
  EXPECT_THAT(Separated("periodic", "h=16,w=16,k=5"),
              ElementsAre("Y.window0[y:20 x:16 | s] = X[y % 16, (x + s) % 16]",
                          "Y[y:16 x:16 | r] = Y.window0[y + r, x]"));
}

TEST(SeparateWindow, GoesAlongThreeAxes) {
  EXPECT_THAT(Separated("cube", "d=16,h=16,w=16,k=5"),
              ElementsAre("Y.window1[z:16 y:16 x:12 | s] = X[z, y, x + s]",
                          "Y.window0[z:16 y:12 x:12 | r] = Y.window1[z, y + r, x]",
                          "Y[z:12 y:12 x:12 | q] = Y.window0[z + q, y, x]"));
  // Channels are no window: they are summed up first.
  EXPECT_THAT(Separated("channels", "c=8,h=16,w=16,k=5"),
              ElementsAre("Y.window1[y:16 x:16 | z] = abs(X[z, y, x])",
                          "Y.window0[y:16 x:12 | s] = Y.window1[y, x + s]",
                          "Y[y:12 x:12 | r] = Y.window0[y + r, x]"));
}

// Weights of one axis belong to the window along that.
TEST(SeparateWindow, KeepsWeightsWithTheirAxis) {
  const std::vector<std::string> stages = Separated("padded", "h=16,w=16,k=7");
  ASSERT_EQ(stages.size(), 2);
  EXPECT_THAT(stages[0], HasSubstr("Y.window0[y:22 x:16 | s] = G[s] * select("));
  EXPECT_EQ(stages[1], "Y[y:16 x:16 | r] = Y.window0[y + r, x] * G[r]");
}

TEST(SeparateWindow, LeavesOthersAlone) {
  for (const auto& [op, shape] : {std::pair("convolution", "c=8,o=8,h=16,w=16,k=5"),
                                  {"disc", "h=16,w=16,k=5"},
                                  {"apart", "h=25,w=25,k=5"},
                                  {"gaps", "h=16,w=40,k=5"},
                                  {"centred", "h=16,w=16,k=5"},
                                  {"box", "h=16,w=16,k=3"},
                                  {"line", "w=100,k=30"}}) {
    EXPECT_THAT(std::string(WithSeparateWindow(*Made(op, shape), "Y").status().message()),
                HasSubstr("no reduction of windows along several axes"))
        << op;
  }
  EXPECT_THAT(
      std::string(WithSeparateWindow(*Made("box", "h=16,w=16,k=5"), "Z").status().message()),
      HasSubstr("Z is no stage of box"));
}

struct Case {
  const char *op, *shape;
};

class SeparateWindows : public testing::TestWithParam<Case> {};

TEST_P(SeparateWindows, ComputeTheDefinition) {
  const auto& [op, shape] = GetParam();
  const auto program = Made(op, shape);
  const auto separated = WithSeparateWindow(*program, program->stages[0].name());
  ASSERT_TRUE(separated.ok()) << separated.status();
  TensorValues expected = IntegerInputs(*program), got = expected;
  EvaluateAll(*program, expected);
  EvaluateAll(**separated, got);
  ASSERT_EQ(got.at("Y").size(), expected.at("Y").size());
  for (size_t i = 0; i < got.at("Y").size(); ++i) {
    ASSERT_NEAR(got.at("Y")[i], expected.at("Y")[i], 1e-9) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SeparateWindows,
    testing::Values(Case{"box", "h=17,w=19,k=5"}, Case{"box", "h=9,w=30,k=6"},
                    Case{"erosion", "c=2,h=15,w=14,k=5"}, Case{"erosion", "c=1,h=15,w=14,k=6"},
                    Case{"pooling", "c=2,h=24,w=25,k=7,t=2"},
                    Case{"pooling", "c=1,h=61,w=64,k=9,t=3"}, Case{"dilated", "h=48,w=50,k=5,d=3"},
                    Case{"padded", "h=16,w=13,k=7"}, Case{"flipped", "h=16,w=16,k=5"},
                    Case{"cube", "d=11,h=12,w=13,k=4"}, Case{"periodic", "h=11,w=16,k=5"},
                    Case{"channels", "c=3,h=16,w=16,k=5"}),
    [](const auto& info) { return absl::StrCat(info.param.op, "_", info.index); });

TEST(SeparateWindow, CountsForWhatIsPlausible) {
  const auto program = Made("box", "h=520,w=520,k=9");
  EXPECT_LT(LeastFlops(*program), 20 * 512 * 512);
}

TEST(SeparateWindow, PointsComputeTheDefinition) {
  for (const auto& [op, shape] : {std::pair("box", "h=37,w=40,k=5"),
                                  {"erosion", "c=2,h=15,w=34,k=5"},
                                  {"pooling", "c=2,h=24,w=25,k=7,t=2"},
                                  {"cube", "d=9,h=8,w=21,k=4"}}) {
    SCOPED_TRACE(op);
    ExpectPointsCompute(Made(op, shape), *FindTarget("h100"), "windows/");
  }
}

}  // namespace
}  // namespace heddle::search_space::separate_window_test
