#include "base/process/service_manager.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "absl/time/clock.h"
#include "tests/process.h"

namespace heddle {
namespace {

// A manager's end of the socket.
class ServiceManagerTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = folder_ / "notify";
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address.sun_path);
    ASSERT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  }
  void TearDown() override {
    close(fd_);
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }
  // What has come since the last time, a line each.
  std::string Heard() {
    std::string all;
    std::array<char, 256> buffer;
    ssize_t size = 0;
    while ((size = recv(fd_, buffer.data(), buffer.size(), 0)) > 0) {
      all += std::string(buffer.data(), size) + "\n";
    }
    return all;
  }

  tests::TempFolder folder_;
  std::string path_;
  int fd_ = -1;
};

TEST_F(ServiceManagerTest, IsToldWhenItBeginsAndEnds) {
  ServiceManager manager;
  EXPECT_EQ(getenv("NOTIFY_SOCKET"), nullptr) << "a child would speak for us";
  manager.Ready();
  EXPECT_EQ(Heard(), "READY=1\n");
  manager.KeepAlive(1);
  EXPECT_EQ(Heard(), "") << "nobody has asked for it";
  manager.Stopping();
  EXPECT_EQ(Heard(), "STOPPING=1\n");
}

TEST_F(ServiceManagerTest, AWatchdogHearsOfProgressOnly) {
  setenv("WATCHDOG_USEC", "2", 1);  // a microsecond has passed from each call to the next
  ServiceManager manager;
  EXPECT_EQ(getenv("WATCHDOG_USEC"), nullptr);
  const auto keep = [&](int64_t progress) {
    absl::SleepFor(absl::Milliseconds(1));
    manager.KeepAlive(progress);
  };
  keep(1);
  EXPECT_EQ(Heard(), "WATCHDOG=1\n");
  keep(1);
  EXPECT_EQ(Heard(), "") << "a process that does nothing any more is killed";
  keep(2);
  EXPECT_EQ(Heard(), "WATCHDOG=1\n");
}

TEST_F(ServiceManagerTest, AWatchdogHearsTwiceInItsTime) {
  setenv("WATCHDOG_USEC", "3600000000", 1);
  ServiceManager manager;
  for (int progress = 0; progress < 100; ++progress) manager.KeepAlive(progress);
  EXPECT_EQ(Heard(), "WATCHDOG=1\n");
}

TEST_F(ServiceManagerTest, AnothersWatchdogIsNotOurs) {
  setenv("WATCHDOG_USEC", "2", 1);
  setenv("WATCHDOG_PID", "1", 1);
  ServiceManager manager;
  absl::SleepFor(absl::Milliseconds(1));
  manager.KeepAlive(1);
  EXPECT_EQ(Heard(), "");
}

TEST(NoServiceManagerTest, NobodyIsTold) {
  unsetenv("NOTIFY_SOCKET");
  ServiceManager manager;
  manager.Ready();
  manager.KeepAlive(1);
  setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1);
  ServiceManager gone;
  gone.Ready();
}

}  // namespace
}  // namespace heddle
