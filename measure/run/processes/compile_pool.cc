#include "measure/run/processes/compile_pool.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "measure/run/processes/confine.h"
#include "measure/run/processes/messages.h"
#include "proto/worker.pb.h"

namespace heddle::measure {
namespace {

namespace fs = std::filesystem;

// Of the cached files; a change makes the older ones unused.
constexpr int kCacheVersion = 1;
// What the memory holds at most: a few thousand kernels, then it starts again from the files.
constexpr size_t kMaxMemoryBytes = size_t{128} << 20;
// A host may be short of processes or memory for a moment: so often a compiler is started, after
// pauses that double, before the host is given up.
constexpr int kStarts = 6;
constexpr absl::Duration kFirstStartPause = absl::Milliseconds(50);
// Marks the errors that CannotStart knows.
constexpr char kNotStarted[] = "heddle/not-started";

}  // namespace

// --------------------------------------------------------------------------------------- cache

std::string KernelCache::DefaultFolder() {
  if (const char* xdg = getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/') {
    return absl::StrCat(xdg, "/heddle/kernels");
  }
  const char* home = getenv("HOME");
  return home != nullptr && *home == '/' ? absl::StrCat(home, "/.cache/heddle/kernels") : "";
}

std::string KernelCache::PathOf(const std::string& key) const {
  const std::string hash = HexHashOf(key);
  return absl::StrCat(folder_, "/", hash.substr(0, 2), "/", hash.substr(2));
}

bool KernelCache::Find(const std::string& key, worker::CompileReply& reply) {
  {
    std::lock_guard lock(mutex_);
    auto found = memory_.find(key);
    if (found != memory_.end()) return reply.ParseFromString(found->second);
  }
  if (folder_.empty()) return false;
  const fs::path path = PathOf(key);
  std::ifstream file(path, std::ios::binary);
  worker::CachedKernel cached;
  if (!file || !cached.ParseFromIstream(&file) || cached.key() != key) return false;
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);  // in use: Prune
  reply = std::move(*cached.mutable_reply());
  return true;
}

void KernelCache::Add(const std::string& key, const worker::CompileReply& reply) {
  std::string serialised = reply.SerializeAsString();
  {
    std::lock_guard lock(mutex_);
    if (memory_bytes_ > kMaxMemoryBytes) {
      memory_.clear();
      memory_bytes_ = 0;
    }
    memory_bytes_ += key.size() + serialised.size();
    memory_[key] = std::move(serialised);
  }
  if (folder_.empty()) return;
  // Written aside and renamed: a reader sees a whole file or none.
  const fs::path path = PathOf(key);
  static std::atomic<int> serial{0};
  const fs::path aside = absl::StrCat(path.string(), ".", getpid(), ".", serial++);
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  worker::CachedKernel cached;
  cached.set_key(key);
  *cached.mutable_reply() = reply;
  std::ofstream file(aside, std::ios::binary);
  const bool written = file && cached.SerializeToOstream(&file) && file.flush();
  file.close();
  if (written) fs::rename(aside, path, error);
  if (!written || error) fs::remove(aside, error);
  // Counting takes a walk through all files: when an eighth of what they may take is new.
  if ((unpruned_bytes_ += static_cast<int64_t>(cached.ByteSizeLong())) > max_bytes_ / 8) {
    unpruned_bytes_ = 0;
    Prune();
  }
}

void KernelCache::Prune() const {
  struct File {
    fs::file_time_type used;
    int64_t bytes;
    fs::path path;
  };
  std::vector<File> files;
  int64_t total = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder_, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;  // another process prunes too
    if (!it->is_regular_file(gone)) continue;
    const auto bytes = static_cast<int64_t>(it->file_size(gone));
    const auto used = it->last_write_time(gone);
    if (gone) continue;
    files.push_back({used, bytes, it->path()});
    total += bytes;
  }
  if (total <= max_bytes_) return;
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (total <= max_bytes_ / 4 * 3) break;
    if (fs::remove(file.path, error)) total -= file.bytes;
  }
}

// ---------------------------------------------------------------------------------------- pool

bool CannotStart(const absl::Status& status) { return status.GetPayload(kNotStarted).has_value(); }

CompilePool::CompilePool(const DeviceInfo& device, const CompilePoolOptions& options,
                         const StopSignal& stop)
    : device_(device),
      options_(options),
      stop_(stop),
      backend_(BackendOf(device)),
      cache_(backend_.cache_key == nullptr ? "" : options.cache_folder),
      free_(options.processes) {}

CompilePool::~CompilePool() = default;

std::string CompilePool::KeyOf(const KernelSource& source) const {
  return absl::StrCat("heddle kernel ", kCacheVersion, "\n", device_.compiler, "\n",
                      backend_.cache_key(device_, source.launch), source.arch_suffix, "\n",
                      source.launch.entry, "\n", source.source);
}

std::unique_ptr<Subprocess> CompilePool::Acquire(int64_t turn) {
  std::unique_lock lock(mutex_);
  const auto place = waiting_.insert(turn);  // behind its like
  freed_.wait(lock, [&] { return free_ > 0 && place == waiting_.begin(); });
  waiting_.erase(place);
  --free_;
  if (free_ > 0) freed_.notify_all();  // it may be the next one's turn, too
  if (idle_.empty()) return nullptr;
  std::unique_ptr<Subprocess> process = std::move(idle_.back());
  idle_.pop_back();
  return process;
}

size_t CompilePool::waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_.size();
}

void CompilePool::Release(std::unique_ptr<Subprocess> process) {
  {
    std::lock_guard lock(mutex_);
    ++free_;
    if (process != nullptr) idle_.push_back(std::move(process));
  }
  freed_.notify_all();  // the one whose turn it is among them
}

absl::StatusOr<worker::CompileReply> CompilePool::CompileIn(Subprocess& process,
                                                            const KernelSource& source) {
  worker::CompileRequest request;
  request.set_device(device_.id);
  request.set_arch(device_.target.arch + source.arch_suffix);
  *request.mutable_launch() = ToProto(source.launch);
  request.set_source(source.source);
  worker::CompileReply reply;
  absl::Status status = process.Send(request, SteadyNow() + options_.limit);
  if (status.ok()) status = process.ReceiveWithin(reply, options_.limit);
  if (status.ok()) return reply;
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the compiler did not return within ", absl::FormatDuration(options_.limit)));
  }
  if (!absl::IsUnavailable(status)) return status;
  absl::StatusOr<ExitStatus> exit = process.End(/*grace=*/absl::Seconds(2));
  const std::string words = process.LastWords();
  const std::string how =
      absl::StrCat("the compiler ended with ",
                   exit.ok() ? exit->Describe() : std::string(exit.status().message()),
                   words.empty() ? "" : ":\n", words);
  return exit.ok() && exit->signal == SIGKILL ? absl::UnavailableError(how)
                                              : absl::AbortedError(how);
}

absl::StatusOr<std::unique_ptr<Subprocess>> CompilePool::StartCompiler() {
  std::vector<std::string> environment = options_.environment;
  if (backend_.hides_devices != nullptr) environment.emplace_back(backend_.hides_devices);
  absl::Duration pause = kFirstStartPause;
  for (int attempt = 1;; ++attempt, pause *= 2) {
    auto started =
        Subprocess::Start("__compiler", ConfinementArguments(), {&stop_, {}, environment});
    if (!absl::IsUnavailable(started.status())) return started;
    if (attempt == kStarts) {
      absl::Status status = started.status();
      status.SetPayload(kNotStarted, absl::Cord());
      return status;
    }
    if (stop_.Wait(pause)) return absl::CancelledError("stopped");
  }
}

absl::StatusOr<worker::CompileReply> CompilePool::CompileInAny(Call& call) {
  std::unique_ptr<Subprocess> process = Acquire(call.turn);
  const SteadyTime start = SteadyNow();
  if (stop_.IsSet()) {
    Release(std::move(process));
    return absl::CancelledError("stopped");
  }
  if (process == nullptr) {
    auto started = StartCompiler();
    if (!started.ok()) {
      Release(nullptr);
      return started.status();
    }
    process = *std::move(started);
  }
  absl::StatusOr<worker::CompileReply> reply = CompileIn(*process, call.source);
  // One that did not answer is of no use either.
  if (!reply.ok() || reply->last()) process.reset();
  if (reply.ok()) reply->clear_last();
  call.busy_s += SecondsSince(start);
  Release(std::move(process));
  return reply;
}

void CompilePool::WarmUp(const KernelSource& source) {
  if (backend_.prepare != nullptr) return;
  Call last{source, std::numeric_limits<int64_t>::max()};
  CompileInAny(last).IgnoreError();
}

// `key` empty: nothing is kept.
absl::StatusOr<CompiledKernel> CompilePool::FindOrCompile(Call& call, const std::string& key) {
  if (worker::CompileReply found; !key.empty() && cache_.Find(key, found)) {
    return CompiledKernel{found.binary(), FromProto(found.resources()), /*cached=*/true};
  }
  absl::StatusOr<worker::CompileReply> reply = CompileInAny(call);
  // Somebody killed the compiler, or memory was short: that need not happen again.
  if (absl::IsUnavailable(reply.status()) && !CannotStart(reply.status())) {
    reply = CompileInAny(call);
  }
  HEDDLE_RETURN_IF_ERROR(reply);
  absl::Status status = FromProto(reply->status());
  if (absl::IsUnavailable(status)) return absl::FailedPreconditionError(status.message());
  HEDDLE_RETURN_IF_ERROR(status);
  if (!key.empty()) cache_.Add(key, *reply);
  return CompiledKernel{reply->binary(), FromProto(reply->resources()), /*cached=*/false};
}

struct CompilePool::Build {
  std::optional<absl::StatusOr<CompiledKernel>> result;  // once it has ended
};

absl::StatusOr<CompiledKernel> CompilePool::Compile(const KernelSource& source, int64_t turn,
                                                    double* busy_s) {
  Call call{source, turn};
  absl::StatusOr<CompiledKernel> result = CompileOnce(call);
  if (busy_s != nullptr) *busy_s = call.busy_s;
  return result;
}

absl::StatusOr<CompiledKernel> CompilePool::CompileOnce(Call& call) {
  if (backend_.cache_key == nullptr) return FindOrCompile(call, "");
  const std::string key = KeyOf(call.source);
  std::unique_lock lock(mutex_);
  auto [it, is_first] = builds_.try_emplace(key);
  if (is_first) it->second = std::make_shared<Build>();
  const std::shared_ptr<Build> build = it->second;
  if (!is_first) {
    built_.wait(lock, [&] { return build->result.has_value(); });
    absl::StatusOr<CompiledKernel> result = *build->result;
    if (result.ok()) result->cached = true;
    return result;
  }
  lock.unlock();
  absl::StatusOr<CompiledKernel> result = FindOrCompile(call, key);
  lock.lock();
  build->result = result;
  builds_.erase(key);
  built_.notify_all();
  return result;
}

}  // namespace heddle::measure
