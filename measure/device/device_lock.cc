#include "measure/device/device_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace heddle::measure {
namespace {

std::string PathFor(const DeviceInfo& device) {
  std::string name = device.uuid.empty() ? device.id : device.uuid;
  for (char& c : name) {
    if (!absl::ascii_isalnum(c) && c != '-') c = '_';
  }
  const char* folder = getenv("HEDDLE_LOCK_FOLDER");
  return absl::StrCat(folder != nullptr && *folder != '\0' ? folder : "/tmp", "/heddle-", name,
                      ".lock");
}

std::string OwnerOf(int fd) {
  char text[32] = {};
  int pid = 0;
  if (pread(fd, text, sizeof text - 1, 0) > 0 && absl::SimpleAtoi(text, &pid)) {
    return absl::StrCat("process ", pid);
  }
  return "another process";
}

}  // namespace

absl::StatusOr<DeviceLock> DeviceLock::Acquire(const DeviceInfo& device) {
  const std::string path = PathFor(device);
  int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  // Another user's file in a folder such as /tmp must not be opened with O_CREAT, nor written; a
  // lock needs neither.
  if (fd < 0) fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot open the lock of ", device.id, ", ", path, ": ", strerror(errno),
                     " (set HEDDLE_LOCK_FOLDER to a folder that can be written)"));
  }
  DeviceLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::UnavailableError(absl::StrCat(device.id, " (", device.target.name,
                                               ") is in use by ", OwnerOf(fd),
                                               ": wait for it, or choose another device"));
  }
  // Fails on another user's file: then the next one is told "another process".
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) == 0 && pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", strerror(errno)));
  }
  return lock;
}

DeviceLock::~DeviceLock() {
  if (fd_ >= 0) close(fd_);
}
DeviceLock::DeviceLock(DeviceLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
DeviceLock& DeviceLock::operator=(DeviceLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

}  // namespace heddle::measure
