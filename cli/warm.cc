#include "cli/warm.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "cli/command.h"
#include "search_space/notation/notation.h"
#include "server/db/convert.h"
#include "tuner/records/transfer/snapshot.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHashLength = 16;

std::string WarmFolder(const Batch& batch) { return batch.folder + "/warm"; }

absl::StatusOr<Workload> ProgramOf(const Batch& batch, int64_t index) {
  const std::string& text = batch.workloads[index];
  if (batch.dtype.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(program, search_space::ParseWorkload(text));
    return std::make_shared<const search_space::TensorProgram>(std::move(program));
  }
  WorkloadFlags flags;
  flags.dtype = batch.dtype;
  flags.op_file = batch.op_file;
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  return flags.Get(words[0], words.size() > 1 ? words[1] : "");
}

absl::StatusOr<std::string> ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) return absl::UnavailableError(path + ": cannot be read");
  return bytes;
}

// All of it or nothing, for whoever reads the file at any time.
absl::Status Replace(const std::string& path, const std::string& bytes) {
  const std::string partial = absl::StrCat(path, ".partial-", getpid());
  absl::Status written = WriteFile(partial, bytes);
  std::error_code error;
  if (written.ok()) fs::rename(partial, path, error);
  if (written.ok() && !error) return absl::OkStatus();
  std::error_code ignored;
  fs::remove(partial, ignored);
  return written.ok() ? absl::InternalError(absl::StrCat(path, ": ", error.message())) : written;
}

// NotFound: the batch has none; else what is wrong with it.
absl::StatusOr<std::string> CopySnapshot(const Batch& batch, const std::string& db) {
  const std::string current = WarmFolder(batch) + "/current";
  std::error_code error;
  if (!fs::exists(current, error) && !error) return absl::NotFoundError("no snapshot");
  HEDDLE_ASSIGN_OR_RETURN(hash, ReadTextFile(current, kHashLength));
  std::string path = absl::StrCat(WarmFolder(batch), "/", hash, ".db");
  HEDDLE_ASSIGN_OR_RETURN(bytes, ReadBytes(path));
  if (HexHashOf(bytes) != hash) {
    return absl::DataLossError(path + " is not what its name says: it is damaged");
  }
  HEDDLE_RETURN_IF_ERROR(WriteFile(db, bytes));
  return path;
}

// How many finals of the operator the server gave.
absl::StatusOr<int64_t> FetchFinals(client::Client& client, const std::string& op,
                                    const std::string& device, tuner::Records& records) {
  v1::ExportRequest request;
  request.mutable_filter()->set_op(op);
  request.mutable_filter()->set_device(device);
  request.mutable_filter()->set_finals_only(true);
  std::vector<tuner::StoredTrial> finals;
  HEDDLE_RETURN_IF_ERROR(
      client.ExportRecords(request, [&](const v1::Record& record) -> absl::Status {
        finals.push_back(server::FromProto(record));
        finals.back().trial.origin = tuner::Origin::kMeasured;
        return absl::OkStatus();
      }));
  size_t next = 0;
  HEDDLE_RETURN_IF_ERROR(
      tuner::AddAsMeasured(records, [&]() -> absl::StatusOr<std::optional<tuner::StoredTrial>> {
        if (next == finals.size()) return std::nullopt;
        return std::move(finals[next++]);
      }));
  return static_cast<int64_t>(finals.size());
}

}  // namespace

ScratchFolder::ScratchFolder() {
  const char* parent = getenv("TMPDIR");
  std::string pattern =
      absl::StrCat(parent != nullptr && *parent != 0 ? parent : "/tmp", "/heddle-task-XXXXXX");
  if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

absl::Status WriteWarmStart(tuner::Records& owner, const Batch& batch) {
  std::vector<Workload> programs;
  for (size_t i = 0; i < batch.workloads.size(); ++i) {
    HEDDLE_ASSIGN_OR_RETURN(program, ProgramOf(batch, static_cast<int64_t>(i)));
    programs.push_back(std::move(program));
  }
  // A database's log does not work on a folder that many machines see.
  const ScratchFolder scratch;
  const std::string path = scratch.path() + "/warm.db";
  HEDDLE_ASSIGN_OR_RETURN(report, tuner::WriteSnapshot(owner, programs, PolicyOf(batch.l2), path));
  if (report.trials == 0) return absl::OkStatus();
  HEDDLE_ASSIGN_OR_RETURN(bytes, ReadBytes(path));
  const std::string hash = HexHashOf(bytes);
  const std::string folder = WarmFolder(batch), current = folder + "/current";
  std::error_code error;
  fs::create_directories(folder, error);
  const auto previous = ReadTextFile(current, kHashLength);
  HEDDLE_RETURN_IF_ERROR(Replace(absl::StrCat(folder, "/", hash, ".db"), bytes));
  HEDDLE_RETURN_IF_ERROR(Replace(current, hash));
  // A run that has just read which is current may be about to copy the one before.
  HEDDLE_ASSIGN_OR_RETURN(names, ListFolder(folder));
  for (const std::string& name : names) {
    const bool needed = name == hash + ".db" || (previous.ok() && name == *previous + ".db");
    if (absl::EndsWith(name, ".db") && !needed) fs::remove(fs::path(folder) / name, error);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<tuner::Records>> OpenWarm(const Batch& batch, int64_t index,
                                                         const std::string& device,
                                                         client::Client* client,
                                                         const std::string& db) {
  auto copied = CopySnapshot(batch, db);
  auto opened = tuner::Records::Open(db);
  if (!opened.ok() && copied.ok()) {
    // Such as that of a newer version: a run that starts from less only takes longer.
    Say(absl::StrCat("Nothing is taken from ", *copied, ": ", opened.status().message()));
    for (const char* part : {"", "-wal", "-shm"}) std::filesystem::remove(db + part);
    copied = absl::NotFoundError("it cannot be opened");
    opened = tuner::Records::Open(db);
  }
  HEDDLE_ASSIGN_OR_RETURN(records, std::move(opened));
  if (copied.ok()) {
    // What earlier attempts at this run have made is read from their files.
    HEDDLE_RETURN_IF_ERROR(records->database().Run(
        "DELETE FROM trial WHERE source IN (SELECT id FROM source WHERE run = ?)",
        batch.RunName(index)));
    HEDDLE_ASSIGN_OR_RETURN(report, tuner::ReadSnapshot(*records));
    Say(absl::StrCat("It starts from ", *copied, ": ", report.trials, " trials of ",
                     report.workloads, " workloads and ", report.models, " cost models."));
    return records;
  }
  if (!absl::IsNotFound(copied.status())) {
    Say(absl::StrCat("Nothing is taken from the folder: ", copied.status().message()));
  }
  if (client != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(program, ProgramOf(batch, index));
    const auto finals = FetchFinals(*client, program->op, device, *records);
    if (finals.ok()) {
      Say(absl::StrCat("It starts from ", *finals, " finals of ", program->op,
                       " that the server has."));
      return records;
    }
    Say(absl::StrCat("Nothing is taken from the server: ", finals.status().message()));
  }
  Say("It starts from nothing.");
  return records;
}

}  // namespace heddle::cli
