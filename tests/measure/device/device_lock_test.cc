#include "measure/device/device_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "measure/run/detect.h"
#include "measure/run/measurer.h"
#include "tests/support.h"

namespace heddle::measure {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class DeviceLockFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/heddle-lock-file-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    setenv("HEDDLE_LOCK_FOLDER", folder, 1);
    device_.id = absl::StrCat("test:", getpid());
    path_ = absl::StrCat(folder_, "/heddle-test_", getpid(), ".lock");
  }
  void TearDown() override {
    unsetenv("HEDDLE_LOCK_FOLDER");
    fs::remove_all(folder_);
  }
  static std::string Contents(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_, path_;
  DeviceInfo device_;
};

TEST_F(DeviceLockFileTest, WhatStandsInItsPlaceIsNotTouched) {
  const std::string victim = folder_ + "/victim";
  std::ofstream(victim) << "precious";
  ASSERT_EQ(symlink(victim.c_str(), path_.c_str()), 0);
  EXPECT_TRUE(absl::IsUnavailable(DeviceLock::Acquire(device_).status()));
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_EQ(link(victim.c_str(), path_.c_str()), 0);
  absl::Status status = DeviceLock::Acquire(device_).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no plain file"));
  EXPECT_EQ(Contents(victim), "precious");
  ASSERT_EQ(unlink(path_.c_str()), 0);
  // A link to nothing makes no file either.
  ASSERT_EQ(symlink((folder_ + "/new").c_str(), path_.c_str()), 0);
  EXPECT_TRUE(absl::IsUnavailable(DeviceLock::Acquire(device_).status()));
  EXPECT_FALSE(fs::exists(folder_ + "/new"));
  ASSERT_EQ(unlink(path_.c_str()), 0);
  // Nobody waits for the other end of a pipe.
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsUnavailable(DeviceLock::Acquire(device_).status()));
  ASSERT_EQ(unlink(path_.c_str()), 0);
  EXPECT_TRUE(DeviceLock::Acquire(device_).ok());
  EXPECT_EQ(Contents(path_), absl::StrCat(getpid(), "\n"));
}

// As a unit with PrivateTmp=yes beside a person's shell: the other process has another /tmp.
TEST_F(DeviceLockFileTest, IsSeenFromAnotherMountNamespace) {
  unsetenv("HEDDLE_LOCK_FOLDER");
  auto lock = DeviceLock::Acquire(device_);
  ASSERT_TRUE(lock.ok()) << lock.status();
  const std::string path = absl::StrCat("/run/lock/heddle/heddle-test_", getpid(), ".lock");
  HEDDLE_NEEDS("run_lock", fs::exists(path), "/run/lock/heddle cannot be made");
  enum { kHeld, kFree, kRefused };
  const pid_t child = fork();
  if (child == 0) {
    const bool apart = (unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
                       mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       mount("none", "/tmp", "tmpfs", 0, nullptr) == 0;
    if (!apart || fs::exists(folder_)) _exit(kRefused);
    DeviceInfo same;
    same.id = device_.id;
    _exit(DeviceLock::Acquire(same).ok() ? kFree : kHeld);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  unlink(path.c_str());
  HEDDLE_NEEDS("unshare", WEXITSTATUS(status) != kRefused, "no mount namespace of one's own");
  EXPECT_EQ(WEXITSTATUS(status), kHeld);
}

TEST_F(DeviceLockFileTest, FindsTheNodeOfAGpuByItsUuid) {
  for (const char* minor : {"0", "3"}) {
    const std::string gpu = absl::StrCat(folder_, "/0000:0", minor, ":00.0");
    fs::create_directory(gpu);
    std::ofstream(gpu + "/information")
        << "Model: \t\t NVIDIA H100\nIRQ:   \t\t 16\nGPU UUID: \t GPU-" << minor
        << "\nDevice Minor: \t " << minor << "\n";
  }
  EXPECT_EQ(NvidiaNode("GPU-3", folder_), "/dev/nvidia3");
  EXPECT_EQ(NvidiaNode("GPU-0", folder_), "/dev/nvidia0");
  EXPECT_EQ(NvidiaNode("GPU-1", folder_), "");
  EXPECT_EQ(NvidiaNode("GPU-0", folder_ + "/nowhere"), "");
}

// Where a container has neither /tmp nor /run in common with the host.
TEST(GpuDeviceLockTest, TheNodeIsLockedAcrossFolders) {
  const auto devices = ListDevices();
  const auto gpu = std::find_if(devices.begin(), devices.end(), [](const DeviceInfo& d) {
    return d.usable && d.target.api == search_space::Api::kCuda;
  });
  if (gpu == devices.end()) GTEST_SKIP() << "no GPU";
  HEDDLE_NEEDS("nvidia_node", fs::exists(NvidiaNode(gpu->uuid)), "no device node of " + gpu->uuid);
  char one[] = "/tmp/heddle-lock-one-XXXXXX", other[] = "/tmp/heddle-lock-other-XXXXXX";
  ASSERT_TRUE(mkdtemp(one) != nullptr && mkdtemp(other) != nullptr);
  setenv("HEDDLE_LOCK_FOLDER", one, 1);
  {
    auto lock = DeviceLock::Acquire(*gpu);
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_EQ(lock->fds().size(), 2u);
    setenv("HEDDLE_LOCK_FOLDER", other, 1);
    const absl::Status second = DeviceLock::Acquire(*gpu).status();
    EXPECT_TRUE(absl::IsUnavailable(second)) << second;
    EXPECT_THAT(std::string(second.message()), HasSubstr("/dev/nvidia"));
  }
  EXPECT_TRUE(DeviceLock::Acquire(*gpu).ok());
  unsetenv("HEDDLE_LOCK_FOLDER");
  fs::remove_all(one);
  fs::remove_all(other);
}

}  // namespace
}  // namespace heddle::measure
