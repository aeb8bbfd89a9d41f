"""Kernels as operators of PyTorch, which torch.compile and torch.export take whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from heddle._arrays import check_gradient, check_index
from heddle.artefact import Buffer
from heddle.errors import InvalidArgument, TensorError
from heddle.kernel import Kernel

if TYPE_CHECKING:
    from heddle.table import Table

EXACT_STRIDES: Any = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)

# An operator ends with the Library that defined it.
_libraries: list[Any] = []


# How many modes look at functions of Python and at what is dispatched, and is anything profiled?
_functions: Any = getattr(torch._C, "_len_torch_function_stack", None)
_modes: Any = getattr(torch._C, "_len_torch_dispatch_stack", None)
_is_profiling: Any = getattr(getattr(torch._C, "_autograd", None), "_profiler_enabled", None)


class _Packet(torch._ops.OpOverloadPacket):  # type: ignore[misc]
    """An operator whose calls go to its kernel directly where the dispatcher would do nothing else.

    That is where the inputs are as they were when the kernel learned them, in their Python types and in what of their
    dispatch keys counts on this thread, which transforms, autocast and tracing change. Modes, of which not all do,
    profilers and forward differentiation are asked for here. The dispatcher costs more than all else in a call.
    """

    heddle_quick: Callable[..., Any]
    heddle_inputs: int

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        looked_at = _functions() or _modes() or _is_profiling() or forward_ad._current_level >= 0
        if len(args) == self.heddle_inputs and not named and not looked_at:
            result = self.heddle_quick(*args)
            if result is not None:
                return result
        return super().__call__(*args, **named)


def define(
    name: str,
    schema: str,
    run: Callable[..., Any],
    fake: Callable[..., Any],
    key: str = "CompositeExplicitAutograd",
    check: Callable[..., None] | None = None,
) -> Any:
    """Makes torch.ops.NS.NAME, for `name` "NS::NAME", of which nothing is recorded for a backward pass. `fake` gives
    the results' form while a graph is traced, and `run` is called with strides as they are then. `check` sees the
    inputs as whoever differentiates has them.

    It costs a call less than torch.library.custom_op.
    """
    namespace, _, op = name.partition("::")
    library: Any = torch.library.Library(namespace, "FRAGMENT")
    library.define(f"{op}{schema}", tags=(torch.Tag.pt2_compliant_tag, EXACT_STRIDES))
    library.impl(op, run, key)
    if check is not None:
        look: Callable[..., None] = check

        def checked(keys: Any, *inputs: Any) -> Any:
            look(*inputs)
            return overload.redispatch(keys & torch._C._after_autograd_keyset, *inputs)

        library.impl(op, checked, "Autograd", with_keyset=True)
    torch.library.register_fake(name, fake, lib=library)
    _libraries.append(library)
    packet = getattr(getattr(torch.ops, namespace), op)
    overload: Any = packet.default
    return packet


def register(kernel: Kernel | Table, name: str) -> Any:
    """Defines torch.ops.NS.NAME for `name` "NS::NAME", which calls `kernel`, and returns it.

    While a graph is traced it gives the shapes that the kernel would give, and refuses what the kernel would refuse; a
    table's free size may be a symbol. It has no backward pass, and refuses tensors that require a gradient.
    """
    namespace, separator, op = name.partition("::")
    if not separator or not namespace.isidentifier() or not op.isidentifier():
        raise InvalidArgument(f"an operator of PyTorch is called NAMESPACE::NAME, not {name}", 2)
    if hasattr(getattr(torch.ops, namespace), op):
        raise InvalidArgument(f"there is an operator {name} already: PyTorch keeps one for as long as it runs", 2)
    run: Callable[..., Any] = lambda *inputs: _contiguous(kernel(*inputs))  # noqa: E731
    if isinstance(kernel, Kernel):
        run = kernel.allocating  # the dispatcher has counted the inputs
    # Kernels refuse what would need a backward pass, and so does _fake().
    packet = define(
        name,
        _schema(kernel),
        run,
        lambda *inputs: _fake(kernel, inputs),
        check=partial(_check_derivatives, kernel.inputs),
        key="CUDA" if _first(kernel).device.startswith("cuda") else "CPU",
    )
    if isinstance(kernel, Kernel) and kernel.quick and _functions and _modes and _is_profiling:
        packet.__class__ = _Packet  # it stays the one that PyTorch knows
        packet.heddle_quick, packet.heddle_inputs = kernel.quick, len(kernel.inputs)
    return packet


def _check_derivatives(buffers: tuple[Buffer, ...], *inputs: Any) -> None:
    for tensor, buffer in zip(inputs, buffers, strict=True):
        check_gradient(tensor, buffer)
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
            raise TensorError(f"input {buffer}: has a tangent, which kernels do not carry on: pass its primal")


def _first(kernel: Kernel | Table) -> Kernel:
    return kernel if isinstance(kernel, Kernel) else kernel.kernels[kernel.sizes[0]]


def _schema(kernel: Kernel | Table) -> str:
    inputs = ", ".join(f"Tensor {b.name}" for b in kernel.inputs)
    outputs = ", ".join("Tensor" for _ in kernel.outputs)
    return f"({inputs}) -> {outputs if len(kernel.outputs) == 1 else f'({outputs})'}"


def _contiguous(result: Any) -> Any:
    """Of a table, the part of a larger output that is in use, as _fake() promised it."""
    if isinstance(result, tuple):
        return tuple(r.contiguous() for r in result)
    return result.contiguous()


def _fake(kernel: Kernel | Table, inputs: tuple[Any, ...]) -> Any:
    """The outputs' form, of inputs that have form alone."""
    size: Any = None
    if not isinstance(kernel, Kernel):
        index, dimension = kernel.measured
        size = inputs[index].shape[dimension]

    def shape(buffer: Buffer) -> tuple[Any, ...]:
        if isinstance(kernel, Kernel):
            return buffer.shape
        free = kernel.free(buffer)
        return tuple(size if d in free else n for d, n in enumerate(buffer.shape))

    for tensor, buffer in zip(inputs, kernel.inputs, strict=True):
        if tensor.dtype != getattr(torch, buffer.dtype) or tuple(tensor.shape) != shape(buffer):
            check_index(str(tensor.dtype).removeprefix("torch."), buffer)
            raise TensorError(
                f"input {buffer}: given {str(tensor.dtype).removeprefix('torch.')} of the shape {list(tensor.shape)}"
            )
        check_gradient(tensor, buffer)
    outputs = tuple(inputs[0].new_empty(shape(b), dtype=getattr(torch, b.dtype)) for b in kernel.outputs)
    return outputs[0] if len(outputs) == 1 else outputs
