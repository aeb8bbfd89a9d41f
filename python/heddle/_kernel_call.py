"""Kernels in graphs of PyTorch: what computes a group of a graph's nodes, as one operator that compilers take whole."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from heddle.extraction import Folded, Group
from heddle.kernel import Kernel
from heddle.torch import EXACT_STRIDES, define

ALIGNMENT = 16  # bytes, of the widest access

_numbers: dict[str, Iterator[int]] = {}  # of operators that are alike


class KernelCall:
    """A kernel as a function of the graph's tensors, which have the shapes and layouts that the model gives them.

    What is made of weights, by a batch normalisation or laid out anew, is kept for as long as these stay as they are.
    """

    def __init__(self, kernel: Kernel, group: Group, like: torch.Tensor) -> None:
        """`group`: what the kernel computes; `like`: of the form of the result."""
        self._kernel = kernel
        self._operands = group.operands
        self._orders, self._order = group.orders, group.order or tuple(range(like.dim()))
        self._shape, self._strides = tuple(like.shape), tuple(like.stride())
        own = self._in_place(torch.empty([self._shape[d] for d in self._order], device="meta")).stride()
        self._fits = all(n == 1 or a == b for n, a, b in zip(self._shape, own, self._strides, strict=True))
        self._kept: dict[int, _Kept] = {}  # of operands, by number
        # The graph's tensors that it takes, each once, in order.
        self.names = operand_names(group.operands)
        # As the graph's text shows it.
        self.__name__ = f"heddle_{kernel.manifest.op}"

    def __call__(self, *tensors: Any) -> Any:
        named = dict(zip(self.names, tensors, strict=True))
        given = []
        for number, buffer in enumerate(self._kernel.inputs):
            operand = self._operands[number]
            if isinstance(operand, str):
                tensor = self._in_order(number, named[operand].detach())
            else:
                tensor = self._folded(number, operand, named)
            tensor = tensor.reshape(buffer.shape).contiguous()
            given.append(tensor if tensor.data_ptr() % buffer.align == 0 else tensor.clone())
        result = self._kernel(*given)
        # What is behind it was traced with these strides.
        if self._fits:
            return result.as_strided(self._shape, self._strides)
        return self._empty(result).copy_(self._in_place(result.reshape([self._shape[d] for d in self._order])))

    def _in_order(self, number: int, tensor: Any) -> Any:
        """An operand with its dimensions in the order that the kernel reads them in."""
        order = self._orders.get(number)
        if order is None:
            return tensor
        return tensor.reshape([1] * (len(order) - tensor.dim()) + [*tensor.shape]).permute(order)

    def _in_place(self, result: Any) -> Any:
        """A result whose dimensions are in the kernel's order, in the graph's."""
        return result.permute([self._order.index(d) for d in range(len(self._order))])

    def _empty(self, other: Any) -> Any:
        dtype = getattr(torch, self._kernel.outputs[0].dtype)
        return other.new_empty_strided(self._shape, self._strides, dtype=dtype)

    def _folded(self, number: int, operand: Folded, named: dict[str, Any]) -> Any:
        tensor = named[operand.tensor].detach() if operand.tensor else None
        norm = [named[name].detach() for name in operand.norm]
        sources = [source for source in (*norm, tensor) if source is not None]
        kept = self._kept.get(number)
        if kept is not None and kept.is_of(sources):
            return kept.value
        with torch.inference_mode(False), torch.no_grad():  # what is kept may be written in another mode
            value = _computed(operand, tensor, norm).to(getattr(torch, self._kernel.inputs[number].dtype))
            value = self._in_order(number, value).contiguous()
        # Of tensors without versions it is not known when they change, and what a capture computes is there at its
        # replays alone. What lies right already is no copy.
        is_same = any(source.data_ptr() == value.data_ptr() for source in sources)
        if is_same or any(source.is_inference() for source in sources) or _is_capturing(value):
            return value
        if kept is not None:
            with torch.no_grad():
                value = kept.value.copy_(value)  # where it is, graphs that were captured read it
        self._kept[number] = _Kept(sources, value)
        _forget_what_is_gone()
        _calls.add(self)
        return value

    def define(self, role: str = "") -> Any:
        """The same as an operator of PyTorch, torch.ops.heddle_fx...., whose inputs keep the strides of the trace.
        `role` tells it from those that are for something else."""
        # Inductor keeps compiled graphs from process to process by their operators' names: what is another kernel, or
        # gives another form, is called otherwise.
        form = (
            f"{self._kernel.folder} {self._operands} {self._orders} {self._order} {self._shape} {self._strides} {role}"
        )
        digest = hashlib.sha256(form.encode()).hexdigest()[:12]
        number = next(_numbers.setdefault(digest, count()))
        name = f"heddle_fx::{self.__name__}_{digest}_{number}"
        tensors = ", ".join(f"Tensor t{number}" for number in range(len(self.names)))
        return define(name, f"({tensors}) -> Tensor", self, lambda *given: self._empty(given[0])).default


class _Kept:
    """What was made of tensors, as long as these are the same and as they were."""

    def __init__(self, sources: Sequence[Any], value: Any) -> None:
        self.value = value
        self._state = self._state_of(sources)
        # While there is a reference, no other tensor's memory is taken for this one's; it keeps none.
        self._memory = [StorageWeakRef(source.untyped_storage()) for source in sources]

    def is_of(self, sources: Sequence[Any]) -> bool:
        return self._state == self._state_of(sources) and not self.is_gone()

    def is_gone(self) -> bool:
        return any(memory.expired() for memory in self._memory)

    @staticmethod
    def _state_of(sources: Sequence[Any]) -> Any:
        # What changes a tensor raises its version.
        return _generation, [(s.data_ptr(), -1 if s.is_inference() else s._version) for s in sources]


_generation = 0
_calls: weakref.WeakSet[KernelCall] = weakref.WeakSet()  # that keep something


def forget_weights() -> None:
    """Has what was made of weights be made again at the next calls: after these were written past PyTorch's versions of
    tensors, as by `weight.data.copy_(...)` or kernels of others."""
    global _generation
    _generation += 1


def _forget_what_is_gone() -> None:
    """Operators stay; what they made of the weights of a model that is no more need not."""
    for call in list(_calls):
        for number, kept in list(call._kept.items()):
            if kept.is_gone():
                call._kept.pop(number, None)


def _is_capturing(tensor: Any) -> bool:
    return bool(tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _computed(operand: Folded, tensor: Any, norm: list[Any]) -> Any:
    if operand.what == "itself":
        return tensor
    scale, offset, mean, variance = norm
    factor = scale * torch.rsqrt(variance + operand.epsilon)
    if operand.what == "weights":
        return tensor * factor.reshape(-1, *[1] * (tensor.dim() - 1))
    if operand.what == "offset":
        return offset - mean * factor + (0 if tensor is None else tensor * factor)
    return factor


def declare(module: Any) -> None:
    """Tells Inductor that the operators of a graph which are this package's run as they are, on the strides that they
    were traced with: what it makes of an operator that it meets unprepared. There PyTorch 2.11 first writes out all
    that the operator reads, and all that this was made of: for hours, where paths of a graph divide and meet again as
    often as in a ResNet."""
    from torch._inductor import lowering

    constrain = getattr(lowering, "tag_to_layout_constraint", None)
    if constrain is None:  # older
        return
    for target in {node.target for node in module.graph.nodes if node.op == "call_function"}:
        if getattr(target, "namespace", "") == "heddle_fx" and target not in lowering.lowerings:
            lowering.make_fallback(target, layout_constraint=constrain(EXACT_STRIDES), warn=False)


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
        call = KernelCall(kernel, group, last.meta["val"])
        with graph.inserting_after(last):
            made = graph.call_function(call.define(), tuple(nodes[name] for name in call.names))
        made.meta = dict(last.meta)
        last.replace_all_uses_with(made)
        graph.erase_node(last)
        nodes[group.output] = made  # for groups that read it
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(module, graph)


def copied(module: Any, group: Group, graph: Any, given: Mapping[str, Any]) -> Any:
    """Adds the nodes of one group to a graph, behind `given` for operand_names(group.operands), and returns the last
    one."""
    nodes = {node.name: node for node in module.graph.nodes}
    copies = {nodes[name]: node for name, node in given.items()}
    wanted, pending = set[Any](), [nodes[group.output]]
    while pending:
        node = pending.pop()
        if node not in wanted and node not in copies:
            wanted.add(node)
            pending += node.all_input_nodes
    for node in module.graph.nodes:
        if node in wanted:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return copies[nodes[group.output]]


def place_of(module: Any, group: Group) -> str:
    """What tells one place of a group from another to which a compiler might make something else: its nodes, and types,
    shapes, strides and alignment of what they read and of the result."""
    graph = torch.fx.Graph()
    names = operand_names(group.operands)
    last = copied(module, group, graph, {name: graph.placeholder(name) for name in names})
    number = {node: f"%{i}" for i, node in enumerate(graph.nodes)}
    lines = [
        f"{number[node]} {node.target} {torch.fx.map_arg((node.args, node.kwargs), number.__getitem__)}"
        for node in graph.nodes
        if node.op != "placeholder"
    ]
    forms = {node.name: form_of(node) for node in module.graph.nodes if node.name in names}
    return "\n".join(map(str, [*(forms[name] for name in names), *lines, form_of(last)]))


def form_of(node: Any) -> tuple[Any, ...]:
    """What is known of a node's value before the graph runs."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return (type(value).__name__,)
    # What PyTorch allocates is aligned, so that it is the place in it that counts.
    offset = value.storage_offset() * value.element_size() % ALIGNMENT
    return (str(value.dtype), tuple(value.shape), value.stride(), offset)
