"""The manifest of an exported folder (`heddle export`), read and checked."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from heddle.errors import ArtefactError

# Bytes of an element.
ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int8": 1, "uint8": 1}


@dataclass(frozen=True)
class Buffer:
    """A tensor of an exported program."""

    name: str
    role: str  # "input", "output" or "workspace"
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    align: int  # of the first element's address, in bytes

    @cached_property
    def bytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.shape))}] {self.dtype}"


@dataclass(frozen=True)
class TensorMap:
    """A tensor as bulk copies of a CUDA kernel read it, box by box. Dimensions outermost first."""

    buffer: str
    element_bytes: int  # 2, or 4 of tf32, to which elements are rounded on the way
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes, of all dimensions but the innermost
    box: tuple[int, ...]
    swizzle_bytes: int  # 32, 64 or 128


@dataclass(frozen=True)
class Launch:
    """One kernel of an exported program: they run in order, on one stream."""

    entry: str
    source: str  # file names
    binary: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int  # dynamic shared memory
    args: tuple[str, ...]  # names of buffers, whose addresses are the arguments
    maps: tuple[TensorMap, ...] = ()  # arguments behind these


_MAP_KEYS = {"tensor_map", "element_bytes", "shape", "strides", "box", "swizzle_bytes"}


def _is_map(argument: object, names: set[str]) -> bool:
    return isinstance(argument, dict) and argument.keys() == _MAP_KEYS and argument["tensor_map"] in names


def _triple(values: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = values
    return x, y, z


@dataclass(frozen=True)
class Manifest:
    folder: Path
    op: str
    shape: Mapping[str, int]
    dtype: str
    workload: str  # canonical text
    device: str  # model
    arch: str  # "opencl" or "sm_90"
    time_us: float | None
    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    compile_options: tuple[str, ...]

    def of_role(self, role: str) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.role == role)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Manifest:
        """Raises ArtefactError where the folder holds no export that this version understands."""
        folder = Path(folder)
        path = folder / "manifest.json"
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ArtefactError(f"{folder} holds no manifest.json: give a folder of `heddle export`") from None
        except ValueError as error:
            raise ArtefactError(f"{path} is no JSON: {error}") from None
        try:
            return cls._of(folder, document)
        except ArtefactError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise ArtefactError(f"{path} lacks or has in another form: {error}") from None

    @classmethod
    def _of(cls, folder: Path, document: Mapping[str, Any]) -> Manifest:
        buffers = tuple(
            Buffer(b["name"], b["role"], b["dtype"], tuple(b["shape"]), tuple(b["strides"]), b["align"])
            for b in document["buffers"]
        )
        for buffer in buffers:
            if buffer.dtype not in ITEM_BYTES:
                raise ArtefactError(f"{folder}: {buffer.name} is of type {buffer.dtype}, which is not known here")
        names = {b.name for b in buffers}
        launches = []
        for kernel in document["kernels"]:
            # Buffers, then tensor maps; anything else asks for an argument of another kind.
            args = [a for a in kernel["args"] if isinstance(a, str) and a in names]
            maps = kernel["args"][len(args) :]
            strange = [a for a in kernel["args"][: len(args)] if a not in args]
            strange += [a for a in maps if not _is_map(a, names)]
            if strange:
                raise ArtefactError(
                    f"{folder}: kernel {kernel['entry']} takes {strange[0]!r}, which is no buffer of it: "
                    "a newer version of this package may know"
                )
            launches.append(
                Launch(
                    kernel["entry"], kernel["source"], kernel["binary"], _triple(kernel["grid"]),
                    _triple(kernel["block"]), kernel["shared_bytes"], tuple(args),
                    tuple(
                        TensorMap(
                            m["tensor_map"], m["element_bytes"], tuple(m["shape"]), tuple(m["strides"]),
                            tuple(m["box"]), m["swizzle_bytes"],
                        )
                        for m in maps
                    ),
                )
            )  # fmt: skip
        return cls(
            folder=folder,
            op=document["op"],
            shape=document["shape"],
            dtype=document["dtype"],
            workload=document["workload"],
            device=document["device"],
            arch=document["arch"],
            time_us=document["time_us"],
            buffers=buffers,
            launches=tuple(launches),
            compile_options=tuple(document["compile_options"]),
        )
