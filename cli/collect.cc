// heddle records collect: what runs on nodes have left behind, into one database.
#include "tuner/records/transfer/collect.h"

#include <fstream>
#include <functional>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/collect.h"
#include "cli/remote.h"
#include "cli/run_sender.h"
#include "client/connection.h"

namespace heddle::cli {

namespace {

using CollectFile = std::function<absl::StatusOr<tuner::CollectReport>(const std::string& file)>;

Result CollectFiles(const std::vector<std::string>& paths, const CollectFile& collect) {
  int64_t added = 0, known = 0, refused = 0, files = 0, unfinished = 0;
  for (const std::string& path : paths) {
    HEDDLE_ASSIGN_OR_RETURN(found, tuner::RunFilesIn(path));
    for (const std::string& file : found) {
      ++files;
      auto report = collect(file);
      if (absl::IsInvalidArgument(report.status()) ||
          client::ReasonOf(report.status()) == "RUN_BOUND") {
        ++refused;
        Say(absl::StrCat("refused: ", file, ": ", report.status().message()));
        continue;
      }
      HEDDLE_RETURN_IF_ERROR(report);
      added += report->trials.added;
      known += report->trials.duplicate;
      refused += report->trials.refused;
      unfinished += !report->exit_code;
      for (const std::string& line : report->trials.rejected) {
        Say(absl::StrCat("refused: ", file, ": ", line));
      }
    }
  }
  Say(absl::StrCat(added, " trials added from ", files, " files, ", known, " were there already"));
  if (unfinished > 0) {
    Say(absl::StrCat(unfinished, " of the files are of attempts that go on, or were killed"));
  }
  if (refused == 0) return kDone;
  Say(absl::StrCat(refused, " lines or files were refused"));
  return kFailed;
}

absl::StatusOr<tuner::CollectReport> SendRunFile(client::Client& client, const std::string& file) {
  RunSender sender(client, file);
  HEDDLE_RETURN_IF_ERROR(sender.Send());
  tuner::CollectReport report;
  report.exit_code = sender.exit_code();
  report.trials = sender.report();
  return report;
}

}  // namespace

Result CollectRunFiles(tuner::Records& records, const std::vector<std::string>& paths) {
  return CollectFiles(paths, [&](const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return tuner::Collect(records, in);
  });
}

void AddCollect(CLI::App& group, Selected selected) {
  struct Flags {
    std::vector<std::string> paths;
    std::string db;
    ServerFlags server;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* sub = group.add_subcommand(
      "collect", "add what runs on nodes have measured, as measured by them (docs/cluster.md)");
  sub->add_option("paths", flags->paths, "files of runs, and folders of them")
      ->type_name("FILE|FOLDER")
      ->required();
  AddDbFlag(*sub, flags->db);
  flags->server.Add(*sub, false);
  sub->footer(
      "As often as one likes and while runs go on: what was collected before is not added again. "
      "Only\n"
      "for files of hosts whose word is enough; others' are imported.");
  sub->callback([=] {
    if (flags->server.given()) {
      *selected = WithServer(flags->server, [=](client::Client& client) {
        return CollectFiles(flags->paths,
                            [&](const std::string& file) { return SendRunFile(client, file); });
      });
      return;
    }
    *selected = [=]() -> Result {
      HEDDLE_ASSIGN_OR_RETURN(records, OpenWritableRecords(flags->db));
      return CollectRunFiles(*records, flags->paths);
    };
  });
}

}  // namespace heddle::cli
