"""What the tests of the Python package share."""

import atexit
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("HEDDLE_SOURCE_DIR") or Path(__file__).resolve().parents[2])
SKIPPED = 77  # exit code that ctest takes as "skipped"


def skip(why):
    """Skips the whole file, saying why; a failure where $HEDDLE_REQUIRE names what is missing ("WHAT: ...")."""
    if why.split(":")[0] in os.environ.get("HEDDLE_REQUIRE", "").split(","):
        sys.exit(f"required here: {why}")
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def readme_lines():
    """The README's Python part."""
    text = (SOURCE / "README.md").read_text(encoding="utf-8")
    part = re.search(r"\n## From Python\n\n((?:    .*\n)+)", text)
    return "".join(line[4:] for line in part.group(1).splitlines(keepends=True))


def require_pocl():
    # PoCL looks up its cache once a process, and tests remove theirs.
    cache = tempfile.TemporaryDirectory(prefix="heddle-pocl-")
    atexit.register(cache.cleanup)
    os.environ["POCL_CACHE_DIR"] = cache.name
    devices = subprocess.run([os.environ["HEDDLE_PROGRAM"], "devices", "--json"], capture_output=True, check=False)
    if not any(d["usable"] and d["id"] == "opencl:0" for d in json.loads(devices.stdout)):
        skip("pocl: no usable OpenCL device")


class Case(unittest.TestCase):
    """Each test has a folder, a database and a cache of its own, and no server."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="heddle-python-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ.update(
            HEDDLE_DB=str(self.folder / "heddle.db"),
            XDG_CACHE_HOME=str(self.folder / "cache"),
            HEDDLE_LOCK_FOLDER=str(self.folder),
        )
        os.environ.pop("HEDDLE_SERVER", None)

    def stand_in(self, script):
        """A program in the place of heddle: a Python script that sees the arguments."""
        path = self.folder / "program"
        path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{script}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        os.environ["HEDDLE_PROGRAM"] = str(path)


def manifest(folder, arch="sm_90", shape=(4, 8), workspace=False):
    """Writes a manifest of a two-input program with a kernel that the fake driver takes."""
    buffers = [("A", "input"), ("B", "input"), ("C", "output")] + [("W", "workspace")] * workspace
    strides = [shape[1], 1]
    document = {
        "op": "pair", "shape": {"m": shape[0], "n": shape[1]}, "dtype": "float32", "workload": "",
        "device": "Fake", "arch": arch, "time_us": None, "compile_options": [],
        "buffers": [
            {"name": n, "role": r, "dtype": "float32", "shape": list(shape), "strides": strides, "align": 16}
            for n, r in buffers
        ],
        "kernels": [
            {"entry": "k0_C", "source": "k0.cu", "binary": "k0.cubin", "grid": [3, 1, 1], "block": [32, 1, 1],
             "shared_bytes": 0, "args": ["A", "C"]},
            {"entry": "k1_C", "source": "k0.cu", "binary": "k0.cubin", "grid": [5, 2, 1], "block": [64, 1, 1],
             "shared_bytes": 65536, "args": [*(["W"] * workspace), "B", "C"]},
        ],
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(document))
    (folder / "k0.cubin").write_bytes(b"a cubin")
    (folder / "k0.cu").write_text("// text\n")
    return folder
