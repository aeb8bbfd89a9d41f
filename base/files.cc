#include "base/files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace heddle {

absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  std::string text(max_bytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return absl::InvalidArgumentError(path + " cannot be read: is it a folder?");
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is larger than ", max_bytes, " bytes, the limit for such a file"));
  }
  if (text.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(path + " is binary; a text file was expected");
  }
  return text;
}

absl::Status WriteFile(const std::string& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << content;
  out.close();
  if (out) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename());
  }
  if (error == std::errc::no_such_file_or_directory) {
    return absl::NotFoundError(path + ": there is no such folder");
  }
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace heddle
