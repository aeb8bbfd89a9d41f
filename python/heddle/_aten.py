"""Graphs of PyTorch's ATen operators, as AOTAutograd makes them, as extraction.Graph has them: by ONNX's names."""

from __future__ import annotations

import operator
from typing import Any

import torch

from heddle.extraction import CHANNELS_LAST, Graph, Node

_SAME = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "abs": "Abs",
    "neg": "Neg", "erf": "Erf", "reciprocal": "Reciprocal", "rsqrt": "Rsqrt", "silu": "Silu", "hardswish": "HardSwish",
}  # fmt: skip
_PAIRS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "maximum": "Max", "minimum": "Min",
}  # fmt: skip


# Give a tensor another shape, in ONNX and here.
_VIEWS = {"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "alias", "detach"}
# Have several results, of which the first is what a model goes on with.
_FIRST_OF_SEVERAL = (
    "aten.native_layer_norm", "aten.native_group_norm", "aten._native_batch_norm_legit_no_training",
    "aten.max_pool2d_with_indices", "aten._scaled_dot_product",
)  # fmt: skip
_REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "amax": "ReduceMax", "amin": "ReduceMin"}


def _first_of_several(node: Any) -> str | None:
    """The name of the first result, where no other is read."""
    (reader, *others) = [user for user in node.users if user.users] or [None]
    first = reader is not None and not others and reader.target is operator.getitem and reader.args[1] == 0
    return reader.name if first else None


def _permutation(node: Any) -> list[int] | None:
    """Of a transposition, which dimension of its argument each of its own is."""
    kind, rank = str(node.target), len(node.meta["val"].shape) if is_tensor(node) else 0
    order = [*range(rank)]
    if kind == "aten.t.default" and rank == 2:
        return [1, 0]
    if kind == "aten.permute.default":
        return [d % rank for d in node.args[1]]
    if kind == "aten.transpose.int":
        first, second = (d % rank for d in node.args[1:3])
        order[first], order[second] = second, first
        return order
    return None


def is_tensor(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def memory_order(value: Any) -> tuple[int, ...] | None:
    """Of a dense tensor that does not lie in the order of its dimensions, that in which it does."""
    if not all(isinstance(size, int) for size in value.shape) or value.is_contiguous():
        return None
    if value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last):
        return CHANNELS_LAST
    # Where a dimension of one element stands says nothing: it keeps its place.
    moving = [d for d in range(value.dim()) if value.shape[d] > 1]
    by_stride = iter(sorted(moving, key=lambda d: -int(value.stride(d))))
    order = tuple(next(by_stride) if size > 1 else d for d, size in enumerate(value.shape))
    return order if value.permute(order).is_contiguous() else None


def graph_of(module: Any) -> Graph:
    """Of a torch.fx.GraphModule whose nodes know their values' forms (meta["val"])."""
    types: dict[str, tuple[str, list[int | str]]] = {}
    graph = Graph([], types, {}, set())
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if is_tensor(node):
            sizes: list[int | str] = [size if isinstance(size, int) else "?" for size in value.shape]
            types[node.name] = (str(value.dtype).removeprefix("torch."), sizes)
            if (order := memory_order(value)) is not None:
                graph.orders[node.name] = order
        if node.op == "output":
            graph.results = {n.name for n in node.all_input_nodes}
        elif node.op == "call_function":
            made = _node(graph, node)
            if made is not None:
                graph.nodes.append(made)
    return graph


def _untransposed(node: Any) -> Any | None:
    """The matrix whose transposition a node is."""
    return node.args[0] if _permutation(node) == [1, 0] else None


def _named(node: Any) -> dict[str, Any]:
    """The arguments of an operator of ATen by their names, defaults too."""
    known = node.target._schema.arguments
    named = {a.name: a.default_value for a in known if a.has_default_value()}
    return named | {a.name: value for a, value in zip(known, node.args, strict=False)} | dict(node.kwargs)


def _part(node: Any, source: Any, axis: int, start: int, stop: int) -> Node:
    size = source.meta["val"].shape[axis]
    attributes = {"axis": axis % len(source.meta["val"].shape), "start": start, "stop": min(stop, size)}
    return Node("Slice", node.name, [source.name], [node.name], attributes)


def _attention(node: Any, unknown: Node) -> Node:
    of = _named(node)
    result = _first_of_several(node)
    mask = of.get("attn_bias") if of.get("attn_mask") is None else of["attn_mask"]
    if result is None or of.get("dropout_p"):
        return unknown
    names = [one.name for one in (of["query"], of["key"], of["value"], mask) if one is not None]
    attributes = {"scale": of.get("scale"), "is_causal": bool(of.get("is_causal"))}
    return Node("Attention", node.name, names, [result], attributes)


def _product(node: Any, a: Any, b: Any, rest: list[str], attributes: dict[str, Any]) -> Node:
    plain = _untransposed(b)
    names = [a.name, (plain or b).name, *rest]
    return Node("Gemm", node.name, names, [node.name], {"transB": int(plain is not None), **attributes})


def _node(graph: Graph, node: Any) -> Node | None:
    """A node of FX as one of ONNX; one that has no counterpart keeps its own name, which nobody knows."""
    name, arguments, named = node.name, node.args, node.kwargs
    namespace, _, rest = str(node.target).partition(".")
    kind = rest.split(".")[0] if namespace == "aten" else ""
    unknown = Node(str(node.target), name, [n.name for n in node.all_input_nodes], [name])

    def one(onnx_kind: str, **attributes: Any) -> Node:
        return Node(onnx_kind, name, [arguments[0].name], [name], attributes)

    def argument(index: int, default: Any) -> Any:
        return arguments[index] if len(arguments) > index else default

    if node.target is operator.getitem:
        parts = node.args[0]
        if str(parts.target) == "aten.split.Tensor":
            source, size = parts.args[:2]
            axis = parts.args[2] if len(parts.args) > 2 else 0
            return _part(node, source, axis, node.args[1] * size, (node.args[1] + 1) * size)
        return None if str(parts.target).startswith(_FIRST_OF_SEVERAL) and node.args[1] == 0 else unknown
    if kind == "split":
        return None  # its parts are nodes
    if kind == "slice" and argument(4, 1) == 1 and isinstance(argument(2, 0) or 0, int) and argument(2, 0) >= 0:
        return _part(node, arguments[0], argument(1, 0), argument(2, 0) or 0, argument(3, None) or 2**62)
    if (order := _permutation(node)) is not None:
        return one("Transpose", perm=order)
    if kind == "cat" and is_tensor(node):
        axis = argument(1, 0) % len(node.meta["val"].shape)
        return Node("Concat", name, [n.name for n in arguments[0]], [name], {"axis": axis})
    if kind in _REDUCTIONS and len(arguments) > 1 and is_tensor(arguments[0]) and isinstance(arguments[1], list):
        rank = len(arguments[0].meta["val"].shape)
        axes = sorted(axis % rank for axis in arguments[1])
        if kind == "mean" and rank == 4 and axes == [2, 3]:
            return one("GlobalAveragePool")
        return one(_REDUCTIONS[kind], axes=axes, keepdims=int(bool(argument(2, False))))
    if kind in _SAME:
        return one(_SAME[kind])
    if kind in _VIEWS:
        return one("Reshape")
    if kind in _PAIRS and not (named.get("alpha", 1) != 1 or named.get("rounding_mode")):
        names = []
        for value in arguments[:2]:
            if isinstance(value, (int, float)):
                graph.scalars[f"constant {value}"] = float(value)
                value_name = f"constant {value}"
            elif isinstance(value, torch.fx.Node):
                value_name = value.name
            else:
                return unknown
            names.append(value_name)
        return Node(_PAIRS[kind], name, names, [name])
    if kind == "gelu":
        return one("Gelu", approximate=named.get("approximate", "none"))
    if kind == "leaky_relu":
        return one("LeakyRelu", alpha=float(argument(1, 0.01)))
    if kind == "hardsigmoid":
        return one("HardSigmoid", alpha=1 / 6, beta=0.5)
    if kind in ("hardtanh", "clamp"):
        least, most = (-1.0, 1.0) if kind == "hardtanh" else (None, None)
        limits = {"min": argument(1, least), "max": argument(2, most)}
        return one("Clip", **{k: float(v) for k, v in limits.items() if v is not None})
    if kind == "mm":
        return _product(node, arguments[0], arguments[1], [], {})
    if kind == "addmm":
        scales = {"alpha": float(named.get("alpha", 1)), "beta": float(named.get("beta", 1))}
        return _product(node, arguments[1], arguments[2], [arguments[0].name], scales)
    if kind == "bmm":
        return Node("MatMul", name, [n.name for n in arguments[:2]], [name])
    if kind == "convolution":
        padding = list(arguments[4])
        attributes = {"strides": list(arguments[3]), "pads": padding * 2, "dilations": list(arguments[5])}
        attributes |= {"output_padding": list(arguments[7])} if arguments[6] else {}
        inputs = [n.name for n in arguments[:3] if n is not None]
        conv = "ConvTranspose" if arguments[6] else "Conv"
        return Node(conv, name, inputs, [name], {**attributes, "group": arguments[8]})
    if kind == "max_pool2d_with_indices":
        result = _first_of_several(node)
        window, padding = list(arguments[1]), list(argument(3, [0, 0]))
        if result is not None and not argument(5, False):
            attributes = {"kernel_shape": window, "strides": list(argument(2, []) or window), "pads": padding * 2}
            dilations = list(argument(4, [1, 1]))
            return Node("MaxPool", name, [arguments[0].name], [result], {**attributes, "dilations": dilations})
    if kind.startswith("_scaled_dot_product"):
        return _attention(node, unknown)
    if kind == "native_group_norm" and arguments[1] is not None and arguments[2] is not None:
        result = _first_of_several(node)
        if result is not None:
            inputs = [n.name for n in arguments[:3]]
            of = {"num_groups": arguments[6], "epsilon": float(arguments[7])}
            return Node("GroupNormalization", name, inputs, [result], of)
    if kind == "_softmax":
        return one("Softmax", axis=arguments[1] % len(node.meta["val"].shape))
    if kind == "native_layer_norm" and len(arguments[1]) == 1 and arguments[2] is not None:
        result = _first_of_several(node)
        if result is not None:
            inputs = [n.name for n in arguments[:4] if isinstance(n, torch.fx.Node)]
            return Node("LayerNormalization", name, inputs, [result], {"epsilon": float(arguments[4])})
    if kind == "_native_batch_norm_legit_no_training" and None not in arguments[1:5]:
        result = _first_of_several(node)
        if result is not None:
            inputs = [n.name for n in arguments[:5]]
            return Node("BatchNormalization", name, inputs, [result], {"epsilon": float(arguments[6])})
    return unknown
