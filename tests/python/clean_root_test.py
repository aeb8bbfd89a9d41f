"""The wheel in a Debian 12 with nothing but Python: the README's lines, without a driver and with PoCL.

Makes a root with debootstrap, installs the wheel of the program under test there as a user would, and runs the lines.
What it prints is for docs/results/nightly.md. $HEDDLE_DEBIAN_MIRROR is the mirror, by default debootstrap's own.
"""

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import SOURCE, Case, readme_lines, skip

if os.getuid() != 0 or shutil.which("unshare") is None:
    skip("clean-root: a root is made and entered by root alone")
if shutil.which("debootstrap") is None:
    skip("clean-root: debootstrap is not installed (Debian: apt install debootstrap)")

SUITE, PYTHON = "bookworm", "3.11"
# Behind the README's lines: what they computed, against NumPy.
CHECK = """
expected = np.maximum(a @ b, 0) + c
error = np.abs(f(a, b, c) - expected).max() / np.abs(expected).max()
print(f"{f}: {f.record.time_us:.0f} us, largest difference from NumPy {error:.1e}")
assert f.record.match == "exact" and error < 1e-5, (f.record.match, error)
"""


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def debootstrap(*arguments):
    mirror = os.environ.get("HEDDLE_DEBIAN_MIRROR")
    return ["debootstrap", "--variant=minbase", *arguments, *([mirror] if mirror else [])]


downloads = tempfile.TemporaryDirectory(prefix="heddle-clean-root-")
atexit.register(downloads.cleanup)
numpy = Path(downloads.name) / "numpy"
try:
    run(debootstrap("--print-debs", SUITE, Path(downloads.name) / "debs"))
    run([sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--python-version", PYTHON,
         "--dest", numpy, "numpy"])  # fmt: skip
except RuntimeError as error:
    skip(f"clean-root: no mirror or no package index: {error}")


class CleanRoot(Case):
    def inside(self, *command, check=True, **environment):
        """Runs a command in the root, with a /proc of its own and this machine's /sys, as every Linux has them."""
        mounts = 'mount -t proc proc "$0/proc" && mount --bind /sys "$0/sys" && exec chroot "$0" "$@"'
        clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root", **environment}
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "sh", "-c", mounts, self.root, *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env=clean,
        )  # fmt: skip
        if check:
            self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        return done

    def as_user(self, *command, check=True):
        return self.inside("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", *command, check=check,
                           HOME="/home/user")  # fmt: skip

    def lines(self, more=""):
        """What the README's lines, and some more, come to."""
        (self.root / "home" / "user" / "lines.py").write_text(readme_lines() + more, encoding="utf-8")
        done = self.as_user("/home/user/venv/bin/python", "/home/user/lines.py", check=False)
        print(done.stdout, flush=True)
        return done

    def test_the_readme_s_lines(self):
        self.root = self.folder / "root"
        run(debootstrap("--include=python3,python3-venv", SUITE, self.root))
        wheels = self.root / "wheels"
        shutil.copytree(numpy, wheels)
        # Of the program under test.
        run([SOURCE / "scripts" / "wheel", self.folder / "dist"])
        (wheel,) = (self.folder / "dist").glob("*.whl")
        shutil.copy(wheel, wheels)

        self.inside("useradd", "--uid", "1000", "--create-home", "user")
        self.as_user("python3", "-m", "venv", "/home/user/venv")
        self.as_user("/home/user/venv/bin/pip", "install", "--quiet", "--no-index", "--find-links", "/wheels",
                     f"/wheels/{wheel.name}")  # fmt: skip
        version = self.as_user("/home/user/venv/bin/heddle", "--version").stdout
        print(wheel.name, version, sep="\n", flush=True)

        # Without a driver they say what to install.
        without = self.lines()
        self.assertNotEqual(without.returncode, 0)
        self.assertIn("heddle.errors.Unavailable: there is no usable device", without.stdout)
        (package,) = set(re.findall(r"Debian: apt-get install ([\w-]+)", without.stdout))
        self.inside("apt-get", "update")
        self.inside("apt-get", "install", "--yes", "--no-install-recommends", package, DEBIAN_FRONTEND="noninteractive")
        # With it they run, and compute what NumPy does.
        self.assertEqual(self.lines(CHECK).returncode, 0)


if __name__ == "__main__":
    unittest.main()
