"""Graphs of PyTorch whose images lie with their channels beside each other, as matrix units like them."""

from __future__ import annotations

import logging
from typing import Any

import torch

from heddle._aten import is_tensor, memory_order

_log = logging.getLogger("heddle")

_TYPES = (torch.float16, torch.bfloat16)
# Of a tensor that lies otherwise there is no view; reshape() copies then.
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
# What these compute depends on how their argument lies.
_PLACES = ("aten.as_strided", "aten.view.dtype", "aten.view_as_complex", "aten.view_as_real")
# PyTorch chose these for tensors that lie as they do.
_CHOSEN = ("aten.native_group_norm", "aten._scaled_dot_product")


def in_channels_last(module: Any) -> Any:
    """The graph with the inputs of its convolutions in 16 bits laid out as [n, h, w, c], from which on PyTorch's
    operators keep that layout; the same graph where it has none, or where that cannot be done. Its results, and what
    operators that are not PyTorch's read, are laid out as they were."""
    nodes = module.graph.nodes
    if not any(_is_convolution(node) and _should_change(node.args[0].meta["val"]) for node in nodes):
        return module
    place = next((node for node in nodes if str(node.target).startswith(_PLACES)), None)
    if place is not None:
        _log.info("images stay as they lie: %s reads a tensor by its place in memory", place.target)
        return module
    modes = [value.fake_mode for value in map(_value, nodes) if hasattr(value, "fake_mode")]
    try:
        return _Laid(module, modes[0]).run()
    except Exception as why:  # of whatever kind those of PyTorch's operators are
        _log.info("images stay as they lie: %s: %s", type(why).__name__, why)
        return module


def _value(node: Any) -> Any:
    return node.meta.get("val")


def _is_convolution(node: Any) -> bool:
    return bool(node.target == torch.ops.aten.convolution.default) and is_tensor(node.args[0])


def _should_change(value: Any) -> bool:
    # One pixel, or one channel, lies both ways; a first layer's few channels do not, whose copy is small.
    return value.dim() == 4 and value.dtype in _TYPES and not value.is_contiguous(memory_format=torch.channels_last)


def _reads_layout(node: Any) -> bool:
    """May it be given tensors only as they lay when the graph was traced?"""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False  # a part of a tuple
    return node.target.namespace not in ("aten", "prims") or str(node.target).startswith(_CHOSEN)


class _Laid:
    """The copy of a graph; run() once."""

    def __init__(self, module: Any, fake_mode: Any) -> None:
        self._module, self._fake_mode = module, fake_mode
        self._graph = torch.fx.Graph()
        self._copies: dict[Any, Any] = {}  # of the module's nodes
        self._as_traced: dict[Any, Any] = {}  # of those that lie otherwise now

    def run(self) -> Any:
        for node in self._module.graph.nodes:
            if node.op == "output":
                self._graph.output(torch.fx.map_arg(node.args[0], self._before))
            elif node.op == "call_function":
                self._copies[node] = self._copy(node)
            else:
                self._copies[node] = self._graph.node_copy(node, self._copies.__getitem__)
        return torch.fx.GraphModule(self._module, self._graph)

    def _copy(self, node: Any) -> Any:
        of = self._before if _reads_layout(node) else self._copies.__getitem__
        arguments, named = torch.fx.map_arg((node.args, node.kwargs), of)
        if _is_convolution(node) and _should_change(_value(arguments[0])):
            arguments = (self._clone(arguments[0], torch.channels_last), *arguments[1:])
        copy = self._call(node.target, arguments, named)
        copy.meta = {**node.meta, "val": _value(copy)}
        return copy

    def _call(self, target: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Adds a node, with its value's form."""
        values = torch.fx.map_arg((arguments, named), _value)
        with self._fake_mode, torch.no_grad():
            try:
                value = target(*values[0], **values[1])
            except (RuntimeError, ValueError):
                if target not in _VIEWS:
                    raise
                target = torch.ops.aten.reshape.default
                value = target(*values[0], **values[1])
        node = self._graph.call_function(target, arguments, named)
        node.meta["val"] = value
        return node

    def _clone(self, copy: Any, layout: torch.memory_format) -> Any:
        return self._call(torch.ops.aten.clone.default, (copy,), {"memory_format": layout})

    def _before(self, node: Any) -> Any:
        """The copy of a node with the strides that whoever reads it was traced with."""
        copy, old = self._copies[node], _value(node)
        if not isinstance(old, torch.Tensor) or old.stride() == _value(copy).stride():
            return copy
        if node not in self._as_traced:
            order = tuple(range(old.dim())) if old.is_contiguous() else memory_order(old)
            if order is None:
                raise ValueError(f"{node} lies as {old.stride()}")
            if order == tuple(range(old.dim())):
                self._as_traced[node] = self._clone(copy, torch.contiguous_format)
            else:
                permute = torch.ops.aten.permute.default
                dense = self._clone(self._call(permute, (copy, list(order)), {}), torch.contiguous_format)
                self._as_traced[node] = self._call(permute, (dense, [order.index(d) for d in range(old.dim())]), {})
        return self._as_traced[node]
