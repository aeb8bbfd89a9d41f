// Runs where there is a GPU: ctest -L gpu, or this program from a bundle.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "measure/device/backend.h"
#include "measure/device/cuda/nvrtc.h"
#include "measure/device/drivers.h"
#include "measure/judge/timing.h"
#include "tests/measure/device_checks.h"

namespace heddle::measure {
namespace {

KernelLaunch Launch(const std::string& entry, int64_t grid, int64_t block,
                    std::vector<std::string> arguments, int64_t shared = 0) {
  return {entry, grid, block, shared, std::move(arguments)};
}

class GpuDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    DeviceInfo info = DetectCudaDevices()[0];
    if (!info.usable) GTEST_SKIP() << info.why_not;
    device_ = OpenDevice("cuda:0").value();
  }

  absl::StatusOr<std::unique_ptr<LoadedProgram>> Load(const KernelLaunch& launch,
                                                      const std::string& parameters,
                                                      const std::string& body) {
    const std::string source = "extern \"C\" __global__ void " + launch.entry + "(" + parameters +
                               ") {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n" + body +
                               "\n}\n";
    auto binary = CompileCuda(source, "test.cu", device_->info().target.arch);
    if (!binary.ok()) return binary.status();
    return device_->Load({{launch, binary->cubin}});
  }
  std::unique_ptr<DeviceBuffer> Buffer(int64_t floats, uint32_t pattern = 0) {
    auto buffer = device_->Allocate(floats * 4).value();
    EXPECT_TRUE(device_->Fill(*buffer, pattern).ok());
    return buffer;
  }
  std::vector<float> Read(const DeviceBuffer& buffer) {
    std::vector<float> values(buffer.bytes() / 4);
    EXPECT_TRUE(device_->Download(buffer, values.data(), buffer.bytes()).ok());
    return values;
  }

  std::unique_ptr<Device> device_;
};

TEST_F(GpuDeviceTest, DescribesItself) {
  const search_space::Target& target = device_->info().target;
  EXPECT_EQ(target.api, search_space::Api::kCuda);
  EXPECT_EQ(target.arch.substr(0, 3), "sm_");
  EXPECT_GT(target.peak_gflops, 1000);
  EXPECT_LT(target.peak_gflops, 1e6);
  EXPECT_GT(target.memory_gbs, 50);
  EXPECT_LT(target.memory_gbs, 50000);
  EXPECT_GT(target.l2_bytes, 1 << 20);
  EXPECT_GE(target.max_shared_bytes_per_block, 48 << 10);
  EXPECT_EQ(device_->info().uuid.size(), 40u) << device_->info().uuid;
  EXPECT_GT(*device_->FreeMemory(), 0);
}

TEST_F(GpuDeviceTest, RunsAndTellsResources) {
  auto program =
      Load(Launch("twice", 4, 64, {"A", "B"}), "const float* a, float* b", "  b[i] = 2 * a[i];");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_GT((*program)->resources().registers, 0);
  auto a = Buffer(256), b = Buffer(256), copy = Buffer(256);
  auto host = device_->AllocateHost(1024).value();
  auto* values = static_cast<float*>(host->data());
  for (int i = 0; i < 256; ++i) values[i] = static_cast<float>(i);
  ASSERT_TRUE(device_->Upload(*a, values, 1024).ok());
  ASSERT_TRUE(device_->Run(**program, {{"A", a.get()}, {"B", b.get()}}).ok());
  ASSERT_TRUE(device_->Copy(*b, *copy).ok());
  std::vector<float> result = Read(*copy);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(result[i], 2.0f * i);
  EXPECT_EQ(device_->Run(**program, {{"A", a.get()}}).code(), absl::StatusCode::kNotFound);
}

TEST_F(GpuDeviceTest, RedZones) {
  // No multiple of a float4: the element after the last one is outside.
  auto b = Buffer(97), c = Buffer(97);
  EXPECT_TRUE(*device_->GuardsIntact(*b));
  auto program = Load(Launch("outside", 1, 97, {"B", "C"}), "float* b, float* c",
                      "  c[i] = b[i + 1] + 1; b[i + 1] = 1;");
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_TRUE(device_->Run(**program, {{"B", b.get()}, {"C", c.get()}}).ok());
  EXPECT_FALSE(*device_->GuardsIntact(*b));
  EXPECT_TRUE(std::isnan(Read(*c).back()));
  ASSERT_TRUE(device_->RestoreGuards(*b).ok());
  EXPECT_TRUE(*device_->GuardsIntact(*b));
}

// Elements of 16 bits may end within a word: the other half is outside.
TEST_F(GpuDeviceTest, RedZonesBeginWithinAWord) {
  auto b = device_->Allocate(2 * 97).value();
  ASSERT_TRUE(device_->Fill(*b, 0x12341234).ok());
  EXPECT_TRUE(*device_->GuardsIntact(*b));
  std::vector<uint16_t> halves(97);
  ASSERT_TRUE(device_->Download(*b, halves.data(), b->bytes()).ok());
  EXPECT_EQ(halves, std::vector<uint16_t>(97, 0x1234));
  auto program = Load(Launch("outside", 1, 97, {"B"}), "unsigned short* b", "  b[i + 1] = 1;");
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_TRUE(device_->Run(**program, {{"B", b.get()}}).ok());
  EXPECT_FALSE(*device_->GuardsIntact(*b));
  ASSERT_TRUE(device_->RestoreGuards(*b).ok());
  EXPECT_TRUE(*device_->GuardsIntact(*b));
}

TEST_F(GpuDeviceTest, ComparesLikeTheHost) {
  tests::ExpectComparesLikeTheHost(*device_);
  tests::ExpectComparesHalvesLikeTheHost(*device_);
}

TEST_F(GpuDeviceTest, SharedMemoryAboveTheStaticLimit) {
  const int64_t most = device_->info().target.max_shared_bytes_per_block;
  const std::string body =
      "  extern __shared__ float s[];\n  s[threadIdx.x + n] = c[i];\n  __syncthreads();\n"
      "  c[i] = s[63 - threadIdx.x + n] + 1;";
  const std::string offset = "  const int n = " + std::to_string(most / 4 - 64) + ";\n";
  auto program = Load(Launch("shared", 1, 64, {"C"}, most), "float* c", offset + body);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ((*program)->resources().shared_bytes, most);
  auto c = Buffer(64);
  ASSERT_TRUE(device_->Run(**program, {{"C", c.get()}}).ok());
  EXPECT_EQ(Read(*c), std::vector<float>(64, 1.0f));
  absl::Status more =
      Load(Launch("shared", 1, 64, {"C"}, most + 16), "float* c", offset + body).status();
  EXPECT_EQ(OutcomeOf(more), Outcome::kResourceLimit) << more;
}

// What a block finds in its shared memory, dynamic and static, is what FillShared left there: on
// every multiprocessor, whatever ran before.
TEST_F(GpuDeviceTest, SharedMemoryIsFilled) {
  const int64_t blocks = 4 * device_->info().target.sm_count;
  auto c = Buffer(64 * blocks);
  for (const int64_t dynamic :
       {int64_t{0}, int64_t{32} << 10, device_->info().target.max_shared_bytes_per_block - 1024}) {
    auto read = Load(Launch("read", blocks, 64, {"C"}, dynamic), "float* c",
                     dynamic > 0 ? "  extern __shared__ volatile float d[];\n"
                                   "  c[i] = d[threadIdx.x];"
                                 : "  __shared__ volatile float s[256];\n"
                                   "  c[i] = s[threadIdx.x];");
    auto zero = Load(Launch("zero", blocks, 64, {"C"}, dynamic), "float* c",
                     dynamic > 0 ? "  extern __shared__ volatile float d[];\n"
                                   "  d[threadIdx.x] = 0; c[i] = d[63 - threadIdx.x];"
                                 : "  __shared__ volatile float s[256];\n"
                                   "  s[threadIdx.x] = 0; c[i] = s[63 - threadIdx.x];");
    ASSERT_TRUE(read.ok() && zero.ok()) << read.status() << zero.status();
    ASSERT_TRUE(device_->Run(**zero, {{"C", c.get()}}).ok());
    ASSERT_TRUE(device_->FillShared(0x7fc00000).ok());
    ASSERT_TRUE(device_->Run(**read, {{"C", c.get()}}).ok());
    int64_t numbers = 0;
    for (const float value : Read(*c)) numbers += std::isnan(value) ? 0 : 1;
    EXPECT_EQ(numbers, 0) << dynamic << " bytes of dynamic shared memory";
  }
}

// Before each of the three runs of a candidate, which has the device for some 20 ms in all.
TEST_F(GpuDeviceTest, FillingSharedMemoryTakesLittle) {
  auto nothing = Load(Launch("nothing", 1, 64, {"C"}), "float* c", "  c[i] = 1;");
  auto c = Buffer(64);
  ASSERT_TRUE(device_->FillShared(0x7fc00000).ok());  // compiles
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(device_->FillShared(0x7fc00000).ok());
    ASSERT_TRUE(device_->Run(**nothing, {{"C", c.get()}}).ok());
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  RecordProperty("us_each", std::to_string(took.count() / 100));
  EXPECT_LT(took.count() / 100, 200) << "us, one fill and one launch";
}

TEST_F(GpuDeviceTest, BatchesRotateAndTheClockRuns) {
  auto count = Load(Launch("count", 1, 16, {"C"}), "float* c", "  c[i] += 1;");
  ASSERT_TRUE(count.ok()) << count.status();
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  std::vector<BufferSet> sets;
  for (int i = 0; i < 3; ++i) {
    buffers.push_back(Buffer(16));
    sets.push_back({{"C", buffers.back().get()}});
  }
  auto batch = device_->PrepareBatch(**count, sets, /*first=*/1, /*launches=*/4);
  ASSERT_TRUE(batch.ok()) << batch.status();
  ASSERT_TRUE((*batch)->Run().ok());
  // Sets 1, 2, 0, 1 timed; ahead of them one that is not timed, on set 0.
  EXPECT_EQ(Read(*buffers[0])[0], 2);
  EXPECT_EQ(Read(*buffers[1])[0], 2);
  EXPECT_EQ(Read(*buffers[2])[0], 1);

  // A kernel that waits for 20 us by the device's own clock.
  auto wait = Load(Launch("wait", 1, 1, {"C"}), "float* c",
                   "  unsigned long long start, now;\n"
                   "  asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(start));\n"
                   "  do { asm volatile(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(now)); }\n"
                   "  while (now - start < 20000);\n  c[i] = 1;");
  ASSERT_TRUE(wait.ok()) << wait.status();
  auto timing = TimeProgram(*device_, {wait->get(), sets}, {});
  ASSERT_TRUE(timing.ok()) << timing.status();
  EXPECT_GT(timing->interval.median, 19e-6);
  EXPECT_LT(timing->interval.median, 25e-6);
}

TEST_F(GpuDeviceTest, IllegalAccessesAreTold) {
  // In a process of its own: the context does not survive it.
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        auto program = Load(Launch("wild", 1, 1, {"C"}), "float* c", "  c[1ll << 40] = 1;");
        auto c = Buffer(16);
        absl::Status status = device_->Run(*program.value(), {{"C", c.get()}});
        _exit(OutcomeOf(status) == Outcome::kIllegalAccess ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(GpuDeviceTest, TellsItsClocks) {
  DeviceState state = device_->State();
  if (state.max_sm_clock_mhz == 0) GTEST_SKIP() << "no libnvidia-ml.so.1";
  EXPECT_GT(state.sm_clock_mhz, 100);
  EXPECT_LE(state.sm_clock_mhz, state.max_sm_clock_mhz);
}

}  // namespace
}  // namespace heddle::measure
