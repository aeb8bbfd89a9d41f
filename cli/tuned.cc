#include "cli/tuned.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "cli/workloads_file.h"
#include "search_space/notation/notation.h"

namespace heddle::cli {

using tuner::SessionReport;

int TerminalWidth() {
  winsize size;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

absl::StatusOr<std::vector<TuneJob>> ReadJobs(const WorkloadFlags& flags,
                                              const std::string& workloads) {
  if (!flags.canonical.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(program, search_space::ParseWorkload(flags.canonical));
    return std::vector<TuneJob>{
        {std::make_shared<const search_space::TensorProgram>(std::move(program)), 1, ""}};
  }
  if (flags.op.empty() == workloads.empty()) {
    return absl::InvalidArgumentError(
        "give either an operator with its --shape or --workloads FILE");
  }
  if (!workloads.empty() && !flags.shape.empty()) {
    return absl::InvalidArgumentError("--shape belongs in the workloads file, one a line");
  }
  std::vector<TuneJob> jobs;
  if (workloads.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(program, flags.Get());
    jobs.push_back({program, 1, flags.CommandLine()});
    return jobs;
  }
  HEDDLE_ASSIGN_OR_RETURN(text, ReadTextFile(workloads, 4 << 20));
  auto lines = ParseWorkloadLines(text);
  if (!lines.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(workloads, ": ", lines.status().message()));
  }
  for (const WorkloadLine& line : *lines) {
    WorkloadFlags named = flags;
    named.op = line.op;
    named.shape = line.shape;
    if (!line.dtype.empty()) named.dtype = line.dtype;
    auto program = named.Get();
    if (!program.ok()) {
      return WithCode(program.status().code(),
                      absl::InternalError(absl::StrCat(workloads, ": line ", line.line, ": ",
                                                       program.status().message())));
    }
    jobs.push_back({*program, line.weight, named.CommandLine()});
  }
  return jobs;
}

namespace {

// The device's seconds that are neither work nor explained: trials handed over and recorded,
// workers started again, finalists built.
double IdleOtherwise(const SessionReport& report) {
  const tuner::TimeSpent& t = report.spent;
  return std::max(0.0, report.seconds - t.busy() - t.idle_compiling - t.idle_proposing);
}

// Of the best over what takes `from_us`; 0 where either is unknown.
double SpeedUp(const SessionReport& report, double from_us) {
  if (!report.best || from_us <= 0) return 0;
  return from_us / report.best->result.time_us;
}

}  // namespace

Json ToJson(const Tuned& tuned, const std::string& device, const std::string& l2, int64_t weight) {
  const SessionReport& report = tuned.report;
  Json failed = Json::object();
  for (const auto& [kind, count] : report.failed) failed[measure::NameOf(kind)] = count;
  Json json{{"op", tuned.program->op},
            {"shape", ShapeJson(tuned.program->shape)},
            {"dtype", search_space::NameOf(tuned.program->dtype)},
            {"workload", tuned.program->canonical_text},
            {"device", device},
            {"policy", l2},
            {"trials", {{"total", report.trials}, {"ok", report.ok}, {"failed", failed}}},
            {"default_us", KnownOrNull(report.default_us)},
            {"naive_us", KnownOrNull(report.naive_us)},
            {"best_us", nullptr},
            {"best_ci_us", nullptr},
            {"gflops", nullptr},
            {"gbs", nullptr},
            {"roofline", nullptr},
            {"speedup", KnownOrNull(SpeedUp(report, report.default_us))},
            {"naive_speedup", KnownOrNull(SpeedUp(report, report.naive_us))},
            {"seconds", report.seconds},
            {"trials_per_second", report.seconds > 0 ? report.trials / report.seconds : 0},
            {"interrupted", report.stop == tuner::StopReason::kInterrupted},
            {"steps", Json::array()}};
  if (report.best) {
    const measure::TrialResult& result = report.best->result;
    json["best_us"] = result.time_us;
    json["best_ci_us"] = {result.ci_low_us, result.ci_high_us};
    json["gflops"] = tuned.roofline.Gflops(result.time_us);
    json["gbs"] = tuned.roofline.Gbs(result.time_us);
    json["roofline"] = KnownOrNull(tuned.roofline.Share(result.time_us));
    json["steps"] = StepsJson(report.best->steps);
  }
  // Beyond the documented fields.
  json["stopped_by"] = tuner::NameOf(report.stop);
  json["earlier_trials"] = report.earlier_trials;
  if (const tuner::TimeSpent& t = report.spent; t.busy() > 0) {
    json["device_busy_share"] = t.busy() / report.seconds;
    json["phase_seconds"] = {{"compile", t.compile},
                             {"load", t.load},
                             {"validate", t.validate},
                             {"time", t.time},
                             {"time_spare", t.time_spare},
                             {"search", t.search},
                             {"idle_compiling", t.idle_compiling},
                             {"idle_proposing", t.idle_proposing},
                             {"idle_otherwise", IdleOtherwise(report)}};
  }
  json["started_from"] = {{"neighbours", tuned.neighbours}, {"cost_model", tuned.has_model}};
  json["final"] = report.best && report.best->is_final;
  if (weight != 1) json["weight"] = weight;
  return json;
}

std::string NoValidSchedule(const SessionReport& report) {
  std::vector<std::string> failures;
  if (!report.failed.empty()) failures.push_back(tuner::FailureCounts(report.failed));
  if (report.failed_finals > 0) {
    failures.push_back(absl::StrCat(report.failed_finals, " of the finals, on other inputs"));
  }
  return absl::StrCat("no valid schedule among ", report.trials, " trials (",
                      absl::StrJoin(failures, ", "), ")",
                      report.last_failure.empty() ? "" : "; the last: ", report.last_failure);
}

void SayResult(const Tuned& tuned, const std::string& l2, const std::string& command_line) {
  const SessionReport& report = tuned.report;
  bool interrupted = report.stop == tuner::StopReason::kInterrupted;
  if (isatty(STDERR_FILENO) && report.times.size() > 1) {
    constexpr int kCurveWidth = 60, kCurveHeight = 10;
    std::cerr << tuner::TerminalCurve(report.times, kCurveWidth, kCurveHeight);
  }
  std::string trials =
      absl::StrFormat("%d trials in %.1f s (%.1f/s), %d OK", report.trials, report.seconds,
                      report.seconds > 0 ? report.trials / report.seconds : 0, report.ok);
  if (!report.failed.empty()) {
    absl::StrAppend(&trials, ", failed: ", tuner::FailureCounts(report.failed));
  }
  if (report.earlier_trials > 0) {
    absl::StrAppend(&trials, "; ", report.earlier_trials, " earlier ones in the database");
  }
  Say(trials);
  if (const tuner::TimeSpent& t = report.spent; t.busy() > 0) {
    const std::string spare =
        t.time_spare >= 0.05
            ? absl::StrFormat(", %.1f s of it while compilers were behind", t.time_spare)
            : "";
    Say(absl::StrFormat(
        "Device busy %.0f %% (load %.1f s, validate %.1f s, time %.1f s%s), idle %.1f s for "
        "compilers, %.1f s for proposals, %.1f s otherwise",
        100 * t.busy() / report.seconds, t.load, t.validate, t.time, spare, t.idle_compiling,
        t.idle_proposing, IdleOtherwise(report)));
  }
  if (report.stop == tuner::StopReason::kExhausted) {
    Say("The search space has no more points to try.");
  }
  if (report.stale_intents > 0) {
    Say(absl::StrCat(report.stale_intents,
                     " points were left out: an earlier session ended while "
                     "they were being measured."));
  }
  if (report.best) {
    const measure::TrialResult& best = report.best->result;
    std::string line =
        absl::StrFormat("%s %s (%s .. %s), %s", report.best->is_final ? "Best:" : "Best so far:",
                        tuner::FormatTime(best.time_us), tuner::FormatTime(best.ci_low_us),
                        tuner::FormatTime(best.ci_high_us), tuned.roofline.Rate(best.time_us));
    double share = tuned.roofline.Share(best.time_us);
    if (share > 0) absl::StrAppendFormat(&line, ", %.0f %% of the roofline", share * 100);
    const std::pair<const char*, double> others[] = {{"default schedule", report.default_us},
                                                     {"naive program", report.naive_us}};
    for (const auto& [name, time_us] : others) {
      if (const double speedup = SpeedUp(report, time_us); speedup > 0) {
        absl::StrAppendFormat(&line, ", %.2fx the %s (%s)", speedup, name,
                              tuner::FormatTime(time_us));
      }
    }
    if (best.noisy) line += ", noisy";
    Say(line);
    if (!report.best->point.empty()) Say("Point: " + report.best->point);
  }
  if (command_line.empty()) return;
  if (interrupted) {
    Say(absl::StrCat("Interrupted: ", report.trials,
                     " trials of this run are kept in the database; "
                     "the same command continues from them."));
  } else if (report.best) {
    std::string policy = l2 == "cold" ? "" : " --l2 " + l2;
    Say(absl::StrCat("Its source:  heddle show ", command_line, policy, " --best --what source"));
    Say(absl::StrCat("To take away: heddle export ", command_line, policy, " --out DIR"));
  }
}

}  // namespace heddle::cli
