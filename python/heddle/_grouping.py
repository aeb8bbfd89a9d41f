"""From a model's graph to the workloads that compute it: who belongs together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from heddle import _definitions, _patterns
from heddle._draft import ELEMENTWISE, VIEWS, Draft, Tensors, Unknown, elementwise_text, order_of, seen_as
from heddle.extraction import Extraction, Graph, Group, Node, Workload

_Maker = Callable[[Tensors, Node], Draft]

# What is looked for first: several nodes that only together are what they are. Attention begins with the factors that
# stand behind a rotary embedding.
_ATTENTION: Mapping[str, _Maker] = {"Attention": _patterns.attention, "Softmax": _patterns.attention_around}
_ROTARY: Mapping[str, _Maker] = {"Concat": _patterns.rotary}
# Then products, which take along what is behind them: an elementwise node belongs to the product before it, in whatever
# order they stand.
_ANCHORS: Mapping[str, _Maker] = {
    "MatMul": _definitions.matmul,
    "Gemm": _definitions.gemm,
    "Conv": _definitions.conv,
    "ConvTranspose": _definitions.conv_transpose,
    "GroupNormalization": _definitions.group_norm,
}
_ROWS: Mapping[str, _Maker] = dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"), _patterns.rows)
_OTHERS: Mapping[str, _Maker] = {
    "Softmax": _definitions.softmax,
    "LayerNormalization": _definitions.layer_norm,
    "MaxPool": _definitions.max_pool,
    "GlobalAveragePool": _definitions.average,
    "Transpose": _definitions.transpose,
    "BatchNormalization": _definitions.batch_norm,
    **dict.fromkeys(ELEMENTWISE, _definitions.elementwise),
}
_LARGEST_SECTION = 16  # nodes of an elementwise function that is written out
# Taken with nothing behind them.
_ALONE = {"Softmax", "LayerNormalization", "MaxPool", "GlobalAveragePool", "Transpose"}


class Extractor:
    """Finds the groups of a graph; run() once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tensors = Tensors(graph)
        self._found = Extraction([], {}, {})
        self._past: dict[str, set[int]] = {}  # of transpositions, which nodes read what is before them

    def run(self) -> Extraction:
        for makers in (_ATTENTION, _ROTARY, _ANCHORS, _ROWS, _OTHERS):
            for node in self._graph.nodes:
                if id(node) in self._tensors.taken or node.op_type not in makers or self._is_gone(node):
                    continue
                try:
                    group = makers[node.op_type](self._tensors, node)
                    group.nodes = group.nodes or [node]
                    group.dtype = self._tensors.dtype(group.nodes[-1].output[0])
                    # What a node reads comes first, in its order.
                    group.operands[:0] = node.input[: len(group.inputs) - len(group.operands)]
                    for operand in group.operands:
                        self._check_type(operand if isinstance(operand, str) else operand.named(), group)
                except Unknown as why:
                    if makers not in (_ATTENTION, _ROTARY):
                        self._pass_over(node, str(why))
                    continue
                self._tensors.taken |= {id(one) for one in group.nodes}
                for name in group.past:
                    self._past.setdefault(name, set()).update(id(one) for one in group.nodes)
                self._keep(group, self._follow(group, group.nodes[-1]))
        for node in self._graph.nodes:
            if id(node) not in self._tensors.taken and node.op_type not in VIEWS and not self._is_gone(node):
                self._pass_over(node, "no notation for it is known here")
        return self._found

    def _is_gone(self, node: Node) -> bool:
        """Is it a transposition that nobody needs, as what is before it is read?"""
        if node.op_type != "Transpose" or self._tensors.is_result(node.output[0]):
            return False
        return {id(one) for one in self._tensors.readers(node.output[0])} <= self._past.get(node.output[0], set())

    def _check_type(self, name: str, group: Draft) -> None:
        kind = self._tensors.dtype(name)
        if kind != group.dtype:
            raise Unknown(f"{name} is {kind}, what is made of it {group.dtype}")

    def _pass_over(self, node: Node, why: str) -> None:
        if id(node) not in self._tensors.taken:
            self._tensors.taken.add(id(node))
            self._found.unknown.setdefault(node.op_type, []).append((_name(node), why))

    def _keep(self, group: Draft, output: str) -> None:
        base = "_".join([group.kind, *group.suffix])
        # Told apart by digits of what it is, not counted: the same group has the same name in every model, so that what
        # was tuned for one serves another.
        digest, digits = hashlib.sha256(group.text(base).encode()).hexdigest(), 4
        while (text := group.text(name := f"{base}_{digest[:digits]}")) != self._found.operators.get(name, text):
            digits += 1
        self._found.operators[name] = text
        for workload in self._found.workloads:
            if (workload.operator, workload.shape, workload.dtype) == (name, group.shape, group.dtype):
                break
        else:
            workload = Workload(name, group.shape, dtype=group.dtype)
            self._found.workloads.append(workload)
        nodes = tuple(_name(node) for node in group.nodes)
        workload.nodes.append(nodes)
        operands, order = tuple(group.operands), order_of(group.dims)
        if order is not None:  # where it is not known from the graph
            self._graph.orders.setdefault(output, order)
        self._found.groups.append(
            Group(name, group.kind, group.shape, nodes, operands, output, group.dtype, dict(group.orders), order)
        )

    # --------------------------------------------------------------------- what is behind a product

    def _follow(self, group: Draft, node: Node) -> str:
        """Takes along the elementwise nodes behind `node` that alone read what is before; returns the last output."""
        tensors = self._tensors
        while node.op_type not in _ALONE:
            output = node.output[0]
            reader = tensors.only_reader(output)
            # Another shape of the same elements: what is behind it belongs here as well.
            while reader is not None and reader.op_type in VIEWS and reader.input[0] == output:
                output = reader.output[0]
                reader = tensors.only_reader(output)
            try:
                group.dims = seen_as(group.dims, tensors.shape(node.output[0]), tensors.shape(output))
                behind = self._section(output)
                if not behind:
                    break
                self._apply(group, behind, output)
            except Unknown:
                break  # it is looked at again, by itself
            tensors.taken |= {id(one) for one in behind}
            group.nodes += behind
            node = behind[-1]
        return node.output[0]

    def _section(self, output: str) -> list[Node]:
        """The fewest elementwise nodes that read `output`, and each other, and have one result: one, where it is the
        only reader, or those of a function that is written out, such as x * sigmoid(x)."""
        tensors = self._tensors
        shape = tensors.shape(output)
        region: dict[int, Node] = {}
        pending = [output]
        while pending and len(region) < _LARGEST_SECTION:
            for one in tensors.readers(pending.pop()):
                # As many elements as before, or it would be computed several times.
                elementwise = one.op_type in ELEMENTWISE or one.op_type == "BatchNormalization"
                if elementwise and id(one) not in tensors.taken and tensors.shape(one.output[0]) == shape:
                    region[id(one)] = one
                    pending.append(one.output[0])
        nodes = sorted(region.values(), key=lambda one: tensors.place[id(one)])
        inside = set[int]()
        for count, node in enumerate(nodes, 1):
            inside.add(id(node))
            closed = [output, *(one.output[0] for one in nodes[: count - 1])]
            readers = {id(one) for name in closed for one in tensors.readers(name)}
            if readers <= inside and not any(tensors.is_result(name) for name in closed):
                return nodes[:count]
        return []

    def _apply(self, group: Draft, nodes: list[Node], current: str) -> None:
        """Adds the stages of elementwise nodes. `current`: what the stage before computes."""
        output = self._tensors.shape(nodes[-1].output[0])
        kept = replace(
            group,
            inputs=[*group.inputs],
            operands=[*group.operands],
            stages=[*group.stages],
            suffix=[*group.suffix],
            orders={**group.orders},
        )
        made = {current: group.current()}

        def element(name: str) -> str:
            if name in made:
                return made[name]
            if self._tensors.scalar(name) is None:
                self._check_type(name, group)
            return group.operand(self._tensors, name, output)

        try:
            for node in nodes:
                self._check_type(node.output[0], group)
                if node.op_type == "BatchNormalization":
                    _definitions.normalise(group, node, element(node.input[0]))
                else:
                    group.add(elementwise_text(self._tensors, node, element))
                    group.suffix.append(node.op_type.lower())
                made[node.output[0]] = group.current()
        except Unknown:
            vars(group).update(vars(kept))
            raise


def _name(node: Node) -> str:
    return node.name or node.output[0]
