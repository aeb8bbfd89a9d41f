"""What tests of whole models of PyTorch share. Their programs end here where PyTorch or PoCL is missing."""

import re
from unittest import mock

from support import require_pocl, skip

try:
    import torch

    torch.library.opcheck  # noqa: B018
except (ImportError, AttributeError) as error:
    skip(f"python-torch: {error} (pip install 'torch>=2.4')")
require_pocl()

from torch._inductor import lowering  # noqa: E402

from heddle import fx  # noqa: E402


def optimize(*arguments, rest="eager", **named):
    return fx.optimize(*arguments, rest=rest, **named)


def without_digits(text):
    """Of what tells operators' names apart."""
    return re.sub("_[0-9a-f]{4} ", " ", text)


def left(report):
    return {without_digits(what): why for what, why in report.left.items()}


class Inductor:
    """Runs graphs as they are, and has the times that it is told."""

    def __init__(self, test, *times, refuses=None):
        """`refuses`: a node with which no groups can be compared."""
        self.compiled = []
        self.refuses = refuses
        self.times = [*times]

        def compile(module, inputs, options):
            nodes = [node.name.split("_")[0] for node in module.graph.nodes if node.op == "call_function"]
            self.compiled.append(nodes)
            # What it meets unprepared Inductor of PyTorch 2.11 takes hours for.
            targets = [node.target for node in module.graph.nodes if node.op == "call_function"]
            mine = [target for target in targets if getattr(target, "namespace", "") == "heddle_fx"]
            test.assertEqual([target for target in mine if target not in lowering.lowerings], [])
            if self.refuses in nodes and "begin" in nodes:
                raise RuntimeError("no such luck")
            return module.forward

        for what, stand_in in (
            ("torch._inductor.compile", compile),
            ("heddle._choice.section_times", self.section_times),
            ("heddle._whole.beside", self.beside),
        ):
            replaced = mock.patch(what, stand_in)
            replaced.start()
            test.addCleanup(replaced.stop)

    def section_times(self, run, count, device):
        run()
        # Of each group what Inductor makes of it, and the kernel; of nothing at last.
        return [t for _ in range(count // 2) for t in reversed(self.times.pop(0))] + [0.0]

    def beside(self, calls, device):
        for call in calls.values():
            call()
        return dict(zip(calls, reversed(self.times.pop(0)), strict=True))
