#include "tuner/artefact/launchers.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace heddle::tuner {
namespace {

using search_space::Api;

constexpr char kCudaIntro[] =
    R"(// Runs the kernels of this folder and checks their result. Build and run inside the folder:
//   g++ -O2 -std=c++17 -I/usr/local/cuda/include run.cc -lcuda -o run && ./run
#include <cuda.h>
)";
constexpr char kOpenClIntro[] =
    R"(// Runs the kernels of this folder and checks their result. Build and run inside the folder:
//   g++ -O2 -std=c++17 run.cc -lOpenCL -o run && ./run
// The first OpenCL device is used; ./run N takes the Nth, counted over all platforms from 0.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
)";

constexpr char kHead[] = R"(
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

struct Buffer { const char* name; const char* role; int64_t elements; };
struct Kernel {
  const char* entry;
  const char* file;
  unsigned grid, block, shared_bytes;
  std::vector<const char*> args;  // buffer names, in argument order
};
)";

constexpr char kCuda[] = R"(
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
  void Upload(const Buffer& buffer, const std::vector<float>& values) {
    CHECK(cuMemAlloc(&memory[buffer.name], values.size() * sizeof(float)));
    CHECK(cuMemcpyHtoD(memory[buffer.name], values.data(), values.size() * sizeof(float)));
  }
  void Download(const Buffer& buffer, std::vector<float>& values) {
    CHECK(cuMemcpyDtoH(values.data(), memory[buffer.name], values.size() * sizeof(float)));
  }
  void Launch() {
    for (size_t i = 0; i < kKernels.size(); ++i) {
      const Kernel& kernel = kKernels[i];
      std::vector<void*> args;
      for (const char* name : kernel.args) args.push_back(&memory[name]);
      CHECK(cuLaunchKernel(functions[i], kernel.grid, 1, 1, kernel.block, 1, 1,
                           kernel.shared_bytes, nullptr, args.data(), nullptr));
    }
  }
  void Wait() { CHECK(cuCtxSynchronize()); }
};
)";

constexpr char kOpenCl[] = R"(
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
  void Upload(const Buffer& buffer, const std::vector<float>& values) {
    cl_int code;
    memory[buffer.name] = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                         values.size() * sizeof(float),
                                         const_cast<float*>(values.data()), &code);
    CHECK(code);
  }
  void Download(const Buffer& buffer, std::vector<float>& values) {
    CHECK(clEnqueueReadBuffer(queue, memory[buffer.name], CL_TRUE, 0,
                              values.size() * sizeof(float), values.data(), 0, nullptr, nullptr));
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

constexpr char kMain[] = R"(
uint64_t Mix(uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Element `offset` of the input with that number: what samples.txt was computed from.
float InputValue(int input, int64_t offset) {
  const uint64_t stream = Mix(kInputSeed + 0x9e3779b97f4a7c15 * static_cast<uint64_t>(input + 1));
  const uint64_t bits = Mix(stream + 0x9e3779b97f4a7c15 * static_cast<uint64_t>(offset + 1));
  const float unit = static_cast<float>(bits >> 40) * 0x1p-24f;
  return kInputScale * unit + kInputLow;
}

int main(int argc, char** argv) {
  Gpu gpu(argc > 1 ? std::atoi(argv[1]) : 0);
  std::map<std::string, std::vector<float>> values;
  int input = 0;
  for (const Buffer& buffer : kBuffers) {
    // Outputs and workspaces start as NaN: what is not written is seen.
    std::vector<float>& v = values[buffer.name];
    v.assign(buffer.elements, NAN);
    if (buffer.role == std::string("input")) {
      for (int64_t i = 0; i < buffer.elements; ++i) v[i] = InputValue(input, i);
      ++input;
    }
    gpu.Upload(buffer, v);
  }
  gpu.Launch();
  gpu.Wait();
  for (const Buffer& buffer : kBuffers) {
    if (buffer.role == std::string("output")) gpu.Download(buffer, values[buffer.name]);
  }

  std::ifstream samples("samples.txt");
  std::string line;
  int checked = 0, wrong = 0;
  double worst = 0;
  while (std::getline(samples, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string name;
    int64_t offset;
    double expected, tolerance;
    fields >> name >> offset >> expected >> tolerance;
    double error = std::abs(values[name][offset] - expected) / tolerance;
    ++checked;
    if (!(error <= 1)) ++wrong;
    worst = std::max(worst, error);
  }

  constexpr int kRuns = 20;
  std::vector<double> us;
  for (int i = 0; i < kRuns; ++i) {
    auto start = std::chrono::steady_clock::now();
    gpu.Launch();
    gpu.Wait();
    us.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(us.begin(), us.end());
  std::printf("%d values checked, %d wrong, largest error %.2g of what is allowed; %.1f us from the "
              "host's side\n",
              checked, wrong, worst, us[us.size() / 2]);
  return checked > 0 && wrong == 0 ? 0 : 1;
}
)";

constexpr char kPython[] = R"py(#!/usr/bin/env python3
"""Runs the kernels of this folder and checks their result against samples.txt.

    python3 run.py [DEVICE]        DEVICE is a number, 0 by default

CUDA artefacts need cupy, OpenCL ones pyopencl; both need numpy.
"""
import json
import os
import sys
import time

import numpy as np

FOLDER = os.path.dirname(os.path.abspath(__file__))


def mix(x):
    """The finaliser of splitmix64, on an array of 64-bit integers."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def input_values(check, number, elements):
    """The input with that number: what samples.txt was computed from."""
    with np.errstate(over="ignore"):
        golden = np.uint64(0x9E3779B97F4A7C15)
        stream = mix(np.array([check["input_seed"]], np.uint64) + golden * np.uint64(number + 1))
        bits = mix(stream + golden * np.arange(1, elements + 1, dtype=np.uint64))
    unit = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return np.float32(check["input_scale"]) * unit + np.float32(check["input_low"])


class Cuda:
    def __init__(self, manifest, number):
        import cupy

        self.cupy = cupy
        cupy.cuda.Device(number).use()
        self.functions = []
        for k in manifest["kernels"]:
            f = cupy.RawModule(path=os.path.join(FOLDER, k["binary"])).get_function(k["entry"])
            if k["shared_bytes"] > 0:
                f.max_dynamic_shared_size_bytes = k["shared_bytes"]
            self.functions.append((k, f))

    def upload(self, values):
        return self.cupy.asarray(values)

    def download(self, buffer, elements):
        return self.cupy.asnumpy(buffer)

    def launch(self, memory):
        for k, f in self.functions:
            args = tuple(memory[a] for a in k["args"])
            f(tuple(k["grid"]), tuple(k["block"]), args, shared_mem=k["shared_bytes"])
        self.cupy.cuda.get_current_stream().synchronize()


class OpenCl:
    def __init__(self, manifest, number):
        import pyopencl

        self.cl = pyopencl
        devices = [d for p in pyopencl.get_platforms() for d in p.get_devices()]
        self.context = pyopencl.Context([devices[number]])
        self.queue = pyopencl.CommandQueue(self.context)
        self.functions = []
        for k in manifest["kernels"]:
            text = open(os.path.join(FOLDER, k["source"])).read()
            program = pyopencl.Program(self.context, text).build(["-cl-std=CL1.2"])
            self.functions.append((k, pyopencl.Kernel(program, k["entry"])))

    def upload(self, values):
        flags = self.cl.mem_flags.READ_WRITE | self.cl.mem_flags.COPY_HOST_PTR
        return self.cl.Buffer(self.context, flags, hostbuf=values)

    def download(self, buffer, elements):
        values = np.empty(elements, np.float32)
        self.cl.enqueue_copy(self.queue, values, buffer)
        return values

    def launch(self, memory):
        for k, f in self.functions:
            size = (k["grid"][0] * k["block"][0],)
            f(self.queue, size, tuple(k["block"][:1]), *(memory[a] for a in k["args"]))
        self.queue.finish()


def main():
    with open(os.path.join(FOLDER, "manifest.json")) as f:
        manifest = json.load(f)
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    device = (OpenCl if manifest["arch"] == "opencl" else Cuda)(manifest, number)
    elements = {b["name"]: int(np.prod(b["shape"], dtype=np.int64)) for b in manifest["buffers"]}
    memory, inputs = {}, 0
    for b in manifest["buffers"]:
        if b["role"] == "input":
            values = input_values(manifest["check"], inputs, elements[b["name"]])
            inputs += 1
        else:  # what is not written is seen
            values = np.full(elements[b["name"]], np.nan, np.float32)
        memory[b["name"]] = device.upload(values)
    device.launch(memory)
    outputs = {
        b["name"]: device.download(memory[b["name"]], elements[b["name"]])
        for b in manifest["buffers"]
        if b["role"] == "output"
    }

    checked = wrong = 0
    worst = 0.0
    with open(os.path.join(FOLDER, manifest["check"]["samples"])) as f:
        for line in f:
            if line.startswith("#"):
                continue
            name, offset, expected, tolerance = line.split()
            error = abs(float(outputs[name][int(offset)]) - float(expected)) / float(tolerance)
            checked += 1
            wrong += not error <= 1
            worst = max(worst, error)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        device.launch(memory)
        times.append(time.perf_counter() - start)
    print(
        f"{checked} values checked, {wrong} wrong, largest error {worst:.2g} of what is allowed; "
        f"{sorted(times)[10] * 1e6:.1f} us from the host's side"
    )
    return 0 if checked and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
)py";

}  // namespace

std::string CppLauncher(Api api, const std::vector<LauncherBuffer>& buffers,
                        const std::vector<measure::KernelLaunch>& kernels,
                        const std::vector<std::string>& files, uint64_t input_seed,
                        double input_low, double input_scale) {
  bool cuda = api == Api::kCuda;
  std::string text = absl::StrCat(cuda ? kCudaIntro : kOpenClIntro, kHead);
  text += "\n// Declaration order; then intermediate tensors, which need no initialisation.\n";
  text += "const std::vector<Buffer> kBuffers = {\n";
  for (const LauncherBuffer& b : buffers) {
    absl::StrAppendFormat(&text, "    {\"%s\", \"%s\", %d},\n", b.name, b.role, b.elements);
  }
  text += "};\n// Launched in this order.\nconst std::vector<Kernel> kKernels = {\n";
  for (size_t i = 0; i < kernels.size(); ++i) {
    const measure::KernelLaunch& k = kernels[i];
    std::string args;
    for (const std::string& a : k.arguments) {
      absl::StrAppend(&args, args.empty() ? "" : ", ", "\"", a, "\"");
    }
    absl::StrAppendFormat(&text, "    {\"%s\", \"%s\", %d, %d, %d, {%s}},\n", k.entry, files[i],
                          k.grid, k.block, k.dynamic_shared_bytes, args);
  }
  absl::StrAppendFormat(&text,
                        "};\nconstexpr uint64_t kInputSeed = %d;\n"
                        "constexpr float kInputLow = %g, kInputScale = %g;\n",
                        input_seed, input_low, input_scale);
  return absl::StrCat(text, cuda ? kCuda : kOpenCl, kMain);
}

const char* PythonLauncher() { return kPython; }

}  // namespace heddle::tuner
