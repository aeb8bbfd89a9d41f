"""An ONNX model's nodes as exporters write them, made those that groups are looked for among: several nodes that
PyTorch has one for become that one, and transpositions that follow each other become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heddle._draft import VIEWS, Unknown, seen_as
from heddle.extraction import Graph, Node

_HALF_ROOT = 0.5**0.5


class _Rewriter:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._makers = {name: node for node in graph.nodes for name in node.output}
        self._readers: dict[str, int] = dict.fromkeys(graph.results, 1)
        for node in graph.nodes:
            for name in {*node.input, *node.also_reads}:
                self._readers[name] = self._readers.get(name, 0) + 1

    def run(self) -> list[Node]:
        rules: Sequence[Callable[[Node], Node | None]] = (
            self._bias_last, self._group_norm, self._gelu, self._silu, self._rsqrt,
            self._permutation, self._permutations,
        )  # fmt: skip
        nodes = []
        for node in self._graph.nodes:
            for rule in rules:
                made = rule(node)
                if made is not None:
                    node = self._makers[node.output[0]] = made
            nodes.append(node)
        # What was read by those that are no more.
        read = set(self._graph.results)
        kept = []
        for node in reversed(nodes):
            if read & {*node.output}:
                read |= {*node.input, *node.also_reads}
                kept.append(node)
        return kept[::-1]

    def _inner(self, name: str, *kinds: str) -> Node | None:
        """What makes a tensor that is read once, if it is of these kinds."""
        node = self._makers.get(name)
        return node if node is not None and node.op_type in kinds and self._readers[name] == 1 else None

    def _shape(self, name: str) -> list[int] | None:
        sizes = self._graph.types.get(name, ("", ["?"]))[1]
        fixed = [size for size in sizes if isinstance(size, int)]
        return fixed if len(fixed) == len(sizes) else None

    def _scalar(self, name: str) -> float | None:
        return self._graph.scalars.get(name)

    def _pair(self, node: Node) -> tuple[str, float] | None:
        """The operand that is combined with a constant, and that."""
        for name, other in (node.input, node.input[::-1]):
            value = self._scalar(other)
            if value is not None and self._scalar(name) is None:
                return name, value
        return None

    # ------------------------------------------------------------------------------------ functions

    def _bias_last(self, node: Node) -> Node | None:
        """A linear layer's bias behind its product, as PyTorch has it."""
        if node.op_type != "Add" or len(self._shape(node.input[0]) or []) != 1 or node.input[0] in self._makers:
            return None
        product = self._makers.get(node.input[1])
        if product is None or product.op_type != "MatMul":
            return None
        return Node("Add", node.name, node.input[::-1], node.output)

    def _group_norm(self, node: Node) -> Node | None:
        """Channels seen as groups that are normalised as images are, and then scaled and moved each for itself."""
        if node.op_type != "Add":
            return None
        x = self._shape(node.output[0]) or []
        moved = self._of_channels(node, x)
        scaling = self._inner(moved[0], "Mul") if moved is not None else None
        scaled = self._of_channels(scaling, x) if scaling is not None else None
        view = self._inner(scaled[0], *VIEWS) if scaled is not None else None
        norm = self._inner(view.input[0], "InstanceNormalization") if view is not None else None
        if moved is None or scaled is None or norm is None or len(norm.input) != 1:
            return None
        seen = self._makers.get(norm.input[0])
        if seen is None or seen.op_type not in VIEWS or self._shape(seen.input[0]) != x:
            return None
        groups = (self._shape(norm.input[0]) or [])[:2]
        if len(groups) != 2 or groups[0] != x[0] or x[1] % groups[1] != 0:
            return None
        flat = []
        for name in (scaled[1], moved[1]):
            flat.append(f"{name} of each channel")
            self._graph.types[flat[-1]] = (self._graph.types[name][0], [x[1]])
        of = {"num_groups": groups[1], "epsilon": norm.attributes.get("epsilon", 1e-5)}
        return Node("GroupNormalization", node.name, [seen.input[0], *flat], node.output, of)

    def _of_channels(self, node: Node, x: list[int]) -> tuple[str, str] | None:
        """The operand that is combined with a constant of one element for each channel of images x, and that."""
        for name, other in (node.input, node.input[::-1]):
            sizes = self._shape(other) or []
            sizes = sizes[1:] if len(sizes) == len(x) and sizes[:1] == [1] else sizes
            if len(x) > 2 and other not in self._makers and sizes == [x[1], *[1] * (len(x) - 2)]:
                return name, other
        return None

    def _gelu(self, node: Node) -> Node | None:
        """0.5 * x * (1 + erf(x / sqrt(2)))."""
        if node.op_type != "Mul":
            return None
        factor, others, pending = 1.0, [], [*node.input]
        while pending:
            name = pending.pop()
            value, inner = self._scalar(name), self._inner(name, "Mul")
            if value is not None:
                factor *= value
            elif inner is not None:
                pending += inner.input
            else:
                others.append(name)
        if len(others) != 2 or abs(factor - 0.5) > 1e-6:
            return None
        for x, other in (others, others[::-1]):
            one_more = self._inner(other, "Add")
            shifted = self._pair(one_more) if one_more is not None else None
            erf = self._inner(shifted[0], "Erf") if shifted is not None and shifted[1] == 1 else None
            scaled = self._inner(erf.input[0], "Mul", "Div") if erf is not None else None
            by = self._pair(scaled) if scaled is not None else None
            if scaled is None or by is None or by[0] != x or (scaled.op_type == "Div" and scaled.input[0] != x):
                continue
            if abs((by[1] if scaled.op_type == "Mul" else 1 / by[1]) - _HALF_ROOT) < 1e-6:
                return Node("Gelu", node.name, [x], node.output)
        return None

    def _silu(self, node: Node) -> Node | None:
        """x * sigmoid(x)."""
        if node.op_type != "Mul":
            return None
        for x, other in (node.input, node.input[::-1]):
            sigmoid = self._inner(other, "Sigmoid")
            if sigmoid is not None and sigmoid.input == [x]:
                return Node("Silu", node.name, [x], node.output)
        return None

    def _rsqrt(self, node: Node) -> Node | None:
        """1 / sqrt(x)."""
        divides = node.op_type == "Div" and self._scalar(node.input[0]) == 1
        if not divides and node.op_type != "Reciprocal":
            return None
        root = self._inner(node.input[-1], "Sqrt")
        return None if root is None else Node("Rsqrt", node.name, [*root.input], node.output)

    # ------------------------------------------------------------------------------- transpositions

    def _permutation(self, node: Node) -> Node | None:
        """A transposition between two reshapings that undo each other."""
        if node.op_type not in VIEWS or not node.input:
            return None
        across = self._inner(node.input[0], "Transpose")
        before = self._inner(across.input[0], *VIEWS) if across is not None else None
        if across is None or before is None:
            return None
        source, inside, result = (self._shape(name) for name in (before.input[0], across.input[0], node.output[0]))
        if source is None or inside is None or result is None:
            return None
        try:
            parts = seen_as([[d] for d in range(len(inside))], inside, source)
        except Unknown:
            return None
        order = [d for part in _order(across, len(inside)) for d in parts[part]]
        if [source[d] for d in order] != result:
            return None
        return Node("Transpose", node.name, [before.input[0]], node.output, {"perm": order})

    def _permutations(self, node: Node) -> Node | None:
        """Of a transposition, which follows another."""
        before = self._makers.get(node.input[0]) if node.op_type == "Transpose" else None
        if before is None or before.op_type != "Transpose":
            return None
        shape = self._shape(node.output[0])
        if shape is None:
            return None
        first = _order(before, len(shape))
        order = [first[d] for d in _order(node, len(shape))]
        kind: dict[str, Any] = {"perm": order}
        if order == [*range(len(shape))]:
            return Node("Identity", node.name, [before.input[0]], node.output)
        return Node("Transpose", node.name, [before.input[0]], node.output, kind)


def _order(node: Node, rank: int) -> list[int]:
    return [d % rank for d in node.attributes.get("perm", reversed(range(rank)))]


def rewritten(graph: Graph) -> list[Node]:
    return _Rewriter(graph).run()
