#!/usr/bin/env python3
"""Runs the kernels of this folder and checks their result against samples.txt.

    python3 run.py [DEVICE]        DEVICE is a number, 0 by default

It needs Python and the driver alone (libcuda.so.1, or libOpenCL.so.1), whose C interface it calls. Where NumPy is
installed large inputs are made in less time: without it a million elements take some two seconds.
"""
import array
import ctypes
import json
import math
import os
import struct
import sys
import time

try:
    import numpy
except ImportError:
    numpy = None

FOLDER = os.path.dirname(os.path.abspath(__file__))
SIZES = {"float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "float64": 8}  # bytes; float64 is of workspaces alone
AT_ONCE = 1 << 20  # elements of an input
MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def each(code, function, items):
    """function(x) of every x, as an array of that type, whose name NumPy and the module array share."""
    return array.array(code, map(function, items)) if numpy is None else function(items).astype(code)


def viewed(code, numbers):
    return array.array(code, numbers.tobytes()) if numpy is None else numbers.view(code)


def mix(x):
    """The finaliser of splitmix64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def input_bytes(check, number, buffer, elements):
    """The input with that number, as it lies in memory: what samples.txt was computed from."""
    stream = mix(check["input_seed"] + GOLDEN * (number + 1) & MASK)
    extent, low, scale = buffer.get("index_extent"), check["input_low"], check["input_scale"]

    def bits(i):
        return mix(stream + GOLDEN * (i + 1) & MASK)

    def index(i):
        return (bits(i) >> 32) * extent >> 32

    def value(i):
        return (bits(i) >> 40) * (scale * 2.0**-24) + low

    parts = []
    for begin in range(0, elements, AT_ONCE):
        end = min(begin + AT_ONCE, elements)
        places = range(begin, end) if numpy is None else numpy.arange(begin, end, dtype=numpy.uint64)
        if extent:
            parts.append(each("i", index, places).tobytes())
        else:
            parts.append(encoded(each("f", value, places), buffer.get("rounds_to", buffer["dtype"])))
    return b"".join(parts)


def encoded(numbers, dtype):
    """float32 numbers as the type lies in memory, each rounded to the nearest."""
    if dtype == "float16":
        return struct.pack(f"{len(numbers)}e", *numbers) if numpy is None else numbers.astype("e").tobytes()
    if dtype == "bfloat16":
        return each("H", lambda x: (x + 0x7FFF + (x >> 16 & 1)) >> 16, viewed("I", numbers)).tobytes()
    if dtype == "tf32":
        return each("I", lambda x: x + 0x1000 & 0xFFFFE000, viewed("I", numbers)).tobytes()
    return numbers.tobytes()


def element(memory, dtype, i):
    at = i * SIZES[dtype]
    if dtype == "bfloat16":  # the upper half of a float32
        return struct.unpack("<f", b"\0\0" + memory[at : at + 2])[0]
    return struct.unpack_from({"float16": "<e", "float32": "<f"}[dtype], memory, at)[0]


class Cuda:
    """The kernels on a CUDA device, in its primary context."""

    def __init__(self, manifest, number):
        self.library = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), number)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.kernels = []
        for k in manifest["kernels"]:
            with open(os.path.join(FOLDER, k["binary"]), "rb") as f:
                image = f.read()
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), image)
            self.call("cuModuleGetFunction", ctypes.byref(function), module, k["entry"].encode())
            if k["shared_bytes"] > 0:  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                self.call("cuFuncSetAttribute", function, 8, k["shared_bytes"])
            self.kernels.append((k, function))

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {text.value.decode() if text.value else f'CUDA error {code}'}")

    def upload(self, values):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(len(values)))
        self.call("cuMemcpyHtoD_v2", address, values, ctypes.c_size_t(len(values)))
        return address.value

    def download(self, address, size):
        values = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", values, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return values.raw

    def tensor_map(self, spec, address):
        """An argument that the driver makes of a tensor, and what owns its memory."""
        rank = len(spec["box"])
        memory = ctypes.create_string_buffer(128 + 63)
        place = (ctypes.addressof(memory) + 63) // 64 * 64
        self.call(  # dimensions are counted from the innermost one
            "cuTensorMapEncodeTiled",
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
            0,  # nothing is promoted to lines of the cache
            0,  # zeros outside
        )
        return place, memory

    def enqueue(self, addresses, stream=None):
        """Launches all kernels. `addresses`: of the buffers, by name."""
        for k, function in self.kernels:
            places, owners = [], []
            for a in k["args"]:
                if isinstance(a, str):
                    value = ctypes.c_uint64(addresses[a])
                    place, owner = ctypes.addressof(value), value
                else:
                    place, owner = self.tensor_map(a, addresses[a["tensor_map"]])
                places.append(place)
                owners.append(owner)
            arguments = (ctypes.c_void_p * len(places))(*places)
            self.call(
                "cuLaunchKernel",
                *(function, *k["grid"], *k["block"], k["shared_bytes"], ctypes.c_void_p(stream), arguments, None),
            )

    def run(self, memory):
        self.enqueue(memory)
        self.call("cuCtxSynchronize")


class OpenCl:
    """The kernels on an OpenCL device, built from source: a binary is of one driver."""

    def __init__(self, manifest, number):
        self.library = ctypes.CDLL("libOpenCL.so.1")
        for made in ("Context", "CommandQueue", "ProgramWithSource", "Kernel", "Buffer"):
            getattr(self.library, "clCreate" + made).restype = ctypes.c_void_p
        device = ctypes.c_void_p(self.devices()[number])
        self.context = self.made("clCreateContext", None, 1, ctypes.byref(device), None, None)
        self.queue = self.made("clCreateCommandQueue", self.context, device, ctypes.c_uint64(0))
        self.kernels = []
        for k in manifest["kernels"]:
            with open(os.path.join(FOLDER, k["source"]), "rb") as f:
                text = ctypes.c_char_p(f.read())
            program = self.made("clCreateProgramWithSource", self.context, 1, ctypes.byref(text), None)
            self.call("clBuildProgram", program, 1, ctypes.byref(device), b"-cl-std=CL1.2", None, None)
            self.kernels.append((k, self.made("clCreateKernel", program, k["entry"].encode())))

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: OpenCL error {code}")

    def made(self, name, *arguments):
        code = ctypes.c_int()
        made = getattr(self.library, name)(*arguments, ctypes.byref(code))
        if code.value != 0:
            raise RuntimeError(f"{name}: OpenCL error {code.value}")
        return ctypes.c_void_p(made)

    def devices(self):
        """Those of all platforms."""
        count = ctypes.c_uint()
        self.call("clGetPlatformIDs", 0, None, ctypes.byref(count))
        platforms = (ctypes.c_void_p * count.value)()
        self.call("clGetPlatformIDs", count, platforms, None)
        found = []
        for platform in map(ctypes.c_void_p, platforms):
            every = ctypes.c_uint64(0xFFFFFFFF)  # CL_DEVICE_TYPE_ALL
            if self.library.clGetDeviceIDs(platform, every, 0, None, ctypes.byref(count)) == 0:
                devices = (ctypes.c_void_p * count.value)()
                self.call("clGetDeviceIDs", platform, every, count, devices, None)
                found += devices
        return found

    def upload(self, values):
        flags = ctypes.c_uint64(1 | 32)  # CL_MEM_READ_WRITE, CL_MEM_COPY_HOST_PTR
        return self.made("clCreateBuffer", self.context, flags, ctypes.c_size_t(len(values)), values)

    def download(self, buffer, size):
        values = ctypes.create_string_buffer(size)
        where = (1, ctypes.c_size_t(0), ctypes.c_size_t(size))  # waits for it
        self.call("clEnqueueReadBuffer", self.queue, buffer, *where, values, 0, None, None)
        return values.raw

    def run(self, memory):
        for k, kernel in self.kernels:
            for number, name in enumerate(k["args"]):
                value = ctypes.byref(memory[name])
                self.call("clSetKernelArg", kernel, number, ctypes.c_size_t(ctypes.sizeof(ctypes.c_void_p)), value)
            threads, block = (ctypes.c_size_t(n) for n in (k["grid"][0] * k["block"][0], k["block"][0]))
            sizes = (1, None, ctypes.byref(threads), ctypes.byref(block))
            self.call("clEnqueueNDRangeKernel", self.queue, kernel, *sizes, 0, None, None)
        self.call("clFinish", self.queue)


def main():
    with open(os.path.join(FOLDER, "manifest.json")) as f:
        manifest = json.load(f)
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    device = (OpenCl if manifest["arch"] == "opencl" else Cuda)(manifest, number)
    check, buffers = manifest["check"], {b["name"]: b for b in manifest["buffers"]}
    memory, sizes, inputs = {}, {}, 0
    for name, b in buffers.items():
        elements = math.prod(b["shape"])
        sizes[name] = elements * SIZES[b["dtype"]]
        if b["role"] == "input":
            memory[name] = device.upload(input_bytes(check, inputs, b, elements))
            inputs += 1
        else:  # NaN in every type: what is not written is seen
            memory[name] = device.upload(b"\xff" * sizes[name])
    device.run(memory)
    outputs = {n: device.download(memory[n], sizes[n]) for n, b in buffers.items() if b["role"] == "output"}

    checked = wrong = 0
    worst = 0.0
    with open(os.path.join(FOLDER, check["samples"])) as f:
        for line in f:
            if line.startswith("#"):
                continue
            name, offset, expected, tolerance = line.split()
            value = element(outputs[name], buffers[name]["dtype"], int(offset))
            error = abs(value - float(expected)) / float(tolerance)
            checked += 1
            wrong += not error <= 1
            worst = max(worst, error)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        device.run(memory)
        times.append(time.perf_counter() - start)
    print(
        f"{checked} values checked, {wrong} wrong, largest error {worst:.2g} of what is allowed; "
        f"{sorted(times)[10] * 1e6:.1f} us from the host's side"
    )
    return 0 if checked and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
