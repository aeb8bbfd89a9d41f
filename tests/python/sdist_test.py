"""`pip install heddle-VERSION.tar.gz`: the program is built from the sources in it. Takes as long as that does."""

import os
import subprocess
import sys
import unittest

from support import SOURCE, Case, require_pocl, skip

try:
    import hatchling  # noqa: F401
except ImportError as error:
    skip(f"python-hatchling: {error} (Debian: apt install python3-hatchling)")
require_pocl()


class Sdist(Case):
    def run_clean(self, *command):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HEDDLE_PROGRAM", "PYTHON"))}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder, env=clean)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
        return done.stdout

    def test_it_builds_and_runs(self):
        build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(self.folder / "dist")]
        subprocess.run(build, cwd=SOURCE / "python", check=True, capture_output=True)
        (sdist,) = (self.folder / "dist").iterdir()
        venv = self.folder / "venv" / "bin"
        self.run_clean(sys.executable, "-m", "venv", "--system-site-packages", self.folder / "venv")
        # hatchling is this Python's, so that nothing comes from a package index.
        self.run_clean(venv / "pip", "install", "--no-index", "--no-build-isolation", "--no-deps", sdist)
        version = sdist.name.removeprefix("heddle-").removesuffix(".tar.gz")
        self.assertEqual(self.run_clean(venv / "heddle", "--version").strip(), f"heddle {version}")
        code = (
            "import heddle; db = heddle.connect(); print(heddle.__file__)\n"
            "print(db.tune('vector_add', n=64, trials=1, device='opencl:0', progress=False).best_us)"
        )
        where, best = self.run_clean(venv / "python", "-c", code).split()
        self.assertTrue(where.startswith(str(self.folder)), where)
        self.assertGreater(float(best), 0)


if __name__ == "__main__":
    unittest.main()
