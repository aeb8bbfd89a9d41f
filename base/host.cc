#include "base/host.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace heddle {
namespace {

// Of a host_uuid, by docs/api.md.
constexpr size_t kLongestHostId = 64;

std::string FirstWord(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

}  // namespace

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

std::string BootId() { return FirstWord("/proc/sys/kernel/random/boot_id"); }

std::string HostId(const std::string& machine_id_file) {
  const std::string machine = FirstWord(machine_id_file);
  if (!machine.empty() && machine != "uninitialized") return machine;
  const std::string boot = BootId();
  std::string name = HostName();
  std::erase_if(name, [](char c) { return !absl::ascii_isalnum(c) && c != '-'; });
  name.resize(std::min(name.size(), kLongestHostId - boot.size() - 1));
  return absl::StrCat(name, "-", boot);
}

}  // namespace heddle
