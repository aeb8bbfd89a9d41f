// heddle records: moving what was measured between files and machines.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "cli/collect.h"
#include "cli/command.h"
#include "cli/schedules.h"
#include "server/db/trust/outliers.h"
#include "tuner/records/transfer/trial_set.h"

namespace heddle::cli {
namespace {

struct RecordsFlags {
  std::string db, file;
  ServerFlags server;
};

// Opens `flags.file` or standard output, lets `write` fill it and checks that all of it arrived.
absl::Status WriteOut(const RecordsFlags& flags,
                      const std::function<absl::Status(std::ostream&)>& write) {
  std::ofstream file;
  bool to_stdout = flags.file == "-";
  if (!to_stdout) {
    file.open(flags.file, std::ios::binary | std::ios::trunc);
    if (!file) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot write ", flags.file, ": ", std::strerror(errno)));
    }
  }
  std::ostream& out = to_stdout ? std::cout : file;
  HEDDLE_RETURN_IF_ERROR(write(out));
  out.flush();
  if (out) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(flags.file, " could not be written completely: ",
                                          std::strerror(errno), "; is the disk full?"));
}

Result SaidWritten(int64_t written, int64_t damaged) {
  Say(absl::StrCat(written, " trials written"));
  if (damaged == 0) return kDone;
  Say(absl::StrCat(damaged, " damaged ones were left out"));
  return kFailed;
}

Result RunExportRecords(const RecordsFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(schedules, OpenSchedules(flags.server, flags.db));
  tuner::Records::ExportReport report;
  HEDDLE_RETURN_IF_ERROR(WriteOut(flags, [&](std::ostream& out) -> absl::Status {
    HEDDLE_ASSIGN_OR_RETURN(written, schedules->Export(out));
    report = written;
    return absl::OkStatus();
  }));
  return SaidWritten(report.written, report.damaged);
}

Result RunDumpRecords(const RecordsFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(records, OpenRecords(flags.db));
  std::stringstream lines;
  HEDDLE_ASSIGN_OR_RETURN(exported, records->Export(lines));
  int64_t count = 0;
  HEDDLE_RETURN_IF_ERROR(WriteOut(flags, [&](std::ostream& out) -> absl::Status {
    HEDDLE_ASSIGN_OR_RETURN(written, tuner::WriteTrialSets(lines, out));
    count = written;
    return absl::OkStatus();
  }));
  return SaidWritten(count, exported.damaged);
}

Result RunImportRecords(const RecordsFlags& flags) {
  std::ifstream file;
  bool from_stdin = flags.file == "-";
  if (!from_stdin) {
    file.open(flags.file, std::ios::binary);
    if (!file) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot read ", flags.file, ": ", std::strerror(errno)));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(schedules, OpenSchedules(flags.server, flags.db));
  HEDDLE_ASSIGN_OR_RETURN(report, schedules->Import(from_stdin ? std::cin : file));
  Say(absl::StrCat(report.added, " trials added, ", report.duplicate, " were there already"));
  for (const std::string& line : report.rejected) Say("refused: " + line);
  if (report.refused == 0) return kDone;
  Say(absl::StrCat(report.refused, " lines were refused"));
  return kFailed;
}

Result RunBackupRecords(const RecordsFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(records, OpenRecords(flags.db));
  HEDDLE_RETURN_IF_ERROR(records->Backup(flags.file));
  Say(absl::StrCat(records->path(), " copied to ", flags.file));
  return kDone;
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

Result RunOutliers(const std::string& db, bool json) {
  HEDDLE_ASSIGN_OR_RETURN(records, OpenRecords(db));
  HEDDLE_ASSIGN_OR_RETURN(outliers, server::FindOutliers(*records));
  Json all = Json::array();
  for (const server::Outlier& outlier : outliers) {
    const std::string since = TimeText(outlier.first);
    const std::string until = TimeText(outlier.last + absl::Seconds(1));
    if (json) {
      all.push_back({{"host", outlier.host},
                     {"compared", outlier.compared},
                     {"contradicted", outlier.contradicted},
                     {"others", outlier.others},
                     {"ratio", outlier.ratio},
                     {"since", since},
                     {"until", until}});
      continue;
    }
    std::cout << absl::StrFormat(
        "%s\t%d of %d schedules, %d other hosts, %.2f times as long\n"
        "    heddle retract --host %s --since %s --until %s --reason \"...\"\n",
        outlier.host, outlier.contradicted, outlier.compared, outlier.others, outlier.ratio,
        outlier.host, since, until);
  }
  if (json) PrintJson(all);
  if (!json && outliers.empty()) Say("No host is contradicted by another.");
  return kDone;
}

void AddOutliers(CLI::App& group, Selected selected) {
  struct Flags {
    std::string db;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* sub = group.add_subcommand(
      "outliers", "hosts whose finals others' contradict, and what would retract them");
  AddDbFlag(*sub, flags->db);
  sub->add_flag("--json", flags->json, "JSON on stdout");
  sub->footer(
      "Where two hosts differ, both are told, as nobody knows which is wrong; a third one tells.");
  sub->callback([=] { *selected = [=] { return RunOutliers(flags->db, flags->json); }; });
}

}  // namespace

void AddRecords(CLI::App& app, Selected selected) {
  CLI::App* group = app.add_subcommand("records", "export, import or back up what was measured");
  group->require_subcommand(1);
  auto add = [&](const char* name, const char* help, Result (*run)(const RecordsFlags&),
                 bool of_servers = false) {
    auto flags = std::make_shared<RecordsFlags>();
    CLI::App* sub = group->add_subcommand(name, help);
    sub->add_option("file", flags->file, "the file; - is standard input or output")
        ->type_name("FILE")
        ->required();
    AddDbFlag(*sub, flags->db);
    if (of_servers) flags->server.Add(*sub, false);
    sub->callback([=] { *selected = [=] { return run(*flags); }; });
  };
  add("export", "write every trial as a line of JSON", RunExportRecords, true);
  add("dump", "write screening trials compactly, for bench/search and bench/cost_model",
      RunDumpRecords);
  add("import", "add the trials of such a file that are not there yet", RunImportRecords, true);
  AddCollect(*group, selected);
  AddOutliers(*group, selected);
  add("backup", "a consistent copy of the database, while others may write", RunBackupRecords);
}

}  // namespace heddle::cli
