# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every NetworkPolicy of a cluster, tried: who reaches whom. The lab's network enforces them."""

from __future__ import annotations

import contextlib
import copy
import json
import shlex
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from ..conftest import SLURM_IMAGE, Cluster, eventually
from .conftest import Script

pytestmark = pytest.mark.lab

# Addresses of this machine for as long as the test goes, for what a pod may find outside: where a cloud tells a machine's credentials (not the
# very address, at which this machine's own may be), a place in the internet, a network that the document closes, and one that it opens again.
LINK_LOCAL, ALIBABA, INTERNET, CLOSED, ALLOWED = "169.254.77.77", "100.100.100.200", "198.51.100.7", "198.18.9.9", "169.254.77.78"
PORT = 18080
STRANGERS = "test-jail-strangers"


def pod(name: str, labels: dict[str, str]) -> dict[str, object]:
    """A pod that listens, and tries what it is told to."""
    listens = f"exec python3 -m http.server -d /run {PORT}"
    container = {"name": "main", "image": SLURM_IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", listens]}
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


@pytest.fixture(scope="module")
def places(cluster: Cluster) -> Iterator[Places]:
    kubectl, mine = cluster.kubectl, cluster.namespace
    part = {"app.kubernetes.io/name": "slurm", "app.kubernetes.io/part-of": "try", "app.kubernetes.io/component": "worker"}
    # A worker of another cluster, in the same namespace and in another; somebody who is no Slurm; the pod of one of the jail's jobs.
    made = {
        "neighbour": (mine, {**part, "app.kubernetes.io/instance": "neighbour"}),
        "job": (mine, {**part, "app.kubernetes.io/instance": cluster.name, "app.kubernetes.io/component": "jail"}),
        "namesake": (STRANGERS, {**part, "app.kubernetes.io/instance": cluster.name}),
        "stranger": (STRANGERS, {"app": "stranger"}),
    }

    def remove() -> None:
        kubectl("delete", "pod", "-n", mine, "neighbour", "job", "--ignore-not-found", "--now")
        kubectl("delete", "namespace", STRANGERS, "--ignore-not-found")

    remove()
    kubectl("create", "namespace", STRANGERS)
    for name, (namespace, labels) in made.items():
        kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(pod(name, labels)))
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
        "stranger": (address(STRANGERS, "stranger"), PORT),
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


INSIDE = {"slurmctld", "slurmd", "sshd", "sshd of a worker"}
# Without a word of the document on it.
OPEN = INSIDE | {"neighbour", "stranger", "internet", "closed"}
REACHED = {
    "worker": OPEN,
    "login": OPEN,
    "controller": OPEN,
    "job": set[str](),
    # Nothing says where they connect to, so what they do not reach is kept from them by the cluster's own policies.
    "neighbour": {"sshd", "neighbour", "stranger", "API server's Service", "API server", "internet", "closed"}
    | {"link-local", "Alibaba's metadata", "allowed"},
}
REACHED["stranger"] = REACHED["namesake"] = REACHED["neighbour"]


def table(places: Places, wanted: dict[str, set[str]]) -> dict[str, set[str]]:
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda who: {name for name, is_reached in places.reached(who, list(places.where)).items() if is_reached}, wanted)
        return dict(zip(wanted, found, strict=True))


def test_who_reaches_whom(places: Places) -> None:
    assert table(places, REACHED) == REACHED


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
    egress = {
        "workers": "Restricted",
        "close": ["198.18.0.0/15"],
        "allow": [{"cidrs": [f"{ALLOWED}/32"], "namespaces": [STRANGERS], "ports": [{"port": PORT}]}],
    }
    wanted = {
        "worker": INSIDE | {"stranger", "allowed"},
        "login": (OPEN - {"closed"}) | {"allowed"},
        "controller": (OPEN - {"closed"}) | {"allowed"},
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
