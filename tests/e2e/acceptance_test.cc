// Every operator tunes on an OpenCL device, at a small shape and at one that divides nothing, in
// float32 and in both types of 16 bits; so do operators that nobody wrote a rule for.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/process.h"
#include "tests/random_operators.h"
#include "tests/support.h"

namespace heddle::tests {
namespace {

struct Case {
  std::string name, op, shape;
  std::string text;  // of an operator that is not built in
};

constexpr char kDilatedConv1d[] = R"(
op dilated_conv1d(n, ci, l, co, k, dilation) {
  let ol = l - (k - 1) * dilation
  in X[n, ci, l], W[co, ci, k]
  out Y[b: n, o: co, x: ol] = sum(c: ci, r: k) X[b, c, x + r * dilation] * W[o, c, r]
})";
constexpr char kLogSumExp[] = R"(
op log_sum_exp(m, n) {
  in X[m, n]
  M[i: m] = max(r: n) X[i, r]
  S[i: m] = sum(r: n) exp(X[i, r] - M[i])
  out Y[i: m] = log(S[i]) + M[i]
})";
// A gated product with a sigmoid: two reductions that meet in one output.
constexpr char kGated[] = R"(
op gated_matmul(m, n, k) {
  in A[m, k], B[k, n], G[k, n]
  T[i: m, j: n] = sum(r: k) A[i, r] * B[r, j]
  U[i: m, j: n] = sum(r: k) A[i, r] * G[r, j]
  out D[i: m, j: n] = T[i, j] * sigmoid(U[i, j])
})";

// Rows along an axis that is not the innermost one.
constexpr char kSoftmaxChannels[] = R"(
op softmax_channels(n, c, l) {
  in X[n, c, l]
  M[b: n, x: l] = max(k: c) X[b, k, x]
  E[b: n, k: c, x: l] = exp(X[b, k, x] - M[b, x])
  S[b: n, x: l] = sum(k: c) E[b, k, x]
  out Y[b: n, k: c, x: l] = E[b, k, x] / S[b, x]
})";

const Case kCases[] = {
    {"vector_add_small", "vector_add", "n=256", ""},
    {"vector_add_odd", "vector_add", "n=10007", ""},
    {"window_sum_small", "window_sum", "n=256", ""},
    {"window_sum_odd", "window_sum", "n=10007,w=3", ""},
    {"transpose_small", "transpose", "m=64,n=64", ""},
    {"transpose_odd", "transpose", "m=61,n=101", ""},
    {"matmul_small", "matmul", "m=64,n=64,k=64", ""},
    {"matmul_odd", "matmul", "m=61,n=101,k=37", ""},
    {"matmul_nt_small", "matmul_nt", "m=64,n=64,k=64", ""},
    {"matmul_nt_odd", "matmul_nt", "m=61,n=101,k=37", ""},
    {"matmul_tn_small", "matmul_tn", "m=64,n=64,k=64", ""},
    {"matmul_tn_odd", "matmul_tn", "m=61,n=101,k=37", ""},
    {"batch_matmul_small", "batch_matmul", "b=4,m=32,n=32,k=32", ""},
    {"batch_matmul_odd", "batch_matmul", "b=3,m=61,n=101,k=37", ""},
    {"gemm_relu_add_small", "gemm_relu_add", "m=64,n=64,k=64", ""},
    {"gemm_relu_add_odd", "gemm_relu_add", "m=61,n=101,k=37", ""},
    {"conv2d_small", "conv2d", "n=1,ci=8,h=16,w=16,co=8,kh=3,kw=3,pad=1", ""},
    {"conv2d_odd", "conv2d", "n=1,ci=37,h=61,w=101,co=37,kh=3,kw=3,stride=2,pad=1", ""},
    {"conv2d_bias_relu_small", "conv2d_bias_relu", "n=1,ci=8,h=16,w=16,co=8,kh=3,kw=3,pad=1", ""},
    {"conv2d_bias_relu_odd", "conv2d_bias_relu",
     "n=1,ci=37,h=61,w=101,co=37,kh=3,kw=3,stride=2,pad=1", ""},
    {"conv2d_nhwc_small", "conv2d_nhwc", "n=1,ci=8,h=16,w=16,co=8,kh=3,kw=3,pad=1", ""},
    {"conv2d_nhwc_odd", "conv2d_nhwc", "n=1,ci=37,h=61,w=101,co=37,kh=3,kw=3,stride=2,pad=1", ""},
    {"depthwise_conv2d_small", "depthwise_conv2d", "n=1,c=8,h=16,w=16,kh=3,kw=3,pad=1", ""},
    {"depthwise_conv2d_odd", "depthwise_conv2d", "n=1,c=37,h=61,w=101,kh=3,kw=3,stride=2,pad=1",
     ""},
    {"softmax_small", "softmax", "m=64,n=64", ""},
    {"softmax_odd", "softmax", "m=61,n=101", ""},
    {"layer_norm_small", "layer_norm", "m=64,n=64", ""},
    {"layer_norm_odd", "layer_norm", "m=61,n=101", ""},
    {"dilated_conv1d_small", "dilated_conv1d", "n=1,ci=8,l=64,co=8,k=3,dilation=2", kDilatedConv1d},
    {"dilated_conv1d_odd", "dilated_conv1d", "n=1,ci=37,l=101,co=61,k=3,dilation=5",
     kDilatedConv1d},
    {"log_sum_exp_small", "log_sum_exp", "m=64,n=64", kLogSumExp},
    {"log_sum_exp_odd", "log_sum_exp", "m=61,n=101", kLogSumExp},
    {"softmax_channels_small", "softmax_channels", "n=2,c=32,l=64", kSoftmaxChannels},
    {"softmax_channels_odd", "softmax_channels", "n=3,c=37,l=61", kSoftmaxChannels},
    {"gated_matmul_small", "gated_matmul", "m=64,n=64,k=64", kGated},
    {"gated_matmul_odd", "gated_matmul", "m=61,n=101,k=37", kGated},
};

constexpr int kRandomTrials = 3;  // of a random operator, small as it is

// `fewest`: points that a space has at least.
void ExpectTunes(const Case& c, int trials = 24, const char* type = "float32", int fewest = 2) {
  SCOPED_TRACE(absl::StrCat(c.name, " ", type));
  const TempFolder folder;
  std::vector<std::string> workload = {c.op, "--shape",  c.shape,   "--dtype",
                                       type, "--device", "opencl:0"};
  if (!c.text.empty()) {
    std::ofstream(folder / "own.op") << c.text;
    workload.insert(workload.end(), {"--op-file", folder / "own.op"});
  }
  std::vector<std::string> command = {"tune",     "--trials", absl::StrCat(trials),
                                      "--search", "random",   "--json"};
  command.insert(command.begin() + 1, workload.begin(), workload.end());
  const Ran ran = RunHeddle(folder / "db", command);
  ASSERT_EQ(ran.code, 0) << ran.err;
  const nlohmann::json result = nlohmann::json::parse(ran.out);
  const int total = result["trials"]["total"], ok = result["trials"]["ok"];
  // Small spaces hold fewer points; what was tried was right.
  const bool all_points = ran.err.find("has no more points to try") != std::string::npos;
  EXPECT_TRUE(total == trials || (all_points && total >= fewest)) << ran.err;
  EXPECT_GE(ok * 100, total * 95) << result["trials"].dump() << ran.err;

  // Who takes the best along gets what was measured, right.
  command = {"export", "--out", folder / "best"};
  command.insert(command.begin() + 1, workload.begin(), workload.end());
  const Ran exported = RunHeddle(folder / "db", command);
  ASSERT_EQ(exported.code, 0) << exported.err;
  const Ran checked = Process({"/usr/bin/python3", "-I", "run.py"}, {}, folder / "best").Wait();
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
}

TEST(AcceptanceTest, ATenthTunesWithTwentyFourTrials) {
  SCOPED_TRACE(absl::StrCat("HEDDLE_SEED=", Seed()));
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  std::shuffle(cases.begin(), cases.end(), std::mt19937_64(Seed()));
  for (size_t i = 0; i < cases.size() / 10; ++i) ExpectTunes(cases[i]);
}

// A product and rows: the long test has every case in both types.
TEST(AcceptanceTest, BothTypesOfSixteenBitsTune) {
  ExpectTunes({"matmul_small", "matmul", "m=64,n=64,k=64", ""}, 4, "bfloat16");
  ExpectTunes({"softmax_odd", "softmax", "m=61,n=101", ""}, 4, "float16");
  ExpectTunes({"softmax_channels_odd", "softmax_channels", "n=3,c=37,l=61", kSoftmaxChannels}, 6,
              "bfloat16");
}

// Graphs that nobody has thought of, one for each number from `first` on.
void ExpectRandomOperatorsTune(uint64_t first, int count) {
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count); ++seed) {
    const RandomOperator made = RandomOperators(seed).Next();
    const size_t name = made.text.find("op ") + 3;
    const auto sizes = absl::StrJoin(made.shape, ",", absl::PairFormatter("="));
    SCOPED_TRACE(made.text);
    ExpectTunes({absl::StrCat("random_", seed),
                 made.text.substr(name, made.text.find('(', name) - name), sizes, made.text},
                kRandomTrials, seed % 4 == 3 ? "bfloat16" : "float32", /*fewest=*/1);
  }
}

TEST(AcceptanceTest, SomeRandomOperatorsTune) { ExpectRandomOperatorsTune(300 * Seed(), 3); }

// Thirty of three hundred.
class LongRandomAcceptanceTest : public testing::TestWithParam<int> {};
TEST_P(LongRandomAcceptanceTest, ThirtyRandomOperatorsTune) {
  ExpectRandomOperatorsTune(300 * Seed() + 30 * static_cast<uint64_t>(GetParam()), 30);
}
INSTANTIATE_TEST_SUITE_P(Parts, LongRandomAcceptanceTest, testing::Range(0, 10));

class LongAcceptanceTest : public testing::TestWithParam<Case> {};

TEST_P(LongAcceptanceTest, TunesWithTwentyFourTrials) { ExpectTunes(GetParam()); }
TEST_P(LongAcceptanceTest, TunesInBFloat16) { ExpectTunes(GetParam(), 8, "bfloat16"); }
TEST_P(LongAcceptanceTest, TunesInFloat16) { ExpectTunes(GetParam(), 8, "float16"); }

INSTANTIATE_TEST_SUITE_P(Operators, LongAcceptanceTest, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace heddle::tests
