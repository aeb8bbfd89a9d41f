#include "tuner/records/transfer/run_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "tuner/records/records_fields.h"

namespace heddle::tuner {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kRunFormat = 1;
constexpr size_t kMaxName = 128;          // bytes of a run's name, and of a host's
constexpr int kPage = 256;                // trials read at a time
constexpr int64_t kMaxAttempts = 100000;  // a folder that has so many is no folder of runs
constexpr const char* kEnding = ".jsonl";

// The object under `key` of a line of our format; null where the line is another.
json ReadPart(const std::string& line, const char* key) {
  const json parsed = json::parse(line, nullptr, false);
  if (!parsed.is_object() || parsed.value("format", json()) != kRunFormat) return {};
  return parsed.value(key, json());
}

template <typename T>
bool Read(const json& part, const char* key, T& value) {
  const auto it = part.find(key);
  if (it == part.end()) return false;
  if constexpr (std::is_same_v<T, std::string>) {
    if (!it->is_string()) return false;
  } else if (!it->is_number_integer() || it->template get<int64_t>() < 0 ||
             it->template get<int64_t>() > std::numeric_limits<T>::max()) {
    return false;
  }
  value = it->template get<T>();
  return true;
}

absl::Status Failed(const std::string& path) {
  return absl::InternalError(absl::StrCat(path, ": cannot be written: ", std::strerror(errno)));
}

// The last whole line of a file; "" where there is none.
std::string LastLine(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  constexpr std::streamoff kEnough = 256;  // bytes: the lines that are asked for here are short
  const std::streamoff size = in.tellg();
  if (!in || size <= 0) return "";
  in.seekg(std::max<std::streamoff>(0, size - kEnough));
  std::string tail{std::istreambuf_iterator<char>(in), {}};
  if (tail.empty() || tail.back() != '\n') return "";
  tail.pop_back();
  return tail.substr(tail.rfind('\n') + 1);
}

}  // namespace

bool IsRunName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxName && absl::ascii_isalnum(name[0]) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

std::string PrintRunHeader(const RunHeader& header) {
  const json line = {{"format", kRunFormat},
                     {"run",
                      {{"name", header.run},
                       {"attempt", header.attempt},
                       {"host", header.host},
                       {"device", header.device},
                       {"generator_version", header.generator_version}}}};
  return line.dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<RunHeader> ParseRunHeader(const std::string& line) {
  const json run = ReadPart(line, "run");
  if (!run.is_object()) {
    return absl::InvalidArgumentError(
        "the file does not begin as one of a run's; what `heddle records export` has written is "
        "read by `heddle records import`");
  }
  RunHeader header;
  if (!Read(run, "name", header.run) || !IsRunName(header.run)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"run.name\" must be 1 to ", kMaxName,
                     " letters, digits and \"-_.\", the first a letter or a digit"));
  }
  if (!Read(run, "attempt", header.attempt)) {
    return absl::InvalidArgumentError("\"run.attempt\" must be a whole number from 0 on");
  }
  if (!Read(run, "host", header.host) || header.host.size() > kMaxName) {
    return absl::InvalidArgumentError("\"run.host\" must name the host that measured");
  }
  if (!Read(run, "device", header.device)) {
    return absl::InvalidArgumentError("\"run.device\" must name the device's model");
  }
  if (!Read(run, "generator_version", header.generator_version)) {
    return absl::InvalidArgumentError("\"run.generator_version\" must be a whole number");
  }
  return header;
}

std::optional<int> ParseRunEnd(const std::string& line) {
  const json end = ReadPart(line, "end");
  int exit_code = 0;
  if (!end.is_object() || !Read(end, "exit_code", exit_code)) return std::nullopt;
  return exit_code;
}

absl::StatusOr<RunFile> RunFile::Create(const std::string& folder, RunHeader header) {
  for (header.attempt = 0; header.attempt < kMaxAttempts; ++header.attempt) {
    const std::string path = absl::StrCat(folder, "/", header.run, ".", header.attempt, kEnding);
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0 && errno == EEXIST) continue;
    if (file < 0) return Failed(path);
    RunFile made(file, header, path);
    HEDDLE_RETURN_IF_ERROR(made.Write(PrintRunHeader(header) + "\n"));
    return made;
  }
  return absl::InternalError(absl::StrCat(folder, ": too many attempts at ", header.run));
}

RunFile::RunFile(RunFile&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      header_(std::move(other.header_)),
      path_(std::move(other.path_)) {}

RunFile::~RunFile() {
  if (file_ >= 0) close(file_);
}

absl::Status RunFile::Write(const std::string& lines) {
  const off_t start = lseek(file_, 0, SEEK_END);
  for (size_t done = 0; done < lines.size();) {
    const ssize_t wrote = write(file_, lines.data() + done, lines.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      const absl::Status failed = Failed(path_);
      // A line that is cut would spoil the next, which is written when there is space again.
      [[maybe_unused]] const int cut = ftruncate(file_, start);
      return failed;
    }
    done += static_cast<size_t>(wrote);
  }
  return fsync(file_) == 0 ? absl::OkStatus() : Failed(path_);
}

absl::Status RunFile::AppendNewTrials(Records& records, int64_t& after) {
  for (;;) {
    const int64_t before = after;
    HEDDLE_ASSIGN_OR_RETURN(page, records.ReadPage(after, kPage));
    if (page.empty()) return absl::OkStatus();
    std::string lines;
    for (const StoredTrial& stored : page) {
      if (stored.trial.origin == Origin::kMeasured)
        absl::StrAppend(&lines, PrintLine(stored), "\n");
    }
    if (absl::Status s = Write(lines); !s.ok()) {
      after = before;
      return s;
    }
  }
}

absl::Status RunFile::End(int exit_code) {
  const json line = {{"format", kRunFormat}, {"end", {{"exit_code", exit_code}}}};
  return Write(line.dump() + "\n");
}

absl::StatusOr<std::vector<std::string>> RunFilesIn(const std::string& path) {
  std::vector<std::string> files;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, ": there is no such file or folder"));
  }
  if (!error && !fs::is_directory(status)) return std::vector<std::string>{path};
  fs::recursive_directory_iterator it;
  if (!error) it = fs::recursive_directory_iterator(path, error);
  while (!error && it != fs::recursive_directory_iterator()) {
    const bool named = it->path().extension() == kEnding;
    if (named && it->is_regular_file(error)) files.push_back(it->path().string());
    if (!error) it.increment(error);
  }
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::map<std::string, std::vector<Attempt>>> AttemptsIn(
    const std::string& folder, std::vector<std::string>& refused) {
  HEDDLE_ASSIGN_OR_RETURN(files, RunFilesIn(folder));
  std::map<std::string, std::vector<Attempt>> runs;
  for (const std::string& path : files) {
    std::ifstream in(path, std::ios::binary);
    if (!in && errno == EACCES) {
      refused.push_back(path + ": may not be read; it must be readable for whoever collects");
      continue;
    }
    if (!in) {
      return absl::UnavailableError(absl::StrCat(path, ": cannot be read: ", std::strerror(errno)));
    }
    std::string line;
    bool too_long = false, whole = false;
    if (!ReadLine(in, line, too_long, whole) || !whole) continue;  // killed before it had begun
    auto header = ParseRunHeader(line);
    if (!header.ok()) {
      refused.push_back(absl::StrCat(path, ": ", header.status().message()));
      continue;
    }
    runs[header->run].push_back({header->attempt, path, ParseRunEnd(LastLine(path))});
  }
  for (auto& [run, attempts] : runs) {
    std::sort(attempts.begin(), attempts.end(),
              [](const Attempt& a, const Attempt& b) { return a.number < b.number; });
  }
  return runs;
}

}  // namespace heddle::tuner
