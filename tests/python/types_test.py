"""The package's types, as `mypy --strict` sees them."""

import subprocess
import sys
import unittest

from support import SOURCE, Case, skip

try:
    import mypy  # noqa: F401
except ImportError as error:
    skip(f"python-mypy: {error} (Debian: apt install mypy)")


class Types(Case):
    def test_mypy_finds_nothing(self):
        # pyproject.toml says `strict`, and the oldest Python that the package is for.
        for version in ([], ["--python-version", "3.13"]):
            with self.subTest(version=version):
                command = [sys.executable, "-m", "mypy", *version, "--cache-dir", str(self.folder), "heddle"]
                done = subprocess.run(command, cwd=SOURCE / "python", capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
