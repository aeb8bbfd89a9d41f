"""Parts of one graph of PyTorch that are timed singly, so that one compilation serves to compare many."""

from __future__ import annotations

import operator
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from heddle._kernel_call import ALIGNMENT
from heddle._timing import emptier
from heddle.torch import define

_ROUNDS = 15
# Clocks that a device waits before a section, at first half a millisecond: in that time the host enqueues its kernels.
_SLEEP, _LONGEST_SLEEP = 1 << 20, 1 << 26


class Sections:
    """A graph of sections that come one after another. What a section reads is copied at its begin, behind the end of
    the section before: a compiler can move nothing from one into another, and finds nothing common to fuse."""

    def __init__(self, owner: Any) -> None:
        """`owner`: the module of what the graph's nodes refer to."""
        self.inputs: list[torch.Tensor] = []  # what module() is called with
        self.count = 0
        self._owner = owner
        self._graph = torch.fx.Graph()
        self._ended: Any = None

    def given(self, tensor: torch.Tensor) -> Any:
        """A node for a tensor as it is."""
        self.inputs.append(tensor)
        return self._graph.placeholder(f"given{len(self.inputs)}")

    def add(self, tensors: Sequence[torch.Tensor], write: Callable[[Any, list[Any]], Any]) -> None:
        """A section: `write` adds its nodes to a graph, which read those of the tensors' copies, and returns the last
        one."""
        call, aten = self._graph.call_function, torch.ops.aten
        made = []
        for tensor in tensors:
            flat, first = _flat(tensor)
            made.append((self.given(flat), (tensor.shape, tensor.stride(), first)))
        inputs = [node for node, _ in made]
        copies = call(torch.ops.heddle_fx.begin.default, (inputs, self._ended, self.count))
        seen = []
        for number, (_, (shape, strides, first)) in enumerate(made):
            copy = call(operator.getitem, (copies, number))
            seen.append(call(aten.as_strided.default, (copy, list(shape), list(strides), first)))
        last = write(self._graph, seen)
        self._ended = call(torch.ops.heddle_fx.end.default, (last, self.count))
        self.count += 1

    def module(self) -> Any:
        self._graph.output((self._ended,))
        return torch.fx.GraphModule(self._owner, self._graph)


def section_times(run: Callable[[], Any], count: int, device: torch.device) -> list[float]:
    """Microseconds of each of a module's sections: medians of runs. On CUDA devices by the device's clock, with nothing
    of what they read in the L2 cache, and with no wait for the host."""
    if device.type != "cuda":
        return _times(run, count, _HostStopwatch())
    with torch.cuda.device(device):
        return _times(run, count, _DeviceStopwatch(device))


def _times(run: Callable[[], Any], count: int, watch: _Stopwatch) -> list[float]:
    global _stopwatch
    times: list[list[float]] = [[] for _ in range(count)]
    run()  # warms up
    _stopwatch = watch
    try:
        while len(times[-1]) < _ROUNDS:
            run()
            for found, took in zip(times, watch.times(), strict=False):
                found.append(took)
    finally:
        _stopwatch = None
    return [statistics.median(found) for found in times]


class _Stopwatch(Protocol):
    def begin(self) -> None: ...
    def end(self) -> None: ...
    def times(self) -> list[float]:
        """Of the sections since the last call, in order; none where they are worth nothing."""


class _HostStopwatch:
    def __init__(self) -> None:
        self._begin = 0.0
        self._times: list[float] = []

    def begin(self) -> None:
        self._begin = time.perf_counter()

    def end(self) -> None:
        self._times.append((time.perf_counter() - self._begin) * 1e6)

    def times(self) -> list[float]:
        found, self._times = self._times, []
        return found


class _DeviceStopwatch:
    def __init__(self, device: torch.device) -> None:
        self._flush = emptier(device)
        self._sleep = _SLEEP
        self._late = False
        self._events: list[tuple[Any, Any]] = []

    def begin(self) -> None:
        self._flush()
        torch.cuda._sleep(self._sleep)
        both = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        both[0].record()
        self._events.append(both)

    def end(self) -> None:
        begin, end = self._events[-1]
        # The device was there before the host: it has waited for kernels, and that is in the time.
        self._late |= begin.query()
        end.record()

    def times(self) -> list[float]:
        torch.cuda.synchronize()
        events, late = self._events, self._late and self._sleep < _LONGEST_SLEEP
        self._events, self._late = [], False
        if late:
            self._sleep *= 2
            return []
        return [float(begin.elapsed_time(end)) * 1e3 for begin, end in events]


_stopwatch: _Stopwatch | None = None


def _begin(tensors: Sequence[torch.Tensor], after: Any, section: int) -> list[torch.Tensor]:
    copies = [tensor.clone() for tensor in tensors]
    if _stopwatch is not None:
        _stopwatch.begin()
    return copies


def _end(result: torch.Tensor, section: int) -> torch.Tensor:
    if _stopwatch is not None:
        _stopwatch.end()
    return result.new_zeros(1)


def _flat(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """All that a tensor spans in memory, also where its elements overlap or have gaps between them, from an aligned
    address on if it can be; and at which element of that it begins."""
    first = min(tensor.data_ptr() % ALIGNMENT // tensor.element_size(), tensor.storage_offset())
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
    return tensor.as_strided((first + span,), (1,), tensor.storage_offset() - first), first


define(
    "heddle_fx::begin",
    "(Tensor[] tensors, Tensor? after, int section) -> Tensor[]",
    _begin,
    lambda tensors, after, section: [torch.empty_like(tensor) for tensor in tensors],
)
define("heddle_fx::end", "(Tensor result, int section) -> Tensor", _end, lambda result, section: result.new_empty(1))
