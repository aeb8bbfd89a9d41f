"""Graphs of PyTorch whose images lie with their channels beside each other, as matrix units like them."""

from __future__ import annotations

import logging
from typing import Any

import torch

from heddle._aten import is_tensor

_log = logging.getLogger("heddle")

_TYPES = (torch.float16, torch.bfloat16)
# Refuse what lies otherwise.
_CONTIGUOUS = (torch.ops.aten.native_group_norm.default,)
# Of a tensor that lies otherwise there is no view; reshape() copies then.
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


def in_channels_last(module: Any) -> Any:
    """The graph with the inputs of its convolutions in 16 bits laid out as [n, h, w, c], from which on PyTorch's
    operators keep that layout; the same graph where it has none, or where that cannot be done. Its results are laid out
    as they were."""
    convolutions = [node for node in module.graph.nodes if _is_convolution(node)]
    if not any(_should_change(node.args[0].meta["val"]) for node in convolutions):
        return module
    modes = [value.fake_mode for value in map(_value, module.graph.nodes) if hasattr(value, "fake_mode")]
    try:
        return _changed(module, modes[0])
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


def _changed(module: Any, fake_mode: Any) -> Any:
    graph, copies = torch.fx.Graph(), dict[Any, Any]()

    def call(target: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Adds a node, with its value's new form."""
        values = torch.fx.map_arg((arguments, named), _value)
        with fake_mode, torch.no_grad():
            try:
                value = target(*values[0], **values[1])
            except (RuntimeError, ValueError):
                if target not in _VIEWS:
                    raise
                target = torch.ops.aten.reshape.default
                value = target(*values[0], **values[1])
        node = graph.call_function(target, arguments, named)
        node.meta["val"] = value
        return node

    for node in module.graph.nodes:
        if node.op == "output":
            results = torch.fx.map_arg(node.args[0], lambda one: _as_before(call, copies[one], one))
            graph.output(results)
        elif node.op != "call_function":
            copies[node] = graph.node_copy(node, copies.__getitem__)
        else:
            if node.target == torch.ops.aten.as_strided.default:
                raise ValueError("it reads a tensor by its place in memory")
            arguments, named = torch.fx.map_arg((node.args, node.kwargs), copies.__getitem__)
            wanted = None
            if _is_convolution(node) and _should_change(arguments[0].meta["val"]):
                wanted = torch.channels_last
            elif node.target in _CONTIGUOUS and not arguments[0].meta["val"].is_contiguous():
                wanted = torch.contiguous_format
            if wanted is not None:
                moved = call(torch.ops.aten.clone.default, arguments[:1], {"memory_format": wanted})
                arguments = (moved, *arguments[1:])
            copy = call(node.target, arguments, named)
            copy.meta = {**node.meta, "val": copy.meta["val"]}
            copies[node] = copy
    return torch.fx.GraphModule(module, graph)


def _as_before(call: Any, copy: Any, node: Any) -> Any:
    """A result with the strides that the code behind the graph was traced with."""
    old, new = node.meta.get("val"), copy.meta.get("val")
    if not isinstance(old, torch.Tensor) or old.stride() == new.stride():
        return copy
    if not old.is_contiguous():
        raise ValueError(f"a result lies as {old.stride()}")
    return call(torch.ops.aten.clone.default, (copy,), {"memory_format": torch.contiguous_format})
