"""Exported CUDA kernels through the driver's C interface (libcuda.so.1), by ctypes.

No compiled code and no package is needed for it. Names and numbers are those of the CUDA driver API.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Sequence
from typing import Any

from heddle.artefact import Manifest, TensorMap
from heddle.errors import DriverError

LIBRARY = "libcuda.so.1"

_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CU_FUNC_ATTRIBUTE_...
_TENSOR_MAP_TYPES = {2: 1, 4: 11}  # CU_TENSOR_MAP_DATA_TYPE_UINT16, _TFLOAT32, by bytes
_TENSOR_MAP_SWIZZLES = {32: 1, 64: 2, 128: 3}  # CU_TENSOR_MAP_SWIZZLE_32B, ...
# CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE: a launch where no context is current, or another one.
_NOT_IN_THIS_CONTEXT = (201, 400)

_P = ctypes.c_void_p
_U = ctypes.c_uint
_SIGNATURES: dict[str, list[Any]] = {
    "cuInit": [_U],
    "cuDeviceGet": [ctypes.POINTER(ctypes.c_int), ctypes.c_int],
    "cuDevicePrimaryCtxRetain": [ctypes.POINTER(_P), ctypes.c_int],
    "cuCtxGetCurrent": [ctypes.POINTER(_P)],
    "cuCtxPushCurrent_v2": [_P],
    "cuCtxPopCurrent_v2": [ctypes.POINTER(_P)],
    "cuModuleLoadData": [ctypes.POINTER(_P), ctypes.c_char_p],
    "cuModuleGetFunction": [ctypes.POINTER(_P), _P, ctypes.c_char_p],
    "cuFuncSetAttribute": [_P, ctypes.c_int, ctypes.c_int],
    "cuGetErrorName": [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)],
}


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (("grid", _U * 3), ("block", _U * 3), ("shared_bytes", _U), ("stream", _P), ("attributes", _P),
                ("attribute_count", _U))  # fmt: skip


class Driver:
    """The library, once a process."""

    def __init__(self, path: str) -> None:
        try:
            self.library = ctypes.CDLL(path)
        except OSError as error:
            raise DriverError(f"no NVIDIA driver: {error}") from None
        for name, arguments in _SIGNATURES.items():
            function = getattr(self.library, name)
            function.argtypes = arguments
            function.restype = ctypes.c_int
        # Of CUDA 11.8 and later. It takes four arguments where cuLaunchKernel takes eleven, and no types are declared:
        # it is given nothing but ctypes' own values, which are then taken as they are. That costs a quarter.
        self.launch: Any = self.library.cuLaunchKernelEx
        # Of CUDA 12.4 and later: loads what cuModuleGetFunction may put off until the first launch,
        # which can be inside a capture.
        self._load: Any = getattr(self.library, "cuFuncLoad", None)
        if self._load is not None:
            self._load.argtypes = [_P]
            self._load.restype = ctypes.c_int
        self.call("cuInit", 0)
        self._contexts: dict[int, int] = {}
        self._functions: dict[tuple[int, bytes, str], int] = {}
        self._lock = threading.RLock()

    def call(self, name: str, *arguments: Any) -> None:
        self.check(getattr(self.library, name)(*arguments), name)

    def check(self, code: int, what: str) -> None:
        if code == 0:
            return
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(text))
        name = text.value.decode() if text.value else f"CUDA error {code}"
        raise DriverError(f"{what}: {name}")

    def context(self, index: int) -> int:
        """The primary context of a device, which PyTorch and the CUDA runtime use too. It stays."""
        with self._lock:
            if index not in self._contexts:
                device, context = ctypes.c_int(), _P()
                self.call("cuDeviceGet", ctypes.byref(device), index)
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
                self._contexts[index] = context.value or 0
            return self._contexts[index]

    def function(self, index: int, image: bytes, entry: str, shared_bytes: int) -> int:
        """A kernel of a cubin, loaded into the device's primary context and ready to be captured.

        It is never unloaded: a captured graph outlives the Python object that launched into it. The same
        cubin is loaded once.
        """
        key = (index, hashlib.sha256(image).digest(), entry)
        with self._lock:
            if key not in self._functions:
                with Current(self, self.context(index)):
                    module, function = _P(), _P()
                    self.call("cuModuleLoadData", ctypes.byref(module), image)
                    self.call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
                    if shared_bytes > 0:
                        self.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
                    if self._load is not None:
                        self.check(self._load(function), "cuFuncLoad")
                self._functions[key] = function.value or 0
            return self._functions[key]


class Current:
    """Makes a context current where it is not: in a new thread, or beside another device."""

    def __init__(self, driver: Driver, context: int) -> None:
        self._driver = driver
        self._context = context
        self._pushed = False

    def __enter__(self) -> None:
        now = _P()
        self._driver.call("cuCtxGetCurrent", ctypes.byref(now))
        if now.value != self._context:
            self._driver.call("cuCtxPushCurrent_v2", self._context)
            self._pushed = True

    def __exit__(self, *_: object) -> None:
        if self._pushed:
            self._driver.call("cuCtxPopCurrent_v2", ctypes.byref(_P()))


_drivers: dict[str, Driver] = {}
_lock = threading.Lock()


def driver() -> Driver:
    with _lock:
        if LIBRARY not in _drivers:
            _drivers[LIBRARY] = Driver(LIBRARY)
        return _drivers[LIBRARY]


class _Map:
    """What the driver makes of a tensor map, made anew where the tensor lies elsewhere than last time."""

    def __init__(self, driver: Driver, of: TensorMap, buffer: int) -> None:
        self.buffer = buffer  # its number
        self.at = 0  # where the tensor was
        self._driver = driver
        self._name = of.buffer
        self._memory = (ctypes.c_char * 192)()
        self.place = (ctypes.addressof(self._memory) + 63) // 64 * 64
        rank = len(of.box)
        # The driver counts dimensions from the innermost one.
        self._form: Any = (
            (ctypes.c_uint64 * rank)(*of.shape[::-1]),
            (ctypes.c_uint64 * max(rank - 1, 1))(*of.strides[::-1]),
            (ctypes.c_uint32 * rank)(*of.box[::-1]),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            0,
            _TENSOR_MAP_SWIZZLES[of.swizzle_bytes],
            0,
            0,
        )
        self._type = _TENSOR_MAP_TYPES[of.element_bytes]
        self._rank = rank

    def describe(self, address: int) -> None:
        if address == self.at:
            return
        encode: Any = self._driver.library.cuTensorMapEncodeTiled  # of CUDA 12.0 and later
        code = encode(_P(self.place), self._type, self._rank, _P(address), *self._form)
        self._driver.check(code, f"cuTensorMapEncodeTiled of {self._name}")
        self.at = address


class Frame:
    """The arguments of one call of cuLaunchKernelEx for each kernel, and where the driver reads them, made once."""

    def __init__(self, driver: Driver, manifest: Manifest, functions: Sequence[int]) -> None:
        self.values: Any = (ctypes.c_uint64 * len(manifest.buffers))()
        begin, size = ctypes.addressof(self.values), ctypes.sizeof(ctypes.c_uint64)
        place = {b.name: begin + size * i for i, b in enumerate(manifest.buffers)}
        number = {b.name: i for i, b in enumerate(manifest.buffers)}
        self.maps: list[_Map] = []
        self.configs = []
        self.calls = []
        for launch, function in zip(manifest.launches, functions, strict=True):
            config = _Config(launch.grid, launch.block, launch.shared_bytes)
            maps = [_Map(driver, m, number[m.buffer]) for m in launch.maps]
            self.maps += maps
            places = [*(place[a] for a in launch.args), *(m.place for m in maps)]
            arguments = (_P * len(places))(*places)
            self.configs.append(config)
            self.calls.append((ctypes.byref(config), _P(function), arguments, _P(None)))
        # All of it, as heddle._repeat unpacks it.
        launches = zip(self.configs, self.calls, strict=True)
        self.parts: tuple[Any, ...] = (self.values, *(part for launch in launches for part in launch), *self.maps)


class CudaProgram:
    """The kernels of an exported folder, loaded on a device."""

    def __init__(self, manifest: Manifest, index: int) -> None:
        self._manifest = manifest
        self._driver = driver()
        self._context = self._driver.context(index)
        self.launch_kernel = self._driver.launch
        self._functions = []
        for launch in manifest.launches:
            image = (manifest.folder / launch.binary).read_bytes()
            try:
                function = self._driver.function(index, image, launch.entry, launch.shared_bytes)
            except DriverError as error:
                raise DriverError(
                    f"{manifest.folder}, made for {manifest.arch} ({manifest.device}), cannot be loaded on "
                    f"cuda:{index}: {error}"
                ) from None
            self._functions.append(function)
        # Frames that no call uses: list operations are atomic, so that threads never share one.
        self.frames = [self.frame()]

    def frame(self) -> Frame:
        return Frame(self._driver, self._manifest, self._functions)

    def launch(self, addresses: list[int], stream: int) -> None:
        """Enqueues all kernels on a stream of this device. `addresses`: of the manifest's buffers, in order.

        Waits for nothing and allocates nothing on the device, so that it can be captured in a graph.
        """
        try:
            frame = self.frames.pop()
        except IndexError:
            frame = self.frame()
        frame.values[:] = addresses
        for tensor_map in frame.maps:
            tensor_map.describe(addresses[tensor_map.buffer])
        for config in frame.configs:
            config.stream = stream
        code = self._enqueue(frame)
        self.frames.append(frame)
        if code != 0:
            self.fail(code)

    def retry(self, frame: Frame, code: int) -> int:
        """The driver's code after its first one, of launches without asking whether the device's context is current:
        a thread that has used none has none."""
        return self._enqueue(frame) if code in _NOT_IN_THIS_CONTEXT else code

    def fail(self, code: int) -> None:
        self._driver.check(code, "cuLaunchKernelEx")

    def _enqueue(self, frame: Frame) -> int:
        """The driver's code: of the first launch that it refuses, else 0."""
        code = 0
        with Current(self._driver, self._context):
            for call in frame.calls:
                code = code or self.launch_kernel(*call)
        return code
