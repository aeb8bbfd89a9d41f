"""What to tune for an ONNX model, of models made here."""

import json
import subprocess
import sys
import unittest

from support import Case, require_pocl, skip

import heddle

try:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    skip(f"python-onnx: {error} (Debian: apt install python3-onnx)")

import groups
import onnx_models
from groups import plain

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


def halved(made):
    """A model without weights, in float16."""
    for value in [*made.graph.input, *made.graph.output]:
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return made


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
        self.assertEqual(plain(workload.operator), "matmul_add_sigmoid_mul_add")
        self.assertEqual(workload.shape, {"m": 10, "n": 24, "k": 16})
        self.assertEqual(
            text,
            f"op {workload.operator}(m, n, k) {{\n  in A[m, k], B[k, n], In2[n], In3[m, n]\n"
            "  T0[i: m, j: n] = sum(r: k) A[i, r] * B[r, j]\n  T1[i: m, j: n] = T0[i, j] + In2[j]\n"
            "  T2[i: m, j: n] = sigmoid(T1[i, j])\n  T3[i: m, j: n] = T2[i, j] * 0.5\n"
            "  out T4[i: m, j: n] = T3[i, j] + In3[i, j]\n}\n",
        )

    def test_what_is_read_twice_ends_a_group(self):
        nodes = [node("MatMul", "x w", "t"), node("Relu", "t"), node("Softmax", "t", "z")]
        found = extract(model(nodes, {"x": [4, 8]}, {"w": (8, 8)}, ("y", "z")))
        self.assertEqual([plain(w.operator) for w in found.workloads], ["matmul", "map_relu", "softmax"])
        # An output of the model is read by whoever runs it.
        found = extract(
            model([node("MatMul", "x w", "t"), node("Relu", "t")], {"x": [4, 8]}, {"w": (8, 8)}, ("t", "y"))
        )
        self.assertEqual([plain(w.operator) for w in found.workloads], ["matmul", "map_relu"])

    def test_an_elementwise_function_that_is_written_out_goes_along(self):
        # What the product computes is read twice, and comes together again.
        nodes = [node("MatMul", "x w", "t"), node("Tanh", "t", "u"), node("Mul", "t u", "v"), node("Add", "v b")]
        workload, text = self.only(extract(model(nodes, {"x": [4, 8]}, {"w": (8, 6), "b": (6,)})))
        self.assertEqual(plain(workload.operator), "matmul_tanh_mul_add")
        self.assertIn("T2[i: m, j: n] = T0[i, j] * T1[i, j]", text)
        # Not where a part of it is read by others.
        found = extract(model(nodes, {"x": [4, 8]}, {"w": (8, 6), "b": (6,)}, ("u", "y")))
        self.assertEqual([plain(w.operator) for w in found.workloads], ["matmul", "map_tanh", "map_mul_add"])

    def test_an_encoder_layer(self):
        """BERT's, as exporters write it: the groups that heddle.fx finds in bench/models."""
        layer = [
            *(node("MatMul", f"x w{c}", f"{c}0") for c in "qkv"), *(node("Add", f"{c}0 b{c}", f"{c}1") for c in "qkv"),
            *(node("Reshape", f"{c}1 heads", f"{c}2") for c in "qkv"),
            *(node("Transpose", f"{c}2", f"{c}3", perm=[0, 2, 1, 3]) for c in "qv"),
            node("Transpose", "k2", "k3", perm=[0, 2, 3, 1]),
            node("MatMul", "q3 k3", "s0"), node("Div", "s0 root", "s1"), node("Softmax", "s1", "s2", axis=-1),
            node("MatMul", "s2 v3", "o0"), node("Transpose", "o0", "o1", perm=[0, 2, 1, 3]),
            node("Reshape", "o1 merged", "o2"), node("MatMul", "o2 wo", "o3"), node("Add", "o3 bo", "o4"),
            node("Add", "o4 x", "o5"), node("LayerNormalization", "o5 g1 h1", "n", axis=-1),
            node("MatMul", "n wu", "u0"), node("Add", "u0 bu", "u1"), node("Div", "u1 two", "u2"),
            node("Erf", "u2", "u3"), node("Add", "u3 one", "u4"), node("Mul", "u1 u4", "u5"),
            node("Mul", "u5 half", "u"),
            node("MatMul", "u wd", "d0"), node("Add", "d0 bd", "d1"), node("Add", "d1 n", "d2"),
            node("LayerNormalization", "d2 g2 h2", "y", axis=-1),
        ]  # fmt: skip
        weights = {
            **dict.fromkeys(("wq", "wk", "wv", "wo"), (16, 16)), **dict.fromkeys(("bq", "bk", "bv", "bo", "bd"), (16,)),
            **dict.fromkeys(("g1", "h1", "g2", "h2"), (16,)), "wu": (16, 64), "bu": (64,), "wd": (64, 16),
            "heads": np.array([2, 8, 2, 8]), "merged": np.array([2, 8, 16]), "root": np.float32(8**0.5),
            "two": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5),
        }  # fmt: skip
        found = extract(model(layer, {"x": ["N", 8, 16]}, weights, opset=17), dims={"N": 2})
        self.assertEqual(found.unknown, {})
        self.assertEqual(
            [(plain(w.operator), *w.shape.values(), w.weight) for w in found.workloads],
            [
                ("attention", 2, 2, 8, 8, 8, 8, 1), ("matmul_add", 16, 16, 16, 3), ("matmul_add_add", 16, 16, 16, 1),
                ("matmul_add_gelu", 16, 64, 16, 1), ("matmul_add_add", 16, 16, 64, 1),
                ("layer_norm", 16, 16, 2),
            ],
        )  # fmt: skip
        # Heads are read, and brought together, where they lie.
        (attention,) = (text for name, text in found.operators.items() if plain(name) == "attention")
        self.assertIn("in Q[b, s, h, d], K[b, t, h, d], V[b, t, h, e]", attention)
        self.assertIn("out Y[z: b, i: s, p: h, x: e]", attention)

    def test_what_exporters_write_out_is_one_function(self):
        half, root, one = np.float32(0.5), np.float32(2**0.5), np.float32(1)
        constants = {"half": half, "root": root, "inverse": 1 / root, "one": one, "w": (8, 6)}
        product = node("MatMul", "x w", "t")
        erf = [node("Div", "t root", "a"), node("Erf", "a", "b"), node("Add", "b one", "c")]
        cases = {
            "matmul_gelu": [
                [*erf, node("Mul", "t c", "d"), node("Mul", "d half")],
                [*erf, node("Mul", "half t", "d"), node("Mul", "d c")],
                [node("Mul", "inverse t", "a"), erf[1], node("Add", "one b", "c"), node("Mul", "c half", "d"),
                 node("Mul", "t d")],
            ],
            "matmul_silu": [
                [node("Sigmoid", "t", "a"), node("Mul", "t a")], [node("Sigmoid", "t", "a"), node("Mul", "a t")],
            ],
            "matmul_rsqrt": [
                [node("Sqrt", "t", "a"), node("Reciprocal", "a")], [node("Sqrt", "t", "a"), node("Div", "one a")],
            ],
            # By another factor, or divided the other way, it is another function.
            "matmul_div_erf_add_mul_mul": [[*erf, node("Mul", "t c", "d"), node("Mul", "d root")]],
            "matmul_div_erf_add_mul_mul_2": [
                [node("Div", "root t", "a"), *erf[1:], node("Mul", "t c", "d"), node("Mul", "d half")],
            ],
        }  # fmt: skip
        for name, ways in cases.items():
            for nodes in ways:
                with self.subTest(name):
                    found = extract(model([product, *nodes], {"x": [4, 8]}, constants))
                    workload, _ = self.only(found)
                    self.assertEqual(plain(workload.operator), name.removesuffix("_2"))
        # What is read elsewhere is not taken apart.
        nodes = [product, *erf, node("Mul", "t c", "d"), node("Mul", "d half")]
        found = extract(model(nodes, {"x": [4, 8]}, constants, ("c", "y")))
        self.assertEqual(plain(found.workloads[-1].operator), "map_mul_mul")

    def test_a_group_normalisation_that_is_written_out(self):
        def nodes(channels, y="y"):
            return [
                node("Reshape", "x groups", "r"), node("InstanceNormalization", "r one zero", "i", epsilon=1e-6),
                node("Reshape", "i images", "b"), node("Mul", f"b {channels}", "m"), node("Add", "o m", y),
            ]  # fmt: skip

        weights = {
            "groups": np.array([0, 3, -1]), "images": np.array([2, 6, 4, 5]), "s": (6, 1, 1), "o": (1, 6, 1, 1),
            "one": np.ones(3, np.float32), "zero": np.zeros(3, np.float32), "wide": (6, 1, 5),
        }  # fmt: skip
        silu = [node("Sigmoid", "y1", "g"), node("Mul", "y1 g")]
        workload, text = self.only(extract(model([*nodes("s", "y1"), *silu], {"x": [2, 6, 4, 5]}, weights)))
        self.assertEqual((plain(workload.operator), [*workload.shape.values()]), ("group_norm_silu", [2, 3, 2, 20]))
        self.assertIn("(c*s) + 1e-06)", text)
        # Scaled otherwise, or of groups that are scaled, it is none.
        found = extract(model(nodes("wide"), {"x": [2, 6, 4, 5]}, weights))
        self.assertEqual([*found.unknown], ["InstanceNormalization"])
        weights["one"] = np.array([1, 2, 1], np.float32)
        found = extract(model(nodes("s"), {"x": [2, 6, 4, 5]}, weights))
        self.assertEqual([*found.unknown], ["InstanceNormalization"])

    def test_what_is_computed_of_shapes_is_known(self):
        # As PyTorch's older exporter writes a reshaping, and the factor of attention.
        nodes = [
            node("Shape", "x", "s"), node("Gather", "s zero", "b"), node("Unsqueeze", "b axis", "b1"),
            node("Concat", "b1 minus", "flat", axis=0), node("Reshape", "x flat", "r"),
            node("Slice", "s minus end", "d"), node("Cast", "d", "f", to=FLOAT), node("Sqrt", "f", "root"),
            node("Constant", "", "four", value_float=4.0), node("Div", "four root", "factor"),
            node("MatMul", "r w", "t"), node("Mul", "t factor"),
        ]  # fmt: skip
        weights = {
            "w": (80, 6), "zero": np.int64(0), "axis": np.array([0]), "minus": np.array([-1]), "end": np.array([2**62]),
        }  # fmt: skip
        workload, text = self.only(extract(model(nodes, {"x": ["N", 5, 16]}, weights), dims={"N": 2}))
        self.assertEqual(workload.shape, {"m": 2, "n": 6, "k": 80})
        self.assertIn("out T1[i: m, j: n] = T0[i, j] * 1\n", text)
        self.assertIn("r is not known", extract(model(nodes, {"x": ["N", 5, 16]}, weights)).unknown["MatMul"][0][1])

    def test_a_weight_that_is_transposed_is_read_where_it_lies(self):
        nodes = [node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "x t", "p"), node("Add", "b p")]
        found = extract(model(nodes, {"x": [2, 4, 8]}, {"w": (6, 8), "b": (6,)}))
        workload, text = self.only(found)
        self.assertEqual((plain(workload.operator), found.groups[0].operands), ("matmul_nt_add", ("x", "w", "b")))
        # The same, of weights that an exporter has transposed, for PyTorch.
        stored = model([node("MatMul", "x w", "p"), node("Add", "b p")], {"x": [2, 4, 8]}, {"w": (8, 6), "b": (6,)})
        self.assertEqual(self.only(extract(stored, weights="torch"))[1], text)
        self.assertEqual(plain(self.only(extract(stored))[0].operator), "matmul_add")
        # What is no weight stays as it is.
        both = model([node("MatMul", "x w")], {"x": [4, 8], "w": [8, 6]})
        self.assertEqual(plain(self.only(extract(both, weights="torch"))[0].operator), "matmul")
        with self.assertRaisesRegex(heddle.InvalidArgument, "not as 'kn'"):
            extract(stored, weights="kn")

    def test_transpositions_are_read_through(self):
        # Keys, as PyTorch's exporter transposes them: heads, then flattened, then the last two.
        nodes = [
            node("Transpose", "k", "k1", perm=[0, 2, 1, 3]), node("Reshape", "k1 flat", "k2"),
            node("Transpose", "k2", "k3", perm=[0, 2, 1]), node("Reshape", "k3 heads", "k4"),
            node("Transpose", "q", "q1", perm=[0, 2, 1, 3]), node("Transpose", "v", "v1", perm=[0, 2, 1, 3]),
            node("MatMul", "q1 k4", "s"), node("Softmax", "s", "p"), node("MatMul", "p v1"),
        ]  # fmt: skip
        weights = {"flat": np.array([6, 5, 4]), "heads": np.array([2, 3, 4, 5])}
        inputs = {"q": [2, 7, 3, 4], "k": [2, 5, 3, 4], "v": [2, 5, 3, 6]}
        workload, text = self.only(extract(model(nodes, inputs, weights)))
        self.assertEqual(plain(workload.operator), "attention")
        self.assertIn("in Q[b, s, h, d], K[b, t, h, d], V[b, t, h, e]", text)
        # Two that undo each other are none.
        nodes = [node("Transpose", "x", "t", perm=[1, 0]), node("Transpose", "t", "u"), node("Relu", "u")]
        workload, _ = self.only(extract(model(nodes, {"x": [4, 8]})))
        self.assertEqual((plain(workload.operator), workload.shape), ("map_relu", {"d0": 4, "d1": 8}))

    def test_images_of_16_bits_lie_with_their_channels_last(self):
        def text_of(nodes, inputs):
            (text,) = extract(halved(model(nodes, inputs))).operators.values()
            return text

        conv = [node("Conv", "x w", "c", kernel_shape=[3, 3]), node("Relu", "c")]
        self.assertIn("in X[n, h, w, ci], W[co, kh, kw, ci]", text_of(conv, {"x": [1, 4, 5, 6], "w": [8, 4, 3, 3]}))
        # Heads are no images.
        attention = [
            node("Transpose", "q", "q1", perm=[0, 2, 1, 3]), node("Transpose", "k", "k1", perm=[0, 2, 3, 1]),
            node("Transpose", "v", "v1", perm=[0, 2, 1, 3]),
            node("MatMul", "q1 k1", "s"), node("Softmax", "s", "p"), node("MatMul", "p v1"),
        ]  # fmt: skip
        inputs = {"q": [2, 7, 3, 4], "k": [2, 5, 3, 4], "v": [2, 5, 3, 6]}
        self.assertIn("in Q[b, s, h, d], K[b, t, h, d], V[b, t, h, e]", text_of(attention, inputs))

    def test_divisions_and_axes_that_are_inputs(self):
        # A rotary embedding and a mean, as of version 18.
        nodes = [
            node("Split", "x halves", "left right", axis=-1), node("Neg", "right", "n"),
            node("Concat", "n left", "turned", axis=-1), node("Mul", "x c", "a"), node("Mul", "turned s", "b"),
            node("Add", "a b"),
        ]  # fmt: skip
        nodes[0].output[:] = ["left", "right"]
        inputs = {"x": [2, 3, 8], "c": [3, 8], "s": [3, 8]}
        workload, _ = self.only(extract(model(nodes, inputs, {"halves": np.array([4, 4])})))
        self.assertEqual(plain(workload.operator), "rotary")
        sliced = [
            node("Slice", "x zero four axis", "left"), node("Slice", "x four end axis one", "right"), *nodes[1:],
        ]  # fmt: skip
        places = {"zero": [0], "four": [4], "end": [2**62], "axis": [-1], "one": [1]}
        weights = {name: np.array(value) for name, value in places.items()}
        self.assertEqual(plain(self.only(extract(model(sliced, inputs, weights)))[0].operator), "rotary")
        mean = model([node("ReduceMean", "x axes")], {"x": [2, 3, 4, 5]}, {"axes": np.array([-1, -2])}, opset=18)
        mean.graph.value_info.append(helper.make_tensor_value_info("y", FLOAT, [2, 3, 1, 1]))
        workload, _ = self.only(extract(mean))
        self.assertEqual((plain(workload.operator), workload.shape), ("row_mean", {"m": 6, "n": 20}))

    def test_the_same_workloads_are_one_with_a_weight(self):
        names = [f"t{i}" for i in range(3)]
        nodes = [node("MatMul", f"{a} w", b) for a, b in zip(["x", *names], [*names, "y"], strict=True)]
        workload, _ = self.only(extract(model(nodes, {"x": [4, 8]}, {"w": (8, 8)})))
        self.assertEqual((workload.weight, workload.nodes[0]), (4, ("MatMul-t0",)))

    def test_names_are_told_apart_by_their_texts(self):
        nodes = [node("Softmax", "x", "t"), node("Conv", "i w", "c1"), node("Conv", "i w", "c2", pads=[1] * 4)]
        found = extract(model(nodes, {"x": [4, 8], "i": [1, 3, 8, 8]}, {"w": (4, 3, 3, 3)}, ("t", "c1", "c2")))
        self.assertEqual(sorted(map(plain, found.operators)), ["conv2d", "conv2d", "softmax"])
        self.assertEqual(len(found.workloads), 3)
        # By what they are, whatever stands before them: they are called so in every model.
        for kept in (nodes[:1], nodes[:0:-1], nodes[2:]):
            names = [one.output[0] for one in kept]
            other = extract(model(kept, {"x": [4, 8], "i": [1, 3, 8, 8]}, {"w": (4, 3, 3, 3)}, names))
            self.assertEqual(len(other.operators), len(kept))
            self.assertLessEqual(other.operators.items(), found.operators.items())

    def test_batch_normalisation_behind_a_convolution_is_its_bias(self):
        texts = []
        for conv in (node("Conv", "x w", "t"), node("Conv", "x w b", "t")):
            nodes = [conv, node("BatchNormalization", "t s b m v", "u"), node("Relu", "u")]
            weights = {"w": (4, 3, 3, 3), **dict.fromkeys("sbmv", (4,))}
            workload, text = self.only(extract(model(nodes, {"x": [1, 3, 8, 8]}, weights)))
            self.assertEqual(plain(workload.operator), "conv2d_bias_relu")
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
        self.assertEqual([plain(w.operator) for w in found.workloads], ["matmul", "map_relu"])
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
            node("Softmax", "p", "z", axis=0),
        ]
        inputs = {"x": [5, 2, 3], "p": ["N", 8], "one": [1, 3, 9]}
        weights = {"w": (1, 16, 3), "r": (1, 16, 4), "q": (8, 8), "k1": (4, 3, 3)}
        found = extract(model(nodes, inputs, weights, ("t", "u", "v", "z")))
        self.assertEqual(found.workloads, [])
        self.assertEqual(sorted(found.unknown), ["Conv", "LSTM", "MatMul", "Softmax"])
        self.assertEqual(
            found.unknown["MatMul"],
            [("MatMul-u", 'the shape of p is not known: give sizes, such as dims={"N": 1}, or --dim N=1')],
        )
        self.assertIn("not tuned: 1 LSTM: no notation", str(found))
        with self.assertRaisesRegex(heddle.HeddleError, "nothing to tune"):
            found.save(self.folder)
        bound = extract(model(nodes, inputs, weights, ("t", "u", "v", "z")), dims={"N": 3})
        self.assertEqual(bound.workloads[0].shape, {"m": 3, "n": 8, "k": 8})
        self.assertIn("axis 0", bound.unknown["Softmax"][0][1])


class Models(Case):
    """Whole models, as both of PyTorch's exporters write them: the groups that heddle.fx finds."""

    def test_they_are_those_of_pytorch(self):
        self.assertEqual(set(onnx_models.MODELS), set(groups.MODELS))
        for name, build in onnx_models.MODELS.items():
            for legacy in (False, True):
                with self.subTest(name, legacy=legacy):
                    found = extract(build(legacy), weights="torch")
                    self.assertEqual(groups.text_of(found), groups.golden(name))
                    self.assertLessEqual(set(found.unknown), {"Gather"})

    def test_weights_that_an_exporter_transposed_are_read_so(self):
        """All that differs where a file's own weights are what is read."""
        for name, build in onnx_models.MODELS.items():
            for legacy in (False, True):
                found = extract(build(legacy))
                turned = {o: text.replace("B[k, n]", "B[n, k]").replace("B[r, j]", "B[j, r]")
                          for o, text in found.operators.items()}  # fmt: skip
                names = {o: o if text == found.operators[o] else o.replace("matmul", "matmul_nt")
                         for o, text in turned.items()}  # fmt: skip
                found.operators = {names[o]: text.replace(f"op {o}(", f"op {names[o]}(") for o, text in turned.items()}
                for workload in found.workloads:
                    workload.operator = names[workload.operator]
                self.assertEqual(groups.masked(groups.text_of(found)), groups.masked(groups.golden(name)))
                # Only layers of more than two dimensions are written so.
                changed = [o for o, other in names.items() if o != other]
                self.assertEqual(len(changed), 3 if name == "bert_base" else 0, changed)


class Command(Case):
    """heddle extract"""

    def extract(self, *arguments, code=0):
        command = [sys.executable, "-m", "heddle", "extract", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_a_model(self):
        path = self.folder / "net.onnx"
        nodes = [node("MatMul", "x w", "t"), node("Relu", "t", "u"), node("CumSum", "u axis")]
        made = model(nodes, {"x": ["N", 8]}, {"w": (8, 6), "axis": np.int64(0)})
        path.write_bytes(made.SerializeToString())
        said = self.extract(path, "--dim", "N=4")
        name = said.split()[0]
        self.assertEqual(plain(name), "matmul_relu")
        self.assertEqual(
            said.splitlines(),
            [
                f"{name} m=4,n=6,k=8 weight=1",
                "# not tuned: 1 CumSum: no notation for it is known here",
                "To tune it: heddle tune --workloads net/workloads.txt --op-file net/operators.op",
            ],
        )
        self.assertEqual((self.folder / "net" / "workloads.txt").read_text(), f"{name} m=4,n=6,k=8 weight=1\n")
        document = json.loads(self.extract(path, "--dim", "N=4", "--out", "other", "--json"))
        (workload,) = document["workloads"]
        self.assertEqual((workload["op"], workload["weight"], workload["dtype"]), (name, 1, "float32"))
        self.assertEqual(document["unknown"][0]["kind"], "CumSum")
        self.assertTrue((self.folder / document["op_file"]).exists())
        self.assertIn("or --dim N=1\n", self.extract(path, code=1) + str(extract(made)))
        self.assertEqual(plain(self.extract(path, "--dim", "N=4", "--weights", "torch").split()[0]), "matmul_nt_relu")

    def test_what_it_refuses(self):
        made = model([node("MatMul", "x w")], {"x": ["N", 8]}, {"w": (8, 4)})
        with self.assertRaisesRegex(heddle.InvalidArgument, "no size is called M; these are: N$"):
            extract(made, dims={"M": 4})
        with self.assertRaisesRegex(heddle.InvalidArgument, "N='4'.*whole number above 0"):
            extract(made, dims={"N": "4"})
        (self.folder / "net.onnx").write_bytes(made.SerializeToString())
        said = self.extract("net.onnx", "--dim", "M=4", code=2)
        self.assertEqual(said, "heddle: net.onnx: no size is called M; these are: N\n")
        self.assertIn("heddle: none.onnx: No such file", self.extract("none.onnx", code=2))
        (self.folder / "bad.onnx").write_text("no model")
        self.assertIn("heddle: bad.onnx: this is no ONNX model", self.extract("bad.onnx", code=2))
        self.assertIn("N: a size is given as NAME=8", self.extract("bad.onnx", "--dim", "N", code=2))

    def test_every_other_command_is_the_program_s(self):
        done = subprocess.run([sys.executable, "-m", "heddle", "ops"], capture_output=True, text=True, check=True)
        self.assertIn("gemm_relu_add", done.stdout)


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

    def test_attention_that_is_written_out(self):
        rng = np.random.default_rng(1)
        q, k, v = (rng.standard_normal(s, np.float32) for s in ((2, 3, 4), (2, 5, 4), (2, 5, 6)))
        mask = rng.standard_normal((3, 5), np.float32)
        nodes = [
            node("Transpose", "k", "kt", perm=[0, 2, 1]), node("Mul", "q half", "qh"), node("MatMul", "qh kt", "s"),
            node("Add", "s mask", "t"), node("Softmax", "t", "u"), node("MatMul", "u v"),
        ]  # fmt: skip
        shapes = {"q": list(q.shape), "k": list(k.shape), "v": list(v.shape), "mask": list(mask.shape)}
        found = extract(model(nodes, shapes, {"half": np.float32(0.5)}))
        (workload,) = found.workloads
        self.assertEqual((plain(workload.operator), found.unknown), ("attention", {}))
        operator = found.operator(workload.operator)
        f = heddle.connect().kernel(operator, shape=workload.shape, device="opencl:0", fallback="default")
        scores = np.exp(np.einsum("bid,bjd->bij", q, k) * 0.5 + mask)
        expected = np.einsum("bij,bjx->bix", scores / scores.sum(-1, keepdims=True), v)
        np.testing.assert_allclose(f(q, k, v, mask), expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
