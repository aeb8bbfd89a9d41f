// Compiler processes and the cache of what they made. One kernel at a time in each process or its
// child, so that a compiler that hangs or aborts costs the kernel it was given and no other.
#ifndef HEDDLE_MEASURE_RUN_PROCESSES_COMPILE_POOL_H_
#define HEDDLE_MEASURE_RUN_PROCESSES_COMPILE_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/process/subprocess.h"
#include "measure/codegen/codegen.h"
#include "measure/device/backend.h"
#include "measure/device/device_info.h"

namespace heddle::worker {
class CompileReply;
}

namespace heddle::measure {

struct CompiledKernel {
  std::string binary;         // what Device::Load takes
  KernelResources resources;  // zeros where the compiler does not tell
  bool cached = false;
};

// Files that can be deleted at any time, one a compiled kernel, named by a hash of everything that
// the binary depends on. Trouble with the files only costs time.
class KernelCache {
 public:
  // `folder` empty: in memory only. Of more than `max_bytes` of files those that were not used for
  // the longest time are removed.
  explicit KernelCache(std::string folder, int64_t max_bytes = int64_t{1} << 30)
      : folder_(std::move(folder)), max_bytes_(max_bytes), unpruned_bytes_(max_bytes) {}
  // $XDG_CACHE_HOME/heddle/kernels, or .cache/heddle/kernels in the home folder; empty when there
  // is neither.
  static std::string DefaultFolder();

  bool Find(const std::string& key, worker::CompileReply& reply);
  void Add(const std::string& key, const worker::CompileReply& reply);

 private:
  std::string PathOf(const std::string& key) const;
  void Prune() const;

  const std::string folder_;
  const int64_t max_bytes_;
  std::atomic<int64_t> unpruned_bytes_;  // written since files were last counted
  std::mutex mutex_;
  std::unordered_map<std::string, std::string> memory_;  // key -> serialised reply
  size_t memory_bytes_ = 0;
};

struct CompilePoolOptions {
  int processes = 1;
  absl::Duration limit = absl::Seconds(20);  // a kernel (MeasureOptions of measurer.h)
  std::string cache_folder = KernelCache::DefaultFolder();
  std::vector<std::string> environment;  // of the processes, "NAME=value"
};

// Whether an error says that this host starts no compilers, for want of processes, memory or file
// descriptors: nothing that is to be compiled is to blame for that.
bool CannotStart(const absl::Status& status);

class CompilePool {
 public:
  // For the compiler of `device`; `stop`, which must outlive the pool, ends what is being compiled.
  // Processes are started when they are first needed.
  CompilePool(const DeviceInfo& device, const CompilePoolOptions& options, const StopSignal& stop);
  ~CompilePool();

  // Blocks; thread-safe: `processes` calls proceed at a time, the others wait, and those of lower
  // turns go first. `busy_s`, if any, gets the seconds in which a process had it. InvalidArgument
  // carries the compiler's log; Aborted: the compiler died of it, with how and its last words;
  // DeadlineExceeded: it did not return in time; Unavailable: it could not be started
  // for some seconds (CannotStart), or was killed, twice; FailedPrecondition: there is no compiler;
  // Cancelled: stopped. Of several callers with the same kernel one compiles it and the others
  // wait.
  absl::StatusOr<CompiledKernel> Compile(const KernelSource& source, int64_t turn = 0,
                                         double* busy_s = nullptr);

  // How many calls wait for a process.
  size_t waiting() const;

  // Has one process more, if not all have been started, load what it compiles with: NVRTC takes up
  // to two seconds where many processes load it at once. `source` is any kernel that compiles.
  // Blocks as Compile does; what goes wrong Compile will say.
  void WarmUp(const KernelSource& source);

 private:
  std::string KeyOf(const KernelSource& source) const;
  // A call of Compile.
  struct Call {
    const KernelSource& source;
    int64_t turn;
    double busy_s = 0;
  };
  absl::StatusOr<CompiledKernel> FindOrCompile(Call& call, const std::string& key);
  absl::StatusOr<CompiledKernel> CompileOnce(Call& call);
  absl::StatusOr<worker::CompileReply> CompileIn(Subprocess& process, const KernelSource& source);
  absl::StatusOr<worker::CompileReply> CompileInAny(Call& call);
  absl::StatusOr<std::unique_ptr<Subprocess>> StartCompiler();
  // nullptr: none is idle, start one.
  std::unique_ptr<Subprocess> Acquire(int64_t turn);
  void Release(std::unique_ptr<Subprocess> process);

  const DeviceInfo device_;
  const CompilePoolOptions options_;
  const StopSignal& stop_;
  const Backend& backend_;
  KernelCache cache_;
  mutable std::mutex mutex_;
  std::condition_variable freed_;
  int free_;                        // processes that may still be used, running or not
  std::multiset<int64_t> waiting_;  // turns of those who wait for one
  std::vector<std::unique_ptr<Subprocess>> idle_;
  // What is being compiled, by key; those who wait for it share what comes of it.
  struct Build;
  absl::flat_hash_map<std::string, std::shared_ptr<Build>> builds_;
  std::condition_variable built_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_RUN_PROCESSES_COMPILE_POOL_H_
