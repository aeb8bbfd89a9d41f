// NVIDIA GPUs through the CUDA driver.
#ifdef HEDDLE_WITH_CUDA
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "measure/device/compare.h"
#include "measure/device/cuda/cuda_driver.h"
#include "measure/device/cuda/nvrtc.h"
#include "measure/device/device.h"
#include "measure/device/drivers.h"
#include "measure/device/fill_shared.h"

namespace heddle::measure {
namespace {

// Returns from the function with the error unless the call succeeds.
#define HEDDLE_CUDA(call, what)                                                    \
  if (absl::Status heddle_status = cu_.Check(cu_.call, what); !heddle_status.ok()) \
  return heddle_status

constexpr int64_t kCompareBlocksPerSm = 8;  // 2,048 threads: as many as fit, or more

// Multiprocessors' float32 units by compute capability (CUDA C++ Programming Guide, arithmetic
// instructions' throughput).
int64_t LanesPerSm(int major, int minor) {
  if (major == 6 && minor == 0) return 64;
  if (major == 7 || (major == 8 && minor == 0)) return 64;
  return 128;
}

int Attribute(const CudaDriver& cu, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  cu.cuDeviceGetAttribute(&value, which, device);
  return value;
}

std::string PciBusId(const CudaDriver& cu, CUdevice device) {
  char text[32] = "";
  cu.cuDeviceGetPCIBusId(text, sizeof text, device);
  return text;
}

search_space::Target MakeTarget(const CudaDriver& cu, CUdevice device,
                                const std::optional<Nvml>& nvml) {
  auto get = [&](CUdevice_attribute which) { return Attribute(cu, device, which); };
  const int major = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  const int minor = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  char name[256] = "";
  cu.cuDeviceGetName(name, sizeof name, device);
  size_t memory = 0;
  cu.cuDeviceTotalMem(&memory, device);
  search_space::Target target;
  target.name = name;
  target.api = search_space::Api::kCuda;
  target.arch = absl::StrCat("sm_", major, minor);
  target.max_threads_per_block = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  target.max_shared_bytes_per_block = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  target.static_shared_bytes = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  target.shared_bytes_per_sm = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  target.registers_per_sm = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  target.max_threads_per_sm = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  target.max_blocks_per_sm = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  target.max_grid = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  target.warp_size = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  target.sm_count = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  target.l2_bytes = get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  target.memory_bytes = static_cast<int64_t>(memory);
  const double mhz = nvml.has_value() ? nvml->max_sm_clock_mhz() : 0;
  target.clock_ghz = mhz > 0 ? mhz / 1e3 : get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1e6;
  target.peak_gflops = 2.0 * LanesPerSm(major, minor) * target.sm_count * target.clock_ghz;
  // Kilohertz, two transfers a cycle, bits.
  target.memory_gbs = 2.0 * get(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) * 1e3 *
                      get(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8 / 1e9;
  target.has_async_copy = major >= 8;
  return target;
}

DeviceInfo Describe(const CudaDriver& cu, CUdevice device, int index) {
  std::optional<Nvml> nvml = Nvml::Open(PciBusId(cu, device));
  DeviceInfo info;
  info.id = absl::StrCat("cuda:", index);
  info.target = MakeTarget(cu, device, nvml);
  CUuuid uuid = {};
  cu.cuDeviceGetUuid(&uuid, device);
  info.uuid = "GPU";
  for (int i = 0; i < 16; ++i) {
    const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    absl::StrAppendFormat(&info.uuid, "%s%02x", dash ? "-" : "",
                          static_cast<unsigned char>(uuid.bytes[i]));
  }
  int version = 0;
  cu.cuDriverGetVersion(&version);
  info.driver = absl::StrFormat("CUDA %d.%d", version / 1000, version % 1000 / 10);
  if (nvml.has_value()) info.power_limit_w = nvml->power_limit_w();
  if (nvml.has_value()) info.driver = absl::StrCat(nvml->driver_version(), " (", info.driver, ")");
  absl::StatusOr<NvrtcInfo> nvrtc = FindNvrtc();
  if (nvrtc.ok()) {
    info.compiler = NameOf(*nvrtc);
  } else {
    info.usable = false;
    info.why_not = std::string(nvrtc.status().message());
  }
  return info;
}

class CudaBuffer : public DeviceBuffer {
 public:
  CudaBuffer(const CudaDriver& cu, int64_t bytes, CUdeviceptr whole)
      : DeviceBuffer(bytes), whole(whole), payload(whole + kGuardBytes), cu_(cu) {}
  ~CudaBuffer() override { cu_.cuMemFree(whole); }
  const CUdeviceptr whole, payload;

 private:
  const CudaDriver& cu_;
};

class PinnedBuffer : public HostBuffer {
 public:
  PinnedBuffer(const CudaDriver& cu, void* data, int64_t bytes)
      : HostBuffer(data, bytes), cu_(cu) {}
  ~PinnedBuffer() override { cu_.cuMemFreeHost(data_); }

 private:
  const CudaDriver& cu_;
};

class CudaProgram : public LoadedProgram {
 public:
  struct Kernel {
    KernelLaunch launch;
    CUfunction function;
  };
  explicit CudaProgram(const CudaDriver& cu) : cu_(cu) {}
  ~CudaProgram() override {
    for (CUmodule module : modules_) cu_.cuModuleUnload(module);
  }

  absl::Status Add(const KernelBinary& kernel, const search_space::Target& target);
  const std::vector<Kernel>& kernels() const { return kernels_; }

 private:
  const CudaDriver& cu_;
  std::vector<CUmodule> modules_;
  std::vector<Kernel> kernels_;
};

absl::Status CudaProgram::Add(const KernelBinary& kernel, const search_space::Target& target) {
  const KernelLaunch& launch = kernel.launch;
  if (launch.grid < 1 || launch.block < 1 || launch.grid > target.max_grid) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: a launch of %d blocks of %d threads",
                                                      launch.entry, launch.grid, launch.block));
  }
  CUmodule module = nullptr;
  HEDDLE_CUDA(cuModuleLoadData(&module, kernel.binary.data()), "loading " + launch.entry);
  modules_.push_back(module);
  CUfunction function = nullptr;
  HEDDLE_CUDA(cuModuleGetFunction(&function, module, launch.entry.c_str()),
              "finding " + launch.entry);
  auto get = [&](CUfunction_attribute which) {
    int value = 0;
    cu_.cuFuncGetAttribute(&value, which, function);
    return value;
  };
  resources_.registers = std::max(resources_.registers, get(CU_FUNC_ATTRIBUTE_NUM_REGS));
  resources_.local_bytes =
      std::max<int64_t>(resources_.local_bytes, get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
  const int64_t shared = get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) + launch.dynamic_shared_bytes;
  resources_.shared_bytes = std::max(resources_.shared_bytes, shared);
  const int threads = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (launch.block > threads) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s: a block of %d threads, the kernel as compiled allows %d (%d registers a thread)",
        launch.entry, launch.block, threads, get(CU_FUNC_ATTRIBUTE_NUM_REGS)));
  }
  if (shared > target.max_shared_bytes_per_block) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: %d bytes of shared memory, the device allows %d", launch.entry, shared,
                        target.max_shared_bytes_per_block));
  }
  if (launch.dynamic_shared_bytes > 0) {
    HEDDLE_CUDA(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   static_cast<int>(launch.dynamic_shared_bytes)),
                "reserving shared memory for " + launch.entry);
  }
  kernels_.push_back({launch, function});
  return absl::OkStatus();
}

// Device pointers and descriptions of tensors of one execution, kernel by kernel, and the array of
// pointers to them that launches take.
class Arguments {
 public:
  explicit Arguments(const CudaDriver& cu) : cu_(cu) {}

  absl::Status Resolve(const CudaProgram& program, const BufferSet& buffers) {
    values_.clear();
    maps_.clear();
    for (const CudaProgram::Kernel& kernel : program.kernels()) {
      std::vector<CUdeviceptr>& list = values_.emplace_back();
      for (const std::string& name : kernel.launch.arguments) {
        HEDDLE_ASSIGN_OR_RETURN(address, AddressOf(kernel.launch, name, buffers));
        list.push_back(address);
      }
      std::vector<CUtensorMap>& maps = maps_.emplace_back();
      for (const TensorMap& map : kernel.launch.maps) {
        HEDDLE_ASSIGN_OR_RETURN(address, AddressOf(kernel.launch, map.buffer, buffers));
        HEDDLE_ASSIGN_OR_RETURN(encoded, Encode(map, address));
        maps.push_back(encoded);
      }
    }
    return absl::OkStatus();
  }
  // Valid until the next call.
  void** Of(size_t kernel) {
    pointers_.clear();
    for (CUdeviceptr& value : values_[kernel]) pointers_.push_back(&value);
    for (CUtensorMap& map : maps_[kernel]) pointers_.push_back(&map);
    return pointers_.data();
  }

 private:
  static absl::StatusOr<CUdeviceptr> AddressOf(const KernelLaunch& launch, const std::string& name,
                                               const BufferSet& buffers) {
    auto found = buffers.find(name);
    if (found == buffers.end()) {
      return absl::NotFoundError(
          absl::StrCat("kernel ", launch.entry, " wants a buffer named ", name));
    }
    return static_cast<CudaBuffer*>(found->second)->payload;
  }

  // The driver counts dimensions from the innermost one.
  absl::StatusOr<CUtensorMap> Encode(const TensorMap& map, CUdeviceptr address) const {
    if (cu_.encode_tensor_map == nullptr) {
      return absl::UnavailableError(
          "the NVIDIA driver is too old for bulk copies: install 525 (CUDA 12.0) or a later one");
    }
    const std::vector<cuuint64_t> shape(map.shape.rbegin(), map.shape.rend());
    const std::vector<cuuint64_t> strides(map.strides.rbegin(), map.strides.rend());
    const std::vector<cuuint32_t> box(map.box.rbegin(), map.box.rend()), steps(map.box.size(), 1);
    const auto swizzle = map.swizzle_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                         : map.swizzle_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                   : CU_TENSOR_MAP_SWIZZLE_32B;
    const auto type =
        map.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    CUtensorMap encoded = {};
    HEDDLE_RETURN_IF_ERROR(cu_.Check(
        cu_.encode_tensor_map(&encoded, type, static_cast<cuuint32_t>(shape.size()),
                              reinterpret_cast<void*>(address), shape.data(), strides.data(),
                              box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                              CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        absl::StrCat("describing ", map.buffer)));
    return encoded;
  }

  const CudaDriver& cu_;
  std::vector<std::vector<CUdeviceptr>> values_;
  std::vector<std::vector<CUtensorMap>> maps_;
  std::vector<void*> pointers_;
};

// A chain of executions as a CUDA graph.
class Graph {
 public:
  explicit Graph(const CudaDriver& cu) : cu_(cu) {}
  ~Graph() {
    if (executable_ != nullptr) cu_.cuGraphExecDestroy(executable_);
    if (graph_ != nullptr) cu_.cuGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  absl::Status Build(const CudaProgram& program, const std::vector<BufferSet>& sets, size_t first,
                     int launches, CUstream stream) {
    HEDDLE_CUDA(cuGraphCreate(&graph_, 0), "creating a graph");
    CUgraphNode last = nullptr;
    Arguments arguments(cu_);
    for (int i = 0; i < launches; ++i) {
      HEDDLE_RETURN_IF_ERROR(arguments.Resolve(program, sets[(first + i) % sets.size()]));
      for (size_t k = 0; k < program.kernels().size(); ++k) {
        const CudaProgram::Kernel& kernel = program.kernels()[k];
        CUDA_KERNEL_NODE_PARAMS params = {};
        params.func = kernel.function;
        params.gridDimX = static_cast<unsigned>(kernel.launch.grid);
        params.blockDimX = static_cast<unsigned>(kernel.launch.block);
        params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
        params.sharedMemBytes = static_cast<unsigned>(kernel.launch.dynamic_shared_bytes);
        params.kernelParams = arguments.Of(k);
        CUgraphNode node = nullptr;
        HEDDLE_CUDA(cuGraphAddKernelNode(&node, graph_, last != nullptr ? &last : nullptr,
                                         last != nullptr ? 1 : 0, &params),
                    "adding " + kernel.launch.entry + " to a graph");
        last = node;
      }
    }
    HEDDLE_CUDA(cuGraphInstantiate(&executable_, graph_, 0), "instantiating a graph");
    HEDDLE_CUDA(cuGraphUpload(executable_, stream), "uploading a graph");
    return cu_.Check(cu_.cuStreamSynchronize(stream), "uploading a graph");
  }

  absl::Status Launch(CUstream stream) const {
    if (executable_ == nullptr) return absl::OkStatus();
    return cu_.Check(cu_.cuGraphLaunch(executable_, stream), "launching a graph");
  }

 private:
  const CudaDriver& cu_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

// Events around a graph. A shorter graph that is not timed runs ahead of it, so that the device is
// busy while the host hands over the timed one and no gap is counted.
class CudaBatch : public TimedBatch {
 public:
  CudaBatch(const CudaDriver& cu, CUstream stream)
      : cu_(cu), stream_(stream), lead_(cu), timed_(cu) {}
  ~CudaBatch() override {
    if (start_ != nullptr) cu_.cuEventDestroy(start_);
    if (end_ != nullptr) cu_.cuEventDestroy(end_);
  }

  absl::Status Build(const CudaProgram& program, const std::vector<BufferSet>& sets, int first,
                     int launches) {
    HEDDLE_CUDA(cuEventCreate(&start_, CU_EVENT_DEFAULT), "creating an event");
    HEDDLE_CUDA(cuEventCreate(&end_, CU_EVENT_DEFAULT), "creating an event");
    if (launches > 1) {
      // On the sets before the first one, whose turn comes last.
      const int count = static_cast<int>(sets.size()), lead = std::max(1, launches / 8);
      const int from = ((first - lead) % count + count) % count;
      HEDDLE_RETURN_IF_ERROR(lead_.Build(program, sets, from, lead, stream_));
    }
    return timed_.Build(program, sets, first, launches, stream_);
  }

  absl::StatusOr<double> Run() override {
    HEDDLE_RETURN_IF_ERROR(lead_.Launch(stream_));
    HEDDLE_CUDA(cuEventRecord(start_, stream_), "recording an event");
    HEDDLE_RETURN_IF_ERROR(timed_.Launch(stream_));
    HEDDLE_CUDA(cuEventRecord(end_, stream_), "recording an event");
    HEDDLE_CUDA(cuEventSynchronize(end_), "running the kernels");
    float milliseconds = 0;
    HEDDLE_CUDA(elapsed_time(&milliseconds, start_, end_), "reading the clock");
    return milliseconds * 1e-3;
  }

 private:
  const CudaDriver& cu_;
  CUstream stream_;
  CUevent start_ = nullptr, end_ = nullptr;
  Graph lead_, timed_;
};

class CudaDevice : public Device {
 public:
  CudaDevice(const CudaDriver& cu, CUdevice device, DeviceInfo info)
      : cu_(cu), device_(device), info_(std::move(info)), nvml_(Nvml::Open(PciBusId(cu, device))) {}
  ~CudaDevice() override {
    own_.reset();
    compared_.reset();
    if (stream_ != nullptr) cu_.cuStreamDestroy(stream_);
    if (context_ != nullptr) cu_.cuDevicePrimaryCtxRelease(device_);
  }

  absl::Status Open() {
    HEDDLE_CUDA(cuDevicePrimaryCtxRetain(&context_, device_), "opening " + info_.id);
    HEDDLE_CUDA(cuCtxSetCurrent(context_), "opening " + info_.id);
    return cu_.Check(cu_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "creating a stream");
  }

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<std::unique_ptr<LoadedProgram>> Load(
      const std::vector<KernelBinary>& kernels) override {
    auto program = std::make_unique<CudaProgram>(cu_);
    for (const KernelBinary& kernel : kernels) {
      HEDDLE_RETURN_IF_ERROR(program->Add(kernel, info_.target));
    }
    return program;
  }

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override {
    CUdeviceptr whole = 0;
    HEDDLE_CUDA(cuMemAlloc(&whole, bytes + 2 * kGuardBytes),
                absl::StrCat("allocating ", bytes, " bytes"));
    auto buffer = std::make_unique<CudaBuffer>(cu_, bytes, whole);
    HEDDLE_RETURN_IF_ERROR(RestoreGuards(*buffer));
    return buffer;
  }

  absl::StatusOr<std::unique_ptr<HostBuffer>> AllocateHost(int64_t bytes) override {
    void* data = nullptr;
    HEDDLE_CUDA(cuMemAllocHost(&data, bytes), absl::StrCat("pinning ", bytes, " bytes"));
    return std::make_unique<PinnedBuffer>(cu_, data, bytes);
  }

  absl::StatusOr<int64_t> FreeMemory() override {
    size_t free = 0, total = 0;
    HEDDLE_CUDA(cuMemGetInfo(&free, &total), "asking for free memory");
    return static_cast<int64_t>(free);
  }

  absl::Status Upload(DeviceBuffer& to, const void* from, int64_t bytes) override {
    HEDDLE_CUDA(cuMemcpyHtoDAsync(Cast(to).payload, from, bytes, stream_), "writing a buffer");
    return Wait("writing a buffer");
  }
  absl::Status Download(const DeviceBuffer& from, void* to, int64_t bytes) override {
    HEDDLE_CUDA(cuMemcpyDtoHAsync(to, Cast(from).payload, bytes, stream_), "reading a buffer");
    return Wait("reading a buffer");
  }
  absl::Status Copy(const DeviceBuffer& from, DeviceBuffer& to) override {
    HEDDLE_CUDA(cuMemcpyDtoDAsync(Cast(to).payload, Cast(from).payload, from.bytes(), stream_),
                "copying a buffer");
    return Wait("copying a buffer");
  }
  absl::StatusOr<Difference> Compare(const DeviceBuffer& a, const DeviceBuffer& b, int64_t elements,
                                     double slack, search_space::DType type) override {
    HEDDLE_RETURN_IF_ERROR(LoadOwnKernels());
    CUdeviceptr first = Cast(a).payload, second = Cast(b).payload, out = Cast(*compared_).payload;
    long long count = elements;
    void* arguments[] = {&first, &second, &count, &slack, &out};
    const int64_t blocks = std::min((elements + kCompareThreads - 1) / kCompareThreads,
                                    info_.target.sm_count * kCompareBlocksPerSm);
    unsigned long long found[2] = {};
    HEDDLE_CUDA(cuMemsetD32Async(out, 0, sizeof found / 4, stream_), "comparing buffers");
    const auto comparer = static_cast<size_t>(
        std::find(kComparedTypes.begin(), kComparedTypes.end(), type) - kComparedTypes.begin());
    if (comparer == std::size(kComparedTypes)) {
      return absl::UnimplementedError(absl::StrCat("comparing ", search_space::NameOf(type)));
    }
    HEDDLE_CUDA(cuLaunchKernel(own_->kernels()[comparer].function, static_cast<unsigned>(blocks), 1,
                               1, kCompareThreads, 1, 1, 0, stream_, arguments, nullptr),
                "comparing buffers");
    HEDDLE_CUDA(cuMemcpyDtoHAsync(found, out, sizeof found, stream_), "comparing buffers");
    HEDDLE_RETURN_IF_ERROR(Wait("comparing buffers"));
    Difference difference;
    difference.elements = static_cast<int64_t>(found[0]);
    std::memcpy(&difference.distance, &found[1], sizeof difference.distance);
    return difference;
  }
  absl::Status Fill(DeviceBuffer& buffer, uint32_t pattern) override {
    const CUdeviceptr payload = Cast(buffer).payload;
    const int64_t words = buffer.bytes() / 4, rest = buffer.bytes() - 4 * words;
    if (words > 0) {
      HEDDLE_CUDA(cuMemsetD32Async(payload, pattern, words, stream_), "filling a buffer");
    }
    if (rest > 0) {
      HEDDLE_CUDA(cuMemsetD16Async(payload + 4 * words, static_cast<uint16_t>(pattern), 1, stream_),
                  "filling a buffer");
    }
    return Wait("filling a buffer");
  }

  absl::StatusOr<bool> GuardsIntact(const DeviceBuffer& buffer) override {
    uint16_t halves[2][kGuardBytes / 2];
    const CUdeviceptr whole = Cast(buffer).whole;
    HEDDLE_CUDA(cuMemcpyDtoHAsync(halves[0], whole, kGuardBytes, stream_), "reading a red zone");
    HEDDLE_CUDA(
        cuMemcpyDtoHAsync(halves[1], whole + kGuardBytes + buffer.bytes(), kGuardBytes, stream_),
        "reading a red zone");
    HEDDLE_RETURN_IF_ERROR(Wait("reading a red zone"));
    return std::all_of(&halves[0][0], &halves[0][0] + 2 * kGuardBytes / 2,
                       [](uint16_t half) { return half == kGuardPattern; });
  }
  absl::Status RestoreGuards(DeviceBuffer& buffer) override {
    const CUdeviceptr whole = Cast(buffer).whole;
    HEDDLE_CUDA(cuMemsetD16Async(whole, kGuardPattern, kGuardBytes / 2, stream_),
                "filling a red zone");
    HEDDLE_CUDA(cuMemsetD16Async(whole + kGuardBytes + buffer.bytes(), kGuardPattern,
                                 kGuardBytes / 2, stream_),
                "filling a red zone");
    return Wait("filling a red zone");
  }

  // A block takes all that a block can have: one runs on a multiprocessor at a time. Twice as many
  // blocks as multiprocessors, so that none is left out. The next kernel waits in the stream.
  absl::Status FillShared(uint32_t pattern) override {
    HEDDLE_RETURN_IF_ERROR(LoadOwnKernels());
    const auto bytes = static_cast<unsigned>(info_.target.max_shared_bytes_per_block);
    unsigned words = bytes / 4;
    void* arguments[] = {&pattern, &words};
    return cu_.Check(
        cu_.cuLaunchKernel(own_->kernels()[kFiller].function,
                           static_cast<unsigned>(2 * info_.target.sm_count), 1, 1,
                           kFillSharedThreads, 1, 1, bytes, stream_, arguments, nullptr),
        "filling shared memory");
  }

  absl::Status Run(LoadedProgram& program, const BufferSet& buffers) override {
    const auto& loaded = static_cast<CudaProgram&>(program);
    Arguments arguments(cu_);
    HEDDLE_RETURN_IF_ERROR(arguments.Resolve(loaded, buffers));
    for (size_t k = 0; k < loaded.kernels().size(); ++k) {
      const CudaProgram::Kernel& kernel = loaded.kernels()[k];
      HEDDLE_CUDA(cuLaunchKernel(kernel.function, static_cast<unsigned>(kernel.launch.grid), 1, 1,
                                 static_cast<unsigned>(kernel.launch.block), 1, 1,
                                 static_cast<unsigned>(kernel.launch.dynamic_shared_bytes), stream_,
                                 arguments.Of(k), nullptr),
                  "launching " + kernel.launch.entry);
    }
    return Wait("running the kernels");
  }

  absl::StatusOr<std::unique_ptr<TimedBatch>> PrepareBatch(LoadedProgram& program,
                                                           const std::vector<BufferSet>& sets,
                                                           int first, int launches) override {
    auto batch = std::make_unique<CudaBatch>(cu_, stream_);
    HEDDLE_RETURN_IF_ERROR(batch->Build(static_cast<CudaProgram&>(program), sets, first, launches));
    return batch;
  }

  // "Around 0.5 microseconds", says cuEventElapsedTime's description.
  double clock_resolution() const override { return 0.5e-6; }

  DeviceState State() override { return nvml_.has_value() ? nvml_->State() : DeviceState{}; }

 private:
  static CudaBuffer& Cast(DeviceBuffer& buffer) { return static_cast<CudaBuffer&>(buffer); }
  static const CudaBuffer& Cast(const DeviceBuffer& buffer) {
    return static_cast<const CudaBuffer&>(buffer);
  }
  // Compiled when it is first needed: most processes that open a device only look at it.
  absl::Status LoadOwnKernels() {
    if (own_ != nullptr) return absl::OkStatus();
    std::string source = kFillSharedCuda;
    for (search_space::DType type : kComparedTypes) source += CompareSource(type);
    HEDDLE_ASSIGN_OR_RETURN(binary, CompileCuda(source, "heddle.cu", info_.target.arch));
    auto program = std::make_unique<CudaProgram>(cu_);
    const KernelLaunch fill = {
        kFillSharedEntry, 1, kFillSharedThreads, info_.target.max_shared_bytes_per_block, {}};
    for (search_space::DType type : kComparedTypes) {
      const KernelLaunch compare = {CompareEntry(type), 1, kCompareThreads, 0, {}};
      HEDDLE_RETURN_IF_ERROR(program->Add({compare, binary.cubin}, info_.target));
    }
    HEDDLE_RETURN_IF_ERROR(program->Add({fill, binary.cubin}, info_.target));
    HEDDLE_ASSIGN_OR_RETURN(out, Allocate(2 * sizeof(unsigned long long)));
    compared_ = std::move(out);
    own_ = std::move(program);
    return absl::OkStatus();
  }

  absl::Status Wait(const char* what) { return cu_.Check(cu_.cuStreamSynchronize(stream_), what); }

  const CudaDriver& cu_;
  CUdevice device_;
  DeviceInfo info_;
  std::optional<Nvml> nvml_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  // One of each compared type, then the one that fills shared memory.
  static constexpr size_t kFiller = std::size(kComparedTypes);
  std::unique_ptr<CudaProgram> own_;        // the device's own kernels
  std::unique_ptr<DeviceBuffer> compared_;  // what the comparer writes
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int index) {
  HEDDLE_ASSIGN_OR_RETURN(cu, CudaDriver::Get());
  CUdevice handle = 0;
  if (cu->cuDeviceGet(&handle, index) != CUDA_SUCCESS) {
    return absl::UnavailableError(absl::StrCat("there is no cuda:", index));
  }
  auto device = std::make_unique<CudaDevice>(*cu, handle, Describe(*cu, handle, index));
  HEDDLE_RETURN_IF_ERROR(device->Open());
  return device;
}

std::vector<DeviceInfo> DetectCudaDevices() {
  std::vector<DeviceInfo> infos;
  absl::StatusOr<const CudaDriver*> cu = CudaDriver::Get();
  int count = 0;
  if (cu.ok()) (*cu)->cuDeviceGetCount(&count);
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    if ((*cu)->cuDeviceGet(&device, i) == CUDA_SUCCESS) {
      infos.push_back(Describe(**cu, device, i));
    }
  }
  if (infos.empty()) {
    DeviceInfo none;
    none.id = "cuda:0";
    none.usable = false;
    none.why_not = cu.ok() ? "the NVIDIA driver sees no GPU" : std::string(cu.status().message());
    infos.push_back(none);
  }
  return infos;
}

}  // namespace heddle::measure
#endif  // HEDDLE_WITH_CUDA
