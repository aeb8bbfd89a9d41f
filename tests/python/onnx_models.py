"""The models of bench/models as PyTorch's exporters write them to ONNX, built here. Of weights there is the shape."""

import math

from onnx import TensorProto, helper

# The sizes of bench/models, which need PyTorch to be read.
MOBILE = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


class Builder:
    """`legacy`: as torch.onnx.export(dynamo=False) writes at version 17, else as it does of itself at version 20."""

    def __init__(self, legacy):
        self.legacy = legacy
        self.nodes, self.initializers, self.shapes = [], [], {}
        self.count = 0

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def weight(self, *shape):
        """As of a file whose weights lie beside it."""
        name = self.name()
        tensor = TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights")
        self.initializers.append(tensor)
        self.shapes[name] = list(shape)
        return name

    def constant(self, values, dims=None, kind=TensorProto.FLOAT):
        """The older exporter's constants are nodes."""
        name = self.name()
        dims = ([len(values)] if isinstance(values, list) else []) if dims is None else dims
        tensor = helper.make_tensor(name, kind, dims, values if isinstance(values, list) else [values])
        if self.legacy:
            self.nodes.append(helper.make_node("Constant", [], [name], name=f"/Constant_{name}", value=tensor))
        else:
            self.initializers.append(tensor)
        return name

    def integers(self, values, dims=None):
        return self.constant(values, dims, TensorProto.INT64)

    def add(self, kind, inputs, shape, **attributes):
        name = self.name()
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"node_{name}", **attributes))
        self.shapes[name] = shape
        return name

    def same(self, kind, inputs, **attributes):
        """With the shape of the first input."""
        return self.add(kind, inputs, self.shapes[inputs[0]], **attributes)

    def reshape(self, x, *shape):
        zeros = {"allowzero": 0 if self.legacy else 1}
        return self.add("Reshape", [x, self.integers(list(shape))], list(shape), **zeros)

    def transpose(self, x, *order):
        return self.add("Transpose", [x], [self.shapes[x][d] for d in order], perm=list(order))

    def conv(self, x, co, kernel, stride=1, groups=1):
        """With the batch normalisation behind it, which both exporters fold."""
        n, ci, h, w = self.shapes[x]
        pad = kernel // 2
        size = [(s + 2 * pad - kernel) // stride + 1 for s in (h, w)]
        of = {"group": groups, "strides": [stride] * 2, "pads": [pad] * 4, "dilations": [1, 1]}
        of |= {"kernel_shape": [kernel] * 2} if self.legacy else {"auto_pad": "NOTSET"}
        inputs = [x, self.weight(co, ci // groups, kernel, kernel), self.weight(co)]
        return self.add("Conv", inputs, [n, co, *size], **of)

    def pooled(self, x):
        """The mean of each image's channels, in two dimensions."""
        n, c = self.shapes[x][:2]
        if self.legacy:
            x = self.add("GlobalAveragePool", [x], [n, c, 1, 1])
            return self.add("Flatten", [x], [n, c], axis=1)
        axes = self.integers([-1, -2])
        return self.reshape(self.add("ReduceMean", [x, axes], [n, c, 1, 1], keepdims=1, noop_with_empty_axes=0), n, c)

    def gemm(self, x, size):
        m, k = self.shapes[x]
        return self.add("Gemm", [x, self.weight(size, k), self.weight(size)], [m, size], transB=1, alpha=1.0, beta=1.0)

    def linear(self, x, size):
        """Of more than two dimensions: the weights are transposed."""
        shape = [*self.shapes[x][:-1], size]
        product = self.add("MatMul", [x, self.weight(self.shapes[x][-1], size)], shape)
        bias = self.weight(size)
        return self.add("Add", [bias, product] if self.legacy else [product, bias], shape)

    def layer_norm(self, x):
        scales = [self.weight(self.shapes[x][-1]) for _ in range(2)]
        return self.same("LayerNormalization", [x, *scales], axis=-1, epsilon=1e-12)

    def gelu(self, x):
        if not self.legacy:
            return self.same("Gelu", [x], approximate="none")
        erf = self.same("Erf", [self.same("Div", [x, self.constant(math.sqrt(2))])])
        product = self.same("Mul", [x, self.same("Add", [erf, self.constant(1.0)])])
        return self.same("Mul", [product, self.constant(0.5)])

    def attention(self, x, heads):
        b, s, dim = self.shapes[x]
        d = dim // heads

        def split(y):
            return self.reshape(y, b, s, heads, d)

        q, k, v = (self.linear(x, dim) for _ in range(3))
        q, k, v = self.transpose(split(q), 0, 2, 1, 3), split(k), self.transpose(split(v), 0, 2, 1, 3)
        if self.legacy:
            # The factor is computed of the shape, once for the queries and once for the keys.
            one, many = self.integers([-1]), self.integers([2**63 - 1])
            size = self.add("Slice", [self.add("Shape", [q], [4]), one, many], [1])
            root = self.add("Sqrt", [self.add("Cast", [size], [1], to=TensorProto.FLOAT)], [1])
            factor = self.add("Div", [self.constant([1.0]), root], [1])
            factors = [self.add("Sqrt", [factor], [1]) for _ in range(2)]
            k = self.transpose(k, 0, 2, 3, 1)
        else:
            k = self.reshape(self.transpose(k, 0, 2, 1, 3), b * heads, s, d)
            k = self.reshape(self.transpose(k, 0, 2, 1), b, heads, d, s)
            factors = [self.constant([d**-0.25])] * 2
        q, k = self.same("Mul", [q, factors[0]]), self.same("Mul", [k, factors[1]])
        scores = self.same("Softmax", [self.add("MatMul", [q, k], [b, heads, s, s])], axis=-1)
        attended = self.transpose(self.add("MatMul", [scores, v], [b, heads, s, d]), 0, 2, 1, 3)
        return self.linear(self.reshape(attended, b, s, dim), dim)

    def model(self, results, **inputs):
        """`inputs`: the types of tensors that the model is given."""
        made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, self.shapes[n]) for n in results]
        given = [helper.make_tensor_value_info(n, kind, self.shapes[n]) for n, kind in inputs.items()]
        graph = helper.make_graph(self.nodes, "model", given, made, self.initializers)
        if not self.legacy:  # which writes shapes, too
            names = [node.output[0] for node in self.nodes]
            graph.value_info.extend(
                helper.make_tensor_value_info(n, TensorProto.FLOAT, self.shapes[n]) for n in names if n not in results
            )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17 if self.legacy else 20)])


def resnet50(legacy):
    g = Builder(legacy)
    g.shapes["x"] = [1, 3, 224, 224]
    x = g.same("Relu", [g.conv("x", 64, 7, 2)])
    of = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "ceil_mode": 0}
    x = g.add("MaxPool", [x], [1, 64, 56, 56], **of)
    for stage, count in enumerate((3, 4, 6, 3)):
        for block in range(count):
            width, stride = 64 << stage, 2 if stage > 0 and block == 0 else 1
            y = g.same("Relu", [g.conv(x, width, 1)])
            y = g.same("Relu", [g.conv(y, width, 3, stride)])
            y = g.conv(y, 4 * width, 1)
            shortcut = x if g.shapes[x] == g.shapes[y] else g.conv(x, 4 * width, 1, stride)
            x = g.same("Relu", [g.same("Add", [y, shortcut])])
    return g.model([g.gemm(g.pooled(x), 1000)], x=TensorProto.FLOAT)


def mobilenet_v2(legacy):
    g = Builder(legacy)
    g.shapes["x"] = [1, 3, 224, 224]

    def clipped(x):
        return g.same("Clip", [x, g.constant(0.0), g.constant(6.0)])

    x = clipped(g.conv("x", 32, 3, 2))
    for expansion, co, count, first in MOBILE:
        for block in range(count):
            ci = g.shapes[x][1]
            stride, inner, y = first if block == 0 else 1, ci * expansion, x
            if expansion > 1:
                y = clipped(g.conv(y, inner, 1))
            y = clipped(g.conv(y, inner, 3, stride, inner))
            y = g.conv(y, co, 1)
            x = g.same("Add", [x, y]) if stride == 1 and ci == co else y
    x = clipped(g.conv(x, 1280, 1))
    return g.model([g.gemm(g.pooled(x), 1000)], x=TensorProto.FLOAT)


def bert_base(legacy):
    g = Builder(legacy)
    g.shapes["words"] = [1, 128]
    embedded = g.add("Gather", [g.weight(30_522, 768), "words"], [1, 128, 768], axis=0)
    x = g.layer_norm(g.same("Add", [embedded, g.weight(128, 768)]))
    for _ in range(12):
        x = g.layer_norm(g.same("Add", [x, g.attention(x, 12)]))
        x = g.layer_norm(g.same("Add", [x, g.linear(g.gelu(g.linear(x, 4 * 768)), 768)]))
    first = g.add("Gather", [x, g.integers(0)], [1, 768], axis=1)
    return g.model([x, g.same("Tanh", [g.gemm(first, 768)])], words=TensorProto.INT64)


MODELS = {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2, "bert_base": bert_base}
