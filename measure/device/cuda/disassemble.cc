// Machine code as text (nvrtc.h), by the CUDA toolkit's own tools.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "measure/device/cuda/nvrtc.h"

namespace heddle::measure {
namespace {

std::vector<std::string> ToolFolders() {
  std::vector<std::string> out;
  if (const char* path = std::getenv("PATH")) out = absl::StrSplit(path, ':');
  if (const char* home = std::getenv("CUDA_HOME")) out.push_back(absl::StrCat(home, "/bin"));
  out.push_back("/usr/local/cuda/bin");
  return out;
}

// "nvdisasm -c" with the tool's full path, quoted for the shell; empty when there is none.
std::string FindDisassembler() {
  for (const char* tool : {"nvdisasm", "cuobjdump"}) {
    for (const std::string& folder : ToolFolders()) {
      const std::string path = absl::StrCat(folder, "/", tool);
      if (access(path.c_str(), X_OK) != 0) continue;
      const std::string quoted = absl::StrReplaceAll(path, {{"'", "'\\''"}});
      return absl::StrCat("'", quoted, "' ", tool == std::string("nvdisasm") ? "-c" : "-sass");
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> Disassemble(const std::string& cubin) {
  const std::string tool = FindDisassembler();
  if (tool.empty()) {
    return absl::NotFoundError(
        "no disassembler: neither nvdisasm nor cuobjdump is on PATH, in $CUDA_HOME/bin or in "
        "/usr/local/cuda/bin; install the CUDA toolkit's package cuda-nvdisasm");
  }
  char file[] = "/tmp/heddle-XXXXXX";
  const int fd = mkstemp(file);
  if (fd < 0) return absl::InternalError("cannot write to /tmp");
  const bool written = write(fd, cubin.data(), cubin.size()) == static_cast<ssize_t>(cubin.size());
  close(fd);
  std::string text;
  int status = -1;
  if (written) {
    if (FILE* pipe = popen(absl::StrCat(tool, " ", file, " 2>&1").c_str(), "r")) {
      char block[4096];
      while (size_t n = fread(block, 1, sizeof(block), pipe)) text.append(block, n);
      status = pclose(pipe);
    }
  }
  unlink(file);
  if (!written) return absl::InternalError("cannot write to /tmp: is the disk full?");
  if (status != 0) return absl::InternalError(absl::StrCat(tool, " failed: ", text));
  return text;
}

}  // namespace heddle::measure
