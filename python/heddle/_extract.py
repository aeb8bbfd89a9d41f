"""`heddle extract MODEL.onnx`: what to tune for a model, as files that `heddle tune --workloads` takes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from heddle.errors import HeddleError

_DONE, _FAILED, _BAD_ARGUMENTS = 0, 1, 2  # exit codes, as the program's


def _dim(text: str) -> tuple[str, int]:
    name, separator, size = text.partition("=")
    if not name or not separator or not size.isdigit() or int(size) == 0:
        raise argparse.ArgumentTypeError(f"{text}: a size is given as NAME=8")
    return name, int(size)


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="heddle extract",
        description="Writes the workloads of an ONNX model, each with the number of its places, and their operators in "
        "tensor notation. What has no notation is listed with the reason.",
        epilog="Exit codes: 0 done, 1 there is nothing to tune, 2 bad arguments.",
    )
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.add_argument("--dim", metavar="NAME=SIZE", type=_dim, action="append", default=[],
                        help="binds a size that has a name in the model, such as N=8")  # fmt: skip
    parser.add_argument("--weights", choices=["file", "torch"], default="file",
                        help="read the weights of linear layers as they lie in the file, or as PyTorch keeps them, for "
                        "torch.compile to find what is tuned")  # fmt: skip
    parser.add_argument(
        "--out", metavar="DIR", help="where workloads.txt and operators.op go; by default the model's name"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON document")
    options = parser.parse_args(arguments)
    try:
        from heddle.onnx import extract
    except ImportError as error:
        return _fail(f"reading a model needs the package onnx ({error}): pip install 'heddle[onnx]'", _FAILED)
    model = Path(options.model)
    try:
        found = extract(model, dims=dict(options.dim), weights=options.weights)
    except HeddleError as error:
        return _fail(f"{model}: {error}", _BAD_ARGUMENTS)
    except OSError as error:
        return _fail(f"{model}: {error.strerror}", _BAD_ARGUMENTS)
    try:
        workloads, operators = found.save(options.out or model.stem)
    except HeddleError as error:
        print(found)
        return _fail(f"{model}: {error}", _FAILED)
    if options.json:
        document = {
            "workloads": [
                {"op": w.operator, "shape": dict(w.shape), "dtype": w.dtype, "weight": w.weight, "nodes": w.nodes}
                for w in found.workloads
            ],
            "unknown": [
                {"kind": kind, "node": node, "why": why}
                for kind, nodes in sorted(found.unknown.items())
                for node, why in nodes
            ],
            "workloads_file": str(workloads),
            "op_file": str(operators),
        }
        print(json.dumps(document, indent=2))
        return _DONE
    print(found)
    print(f"To tune it: heddle tune --workloads {workloads} --op-file {operators}")
    return _DONE


def _fail(message: str, code: int) -> int:
    sys.stdout.flush()
    print(f"heddle: {message}", file=sys.stderr)
    return code
