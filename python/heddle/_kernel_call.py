"""Kernels in graphs of PyTorch: what computes a group of a graph's nodes, as one operator that compilers take whole."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from heddle.extraction import Folded, Group
from heddle.kernel import Kernel

# An operator ends with the Library that defined it.
_libraries: list[Any] = []


class KernelCall:
    """A kernel as a function of the graph's tensors, which have the shapes and layouts that the model gives them.

    What a batch normalisation makes of weights is kept for as long as these stay as they are.
    """

    def __init__(self, kernel: Kernel, operands: tuple[str | Folded, ...], like: torch.Tensor) -> None:
        """`operands`: the graph's tensors for each of the kernel's inputs; `like`: of the form of the result."""
        self._kernel = kernel
        self._operands = operands
        self._shape, self._strides = tuple(like.shape), tuple(like.stride())
        self._is_dense = like.is_contiguous()
        self._kept: dict[int, tuple[Any, Any]] = {}  # of an operand's number: of which tensors it was made, and it
        # The graph's tensors that it takes, each once, in order.
        self.names = operand_names(operands)
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
        result = self._kernel(*given).reshape(self._shape)
        # What is behind it was traced with these strides.
        return result if self._is_dense else self._empty(result).copy_(result)

    def _empty(self, other: Any) -> Any:
        dtype = getattr(torch, self._kernel.outputs[0].dtype)
        return other.new_empty_strided(self._shape, self._strides, dtype=dtype)

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
            self._kept[number] = (state, value.to(getattr(torch, self._kernel.inputs[number].dtype)))
        return self._kept[number][1]

    def define(self) -> Any:
        """The same as an operator of PyTorch, torch.ops.heddle_fx...., whose inputs keep the strides of the trace."""
        # Inductor keeps compiled graphs from process to process by their operators' names: what is another kernel, or
        # gives another form, is called otherwise.
        form = f"{self._kernel.folder} {self._operands} {self._shape} {self._strides}"
        digest = hashlib.sha256(form.encode()).hexdigest()[:12]
        name = f"{self.__name__}_{digest}_{len(_libraries)}"
        library: Any = torch.library.Library("heddle_fx", "FRAGMENT")
        exact = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
        tensors = ", ".join(f"Tensor t{number}" for number in range(len(self.names)))
        library.define(f"{name}({tensors}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag, exact))
        library.impl(name, self, "CompositeExplicitAutograd")
        torch.library.register_fake(f"heddle_fx::{name}", lambda *given: self._empty(given[0]), lib=library)
        _libraries.append(library)
        return getattr(torch.ops.heddle_fx, name).default


def operand_names(operands: tuple[str | Folded, ...]) -> tuple[str, ...]:
    read = [(one.tensor, *one.norm) if isinstance(one, Folded) else (one,) for one in operands]
    return tuple(dict.fromkeys(name for names in read for name in names if name))


def with_kernels(module: Any, chosen: list[tuple[Group, Kernel]]) -> Any:
    """A copy of a graph in which kernels stand in the place of groups of nodes."""
    graph, copies = torch.fx.Graph(), dict[Any, Any]()
    graph.output(graph.graph_copy(module.graph, copies))
    nodes = {node.name: copy for node, copy in copies.items()}
    for group, kernel in chosen:
        last = nodes[group.output]
        call = KernelCall(kernel, group.operands, last.meta["val"])
        with graph.inserting_after(last):
            made = graph.call_function(call.define(), tuple(nodes[name] for name in call.names))
        made.meta = dict(last.meta)
        last.replace_all_uses_with(made)
        graph.erase_node(last)
        nodes[group.output] = made  # for groups that read it
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(module, graph)


def alone(module: Any, group: Group) -> Any:
    """The nodes of one group as a graph of their own, whose inputs are operand_names(group.operands)."""
    nodes = {node.name: node for node in module.graph.nodes}
    graph = torch.fx.Graph()
    copies = {}
    for name in operand_names(group.operands):
        copies[nodes[name]] = graph.placeholder(name)
    wanted, pending = set[Any](), [nodes[group.output]]
    while pending:
        node = pending.pop()
        if node not in wanted and node not in copies:
            wanted.add(node)
            pending += node.all_input_nodes
    for node in module.graph.nodes:
        if node in wanted:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output((copies[nodes[group.output]],))
    return torch.fx.GraphModule(module, graph)
