// NVIDIA's GPUs: the driver is in cuda_device.cc, the compiler in nvrtc.cc.
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "measure/device/backend.h"
#include "measure/device/cuda/nvrtc.h"
#include "measure/device/device_lock.h"
#include "measure/device/drivers.h"

namespace heddle::measure {

#ifndef HEDDLE_WITH_CUDA
constexpr char kNoCuda[] =
    "this program was built without CUDA: build it where the CUDA toolkit is installed";

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int) {
  return absl::UnavailableError(kNoCuda);
}

std::vector<DeviceInfo> DetectCudaDevices() {
  DeviceInfo info;
  info.id = "cuda:0";
  info.usable = false;
  info.why_not = kNoCuda;
  return {info};
}
#endif

namespace {

absl::StatusOr<CompiledSource> Compile(const KernelSource& source, const DeviceInfo& device) {
  HEDDLE_ASSIGN_OR_RETURN(built, CompileCuda(source.source, source.launch.entry,
                                             device.target.arch + source.arch_suffix));
  return CompiledSource{std::move(built.cubin), std::move(built.ptx), built.resources};
}

std::string CacheKey(const DeviceInfo& device, const KernelLaunch&) {
  return absl::StrCat(device.target.arch, "\n", absl::StrJoin(CudaCompileOptions(), " "));
}

constexpr char kIntro[] =
    R"(// Runs the kernels of this folder and checks their result. Build and run inside the folder:
//   g++ -O2 -std=c++17 -I/usr/local/cuda/include run.cc -lcuda -o run && ./run
#include <cuda.h>
)";

constexpr char kDriver[] = R"(
#define CHECK(call)                                                     \
  do {                                                                  \
    CUresult result = (call);                                           \
    if (result != CUDA_SUCCESS) {                                       \
      const char* text = "unknown";                                     \
      cuGetErrorString(result, &text);                                  \
      std::fprintf(stderr, "%s: %s\n", #call, text);                    \
      std::exit(1);                                                     \
    }                                                                   \
  } while (0)

// The CUDA driver API behind the few calls that main needs.
struct Gpu {
  std::map<std::string, CUdeviceptr> memory;
  std::vector<CUfunction> functions;

  explicit Gpu(int index) {
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, index));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    for (const Kernel& kernel : kKernels) {
      CUmodule module;
      CUfunction function;
      CHECK(cuModuleLoad(&module, kernel.file));
      CHECK(cuModuleGetFunction(&function, module, kernel.entry));
      if (kernel.shared_bytes > 0) {
        CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                 static_cast<int>(kernel.shared_bytes)));
      }
      functions.push_back(function);
    }
  }
  void Upload(const Buffer& buffer, const std::vector<char>& bytes) {
    CHECK(cuMemAlloc(&memory[buffer.name], bytes.size()));
    CHECK(cuMemcpyHtoD(memory[buffer.name], bytes.data(), bytes.size()));
  }
  void Download(const Buffer& buffer, std::vector<char>& bytes) {
    CHECK(cuMemcpyDtoH(bytes.data(), memory[buffer.name], bytes.size()));
  }
  void Launch() {
    for (size_t i = 0; i < kKernels.size(); ++i) {
      const Kernel& kernel = kKernels[i];
      std::vector<void*> args;
      for (const char* name : kernel.args) args.push_back(&memory[name]);
#if CUDA_VERSION >= 12000
      std::vector<CUtensorMap> maps;
      for (const TensorMap& map : kernel.maps) maps.push_back(Describe(map));
      for (CUtensorMap& map : maps) args.push_back(&map);
#endif
      CHECK(cuLaunchKernel(functions[i], kernel.grid, 1, 1, kernel.block, 1, 1,
                           kernel.shared_bytes, nullptr, args.data(), nullptr));
    }
  }
  void Wait() { CHECK(cuCtxSynchronize()); }

 private:
#if CUDA_VERSION >= 12000
  // The driver counts dimensions from the innermost one.
  CUtensorMap Describe(const TensorMap& map) {
    const std::vector<cuuint64_t> shape(map.shape.rbegin(), map.shape.rend());
    const std::vector<cuuint64_t> strides(map.strides.rbegin(), map.strides.rend());
    const std::vector<cuuint32_t> box(map.box.rbegin(), map.box.rend()), steps(box.size(), 1);
    const CUtensorMapSwizzle swizzle = map.swizzle_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                       : map.swizzle_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                                 : CU_TENSOR_MAP_SWIZZLE_32B;
    const CUtensorMapDataType type = map.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                                                            : CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    CUtensorMap described;
    CHECK(cuTensorMapEncodeTiled(
        &described, type, static_cast<cuuint32_t>(shape.size()),
        reinterpret_cast<void*>(memory[map.buffer]), shape.data(), strides.data(), box.data(),
        steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    return described;
  }
#endif
};
)";

}  // namespace

const Backend kCudaBackend = {
    .name = "cuda",
    .api = search_space::Api::kCuda,
    .detect = DetectCudaDevices,
    .open = OpenCudaDevice,
    .compile = Compile,
    .prepare = nullptr,
    .hides_devices = "CUDA_VISIBLE_DEVICES=",
    .cache_key = CacheKey,
    .scratch = nullptr,
    .node = [](const DeviceInfo& device) { return NvidiaNode(device.uuid); },
    .runs_in_process = false,
    .allow =
        [](SandboxRules& rules) {
          // Beside NVRTC is what it loads when it compiles.
          if (auto nvrtc = FindNvrtc(); nvrtc.ok()) {
            rules.read.push_back(std::filesystem::path(nvrtc->path).parent_path());
          }
        },
    .compile_options = [] { return CudaCompileOptions(); },
    .source_suffix = ".cu",
    .binary_suffix = ".cubin",
    .assembly_suffix = ".ptx",
    .launcher = {kIntro, kDriver, "-I/usr/local/cuda/include run.cc -lcuda",
                 /*loads_source=*/false},
};

}  // namespace heddle::measure
