# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurmctld, asked and told by commands in its pod: one exec a question, and sentences for what goes wrong."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import (
    ApiError,
    ExecError,
    Forbidden,
    KubeError,
    NotFound,
    NotStarted,
)
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output, run_in_pod
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import describe
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist, jobs, nodes, partitions, reservations, state

# slurmctld may be starting, or hold its locks: scontrol gives up after ten seconds by itself.
COMMAND = 30.0
_PAUSE, _MAX_PAUSE = 0.2, 1.0
_LOG_AGAIN = 15.0

# In what scontrol says of a slurmctld that has not responded (slurm_errno.c, and the system's own words); whatever else it says is an answer.
_NO_ANSWER = (
    "contact slurm controller",
    "socket timed out",
    "zero bytes were transmitted",
    "connection refused",
    "connection reset",
    "connection timed out",
)

# Progress of waits: whoever runs a backend may show it (see plugin_utils/_action.py).
_PROGRESS = logging.getLogger("corral.slurm.progress")

Answer = TypeVar("Answer")


class Refused(KubeError):
    """slurmctld refused a command."""


class Slurmctld:
    """The slurmctld of a cluster; the parameters are those of the documentation fragment slurmctld."""

    def __init__(self, client: Client, params: dict[str, Any]) -> None:
        self.client = client
        self.namespace = str(params.get("namespace") or client.access.namespace)
        self.pod = str(params.get("pod") or "")
        if not self.pod:
            self.namespace, self.pod = self._found(str(params.get("cluster") or ""), anywhere=not params.get("namespace"))
        self.container = str(params["container"])
        self.ref = Ref(BUILTIN["", "Pod"], self.namespace, self.pod)

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return self.pod.rpartition("-")[0].removesuffix("-controller")

    def run(self, command: list[str], stdin: bytes | None = None, timeout: float = COMMAND) -> Output:
        """Run a command in the slurmctld container; where that is not there, in the other controller's, and from then on there."""
        pod, done = run_in_controller(
            self.client, namespace=self.namespace, pod=self.pod, container=self.container, command=command, stdin=stdin, timeout=timeout
        )
        self._move(pod)
        return done

    def _move(self, pod: str) -> None:
        self.pod, self.ref = pod, Ref(BUILTIN["", "Pod"], self.namespace, pod)

    def _run(self, command: list[str], failed: str, stdin: bytes | None = None, timeout: float = COMMAND) -> Output:
        """Run a command. Raises KubeError, whose sentence begins with ``failed``, where it cannot be run."""
        try:
            return self.run(command, stdin, timeout)
        except (ApiError, ExecError) as error:
            if isinstance(error, Forbidden):
                raise
            raise KubeError(f"{failed}: {error}{self._state()}") from error

    def ask(self, command: list[str], what: str, timeout: float = COMMAND) -> str:
        """Return what a command prints. Raises KubeError: ``what`` completes "slurmctld cannot be asked for"."""
        done = self._run(command, f"slurmctld in {self.ref} cannot be asked for {what}", timeout=timeout)
        if done.code != 0:
            raise KubeError(f"slurmctld in {self.ref} cannot be asked for {what}: {done.summary.rstrip('.')}; see its log.")
        return done.stdout

    def execute(self, command: list[str], what: str) -> None:
        """Run a command that changes something. Raises Refused with slurmctld's own error: ``what`` completes "Could not"."""
        done = self._run(command, f"Could not {what}")
        if done.code != 0 and silent(done.summary):
            raise KubeError(f"Could not {what}: slurmctld in {self.ref} does not answer: {done.summary.rstrip('.')}.{self._state()}")
        if done.code != 0:
            raise Refused(f"Could not {what}: slurmctld in {self.ref} refuses: {done.summary.rstrip('.')}.")

    def feed(self, command: list[str], lines: str, what: str, timeout: float) -> Output:
        """Run a command that reads lines and executes what it can of them, and return its output. ``what`` completes "Could not"."""
        return self._run(command, f"Could not {what}", lines.encode(), timeout)

    def execute_each(self, steps: Iterable[tuple[list[str], str]]) -> None:
        """Run several commands in turn, each with its ``what``. An error has ``changed``: whether one before it was carried out."""
        done = False
        try:
            for command, what in steps:
                self.execute(command, what)
                done = True
        except KubeError as error:
            error.data["changed"] = done
            raise

    def read_nodes(self, *, future: bool = False) -> list[nodes.Node]:
        """Return all nodes. With ``future`` also those that slurmctld shows to nobody, since their names had no address yet when it began."""
        return nodes.parse(self.ask(_show_nodes(future), "its nodes"))

    def read_nodes_and_room(self, *, future: bool = False) -> tuple[list[nodes.Node], str]:
        """Return what read_nodes does, and a sentence where the state volume is full or nearly so; "" for one with room, and where df says nothing."""
        line, rest = state.split(self.ask(state.beside(_show_nodes(future)), "its nodes"))
        return nodes.parse(rest), state.room(line, str(self.ref))

    def nodes_named(self, names: list[str]) -> list[nodes.Node]:
        """Return these nodes in this order. Raises CorralError when slurmctld does not know one."""
        known = {node.name: node for node in self.read_nodes()}
        absent = [name for name in names if name not in known]
        if absent:
            raise CorralError(
                f"slurmctld knows no node {hostlist.compress(absent)}; it has {hostlist.compress(known) or 'none'}. "
                "Nothing was changed; correct the name."
            )
        return [known[name] for name in dict.fromkeys(names)]

    def read_partitions(self) -> list[partitions.Partition]:
        """Return all partitions."""
        return partitions.parse(self.ask(["scontrol", "show", "partitions", "--json"], "its partitions"))

    def read_reservations(self) -> list[reservations.Reservation]:
        """Return all reservations."""
        return reservations.parse(self.ask(["scontrol", "show", "reservations", "--json"], "its reservations"))

    def read_jobs(self, *filters: str) -> list[jobs.Job]:
        """Return the jobs that squeue's filters leave, in any state unless they say one."""
        states = () if any(word.startswith("--states=") for word in filters) else ("--states=all",)
        return jobs.parse(self.ask(["squeue", "--json", *filters, *states], "its jobs"))

    def jobs_on(self, names: list[str]) -> list[jobs.Job]:
        """Return the jobs that have not left these nodes."""
        found = self.read_jobs(f"--nodelist={hostlist.compress(names)}", jobs.ON_NODES)
        return [job for job in found if not job.ended]

    def cluster_pods(self, component: str) -> list[dict[str, Any]]:
        """Return the pods of a component of the cluster that the controller's pod belongs to; of all for ""."""
        labels = self._live()["metadata"].get("labels") or {}
        selector = f"app.kubernetes.io/name=slurm,app.kubernetes.io/instance={labels.get('app.kubernetes.io/instance', '')}"
        selector += f",app.kubernetes.io/component={component}" if component else ""
        return self.client.items(BUILTIN["", "Pod"].path(self.namespace), what="list the cluster's pods", query={"labelSelector": selector})

    def _live(self) -> dict[str, Any]:
        """Return the controller's pod, or the other controller's where it is gone."""
        try:
            return dict(self.client.get(self.ref.path, what=f"read {self.ref}").data)
        except NotFound:
            other = other_controller(self.pod)
            if other is None:
                raise
            path = BUILTIN["", "Pod"].path(self.namespace)
            return dict(self.client.get(f"{path}/{other}", what=f"read Pod {self.namespace}/{other}").data)

    def _found(self, cluster: str, *, anywhere: bool) -> tuple[str, str]:
        """Return the namespace and the name of the one cluster's controller pod, a ready one. Raises KubeError where there are none or several."""
        labels = ["app.kubernetes.io/part-of=corral", "app.kubernetes.io/component=controller"]
        query = {"labelSelector": ",".join([*labels, *([f"app.kubernetes.io/instance={cluster}"] if cluster else [])])}
        kind = BUILTIN["", "Pod"]
        pods = self.client.items(kind.path(self.namespace), what=f"find slurmctld in {self.namespace}", query=query)
        where = f"Namespace {self.namespace}"
        if not pods and anywhere:
            try:
                pods = self.client.items(kind.path(None), what="find slurmctld in all namespaces", query=query)
                where = "Kubernetes"
            except Forbidden:
                pass  # then it is the namespace's affair
        by_cluster: dict[str, list[dict[str, Any]]] = {}
        for pod in pods:
            by_cluster.setdefault(
                f"{pod['metadata'].get('namespace', self.namespace)}/{pod['metadata']['name'].rpartition('-')[0]}", []
            ).append(pod)
        if len(by_cluster) == 1:
            name = min((bool(describe(pod)), str(pod["metadata"]["name"])) for pod in pods)[1]
            return next(iter(by_cluster)).partition("/")[0], name
        names = ", ".join(one.removesuffix("-controller") for one in sorted(by_cluster))
        found = f"the clusters {names}: name one of them in 'namespace' and 'cluster' (of a playbook: slurm_namespace and slurm_name)"
        if not names:
            found = f"none{f' called {cluster}' if cluster else ''}; give the cluster's namespace in 'namespace' (of a playbook: slurm_namespace)"
        raise KubeError(f"{where} should hold one pod that runs slurmctld and holds {found}.")

    def _state(self) -> str:
        """Describe the pod, where that explains why it cannot be asked."""
        try:
            words = describe(self.client.get(self.ref.path, what=f"read {self.ref}").data)
        except KubeError:
            return ""
        return f" Now {words}." if words else ""


def silent(logged: str) -> bool:
    """True for words of a command that slurmctld has not responded: it hangs, starts, or is gone. It may have done all the same what it was told."""
    return any(words in logged.lower() for words in _NO_ANSWER)


def _show_nodes(future: bool) -> list[str]:
    return ["scontrol", "show", "nodes", *(["--future"] if future else []), "--json"]


def other_controller(pod: str) -> str | None:
    """Return the name of the pod in which a cluster's other slurmctld is, if it has two; None for the name of no controller."""
    stem, _dash, number = pod.rpartition("-")
    return {"0": f"{stem}-1", "1": f"{stem}-0"}.get(number) if stem.endswith("-controller") else None


def run_in_controller(
    client: Client, *, namespace: str, pod: str, container: str, command: list[str], timeout: float, stdin: bytes | None = None
) -> tuple[str, Output]:
    """Run a command as run_in_pod does; where it cannot begin there, in the pod of the cluster's other slurmctld. Return where, and the output.

    scontrol finds the active slurmctld from either. A command that may have begun is never run again. Raises what run_in_pod does, of ``pod``.
    """

    def run(where: str) -> Output:
        return run_in_pod(client, namespace=namespace, pod=where, container=container, command=command, stdin=stdin, timeout=timeout)

    try:
        return pod, run(pod)
    except (NotFound, NotStarted):
        other = other_controller(pod)
        if other is None:
            raise
        try:
            return other, run(other)
        except (NotFound, NotStarted):
            pass  # what is wrong with the pod that was named is what is to be told
        raise


def wait(
    timeout: float,
    probe: Callable[[], tuple[Answer, str]],
    what: str,
    *,
    slowest: float | None = None,
) -> tuple[Answer | None, str]:
    """Poll until nothing is missing: ``probe`` returns a result and what it lacks as a text, "" for nothing. ``slowest``: seconds between two polls at most.

    Returns the last result with that text when the time is over. A slurmctld that does not respond is asked again.
    """
    deadline = time.monotonic() + timeout
    last: Answer | None = None
    missing, logged, logged_at = "slurmctld was not asked", "", time.monotonic()
    for _left in until(deadline, slowest):
        try:
            last, missing = probe()
        except (Forbidden, Refused):
            raise
        except CorralError as error:  # its pod may be starting just now
            missing = str(error)
        if not missing:
            return last, ""
        now = time.monotonic()
        if missing != logged or now - logged_at >= _LOG_AGAIN:
            _PROGRESS.info("%s: %s (%d s left)", what, missing, max(0, round(deadline - now)))
            logged, logged_at = missing, now
    return last, missing


def until(deadline: float, slowest: float | None = None) -> Iterator[float]:
    """Yield the seconds left, with a growing pause between, at least once and until ``deadline``."""
    pause = _PAUSE
    while True:
        left = deadline - time.monotonic()
        yield max(left, 0.0)
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, slowest or _MAX_PAUSE)


@contextmanager
def connected(params: dict[str, Any]) -> Iterator[Client]:
    """Give a client, and put the number of its requests on an error that passes."""
    client = Client(auth.resolve(params))
    try:
        yield client
    except CorralError as error:
        error.data.setdefault("requests", client.requests)
        raise
    finally:
        client.close()


def difference(name: str, before: Any, after: Any) -> list[dict[str, Any]]:
    """Return the diff of a task's result."""
    return [{"before_header": name, "after_header": name, "before": before, "after": after}]
