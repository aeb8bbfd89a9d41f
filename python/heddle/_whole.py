"""A graph as it is beside itself with kernels, as a compiler makes each: which of them is the fastest."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from heddle._timing import beside
from heddle.operator import keep_file

_log = logging.getLogger("heddle")

PLAIN = "inductor"  # the graph as it is


@dataclass(frozen=True)
class Whole:
    run: Callable[..., Any]
    kind: str  # of the graphs, the fastest
    times: Mapping[str, float]  # microseconds of each graph; none where there is one alone


def fastest(
    graphs: Mapping[str, Callable[[], Any]],
    compiler: Callable[[Any, bool], Callable[..., Any]],
    autotunes: bool,
    inputs: tuple[Any, ...],
    device: torch.device,
    path: Path,
) -> Whole:
    """`graphs` makes each, PLAIN among them; `compiler` compiles one, with autotuning or without, which is tried on the
    plain one where it `autotunes`. Which is the fastest is kept at `path`, where the next time that alone is compiled.
    """
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        return Whole(compiler(graphs[kept["kind"]](), kept["tuned"]), kept["kind"], kept["times"])
    runs, tuned = {PLAIN: compiler(graphs[PLAIN](), autotunes)}, autotunes
    # Autotuning takes what is faster by itself, measured on a host that is busy: the whole can become slower by it.
    if autotunes:
        untuned = compiler(graphs[PLAIN](), False)
        times = beside({"tuned": partial(runs[PLAIN], *inputs), "untuned": partial(untuned, *inputs)}, device)
        _log.info("the whole as it is: %s", times)
        if times["untuned"] < times["tuned"]:
            runs[PLAIN], tuned = untuned, False
    if len(graphs) == 1:
        if autotunes:
            keep_file(path, json.dumps({"kind": PLAIN, "tuned": tuned, "times": {}}))
        return Whole(runs[PLAIN], PLAIN, {})
    runs |= {kind: compiler(make(), tuned) for kind, make in graphs.items() if kind != PLAIN}
    times = beside({kind: partial(run, *inputs) for kind, run in runs.items()}, device)
    _log.info("the whole: %s", times)
    best = min(times, key=lambda kind: times[kind])
    keep_file(path, json.dumps({"kind": best, "tuned": tuned, "times": times}))
    return Whole(runs[best], best, times)
