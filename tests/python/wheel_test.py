"""The wheel, made of the program that is under test: what is in it, and that it works where it is installed."""

import os
import re
import stat
import subprocess
import sys
import unittest
import zipfile
from email.parser import Parser

from support import SOURCE, Case, skip

try:
    import hatchling  # noqa: F401
except ImportError as error:
    skip(f"python-hatchling: {error} (Debian: apt install python3-hatchling)")


def build(target, folder):
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=SOURCE / "python", check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


class Wheel(Case):
    def test_it_brings_the_program(self):
        wheel = build("wheel", self.folder / "dist")
        # The program runs on this platform alone, and with any Python.
        self.assertRegex(wheel.name, r"^heddle-\d+\.\d+\.\d+-py3-none-linux_\w+\.whl$")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            version = wheel.name.split("-")[1]
            metadata = Parser().parsestr(archive.read(f"heddle-{version}.dist-info/METADATA").decode())
            self.assertEqual(metadata["Requires-Python"], ">=3.10")
            self.assertEqual(set(metadata.get_all("Provides-Extra")), {"torch", "onnx", "grpc"})
            self.assertIn(b"Root-Is-Purelib: false", archive.read(f"heddle-{version}.dist-info/WHEEL"))
            mode = archive.getinfo("heddle/_bin/heddle").external_attr >> 16
            self.assertTrue(mode & stat.S_IXUSR)
        for path in (SOURCE / "python" / "heddle").rglob("*.py"):
            self.assertIn(str(path.relative_to(SOURCE / "python")), names)
        for path in (SOURCE / "proto" / "heddle" / "v1").glob("*.proto"):
            self.assertIn(f"heddle/v1/{path.name}", names)
        self.assertIn("heddle/py.typed", names)
        self.assertFalse([n for n in names if "__pycache__" in n])

        environment = {k: v for k, v in os.environ.items() if not k.startswith(("HEDDLE_", "PYTHON"))}
        venv = self.folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, env=environment)
        pip = [venv / "bin" / "pip", "install", "--quiet", "--no-index", "--no-deps", wheel]
        subprocess.run(pip, check=True, env=environment)
        # From a folder where nothing of the checkout is found.
        run = {"cwd": self.folder, "env": environment, "capture_output": True, "text": True, "check": True}
        program = subprocess.run([venv / "bin" / "heddle", "--version"], **run)
        self.assertEqual(program.stdout.strip(), f"heddle {version}")
        code = "import heddle; print(heddle.Operator.builtin('matmul').parameters, heddle.__file__)"
        package = subprocess.run([venv / "bin" / "python", "-c", code], **run)
        self.assertIn("'k': None", package.stdout)
        self.assertIn(str(venv), package.stdout)

    def test_the_source_has_all_that_the_program_is_built_from(self):
        import tarfile

        with tarfile.open(build("sdist", self.folder / "dist")) as archive:
            names = {name.split("/", 1)[1] for name in archive.getnames()}
            archive.extractall(self.folder)
        listed = (SOURCE / "CMakeLists.txt").read_text()
        for folder in [line[17:-1] for line in listed.splitlines() if line.startswith("add_subdirectory(")]:
            self.assertIn(f"cpp/{folder}/CMakeLists.txt", names)
        for suffix in ("*.cc", "*.h", "*.op", "*.proto", "*.cmake"):
            for path in SOURCE.glob(f"search_space/**/{suffix}"):
                self.assertIn(f"cpp/{path.relative_to(SOURCE)}", names)
        self.assertTrue({"pyproject.toml", "hatch_build.py", "heddle/py.typed", "cpp/LICENSE"} <= names)
        # Whatever else the build reads is there too: CMake finds all of its files, and ninja all of theirs.
        (unpacked,) = self.folder.glob("heddle-*/cpp")
        build_folder = self.folder / "build"
        options = ["-G", "Ninja", "-DHEDDLE_TESTS=OFF", "-DHEDDLE_WERROR=OFF"]
        for command in (
            ["cmake", "-S", unpacked, "-B", build_folder, *options],
            ["ninja", "-C", build_folder, "-n", "heddle"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        # And what their texts include of the checkout, of messages what they are made of.
        seen, missing = 0, []
        for path in [*unpacked.rglob("*.cc"), *unpacked.rglob("*.h")]:
            beside = path.parent.relative_to(unpacked)
            for included in re.findall(r'^#include "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
                made_of = "proto/" + re.sub(r"(\.grpc)?\.pb\.h$", ".proto", included)
                for name in (included, beside / included, made_of):
                    if (SOURCE / name).is_file():
                        seen += 1
                        missing += [] if (unpacked / name).is_file() else [f"{path.relative_to(unpacked)}: {included}"]
        self.assertGreater(seen, 1000)
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
