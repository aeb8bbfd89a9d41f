"""What an ONNX model consists of, tuned within one budget, and what that comes to.

python3 whole_model.py [TRIALS [MODEL.onnx [N]]]      without a model, a small one; N binds its size of that name
"""

import sys
import tempfile

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import heddle
from heddle.onnx import extract


def small_model():
    rng = np.random.default_rng(1)
    weights = {"w1": (8, 8, 3, 3), "w2": (8, 8, 3, 3), "w3": (512, 10)}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Flatten", ["r2"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(rng.standard_normal(s, np.float32), n) for n, s in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


trials = int(sys.argv[1]) if len(sys.argv) > 1 else 32
model = sys.argv[2] if len(sys.argv) > 2 else small_model()
found = extract(model, dims={"N": int(sys.argv[3]) if len(sys.argv) > 3 else 1})
print(found)

with tempfile.TemporaryDirectory() as folder:
    workloads, operators = found.save(folder)
    results = heddle.connect().tune_workloads(workloads, op_file=operators, trials=trials, device="auto")
assert len(results) == len(found.workloads), "what could not be tuned is missing"
for result in results:
    print(f"{result.op}: {result.weight} x {result.best_us or 0:.1f} us, by default {result.default_us or 0:.1f} us")
times = [(r.weight * r.best_us, r.weight * r.default_us) for r in results if r.best_us and r.default_us]
print("all of it: {:.1f} us, by default {:.1f} us".format(*map(sum, zip(*times, strict=True))))
