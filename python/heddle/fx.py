"""Whole models of PyTorch: `torch.compile(model, backend="heddle")`, and heddle.optimize, which also tunes and checks.

Of the graph that PyTorch's AOTAutograd makes, matrix products and convolutions with the elementwise operators
behind them, softmax and layer normalisation are computed by kernels; everything else stays as it is.
"""

from __future__ import annotations

import operator
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch

from heddle.database import Database, Fallback, connect
from heddle.errors import HeddleError, NotFound
from heddle.extraction import Extraction, Extractor, Folded, Graph, Group, Node
from heddle.kernel import Kernel

# What a kernel computes; other groups, which only move data or are elementwise, are PyTorch's to fuse.
_KINDS = ("matmul", "batch_matmul", "conv2d", "grouped_conv2d", "depthwise_conv2d", "softmax", "layer_norm")


@dataclass(frozen=True)
class Use:
    """A kernel of a report."""

    operator: str
    shape: dict[str, int]
    weight: int  # how many groups of the graph it computes
    match: str  # "exact", "nearest" or "default"
    time_us: float | None


@dataclass
class Report:
    """What became of the graphs of a model."""

    uses: list[Use] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)  # nodes or workloads that stay PyTorch's, and why
    largest_error: float | None = None  # against eager, relative to the largest result; where it was compared

    def __str__(self) -> str:
        lines = []
        for use in self.uses:
            shape = ",".join(f"{name}={value}" for name, value in use.shape.items())
            time = "not measured" if use.time_us is None else f"{use.time_us:.1f} us"
            lines.append(f"{use.weight} x {use.operator} {shape}: {use.match}, {time}")
        lines += [f"PyTorch's: {what}: {why}" for what, why in self.left.items()]
        if self.largest_error is not None:
            lines.append(f"largest difference from eager: {self.largest_error:.1e}")
        return "\n".join(lines)


class Backend:
    """A backend of torch.compile. Graphs that need gradients are run as they are: kernels have none."""

    def __init__(
        self,
        db: Database | None = None,
        *,
        fallback: Fallback = "default",
        trials: int = 0,
        seconds: float = 0,
        progress: bool = True,
    ) -> None:
        """`trials`: tune what the database has no record of, so many for each workload on average; `seconds`: all of
        them within so long. Without either, `fallback` says what is taken."""
        self.report = Report()
        self._db = db or connect()
        self._fallback: Fallback = fallback
        self._trials = trials
        self._seconds = seconds
        self._progress = progress

    def __call__(self, module: Any, inputs: list[Any], **_: Any) -> Any:
        from torch._dynamo.backends.common import aot_autograd

        compiler: Any = aot_autograd(fw_compiler=self._leave, inference_compiler=self._compile)
        return compiler(module, inputs)

    def _leave(self, module: Any, inputs: list[Any]) -> Any:
        from functorch.compile import make_boxed_func

        self.report.left["a graph"] = "it needs gradients: call the model under torch.no_grad()"
        return make_boxed_func(module.forward)

    def _compile(self, module: Any, inputs: list[Any]) -> Any:
        from functorch.compile import make_boxed_func

        found = Extractor(_graph(module)).run()
        nodes = {node.name: node for node in module.graph.nodes}
        groups: dict[str, list[Group]] = {}
        for group in found.groups:
            if group.kind.split("_nt")[0].split("_tn")[0].split("_tt")[0] in _KINDS:
                groups.setdefault(f"{group.operator} {group.shape}", []).append(group)
        device = next((_device(n.meta["val"].device) for n in nodes.values() if _is_tensor(n)), "auto")
        # A thread of each mostly waits for a program of its own.
        with ThreadPoolExecutor(max_workers=8) as pool:
            if self._trials > 0 or self._seconds > 0:
                known = pool.map(lambda same: self._is_known(found, same[0], device), groups.values())
                self._tune(
                    found,
                    [same[0] for same, is_known in zip(groups.values(), known, strict=True) if not is_known],
                    device,
                )
            kernels = list(pool.map(lambda same: self._kernel(found, same[0], device), groups.values()))
        for same, kernel in zip(groups.values(), kernels, strict=True):
            first = same[0]
            if isinstance(kernel, HeddleError):
                self.report.left[f"{first.operator} {dict(first.shape)}"] = str(kernel)
                continue
            assert kernel.record is not None
            record = kernel.record
            self.report.uses.append(Use(first.operator, dict(first.shape), len(same), record.match, record.time_us))
            for group in same:
                _replace(module.graph, nodes, group, kernel)
        for kind, reasons in found.unknown.items():
            self.report.left.setdefault(kind, reasons[0][1])
        module.graph.eliminate_dead_code()
        module.recompile()
        return make_boxed_func(module.forward)

    def _is_known(self, found: Extraction, group: Group, device: str) -> bool:
        try:
            self._db.query(found.operator(group.operator), shape=group.shape, device=device)
        except NotFound:
            return False
        return True

    def _tune(self, found: Extraction, groups: list[Group], device: str) -> None:
        """Within one budget, in which what stands in the model often counts more."""
        wanted = {(group.operator, *group.shape.items()) for group in groups}
        workloads = [w for w in found.workloads if (w.operator, *w.shape.items()) in wanted]
        if not workloads:
            return
        with tempfile.TemporaryDirectory() as folder:
            lines, operators = Extraction(workloads, found.operators, {}).save(folder)
            self._db.tune_workloads(
                lines,
                op_file=operators,
                device=device,
                trials=self._trials,
                seconds=self._seconds / len(workloads),
                progress=self._progress,
            )

    def _kernel(self, found: Extraction, group: Group, device: str) -> Kernel | HeddleError:
        try:
            op = found.operator(group.operator)
            return self._db.kernel(op, shape=group.shape, device=device, fallback=self._fallback)
        except HeddleError as error:
            return error


def extract(model: Callable[..., Any], *inputs: Any) -> Extraction:
    """The workloads of a model, for inputs of these shapes, as heddle.onnx.extract() finds them in a file.

    The model has to be one graph. Some of what is listed optimize() leaves to PyTorch: elementwise operators alone.
    """
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    found: list[Extraction] = []

    def compile(module: Any, _: Any) -> Any:
        found.append(Extractor(_graph(module)).run())
        return make_boxed_func(module.forward)

    reader: Any = aot_autograd(fw_compiler=compile, inference_compiler=compile)
    compiled: Any = torch.compile(model, backend=reader, fullgraph=True, dynamic=False)
    with torch.no_grad():
        compiled(*inputs)
    return found[0]


def backend(module: Any, inputs: list[Any], **options: Any) -> Any:
    """What torch.compile(backend="heddle") calls where this package is installed: the database of connect()."""
    return Backend()(module, inputs, **options)


def optimize(
    model: Callable[..., Any],
    *inputs: Any,
    db: Database | None = None,
    fallback: Fallback = "default",
    trials: int = 0,
    seconds: float = 0,
    tolerance: float = 1e-3,
    progress: bool = True,
) -> tuple[Callable[..., Any], Report]:
    """The model with kernels in the place of its products and convolutions, for inputs of these shapes.

    `trials` and `seconds` tune what was not tuned before: so many trials for each workload, all within so long. The
    result on `inputs` is compared with the model's own: HeddleError where it differs by more than `tolerance` of the
    largest element. What is returned runs without gradients.
    """
    made = Backend(db, fallback=fallback, trials=trials, seconds=seconds, progress=progress)
    compiled: Any = torch.compile(model, backend=made, dynamic=False)

    def run(*arguments: Any, **named: Any) -> Any:
        with torch.no_grad():
            return compiled(*arguments, **named)

    with torch.no_grad():
        expected = model(*inputs)
    error = _difference(run(*inputs), expected)
    if not error <= tolerance:
        raise HeddleError(f"the model's result differs from eager's by {error:.1e} of its largest element")
    made.report.largest_error = error
    return run, made.report


def _difference(got: Any, expected: Any) -> float:
    from torch.utils._pytree import tree_leaves

    worst = 0.0
    for a, b in zip(tree_leaves(got), tree_leaves(expected), strict=True):
        if isinstance(b, torch.Tensor) and b.numel() > 0:
            scale = max(float(b.double().abs().max()), 1e-30)
            error = float((a.double() - b.double()).abs().max()) / scale
            worst = max(worst, error if error == error else float("inf"))
    return worst


def _device(device: Any) -> str:
    return f"cuda:{device.index or 0}" if device.type == "cuda" else "auto" if device.type != "cpu" else "opencl:0"


def _is_tensor(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _replace(graph: Any, nodes: dict[str, Any], group: Group, kernel: Kernel) -> None:
    last = nodes[group.output]
    call = _Call(kernel, group.operands, tuple(last.meta["val"].shape))
    with graph.inserting_after(last):
        made = graph.call_function(call, tuple(nodes[name] for name in call.names))
    made.meta = dict(last.meta)
    last.replace_all_uses_with(made)
    graph.erase_node(last)
    nodes[group.output] = made  # for groups that read it


class _Call:
    """A kernel in a graph, whose tensors have the shapes and layouts that the model gives them.

    What a batch normalisation makes of weights is kept for as long as these stay as they are.
    """

    def __init__(self, kernel: Kernel, operands: tuple[str | Folded, ...], shape: tuple[int, ...]) -> None:
        self._kernel = kernel
        self._operands = operands
        self._shape = shape
        self._kept: dict[int, tuple[Any, Any]] = {}  # of an operand's number: of which tensors it was made, and it
        read = [(one.tensor, *one.norm) if isinstance(one, Folded) else (one,) for one in operands]
        # The graph's tensors that it takes, each once, in order.
        self.names = tuple(dict.fromkeys(name for names in read for name in names if name))
        # As the graph's text shows it.
        self.__name__ = f"heddle_{kernel.manifest.op}"

    def __call__(self, *tensors: Any) -> Any:
        named = dict(zip(self.names, tensors, strict=True))
        given = []
        for number, buffer in enumerate(self._kernel.inputs):
            operand = self._operands[number]
            tensor = named[operand] if isinstance(operand, str) else self._folded(number, operand, named)
            tensor = tensor.detach().reshape(buffer.shape).contiguous()
            given.append(tensor if tensor.data_ptr() % buffer.align == 0 else tensor.clone())
        return self._kernel(*given).reshape(self._shape)

    def _folded(self, number: int, operand: Folded, named: dict[str, Any]) -> Any:
        scale, offset, mean, variance = sources = [named[name].detach() for name in operand.norm]
        tensor = named[operand.tensor].detach() if operand.tensor else None
        # What changes a tensor raises its version.
        state = [(s.data_ptr(), s._version) for s in (*sources, tensor) if s is not None]
        if number not in self._kept or self._kept[number][0] != state:
            factor = scale * torch.rsqrt(variance + operand.epsilon)
            if operand.what == "weights":
                assert tensor is not None
                value = tensor * factor.reshape(-1, *[1] * (tensor.dim() - 1))
            elif operand.what == "offset":
                value = offset - mean * factor + (0 if tensor is None else tensor * factor)
            else:
                value = factor
            self._kept[number] = (state, value)
        return self._kept[number][1]


# ------------------------------------------------------------------------- ATen's operators by ONNX's names

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
_FIRST_OF_SEVERAL = ("aten.native_layer_norm", "aten._native_batch_norm_legit_no_training")


def _first_of_several(node: Any) -> str | None:
    """The name of the first result, where no other is read."""
    (reader, *others) = [*node.users] or [None]
    first = reader is not None and not others and reader.target is operator.getitem and reader.args[1] == 0
    return reader.name if first else None


def _graph(module: Any) -> Graph:
    types: dict[str, tuple[str, list[int | str]]] = {}
    graph = Graph([], types, {}, set())
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if _is_tensor(node):
            sizes: list[int | str] = [size if isinstance(size, int) else "?" for size in value.shape]
            types[node.name] = (str(value.dtype).removeprefix("torch."), sizes)
        if node.op == "output":
            graph.results = {n.name for n in node.all_input_nodes}
        elif node.op == "call_function":
            made = _node(graph, node)
            if made is not None:
                graph.nodes.append(made)
    return graph


def _untransposed(node: Any) -> Any | None:
    """The matrix whose transposition a node is."""
    kind = str(node.target)
    if len(node.meta["val"].shape) == 2 and (
        kind == "aten.t.default"
        or (kind == "aten.permute.default" and list(node.args[1]) in ([1, 0], [-1, -2]))
        or (kind == "aten.transpose.int" and {node.args[1] % 2, node.args[2] % 2} == {0, 1})
    ):
        return node.args[0]
    return None


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
        return None if str(node.args[0].target).startswith(_FIRST_OF_SEVERAL) and node.args[1] == 0 else unknown
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
    if kind == "convolution" and not arguments[6]:
        padding = list(arguments[4])
        attributes = {"strides": list(arguments[3]), "pads": padding * 2, "dilations": list(arguments[5])}
        inputs = [n.name for n in arguments[:3] if n is not None]
        return Node("Conv", name, inputs, [name], {**attributes, "group": arguments[8]})
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
