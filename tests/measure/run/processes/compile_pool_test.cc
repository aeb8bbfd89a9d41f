#include "measure/run/processes/compile_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/hash.h"
#include "measure/device/cuda/nvrtc.h"
#include "measure/run/detect.h"
#include "measure/run/measurer.h"
#include "measure/run/processes/confine.h"
#include "proto/worker.pb.h"
#include "search_space/ir/target.h"
#include "tests/measure/children.h"
#include "tests/support.h"

namespace heddle::measure {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class CompilePoolTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/heddle-compile-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override {
    fs::remove_all(folder_);
    unsetenv("HEDDLE_FAKE_DEVICE");
  }

  CompilePoolOptions Options(int processes = 2) const {
    return {processes, absl::Seconds(20), folder_ + "/cache", {}};
  }
  void Script(const std::string& json) {
    std::ofstream(folder_ + "/script.json") << json;
    setenv("HEDDLE_FAKE_DEVICE", (folder_ + "/script.json").c_str(), 1);
  }

  std::string folder_;
  StopSignal stop_;
};

DeviceInfo Cuda() {
  DeviceInfo device;
  device.id = "cuda:0";
  device.compiler = "NVRTC";
  device.target = *search_space::FindTarget("h100");
  return device;
}

DeviceInfo OpenCl(const std::string& id = "opencl:0") {
  DeviceInfo device;
  device.id = id;
  device.target.api = search_space::Api::kOpenCl;
  device.target.arch = "opencl";
  return device;
}

KernelSource CudaKernel(const std::string& body) {
  return {{"k", 4, 64, 0, {"A"}},
          absl::StrCat("extern \"C\" __global__ void k(float* A) {\n", body, "\n}\n")};
}

KernelSource ClKernel(const std::string& body, const std::string& before = "") {
  return {{"k", 4, 64, 0, {"A"}},
          absl::StrCat(before, "\n__kernel void k(__global float* A) {\n", body, "\n}\n")};
}

#define NEEDS_NVRTC HEDDLE_NEEDS("nvrtc", FindNvrtc().ok(), FindNvrtc().status().message())
#define NEEDS_POCL HEDDLE_NEEDS("pocl", FindDevice("opencl:0").ok(), "there is no OpenCL device")

TEST_F(CompilePoolTest, CudaKernelsAreCompiledOnceAndKeptInFiles) {
  NEEDS_NVRTC;
  const KernelSource source = CudaKernel("A[blockIdx.x * 64 + threadIdx.x] = 1.0f;");
  std::string binary;
  {
    CompilePool pool(Cuda(), Options(), stop_);
    auto first = pool.Compile(source);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_FALSE(first->cached);
    EXPECT_GT(first->resources.registers, 0);
    binary = first->binary;
    auto second = pool.Compile(source);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_TRUE(second->cached);
    EXPECT_EQ(second->binary, binary);
    EXPECT_EQ(second->resources.registers, first->resources.registers);
  }
  CompilePool another(Cuda(), Options(), stop_);
  auto kept = another.Compile(source);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_TRUE(kept->cached);
  EXPECT_EQ(kept->binary, binary);

  fs::remove_all(folder_ + "/cache");
  CompilePool empty(Cuda(), Options(), stop_);
  auto again = empty.Compile(source);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->cached);
}

std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  for (const auto& thread : fs::directory_iterator("/proc/self/task")) {
    std::ifstream in(thread.path() / "children");
    for (pid_t pid = 0; in >> pid;) children.push_back(pid);
  }
  return children;
}

TEST_F(CompilePoolTest, WarmingUpStartsProcessesAndKeepsNoKernel) {
  NEEDS_NVRTC;
  const KernelSource source = CudaKernel("A[blockIdx.x * 64 + threadIdx.x] = 3.0f;");
  CompilePool pool(Cuda(), Options(), stop_);
  const size_t before = Children().size();
  {
    std::jthread one([&] { pool.WarmUp(source); });
    std::jthread two([&] { pool.WarmUp(source); });
  }
  EXPECT_GT(Children().size(), before);
  auto compiled = pool.Compile(source);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_FALSE(compiled->cached);
}

// NVRTC starts the driver where it finds one, which takes seconds on a host of many GPUs.
TEST_F(CompilePoolTest, NvrtcSeesNoDevice) {
  NEEDS_NVRTC;
  CompilePool pool(Cuda(), Options(), stop_);
  auto compiled = pool.Compile(CudaKernel("A[blockIdx.x * 64 + threadIdx.x] = 7.0f;"));
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const std::vector<pid_t> compilers = Children();
  ASSERT_FALSE(compilers.empty());
  for (pid_t compiler : compilers) {
    std::ifstream in(absl::StrCat("/proc/", compiler, "/environ"));
    std::vector<std::string> variables;
    for (std::string variable; std::getline(in, variable, '\0');) variables.push_back(variable);
    EXPECT_NE(std::find(variables.begin(), variables.end(), "CUDA_VISIBLE_DEVICES="),
              variables.end());
  }
}

TEST_F(CompilePoolTest, OneOfSeveralThatWantAKernelCompilesIt) {
  NEEDS_NVRTC;
  const KernelSource source = CudaKernel("A[blockIdx.x * 64 + threadIdx.x] = 5.0f;");
  CompilePool pool(Cuda(), Options(3), stop_);
  std::atomic<int> compiled = 0;
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 3; ++i) {
      callers.emplace_back([&] {
        auto kernel = pool.Compile(source);
        ASSERT_TRUE(kernel.ok()) << kernel.status();
        compiled += kernel->cached ? 0 : 1;
      });
    }
  }
  EXPECT_EQ(compiled, 1);
}

TEST_F(CompilePoolTest, ADamagedCacheFileIsCompiledAgain) {
  NEEDS_NVRTC;
  const KernelSource source = CudaKernel("A[threadIdx.x] = 2.0f;");
  ASSERT_TRUE(CompilePool(Cuda(), Options(), stop_).Compile(source).ok());
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder_ + "/cache")) {
    if (!entry.is_regular_file()) continue;
    fs::resize_file(entry.path(), entry.file_size() / 2);
    ++files;
  }
  ASSERT_EQ(files, 1);
  auto compiled = CompilePool(Cuda(), Options(), stop_).Compile(source);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_FALSE(compiled->cached);
}

TEST_F(CompilePoolTest, ACompilersRefusalCarriesItsLog) {
  NEEDS_NVRTC;
  CompilePool pool(Cuda(), Options(), stop_);
  auto refused = pool.Compile(CudaKernel("A[0] = nonsense;"));
  ASSERT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("nonsense"));
  EXPECT_TRUE(pool.Compile(CudaKernel("A[0] = 1;")).ok());
}

TEST_F(CompilePoolTest, MoreThreadsThanProcessesAllGetTheirs) {
  NEEDS_NVRTC;
  CompilePool pool(Cuda(), Options(2), stop_);
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&pool, i] {
      auto compiled = pool.Compile(CudaKernel(absl::StrCat("A[threadIdx.x] = ", i, ";")));
      EXPECT_TRUE(compiled.ok()) << compiled.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What a compiler may do to itself, and what that costs, scripted and real.
class CompilerFaultTest : public CompilePoolTest {
 protected:
  // Compiles the faulty kernel, then a good one in the same pool.
  absl::Status Try(const DeviceInfo& device, const KernelSource& faulty, absl::Duration limit) {
    CompilePoolOptions options = Options(1);
    options.limit = limit;
    CompilePool pool(device, options, stop_);
    absl::Status status = pool.Compile(faulty).status();
    options.limit = absl::Seconds(20);
    CompilePool patient(device, options, stop_);
    const bool cuda = device.id == "cuda:0";
    auto good = patient.Compile(cuda ? CudaKernel("A[0] = 1.0f;") : ClKernel("A[0] = 1.0f;"));
    EXPECT_TRUE(good.ok()) << good.status();
    return status;
  }
};

TEST_F(CompilerFaultTest, AScriptedErrorHangAndCrash) {
  NEEDS_POCL;
  Script(R"({"rules": [{"match": "fault: error", "do": "build_error"},
                       {"match": "fault: hang", "do": "build_hang"},
                       {"match": "fault: crash", "do": "build_crash"}]})");
  const DeviceInfo fake = OpenCl("fake:0");
  EXPECT_TRUE(absl::IsInvalidArgument(Try(fake, ClKernel("// fault: error"), absl::Seconds(20))));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Try(fake, ClKernel("// fault: hang"), absl::Seconds(1))));
  absl::Status crash = Try(fake, ClKernel("// fault: crash"), absl::Seconds(20));
  EXPECT_TRUE(absl::IsAborted(crash)) << crash;
  EXPECT_THAT(std::string(crash.message()), HasSubstr("signal 11"));
}

// The pipe is in no folder that a confined compiler reads.
class UnconfinedCompilerFaultTest : public CompilerFaultTest {
 protected:
  UnconfinedCompilerFaultTest() { SetConfined(false); }
  ~UnconfinedCompilerFaultTest() override { SetConfined(true); }
};

// It waits for somebody to write into the pipe.
std::string IncludeOfPipe(const std::string& folder) {
  const std::string pipe = folder + "/endless.h";
  EXPECT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  return absl::StrCat("#include \"", pipe, "\"\n");
}

TEST_F(UnconfinedCompilerFaultTest, PoclNeverReturns) {
  NEEDS_POCL;
  const KernelSource source = ClKernel("A[0] = 1;", IncludeOfPipe(folder_));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Try(OpenCl(), source, absl::Seconds(1))));
}

TEST_F(UnconfinedCompilerFaultTest, NvrtcNeverReturns) {
  NEEDS_NVRTC;
  KernelSource source = CudaKernel("A[0] = 1;");
  source.source = IncludeOfPipe(folder_) + source.source;
  EXPECT_TRUE(absl::IsDeadlineExceeded(Try(Cuda(), source, absl::Seconds(1))));
}

// What the device waits for most is what was asked for first, and not what began to wait first.
TEST_F(CompilerFaultTest, EarlierTurnsGoFirst) {
  NEEDS_POCL;
  Script(R"({"rules": [{"match": "fault: hang", "do": "build_hang"}]})");
  CompilePoolOptions options = Options(1);
  options.limit = absl::Seconds(6);  // until which the others wait for the only process
  CompilePool pool(OpenCl("fake:0"), options, stop_);
  std::mutex mutex;
  std::vector<int64_t> order;
  const auto compile = [&](int64_t turn, const char* fault) {
    double busy_s = 0;
    const auto compiled =
        pool.Compile(ClKernel(absl::StrCat("A[0] = ", turn, "; // ", fault)), turn, &busy_s);
    EXPECT_EQ(compiled.ok(), fault[0] == '\0') << compiled.status();
    EXPECT_GT(busy_s, 0);
    if (compiled.ok()) {
      EXPECT_LT(busy_s, 6) << "it waited longer, and that is not counted";
    }
    std::lock_guard lock(mutex);
    order.push_back(turn);
  };
  const auto await = [&](const auto& holds) {
    while (!holds()) {
      absl::SleepFor(absl::Milliseconds(1));
      std::lock_guard lock(mutex);
      ASSERT_TRUE(order.empty()) << "the first one did not wait for the others";
    }
  };
  std::vector<std::jthread> threads;
  threads.emplace_back(compile, 20, "fault: hang");
  await([] { return !ChildrenOf("__compiler").empty(); });
  for (int64_t turn : {13, 11, 12}) {
    const size_t waiting = threads.size();
    threads.emplace_back(compile, turn, "");
    await([&] { return pool.waiting() == waiting; });
  }
  threads.clear();
  EXPECT_EQ(order, (std::vector<int64_t>{20, 11, 12, 13}));
}

TEST_F(CompilerFaultTest, PoclAborts) {
  NEEDS_POCL;
  // The parser calls itself for each sign until the stack is used up.
  std::string signs;
  for (int i = 0; i < 300000; ++i) signs += "- ";
  absl::Status status = Try(OpenCl(), ClKernel("A[0] = " + signs + "1;"), absl::Seconds(20));
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("signal"));
}

TEST_F(CompilePoolTest, AStopSignalEndsACompilation) {
  NEEDS_POCL;
  Script(R"({"rules": [{"do": "build_hang"}]})");
  StopSignal stop;
  CompilePool pool(OpenCl("fake:0"), Options(1), stop);
  std::thread stopper([&stop] {
    absl::SleepFor(absl::Milliseconds(200));
    stop.Set();
  });
  EXPECT_TRUE(absl::IsCancelled(pool.Compile(ClKernel("A[0] = 1;")).status()));
  stopper.join();
  EXPECT_TRUE(absl::IsCancelled(pool.Compile(ClKernel("A[0] = 2;")).status()));
}

TEST(KernelCacheTest, WithoutAFolderItIsInMemoryOnly) {
  KernelCache cache("");
  worker::CompileReply reply, found;
  reply.set_binary("binary");
  EXPECT_FALSE(cache.Find("key", found));
  cache.Add("key", reply);
  ASSERT_TRUE(cache.Find("key", found));
  EXPECT_EQ(found.binary(), "binary");
}

TEST(KernelCacheTest, WhatWasNotUsedForLongestIsRemoved) {
  char pattern[] = "/tmp/heddle-cache-test-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  const std::string folder = pattern;
  constexpr int64_t kLimit = 100000;
  worker::CompileReply reply, found;
  reply.set_binary(std::string(10000, 'x'));
  const auto key = [](int i) { return "kernel " + std::to_string(i); };
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 9; ++i) {
    KernelCache(folder, kLimit).Add(key(i), reply);
    const std::string hash = HexHashOf(key(i));
    fs::last_write_time(folder + "/" + hash.substr(0, 2) + "/" + hash.substr(2),
                        now - std::chrono::hours(20 - i));
  }
  EXPECT_TRUE(KernelCache(folder, kLimit).Find(key(0), found)) << "the limit is not reached";
  for (int i = 9; i < 12; ++i) KernelCache(folder, kLimit).Add(key(i), reply);
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  }
  EXPECT_LE(bytes, kLimit);
  EXPECT_GE(bytes, kLimit / 2);
  EXPECT_FALSE(KernelCache(folder, kLimit).Find(key(1), found));
  EXPECT_TRUE(KernelCache(folder, kLimit).Find(key(0), found)) << "it was used a moment ago";
  EXPECT_TRUE(KernelCache(folder, kLimit).Find(key(11), found));
  fs::remove_all(folder);
}

TEST(KernelCacheTest, AFolderThatCannotBeWrittenCostsNothingButTime) {
  KernelCache cache("/proc/no/such/folder");
  worker::CompileReply reply, found;
  reply.set_binary("binary");
  cache.Add("key", reply);
  EXPECT_TRUE(cache.Find("key", found));
}

// As the system does that is out of memory, or a person: the source is not to blame.
TEST_F(CompilePoolTest, ACompilerThatIsKilledIsStartedOnceMore) {
  NEEDS_POCL;
  Script(R"({"rules": [{"do": "build_hang"}]})");
  CompilePool pool(OpenCl("fake:0"), Options(1), stop_);
  std::atomic<bool> ended = false;
  std::set<pid_t> killed;
  std::thread killer([&] {
    for (; !ended; absl::SleepFor(absl::Milliseconds(5))) {
      for (pid_t pid : Children()) {
        if (killed.insert(pid).second) kill(pid, SIGKILL);
      }
    }
  });
  auto compiled = pool.Compile(ClKernel("A[0] = 1;"));
  ended = true;
  killer.join();
  EXPECT_TRUE(absl::IsUnavailable(compiled.status())) << compiled.status();
  EXPECT_THAT(std::string(compiled.status().message()), HasSubstr("signal 9"));
  EXPECT_EQ(killed.size(), 2u);
}

}  // namespace
}  // namespace heddle::measure
