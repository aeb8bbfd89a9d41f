"""Operators of one's own, as text in tensor notation (docs/notation.md)."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from heddle import _program
from heddle.errors import InvalidArgument


def cache_folder(kind: str) -> Path:
    """Where this package keeps what it can make again: heddle/KIND in the user's cache folder (XDG)."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(root) / "heddle" / kind
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def keep_file(path: Path, text: str) -> Path:
    """Writes a file whole or not at all, so that processes and threads which do the same at once agree."""
    if not path.exists():
        partial = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    return path


class Operator:
    """An operator that need not ship with the program.

    `text` holds one definition or several; `name` says which is meant, and can be left out where there is one.
    The program parses it at once: InvalidArgument has line, column and what was expected.
    """

    def __init__(self, text: str, name: str | None = None) -> None:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.file = keep_file(cache_folder("operators") / f"{digest}.op", text)
        found = _program.run_json(["ops", "--op-file", str(self.file)])
        names = [str(one["name"]) for one in found]
        if name is None and len(names) != 1:
            raise InvalidArgument(f"the text defines {', '.join(names)}: say which is meant by name=", 2)
        if name is not None and name not in names:
            raise InvalidArgument(f"the text defines {', '.join(names)}, no operator {name}", 2)
        chosen = found[names.index(name) if name else 0]
        self.name: str = chosen["name"]
        self.text: str = chosen["text"]  # as the program prints it
        # Of each parameter, in order, its default or None.
        self.parameters: Mapping[str, int | None] = {p["name"]: p.get("default") for p in chosen["parameters"]}

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], name: str | None = None) -> Operator:
        return cls(Path(path).read_text(encoding="utf-8"), name)

    @classmethod
    def builtin(cls, name: str) -> Operator:
        """One that ships with the program; `heddle ops` lists them."""
        return cls(_program.run_json(["ops", name])[0]["text"])

    def __repr__(self) -> str:
        return f"<heddle.Operator {self.name}({', '.join(self.parameters)})>"
