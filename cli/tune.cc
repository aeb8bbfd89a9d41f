// heddle tune: finds the fastest schedule of one workload or of a file of them.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/confined.h"
#include "cli/interrupt.h"
#include "cli/tune_turns.h"
#include "cli/tuned.h"
#include "measure/run/detect.h"

namespace heddle::cli {
namespace {

using measure::DeviceInfo;

// FILE.svg, or with several workloads FILE-1.svg, FILE-2.svg, ...
std::string PlotPath(const std::string& path, size_t index, size_t count) {
  if (count == 1) return path;
  size_t dot = path.rfind('.');
  if (dot == std::string::npos || path.find('/', dot) != std::string::npos) dot = path.size();
  return absl::StrCat(path.substr(0, dot), "-", index + 1, path.substr(dot));
}

// The device that `flags` name, or with "cuda:all" (or another back end's name) all of it that are
// usable. InvalidArgument: their times do not compare.
absl::StatusOr<std::vector<DeviceInfo>> FindDevices(const DeviceFlags& flags) {
  const absl::string_view backend = absl::StripSuffix(flags.device, ":all");
  if (backend == flags.device) {
    HEDDLE_ASSIGN_OR_RETURN(one, flags.FindDevice());
    return std::vector{std::move(one)};
  }
  std::vector<DeviceInfo> all = measure::ListDevices();
  std::erase_if(all, [&](const DeviceInfo& each) {
    if (!absl::StartsWith(each.id, absl::StrCat(backend, ":"))) return true;
    if (!each.usable) Say(absl::StrCat("Warning: without ", each.id, ": ", each.why_not));
    return !each.usable;
  });
  if (all.empty()) {
    return absl::UnavailableError(
        absl::StrCat("there is no usable ", backend, " device; see `heddle devices`"));
  }
  const tuner::Bench first = tuner::BenchOf(all[0], measure::L2Policy::kCold);
  for (const DeviceInfo& each : all) {
    if (tuner::Agree(tuner::BenchOf(each, measure::L2Policy::kCold), first)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        all[0].id, " (", all[0].target.name, ") and ", each.id, " (", each.target.name,
        ") are different models, whose times do not compare: tune on each with --device ID"));
  }
  return all;
}

// What all workloads took on all devices.
void SaySum(const std::vector<Turns>& turns, size_t devices, absl::Duration took) {
  int trials = 0;
  double compiling = 0;
  for (const Turns& own : turns) {
    if (!own.tuned) continue;
    trials += own.tuned->report.trials;
    compiling += own.tuned->report.spent.compile;
  }
  const double seconds = absl::ToDoubleSeconds(took);
  const int cores = UsableCores();
  Say(absl::StrFormat(
      "%d trials in %.1f s on %s: %.2f a second, finals and starts included; compilers took "
      "%.0f %% of %d cores.",
      trials, seconds, devices == 1 ? "one device" : absl::StrCat(devices, " devices"),
      trials / seconds, 100 * compiling / (seconds * cores), cores));
}

// Prints and plots what all turns came to. `device` is the model's name.
Result Conclude(const TuneFlags& flags, const std::vector<TuneJob>& jobs, const std::string& device,
                const std::vector<Turns>& turns) {
  absl::Status ended;  // an error that is not one workload's own
  int exit_code = kDone;
  Json all = Json::array();
  double weighted_default_us = 0, weighted_best_us = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const TuneJob& job = jobs[i];
    const auto& [tuned, failed] = turns[i];
    if (!failed.ok() && (jobs.size() == 1 || !IsItsOwn(failed))) ended = failed;
    if (!failed.ok()) exit_code = std::max(exit_code, ExitCodeOf(failed));
    if (!tuned) {
      if (failed.ok()) continue;  // interrupted before its first turn
      all.push_back({{"op", job.program->op},
                     {"shape", ShapeJson(job.program->shape)},
                     {"error", std::string(failed.message())}});
      continue;
    }
    all.push_back(ToJson(*tuned, device, flags.l2, job.weight));
    if (!failed.ok()) all.back()["error"] = std::string(failed.message());
    if (!flags.plot.empty()) {
      std::string title =
          absl::StrCat(job.program->op, " ", ShapeText(*job.program), " on ", device);
      HEDDLE_RETURN_IF_ERROR(WriteFile(PlotPath(flags.plot, i, jobs.size()),
                                       tuner::SvgCurve(tuned->report.times, title)));
    }
    if (tuned->report.best) {
      weighted_best_us += static_cast<double>(job.weight) * tuned->report.best->result.time_us;
      weighted_default_us += static_cast<double>(job.weight) * tuned->report.default_us;
    } else if (!Interrupted()) {
      Say("heddle: " + NoValidSchedule(tuned->report));
      exit_code = std::max<int>(exit_code, kNoValidSchedule);
    }
  }
  if (jobs.size() > 1 && weighted_best_us > 0) {
    Say(absl::StrFormat("All workloads by weight: %s, by default schedules %s.",
                        tuner::FormatTime(weighted_best_us),
                        tuner::FormatTime(weighted_default_us)));
  }
  // One workload that failed is an error and no result; of several, the others' results stay.
  if (!ended.ok() && jobs.size() == 1) return ended;
  if (flags.json) PrintJson(flags.workloads.empty() && !all.empty() ? all[0] : all);
  HEDDLE_RETURN_IF_ERROR(ended);
  return Interrupted() ? kInterrupted : exit_code;
}

Result RunTune(const TuneFlags& flags) {
  if (flags.trials == 0 && flags.seconds == 0 && flags.plateau == 0) {
    return absl::InvalidArgumentError("without a limit of trials give --seconds or --plateau");
  }
  HEDDLE_ASSIGN_OR_RETURN(jobs, ReadJobs(flags.workload, flags.workloads));
  HEDDLE_ASSIGN_OR_RETURN(records, OpenWritableRecords(flags.db));
  HEDDLE_ASSIGN_OR_RETURN(devices, FindDevices(flags.device));
  if (devices.size() > 1 && flags.workloads.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--device ", flags.device.device,
        " shares the devices out among several --workloads: for one name one of them, such as ",
        devices[0].id));
  }
  if (devices.size() > 1 && devices[0].target.processor) {
    Say("Warning: these devices are one processor, which they disturb each other on.");
  }
  std::vector<std::unique_ptr<tuner::Records>> own_records;  // connections are not shared
  own_records.push_back(std::move(records));
  while (own_records.size() < devices.size()) {
    HEDDLE_ASSIGN_OR_RETURN(another, OpenWritableRecords(flags.db));
    own_records.push_back(std::move(another));
  }
  CatchInterrupts();
  const SteadyTime begin = SteadyNow();
  Tuning tuning(flags, jobs, devices.size());
  std::vector<std::thread> owners;
  for (size_t i = 1; i < devices.size(); ++i) {
    owners.emplace_back([&, i] { tuning.Work(devices[i], *own_records[i]); });
  }
  tuning.Work(devices[0], *own_records[0]);
  for (std::thread& owner : owners) owner.join();
  if (jobs.size() > 1) SaySum(tuning.turns(), tuning.at_a_time(), SteadyNow() - begin);
  return Conclude(flags, jobs, devices[0].target.name, tuning.turns());
}

}  // namespace

void AddTune(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* sub = app.add_subcommand("tune", "find the fastest schedule of an operator at a shape");
  flags->workload.Add(*sub, false);
  // A server's jobs name their workloads so (batch.h).
  sub->add_option("--canonical", flags->workload.canonical)->group("");
  flags->device.Add(*sub, false);
  sub->add_option("--trials", flags->trials, "stop after so many new trials; 0 = no limit")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 30).description(""))
      ->capture_default_str();
  sub->add_option("--seconds", flags->seconds, "stop searching after so many seconds")
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e9).description(""));
  sub->add_option("--plateau", flags->plateau,
                  "stop after so many trials in a row without an improvement of 1 %")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 30).description(""));
  sub->add_option("--seed", flags->seed, "of proposals and inputs")
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--search", flags->search, "how points are proposed")
      ->type_name("evolutionary|random")
      ->check(OneOf({"evolutionary", "evolution", "random"}))
      ->capture_default_str();
  AddL2Flag(*sub, flags->l2);
  sub->add_option("--workloads", flags->workloads,
                  "tune each line of a file: op k=v,... [weight=N] [dtype=T]. --trials and "
                  "--seconds are for each on average: each gets half of that, the rest goes where "
                  "it promises most. --device cuda:all has every GPU take turns")
      ->type_name("FILE");
  AddDbFlag(*sub, flags->db);
  sub->add_flag("--no-finals", flags->no_finals,
                "do not measure the best once more: nothing is served from this run");
  sub->add_flag("--json", flags->json,
                "one JSON document on stdout (an array with --workloads), the rest on stderr");
  sub->add_option("--progress", flags->progress,
                  "how progress is told on stderr: json is a line of JSON for each trial")
      ->type_name("text|json")
      ->check(OneOf({"text", "json"}))
      ->capture_default_str();
  AddUnconfined(*sub);
  sub->add_option("--plot", flags->plot, "write the best-so-far curve as SVG")
      ->type_name("FILE.svg");
  sub->footer(
      "Trials of earlier runs count: they are not made again, and the best of them competes.\n"
      "Ctrl-C keeps everything that was measured; the same command continues.");
  sub->callback([=] { *selected = [=] { return RunTune(*flags); }; });
}

}  // namespace heddle::cli
