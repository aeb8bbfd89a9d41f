// heddle show: one schedule, from its steps to its machine code.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "cli/command.h"
#include "measure/device/backend.h"
#include "measure/device/cuda/nvrtc.h"
#include "tuner/artefact/build.h"
#include "tuner/model/features.h"

namespace heddle::cli {
namespace {

struct ShowFlags {
  WorkloadFlags workload;
  DeviceFlags device;
  ScheduleFlags schedule;
  std::string what = "schedule", l2, db;
};

// PTX or SASS of all kernels.
absl::StatusOr<std::string> MachineCode(const std::vector<measure::KernelSource>& kernels,
                                        const measure::DeviceInfo& device, bool sass) {
  const measure::Backend& backend = measure::BackendOf(device);
  if (backend.assembly_suffix == nullptr) {
    return absl::InvalidArgumentError(
        "ptx and sass exist for CUDA only: add --target sm_90, or use --what source");
  }
  std::string text;
  for (const measure::KernelSource& kernel : kernels) {
    HEDDLE_ASSIGN_OR_RETURN(built, backend.compile(kernel, device));
    if (!sass) {
      text += built.assembly;
      continue;
    }
    auto disassembled = measure::Disassemble(built.binary);
    // A tool that is missing is not a wrong argument.
    if (!disassembled.ok()) {
      return WithCode(absl::StatusCode::kUnavailable, disassembled.status());
    }
    text += *disassembled;
  }
  return text;
}

// One feature a line: name, value, unit, meaning.
Result PrintFeatures(const search_space::Program& program, const search_space::Target& target) {
  HEDDLE_ASSIGN_OR_RETURN(features, tuner::FeaturesOf(program, target));
  if (target.processor) {
    Say("the times are those of a processor, and what warps and banks need is 0 or means nothing "
        "there: docs/features.md");
  }
  for (size_t i = 0; i < features.size(); ++i) {
    const tuner::FeatureInfo& info = tuner::FeatureTable()[i];
    std::cout << absl::StrFormat("%-22s %14.6g %-18s %s\n", info.name, features[i], info.unit,
                                 info.formula);
  }
  return kDone;
}

Result RunShow(ShowFlags flags) {
  HEDDLE_ASSIGN_OR_RETURN(program, flags.workload.Get());
  HEDDLE_ASSIGN_OR_RETURN(device, flags.device.FindDeviceOrTarget());
  HEDDLE_ASSIGN_OR_RETURN(chosen, flags.schedule.Choose(program, device, flags.l2, flags.db,
                                                        flags.workload.CommandLine()));
  Say(absl::StrCat(program->op, " ", ShapeText(*program), " for ", device.target.name, ": ",
                   chosen.origin));
  if (flags.what == "schedule") {
    if (!chosen.point.empty()) std::cout << "# " << chosen.point << "\n";
    std::cout << search_space::ToString(chosen.steps);
    return kDone;
  }
  HEDDLE_ASSIGN_OR_RETURN(built, tuner::BuildSource(program, chosen.steps, device.target));
  if (flags.what == "features") return PrintFeatures(built.program, device.target);
  if (flags.what == "loops") {
    std::cout << search_space::ToString(built.program);
  } else if (flags.what == "source") {
    for (const measure::KernelSource& kernel : built.kernels) std::cout << kernel.source;
  } else {
    HEDDLE_ASSIGN_OR_RETURN(code, MachineCode(built.kernels, device, flags.what == "sass"));
    std::cout << code;
  }
  return kDone;
}

}  // namespace

void AddShow(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<ShowFlags>();
  CLI::App* sub = app.add_subcommand(
      "show", "a schedule as steps, loops, source, machine code or the cost model's features");
  flags->workload.Add(*sub);
  flags->device.Add(*sub, true);
  flags->schedule.Add(*sub);
  sub->add_option("--what", flags->what, "what to print")
      ->type_name("schedule|loops|source|ptx|sass|features")
      ->check(OneOf({"schedule", "loops", "source", "ptx", "sass", "features"}))
      ->capture_default_str();
  AddStoredL2Flag(*sub, flags->l2);
  AddDbFlag(*sub, flags->db);
  sub->footer("Without --best, --point, --steps or --naive the default schedule is shown.");
  sub->callback([=] { *selected = [=] { return RunShow(*flags); }; });
}

}  // namespace heddle::cli
