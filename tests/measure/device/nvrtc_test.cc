#include "measure/device/cuda/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/dynlib.h"
#include "measure/device/compare.h"
#include "measure/device/fill_shared.h"
#include "tests/support.h"

namespace heddle::measure {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Nvrtc, ResourcesAreReadFromTheLog) {
  const KernelResources r = ParseResources(
      "ptxas info    : Function properties for f\n"
      "    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n"
      "ptxas info    : Used 141 registers, used 1 barriers, 16 bytes cumulative stack size, 18432 "
      "bytes smem\n");
  EXPECT_EQ(r.registers, 141);
  EXPECT_EQ(r.stack_bytes, 16);
  EXPECT_EQ(r.spill_bytes, 20);
  EXPECT_EQ(r.static_shared_bytes, 18432);
}

TEST(Nvrtc, TheEnvironmentDecidesAlone) {
  setenv("HEDDLE_TEST_LIBRARY", "/nowhere/libx.so", 1);
  EXPECT_THAT(CudaLibraryCandidates("libx.so", "HEDDLE_TEST_LIBRARY"),
              ElementsAre("/nowhere/libx.so"));
  unsetenv("HEDDLE_TEST_LIBRARY");
}

TEST(Nvrtc, CompilesAndRefuses) {
  HEDDLE_NEEDS("nvrtc", FindNvrtc().ok(), FindNvrtc().status().message());
  const auto good = CompileCuda(
      "extern \"C\" __global__ void f(float* x) { __shared__ float s[64]; s[threadIdx.x] = "
      "x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[63 - threadIdx.x]; }",
      "f.cu", "sm_90");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->cubin.substr(1, 3), "ELF");
  EXPECT_THAT(good->ptx, HasSubstr(".entry f"));
  EXPECT_GT(good->resources.registers, 0);
  EXPECT_EQ(good->resources.static_shared_bytes, 256);
  const auto bad = CompileCuda("this is not C", "bad.cu", "sm_90");
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("bad.cu(1)"));
  const auto old = CompileCuda("", "old.cu", "sm_20");
  EXPECT_THAT(std::string(old.status().message()), HasSubstr("it knows sm_"));
}

// Two builds of one version do not compile alike: caches and records tell them apart.
TEST(Nvrtc, ABuildHasItsName) {
  HEDDLE_NEEDS("nvrtc", FindNvrtc().ok(), FindNvrtc().status().message());
  const NvrtcInfo info = *FindNvrtc();
  EXPECT_EQ(info.build.size(), 16);
  EXPECT_THAT(NameOf(info),
              HasSubstr(absl::StrCat(info.major, ".", info.minor, " (build ", info.build, ")")));
}

TEST(DynLib, BuildsDiffer) {
  const auto build = [](const std::string& path) {
    auto library = DynLib::Open(path);
    EXPECT_TRUE(library.ok()) << library.status();
    return library.ok() ? library->build() : "";
  };
  const std::string math = build("libm.so.6");
  EXPECT_EQ(math.size(), 16);
  EXPECT_EQ(math, build("libm.so.6"));
  EXPECT_NE(math, build("libdl.so.2"));
  // A copy without the linker's note is told by its bytes.
  std::stringstream file;
  file << std::ifstream(DynLib::Open("libm.so.6")->path(), std::ios::binary).rdbuf();
  std::string bytes = file.str();
  const size_t note = bytes.find(std::string("\4\0\0\0\x14\0\0\0\3\0\0\0GNU\0", 16));
  ASSERT_NE(note, std::string::npos);
  bytes[note + 8] = 9;  // of another type
  const std::string copy = ::testing::TempDir() + "/libnote.so";
  std::ofstream(copy, std::ios::binary) << bytes;
  const std::string by_bytes = build(copy);
  EXPECT_EQ(by_bytes.size(), 16);
  EXPECT_NE(by_bytes, math);
  std::filesystem::remove(copy);
}

TEST(Nvrtc, CompilesTheKernelsOfADevice) {
  HEDDLE_NEEDS("nvrtc", FindNvrtc().ok(), FindNvrtc().status().message());
  for (const char* arch : {"sm_80", "sm_90"}) {
    const auto binary =
        CompileCuda(CompareSource(search_space::DType::kFloat32) +
                        CompareSource(search_space::DType::kFloat16) +
                        CompareSource(search_space::DType::kBFloat16) + kFillSharedCuda,
                    "heddle.cu", arch);
    ASSERT_TRUE(binary.ok()) << binary.status();
    for (search_space::DType type : kComparedTypes) {
      EXPECT_THAT(binary->ptx, HasSubstr(".entry " + CompareEntry(type)));
    }
    EXPECT_THAT(binary->ptx, HasSubstr(std::string(".entry ") + kFillSharedEntry));
    EXPECT_THAT(binary->ptx, HasSubstr("st.volatile.shared"));
    EXPECT_EQ(binary->resources.spill_bytes, 0);
  }
}

TEST(Disassemble, RunsTheToolOnThePath) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "heddle it's a folder";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "nvdisasm") << "#!/bin/sh\necho \"$1: $(cat \"$2\")\"\n";
  std::filesystem::permissions(folder / "nvdisasm", std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  setenv("PATH", (folder.string() + ":" + path).c_str(), 1);
  const auto text = Disassemble("machine code");
  setenv("PATH", path.c_str(), 1);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "-c: machine code\n");
}

}  // namespace
}  // namespace heddle::measure
