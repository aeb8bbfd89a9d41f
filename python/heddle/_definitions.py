"""What single operators of a model are in tensor notation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from heddle._draft import Draft, Tensors, Unknown, elementwise_text, number
from heddle.extraction import CHANNELS_LAST, Folded, Node


def elementwise(tensors: Tensors, node: Node) -> Draft:
    shape = tensors.shape(node.output[0])
    if not shape:
        raise Unknown("it computes a single number")
    names = [f"d{d}" for d in range(len(shape))]
    group = Draft("map", [(f"i{d}", n) for d, n in enumerate(names)], [[d] for d in range(len(shape))],
                   dict(zip(names, shape, strict=True)), [])  # fmt: skip
    group.add(elementwise_text(tensors, node, lambda name: group.operand(tensors, name, shape)))
    group.suffix.append(node.op_type.lower())
    if not group.inputs:
        raise Unknown("all of its operands are constants")
    return group


def batch_norm(tensors: Tensors, node: Node) -> Draft:
    shape = tensors.shape(node.output[0])
    names = [f"d{d}" for d in range(len(shape))]
    group = Draft("map", [(f"i{d}", n) for d, n in enumerate(names)], [[d] for d in range(len(shape))],
                  dict(zip(names, shape, strict=True)), [])  # fmt: skip
    normalise(group, node, group.operand(tensors, node.input[0], shape))
    return group


def normalise(group: Draft, node: Node, x: str) -> None:
    """y = x * factor[c] + offset[c]. Behind a convolution the factor goes into its weights, the offset into its
    bias."""
    if len(node.output) > 1 and any(node.output[1:]):
        raise Unknown("it trains")
    if [1] not in group.dims:
        raise Unknown("its channels are no axis of what is before it")
    channel, extent = group.axes[group.dims.index([1])]
    epsilon = float(node.attributes.get("epsilon", 1e-5))

    def folded(what: str, tensor: str | Folded = "") -> Folded:
        if isinstance(tensor, Folded):
            assert tensor.what == "itself"
            tensor = tensor.tensor
        return Folded(what, tensor, tuple(node.input[1:]), epsilon)

    if group.folds and group.suffix in ([], ["bias"]):
        group.folds = False
        group.operands[1] = folded("weights", group.operands[1])
        if group.suffix:
            group.operands[2] = folded("offset", group.operands[2])
        else:
            group.inputs.append(f"bias[{extent}]")
            group.operands.append(folded("offset"))
            group.add(f"{x} + bias[{channel}]")
            group.suffix.append("bias")
        return
    factor, offset = f"In{len(group.inputs)}", f"In{len(group.inputs) + 1}"
    group.inputs += [f"{factor}[{extent}]", f"{offset}[{extent}]"]
    group.operands += [folded("factor"), folded("offset")]
    group.add(f"{x} * {factor}[{channel}] + {offset}[{channel}]")
    group.suffix.append("batchnormalization")


# ------------------------------------------------------------------------- products and convolutions


def matmul(tensors: Tensors, node: Node) -> Draft:
    a, b = (tensors.shape(name) for name in node.input)
    if len(a) < 2 or len(b) < 2:
        raise Unknown("one of its operands is a vector")
    rank = max(len(a), len(b))
    if len(b) == 2:  # all of A's leading dimensions are rows
        shape = {"m": math.prod(a[:-1]), "n": b[-1], "k": a[-1]}
        axes, dims = [("i", "m"), ("j", "n")], [[*range(rank - 1)], [rank - 1]]
        source, order = tensors.untransposed(node.input[1])
        if order == [1, 0]:  # the weights of a linear layer, as PyTorch keeps them
            operands: list[str | Folded] = [node.input[0], source]
            group = Draft("matmul_nt", axes, dims, shape, ["A[m, k]", "B[n, k]"], operands, past=[node.input[1]])
            group.add("sum(r: k) A[i, r] * B[j, r]")
            return group
        group = Draft("matmul", axes, dims, shape, ["A[m, k]", "B[k, n]"])
        group.add("sum(r: k) A[i, r] * B[r, j]")
        return group
    if a[:-2] != b[:-2]:
        raise Unknown(f"its batches {a[:-2]} and {b[:-2]} are broadcast")
    shape = {"b": math.prod(a[:-2]), "m": a[-2], "n": b[-1], "k": a[-1]}
    axes, dims = [("z", "b"), ("i", "m"), ("j", "n")], [[*range(rank - 2)], [rank - 2], [rank - 1]]
    group = Draft("batch_matmul", axes, dims, shape, ["A[b, m, k]", "B[b, k, n]"])
    group.add("sum(r: k) A[z, i, r] * B[z, r, j]")
    return group


def gemm(tensors: Tensors, node: Node) -> Draft:
    a, b = (tensors.shape(name) for name in node.input[:2])
    of = node.attributes
    ta, tb = bool(of.get("transA", 0)), bool(of.get("transB", 0))
    shape = {"m": a[1] if ta else a[0], "n": b[0] if tb else b[1], "k": a[0] if ta else a[1]}
    inputs = ["A[k, m]" if ta else "A[m, k]", "B[n, k]" if tb else "B[k, n]"]
    kind = "matmul" + {(0, 0): "", (0, 1): "_nt", (1, 0): "_tn", (1, 1): "_tt"}[ta, tb]
    group = Draft(kind, [("i", "m"), ("j", "n")], [[0], [1]], shape, inputs)
    group.add(f"sum(r: k) A[{'r, i' if ta else 'i, r'}] * B[{'j, r' if tb else 'r, j'}]")
    alpha, beta = float(of.get("alpha", 1.0)), float(of.get("beta", 1.0))
    value = group.read("T0") + (f" * {number(alpha)}" if alpha != 1 else "")
    if len(node.input) > 2 and node.input[2] and beta != 0:
        operand = group.operand(tensors, node.input[2], [shape["m"], shape["n"]])
        value += f" + {operand}" + (f" * {number(beta)}" if beta != 1 else "")
        group.suffix.append("add")
    if value != group.read("T0"):
        group.add(value)
    return group


def _window(node: Node, x: list[int], kernel: Sequence[int]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Strides, dilations, padding (top, left, bottom, right) and the output's height and width."""
    of = node.attributes
    strides, dilations = list(of.get("strides", [1, 1])), list(of.get("dilations", [1, 1]))
    pads = list(of.get("pads", [0, 0, 0, 0]))
    mode = of.get("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID"):
        pads = []
        totals = []
        for size, step, length, apart in zip(x[2:], strides, kernel, dilations, strict=True):
            totals.append(max(0, (math.ceil(size / step) - 1) * step + (length - 1) * apart + 1 - size))
        before = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in totals]
        pads = before + [t - b for t, b in zip(totals, before, strict=True)]
    out = [(x[2 + d] + pads[d] + pads[2 + d] - (kernel[d] - 1) * dilations[d] - 1) // strides[d] + 1 for d in (0, 1)]
    return strides, dilations, pads, out


def _image(is_last: bool, n: str, c: str, h: str, w: str) -> str:
    """Indices or extents of an image's dimensions, or of weights' by their inputs, in the order that they lie in."""
    return ", ".join([n, h, w, c] if is_last else [n, c, h, w])


def _windowed(
    group: Draft,
    channel: str,
    strides: list[int],
    dilations: list[int],
    pads: list[int],
    fill: str,
    is_last: bool = False,
) -> str:
    """The text of X's element under the window; where there is padding, of a stage P that has it. `is_last`: the
    channels are the last dimension."""
    top, left, bottom, right = pads
    across = []
    for out, step, ring, apart in zip("yx", strides, ("ry", "rx"), dilations, strict=True):
        across.append((out if step == 1 else f"{out}*{step}") + f" + {ring if apart == 1 else f'{ring}*{apart}'}")
    index = f"[{_image(is_last, 'b', channel, *across)}]"
    if not any(pads):
        return f"X{index}"
    axes = _image(is_last, "b: n", "c: ci", f"y: h + {top + bottom}", f"x: w + {left + right}")
    inner = _image(is_last, "b", "c", f"y - {top}", f"x - {left}")
    group.stages.append(
        f"P[{axes}] = select(y >= {top} && y < {top} + h && x >= {left} && x < {left} + w, X[{inner}], {fill})"
    )
    return f"P{index}"


def _extent(size: str, pad: int, kernel: str, step: int, apart: int) -> str:
    span = f"({kernel} - 1)*{apart} - 1" if apart != 1 else kernel
    inner = f"{size} + {pad} - {span}" if pad else f"{size} - {span}"
    return f"({inner}) / {step} + 1" if step != 1 else f"{inner} + 1"


def _lay_out(tensors: Tensors, group: Draft, node: Node, out: str, w_order: tuple[int, ...], is_last: bool) -> None:
    """The axes of a convolution's result, and in which order its operands' dimensions are read: weights whose order is
    `w_order` where the channels come last are laid out once, if they are no result of the graph's."""
    group.axes = [("b", "n"), ("o", out), ("y", "oh"), ("x", "ow")]
    group.dims = [[0], [1], [2], [3]]
    if is_last:
        group.axes = [group.axes[d] for d in CHANNELS_LAST]
        group.dims = [[d] for d in CHANNELS_LAST]
        group.orders = {0: CHANNELS_LAST, 1: w_order}
        if tensors.is_given(node.input[1]):
            group.operands = [node.input[0], Folded("itself", node.input[1])]
            group.operands += [name for name in node.input[2:3] if name]


def conv(tensors: Tensors, node: Node) -> Draft:
    x, w = (tensors.shape(name) for name in node.input[:2])
    if len(x) != 4:
        raise Unknown(f"it has {len(x) - 2} dimensions; those of images, with two, are known")
    groups = int(node.attributes.get("group", 1))
    strides, dilations, pads, _ = _window(node, x, w[2:])
    depthwise = groups == x[1] == w[0] and groups > 1
    shape = {"n": x[0], "ci": x[1], "h": x[2], "w": x[3]}
    shape |= {} if depthwise else {"co": w[0]}
    shape |= {"kh": w[2], "kw": w[3]}
    group = Draft("depthwise_conv2d" if depthwise else "conv2d" if groups == 1 else "grouped_conv2d", [], [], shape, [])
    group.lets = [
        f"o{side} = {_extent(side, pads[d] + pads[2 + d], f'k{side}', strides[d], dilations[d])}"
        for d, side in enumerate("hw")
    ]
    is_last = tensors.graph.orders.get(node.input[0]) == CHANNELS_LAST
    taps = "ry: kh, rx: kw"
    x_extents = _image(is_last, "n", "ci", "h", "w")
    w_order = CHANNELS_LAST
    if depthwise:
        w_extents, tap = ("kh, kw, ci", "ry, rx, o") if is_last else ("ci, kh, kw", "o, ry, rx")
        w_order = (2, 3, 1, 0)
        element = _windowed(group, "o", strides, dilations, pads, "0", is_last)
        value, out = f"sum({taps}) {element} * W[{tap}]", "ci"
    elif groups == 1:
        w_extents, tap = _image(is_last, "co", "ci", "kh", "kw"), _image(is_last, "o", "c", "ry", "rx")
        element = _windowed(group, "c", strides, dilations, pads, "0", is_last)
        over = f"{taps}, c: ci" if is_last else f"c: ci, {taps}"
        value, out = f"sum({over}) {element} * W[{tap}]", "co"
    else:
        shape["g"] = groups
        group.lets += ["cig = ci / g", "cog = co / g"]
        w_extents, tap = _image(is_last, "co", "cig", "kh", "kw"), _image(is_last, "o", "q", "ry", "rx")
        element = _windowed(group, "o / cog * cig + q", strides, dilations, pads, "0", is_last)
        over = f"{taps}, q: cig" if is_last else f"q: cig, {taps}"
        value, out = f"sum({over}) {element} * W[{tap}]", "co"
    group.inputs = [f"X[{x_extents}]", f"W[{w_extents}]"]
    group.folds = tensors.is_given(node.input[1])
    _lay_out(tensors, group, node, out, w_order, is_last)
    sums = group.add(value)
    if len(node.input) > 2 and node.input[2]:
        group.inputs.append(f"bias[{out}]")
        group.add(f"{group.read(sums)} + bias[o]")
        group.suffix.append("bias")
    return group


def conv_transpose(tensors: Tensors, node: Node) -> Draft:
    x, w = (tensors.shape(name) for name in node.input[:2])
    of = node.attributes
    if len(x) != 4 or int(of.get("group", 1)) != 1 or of.get("auto_pad", "NOTSET") != "NOTSET":
        raise Unknown("only transposed convolutions of images, without groups and auto_pad, are known")
    strides, dilations, pads, _ = _window(node, x, w[2:])
    shape = {"n": x[0], "ci": x[1], "h": x[2], "w": x[3], "co": w[1], "kh": w[2], "kw": w[3]}
    is_last = tensors.graph.orders.get(node.input[0]) == CHANNELS_LAST
    w_extents, tap = ("co, kh, kw, ci", "o, ry, rx, c") if is_last else ("ci, co, kh, kw", "c, o, ry, rx")
    group = Draft("conv_transpose2d", [], [], shape, [f"X[{_image(is_last, 'n', 'ci', 'h', 'w')}]", f"W[{w_extents}]"])
    _lay_out(tensors, group, node, "co", (1, 2, 3, 0), is_last)
    conditions, indices = [], []
    more = list(of.get("output_padding", [0, 0]))
    for d, (side, out, ring) in enumerate((("h", "y", "ry"), ("w", "x", "rx"))):
        step, apart = strides[d], dilations[d]
        reach = f"k{side}" if apart == 1 else f"(k{side} - 1)*{apart} + 1"
        added = f" + {more[d]}" if more[d] else ""
        group.lets.append(f"o{side} = ({side} - 1)*{step} - {pads[d] + pads[2 + d]} + {reach}{added}")
        # The input's element that the window's tap spreads to here, where there is one.
        spread = f"({out} + {pads[d]} - {ring if apart == 1 else f'{ring}*{apart}'})"
        index = spread if step == 1 else f"{spread} / {step}"
        conditions += [f"{index} >= 0", f"{index} < {side}"]
        conditions += [] if step == 1 else [f"{spread} % {step} == 0"]
        indices.append(index)
    element = f"select({' && '.join(conditions)}, X[{_image(is_last, 'b', 'c', *indices)}], 0)"
    over = "ry: kh, rx: kw, c: ci" if is_last else "c: ci, ry: kh, rx: kw"
    sums = group.add(f"sum({over}) {element} * W[{tap}]")
    if len(node.input) > 2 and node.input[2]:
        group.inputs.append("bias[co]")
        group.add(f"{group.read(sums)} + bias[o]")
        group.suffix.append("bias")
    return group


# ------------------------------------------------------------------------------- operators by themselves


def max_pool(tensors: Tensors, node: Node) -> Draft:
    x = tensors.shape(node.input[0])
    of = node.attributes
    if len(x) != 4 or of.get("ceil_mode", 0) or (len(node.output) > 1 and node.output[1]):
        raise Unknown("only pooling of images, without ceil_mode and indices, is known")
    kernel = list(of["kernel_shape"])
    strides, dilations, pads, _ = _window(node, x, kernel)
    shape = {"n": x[0], "ci": x[1], "h": x[2], "w": x[3], "kh": kernel[0], "kw": kernel[1]}
    axes = [("b", "n"), ("o", "ci"), ("y", "oh"), ("x", "ow")]
    group = Draft("max_pool", axes, [[0], [1], [2], [3]], shape, ["X[n, ci, h, w]"])
    group.lets = [
        f"o{side} = {_extent(side, pads[d] + pads[2 + d], f'k{side}', strides[d], dilations[d])}"
        for d, side in enumerate("hw")
    ]
    group.add(f"max(ry: kh, rx: kw) {_windowed(group, 'o', strides, dilations, pads, '-inf')}")
    return group


def average(tensors: Tensors, node: Node) -> Draft:
    x = tensors.shape(node.input[0])
    shape = {"m": math.prod(x[:2]), "n": math.prod(x[2:])}
    group = Draft("row_mean", [("i", "m")], [[0, 1]], shape, ["X[m, n]"])
    group.add("sum(r: n) X[i, r]")
    group.add("T0[i] / n")
    return group


def _rows(tensors: Tensors, node: Node, kind: str, axis: int) -> Draft:
    x = tensors.shape(node.input[0])
    if axis not in (-1, len(x) - 1):
        raise Unknown(f"axis {axis} is not the last one")
    shape = {"m": math.prod(x[:-1]), "n": x[-1]}
    return Draft(kind, [("i", "m"), ("j", "n")], [[*range(len(x) - 1)], [len(x) - 1]], shape, ["X[m, n]"])


def softmax(tensors: Tensors, node: Node) -> Draft:
    group = _rows(tensors, node, "softmax", int(node.attributes.get("axis", -1)))
    group.stages = [
        "Max[i: m] = max(r: n) X[i, r]",
        "E[i: m, j: n] = exp(X[i, j] - Max[i])",
        "Sum[i: m] = sum(r: n) E[i, r]",
        "Y[i: m, j: n] = E[i, j] / Sum[i]",
    ]
    return group


def layer_norm(tensors: Tensors, node: Node) -> Draft:
    of = node.attributes
    group = _rows(tensors, node, "layer_norm", int(of.get("axis", -1)))
    if any(node.output[1:]):
        raise Unknown("its mean or deviation is read, too")
    biased = len(node.input) > 2 and bool(node.input[2])
    group.inputs += ["G[n]", "B[n]"] if biased else ["G[n]"]
    group.stages = [
        "Sum[i: m] = sum(r: n) X[i, r]",
        "D[i: m, j: n] = X[i, j] - Sum[i] / n",
        "V[i: m] = sum(r: n) D[i, r] * D[i, r]",
        f"Scale[i: m] = rsqrt(V[i] / n + {number(of.get('epsilon', 1e-5))})",
        "Y[i: m, j: n] = D[i, j] * Scale[i] * G[j]" + (" + B[j]" if biased else ""),
    ]
    return group


def group_norm(tensors: Tensors, node: Node) -> Draft:
    x, of = tensors.shape(node.input[0]), node.attributes
    groups = int(of["num_groups"])
    if len(x) < 3 or tensors.shape(node.input[1]) != [x[1]]:
        raise Unknown("only with a scale and an offset for each channel of images it is known")
    shape = {"n": x[0], "g": groups, "c": x[1] // groups, "s": math.prod(x[2:])}
    axes = [("b", "n"), ("q", "g"), ("k", "c"), ("x", "s")]
    group = Draft("group_norm", axes, [[0], [1], [1], [*range(2, len(x))]], shape,
                  ["X[n, g, c, s]", "G[g, c]", "B[g, c]"])  # fmt: skip
    group.stages = [
        "Sum[b: n, q: g] = sum(k: c, x: s) X[b, q, k, x]",
        "D[b: n, q: g, k: c, x: s] = X[b, q, k, x] - Sum[b, q] / (c*s)",
        "V[b: n, q: g] = sum(k: c, x: s) D[b, q, k, x] * D[b, q, k, x]",
        f"Scale[b: n, q: g] = rsqrt(V[b, q] / (c*s) + {number(of.get('epsilon', 1e-5))})",
    ]
    group.add("D[b, q, k, x] * Scale[b, q] * G[q, k] + B[q, k]", "Y")
    return group


def transpose(tensors: Tensors, node: Node) -> Draft:
    x = tensors.shape(node.input[0])
    order = list(node.attributes.get("perm", reversed(range(len(x)))))
    axes = [(f"i{d}", f"d{d}") for d in order]
    shape = {f"d{d}": size for d, size in enumerate(x)}
    group = Draft("transpose_" + "".join(map(str, order)), axes, [[d] for d in range(len(x))], shape, [])
    group.inputs = [f"X[{', '.join(shape)}]"]
    group.add(f"X[{', '.join(f'i{d}' for d in range(len(x)))}]")
    return group
