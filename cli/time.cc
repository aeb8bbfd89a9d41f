// heddle time: checks and times one schedule again.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/confined.h"
#include "cli/interrupt.h"
#include "measure/run/start_measurer.h"
#include "tuner/model/roofline.h"

namespace heddle::cli {
namespace {

struct TimeFlags {
  WorkloadFlags workload;
  DeviceFlags device;
  ScheduleFlags schedule;
  std::string l2, db;
  bool json = false;
};

// Screening first, which finds what hangs or crashes; then as carefully as finalists are timed.
absl::StatusOr<measure::TrialResult> Measure(measure::Measurer& measurer,
                                             const std::vector<search_space::Step>& steps) {
  const absl::Status interrupted = absl::CancelledError("interrupted; nothing was recorded");
  const measure::Candidate candidate{1, "", steps};
  measurer.Submit(candidate);
  std::optional<measure::Measured> screened;
  while (!screened) {
    if (Interrupted()) return interrupted;
    HEDDLE_ASSIGN_OR_RETURN(next, measurer.Next(absl::Milliseconds(100)));
    screened = std::move(next);
  }
  if (screened->result.outcome != measure::Outcome::kOk) return screened->result;
  auto finals =
      measure::MeasureFinalistsUnless(Interrupted, measurer, {candidate}, absl::Seconds(2));
  if (absl::IsCancelled(finals.status())) return interrupted;
  HEDDLE_RETURN_IF_ERROR(finals);
  return finals->front();
}

Json ToJson(const search_space::TensorProgram& program, const measure::DeviceInfo& device,
            const TimeFlags& flags, const Chosen& chosen, const measure::TrialResult& result) {
  bool ok = result.outcome == measure::Outcome::kOk;
  tuner::Roofline roofline = tuner::RooflineOf(program, device.target, PolicyOf(flags.l2));
  Json json{{"op", program.op},
            {"shape", ShapeJson(program.shape)},
            {"dtype", search_space::NameOf(program.dtype)},
            {"device", device.target.name},
            {"policy", flags.l2},
            {"outcome", measure::NameOf(result.outcome)},
            {"detail", result.detail},
            {"time_us", nullptr},
            {"time_ci_us", nullptr},
            {"noisy", result.noisy},
            {"max_error", result.max_error},
            {"registers", result.registers},
            {"shared_bytes", result.shared_bytes},
            {"gflops", KnownOrNull(roofline.Gflops(result.time_us))},
            {"gbs", KnownOrNull(roofline.Gbs(result.time_us))},
            {"roofline", KnownOrNull(roofline.Share(result.time_us))},
            {"steps", StepsJson(chosen.steps)}};
  if (ok) {
    json["time_us"] = result.time_us;
    json["time_ci_us"] = {result.ci_low_us, result.ci_high_us};
  }
  return json;
}

Result RunTime(TimeFlags flags) {
  if (!flags.schedule.any()) {
    return absl::InvalidArgumentError(
        "say which schedule: --best, --steps FILE, --point P, --default or --naive");
  }
  HEDDLE_ASSIGN_OR_RETURN(program, flags.workload.Get());
  HEDDLE_ASSIGN_OR_RETURN(device, flags.device.FindDevice());
  HEDDLE_ASSIGN_OR_RETURN(chosen, flags.schedule.Choose(program, device, flags.l2, flags.db,
                                                        flags.workload.CommandLine()));
  const measure::L2Policy l2 = PolicyOf(flags.l2);
  // A step that does not apply is said at once, with its name.
  HEDDLE_RETURN_IF_ERROR(search_space::LowerSteps(program, chosen.steps));
  HEDDLE_ASSIGN_OR_RETURN(records, OpenWritableRecords(flags.db));

  CatchInterrupts();
  measure::MeasureOptions options;
  options.l2 = l2;
  options.compile_workers = 1;  // for one schedule
  auto measurer = measure::StartMeasurer(program, device, options);
  if (measurer.status().code() == absl::StatusCode::kResourceExhausted) {
    return WithCode(absl::StatusCode::kInvalidArgument, measurer.status());
  }
  HEDDLE_RETURN_IF_ERROR(measurer);
  HEDDLE_ASSIGN_OR_RETURN(result, Measure(**measurer, chosen.steps));
  measure::DeviceState state = (*measurer)->device_state();
  tuner::TrialRecord record;
  record.workload_hash = program->hash;
  record.point = chosen.point;
  record.steps = search_space::ToString(chosen.steps);
  record.stage = tuner::TrialStage::kFinal;
  record.result = result;
  record.throttled = state.throttled;
  record.other_processes = state.other_processes;
  record.when = absl::Now();
  record.from = tuner::LocalProvenance();
  HEDDLE_RETURN_IF_ERROR(records->AddTrial(*program, tuner::MakeEnvironment(device, l2), record));

  bool ok = result.outcome == measure::Outcome::kOk;
  if (flags.json) {
    PrintJson(ToJson(*program, device, flags, chosen, result));
  } else if (ok) {
    tuner::Roofline roofline = tuner::RooflineOf(*program, device.target, l2);
    std::cout << absl::StrFormat(
        "%s (%s .. %s), %s, largest error %.2g of what is allowed%s\n",
        tuner::FormatTime(result.time_us), tuner::FormatTime(result.ci_low_us),
        tuner::FormatTime(result.ci_high_us), roofline.Rate(result.time_us), result.max_error,
        result.noisy ? ", noisy" : "");
  }
  if (ok) return kDone;
  return absl::FailedPreconditionError(
      absl::StrCat("the schedule failed: ", measure::NameOf(result.outcome), ": ", result.detail));
}

}  // namespace

void AddTime(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<TimeFlags>();
  CLI::App* sub =
      app.add_subcommand("time", "check and time a stored or hand-edited schedule again");
  flags->workload.Add(*sub);
  flags->device.Add(*sub, false);
  flags->schedule.Add(*sub);
  AddStoredL2Flag(*sub, flags->l2);
  AddDbFlag(*sub, flags->db);
  AddUnconfined(*sub);
  sub->add_flag("--json", flags->json, "JSON on stdout");
  sub->footer("The result is recorded: a schedule edited by hand that wins is served.");
  sub->callback([=] { *selected = [=] { return RunTime(*flags); }; });
}

}  // namespace heddle::cli
