// Artefacts, as who takes them away uses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/tune_support.h"

namespace heddle::tests {
namespace {

using testing::HasSubstr;

class ExportTest : public TuneTest {};

// Makes the kernel of an artefact wrong: its last addition is the one of A and B, or of an index.
void Damage(const std::string& file) {
  std::string source = ReadAll(file);
  const size_t plus = source.rfind(" + ");
  ASSERT_NE(plus, std::string::npos);
  source.replace(plus, 3, " - ");
  std::ofstream(file) << source;
}

TEST_F(ExportTest, TheLauncherSeesAWrongKernel) {
  ASSERT_EQ(Run("export vector_add --shape n=1000 --device opencl:0 --default --out @/a").code, 0);
  Damage(folder_ / "a/k0.cl");
  ASSERT_EQ(Process({"g++", "-std=c++17", "run.cc", "-lOpenCL", "-o", "run"}, {}, folder_ / "a")
                .Wait()
                .code,
            0);
  EXPECT_NE(Process({"./run"}, {}, folder_ / "a").Wait().code, 0);
}

TEST_F(ExportTest, KernelsOfSixteenBitTypesAreExportedAndRun) {
  for (const char* type : {"float16", "bfloat16"}) {
    const std::string folder = absl::StrCat("h_", type);
    ASSERT_EQ(Run(absl::StrCat("export softmax --shape m=7,n=61 --dtype ", type,
                               " --device opencl:0 --default --out @/", folder))
                  .code,
              0);
    EXPECT_EQ(json::parse(ReadAll(folder_ / (folder + "/manifest.json")))["dtype"], type);
    ExpectItsLauncherRuns(folder_ / folder);
  }
}

// Who launches the kernels allocates as many elements as a shape has.
TEST_F(ExportTest, PaddedWorkspacesAreExportedWithTheirPadding) {
  std::ofstream(folder_ / "padded.txt")
      << "pack(B, C.acc, [1, 0], 3)\nset_scope(C.acc, local)\ncompute_at(C.acc, C, j)\n";
  ASSERT_EQ(
      Run("export matmul --shape m=4,n=6,k=8 --device opencl:0 --steps @/padded.txt --out @/p")
          .code,
      0);
  const json manifest = json::parse(ReadAll(folder_ / "p/manifest.json"));
  const json packed = manifest["buffers"].back();
  EXPECT_EQ(packed["name"], "B.packed");
  EXPECT_EQ(packed["shape"], json({6, 11}));
  EXPECT_EQ(packed["strides"], json({11, 1}));
  ExpectItsLauncherRuns(folder_ / "p");
}

// Inputs, what lies between two kernels and outputs, each of a type of its own.
TEST_F(ExportTest, KernelsOfMixedTypesAreExportedAndRun) {
  std::ofstream(folder_ / "mixed.op") << R"(op mixed(m, n, k) {
    in A[m, k]: bfloat16, B[k, n], C[n]: float16
    T[i: m, j: n]: float64 = sum(r: k) A[i, r] * B[r, j]
    U[i: m, j: n]: bfloat16 = max(T[i, j], 0) + C[j]
    S[i: m]: float16 = sum(r: n) U[i, r]
    out Y[i: m, j: n]: float16 = U[i, j] + S[i]
    out Z[i: m, j: n] = U[i, j] - S[i]
  })";
  const std::string workload = "mixed --op-file @/mixed.op --shape m=17,n=19,k=23";
  ASSERT_EQ(Run("export " + workload + " --device opencl:0 --default --out @/x").code, 0);
  const json manifest = json::parse(ReadAll(folder_ / "x/manifest.json"));
  std::map<std::string, std::string> types;
  for (const json& buffer : manifest["buffers"]) types[buffer["name"]] = buffer["dtype"];
  EXPECT_EQ(types["A"], "bfloat16");
  EXPECT_EQ(types["B"], "float32");
  EXPECT_EQ(types["Y"], "float16");
  EXPECT_EQ(types["Z"], "float32");
  ExpectItsLauncherRuns(folder_ / "x");
}

// Without the folders of packages: it needs no other but the driver.
const std::vector<std::string> kPythonAlone = {"/usr/bin/python3", "-I", "-S", "run.py"};

TEST_F(ExportTest, ThePythonScriptNeedsNoPackage) {
  std::ofstream(folder_ / "gather.op") << R"(op gather(m, n) {
    in X[n]: bfloat16, I[m]: index(n), S[n]: tf32
    T[i: n]: float64 = sum(r: n) X[r] * S[r] * float64(i)
    out Y[i: m]: float16 = X[I[i]] + T[I[i]]
  })";
  for (const char* workload :
       {"softmax --shape m=37,n=61", "softmax --dtype float16 --shape m=37,n=61",
        "gather --op-file @/gather.op --shape m=70,n=50"}) {
    ASSERT_EQ(Run(absl::StrCat("export ", workload, " --device opencl:0 --default --out @/s")).code,
              0);
    const Ran ran = Process(kPythonAlone, {}, folder_ / "s").Wait();
    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
    EXPECT_THAT(ran.out, HasSubstr(" 0 wrong")) << workload;
  }
  ASSERT_EQ(Run("export vector_add --shape n=1000 --device opencl:0 --default --out @/a").code, 0);
  Damage(folder_ / "a/k0.cl");
  EXPECT_EQ(Process(kPythonAlone, {}, folder_ / "a").Wait().code, 1);
}

// Sums of integers are workspaces of integers, with which a launcher deals, too.
TEST_F(ExportTest, WorkspacesOfIntegersAreExportedAndRun) {
  std::ofstream(folder_ / "counts.op") << "op counts(m, n) {\n"
                                          "  in I[m]: index(n)\n"
                                          "  out Y[j: n] = sum(r: m) select(I[r] == j, 1, 0)\n"
                                          "}\n";
  const std::string counts = "counts --op-file @/counts.op --shape m=5000,n=1500";
  std::ofstream(folder_ / "steps.txt") << "scatter_in_memory(Y.acc, 4, 64, 2, 1)\n"
                                          "split(Y, j, [64])\nbind(Y, j.0, block)\n"
                                          "bind(Y, j.1, thread)\n";
  const json timed = RunJson("time " + counts + " --device opencl:0 --steps @/steps.txt");
  EXPECT_EQ(timed["outcome"], "OK") << timed.dump(1);
  ASSERT_EQ(Run("export " + counts + " --device opencl:0 --steps @/steps.txt --out @/counts").code,
            0);
  const json buffers = json::parse(ReadAll(folder_ / "counts/manifest.json"))["buffers"];
  EXPECT_EQ(buffers.back()["dtype"], "int32");
  EXPECT_EQ(buffers.back()["role"], "workspace");
  ExpectItsLauncherRuns(folder_ / "counts");
}

}  // namespace
}  // namespace heddle::tests
