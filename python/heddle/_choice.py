"""Kernels beside what a compiler makes of the nodes that they would stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from heddle._kernel_call import KernelCall, copied
from heddle._sections import Sections, section_times
from heddle.extraction import Folded, Group

# Compiles a module for inputs.
Compiler = Callable[[Any, tuple[Any, ...]], Callable[..., Any]]


@dataclass(frozen=True)
class Pair:
    """A kernel, and the nodes of a module that it would stand for, with tensors of the module for what they read."""

    group: Group
    call: KernelCall
    operands: Mapping[str, torch.Tensor]  # in the order of `call.names`


def compared(
    module: Any, pairs: Sequence[Pair], compiler: Compiler, device: torch.device
) -> list[tuple[float, float] | Exception]:
    """Microseconds of each kernel and of what the compiler makes of its nodes; what it raised where it refuses them.

    All pairs are one compilation, whose kernels the compiler builds at once; where that fails, it is tried in halves.
    """
    sections = Sections(module)
    for pair in pairs:
        _add(sections, module, pair)
    sections.add([next(iter(pairs[0].operands.values()))], lambda graph, copies: copies[0])  # nothing
    try:
        run = compiler(sections.module(), tuple(sections.inputs))
        *times, nothing = section_times(lambda: run(*sections.inputs), sections.count, device)
    except Exception as why:  # of whatever kind the compiler's are
        if len(pairs) == 1:
            return [why]
        half = len(pairs) // 2
        return [one for part in (pairs[:half], pairs[half:]) for one in compared(module, part, compiler, device)]
    net = [max(time - nothing, 0.01) for time in times]
    return list(zip(net[1::2], net[::2], strict=True))


def _add(sections: Sections, module: Any, pair: Pair) -> None:
    """A section of the nodes, and one of the kernel."""
    given = pair.operands

    def nodes(graph: Any, copies: list[Any]) -> Any:
        return copied(module, pair.group, graph, dict(zip(given, copies, strict=True)))

    sections.add([*given.values()], nodes)
    # What is made of weights is kept while these are the same tensors: in a model it is there.
    weights = {name for one in pair.group.operands if isinstance(one, Folded) for name in (one.tensor, *one.norm)}
    moving = [name for name in given if name not in weights]

    def kernel(graph: Any, copies: list[Any]) -> Any:
        nodes = dict(zip(moving, copies, strict=True))
        nodes |= {name: sections.given(given[name]) for name in given if name in weights}
        return graph.call_function(pair.call.define("compared"), tuple(nodes[name] for name in given))

    sections.add([given[name] for name in moving], kernel)
