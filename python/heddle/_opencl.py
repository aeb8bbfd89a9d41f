"""Exported OpenCL kernels on host arrays, through the C interface of libOpenCL.so.1, by ctypes.

Names and numbers are those of the OpenCL 1.2 specification.
"""

from __future__ import annotations

import ctypes
import glob
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heddle.artefact import Manifest
from heddle.errors import DriverError

LIBRARY = "libOpenCL.so.1"

_DEVICE_TYPE_ALL = 0xFFFFFFFF
_MEM_READ_WRITE = 1 << 0
_MEM_READ_ONLY = 1 << 2
_MEM_USE_HOST_PTR = 1 << 3
_MAP_READ = 1 << 0
_PROGRAM_BUILD_LOG = 0x1183
_TRUE = 1
_NAMES = {
    -3: "CL_COMPILER_NOT_AVAILABLE", -4: "CL_MEM_OBJECT_ALLOCATION_FAILURE", -5: "CL_OUT_OF_RESOURCES",
    -6: "CL_OUT_OF_HOST_MEMORY", -11: "CL_BUILD_PROGRAM_FAILURE", -46: "CL_INVALID_KERNEL_NAME",
    -54: "CL_INVALID_WORK_GROUP_SIZE", -61: "CL_INVALID_BUFFER_SIZE",
}  # fmt: skip

_P = ctypes.c_void_p
_U = ctypes.c_uint
_S = ctypes.c_size_t
_FLAGS = ctypes.c_uint64
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "clGetPlatformIDs": (ctypes.c_int, [_U, _P, _P]),
    "clGetDeviceIDs": (ctypes.c_int, [_P, _FLAGS, _U, _P, _P]),
    "clCreateContext": (_P, [_P, _U, _P, _P, _P, _P]),
    "clCreateCommandQueue": (_P, [_P, _P, _FLAGS, _P]),
    "clCreateProgramWithSource": (_P, [_P, _U, _P, _P, _P]),
    "clBuildProgram": (ctypes.c_int, [_P, _U, _P, ctypes.c_char_p, _P, _P]),
    "clGetProgramBuildInfo": (ctypes.c_int, [_P, _P, _U, _S, _P, _P]),
    "clCreateKernel": (_P, [_P, ctypes.c_char_p, _P]),
    "clSetKernelArg": (ctypes.c_int, [_P, _U, _S, _P]),
    "clCreateBuffer": (_P, [_P, _FLAGS, _S, _P, _P]),
    "clReleaseMemObject": (ctypes.c_int, [_P]),
    "clEnqueueNDRangeKernel": (ctypes.c_int, [_P, _P, _U, _P, _P, _P, _U, _P, _P]),
    "clEnqueueMapBuffer": (_P, [_P, _P, _U, _FLAGS, _S, _S, _U, _P, _P, _P]),
    "clEnqueueUnmapMemObject": (ctypes.c_int, [_P, _P, _P, _U, _P, _P]),
    "clFinish": (ctypes.c_int, [_P]),
}


def _open() -> ctypes.CDLL:
    # The host's loader; else the one that a wheel has beside the program.
    beside = glob.glob(str(Path(__file__).parent.with_name("heddle.libs") / "libOpenCL*.so*"))
    for path in [LIBRARY, *beside]:
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            missing = error
    raise DriverError(f"no OpenCL: {missing}; install ocl-icd-libopencl1 and a driver such as PoCL")


class Library:
    """The OpenCL loader, once a process, with one context and queue for each device that is used."""

    def __init__(self) -> None:
        self._library = _open()
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._library, name)
            function.restype = result
            function.argtypes = arguments
        self._queues: dict[int, tuple[Any, Any, Any]] = {}
        self._lock = threading.Lock()

    def call(self, name: str, *arguments: Any) -> None:
        """A function that returns its error."""
        self._check(getattr(self._library, name)(*arguments), name)

    def make(self, name: str, *arguments: Any) -> Any:
        """A function that returns what it makes, and its error through the last argument."""
        code = ctypes.c_int()
        made = getattr(self._library, name)(*arguments, ctypes.byref(code))
        self._check(code.value, name)
        return made

    def _check(self, code: int, what: str) -> None:
        if code != 0:
            raise DriverError(f"{what}: {_NAMES.get(code, f'OpenCL error {code}')}")

    def _devices(self) -> list[int]:
        """All platforms' devices, numbered as in the program's opencl:N."""
        count = _U()
        self._library.clGetPlatformIDs(0, None, ctypes.byref(count))
        platforms = (_P * count.value)()
        self._library.clGetPlatformIDs(count, platforms, None)
        found: list[int] = []
        for platform in platforms:
            if self._library.clGetDeviceIDs(platform, _DEVICE_TYPE_ALL, 0, None, ctypes.byref(count)) != 0:
                continue
            devices = (_P * count.value)()
            self._library.clGetDeviceIDs(platform, _DEVICE_TYPE_ALL, count, devices, None)
            found += [d for d in devices if d]
        return found

    def queue(self, index: int) -> tuple[Any, Any, Any]:
        """Device, context and in-order command queue of opencl:`index`."""
        with self._lock:
            if index not in self._queues:
                devices = self._devices()
                if index >= len(devices):
                    raise DriverError(f"there is no opencl:{index}: {len(devices)} OpenCL devices are here")
                device = _P(devices[index])
                context = self.make("clCreateContext", None, 1, ctypes.byref(device), None, None)
                self._queues[index] = (device, context, self.make("clCreateCommandQueue", context, device, 0))
            return self._queues[index]

    def kernel(self, index: int, source: bytes, options: str, entry: str) -> Any:
        device, context, _ = self.queue(index)
        text = ctypes.c_char_p(source)
        program = self.make("clCreateProgramWithSource", context, 1, ctypes.byref(text), None)
        try:
            self.call("clBuildProgram", program, 1, ctypes.byref(device), options.encode(), None, None)
        except DriverError as error:
            log = ctypes.create_string_buffer(1 << 16)
            self._library.clGetProgramBuildInfo(program, device, _PROGRAM_BUILD_LOG, len(log), log, None)
            raise DriverError(f"{error}\n{log.value.decode(errors='replace')}") from None
        return self.make("clCreateKernel", program, entry.encode())


_lock = threading.Lock()
_library: list[Library] = []


def library() -> Library:
    with _lock:
        if not _library:
            _library.append(Library())
        return _library[0]


def _sizes(values: Sequence[int]) -> Any:
    return (_S * len(values))(*values)


class OpenClProgram:
    """The kernels of an exported folder, built for a device.

    They are built from source: binaries of OpenCL are for one driver's build. Buffers are the caller's own
    memory (CL_MEM_USE_HOST_PTR), which a processor works on in place and other devices copy.
    """

    def __init__(self, manifest: Manifest, index: int) -> None:
        self._cl = library()
        self._buffers = manifest.buffers
        _, self._context, self._queue = self._cl.queue(index)
        options = " ".join(manifest.compile_options)
        place = {b.name: i for i, b in enumerate(manifest.buffers)}
        self._launches = []
        for launch in manifest.launches:
            source = (manifest.folder / launch.source).read_bytes()
            kernel = self._cl.kernel(index, source, options, launch.entry)
            used = max(i for i, n in enumerate(launch.grid) if n > 1 or i == 0) + 1
            used = max(used, *(i + 1 for i, n in enumerate(launch.block) if n > 1), 1)
            threads = [g * b for g, b in zip(launch.grid, launch.block, strict=True)]
            sizes = (used, _sizes(threads[:used]), _sizes(launch.block[:used]))
            self._launches.append((kernel, sizes, [place[a] for a in launch.args]))
        # A kernel object carries its arguments from one call to the next, and workspaces are shared.
        self._lock = threading.Lock()
        self._workspaces = {
            b.name: self._cl.make("clCreateBuffer", self._context, _MEM_READ_WRITE, b.bytes, None)
            for b in manifest.of_role("workspace")
        }

    def run(self, addresses: Sequence[int]) -> None:
        """Runs all kernels to their end. `addresses`: of the inputs and outputs, in the manifest's order."""
        cl = self._cl
        with self._lock:
            memory: list[Any] = []
            try:
                for buffer, address in zip(self._buffers, addresses, strict=False):
                    access = _MEM_READ_ONLY if buffer.role == "input" else _MEM_READ_WRITE
                    flags = access | _MEM_USE_HOST_PTR
                    memory.append(cl.make("clCreateBuffer", self._context, flags, buffer.bytes, address))
                own = len(memory)
                memory += self._workspaces.values()
                for kernel, (dimensions, threads, block), args in self._launches:
                    for number, place in enumerate(args):
                        value = ctypes.byref(_P(memory[place]))
                        cl.call("clSetKernelArg", kernel, number, ctypes.sizeof(_P), value)
                    cl.call(
                        "clEnqueueNDRangeKernel",
                        *(self._queue, kernel, dimensions, None, threads, block, 0, None, None),
                    )
                for buffer, one in zip(self._buffers[:own], memory, strict=False):
                    if buffer.role == "output":  # what is mapped is in the caller's memory
                        where = (self._queue, one, _TRUE, _MAP_READ, 0, buffer.bytes, 0, None, None)
                        mapped = cl.make("clEnqueueMapBuffer", *where)
                        cl.call("clEnqueueUnmapMemObject", self._queue, one, mapped, 0, None, None)
            finally:
                # Nothing may still use the caller's memory, whatever went wrong.
                cl.call("clFinish", self._queue)
                for one in memory[: len(addresses)]:
                    cl.call("clReleaseMemObject", one)
