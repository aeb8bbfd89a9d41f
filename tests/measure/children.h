// Processes that a test's own process has started.
#ifndef HEDDLE_TESTS_MEASURE_CHILDREN_H_
#define HEDDLE_TESTS_MEASURE_CHILDREN_H_

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace heddle::measure {

// Of this process's children, those that run a hidden subcommand.
inline std::set<pid_t> ChildrenOf(const std::string& command) {
  std::set<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream words(entry.path() / "cmdline", std::ios::binary);
    std::string program, first, supervisor;
    std::getline(words, program, '\0');
    std::getline(words, first, '\0');
    std::getline(words, supervisor, '\0');
    if (first == command && supervisor == std::to_string(getpid())) found.insert(std::stoi(pid));
  }
  return found;
}

}  // namespace heddle::measure

#endif  // HEDDLE_TESTS_MEASURE_CHILDREN_H_
