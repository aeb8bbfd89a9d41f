"""Which operators, at which shapes and how often, an ONNX model consists of: what to tune for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import onnx
import onnx.external_data_helper
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference

from heddle import _onnx_constants
from heddle._grouping import Extractor
from heddle._rewriting import rewritten
from heddle.errors import InvalidArgument
from heddle.extraction import CHANNELS_LAST, Extraction, Graph, Node

__all__ = ["extract"]


def extract(
    model: str | os.PathLike[str] | onnx.ModelProto,
    dims: Mapping[str, int] | None = None,
    weights: Literal["file", "torch"] = "file",
) -> Extraction:
    """The workloads of a model, the same ones counted together.

    A matrix product or convolution takes the elementwise operators behind it along, as long as nothing else
    reads what is between them; a batch normalisation behind a convolution is a bias, as its factors go into the
    weights. Elementwise operators alone, softmax, layer normalisation, pooling and transpositions are workloads of
    their own; what only gives a tensor another shape is none. `dims` binds sizes that have names in the model:
    {"N": 8}. What the notation cannot say, or this function does not know, is listed in `unknown`.

    Exporters write a linear layer as a product by a matrix w[k, n], where PyTorch keeps the same weights as w[n, k].
    `weights` says which of the two the workloads read: "file" as they lie in the file, "torch" as heddle.fx finds them
    in the model, so that what is tuned for one serves the other.
    """
    if not isinstance(model, onnx.ModelProto):
        path = os.fspath(model)
        try:
            model = onnx.load(path, load_external_data=False)
        except OSError:
            raise
        except Exception as error:  # protobuf's
            raise InvalidArgument(f"this is no ONNX model: {error}", 2) from None
        beside = (t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL)
        for tensor in filter(_onnx_constants.is_small, beside):
            # Without the file beside it a constant is not known.
            with suppress(OSError):
                onnx.external_data_helper.load_external_data_for_tensor(tensor, os.path.dirname(path))
                tensor.data_location = onnx.TensorProto.DEFAULT
    if weights not in ("file", "torch"):
        raise InvalidArgument(f"weights are read as the file or as torch has them, not as {weights!r}", 2)
    _check_dims(model, dims or {})
    graph = _read(model, dims or {})
    if weights == "torch":
        _as_torch_keeps_them(graph, {tensor.name for tensor in model.graph.initializer})
    graph.nodes = rewritten(graph)
    return Extractor(graph).run()


def _check_dims(model: Any, dims: Mapping[str, int]) -> None:
    values = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    names = {dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim} - {""}
    for name, size in dims.items():
        if name not in names:
            known = f"; these are: {', '.join(sorted(names))}" if names else ", as all are numbers"
            raise InvalidArgument(f"no size is called {name}{known}", 2)
        if not isinstance(size, int) or size < 1:
            raise InvalidArgument(f"{name}={size!r}: a size is a whole number above 0", 2)


def _read(model: Any, dims: Mapping[str, int]) -> Graph:
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    for tensor in bound.graph.initializer:
        if not _onnx_constants.is_small(tensor):  # a weight, whose form is enough
            tensor.CopyFrom(onnx.TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type))
    for value in [*bound.graph.input, *bound.graph.output, *bound.graph.value_info]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]
    while True:
        # Not strict: what cannot be inferred is told where it is needed.
        graph = onnx.shape_inference.infer_shapes(bound, data_prop=True).graph
        types: dict[str, tuple[str, list[int | str]]] = {}
        for tensor in graph.initializer:
            types[tensor.name] = (_type_name(tensor.data_type), list(tensor.dims))
        for value in [*graph.input, *graph.output, *graph.value_info]:
            tensor = value.type.tensor_type
            if tensor.HasField("shape"):
                sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
                types[value.name] = (_type_name(tensor.elem_type), sizes)
        known = {name: [size for size in sizes if isinstance(size, int)] for name, (_, sizes) in types.items()}
        known = {name: sizes for name, sizes in known.items() if len(sizes) == len(types[name][1])}
        # What is computed of shapes may be a shape.
        if not _onnx_constants.fold(bound.graph, known):
            break
    constants = _onnx_constants.values(graph)
    scalars = {name: _written(value.reshape(())[()]) for name, value in constants.items() if value.size == 1}
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    nodes = [one for n in graph.node for one in _nodes(n, max(versions, default=13), types, constants)]
    # As heddle.fx lays images of 16 bits out.
    orders: dict[str, tuple[int, ...]] = {}
    for node in nodes:
        name = node.input[0] if node.op_type in ("Conv", "ConvTranspose") else ""
        image = known.get(name, [])
        if len(image) == 4 and image[1] > 1 and image[2] * image[3] > 1 and types[name][0] in ("float16", "bfloat16"):
            orders[name] = CHANNELS_LAST
    return Graph(nodes, types, scalars, {value.name for value in graph.output}, orders)


def _as_torch_keeps_them(graph: Graph, weights: set[str]) -> None:
    """Puts transpositions before products, of weights that lie the other way then."""
    turned: dict[str, Node] = {}
    for node in graph.nodes:
        name = node.input[1] if node.op_type == "MatMul" else ""
        kind, sizes = graph.types.get(name, ("", []))
        if len(sizes) != 2 or name not in weights:
            continue
        if name not in turned:
            weight, across = f"{name} as torch keeps it", f"{name} as the file has it"
            graph.types |= {weight: (kind, sizes[::-1]), across: (kind, sizes)}
            turned[name] = Node("Transpose", across, [weight], [across], {"perm": [1, 0]})
        node.input = [node.input[0], *turned[name].output]
    graph.nodes = [*turned.values(), *graph.nodes]


def _type_name(number: int) -> str:
    name: str = onnx.TensorProto.DataType.Name(number)
    return {"FLOAT": "float32", "DOUBLE": "float64"}.get(name, name.lower())


def _written(value: Any) -> float:
    """The shortest number that is rounded to this one: what of 0.1 in 32 bits was written."""
    return float(str(value)) if isinstance(value, np.float32) else float(value)


def _attribute(value: Any) -> Any:
    if isinstance(value, float):
        return _written(np.float32(value))
    return value.decode() if isinstance(value, bytes) else value


def _nodes(node: Any, version: int, types: Mapping[str, Any], constants: Mapping[str, Any]) -> list[Node]:
    """A node; of a division into parts, each part."""
    attributes = {a.name: _attribute(onnx.helper.get_attribute_value(a)) for a in node.attribute}
    if node.op_type == "Softmax" and version < 13:
        # All axes from this one on were a row.
        attributes.setdefault("axis", 1)
    # What is no operator of ONNX itself has a name that nobody here knows.
    kind = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
    made = Node(kind, node.name, list(node.input), list(node.output), attributes, _inner_reads(node))
    shape = types.get(made.input[0] if made.input else "", ("", ["?"]))[1]
    if any(isinstance(size, str) for size in shape):
        return [made]
    given: list[Any] = [constants[name].reshape(-1).tolist() if name in constants else None for name in made.input[1:]]
    if kind in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"):
        if len(given) == 1 and given[0]:
            made.attributes = {**attributes, "axes": given[0]}
            del made.input[1:]
        axes = sorted(axis % len(shape) for axis in made.attributes.get("axes", []))
        if kind == "ReduceMean" and len(shape) == 4 and axes == [2, 3]:
            made.op_type = "GlobalAveragePool"
    elif kind == "Slice" and None not in given and [len(one) for one in given[:3]] == [1, 1, 1]:
        start, stop, axis = (one[0] for one in given[:3])
        size = shape[axis % len(shape)]
        start, stop = (min(place + size if place < 0 else place, size) for place in (start, stop))
        if given[3:] in ([], [[1]]) and 0 <= start <= stop:
            made.attributes = {"axis": axis % len(shape), "start": start, "stop": stop}
            del made.input[1:]
    elif kind == "Concat":
        made.attributes = {"axis": attributes["axis"] % len(shape)}
    elif kind == "InstanceNormalization" and given[0] and given[1] and {*given[0]} == {1} and {*given[1]} == {0}:
        made.input = made.input[:1]  # of groups, for which there is no scale
    elif kind == "Split":
        return _parts(made, shape, given)
    return [made]


def _parts(node: Node, shape: list[int], given: list[list[int] | None]) -> list[Node]:
    axis = int(node.attributes.get("axis", 0)) % len(shape)
    count = len(node.output)
    sizes = given[0] if given else node.attributes.get("split", [-(-shape[axis] // count)] * count)
    if sizes is None:
        return [node]
    parts, start = list[Node](), 0
    for output, size in zip(node.output, sizes, strict=True):
        where = {"axis": axis, "start": start, "stop": min(start + size, shape[axis])}
        parts.append(Node("Slice", f"{node.name} {len(parts)}", node.input[:1], [output], where))
        start += size
    return parts


def _inner_reads(node: Any) -> list[str]:
    """The tensors that a node's branches and loops take from around them."""
    names: list[str] = []
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            for inner in graph.node:
                names += [*inner.input, *_inner_reads(inner)]
    return names
