// Generated CUDA, compiled by g++ against cuda_shim.h and run under ThreadSanitizer: right results,
// no race, and a race reported where a barrier was taken out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "measure/codegen/codegen.h"
#include "measure/codegen/dialects.h"
#include "measure/codegen/helpers.h"
#include "measure/device/compare.h"
#include "tests/measure/sample_programs.h"
#include "tests/support.h"

namespace heddle::measure {
namespace {

using ::testing::HasSubstr;

struct Ran {
  int exit_code;
  std::string output;
};
Ran Shell(const std::string& command) {
  Ran out{-1, ""};
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return out;
  char block[4096];
  while (size_t n = fread(block, 1, sizeof(block), pipe)) out.output.append(block, n);
  const int status = pclose(pipe);
  out.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return out;
}

// A main() that runs the kernel on inputs element i = i % 7 and fails unless `check` (an expression
// over buffers by their names) holds for every i of the last buffer.
std::string MainFor(const KernelSource& source, const search_space::Kernel& kernel,
                    const std::string& check) {
  std::string out = "\nint main() {\n";
  for (const auto& b : kernel.arguments) {
    absl::StrAppend(&out, "  alignas(16) static float ", b->name, "[", b->elements, "];\n",
                    "  for (int i = 0; i < ", b->elements, "; ++i) ", b->name, "[i] = i % 7;\n");
  }
  absl::StrAppend(&out, "  ShimLaunch(", source.launch.grid, ", ", source.launch.block, ", [] { ",
                  source.launch.entry, "(", absl::StrJoin(source.launch.arguments, ", "),
                  "); });\n  for (int i = 0; i < ", kernel.arguments.back()->elements,
                  "; ++i) {\n    if (!(", check, ")) return 3;\n  }\n  return 0;\n}\n");
  return out;
}

constexpr int kRaceExit = 66;  // ThreadSanitizer's own

// Compiles CUDA C++ and a main() with ThreadSanitizer and runs it.
Ran RunUnderTsan(const std::string& source, const std::string& main) {
  const std::string stem = absl::StrCat(::testing::TempDir(), "/heddle_shim_", getpid());
  std::ofstream(stem + ".cc") << "#include \"tests/measure/cuda_shim.h\"\n" << source << main;
  const Ran built = Shell(absl::StrCat("g++ -std=c++20 -O1 -g -w -fsanitize=thread -I '",
                                       tests::SourceDir(), "' ", stem, ".cc -o ", stem));
  Ran ran = built;
  // Where the kernel spreads addresses further than this ThreadSanitizer knows, it cannot start.
  if (built.exit_code == 0) ran = Shell(absl::StrCat("setarch -R ", stem));
  for (const char* suffix : {"", ".cc"}) std::filesystem::remove(stem + suffix);
  return ran;
}

Ran RunUnderTsan(const search_space::Program& program, const std::string& check) {
  const KernelSource source = GenerateSource(program, *search_space::FindTarget("sm_90"), "")[0];
  return RunUnderTsan(source.source, MainFor(source, program.kernels[0], check));
}

class CudaShim : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string file = absl::StrCat(::testing::TempDir(), "/heddle_tsan_", getpid());
    const Ran ran = Shell(absl::StrCat("echo 'int main() {}' | g++ -x c++ -fsanitize=thread - -o ",
                                       file, " && setarch -R ", file));
    std::filesystem::remove(file);
    HEDDLE_NEEDS("tsan", ran.exit_code == 0, "g++ -fsanitize=thread: " + ran.output);
  }
};

TEST_F(CudaShim, TransposeIsRightAndFreeOfRaces) {
  const Ran ran = RunUnderTsan(tests::Transpose(), "B[i] == A[i % 64 * 96 + i / 64]");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
}

TEST_F(CudaShim, AMissingBarrierIsReported) {
  const Ran ran = RunUnderTsan(tests::Transpose(false), "true");
  EXPECT_EQ(ran.exit_code, kRaceExit) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("ThreadSanitizer: data race"));
}

TEST_F(CudaShim, DoubleBufferedMatmulIsRightAndFreeOfRaces) {
  const char* check =
      "[i] { float sum = 0; for (int k = 0; k < 40; ++k) sum += A[i / 64 * 40 + k] * B[k * 64 + i "
      "% 64]; return C[i] == sum; }()";
  const Ran ran = RunUnderTsan(tests::Matmul(tests::Fetch::kRegisters), check);
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
}

TEST_F(CudaShim, DoubleBufferedMatmulNeedsItsBarriers) {
  search_space::Program p = tests::Matmul(tests::Fetch::kRegisters);
  p.kernels[0].body = RewriteStmt(
      p.kernels[0].body,
      [](const search_space::Stmt& s) -> search_space::Stmt {
        const bool barrier = s->kind == search_space::StmtNode::Kind::kIntrin &&
                             s->intrinsic == search_space::Intrinsic::kBarrier;
        return barrier ? search_space::Seq({}) : nullptr;
      },
      nullptr);
  const Ran ran = RunUnderTsan(p, "true");
  EXPECT_EQ(ran.exit_code, kRaceExit) << ran.output;
}

TEST_F(CudaShim, GuardedLoadsStayInside) {
  const Ran ran = RunUnderTsan(tests::PaddedCopy(), "Y[i] == (i >= 1 && i < 65 ? X[i - 1] : 0)");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
}

TEST_F(CudaShim, GuardedLoadsMoveWithTheirLoop) {
  const Ran ran = RunUnderTsan(tests::MovingCopy(), "Y[i] == (i < 77 ? X[i] : 0)");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
}

// With instructions that are off by as much as PTX allows, in either direction.
TEST_F(CudaShim, RoughFunctionsAreAsExactAsTheySay) {
  const std::string helpers =
      Prelude(DialectOf(search_space::Api::kCuda),
              {"rough_sigmoid", "rough_sigmoid_or_zero", "rough_log", "rough_power"}, false);
  const std::regex instruction(
      R"re(asm\("(\w+)\.approx[.\w]* %0, %1;" : "=f"\(r\) : "f"\((.*)\)\);)re");
  const std::string source = R"(
float off;
float ex2(float x) { return std::exp2((double)x) * (1 + off * 0x1p-22); }
float rcp(float x) { return 1 / (double)x * (1 + off * 0x1p-23); }
float lg2(float x) {
  const double y = std::log2((double)x);
  return !std::isfinite(y) ? y : y + off * (x > 0.5f && x < 2 ? 1 : std::abs(y)) * 0x1p-22;
}
)" + std::regex_replace(helpers, instruction, "r = $1($2);");
  const Ran ran = RunUnderTsan(source, R"(
int main() {
  const auto near = [](float got, double expected, double by) {
    return std::abs(got - expected) <= by * std::abs(expected);
  };
  for (float direction : {-1.0f, 1.0f}) {
    off = direction;
    for (float x = -87; x < 87; x += 0.0137f) {
      const double gate = 1 / (1 + std::exp(-(double)x));
      if (!near(rough_sigmoid(x), gate, 0x1p-17)) return 3;
      if (!near(rough_sigmoid_or_zero(x), gate, 0x1p-17)) return 4;
      const float e = std::exp(x);
      if (!near(rough_log(e), std::log((double)e), 0x1p-18)) return 5;
      if (!near(rough_power(e, 0.4545f), std::pow((double)e, 0.4545f), 0x1p-16)) return 6;
      const float b = std::exp(x / 16);
      if (!near(rough_power(b, -15.5f), std::pow((double)b, -15.5), 0x1p-15)) return 7;
    }
    for (float t = 0x1p-23f; t < 0.5f; t *= 1.01f) {
      if (!near(rough_log(1 + t), std::log((double)(1 + t)), 0x1p-18)) return 8;
      if (!near(rough_log(1 - t), std::log((double)(1 - t)), 0x1p-18)) return 9;
      if (!near(rough_power(1 + t, 15.5f), std::pow((double)(1 + t), 15.5), 0x1p-17)) return 10;
    }
  }
  off = 0;
  const float infinity = INFINITY;
  if (rough_log(0) != -infinity || rough_log(infinity) != infinity) return 11;
  if (!std::isnan(rough_log(-1))) return 11;
  if (rough_power(0, 0.5f) != 0 || rough_power(0, -0.5f) != infinity) return 12;
  if (rough_power(infinity, 0.5f) != infinity || !std::isnan(rough_power(-1, 0.5f))) return 13;
  return rough_sigmoid(-infinity) == 0 && rough_sigmoid(infinity) == 1 ? 0 : 14;
}
)");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
}

// Against the host's words for it; sizes with and without a rest, one block and more. Blocks run
// one after another here: what they do to each other the tests on a GPU see.
TEST_F(CudaShim, TheComparisonIsRightAndFreeOfRaces) {
  const Ran ran = RunUnderTsan(CompareSource(search_space::DType::kFloat32), R"(
#include "tests/measure/compared.h"
#include "measure/device/compare.cc"
#include "search_space/ir/expr/float_format.cc"
int main() {
  for (long long count : {1, 256, 1000, 4099}) {
    for (bool special : {false, true}) {
      const double slack = special ? 1e-3 : 0;
      const auto made = heddle::tests::MakeCompared(count, special);
      unsigned long long out[2] = {};
      ShimLaunch(count > 1000 ? 3 : 1, heddle::measure::kCompareThreads,
                 [&] { heddle_compare_float32(made.a.data(), made.b.data(), count, slack, out); });
      const auto expected =
          heddle::measure::DifferenceOf(made.a.data(), made.b.data(), count, slack, 1);
      if (out[0] != expected.elements) return 3;
      if (std::bit_cast<double>(out[1]) != expected.distance) return 4;
    }
  }
})");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
}

}  // namespace
}  // namespace heddle::measure
