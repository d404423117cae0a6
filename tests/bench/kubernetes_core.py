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
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ansible_runner
import yaml

# Of ansible-core 2.19, as requirements.txt pins it; it has kubernetes.core 6.2.
PACKAGE = "12.3.0"
COUNT, PAIRS, RUNNERS = 40, 3, 3
_NAMESPACE = "bench-kubernetes-core"


def measure(scratch: Path) -> dict[str, Any]:
    """Return medians in seconds of ``ours`` (k8s_apply, one task), ``listed`` (one task of kubernetes.core with a list) and ``runner`` (the same by
    ansible-runner's own start), ``tasks`` (a task of kubernetes.core for each object; once), and the ``version`` of kubernetes.core."""
    collections = _collections()
    path = os.environ.get("ANSIBLE_COLLECTIONS_PATH")
    os.environ["ANSIBLE_COLLECTIONS_PATH"] = os.pathsep.join(filter(None, [path, str(collections)]))
    home = scratch / "kubernetes-core"
    (home / "project").mkdir(parents=True)
    try:
        plays = _plays(home / "project")
        ours, listed, each = (_by_playbook(plays[name]) for name in ("ours", "listed", "tasks"))
        _by_playbook(plays["home"])()
        ours()
        # The first round makes it the second owner of each field, and warms.
        listed()
        found: dict[str, list[float]] = {"ours": [], "listed": []}
        for _round in range(PAIRS):
            found["ours"].append(_seconds(ours))
            found["listed"].append(_seconds(listed))
        once = _seconds(each)
        runs = [_seconds(lambda: _by_runner(home, plays["listed"])) for _round in range(RUNNERS + 1)][1:]
    finally:
        _by_playbook(plays["away"])()
        if path is None:
            del os.environ["ANSIBLE_COLLECTIONS_PATH"]
        else:
            os.environ["ANSIBLE_COLLECTIONS_PATH"] = path
    manifest = json.loads((collections / "ansible_collections" / "kubernetes" / "core" / "MANIFEST.json").read_text())
    return {
        **{name: statistics.median(seconds) for name, seconds in found.items()},
        "tasks": once,
        "runner": statistics.median(runs),
        "version": manifest["collection_info"]["version"],
    }


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


def _by_playbook(play: Path) -> Callable[[], None]:
    def go() -> None:
        environment = {**os.environ, "ANSIBLE_LOCALHOST_WARNING": "0", "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
        command = ["ansible-playbook", "-i", "localhost,", str(play)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment)
        if done.returncode:
            sys.exit(f"bench: ansible-playbook {play.name} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")

    return go


def _by_runner(home: Path, play: Path) -> None:
    done = ansible_runner.run(
        private_data_dir=str(home),
        playbook=str(play),
        inventory="localhost,",
        envvars={"ANSIBLE_PYTHON_INTERPRETER": sys.executable},
        quiet=True,
    )
    if done.rc:
        sys.exit(f"bench: ansible-runner's run of {play.name} failed:\n{done.stdout.read()[-3000:]}")


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder)), indent=1))
