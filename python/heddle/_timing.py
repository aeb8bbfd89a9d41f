"""How long functions of PyTorch take beside each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

_CALLS = 10  # in a captured graph
_ROUNDS = 7  # in which the functions take turns


def beside(calls: Mapping[str, Callable[[], Any]], device: torch.device) -> dict[str, float]:
    """Microseconds of a call: medians over rounds in which the functions take turns. On CUDA devices in captured
    graphs, by the device's clock, with nothing of what they read in the L2 cache, as behind the rest of a model;
    elsewhere by the clock."""
    if device.type != "cuda":
        return _medians({kind: partial(_clocked, call) for kind, call in calls.items()})
    with torch.cuda.device(device):
        flush = emptier(device)
        runs = {kind: _replayed(call, flush) for kind, call in calls.items()}
        times = _medians({**runs, "": _replayed(lambda: None, flush)})
        emptying = times.pop("")
        return {kind: max(took - emptying, 0.01) for kind, took in times.items()}


def captured(call: Callable[[], Any]) -> tuple[Any, Any]:
    """A CUDA graph of a call, and what that returned. It is called before, so that nothing is new in the capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


def emptier(device: torch.device) -> Callable[[], Any]:
    """What empties the L2 cache."""
    size = torch.cuda.get_device_properties(device).L2_cache_size
    emptied: Callable[[], Any] = torch.empty(2 * size, dtype=torch.uint8, device=device).zero_
    return emptied


def _medians(runs: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    times: dict[str, list[float]] = {kind: [] for kind in runs}
    for number in range(_ROUNDS + 1):
        for kind, run in runs.items():
            took = run()
            if number > 0:  # the first round warms up
                times[kind].append(took)
    return {kind: statistics.median(found) for kind, found in times.items()}


def _clocked(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e6


def _replayed(call: Callable[[], Any], flush: Callable[[], Any]) -> Callable[[], float]:
    def several() -> None:
        for _ in range(_CALLS):
            flush()
            call()

    graph, _ = captured(several)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def run() -> float:
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / _CALLS

    return run
