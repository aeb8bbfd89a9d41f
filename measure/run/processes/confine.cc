#include "measure/run/processes/confine.h"

#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/process/sandbox.h"
#include "base/status.h"

namespace heddle::measure {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> confined = true;

// Where systems keep programs and libraries, what a process learns of the machine, and the few
// files of /etc that loading a library and finding a driver take. The rest of /etc stays closed, as
// tokens and keys are there, and so do other processes of the same user in /proc: Landlock keeps
// nobody from reading what their environment has.
constexpr const char* kReadable[] = {"/usr",
                                     "/lib",
                                     "/lib32",
                                     "/lib64",
                                     "/bin",
                                     "/sbin",
                                     "/opt",
                                     "/nix/store",
                                     "/gnu/store",
                                     "/run/opengl-driver",
                                     "/sys",
                                     "/proc/sys",
                                     "/proc/driver",
                                     "/proc/cpuinfo",
                                     "/proc/meminfo",
                                     "/proc/stat",
                                     "/proc/loadavg",
                                     "/proc/uptime",
                                     "/proc/version",
                                     "/proc/devices",
                                     "/proc/modules",
                                     "/proc/filesystems",
                                     "/etc/ld.so.cache",
                                     "/etc/ld.so.preload",
                                     "/etc/OpenCL",
                                     "/etc/nvidia",
                                     "/etc/localtime"};
// Of the process itself; among it the names of its threads.
constexpr const char* kWritable[] = {"/proc/self"};
// In /dev, by the beginnings of their names.
constexpr const char* kDevices[] = {"nvidia", "nvhost", "nvmap", "dri", "kfd", "dxg", "mali"};
constexpr const char* kNodes[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random",
                                  "/dev/urandom"};

void AddDevices(SandboxRules& rules) {
  std::error_code error;
  for (fs::directory_iterator it("/dev", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    for (const char* device : kDevices) {
      if (absl::StartsWith(name, device)) rules.write.push_back(it->path());
    }
  }
}

SandboxRules RulesFor(const Backend& backend, bool with_devices) {
  SandboxRules rules;
  rules.read.assign(std::begin(kReadable), std::end(kReadable));
  rules.write.assign(std::begin(kWritable), std::end(kWritable));
  rules.write.insert(rules.write.end(), std::begin(kNodes), std::end(kNodes));
  if (with_devices) AddDevices(rules);
  if (const char* folders = getenv("LD_LIBRARY_PATH")) {
    for (absl::string_view folder : absl::StrSplit(folders, ':', absl::SkipEmpty())) {
      rules.read.emplace_back(folder);
    }
  }
  if (backend.allow != nullptr) backend.allow(rules);
  return rules;
}

// What the kernel does not have is not asked for; doctor tells.
absl::Status Files(const Backend& backend, bool with_devices) {
  if (!FindLandlock().ok()) return absl::OkStatus();
  return RestrictFiles(RulesFor(backend, with_devices));
}

absl::Status Calls() { return FindSeccomp().ok() ? RestrictCalls() : absl::OkStatus(); }

}  // namespace

void SetConfined(bool wanted) { confined = wanted; }
bool IsConfined() { return confined; }
std::vector<std::string> ConfinementArguments() {
  return confined ? std::vector<std::string>() : std::vector<std::string>{kUnconfined};
}

absl::Status ConfineBeforeDevice(const Backend& backend) {
  return backend.runs_in_process ? Files(backend, /*with_devices=*/true) : absl::OkStatus();
}

absl::Status ConfineAfterDevice(const Backend& backend) {
  // Last, since drivers open sockets of their own when they start.
  return backend.runs_in_process ? Calls() : absl::OkStatus();
}

absl::Status ConfineCompiler(const Backend& backend) {
  HEDDLE_RETURN_IF_ERROR(Files(backend, /*with_devices=*/backend.hides_devices == nullptr));
  return Calls();
}

Confinement FindConfinement() {
  const absl::Status landlock = FindLandlock(), seccomp = FindSeccomp();
  Confinement out{landlock.ok() && seccomp.ok(), ""};
  out.text =
      landlock.ok() ? "files by Landlock" : absl::StrCat("files are open: ", landlock.message());
  absl::StrAppend(&out.text, "; ",
                  seccomp.ok() ? "system calls by seccomp"
                               : absl::StrCat("all system calls: ", seccomp.message()));
  return out;
}

}  // namespace heddle::measure
