// heddle tune: finds the fastest schedule of one workload or of a file of them.
#include <unistd.h>

#include <algorithm>
#include <future>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/host.h"
#include "cli/command.h"
#include "cli/confined.h"
#include "cli/interrupt.h"
#include "cli/tuned.h"
#include "measure/judge/memory.h"
#include "tuner/search/evolution.h"
#include "tuner/search/experience.h"
#include "tuner/search/session.h"
#include "tuner/search/shared_budget.h"

namespace heddle::cli {
namespace {

using measure::DeviceInfo;
using tuner::SessionReport;

struct TuneFlags {
  WorkloadFlags workload;
  DeviceFlags device;
  int trials = 200, plateau = 0;
  double seconds = 0;
  uint64_t seed = 1;
  std::string search = "evolutionary", l2, workloads, db, plot;
  bool json = false, no_finals = false;
  int since_improvement = 0;  // trials of turns before, for `plateau`
};

// Warns once of each condition that makes times worse than they could be.
class DeviceWarnings {
 public:
  void Look(const measure::DeviceState& state, tuner::ProgressPrinter& printer) {
    if (state.throttled && !throttled_) {
      throttled_ = true;
      printer.Note(
          absl::StrFormat("Warning: the device throttles its clocks (%.0f of %.0f MHz): "
                          "times are worse than they could be.",
                          state.sm_clock_mhz, state.max_sm_clock_mhz));
    }
    if (state.other_processes > 0 && !others_) {
      others_ = true;
      printer.Note(absl::StrCat("Warning: ", state.other_processes,
                                " other process(es) use the device: times are noisy."));
    }
  }

 private:
  bool throttled_ = false, others_ = false;
};

absl::StatusOr<Tuned> TuneOne(const TuneFlags& flags, const Workload& program,
                              const DeviceInfo& device, tuner::Records& records) {
  // Said before anything else is tried: the measurer would say it later.
  if (absl::Status s = measure::CheckMemory(*program, device.id, device.target.memory_bytes);
      !s.ok()) {
    return WithCode(absl::StatusCode::kInvalidArgument, s);
  }
  auto space = search_space::SearchSpace::Create(program, device.target);
  if (!space.ok()) return space.status();
  measure::L2Policy l2 = PolicyOf(flags.l2);
  const tuner::Environment environment = tuner::MakeEnvironment(device, l2);
  // Other workloads' trials are gone through while the device starts.
  const int threads = std::max(1, UsableCores() / 2);
  std::future<absl::StatusOr<tuner::Experience>> recalling;
  if (flags.search != "random") {
    recalling = std::async(std::launch::async, [&]() -> absl::StatusOr<tuner::Experience> {
      auto own = tuner::Records::Open(records.path());
      if (!own.ok()) return own.status();
      return tuner::Recall(**own, environment, *space, threads);
    });
  }
  measure::MeasureOptions measure_options;
  measure_options.l2 = l2;
  measure_options.seed = flags.seed;
  auto measurer = measure::StartMeasurer(program, device, measure_options);
  if (!measurer.ok()) {
    // What does not fit the device is the shape's fault.
    bool too_large = measurer.status().code() == absl::StatusCode::kResourceExhausted;
    return too_large ? WithCode(absl::StatusCode::kInvalidArgument, measurer.status())
                     : measurer.status();
  }
  tuner::ProgressPrinter printer(stderr, isatty(STDERR_FILENO) != 0, TerminalWidth() - 1);
  auto proposer = tuner::MakeRandomProposer(*space, flags.seed);
  if (recalling.valid()) {
    auto experience = recalling.get();
    if (!experience.ok()) return experience.status();
    printer.Note(experience->note);
    proposer = tuner::MakeEvolutionProposer(
        *space, {flags.seed, std::move(experience->neighbours), {}, experience->model, threads});
  }
  DeviceWarnings warnings;
  tuner::SessionOptions options;
  options.trials = flags.trials;
  options.seconds = flags.seconds;
  options.plateau = flags.plateau;
  options.since_improvement = flags.since_improvement;
  options.finals = !flags.no_finals;
  options.interrupted = Interrupted;
  options.on_progress = [&](const tuner::Progress& progress) {
    warnings.Look((*measurer)->device_state(), printer);
    printer.Show(progress);
  };
  options.on_finals = [&](size_t count) {
    printer.Note(count > 1 ? absl::StrCat("Measuring the best ", count, " against each other.")
                           : "Measuring the best once more.");
  };
  const auto log = tuner::MakeTrialLog(records, *program, environment);
  tuner::Session session(*space, **measurer, *log, environment.l2, *proposer, options);
  auto report = session.Run();
  printer.Clear();
  if (!report.ok()) return report.status();
  return Tuned{program, *std::move(report), tuner::RooflineOf(*program, device.target, l2)};
}

// FILE.svg, or with several workloads FILE-1.svg, FILE-2.svg, ...
std::string PlotPath(const std::string& path, size_t index, size_t count) {
  if (count == 1) return path;
  size_t dot = path.rfind('.');
  if (dot == std::string::npos || path.find('/', dot) != std::string::npos) dot = path.size();
  return absl::StrCat(path.substr(0, dot), "-", index + 1, path.substr(dot));
}

// What one workload's turns came to.
struct Turns {
  std::optional<Tuned> tuned;  // all of them together
  absl::Status failed;         // of the last, where it ended in an error
};

void AddTurn(Tuned turn, Turns& turns) {
  if (!turns.tuned) {
    turns.tuned = std::move(turn);
    return;
  }
  SessionReport& all = turns.tuned->report;
  SessionReport& last = turn.report;
  all.stop = last.stop;
  all.since_improvement = last.since_improvement;
  all.trials += last.trials;
  all.ok += last.ok;
  for (const auto& [kind, count] : last.failed) all.failed[kind] += count;
  all.default_us = last.default_us;
  all.best = std::move(last.best);
  all.times.insert(all.times.end(), last.times.begin(), last.times.end());
  all.seconds += last.seconds;
  all.spent += last.spent;
}

// Is that the fault of the workload, or of its schedules, so that others may do better?
bool IsItsOwn(const absl::Status& failed) {
  return failed.code() == absl::StatusCode::kInvalidArgument ||
         failed.code() == absl::StatusCode::kFailedPrecondition ||
         failed.code() == absl::StatusCode::kAborted;
}

// Turn after turn until the budget is used up, or an error that is not one workload's own: the
// device's or the database's.
std::vector<Turns> TakeTurns(const TuneFlags& flags, const std::vector<TuneJob>& jobs,
                             const DeviceInfo& device, tuner::Records& records) {
  std::vector<Turns> turns(jobs.size());
  std::vector<double> weights;
  for (const TuneJob& job : jobs) weights.push_back(static_cast<double>(job.weight));
  tuner::SharedBudget budget(flags.trials, flags.seconds, weights);
  for (auto turn = budget.Next(); turn && !Interrupted(); turn = budget.Next()) {
    const TuneJob& job = jobs[turn->workload];
    Turns& own = turns[turn->workload];
    std::string count;
    if (jobs.size() > 1) count = absl::StrCat("[", turn->workload + 1, "/", jobs.size(), "] ");
    Say(absl::StrCat(count, own.tuned ? "More of " : "Tuning ", job.program->op, " ",
                     ShapeText(*job.program), " ", search_space::NameOf(job.program->dtype), " on ",
                     device.id, " (", device.target.name, "), ", flags.l2, " L2"));
    TuneFlags limited = flags;
    limited.trials = turn->trials;
    limited.seconds = turn->seconds;
    if (own.tuned) limited.since_improvement = own.tuned->report.since_improvement;
    auto tuned = TuneOne(limited, job.program, device, records);
    if (!tuned.ok()) {
      own.failed = tuned.status();
      if (jobs.size() == 1 || !IsItsOwn(own.failed)) break;
      Say(absl::StrCat("heddle: ", own.failed.message()));
      budget.ReportFailure(*turn);
      continue;
    }
    budget.Report(*turn, tuned->report);
    SayResult(*tuned, flags.l2, job.command_line);
    AddTurn(*std::move(tuned), own);
  }
  return turns;
}

Result RunTune(const TuneFlags& flags) {
  if (flags.trials == 0 && flags.seconds == 0 && flags.plateau == 0) {
    return absl::InvalidArgumentError("without a limit of trials give --seconds or --plateau");
  }
  auto jobs = ReadJobs(flags.workload, flags.workloads);
  if (!jobs.ok()) return jobs.status();
  auto records = OpenWritableRecords(flags.db);
  if (!records.ok()) return records.status();
  auto device = flags.device.FindDevice();
  if (!device.ok()) return device.status();
  CatchInterrupts();
  const std::vector<Turns> turns = TakeTurns(flags, *jobs, *device, **records);

  absl::Status ended;  // an error that is not one workload's own
  int exit_code = kDone;
  Json all = Json::array();
  double weighted_default_us = 0, weighted_best_us = 0;
  for (size_t i = 0; i < jobs->size(); ++i) {
    const TuneJob& job = (*jobs)[i];
    const auto& [tuned, failed] = turns[i];
    if (!failed.ok() && (jobs->size() == 1 || !IsItsOwn(failed))) ended = failed;
    if (!failed.ok()) exit_code = std::max(exit_code, ExitCodeOf(failed));
    if (!tuned) {
      if (failed.ok()) continue;  // interrupted before its first turn
      all.push_back({{"op", job.program->op},
                     {"shape", ShapeJson(job.program->shape)},
                     {"error", std::string(failed.message())}});
      continue;
    }
    all.push_back(ToJson(*tuned, device->target.name, flags.l2, job.weight));
    if (!failed.ok()) all.back()["error"] = std::string(failed.message());
    if (!flags.plot.empty()) {
      std::string title =
          absl::StrCat(job.program->op, " ", ShapeText(*job.program), " on ", device->target.name);
      absl::Status s = WriteFile(PlotPath(flags.plot, i, jobs->size()),
                                 tuner::SvgCurve(tuned->report.times, title));
      if (!s.ok()) return s;
    }
    if (tuned->report.best) {
      weighted_best_us += static_cast<double>(job.weight) * tuned->report.best->result.time_us;
      weighted_default_us += static_cast<double>(job.weight) * tuned->report.default_us;
    } else if (!Interrupted()) {
      Say("heddle: " + NoValidSchedule(tuned->report));
      exit_code = std::max<int>(exit_code, kNoValidSchedule);
    }
  }
  if (jobs->size() > 1 && weighted_best_us > 0) {
    Say(absl::StrFormat("All workloads by weight: %s, by default schedules %s.",
                        tuner::FormatTime(weighted_best_us),
                        tuner::FormatTime(weighted_default_us)));
  }
  // One workload that failed is an error and no result; of several, the others' results stay.
  if (!ended.ok() && jobs->size() == 1) return ended;
  if (flags.json) PrintJson(flags.workloads.empty() && !all.empty() ? all[0] : all);
  if (!ended.ok()) return ended;
  return Interrupted() ? kInterrupted : exit_code;
}

}  // namespace

void AddTune(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* sub = app.add_subcommand("tune", "find the fastest schedule of an operator at a shape");
  flags->workload.Add(*sub, false);
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
                  "--seconds are for each "
                  "on average: each gets half of that, the rest goes where it promises most")
      ->type_name("FILE");
  AddDbFlag(*sub, flags->db);
  sub->add_flag("--no-finals", flags->no_finals,
                "do not measure the best once more: nothing is served from this run");
  sub->add_flag("--json", flags->json,
                "one JSON document on stdout (an array with --workloads), the rest on stderr");
  AddUnconfined(*sub);
  sub->add_option("--plot", flags->plot, "write the best-so-far curve as SVG")
      ->type_name("FILE.svg");
  sub->footer(
      "Trials of earlier runs count: they are not made again, and the best of them competes.\n"
      "Ctrl-C keeps everything that was measured; the same command continues.");
  sub->callback([=] { *selected = [=] { return RunTune(*flags); }; });
}

}  // namespace heddle::cli
