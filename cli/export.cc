// heddle export: a folder with kernels that any program can load.
#include "tuner/artefact/export.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/command.h"
#include "measure/device/backend.h"

namespace heddle::cli {
namespace {

struct ExportFlags {
  WorkloadFlags workload;
  DeviceFlags device;
  ScheduleFlags schedule;
  std::string out, l2, db;
};

Result RunExport(ExportFlags flags) {
  HEDDLE_ASSIGN_OR_RETURN(program, flags.workload.Get());
  HEDDLE_ASSIGN_OR_RETURN(device, flags.device.FindDeviceOrTarget());
  if (!flags.schedule.any()) flags.schedule.best = true;
  HEDDLE_ASSIGN_OR_RETURN(chosen, flags.schedule.Choose(program, device, flags.l2, flags.db,
                                                        flags.workload.CommandLine()));
  tuner::Artefact artefact{program, chosen.steps, chosen.point, device, {}, {}, HEDDLE_VERSION};
  if (chosen.best) artefact.measured = chosen.best->trial;
  artefact.verdict = chosen.verdict;
  if (absl::Status s = tuner::Export(artefact, flags.out); !s.ok()) return s;
  Say(absl::StrCat("Wrote ", flags.out, " (", chosen.origin, "). To run and check it: cd ",
                   flags.out, " && g++ -O2 -std=c++17 ", measure::BackendOf(device).launcher.build,
                   " -o run && ./run, or python3 run.py"));
  return kDone;
}

}  // namespace

void AddExport(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* sub =
      app.add_subcommand("export", "write a schedule's kernels to a folder that programs can load");
  flags->workload.Add(*sub);
  flags->device.Add(*sub, true);
  flags->schedule.Add(*sub);
  sub->add_option("--out", flags->out, "the folder")->type_name("DIR")->required();
  AddStoredL2Flag(*sub, flags->l2);
  AddDbFlag(*sub, flags->db);
  sub->footer(
      "Without --default, --point, --steps or --naive the best schedule of the database is taken.\n"
      "The folder holds manifest.json, sources, binaries, and run.cc and run.py, which run the\n"
      "kernels and check their result.");
  sub->callback([=] { *selected = [=] { return RunExport(*flags); }; });
}

}  // namespace heddle::cli
