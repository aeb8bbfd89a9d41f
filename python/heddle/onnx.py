"""Which operators, at which shapes and how often, an ONNX model consists of: what to tune for it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference

from heddle._grouping import Extractor
from heddle.extraction import Extraction, Graph, Node

__all__ = ["extract"]


def extract(model: str | os.PathLike[str] | onnx.ModelProto, dims: Mapping[str, int] | None = None) -> Extraction:
    """The workloads of a model, the same ones counted together.

    A matrix product or convolution takes the elementwise operators behind it along, as long as nothing else
    reads what is between them; a batch normalisation behind a convolution is a bias, as its factors go into the
    weights. Elementwise operators alone, softmax, layer normalisation, pooling and transpositions are workloads of
    their own; what only gives a tensor another shape is none. `dims` binds sizes that have names in the model:
    {"N": 8}. What the notation cannot say, or this function does not know, is listed in `unknown`.
    """
    if not isinstance(model, onnx.ModelProto):
        model = onnx.load(os.fspath(model), load_external_data=False)
    return Extractor(_read(model, dims or {})).run()


def _read(model: Any, dims: Mapping[str, int]) -> Graph:
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    for value in [*bound.graph.input, *bound.graph.output, *bound.graph.value_info]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]
    # Not strict: what cannot be inferred is told where it is needed.
    graph = onnx.shape_inference.infer_shapes(bound).graph
    types: dict[str, tuple[str, list[int | str]]] = {}
    for value in [*graph.input, *graph.output, *graph.value_info]:
        tensor = value.type.tensor_type
        if tensor.HasField("shape"):
            sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
            types[value.name] = (_type_name(tensor.elem_type), sizes)
    constants = {t.name: t for t in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                constants[node.output[0]] = attribute.t
    scalars = {}
    for name, tensor in constants.items():
        types[name] = (_type_name(tensor.data_type), list(tensor.dims))
        if math.prod(tensor.dims) == 1:
            scalars[name] = float(onnx.numpy_helper.to_array(tensor).reshape(()))
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    nodes = [_node(n, max(versions, default=13)) for n in graph.node]
    return Graph(nodes, types, scalars, {value.name for value in graph.output})


def _type_name(number: int) -> str:
    name: str = onnx.TensorProto.DataType.Name(number)
    return {"FLOAT": "float32", "DOUBLE": "float64"}.get(name, name.lower())


def _node(node: Any, version: int) -> Node:
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    attributes = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
    if node.op_type == "Softmax" and version < 13:
        # All axes from this one on were a row.
        attributes.setdefault("axis", 1)
    # What is no operator of ONNX itself has a name that nobody here knows.
    kind = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
    return Node(kind, node.name, list(node.input), list(node.output), attributes, _inner_reads(node))


def _inner_reads(node: Any) -> list[str]:
    """The tensors that a node's branches and loops take from around them."""
    names: list[str] = []
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            for inner in graph.node:
                names += [*inner.input, *_inner_reads(inner)]
    return names
