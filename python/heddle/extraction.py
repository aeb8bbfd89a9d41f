"""From a model's graph to the workloads that compute it: who belongs together, and how that is said in tensor notation.

Operators are called as in ONNX, whichever library the graph comes from.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heddle.errors import HeddleError
from heddle.operator import Operator


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


@dataclass
class Workload:
    """One operator at one shape; `nodes` are the groups of the model's nodes that it computes, `weight` of them."""

    operator: str
    shape: Mapping[str, int]
    nodes: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def weight(self) -> int:
        return len(self.nodes)

    def __str__(self) -> str:
        shape = ",".join(f"{name}={value}" for name, value in self.shape.items())
        return f"{self.operator} {shape} weight={self.weight}"


@dataclass(frozen=True)
class Folded:
    """An operand that is computed once of a batch normalisation's tensors, y = x * factor + offset with
    factor = scale / sqrt(variance + epsilon) for each channel."""

    # "factor"; "offset", with the factor times `tensor` where there is one; "weights", the factor times `tensor`, whose
    # first dimension is the channels.
    what: str
    tensor: str
    norm: tuple[str, ...]  # scale, offset before the mean is taken off, mean, variance
    epsilon: float


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


class _Unknown(Exception):
    """Why a node is not computed by a workload."""


# What gives a tensor another shape or name, and moves nothing.
_VIEWS = {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Dropout", "Constant"}

# Of x, an element's text, and the node's attributes.
_UNARY: dict[str, Callable[[str, Mapping[str, Any]], str]] = {
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
    "LeakyRelu": lambda x, a: f"select({x} > 0, {x}, {x} * {_number(a.get('alpha', 0.01))})",
    "Elu": lambda x, a: f"select({x} > 0, {x}, {_number(a.get('alpha', 1.0))} * (exp({x}) - 1))",
    "HardSigmoid": lambda x, a: f"max(min({x} * {_number(a.get('alpha', 0.2))} + {_number(a.get('beta', 0.5))}, 1), 0)",
    "Rsqrt": lambda x, a: f"rsqrt({x})",
    "Silu": lambda x, a: f"{x} * sigmoid({x})",
    "HardSwish": lambda x, a: f"{x} * max(min({x} / 6 + 0.5, 1), 0)",
    "Gelu": lambda x, a: (
        f"0.5 * {x} * (1 + tanh(0.7978845608028654 * ({x} + 0.044715 * {x} * {x} * {x})))"
        if a.get("approximate", "none") == "tanh"
        else f"0.5 * {x} * (1 + erf({x} * 0.7071067811865476))"
    ),
}
_BINARY = {
    "Add": "{0} + {1}", "Sub": "{0} - {1}", "Mul": "{0} * {1}", "Div": "{0} / {1}", "Pow": "pow({0}, {1})",
    "Max": "max({0}, {1})", "Min": "min({0}, {1})", "PRelu": "select({0} > 0, {0}, {0} * {1})",
}  # fmt: skip


def _number(value: float) -> str:
    """A literal; negative ones in brackets."""
    text = repr(float(value))
    if "inf" in text or "nan" in text:
        raise _Unknown(f"a constant is {text}")
    text = text.removesuffix(".0")
    return f"({text})" if text.startswith("-") else text


@dataclass
class _Group:
    """An operator while it is written: stages that each read the one before."""

    kind: str
    axes: list[tuple[str, str]]  # of the current stage: name, extent's text
    dims: list[list[int]]  # of the model's output tensor, those that each axis walks
    shape: dict[str, int]
    inputs: list[str]
    operands: list[str | Folded] = field(default_factory=list)  # of the inputs
    lets: list[str] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)  # "NAME[axes] = ..."
    nodes: list[str] = field(default_factory=list)
    suffix: list[str] = field(default_factory=list)
    folded: bool = False  # a batch normalisation is in the weights

    def read(self, tensor: str) -> str:
        return f"{tensor}[{', '.join(name for name, _ in self.axes)}]"

    def add(self, value: str, name: str | None = None) -> str:
        """A stage over the current axes; returns its name."""
        name = name or f"T{len(self.stages)}"
        self.stages.append(f"{name}[{', '.join(f'{a}: {e}' for a, e in self.axes)}] = {value}")
        return name

    def text(self, name: str) -> str:
        lines = [f"op {name}({', '.join(self.shape)}) {{"]
        lines += [f"  let {', '.join(self.lets)}"] if self.lets else []
        lines += [f"  in {', '.join(self.inputs)}"]
        lines += [f"  {stage}" for stage in self.stages[:-1]]
        return "\n".join([*lines, f"  out {self.stages[-1]}", "}", ""])


class Extractor:
    """Finds the groups of a graph; run() once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in [*node.input, *node.also_reads]:
                self._readers.setdefault(name, []).append(node)
        self._taken: set[int] = set()  # ids of nodes that a group has
        self._found = Extraction([], {}, {})

    def run(self) -> Extraction:
        # Anchors first: an elementwise node belongs to the product before it, in whatever order they stand.
        for anchors in (True, False):
            for node in self._graph.nodes:
                makers = _ANCHORS if anchors else _OTHERS
                if id(node) in self._taken or node.op_type not in makers:
                    continue
                try:
                    group = makers[node.op_type](self, node)
                except _Unknown as why:
                    self._pass_over(node, str(why))
                    continue
                self._taken.add(id(node))
                group.nodes.append(node.name or node.output[0])
                # What a node reads comes first, in its order.
                group.operands[:0] = node.input[: len(group.inputs) - len(group.operands)]
                self._keep(group, self._follow(group, node))
        for node in self._graph.nodes:
            if id(node) not in self._taken and node.op_type not in _VIEWS:
                self._pass_over(node, "no notation for it is known here")
        return self._found

    def _pass_over(self, node: Node, why: str) -> None:
        if id(node) not in self._taken:
            self._taken.add(id(node))
            self._found.unknown.setdefault(node.op_type, []).append((node.name or node.output[0], why))

    def _keep(self, group: _Group, output: str) -> None:
        base = "_".join([group.kind, *group.suffix])
        name, number = base, 1
        while (text := group.text(name)) != self._found.operators.get(name, text):
            number += 1
            name = f"{base}_{number}"
        self._found.operators[name] = text
        for workload in self._found.workloads:
            if (workload.operator, workload.shape) == (name, group.shape):
                break
        else:
            workload = Workload(name, group.shape)
            self._found.workloads.append(workload)
        workload.nodes.append(tuple(group.nodes))
        self._found.groups.append(
            Group(name, group.kind, group.shape, tuple(group.nodes), tuple(group.operands), output)
        )

    # ---------------------------------------------------------------------------------- what tensors are

    def shape(self, name: str) -> list[int]:
        kind, sizes = self._graph.types.get(name, ("float32", ["?"]))
        if kind != "float32":
            raise _Unknown(f"{name} is {kind}; float32 is what is tuned")
        fixed = [size for size in sizes if isinstance(size, int) and size > 0]
        if len(fixed) != len(sizes):
            names = sorted({size for size in sizes if isinstance(size, str) and size != "?"})
            advice = f": bind {', '.join(names)} by dims=" if names else ""
            raise _Unknown(f"the shape of {name} is not known{advice}")
        return fixed

    # ------------------------------------------------------------------------------ elementwise operators

    def _operand(self, group: _Group, name: str, output: Sequence[int]) -> str:
        """The text of an operand's element, broadcast to the group's axes."""
        value = self._graph.scalars.get(name)
        if value is not None:
            return _number(value)
        shape = self.shape(name)
        if len(shape) > len(output):
            raise _Unknown(f"{name} has more dimensions than what it is combined with")
        shape = [1] * (len(output) - len(shape)) + shape
        indices, extents = [], []
        for (axis, extent), dims in zip(group.axes, group.dims, strict=True):
            own = [shape[d] for d in dims]
            if own == [output[d] for d in dims]:
                indices.append(axis)
                extents.append(extent)
            elif any(size != 1 for size in own):
                raise _Unknown(f"{name} is broadcast along a part of an axis")
        if not indices:  # one element that is no constant
            indices, extents = ["0"], ["1"]
        tensor = f"In{len(group.inputs)}"
        group.inputs.append(f"{tensor}[{', '.join(extents)}]")
        group.operands.append(name)
        return f"{tensor}[{', '.join(indices)}]"

    def _apply(self, group: _Group, node: Node, current: str | None) -> None:
        """Adds an elementwise node's stage. `current`: what the stage before computes; None = there is none."""
        output = self.shape(node.output[0])
        kept = (list(group.inputs), list(group.operands), list(group.stages))

        def element(name: str) -> str:
            if name != current:
                return self._operand(group, name, output)
            return group.read(group.stages[-1].split("[")[0])

        try:
            if node.op_type == "BatchNormalization":
                if len(node.output) > 1 and any(node.output[1:]):
                    raise _Unknown("it trains")
                # y = x * factor[c] + offset[c]. Behind a convolution the factor goes into its weights, the offset
                # into its bias.
                channel, extent = group.axes[1]
                x = element(node.input[0])
                epsilon = float(node.attributes.get("epsilon", 1e-5))

                def folded(what: str, tensor: str | Folded = "") -> Folded:
                    assert isinstance(tensor, str)
                    return Folded(what, tensor, tuple(node.input[1:]), epsilon)

                if group.kind.endswith("conv2d") and group.suffix in ([], ["bias"]) and not group.folded:
                    group.folded = True
                    group.operands[1] = folded("weights", group.operands[1])
                    if group.suffix:
                        group.operands[2] = folded("offset", group.operands[2])
                    else:
                        group.inputs.append(f"bias[{extent}]")
                        group.operands.append(folded("offset"))
                        group.add(f"{x} + bias[{channel}]")
                        group.suffix.append("bias")
                    return
                factor, offset = f"In{len(group.inputs)}", f"In{len(group.inputs) + 1}"
                group.inputs += [f"{factor}[{extent}]", f"{offset}[{extent}]"]
                group.operands += [folded("factor"), folded("offset")]
                group.add(f"{x} * {factor}[{channel}] + {offset}[{channel}]")
            elif node.op_type == "Clip":
                value = element(node.input[0])
                limits = node.attributes
                for function, place, key in (("max", 1, "min"), ("min", 2, "max")):
                    given = len(node.input) > place and node.input[place]
                    limit = self._graph.scalars.get(node.input[place]) if given else limits.get(key)
                    if given and limit is None:
                        raise _Unknown("its limits are no constants")
                    if limit is not None:
                        value = f"{function}({value}, {_number(limit)})"
                group.add(value)
            elif node.op_type in _UNARY:
                group.add(_UNARY[node.op_type](element(node.input[0]), node.attributes))
            elif len(node.input) == 2:
                group.add(_BINARY[node.op_type].format(*(element(name) for name in node.input)))
            else:
                raise _Unknown(f"it has {len(node.input)} operands")
        except _Unknown:
            group.inputs, group.operands, group.stages = kept
            raise
        group.suffix.append(node.op_type.lower())

    def _follow(self, group: _Group, node: Node) -> str:
        """Takes along the elementwise nodes behind `node` that alone read what is before; returns the last output."""
        while node.op_type not in _ALONE:
            output = node.output[0]
            reader = self._only_reader(output)
            # Another shape of the same elements: what is behind it belongs here as well.
            while reader is not None and reader.op_type in _VIEWS and reader.input[0] == output:
                output = reader.output[0]
                reader = self._only_reader(output)
            if reader is None or reader.op_type not in _ELEMENTWISE or id(reader) in self._taken:
                break
            try:
                group.dims = self._seen_as(group.dims, self.shape(node.output[0]), self.shape(output))
                # As many elements as before, or it would be computed several times.
                if self.shape(reader.output[0]) != self.shape(output):
                    break
                self._apply(group, reader, output)
            except _Unknown:
                break  # it is looked at again, by itself
            self._taken.add(id(reader))
            group.nodes.append(reader.name or reader.output[0])
            node = reader
        return node.output[0]

    def _only_reader(self, name: str) -> Node | None:
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self._graph.results else None

    @staticmethod
    def _seen_as(dims: list[list[int]], old: list[int], new: list[int]) -> list[list[int]]:
        """The dimensions of `new`, another shape of the same elements, that each axis walks."""
        if old == new:
            return dims
        seen, d = [], 0
        for own in dims:
            size, begin, product = math.prod(old[e] for e in own), d, 1
            while d < len(new) and (product < size or (d == begin and new[d] == 1)):
                product *= new[d]
                d += 1
            if product != size:
                raise _Unknown(f"its shape {new} cuts through the dimensions of {old}")
            seen.append([*range(begin, d)])
        if d < len(new):
            raise _Unknown(f"its shape {new} has dimensions that {old} has not")
        return seen

    def elementwise(self, node: Node) -> _Group:
        shape = self.shape(node.output[0])
        if not shape:
            raise _Unknown("it computes a single number")
        names = [f"d{d}" for d in range(len(shape))]
        group = _Group("map", [(f"i{d}", n) for d, n in enumerate(names)], [[d] for d in range(len(shape))],
                       dict(zip(names, shape, strict=True)), [])  # fmt: skip
        self._apply(group, node, None)
        if not group.inputs:
            raise _Unknown("all of its operands are constants")
        return group

    # ------------------------------------------------------------------------- products and convolutions

    def matmul(self, node: Node) -> _Group:
        a, b = (self.shape(name) for name in node.input)
        if len(a) < 2 or len(b) < 2:
            raise _Unknown("one of its operands is a vector")
        rank = max(len(a), len(b))
        if len(b) == 2:  # all of A's leading dimensions are rows
            shape = {"m": math.prod(a[:-1]), "n": b[-1], "k": a[-1]}
            axes, dims = [("i", "m"), ("j", "n")], [[*range(rank - 1)], [rank - 1]]
            group = _Group("matmul", axes, dims, shape, ["A[m, k]", "B[k, n]"])
            group.add("sum(r: k) A[i, r] * B[r, j]")
            return group
        if a[:-2] != b[:-2]:
            raise _Unknown(f"its batches {a[:-2]} and {b[:-2]} are broadcast")
        shape = {"b": math.prod(a[:-2]), "m": a[-2], "n": b[-1], "k": a[-1]}
        axes, dims = [("z", "b"), ("i", "m"), ("j", "n")], [[*range(rank - 2)], [rank - 2], [rank - 1]]
        group = _Group("batch_matmul", axes, dims, shape, ["A[b, m, k]", "B[b, k, n]"])
        group.add("sum(r: k) A[z, i, r] * B[z, r, j]")
        return group

    def gemm(self, node: Node) -> _Group:
        a, b = (self.shape(name) for name in node.input[:2])
        of = node.attributes
        ta, tb = bool(of.get("transA", 0)), bool(of.get("transB", 0))
        shape = {"m": a[1] if ta else a[0], "n": b[0] if tb else b[1], "k": a[0] if ta else a[1]}
        inputs = ["A[k, m]" if ta else "A[m, k]", "B[n, k]" if tb else "B[k, n]"]
        kind = "matmul" + {(0, 0): "", (0, 1): "_nt", (1, 0): "_tn", (1, 1): "_tt"}[ta, tb]
        group = _Group(kind, [("i", "m"), ("j", "n")], [[0], [1]], shape, inputs)
        group.add(f"sum(r: k) A[{'r, i' if ta else 'i, r'}] * B[{'j, r' if tb else 'r, j'}]")
        alpha, beta = float(of.get("alpha", 1.0)), float(of.get("beta", 1.0))
        value = group.read("T0") + (f" * {_number(alpha)}" if alpha != 1 else "")
        if len(node.input) > 2 and node.input[2] and beta != 0:
            operand = self._operand(group, node.input[2], [shape["m"], shape["n"]])
            value += f" + {operand}" + (f" * {_number(beta)}" if beta != 1 else "")
            group.suffix.append("add")
        if value != group.read("T0"):
            group.add(value)
        return group

    def _window(
        self, node: Node, x: list[int], kernel: Sequence[int]
    ) -> tuple[list[int], list[int], list[int], list[int]]:
        """Strides, dilations, padding (top, left, bottom, right) and the output's height and width."""
        of = node.attributes
        strides, dilations = list(of.get("strides", [1, 1])), list(of.get("dilations", [1, 1]))
        pads = list(of.get("pads", [0, 0, 0, 0]))
        mode = of.get("auto_pad", "NOTSET")
        if mode not in ("NOTSET", "VALID"):
            pads = []
            totals = []
            for size, step, length, apart in zip(x[2:], strides, kernel, dilations, strict=True):
                totals.append(max(0, (math.ceil(size / step) - 1) * step + (length - 1) * apart + 1 - size))
            before = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in totals]
            pads = before + [t - b for t, b in zip(totals, before, strict=True)]
        out = [
            (x[2 + d] + pads[d] + pads[2 + d] - (kernel[d] - 1) * dilations[d] - 1) // strides[d] + 1 for d in (0, 1)
        ]
        return strides, dilations, pads, out

    @staticmethod
    def _windowed(
        group: _Group, channel: str, strides: list[int], dilations: list[int], pads: list[int], fill: str
    ) -> str:
        """The text of X's element under the window; where there is padding, of a stage P that has it."""
        top, left, bottom, right = pads
        across = []
        for out, step, ring, apart in zip("yx", strides, ("ry", "rx"), dilations, strict=True):
            across.append((out if step == 1 else f"{out}*{step}") + f" + {ring if apart == 1 else f'{ring}*{apart}'}")
        index = f"[b, {channel}, {', '.join(across)}]"
        if not any(pads):
            return f"X{index}"
        group.stages.append(
            f"P[b: n, c: ci, y: h + {top + bottom}, x: w + {left + right}] = select(y >= {top} && y < {top} + h && "
            f"x >= {left} && x < {left} + w, X[b, c, y - {top}, x - {left}], {fill})"
        )
        return f"P{index}"

    @staticmethod
    def _extent(size: str, pad: int, kernel: str, step: int, apart: int) -> str:
        span = f"({kernel} - 1)*{apart} - 1" if apart != 1 else kernel
        inner = f"{size} + {pad} - {span}" if pad else f"{size} - {span}"
        return f"({inner}) / {step} + 1" if step != 1 else f"{inner} + 1"

    def conv(self, node: Node) -> _Group:
        x, w = (self.shape(name) for name in node.input[:2])
        if len(x) != 4:
            raise _Unknown(f"it has {len(x) - 2} dimensions; those of images, with two, are known")
        groups = int(node.attributes.get("group", 1))
        strides, dilations, pads, _ = self._window(node, x, w[2:])
        depthwise = groups == x[1] == w[0] and groups > 1
        shape = {"n": x[0], "ci": x[1], "h": x[2], "w": x[3]}
        shape |= {} if depthwise else {"co": w[0]}
        shape |= {"kh": w[2], "kw": w[3]}
        group = _Group(
            "depthwise_conv2d" if depthwise else "conv2d" if groups == 1 else "grouped_conv2d", [], [], shape, []
        )
        group.lets = [
            f"o{side} = {self._extent(side, pads[d] + pads[2 + d], f'k{side}', strides[d], dilations[d])}"
            for d, side in enumerate("hw")
        ]
        taps = "ry: kh, rx: kw"
        if depthwise:
            group.inputs = ["X[n, ci, h, w]", "W[ci, kh, kw]"]
            element = self._windowed(group, "o", strides, dilations, pads, "0")
            value, out = f"sum({taps}) {element} * W[o, ry, rx]", "ci"
        elif groups == 1:
            group.inputs = ["X[n, ci, h, w]", "W[co, ci, kh, kw]"]
            element = self._windowed(group, "c", strides, dilations, pads, "0")
            value, out = f"sum(c: ci, {taps}) {element} * W[o, c, ry, rx]", "co"
        else:
            shape["g"] = groups
            group.lets += ["cig = ci / g", "cog = co / g"]
            group.inputs = ["X[n, ci, h, w]", "W[co, cig, kh, kw]"]
            element = self._windowed(group, "o / cog * cig + q", strides, dilations, pads, "0")
            value, out = f"sum(q: cig, {taps}) {element} * W[o, q, ry, rx]", "co"
        group.axes = [("b", "n"), ("o", out), ("y", "oh"), ("x", "ow")]
        group.dims = [[0], [1], [2], [3]]
        sums = group.add(value)
        if len(node.input) > 2 and node.input[2]:
            group.inputs.append(f"bias[{out}]")
            group.add(f"{group.read(sums)} + bias[o]")
            group.suffix.append("bias")
        return group

    # ------------------------------------------------------------------------------- operators by themselves

    def max_pool(self, node: Node) -> _Group:
        x = self.shape(node.input[0])
        of = node.attributes
        if len(x) != 4 or of.get("ceil_mode", 0) or (len(node.output) > 1 and node.output[1]):
            raise _Unknown("only pooling of images, without ceil_mode and indices, is known")
        kernel = list(of["kernel_shape"])
        strides, dilations, pads, _ = self._window(node, x, kernel)
        shape = {"n": x[0], "ci": x[1], "h": x[2], "w": x[3], "kh": kernel[0], "kw": kernel[1]}
        axes = [("b", "n"), ("o", "ci"), ("y", "oh"), ("x", "ow")]
        group = _Group("max_pool", axes, [[0], [1], [2], [3]], shape, ["X[n, ci, h, w]"])
        group.lets = [
            f"o{side} = {self._extent(side, pads[d] + pads[2 + d], f'k{side}', strides[d], dilations[d])}"
            for d, side in enumerate("hw")
        ]
        group.add(f"max(ry: kh, rx: kw) {self._windowed(group, 'o', strides, dilations, pads, '-inf')}")
        return group

    def average(self, node: Node) -> _Group:
        x = self.shape(node.input[0])
        shape = {"m": math.prod(x[:2]), "n": math.prod(x[2:])}
        group = _Group("row_mean", [("i", "m")], [[0, 1]], shape, ["X[m, n]"])
        group.add("sum(r: n) X[i, r]")
        group.add("T0[i] / n")
        return group

    def _rows(self, node: Node, kind: str, axis: int) -> _Group:
        x = self.shape(node.input[0])
        if axis not in (-1, len(x) - 1):
            raise _Unknown(f"axis {axis} is not the last one")
        shape = {"m": math.prod(x[:-1]), "n": x[-1]}
        return _Group(kind, [("i", "m"), ("j", "n")], [[*range(len(x) - 1)], [len(x) - 1]], shape, ["X[m, n]"])

    def softmax(self, node: Node) -> _Group:
        group = self._rows(node, "softmax", int(node.attributes.get("axis", -1)))
        group.stages = [
            "Max[i: m] = max(r: n) X[i, r]",
            "E[i: m, j: n] = exp(X[i, j] - Max[i])",
            "Sum[i: m] = sum(r: n) E[i, r]",
            "Y[i: m, j: n] = E[i, j] / Sum[i]",
        ]
        return group

    def layer_norm(self, node: Node) -> _Group:
        of = node.attributes
        group = self._rows(node, "layer_norm", int(of.get("axis", -1)))
        if any(node.output[1:]):
            raise _Unknown("its mean or deviation is read, too")
        biased = len(node.input) > 2 and bool(node.input[2])
        group.inputs += ["G[n]", "B[n]"] if biased else ["G[n]"]
        group.stages = [
            "Sum[i: m] = sum(r: n) X[i, r]",
            "D[i: m, j: n] = X[i, j] - Sum[i] / n",
            "V[i: m] = sum(r: n) D[i, r] * D[i, r]",
            f"Scale[i: m] = rsqrt(V[i] / n + {_number(of.get('epsilon', 1e-5))})",
            "Y[i: m, j: n] = D[i, j] * Scale[i] * G[j]" + (" + B[j]" if biased else ""),
        ]
        return group

    def transpose(self, node: Node) -> _Group:
        x = self.shape(node.input[0])
        order = list(node.attributes.get("perm", reversed(range(len(x)))))
        axes = [(f"i{d}", f"d{d}") for d in order]
        shape = {f"d{d}": size for d, size in enumerate(x)}
        group = _Group("transpose_" + "".join(map(str, order)), axes, [[d] for d in range(len(x))], shape, [])
        group.inputs = [f"X[{', '.join(shape)}]"]
        group.add(f"X[{', '.join(f'i{d}' for d in range(len(x)))}]")
        return group


_ELEMENTWISE = {*_UNARY, *_BINARY, "Clip", "BatchNormalization"}
_ANCHORS = {"MatMul": Extractor.matmul, "Gemm": Extractor.gemm, "Conv": Extractor.conv}
# Taken with nothing behind them.
_ALONE = {"Softmax", "LayerNormalization", "MaxPool", "GlobalAveragePool", "Transpose"}
_OTHERS = {
    "Softmax": Extractor.softmax,
    "LayerNormalization": Extractor.layer_norm,
    "MaxPool": Extractor.max_pool,
    "GlobalAveragePool": Extractor.average,
    "Transpose": Extractor.transpose,
    **dict.fromkeys(_ELEMENTWISE, Extractor.elementwise),
}
