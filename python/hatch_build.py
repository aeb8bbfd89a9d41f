"""Puts the `heddle` program and the API's .proto files into a wheel."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProgramHook(BuildHookInterface):  # type: ignore[type-arg]
    """The program is $HEDDLE_PROGRAM where that is set, else built with CMake from the sources around this
    folder (a checkout) or below it (an unpacked sdist)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # who works on it says where the program is: $HEDDLE_PROGRAM
            return
        root = Path(self.root)
        source = root / "cpp" if (root / "cpp").exists() else root.parent
        self._made = tempfile.TemporaryDirectory()
        made = Path(self._made.name)
        given = os.environ.get("HEDDLE_PROGRAM")
        program = Path(given) if given else self._build(source, made)
        stripped = made / "heddle"
        subprocess.run(["strip", "-o", str(stripped), str(program)], check=True)
        stripped.chmod(0o755)
        build_data["force_include"][str(stripped)] = "heddle/_bin/heddle"
        for proto in sorted((source / "proto" / "heddle" / "v1").glob("*.proto")):
            build_data["force_include"][str(proto)] = f"heddle/v1/{proto.name}"
        # One wheel for all versions of Python: no code of it is compiled against any. The platform is this
        # machine's; scripts/wheel has auditwheel say which others will do.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._made.cleanup()

    def _build(self, source: Path, made: Path) -> Path:
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DHEDDLE_TESTS=OFF", "-DHEDDLE_WERROR=OFF"]
        options += ["-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=12"]  # less work from nothing
        build = made / "build"
        subprocess.run(["cmake", "-S", source, "-B", build, "-G", "Ninja", *options], check=True)
        subprocess.run(["cmake", "--build", build, "--target", "heddle"], check=True)
        return build / "cli" / "heddle"
