#include "tuner/records/database/records_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace heddle::tuner {
namespace {

namespace fs = std::filesystem;

std::string FolderOf(const std::string& path) {
  std::string folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

std::string ReadWord(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  in >> word;
  return word;
}

// Start time of a process in clock ticks since boot; "" when there is none. Process ids are used
// again, pairs of id and start time are not.
std::string StartTime(const std::string& pid) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(in, line);
  const size_t name_end = line.rfind(')');  // the name may hold spaces and parentheses
  if (name_end == std::string::npos) return "";
  std::istringstream rest(line.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) rest >> field;  // fields are counted from 1, the name is the 2nd
  return field;
}

std::string BootId() { return ReadWord("/proc/sys/kernel/random/boot_id"); }

}  // namespace

std::string DefaultRecordsPath() {
  auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (std::string path = variable("HEDDLE_DB"); !path.empty()) return path;
  // The XDG specification has relative paths ignored.
  if (std::string data = variable("XDG_DATA_HOME"); !data.empty() && data.front() == '/') {
    return data + "/heddle/heddle.db";
  }
  std::string home = variable("HOME");
  return (home.empty() ? "." : home) + "/.local/share/heddle/heddle.db";
}

absl::Status CreateFolderOf(const std::string& path) {
  std::error_code error;
  fs::create_directories(FolderOf(path), error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(FolderOf(path),
                                                  ": cannot create this folder: ", error.message(),
                                                  "; name another file with --db or $HEDDLE_DB"));
}

const char* NetworkFileSystem(unsigned long magic) {
  switch (magic) {
    case 0x6969:
      return "NFS";
    case 0x517b:
    case 0xff534d42:
    case 0xfe534d42:
      return "SMB";
    case 0x5346414f:
    case 0x6b414653:
      return "AFS";
    case 0x00c36400:
      return "Ceph";
    case 0x0bd00bd0:
      return "Lustre";
    case 0x47504653:
      return "GPFS";
    case 0x19830326:
      return "BeeGFS";
    case 0x73757245:
      return "Coda";
    default:
      return nullptr;
  }
}

absl::Status CheckPlace(const std::string& path) {
  const std::string folder = FolderOf(path);
  struct stat info;
  if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return absl::NotFoundError(absl::StrCat(path, ": there is no folder ", folder,
                                            "; create it, or name another file with --db"));
  }
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": this is not a file; name a file with --db, such as ",
                     (fs::path(path) / "heddle.db").string()));
  }
  struct statfs system;
  // f_type is signed on some machines: only its lower 32 bits mean something.
  if (statfs(folder.c_str(), &system) == 0) {
    if (const char* name = NetworkFileSystem(static_cast<uint32_t>(system.f_type))) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, ": the folder is on a network file system (", name,
          "), where a database that several processes share loses data; name a file on "
          "a local disk with --db, and move records with `heddle records export`"));
    }
  }
  return absl::OkStatus();
}

bool WasLeftOpen(const std::string& path) {
  struct stat log, shared;
  if (stat((path + "-wal").c_str(), &log) != 0 || log.st_size == 0) return false;
  if (stat((path + "-shm").c_str(), &shared) != 0) return true;
  // Every connection holds a lock on the log's shared memory for as long as it lives. They are
  // looked up in the kernel's list, as to open and close the file here would release the locks that
  // other connections of this process hold on it.
  const std::string file =
      absl::StrFormat("%02x:%02x:%d", major(shared.st_dev), minor(shared.st_dev), shared.st_ino);
  std::ifstream locks("/proc/locks");
  std::string word;
  while (locks >> word) {
    if (word == file) return false;
  }
  return true;
}

bool IsWritable(const std::string& path) {
  return faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0 &&
         faccessat(AT_FDCWD, FolderOf(path).c_str(), W_OK | X_OK, AT_EACCESS) == 0;
}

bool IsOwn(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && info.st_uid == geteuid() &&
         (info.st_mode & S_IWOTH) == 0;
}

std::string ThisProcess() {
  const std::string pid = absl::StrCat(getpid());
  return absl::StrCat(BootId(), " ", pid, " ", StartTime(pid));
}

bool IsRunning(const std::string& process) {
  std::istringstream in(process);
  std::string boot, pid, start;
  in >> boot >> pid >> start;
  return boot == BootId() && !start.empty() && StartTime(pid) == start;
}

}  // namespace heddle::tuner
