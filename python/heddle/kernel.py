"""Kernels that are called on arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heddle._arrays import Arrays, CudaTensors, NumPyArrays, Tensors, check_apart, is_tensor
from heddle.artefact import Buffer, Manifest
from heddle.errors import InvalidArgument, TensorError
from heddle.records import Record

if TYPE_CHECKING:
    from heddle._cuda import CudaProgram


def load(folder: str | os.PathLike[str], device: str | None = None) -> Kernel:
    """The kernels of a folder of `heddle export`; no database and no server is needed.

    `device`: "cuda:N" or "opencl:N", by default the first of the kind that the folder was made for.
    """
    return Kernel(Path(folder), device=device)


class Kernel:
    """An exported program on a device. Call it with the operator's inputs, in their order.

    `record` says where the schedule comes from (None for a loaded folder), `manifest` what was built.
    Kernels for OpenCL take NumPy arrays, or torch tensors in the processor's memory, and return when the result is
    there. Kernels for CUDA take torch tensors of their device and are enqueued on its current stream, as PyTorch's
    own operators are. Binaries are loaded here, not by the first call, which may stand in a CUDA graph's capture.
    """

    def __init__(self, folder: Path, *, device: str | None = None, record: Record | None = None) -> None:
        self.folder = folder
        self.manifest = Manifest.read(folder)
        self.record = record
        api = "opencl" if self.manifest.arch == "opencl" else "cuda"
        self.device = device or f"{api}:0"
        kind, _, number = self.device.partition(":")
        if kind != api or not number.isdigit():
            raise InvalidArgument(
                f"{folder} was made for {self.manifest.arch} ({self.manifest.device}): its device is {api}:N, "
                f"not {self.device}", 2
            )  # fmt: skip
        self.inputs = self.manifest.of_role("input")
        self.outputs = self.manifest.of_role("output")
        self._arguments = self.inputs + self.outputs
        self._apart: list[int] = []  # addresses of arguments that were seen to share no memory
        self._repeat: _Repeat | None = None
        self._run: _CudaRun | _HostRun
        if api == "cuda":
            self._run = _CudaRun(self.manifest, int(number))
        else:
            self._run = _HostRun(self.manifest, int(number))

    @property
    def source(self) -> str:
        """The kernels' text, in CUDA C++ or OpenCL C."""
        files = dict.fromkeys(launch.source for launch in self.manifest.launches)
        return "\n".join((self.folder / name).read_text(encoding="utf-8") for name in files)

    def __repr__(self) -> str:
        shape = ",".join(f"{k}={v}" for k, v in self.manifest.shape.items())
        found = f", {self.record.match}" if self.record else ""
        return f"<heddle.Kernel {self.manifest.op} {shape} {self.manifest.dtype} on {self.device}{found}>"

    def arrays(self, inputs: Sequence[Any]) -> Arrays:
        """Checks and makes arrays of the library that the inputs are of, on this kernel's device."""
        return self._run.arrays(inputs)

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Computes the outputs: one array, or a tuple where the operator has several.

        `out`: arrays to write to, one or a tuple as in the result; with it nothing is allocated. TensorError names
        the tensor whose data type, shape, strides, alignment or device is wrong; nothing is copied or converted.
        """
        if self._repeat is not None:
            result = self._repeat(inputs, out)
            if result is not None:
                return result
        if len(inputs) != len(self.inputs):
            raise TensorError(
                f"{self.manifest.op} takes {len(self.inputs)} inputs ({', '.join(b.name for b in self.inputs)}), "
                f"given {len(inputs)}"
            )
        arrays = self.arrays(inputs)
        addresses = list(map(arrays.address, inputs, self.inputs))
        if out is None:
            outputs: Sequence[Any] = [arrays.empty(b) for b in self.outputs]
        else:
            outputs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
            if len(outputs) != len(self.outputs):
                raise TensorError(
                    f"{self.manifest.op} has {len(self.outputs)} outputs "
                    f"({', '.join(b.name for b in self.outputs)}), `out` {len(outputs)}"
                )
        addresses.extend(map(arrays.address, outputs, self.outputs))
        if out is not None and addresses != self._apart:
            check_apart(addresses, self._arguments, len(inputs))
            self._apart = addresses[:]
        self._run.launch(addresses, arrays)
        if self._repeat is None:
            self._repeat = self._run.repeat(inputs, outputs)
        if out is not None:
            return out
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def register(self, name: str) -> Any:
        """Makes it PyTorch's operator torch.ops.NS.NAME, for `name` "NS::NAME" (heddle.torch.register)."""
        from heddle.torch import register

        return register(self, name)


class _HostRun:
    """OpenCL: arrays in the host's memory, and the end is waited for."""

    def __init__(self, manifest: Manifest, index: int) -> None:
        from heddle._opencl import OpenClProgram

        self._program = OpenClProgram(manifest, index)
        self._numpy: NumPyArrays | None = None
        self._torch: Tensors | None = None

    def arrays(self, inputs: Sequence[Any]) -> Arrays:
        if inputs and is_tensor(inputs[0]):
            self._torch = self._torch or Tensors("cpu")
            return self._torch
        self._numpy = self._numpy or NumPyArrays()
        return self._numpy

    def launch(self, addresses: list[int], arrays: Arrays) -> None:
        self._program.run(addresses)

    def repeat(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        return None


class _CudaRun:
    """CUDA: torch tensors, enqueued on the current stream."""

    def __init__(self, manifest: Manifest, index: int) -> None:
        from heddle._cuda import CudaProgram

        self._program = CudaProgram(manifest, index)
        self._tensors = CudaTensors(index)
        self._workspaces: tuple[Buffer, ...] = manifest.of_role("workspace")
        self._arguments = manifest.of_role("input") + manifest.of_role("output")

    def arrays(self, inputs: Sequence[Any]) -> Arrays:
        return self._tensors

    def launch(self, addresses: list[int], arrays: Arrays) -> None:
        stream = self._tensors.stream()
        # Held until everything is enqueued: the allocator may then give them to later work of this stream.
        held = [self._tensors.workspace(b, stream) for b in self._workspaces]
        for workspace in held:
            addresses.append(workspace.data_ptr())
        self._program.launch(addresses, stream, self._tensors.current())

    def repeat(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> _Repeat | None:
        """Of arguments that were found right."""
        inputs_alike = self._tensors.alike(inputs)
        all_alike = self._tensors.alike([*inputs, *outputs])
        if self._workspaces or inputs_alike is None or all_alike is None:
            return None
        return _Repeat(self._program, self._tensors, self._arguments, len(inputs), inputs_alike, all_alike)


class _Repeat:
    """Calls with tensors that are of the form of those of a call before, which were found right."""

    def __init__(
        self,
        program: CudaProgram,
        tensors: CudaTensors,
        arguments: tuple[Buffer, ...],
        inputs: int,
        inputs_alike: Callable[..., bool],
        all_alike: Callable[..., bool],
    ) -> None:
        self._launch = program.launch
        self._current, self._stream = tensors.current, tensors.stream
        self._arguments, self._inputs = arguments, inputs
        self._inputs_alike, self._all_alike = inputs_alike, all_alike
        self._empty = [tensors.allocator(buffer) for buffer in arguments[inputs:]]
        # Alignments are powers of two: no address may have one of these bits.
        self._low_bits = max(buffer.align for buffer in arguments) - 1
        self._apart: list[int] = []  # addresses of arguments that were seen to share no memory

    def __call__(self, inputs: tuple[Any, ...], out: Any) -> Any:
        """The call's result; None where its arguments are to be looked at singly."""
        if len(inputs) != self._inputs or not self._current():
            return None
        if out is None:
            if not self._inputs_alike(*inputs):
                return None
            outputs: Sequence[Any] = [empty() for empty in self._empty]
        else:
            outputs = out if isinstance(out, (tuple, list)) else (out,)
            if len(outputs) != len(self._empty) or not self._all_alike(*inputs, *outputs):
                return None
        addresses = [tensor.data_ptr() for tensor in (*inputs, *outputs)]
        bits = 0
        for address in addresses:
            bits |= address
        if bits & self._low_bits:
            return None
        if out is not None and addresses != self._apart:
            check_apart(addresses, self._arguments, self._inputs)
            self._apart = addresses
        self._launch(addresses, self._stream(), True)
        if out is not None:
            return out
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
