// What a run on a node leaves behind for others to collect: a file of lines that is only appended
// to, one for each attempt at a run (docs/cluster.md).
//
//     {"format": 1, "run": {"name", "attempt", "host", "device", "generator_version"}}
//     a trial, as Records::Export writes it, in the order in which they were made: the first has
//     sequence 1
//     {"format": 1, "end": {"exit_code"}}
//
// A file is named RUN.ATTEMPT.jsonl. One without the last line belongs to a run that goes on or was
// killed.
#ifndef HEDDLE_TUNER_RECORDS_TRANSFER_RUN_FILE_H_
#define HEDDLE_TUNER_RECORDS_TRANSFER_RUN_FILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tuner/records/records.h"

namespace heddle::tuner {

// Which attempt at which run a file holds, and what it ran on.
struct RunHeader {
  std::string run;      // of letters, digits and "-_."; later runs have greater names
  int64_t attempt = 0;  // a later one at the same run has a greater number
  std::string host;     // HostId
  std::string device;   // the model's name
  int generator_version = 0;
};

// Whether that may name a run: 1 to 128 letters, digits, '-', '_' and '.', the first a letter or
// digit.
bool IsRunName(const std::string& name);

std::string PrintRunHeader(const RunHeader& header);
// InvalidArgument says what is wrong.
absl::StatusOr<RunHeader> ParseRunHeader(const std::string& line);
// The exit code of a last line; nullopt for any other.
std::optional<int> ParseRunEnd(const std::string& line);

// Writes an attempt's file while the attempt goes on. A line is on disk when the call returns.
class RunFile {
 public:
  // Makes the file of the next attempt in `folder`, that is of the first number for which there is
  // none: who makes a file has the number, however many start at a time, on network file systems
  // too. Sets `header.attempt`. Internal: the folder cannot be written.
  static absl::StatusOr<RunFile> Create(const std::string& folder, RunHeader header);
  RunFile(RunFile&& other) noexcept;
  RunFile& operator=(RunFile&&) = delete;
  ~RunFile();

  // Adds what was measured into `records` after its row `after`, which it advances. What was
  // imported or collected there is others'. Internal: the file cannot be written.
  absl::Status AppendNewTrials(Records& records, int64_t& after);
  absl::Status End(int exit_code);

  const RunHeader& header() const { return header_; }
  const std::string& path() const { return path_; }

 private:
  RunFile(int file, RunHeader header, std::string path)
      : file_(file), header_(std::move(header)), path_(std::move(path)) {}
  absl::Status Write(const std::string& lines);

  int file_;
  RunHeader header_;
  std::string path_;
};

// The files in a folder, or the file itself: sorted paths. NotFound: there is nothing of that name;
// Unavailable: the folder could not be read to its end, which says nothing of what is in it.
absl::StatusOr<std::vector<std::string>> RunFilesIn(const std::string& path);

// How an attempt stands.
struct Attempt {
  int64_t number = 0;
  std::string path;
  std::optional<int> exit_code;  // none: it goes on, or was killed
};
// By the run's name, in order, of the files in a folder. A file that is no run's is left out and
// named in `refused`, with the reason. Errors as of RunFilesIn; Unavailable also where a file
// cannot be read.
absl::StatusOr<std::map<std::string, std::vector<Attempt>>> AttemptsIn(
    const std::string& folder, std::vector<std::string>& refused);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_TRANSFER_RUN_FILE_H_
