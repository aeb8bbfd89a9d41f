"""What the program answers, as plain values. Times are microseconds.

Documents of a newer program may have more fields than these classes: `of` passes them over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


def _pick(cls: type[_T], document: Mapping[str, Any], **replaced: Any) -> _T:
    names = {f.name for f in fields(cast(Any, cls))}
    return cls(**{k: v for k, v in document.items() if k in names} | replaced)


def _interval(value: Any) -> tuple[float, float] | None:
    return (float(value[0]), float(value[1])) if value else None


@dataclass(frozen=True)
class Device:
    """A device of this machine, as `heddle devices` lists it."""

    id: str  # "cuda:0", "opencl:0"
    name: str  # the model
    api: str  # "cuda" or "opencl"
    arch: str  # "sm_90"; "opencl"
    usable: bool
    driver: str = ""
    compiler: str = ""
    sm_count: int = 0
    memory_bytes: int = 0
    why_not: str = ""  # where it is not usable

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Device:
        return _pick(cls, document)


@dataclass(frozen=True)
class Trials:
    """How many candidates a run has tried, and what became of them."""

    total: int
    ok: int
    failed: Mapping[str, int]  # "WRONG_ANSWER": 2, ...


@dataclass(frozen=True)
class TuneResult:
    """What a tuning run of one workload came to."""

    op: str
    shape: Mapping[str, int]
    dtype: str
    workload: str  # canonical text
    trials: Trials
    default_us: float | None
    best_us: float | None
    best_ci_us: tuple[float, float] | None
    steps: tuple[str, ...]
    device: str = ""  # model
    policy: str = "cold"
    gflops: float | None = None
    gbs: float | None = None
    roofline: float | None = None  # share, 0 .. 1
    speedup: float | None = None  # over the default schedule
    naive_us: float | None = None  # one launch of the naive program; None where a server measured
    naive_speedup: float | None = None
    seconds: float = 0.0
    trials_per_second: float = 0.0
    interrupted: bool = False
    weight: int = 1

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> TuneResult:
        return _pick(
            cls,
            document,
            trials=_pick(Trials, document["trials"]),
            best_ci_us=_interval(document.get("best_ci_us")),
            steps=tuple(document["steps"]),
        )


@dataclass(frozen=True)
class Record:
    """The schedule that answers a query."""

    op: str
    shape: Mapping[str, int]
    match: str  # "exact", "nearest" (another shape's, never run at this one), "default"
    validated: bool  # exact, and trusted: on a server confirmed by a second host
    device: str  # model
    steps: tuple[str, ...]
    time_us: float | None = None  # of an exact match
    time_ci_us: tuple[float, float] | None = None
    standing: str | None = None  # of an exact match: "measured", "stale" or "foreign"
    stale_because: tuple[str, ...] = ()
    fingerprint: Mapping[str, Any] | None = None  # device, driver, compiler, versions; of the match

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Record:
        return _pick(
            cls,
            document,
            time_ci_us=_interval(document.get("time_ci_us")),
            steps=tuple(document["steps"]),
            stale_because=tuple(document.get("stale_because") or ()),
        )


@dataclass(frozen=True)
class Event:
    """How far a job is."""

    seq: int  # rises; `Job.events(after=seq)` goes on behind it
    state: str  # "RUNNING", "SUCCEEDED", ...
    trials: int
    best_us: float | None
    failed: Mapping[str, int]
