"""What an operator installs and looks at: units, modes of files, certificates, and who changed what."""

import json
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import tempfile
import time
import urllib.request

from service import Service, certificates, expect

DEPLOY = os.environ["HEDDLE_SOURCE_DIR"] + "/deploy"


def check_units():
    """systemd takes the units as they are, and what it holds the services to stays."""
    if shutil.which("systemd-analyze") is None:
        print("not checked: units (no systemd-analyze)")
        return
    # The exposure (of 100) that `systemd-analyze security` has seen, and some.
    for unit, exposure in (("heddle-server.service", 20), ("heddle-measured.service", 30),
                           ("heddle-backup.service", 20), ("heddle-backup.timer", None)):
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{DEPLOY}/{unit}") as text, open(f"{folder}/{unit}", "w") as out:
                # Verified are programs that are installed.
                out.write(text.read().replace("/usr/bin/heddle ", "/bin/true "))
            if exposure is None:  # starts the unit of its name
                shutil.copy(f"{DEPLOY}/heddle-backup.service", folder)
            for check in (["verify"], ["security", "--offline=yes", f"--threshold={exposure}"]):
                if exposure is None and check != ["verify"]:
                    continue
                done = subprocess.run(["systemd-analyze", *check, f"{folder}/{unit}"],
                                      capture_output=True, text=True)
                said = done.stdout + done.stderr
                if "Unknown" in said and "option" in said:  # --threshold is of systemd 250
                    continue
                expect(done.returncode == 0, f"{unit}: {check}\n{said}")
                expect(check != ["verify"] or unit not in done.stderr, done.stderr)


# As `heddle records export` writes it.
IMPORTED = {
    "format": 1,
    "environment": {"arch": "opencl", "compiler": "PoCL", "device_name": "a processor",
                    "device_uuid": "", "driver": "3.1", "feature_version": 5,
                    "generator_version": 5, "l2": "cold", "memory_mib": 0, "power_limit_w": 0,
                    "sm_count": 2},
    "workload": {"dtype": "float32", "hash": "de21f1be990fd4e4", "op": "vector_add",
                 "shape": {"n": 4096},
                 "text": "float32 op vector_add(n = 4096) {\n  in A[n], B[n]\n"
                         "  out C[i: n] = A[i] + B[i]\n}\n"},
    "trial": {"ci_high_us": 6.4, "ci_low_us": 6.2, "compile_s": 3.5, "detail": "", "final": False,
              "host": "elsewhere", "imported": False, "load_s": 0.001, "local_bytes": 0,
              "max_error": 0.0, "noisy": False, "other_processes": 0, "outcome": "OK",
              "point": "stream: threads=256 vector=1 items=1 unroll=1", "registers": 0, "run": "r",
              "samples": 538, "screened_out": False, "shared_bytes": 0,
              "source_hash": "ef2f40bea8080aed", "steps": "", "throttled": False, "time_s": 0.1,
              "time_us": 6.3, "validate_s": 0.001, "when_us": 1795334260666647},
}


def logged(s):
    """The lines of the server's log."""
    return [json.loads(line) for line in s.log("server").splitlines() if line.startswith("{")]


def check_server(s):
    certificates(s.folder, "IP:127.0.0.1")
    port = 20000 + 2 * (os.getpid() % 6000)  # below those that the system gives out
    metrics = f"127.0.0.1:{port + 1}"
    # What systemd would hear of it.
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(f"{s.folder}/notify")
    manager.settimeout(120)
    s.environment.update(NOTIFY_SOCKET=f"{s.folder}/notify", WATCHDOG_USEC="200000")
    # The server makes the database, whatever its caller's umask.
    old = os.umask(0o022)
    serving = s.start("server", "serve", "--listen", s.server_address, "--listen",
                      f"127.0.0.1:{port}", "--metrics", metrics, "--tls-cert",
                      f"{s.folder}/server.pem", "--tls-key", f"{s.folder}/server.key")
    os.umask(old)
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC"):
        s.environment.pop(name)
    for said in (b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"):
        expect(manager.recv(100) == said, said)
    manager.close()
    end = time.monotonic() + 120
    while "serving on" not in s.log("server") and time.monotonic() < end:
        expect(serving.poll() is None, s.tail("server"))
        time.sleep(0.05)
    for role in ("tuner", "admin"):
        with open(f"{s.folder}/{role}.token", "w") as out:
            out.write(s.run("token", "create", "--tenant", "weavers", "--role", role).stdout)

    def as_role(role):
        return ["--server", f"127.0.0.1:{port}", "--tls-ca", f"{s.folder}/ca.pem", "--token-file",
                f"{s.folder}/{role}.token"]

    job = s.run("submit", "matmul", "--shape", "m=64,n=64,k=64", "--trials", "4", "--request-id",
                "from-a-script", *as_role("tuner")).stdout.strip()
    s.run("cancel", job, *as_role("tuner"))
    s.run("devices", "drain", "nobody/cuda:0", *as_role("admin"), check=False)
    s.run("devices", "drain", "nobody/cuda:0", *as_role("tuner"), check=False)
    with open(f"{s.folder}/trials", "w") as out:
        out.write(json.dumps(IMPORTED) + "\n")
    s.run("records", "import", f"{s.folder}/trials", *as_role("tuner"))
    s.run("records", "backup", f"{s.folder}/copy.db")

    for name in ("heddle.db", "heddle.db-wal", "heddle.sock", "copy.db"):
        mode = stat.S_IMODE(os.stat(f"{s.folder}/{name}").st_mode)
        expect(mode == 0o600, f"{name} has mode {mode:o}")

    seen = {line["method"]: line for line in logged(s) if line["event"] == "change"}
    created = seen["CreateJob"]
    expect(created["request_id"] == "from-a-script" and created["job"] == job, created)
    expect(seen["CancelJob"]["job"] == job and seen["CancelJob"]["code"] == "OK", seen)
    expect(seen["SetDeviceState"]["code"] == "NOT_FOUND", seen)
    for method, token in (("CreateJob", 1), ("CancelJob", 1), ("Import", 1),
                          ("SetDeviceState", 2)):
        change = seen[method]
        expect(change["token"] == token and change["tenant"] == "weavers" and change["peer"],
               f"who did it is not said: {change}")
    refused = [line for line in logged(s) if line["event"] == "caller_refused"]
    expect(len(refused) == 1 and refused[0]["token"] == 1 and refused[0]["peer"], refused)
    expect(seen["Import"]["added"] == 1, seen)
    s.run("token", "create", "--role", "daemon", "--host", "loom-1", "--expires", "30")
    tokens = s.json("token", "list")
    expect([t["host"] for t in tokens] == ["", "", "loom-1"], tokens)
    expect(tokens[0]["last_used"] and not tokens[0]["expires"], tokens)
    expect(tokens[2]["expires"] and not tokens[2]["expired"] and not tokens[2]["last_used"], tokens)
    whose = ("SELECT s.tenant, s.token FROM trial t JOIN source s ON s.id = t.source "
             "WHERE t.imported = 1")
    whose = sqlite3.connect(f"{s.folder}/copy.db").execute(whose).fetchall()
    expect(whose == [("weavers", 1)], f"imported by {whose}")
    for role in ("tuner", "admin"):
        with open(f"{s.folder}/{role}.token") as token:
            expect(token.read().strip() not in s.log("server"), "a token is in the log")

    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=30) as answer:
        told = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines()
                    if not line.startswith("#"))
    ends = subprocess.run(["openssl", "x509", "-in", f"{s.folder}/server.pem", "-noout", "-enddate",
                           "-dateopt", "iso_8601"], capture_output=True, text=True, check=True)
    ends = subprocess.run(["date", "-ud", ends.stdout.strip().split("=")[1], "+%s"],
                          capture_output=True, text=True, check=True)
    name = 'heddle_certificate_expiry_timestamp_seconds{certificate="server"}'
    expect(float(told[name]) == float(ends.stdout), f"{told[name]} for {ends.stdout}")
    expect("certificate_expires" in s.log("server"), "it ends in two days, and nobody says so")
    expect(any(key.startswith("heddle_build_info{") for key in told), told)


check_units()
with Service() as service:
    check_server(service)
