"""What an ONNX model computes of constants and shapes alone, as exporters leave it in the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

# Larger constants are weights: nothing here reads their elements.
_LARGEST = 64

_Array = Any  # of numpy
_Attributes = Mapping[str, Any]
_CAST_TO = {
    onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.DOUBLE: np.float64,
    onnx.TensorProto.INT64: np.int64, onnx.TensorProto.INT32: np.int32,
}  # fmt: skip


def _slice(inputs: Sequence[_Array], of: _Attributes) -> _Array:
    data, starts, ends = inputs[:3]
    axes = inputs[3] if len(inputs) > 3 else range(len(starts))
    steps = inputs[4] if len(inputs) > 4 else [1] * len(starts)
    where = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        where[int(axis)] = slice(int(start), int(end), int(step))
    return data[tuple(where)]


def _reshape(inputs: Sequence[_Array], of: _Attributes) -> _Array:
    data, sizes = inputs
    return data.reshape([data.shape[d] if size == 0 else int(size) for d, size in enumerate(sizes)])


def _div(inputs: Sequence[_Array], of: _Attributes) -> _Array:
    a, b = inputs
    return a // b if a.dtype.kind in "iu" else a / b  # of sizes, which are positive


_COMPUTED: Mapping[str, Callable[[Sequence[_Array], _Attributes], _Array]] = {
    "Identity": lambda x, of: x[0],
    "Cast": lambda x, of: x[0].astype(_CAST_TO[of["to"]]),
    "Sqrt": lambda x, of: np.sqrt(x[0]),
    "Neg": lambda x, of: -x[0],
    "Add": lambda x, of: x[0] + x[1],
    "Sub": lambda x, of: x[0] - x[1],
    "Mul": lambda x, of: x[0] * x[1],
    "Div": _div,
    "Gather": lambda x, of: np.take(x[0], x[1], axis=of.get("axis", 0)),
    "Concat": lambda x, of: np.concatenate(x, axis=of["axis"]),
    "Slice": _slice,
    "Reshape": _reshape,
    "Unsqueeze": lambda x, of: np.expand_dims(x[0], tuple(of["axes"] if len(x) == 1 else x[1])),
    "Squeeze": lambda x, of: np.squeeze(x[0], tuple(of["axes"] if len(x) == 1 else x[1])),
}


def is_small(tensor: Any) -> bool:
    return bool(math.prod(tensor.dims) <= _LARGEST)


def values(graph: Any) -> dict[str, _Array]:
    """Of the small constants that are in the model."""
    inside = (t for t in graph.initializer if t.data_location != onnx.TensorProto.EXTERNAL)
    return {t.name: onnx.numpy_helper.to_array(t) for t in filter(is_small, inside)}


def fold(graph: Any, known: Mapping[str, Sequence[int]]) -> int:
    """Makes small constants of what a graph computes of small constants and of `known` shapes; returns how many nodes
    went."""
    computed = values(graph)
    kept, results = [], {value.name for value in graph.output}
    for node in graph.node:
        value = None if set(node.output) & results else _value(node, computed, known)
        if value is None or value.size > _LARGEST:
            kept.append(node)
            continue
        computed[node.output[0]] = value
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), node.output[0]))
    gone = len(graph.node) - len(kept)
    if gone:
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        del graph.node[:]
        graph.node.extend(kept)
    return gone


def _value(node: Any, computed: Mapping[str, _Array], known: Mapping[str, Sequence[int]]) -> _Array | None:
    of = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Constant":
        if "value" in of:
            return onnx.numpy_helper.to_array(of["value"]) if is_small(of["value"]) else None
        ((name, value),) = of.items()
        kind = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
        return np.asarray(value, kind[name]) if name in kind else None
    if node.op_type == "Shape" and node.input[0] in known:
        return np.asarray(known[node.input[0]][of.get("start", 0) : of.get("end")], np.int64)
    if node.op_type not in _COMPUTED or not all(name in computed for name in node.input):
        return None
    try:
        return np.asarray(_COMPUTED[node.op_type]([computed[name] for name in node.input], of))
    except (ValueError, IndexError, KeyError):  # of a form that is not known here
        return None
