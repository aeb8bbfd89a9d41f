#include "cli/suite.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "cli/tuned.h"
#include "cli/workloads_file.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFile = 1 << 20;  // bytes, of workloads or operators

}  // namespace

void SuiteFlags::Add(CLI::App& app) {
  app.add_option("--workloads", workloads, "what to tune: op k=v,... a line")
      ->type_name("FILE")
      ->required();
  app.add_option("--trials", trials, "of each workload; 0 = no limit")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 30).description(""))
      ->capture_default_str();
  app.add_option("--seconds", seconds, "of each workload's search")
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e9).description(""));
  AddL2Flag(app, l2);
  app.add_option("--dtype", workload.dtype, "the data type")->type_name("T")->capture_default_str();
  app.add_option("--op-file", workload.op_file, "operators in tensor notation")->type_name("FILE");
  app.add_option("--name", name, "of the batch [the workloads file's]")->type_name("NAME");
}

absl::StatusOr<Batch> SuiteFlags::Plan(const std::string& folder) const {
  // Whether all of them can be read is known before any node has been asked for.
  HEDDLE_RETURN_IF_ERROR(ReadJobs(workload, workloads));
  HEDDLE_ASSIGN_OR_RETURN(text, ReadTextFile(workloads, kMaxFile));
  HEDDLE_ASSIGN_OR_RETURN(lines, ParseWorkloadLines(text));

  Batch batch;
  batch.name = name.empty() ? fs::path(workloads).stem().string() : name;
  if (!tuner::IsRunName(batch.name) || batch.name.size() > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", batch.name, "', which the batch is called ",
                     name.empty() ? "as its file is, " : "by --name, ",
                     "must be at most 64 letters, digits and \"-_.\": give another --name"));
  }
  batch.created = absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone());
  batch.folder = fs::absolute(fs::path(folder) / batch.name).lexically_normal().string();
  for (const WorkloadLine& line : lines) {
    if (!line.dtype.empty() && line.dtype != workload.dtype) {
      return absl::InvalidArgumentError(
          absl::StrCat(workloads, ": line ", line.line,
                       ": a batch has one data type, that of --dtype; leave dtype= out"));
    }
    batch.workloads.push_back(line.shape.empty() ? line.op : line.op + " " + line.shape);
  }
  batch.dtype = workload.dtype;
  if (!workload.op_file.empty()) batch.op_file = batch.folder + "/operators.op";
  batch.l2 = l2;
  batch.trials = trials;
  batch.seconds = seconds;
  return batch;
}

absl::StatusOr<std::string> SuiteFlags::Operators() const {
  if (workload.op_file.empty()) return "";
  return ReadTextFile(workload.op_file, kMaxFile);
}

}  // namespace heddle::cli
