"""The `heddle` program inside this package: where it is, and how it is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from heddle.errors import BY_EXIT_CODE, ProgramFailed, ProgramMissing

# Where a wheel has the program (python/hatch_build.py puts it there).
_BUNDLED = Path(__file__).with_name("_bin") / "heddle"


def program() -> str:
    """The program's path: $HEDDLE_PROGRAM, else the one inside this package.

    Raises ProgramMissing where there is neither.
    """
    chosen = os.environ.get("HEDDLE_PROGRAM")
    if chosen:
        return chosen
    if _BUNDLED.exists():
        return str(_BUNDLED)
    raise ProgramMissing(
        f"there is no heddle program in {_BUNDLED.parent}: install a wheel made by scripts/wheel, "
        "or name a program in $HEDDLE_PROGRAM"
    )


def program_environment() -> dict[str, str]:
    """The program's: this process's, and where its packages are, as NVRTC may be one of them (nvidia-cuda-nvrtc,
    which PyTorch needs, too)."""
    return {"VIRTUAL_ENV": sys.prefix, **os.environ}


def main() -> NoReturn:
    """The console script `heddle`: becomes the program. `heddle extract`, which reads models, is this package's."""
    if sys.argv[1:2] == ["extract"]:
        from heddle import _extract

        sys.exit(_extract.main(sys.argv[2:]))
    try:
        path = program()
    except ProgramMissing as error:
        sys.exit(f"heddle: {error}")
    os.execve(path, [path, *sys.argv[1:]], program_environment())


def message_of(stderr: str) -> str:
    """The program's error among the lines that it wrote to stderr: all from "heddle: " on."""
    lines = stderr.strip().splitlines()
    for index in reversed(range(len(lines))):
        if lines[index].startswith("heddle: "):
            return "\n".join([lines[index][len("heddle: ") :], *lines[index + 1 :]])
    return "\n".join(lines[-5:])


def failure(code: int, stderr: str) -> ProgramFailed:
    """The exception of an exit code other than 0; a negative code is a signal's."""
    message = message_of(stderr)
    if code < 0:
        return ProgramFailed(f"heddle ended by signal {-code}. {message}".strip(), code)
    kind = BY_EXIT_CODE.get(code, ProgramFailed)
    return kind(message or f"heddle ended with exit code {code}", code)


def run(
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    accepted: tuple[int, ...] = (0,),
) -> str:
    """Runs the program to its end and returns its stdout; raises for an exit code that is not accepted."""
    done = _run(arguments, environment)
    if done.returncode not in accepted:
        raise failure(done.returncode, done.stderr)
    return done.stdout


def _run(arguments: Sequence[str], environment: Mapping[str, str] | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program(), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
        check=False,
    )


def run_json(
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    accepted: tuple[int, ...] = (0,),
) -> Any:
    """As run(), of a command with --json: the parsed document. An accepted exit code without one is a failure."""
    done = _run([*arguments, "--json"], environment)
    if done.returncode not in accepted or (done.returncode != 0 and not done.stdout.strip()):
        raise failure(done.returncode, done.stderr)
    return json.loads(done.stdout)
