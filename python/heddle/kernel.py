"""Kernels that are called on arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from heddle._arrays import Arrays, CudaTensors, NumPyArrays, Tensors, check_apart, is_tensor
from heddle._names import AnyDevice, device_id
from heddle._repeat import Repeat
from heddle.artefact import Buffer, Manifest
from heddle.errors import ArtefactError, InvalidArgument, TensorError
from heddle.records import Record


def load(folder: str | os.PathLike[str], device: AnyDevice | None = None) -> Kernel:
    """The kernels of a folder of `heddle export`; no database and no server is needed.

    `device`: "cuda:N", "opencl:N" or a torch.device, by default the first of the kind that the folder was made for.
    """
    return Kernel(Path(folder), device=device)


class Kernel:
    """An exported program on a device. Call it with the operator's inputs, in their order.

    `record` says where the schedule comes from (None for a loaded folder), `manifest` what was built.
    Kernels for OpenCL take NumPy arrays, or torch tensors in the processor's memory, and return when the result is
    there. Kernels for CUDA take torch tensors of their device and are enqueued on its current stream, as PyTorch's
    own operators are. Binaries are loaded here, not by the first call, which may stand in a CUDA graph's capture.

    A copy of a kernel is the same kernel, as it never changes. Pickled, it is its folder's name: where that is there,
    on the same machine, it is loaded again.
    """

    def __init__(self, folder: Path, *, device: AnyDevice | None = None, record: Record | None = None) -> None:
        self.folder = folder
        self.manifest = Manifest.read(folder)
        self.record = record
        api = "opencl" if self.manifest.arch == "opencl" else "cuda"
        self.device = f"{api}:0" if device is None else device_id(device)
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
        self._run: _CudaRun | _HostRun
        if api == "cuda":
            self._run = _CudaRun(self.manifest, int(number))
        else:
            self._run = _HostRun(self.manifest, int(number))
        self._repeat = self._run.repeat(self._singly)
        # The call without `out`, for callers that give as many inputs as there are.
        self.allocating: Callable[..., Any] = self
        # The same where the inputs are like an earlier call's on this thread's state of PyTorch, else None.
        self.quick: Callable[..., Any] | None = None
        if self._repeat is not None:
            self.allocating, self.quick = self._repeat.allocating, self._repeat.quick

    @property
    def source(self) -> str:
        """The kernels' text, in CUDA C++ or OpenCL C."""
        files = dict.fromkeys(launch.source for launch in self.manifest.launches)
        return "\n".join((self.folder / name).read_text(encoding="utf-8") for name in files)

    def __repr__(self) -> str:
        shape = ",".join(f"{k}={v}" for k, v in self.manifest.shape.items())
        found = f", {self.record.match}" if self.record else ""
        return f"<heddle.Kernel {self.manifest.op} {shape} {self.manifest.dtype} on {self.device}{found}>"

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, memo: Any) -> Kernel:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _reloaded, (self.folder.absolute(), self.device, self.record)

    def arrays(self, inputs: Sequence[Any]) -> Arrays:
        """Checks and makes arrays of the library that the inputs are of, on this kernel's device."""
        return self._run.arrays(inputs)

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        """Computes the outputs: one array, or a tuple where the operator has several.

        `out`: arrays to write to, one or a tuple as in the result; with it nothing is allocated. TensorError names
        the tensor whose data type, shape, strides, alignment or device is wrong; nothing is copied or converted.
        """
        if self._repeat is not None and len(inputs) == len(self.inputs):
            if out is None:
                return self._repeat.allocating(*inputs)
            outputs = out if isinstance(out, (tuple, list)) else (out,)
            if len(outputs) == len(self.outputs):
                return self._repeat.writing(*inputs, *outputs, out)
        return self._singly(inputs, out)

    def _singly(self, inputs: tuple[Any, ...], out: Any) -> Any:
        """The call, looking at each tensor by itself."""
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
        if self._repeat is not None and not self._repeat.learned:
            self._repeat.learn(inputs, outputs)
        if out is not None:
            for array in outputs:
                arrays.written(array)
            return out
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def register(self, name: str) -> Any:
        """Makes it PyTorch's operator torch.ops.NS.NAME, for `name` "NS::NAME" (heddle.torch.register)."""
        from heddle.torch import register

        return register(self, name)


def _reloaded(folder: Path, device: str, record: Record | None) -> Kernel:
    try:
        return Kernel(folder, device=device, record=record)
    except ArtefactError as error:
        raise ArtefactError(
            f"a pickled kernel is loaded from the folder that it was made from, which is not here ({error}): "
            "export it with Database.export() and take the folder along, for heddle.load()"
        ) from None


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

    def repeat(self, singly: Callable[[Any, Any], Any]) -> None:
        return None


class _CudaRun:
    """CUDA: torch tensors, enqueued on the current stream."""

    def __init__(self, manifest: Manifest, index: int) -> None:
        from heddle._cuda import CudaProgram

        self._manifest = manifest
        self._program = CudaProgram(manifest, index)
        self._tensors = CudaTensors(index)
        self._workspaces: tuple[Buffer, ...] = manifest.of_role("workspace")

    def arrays(self, inputs: Sequence[Any]) -> Arrays:
        return self._tensors

    def launch(self, addresses: list[int], arrays: Arrays) -> None:
        stream = self._tensors.stream()
        # Held until everything is enqueued: the allocator may then give them to later work of this stream.
        held = [self._tensors.workspace(b, stream) for b in self._workspaces]
        for workspace in held:
            addresses.append(workspace.data_ptr())
        self._program.launch(addresses, stream)

    def repeat(self, singly: Callable[[Any, Any], Any]) -> Repeat | None:
        return None if self._workspaces else Repeat(self._manifest, self._program, self._tensors, singly)
