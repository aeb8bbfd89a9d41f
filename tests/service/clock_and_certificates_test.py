"""Clocks jump and certificates rotate: daemons measure and report as if nothing had happened."""

import os
import signal
import subprocess
import time

from service import Service, certificates, expect, skip

with Service() as s:
    if not any(d["usable"] and d["id"] == "opencl:0" for d in s.json("devices", check=False)):
        skip("pocl: no usable OpenCL device")
    first, second = f"{s.folder}/first", f"{s.folder}/second"
    for folder in (first, second):
        os.mkdir(folder)
        certificates(folder, "IP:127.0.0.1")
    for name in ("server.pem", "server.key", "ca.pem"):
        os.symlink(f"first/{name}", f"{s.folder}/{name}")

    port = 20000 + os.getpid() % 20000
    serve = ["serve", "--insecure-loopback", "--listen", f"127.0.0.1:{port}",
             "--listen", s.server_address,
             "--tls-cert", f"{s.folder}/server.pem", "--tls-key", f"{s.folder}/server.key"]
    local = ["--server", s.server_address]

    # The clock of server, searchers, daemon and workers jumps, to and fro.
    jump = f"{s.folder}/jump"
    s.environment.update(HEDDLE_CLOCK_JUMP=jump)
    jumping = ["env", f"LD_PRELOAD={os.environ['HEDDLE_CLOCK_JUMP_LIBRARY']}"]

    def jump_by(hours):
        with open(f"{jump}.new", "w") as out:
            out.write(str(3600 * hours))
        os.rename(f"{jump}.new", jump)

    serving = s.start("server", *serve, before=jumping)
    daemon = s.start("daemon", "measured", "--device", "opencl:0", "--server", f"127.0.0.1:{port}",
                     "--tls-ca", f"{s.folder}/ca.pem", before=jumping)
    s.await_devices(*local)
    # Small kernels, whose limits a busy machine does not reach. The budget of seconds is that of
    # real ones: an hour's jump uses none of it.
    job = s.run("submit", "vector_add", "--shape", "n=65536", "--trials", "16", "--seconds", "600",
                *local)
    job = job.stdout.strip()
    end = time.monotonic() + 300
    state = ""
    for hours in [1, -1, 24, 0] * 1000:
        jump_by(hours)
        time.sleep(0.5)
        ended = s.json("jobs", job, *local)
        state = ended["state"]
        if state not in ("QUEUED", "RUNNING", "WAITING_DEVICE") or time.monotonic() > end:
            break
    expect(state == "SUCCEEDED", f"the job is {ended}\n{s.tail('server')}\n{s.tail('daemon')}")
    expect("searcher_lost" not in s.log("server"), s.tail("server"))
    trials = s.json("trials", job, *local)
    screened = [t for t in trials if t["state"] == "DONE" and not t["final"]]
    expect(len(screened) == 16, f"the jumping clock used up the budget after {len(screened)} trials")
    late = [t for t in trials if t["outcome"] in ("RUN_TIMEOUT", "BUILD_TIMEOUT", "WORKER_LOST")]
    expect(not late, f"the jumping clock cost candidates: {late}")
    os.unlink(jump)
    # gRPC's thread that reads certificates again waits by the system's clock: one that has not jumped.
    serving.send_signal(signal.SIGTERM)
    expect(serving.wait(timeout=60) == 0, "no orderly end of a server whose clock jumped")
    serving = s.start("server", *serve)
    s.await_devices(*local)

    # Another authority signs another certificate; both files are replaced while all runs.
    for name in ("server.pem", "server.key", "ca.pem"):
        os.symlink(f"second/{name}", f"{s.folder}/{name}.new")
        os.rename(f"{s.folder}/{name}.new", f"{s.folder}/{name}")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        seen = subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", f"{second}/ca.pem",
             "-verify_return_error"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        if seen.returncode == 0:
            break
        time.sleep(0.5)
    expect(seen.returncode == 0, "the server still shows the old certificate")
    # A new server knows only the new certificate; the daemon finds it again and works.
    serving.kill()
    serving.wait()
    serving = s.start("server", *serve)
    s.await_devices(*local)
    s.run("submit", "vector_add", "--shape", "n=32768", "--trials", "4", "--wait", "--timeout", "200",
          *local)
    for process in (daemon, serving):
        process.send_signal(signal.SIGTERM)
        expect(process.wait(timeout=60) == 0, "no orderly end")
