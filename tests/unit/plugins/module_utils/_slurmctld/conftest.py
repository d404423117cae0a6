# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A slurmctld that answers with recorded texts and notes what it is told, and an API server that knows some pods."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict, ExecError, Forbidden, NotFound, NotStarted, Status
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist, state
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import (
    job,
    node,
    partition,
    reservation,
    rollout,
    scale,
    slurmctld,
    sync,
    token,
    upgrade,
    why,
)

from .._slurm.records import text

CONNECTION = {"namespace": "demo", "pod": "demo-controller-0", "container": "slurmctld"}
LABELS = {"app.kubernetes.io/instance": "demo", "app.kubernetes.io/component": "controller"}
_READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def pod(name: str, component: str = "worker", status: dict[str, Any] | None = None, machine: str = "n1") -> dict[str, Any]:
    labels = {**LABELS, "app.kubernetes.io/component": component}
    return {
        "metadata": {"name": name, "namespace": "demo", "uid": name, "resourceVersion": "7", "labels": labels},
        "spec": {"nodeName": machine},
        "status": status or _READY,
    }


def _selected(pod: dict[str, Any], selector: str) -> bool:
    labels = pod["metadata"]["labels"]
    wanted = dict(
        one.split("=") for one in selector.split(",") if one.startswith(("app.kubernetes.io/component=", "app.kubernetes.io/instance="))
    )
    return all(labels.get(key) == value for key, value in wanted.items())


def _component(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["app.kubernetes.io/component"])


class Fake:
    """Both worlds of a backend. ``execs`` are the commands that were run, ``answers`` what they give besides the recorded texts."""

    def __init__(self) -> None:
        self.execs: list[list[str]] = []
        self.stdin: list[bytes | None] = []
        self.where: list[str] = []
        self.away: set[str] = set()
        self.requests = 0
        # What df says of size and free bytes.
        self.room = ""
        self.answers: dict[tuple[str, ...], Output | Exception] = {}
        self.nodes: dict[str, Any] = json.loads(text("nodes"))
        self.partitions: dict[str, Any] = json.loads(text("partitions"))
        self.reservations: dict[str, Any] = json.loads(text("reservations"))
        self.jobs: dict[str, Any] = json.loads(text("jobs"))
        self.pods = [pod("demo-controller-0", "controller"), pod("demo-login-0", "login"), pod("demo-cpu-0"), pod("demo-cpu-1")]
        self.machines: dict[str, dict[str, Any]] = {}
        self.stateful_sets: list[dict[str, Any]] = []
        # Events about anything, and how often they were asked for.
        self.events: list[dict[str, Any]] = []
        self.events_asked = 0
        self.config_map: dict[str, Any] = {}
        self.deleted: list[str] = []
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.secrets: dict[str, dict[str, Any]] = {}
        self.forbidden: set[str] = set()
        self.clock = "2026-01-31T08:00:00Z"
        self.access = type("Access", (), {"namespace": "demo"})()

    @property
    def told(self) -> list[list[str]]:
        """The commands that change something."""
        return [command for command in self.execs if "--json" not in command and command[0] != "squeue"]

    def state(self, name: str, *words: str, reason: str | None = None) -> None:
        row = next(row for row in self.nodes["nodes"] if row["name"] == name)
        row["state"] = list(words)
        row["reason"] = row["reason"] if reason is None else reason

    def run_in_pod(self, client: Any, *, command: list[str], stdin: bytes | None = None, **_more: Any) -> Output:
        assert client is self
        self.where.append(_more["pod"])
        if _more["pod"] in self.away:
            raise NotStarted(f"Could not run {command[0]} in pod demo/{_more['pod']}: no such container; does the container run?")
        self.stdin.append(stdin)
        if command == state.beside(command[4:]):
            done = self._run(command[4:])
            return replace(done, stdout=f"{self.room}\n{done.stdout}")
        return self._run(command)

    def _run(self, command: list[str]) -> Output:
        self.execs.append(command)
        for beginning, answer in self.answers.items():
            if tuple(command[: len(beginning)]) == beginning:
                if isinstance(answer, Exception):
                    raise answer
                return answer
        if command[:2] == ["scontrol", "update"]:
            self._update(dict(word.split("=", 1) for word in command[2:]))
        if command[0] == "squeue" and "--json" not in command:
            form = next(word.removeprefix("--format=") for word in command if word.startswith("--format="))
            return Output(0, "".join(f"{self._line(form, row)}\n" for row in self.jobs["jobs"]), "")
        kind = "jobs" if command[0] == "squeue" else command[2] if command[:2] == ["scontrol", "show"] else ""
        shown = getattr(self, kind) if kind else None
        # Nodes that never registered are hidden from all who do not ask for them, and squeue does not know their names.
        hidden = {row["name"] for row in self.nodes.get("nodes", ()) if "FUTURE" in row.get("state", ())} if self.nodes else set()
        for word in command:
            named = set(hostlist.expand(word.removeprefix("--nodelist="))) if word.startswith("--nodelist=") else set()
            if named & hidden:
                return Output(1, "", f"squeue: error: Invalid node name {min(named & hidden)}")
        if kind == "nodes" and hidden and "--future" not in command:
            shown = {**self.nodes, "nodes": [row for row in self.nodes["nodes"] if row["name"] not in hidden]}
        return Output(0, json.dumps(shown) if kind else "", "")

    @staticmethod
    def _line(form: str, row: dict[str, Any]) -> str:
        """A job as squeue's --format shows it."""
        keys = {"n": "required_nodes", "x": "excluded_nodes", "N": "nodes", "u": "user_name", "P": "partition", "q": "qos", "j": "name"}
        number = row["job_id"] if "task" not in row else f"{row['job_id']}_{row['task']}"
        shown = {"i": number, "T": row["job_state"][-1]} | {letter: row.get(key) or "" for letter, key in keys.items()}
        return re.sub("%([a-zA-Z])", lambda match: str(shown[match[1]]), form)

    def _update(self, words: dict[str, str]) -> None:
        """Do to nodes and jobs what slurmctld does."""
        for row in self.jobs["jobs"]:
            if words.get("jobid") == str(row["job_id"]):
                for word, key in (("excnodelist", "excluded_nodes"), ("reqnodelist", "required_nodes")):
                    row[key] = words.get(word, row.get(key))
        for row in self.nodes["nodes"]:
            if row["name"] in hostlist.expand(words.get("nodename", "")):
                if words.get("state") == "drain":
                    row["state"] = [*(word for word in row["state"] if word != "DRAIN"), "DRAIN"]
                    row["reason"] = words["reason"]
                if words.get("state") == "down":
                    row["state"] = ["DOWN", *(word for word in row["state"][1:] if word != "COMPLETING")]
                    row["reason"] = words["reason"]
                if words.get("state") == "resume":
                    row["state"] = [word for word in row["state"] if word not in ("DRAIN", "DOWN")] or ["IDLE"]

    def items(self, path: str, **_more: Any) -> list[dict[str, Any]]:
        self.requests += 1
        self._allow(path)
        if path == "/api/v1/nodes":
            return list(self.machines.values())
        selector = _more["query"]["labelSelector"]
        if path.endswith("/statefulsets"):
            return self.stateful_sets
        # Copies, as an API server's answer is.
        within = path.split("/")[4] if "/namespaces/" in path else ""
        return copy.deepcopy([pod for pod in self.pods if _selected(pod, selector) and within in ("", pod["metadata"]["namespace"])])

    def _allow(self, path: str) -> None:
        if any(path.endswith(one) or f"/{one}/" in path for one in self.forbidden):
            raise Forbidden(f"Could not read {path}: you may not.", Status(403))

    def request(self, method: str, path: str, *, body: dict[str, Any], query: dict[str, str] | None = None, **_more: Any) -> Any:
        """Note a PATCH or a DELETE of a pod, and do the first where it is meant."""
        self.requests += 1
        self._allow(path)
        if method == "DELETE":
            name = path.rsplit("/", 1)[-1]
            assert body["preconditions"] == {"uid": name, "resourceVersion": "7"}, "only the pod that was read may go, as it was then"
            self.deleted.append(name)
            return type("Response", (), {"code": 200})()
        assert method == "PATCH"
        self.patches.append((path, body))
        pod = next((one for one in self.pods if f"/{one['metadata']['name']}" in path), None)
        if pod is None or pod["metadata"]["uid"] != body["metadata"]["uid"]:
            raise Conflict(f"Could not change {path}: it is another one.", Status(409))
        if "dryRun" in (query or {}):
            return None
        for key, value in body["metadata"].get("labels", {}).items():
            pod["metadata"]["labels"].pop(key, None)
            if value is not None:
                pod["metadata"]["labels"][key] = value
        new = {one["type"]: one for one in body.get("status", {}).get("conditions", ())}
        if new:
            kept = [one for one in pod["status"]["conditions"] if one["type"] not in new]
            pod["status"] = {**pod["status"], "conditions": [*kept, *new.values()]}
        return None

    def get(self, path: str, **_more: Any) -> Any:
        self.requests += 1
        name = path.rsplit("/", 1)[-1]
        if path.endswith("/events"):
            self.events_asked += 1
            return type("Response", (), {"data": {"items": copy.deepcopy(self.events)}})()
        if "/configmaps/" in path:
            return type("Response", (), {"data": self.config_map})()
        if "/secrets/" in path:
            self._allow(path)
            found = self.secrets.get(name)
        else:
            found = (
                self.machines.get(name) if "/nodes/" in path else next((one for one in self.pods if one["metadata"]["name"] == name), None)
            )
        if found is None:
            raise NotFound(f"Could not read {name}: there is none.", Status(404))
        return type("Response", (), {"data": found})()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    world = Fake()

    @contextmanager
    def connected(_params: dict[str, Any]) -> Iterator[Fake]:
        yield world

    for module in (job, node, partition, reservation, rollout, scale, sync, token, upgrade, why):
        monkeypatch.setattr(module, "connected", connected)
    for module in (job, slurmctld, upgrade):
        monkeypatch.setattr(module, "run_in_pod", world.run_in_pod)
    monkeypatch.setattr(rollout, "_PAUSE", 0.001)
    monkeypatch.setattr(slurmctld, "_PAUSE", 0.001)
    monkeypatch.setattr(slurmctld, "_MAX_PAUSE", 0.001)
    return world


def refusal(words: str) -> Output:
    return Output(1, "", words)


UNREACHABLE = ExecError("Could not run scontrol in pod demo/demo-controller-0: container not found; does the container run?")
