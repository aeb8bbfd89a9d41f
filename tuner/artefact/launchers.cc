#include "tuner/artefact/launchers.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace heddle::tuner {
namespace {

constexpr char kHead[] = R"(
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

struct Buffer {
  const char* name;
  const char* role;
  int64_t elements;
  std::string type;
  int64_t index_extent;  // int32: indices, less than this
};
// A tensor as bulk copies read it: elements of 2 bytes, or of 4 that are rounded to tf32 on the way.
// Dimensions outermost first.
struct TensorMap {
  const char* buffer;
  int element_bytes;
  std::vector<uint64_t> shape, strides;  // elements; bytes, of all but the innermost
  std::vector<uint32_t> box;             // elements
  int swizzle_bytes;
};
struct Kernel {
  const char* entry;
  const char* file;
  unsigned grid, block, shared_bytes;
  std::vector<const char*> args;  // buffer names, in argument order
  std::vector<TensorMap> maps;    // arguments behind these
};
)";

constexpr char kMain[] = R"(
uint64_t Mix(uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Element `offset` of the input with that number: what samples.txt was computed from.
uint64_t InputBits(int input, int64_t offset) {
  const uint64_t stream = Mix(kInputSeed + 0x9e3779b97f4a7c15 * static_cast<uint64_t>(input + 1));
  return Mix(stream + 0x9e3779b97f4a7c15 * static_cast<uint64_t>(offset + 1));
}
float InputValue(int input, int64_t offset) {
  const float unit = static_cast<float>(InputBits(input, offset) >> 40) * 0x1p-24f;
  return kInputScale * unit + kInputLow;
}
std::vector<char> Indices(int input, const Buffer& buffer) {
  std::vector<char> bytes(buffer.elements * sizeof(int32_t));
  for (int64_t i = 0; i < buffer.elements; ++i) {
    const uint64_t below = static_cast<uint64_t>(buffer.index_extent);
    const auto index = static_cast<int32_t>((InputBits(input, i) >> 32) * below >> 32);
    std::memcpy(&bytes[i * sizeof(index)], &index, sizeof(index));
  }
  return bytes;
}

// A 16-bit format: significant bits, and the exponent of the smallest normal number.
struct Half { int digits, least; };
Half HalfOf(const Buffer& buffer) { return buffer.type == "float16" ? Half{11, -14} : Half{8, -126}; }

// The nearest number, ties to even.
uint16_t ToHalf(float x, Half format) {
  if (std::isnan(x)) return 0x7fff;
  const int fraction = format.digits - 1, sign = std::signbit(x) ? 0x8000 : 0;
  const int exponent = x == 0 ? format.least : std::max(std::ilogb(x), format.least);
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(std::abs(x), fraction - exponent)));
  return static_cast<uint16_t>(sign | (((exponent - format.least) << fraction) + units));
}

float FromHalf(uint16_t bits, Half format) {
  const int fraction = format.digits - 1, last = 0x7fff >> fraction;
  const int exponent = (bits & 0x7fff) >> fraction, units = bits & ((1 << fraction) - 1);
  float x = std::ldexp(static_cast<float>(units + (exponent > 0 ? 1 << fraction : 0)),
                       std::max(exponent, 1) - 1 + format.least - fraction);
  if (exponent == last) x = units == 0 ? INFINITY : NAN;
  return (bits & 0x8000) != 0 ? -x : x;
}

size_t SizeOf(const Buffer& buffer) {
  return buffer.type == "float64" ? 8 : buffer.type == "float32" || buffer.type == "tf32" ? 4 : 2;
}

// The nearest number, ties away from zero.
float ToTF32(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  bits = (bits + 0x1000) & 0xffffe000;
  std::memcpy(&x, &bits, sizeof(bits));
  return x;
}

// As the buffer's type lies in memory.
std::vector<char> Encoded(const Buffer& buffer, const std::vector<float>& values) {
  const size_t size = SizeOf(buffer);
  std::vector<char> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const double wide = values[i];
    const uint16_t half = size == 2 ? ToHalf(values[i], HalfOf(buffer)) : 0;
    const float single = buffer.type == "tf32" ? ToTF32(values[i]) : values[i];
    const void* from = &single;
    if (size != 4) from = size == 8 ? static_cast<const void*>(&wide) : &half;
    std::memcpy(&bytes[i * size], from, size);
  }
  return bytes;
}
void Decode(const Buffer& buffer, const std::vector<char>& bytes, std::vector<float>& values) {
  const size_t size = SizeOf(buffer);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(size == 2 ? static_cast<void*>(&half) : &values[i], &bytes[i * size], size);
    if (size == 2) values[i] = FromHalf(half, HalfOf(buffer));
  }
}

int main(int argc, char** argv) {
  Gpu gpu(argc > 1 ? std::atoi(argv[1]) : 0);
  std::map<std::string, std::vector<float>> values;
  int input = 0;
  for (const Buffer& buffer : kBuffers) {
    if (buffer.index_extent > 0) {
      gpu.Upload(buffer, Indices(input++, buffer));
      continue;
    }
    // Outputs and workspaces start as NaN: what is not written is seen.
    std::vector<float>& v = values[buffer.name];
    v.assign(buffer.elements, NAN);
    if (buffer.role == std::string("input")) {
      for (int64_t i = 0; i < buffer.elements; ++i) v[i] = InputValue(input, i);
      ++input;
    }
    gpu.Upload(buffer, Encoded(buffer, v));
  }
  gpu.Launch();
  gpu.Wait();
  for (const Buffer& buffer : kBuffers) {
    if (buffer.role != std::string("output")) continue;
    std::vector<char> bytes = Encoded(buffer, values[buffer.name]);
    gpu.Download(buffer, bytes);
    Decode(buffer, bytes, values[buffer.name]);
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


def input_values(check, number, elements, index_extent):
    """The input with that number: what samples.txt was computed from."""
    with np.errstate(over="ignore"):
        golden = np.uint64(0x9E3779B97F4A7C15)
        stream = mix(np.array([check["input_seed"]], np.uint64) + golden * np.uint64(number + 1))
        bits = mix(stream + golden * np.arange(1, elements + 1, dtype=np.uint64))
    if index_extent:
        return ((bits >> np.uint64(32)) * np.uint64(index_extent) >> np.uint64(32)).astype(np.int32)
    unit = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return np.float32(check["input_scale"]) * unit + np.float32(check["input_low"])


def encoded(values, dtype):
    """float32 values as the type lies in memory; bfloat16, which numpy lacks, as its bits."""
    if dtype == "tf32":
        return ((values.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = values.view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def decoded(array, dtype):
    if dtype != "bfloat16":
        return array
    return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)


def tensor_map(library, spec, address):
    """What cuTensorMapEncodeTiled makes of a tensor, as bytes: it counts dimensions from the innermost one."""
    import ctypes

    rank = len(spec["box"])
    memory = (ctypes.c_char * 192)()
    place = (ctypes.addressof(memory) + 63) // 64 * 64
    code = library.cuTensorMapEncodeTiled(
        ctypes.c_void_p(place),
        {2: 1, 4: 11}[spec["element_bytes"]],  # CU_TENSOR_MAP_DATA_TYPE_UINT16, _TFLOAT32
        rank,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*spec["shape"][::-1]),
        (ctypes.c_uint64 * max(rank - 1, 1))(*spec["strides"][::-1]),
        (ctypes.c_uint32 * rank)(*spec["box"][::-1]),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        0,  # no interleaving
        {32: 1, 64: 2, 128: 3}[spec["swizzle_bytes"]],  # CU_TENSOR_MAP_SWIZZLE_32B, ...
        0,
        0,
    )
    if code != 0:
        raise RuntimeError(f"cuTensorMapEncodeTiled of {spec['tensor_map']}: CUDA error {code}")
    return ctypes.string_at(place, 128)


def launch_cuda(function, kernel, addresses, stream):
    """Launches what cupy cannot: kernels with tensor maps. `addresses`: of the buffers, by name."""
    import ctypes

    library = ctypes.CDLL("libcuda.so.1")
    values = []
    for a in kernel["args"]:
        if isinstance(a, str):
            values.append(ctypes.c_uint64(addresses[a]))
        else:
            values.append(ctypes.create_string_buffer(tensor_map(library, a, addresses[a["tensor_map"]]), 128))
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    code = library.cuLaunchKernel(
        ctypes.c_void_p(function), *kernel["grid"], *kernel["block"], kernel["shared_bytes"],
        ctypes.c_void_p(stream), pointers, None,
    )  # fmt: skip
    if code != 0:
        raise RuntimeError(f"launching {kernel['entry']}: CUDA error {code}")


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

    def download(self, buffer, like):
        return self.cupy.asnumpy(buffer)

    def launch(self, memory):
        for k, f in self.functions:
            if all(isinstance(a, str) for a in k["args"]):
                args = tuple(memory[a] for a in k["args"])
                f(tuple(k["grid"]), tuple(k["block"]), args, shared_mem=k["shared_bytes"])
                continue
            addresses = {name: buffer.data.ptr for name, buffer in memory.items()}
            launch_cuda(f.kernel.ptr, k, addresses, self.cupy.cuda.get_current_stream().ptr)
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

    def download(self, buffer, like):
        values = np.empty_like(like)
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
    memory, there, inputs = {}, {}, 0
    for b in manifest["buffers"]:
        if b["role"] == "input":
            values = input_values(manifest["check"], inputs, elements[b["name"]], b.get("index_extent"))
            inputs += 1
        else:  # what is not written is seen
            values = np.full(elements[b["name"]], np.nan, np.float32)
        there[b["name"]] = encoded(values, b.get("rounds_to", b["dtype"]))
        memory[b["name"]] = device.upload(there[b["name"]])
    device.launch(memory)
    outputs = {
        b["name"]: decoded(device.download(memory[b["name"]], there[b["name"]]), b["dtype"])
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

std::string CppLauncher(const measure::LauncherText& driver,
                        const std::vector<LauncherBuffer>& buffers,
                        const std::vector<measure::KernelLaunch>& kernels,
                        const std::vector<std::string>& files, uint64_t input_seed,
                        double input_low, double input_scale) {
  std::string text = absl::StrCat(driver.intro, kHead);
  text += "\n// Declaration order; then intermediate tensors, which need no initialisation.\n";
  text += "const std::vector<Buffer> kBuffers = {\n";
  for (const LauncherBuffer& b : buffers) {
    absl::StrAppendFormat(&text, "    {\"%s\", \"%s\", %d, \"%s\", %d},\n", b.name, b.role,
                          b.elements, b.type, b.index_extent);
  }
  text += "};\n// Launched in this order.\nconst std::vector<Kernel> kKernels = {\n";
  for (size_t i = 0; i < kernels.size(); ++i) {
    const measure::KernelLaunch& k = kernels[i];
    std::string args;
    for (const std::string& a : k.arguments) {
      absl::StrAppend(&args, args.empty() ? "" : ", ", "\"", a, "\"");
    }
    std::string maps;
    for (const measure::TensorMap& map : k.maps) {
      absl::StrAppendFormat(&maps, "%s{\"%s\", %d, {%s}, {%s}, {%s}, %d}", maps.empty() ? "" : ", ",
                            map.buffer, map.element_bytes, absl::StrJoin(map.shape, ", "),
                            absl::StrJoin(map.strides, ", "), absl::StrJoin(map.box, ", "),
                            map.swizzle_bytes);
    }
    absl::StrAppendFormat(&text, "    {\"%s\", \"%s\", %d, %d, %d, {%s}, {%s}},\n", k.entry,
                          files[i], k.grid, k.block, k.dynamic_shared_bytes, args, maps);
  }
  absl::StrAppendFormat(&text,
                        "};\nconstexpr uint64_t kInputSeed = %d;\n"
                        "constexpr float kInputLow = %g, kInputScale = %g;\n",
                        input_seed, input_low, input_scale);
  return absl::StrCat(text, driver.driver, kMain);
}

const char* PythonLauncher() { return kPython; }

}  // namespace heddle::tuner
