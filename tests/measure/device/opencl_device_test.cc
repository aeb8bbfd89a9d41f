#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "measure/device/backend.h"
#include "measure/device/drivers.h"
#include "tests/measure/device_checks.h"

namespace heddle::measure {
namespace {

KernelSource Kernel(std::string entry, std::string arguments, std::string body,
                    std::vector<std::string> names, int64_t grid, int64_t block) {
  KernelSource kernel;
  kernel.launch = {entry, grid, block, 0, std::move(names)};
  kernel.source = "__kernel __attribute__((reqd_work_group_size(" + std::to_string(block) +
                  ", 1, 1)))\nvoid " + entry + "(" + arguments +
                  ") {\n  int i = get_global_id(0);\n" + body + "\n}\n";
  return kernel;
}

class OpenClDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Device>> opened = OpenDevice("opencl:0");
    if (!opened.ok()) GTEST_SKIP() << opened.status();
    device_ = *std::move(opened);
  }

  std::unique_ptr<LoadedProgram> Build(const std::vector<KernelSource>& sources) {
    std::vector<KernelBinary> binaries;
    for (const KernelSource& source : sources) {
      absl::StatusOr<std::string> binary = CompileOpenCl("opencl:0", source);
      EXPECT_TRUE(binary.ok()) << binary.status();
      if (!binary.ok()) return nullptr;
      binaries.push_back({source.launch, *binary});
    }
    auto loaded = device_->Load(binaries);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *std::move(loaded) : nullptr;
  }

  std::unique_ptr<DeviceBuffer> Buffer(int64_t floats) {
    auto buffer = device_->Allocate(floats * 4);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return *std::move(buffer);
  }

  std::vector<float> Read(const DeviceBuffer& buffer) {
    std::vector<float> values(buffer.bytes() / 4);
    EXPECT_TRUE(device_->Download(buffer, values.data(), buffer.bytes()).ok());
    return values;
  }

  std::unique_ptr<Device> device_;
};

TEST_F(OpenClDeviceTest, DescribesItself) {
  const search_space::Target& target = device_->info().target;
  EXPECT_EQ(device_->info().id, "opencl:0");
  EXPECT_FALSE(target.name.empty());
  EXPECT_GT(target.sm_count, 0);
  EXPECT_GT(target.l2_bytes, 0);
  EXPECT_GT(target.memory_bytes, 0);
  EXPECT_GT(target.peak_gflops, 1);
  EXPECT_GT(target.max_threads_per_block, 0);
  EXPECT_GT(target.max_shared_bytes_per_block, 0);
}

TEST_F(OpenClDeviceTest, RunsTwoKernelsInOrder) {
  auto program = Build({Kernel("twice", "__global const float* a, __global float* t",
                               "  t[i] = 2 * a[i];", {"A", "T"}, 4, 64),
                        Kernel("plus", "__global const float* t, __global float* c",
                               "  c[i] = t[i] + 1;", {"T", "C"}, 8, 32)});
  ASSERT_NE(program, nullptr);
  auto a = Buffer(256), t = Buffer(256), c = Buffer(256);
  std::vector<float> values(256);
  for (int i = 0; i < 256; ++i) values[i] = static_cast<float>(i);
  ASSERT_TRUE(device_->Upload(*a, values.data(), 1024).ok());
  BufferSet set = {{"A", a.get()}, {"T", t.get()}, {"C", c.get()}};
  ASSERT_TRUE(device_->Run(*program, set).ok());
  std::vector<float> result = Read(*c);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(result[i], 2.0f * i + 1);

  set.erase("T");
  absl::Status missing = device_->Run(*program, set);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("T"), absl::string_view::npos) << missing;
}

TEST_F(OpenClDeviceTest, FillsCopiesAndGuards) {
  auto a = Buffer(100), b = Buffer(100);
  ASSERT_TRUE(device_->Fill(*a, 0x3f800000).ok());
  ASSERT_TRUE(device_->Copy(*a, *b).ok());
  EXPECT_EQ(Read(*b), std::vector<float>(100, 1.0f));
  EXPECT_TRUE(*device_->GuardsIntact(*a));
  EXPECT_TRUE(*device_->GuardsIntact(*b));
}

TEST_F(OpenClDeviceTest, ComparesLikeTheHost) {
  tests::ExpectComparesLikeTheHost(*device_);
  tests::ExpectComparesHalvesLikeTheHost(*device_);
}

TEST_F(OpenClDeviceTest, WritesOutsideABufferAreSeenAndReadsGiveNan) {
  // The element before the first, and the one after the last.
  for (const char* index : {"i - 1", "i + 1"}) {
    auto outside =
        Build({Kernel("outside", "__global const float* a, __global float* b",
                      std::string("  b[") + index + "] = a[" + index + "];", {"A", "B"}, 1, 97)});
    ASSERT_NE(outside, nullptr);
    auto a = Buffer(97), b = Buffer(97);
    ASSERT_TRUE(device_->Fill(*a, 0).ok());
    ASSERT_TRUE(device_->Fill(*b, 0).ok());
    ASSERT_TRUE(device_->Run(*outside, {{"A", a.get()}, {"B", b.get()}}).ok());
    // What it wrote outside is the NaN it read from the other red zone: exchange them to see it.
    EXPECT_TRUE(*device_->GuardsIntact(*b)) << "a NaN of the red zone is the red zone's pattern";
    ASSERT_TRUE(device_->Fill(*b, 0).ok());
    auto write = Build({Kernel("write", "__global float* b", std::string("  b[") + index + "] = 1;",
                               {"B"}, 1, 97)});
    ASSERT_TRUE(device_->Run(*write, {{"B", b.get()}}).ok());
    EXPECT_FALSE(*device_->GuardsIntact(*b)) << index;
    ASSERT_TRUE(device_->RestoreGuards(*b).ok());
    EXPECT_TRUE(*device_->GuardsIntact(*b));

    auto read = Build({Kernel("read", "__global const float* a, __global float* b",
                              std::string("  b[i] = a[") + index + "] + 1;", {"A", "B"}, 1, 97)});
    ASSERT_TRUE(device_->Run(*read, {{"A", a.get()}, {"B", b.get()}}).ok());
    std::vector<float> values = Read(*b);
    EXPECT_TRUE(std::isnan(index[2] == '-' ? values.front() : values.back())) << index;
  }
}

// Elements of 16 bits may end within a word: the other half is outside.
TEST_F(OpenClDeviceTest, HalfAWordBehindABufferIsOutside) {
  for (const int count : {97, 1}) {
    auto b = device_->Allocate(2 * count).value();
    ASSERT_TRUE(device_->Fill(*b, 0x12341234).ok());
    EXPECT_TRUE(*device_->GuardsIntact(*b));
    std::vector<uint16_t> halves(count);
    ASSERT_TRUE(device_->Download(*b, halves.data(), b->bytes()).ok());
    EXPECT_EQ(halves, std::vector<uint16_t>(count, 0x1234));
    auto inside = Build({Kernel("inside", "__global ushort* b", "  b[i] = 1;", {"B"}, 1, count)});
    ASSERT_TRUE(device_->Run(*inside, {{"B", b.get()}}).ok());
    EXPECT_TRUE(*device_->GuardsIntact(*b));
    auto outside =
        Build({Kernel("outside", "__global ushort* b", "  b[i + 1] = 1;", {"B"}, 1, count)});
    ASSERT_TRUE(device_->Run(*outside, {{"B", b.get()}}).ok());
    EXPECT_FALSE(*device_->GuardsIntact(*b));
    ASSERT_TRUE(device_->RestoreGuards(*b).ok());
    EXPECT_TRUE(*device_->GuardsIntact(*b));
  }
}

TEST_F(OpenClDeviceTest, BatchesRotateThroughTheBufferSets) {
  auto program = Build({Kernel("count", "__global float* c", "  c[i] += 1;", {"C"}, 1, 16)});
  ASSERT_NE(program, nullptr);
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  std::vector<BufferSet> sets;
  for (int i = 0; i < 3; ++i) {
    buffers.push_back(Buffer(16));
    ASSERT_TRUE(device_->Fill(*buffers.back(), 0).ok());
    sets.push_back({{"C", buffers.back().get()}});
  }
  auto batch = device_->PrepareBatch(*program, sets, /*first=*/1, /*launches=*/4);
  ASSERT_TRUE(batch.ok()) << batch.status();
  absl::StatusOr<double> seconds = (*batch)->Run();
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_GT(*seconds, 0);
  EXPECT_EQ(Read(*buffers[0])[0], 1);
  EXPECT_EQ(Read(*buffers[1])[0], 2);
  EXPECT_EQ(Read(*buffers[2])[0], 1);
}

TEST_F(OpenClDeviceTest, LimitsAreCheckedBeforeTheDriverAborts) {
  const search_space::Target& target = device_->info().target;
  KernelSource wide = Kernel("wide", "__global float* c", "  c[i] = 1;", {"C"}, 1, 16);
  absl::StatusOr<std::string> binary = CompileOpenCl("opencl:0", wide);
  ASSERT_TRUE(binary.ok()) << binary.status();
  wide.launch.block = 2 * target.max_threads_per_block;
  EXPECT_EQ(device_->Load({{wide.launch, *binary}}).status().code(),
            absl::StatusCode::kResourceExhausted);

  const int64_t floats = target.max_shared_bytes_per_block / 4 + 1024;
  KernelSource shared = Kernel("shared", "__global float* c",
                               "  __local float s[" + std::to_string(floats) +
                                   "];\n  s[get_local_id(0)] = c[i];\n"
                                   "  barrier(CLK_LOCAL_MEM_FENCE);\n"
                                   "  c[i] = s[15 - get_local_id(0)];",
                               {"C"}, 1, 16);
  binary = CompileOpenCl("opencl:0", shared);
  if (binary.ok()) {
    absl::Status status = device_->Load({{shared.launch, *binary}}).status();
    EXPECT_EQ(OutcomeOf(status), Outcome::kResourceLimit) << status;
  }
  EXPECT_EQ(device_->Allocate(int64_t{1} << 50).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(OpenClDeviceTest, CompilerErrorsCarryTheLog) {
  KernelSource broken = Kernel("broken", "__global float* c", "  c[i] = undeclared;", {"C"}, 1, 16);
  absl::Status status = CompileOpenCl("opencl:0", broken).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("undeclared"), absl::string_view::npos) << status;
  EXPECT_EQ(device_->Load({{broken.launch, "not a binary"}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

double Seconds(const std::function<void()>& work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Compiles, loads and runs a kernel that takes far longer to compile than to run. Whether the
// first run compiled again.
bool CompilesAtFirstRun(int64_t grid) {
  std::string body = "  float x = c[i];\n";
  for (int k = 0; k < 40; ++k) {
    body += "  x = mad(x, sin(x + " + std::to_string(k) + "), cos(x));\n";
  }
  KernelSource source = Kernel("heavy", "__global float* c", body + "  c[i] = x;", {"C"}, grid, 64);
  std::string binary;
  const double compile = Seconds([&] { binary = CompileOpenCl("opencl:0", source).value(); });
  std::unique_ptr<Device> device = OpenDevice("opencl:0").value();
  std::unique_ptr<DeviceBuffer> c = device->Allocate(256 * grid).value();
  if (!device->Fill(*c, 0).ok()) return true;
  std::unique_ptr<LoadedProgram> program = device->Load({{source.launch, binary}}).value();
  auto run = [&] { EXPECT_TRUE(device->Run(*program, {{"C", c.get()}}).ok()); };
  const double first = Seconds(run), second = Seconds(run);
  return first - second > compile / 4;
}

// What the compiler process made is not compiled again by the process that runs it, neither for a
// small nor for a large grid. Each in a process of its own, as the compilers are.
TEST(OpenClBinaries, RunWithoutBeingCompiledAgain) {
  if (!DetectOpenClDevices()[0].usable) GTEST_SKIP() << DetectOpenClDevices()[0].why_not;
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  setenv("POCL_KERNEL_CACHE", "0", 1);  // else only the first run of this test would compile
  EXPECT_EXIT(_exit(CompilesAtFirstRun(1)), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(_exit(CompilesAtFirstRun(2048)), testing::ExitedWithCode(0), "");
}

TEST(OpenDevice, SaysWhatIsWrongWithAName) {
  EXPECT_EQ(OpenDevice("gpu").status().code(), absl::StatusCode::kInvalidArgument);
  absl::Status none = OpenDevice("opencl:99").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace heddle::measure
