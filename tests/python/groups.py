"""Which groups whole models consist of, as golden/groups.txt has them: found by heddle.fx, and the same in ONNX."""

import os

from support import SOURCE

GOLDEN = SOURCE / "tests" / "python" / "golden"
MODELS = ("resnet50", "mobilenet_v2", "bert_base")  # of bench/models, at batch 1


def text_of(found):
    """Workloads in the order of their names, then the operators' texts, word for word: what a database goes by."""
    lines = sorted(str(workload) for workload in found.workloads)
    return "\n".join([*lines, "", *(text for _, text in sorted(found.operators.items()))])


def golden(name):
    return (GOLDEN / f"groups_{name}.txt").read_text(encoding="utf-8")


def write_golden(name, found):
    """Where UPDATE_GOLDEN=1 is in the environment."""
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / f"groups_{name}.txt").write_text(text_of(found), encoding="utf-8")
