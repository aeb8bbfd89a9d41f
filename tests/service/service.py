"""What the tests of the whole service share: a folder with a server, daemons and clients as separate
processes of the `heddle` program, none of which outlives the test."""

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HEDDLE = os.environ["HEDDLE_BINARY"]
SKIPPED = 77  # exit code that ctest takes as "skipped"


def skip(why):
    """Skips, saying why; a failure where $HEDDLE_REQUIRE names what is missing ("WHAT: ...")."""
    if why.split(":")[0] in os.environ.get("HEDDLE_REQUIRE", "").split(","):
        sys.exit(f"required here: {why}")
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


class Service:
    """`with Service() as s:` has s.folder, ends every process and removes the folder."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="heddle-service-")
        self.server_address = f"unix:{self.folder}/heddle.sock"
        self.processes = []
        # Every process of ours, children included, carries this: that is how none is overlooked.
        self.environment = dict(
            os.environ,
            HEDDLE_DB=f"{self.folder}/heddle.db",
            HEDDLE_LOCK_FOLDER=self.folder,
            XDG_CACHE_HOME=f"{self.folder}/cache",
            XDG_DATA_HOME=self.folder,
        )
        for name in ("HEDDLE_SERVER", "HEDDLE_TOKEN_FILE", "HEDDLE_TLS_CA"):
            self.environment.pop(name, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for pid in self.living():
            os.kill(pid, signal.SIGKILL)
        if os.environ.get("HEDDLE_KEEP_LOGS"):
            print("logs are in", self.folder)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def living(self):
        """Process ids that belong to this test."""
        mark = f"HEDDLE_LOCK_FOLDER={self.folder}".encode()
        found = []
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/environ", "rb") as environ:
                    if mark not in environ.read().split(b"\0"):
                        continue
                with open(f"/proc/{entry}/stat") as stat:
                    if stat.read().rsplit(")", 1)[1].split()[0] != "Z":
                        found.append(int(entry))
            except (OSError, ValueError, IndexError):
                continue
        return found

    def start(self, name, *arguments, before=()):
        """Starts a process of its own; its output is added to NAME.log."""
        with open(f"{self.folder}/{name}.log", "ab") as log:
            process = subprocess.Popen(
                [*before, HEDDLE, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def log(self, name):
        with open(f"{self.folder}/{name}.log", errors="replace") as log:
            return log.read()

    def children(self, *commands):
        """The processes that run one of these commands of the program."""
        found = []
        for pid in self.living():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
                    words = cmdline.read().split(b"\0")
            except OSError:
                continue
            if len(words) > 1 and words[1].decode() in commands:
                found.append(pid)
        return found

    def run(self, *arguments, check=True, before=(), timeout=600):
        """Runs a command to its end; its CompletedProcess with text."""
        done = subprocess.run(
            [*before, HEDDLE, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"heddle {' '.join(arguments)} ended with {done.returncode}\n{done.stdout}\n"
                f"{done.stderr}\n--- server\n{self.tail('server')}\n--- daemon\n{self.tail('daemon')}"
            )
        return done

    def json(self, *arguments, **options):
        return json.loads(self.run(*arguments, "--json", **options).stdout)

    def tail(self, name):
        try:
            return "\n".join(self.log(name).splitlines()[-40:])
        except OSError:
            return "(no log)"

    def await_devices(self, *flags, state="IDLE", limit=120, before=()):
        """Waits until the server has a device in this state."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            done = self.run("devices", *flags, "--json", check=False, before=before)
            if done.returncode == 0 and any(d["worker"] == state for d in json.loads(done.stdout)):
                return
            time.sleep(0.2)
        raise AssertionError(
            f"no device became {state}\n--- server\n{self.tail('server')}\n"
            f"--- daemon\n{self.tail('daemon')}"
        )


class Progress:
    """What a server tells of a job's trials: what it has acknowledged must stay."""

    def __init__(self, service, job, flags, before=()):
        self.service, self.job, self.flags, self.before = service, job, flags, before
        self.acknowledged = {}  # by trial, its outcome and time

    def done(self):
        """How many trials are done; as before while nobody answers."""
        words = ("trials", self.job, "--json", *self.flags)
        answer = self.service.run(*words, check=False, before=self.before)
        if answer.returncode == 0:
            for trial in json.loads(answer.stdout):
                if trial["state"] == "DONE":
                    said = (trial["outcome"], trial["time_us"])
                    first = self.acknowledged.setdefault(trial["id"], said)
                    expect(first == said, f"{trial} was {first}")
        return len(self.acknowledged)

    def await_more(self, what, more=3, limit=120):
        start, end = self.done(), time.monotonic() + limit
        while self.done() < start + more:
            state = self.service.json("jobs", self.job, *self.flags, before=self.before)["state"]
            expect(state in ("QUEUED", "RUNNING", "WAITING_DEVICE"), f"{what}: the job is {state}")
            expect(time.monotonic() < end, f"{what}: it does not go on\n"
                   f"{self.service.tail('server')}\n{self.service.tail('daemon')}")
            time.sleep(0.3)
        print(f"{what}: went on, {self.done()} trials", flush=True)


def sh(*command):
    subprocess.run(command, check=True, capture_output=True)


def certificates(folder, names):
    """An authority (ca.pem), and a server's certificate for these names (server.pem, server.key)."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    sh("openssl", "req", "-x509", *key, "-days", "2", "-subj", "/CN=Heddle test authority",
       "-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.pem")
    sh("openssl", "req", *key, "-subj", "/CN=heddle", "-keyout", f"{folder}/server.key",
       "-out", f"{folder}/server.csr")
    with open(f"{folder}/ext", "w") as extension:
        extension.write(f"subjectAltName={names}\n")
    sh("openssl", "x509", "-req", "-in", f"{folder}/server.csr", "-CA", f"{folder}/ca.pem",
       "-CAkey", f"{folder}/ca.key", "-CAcreateserial", "-days", "2",
       "-extfile", f"{folder}/ext", "-out", f"{folder}/server.pem")


def made_client(folder):
    """(grpc, common_pb2, tuning_pb2, tuning_pb2_grpc), made from the .proto files in the folder."""
    try:
        import grpc
        from grpc_tools import protoc
    except ImportError as error:
        skip(f"python-grpc: {error} (Debian: apt install python3-grpcio python3-grpc-tools)")
    protos = os.environ["HEDDLE_SOURCE_DIR"] + "/proto"
    made = f"{folder}/made"
    os.mkdir(made)
    files = [f"{protos}/heddle/v1/{name}" for name in os.listdir(f"{protos}/heddle/v1")]
    made_by = ["protoc", f"-I{protos}", "-I/usr/include", f"--python_out={made}",
               f"--grpc_python_out={made}", *files]
    expect(protoc.main(made_by) == 0, "protoc failed")
    sys.path.insert(0, made)
    names = ("common_pb2", "tuning_pb2", "tuning_pb2_grpc")
    return grpc, *(importlib.import_module(f"heddle.v1.{name}") for name in names)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def vouch(service, admin, before=()):
    """As an administrator who has looked: the models are what they say, the hosts can be trusted."""
    for model in service.json("devices", "models", *admin, before=before):
        service.run("devices", "pin", model["name"], *admin, before=before)
    for host in service.json("devices", "hosts", *admin, before=before):
        service.run("devices", "trust", host["host"], *admin, before=before)


def check_tuned(service, result, server, trials, before=(), admin=None):
    """A finished job's result, and that the queried record gives the kernel that was measured."""
    expect(result["state"] == "SUCCEEDED", result)
    expect(result["trials"]["total"] == trials, result["trials"])
    expect(result["best_us"] and result["final"] and result["steps"], result)
    workload = [result["op"], "--shape", ",".join(f"{k}={v}" for k, v in result["shape"].items())]
    answer = service.json("query", *workload, *server, before=before)
    expect(not answer["validated"], "nobody knows such a device")
    vouch(service, admin or server, before)
    answer = service.json("query", *workload, *server, before=before)
    expect(answer["found"] and answer["match"] == "exact" and answer["validated"], answer)
    expect(answer["steps"] == result["steps"], "the query gives other steps than the job")
    steps = f"{service.folder}/steps.txt"
    with open(steps, "w") as out:
        out.write("\n".join(answer["steps"]) + "\n")
    out = f"{service.folder}/export"
    service.run("export", *workload, "--steps", steps, "--out", out, "--device", "opencl:0")
    with open(f"{out}/manifest.json") as manifest:
        exported = json.load(manifest)["source_hash"]
    expect(exported == answer["fingerprint"]["source_hash"], "the exported kernel is another one")
