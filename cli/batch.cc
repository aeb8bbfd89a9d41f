#include "cli/batch.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/status.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kBatchFormat = 1;
constexpr size_t kMaxBatchBytes = 16 << 20;

}  // namespace

std::string Batch::RunName(int64_t index) const {
  return absl::StrFormat("%s-%s-%05d", created, name, index);
}

std::string BatchText(const Batch& batch) {
  const Json json{{"format", kBatchFormat},       {"name", batch.name},
                  {"created", batch.created},     {"db", batch.db},
                  {"workloads", batch.workloads}, {"dtype", batch.dtype},
                  {"op_file", batch.op_file},     {"l2", batch.l2},
                  {"trials", batch.trials},       {"plateau", batch.plateau},
                  {"seed", batch.seed},           {"search", batch.search},
                  {"parallel", batch.parallel},   {"seconds", batch.seconds},
                  {"array", batch.array},         {"collector", batch.collector}};
  return json.dump(1) + "\n";
}

absl::Status MakeBatch(const Batch& batch,
                       const std::vector<std::pair<std::string, std::string>>& files) {
  const std::string partial = absl::StrCat(batch.folder, ".partial-", getpid());
  std::error_code error;
  for (const char* folder : {"/runs", "/log", "/jobs"}) {
    if (!error) fs::create_directories(partial + folder, error);
  }
  absl::Status status;
  if (!error) {
    status = WriteFile(partial + "/batch.json", BatchText(batch));
    for (const auto& [name, content] : files) {
      if (status.ok()) status = WriteFile(partial + "/" + name, content);
    }
    if (status.ok()) fs::rename(partial, batch.folder, error);
  }
  if (!error && status.ok()) return absl::OkStatus();
  std::error_code ignored;
  fs::remove_all(partial, ignored);
  if (status.ok() && fs::exists(batch.folder + "/batch.json", ignored))
    return absl::OkStatus();  // another's
  return absl::InvalidArgumentError(absl::StrCat(
      batch.folder, ": cannot be made: ", error ? error.message() : std::string(status.message()),
      "; name another with --folder"));
}

absl::Status ChangeBatch(const Batch& batch,
                         const std::vector<std::pair<std::string, std::string>>& files) {
  for (const auto& [name, content] : files) {
    HEDDLE_RETURN_IF_ERROR(WriteFile(batch.folder + "/" + name, content));
  }
  const std::string path = batch.folder + "/batch.json";
  HEDDLE_RETURN_IF_ERROR(WriteFile(path + ".new", BatchText(batch)));
  std::error_code error;
  fs::rename(path + ".new", path, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", path, ": ", error.message()));
}

absl::StatusOr<Batch> ReadBatch(const std::string& folder) {
  const std::string path = folder + "/batch.json";
  std::error_code error;
  if (!fs::exists(path, error)) {
    return error ? absl::UnavailableError(absl::StrCat(path, ": ", error.message()))
                 : absl::NotFoundError(folder + ": there is no batch");
  }
  HEDDLE_ASSIGN_OR_RETURN(text, ReadTextFile(path, kMaxBatchBytes));
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kBatchFormat) throw std::runtime_error("another format");
    Batch batch;
    batch.folder = fs::absolute(folder, error).string();
    json.at("name").get_to(batch.name);
    json.at("created").get_to(batch.created);
    json.at("db").get_to(batch.db);
    json.at("workloads").get_to(batch.workloads);
    json.at("dtype").get_to(batch.dtype);
    json.at("op_file").get_to(batch.op_file);
    json.at("l2").get_to(batch.l2);
    json.at("trials").get_to(batch.trials);
    batch.plateau = json.value("plateau", batch.plateau);
    batch.seed = json.value("seed", batch.seed);
    batch.search = json.value("search", batch.search);
    json.at("parallel").get_to(batch.parallel);
    json.at("seconds").get_to(batch.seconds);
    json.at("array").get_to(batch.array);
    json.at("collector").get_to(batch.collector);
    return batch;
  } catch (const std::exception& e) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not as this heddle writes it: ", e.what()));
  }
}

absl::StatusOr<std::map<std::string, std::vector<tuner::Attempt>>> ReadAttempts(
    const Batch& batch) {
  std::vector<std::string> refused;
  auto runs = tuner::AttemptsIn(batch.runs(), refused);
  for (const std::string& why : refused) Say("refused: " + why);
  return runs;
}

bool IsComplete(const std::vector<tuner::Attempt>& attempts) {
  return std::any_of(attempts.begin(), attempts.end(), [](const tuner::Attempt& attempt) {
    const std::optional<int>& code = attempt.exit_code;
    return code == kDone || code == kBadArguments || code == kNoValidSchedule;
  });
}

absl::StatusOr<std::vector<int64_t>> IncompleteRuns(const Batch& batch) {
  HEDDLE_ASSIGN_OR_RETURN(runs, ReadAttempts(batch));
  std::vector<int64_t> incomplete;
  for (int64_t i = 0; i < static_cast<int64_t>(batch.workloads.size()); ++i) {
    if (!IsComplete(runs[batch.RunName(i)])) incomplete.push_back(i);
  }
  return incomplete;
}

absl::StatusOr<int> LastSubmission(const Batch& batch) {
  HEDDLE_ASSIGN_OR_RETURN(names, ListFolder(batch.folder + "/jobs"));
  int last = -1;
  for (const std::string& name : names) {
    absl::string_view rest = name;
    int submission = 0;
    if (absl::ConsumePrefix(&rest, batch.JobName() + "-") &&
        absl::SimpleAtoi(rest.substr(0, rest.find('.')), &submission)) {
      last = std::max(last, submission);
    }
  }
  return last;
}

std::map<std::string, std::string> UnfitNodes(const Batch& batch) {
  constexpr size_t kMostBytes = 4096;
  std::map<std::string, std::string> nodes;
  const auto names = ListFolder(batch.unfit());
  if (!names.ok()) return nodes;  // there is none, or it cannot be read now: then nothing is known
  for (const std::string& name : *names) {
    auto why = ReadTextFile(absl::StrCat(batch.unfit(), "/", name), kMostBytes);
    std::string line = why.ok() ? why->substr(0, why->find('\n')) : "";
    // Messages of the API have it, which are UTF-8.
    for (char& c : line) c = absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : '?';
    nodes[name] = std::move(line);
  }
  return nodes;
}

}  // namespace heddle::cli
