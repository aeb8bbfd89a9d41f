"""Which groups are found in the models of bench/models. Their sizes are tiny here, their structure is the same."""

import sys
import unittest
from collections import Counter

from support import SOURCE, Case, skip

try:
    import torch

    torch.library.opcheck  # noqa: B018
except (ImportError, AttributeError) as error:
    skip(f"python-torch: {error} (pip install 'torch>=2.4')")

from heddle.fx import extract

sys.path.insert(0, str(SOURCE / "bench" / "models"))
from models import MODELS

# Of each model the groups that are computed by kernels, by what they consist of.
EXPECTED = {
    "resnet50": {"conv2d_bias_relu": 7, "conv2d_bias_add_relu": 3, "conv2d_bias": 2, "matmul_nt_add": 1},
    "mobilenet_v2": {
        "conv2d_bias_clip": 4, "depthwise_conv2d_bias_clip": 3, "conv2d_bias_add": 2, "conv2d_bias": 1,
        "matmul_nt_add": 1,
    },
    "bert_base": {
        "matmul_nt_add": 6, "matmul_nt_add_add": 4, "matmul_nt_add_gelu": 2, "matmul_nt_add_tanh": 1, "layer_norm": 5,
    },
    "unet_block": {"conv2d_bias": 2, "conv2d_bias_add": 1},
    "decoder": {"matmul_nt": 9, "matmul_nt_add": 4, "matmul_nt_silu_mul": 2},
}  # fmt: skip


class Models(Case):
    def test_groups(self):
        self.assertEqual(set(MODELS), set(EXPECTED))
        for name, expected in EXPECTED.items():
            with self.subTest(name):
                torch._dynamo.reset()
                model, inputs = MODELS[name].build(batch=2, tiny=True)
                found = Counter()
                for workload in extract(model, *inputs).workloads:
                    if not workload.operator.startswith("map_"):
                        found[workload.operator.rstrip("_0123456789")] += workload.weight
                self.assertEqual(found, expected)

    def test_their_sizes(self):
        # Parameters as the papers have them, in millions.
        for name, millions in (("resnet50", 25.56), ("mobilenet_v2", 3.50), ("bert_base", 109.48)):
            with torch.device("meta"):
                model = MODELS[name].make(**MODELS[name].sizes)
            # BERT's list of places has 512 entries and its kinds of tokens 2, which are not computed with here.
            more = (512 - 128 + 2) * 768 if name == "bert_base" else 0
            count = sum(p.numel() for p in model.parameters()) + more
            self.assertAlmostEqual(count / 1e6, millions, places=2)


if __name__ == "__main__":
    unittest.main()
