"""What a service meets that nobody kills: a disk that is full or slow, processes that stand still,
callers that take all descriptors, a worker that the kernel ends for want of memory, a database
restored from a backup. One job goes on through all of it: every trial that was acknowledged is there
once. What the kernel does not let this user do is left out, by name."""

import os
import resource
import shutil
import signal
import socket
import subprocess
import time

from service import Progress, Service, expect, skip

LEASE = 3


def write(path, text):
    with open(f"{path}.new", "w") as out:
        out.write(text)
    os.rename(f"{path}.new", path)


class SmallDisk:
    """A file system of a few MiB at `path`; None where none can be mounted."""

    def __init__(self, path):
        self.path = path
        os.mkdir(path)
        mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", path]
        self.mounted = subprocess.run(mount, capture_output=True).returncode == 0

    def fill(self):
        with open(f"{self.path}/filler", "wb", buffering=0) as out:
            try:
                while out.write(b"x" * 4096):
                    pass
            except OSError:
                pass

    def free(self):
        os.unlink(f"{self.path}/filler")

    def unmount(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.path], capture_output=True)


class LittleMemory:
    """A control group whose processes may take no more memory; None where none can be made."""

    def __init__(self):
        # Of version 1, then of version 2.
        for root, limit, events in (("memory/", "memory.limit_in_bytes", "memory.oom_control"),
                                    ("", "memory.max", "memory.events")):
            self.path, self.events = f"/sys/fs/cgroup/{root}heddle-{os.getpid()}", events
            try:
                os.mkdir(self.path)
                with open(f"{self.path}/{limit}", "w") as out:
                    out.write("65536")
                self.usable = not self.kills()
            except OSError:
                self.usable = False
            if self.usable:
                return
            self.remove()

    def take(self, pid):
        with open(f"{self.path}/cgroup.procs", "w") as out:
            out.write(str(pid))

    def kills(self):
        """Has the kernel ended one of them?"""
        with open(f"{self.path}/{self.events}") as events:
            return dict(map(str.split, events))["oom_kill"] != "0"

    def remove(self):
        if os.path.isdir(self.path):
            os.rmdir(self.path)


def run(s, disk):
    if not any(d["usable"] and d["id"] == "opencl:0" for d in s.json("devices", check=False)):
        skip("pocl: no usable OpenCL device")
    s.environment["HEDDLE_DB"] = f"{disk.path}/heddle.db"
    delay = f"{s.folder}/delay"
    s.environment["HEDDLE_SYNC_DELAY_MS"] = delay
    slow = ["sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh", "env",
            f"LD_PRELOAD={os.environ['HEDDLE_SLOW_SYNC_LIBRARY']}"]
    at = ["--server", s.server_address]
    serve = ["serve", "--listen", s.server_address, "--lease", str(LEASE)]
    server = s.start("server", *serve, before=slow)
    daemon = s.start("daemon", "measured", "--device", "opencl:0", *at)
    s.await_devices(*at)
    job = s.run("submit", "matmul", "--shape", "m=64,n=64,k=64", "--trials", "100000", *at)
    job = job.stdout.strip()
    progress = Progress(s, job, at)

    def await_log(name, words, limit=60):
        end = time.monotonic() + limit
        while words not in s.log(name) and time.monotonic() < end:
            time.sleep(0.1)
        expect(words in s.log(name), f"no {words} in the log of the {name}:\n{s.tail(name)}")

    progress.await_more("at first")

    if disk.mounted:
        disk.fill()
        await_log("server", "commit_failed")
        await_log("daemon", "server_refuses")
        expect("report_refused" not in s.log("daemon"), "a result was given up")
        disk.free()
        progress.await_more("a full disk")
    else:
        print("left out: tmpfs: no file system can be mounted here")

    for name, process in (("daemon", daemon), ("server", server)):
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5 * LEASE)  # its leases expire, or would
        process.send_signal(signal.SIGCONT)
        progress.await_more(f"a {name} that stood still")

    # The usual limit is for programs that use select: a server takes all it may have.
    soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    expect(soft == hard, f"{soft} of {hard} file descriptors")

    # Whoever can connect takes what it gets: who is there is served on, and others are afterwards.
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (192, hard))
    crowd = [socket.socket(socket.AF_UNIX) for _ in range(300)]
    for one in crowd:
        one.settimeout(10)
        one.connect(s.server_address.removeprefix("unix:"))
    await_log("server", "connections_refused")
    before = len(os.listdir(f"/proc/{server.pid}/fd"))
    expect(before < 192, f"{before} descriptors are open of 192")
    for one in crowd:
        one.close()
    progress.await_more("no descriptors")
    await_log("server", "connections_accepted")
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (hard, hard))

    little = LittleMemory()
    if little.usable:
        worker = max(s.children("__worker"))
        little.take(worker)
        end = time.monotonic() + 60
        while not little.kills() and time.monotonic() < end:
            time.sleep(0.1)
        expect(little.kills(), "the kernel ended no worker")
        progress.await_more("a worker without memory")
        little.remove()
    else:
        print("left out: cgroup: no control group of memory can be made here")

    write(delay, "500")
    progress.await_more("a slow disk")
    write(delay, "0")

    # Back to an earlier state, under the feet of a daemon that knows a later one.
    backup = f"{s.folder}/backup.db"
    kept = {t["id"]: (t["outcome"], t["time_us"])
            for t in s.json("trials", job, *at) if t["state"] == "DONE"}
    s.run("records", "backup", backup)
    progress.await_more("after the backup")
    server.kill()
    server.wait()
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(s.environment["HEDDLE_DB"] + suffix):
            os.unlink(s.environment["HEDDLE_DB"] + suffix)
    shutil.copy(backup, s.environment["HEDDLE_DB"])
    server = s.start("server", *serve, before=slow)
    progress.acknowledged.clear()
    s.await_devices(*at, state="BUSY")
    progress.await_more("a restored backup")
    for trial, said in kept.items():
        expect(progress.acknowledged.get(trial) in (said, None), f"{trial} was {said}")

    trials = s.json("trials", job, *at)
    points = [t["point"] for t in trials if t["state"] == "DONE" and not t["final"]]
    expect(len(set(points)) == len(points), "a point was counted twice")
    lost = [t for t in trials if t["outcome"] in ("WORKER_LOST", "BUILD_TIMEOUT", "ILLEGAL_ACCESS")]
    expect(not lost, f"faults of the service were counted as candidates': {lost}")
    s.run("cancel", job, *at)
    for name, process in (("daemon", daemon), ("server", server)):
        process.send_signal(signal.SIGTERM)
        expect(process.wait(timeout=60) == 0, f"the {name} did not end in order\n{s.tail(name)}")


with Service() as service:
    small = SmallDisk(f"{service.folder}/disk")
    try:
        run(service, small)
    finally:
        for process in service.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        small.unmount()
