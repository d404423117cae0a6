# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every NetworkPolicy of the collection, tried: who reaches whom. The lab's network enforces them."""

from __future__ import annotations

import contextlib
import copy
import ipaddress
import json
import shlex
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from ...unit.repo.test_operator_role import objects as operator_objects
from ..conftest import REPOSITORY, SLURM_IMAGE, Cluster, eventually
from ..test_pod_security import node_profiles_objects
from .conftest import Script

pytestmark = pytest.mark.lab

# Addresses of this machine for as long as the test goes, for what a pod may find outside: where a cloud tells a machine's credentials (not the
# very address, at which this machine's own may be), a place in the internet, a network that the document closes, and one that it opens again.
LINK_LOCAL, ALIBABA, INTERNET, CLOSED, ALLOWED = "169.254.77.77", "100.100.100.200", "198.51.100.7", "198.18.9.9", "169.254.77.78"
PORT = 18080
STRANGERS = "test-jail-strangers"


def pod(name: str, labels: dict[str, str], ports: list[dict[str, Any]]) -> dict[str, object]:
    """A pod that listens, on its named ports too, and tries what it is told to."""
    listens = "".join(f"python3 -m http.server -d /run {one} & " for one in (PORT, *(port["containerPort"] for port in ports))) + "wait"
    container = {"name": "main", "image": SLURM_IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", listens], "ports": ports}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False},
    }


@dataclass
class Places:
    """Who tries, as (namespace, pod, container), and what is reached, by its name."""

    cluster: Cluster
    who: dict[str, tuple[str, str, str]]
    where: dict[str, tuple[str, int]]

    def reached(self, who: str, wanted: list[str]) -> dict[str, bool]:
        """Which of these a pod can connect to. All are tried at once."""
        one = "(timeout 3 bash -c '</dev/tcp/{0}/{1}' && echo {2}) 2>/dev/null &"
        script = "\n".join([*(one.format(*self.where[name], shlex.quote(name)) for name in wanted), "wait"])
        namespace, pod_name, container = self.who[who]
        said = self.cluster.kubectl("exec", "-n", namespace, pod_name, "-c", container, "--", "bash", "-c", script)
        return {name: name in said.splitlines() for name in wanted}


@contextlib.contextmanager
def addresses(*texts: str) -> Iterator[None]:
    """Give this machine addresses, at which it listens."""
    added: list[str] = []
    with contextlib.ExitStack() as listeners:
        try:
            for text in texts:
                subprocess.run(["ip", "addr", "replace", f"{text}/32", "dev", "lo"], check=True)
                added.append(text)
                listeners.enter_context(socket.create_server((text, PORT)))
            yield
        finally:
            for text in added:
                subprocess.run(["ip", "addr", "del", f"{text}/32", "dev", "lo"], check=False)


@dataclass
class Beside:
    """A pod of the collection's that is of no cluster: its policy, and the labels and ports that its template gives it."""

    policy: dict[str, Any]
    labels: dict[str, str]
    ports: list[dict[str, Any]]


def beside(objects: list[dict[str, Any]]) -> Beside:
    [policy] = [one for one in objects if one["kind"] == "NetworkPolicy"]
    [template] = [one["spec"]["template"] for one in objects if one["kind"] in {"Deployment", "DaemonSet"}]
    return Beside(policy, template["metadata"]["labels"], template["spec"]["containers"][0].get("ports", []))


def operator_and_node_profiles() -> dict[str, Beside]:
    """As their roles would make them in the namespace of the strangers."""
    role = REPOSITORY / "roles" / "node_profiles"
    words = next(
        task["corral.slurm.k8s_apply"]["variables"]
        for task in yaml.safe_load((role / "tasks" / "main.yml").read_text())
        if task["corral.slurm.k8s_apply"].get("templates") == ["daemon_set.yml.j2"]
    )
    labels = yaml.safe_load((role / "vars" / "main.yml").read_text())["node_profiles_labels"]
    return {
        "operator": beside(operator_objects(operator_namespace=STRANGERS, operator_webhook="Secret", operator_webhook_ca="")),
        "profiles": beside(node_profiles_objects(namespace=STRANGERS, labels=labels, selector=words["selector"])),
    }


@pytest.fixture(scope="module")
def places(cluster: Cluster) -> Iterator[Places]:
    kubectl, mine = cluster.kubectl, cluster.namespace
    part = {"app.kubernetes.io/name": "slurm", "app.kubernetes.io/part-of": "try", "app.kubernetes.io/component": "worker"}
    others = operator_and_node_profiles()
    # A worker of another cluster, in the same namespace and in another; somebody who is no Slurm; the pods of one of the jail's jobs and of the job that
    # tries LDAP; what is of no cluster.
    made = {
        "neighbour": (mine, {**part, "app.kubernetes.io/instance": "neighbour"}),
        "job": (mine, {**part, "app.kubernetes.io/instance": cluster.name, "app.kubernetes.io/component": "jail"}),
        "check": (mine, {**part, "app.kubernetes.io/instance": cluster.name, "app.kubernetes.io/component": "base"}),
        "namesake": (STRANGERS, {**part, "app.kubernetes.io/instance": cluster.name}),
        "stranger": (STRANGERS, {"app": "stranger"}),
        **{name: (STRANGERS, one.labels) for name, one in others.items()},
    }

    def remove() -> None:
        kubectl("delete", "pod", "-n", mine, "neighbour", "job", "check", "--ignore-not-found", "--now")
        kubectl("delete", "namespace", STRANGERS, "--ignore-not-found")

    remove()
    kubectl("create", "namespace", STRANGERS)
    for one in others.values():
        kubectl("apply", "-f", "-", stdin=json.dumps(one.policy))
    for name, (namespace, labels) in made.items():
        ports = others[name].ports if name in others else []
        kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(pod(name, labels, ports)))
    for name, (namespace, _labels) in made.items():
        kubectl("wait", "-n", namespace, f"pod/{name}", "--for=condition=Ready", "--timeout=60s")

    def address(namespace: str, name: str) -> str:
        return kubectl("get", "pod", "-n", namespace, name, "-o", "jsonpath={.status.podIP}").strip()

    api = kubectl("get", "service", "kubernetes", "-n", "default", "-o", "jsonpath={.spec.clusterIP}").strip()
    slice_ = json.loads(kubectl("get", "endpointslice", "kubernetes", "-n", "default", "-o", "json"))
    where = {
        "slurmctld": (f"{cluster.name}-controller.{mine}", 6817),
        "slurmd": (address(mine, "jail-two-0"), 6818),
        "sshd": (f"{cluster.name}-login.{mine}", 22),
        "sshd of a worker": (address(mine, "jail-two-0"), 22),
        "neighbour": (address(mine, "neighbour"), PORT),
        "check": (address(mine, "check"), PORT),
        "stranger": (address(STRANGERS, "stranger"), PORT),
        **{f"operator's {one['name']}": (address(STRANGERS, "operator"), one["containerPort"]) for one in others["operator"].ports},
        "node profiles": (address(STRANGERS, "profiles"), PORT),
        "API server's Service": (api, 443),
        "API server": (slice_["endpoints"][0]["addresses"][0], slice_["ports"][0]["port"]),
        "link-local": (LINK_LOCAL, PORT),
        "Alibaba's metadata": (ALIBABA, PORT),
        "internet": (INTERNET, PORT),
        "closed": (CLOSED, PORT),
        "allowed": (ALLOWED, PORT),
    }
    who = {
        "worker": (mine, "jail-one-0", "slurmd"),
        "login": (mine, "jail-login-0", "sshd"),
        "controller": (mine, "jail-controller-0", "slurmctld"),
        **{name: (namespace, name, "main") for name, (namespace, _labels) in made.items()},
    }
    with addresses(LINK_LOCAL, ALIBABA, INTERNET, CLOSED, ALLOWED):
        yield Places(cluster, who, where)
    remove()


INSIDE = {"slurmctld", "slurmd", "sshd", "sshd of a worker", "check"}
# What everybody may reach: Prometheus is anywhere, and so is the API server that asks about documents. Its probes are the kubelet's.
OPERATOR = {"operator's metrics", "operator's webhook"}
# Without a word of the document on it.
OPEN = INSIDE | OPERATOR | {"neighbour", "stranger", "internet", "closed"}
REACHED = {
    "worker": OPEN,
    "login": OPEN,
    "controller": OPEN,
    "check": OPEN,
    "job": set[str](),
    # Nothing says where they connect to, so what they do not reach is kept from them by the cluster's own policies.
    "neighbour": {"sshd", "neighbour", "stranger", "API server's Service", "API server", "internet", "closed"}
    | {"link-local", "Alibaba's metadata", "allowed"}
    | OPERATOR,
    # A pod always reaches itself.
    "profiles": {"node profiles"},
}
REACHED["stranger"] = REACHED["namesake"] = REACHED["neighbour"]
REACHED["operator"] = REACHED["neighbour"] | {"operator's health"}


def table(places: Places, wanted: dict[str, set[str]]) -> dict[str, set[str]]:
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda who: {name for name, is_reached in places.reached(who, list(places.where)).items() if is_reached}, wanted)
        return dict(zip(wanted, found, strict=True))


def test_who_reaches_whom(places: Places) -> None:
    assert table(places, REACHED) == REACHED


def test_what_no_policy_allows_is_refused_and_does_not_time_out(places: Places) -> None:
    (namespace, name, container), (address, port) = places.who["job"], places.where["slurmd"]
    script = f"timeout 5 bash -c '</dev/tcp/{address}/{port}' 2>/dev/null; echo $?"
    assert places.cluster.kubectl("exec", "-n", namespace, name, "-c", container, "--", "bash", "-c", script).strip() == "1"


@pytest.mark.usefixtures("places")
def test_a_job_of_a_user_reaches_what_its_worker_reaches(script: Script) -> None:
    """By name too: DNS is open wherever it is."""
    tries = {
        "198.51.100.7/18080": "internet",
        f"{LINK_LOCAL}/{PORT}": "link-local",
        "kubernetes.default.svc.cluster.local/443": "API server",
    }
    one = "timeout 3 bash -c '</dev/tcp/{0}' 2>/dev/null && echo {1} || :"
    said = script(f"srun -w one-0 bash -c {shlex.quote('; '.join(one.format(*each) for each in tries.items()))}", user="bob")
    assert said.split() == ["internet"]


def test_what_the_document_closes_and_allows(places: Places) -> None:
    cluster = places.cluster
    before = copy.deepcopy(cluster.spec)
    # What is closed lies within what is allowed, and stays closed; the one that is named is opened.
    around = [str(ipaddress.ip_network(f"{places.where[name][0]}/24", strict=False)) for name in ("API server", "API server's Service")]
    egress = {
        "workers": "Restricted",
        "close": ["198.18.0.0/15"],
        "allow": [
            {"cidrs": [f"{ALLOWED}/32"], "namespaces": [STRANGERS], "ports": [{"port": PORT}]},
            {"cidrs": ["198.0.0.0/8", "100.64.0.0/10", *around]},
            {"ports": [{"port": places.where[name][1]} for name in ("API server", "API server's Service")]},
        ],
    }
    wanted = {
        "worker": INSIDE | {"stranger", "allowed", "internet"},
        "login": (OPEN - {"closed"}) | {"allowed"},
        "controller": (OPEN - {"closed"}) | {"allowed"},
        "check": (OPEN - {"closed"}) | {"allowed"},
    }
    try:
        cluster.spec["network"] = {"egress": egress}
        run = cluster.site()
        assert run.rc == 0, run.output
        eventually(lambda: table(places, wanted) == wanted, "what the document says of the network holds", 5)
        # A restricted cluster works.
        assert "one-0" in cluster.slurm("sinfo", "-h", "-N", "-t", "idle", "-o", "%N")
    finally:
        cluster.spec.clear()
        cluster.spec.update(before)
        run = cluster.site()
    assert run.rc == 0, run.output
