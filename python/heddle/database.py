"""A database of measured schedules: a file of this machine, or a server's."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from heddle import _program
from heddle._names import AnyDevice, device_id, dtype_name
from heddle.errors import InvalidArgument, NotFound, Unavailable
from heddle.job import Job, LocalJob, ServerJob
from heddle.operator import Operator, cache_folder
from heddle.records import Device, Event, Record, TuneResult

if TYPE_CHECKING:
    from heddle.kernel import Kernel
    from heddle.table import Default, Table

Fallback = Literal["none", "nearest", "default"]
# Is it shown how far a search is, or who is told?
Progress = bool | Callable[[Event], None]


def connect(target: str | os.PathLike[str] | None = None, *, flags: Iterable[str] = ()) -> Database:
    """The database `target`: a file, or a server's "HOST:PORT" or "unix:PATH".

    Without one, the server of $HEDDLE_SERVER, else the file of $HEDDLE_DB, else the user's own. `flags` are
    the program's for a server's certificates and tokens ("--tls", "--token-file", "FILE", ...).
    Nothing is opened or called before it is needed.
    """
    if target is None and os.environ.get("HEDDLE_SERVER"):
        target = os.environ["HEDDLE_SERVER"]
    if target is None:
        return Database(file=None, server=None)
    text = os.fspath(target)
    if text.startswith("unix:") or re.fullmatch(r"[^/]+:\d+", text):
        return Database(file=None, server=["--server", text, *flags])
    return Database(file=text, server=None)


class Database:
    """Made by connect()."""

    def __init__(self, file: str | None, server: list[str] | None) -> None:
        self._file = file
        self._server = server
        self._devices: list[Device] | None = None

    def __repr__(self) -> str:
        return f"<heddle.Database {self._server[1] if self._server else self._file or 'default'}>"

    @property
    def _environment(self) -> dict[str, str]:
        environment = _program.program_environment()
        if self._server is None:
            environment.pop("HEDDLE_SERVER", None)
        if self._file is not None:
            environment["HEDDLE_DB"] = self._file
        return environment

    def devices(self) -> list[Device]:
        """The devices of this machine, usable or not (then `why_not` tells)."""
        found = _program.run_json(["devices"], self._environment, accepted=(0, 4))
        return [Device.of(d) for d in found]

    def _device(self, id: str) -> Device:
        """A device of this machine; "auto" is the first that is usable, as for the program."""
        if self._devices is None:
            self._devices = self.devices()
        usable = [d for d in self._devices if d.usable]
        for device in usable:
            if id in ("auto", device.id):
                return device
        there = ", ".join(d.id for d in usable) or "none"
        why = "".join(f"; {d.id}: {d.why_not}" for d in self._devices if d.id == id)
        raise Unavailable(f"no usable device {id} here (there is: {there}){why}", 4)

    @overload
    def tune(self, op: str | Operator, *, wait: Literal[True] = ..., **options: Any) -> TuneResult: ...
    @overload
    def tune(self, op: str | Operator, *, wait: Literal[False], **options: Any) -> Job: ...
    def tune(
        self,
        op: str | Operator,
        *,
        shape: Mapping[str, int] | None = None,
        device: AnyDevice = "auto",
        trials: int = 200,
        seconds: float = 0,
        plateau: int = 0,
        seed: int = 1,
        dtype: Any = "float32",
        l2: Literal["cold", "warm"] = "cold",
        progress: Progress = True,
        wait: bool = True,
        **parameters: int,
    ) -> TuneResult | Job:
        """Finds the fastest schedule of an operator at a shape, and keeps every trial.

        The shape is given by keywords (m=512, n=512), or by `shape` where a parameter has the name of
        another argument. `trials`, `seconds` and `plateau` limit the search; 0 is no limit.
        `wait=False` returns a Job at once. `progress` shows on stderr how far a search of this machine is; a function
        is called with each Event instead, and ends the search where it raises.
        """
        if callable(progress) and not wait:
            raise InvalidArgument("what is not waited for tells its events by job.events(), not to a function", 2)
        workload = _Workload.of(op, shape, parameters, dtype).flags()
        limits = ["--trials", str(trials), "--seconds", str(seconds), "--plateau", str(plateau)]
        rest = [*limits, "--seed", str(seed), "--l2", l2]
        job: LocalJob | ServerJob
        if self._server is not None:
            submit = ["submit", *workload, *rest, *self._model(device), *self._server]
            job = ServerJob(_program.run_json(submit, self._environment)["id"], self._server, self._environment)
        else:
            arguments = ["tune", *workload, *rest, "--device", device_id(device)]
            job = LocalJob(arguments, self._environment, progress is True)
        if not wait:
            return job
        _tell(job, progress)
        return job.result()

    def tune_workloads(
        self,
        file: str | os.PathLike[str],
        *,
        op_file: str | os.PathLike[str] | None = None,
        device: AnyDevice = "auto",
        trials: int = 200,
        seconds: float = 0,
        progress: Progress = True,
    ) -> list[TuneResult]:
        """Tunes each line ("op k=v,... [weight=N] [dtype=T]") of a file within one budget, shared by expected gain.

        `trials` and `seconds` are for each line on average. A server makes one job of the file, in which each line has
        that budget for itself. Lines that could not be tuned are missing; where that is all of them, or the device is
        gone, it is an error. `progress`: as for tune().
        """
        arguments = ["--workloads", os.fspath(file), "--trials", str(trials), "--seconds", str(seconds)]
        if op_file is not None:
            arguments += ["--op-file", os.fspath(op_file)]
        if self._server is not None:
            submit = ["submit", *arguments, *self._model(device), *self._server]
            many = ServerJob(_program.run_json(submit, self._environment)["id"], self._server, self._environment)
            _tell(many, progress)
            return many.results()
        job = LocalJob(
            ["tune", *arguments, "--device", device_id(device)], self._environment, progress is True, many=True
        )
        _tell(job, progress)
        return [TuneResult.of(d) for d in job.wait() if "trials" in d]

    def _model(self, device: AnyDevice) -> list[str]:
        """A server knows models, not this machine's numbers."""
        id = device_id(device)
        return [] if id == "auto" else ["--device", self._device(id).name]

    def query(
        self,
        op: str | Operator,
        *,
        shape: Mapping[str, int] | None = None,
        device: AnyDevice = "auto",
        fallback: Fallback = "none",
        dtype: Any = "float32",
        l2: Literal["cold", "warm"] = "cold",
        **parameters: int,
    ) -> Record:
        """The best known schedule of a workload; `match` says how it was found.

        `fallback`: where this shape was not tuned, nothing (NotFound), the nearest shape's schedule, or the
        default schedule.
        """
        return self._query(_Workload.of(op, shape, parameters, dtype), device_id(device), fallback, l2)

    def _query(self, workload: _Workload, device: str, fallback: str, l2: str) -> Record:
        arguments = ["query", *workload.flags(), "--l2", l2, "--fallback", fallback]
        if self._server is None:
            arguments += ["--device", device]
        else:
            arguments += [*self._model(device), *self._server]
        document = _program.run_json(arguments, self._environment, accepted=(0, 3))
        if not document["found"]:
            others = {
                "none": ", or ask for fallback='nearest' or 'default'",
                "nearest": ", or ask for fallback='default': of no other shape is one known that applies to this one",
            }.get(fallback, "")
            raise NotFound(
                f"no schedule of {document['op']} {_shape_text(document['shape'])} for "
                f"{document['device']}: tune it first{others}"
            )
        return Record.of(document)

    def export(
        self,
        folder: str | os.PathLike[str],
        op: str | Operator,
        *,
        shape: Mapping[str, int] | None = None,
        device: AnyDevice = "auto",
        fallback: Fallback = "none",
        dtype: Any = "float32",
        l2: Literal["cold", "warm"] = "cold",
        **parameters: int,
    ) -> Record:
        """Writes the kernels of the schedule that query() finds, compiled for a device of this machine, to a folder
        that load() and other programs read."""
        workload = _Workload.of(op, shape, parameters, dtype)
        id = device_id(device)
        record = self._query(workload, id, fallback, l2)
        self._build(Path(folder), record, workload, id)
        return record

    def _build(self, folder: Path, record: Record, workload: _Workload, device: str) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".steps") as steps:
            steps.write("".join(f"{step}\n" for step in record.steps))
            steps.flush()
            arguments = ["export", *workload.flags(), "--steps", steps.name, "--out", str(folder)]
            _program.run([*arguments, "--device", device], self._environment)

    def kernel(
        self,
        op: str | Operator,
        *,
        shape: Mapping[str, int] | None = None,
        device: AnyDevice = "auto",
        fallback: Fallback = "none",
        dtype: Any = "float32",
        l2: Literal["cold", "warm"] = "cold",
        **parameters: int,
    ) -> Kernel:
        """The schedule that query() finds, compiled for a device of this machine and loaded: call it on arrays.

        `kernel.record.match` says whether it was measured at this shape ("exact"), is another shape's
        ("nearest") or nobody's ("default"). What was compiled is kept in the user's cache folder.
        """
        from heddle.kernel import Kernel

        workload = _Workload.of(op, shape, parameters, dtype)
        id = device_id(device)
        record = self._query(workload, id, fallback, l2)
        here = self._device(id)
        # Whatever the kernel's text and binary depend on.
        program = os.stat(_program.program())
        key = [
            op.text if isinstance(op, Operator) else op,
            workload.dtype,
            sorted(record.shape.items()),
            record.steps,
            [here.name, here.arch, here.driver, here.compiler],
            [program.st_size, program.st_mtime_ns],
        ]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
        folder = cache_folder("kernels") / digest
        if not (folder / "manifest.json").exists():
            # Into a folder of its own first: another process may be making the same.
            with tempfile.TemporaryDirectory(dir=folder.parent) as making:
                made = Path(making) / "export"
                self._build(made, record, workload, here.id)
                try:
                    made.rename(folder)
                except OSError:
                    if not (folder / "manifest.json").exists():
                        shutil.rmtree(folder, ignore_errors=True)
                        made.rename(folder)
        return Kernel(folder, device=here.id, record=record)

    def table(
        self,
        op: str | Operator,
        *,
        shape: Mapping[str, int | Iterable[int]] | None = None,
        device: AnyDevice = "auto",
        fallback: Fallback = "default",
        dtype: Any = "float32",
        l2: Literal["cold", "warm"] = "cold",
        default: Default | None = None,
        **parameters: int | Iterable[int],
    ) -> Table:
        """Kernels for a parameter whose value is only known when they are called (heddle.table.Table).

        That parameter is given as several sizes: `db.table("matmul", n=4096, k=4096, m=[1, 8, 64])`. Sizes that were
        not tuned get the schedule that `fallback` says. Beyond the largest size `default` is called, or without one
        the default schedule is compiled.
        """
        from heddle.table import Table, free_parameter

        fixed, name, sizes = free_parameter(shape or {}, parameters)
        operator = op if isinstance(op, Operator) else Operator.builtin(op)

        kernel = partial(self._kernel_of_size, op, fixed, name, device=device, dtype=dtype, l2=l2)
        return Table(
            operator,
            name,
            {size: kernel(size, fallback=fallback) for size in sizes},
            default=default,
            beyond=partial(kernel, fallback="default"),
        )

    def _kernel_of_size(
        self, op: str | Operator, fixed: Mapping[str, int], parameter: str, size: int, **options: Any
    ) -> Kernel:
        return self.kernel(op, shape={**fixed, parameter: size}, **options)


def _tell(job: Job, progress: Progress) -> None:
    """Tells all events of a job; where that fails, or Ctrl-C is pressed, ends it."""
    if not callable(progress):
        return
    try:
        for event in job.events():
            progress(event)
    except BaseException:
        job.cancel()
        raise


def _shape_text(shape: Mapping[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in shape.items())


class _Workload(NamedTuple):
    op: str | Operator
    sizes: Mapping[str, int]
    dtype: str

    @classmethod
    def of(
        cls, op: str | Operator, shape: Mapping[str, int] | None, parameters: Mapping[str, int], dtype: Any
    ) -> _Workload:
        sizes = {**(shape or {}), **parameters}
        for name, value in sizes.items():
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise InvalidArgument(f"{name}={value!r}: a parameter's value is a whole number", 2)
        return cls(op, {name: value.__index__() for name, value in sizes.items()}, dtype_name(dtype))

    def flags(self) -> list[str]:
        op = self.op
        named = [op.name, "--op-file", str(op.file)] if isinstance(op, Operator) else [op]
        shape = ["--shape", _shape_text(self.sizes)] if self.sizes else []
        return [*named, *shape, "--dtype", self.dtype]
