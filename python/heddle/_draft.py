"""Operators while they are written in tensor notation, and the elementwise ones among a model's nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heddle.extraction import Folded, Graph, Node

DTYPES = ("float32", "float16", "bfloat16")


class Unknown(Exception):
    """Why a node is not computed by a workload."""


# What gives a tensor another shape or name, and moves nothing.
VIEWS = {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Dropout", "Constant"}

# Of x, an element's text, and the node's attributes.
UNARY: dict[str, Callable[[str, Mapping[str, Any]], str]] = {
    "Relu": lambda x, a: f"max({x}, 0)",
    "Sigmoid": lambda x, a: f"sigmoid({x})",
    "Tanh": lambda x, a: f"tanh({x})",
    "Exp": lambda x, a: f"exp({x})",
    "Log": lambda x, a: f"log({x})",
    "Sqrt": lambda x, a: f"sqrt({x})",
    "Abs": lambda x, a: f"abs({x})",
    "Neg": lambda x, a: f"-{x}",
    "Erf": lambda x, a: f"erf({x})",
    "Reciprocal": lambda x, a: f"1 / {x}",
    "LeakyRelu": lambda x, a: f"select({x} > 0, {x}, {x} * {number(a.get('alpha', 0.01))})",
    "Elu": lambda x, a: f"select({x} > 0, {x}, {number(a.get('alpha', 1.0))} * (exp({x}) - 1))",
    "HardSigmoid": lambda x, a: f"max(min({x} * {number(a.get('alpha', 0.2))} + {number(a.get('beta', 0.5))}, 1), 0)",
    "Rsqrt": lambda x, a: f"rsqrt({x})",
    "Silu": lambda x, a: f"{x} * sigmoid({x})",
    "HardSwish": lambda x, a: f"{x} * max(min({x} / 6 + 0.5, 1), 0)",
    "Gelu": lambda x, a: (
        f"0.5 * {x} * (1 + tanh(0.7978845608028654 * ({x} + 0.044715 * {x} * {x} * {x})))"
        if a.get("approximate", "none") == "tanh"
        else f"0.5 * {x} * (1 + erf({x} * 0.7071067811865476))"
    ),
}
BINARY = {
    "Add": "{0} + {1}", "Sub": "{0} - {1}", "Mul": "{0} * {1}", "Div": "{0} / {1}", "Pow": "pow({0}, {1})",
    "Max": "max({0}, {1})", "Min": "min({0}, {1})", "PRelu": "select({0} > 0, {0}, {0} * {1})",
}  # fmt: skip


def number(value: float) -> str:
    """A literal; negative ones in brackets."""
    text = repr(float(value))
    if "inf" in text or "nan" in text:
        raise Unknown(f"a constant is {text}")
    text = text.removesuffix(".0")
    return f"({text})" if text.startswith("-") else text


ELEMENTWISE = {*UNARY, *BINARY, "Clip"}


class Tensors:
    """What a graph's tensors are, and who makes and reads them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.place = {id(node): number for number, node in enumerate(graph.nodes)}
        self.taken: set[int] = set()  # ids of nodes that a group has
        self._makers = {name: node for node in graph.nodes for name in node.output}
        self._readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in [*node.input, *node.also_reads]:
                self._readers.setdefault(name, []).append(node)

    def shape(self, name: str) -> list[int]:
        kind, sizes = self.graph.types.get(name, ("float32", ["?"]))
        if kind not in DTYPES:
            raise Unknown(f"{name} is {kind}; {', '.join(DTYPES)} are what is tuned")
        fixed = [size for size in sizes if isinstance(size, int) and size > 0]
        if len(fixed) != len(sizes):
            names = sorted({size for size in sizes if isinstance(size, str) and size != "?"})
            dims = ", ".join(f'"{name}": 1' for name in names)
            flags = " ".join(f"--dim {name}=1" for name in names)
            advice = f": give sizes, such as dims={{{dims}}}, or {flags}" if names else ""
            raise Unknown(f"the shape of {name} is not known{advice}")
        return fixed

    def dtype(self, name: str) -> str:
        return self.graph.types.get(name, ("float32", []))[0]

    def scalar(self, name: str) -> float | None:
        return self.graph.scalars.get(name)

    def maker(self, name: str) -> Node | None:
        """Of what no group has yet; None of the model's inputs and constants."""
        node = self._makers.get(name)
        return None if node is None or id(node) in self.taken else node

    def readers(self, name: str) -> list[Node]:
        return self._readers.get(name, [])

    def is_result(self, name: str) -> bool:
        return name in self.graph.results

    def is_given(self, name: str) -> bool:
        """Is it an input of the graph, or a constant, and not computed in it?"""
        return name not in self._makers

    def only_reader(self, name: str) -> Node | None:
        readers = self.readers(name)
        return readers[0] if len(readers) == 1 and not self.is_result(name) else None

    def untransposed(self, name: str) -> tuple[str, list[int]]:
        """The tensor that this one is a transposition of, and of each dimension here which one it is there."""
        node = self._makers.get(name)
        if node is None or node.op_type != "Transpose":
            return name, [*range(len(self.shape(name)))]
        rank = len(self.shape(node.input[0]))
        return node.input[0], [d % rank for d in node.attributes.get("perm", reversed(range(rank)))]


@dataclass
class Draft:
    """An operator while it is written: stages that each read those before."""

    kind: str
    axes: list[tuple[str, str]]  # of the current stage: name, extent's text
    # Of the model's output tensor, those that each axis walks. Where they come in another order than its own, what is
    # combined with it has that order, too.
    dims: list[list[int]]
    shape: dict[str, int]
    inputs: list[str]
    operands: list[str | Folded] = field(default_factory=list)  # of the inputs
    lets: list[str] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)  # "NAME[axes] = ..."
    nodes: list[Node] = field(default_factory=list)  # the model's, the last of which makes the result
    suffix: list[str] = field(default_factory=list)
    past: list[str] = field(default_factory=list)  # transpositions that are read through
    folds: bool = False  # a batch normalisation can go into the weights
    dtype: str = "float32"
    orders: dict[int, tuple[int, ...]] = field(default_factory=dict)  # as a Group has them

    def read(self, tensor: str) -> str:
        return f"{tensor}[{', '.join(name for name, _ in self.axes)}]"

    def current(self) -> str:
        """What the last stage computes."""
        return self.read(self.stages[-1].split("[")[0])

    def add(self, value: str, name: str | None = None, dtype: str | None = None) -> str:
        """A stage over the current axes, kept in `dtype`, float32 without one; returns its name."""
        name = name or f"T{len(self.stages)}"
        kept = f": {dtype}" if dtype else ""
        self.stages.append(f"{name}[{', '.join(f'{a}: {e}' for a, e in self.axes)}]{kept} = {value}")
        return name

    def take(self, name: str, extents: Sequence[str], called: str | None = None) -> str:
        """A further input, of the graph's tensor `name`; returns what it is called."""
        called = called or f"In{len(self.inputs)}"
        self.inputs.append(f"{called}[{', '.join(extents)}]")
        self.operands.append(name)
        return called

    def take_untransposed(
        self, tensors: Tensors, name: str, called: str, axes: Sequence[tuple[str, str]]
    ) -> Callable[..., str]:
        """A further input with these axes (index, extent). Where it is a transposition, what is read is the tensor
        before it, in the order in which it lies. Returns the text of an element, in which other indices stand for those
        given by name."""
        source, order = tensors.untransposed(name)
        self.past += [name] if source != name else []
        inside = [axes[order.index(d)] for d in range(len(axes))]
        if (lies := tensors.graph.orders.get(source)) is not None:
            self.orders[len(self.inputs)] = lies
            inside = [inside[d] for d in lies]
        self.take(source, [extent for _, extent in inside], called)

        def element(**other: str) -> str:
            return f"{called}[{', '.join(other.get(index, index) for index, _ in inside)}]"

        return element

    def operand(self, tensors: Tensors, name: str, output: Sequence[int]) -> str:
        """The text of an operand's element, broadcast to the current axes, which walk a tensor of shape `output`."""
        value = tensors.scalar(name)
        if value is not None:
            return number(value)
        shape = tensors.shape(name)
        if len(shape) > len(output):
            raise Unknown(f"{name} has more dimensions than what it is combined with")
        shape = [1] * (len(output) - len(shape)) + shape
        indices, extents = [], []
        for (axis, extent), dims in zip(self.axes, self.dims, strict=True):
            own = [shape[d] for d in dims]
            if own == [output[d] for d in dims]:
                indices.append(axis)
                extents.append(extent)
            elif any(size != 1 for size in own):
                raise Unknown(f"{name} is broadcast along a part of an axis")
        if not indices:  # one element that is no constant
            indices, extents = ["0"], ["1"]
        if (order := order_of(self.dims)) is not None:
            self.orders[len(self.inputs)] = order
        return f"{self.take(name, extents)}[{', '.join(indices)}]"

    def text(self, name: str) -> str:
        lines = [f"op {name}({', '.join(self.shape)}) {{"]
        lines += [f"  let {', '.join(self.lets)}"] if self.lets else []
        lines += [f"  in {', '.join(self.inputs)}"]
        lines += [f"  {stage}" for stage in self.stages[:-1]]
        return "\n".join([*lines, f"  out {self.stages[-1]}", "}", ""])


def elementwise_text(tensors: Tensors, node: Node, element: Callable[[str], str]) -> str:
    """What an elementwise node computes of its operands' elements."""
    if node.op_type == "Clip":
        value = element(node.input[0])
        for function, place, key in (("max", 1, "min"), ("min", 2, "max")):
            given = len(node.input) > place and node.input[place]
            limit = tensors.scalar(node.input[place]) if given else node.attributes.get(key)
            if given and limit is None:
                raise Unknown("its limits are no constants")
            if limit is not None:
                value = f"{function}({value}, {number(limit)})"
        return value
    if node.op_type in UNARY:
        return UNARY[node.op_type](element(node.input[0]), node.attributes)
    if len(node.input) != 2:
        raise Unknown(f"it has {len(node.input)} operands")
    if node.op_type == "Pow" and tensors.scalar(node.input[1]) == 2:
        return "{0} * {0}".format(element(node.input[0]))
    return BINARY[node.op_type].format(*(element(name) for name in node.input))


def order_of(dims: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """The order in which axes walk a tensor's dimensions, if it is not the tensor's own."""
    order = tuple(d for own in dims for d in own)
    return None if order == tuple(sorted(order)) else order


def seen_as(dims: list[list[int]], old: list[int], new: list[int]) -> list[list[int]]:
    """The dimensions of `new`, another shape of the same elements, that each axis walks."""
    if old == new:
        return dims
    if order_of(dims) is not None:
        raise Unknown("its dimensions come in another order")
    seen, d = [], 0
    for own in dims:
        size, begin, product = math.prod(old[e] for e in own), d, 1
        while d < len(new) and (product < size or (d == begin and new[d] == 1)):
            product *= new[d]
            d += 1
        if product != size:
            raise Unknown(f"its shape {new} cuts through the dimensions of {old}")
        seen.append([*range(begin, d)])
    if d < len(new):
        raise Unknown(f"its shape {new} has dimensions that {old} has not")
    return seen
