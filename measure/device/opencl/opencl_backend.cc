// OpenCL devices: the driver and its compiler are in opencl_device.cc.
#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "measure/device/backend.h"
#include "measure/device/drivers.h"

namespace heddle::measure {
namespace {

absl::StatusOr<CompiledSource> Compile(const KernelSource& source, const DeviceInfo& device) {
  HEDDLE_ASSIGN_OR_RETURN(binary, CompileOpenCl(device.id, source));
  return CompiledSource{std::move(binary), "", {}};
}

// Binaries are made for one device, driver and, with PoCL, size of launch.
std::string CacheKey(const DeviceInfo& device, const KernelLaunch& launch) {
  return absl::StrCat(device.target.name, "\n", device.driver, "\n", launch.grid, " ",
                      launch.block);
}

constexpr char kIntro[] =
    R"(// Runs the kernels of this folder and checks their result. Build and run inside the folder:
//   g++ -O2 -std=c++17 run.cc -lOpenCL -o run && ./run
// The first OpenCL device is used; ./run N takes the Nth, counted over all platforms from 0.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
)";

constexpr char kDriver[] = R"(
#define CHECK(code)                                                     \
  do {                                                                  \
    cl_int result = (code);                                             \
    if (result != CL_SUCCESS) {                                         \
      std::fprintf(stderr, "line %d: OpenCL error %d\n", __LINE__, result); \
      std::exit(1);                                                     \
    }                                                                   \
  } while (0)

// OpenCL behind the few calls that main needs.
struct Gpu {
  std::map<std::string, cl_mem> memory;
  std::vector<cl_kernel> functions;
  cl_context context;
  cl_command_queue queue;

  explicit Gpu(int index) {
    std::vector<cl_device_id> devices;
    cl_platform_id platforms[16];
    cl_uint platform_count = 0;
    CHECK(clGetPlatformIDs(16, platforms, &platform_count));
    for (cl_uint p = 0; p < platform_count; ++p) {
      cl_device_id found[64];
      cl_uint count = 0;
      if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 64, found, &count) == CL_SUCCESS) {
        devices.insert(devices.end(), found, found + count);
      }
    }
    if (index >= static_cast<int>(devices.size())) {
      std::fprintf(stderr, "there are %zu OpenCL devices\n", devices.size());
      std::exit(1);
    }
    cl_device_id device = devices[index];
    cl_int code;
    context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
    CHECK(code);
    queue = clCreateCommandQueue(context, device, 0, &code);
    CHECK(code);
    for (const Kernel& kernel : kKernels) {
      std::ifstream file(kernel.file);
      std::stringstream text;
      text << file.rdbuf();
      std::string source = text.str();
      const char* pointer = source.c_str();
      cl_program program = clCreateProgramWithSource(context, 1, &pointer, nullptr, &code);
      CHECK(code);
      CHECK(clBuildProgram(program, 1, &device, "-cl-std=CL1.2", nullptr, nullptr));
      functions.push_back(clCreateKernel(program, kernel.entry, &code));
      CHECK(code);
    }
  }
  void Upload(const Buffer& buffer, const std::vector<char>& bytes) {
    cl_int code;
    memory[buffer.name] = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                         bytes.size(),
                                         const_cast<char*>(bytes.data()), &code);
    CHECK(code);
  }
  void Download(const Buffer& buffer, std::vector<char>& bytes) {
    CHECK(clEnqueueReadBuffer(queue, memory[buffer.name], CL_TRUE, 0,
                              bytes.size(), bytes.data(), 0, nullptr, nullptr));
  }
  void Launch() {
    for (size_t i = 0; i < kKernels.size(); ++i) {
      const Kernel& kernel = kKernels[i];
      for (cl_uint a = 0; a < kernel.args.size(); ++a) {
        CHECK(clSetKernelArg(functions[i], a, sizeof(cl_mem), &memory[kernel.args[a]]));
      }
      size_t global = size_t{kernel.grid} * kernel.block, local = kernel.block;
      CHECK(clEnqueueNDRangeKernel(queue, functions[i], 1, nullptr, &global, &local, 0, nullptr,
                                   nullptr));
    }
  }
  void Wait() { CHECK(clFinish(queue)); }
};
)";

// Where PoCL compiles: the session's folder, the one that the user has chosen, or its own.
void AllowOpenCl(SandboxRules& rules) {
  if (const char* vendors = getenv("OCL_ICD_VENDORS")) rules.read.push_back(vendors);
  if (const char* folder = getenv("POCL_CACHE_DIR")) {
    rules.write.push_back(folder);
  } else if (const char* caches = getenv("XDG_CACHE_HOME")) {
    rules.write.push_back(absl::StrCat(caches, "/pocl"));
  } else if (const char* home = getenv("HOME")) {
    rules.write.push_back(absl::StrCat(home, "/.cache/pocl"));
  }
}

constexpr Backend kRow = {
    .name = "opencl",
    .api = search_space::Api::kOpenCl,
    .detect = DetectOpenClDevices,
    .open = OpenOpenClDevice,
    .compile = Compile,
    .prepare = PrepareOpenClCompiler,
    .hides_devices = nullptr,
    .cache_key = CacheKey,
    .scratch = MakePoclFolder,
    .node = nullptr,
    .runs_in_process = true,
    .allow = AllowOpenCl,
    .compile_options = [] { return std::vector<std::string>{kOpenClCompileOptions}; },
    .source_suffix = ".cl",
    .binary_suffix = ".clbin",
    .assembly_suffix = nullptr,
    .launcher = {kIntro, kDriver, "run.cc -lOpenCL", /*loads_source=*/true},
};

// Its faults are not those of the source, so that no binary is kept.
constexpr Backend FakeRow() {
  Backend row = kRow;
  row.name = "fake";
  row.detect = DetectFakeDevices;
  row.open = OpenFakeDevice;
  row.prepare = [](const std::string&) { return PrepareOpenClCompiler("opencl:0"); };
  row.compile = [](const KernelSource& source,
                   const DeviceInfo&) -> absl::StatusOr<CompiledSource> {
    HEDDLE_ASSIGN_OR_RETURN(binary, CompileFake(source));
    return CompiledSource{std::move(binary), "", {}};
  };
  row.allow = [](SandboxRules& rules) {
    AllowOpenCl(rules);
    if (const char* script = getenv("HEDDLE_FAKE_DEVICE")) rules.read.push_back(script);
  };
  row.cache_key = nullptr;
  row.compile_options = [] { return std::vector<std::string>{kFakeCompileOptions}; };
  return row;
}

}  // namespace

const Backend kOpenClBackend = kRow;
const Backend kFakeBackend = FakeRow();

}  // namespace heddle::measure
