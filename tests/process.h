// Runs programs as a user does: arguments in; exit code, standard output and error out.
#ifndef HEDDLE_TESTS_PROCESS_H_
#define HEDDLE_TESTS_PROCESS_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/support.h"

extern char** environ;

namespace heddle::tests {

// A folder that goes when the test ends.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = testing::TempDir() + "heddle.XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Ran {
  int code = -1;  // 128 + signal where a signal ended it, as a shell says it
  std::string out, err;
};

// A program in a process group of its own, its output in files.
class Process {
 public:
  // `environment`: "NAME=value", added to the test's own.
  Process(const std::vector<std::string>& arguments, std::vector<std::string> environment = {},
          const std::string& folder = "") {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    constexpr int kCreate = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, (temp_ / "out").c_str(), kCreate, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, (temp_ / "err").c_str(), kCreate, 0600);
    if (!folder.empty()) posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    std::vector<char*> argv, envp;
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    for (std::string& e : environment) envp.push_back(e.data());
    for (char** e = environ; *e != nullptr; ++e) envp.push_back(*e);
    envp.push_back(nullptr);
    int error = posix_spawnp(&pid_, argv[0], &actions, &attributes, argv.data(), envp.data());
    EXPECT_EQ(error, 0) << "cannot start " << arguments[0];
    if (error != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  ~Process() {
    if (pid_ > 0) kill(-pid_, SIGKILL);
  }

  // As Ctrl-C does: to the whole group.
  void Signal(int signal) { kill(-pid_, signal); }
  pid_t pid() const { return pid_; }
  std::string err() const { return ReadAll(temp_ / "err"); }

  Ran Wait() {
    int status = 0;
    if (pid_ > 0) waitpid(pid_, &status, 0);
    Ran ran;
    ran.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (pid_ <= 0) ran.code = -1;
    pid_ = -1;
    ran.out = ReadAll(temp_ / "out");
    ran.err = ReadAll(temp_ / "err");
    return ran;
  }

 private:
  TempFolder temp_;
  pid_t pid_ = -1;
};

// `heddle arguments...` with its database in `db`, and with that folder's own device lock: tests
// that run side by side share devices.
inline Process StartHeddle(const std::string& db, std::vector<std::string> arguments,
                           std::vector<std::string> environment = {}) {
  arguments.insert(arguments.begin(), HeddleBinary());
  environment.push_back("HEDDLE_DB=" + db);
  environment.push_back("HEDDLE_LOCK_FOLDER=" + std::filesystem::path(db).parent_path().string());
  return Process(arguments, environment);
}
inline Ran RunHeddle(const std::string& db, std::vector<std::string> arguments,
                     std::vector<std::string> environment = {}) {
  return StartHeddle(db, std::move(arguments), std::move(environment)).Wait();
}

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_PROCESS_H_
