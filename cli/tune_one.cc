#include "cli/tune_one.h"

#include <unistd.h>

#include <algorithm>
#include <future>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/host.h"
#include "base/status.h"
#include "cli/interrupt.h"
#include "measure/judge/memory.h"
#include "measure/run/start_measurer.h"
#include "tuner/search/default_point.h"
#include "tuner/search/proposers/evolution.h"
#include "tuner/search/proposers/experience.h"
#include "tuner/search/session.h"

namespace heddle::cli {
namespace {

using measure::DeviceInfo;
using search_space::SearchSpace;
using search_space::TensorProgram;

constexpr int kMostCompilers = 64;
// Finals take no longer than the search had, but so long they may.
constexpr absl::Duration kShortestFinals = absl::Seconds(1);

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

tuner::SessionOptions LimitsOf(const TuneFlags& flags) {
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
  return options;
}

// Proposes by what there is of experience. `tuned` gets what that was.
std::unique_ptr<tuner::Proposer> MakeTaughtProposer(const SearchSpace& space, uint64_t seed,
                                                    int threads, tuner::Experience experience,
                                                    tuner::ProgressPrinter& printer, Tuned& tuned) {
  printer.Note(experience.note);
  tuned.neighbours = experience.neighbours.size();
  tuned.has_model = experience.model != nullptr;
  if (tuned.neighbours > 0) {
    printer.Note(
        absl::StrCat(tuned.neighbours, " schedules of the nearest workloads are tried first."));
  }
  return tuner::MakeEvolutionProposer(
      space, {seed, std::move(experience.neighbours), {}, experience.model, threads});
}

}  // namespace

absl::StatusOr<Tuned> TuneOne(const TuneFlags& flags, const Workload& program,
                              const DeviceInfo& device, size_t devices, tuner::Records& records,
                              measure::KeptProcesses& kept) {
  // Said before anything else is tried: the measurer would say it later.
  if (absl::Status s = measure::CheckMemory(*program, device.id, device.target.memory_bytes);
      !s.ok()) {
    return WithCode(absl::StatusCode::kInvalidArgument, s);
  }
  HEDDLE_ASSIGN_OR_RETURN(space, SearchSpace::Create(program, device.target));
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
  Tuned tuned{program, {}, tuner::RooflineOf(*program, device.target, l2)};
  auto proposer = tuner::MakeRandomProposer(space, flags.seed);
  if (recalling.valid()) {
    HEDDLE_ASSIGN_OR_RETURN(experience, recalling.get());
    proposer =
        MakeTaughtProposer(space, flags.seed, threads, std::move(experience), printer, tuned);
  }
  DeviceWarnings warnings;
  tuner::SessionOptions options = LimitsOf(flags);
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
  tuned.report = *std::move(report);
  return tuned;
}

}  // namespace heddle::cli
