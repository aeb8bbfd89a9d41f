"""What `heddle cluster kubernetes` prints, and deploy/kubernetes, against the schemas that Kubernetes publishes, and
what schemas do not say: that it is as pod security's level "restricted" asks, and that the task in the pod finds
its batch."""

import copy
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "service"))
from schemas import check_objects, checked  # noqa: E402
from service import HEDDLE  # noqa: E402

DEPLOY = os.path.join(os.environ["HEDDLE_SOURCE_DIR"], "deploy", "kubernetes")

def printed(folder, *flags):
    done = subprocess.run([HEDDLE, "cluster", "kubernetes", "--workloads", f"{folder}/suite.txt", "--image",
                           "registry.example.org/heddle:1", "--volume-claim", "heddle-runs", *flags],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


with tempfile.TemporaryDirectory(prefix="heddle-kubernetes-") as folder:
    with open(f"{folder}/suite.txt", "w") as suite:
        suite.write("own n=64\nown n=128 weight=3\n")
    with open(f"{folder}/own.op", "w") as operators:
        operators.write("op own(n) { in A[n] out B[i: n] = A[i] + 1 }\n")
    manifests = printed(folder, "--op-file", f"{folder}/own.op", "--queue", "team-a", "--namespace", "heddle", "--gpu",
                        "NVIDIA-H100-80GB-HBM3", "--seconds", "600", "--parallel", "8", "--name", "My_suite")
    config, job = manifests["items"]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a" and job["spec"]["suspend"] is True
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2, job["spec"]
    pod = job["spec"]["template"]["spec"]
    container, = pod["containers"]
    assert pod["activeDeadlineSeconds"] == 1200 and pod["nodeSelector"]["nvidia.com/gpu.product"].startswith("NVIDIA")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    # So many compilers run, and trials are of the node.
    assert container["resources"]["limits"]["cpu"] == container["resources"]["requests"]["cpu"]
    host = next(each for each in container["env"] if each["name"] == "HEDDLE_HOST")
    assert host["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}, host
    # Level "restricted".
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True and security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False
    # Two batches are two objects; a name of another's making is one that Kubernetes takes.
    assert job["metadata"]["name"].startswith("heddle-my-suite-20"), job["metadata"]
    simple = printed(folder, "--op-file", f"{folder}/own.op", "--trials", "4")
    assert "suspend" not in simple["items"][1]["spec"] and "namespace" not in simple["items"][1]["metadata"]

    # The task finds its batch where the pod has it, and takes the index that Kubernetes gives it.
    mounts = {m["mountPath"]: m for m in container["volumeMounts"]}
    assert "subPath" not in mounts["/batch/runs"] and mounts["/batch/operators.op"]["readOnly"]
    os.makedirs(f"{folder}/batch/runs")
    for name, text in config["data"].items():
        assert f"/batch/{name}" in mounts, name
        with open(f"{folder}/batch/{name}", "w") as out:
            out.write(text)
    assert json.loads(config["data"]["batch.json"])["op_file"] == "/batch/operators.op"
    arguments = [a.replace("/batch", f"{folder}/batch").replace("$(JOB_COMPLETION_INDEX)", "2")
                 for a in container["args"]]
    task = subprocess.run([HEDDLE, *arguments], capture_output=True, text=True)
    assert task.returncode == 2 and "has 2 workloads" in task.stderr, task

    long = printed(folder, "--op-file", f"{folder}/own.op", "--name", "a" * 64)["items"][1]["metadata"]["name"]
    assert len(long) <= 57 and long.startswith("heddle-aaa") and long.endswith("z"), long

    files = sorted(os.path.join(DEPLOY, f) for f in os.listdir(DEPLOY))
    for each in (manifests, simple):
        check_objects(each["items"], *files)
    # It can fail.
    wrong = copy.deepcopy(job)
    wrong["spec"]["backoffLimitPerIdx"] = 3
    assert checked([wrong]).returncode != 0
