#include "base/host.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace heddle {
namespace {

// Of a host_uuid, by docs/api.md.
constexpr size_t kLongestHostId = 64;

std::string FirstWord(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

// The set is large enough for any machine: the kernel refuses one smaller than its own.
int CoresOfAffinity() {
  constexpr int kMostCores = 8192;
  cpu_set_t* set = CPU_ALLOC(kMostCores);
  const size_t bytes = CPU_ALLOC_SIZE(kMostCores);
  CPU_ZERO_S(bytes, set);
  const int cores = sched_getaffinity(0, bytes, set) == 0
                        ? CPU_COUNT_S(bytes, set)
                        : static_cast<int>(std::thread::hardware_concurrency());
  CPU_FREE(set);
  return std::max(1, cores);
}

// The share of time that a group may have, in processors; infinite where there is no limit.
double ProcessorsOf(const std::filesystem::path& group) {
  std::string quota;
  double period = 0;
  std::ifstream(group / "cpu.max") >> quota >> period;
  double microseconds = 0;
  if (!absl::SimpleAtod(quota, &microseconds) || period <= 0) {
    return std::numeric_limits<double>::infinity();
  }
  return microseconds / period;
}

}  // namespace

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

std::string BootId() { return FirstWord("/proc/sys/kernel/random/boot_id"); }

int UsableCores(const std::string& groups, const std::string& own) {
  double cores = CoresOfAffinity();
  std::string line;
  for (std::ifstream file(own); std::getline(file, line);) {
    absl::string_view path = line;
    if (!absl::ConsumePrefix(&path, "0::/")) continue;  // version 1's hierarchies have numbers
    std::filesystem::path group(groups);
    cores = std::min(cores, ProcessorsOf(group));
    for (const std::filesystem::path& part : std::filesystem::path(std::string(path))) {
      group /= part;
      cores = std::min(cores, ProcessorsOf(group));
    }
  }
  return std::max(1, static_cast<int>(std::ceil(cores)));
}

std::string HostId(const std::string& machine_id_file) {
  const auto plain = [](std::string name, size_t longest) {
    for (char& c : name) c = c == '.' ? '-' : c;
    std::erase_if(name, [](char c) { return !absl::ascii_isalnum(c) && c != '-'; });
    name.resize(std::min(name.size(), longest));
    return name;
  };
  const char* told = std::getenv("HEDDLE_HOST");
  if (std::string name = plain(told != nullptr ? told : "", kLongestHostId); !name.empty()) {
    return name;
  }
  const std::string machine = FirstWord(machine_id_file);
  if (!machine.empty() && machine != "uninitialized") return machine;
  const std::string boot = BootId();
  return absl::StrCat(plain(HostName(), kLongestHostId - boot.size() - 1), "-", boot);
}

}  // namespace heddle
