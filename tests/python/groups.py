"""Which groups whole models consist of, as golden/groups.txt has them: found by heddle.fx, and the same in ONNX."""

import os
import re

from support import SOURCE

GOLDEN = SOURCE / "tests" / "python" / "golden"
MODELS = ("resnet50", "mobilenet_v2", "bert_base")  # of bench/models, at batch 1


def text_of(found):
    """Workloads in the order of their names, then the operators' texts, word for word: what a database goes by."""
    lines = sorted(str(workload) for workload in found.workloads)
    return "\n".join([*lines, "", *(text for _, text in sorted(found.operators.items()))])


def plain(operator):
    """An operator's name without the digits that tell it from others of what it consists of."""
    name, digits = operator.rsplit("_", 1)
    assert re.fullmatch("[0-9a-f]{4}", digits), operator
    return name


def masked(text):
    """A text of text_of() without those digits, in an order that does not depend on them."""
    lines, *operators = re.sub(r"_[0-9a-f]{4}(?=[ (])", "", text).split("\n\n")
    return sorted(lines.split("\n")), sorted(map(str.strip, operators))


def golden(name):
    return (GOLDEN / f"groups_{name}.txt").read_text(encoding="utf-8")


def write_golden(name, found):
    """Where UPDATE_GOLDEN=1 is in the environment."""
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / f"groups_{name}.txt").write_text(text_of(found), encoding="utf-8")
