#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "measure/device/drivers.h"

namespace heddle::measure {
namespace {

namespace fs = std::filesystem;

// Where PoCL unpacks binaries, which it never removes: a folder that goes with the session, or with
// the next one when this is killed.
class PoclFolder final : public Scratch {
 public:
  PoclFolder() {
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    RemoveLeftOvers(parent);
    std::string pattern = parent / absl::StrCat(kPrefix, "XXXXXX");
    if (mkdtemp(pattern.data()) == nullptr) return;
    path_ = pattern;
    lock_ = Lock(path_);
  }
  ~PoclFolder() override {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
    if (lock_ >= 0) close(lock_);
  }
  PoclFolder(const PoclFolder&) = delete;
  PoclFolder& operator=(const PoclFolder&) = delete;
  std::vector<std::string> environment() const override {
    if (path_.empty()) return {};
    // The linker that it runs writes beside, too, and nowhere else (run/processes/confine.h).
    return {absl::StrCat("POCL_CACHE_DIR=", path_), absl::StrCat("TMPDIR=", path_)};
  }

 private:
  static constexpr char kPrefix[] = "heddle-pocl-";

  // A descriptor that keeps the folder locked; -1 when another process has it.
  static int Lock(const std::string& folder) {
    const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
    close(fd);
    return -1;
  }

  static void RemoveLeftOvers(const fs::path& parent) {
    std::error_code error;
    // Younger ones may be about to be locked.
    const auto young = fs::file_time_type::clock::now() - std::chrono::minutes(1);
    for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
      std::error_code ignored;
      if (!absl::StartsWith(it->path().filename().string(), kPrefix) ||
          it->last_write_time(ignored) > young) {
        continue;
      }
      const int lock = Lock(it->path());
      if (lock < 0) continue;
      fs::remove_all(it->path(), ignored);
      close(lock);
    }
  }

  std::string path_;
  int lock_ = -1;
};

}  // namespace

// None where the user has chosen a folder.
std::unique_ptr<Scratch> MakePoclFolder() {
  if (getenv("POCL_CACHE_DIR") != nullptr) return nullptr;
  return std::make_unique<PoclFolder>();
}

}  // namespace heddle::measure
