"""What kernels take: NumPy arrays and torch tensors, checked against a manifest's buffers."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol

from heddle.artefact import ITEM_BYTES, Buffer
from heddle.errors import TensorError


class Arrays(Protocol):
    """One library's arrays on one device."""

    def address(self, array: Any, buffer: Buffer) -> int:
        """Where the array's elements are. TensorError where it is not what `buffer` says."""

    def empty(self, buffer: Buffer) -> Any:
        """A new array, not initialised."""

    def written(self, array: Any, /) -> Any:
        """Is told of each array of the caller's that was written."""


def _refuse(buffer: Buffer, what: str) -> NoReturn:
    raise TensorError(f"{buffer.role} {buffer}: {what}")


def _check_form(
    buffer: Buffer, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], address: int, copy: str, cast: str
) -> None:
    """`strides` in elements; `copy` and `cast` tell how to get an array that would do."""
    if dtype != buffer.dtype:
        check_index(dtype, buffer)
        _refuse(buffer, f"given {dtype}: pass {cast}")
    if shape != buffer.shape:
        _refuse(buffer, f"given the shape [{', '.join(map(str, shape))}]")
    # How far apart the elements of an axis are says nothing where it has but one.
    if any(n > 1 and s != w for n, s, w in zip(shape, strides, buffer.strides, strict=True)):
        _refuse(buffer, f"given strides {strides}, not {buffer.strides}: pass {copy}")
    if address % buffer.align != 0:
        _refuse(buffer, f"given an address that is no multiple of {buffer.align} bytes: pass {copy}")


def check_index(dtype: str, buffer: Buffer) -> None:
    """Indices are 32 bits wide, those of PyTorch and NumPy mostly 64: a copy is the caller's to make, once."""
    if dtype == "int64" and buffer.dtype == "int32":
        _refuse(buffer, f'given int64: pass {buffer.name}.int(), of NumPy {buffer.name}.astype("int32")')


class NumPyArrays:
    """NumPy arrays."""

    def __init__(self) -> None:
        import numpy

        self._numpy = numpy

    def address(self, array: Any, buffer: Buffer) -> int:
        np = self._numpy
        if not isinstance(array, np.ndarray):
            _refuse(buffer, f"given a {type(array).__name__}, not a NumPy array")
        address: int = array.__array_interface__["data"][0]
        if array.dtype.isnative:
            strides = tuple(s // array.itemsize for s in array.strides)
            copy = f"numpy.ascontiguousarray({buffer.name})"
            cast = f'{buffer.name}.astype("{buffer.dtype}")'
            _check_form(buffer, array.dtype.name, array.shape, strides, address, copy, cast)
        else:
            _refuse(buffer, f"given {array.dtype} in the other byte order")
        if buffer.role == "output" and not array.flags.writeable:
            _refuse(buffer, "given an array that cannot be written")
        return address

    def written(self, array: Any, /) -> None:
        pass

    def empty(self, buffer: Buffer) -> Any:
        # NumPy aligns as malloc does, to 16 bytes.
        return self._numpy.empty(buffer.shape, buffer.dtype)


class Tensors:
    """Torch tensors of one device."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch: Any = torch
        self._types = {torch.Tensor, torch.nn.Parameter}
        kind, _, index = device.partition(":")
        self._device = torch.device(kind, int(index)) if index else torch.device(kind)
        self._dtypes = {name: getattr(torch, name) for name in ITEM_BYTES}
        # Tells PyTorch that a tensor has changed: its graphs for gradients, and all that goes by its version, ask.
        self.written: Callable[[Any], Any] = torch.autograd.graph.increment_version

    def address(self, array: Any, buffer: Buffer) -> int:
        # What is right takes few steps; what is not, or unusual, is looked at again for what is wrong.
        try:
            if (
                type(array) in self._types
                and array.dtype is self._dtypes[buffer.dtype]
                and array.shape == buffer.shape
                and array.stride() == buffer.strides
                and array.device == self._device
                and not array.requires_grad
                and not array.is_neg()
            ):
                address: int = array.data_ptr()
                if address and address % buffer.align == 0:
                    return address
        except RuntimeError:  # a layout without strides, or without an address
            pass
        _check_tensor(self._torch, array, buffer, self._device)
        return int(array.data_ptr())

    def empty(self, buffer: Buffer) -> Any:
        # Costs two thirds of torch.empty.
        dtype = self._dtypes[buffer.dtype]
        return self._torch.empty_strided(buffer.shape, buffer.strides, dtype=dtype, device=self._device)


class CudaTensors(Tensors):
    """Torch tensors of one CUDA device, with its streams."""

    def __init__(self, index: int) -> None:
        super().__init__(f"cuda:{index}")
        self.index = index
        self._workspaces: dict[tuple[str, int], Any] = {}
        c: Any = self._torch._C
        # Without the wrapper object that torch.cuda.current_stream makes, where torch still has it.
        raw: Callable[[int], int] | None = getattr(c, "_cuda_getCurrentRawStream", None)
        # The current stream of a device.
        self.stream_of: Callable[[int], int] = raw or self._stream_of
        # PyTorch's device now, whose context is then this thread's, but in a thread that has used none.
        self.current_device: Callable[[], int | None] = getattr(c, "_cuda_getDevice", lambda: None)

    def _stream_of(self, index: int) -> int:
        return int(self._torch.cuda.current_stream(index).cuda_stream)

    def stream(self) -> int:
        """The current stream of this device."""
        return self.stream_of(self.index)

    def alike(self, tensors: Sequence[Any]) -> Callable[..., bool] | None:
        """A function that tells in one step whether tensors have type, shape, strides, device and need of a gradient of
        these: what PyTorch's compiled graphs check their inputs by. It also tells where this thread's dispatch has
        other keys than now. None where this PyTorch has none, and where something stands between a tensor and its
        memory: a subclass, a mode, a transform."""
        guards = self._guards()
        if guards is None or not {*map(type, tensors)} <= self._types or not self._is_plain():
            return None
        shapes, strides = ([list(t.shape) for t in tensors], [list(t.stride()) for t in tensors])
        checked = guards.TensorGuards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides)
        check: Callable[..., bool] = checked.check
        if any(t.requires_grad for t in tensors):
            # Which is right while nothing is recorded for a backward pass. Of that the guards know nothing.
            torch = self._torch
            return lambda *given: not torch.is_grad_enabled() and check(*given)
        return check

    def _is_plain(self) -> bool:
        """Are this thread's dispatch keys those that every thread begins with, or fewer?"""
        c: Any = self._torch._C
        keys = c._dispatch_tls_local_include_set()
        for usual in (c.DispatchKey.BackendSelect, c.DispatchKey.ADInplaceOrView):
            keys = keys.remove(usual)
        return bool(keys.raw_repr() == 0)

    def allocator(self, buffer: Buffer) -> Callable[[], Any]:
        """Makes tensors of a buffer's form while this is PyTorch's current device."""
        dtype = self._dtypes[buffer.dtype]
        quick = getattr(self._guards(), "_empty_strided_cuda", None)
        return partial(quick, buffer.shape, buffer.strides, dtype) if quick else partial(self.empty, buffer)

    def _guards(self) -> Any:
        found = getattr(getattr(self._torch._C, "_dynamo", None), "guards", None)
        return found if hasattr(found, "TensorGuards") else None

    def workspace(self, buffer: Buffer, stream: int) -> Any:
        """Memory for intermediate values, which launches on one stream use one after another.

        A capture gets memory of its own: its replays run beside what this stream does then.
        """
        if self._torch.cuda.is_current_stream_capturing():
            return self.empty(buffer)
        key = (buffer.name, stream)
        if key not in self._workspaces:
            self._workspaces[key] = self.empty(buffer)
        return self._workspaces[key]


def _check_tensor(torch: Any, array: Any, buffer: Buffer, device: Any) -> None:
    if not isinstance(array, torch.Tensor):
        _refuse(buffer, f"given a {type(array).__name__}, not a torch tensor")
    if array.device != device:
        _refuse(buffer, f"given a tensor on {array.device}; this kernel runs on {device}")
    if array.layout is not torch.strided:
        _refuse(buffer, f"given a tensor of layout {array.layout}")
    if array.is_neg():
        _refuse(buffer, f"given a view whose elements are yet to be negated: pass {buffer.name}.resolve_neg()")
    dtype = str(array.dtype).removeprefix("torch.")
    copy = f"{buffer.name}.contiguous() or, for its alignment, {buffer.name}.clone()"
    cast = f"{buffer.name}.to(torch.{buffer.dtype})"
    address = _address(torch, array)
    _check_form(buffer, dtype, tuple(array.shape), tuple(array.stride()), address, copy, cast)
    check_gradient(array, buffer)
    if not address and array.numel():
        _refuse(
            buffer,
            f"given a {type(array).__name__} without memory, as there are while a graph is traced and under "
            "torch.func's transforms: call what the kernel's register() returns",
        )


def _address(torch: Any, array: Any) -> int:
    """0 of a tensor without memory."""
    try:
        if type(array) in (torch.Tensor, torch.nn.Parameter):
            return int(array.data_ptr())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's, of a subclass's address that will be refused
            return int(array.data_ptr())
    except RuntimeError:
        return 0


def check_gradient(tensor: Any, buffer: Buffer) -> None:
    if tensor.requires_grad and sys.modules["torch"].is_grad_enabled():
        _refuse(
            buffer,
            f"requires a gradient, which kernels do not have: pass {buffer.name}.detach(), or call it under "
            "torch.no_grad()",
        )


def is_tensor(array: Any) -> bool:
    """Of torch? Where that is not imported nothing is."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def check_apart(addresses: Sequence[int], buffers: Sequence[Buffer], inputs: int) -> None:
    """Kernels write outputs while they still read inputs, of which there are `inputs`: none may share memory."""
    for number in range(inputs, len(buffers)):
        begin, output = addresses[number], buffers[number]
        end = begin + output.bytes
        for address, other in zip(addresses[:number], buffers, strict=False):
            if address < end and begin < address + other.bytes:
                _refuse(output, f"shares memory with {other.role} {other.name}")
