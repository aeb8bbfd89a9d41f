"""What a service meets that nobody kills: a disk that is full or slow, processes that stand still, few
file descriptors, a database restored from a backup. One job goes on through all of it: every trial
that was acknowledged is there once. What the kernel does not let this user do is left out, by name."""

import json
import os
import resource
import shutil
import signal
import subprocess
import time

from service import Service, expect, skip

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
    acknowledged = {}

    def done():
        """How many trials are done; what was said of them before still holds."""
        answer = s.run("trials", job, "--json", *at, check=False)
        if answer.returncode == 0:
            for trial in json.loads(answer.stdout):
                if trial["state"] == "DONE":
                    said = (trial["outcome"], trial["time_us"])
                    expect(acknowledged.setdefault(trial["id"], said) == said, f"{trial} was {said}")
        return len(acknowledged)

    def await_more(what, more=3, limit=120):
        start, end = done(), time.monotonic() + limit
        while done() < start + more:
            state = s.json("jobs", job, *at)["state"]
            expect(state in ("QUEUED", "RUNNING", "WAITING_DEVICE"), f"{what}: the job is {state}")
            expect(time.monotonic() < end,
                   f"{what}: it does not go on\n{s.tail('server')}\n{s.tail('daemon')}")
            time.sleep(0.3)
        print(f"{what}: went on, {done()} trials", flush=True)

    def await_log(name, words, limit=60):
        end = time.monotonic() + limit
        while words not in s.log(name) and time.monotonic() < end:
            time.sleep(0.1)
        expect(words in s.log(name), f"no {words} in the log of the {name}:\n{s.tail(name)}")

    await_more("at first")

    if disk.mounted:
        disk.fill()
        await_log("server", "commit_failed")
        await_log("daemon", "server_refuses")
        expect("report_refused" not in s.log("daemon"), "a result was given up")
        disk.free()
        await_more("a full disk")
    else:
        print("left out: tmpfs: no file system can be mounted here")

    for name, process in (("daemon", daemon), ("server", server)):
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5 * LEASE)  # its leases expire, or would
        process.send_signal(signal.SIGCONT)
        await_more(f"a {name} that stood still")

    # gRPC gives up a listener for good that runs out of descriptors: a server takes all it may have.
    soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    expect(soft == hard, f"{soft} of {hard} file descriptors")

    write(delay, "500")
    await_more("a slow disk")
    write(delay, "0")

    # Back to an earlier state, under the feet of a daemon that knows a later one.
    backup = f"{s.folder}/backup.db"
    s.run("records", "backup", backup)
    kept = {t["id"]: (t["outcome"], t["time_us"])
            for t in s.json("trials", job, *at) if t["state"] == "DONE"}
    await_more("after the backup")
    server.kill()
    server.wait()
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(s.environment["HEDDLE_DB"] + suffix):
            os.unlink(s.environment["HEDDLE_DB"] + suffix)
    shutil.copy(backup, s.environment["HEDDLE_DB"])
    server = s.start("server", *serve, before=slow)
    acknowledged.clear()
    s.await_devices(*at, state="BUSY")
    await_more("a restored backup")
    for trial, said in kept.items():
        expect(acknowledged.get(trial) in (said, None), f"{trial} was {said}")

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
