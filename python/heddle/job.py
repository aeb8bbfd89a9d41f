"""Tuning jobs: of this machine's program, and of a server."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Protocol

from heddle import _program
from heddle.errors import BY_EXIT_CODE, Interrupted, NoValidSchedule, ProgramFailed, Unavailable
from heddle.records import Event, TuneResult


class Job(Protocol):
    """A tuning run that goes on while its caller does something else."""

    @property
    def id(self) -> str: ...
    def events(self, after: int = 0) -> Iterator[Event]:
        """Events in order, as they happen, until the job ends; those up to `after` are passed over."""

    def result(self) -> TuneResult:
        """Waits for the end. Raises NoValidSchedule, Interrupted or what else made it fail."""

    def cancel(self) -> None:
        """Ends it; its trials are kept."""


# What a line of progress has, unlike others that begin as JSON does.
_PROGRESS = {"op", "shape", "dtype", "device", "trials", "failed", "best_us"}


class _Count:
    """Trials of all turns of all workloads, from the lines of `heddle tune --progress json`."""

    def __init__(self) -> None:
        self._ended = Counter[str]()  # of turns that are over: all trials, as "", and those that failed by kind
        self._turns: dict[str, Counter[str]] = {}  # of each workload on each device the present one

    def add(self, line: Mapping[str, Any]) -> Counter[str]:
        """The counts after one more line."""
        key = f"{line['op']} {line['shape']} {line['dtype']} {line['device']}"
        now = Counter({"": line["trials"], **line["failed"]})
        before = self._turns.get(key)
        if before is not None and now[""] < before[""]:
            self._ended += before
        self._turns[key] = now
        return sum(self._turns.values(), self._ended)


class LocalJob:
    """A `heddle tune` of this machine, in a process of its own.

    It is a session of its own: Ctrl-C reaches this process, which passes one signal on (a second one would end the
    program without its result).
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], show: bool, many: bool = False
    ) -> None:
        self._show = show
        self._many = many
        self._events: list[Event] = []
        self._text: list[str] = []  # what is no progress: notes, warnings, the error
        self._held: list[str] = []  # not shown yet, as they may be what wait() raises: the error, and what is behind it
        self._changed = threading.Condition()
        self._printed = ""  # on stdout, once it has ended
        # A pipe would have to be read while it runs.
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._count = _Count()
        self._best: float | None = None  # of the last line
        self._process = subprocess.Popen(
            [_program.program(), *arguments, "--json", "--progress", "json"],
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        _running.add(self)

    @property
    def id(self) -> str:
        return f"pid {self._process.pid}"

    def _read(self) -> None:
        assert self._process.stderr
        with self._process.stderr as lines:
            for line in lines:
                self._line(line.rstrip("\n"))
        if self._process.wait() in (0, 130):
            self._show_held()
        with self._out:
            self._out.seek(0)
            self._printed = self._out.read().decode(errors="replace")
        with self._changed:
            state = "SUCCEEDED" if self._process.returncode == 0 else "FAILED"
            last = self._events[-1] if self._events else Event(0, state, 0, None, {})
            self._events.append(Event(last.seq + 1, state, last.trials, last.best_us, last.failed))
            self._changed.notify_all()

    def _line(self, line: str) -> None:
        try:
            document = json.loads(line) if line.startswith("{") else None
        except ValueError:  # cut off, where the program was killed
            document = None
        if not isinstance(document, dict) or not document.keys() >= _PROGRESS:
            with self._changed:
                self._text.append(line)
            if line.startswith("heddle: "):
                self._show_held()
                self._held.append(line)
            elif self._held:
                self._held.append(line)
            elif self._show:
                _show(line, False, False)
            return
        self._show_held()  # it went on
        best = document["best_us"]
        with self._changed:
            failed = self._count.add(document)
            trials = failed.pop("", 0)
            # Of several workloads there is no one best.
            now = Event(len(self._events) + 1, "RUNNING", trials, None if self._many else best, failed)
            self._events.append(now)
            self._changed.notify_all()
        if self._show:
            _show(document["text"], True, best != self._best)
        self._best = best

    def _show_held(self) -> None:
        for line in self._held if self._show else []:
            _show(line, False, False)
        self._held.clear()

    def events(self, after: int = 0) -> Iterator[Event]:
        while True:
            with self._changed:
                while len(self._events) <= after:
                    if self._events and self._events[-1].state != "RUNNING":
                        return
                    self._changed.wait()
                event = self._events[after]
            yield event
            if event.state != "RUNNING":
                return
            after = event.seq

    def wait(self) -> Any:
        """The document that the program printed at its end; raises as result() does."""
        try:
            # In steps: a wait without limit does not see Ctrl-C.
            while self._reader.is_alive():
                self._reader.join(0.2)
        except KeyboardInterrupt:
            self.cancel()
            self._reader.join()
            raise
        code = self._process.returncode
        try:
            document = json.loads(self._printed)
        except ValueError:
            raise _program.failure(code or 1, "\n".join(self._text)) from None
        if code == 130:
            raise Interrupted("interrupted: what was measured is kept in the database", 130)
        # Of several workloads those that were tuned count, unless it is the device that failed.
        some = self._many and any("trials" in one for one in document)
        if code != 0 and (not some or BY_EXIT_CODE.get(code) is Unavailable):
            raise _program.failure(code, "\n".join(self._text))
        self._show_held()
        return document

    def result(self) -> TuneResult:
        return _checked(self.wait())

    def cancel(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)


def _cancel_running() -> None:
    # A session of its own would outlive this process; what was measured is in the database.
    for job in list(_running):
        job.cancel()


_running: weakref.WeakSet[LocalJob] = weakref.WeakSet()
atexit.register(_cancel_running)


def _checked(document: Mapping[str, Any]) -> TuneResult:
    result = TuneResult.of(document)
    if result.best_us is None:
        counts = ", ".join(f"{n} {kind}" for kind, n in result.trials.failed.items())
        raise NoValidSchedule(f"no valid schedule among {result.trials.total} trials ({counts})", 3)
    return result


_NOTEBOOK_COLUMNS = 100


def _show(line: str, progress: bool, better: bool) -> None:
    """On a terminal and in a notebook the progress is one line that changes; elsewhere a line where something is
    better."""
    out = sys.stderr
    if out is None:  # of a process without streams
        return
    notebook = type(out).__module__.partition(".")[0] == "ipykernel"
    if not notebook and not out.isatty():
        if better or not progress:
            print(line, file=out, flush=True)
        return
    # Notebooks go back to the line's begin as terminals do, but know no sequence that clears it.
    width = _NOTEBOOK_COLUMNS if notebook else _columns(out)
    shown = line[: width - 1] if progress else line
    out.write("\r" + (f"{shown:<{width - 1}}" if notebook else f"{shown}\033[K") + ("" if progress else "\n"))
    out.flush()


def _columns(out: Any) -> int:
    try:
        return os.get_terminal_size(out.fileno()).columns or 80
    except (OSError, ValueError):  # what says that it is a terminal need not be a file
        return 80


class ServerJob:
    """A job of a server; it goes on when this process ends."""

    def __init__(self, id: str, server: Sequence[str], environment: Mapping[str, str]) -> None:
        self._id = id
        self._server = [*server]
        self._environment = environment

    @property
    def id(self) -> str:
        return self._id

    def events(self, after: int = 0) -> Iterator[Event]:
        # From the first one on, to count: the snapshot that a stream begins with has the counts of now.
        trials, best, failed = 0, None, dict[str, int]()
        process = subprocess.Popen(
            [_program.program(), "watch", self._id, *self._server, "--after", "0", "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        assert process.stdout and process.stderr
        try:
            for line in process.stdout:
                document = json.loads(line)
                trial = document.get("trial")
                if document["first_seq"] == 0:
                    continue
                if "job" in document:
                    workloads = document["job"]["workloads"]
                    trials = sum(w["trials"]["total"] for w in workloads)
                    times = [w["best_us"] for w in workloads if w["best_us"]]
                    # Of several workloads there is no one best.
                    best = times[0] if len(workloads) == 1 and times else None
                    failed = {}
                    for workload in workloads:
                        for kind, count in workload["trials"]["failed"].items():
                            failed[kind] = failed.get(kind, 0) + count
                elif trial and not trial["final"]:
                    trials += 1
                    if trial["outcome"] not in (None, "OK"):
                        failed[trial["outcome"]] = failed.get(trial["outcome"], 0) + 1
                    elif trial["time_us"] and (best is None or trial["time_us"] < best):
                        best = trial["time_us"]
                if document["seq"] > after:
                    yield Event(document["seq"], document["state"], trials, best, dict(failed))
            message = process.stderr.read()
            if process.wait() != 0:
                raise _program.failure(process.returncode, message)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
            process.stdout.close()
            process.stderr.close()

    def result(self) -> TuneResult:
        document = _program.run_json(["wait", self._id, *self._server], self._environment)
        if isinstance(document, list):
            raise ProgramFailed(f"job {self._id} has {len(document)} workloads, not one result")
        return _checked(document)

    def results(self) -> list[TuneResult]:
        """Waits for the end: of those workloads that have a valid schedule. NoValidSchedule where none has."""
        # 3: of some of them there is none.
        documents = _program.run_json(["wait", self._id, *self._server], self._environment, accepted=(0, 3))
        found = [TuneResult.of(d) for d in (documents if isinstance(documents, list) else [documents])]
        valid = [result for result in found if result.best_us is not None]
        if not valid:
            raise NoValidSchedule(f"no valid schedule of any workload of job {self._id}", 3)
        return valid

    def cancel(self) -> None:
        _program.run(["cancel", self._id, *self._server], self._environment)
