"""A model's graph, and the workloads that compute it.

Operators are called as in ONNX, whichever library the graph comes from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError
from heddle.operator import Operator

CHANNELS_LAST = (0, 2, 3, 1)  # of the dimensions of an image, its order in memory


@dataclass
class Node:
    """An operator of a model. Tensors are known by names."""

    op_type: str
    name: str
    input: list[str]
    output: list[str]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    also_reads: list[str] = field(default_factory=list)  # in branches and loops


@dataclass
class Graph:
    nodes: list[Node]  # each behind what it reads
    # Of each tensor whose type is known: "float32", ...; a size that is not is its name, or "?".
    types: dict[str, tuple[str, list[int | str]]]
    scalars: dict[str, float]  # constants of one element
    results: set[str]  # what the model is run for
    # Of tensors whose dimensions lie in another order in memory, outermost first: that order (CHANNELS_LAST).
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass
class Workload:
    """One operator at one shape; `nodes` are the groups of the model's nodes that it computes, `weight` of them."""

    operator: str
    shape: Mapping[str, int]
    nodes: list[tuple[str, ...]] = field(default_factory=list)
    dtype: str = "float32"

    @property
    def weight(self) -> int:
        return len(self.nodes)

    def __str__(self) -> str:
        shape = ",".join(f"{name}={value}" for name, value in self.shape.items())
        dtype = "" if self.dtype == "float32" else f" dtype={self.dtype}"
        return f"{self.operator} {shape} weight={self.weight}{dtype}"


@dataclass(frozen=True)
class Folded:
    """An operand that is computed once: of a batch normalisation's tensors, y = x * factor + offset with
    factor = scale / sqrt(variance + epsilon) for each channel, or of weights that are laid out anew."""

    # "factor"; "offset", with the factor times `tensor` where there is one; "weights", the factor times `tensor`, whose
    # first dimension is the channels; "itself", `tensor` without a normalisation.
    what: str
    tensor: str
    norm: tuple[str, ...] = ()  # scale, offset before the mean is taken off, mean, variance
    epsilon: float = 0.0

    def named(self) -> str:
        """A tensor of its type."""
        return self.tensor or self.norm[0]


@dataclass(frozen=True)
class Group:
    """Nodes of a graph that one operator computes."""

    operator: str
    kind: str  # what it was made around: "matmul", "conv2d", "softmax", "map" (nothing but elementwise), ...
    shape: Mapping[str, int]
    nodes: tuple[str, ...]
    # The graph's tensor for each of the operator's inputs, to be seen in the input's shape.
    operands: tuple[str | Folded, ...]
    output: str
    dtype: str = "float32"
    # Of those inputs, by number, that have an operand's dimensions in another order than the graph: that order; and of
    # the result, if it does.
    orders: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    order: tuple[int, ...] | None = None


@dataclass
class Extraction:
    """What extract() found."""

    workloads: list[Workload]
    operators: dict[str, str]  # texts in tensor notation, by name
    # Nodes that no workload computes: the operator's type, and of each node its name and why.
    unknown: dict[str, list[tuple[str, str]]]
    groups: list[Group] = field(default_factory=list)

    def save(self, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Writes workloads.txt and operators.op, for `heddle tune --workloads ... --op-file ...` and
        Database.tune_workloads(); returns their paths."""
        if not self.workloads:
            raise HeddleError("there is nothing to tune in this model")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        lines, operators = folder / "workloads.txt", folder / "operators.op"
        lines.write_text("".join(f"{w}\n" for w in self.workloads), encoding="utf-8")
        operators.write_text("\n".join(self.operators.values()), encoding="utf-8")
        return lines, operators

    def operator(self, name: str) -> Operator:
        return Operator(self.operators[name])

    def __str__(self) -> str:
        lines = [str(w) for w in self.workloads]
        for kind, nodes in sorted(self.unknown.items()):
            lines.append(f"# not tuned: {len(nodes)} {kind}: {nodes[0][1]}")
        return "\n".join(lines)
