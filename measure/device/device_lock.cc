#include "measure/device/device_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "measure/device/backend.h"

namespace heddle::measure {
namespace {

// Which PrivateTmp=yes leaves as it is, and every user may lock in.
constexpr char kSharedFolder[] = "/run/lock/heddle";
constexpr mode_t kSharedMode = 01777;

std::string LockFolder() {
  const char* folder = getenv("HEDDLE_LOCK_FOLDER");
  if (folder != nullptr && *folder != '\0') return folder;
  // deploy/heddle.tmpfiles.conf makes it; who comes first does where everybody may.
  if (mkdir(kSharedFolder, kSharedMode) == 0) (void)!chmod(kSharedFolder, kSharedMode);
  struct stat found;
  return lstat(kSharedFolder, &found) == 0 && S_ISDIR(found.st_mode) ? kSharedFolder : "/tmp";
}

std::string PathFor(const DeviceInfo& device) {
  std::string name = device.uuid.empty() ? device.id : device.uuid;
  for (char& c : name) {
    if (!absl::ascii_isalnum(c) && c != '-') c = '_';
  }
  return absl::StrCat(LockFolder(), "/heddle-", name, ".lock");
}

std::string OwnerOf(int fd) {
  char text[32] = {};
  int pid = 0;
  if (pread(fd, text, sizeof text - 1, 0) > 0 && absl::SimpleAtoi(text, &pid)) {
    return absl::StrCat("process ", pid);
  }
  return "another process";
}

// A file that other users can see is theirs to replace by a link or a pipe: these are not followed,
// nor waited for.
int OpenLock(const std::string& path) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | kFlags, 0666);
  // Another user's file in a folder such as /tmp must not be opened with O_CREAT, nor written; a
  // lock needs neither.
  return fd >= 0 ? fd : open(path.c_str(), O_RDONLY | kFlags);
}

absl::Status InUse(const DeviceInfo& device, const std::string& owner) {
  return absl::UnavailableError(absl::StrCat(device.id, " (", device.target.name, ") is in use by ",
                                             owner, ": wait for it, or choose another device"));
}

}  // namespace

absl::StatusOr<DeviceLock> DeviceLock::Acquire(const DeviceInfo& device) {
  const std::string path = PathFor(device);
  const int fd = OpenLock(path);
  if (fd < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot open the lock of ", device.id, ", ", path, ": ", strerror(errno),
                     " (set HEDDLE_LOCK_FOLDER to a folder that can be written)"));
  }
  DeviceLock lock;
  lock.fds_.push_back(fd);
  struct stat found;
  if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) || found.st_nlink != 1) {
    return absl::UnavailableError(absl::StrCat("the lock of ", device.id, ", ", path,
                                               ", is no plain file of its own: remove it"));
  }
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) return InUse(device, OwnerOf(fd));
  // Another user's file is not written: the next one is told "another process".
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (found.st_uid == geteuid() && ftruncate(fd, 0) == 0 &&
      pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", strerror(errno)));
  }
  const auto node_of = BackendOf(device).node;
  const std::string node = node_of != nullptr ? node_of(device) : "";
  const int there = node.empty() ? -1 : open(node.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (there >= 0) {
    lock.fds_.push_back(there);
    if (flock(there, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return InUse(device, absl::StrCat("a process that holds ", node, " but not ", path));
    }
  }
  return lock;
}

DeviceLock::~DeviceLock() {
  for (const int fd : fds_) close(fd);
}
DeviceLock::DeviceLock(DeviceLock&& other) noexcept : fds_(std::exchange(other.fds_, {})) {}
DeviceLock& DeviceLock::operator=(DeviceLock&& other) noexcept {
  std::swap(fds_, other.fds_);
  return *this;
}

// Each GPU has a folder there with a file "information" of lines "GPU UUID: \t GPU-..." and
// "Device Minor: \t 3".
std::string NvidiaNode(const std::string& uuid, const std::string& gpus) {
  std::error_code error;
  for (const auto& gpu : std::filesystem::directory_iterator(gpus, error)) {
    std::ifstream file(gpu.path() / "information");
    std::string line, minor;
    bool found = false;
    while (std::getline(file, line)) {
      absl::string_view rest = line;
      if (absl::ConsumePrefix(&rest, "GPU UUID:")) {
        found = absl::StripAsciiWhitespace(rest) == uuid;
      } else if (absl::ConsumePrefix(&rest, "Device Minor:")) {
        minor = std::string(absl::StripAsciiWhitespace(rest));
      }
    }
    if (found && !minor.empty()) return "/dev/nvidia" + minor;
  }
  return "";
}

}  // namespace heddle::measure
