"""What several operators of a model are together in notation: attention, rotary embeddings, functions of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from heddle._draft import ELEMENTWISE, Draft, Tensors, Unknown, elementwise_text, number
from heddle.extraction import Node

# Reductions over the last axis, and what makes a mean of a sum.
_REDUCTIONS = {"ReduceMean": "sum", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min"}
_LARGEST = 64  # nodes of one function of rows


# ------------------------------------------------------------------------------------------------- attention


def attention(tensors: Tensors, node: Node) -> Draft:
    """softmax(q k' * scale + mask) v."""
    of = node.attributes
    if any(node.input[4:]) or any(node.output[1:]) or of.get("q_num_heads") or of.get("softcap"):
        raise Unknown("only of queries, keys, values and a mask, each head by itself, it is known")
    mask = node.input[3] if len(node.input) > 3 else ""
    q, k, v = node.input[:3]
    scale = float(of.get("scale") or tensors.shape(q)[-1] ** -0.5)
    return _attention(tensors, [node], (q, k, v), mask, scale, bool(of.get("is_causal")), False)


def attention_around(tensors: Tensors, node: Node) -> Draft:
    """The same, written out: a softmax between two products."""
    if int(node.attributes.get("axis", -1)) not in (-1, len(tensors.shape(node.output[0])) - 1):
        raise Unknown("a softmax along another axis")
    nodes, scale, mask = [node], 1.0, ""
    scores = node.input[0]
    while True:
        before = tensors.maker(scores)
        if before is None or tensors.only_reader(scores) is None:
            raise Unknown("its argument has other readers")
        nodes.append(before)
        if before.op_type == "MatMul":
            break
        if before.op_type == "Add" and not mask and scale == 1:
            made = [name for name in before.input if tensors.maker(name) is not None]
            if len(made) != 1:
                raise Unknown("what of it is the mask is not known")
            scores = made[0]
            (mask,) = (name for name in before.input if name != scores)
        else:
            scores, factor = _scaled(tensors, before)
            scale *= factor
    operands = []
    for name in before.input:
        made_by = tensors.maker(name)
        if made_by is not None and made_by.op_type in ("Mul", "Div") and tensors.only_reader(name) is not None:
            name, factor = _scaled(tensors, made_by)
            scale *= factor
            nodes.append(made_by)
        operands.append(name)
    after = tensors.only_reader(node.output[0])
    if after is None or after.op_type != "MatMul" or after.input[0] != node.output[0]:
        raise Unknown("no product is behind it")
    q, k = operands
    return _attention(tensors, [*nodes[::-1], after], (q, k, after.input[1]), mask, scale, False, True)


def _scaled(tensors: Tensors, node: Node) -> tuple[str, float]:
    """The tensor that a node multiplies by a constant, and the constant."""
    if node.op_type in ("Mul", "Div") and len(node.input) == 2:
        for name, other in (node.input, node.input[::-1]):
            value = tensors.scalar(other)
            if value and (node.op_type == "Mul" or other == node.input[1]):
                return name, value if node.op_type == "Mul" else 1 / value
    raise Unknown("it is no scaled product")


def _attention(
    tensors: Tensors,
    nodes: list[Node],
    names: tuple[str, str, str],
    mask: str,
    scale: float,
    is_causal: bool,
    keys_are_columns: bool,
) -> Draft:
    """`nodes`: in order; `keys_are_columns`: the keys are k', as a product of matrices takes them."""
    q, k, v = (tensors.shape(name) for name in names)
    if keys_are_columns:
        k = [*k[:-2], k[-1], k[-2]]
    if not 3 <= len(q) <= 4 or q[:-2] != k[:-2] or q[:-2] != v[:-2] or q[-1] != k[-1] or k[-2] != v[-2]:
        raise Unknown(f"queries {q}, keys {k} and values {v} are of other forms than those that are known")
    if not scale > 0:
        raise Unknown(f"it is scaled by {scale}")
    usual = float(q[-1] ** -0.5)
    if math.isclose(scale, usual, rel_tol=1e-6):  # a product of roundings
        scale = usual
    outer = [("z", "b"), ("p", "h")][: len(q) - 2]
    shape = dict(zip([extent for _, extent in outer], q, strict=False))
    shape |= {"s": q[-2], "t": k[-2], "d": q[-1], "e": v[-1]}
    group = Draft("causal_attention" if is_causal else "attention", [*outer, ("i", "s"), ("j", "t")], [], shape, [])
    group.nodes = nodes
    query = group.take_untransposed(tensors, names[0], "Q", [*outer, ("i", "s"), ("r", "d")])
    inner = [("r", "d"), ("j", "t")] if keys_are_columns else [("j", "t"), ("r", "d")]
    key = group.take_untransposed(tensors, names[1], "K", [*outer, *inner])
    value = group.take_untransposed(tensors, names[2], "V", [*outer, ("r", "t"), ("x", "e")])
    group.add(f"sum(r: d) {query()} * {key()}", "S")
    factor, scores = number(scale), "S"
    if mask:
        group.dims = [[d] for d in range(len(q))]
        added = group.operand(tensors, mask, [*q[:-1], k[-2]])
        group.add(f"{group.read('S')}" + (f" * {factor}" if scale != 1 else "") + f" + {added}", "A")
        factor, scores = "1", "A"
    heads = "".join(f"{index}, " for index, _ in outer)
    rows = [*outer, ("i", "s")]
    group.axes = rows
    score = f"{scores}[{heads}i, j]"
    group.add(f"max(j: t) {f'select(j <= i, {score}, -inf)' if is_causal else score}", "M")
    group.axes = [*rows, ("j", "t")]
    power = f"exp(({score} - M[{heads}i])" + (")" if factor == "1" else f" * {factor})")
    # Weights are of the type that they are multiplied in, as PyTorch's are: matrix units take them then.
    kept = tensors.dtype(names[2])
    group.add(f"select(j <= i, {power}, 0)" if is_causal else power, "E", kept if kept != "float32" else None)
    group.axes = rows
    group.add(f"sum(r: t) E[{heads}i, r]", "L")
    group.axes = [*rows, ("x", "e")]
    # The heads are brought together again where they are written: the product has them in that order, too.
    after = tensors.only_reader(nodes[-1].output[0])
    if after is not None and after.op_type == "Transpose":
        order = [d % len(q) for d in after.attributes["perm"]]
        group.axes = [group.axes[d] for d in order]
        group.nodes.append(after)
    group.add(f"sum(r: t) E[{heads}i, r] * {value()}", "O")
    result = f"{group.read('O')} / L[{heads}i]"
    group.dims = [[d] for d in range(len(q))]
    group.add(result, "Y")
    return group


# ------------------------------------------------------------------------------------------ rotary embedding


def rotary(tensors: Tensors, node: Node) -> Draft:
    """x * cos + concat(-right, left) * sin of the halves of x."""
    sources = [tensors.maker(name) for name in node.input]
    negative, left = sources if len(sources) == 2 else (None, None)
    right = tensors.maker(negative.input[0]) if negative is not None and negative.op_type == "Neg" else None
    if negative is None or left is None or right is None or left.op_type != "Slice" or right.op_type != "Slice":
        raise Unknown("only of a rotary embedding it is known")
    name = left.input[0]
    x = tensors.shape(name)
    last, half = len(x) - 1, x[-1] // 2
    places = [[side.attributes.get(key) for key in ("axis", "start", "stop")] for side in (left, right)]
    if right.input[0] != name or places != [[last, 0, half], [last, half, x[-1]]] or node.attributes["axis"] != last:
        raise Unknown("its parts are not the halves of one tensor")
    across = tensors.only_reader(node.output[0])
    total = tensors.only_reader(across.output[0]) if across is not None and across.op_type == "Mul" else None
    along = None
    if across is not None and total is not None and total.op_type == "Add":
        (other,) = [one for one in total.input if one != across.output[0]] or [""]
        along = tensors.maker(other)
    if across is None or total is None or along is None or along.op_type != "Mul" or name not in along.input:
        raise Unknown("what it is combined with is no rotary embedding")
    if any(tensors.only_reader(one.output[0]) is None for one in (negative, left, right, along)):
        raise Unknown("a part of it is read elsewhere")
    (cos,) = [one for one in along.input if one != name] or [""]
    (sin,) = [one for one in across.input if one != node.output[0]] or [""]
    sizes = [f"d{d}" for d in range(len(x))]
    axes = [(f"i{d}", size) for d, size in enumerate(sizes)]
    # The result lies as elementwise operators leave it: as what is turned.
    _, order = tensors.untransposed(name)
    lies = tensors.graph.orders.get(name) or tuple(order.index(d) for d in range(len(x)))
    group = Draft("rotary", [axes[d] for d in lies], [[d] for d in lies], dict(zip(sizes, x, strict=True)), [])
    group.nodes = [left, right, negative, node, across, along, total]
    element = group.take_untransposed(tensors, name, "X", axes)
    index, extent = axes[-1]
    group.lets = [f"half = {extent} / 2"]
    turned = (
        f"select({index} < half, -{element(**{index: f'{index} + half'})}, {element(**{index: f'{index} - half'})})"
    )
    group.add(f"{element()} * {group.operand(tensors, cos, x)} + {turned} * {group.operand(tensors, sin, x)}", "Y")
    return group


# ------------------------------------------------------------------------------------------ functions of rows


def rows(tensors: Tensors, node: Node) -> Draft:
    """Reductions over the last axis with the elementwise nodes between and behind them, such as a normalisation that
    is written out: as much as has one result."""
    full = tensors.shape(node.input[0])
    row = [*full[:-1], 1]
    if not _is_row_reduction(tensors, node):
        raise Unknown("only along the last axis, which is kept, it is known")

    def fits(one: Node) -> bool:
        if id(one) in tensors.taken or tensors.shape(one.output[0]) not in (full, row):
            return False
        return one.op_type in ELEMENTWISE or _is_row_reduction(tensors, one)

    region = {id(node): node}
    _before(tensors, node, region, fits)
    pending = [node]
    while pending and len(region) < _LARGEST:
        for reader in tensors.readers(pending.pop().output[0]):
            try:
                if id(reader) not in region and fits(reader):
                    region[id(reader)] = reader
                    pending.append(reader)
                    _before(tensors, reader, region, fits)
            except Unknown:
                pass
    ordered = sorted(region.values(), key=lambda one: tensors.place[id(one)])
    for count in range(len(ordered), 0, -1):
        taken = ordered[:count]
        inside = {id(one) for one in taken}
        open_ended = [
            one for one in taken[:-1]
            if tensors.is_result(one.output[0]) or any(id(r) not in inside for r in tensors.readers(one.output[0]))
        ]  # fmt: skip
        if id(node) in inside and not open_ended:
            try:
                return _rows_of(tensors, taken, full)
            except Unknown:
                pass
    raise Unknown("it has several results")


def _is_row_reduction(tensors: Tensors, node: Node) -> bool:
    of = node.attributes
    if node.op_type not in _REDUCTIONS or not of.get("keepdims", 1):
        return False
    rank = len(tensors.shape(node.input[0]))
    return [axis % rank for axis in of.get("axes", [])] == [rank - 1]


def _before(tensors: Tensors, node: Node, region: dict[int, Node], fits: Callable[[Node], bool]) -> None:
    """Adds the nodes before this one that are read nowhere else."""
    for name in node.input:
        made = tensors.maker(name)
        if made is None or id(made) in region or tensors.is_result(name) or not fits(made):
            continue
        if all(id(reader) in region for reader in tensors.readers(name)):
            region[id(made)] = made
            _before(tensors, made, region, fits)


def _rows_of(tensors: Tensors, nodes: Sequence[Node], full: list[int]) -> Draft:
    shape = {"m": math.prod(full[:-1]), "n": full[-1]}
    whole, part = [("i", "m"), ("j", "n")], [("i", "m")]
    dims = [[*range(len(full) - 1)], [len(full) - 1]]
    group = Draft("rows", whole, dims, shape, [], nodes=[*nodes])
    names: dict[str, str] = {}  # of the stages that compute the model's tensors
    inputs: dict[str, str] = {}

    def element(name: str) -> str:
        if name in names:
            return f"{names[name]}[i, j]" if tensors.shape(name) == full else f"{names[name]}[i]"
        if name not in inputs:
            group.axes = whole
            inputs[name] = group.operand(tensors, name, full)
        return inputs[name]

    for node in nodes:
        output = node.output[0]
        if node.op_type in _REDUCTIONS:
            body = element(node.input[0])
            group.axes = part
            names[output] = group.add(f"{_REDUCTIONS[node.op_type]}(j: n) {body}")
            if node.op_type == "ReduceMean":
                names[output] = group.add(f"{names[output]}[i] / n")
        else:
            value = elementwise_text(tensors, node, element)
            group.axes = whole if tensors.shape(output) == full else part
            names[output] = group.add(value)
        group.suffix.append(node.op_type.lower().removeprefix("reduce"))
    if tensors.shape(nodes[-1].output[0]) != full:
        group.dims = dims[:1]
    return group
