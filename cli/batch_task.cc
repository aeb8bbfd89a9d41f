#include "cli/batch_task.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/host.h"
#include "base/process/subprocess.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "cli/batch.h"
#include "cli/remote.h"
#include "cli/run_sender.h"
#include "cli/warm.h"
#include "measure/codegen/codegen.h"
#include "measure/run/detect.h"
#include "measure/run/measurer.h"
#include "tuner/records/records.h"
#include "tuner/records/transfer/collect.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

// Between looks at what was measured: as much is lost when a node is.
constexpr absl::Duration kJournalEvery = absl::Seconds(1);
// Between calls to a server.
constexpr absl::Duration kReportEvery = absl::Seconds(5);

// Writes what is measured into the run's file while it is measured, by a connection of its own.
class Journal {
 public:
  Journal(tuner::RunFile file, std::unique_ptr<tuner::Records> records, int64_t after)
      : file_(std::move(file)), records_(std::move(records)), after_(after) {
    thread_ = std::thread([this] {
      while (!stop_.Wait(kJournalEvery)) Append();
    });
  }
  ~Journal() { Stop(); }
  // The error that keeps the file from holding everything, if there is one.
  absl::Status End(int exit_code) {
    Stop();
    Append();
    return failed_.ok() ? file_.End(exit_code) : failed_;
  }

 private:
  void Stop() {
    stop_.Set();
    if (thread_.joinable()) thread_.join();
  }
  void Append() { failed_ = file_.AppendNewTrials(*records_, after_); }

  tuner::RunFile file_;
  std::unique_ptr<tuner::Records> records_;
  int64_t after_;
  absl::Status failed_;
  StopSignal stop_;
  std::thread thread_;
};

// Sends what is in a run's file to a server, as far as that is there. What is not sent in the end
// is in the file all the same.
class Reporter {
 public:
  Reporter(client::Client& client, const std::string& path) : sender_(client, path) {
    thread_ = std::thread([this] {
      while (!stop_.Wait(kReportEvery)) sender_.Send().IgnoreError();
    });
  }
  ~Reporter() {
    stop_.Set();
    thread_.join();
    const absl::Status last = sender_.Send();
    const auto& report = sender_.report();
    Say(absl::StrCat(report.added, " trials added on the server"));
    for (const std::string& line : report.rejected) Say("refused by the server: " + line);
    if (last.ok()) return;
    Say(absl::StrCat("the server lacks trials, which `heddle records collect --server` brings: ",
                     last.message()));
  }
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

 private:
  RunSender sender_;
  StopSignal stop_;
  std::thread thread_;
};

// `heddle tune` with these arguments, in this process: a batch system's signals are its own.
Result RunTune(std::vector<std::string> arguments) {
  CLI::App app;
  auto selected = std::make_shared<Action>();
  AddTune(app, selected);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return (*selected)();
}

// That this node, as Slurm knows it, has no device that works. The run goes on elsewhere whether or
// not that can be written.
void NoteUnfitNode(const Batch& batch, absl::string_view why) {
  const char* node = std::getenv("SLURMD_NODENAME");
  if (node == nullptr || *node == '\0' || absl::StrContains(node, '/')) return;
  std::error_code error;
  fs::create_directories(batch.unfit(), error);
  // A line of a few words, as jobs' errors have it.
  constexpr size_t kMostOfIt = 200;
  const absl::string_view line = why.substr(0, why.find('\n')).substr(0, kMostOfIt);
  if (absl::Status s = WriteFile(absl::StrCat(batch.unfit(), "/", node), absl::StrCat(line, "\n"));
      !s.ok()) {
    Say(std::string(s.message()));
  }
}

// What a task measures on: a GPU, which it was given, unless `named` says which device. So a node
// whose driver is broken does not tune for its processor.
absl::StatusOr<measure::DeviceInfo> DeviceOfTask(const std::string& named) {
  if (!named.empty()) return DeviceFlags{.device = named}.FindDevice();
  std::vector<std::string> found;
  for (measure::DeviceInfo& device : measure::ListDevices()) {
    if (device.usable && !device.target.processor) return std::move(device);
    found.push_back(absl::StrCat(
        device.id, device.usable ? " is a processor" : " cannot be used: " + device.why_not));
  }
  // A line, of which errors of jobs have the beginning.
  return absl::UnavailableError(absl::StrCat(
      "no GPU works here, and a processor is taken only where HEDDLE_DEVICE names it (",
      found.empty() ? "there is none" : absl::StrJoin(found, "; "), ")"));
}

// Of `heddle tune` for a workload of which `made` trials were made before.
std::vector<std::string> TuneArguments(const Batch& batch, int64_t index, const std::string& device,
                                       const std::string& db, int64_t made) {
  std::vector<std::string> arguments{"tune", "--device", device,     "--db",      db,
                                     "--l2", batch.l2,   "--search", batch.search};
  const auto add = [&](const char* flag, const std::string& value) {
    arguments.insert(arguments.end(), {flag, value});
  };
  add("--seed", absl::StrCat(batch.seed));
  if (batch.dtype.empty()) {
    add("--canonical", batch.workloads[index]);
  } else {
    const std::vector<std::string> workload = absl::StrSplit(batch.workloads[index], ' ');
    arguments.push_back(workload[0]);
    add("--dtype", batch.dtype);
    if (workload.size() > 1) add("--shape", workload[1]);
  }
  if (!batch.op_file.empty()) add("--op-file", batch.op_file);
  add("--trials", absl::StrCat(batch.trials == 0 ? 0 : std::max<int64_t>(1, batch.trials - made)));
  if (batch.seconds > 0) add("--seconds", absl::StrCat(batch.seconds));
  if (batch.plateau > 0) add("--plateau", absl::StrCat(batch.plateau));
  return arguments;
}

// nullptr where no server is given, or none answers.
std::unique_ptr<client::Client> ConnectIfGiven(const ServerFlags& server) {
  if (!server.given()) return nullptr;
  auto connected = client::Client::Connect(server.Get());
  if (connected.ok()) return *std::move(connected);
  Say(absl::StrCat("nothing is sent to the server: ", connected.status().message()));
  return nullptr;
}

Result RunTask(const std::string& folder, int64_t index, const std::string& device_flag,
               const ServerFlags& server) {
  HEDDLE_ASSIGN_OR_RETURN(batch, ReadBatch(folder));
  if (index < 0 || index >= static_cast<int64_t>(batch.workloads.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--index: ", folder, " has ", batch.workloads.size(), " workloads, counted from 0"));
  }
  const std::string run = batch.RunName(index);
  HEDDLE_ASSIGN_OR_RETURN(runs, ReadAttempts(batch));
  const std::vector<tuner::Attempt>& earlier = runs[run];
  if (IsComplete(earlier)) {
    Say(absl::StrCat(run, " is complete"));
    return kDone;
  }
  auto device = DeviceOfTask(device_flag);
  if (!device.ok()) {
    NoteUnfitNode(batch, device.status().message());
    return device.status();
  }

  const ScratchFolder scratch;
  const std::string db = scratch.path() + "/heddle.db";
  const std::unique_ptr<client::Client> client = ConnectIfGiven(server);
  HEDDLE_ASSIGN_OR_RETURN(records, OpenWarm(batch, index, device->target.name, client.get(), db));
  HEDDLE_ASSIGN_OR_RETURN(known,
                          records->database().QueryInt("SELECT coalesce(max(id), 0) FROM trial"));
  for (const tuner::Attempt& attempt : earlier) {
    std::ifstream in(attempt.path, std::ios::binary);
    HEDDLE_RETURN_IF_ERROR(tuner::Collect(*records, in));
  }
  HEDDLE_ASSIGN_OR_RETURN(last,
                          records->database().QueryInt("SELECT coalesce(max(id), 0) FROM trial"));
  HEDDLE_ASSIGN_OR_RETURN(
      made,
      records->database().QueryInt("SELECT count(*) FROM trial WHERE final = 0 AND id > ?", known));
  HEDDLE_ASSIGN_OR_RETURN(
      file, tuner::RunFile::Create(
                batch.runs(), {run, 0, HostId(), device->target.name, measure::kGeneratorVersion}));
  Say(absl::StrCat(run, ": attempt ", file.header().attempt, " on ", HostName(), ", ", made,
                   " trials of earlier ones"));
  const std::string path = file.path();
  Journal journal(std::move(file), std::move(records), last);
  std::optional<Reporter> reporter;
  if (client != nullptr) reporter.emplace(*client, path);

  Result result = RunTune(TuneArguments(batch, index, device->id, db, made));
  const int code = result.ok() ? *result : ExitCodeOf(result.status());
  HEDDLE_RETURN_IF_ERROR(journal.End(code));
  return result;
}

}  // namespace

void AddBatchCommands(CLI::App& group, Selected selected) {
  struct Flags {
    std::string folder;
    int64_t index = 0;
    std::string device;
    ServerFlags server;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* sub = group.add_subcommand(
      "task", "tune one workload of a batch on this node: what the scripts of deploy/ call");
  sub->add_option("--folder", flags->folder, "the batch's folder")->type_name("DIR")->required();
  sub->add_option("--index", flags->index, "which of its workloads, from 0")
      ->type_name("N")
      ->required();
  sub->add_option("--device", flags->device,
                  "such as opencl:0 for a processor; auto takes any [$HEDDLE_DEVICE, else a GPU]")
      ->type_name("DEV")
      ->envname("HEDDLE_DEVICE");
  flags->server.Add(*sub, false);
  sub->get_option("--server")
      ->description("also send what is measured there [$HEDDLE_SERVER]")
      ->envname("HEDDLE_SERVER");
  sub->callback([=] {
    *selected = [=] { return RunTask(flags->folder, flags->index, flags->device, flags->server); };
  });
}

}  // namespace heddle::cli
