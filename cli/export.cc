// heddle export: folders with kernels that any program can load.
#include "tuner/artefact/export.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/tuned.h"
#include "measure/device/backend.h"
#include "search_space/notation/notation.h"
#include "tuner/records/records_fields.h"

namespace heddle::cli {
namespace {

using search_space::TensorProgram;

struct ExportFlags {
  WorkloadFlags workload;
  DeviceFlags device;
  ScheduleFlags schedule;
  bool all = false;
  std::string out, l2, db, workloads;
};

constexpr char kIndex[] = "index.json";

// Writes a program's schedule to a folder; returns where the schedule comes from.
absl::StatusOr<std::string> ExportOne(const ExportFlags& flags, const Workload& program,
                                      const measure::DeviceInfo& device,
                                      const std::string& command_line, const std::string& out) {
  std::string l2 = flags.l2;
  HEDDLE_ASSIGN_OR_RETURN(chosen,
                          flags.schedule.Choose(program, device, l2, flags.db, command_line));
  tuner::Artefact artefact{program, chosen.steps, chosen.point, device, {}, {}, HEDDLE_VERSION};
  if (chosen.best) artefact.measured = chosen.best->trial;
  artefact.verdict = chosen.verdict;
  HEDDLE_RETURN_IF_ERROR(tuner::Export(artefact, out));
  return chosen.origin;
}

// What of the database is to be exported: the lines of --workloads, or all that was tuned.
absl::StatusOr<std::vector<TuneJob>> JobsOf(const ExportFlags& flags,
                                            const measure::DeviceInfo& device) {
  if (!flags.workloads.empty()) return ReadJobs(flags.workload, flags.workloads);
  HEDDLE_ASSIGN_OR_RETURN(records, OpenRecords(flags.db));
  tuner::Records::Choice finals;
  finals.device_name = device.target.name;
  finals.finals_only = true;
  std::map<std::string, tuner::WorkloadRow> workloads;  // by operator, then in the order of shapes
  bool more = true;
  for (int64_t after = 0; more;) {
    HEDDLE_ASSIGN_OR_RETURN(page, records->ReadPage(after, 1000, finals, more));
    for (const tuner::StoredTrial& trial : page) {
      const tuner::WorkloadRow& row = trial.workload;
      workloads.try_emplace(absl::StrCat(row.op, " ", row.shape, " ", row.hash), row);
    }
  }
  std::vector<TuneJob> jobs;
  for (const auto& [name, row] : workloads) {
    bool served = false;
    for (const char* l2 : {"cold", "warm"}) {
      if (served || (!flags.l2.empty() && flags.l2 != l2)) continue;
      HEDDLE_ASSIGN_OR_RETURN(best,
                              records->FindBest(row.hash, tuner::BenchOf(device, PolicyOf(l2))));
      served = best.has_value();
    }
    if (!served) continue;
    auto program = search_space::ParseWorkload(row.text);
    if (!program.ok()) {
      Say(absl::StrCat("heddle: ", row.op, " ", row.shape, ": ", program.status().message()));
      continue;
    }
    jobs.push_back({std::make_shared<const TensorProgram>(*std::move(program)), 1, ""});
  }
  if (jobs.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "nothing was tuned on ", device.target.name, " in ", records->path(), ": see heddle tune"));
  }
  return jobs;
}

// "matmul/k=64,m=64,n=64-float32"; another operator of that name has its hash behind it.
std::string FolderOf(const TensorProgram& program, std::set<std::string>& taken) {
  std::string name =
      absl::StrCat(program.op, "/", ShapeText(program), "-", search_space::NameOf(program.dtype));
  if (taken.contains(name)) absl::StrAppend(&name, "-", program.hash.substr(0, 8));
  taken.insert(name);
  return name;
}

Result ExportAll(ExportFlags flags) {
  if (!flags.workload.op.empty() || (flags.schedule.any() && !flags.schedule.best)) {
    return absl::InvalidArgumentError(
        "--all takes the best of the database for each workload: name those in --workloads FILE");
  }
  flags.schedule.best = true;
  HEDDLE_ASSIGN_OR_RETURN(device, flags.device.FindDeviceOrTarget());
  const std::filesystem::path out = flags.out;
  std::error_code error;
  if (std::filesystem::exists(out, error) && !std::filesystem::is_empty(out, error) &&
      !std::filesystem::exists(out / kIndex, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.out, " is not empty and holds no earlier export --all: choose another"));
  }
  HEDDLE_ASSIGN_OR_RETURN(jobs, JobsOf(flags, device));
  std::filesystem::create_directories(out, error);
  Json index{{"version", HEDDLE_VERSION}, {"device", device.target.name}};
  Json& exports = index["exports"] = Json::array();
  // At once, and after each, so that what was interrupted can be gone on with.
  const auto write = [&] { return WriteFile(out / kIndex, index.dump(1) + "\n"); };
  HEDDLE_RETURN_IF_ERROR(write());
  std::set<std::string> taken;
  int exit_code = kDone;
  for (const TuneJob& job : jobs) {
    const std::string folder = FolderOf(*job.program, taken);
    auto origin = ExportOne(flags, job.program, device, job.command_line, out / folder);
    if (!origin.ok()) {
      Say(absl::StrCat("heddle: ", folder, ": ", origin.status().message()));
      exit_code = std::max(exit_code, ExitCodeOf(origin.status()));
      continue;
    }
    HEDDLE_ASSIGN_OR_RETURN(manifest, ReadTextFile(out / folder / "manifest.json", 16 << 20));
    exports.push_back({{"op", job.program->op},
                       {"shape", ShapeJson(job.program->shape)},
                       {"dtype", search_space::NameOf(job.program->dtype)},
                       {"weight", job.weight},
                       {"time_us", Json::parse(manifest)["time_us"]},
                       {"folder", folder}});
    HEDDLE_RETURN_IF_ERROR(write());
    Say(absl::StrCat("Wrote ", (out / folder).string(), " (", *origin, ")"));
  }
  Say(absl::StrCat("Wrote ", (out / kIndex).string(), ": ", exports.size(), " of ", jobs.size()));
  return exit_code;
}

Result RunExport(ExportFlags flags) {
  if (flags.all) return ExportAll(std::move(flags));
  if (flags.workload.op.empty() || !flags.workloads.empty()) {
    return absl::InvalidArgumentError(
        "give either an operator with its --shape or --all, which --workloads FILE goes with");
  }
  HEDDLE_ASSIGN_OR_RETURN(program, flags.workload.Get());
  HEDDLE_ASSIGN_OR_RETURN(device, flags.device.FindDeviceOrTarget());
  if (!flags.schedule.any()) flags.schedule.best = true;
  HEDDLE_ASSIGN_OR_RETURN(
      origin, ExportOne(flags, program, device, flags.workload.CommandLine(), flags.out));
  Say(absl::StrCat("Wrote ", flags.out, " (", origin, "). To run and check it: cd ", flags.out,
                   " && g++ -O2 -std=c++17 ", measure::BackendOf(device).launcher.build,
                   " -o run && ./run, or python3 run.py"));
  return kDone;
}

}  // namespace

void AddExport(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* sub =
      app.add_subcommand("export", "write a schedule's kernels to a folder that programs can load");
  flags->workload.Add(*sub, false);
  flags->device.Add(*sub, true);
  flags->schedule.Add(*sub);
  sub->add_option("--out", flags->out, "the folder")->type_name("DIR")->required();
  sub->add_flag("--all", flags->all,
                "every workload that was tuned on the device, a folder OP/SHAPE-TYPE for each in "
                "DIR and index.json, which lists them");
  sub->add_option("--workloads", flags->workloads,
                  "with --all: those of a file, as `heddle tune` takes it")
      ->type_name("FILE");
  AddStoredL2Flag(*sub, flags->l2);
  AddDbFlag(*sub, flags->db);
  sub->footer(
      "Without --default, --point, --steps or --naive the best schedule of the database is taken.\n"
      "The folder holds manifest.json, sources, binaries, and run.cc and run.py, which run the\n"
      "kernels and check their result.");
  sub->callback([=] { *selected = [=] { return RunExport(*flags); }; });
}

}  // namespace heddle::cli
