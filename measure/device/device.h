// A device as its owner, the worker process, sees it: memory, programs, launches and time. One
// implementation per driver (cuda_device.cc, opencl_device.cc) and one that misbehaves on request
// (fake_device.cc): the rows of backend.h.
#ifndef HEDDLE_MEASURE_DEVICE_DEVICE_H_
#define HEDDLE_MEASURE_DEVICE_DEVICE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "measure/codegen/codegen.h"
#include "measure/device/compare.h"
#include "measure/device/device_info.h"
#include "measure/device/outcome.h"

namespace heddle::measure {

// One compiled kernel and how it is launched.
struct KernelBinary {
  KernelLaunch launch;
  std::string binary;  // cubin (NVRTC), or what CompileOpenCl or CompileFake returned
};

// What the driver says of a loaded program: the largest over its kernels; 0 = it does not say.
struct ProgramResources {
  int registers = 0;         // a thread
  int64_t local_bytes = 0;   // a thread: spills and stack
  int64_t shared_bytes = 0;  // a block, static and dynamic
};

// Kernels ready to be launched, in order. Unloaded when destroyed; must not outlive its device.
class LoadedProgram {
 public:
  virtual ~LoadedProgram() = default;
  const ProgramResources& resources() const { return resources_; }

 protected:
  ProgramResources resources_;
};

// Every buffer lies between two red zones of kGuardBytes, filled with kGuardPattern when it is
// allocated: a NaN in every floating-point type (reads out of bounds poison the result) and a
// canary (writes out of bounds are seen by GuardsIntact).
inline constexpr int64_t kGuardBytes = 4096;
inline constexpr uint16_t kGuardPattern = 0x7fff;

// Device memory, 256-byte aligned. Freed when destroyed; must not outlive its device.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  int64_t bytes() const { return bytes_; }

 protected:
  explicit DeviceBuffer(int64_t bytes) : bytes_(bytes) {}

 private:
  int64_t bytes_;
};

// Host memory that transfers quickly (page-locked where the driver offers that).
class HostBuffer {
 public:
  virtual ~HostBuffer() = default;
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 protected:
  HostBuffer(void* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  void* data_;
  int64_t bytes_;
};

// The buffers of one execution by their names in KernelLaunch::arguments; names that a program
// does not use are ignored.
using BufferSet = std::map<std::string, DeviceBuffer*>;

// A fixed number of executions of one program, prepared so that the host costs nothing while they
// run (a CUDA graph).
class TimedBatch {
 public:
  virtual ~TimedBatch() = default;
  // Runs all executions and waits; seconds for all of them by the best clock there is.
  virtual absl::StatusOr<double> Run() = 0;
};

// Calls block until the device has finished. Errors, which OutcomeOf maps: ResourceExhausted
// (memory, registers, shared memory), InvalidArgument (the driver refuses binary or launch),
// Aborted (illegal access: the device must be opened again in a new process), Unavailable (the
// device is gone). Not thread-safe.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;

  // Checks the launches against the device's limits and loads all kernels.
  virtual absl::StatusOr<std::unique_ptr<LoadedProgram>> Load(
      const std::vector<KernelBinary>& kernels) = 0;

  // Uninitialised memory between two red zones, the second right behind the last byte. `bytes` is
  // even, at least 2.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<HostBuffer>> AllocateHost(int64_t bytes) = 0;
  // Bytes that can be allocated now, as far as the driver says.
  virtual absl::StatusOr<int64_t> FreeMemory() = 0;

  // The first `bytes` of a buffer from and to host memory.
  virtual absl::Status Upload(DeviceBuffer& to, const void* from, int64_t bytes) = 0;
  virtual absl::Status Download(const DeviceBuffer& from, void* to, int64_t bytes) = 0;
  // All of `to`, of the same size.
  virtual absl::Status Copy(const DeviceBuffer& from, DeviceBuffer& to) = 0;
  // Of the first `elements` of two buffers of `type`, one of kComparedTypes; for `slack` see
  // Distance.
  virtual absl::StatusOr<Difference> Compare(const DeviceBuffer& a, const DeviceBuffer& b,
                                             int64_t elements, double slack,
                                             search_space::DType type) = 0;
  // Every 32-bit word, the red zones untouched: of a word that ends in one the lower half.
  virtual absl::Status Fill(DeviceBuffer& buffer, uint32_t pattern) = 0;
  virtual absl::StatusOr<bool> GuardsIntact(const DeviceBuffer& buffer) = 0;
  // Writes the guard pattern again, after a program has destroyed it.
  virtual absl::Status RestoreGuards(DeviceBuffer& buffer) = 0;

  // Fills what programs find in the shared memory of a block, as far as a kernel can write there.
  virtual absl::Status FillShared(uint32_t pattern) = 0;

  // Executes a program once and waits for it. NotFound names a missing buffer.
  virtual absl::Status Run(LoadedProgram& program, const BufferSet& buffers) = 0;

  // `launches` executions one after another, execution i on sets[(first + i) % sets.size()].
  // Program and buffers must outlive the batch.
  virtual absl::StatusOr<std::unique_ptr<TimedBatch>> PrepareBatch(
      LoadedProgram& program, const std::vector<BufferSet>& sets, int first, int launches) = 0;
  // Smallest difference that TimedBatch::Run can tell, seconds.
  virtual double clock_resolution() const = 0;

  // Clocks, throttling and other users now; zeros where nothing is known.
  virtual DeviceState State() = 0;
};

// The outcome of a candidate whose loading or running failed with `status`.
Outcome OutcomeOf(const absl::Status& status);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_DEVICE_H_
