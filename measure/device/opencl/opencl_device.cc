// Running kernels on OpenCL devices. PoCL, the CPU's OpenCL, is the one that always works; what is
// known of it is in docs/measurement.md.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/host.h"
#include "base/status.h"
#include "measure/device/compare.h"
#include "measure/device/device.h"
#include "measure/device/drivers.h"
#include "measure/device/fill_shared.h"
#include "measure/device/opencl/opencl_driver.h"

namespace heddle::measure {
namespace {

constexpr size_t kFillSharedItems = 16;  // of a group that fills its __local memory

template <auto Release>
struct Releaser {
  template <typename T>
  void operator()(T* object) const {
    Release(object);
  }
};
template <typename Handle, auto Release>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Releaser<Release>>;
using Context = Owned<cl_context, clReleaseContext>;
using Queue = Owned<cl_command_queue, clReleaseCommandQueue>;
using Memory = Owned<cl_mem, clReleaseMemObject>;
using ClProgram = Owned<cl_program, clReleaseProgram>;
using ClKernel = Owned<cl_kernel, clReleaseKernel>;

std::string BuildLog(cl_program program, cl_device_id device) {
  size_t size = 0;
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string log(size, '\0');
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  return log.c_str();
}

class OpenClBuffer : public DeviceBuffer {
 public:
  OpenClBuffer(int64_t bytes, Memory whole, Memory payload)
      : DeviceBuffer(bytes), whole(std::move(whole)), payload(std::move(payload)) {}
  Memory whole;    // with the red zones
  Memory payload;  // a sub-buffer of it
};

class PlainHostBuffer : public HostBuffer {
 public:
  explicit PlainHostBuffer(int64_t bytes) : HostBuffer(std::malloc(bytes), bytes) {}
  ~PlainHostBuffer() override { std::free(data_); }
};

class OpenClProgram : public LoadedProgram {
 public:
  struct Kernel {
    KernelLaunch launch;
    ClProgram program;
    ClKernel kernel;
  };
  std::vector<Kernel> kernels;
  ProgramResources& mutable_resources() { return resources_; }
};

// The memory objects of one execution, kernel by kernel, in argument order.
using Arguments = std::vector<std::vector<cl_mem>>;

absl::StatusOr<Arguments> Resolve(const OpenClProgram& program, const BufferSet& buffers) {
  Arguments arguments;
  for (const OpenClProgram::Kernel& kernel : program.kernels) {
    std::vector<cl_mem>& list = arguments.emplace_back();
    for (const std::string& name : kernel.launch.arguments) {
      auto found = buffers.find(name);
      if (found == buffers.end()) {
        return absl::NotFoundError(
            absl::StrCat("kernel ", kernel.launch.entry, " wants a buffer named ", name));
      }
      list.push_back(static_cast<OpenClBuffer*>(found->second)->payload.get());
    }
  }
  return arguments;
}

absl::Status Enqueue(cl_command_queue queue, const OpenClProgram& program,
                     const Arguments& arguments) {
  for (size_t k = 0; k < program.kernels.size(); ++k) {
    const OpenClProgram::Kernel& kernel = program.kernels[k];
    cl_int code = CL_SUCCESS;
    for (size_t a = 0; a < arguments[k].size() && code == CL_SUCCESS; ++a) {
      code = clSetKernelArg(kernel.kernel.get(), a, sizeof(cl_mem), &arguments[k][a]);
    }
    const size_t local = kernel.launch.block, global = local * kernel.launch.grid;
    if (code == CL_SUCCESS) {
      code = clEnqueueNDRangeKernel(queue, kernel.kernel.get(), 1, nullptr, &global, &local, 0,
                                    nullptr, nullptr);
    }
    if (code != CL_SUCCESS) return CheckCl(code, absl::StrCat("launching ", kernel.launch.entry));
  }
  return absl::OkStatus();
}

class OpenClBatch : public TimedBatch {
 public:
  OpenClBatch(cl_command_queue queue, const OpenClProgram& program,
              std::vector<Arguments> executions)
      : queue_(queue), program_(program), executions_(std::move(executions)) {}

  absl::StatusOr<double> Run() override {
    auto start = std::chrono::steady_clock::now();
    for (const Arguments& arguments : executions_) {
      HEDDLE_RETURN_IF_ERROR(Enqueue(queue_, program_, arguments));
    }
    HEDDLE_RETURN_IF_ERROR(CheckCl(clFinish(queue_), "waiting for the kernels"));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  cl_command_queue queue_;
  const OpenClProgram& program_;
  std::vector<Arguments> executions_;
};

class OpenClDevice : public Device {
 public:
  OpenClDevice(cl_device_id device, DeviceInfo info, Context context, Queue queue)
      : device_(device),
        info_(std::move(info)),
        context_(std::move(context)),
        queue_(std::move(queue)) {}

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<std::unique_ptr<LoadedProgram>> Load(
      const std::vector<KernelBinary>& kernels) override {
    auto program = std::make_unique<OpenClProgram>();
    for (const KernelBinary& kernel : kernels) {
      HEDDLE_ASSIGN_OR_RETURN(loaded, LoadKernel(kernel, *program));
      program->kernels.push_back(std::move(loaded));
    }
    return program;
  }

  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override {
    const cl_ulong limit = GetCl<cl_ulong>(device_, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    if (static_cast<cl_ulong>(bytes + 2 * kGuardBytes) > limit) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("a buffer of %d bytes: %s allows %d at most", bytes, info_.id, limit));
    }
    cl_int code = CL_SUCCESS;
    Memory whole(
        clCreateBuffer(context_.get(), CL_MEM_READ_WRITE, bytes + 2 * kGuardBytes, nullptr, &code));
    const cl_buffer_region region = {kGuardBytes, static_cast<size_t>(bytes)};
    Memory payload;
    if (code == CL_SUCCESS) {
      payload.reset(clCreateSubBuffer(whole.get(), CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
                                      &region, &code));
    }
    if (code != CL_SUCCESS) return CheckCl(code, absl::StrCat("allocating ", bytes, " bytes"));
    auto buffer = std::make_unique<OpenClBuffer>(bytes, std::move(whole), std::move(payload));
    HEDDLE_RETURN_IF_ERROR(RestoreGuards(*buffer));
    return buffer;
  }

  absl::StatusOr<std::unique_ptr<HostBuffer>> AllocateHost(int64_t bytes) override {
    auto buffer = std::make_unique<PlainHostBuffer>(bytes);
    if (buffer->data() == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no ", bytes, " bytes of host memory"));
    }
    return buffer;
  }

  absl::StatusOr<int64_t> FreeMemory() override { return info_.target.memory_bytes; }

  absl::Status Upload(DeviceBuffer& to, const void* from, int64_t bytes) override {
    return CheckCl(clEnqueueWriteBuffer(queue_.get(), Cast(to).payload.get(), CL_TRUE, 0, bytes,
                                        from, 0, nullptr, nullptr),
                   "writing a buffer");
  }

  absl::Status Download(const DeviceBuffer& from, void* to, int64_t bytes) override {
    return CheckCl(clEnqueueReadBuffer(queue_.get(), Cast(from).payload.get(), CL_TRUE, 0, bytes,
                                       to, 0, nullptr, nullptr),
                   "reading a buffer");
  }

  absl::Status Copy(const DeviceBuffer& from, DeviceBuffer& to) override {
    cl_int code =
        clEnqueueCopyBuffer(queue_.get(), Cast(from).payload.get(), Cast(to).payload.get(), 0, 0,
                            from.bytes(), 0, nullptr, nullptr);
    return CheckCl(code == CL_SUCCESS ? clFinish(queue_.get()) : code, "copying a buffer");
  }

  // On the host, which is the device where there is no GPU: mapping copies nothing then.
  absl::StatusOr<Difference> Compare(const DeviceBuffer& a, const DeviceBuffer& b, int64_t elements,
                                     double slack, search_space::DType type) override {
    const cl_mem buffers[] = {Cast(a).payload.get(), Cast(b).payload.get()};
    void* mapped[2] = {};
    cl_int code = CL_SUCCESS;
    for (int i = 0; i < 2 && code == CL_SUCCESS; ++i) {
      mapped[i] = clEnqueueMapBuffer(queue_.get(), buffers[i], CL_TRUE, CL_MAP_READ, 0,
                                     elements * SizeOf(type), 0, nullptr, nullptr, &code);
    }
    Difference difference;
    if (code == CL_SUCCESS) {
      difference = DifferenceOf(mapped[0], mapped[1], elements, slack, UsableCores(), type);
    }
    for (int i = 0; i < 2; ++i) {
      if (mapped[i] == nullptr) continue;
      const cl_int unmapped =
          clEnqueueUnmapMemObject(queue_.get(), buffers[i], mapped[i], 0, nullptr, nullptr);
      if (code == CL_SUCCESS) code = unmapped;
    }
    const cl_int finished = clFinish(queue_.get());
    if (code == CL_SUCCESS) code = finished;
    if (code != CL_SUCCESS) return CheckCl(code, "comparing buffers");
    return difference;
  }

  absl::Status Fill(DeviceBuffer& buffer, uint32_t pattern) override {
    cl_mem payload = Cast(buffer).payload.get();
    const int64_t words = buffer.bytes() / 4 * 4, rest = buffer.bytes() - words;
    if (words > 0) HEDDLE_RETURN_IF_ERROR(FillRange(payload, pattern, 0, words));
    if (rest == 0) return absl::OkStatus();
    return FillRange(payload, static_cast<uint16_t>(pattern), words, rest);
  }

  absl::StatusOr<bool> GuardsIntact(const DeviceBuffer& buffer) override {
    for (int64_t offset : {int64_t{0}, kGuardBytes + buffer.bytes()}) {
      uint16_t halves[kGuardBytes / 2];
      cl_int code = clEnqueueReadBuffer(queue_.get(), Cast(buffer).whole.get(), CL_TRUE, offset,
                                        kGuardBytes, halves, 0, nullptr, nullptr);
      if (code != CL_SUCCESS) return CheckCl(code, "reading a red zone");
      if (std::any_of(std::begin(halves), std::end(halves),
                      [](uint16_t half) { return half != kGuardPattern; })) {
        return false;
      }
    }
    return true;
  }

  absl::Status RestoreGuards(DeviceBuffer& buffer) override {
    cl_mem whole = Cast(buffer).whole.get();
    HEDDLE_RETURN_IF_ERROR(FillRange(whole, kGuardPattern, 0, kGuardBytes));
    return FillRange(whole, kGuardPattern, kGuardBytes + buffer.bytes(), kGuardBytes);
  }

  // PoCL's threads each have memory of their own for this, and take groups as they come: more
  // groups than threads, so that most have one.
  absl::Status FillShared(uint32_t pattern) override {
    cl_int code = filler_.kernel == nullptr ? LoadFiller() : CL_SUCCESS;
    const auto bytes = static_cast<size_t>(info_.target.max_shared_bytes_per_block);
    const auto words = static_cast<cl_uint>(bytes / 4);
    cl_kernel kernel = filler_.kernel.get();
    if (code == CL_SUCCESS) code = clSetKernelArg(kernel, 0, bytes, nullptr);
    if (code == CL_SUCCESS) code = clSetKernelArg(kernel, 1, sizeof pattern, &pattern);
    if (code == CL_SUCCESS) code = clSetKernelArg(kernel, 2, sizeof words, &words);
    const size_t local = kFillSharedItems;
    const size_t global = local * static_cast<size_t>(4 * info_.target.sm_count);
    if (code == CL_SUCCESS) {
      code = clEnqueueNDRangeKernel(queue_.get(), kernel, 1, nullptr, &global, &local, 0, nullptr,
                                    nullptr);
    }
    return CheckCl(code == CL_SUCCESS ? clFinish(queue_.get()) : code, "filling shared memory");
  }

  absl::Status Run(LoadedProgram& program, const BufferSet& buffers) override {
    const auto& loaded = static_cast<OpenClProgram&>(program);
    HEDDLE_ASSIGN_OR_RETURN(arguments, Resolve(loaded, buffers));
    HEDDLE_RETURN_IF_ERROR(Enqueue(queue_.get(), loaded, arguments));
    return CheckCl(clFinish(queue_.get()), "waiting for the kernels");
  }

  absl::StatusOr<std::unique_ptr<TimedBatch>> PrepareBatch(LoadedProgram& program,
                                                           const std::vector<BufferSet>& sets,
                                                           int first, int launches) override {
    const auto& loaded = static_cast<OpenClProgram&>(program);
    std::vector<Arguments> executions;
    for (int i = 0; i < launches; ++i) {
      HEDDLE_ASSIGN_OR_RETURN(arguments, Resolve(loaded, sets[(first + i) % sets.size()]));
      executions.push_back(std::move(arguments));
    }
    return std::make_unique<OpenClBatch>(queue_.get(), loaded, std::move(executions));
  }

  // The host's monotonic clock, with what it costs to read it.
  double clock_resolution() const override { return 1e-7; }

  DeviceState State() override { return {}; }

 private:
  static OpenClBuffer& Cast(DeviceBuffer& buffer) { return static_cast<OpenClBuffer&>(buffer); }
  static const OpenClBuffer& Cast(const DeviceBuffer& buffer) {
    return static_cast<const OpenClBuffer&>(buffer);
  }

  // When a program first wants it: most use no __local memory, and PoCL takes its time to compile.
  cl_int LoadFiller() {
    const char* text = kFillSharedOpenCl;
    cl_int code = CL_SUCCESS;
    filler_.program.reset(clCreateProgramWithSource(context_.get(), 1, &text, nullptr, &code));
    if (code == CL_SUCCESS) {
      code = clBuildProgram(filler_.program.get(), 1, &device_, "-cl-std=CL1.2", nullptr, nullptr);
    }
    if (code == CL_SUCCESS) {
      filler_.kernel.reset(clCreateKernel(filler_.program.get(), kFillSharedEntry, &code));
    }
    return code;
  }

  template <typename Pattern>
  absl::Status FillRange(cl_mem memory, Pattern pattern, int64_t offset, int64_t bytes) {
    cl_int code = clEnqueueFillBuffer(queue_.get(), memory, &pattern, sizeof pattern, offset, bytes,
                                      0, nullptr, nullptr);
    return CheckCl(code == CL_SUCCESS ? clFinish(queue_.get()) : code, "filling a buffer");
  }

  // Limits are checked before anything is launched: PoCL ends the process when there is too much
  // __local memory.
  absl::StatusOr<OpenClProgram::Kernel> LoadKernel(const KernelBinary& kernel,
                                                   OpenClProgram& program) {
    const KernelLaunch& launch = kernel.launch;
    const search_space::Target& target = info_.target;
    if (launch.grid < 1 || launch.block < 1 || launch.grid > target.max_grid) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: a launch of %d groups of %d work-items", launch.entry, launch.grid, launch.block));
    }
    if (launch.block > target.max_threads_per_block) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("%s: %d work-items in a group, %s allows %d", launch.entry, launch.block,
                          info_.id, target.max_threads_per_block));
    }
    OpenClProgram::Kernel loaded{launch, nullptr, nullptr};
    const auto* data = reinterpret_cast<const unsigned char*>(kernel.binary.data());
    const size_t size = kernel.binary.size();
    cl_int code = CL_SUCCESS, status = CL_SUCCESS;
    loaded.program.reset(
        clCreateProgramWithBinary(context_.get(), 1, &device_, &size, &data, &status, &code));
    if (code == CL_SUCCESS) code = status;
    if (code == CL_SUCCESS) {
      code = clBuildProgram(loaded.program.get(), 1, &device_, "", nullptr, nullptr);
    }
    if (code == CL_SUCCESS) {
      loaded.kernel.reset(clCreateKernel(loaded.program.get(), launch.entry.c_str(), &code));
    }
    if (code != CL_SUCCESS) return CheckCl(code, absl::StrCat("loading ", launch.entry));
    cl_ulong shared = 0, local = 0;
    clGetKernelWorkGroupInfo(loaded.kernel.get(), device_, CL_KERNEL_LOCAL_MEM_SIZE, sizeof shared,
                             &shared, nullptr);
    clGetKernelWorkGroupInfo(loaded.kernel.get(), device_, CL_KERNEL_PRIVATE_MEM_SIZE, sizeof local,
                             &local, nullptr);
    ProgramResources& resources = program.mutable_resources();
    resources.shared_bytes = std::max(resources.shared_bytes, static_cast<int64_t>(shared));
    if (!(GetCl<cl_device_type>(device_, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU)) {
      resources.local_bytes = std::max(resources.local_bytes, static_cast<int64_t>(local));
    }
    if (static_cast<int64_t>(shared) > target.max_shared_bytes_per_block) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("%s: %d bytes of __local memory, %s has %d", launch.entry, shared,
                          info_.id, target.max_shared_bytes_per_block));
    }
    return loaded;
  }

  cl_device_id device_;
  DeviceInfo info_;
  Context context_;
  Queue queue_;
  struct {
    ClProgram program;
    ClKernel kernel;
  } filler_;
};

// PoCL's binaries hold kernels compiled for any work-group size, and it would compile again for the
// size of the first launch unless asked beforehand for a kernel specialised the way it will look
// for: by size, zero global offset and a global size below 65535. It reads the variable once a
// process, hence the advice in drivers.h.
void AskForSpecialisation(const KernelLaunch& launch) {
  std::string size = absl::StrCat(launch.block, "-1-1-goffs0");
  if (launch.block * launch.grid < 65535) size += "-smallgrid";
  setenv("POCL_BINARY_SPECIALIZE_WG", size.c_str(), 1);
}

absl::StatusOr<Context> MakeContext(cl_device_id device) {
  cl_int code = CL_SUCCESS;
  Context context(clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code));
  if (code != CL_SUCCESS) return CheckCl(code, "creating an OpenCL context");
  return context;
}

// "opencl:0"
absl::StatusOr<cl_device_id> FindNamedDevice(const std::string& id) {
  int index = 0;
  if (!absl::StartsWith(id, "opencl:") || !absl::SimpleAtoi(id.substr(strlen("opencl:")), &index)) {
    return absl::UnavailableError(absl::StrCat("'", id, "' is no OpenCL device"));
  }
  return FindClDevice(index);
}

// Of a compiler process that is prepared, with which all of its children compile: PoCL reads its
// library of functions once for each context. Never released, as a child has it, too.
Context* prepared = nullptr;

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenOpenClDevice(int index) {
  HEDDLE_ASSIGN_OR_RETURN(device, FindClDevice(index));
  DeviceInfo info = DescribeClDevice(device, index);
  if (!info.usable) return absl::UnavailableError(absl::StrCat(info.id, ": ", info.why_not));
  HEDDLE_ASSIGN_OR_RETURN(context, MakeContext(device));
  cl_int code = CL_SUCCESS;
  Queue queue(clCreateCommandQueue(context.get(), device, 0, &code));
  if (code != CL_SUCCESS) return CheckCl(code, "creating an OpenCL queue");
  return std::make_unique<OpenClDevice>(device, std::move(info), std::move(context),
                                        std::move(queue));
}

Compiling PrepareOpenClCompiler(const std::string& device_id) {
  const absl::StatusOr<cl_device_id> device = FindNamedDevice(device_id);
  if (!device.ok() || !IsPocl(*device)) return Compiling::kOnce;
  absl::StatusOr<Context> context = MakeContext(*device);
  if (!context.ok()) return Compiling::kOnce;
  prepared = new Context(*std::move(context));
  const char* text = "__kernel void any(__global float* a) { a[get_global_id(0)] = 1.0f; }";
  cl_int code = CL_SUCCESS;
  const ClProgram program(clCreateProgramWithSource(prepared->get(), 1, &text, nullptr, &code));
  if (code == CL_SUCCESS) {
    // To ask for its binary would have it read what AskForSpecialisation sets. What goes wrong each
    // kernel will tell.
    clBuildProgram(program.get(), 1, &*device, kOpenClCompileOptions, nullptr, nullptr);
  }
  return Compiling::kInChildren;
}

absl::StatusOr<std::string> CompileOpenCl(const std::string& device_id, const KernelSource& source,
                                          const char* options) {
  HEDDLE_ASSIGN_OR_RETURN(device, FindNamedDevice(device_id));
  Context own;
  if (prepared == nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(made, MakeContext(device));
    own = std::move(made);
  }
  const Context& context = prepared != nullptr ? *prepared : own;
  const char* text = source.source.c_str();
  cl_int code = CL_SUCCESS;
  ClProgram program(clCreateProgramWithSource(context.get(), 1, &text, nullptr, &code));
  if (code != CL_SUCCESS) return CheckCl(code, "creating a program");
  AskForSpecialisation(source.launch);
  code = clBuildProgram(program.get(), 1, &device, options, nullptr, nullptr);
  if (code != CL_SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat("the OpenCL compiler refused ",
                                                   source.launch.entry, ": ",
                                                   BuildLog(program.get(), device)));
  }
  size_t size = 0;
  code = clGetProgramInfo(program.get(), CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr);
  std::string binary(size, '\0');
  auto* data = reinterpret_cast<unsigned char*>(binary.data());
  if (code == CL_SUCCESS) {
    code = clGetProgramInfo(program.get(), CL_PROGRAM_BINARIES, sizeof data, &data, nullptr);
  }
  if (code != CL_SUCCESS) return CheckCl(code, absl::StrCat("compiling ", source.launch.entry));
  return binary;
}

}  // namespace heddle::measure
