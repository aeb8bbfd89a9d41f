"""Whole models of PyTorch: `torch.compile(model, backend="heddle")`, and heddle.optimize, which also tunes and checks.

Of the graph that PyTorch's AOTAutograd makes, matrix products and convolutions with the elementwise operators
behind them, softmax and normalisations are computed by kernels where these are faster than what Inductor makes of the
same nodes; everything else is Inductor's.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from heddle._aten import graph_of, is_tensor
from heddle._channels_last import in_channels_last
from heddle._choice import Pair, compared
from heddle._differences import difference as difference
from heddle._differences import tolerance_of
from heddle._grouping import Extractor
from heddle._kernel_call import KernelCall, declare, form_of, operand_names, place_of, with_kernels
from heddle._kernel_call import forget_weights as forget_weights
from heddle._prediction import predicted
from heddle._whole import PLAIN, Whole, fastest
from heddle.database import Database, Fallback, connect
from heddle.errors import HeddleError, InvalidArgument, NotFound
from heddle.extraction import Extraction, Group
from heddle.kernel import Kernel
from heddle.operator import cache_folder, keep_file
from heddle.report import Report as Report
from heddle.report import Use as Use

_log = logging.getLogger("heddle")

# What a kernel computes; other groups, which only move data or are elementwise, are PyTorch's to fuse.
_KINDS = (
    "matmul", "batch_matmul", "conv2d", "grouped_conv2d", "depthwise_conv2d", "conv_transpose2d", "softmax",
    "layer_norm", "group_norm", "rows", "rotary", "attention", "causal_attention",
)  # fmt: skip
# A kernel that takes more than this share of Inductor's time is not worth a border that nothing is fused across.
_WORTH = 0.98
# One that takes less than this is worth it wherever it stands.
_CLEARLY = 0.9
# Kernels that are compared in one compilation, which nothing ends: a bound of time counts between two.
_AT_ONCE = 8
# Of Inductor's options, those by which it measures what it makes.
_AUTOTUNING = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning")

_NEEDS_GRADIENTS = "it needs gradients: call the model under torch.no_grad()"

Rest = Literal["inductor", "eager"]


@dataclass(frozen=True)
class _Candidate:
    """A kernel, and the groups of a graph that it computes alike."""

    groups: list[Group]
    kernel: Kernel
    use: Use
    place: str = ""  # what groups have in common for which one of them is compared (place_of)

    @property
    def what(self) -> str:
        return f"{self.use.operator} {self.use.shape}"


class Backend:
    """A backend of torch.compile. Graphs that need gradients have no kernels."""

    def __init__(
        self,
        db: Database | None = None,
        *,
        fallback: Fallback = "default",
        trials: int = 0,
        seconds: float = 0,
        progress: bool = True,
        rest: Rest = "inductor",
        options: Mapping[str, Any] | None = None,
        choice_seconds: float = 60,
    ) -> None:
        """`trials`: tune what the database has no record of, so many for each workload on average; `seconds`: all of
        them within so long. Without either, `fallback` says what is taken.

        `rest`: "inductor" compares each kernel, and at last the whole graph, with what Inductor makes of it at the
        first call, and takes what is faster; `options` are Inductor's, as torch.compile has them. Where these have it
        autotune, it does so for the whole graph, and is left out where the graph is faster without. After
        `choice_seconds` no further kernels are compared with it, and what they would compute stays Inductor's. "eager"
        takes every kernel there is and runs what has none as it is.
        """
        if rest not in get_args(Rest):
            raise InvalidArgument(f"rest={rest!r}: what has no kernel is " + " or ".join(get_args(Rest)), 2)
        if (options or {}).get("triton.cudagraphs"):
            raise InvalidArgument(
                "kernels are compared in CUDA graphs of their own, in which Inductor's cannot be: use the mode "
                "max-autotune-no-cudagraphs, and capture what optimize() returns", 2
            )  # fmt: skip
        self.report = Report()
        self._db = db or connect()
        self._fallback: Fallback = fallback
        self._trials = trials
        self._seconds = seconds
        self._tunes = trials > 0 or seconds > 0
        self._progress = progress
        self._rest = rest
        self._options = dict(options or {})
        self._untuned = self._options
        if any(self._options.get(key) for key in _AUTOTUNING):
            self._untuned = {key: value for key, value in self._options.items() if key not in _AUTOTUNING}
        self._choice_seconds = choice_seconds

    def __call__(self, module: Any, inputs: list[Any], **_: Any) -> Any:
        from torch._dynamo.backends.common import aot_autograd

        if self._rest == "inductor":
            tensors = [*module.parameters(), *(x for x in inputs if isinstance(x, torch.Tensor))]
            why = ""
            if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
                why = _NEEDS_GRADIENTS
            elif not all(isinstance(size, int) for x in inputs for size in getattr(x, "shape", [x])):
                why = "its sizes are known at a call only: compile the model with dynamic=False"
            if why:
                from torch._inductor.compile_fx import compile_fx

                self.report.left["a graph"] = why
                return compile_fx(module, inputs, config_patches=self._options)
        compiler: Any = aot_autograd(fw_compiler=self._leave, inference_compiler=self._compile)
        return compiler(module, inputs)

    def _leave(self, module: Any, inputs: list[Any]) -> Any:
        from functorch.compile import make_boxed_func

        self.report.left["a graph"] = _NEEDS_GRADIENTS
        return make_boxed_func(module.forward)

    def _compile(self, module: Any, inputs: list[Any]) -> Any:
        from functorch.compile import make_boxed_func

        if self._rest == "eager":
            module = in_channels_last(module)
            candidates = self._candidates(module)
            self.report.uses += [one.use for one in candidates]
            return make_boxed_func(_with_all(module, candidates).forward)
        compiled: Any = None
        without_gradients: Any = torch.no_grad()(lambda call, *given: call(*given))

        def run(*arguments: Any) -> Any:
            nonlocal compiled
            # Not before the first call: its tensors are what the choice is measured on. In a thread of its own, as
            # this one is in a mode of AOTAutograd's that looks at all that a first call does.
            if compiled is None:
                with ThreadPoolExecutor(max_workers=1) as thread:
                    compiled = thread.submit(without_gradients, self._fastest, module, arguments).result()
            return compiled(*arguments)

        return make_boxed_func(run)

    def _candidates(self, module: Any) -> list[_Candidate]:
        """Tunes what is wanted and not known, and makes the kernels of a graph's groups."""
        found = Extractor(graph_of(module)).run()
        groups: dict[str, list[Group]] = {}
        for group in found.groups:
            if group.kind.split("_nt")[0].split("_tn")[0].split("_tt")[0] in _KINDS:
                groups.setdefault(f"{group.operator} {group.shape} {group.dtype}", []).append(group)
        values = (node.meta["val"] for node in module.graph.nodes if is_tensor(node))
        device = next((_device(value.device) for value in values), "auto")
        # A thread of each mostly waits for a program of its own.
        with ThreadPoolExecutor(max_workers=max(8, os.cpu_count() or 1)) as pool:
            if self._tunes:
                known = pool.map(lambda same: self._is_known(found, same[0], device), groups.values())
                unknown = [same[0] for same, is_known in zip(groups.values(), known, strict=True) if not is_known]
                try:
                    self._tune(found, unknown, device)
                except HeddleError as why:  # what has no schedule for that is left to Inductor
                    self.report.left["tuning"] = str(why)
            kernels = list(pool.map(lambda same: self._kernel(found, same[0], device), groups.values()))
        candidates = []
        for same, kernel in zip(groups.values(), kernels, strict=True):
            first = same[0]
            if isinstance(kernel, HeddleError):
                self.report.left[f"{first.operator} {dict(first.shape)}"] = str(kernel)
                continue
            assert kernel.record is not None
            use = Use(
                first.operator, dict(first.shape), len(same), kernel.record.match, kernel.record.time_us,
                found.operators[first.operator], first.dtype,
            )  # fmt: skip
            candidates.append(_Candidate(same, kernel, use))
        for kind, reasons in found.unknown.items():
            self.report.left.setdefault(kind, reasons[0][1])
        return candidates

    def _fastest(self, module: Any, inputs: tuple[Any, ...]) -> Callable[..., Any]:
        """The graph as Inductor compiles it, with those kernels that make it faster, if any does."""
        device = next((x.device for x in inputs if isinstance(x, torch.Tensor)), torch.device("cpu"))
        with self._step("kernels"):
            laid = self._laid(module, inputs)
            candidates = [place for one in self._candidates(laid) for place in _places(laid, one)]
        with self._step("choice"):
            faster, slower = self._faster(laid, inputs, candidates, device)
        self.report.slower += slower
        # A border that nothing is fused across can cost more than a kernel saves: those that save little are left out,
        # too.
        sets = {"all": faster, "clear": [one for one in faster if _ratio(one.use) < _CLEARLY]}
        sets = {kind: some for kind, some in sets.items() if some and (kind == "all" or len(some) < len(faster))}
        with self._step("whole"):
            whole = self._whole(module, laid, sets, inputs, device)
        if not faster:
            return whole.run
        inductor = whole.times[PLAIN]
        ours_us, best = min((us, kind) for kind, us in whole.times.items() if kind != PLAIN)
        self.report.inductor_us += inductor
        taken = sets[best]
        parts = [(one.use.weight * (one.use.ours_us or 0), _inductor_us(one.use)) for one in taken]
        rest = [*slower, *(one.use for one in faster if one not in taken)]
        self.report.predicted_us += predicted(inductor, parts, [_inductor_us(use) for use in rest])
        self.report.measured_us += min(inductor, ours_us)
        if whole.kind == PLAIN:
            taken = []
            self.report.left["a graph"] = f"{ours_us:.1f} us with kernels, {inductor:.1f} us by Inductor alone"
        self.report.uses += [one.use for one in taken]
        self.report.slower += [one.use for one in faster if one not in taken]
        return whole.run

    def _laid(self, module: Any, inputs: tuple[Any, ...]) -> Any:
        """The graph in channels last, if it computes the same so."""
        laid = in_channels_last(module)
        if laid is module:
            return module
        try:
            expected = torch.fx.Interpreter(module).run(*inputs)
            error = difference(torch.fx.Interpreter(laid).run(*inputs), expected)
            if error <= tolerance_of(expected):
                return laid
            why = f"the graph would differ by {error:.1e}"
        except Exception as refused:  # of whatever kind those of PyTorch's operators are
            why = f"{type(refused).__name__} {refused}"[:300]
        self.report.left["images with their channels last"] = why
        return module

    def _whole(
        self,
        module: Any,
        laid: Any,
        sets: Mapping[str, list[_Candidate]],
        inputs: tuple[Any, ...],
        device: torch.device,
    ) -> Whole:
        graphs = {kind: partial(_with_all, laid, some) for kind, some in sets.items()}
        kernels = [
            [kind, one.place, str(one.kernel.folder), [group.output for group in one.groups]]
            for kind, some in sets.items()
            for one in some
        ]
        return fastest(
            {PLAIN: lambda: module, **graphs},
            lambda graph, tuned: self._inductor(graph, inputs, self._options if tuned else self._untuned),
            self._untuned != self._options,
            inputs,
            device,
            self._kept("wholes", [_text_of(module), kernels], device),
        )

    def _inductor(self, module: Any, inputs: tuple[Any, ...], options: Mapping[str, Any]) -> Callable[..., Any]:
        import torch._inductor

        copy = with_kernels(module, [])  # it changes what it compiles
        declare(copy)
        compiled: Callable[..., Any] = torch._inductor.compile(copy, list(inputs), options=dict(options))
        return compiled

    def _kept(self, folder: str, key: list[Any], device: torch.device) -> Path:
        """The file of what was measured, by all that it depends on."""
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        text = json.dumps([key, self._options, torch.__version__, name], default=str)
        return cache_folder(folder) / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"

    def _faster(
        self, module: Any, inputs: tuple[Any, ...], candidates: list[_Candidate], device: torch.device
    ) -> tuple[list[_Candidate], list[Use]]:
        """Those whose kernel gives eager's result in less time than what Inductor makes of the same nodes; of the
        others what was measured."""
        values = _values(module, inputs, candidates)
        pairs: dict[int, Pair] = {}
        errors: dict[int, float] = {}
        for number, one in enumerate(candidates):
            first = one.groups[0]
            expected = values[first.output]
            call = KernelCall(one.kernel, first, expected)
            operands = {name: values[name] for name in call.names}
            try:
                errors[number] = difference(call(*operands.values()), expected)
            except HeddleError as why:
                self.report.left[one.what] = str(why)
                continue
            if errors[number] <= tolerance_of(expected):
                pairs[number] = Pair(first, call, operands)
            else:
                self.report.left[one.what] = f"differs from eager's result by {errors[number]:.1e}"
        found = self._compared(module, {number: candidates[number] for number in pairs}, pairs, device)
        faster, slower = list[_Candidate](), list[Use]()
        for number, (ours, inductor) in sorted(found.items()):
            one = candidates[number]
            use = replace(one.use, ours_us=ours, inductor_us=inductor, error=errors[number])
            if ours < _WORTH * inductor:
                faster.append(replace(one, use=use))
            else:
                slower.append(use)
        return faster, slower

    def _compared(
        self, module: Any, candidates: Mapping[int, _Candidate], pairs: Mapping[int, Pair], device: torch.device
    ) -> dict[int, tuple[float, float]]:
        """Microseconds of each kernel, and of what Inductor makes of the same nodes; kept for the next time."""
        found: dict[int, tuple[float, float]] = {}
        paths, missing = {}, []
        for number, one in candidates.items():
            paths[number] = self._kept("choices", [one.place, str(one.kernel.folder)], device)
            if paths[number].exists():
                times = json.loads(paths[number].read_text(encoding="utf-8"))
                found[number] = (times["ours"], times["inductor"])
            else:
                missing.append(number)
        # What takes most of the model's time comes first.
        missing.sort(key=lambda number: -candidates[number].use.weight * (candidates[number].use.time_us or 0))
        end = time.monotonic() + self._choice_seconds
        for begin in range(0, len(missing), _AT_ONCE):
            several = missing[begin : begin + _AT_ONCE]
            if time.monotonic() >= end:
                for number in several:
                    self.report.left[candidates[number].what] = f"not compared within {self._choice_seconds:g} s"
                continue
            # Untuned: autotuning would take minutes for all places, and seldom finds what is faster than libraries.
            compiler = partial(self._inductor, options=self._untuned)
            results = compared(module, [pairs[number] for number in several], compiler, device)
            _log.info("compared %d of %d", begin + len(several), len(missing))
            for number, result in zip(several, results, strict=True):
                if isinstance(result, Exception):  # Inductor may yet compile the whole
                    why = f"could not be compared: {type(result).__name__} {result}"
                    self.report.left[candidates[number].what] = why[:300]
                    continue
                found[number] = result
                keep_file(paths[number], json.dumps({"ours": result[0], "inductor": result[1]}))
        return found

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        begin = time.monotonic()
        yield
        took = time.monotonic() - begin
        self.report.seconds[name] = self.report.seconds.get(name, 0) + took
        _log.info("%s: %.1f s", name, took)

    def _is_known(self, found: Extraction, group: Group, device: str) -> bool:
        try:
            self._db.query(found.operator(group.operator), shape=group.shape, device=device, dtype=group.dtype)
        except NotFound:
            return False
        return True

    def _tune(self, found: Extraction, groups: list[Group], device: str) -> None:
        """Within one budget, in which what stands in the model often counts more."""
        wanted = {(group.operator, group.dtype, *group.shape.items()) for group in groups}
        workloads = [w for w in found.workloads if (w.operator, w.dtype, *w.shape.items()) in wanted]
        if not workloads:
            return
        with tempfile.TemporaryDirectory() as folder:
            lines, operators = Extraction(workloads, found.operators, {}).save(folder)
            # Where it stays, as what the program says of each result to try next names the file.
            text = operators.read_text(encoding="utf-8")
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            self._db.tune_workloads(
                lines,
                op_file=keep_file(cache_folder("operators") / f"{digest}.op", text),
                device=device,
                trials=self._trials,
                seconds=self._seconds / len(workloads),
                progress=self._progress,
            )

    def _kernel(self, found: Extraction, group: Group, device: str) -> Kernel | HeddleError:
        try:
            op = found.operator(group.operator)
            return self._db.kernel(op, shape=group.shape, device=device, fallback=self._fallback, dtype=group.dtype)
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
        found.append(Extractor(graph_of(in_channels_last(module))).run())
        return make_boxed_func(module.forward)

    reader: Any = aot_autograd(fw_compiler=compile, inference_compiler=compile)
    compiled: Any = torch.compile(model, backend=reader, fullgraph=True, dynamic=False)
    _expected(model, inputs)
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
    tolerance: float | None = None,
    progress: bool = True,
    rest: Rest = "inductor",
    options: Mapping[str, Any] | None = None,
    choice_seconds: float = 60,
) -> tuple[Callable[..., Any], Report]:
    """The model with kernels where these are faster, for inputs of these shapes; the rest is Inductor's (Backend, for
    `rest`, `options` and `choice_seconds`).

    `trials` and `seconds` tune what was not tuned before: so many trials for each workload, all searches within so
    long; without `trials` as many as fit, without either none. What has begun is measured to its end, some seconds for
    each workload. Inputs of other shapes, at a later call, get the schedules that are known. The
    result on `inputs` is compared with the model's own: HeddleError where it differs by more than `tolerance` of the
    largest element, by default 1e-3, 1e-2 for float16 and 5e-2 for bfloat16. What is returned runs without gradients.
    """
    made = Backend(
        db,
        fallback=fallback,
        trials=trials,
        seconds=seconds,
        progress=progress,
        rest=rest,
        options=options,
        choice_seconds=choice_seconds,
    )
    compiled: Any = torch.compile(model, backend=made, dynamic=False)

    def run(*arguments: Any, **named: Any) -> Any:
        with torch.no_grad():
            return compiled(*arguments, **named)

    expected = _expected(model, inputs)
    error = difference(run(*inputs), expected)
    if not error <= (tolerance_of(expected) if tolerance is None else tolerance):
        raise HeddleError(f"the model's result differs from eager's by {error:.1e} of its largest element")
    made.report.largest_error = error
    made._tunes = False  # what inputs of other shapes want is taken as it is known: a call is no search
    return run, made.report


def _expected(model: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """The model's own result. InvalidArgument where it takes no inputs of that number, or none in a tuple."""
    try:
        with torch.no_grad():
            return model(*inputs)
    except Exception as why:
        given = next((x for x in inputs if isinstance(x, (tuple, list, dict))), None)
        if inputs and (given is None or len(inputs) > 1):
            raise
        what = f"one {type(given).__name__}" if inputs else "no inputs"
        raise InvalidArgument(
            f"the model, called with {what}, raised {type(why).__name__}: {why}. Its inputs are given one by one, as "
            "it takes them: heddle.optimize(model, x, y), not (model, (x, y)) or [x, y]", 2
        ) from why  # fmt: skip


def _text_of(module: Any) -> list[str]:
    """A graph's nodes, and the forms of what they compute; of graphs that it refers to, too."""
    graphs = [(name, one) for name, one in module.named_modules() if isinstance(one, torch.fx.GraphModule)]
    return [f"{name} {node.format_node()} {form_of(node)}" for name, one in graphs for node in one.graph.nodes]


def _device(device: Any) -> str:
    return f"cuda:{device.index or 0}" if device.type == "cuda" else "auto" if device.type != "cpu" else "opencl:0"


def _ratio(use: Use) -> float:
    return (use.ours_us or 0) / (use.inductor_us or 1)


def _inductor_us(use: Use) -> float:
    """Of all groups of a use."""
    return use.weight * (use.inductor_us or 0)


def _with_all(module: Any, candidates: list[_Candidate]) -> Any:
    return with_kernels(module, [(group, one.kernel) for one in candidates for group in one.groups])


def _places(module: Any, one: _Candidate) -> list[_Candidate]:
    """One for each kind of place of a candidate's groups."""
    places: dict[str, list[Group]] = {}
    for group in one.groups:
        places.setdefault(place_of(module, group), []).append(group)
    return [
        replace(one, groups=groups, use=replace(one.use, weight=len(groups)), place=place)
        for place, groups in places.items()
    ]


def _values(module: Any, inputs: tuple[Any, ...], candidates: list[_Candidate]) -> dict[str, Any]:
    """What the first groups of all candidates read and compute, when the graph runs on these inputs."""
    wanted = set[str]()
    for one in candidates:
        wanted |= {one.groups[0].output, *operand_names(one.groups[0].operands)}
    values = {}

    class Recorder(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, n: Any) -> Any:
            value = super().run_node(n)
            if n.name in wanted:
                values[n.name] = value
            return value

    with torch.no_grad():
        Recorder(module).run(*inputs)
    return values
