"""The Debian package: made from this build, unpacked into a folder, run from there. Its manual page and completions
have every command and flag that the program's own help has."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "service"))
from service import skip  # noqa: E402

BUILD = os.environ["HEDDLE_BUILD_DIR"]


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, **options)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def commands(program, path=()):
    """Every command with its flags, as its help tells them."""
    told = run(program, *path, "--help")
    yield path, set(re.findall(r"^ {2,4}(?:-\w,)?(--[a-z0-9-]+)", told, re.MULTILINE))
    below = told.split("\nSubcommands:\n")
    for name in re.findall(r"^  ([a-z-]+)  ", below[1], re.MULTILINE) if len(below) > 1 else []:
        yield from commands(program, (*path, name))


def bash(script, *words):
    """What bash proposes behind these words, the last of which is not whole."""
    quoted = " ".join(f"'{word}'" for word in words)
    return run("bash", "-c", f'source "$0"; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _heddle; '
               'echo "${COMPREPLY[@]}"', script).split()


def zsh(script, *words):
    """What zsh would choose from, and "FILES" where it proposes files."""
    return run("zsh", "-f", "-c", 'compadd() { shift; print -- "$@" }; _files() { print FILES }; words=("$@"); '
               'CURRENT=$#words; source "$0"', script, *words).split()


def check_files(root, control):
    for path in ("lib/systemd/system/heddle-server.service", "lib/systemd/system/heddle-measured.service",
                 "lib/systemd/system/heddle-backup.service", "lib/systemd/system/heddle-backup.timer",
                 "lib/sysusers.d/heddle.conf", "lib/tmpfiles.d/heddle.conf", "share/heddle/heddle-alerts.yml",
                 "share/heddle/slurm/tune.sbatch", "share/heddle/slurm/collect.sbatch", "share/heddle/kubernetes/server.yaml",
                 "share/doc/heddle/copyright", "share/doc/heddle/docs/cluster.md"):
        assert os.path.getsize(f"{root}/usr/{path}") > 0, path
    # The units start the program where the package has it.
    for name, command in (("server", "serve"), ("measured", "measured")):
        with open(f"{root}/usr/lib/systemd/system/heddle-{name}.service") as unit:
            assert f"ExecStart=/usr/bin/heddle {command}" in unit.read(), name
    if shutil.which("systemd-analyze"):
        check_units(root)
    for script in ("postinst", "prerm"):
        run("sh", "-n", f"{control}/{script}")
    # The units' users, made in that folder and nowhere else.
    if os.geteuid() == 0 and shutil.which("systemd-sysusers"):
        os.makedirs(f"{root}/etc", exist_ok=True)
        run(f"{control}/postinst", "configure", "", env={**os.environ, "DPKG_ROOT": root})
        with open(f"{root}/etc/passwd") as users:
            assert {line.split(":")[0] for line in users} >= {"heddle", "heddle-measured"}


def check_units(root):
    """What systemd says of the units, whose program is in that folder."""
    with tempfile.TemporaryDirectory() as folder:
        for unit in (units := sorted(os.listdir(f"{root}/usr/lib/systemd/system"))):
            with open(f"{root}/usr/lib/systemd/system/{unit}") as shipped, open(f"{folder}/{unit}", "w") as own:
                own.write(shipped.read().replace("=/usr/bin/heddle", f"={root}/usr/bin/heddle"))
        done = subprocess.run(["systemd-analyze", "verify", *(f"{folder}/{unit}" for unit in units)], capture_output=True,
                              text=True, timeout=60)
        said = [line for line in done.stderr.splitlines() if "heddle" in line]
        assert not said, said


def check_manual(root, program):
    file = f"{root}/usr/share/man/man1/heddle.1"
    if shutil.which("man"):
        done = subprocess.run(["man", "--warnings", "-l", file], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"})
        assert done.returncode == 0 and not done.stderr, done.stderr
        assert "heddle - finds fast GPU kernels" in done.stdout, done.stdout[:1000]
    with open(file) as page:
        page = page.read().replace("\\-", "-")
    script = f"{root}/usr/share/bash-completion/completions/heddle"
    seen = 0
    for path, flags in commands(program):
        if path:
            assert re.search(rf"^\.SS heddle {' '.join(path)}( |$)", page, re.MULTILINE), path
        proposed = bash(script, "heddle", *path, "-")
        assert sorted(proposed) == sorted(flags), (path, proposed, flags)
        section = page.split(f".SS heddle {' '.join(path)}")[1].split(".SS ")[0] if path else page
        assert all(flag in section for flag in flags), (path, flags)
        seen += 1
    assert seen > 30, seen


def check_completion(root):
    script = f"{root}/usr/share/bash-completion/completions/heddle"
    assert bash(script, "heddle", "tune", "--l2", "") == ["cold", "warm"]
    assert bash(script, "heddle", "tune", "--shape", "") == [], "the shell's own proposals"
    assert bash(script, "heddle", "tune", "--workl") == ["--workloads"]
    assert "slurm" in bash(script, "heddle", "cluster", "")
    # A value that is called as a command is.
    assert "--trials" in bash(script, "heddle", "tune", "--db", "show", "--")
    if shutil.which("zsh"):
        script = f"{root}/usr/share/zsh/vendor-completions/_heddle"
        assert zsh(script, "heddle", "tune", "--l2", "") == ["cold", "warm"]
        assert zsh(script, "heddle", "tune", "--shape", "") == ["FILES"]
        assert "slurm" in zsh(script, "heddle", "cluster", "")


for tool in ("cpack", "dpkg-deb", "dpkg-shlibdeps"):
    if not shutil.which(tool):
        skip(f"package: {tool} is missing; the Debian packages cmake and dpkg-dev have it")

with tempfile.TemporaryDirectory(prefix="heddle-package-") as folder:
    run("cpack", "-G", "DEB", "--config", f"{BUILD}/CPackConfig.cmake", "-B", folder, "-D",
        "CPACK_DEBIAN_COMPRESSION_TYPE=none", cwd=folder)
    [package] = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".deb")]
    depends = run("dpkg-deb", "-f", package, "Depends")
    assert "libsqlite3-0" in depends and "libc6" in depends, depends
    root = f"{folder}/root"
    run("dpkg-deb", "-x", package, root)
    run("dpkg-deb", "-e", package, f"{folder}/control")
    program = f"{root}/usr/bin/heddle"
    assert run(program, "--version").startswith("heddle "), program
    assert "matmul" in run(program, "ops")
    check_files(root, f"{folder}/control")
    check_manual(root, program)
    check_completion(root)
