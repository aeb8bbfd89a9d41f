"""What to tune for an ONNX model, of models made here."""

import unittest

from support import Case, require_pocl, skip

import heddle

try:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    skip(f"python-onnx: {error} (Debian: apt install python3-onnx)")

from heddle.onnx import extract

FLOAT = TensorProto.FLOAT


def model(nodes, inputs, weights=(), outputs=("y",), opset=13):
    """`inputs`: {name: shape}; `weights`: {name: array or shape}."""
    values = {n: np.zeros(w, np.float32) if isinstance(w, tuple) else np.asarray(w) for n, w in dict(weights).items()}
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(n, FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def node(kind, inputs, output="y", **attributes):
    return helper.make_node(kind, inputs.split(), [output], name=f"{kind}-{output}", **attributes)


class Groups(Case):
    def only(self, found):
        self.assertEqual(found.unknown, {})
        self.assertEqual(len(found.workloads), 1, str(found))
        # The program takes the operator at this shape.
        lines, operators = found.save(self.folder / "model")
        (workload,) = found.workloads
        shape = ",".join(f"{k}={v}" for k, v in workload.shape.items())
        self.assertEqual(lines.read_text(), f"{workload.operator} {shape} weight={workload.weight}\n")
        command = ["query", workload.operator, "--op-file", str(operators), "--shape", shape]
        heddle._program.run([*command, "--target", "cpu", "--fallback", "default", "--json"])
        return workload, found.operators[workload.operator]

    def test_a_product_takes_what_is_elementwise_behind_it(self):
        nodes = [
            node("MatMul", "x w", "t"), node("Add", "b t", "u"), node("Sigmoid", "u", "v"),
            node("Mul", "v half", "r"), node("Add", "r x2"),
        ]  # fmt: skip
        weights = {"w": (16, 24), "b": (24,), "half": np.float32(0.5)}
        found = extract(model(nodes, {"x": [2, 5, 16], "x2": [2, 5, 24]}, weights))
        workload, text = self.only(found)
        self.assertEqual(workload.operator, "matmul_add_sigmoid_mul_add")
        self.assertEqual(workload.shape, {"m": 10, "n": 24, "k": 16})
        self.assertEqual(
            text,
            "op matmul_add_sigmoid_mul_add(m, n, k) {\n  in A[m, k], B[k, n], In2[n], In3[m, n]\n"
            "  T0[i: m, j: n] = sum(r: k) A[i, r] * B[r, j]\n  T1[i: m, j: n] = In2[j] + T0[i, j]\n"
            "  T2[i: m, j: n] = sigmoid(T1[i, j])\n  T3[i: m, j: n] = T2[i, j] * 0.5\n"
            "  out T4[i: m, j: n] = T3[i, j] + In3[i, j]\n}\n",
        )

    def test_what_is_read_twice_ends_a_group(self):
        nodes = [node("MatMul", "x w", "t"), node("Relu", "t", "u"), node("Add", "t u")]
        found = extract(model(nodes, {"x": [4, 8]}, {"w": (8, 8)}))
        self.assertEqual([w.operator for w in found.workloads], ["matmul", "map_relu_add"])
        # An output of the model is read by whoever runs it.
        found = extract(
            model([node("MatMul", "x w", "t"), node("Relu", "t")], {"x": [4, 8]}, {"w": (8, 8)}, ("t", "y"))
        )
        self.assertEqual([w.operator for w in found.workloads], ["matmul", "map_relu"])

    def test_the_same_workloads_are_one_with_a_weight(self):
        names = [f"t{i}" for i in range(3)]
        nodes = [node("MatMul", f"{a} w", b) for a, b in zip(["x", *names], [*names, "y"], strict=True)]
        workload, _ = self.only(extract(model(nodes, {"x": [4, 8]}, {"w": (8, 8)})))
        self.assertEqual((workload.weight, workload.nodes[0]), (4, ("MatMul-t0",)))

    def test_names_are_told_apart_by_their_texts(self):
        nodes = [node("Softmax", "x", "t"), node("Conv", "i w", "c1"), node("Conv", "i w", "c2", pads=[1] * 4)]
        found = extract(model(nodes, {"x": [4, 8], "i": [1, 3, 8, 8]}, {"w": (4, 3, 3, 3)}, ("t", "c1", "c2")))
        self.assertEqual(sorted(found.operators), ["conv2d", "conv2d_2", "softmax"])
        self.assertEqual(len(found.workloads), 3)

    def test_batch_normalisation_behind_a_convolution_is_its_bias(self):
        texts = []
        for conv in (node("Conv", "x w", "t"), node("Conv", "x w b", "t")):
            nodes = [conv, node("BatchNormalization", "t s b m v", "u"), node("Relu", "u")]
            weights = {"w": (4, 3, 3, 3), **dict.fromkeys("sbmv", (4,))}
            workload, text = self.only(extract(model(nodes, {"x": [1, 3, 8, 8]}, weights)))
            self.assertEqual(workload.operator, "conv2d_bias_relu")
            texts.append(text)
        self.assertEqual(texts[0], texts[1])

    def test_the_axis_of_a_softmax_depends_on_the_version(self):
        shape = {"x": [2, 3, 4]}
        self.assertEqual(extract(model([node("Softmax", "x")], shape)).workloads[0].shape, {"m": 6, "n": 4})
        self.assertIn("Softmax", extract(model([node("Softmax", "x")], shape, opset=11)).unknown)

    def test_what_a_branch_reads_is_read(self):
        branch = helper.make_graph(
            [node("Neg", "t", "inner")], "branch", [], [helper.make_tensor_value_info("inner", FLOAT, None)]
        )
        nodes = [
            node("MatMul", "x w", "t"), node("Relu", "t", "u"),
            node("If", "c", "z", then_branch=branch, else_branch=branch),
        ]  # fmt: skip
        weights = {"w": (8, 8), "c": np.array(True)}
        found = extract(model(nodes, {"x": [4, 8]}, weights, ("u", "z")))
        self.assertEqual([w.operator for w in found.workloads], ["matmul", "map_relu"])
        self.assertEqual(list(found.unknown), ["If"])

    def test_all_kinds_are_taken_by_the_program(self):
        image = {"x": [2, 4, 9, 10]}
        for one, weights, shape in [
            (node("Gemm", "a w c", transB=1, alpha=0.5, beta=2.0), {"w": (6, 8), "c": (6,)}, {"a": [4, 8]}),
            (node("Gemm", "a w", transA=1), {"w": (8, 6)}, {"a": [8, 4]}),
            (node("MatMul", "a b"), {}, {"a": [2, 3, 4, 5], "b": [2, 3, 5, 6]}),
            (
                node("Conv", "x w b", strides=[2, 1], dilations=[1, 2], pads=[1, 0, 2, 1]),
                {"w": (5, 4, 3, 2), "b": (5,)},
                image,
            ),
            (node("Conv", "x w", auto_pad="SAME_UPPER", strides=[2, 2]), {"w": (5, 4, 3, 3)}, image),
            (node("Conv", "x w", group=4), {"w": (4, 1, 3, 3)}, image),
            (node("Conv", "x w", group=2), {"w": (6, 2, 3, 3)}, image),
            (node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), {}, image),
            (node("GlobalAveragePool", "x"), {}, image),
            (node("Transpose", "x", perm=[0, 2, 3, 1]), {}, image),
            (node("Clip", "x lo hi"), {"lo": np.float32(0), "hi": np.float32(6)}, image),
            (node("BatchNormalization", "x s b m v"), dict.fromkeys("sbmv", (4,)), image),
            *((node(kind, "x"), {}, image) for kind in ("Erf", "HardSigmoid", "LeakyRelu", "Elu", "Neg", "Reciprocal")),
            *((node(kind, "x y0"), {}, image | {"y0": [1, 4, 1, 1]}) for kind in ("Sub", "Div", "Pow", "PRelu")),
        ]:
            with self.subTest(one.op_type):
                self.only(extract(model([one], shape, weights)))

    def test_what_is_not_known_is_listed(self):
        nodes = [
            node("LSTM", "x w r", "t", hidden_size=4),
            node("MatMul", "p q", "u"),
            node("Conv", "one k1", "v"),
            node("Shape", "x", "s"),
            node("Softmax", "p", "z", axis=0),
        ]
        inputs = {"x": [5, 2, 3], "p": ["N", 8], "one": [1, 3, 9]}
        weights = {"w": (1, 16, 3), "r": (1, 16, 4), "q": (8, 8), "k1": (4, 3, 3)}
        found = extract(model(nodes, inputs, weights, ("t", "u", "v", "z")))
        self.assertEqual(found.workloads, [])
        self.assertEqual(sorted(found.unknown), ["Conv", "LSTM", "MatMul", "Shape", "Softmax"])
        self.assertEqual(found.unknown["MatMul"], [("MatMul-u", "the shape of p is not known: bind N by dims=")])
        self.assertIn("not tuned: 1 LSTM: no notation", str(found))
        with self.assertRaisesRegex(heddle.HeddleError, "nothing to tune"):
            found.save(self.folder)
        bound = extract(model(nodes, inputs, weights, ("t", "u", "v", "z")), dims={"N": 3})
        self.assertEqual(bound.workloads[0].shape, {"m": 3, "n": 8, "k": 8})
        self.assertIn("axis 0", bound.unknown["Softmax"][0][1])


class Results(Case):
    def setUp(self):
        super().setUp()
        require_pocl()

    def test_a_convolution_with_what_is_behind_it(self):
        rng = np.random.default_rng(1)
        x, w, r = (rng.standard_normal(s, np.float32) for s in ((1, 2, 6, 5), (3, 2, 3, 3), (1, 3, 3, 3)))
        bias = rng.standard_normal(3, np.float32)
        nodes = [
            node("Conv", "x w", "c", strides=[2, 2], pads=[1, 1, 1, 1]), node("BatchNormalization", "c s b m v", "n"),
            node("Add", "n r", "a"), node("Clip", "a lo hi"),
        ]  # fmt: skip
        weights = {"w": w, **dict.fromkeys("sbmv", (3,)), "lo": np.float32(0), "hi": np.float32(6)}
        found = extract(model(nodes, {"x": list(x.shape), "r": list(r.shape)}, weights))
        (workload,) = found.workloads
        operator = found.operator(workload.operator)
        f = heddle.connect().kernel(operator, shape=workload.shape, device="opencl:0", fallback="default")
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        expected = np.empty_like(r)
        for i in range(3):
            for j in range(3):
                window = padded[0, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
                expected[0, :, i, j] = (w * window).sum((1, 2, 3)) + bias
        np.testing.assert_allclose(f(x, w, bias, r), np.clip(expected + r, 0, 6), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
