"""Kernels for shapes of which one size is only known when they are called."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from heddle import _table_header
from heddle._names import AnyDevice
from heddle.artefact import Buffer
from heddle.errors import ArtefactError, InvalidArgument, TensorError
from heddle.kernel import Kernel
from heddle.operator import Operator

# Called as the table is, where the table cannot: default(*inputs), or with out= where that was given.
Default = Callable[..., Any]

_log = logging.getLogger("heddle")
_FILE = "table.json"


def bucket_sizes(limit: int) -> list[int]:
    """The powers of two up to `limit`, one and a half times each of them, and `limit`.

    Rounded up to these a size grows to at most 1.5 times itself, and to 1.18 times on average where all
    sizes are as likely.
    """
    if limit < 1:
        raise InvalidArgument(f"sizes up to {limit}: there is none", 2)
    powers = [1 << i for i in range(limit.bit_length())]
    return sorted({s for p in powers for s in (p, p * 3 // 2) if s <= limit} | {limit})


def free_parameter(shape: Mapping[str, Any], parameters: Mapping[str, Any]) -> tuple[dict[str, int], str, list[int]]:
    """The fixed parameters, the name of the one that is given as several sizes, and these in order."""
    sizes = {**shape, **parameters}
    several = [name for name, value in sizes.items() if isinstance(value, Iterable) and not isinstance(value, str)]
    if len(several) != 1:
        given = f", not {len(several)} ({', '.join(several)})" if several else ""
        raise InvalidArgument(f"one parameter is given as a list of sizes{given}: m=[1, 8, 64]", 2)
    name = several[0]
    chosen = sorted(set(sizes.pop(name)))
    if not chosen or chosen[0] < 1:
        raise InvalidArgument(f"{name}={chosen}: give sizes of 1 and more", 2)
    return sizes, name, chosen


_WORD = re.compile(r"[A-Za-z_]\w*")


def _bracket(text: str, begin: int) -> tuple[list[str], int]:
    """What stands between the bracket at `begin` and its partner, parted at commas; and the place behind it."""
    depth, part, parts = 0, begin + 1, []
    for at in range(begin, len(text)):
        if text[at] in "[(":
            depth += 1
        elif text[at] in "])":
            depth -= 1
        if depth == 0 or (depth == 1 and text[at] == ","):
            parts.append(text[part:at].strip())
            part = at + 1
        if depth == 0:
            return parts, at + 1
    raise InvalidArgument(f"a bracket of '{text}' is not closed", 2)


def _reads(text: str) -> Iterator[tuple[str, list[str]]]:
    """Every NAME[...] of a text, with what stands in its brackets."""
    for word in _WORD.finditer(text):
        if text[word.end() : word.end() + 1] == "[":
            yield word[0], _bracket(text, word.end())[0]


def free_dimensions(operator: Operator, parameter: str) -> dict[str, tuple[int, ...]]:
    """Which dimensions of each tensor are as long as `parameter`, where more of them change no element.

    A kernel for a larger size then computes the same values at the places that a smaller one has, whatever
    stands in the others. That is so where the parameter is nothing but the length of dimensions, these are walked by
    stages' own axes, never by a reduction's, and element i is made of elements i. InvalidArgument names the
    definition where it is not: padding the rows of a softmax would change its result.
    """
    if parameter not in operator.parameters:
        raise InvalidArgument(f"{operator.name} has no parameter {parameter}, but {', '.join(operator.parameters)}", 2)
    free: dict[str, tuple[int, ...]] = {}

    def refuse(line: str) -> InvalidArgument:
        return InvalidArgument(
            f"{operator.name} cannot be rounded up along {parameter}, on whose value more than the length of "
            f"dimensions depends: {line.strip()}", 2
        )  # fmt: skip

    def lengths(line: str, extents: list[str]) -> tuple[int, ...]:
        for extent in extents:
            if extent != parameter and parameter in _WORD.findall(extent):
                raise refuse(line)
        return tuple(i for i, extent in enumerate(extents) if extent == parameter)

    # As the program prints it: a definition a line.
    for line in operator.text[operator.text.index("{") + 1 : operator.text.rindex("}")].splitlines():
        bare = line.strip()
        if bare.startswith("in "):
            for name, extents in _reads(bare):
                free[name] = lengths(line, extents)
        elif bare.startswith("let "):
            if parameter in _WORD.findall(bare):
                raise refuse(line)
        elif bare:
            name, axes = next(_reads(bare))
            behind = _bracket(bare, bare.index("["))[1]
            named = [[word.strip() for word in axis.split(":")] for axis in axes]
            free[name] = lengths(line, [extent for _, extent in named])
            own = {named[dimension][0] for dimension in free[name]}
            if parameter in _WORD.findall(bare[behind:]):  # a reduction's axis, or a value
                raise refuse(line)
            for read, indices in _reads(bare[behind:]):
                if any(indices[dimension] not in own for dimension in free[read]):
                    raise refuse(line)
    return free


class Table:
    """Kernels of one operator that differ in one parameter: a call takes the next size up.

    Between two sizes the inputs are copied into larger ones, and the result is a part of a larger one; at a
    size of the table nothing is. What fits no kernel (a size beyond the largest, another data type, strides) goes to
    `default`, and the first time that is logged ("heddle" in `logging`). Without a default it is a TensorError.
    """

    def __init__(
        self,
        operator: Operator,
        parameter: str,
        kernels: Mapping[int, Kernel],
        *,
        default: Default | None = None,
        beyond: Callable[[int], Kernel] | None = None,
    ) -> None:
        """`beyond` makes the kernel of a size beyond the largest where there is no `default`."""
        self.operator = operator
        self.parameter = parameter
        self.kernels = dict(sorted(kernels.items()))
        self.sizes = tuple(self.kernels)
        self.default = default
        self._beyond = beyond
        self._free = free_dimensions(operator, parameter)
        largest = self.kernels[self.sizes[-1]]
        # As for Kernel, but a free dimension is as long as the call's size; here the largest.
        self.inputs, self.outputs = largest.inputs, largest.outputs
        of_input = [(i, d) for i, b in enumerate(self.inputs) for d in self._free[b.name]]
        if not of_input:
            raise InvalidArgument(f"no input of {operator.name} has a dimension of length {parameter}", 2)
        # The number of the input and its dimension that tell a call's size.
        self.measured = of_input[0]
        self._missed = False

    def __repr__(self) -> str:
        sizes = ",".join(map(str, self.sizes))
        return f"<heddle.Table {self.operator.name} {self.parameter}={sizes}>"

    def __deepcopy__(self, memo: Any) -> Table:
        return self  # as of kernels

    def bucket(self, size: int) -> int | None:
        """The smallest size of the table that is not less; None beyond the largest."""
        return next((s for s in self.sizes if s >= size), None)

    def free(self, buffer: Buffer) -> tuple[int, ...]:
        """The dimensions of an input or output that are as long as the parameter."""
        return self._free[buffer.name]

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        try:
            size = self._size(inputs)
            bucket = self.bucket(size)
            if bucket == size:
                return self.kernels[size](*inputs, out=out)
            if bucket is not None:
                return self._rounded(size, self.kernels[bucket], inputs, out)
            if self.default is not None or self._beyond is None:
                raise TensorError(
                    f"{self.operator.name}: {self.parameter}={size} is beyond the largest size, {self.sizes[-1]}"
                )
        except TensorError as error:
            if self.default is None:
                raise
            self._say(f"{error}; the default runs")
            return self.default(*inputs) if out is None else self.default(*inputs, out=out)
        self._say(
            f"{self.operator.name}: {self.parameter}={size} is beyond the largest size, {self.sizes[-1]}; "
            "the default schedule runs"
        )
        self.kernels[size] = self._beyond(size)  # not among `sizes`: for itself alone
        return self.kernels[size](*inputs, out=out)

    def _say(self, what: str) -> None:
        if not self._missed:
            self._missed = True
            _log.warning("%s (said once for each table)", what)

    def _size(self, inputs: tuple[Any, ...]) -> int:
        index, dimension = self.measured
        shape = getattr(inputs[index], "shape", ()) if index < len(inputs) else ()
        if len(inputs) != len(self.inputs) or dimension >= len(shape):
            names = ", ".join(f"{b.name} of {len(b.shape)} dimensions" for b in self.inputs)
            raise TensorError(f"{self.operator.name} takes {names}")
        return int(shape[dimension])

    def _at(self, size: int, buffer: Buffer) -> Buffer:
        """A buffer of a kernel, as long as the call's tensor is."""
        shape = tuple(size if d in self.free(buffer) else n for d, n in enumerate(buffer.shape))
        strides = [1] * len(shape)
        for d in reversed(range(len(shape) - 1)):
            strides[d] = strides[d + 1] * shape[d + 1]
        return replace(buffer, shape=shape, strides=tuple(strides))

    def _rounded(self, size: int, kernel: Kernel, inputs: tuple[Any, ...], out: Any) -> Any:
        arrays = kernel.arrays(inputs)
        outs = () if out is None else out if isinstance(out, (tuple, list)) else (out,)
        if out is not None and len(outs) != len(kernel.outputs):
            raise TensorError(f"{self.operator.name} has {len(kernel.outputs)} outputs, `out` {len(outs)}")
        for array, buffer in [*zip(inputs, kernel.inputs, strict=True), *zip(outs, kernel.outputs, strict=False)]:
            arrays.address(array, self._at(size, buffer))

        def part(buffer: Buffer) -> tuple[slice, ...]:
            return tuple(slice(n) for n in self._at(size, buffer).shape)

        larger = []
        for array, buffer in zip(inputs, kernel.inputs, strict=True):
            if self.free(buffer):
                # What stands behind the part is read, and decides nothing (free_dimensions).
                padded = arrays.empty(buffer)
                padded[part(buffer)] = array
                array = padded
            larger.append(array)
        results = kernel(*larger)
        results = results if isinstance(results, tuple) else (results,)
        parts = tuple(r[part(b)] for r, b in zip(results, kernel.outputs, strict=True))
        if out is None:
            return parts[0] if len(parts) == 1 else parts
        for array, value in zip(outs, parts, strict=True):
            array[...] = value
        return out

    def register(self, name: str) -> Any:
        """Makes it PyTorch's operator torch.ops.NS.NAME, for `name` "NS::NAME" (heddle.torch.register)."""
        from heddle.torch import register

        return register(self, name)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes a folder that load_table() reads: a folder of `heddle export` for each size, and table.h, from which
        a program in C or C++ takes the same kernels."""
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()) and not (folder / _FILE).exists():
            raise InvalidArgument(f"{folder} is not empty and holds no earlier table: choose another", 2)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _FILE).unlink(missing_ok=True)
        names = {size: f"{self.parameter}{size}" for size in self.sizes}
        for size, name in names.items():
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(self.kernels[size].folder, folder / name)
        manifests = {names[size]: (size, self.kernels[size].manifest) for size in self.sizes}
        (folder / "table.h").write_text(_table_header.text(self.operator.name, self.parameter, manifests))
        # Last, so that a folder with one is complete.
        document = {"operator": self.operator.text, "parameter": self.parameter, "sizes": names}
        (folder / _FILE).write_text(json.dumps(document, indent=2) + "\n")


def load_table(
    folder: str | os.PathLike[str], device: AnyDevice | None = None, default: Default | None = None
) -> Table:
    """The table that Table.save() wrote; no database is needed."""
    folder = Path(folder)
    try:
        document = json.loads((folder / _FILE).read_text())
        operator, parameter = document["operator"], document["parameter"]
        names = {int(size): name for size, name in document["sizes"].items()}
    except (OSError, ValueError, KeyError) as error:
        raise ArtefactError(f"{folder} holds no table of Table.save(): {error}") from None
    kernels = {size: Kernel(folder / name, device=device) for size, name in names.items()}
    return Table(Operator(operator), parameter, kernels, default=default)
