"""A server whose jobs Kubernetes runs, on an API server of ours (api_server.py, nodes.py): killed at every step that it
takes, its watch lost and forgotten, its pods evicted and their nodes lost, its token replaced and its role taken away.
Whatever happens, a job ends, is made once, and leaves nothing behind. fake_task.py is in the tuner's place, but for one
job, whose pod's command is run as it is."""

import copy
import json
import os
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [f"{HERE}/../slurm", f"{HERE}/../service"]
from api_server import NAMESPACE, ApiServer, rules_of  # noqa: E402
from executor import Server  # noqa: E402
from nodes import INDEX, Nodes, environment_of  # noqa: E402
from place import Place  # noqa: E402
from schemas import check_objects  # noqa: E402
from service import HEDDLE, certificates, expect, skip  # noqa: E402

MANIFEST = os.path.join(os.environ["HEDDLE_SOURCE_DIR"], "deploy", "kubernetes", "server.yaml")


class Cluster(Place):
    def explain(self):
        return server.log()[-3000:]


class KubernetesServer(Server):
    def start(self, *flags):
        before = self.log().count("heddle: serving on") if self.process else 0
        with open(f"{self.folder}/server.log", "ab") as log:
            self.process = subprocess.Popen(
                [HEDDLE, "serve", "--executor", "kubernetes", "--image", "registry.example.org/heddle:1", "--volume-claim",
                 "heddle-runs", "--pod-user", "65532", "--folder", self.jobs, "--look-every", "0.1", *flags],
                env=self.cluster.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        # A step at which it is killed may come before.
        self.cluster.until("the server listens", lambda: self.process.poll() is not None or
                           self.log().count("heddle: serving on") > before)

    def folder_of(self, job):
        return f"{self.jobs}/{job.removeprefix('jobs/')}"

    def retired(self, *jobs, there=None):
        """Waits until nothing of them is left, in the cluster or to be collected."""
        left = (there or api).objects
        self.cluster.until("nothing is left", lambda: not left["jobs"] and not left["pods"] and all(
            os.path.exists(f"{self.folder_of(job)}/ended") for job in jobs))


def folder_in(pod, jobs):
    """Where the pod's batch lies: its volume is the server's folder."""
    container, = pod["spec"]["containers"]
    where = container["args"][container["args"].index("--folder") + 1]
    mount = next(m for m in container["volumeMounts"] if m["mountPath"] == where)
    volume = next(v for v in pod["spec"]["volumes"] if v["name"] == mount["name"])
    expect(volume["persistentVolumeClaim"] == {"claimName": "heddle-runs"}, volume)
    return where, f"{jobs}/{mount['subPath']}"


def fake_command(pod):
    index = pod["metadata"]["annotations"][INDEX]
    return [sys.executable, f"{HERE}/../slurm/fake_task.py", folder_in(pod, server.jobs)[1], "", "0"], {
        "PATH": os.environ["PATH"], "SLURM_ARRAY_TASK_ID": index, "SLURMD_NODENAME": pod["spec"]["nodeName"]}


def real_command(pod):
    where, folder = folder_in(pod, real.jobs)
    container, = pod["spec"]["containers"]
    index = pod["metadata"]["annotations"][INDEX]
    arguments = [a.replace("$(JOB_COMPLETION_INDEX)", index).replace(where, folder) for a in container["args"]]
    return [HEDDLE, *arguments], environment_of(pod, f"{place.folder}/{pod['metadata']['name']}")


def made():
    """The names of all Jobs that were ever made."""
    return [each["metadata"]["name"] for _, kind, what, each in api.history if kind == "jobs" and what == "ADDED"]


def best(job):
    return [w["best_us"] for w in job["workloads"]]


def write_token(text):
    with open(f"{credentials}/token", "w") as out:
        out.write(text + "\n")


def kill_server():
    os.kill(server.process.pid, signal.SIGKILL)


place = Cluster("kubernetes", KUBERNETES_SERVICE_HOST="127.0.0.1")
credentials = f"{place.folder}/account"
os.mkdir(credentials)
certificates(place.folder, "IP:127.0.0.1")
shutil.copy(f"{place.folder}/ca.pem", f"{credentials}/ca.crt")
with open(f"{credentials}/namespace", "w") as out:
    out.write(NAMESPACE)
write_token("first")
api = ApiServer(rules_of(MANIFEST), "first", f"{place.folder}/server")
api.kill = kill_server
place.environment["KUBERNETES_SERVICE_PORT"] = str(api.port)
nodes = Nodes(api, fake_command)
proxy = ApiServer(rules_of(MANIFEST))
real_nodes = Nodes(proxy, real_command)
devices = json.loads(place.run(HEDDLE, "devices", "--json", check=False).stdout)
real = KubernetesServer(place, "real") if any(d["usable"] and d["id"].startswith("opencl:") for d in devices) else None
real_environment = dict(place.environment)
server = KubernetesServer(place, "server")
try:
    # With the tuner itself, through a proxy that has the credentials; meanwhile, all else.
    if real:
        fakes, place.environment = place.environment, real_environment
        real.start("--kube-api", f"http://127.0.0.1:{proxy.port}", "--namespace", NAMESPACE)
        tuned = json.loads(real.heddle("submit", "vector_add", "--shape", "n=4096", "--trials", "1", "--json"))["id"]
        place.environment = fakes

    for lacking, words in (([], "--folder"), (["--folder", place.folder], "--image"),
                           (["--gpus-per-node", "8"], "--gpus-per-node is a flag of --executor slurm"),
                           (["--cpus-per-task", "8"], "a pod's cores are --cpu"), (["--sbatch", "x"], "--sbatch is")):
        refused = place.run(HEDDLE, "serve", "--executor", "kubernetes", *lacking, check=False)
        expect(refused.returncode == 2 and words in refused.stderr, refused)

    account = ["--kube-credentials", credentials, "--queue", "queue-of-{tenant}"]
    server.start(*account)
    # A job, by its tenant's queue, which admits it. The same request again makes nothing.
    server.modes("final 6", "final 5")
    job = server.submit(1, 2)
    place.until("it is there", lambda: api.objects["jobs"])
    (name, there), = api.objects["jobs"].items()
    expect(job.removeprefix("jobs/") in name, name)
    expect(there["metadata"]["labels"].items() >= {
        "kueue.x-k8s.io/queue-name": "queue-of-local", "heddle/server": "heddle-runs", "heddle/tenant": "local",
        "heddle/job": job.removeprefix("jobs/")}.items() and there["spec"]["suspend"], there)
    security = there["spec"]["template"]["spec"]["securityContext"]
    expect(security["runAsUser"] == security["fsGroup"] == 65532 and security["runAsNonRoot"], security)
    nodes.edit(lambda each: each["spec"].update(suspend=False))
    told = server.ends(job)
    expect(told["state"] == "SUCCEEDED" and told["device"] == "Loom 9000" and best(told) == [6, 5], told)
    server.requests -= 1
    expect(server.submit(1, 2) == job, "another job")
    server.retired(job)
    expect(made() == [name] and api.calls.count("create") == 1 and api.calls.count("list") == 1, api.calls)
    expect(len(server.attempts(job)) == 2, server.attempts(job))
    server.stop()

    # Killed at each step, before and after it was done: one Job is made, one attempt, and none is left.
    for size, faults in enumerate((["create before", "create after", "watch before", "list after", "delete before"],
                                   ["create after", "delete after"])):
        server.modes(f"final {size + 3}")
        api.fault, nodes.deaf, before = faults[0], True, len(made())
        server.start("--kube-credentials", credentials)
        done = place.run(HEDDLE, "submit", "vector_add", "--shape", f"n={size + 11}", "--request-id", f"kill-{size}",
                         "--trials", "2", "--json", check=False)
        for fault, then in zip(faults, [*faults[1:], ""]):
            nodes.deaf = not fault.startswith("delete") and not then.startswith("delete")
            expect(server.process.wait(60) == -signal.SIGKILL, fault)
            api.fault = then
            server.start("--kube-credentials", credentials)
        job = json.loads(server.heddle("submit", "vector_add", "--shape", f"n={size + 11}", "--request-id",
                                       f"kill-{size}", "--trials", "2", "--json"))["id"]
        told = server.ends(job)
        expect(told["state"] == "SUCCEEDED" and best(told) == [size + 3], (faults, told))
        server.retired(job)
        expect(len(made()) == before + 1 and len(server.attempts(job)) == 1, (faults, made(), server.attempts(job)))
        server.stop()

    # Its watch is lost: it goes on from where it was. What was has been forgotten (told in both ways that there are):
    # it lists, in pages. Asked for patience it waits; a token that was replaced is read again.
    api.page = 1
    server.start("--kube-credentials", credentials)
    server.modes("wait 2", "wait 2")
    jobs = [server.submit(21), server.submit(22)]
    place.until("both run", lambda: nodes.pods and sum(
        len(server.attempts(job)) for job in jobs) == 2 and len(api.objects["jobs"]) == 2)
    lists, watches = api.calls.count("list"), api.calls.count("watch")
    api.lose_watches()
    place.until("it watches again", lambda: api.calls.count("watch") > watches)
    expect(api.calls.count("list") == lists, "it has listed")
    for _ in range(2):
        lists, watches = api.calls.count("list"), api.calls.count("watch")
        api.forget()
        place.until("it has listed", lambda: api.calls.count("list") >= lists + 2 and
                    api.calls.count("watch") > watches + 1)
    # The answer to a call that has made a Job is lost, and the watch is behind: made again, it is there.
    calls, api.silent, api.fault, api.kill = api.calls.count("create"), True, "create after", lambda: None
    submitted = server.log().count('"event":"submitted"')
    jobs.append(server.submit(23))
    place.until("it is found", lambda: server.log().count('"event":"submitted"') > submitted)
    expect(api.calls.count("create") == calls + 2 and not api.fault, api.calls)
    api.silent, api.kill = False, kill_server
    api.token = "second"
    api.patience = 1
    api.lose_watches()
    place.until("it is refused", lambda: "Unauthorized" in server.log())
    write_token("second")
    with open(f"{server.jobs}/go", "w"):
        pass
    for job in jobs:
        told = server.ends(job)
        expect(told["state"] == "SUCCEEDED" and best(told) == [2], told)
    server.retired(*jobs)
    os.remove(f"{server.jobs}/go")

    # Evicted, and on a node that is lost, whose pod goes on meanwhile: again, which does not count; nothing is lost. As
    # nobody knows of the lost pod, Kubernetes waits for the administrator to remove its node.
    pods = nodes.pods
    server.modes("wait 7\nwait 7\nfinal 4", "final 8")
    job = server.submit(31, 32)
    for attempts, reason in ((2, "EvictionByEvictionAPI"), (3, "DeletionByTaintManager")):
        place.until("it runs", lambda: len(server.attempts(job)) == attempts and nodes.running(0))
        nodes.disrupt(0, reason)
    place.until("the other one ends", lambda: best(server.job(job))[1] == 8)
    expect(nodes.pods == pods + 3 and server.job(job)["state"] == "RUNNING", server.job(job))
    nodes.remove_node()
    told = server.ends(job)
    expect(told["state"] == "SUCCEEDED" and best(told) == [4, 8] and nodes.pods == pods + 4, told)
    lost, = nodes.lost.values()
    expect(len(server.attempts(job)) == 4 and lost.poll() is None, server.attempts(job))
    server.retired(job)

    # How tasks end is told in a user's words, and what others have measured stays.
    server.modes("", "", "", "final 9", "none")
    nodes.endings = {0: "OOMKilled", 1: "DeadlineExceeded", 2: "Error"}
    job = server.submit(41, 42, 43, 44, 45)
    told = server.ends(job)
    expect(told["state"] == "FAILED" and best(told) == [None, None, None, 9, None], told)
    for words in ("3 of 5 workloads are not complete", "1 out of memory (--memory)", "1 out of time (--time)",
                  "1 ended with exit code 4: no usable device", "vector_add(n = 45) has no valid schedule"):
        expect(words in told["error"], (words, told))
    logs = os.listdir(f"{server.folder_of(job)}/log")
    expect(len(logs) == 4, logs)
    server.retired(job)
    nodes.endings = {}

    # Cancelled: what runs is told to stop, and keeps what it has; nothing is left. Deleted by somebody, it has failed.
    server.modes("wait 1", "wait 1")
    job = server.submit(51, 52)
    # The first line is written when TERM is heard.
    place.until("both run", lambda: len(server.attempts(job)) == 2 and all(
        os.path.getsize(f"{server.folder_of(job)}/runs/{attempt}") for attempt in server.attempts(job)))
    api.patience, api.refusals = 1, [409, 404, 500]
    server.heddle("cancel", job)
    server.retired(job)
    expect(server.ends(job)["state"] == "CANCELLED" and not api.refusals, server.job(job))
    for attempt in server.attempts(job):
        with open(f"{server.folder_of(job)}/runs/{attempt}") as lines:
            expect('"exit_code": 130' in lines.readlines()[-1], attempt)
    # A call to make it that comes after all that is undone again.
    late = next(each for _, kind, what, each in api.history if what == "ADDED" and kind == "jobs" and
                each["metadata"]["labels"]["heddle/job"] == job.removeprefix("jobs/"))
    with api.change:
        api.make("jobs", copy.deepcopy(late))
    server.retired(job)
    job = server.submit(53)
    place.until("it runs", lambda: len(server.attempts(job)) == 1)
    nodes.delete()
    told = server.ends(job)
    expect(told["state"] == "FAILED" and "1 deleted in Kubernetes" in told["error"], told)
    server.retired(job)

    # What a quota forbids is allowed later. An object that is refused for what it says always will be.
    server.modes("final 3")
    job_of_name = 'jobs.batch "heddle" is'
    creates, api.unwanted = api.calls.count("create"), [(403, f"{job_of_name} forbidden: exceeded quota: gpus")]
    job = server.submit(54)
    expect(best(server.ends(job)) == [3] and api.calls.count("create") == creates + 2, server.job(job))
    invalid = f"{job_of_name} invalid: spec.template.spec.containers[0].resources: Invalid value"
    creates, api.unwanted = api.calls.count("create"), [(422, invalid)]
    refused = server.submit(55)
    told = server.ends(refused)
    expect(told["state"] == "FAILED" and invalid in told["error"], told)
    server.retired(job, refused)
    expect(api.calls.count("create") == creates + 1, "it is tried again")

    # Without its role it says so, and goes on when it has it; of another's object of that name it keeps off.
    server.modes("final 3")
    api.allowed.remove(("jobs", "create"))
    job = server.submit(61)
    place.until("it is forbidden", lambda: 'cannot create resource \\"jobs\\"' in server.log())
    place.until("the job says so", lambda: 'cannot create resource "jobs"' in server.job(job)["error"])
    with open(f"{server.folder_of(job)}/batch.json") as batch:
        name = f"heddle-{job.removeprefix('jobs/')}-{json.load(batch)['created'].lower()}"
    nodes.deaf = True
    with api.change:
        api.make("jobs", dict(copy.deepcopy(there), metadata={"name": name, "labels": {"heddle/server": "another"}},
                              status={}))
    api.allowed.add(("jobs", "create"))
    place.until("it keeps off", lambda: "is another server's" in server.log())
    with api.change:
        api.store("jobs", "DELETED", api.objects["jobs"][name])
    nodes.deaf = False
    expect(best(server.ends(job)) == [3], server.job(job))
    server.retired(job)
    server.stop()
    expect(api.used == api.allowed == rules_of(MANIFEST), (api.used, "is what the role is to say"))
    late = late["metadata"]["name"]
    expect(all(made().count(each) == 1 + (each in (name, late)) for each in made()), made())

    if real:
        place.environment = real_environment
        told = real.ends(tuned)
        expect(told["state"] == "SUCCEEDED" and told["workloads"][0]["trials"]["total"] == 1, (told, real.log()))
        answer = json.loads(place.run(HEDDLE, "query", "vector_add", "--shape", "n=4096", "--json").stdout)
        expect(answer["found"] and answer["match"] == "exact", answer)
        real.retired(tuned, there=proxy)
        real.stop()

    # What was sent, and what this API server has answered with, is what Kubernetes publishes.
    check_objects(api.bodies + api.answers + [each for *_, each in api.history])
    if not real:
        skip("pocl: no usable OpenCL device")
finally:
    for each in (server, real):
        if each and each.process and each.process.poll() is None:
            each.kill()
    for each in (nodes, real_nodes, api, proxy):
        each.close()
    place.remove()
