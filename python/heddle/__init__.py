"""Heddle finds fast GPU kernels for tensor operators; this package tunes, looks up and calls them.

    import heddle, numpy as np
    heddle.connect().tune("gemm_relu_add", m=512, n=512, k=512, trials=64)
    f = heddle.connect().kernel("gemm_relu_add", m=512, n=512, k=512)
    a, b, c = (np.random.rand(512, 512).astype(np.float32) for _ in range(3))
    print(f(a, b, c), f.record.time_us)

docs/python.md tells the rest. Importing this package imports neither NumPy nor PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heddle.database import Database, connect
from heddle.errors import (
    ArtefactError,
    DeadlineExceeded,
    DriverError,
    HeddleError,
    Interrupted,
    InvalidArgument,
    NotFound,
    NoValidSchedule,
    ProgramFailed,
    ProgramMissing,
    TensorError,
    Unavailable,
)
from heddle.job import Job
from heddle.operator import Operator
from heddle.records import Device, Event, Record, Trials, TuneResult

if TYPE_CHECKING:
    from heddle.fx import optimize as optimize
    from heddle.kernel import Kernel, load
    from heddle.table import Table, bucket_sizes, load_table

__version__ = "0.1.0"

__all__ = [
    "ArtefactError",
    "Database",
    "DeadlineExceeded",
    "Device",
    "DriverError",
    "Event",
    "HeddleError",
    "Interrupted",
    "InvalidArgument",
    "Job",
    "Kernel",
    "NoValidSchedule",
    "NotFound",
    "Operator",
    "ProgramFailed",
    "ProgramMissing",
    "Record",
    "Table",
    "TensorError",
    "Trials",
    "TuneResult",
    "Unavailable",
    "bucket_sizes",
    "connect",
    "load",
    "load_table",
]

# Loaded when first asked for: they load drivers' bindings.
_LAZY = {
    "Kernel": "heddle.kernel",
    "load": "heddle.kernel",
    "optimize": "heddle.fx",  # needs PyTorch
    "Table": "heddle.table",
    "bucket_sizes": "heddle.table",
    "load_table": "heddle.table",
}
# Modules that need further packages.
_PARTS = ("fx", "onnx", "torch")


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY, *_PARTS, "__version__"})


def __getattr__(name: str) -> Any:
    if name not in _LAZY and name not in _PARTS:
        raise AttributeError(f"module 'heddle' has no attribute {name!r}")
    import importlib

    try:
        if name in _PARTS:
            return importlib.import_module(f"heddle.{name}")
        value = getattr(importlib.import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        for package in ("torch", "onnx"):
            if error.name == package:
                why = f"heddle.{name} needs the package {package}: pip install 'heddle[{package}]'"
                raise ModuleNotFoundError(why, name=package) from None
        raise
    globals()[name] = value
    return value
