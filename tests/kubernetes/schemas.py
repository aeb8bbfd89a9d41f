"""Objects against the schemas that Kubernetes publishes, of 1.29, where backoffLimitPerIndex is there for all, and the
newest known."""

import json
import os
import shutil
import subprocess
import venv

from service import skip

TOOL = "kubernetes-validate==1.37.0"
CHECK = """
import functools, json, re, sys, kubernetes_validate, yaml
from kubernetes_validate import utils
objects = json.load(sys.stdin)
for path in sys.argv[1:]:
    objects += yaml.safe_load_all(open(path))
# Each schema is read once; those of two kinds lie under the name of their group.
contents = functools.lru_cache(None)(utils.schema_contents)
utils.schema_contents = lambda path, version: contents(re.sub("/(deleteoptions|status)-v1", r"/\\1-meta-v1", path), version)
for each in objects:
    for version in ("1.29", "1.37"):
        kubernetes_validate.validate(each, version, strict=True)
print(len(objects))
"""


def tool():
    """The interpreter that has the tool. Installed once, and only where it lies then whole."""
    folder = os.path.join(os.environ["HEDDLE_TOOLS"], TOOL)
    if not os.path.exists(folder):
        shutil.rmtree(f"{folder}.partial", ignore_errors=True)
        venv.create(f"{folder}.partial", with_pip=True)
        installed = subprocess.run([f"{folder}.partial/bin/python", "-m", "pip", "install", "--quiet", "--timeout", "10",
                                    "--retries", "1", "--disable-pip-version-check", TOOL],
                                   capture_output=True, text=True)
        if installed.returncode != 0:
            skip(f"kubernetes-validate: not to be had from PyPI: {installed.stderr.strip().splitlines()[-1:]}")
        os.rename(f"{folder}.partial", folder)
    return f"{folder}/bin/python"


def checked(objects, *files):
    """The tool's run over objects, and over those in files."""
    return subprocess.run([tool(), "-c", CHECK, *files], input=json.dumps(objects), capture_output=True, text=True)


def shape(value):
    """What schemas tell apart."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value).__name__


def check_objects(objects, *files):
    objects = list({json.dumps([each["kind"], shape(each)]): each for each in objects}.values())
    done = checked(objects, *files)
    assert done.returncode == 0 and int(done.stdout) >= len(objects), done.stderr
