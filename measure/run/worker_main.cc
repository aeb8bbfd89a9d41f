#include "measure/run/worker_main.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/process/subprocess.h"
#include "base/status.h"
#include "measure/codegen/dialects.h"
#include "measure/device/backend.h"
#include "measure/device/device.h"
#include "measure/judge/criteria.h"
#include "measure/judge/timing.h"
#include "measure/judge/validate.h"
#include "measure/run/processes/confine.h"
#include "measure/run/processes/messages.h"
#include "proto/worker.pb.h"
#include "search_space/notation/notation.h"

namespace heddle::measure {
namespace {

// How often clocks and other users are asked for: the query costs milliseconds.
constexpr absl::Duration kStateInterval = absl::Seconds(1);

// ---------------------------------------------------------------------------------- __compiler

worker::CompileReply Compile(const worker::CompileRequest& request) {
  worker::CompileReply reply;
  const KernelSource source{FromProto(request.launch()), request.source(), ""};
  DeviceInfo device;
  device.id = request.device();
  device.target.arch = request.arch();
  const Backend* const backend = FindBackend(device.id);
  absl::StatusOr<CompiledSource> compiled =
      backend != nullptr
          ? backend->compile(source, device)
          : absl::UnavailableError(absl::StrCat("nothing compiles for '", device.id, "'"));
  if (compiled.ok()) {
    reply.set_binary(std::move(compiled->binary));
    *reply.mutable_resources() = ToProto(compiled->resources);
  }
  *reply.mutable_status() = ToProto(compiled.status());
  return reply;
}

// What the device waits for goes first: its worker, and the search for the next candidates.
constexpr int kCompilerNiceness = 10;

// A child of this process compiles and answers. As it ends so does this process, too, where that is
// not well: the supervisor then sees the same as of a compiler that has no children. False: there
// are no processes left.
bool CompileInChild(const worker::CompileRequest& request) {
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Threads that the driver has started are not there any more: nothing is to wait for them.
    _exit(SendToSupervisor(Compile(request)).ok() ? 0 : 1);
  }
  int how = 0;
  while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(how)) {
    signal(WTERMSIG(how), SIG_DFL);
    raise(WTERMSIG(how));
  }
  if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) _exit(WIFEXITED(how) ? WEXITSTATUS(how) : 1);
  return true;
}

int CompilerMain(bool confined) {
  // Where it may not be lowered nothing but time is lost.
  (void)!nice(kCompilerNiceness);
  worker::CompileRequest request;
  std::optional<Compiling> how;
  while (ReceiveFromSupervisor(request).ok()) {
    worker::CompileReply reply;
    // All that one process gets is for the same device.
    const Backend* const backend = FindBackend(request.device());
    if (confined && backend != nullptr) {
      absl::Status status = ConfineCompiler(*backend);
      if (!status.ok()) *reply.mutable_status() = ToProto(absl::UnavailableError(status.message()));
      confined = !status.ok();
    }
    if (reply.status().code() == 0) {
      if (!how && backend != nullptr && backend->prepare != nullptr) {
        how = backend->prepare(request.device());
      }
      if (how == Compiling::kInChildren && CompileInChild(request)) continue;
      reply = Compile(request);
    }
    // A kernel that was not to be compiled here is the last one.
    reply.set_last(how.value_or(Compiling::kInTurn) != Compiling::kInTurn);
    if (!SendToSupervisor(reply).ok() || reply.last()) break;
  }
  return 0;
}

// ----------------------------------------------------------------------------------- __devices

int DevicesMain(const std::string& api) {
  worker::DeviceList list;
  for (const Backend* backend : Backends()) {
    if (DialectOf(backend->api).name != api) continue;
    for (const DeviceInfo& device : backend->detect()) *list.add_devices() = ToProto(device);
  }
  return SendToSupervisor(list).ok() ? 0 : 1;
}

// ------------------------------------------------------------------------------------ __worker

class Stopwatch {
 public:
  double Lap() {
    const SteadyTime now = SteadyNow();
    return absl::ToDoubleSeconds(now - std::exchange(last_, now));
  }

 private:
  SteadyTime last_ = SteadyNow();
};

void Announce(worker::Phase phase) {
  worker::WorkerEvent event;
  event.set_phase(phase);
  // A supervisor that is gone is noticed when the next request is read.
  SendToSupervisor(event).IgnoreError();
}

// A program on the device with its intermediate buffers.
struct Loaded {
  std::unique_ptr<LoadedProgram> program;
  Workspaces workspaces;
  std::set<std::string> rounded_anew;  // of the buffers that it writes
};

// Can be read while the worker should lose no time (device_worker.h).
constexpr int kHurryFd = InheritedFd(1);

// Owns the device for as long as the process lives.
class Worker {
 public:
  explicit Worker(bool confined) : confined_(confined) {}
  // Before SetUp, which tells how it went.
  void OpenAhead(const std::string& id) { opened_ = Open(id); }
  absl::StatusOr<double> SetUp(const worker::Setup& setup);
  TrialResult Measure(const worker::Trial& trial, double& spare_s);
  std::vector<TrialResult> MeasureFinals(const worker::Finals& finals);
  DeviceState State();

 private:
  absl::Status Open(const std::string& id);
  absl::StatusOr<Loaded> Load(const worker::Program& message);
  absl::Status ChangeInputs();
  // Into `result`; true when there is no reason against going on.
  bool Load(const worker::Program& message, Loaded& loaded, TrialResult& result);
  bool Validate(Loaded& loaded, TrialResult& result);
  void Adopt(const absl::Status& status, TrialResult& result);
  bool Adopt(const Verdict& verdict, TrialResult& result);

  const bool confined_;
  search_space::TensorProgram workload_;
  worker::Program naive_;
  std::optional<absl::Status> opened_;  // the device, with all that confines its candidates
  std::unique_ptr<Device> device_;
  std::unique_ptr<Validator> validator_;
  DeviceState state_;
  SteadyTime state_asked_ = SteadyTime::InfinitePast();
};

absl::StatusOr<Loaded> Worker::Load(const worker::Program& message) {
  Loaded loaded;
  const std::vector<KernelBinary> kernels = KernelsOf(message);
  HEDDLE_ASSIGN_OR_RETURN(program, device_->Load(kernels));
  loaded.program = std::move(program);
  for (const KernelBinary& kernel : kernels) {
    loaded.rounded_anew.insert(kernel.launch.rounded_anew.begin(),
                               kernel.launch.rounded_anew.end());
  }
  std::vector<search_space::BufferRef> buffers;
  for (const worker::Workspace& workspace : message.workspaces()) {
    HEDDLE_ASSIGN_OR_RETURN(buffer, FromProto(workspace));
    buffers.push_back(std::move(buffer));
  }
  HEDDLE_ASSIGN_OR_RETURN(workspaces, validator_->AllocateWorkspaces(buffers));
  loaded.workspaces = std::move(workspaces);
  return loaded;
}

absl::Status Worker::Open(const std::string& id) {
  const Backend* const backend = confined_ ? FindBackend(id) : nullptr;
  if (backend != nullptr) HEDDLE_RETURN_IF_ERROR(ConfineBeforeDevice(*backend));
  HEDDLE_ASSIGN_OR_RETURN(device, OpenDevice(id));
  device_ = std::move(device);
  return backend != nullptr ? ConfineAfterDevice(*backend) : absl::OkStatus();
}

// Returns the seconds that one execution of the naive program takes. The naive program is the
// canary as well: its answer is known from the definition, and its time has to be possible.
absl::StatusOr<double> Worker::SetUp(const worker::Setup& setup) {
  HEDDLE_ASSIGN_OR_RETURN(workload, search_space::ParseWorkload(setup.workload()));
  workload_ = std::move(workload);
  validator_.reset();  // of the workload before, whose memory this one needs
  if (!opened_) opened_ = Open(setup.device());
  HEDDLE_RETURN_IF_ERROR(*opened_);

  ValidateOptions options;
  options.seed = setup.seed();
  options.l2 = ParseL2Policy(setup.l2()).value_or(L2Policy::kCold);
  HEDDLE_ASSIGN_OR_RETURN(validator, Validator::Create(*device_, workload_, options));
  validator_ = std::move(validator);
  naive_ = setup.naive();
  HEDDLE_ASSIGN_OR_RETURN(naive, Load(naive_));
  HEDDLE_RETURN_IF_ERROR(validator_->SetReference(*naive.program, naive.workspaces));

  HEDDLE_ASSIGN_OR_RETURN(
      batch, device_->PrepareBatch(*naive.program, validator_->TimingSets(naive.workspaces),
                                   /*first=*/0, /*launches=*/1));
  HEDDLE_ASSIGN_OR_RETURN(seconds, batch->Run());
  const double least = FastestPlausible(workload_, device_->info().target, options.l2);
  if (seconds < least) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the clock of %s is wrong: the naive program took %.3g us, at least %.3g us are possible",
        setup.device(), seconds * 1e6, least * 1e6));
  }
  return seconds;
}

void Worker::Adopt(const absl::Status& status, TrialResult& result) {
  result.outcome = OutcomeOf(status);
  result.detail = std::string(status.message());
}

bool Worker::Adopt(const Verdict& verdict, TrialResult& result) {
  result.max_error = std::max(result.max_error, verdict.max_error);
  if (verdict.outcome == Outcome::kOk) return true;
  result.outcome = verdict.outcome;
  result.detail = verdict.detail;
  return false;
}

bool Worker::Load(const worker::Program& message, Loaded& loaded, TrialResult& result) {
  Stopwatch watch;
  absl::StatusOr<Loaded> attempt = Load(message);
  result.load_s = watch.Lap();
  if (!attempt.ok()) {
    Adopt(attempt.status(), result);
    return false;
  }
  loaded = *std::move(attempt);
  const ProgramResources& resources = loaded.program->resources();
  result.registers = resources.registers;
  result.local_bytes = resources.local_bytes;
  result.shared_bytes = resources.shared_bytes;
  return true;
}

bool Worker::Validate(Loaded& loaded, TrialResult& result) {
  Stopwatch watch;
  Verdict verdict = validator_->Validate(*loaded.program, loaded.workspaces, loaded.rounded_anew);
  result.validate_s += watch.Lap();
  return Adopt(verdict, result);
}

// Adds to `spare_s` what samples took beyond what was needed.
TrialResult Worker::Measure(const worker::Trial& trial, double& spare_s) {
  TrialResult result;
  result.outcome = Outcome::kOk;
  Loaded loaded;
  Announce(worker::LOADING);
  if (!Load(trial.program(), loaded, result)) return result;
  Announce(worker::VALIDATING);
  if (!Validate(loaded, result)) return result;

  Announce(worker::FIRST_SAMPLE);
  Stopwatch watch;
  if (absl::Status s = validator_->PoisonTimingSets(); !s.ok()) {
    Adopt(s, result);
    return result;
  }
  TimingOptions options;
  options.budget = absl::Seconds(trial.budget_s());
  options.idle = [] { return !IsReadable(kHurryFd); };
  options.best_s = trial.best_s();
  options.screen_out_factor = trial.screen_out_factor();
  options.on_first_sample = [] { Announce(worker::TIMING); };
  auto timing = TimeProgram(
      *device_, {loaded.program.get(), validator_->TimingSets(loaded.workspaces)}, options);
  result.time_s = watch.Lap();
  if (!timing.ok()) {
    Adopt(timing.status(), result);
    return result;
  }
  spare_s += timing->spare_s;
  if (Adopt(validator_->CheckAfterTiming(timing->all_sets), result)) SetTiming(*timing, result);
  result.validate_s += watch.Lap();
  return result;
}

absl::Status Worker::ChangeInputs() {
  HEDDLE_ASSIGN_OR_RETURN(naive, Load(naive_));
  return validator_->ChangeInputs(validator_->seed() + 1, *naive.program, naive.workspaces);
}

std::vector<TrialResult> Worker::MeasureFinals(const worker::Finals& finals) {
  std::vector<TrialResult> results(finals.programs_size());
  std::vector<Loaded> loaded(results.size());
  std::vector<size_t> timed;  // indices of those worth timing
  // What is served rests on data that no candidate has touched, and that no finalist was chosen on.
  // Large inputs, and results that are made of many terms, take their time on the host.
  Announce(worker::STARTING);
  const absl::Status fresh = ChangeInputs();
  for (size_t i = 0; i < results.size(); ++i) {
    Announce(worker::VALIDATING);  // the limit is for each
    results[i].outcome = Outcome::kOk;
    if (!fresh.ok()) {
      Adopt(fresh, results[i]);
      continue;
    }
    if (Load(finals.programs(static_cast<int>(i)), loaded[i], results[i]) &&
        Validate(loaded[i], results[i])) {
      timed.push_back(i);
    }
  }

  Announce(worker::TIMING);
  Stopwatch watch;
  TimingOptions options;
  options.budget = absl::Seconds(finals.budget_s());
  absl::Status poisoned;
  std::vector<TimedProgram> programs;
  for (size_t i : timed) {
    programs.push_back({loaded[i].program.get(), validator_->TimingSets(loaded[i].workspaces)});
    programs.back().before = [&] { poisoned.Update(validator_->PoisonTimingSets()); };
    programs.back().after = [&, i] {
      if (results[i].outcome == Outcome::kOk) Adopt(validator_->CheckFirstSet(), results[i]);
    };
  }
  auto timings = TimeInterleaved(*device_, programs, options);
  const double seconds = watch.Lap();
  for (size_t k = 0; k < timed.size(); ++k) {
    Announce(worker::VALIDATING);
    TrialResult& result = results[timed[k]];
    result.time_s = seconds / static_cast<double>(timed.size());
    const absl::Status status = timings.ok() ? poisoned : timings.status();
    if (!status.ok()) {
      Adopt(status, result);
    } else if (result.outcome == Outcome::kOk && Validate(loaded[timed[k]], result)) {
      SetTiming((*timings)[k], result);
    }
  }
  return results;
}

DeviceState Worker::State() {
  if (SteadyNow() - state_asked_ >= kStateInterval) {
    state_ = device_->State();
    state_asked_ = SteadyNow();
  }
  return state_;
}

// After these the driver's context is of no use to anybody.
bool LosesDevice(Outcome outcome) {
  return outcome == Outcome::kIllegalAccess || outcome == Outcome::kWorkerLost;
}

int WorkerMain(bool confined) {
  Worker self(confined);
  worker::WorkerRequest request;
  bool lost = false;
  while (!lost && ReceiveFromSupervisor(request).ok()) {
    if (request.has_open()) {
      self.OpenAhead(request.open());
      continue;
    }
    worker::WorkerEvent event;
    if (request.has_setup()) {
      absl::StatusOr<double> naive = self.SetUp(request.setup());
      *event.mutable_ready()->mutable_status() = ToProto(naive.status());
      if (naive.ok()) event.mutable_ready()->set_naive_s(*naive);
      lost = !naive.ok();
    } else {
      std::vector<TrialResult> results;
      if (request.has_trial()) {
        double spare_s = 0;
        results = {self.Measure(request.trial(), spare_s)};
        event.mutable_results()->set_spare_s(spare_s);
      } else {
        results = self.MeasureFinals(request.finals());
      }
      for (const TrialResult& result : results) {
        *event.mutable_results()->add_results() = ToProto(result);
        lost = lost || LosesDevice(result.outcome);
      }
      event.mutable_results()->set_device_lost(lost);
      if (!lost) *event.mutable_results()->mutable_state() = ToProto(self.State());
    }
    if (!SendToSupervisor(event).ok()) break;
  }
  // Without the destructors: a driver in a bad state may hang in them, and the end of the process
  // frees everything anyway.
  _exit(0);
}

}  // namespace

std::optional<int> RunHiddenCommand(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command != "__worker" && command != "__compiler" && command != "__devices") {
    return std::nullopt;
  }
  EnterChild(argc, argv);
  const std::string argument = argc > 3 ? argv[3] : "";
  if (command == "__worker") return WorkerMain(argument != kUnconfined);
  if (command == "__compiler") return CompilerMain(argument != kUnconfined);
  return DevicesMain(argument);
}

}  // namespace heddle::measure
