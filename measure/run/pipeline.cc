#include "measure/run/pipeline.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/parallel.h"
#include "base/status.h"
#include "measure/device/device_lock.h"
#include "measure/judge/criteria.h"
#include "measure/judge/memory.h"
#include "measure/judge/validate.h"
#include "measure/run/build.h"
#include "measure/run/device_worker.h"
#include "measure/run/processes/kept_processes.h"
#include "measure/run/processes/messages.h"
#include "measure/run/processes/processes.h"
#include "proto/worker.pb.h"

namespace heddle::measure {
namespace {

using search_space::Step;
using search_space::TensorProgram;

// Binaries that wait for a device on which compiling and measuring overlap.
constexpr int kReadyBinaries = 4;
// Bytes a thread may store to and load from local memory because its registers do not suffice: as
// much as all 255 registers hold. Beyond that a schedule is not timed.
constexpr int64_t kMaxSpillBytes = 255 * 4;
Outcome BuildOutcome(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
      return Outcome::kBuildTimeout;
    case absl::StatusCode::kResourceExhausted:
      return Outcome::kResourceLimit;
    case absl::StatusCode::kUnavailable:  // it was killed twice
      return Outcome::kWorkerLost;
    default:
      return Outcome::kBuildError;
  }
}

// A candidate that is ready for the device, or that has failed already.
struct Prepared {
  int64_t id = 0;
  worker::Program program;
  TrialResult result;  // kOk: ready
  absl::Status host;   // not OK: it could not be tried here
};

// Threads take candidates from `queued_`, generate and compile them into `ready_`; one thread gives
// those to the device and puts results into `done_`.
class Pipeline final : public Measurer {
 public:
  Pipeline(const TensorProgram& program, const DeviceInfo& device, const MeasureOptions& options,
           Generator generator, std::unique_ptr<Processes> processes);
  ~Pipeline() override;
  // Compiles the naive program and starts the worker with it, and the compilers meanwhile.
  void Start(const GeneratedProgram& naive);

  absl::Status AwaitDevice() override;
  void Submit(Candidate candidate) override;
  int pending() const override;
  std::vector<int64_t> Withdraw(const std::vector<int64_t>& ids) override;
  std::optional<int64_t> running() const override;
  int wanted_in_flight() const override { return wanted_; }
  absl::StatusOr<std::optional<Measured>> Next(absl::Duration timeout) override;
  absl::StatusOr<std::vector<TrialResult>> MeasureFinalists(const std::vector<Candidate>& finalists,
                                                            absl::Duration budget) override;
  void Stop() override;
  DeviceState device_state() const override;
  double naive_us() const override;
  DeviceWaits device_waits() const override;

 private:
  void WarmUp(const KernelSource& any);
  void CompileLoop();
  absl::Status StartDevice(const GeneratedProgram& naive);
  void DeviceLoop();
  struct Compiled {
    absl::StatusOr<CompiledKernel> kernel;
    double busy_s = 0;  // as of CompilePool::Compile
  };
  // `turn`: as of CompilePool::Compile.
  std::vector<Compiled> CompileAll(const std::vector<KernelSource>& kernels, int64_t turn);
  absl::Status CompileInto(const std::vector<KernelSource>& kernels, int64_t turn,
                           Prepared& prepared);
  absl::Status Build(const GeneratedProgram& generated, int64_t turn, Prepared& prepared);
  Prepared Prepare(int64_t id, const std::vector<Step>& steps);
  bool MayCompile();
  bool MayMeasure();
  void SayWhetherToHurry();
  double DeviceWaits::*WaitsFor() const;
  bool Ends() const { return left_ || stop_.IsSet(); }
  void Leave();

  const std::string workload_;
  const DeviceInfo device_;
  const MeasureOptions options_;
  const Generator generator_;
  const double fastest_us_;  // anything faster is implausible
  // On a processor a compiler would disturb what is timed.
  const bool alternate_;
  const int wanted_;
  std::unique_ptr<Processes> processes_;
  StopSignal& stop_;
  CompilePool& pool_;
  // Of programs, in the order in which they are compiled; the naive one, which the device waits
  // for, is before all.
  std::atomic<int64_t> turns_{1};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<DeviceWorker> worker_;   // its calls are the device's thread's
  bool naive_is_built_ = false;          // or cannot be
  std::optional<absl::Status> started_;  // the device, or why not
  std::deque<Candidate> queued_;
  std::set<int64_t> compiling_, withdrawn_;  // the latter are among the former
  std::deque<Prepared> ready_;
  std::optional<int64_t> measuring_;
  double naive_us_ = 0;
  DeviceWaits waits_;
  std::optional<SteadyTime> waiting_since_;  // the last that waits_ does not count yet
  double DeviceWaits::*waiting_for_ = &DeviceWaits::for_candidates_s;  // its cause when it began
  bool devices_turn_ = false;                                          // when alternating
  std::deque<Measured> done_;
  int pending_ = 0;
  bool left_ = false;  // the threads are to end, the processes are not
  absl::Status gone_;  // not OK: the device is gone for good
  std::vector<std::thread> threads_;
};

int CompilersFor(const MeasureOptions& options) {
  if (options.compile_workers > 0) return options.compile_workers;
  return std::clamp(UsableCores(), 1, 64);
}

Pipeline::Pipeline(const TensorProgram& program, const DeviceInfo& device,
                   const MeasureOptions& options, Generator generator,
                   std::unique_ptr<Processes> processes)
    : workload_(program.canonical_text),
      device_(device),
      options_(options),
      generator_(std::move(generator)),
      fastest_us_(FastestPlausible(program, device.target, options.l2) * 1e6),
      alternate_(device.target.processor),
      wanted_(alternate_ ? 2 * processes->compilers : processes->compilers + kReadyBinaries),
      processes_(std::move(processes)),
      stop_(processes_->stop),
      pool_(processes_->pool) {}

Pipeline::~Pipeline() {
  Leave();
  for (std::thread& thread : threads_) thread.join();
  if (!left_) return;
  processes_->worker = worker_->TakeProcess();
  options_.kept->Keep(std::move(processes_));
}

// Ends the threads, and the processes unless they are kept and have nothing to do.
void Pipeline::Leave() {
  {
    std::unique_lock lock(mutex_);
    if (options_.kept != nullptr && started_ && !started_->ok() && gone_ == *started_) {
      // It is the program's fault, as far as anybody knows, and the next one has another.
      queued_.clear();
      ready_.clear();
      changed_.wait(lock, [this] { return compiling_.empty() || stop_.IsSet(); });
      ready_.clear();
      gone_ = absl::OkStatus();
    }
    left_ = options_.kept != nullptr && gone_.ok() && !stop_.IsSet() && started_ &&
            queued_.empty() && compiling_.empty() && ready_.empty() && !measuring_ &&
            worker_->gone().ok();
  }
  left_ ? changed_.notify_all() : Stop();
}

void Pipeline::Start(const GeneratedProgram& naive) {
  const bool warm_up = !std::exchange(processes_->warmed_up, true);
  for (int i = 0; i < processes_->compilers; ++i) {
    // The first one has the first candidate, which usually comes alone.
    threads_.emplace_back([this, warm = warm_up && i > 0, any = naive.kernels.front()] {
      if (warm) WarmUp(any);
      CompileLoop();
    });
  }
  threads_.emplace_back([this, naive] {
    const absl::Status status = StartDevice(naive);
    {
      std::lock_guard lock(mutex_);
      if (status.ok()) naive_us_ = worker_->naive_s() * 1e6;
      if (!status.ok() && gone_.ok()) gone_ = status;
      started_ = status;
    }
    changed_.notify_all();
    if (status.ok()) DeviceLoop();
  });
}

absl::Status Pipeline::StartDevice(const GeneratedProgram& naive) {
  worker::Setup setup;
  setup.set_device(device_.id);
  setup.set_workload(workload_);
  setup.set_seed(options_.seed);
  setup.set_l2(NameOf(options_.l2));
  const std::vector<int>& held = (processes_->lock ? &*processes_->lock : options_.lock)->fds();
  std::vector<int> inherited = {held[0], processes_->hurry.fd()};
  inherited.insert(inherited.end(), held.begin() + 1, held.end());
  {
    std::lock_guard lock(mutex_);
    worker_.emplace(std::move(setup), options_, fastest_us_,
                    ChildOptions{&stop_, std::move(inherited), processes_->environment()},
                    std::move(processes_->worker));
  }
  worker_->OpenAhead();
  Prepared prepared;
  absl::Status built = Build(naive, /*turn=*/0, prepared);
  {
    std::lock_guard lock(mutex_);
    naive_is_built_ = true;
  }
  changed_.notify_all();
  if (built.ok()) return worker_->Start(std::move(prepared.program));
  if (absl::IsCancelled(built)) return built;
  return absl::Status(
      absl::IsUnavailable(built) ? absl::StatusCode::kUnavailable : absl::StatusCode::kInternal,
      absl::StrCat("the naive program cannot be compiled for ", device_.id, ": ",
                   std::string(built.message())));
}

absl::Status Pipeline::AwaitDevice() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_.has_value(); });
  return *started_;
}

DeviceState Pipeline::device_state() const {
  std::lock_guard lock(mutex_);
  return worker_ ? worker_->state() : DeviceState();
}

double Pipeline::naive_us() const {
  std::lock_guard lock(mutex_);
  return naive_us_;
}

// ----------------------------------------------------------------------------------- compiling

// What the compiler says against timing a kernel.
absl::Status CheckCompiled(const std::string& entry, const KernelResources& resources) {
  if (resources.spill_bytes > kMaxSpillBytes) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s spills: %d bytes a thread (%d are timed at most)", entry,
                        resources.spill_bytes, kMaxSpillBytes));
  }
  if (resources.serialized) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the compiler makes the matrix products of ", entry, " wait for one another"));
  }
  return absl::OkStatus();
}

// All kernels at once, so that the device soon has something of a program of many: the compilers
// take those of earlier programs first. After one that cannot be used none is begun any more.
std::vector<Pipeline::Compiled> Pipeline::CompileAll(const std::vector<KernelSource>& kernels,
                                                     int64_t turn) {
  std::vector<Compiled> all(kernels.size());
  std::atomic<bool> failed{false};
  InParallel(kernels.size(), processes_->compilers, [&](std::atomic<size_t>& next) {
    while (!failed) {
      const size_t k = next++;
      if (k >= kernels.size()) return;
      Compiled& of = all[k];
      of.kernel = pool_.Compile(kernels[k], turn, &of.busy_s);
      const absl::Status status = of.kernel.ok()
                                      ? CheckCompiled(kernels[k].launch.entry, of.kernel->resources)
                                      : of.kernel.status();
      if (!status.ok()) failed = true;
    }
  });
  return all;
}

absl::Status Pipeline::CompileInto(const std::vector<KernelSource>& kernels, int64_t turn,
                                   Prepared& prepared) {
  std::vector<Compiled> all = CompileAll(kernels, turn);
  for (const Compiled& each : all) prepared.result.compile_s += each.busy_s;
  TrialResult& result = prepared.result;
  for (size_t k = 0; k < kernels.size(); ++k) {
    HEDDLE_RETURN_IF_ERROR(all[k].kernel.status());
    CompiledKernel& compiled = *all[k].kernel;
    const KernelSource& kernel = kernels[k];
    const KernelResources& resources = compiled.resources;
    result.registers = std::max(result.registers, resources.registers);
    result.local_bytes = std::max(result.local_bytes, resources.stack_bytes);
    result.shared_bytes = std::max(
        result.shared_bytes, resources.static_shared_bytes + kernel.launch.dynamic_shared_bytes);
    HEDDLE_RETURN_IF_ERROR(CheckCompiled(kernel.launch.entry, resources));
    worker::Kernel& out = *prepared.program.add_kernels();
    *out.mutable_launch() = ToProto(kernel.launch);
    out.set_binary(std::move(compiled.binary));
  }
  return absl::OkStatus();
}

absl::Status Pipeline::Build(const GeneratedProgram& generated, int64_t turn, Prepared& prepared) {
  prepared.result.source_hash = HashOfSources(generated.kernels);
  for (const auto& workspace : generated.workspaces) {
    *prepared.program.add_workspaces() = ToProto(workspace);
  }
  return CompileInto(generated.kernels, turn, prepared);
}

Prepared Pipeline::Prepare(int64_t id, const std::vector<Step>& steps) {
  const SteadyTime start = SteadyNow();
  Prepared prepared;
  prepared.id = id;
  absl::StatusOr<GeneratedProgram> generated = generator_(steps);
  prepared.result.compile_s = SecondsSince(start);
  absl::Status status = generated.ok() ? Build(*generated, turns_++, prepared) : generated.status();
  prepared.result.outcome = status.ok() ? Outcome::kOk : BuildOutcome(status);
  prepared.result.detail = std::string(status.message());
  if (CannotStart(status)) prepared.host = status;
  return prepared;
}

// On its own with the first candidate after the start, unless that has come already. What the
// device waits for is compiled first.
void Pipeline::WarmUp(const KernelSource& any) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return Ends() || naive_is_built_; });
    if (Ends() || MayCompile()) return;
  }
  pool_.WarmUp(any);
}

// With mutex_ held.
bool Pipeline::MayCompile() {
  if (queued_.empty()) return false;
  return !alternate_ || (started_ && !devices_turn_ &&
                         static_cast<int>(ready_.size() + compiling_.size()) < wanted_);
}

void Pipeline::CompileLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return Ends() || MayCompile(); });
    if (Ends()) return;
    Candidate candidate = std::move(queued_.front());
    queued_.pop_front();
    compiling_.insert(candidate.id);
    lock.unlock();
    Prepared prepared = Prepare(candidate.id, candidate.steps);
    lock.lock();
    compiling_.erase(prepared.id);
    if (withdrawn_.erase(prepared.id) > 0) {
      // The result is nobody's.
    } else if (!prepared.host.ok()) {
      // The device's failure, as far as its user can tell: the candidate is as good as before.
      if (gone_.ok()) gone_ = prepared.host;
    } else if (prepared.result.outcome == Outcome::kOk) {
      ready_.push_back(std::move(prepared));
    } else {
      done_.push_back({prepared.id, std::move(prepared.result)});
    }
    SayWhetherToHurry();
    changed_.notify_all();
  }
}

// ----------------------------------------------------------------------------------- measuring

// With mutex_ held. When alternating, the device gets its turn when nothing is left to compile, or
// enough is ready, and keeps it until nothing is ready any more.
bool Pipeline::MayMeasure() {
  if (ready_.empty()) {
    if (std::exchange(devices_turn_, false)) changed_.notify_all();
    return false;
  }
  if (!alternate_) return true;
  if (compiling_.empty() && (queued_.empty() || static_cast<int>(ready_.size()) >= wanted_)) {
    devices_turn_ = true;
  }
  return devices_turn_;
}

// With mutex_ held, after every change of the queues.
void Pipeline::SayWhetherToHurry() {
  const size_t coming = queued_.size() + compiling_.size() - withdrawn_.size();
  processes_->hurry.Set(alternate_ || MustHurry(ready_.size(), coming));
}

// With mutex_ held: what the device waits for as things are.
double DeviceWaits::*Pipeline::WaitsFor() const {
  const bool nothing_there = queued_.empty() && compiling_.empty() && ready_.empty();
  return nothing_there ? &DeviceWaits::for_candidates_s : &DeviceWaits::for_compilers_s;
}

DeviceWaits Pipeline::device_waits() const {
  std::lock_guard lock(mutex_);
  DeviceWaits waits = waits_;
  if (worker_) waits.sampling_s = worker_->spare_s();
  if (waiting_since_) {
    waits.*waiting_for_ += SecondsSince(*waiting_since_);
  }
  return waits;
}

// What only the compiler's side knows, into what the worker found.
TrialResult Merge(const TrialResult& built, TrialResult measured) {
  measured.compile_s = built.compile_s;
  measured.source_hash = built.source_hash;
  measured.registers = std::max(measured.registers, built.registers);
  measured.local_bytes = std::max(measured.local_bytes, built.local_bytes);
  measured.shared_bytes = std::max(measured.shared_bytes, built.shared_bytes);
  return measured;
}

void Pipeline::DeviceLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    while (!Ends() && !MayMeasure()) {
      waiting_for_ = WaitsFor();
      waiting_since_ = SteadyNow();
      changed_.wait(lock);
      waits_.*waiting_for_ += SecondsSince(*waiting_since_);
      waiting_since_.reset();
    }
    if (Ends()) return;
    Prepared prepared = std::move(ready_.front());
    ready_.pop_front();
    measuring_ = prepared.id;
    SayWhetherToHurry();
    lock.unlock();
    absl::StatusOr<TrialResult> result = worker_->Measure(prepared.program);
    lock.lock();
    if (!result.ok()) {
      gone_ = result.status();
      // A process that cannot be killed still has its candidate.
      if (!IsWedged(gone_)) measuring_.reset();
      changed_.notify_all();
      return;
    }
    measuring_.reset();
    done_.push_back({prepared.id, Merge(prepared.result, *std::move(result))});
    changed_.notify_all();
  }
}

// ------------------------------------------------------------------------------------- callers

void Pipeline::Submit(Candidate candidate) {
  {
    std::lock_guard lock(mutex_);
    queued_.push_back(std::move(candidate));
    ++pending_;
    SayWhetherToHurry();
  }
  changed_.notify_all();
}

int Pipeline::pending() const {
  std::lock_guard lock(mutex_);
  return pending_;
}

std::vector<int64_t> Pipeline::Withdraw(const std::vector<int64_t>& ids) {
  const std::set<int64_t> wanted(ids.begin(), ids.end());
  std::vector<int64_t> withdrawn;
  auto take = [&](const auto& waiting) {
    if (wanted.count(waiting.id) == 0) return false;
    withdrawn.push_back(waiting.id);
    return true;
  };
  {
    std::lock_guard lock(mutex_);
    std::erase_if(queued_, take);
    std::erase_if(ready_, take);
    for (int64_t id : compiling_) {
      if (wanted.count(id) > 0 && withdrawn_.insert(id).second) withdrawn.push_back(id);
    }
    pending_ -= static_cast<int>(withdrawn.size());
    SayWhetherToHurry();
  }
  changed_.notify_all();
  return withdrawn;
}

std::optional<int64_t> Pipeline::running() const {
  std::lock_guard lock(mutex_);
  return measuring_;
}

void Pipeline::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_.Set();
    if (gone_.ok()) gone_ = absl::CancelledError("stopped");
  }
  changed_.notify_all();
}

absl::StatusOr<std::optional<Measured>> Pipeline::Next(absl::Duration timeout) {
  std::unique_lock lock(mutex_);
  // By the steady clock, which wait_for takes; it does not know infinite durations.
  changed_.wait_for(lock, absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24))),
                    [this] { return !done_.empty() || !gone_.ok(); });
  if (done_.empty()) {
    HEDDLE_RETURN_IF_ERROR(gone_);
    return std::optional<Measured>();
  }
  Measured measured = std::move(done_.front());
  done_.pop_front();
  --pending_;
  return std::optional<Measured>(std::move(measured));
}

absl::StatusOr<std::vector<TrialResult>> Pipeline::MeasureFinalists(
    const std::vector<Candidate>& finalists, absl::Duration budget) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] {
      return !gone_.ok() ||
             (started_ && queued_.empty() && compiling_.empty() && ready_.empty() && !measuring_);
    });
    HEDDLE_RETURN_IF_ERROR(gone_);
  }
  std::vector<Prepared> prepared(finalists.size());
  std::vector<std::thread> builders;
  for (size_t i = 0; i < finalists.size(); ++i) {
    builders.emplace_back([&, i] { prepared[i] = Prepare(finalists[i].id, finalists[i].steps); });
  }
  for (std::thread& builder : builders) builder.join();
  for (const Prepared& each : prepared) {
    if (!each.host.ok()) return each.host;
  }
  if (stop_.IsSet()) return absl::CancelledError("stopped");

  std::vector<TrialResult> results(finalists.size());
  std::vector<worker::Program> programs;
  std::vector<size_t> measured;
  for (size_t i = 0; i < finalists.size(); ++i) {
    results[i] = prepared[i].result;
    if (results[i].outcome != Outcome::kOk) continue;
    programs.push_back(std::move(prepared[i].program));
    measured.push_back(i);
  }
  HEDDLE_ASSIGN_OR_RETURN(timed, worker_->MeasureFinals(programs, budget));
  for (size_t k = 0; k < measured.size(); ++k) {
    TrialResult& result = results[measured[k]];
    result = Merge(result, timed[k]);
  }
  return results;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Measurer>> StartPipeline(const TensorProgram& program,
                                                        const DeviceInfo& device,
                                                        const MeasureOptions& options,
                                                        const GeneratedProgram& naive,
                                                        Generator generator) {
  if (!device.usable) {
    return absl::UnavailableError(absl::StrCat(device.id, " cannot be used: ", device.why_not));
  }
  HEDDLE_RETURN_IF_ERROR(CheckMemory(program, device.id, device.target.memory_bytes));
  const int compilers = CompilersFor(options);
  std::unique_ptr<Processes> processes;
  if (options.kept != nullptr) processes = options.kept->Take(device.id, compilers);
  if (processes == nullptr) {
    std::optional<DeviceLock> lock;
    if (options.lock == nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(acquired, DeviceLock::Acquire(device));
      lock = std::move(acquired);
    }
    processes =
        std::make_unique<Processes>(device, compilers, options.compile_limit, std::move(lock));
  }
  auto pipeline = std::make_unique<Pipeline>(program, device, options, std::move(generator),
                                             std::move(processes));
  pipeline->Start(naive);
  if (options.await_device) HEDDLE_RETURN_IF_ERROR(pipeline->AwaitDevice());
  return pipeline;
}

}  // namespace heddle::measure
