# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same unchanged objects by ``k8s_apply`` and by ``kubernetes.core.k8s``: a play each, in turn; and by ansible-runner, as the Go ansible-operator runs it.

kubernetes.core comes out of PyPI's package ``ansible``, which is the collections that were tested with one ansible-core; it is kept in the cache.
By itself: ``tools/run --lab python tests/bench/kubernetes_core.py``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import ansible_runner
import yaml

from ansible_collections.corral.slurm.tests.bench.clock import pairs, seconds, timed

# Of ansible-core 2.19, as requirements.txt pins it; it has kubernetes.core 6.2.
PACKAGE = "12.3.0"
COUNT, PAIRS = 40, 3
_NAMESPACE = "bench-kubernetes-core"


def measure(scratch: Path) -> dict[str, Any]:
    """Return medians in seconds of ``ours`` (k8s_apply, one task), ``listed`` (one task of kubernetes.core with a list) and ``runner`` (the same by
    ansible-runner's own start), ``tasks`` (a task of kubernetes.core for each object; once), and the ``version`` of kubernetes.core."""
    collections = _collections()
    places = os.pathsep.join(filter(None, [os.environ.get("ANSIBLE_COLLECTIONS_PATH"), str(collections)]))
    environment = {"ANSIBLE_COLLECTIONS_PATH": places, "ANSIBLE_LOCALHOST_WARNING": "0", "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
    home = scratch / "kubernetes-core"
    (home / "project").mkdir(parents=True)
    plays = _plays(home / "project")

    def by_playbook(name: str) -> None:
        command = ["ansible-playbook", "-i", "localhost,", str(plays[name])]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env={**os.environ, **environment}
        )
        if done.returncode:
            sys.exit(f"bench: ansible-playbook {name} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")

    def by_runner() -> None:
        done = ansible_runner.run(
            private_data_dir=str(home), playbook=str(plays["listed"]), inventory="localhost,", envvars=environment, quiet=True
        )
        if done.rc:
            sys.exit(f"bench: ansible-runner's run failed:\n{done.stdout.read()[-3000:]}")

    try:
        by_playbook("home")
        # The pair that only warms makes both owners of each field.
        found = pairs(timed(lambda: by_playbook("ours")), timed(lambda: by_playbook("listed")), PAIRS)
        tasks = seconds(lambda: by_playbook("tasks"))
        by_runner()
        runner = statistics.median(seconds(by_runner) for _round in range(PAIRS))
    finally:
        by_playbook("away")
    manifest = json.loads((collections / "ansible_collections" / "kubernetes" / "core" / "MANIFEST.json").read_text())
    version = manifest["collection_info"]["version"]
    return {"ours": found.ours, "listed": found.base, "tasks": tasks, "runner": runner, "version": version}


def _collections() -> Path:
    """Return the folder in which Ansible finds kubernetes.core; it is fetched once."""
    cache = Path(os.environ.get("CORRAL_CACHE") or Path.home() / ".cache" / "corral")
    folder = cache / f"kubernetes.core-ansible-{PACKAGE}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as unfinished:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "--dest", unfinished, f"ansible=={PACKAGE}"], check=True)
        (wheel,) = Path(unfinished).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith("ansible_collections/kubernetes/core/")]
            archive.extractall(Path(unfinished) / "found", names)
        (Path(unfinished) / "found").rename(folder)
    return folder


def _plays(folder: Path) -> dict[str, Path]:
    """Write the playbooks: server-side apply in all of them, with the same objects."""
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
    names = [f"object-{number}" for number in range(COUNT)]
    objects = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": _NAMESPACE}, "data": {"text": name * 40}}
        for name in names
    ]
    theirs = {"apply": True, "server_side_apply": {"field_manager": "kubernetes-core"}}
    tasks: dict[str, list[dict[str, Any]]] = {
        "home": [{"name": "Make the namespace", "corral.slurm.k8s_apply": {"objects": [home]}}],
        "ours": [{"name": "Apply", "corral.slurm.k8s_apply": {"objects": objects}}],
        "listed": [{"name": "Apply", "kubernetes.core.k8s": {**theirs, "definition": objects}}],
        "tasks": [{"name": "Apply", "kubernetes.core.k8s": {**theirs, "definition": one}} for one in objects],
        "away": [{"name": "Take the namespace away", "corral.slurm.k8s_apply": {"objects": [home], "state": "absent", "wait": True}}],
    }
    found = {}
    for name, them in tasks.items():
        found[name] = folder / f"{name}.yml"
        play = {"name": "Bench", "hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": them}
        found[name].write_text(yaml.safe_dump([play]))
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder)), indent=1))
