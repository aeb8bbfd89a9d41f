// The parts of records that a server answers: the same lines as those of a file's database.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/remote.h"
#include "server/db/convert.h"
#include "tuner/records/records_fields.h"

namespace heddle::cli {

Result ExportServerRecords(client::Client& client, const std::string& path) {
  std::ofstream file;
  const bool to_stdout = path == "-";
  if (!to_stdout) {
    file.open(path, std::ios::binary | std::ios::trunc);
    if (!file) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
    }
  }
  std::ostream& out = to_stdout ? std::cout : file;
  int64_t written = 0;
  absl::Status status = client.ExportRecords({}, [&](const v1::Record& record) -> absl::Status {
    out << tuner::PrintLine(server::FromProto(record)) << "\n";
    ++written;
    if (out) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(
        path, " could not be written completely: ", std::strerror(errno), "; is the disk full?"));
  });
  out.flush();
  if (!status.ok()) return status;
  if (!out) return absl::InternalError(absl::StrCat(path, " could not be written completely"));
  Say(absl::StrCat(written, " trials written"));
  return kDone;
}

Result ImportServerRecords(client::Client& client, const std::string& path) {
  std::ifstream file;
  const bool from_stdin = path == "-";
  if (!from_stdin) {
    file.open(path, std::ios::binary);
    if (!file) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
    }
  }
  std::istream& in = from_stdin ? std::cin : file;
  std::vector<int64_t> numbers;  // of the lines that were sent
  int64_t number = 0, refused = 0;
  auto refuse = [&refused](int64_t line, const std::string& why) {
    ++refused;
    if (refused <= tuner::Records::kMaxRejected)
      Say(absl::StrCat("refused: line ", line, ": ", why));
  };
  auto response = client.ImportRecords([&]() -> std::optional<v1::Record> {
    std::string line;
    while (std::getline(in, line)) {
      ++number;
      if (line.empty()) continue;
      auto stored = tuner::ParseLine(line);
      if (stored.ok()) {
        numbers.push_back(number);
        return server::ToProto(*stored);
      }
      refuse(number, std::string(stored.status().message()));
    }
    return std::nullopt;
  });
  if (!response.ok()) return response.status();
  Say(absl::StrCat(response->added(), " trials added, ", response->duplicate(),
                   " were there already"));
  for (const auto& rejected : response->rejected()) {
    refuse(numbers.at(static_cast<size_t>(rejected.number() - 1)), rejected.reason());
  }
  refused += response->refused() - response->rejected_size();
  if (refused == 0) return kDone;
  Say(absl::StrCat(refused, " lines were refused"));
  return kFailed;
}

}  // namespace heddle::cli
