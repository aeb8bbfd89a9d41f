"""Calls of CUDA kernels on tensors of the form of an earlier call's, in as few steps as Python has for them.

A call is a few microseconds, of which the driver needs most, so that what is left counts in loops and unpacked
arguments. Functions are therefore written as text for a kernel's number of tensors and launches, and compiled, as
those of dataclasses are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from heddle._arrays import CudaTensors, check_apart
from heddle.artefact import Manifest

if TYPE_CHECKING:
    from heddle._cuda import CudaProgram

_ALLOCATING = """
def {name}({ins}):
    if alike({ins}) and current() == device:
        {in_addresses}
        if not ({in_bits}) & low_bits:
            {allocations}
            {out_addresses}
            {launches}
            return {result}
    return {otherwise}
"""

_WRITING = """
def writing({ins}, {outs}, out):
    if all_alike({ins}, {outs}) and current() == device:
        {in_addresses}
        {out_addresses}
        if not ({bits}) & low_bits:
            {apart}
            {launches}
            {written}
            return out
    return singly(({ins},), out)
"""

_APART = """
addresses = ({addresses},)
if addresses != apart[0]:
    check_apart(addresses, arguments, {inputs})
    apart[0] = addresses
"""

_LAUNCHES = """
try:
    frame = pop()
except IndexError:
    frame = make()
{parts} = frame.parts
write(values, 0, {addresses})
{streams} = stream(device)
{maps}
code = {launched}
if code:
    code = retry(frame, code)
append(frame)
if code:
    fail(code)
"""


def _filled(template: str, **parts: str) -> str:
    """A template with parts of several lines, each as far to the right as its place."""
    lines = []
    for line in template.strip().splitlines():
        text = line.lstrip()
        if text.startswith("{") and text.endswith("}") and text[1:-1] in parts:
            indent = line[: len(line) - len(text)]
            lines += [indent + one for one in parts[text[1:-1]].strip().splitlines()]
        else:
            lines.append(line.format(**parts))
    return "\n".join(lines)


class Repeat:
    """`allocating(*inputs)` and `writing(*inputs, *outputs, out)` are a kernel's call without and with `out`.

    What is not of the form that learn() was told goes to `singly(inputs, out)`, where it is looked at tensor by tensor;
    quick(*inputs) returns None then, and is otherwise as allocating().
    """

    def __init__(
        self, manifest: Manifest, program: CudaProgram, tensors: CudaTensors, singly: Callable[[Any, Any], Any]
    ) -> None:
        inputs, outputs = manifest.of_role("input"), manifest.of_role("output")
        arguments = inputs + outputs
        self._tensors = tensors
        self.learned = False
        self._names: dict[str, Any] = {
            "current": tensors.current_device,
            "device": tensors.index,
            "stream": tensors.stream_of,
            "alike": _never,
            "all_alike": _never,
            "singly": singly,
            "arguments": arguments,
            "check_apart": check_apart,
            "written": tensors.written,
            "apart": [()],  # addresses of arguments that were seen to share no memory
            # Alignments are powers of two: no address may have one of these bits.
            "low_bits": max(buffer.align for buffer in arguments) - 1,
            "write": struct.Struct(f"={len(arguments)}Q").pack_into,
            "pop": program.frames.pop,
            "append": program.frames.append,
            "make": program.frame,
            "launch": program.launch_kernel,
            "retry": program.retry,
            "fail": program.fail,
            **{f"empty{i}": tensors.allocator(buffer) for i, buffer in enumerate(outputs)},
        }
        exec(_text(manifest), self._names)
        self.allocating: Callable[..., Any] = self._names["allocating"]
        self.quick: Callable[..., Any] = self._names["quick"]
        self.writing: Callable[..., Any] = self._names["writing"]

    def learn(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Takes the form of arguments that were found right, where they can be checked in one step."""
        alike, all_alike = self._tensors.alike(inputs), self._tensors.alike([*inputs, *outputs])
        if alike is not None and all_alike is not None:
            self._names |= {"alike": alike, "all_alike": all_alike}
            self.learned = True


def _never(*tensors: Any) -> bool:
    return False


def _text(manifest: Manifest) -> str:
    ins = [f"in{i}" for i in range(len(manifest.of_role("input")))]
    outs = [f"out{i}" for i in range(len(manifest.of_role("output")))]
    every = [*ins, *outs]
    launches = range(len(manifest.launches))
    number = {buffer.name: i for i, buffer in enumerate(manifest.of_role("input") + manifest.of_role("output"))}
    described = [number[m.buffer] for launch in manifest.launches for m in launch.maps]
    maps = [f"map{i}" for i in range(len(described))]
    addresses = ", ".join(f"{name}_at" for name in every)
    launched = _filled(
        _LAUNCHES,
        parts=", ".join(["values", *(f"config{i}, call{i}" for i in launches), *maps]),
        addresses=addresses,
        streams=" = ".join(f"config{i}.stream" for i in launches),
        maps="\n".join(
            f"if {m}.at != {every[b]}_at: {m}.describe({every[b]}_at)" for m, b in zip(maps, described, strict=True)
        ),
        launched=" or ".join(f"launch(*call{i})" for i in launches),
    )
    parts = {
        "ins": ", ".join(ins),
        "outs": ", ".join(outs),
        "in_addresses": "\n".join(f"{name}_at = {name}.data_ptr()" for name in ins),
        "out_addresses": "\n".join(f"{name}_at = {name}.data_ptr()" for name in outs),
        "in_bits": " | ".join(f"{name}_at" for name in ins),
        "bits": " | ".join(f"{name}_at" for name in every),
        "allocations": "\n".join(f"{name} = empty{i}()" for i, name in enumerate(outs)),
        "apart": _filled(_APART, addresses=addresses, inputs=str(len(ins))),
        "launches": launched,
        "result": ", ".join(outs),
        "written": "\n".join(f"written({name})" for name in outs),
    }
    texts = [
        _filled(_ALLOCATING, name="allocating", otherwise=f"singly(({parts['ins']},), None)", **parts),
        _filled(_ALLOCATING, name="quick", otherwise="None", **parts),
        _filled(_WRITING, **parts),
    ]
    return "\n\n".join(texts)
