// heddle tune: finds the fastest schedule of one workload or of a file of them.
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/host.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/confined.h"
#include "cli/interrupt.h"
#include "cli/tuned.h"
#include "measure/judge/memory.h"
#include "measure/run/detect.h"
#include "measure/run/processes/kept_processes.h"
#include "measure/run/start_measurer.h"
#include "tuner/search/default_point.h"
#include "tuner/search/proposers/evolution.h"
#include "tuner/search/proposers/experience.h"
#include "tuner/search/session.h"
#include "tuner/search/shared_budget.h"

namespace heddle::cli {
namespace {

using measure::DeviceInfo;
using search_space::TensorProgram;
using tuner::SessionReport;

constexpr int kMostCompilers = 64;
// Finals take no longer than the search had, but so long they may.
constexpr absl::Duration kShortestFinals = absl::Seconds(1);

struct TuneFlags {
  WorkloadFlags workload;
  DeviceFlags device;
  int trials = 200, plateau = 0;
  double seconds = 0;
  uint64_t seed = 1;
  std::string search = "evolutionary", progress = "text", l2, workloads, db, plot;
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

// Says where a session stands as a line of JSON, whenever a trial has ended or the best is another.
class JsonProgress {
 public:
  JsonProgress(const TensorProgram& program, const DeviceInfo& device)
      : program_(program), device_(device) {}

  void Show(const tuner::Progress& progress) {
    if (progress.trials == trials_ && progress.best_us == best_us_) return;
    trials_ = progress.trials;
    best_us_ = progress.best_us;
    Json failed = Json::object();
    for (const auto& [kind, count] : progress.failed) failed[measure::NameOf(kind)] = count;
    Say(Json{{"op", program_.op},
             {"shape", ShapeJson(program_.shape)},
             {"dtype", search_space::NameOf(program_.dtype)},
             {"device", device_.id},
             {"trials", progress.trials},
             {"seconds", progress.seconds},
             {"best_us", KnownOrNull(progress.best_us)},
             {"failed", failed},
             {"text", tuner::ProgressLine(progress, 1000)}}
            .dump());
  }

 private:
  const TensorProgram& program_;
  const DeviceInfo& device_;
  int trials_ = -1;  // as it was said last
  double best_us_ = 0;
};

// Why a measurer does not start: what does not fit the device is the shape's fault.
absl::Status FaultOfTheShape(const absl::Status& why) {
  return absl::IsResourceExhausted(why) ? WithCode(absl::StatusCode::kInvalidArgument, why) : why;
}

// `device` is one of `devices` that are tuned on at a time: it compiles on twice its part of the
// cores, at most kMostCompilers.
absl::StatusOr<Tuned> TuneOne(const TuneFlags& flags, const Workload& program,
                              const DeviceInfo& device, size_t devices, tuner::Records& records,
                              measure::KeptProcesses& kept) {
  // Said before anything else is tried: the measurer would say it later.
  if (absl::Status s = measure::CheckMemory(*program, device.id, device.target.memory_bytes);
      !s.ok()) {
    return WithCode(absl::StatusCode::kInvalidArgument, s);
  }
  HEDDLE_ASSIGN_OR_RETURN(space, search_space::SearchSpace::Create(program, device.target));
  measure::L2Policy l2 = PolicyOf(flags.l2);
  const tuner::Environment environment = tuner::MakeEnvironment(device, l2);
  // While the device starts, the first trial is chosen, and other workloads' trials gone through.
  auto choosing = std::async(std::launch::async, [&] { return tuner::DefaultPoint(space); });
  const int cores = std::max(1, UsableCores() / static_cast<int>(devices));
  const int threads = std::max(1, cores / 2);
  // Compilers of one device idle while those of others have their burst.
  const int compilers = std::min({UsableCores(), 2 * cores, kMostCompilers});
  std::future<absl::StatusOr<tuner::Experience>> recalling;
  if (flags.search != "random") {
    recalling = std::async(std::launch::async, [&]() -> absl::StatusOr<tuner::Experience> {
      HEDDLE_ASSIGN_OR_RETURN(own, tuner::Records::Open(records.path()));
      return tuner::Recall(*own, environment, space, threads);
    });
  }
  measure::MeasureOptions measure_options;
  measure_options.l2 = l2;
  measure_options.seed = flags.seed;
  measure_options.kept = &kept;
  if (devices > 1) measure_options.compile_workers = compilers;
  measure_options.await_device = false;  // the session does, and chooses and compiles meanwhile
  auto measurer = measure::StartMeasurer(program, device, measure_options);
  if (!measurer.ok()) return FaultOfTheShape(measurer.status());
  const bool in_json = flags.progress == "json";
  JsonProgress json(*program, device);
  tuner::ProgressPrinter printer(stderr, !in_json && devices == 1 && isatty(STDERR_FILENO) != 0,
                                 TerminalWidth() - 1, devices == 1 ? "" : device.id + "  ");
  auto proposer = tuner::MakeRandomProposer(space, flags.seed);
  size_t neighbours = 0;
  bool has_model = false;
  if (recalling.valid()) {
    HEDDLE_ASSIGN_OR_RETURN(experience, recalling.get());
    printer.Note(experience.note);
    neighbours = experience.neighbours.size();
    has_model = experience.model != nullptr;
    if (neighbours > 0) {
      printer.Note(
          absl::StrCat(neighbours, " schedules of the nearest workloads are tried first."));
    }
    proposer = tuner::MakeEvolutionProposer(
        space, {flags.seed, std::move(experience.neighbours), {}, experience.model, threads});
  }
  DeviceWarnings warnings;
  tuner::SessionOptions options;
  options.trials = flags.trials;
  options.seconds = flags.seconds;
  options.plateau = flags.plateau;
  options.since_improvement = flags.since_improvement;
  options.finals = !flags.no_finals;
  if (flags.seconds > 0) {
    options.finals_budget =
        std::clamp(absl::Seconds(flags.seconds), kShortestFinals, options.finals_budget);
  }
  options.default_point = choosing.get();
  options.interrupted = Interrupted;
  options.on_progress = [&](const tuner::Progress& progress) {
    warnings.Look((*measurer)->device_state(), printer);
    in_json ? json.Show(progress) : printer.Show(progress);
  };
  options.on_finals = [&](size_t count) {
    printer.Note(count > 1 ? absl::StrCat("Measuring the best ", count, " against each other.")
                           : "Measuring the best once more.");
  };
  const auto log = tuner::MakeTrialLog(records, *program, environment);
  tuner::Session session(space, **measurer, *log, environment.l2, *proposer, options);
  auto report = session.Run();
  printer.Clear();
  if (absl::IsResourceExhausted(report.status()) && (*measurer)->AwaitDevice() == report.status()) {
    return FaultOfTheShape(report.status());
  }
  HEDDLE_RETURN_IF_ERROR(report);
  return Tuned{program, *std::move(report), tuner::RooflineOf(*program, device.target, l2),
               neighbours, has_model};
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
  if (!last.last_failure.empty()) all.last_failure = last.last_failure;
  all.default_us = last.default_us;
  all.naive_us = last.naive_us;
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

std::vector<double> WeightsOf(const std::vector<TuneJob>& jobs) {
  std::vector<double> weights;
  for (const TuneJob& job : jobs) weights.push_back(static_cast<double>(job.weight));
  return weights;
}

// The turns of all devices, each of which has an owner: a thread that calls Work.
class Tuning {
 public:
  Tuning(const TuneFlags& flags, const std::vector<TuneJob>& jobs, size_t devices)
      : flags_(flags),
        jobs_(jobs),
        at_a_time_(std::min(devices, jobs.size())),
        budget_(flags.trials, flags.seconds, WeightsOf(jobs)),
        working_(devices),
        turns_(jobs.size()) {}

  // Turn after turn until the budget is used up, or an error that is not one workload's own: the
  // device's or the database's. What a device fails at is another's to try, since a broken one
  // fails at everything.
  void Work(const DeviceInfo& device, tuner::Records& records) {
    std::set<size_t> failed_here;
    measure::KeptProcesses kept;  // from turn to turn
    std::unique_lock lock(mutex_);
    while (!Interrupted()) {
      const auto turn = budget_.Next(failed_here);
      if (!turn && running_ == 0) return;
      if (!turn) {
        changed_.wait(lock);
        continue;
      }
      ++running_;
      SayTurn(*turn, device);
      TuneFlags limited = flags_;
      limited.trials = turn->trials;
      limited.seconds = turn->seconds;
      const std::optional<Tuned>& before = turns_[turn->workload].tuned;
      if (before) limited.since_improvement = before->report.since_improvement;
      lock.unlock();
      auto tuned =
          TuneOne(limited, jobs_[turn->workload].program, device, at_a_time_, records, kept);
      lock.lock();
      --running_;
      changed_.notify_all();
      if (tuned.ok()) {
        Book(*turn, *std::move(tuned), device);
        continue;
      }
      budget_.GiveBack(*turn);
      if (jobs_.size() == 1 || !IsItsOwn(tuned.status())) {
        Leave(turn->workload, tuned.status(), device);
        return;
      }
      Say(absl::StrCat("heddle: ", Place(turn->workload, device), tuned.status().message()));
      turns_[turn->workload].failed = tuned.status();
      failed_here.insert(turn->workload);
    }
  }

  size_t at_a_time() const { return at_a_time_; }
  const std::vector<Turns>& turns() const { return turns_; }

 private:
  std::string Count(size_t workload) const {
    return jobs_.size() > 1 ? absl::StrCat("[", workload + 1, "/", jobs_.size(), "] ") : "";
  }
  // What a line is about, where devices' lines mix.
  std::string Place(size_t workload, const DeviceInfo& device) const {
    return at_a_time_ > 1 ? absl::StrCat(Count(workload), "on ", device.id, ": ") : "";
  }

  void SayTurn(const tuner::SharedBudget::Turn& turn, const DeviceInfo& device) const {
    const TensorProgram& program = *jobs_[turn.workload].program;
    Say(absl::StrCat(Count(turn.workload), turns_[turn.workload].tuned ? "More of " : "Tuning ",
                     program.op, " ", ShapeText(program), " ", search_space::NameOf(program.dtype),
                     " on ", device.id, " (", device.target.name, "), ", flags_.l2, " L2"));
  }

  void Book(const tuner::SharedBudget::Turn& turn, Tuned tuned, const DeviceInfo& device) {
    Turns& own = turns_[turn.workload];
    own.failed = absl::OkStatus();
    budget_.Report(turn, tuned.report);
    if (at_a_time_ > 1) Say(Place(turn.workload, device));
    SayResult(tuned, flags_.l2, jobs_[turn.workload].command_line);
    AddTurn(std::move(tuned), own);
  }

  // The last device's error is the run's, the others' cost nothing but time.
  void Leave(size_t workload, absl::Status failed, const DeviceInfo& device) {
    if (--working_ == 0) {
      turns_[workload].failed = std::move(failed);
      return;
    }
    Say(absl::StrCat("heddle: ", device.id, " takes no further turn, ", working_,
                     working_ == 1 ? " other goes" : " others go", " on: ", failed.message()));
  }

  const TuneFlags& flags_;
  const std::vector<TuneJob>& jobs_;
  const size_t at_a_time_;  // devices that can have turns at once
  std::mutex mutex_;        // of all below
  std::condition_variable changed_;
  tuner::SharedBudget budget_;
  size_t working_;   // devices that have not failed
  int running_ = 0;  // turns
  std::vector<Turns> turns_;
};

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
  const std::vector<Turns>& turns = tuning.turns();
  if (jobs.size() > 1) SaySum(turns, tuning.at_a_time(), SteadyNow() - begin);

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
    all.push_back(ToJson(*tuned, devices[0].target.name, flags.l2, job.weight));
    if (!failed.ok()) all.back()["error"] = std::string(failed.message());
    if (!flags.plot.empty()) {
      std::string title = absl::StrCat(job.program->op, " ", ShapeText(*job.program), " on ",
                                       devices[0].target.name);
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
