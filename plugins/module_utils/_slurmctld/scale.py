# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node sets that are larger than the document says, drained and waited for; and partitions that it no longer has.

It writes nothing to Kubernetes. What must stay for its jobs' sake is decided once, when a pass begins (``decide``): pods, and lines of slurm.conf, which
outlive the pods. Orders to slurmctld are given later in the pass (``order``), and show in the decision of the next one.
"""

from __future__ import annotations

import io
import re
import secrets
import tarfile
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import fields
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import (
    ApiError,
    ExecError,
    Forbidden,
    KubeError,
    NotFound,
    WaitTimeout,
)
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf, draining, hardware, hostlist, jobs, partitions, scaling
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import workers
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.hardware import nodes_to_retain
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.orders import Orders, clock, nodes_and_tasks
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Slurmctld, connected, difference, wait
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.workers import NODE_SET

MANAGER = "corral"

_STATEFUL_SETS = BUILTIN["apps", "StatefulSet"]
# States in which a partition takes no new jobs.
_CLOSED = frozenset({"DRAIN", "INACTIVE"})
_LATER = "A later run goes on from here."
# Slurm's own parser reads a file that is to come, in the controller's pod, as every command of Slurm's does before anything else. Where it cannot read
# the file that is there either, something else is wrong, which is not to be told as a fault of the new one. The arguments are plugins that are new: slurmctld
# itself is started with each, for it ends where one lacks a library or symbol; -V has it end, too. Those of task/ are slurmd's alone. slurmd -G reads
# cgroup.conf first of all, and ends at munge's socket, which it is told to be elsewhere. Nothing of Slurm's reads the other files but the daemon on its node.
_PARSE = """
parse() { SLURM_CONF=$1/slurm.conf timeout 10 scontrol show hostnames corral-0 2>&1 >/dev/null; }
cgroup() {
    sed -i 's|^AuthInfo=.*|AuthInfo=socket=/nowhere|' "$1/slurm.conf"
    SLURM_CONF=$1/slurm.conf timeout 10 slurmd -G -N corral-0 2>&1 >/dev/null | grep -B 9 'parse cgroup[.]conf'
}
old=$(mktemp -d) && new=$(mktemp -d) && trap 'rm -rf "$old" "$new"' EXIT && cp /etc/slurm/*.conf "$old" && tar -xf - -C "$new" || exit 0
for file; do
    [ -d /opt/corral/lib/slurm ] || break
    [ -e "/opt/corral/lib/slurm/$file" ] || { echo "$file"; exit 3; }
    case $file in task_*) continue ;; esac
    said=$(timeout 10 env LD_PRELOAD="/opt/corral/lib/slurm/$file" slurmctld -V 2>&1 >/dev/null) && [ -z "$said" ] && continue
    slurmctld -V >/dev/null 2>&1 || continue
    printf '%s\n%s\n' "$file" "$said"; exit 5
done
said=$(parse "$new") || { [ -n "$said" ] && parse "$old" >/dev/null || exit 0; printf '%s\\n' "$said"; exit 4; }
cmp -s "$old/cgroup.conf" "$new/cgroup.conf" && exit 0
said=$(cgroup "$new") && ! cgroup "$old" >/dev/null && { printf '%s\\n' "$said"; exit 6; }
exit 0
"""
_MISSING, _BROKEN, _UNLOADABLE, _CGROUP = 3, 4, 5, 6
# Jobs end in minutes or hours, and each poll is four commands in slurmctld's pod.
_SLOWEST = 5.0


def decide(client: Client, params: dict[str, Any], *, check: bool, preflight: bool = True) -> dict[str, Any]:
    """Have Slurm read the files that are to come (``preflight``), and decide what stays though the document no longer has it. Nothing is changed.

    ``params`` are ``namespace``, ``pod``, ``container``, ``selector`` (of the StatefulSets), ``config_map`` (slurm.conf of the pass before), ``node_sets``,
    ``partitions``, ``policy``, ``deadline`` and ``jobs`` (see model.Scaling), ``slurm_conf`` and ``files`` as the document makes them, ``image`` and
    ``maintenance``. Returns ``shrinks``, ``retained_config`` (for retained.retain), ``retired`` (StatefulSets of removed sets that stay),
    ``retained_lines``, and ``retained``, which is all of it in short. In check mode nodes that would be drained count as drained. Raises CorralError.
    """
    work = _Work(client, params, check=check)
    if preflight:
        work.preflight()
    work.observe()
    return work.decision()


def order(params: dict[str, Any], *, check: bool, diff: bool, decided: dict[str, Any] | None = None) -> dict[str, Any]:
    """Drain what the document no longer has, and give back what it has again. With ``wait`` in ``params`` it goes on with ``wait_timeout`` (seconds) until
    all can go, or more than was ``decided``; pods that end are waited for as long as ``end_timeout``. With ``must_finish`` it fails where jobs are left.

    Returns ``changed``, ``waiting``, ``requests``, and ``warnings`` and ``diff``. Raises CorralError.
    """
    with connected(params) as client:
        work = _Work(client, params, check=check)
        try:
            message = work.begin() if not params["wait"] or check else work.wait(float(params["wait_timeout"]), decided)
        except CorralError as error:
            error.data["changed"] = work.orders.changed
            raise
        result: dict[str, Any] = {"changed": work.orders.changed, "waiting": work.waiting(), "requests": client.requests}
        if message:
            result["warnings"] = [message]
        if diff and work.orders.changed:
            result["diff"] = difference("nodes that go, and jobs on them", work.orders.before, work.orders.after)
        return result


def is_less(retained: dict[str, Any], before: dict[str, Any]) -> bool:
    """True when less has to stay than before, so that a pass would come further. Both are ``retained`` of a decision."""
    pods = [(count, before["pods"].get(name, count)) for name, count in retained["pods"].items()]
    lines = [({*retained[key]}, {*before[key]}) for key in ("lines", "partitions", "retained_lines")]
    grows = any(now > before for now, before in pods) or any(now - before for now, before in lines)
    return not grows and any(now < before for now, before in (*pods, *lines))


def _packed(files: dict[str, str]) -> bytes:
    """Return files as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


class _Work:
    """One call. ``stay`` is the number of nodes that each shrinking set must keep, ``retained_partitions`` are those that must stay; both begin with all."""

    def __init__(self, client: Client, params: dict[str, Any], *, check: bool) -> None:
        self._client = client
        self._params = params
        self._check = check
        self._namespace = str(params.get("namespace") or client.access.namespace)
        self._config: dict[str, str] | None = None
        self._live = self._read_live()
        self._sizes = self._read_sizes()
        self._last: scaling.Step | None = None
        self.orders = Orders()
        self.victims = [name for size in self._sizes for name in size.victims]
        self.stay = {size.name: size.live for size in self._sizes if size.victims}
        self.removed_partitions = self._read_removed_partitions()
        self.retained_partitions = set(self.removed_partitions)

    @property
    def shrinks(self) -> bool:
        """True when something is to go."""
        return bool(self.victims or self.removed_partitions)

    def preflight(self) -> None:
        """Have Slurm's parsers read files that are to come, and slurmctld load the plugins, before anything is done. Raises CorralError with their words.

        It runs where slurmctld does, so on a first run, where the controller's pod is away, and where it is of another image than the one that should
        read the file (another release has other keys and plugins), there is nobody to ask.
        """
        text = str(self._params.get("slurm_conf") or "")
        live = {name: one for name, one in self._live_config().items() if name.endswith(".conf")} if text else {}
        wanted = {name: str(one) for name, one in (self._params.get("files") or live).items() if name.endswith(".conf")} | {
            "slurm.conf": text
        }
        before = live.get("slurm.conf")
        if before is None or wanted == live:
            return
        self._refuse_other_auth(before, text)
        slurmctld = Slurmctld(self._client, self._params)
        if not self._has_image(slurmctld):
            return
        known = conf.plugins(before)
        new = {file: setting for setting, file in conf.plugins(text).items() if setting not in known}
        try:
            done = slurmctld.run(["sh", "-c", _PARSE, "parse", *new], _packed(wanted))
        except (ApiError, ExecError):
            return
        if done.code == _MISSING:
            file = done.stdout.strip()
            wrong = f"{new.get(file, file)} is a plugin that the image does not have"
        elif done.code == _UNLOADABLE:
            file, _line, output = done.stdout.partition("\n")
            wrong = f"{new.get(file, file)} is a plugin that slurmctld cannot load ({' '.join(output.split())[:300]})"
        elif done.code in (_BROKEN, _CGROUP):
            wrong = conf.refused(done.stdout) or "it cannot be read"
        else:
            return
        name, field = ("cgroup.conf", "extraCgroupConfig") if done.code == _CGROUP else ("slurm.conf", "extraConfig")
        raise CorralError(
            f"Slurm itself refuses the {name} that the document makes: {wrong}. "
            f"slurmctld, nodes and jobs were left as they are; correct the document (mostly spec.slurm.{field}) and run again."
        )

    def _refuse_other_auth(self, before: str, text: str) -> None:
        """Raise CorralError where pods that stay would authenticate in another way than slurmctld: it would take their nodes for lost, with their jobs."""
        was, wanted = (re.search(r"^AuthType=auth/(\S+)$", one, re.MULTILINE) for one in (before, text))
        if not was or not wanted or was[1] == wanted[1]:
            return
        path, query = BUILTIN["", "Pod"].path(self._namespace), {"labelSelector": str(self._params["users_of_auth"])}
        pods = sorted(
            str(pod["metadata"]["name"]) for pod in self._client.items(path, what="list pods of workers and login nodes", query=query)
        )
        if pods:
            names = ", ".join(pods[:3]) + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")
            raise CorralError(
                f"spec.slurm.auth is {wanted[1]}, but pods run with {was[1]} ({names}), and slurmctld would lose their nodes and jobs. Nothing was changed; "
                f"set auth: {was[1]} and maintenance: WorkersAndLogin, run until these pods are gone, then set auth: {wanted[1]} and run, and "
                "end the maintenance."
            )

    def _has_image(self, slurmctld: Slurmctld) -> bool:
        """True when the controller's pod is of the image that the document wants, or nobody says which that is."""
        image = self._params.get("image")
        try:
            found = self._client.get(slurmctld.ref.path, what=f"read {slurmctld.ref}").data if image else {}
        except ApiError:
            return False
        return not image or any(one["name"] == slurmctld.container and one.get("image") == image for one in found["spec"]["containers"])

    def observe(self) -> None:
        """Find out what can be removed, without changing anything. Where slurmctld cannot be asked, all stays."""
        if not self.shrinks:
            return
        try:
            self._take(self._ask(Slurmctld(self._client, self._params)))
        except Forbidden:
            raise
        except CorralError:
            return

    def begin(self) -> str:
        """Do what can be done now; return a sentence for the run's log, "" where the wait will log it."""
        if not self.shrinks:
            return ""
        try:
            message = self._poll()
        except Forbidden:
            raise
        except CorralError as error:
            return self._unreachable(error)
        return f"{self._removed()} would be {'drained' if self.victims else 'closed'}; {message}." if message and self._check else ""

    def wait(self, timeout: float, decided: dict[str, Any] | None) -> str:
        """Poll until all can be removed, or more than was decided, or until the time is over; return what is then missing as a sentence.

        Raises KubeError, WaitTimeout.
        """
        if not self.shrinks:
            return ""
        problem: list[CorralError] = []

        def observe() -> tuple[None, str]:
            problem.clear()
            try:
                message = self._poll()
            except Forbidden:
                raise
            except CorralError as error:
                problem.append(error)
                return None, str(error)
            return None, "" if decided and is_less(self.decision()["retained"], decided) else message

        _none, missing = wait(timeout, observe, f"{self._removed('nodes ')} go when their jobs have ended", slowest=_SLOWEST)
        if not problem:
            wait(float(self._params["end_timeout"]), lambda: (None, self._ending()), "pods of nodes that go")
        if problem:
            raise KubeError(self._unreachable(problem[0]))
        if not missing:
            return ""
        what, how = ("nodes", "drained") if self.victims else ("partitions", "closed for new jobs")
        sentence = (
            f"Not all {what} that go could go within {timeout:g} s: {missing.rstrip('.')}.{self.orders.refusals} They stay {how}. {_LATER}"
        )
        if self._params["must_finish"]:
            raise WaitTimeout(sentence)
        return sentence

    def waiting(self) -> list[dict[str, Any]]:
        """Return the nodes that cannot go yet with the jobs on them, and those that require them by name."""
        found = self._last.waiting if self._last else {}
        return [{"node": name, "jobs": [task.to_dict() for task in tasks]} for name, tasks in found.items()]

    def decision(self) -> dict[str, Any]:
        """Return what ``decide`` does."""
        wanted = {str(one["name"]) for one in self._params["node_sets"]}
        there = self._pods() if self.victims and not self._check else set()
        pods = {size.name: min(size.replicas, max(self.stay[size.name], size.wanted)) for size in self._sizes if size.victims}
        lines = conf.nodes(self._live_config().get("slurm.conf", "")) if there else set()
        # The line of a node outlives its pod, so that slurmd never sees a configuration without itself.
        ending = {name for name in self.victims if name in there and name in lines}
        retained_lines = sorted(self._retained_nodes())
        live = self._live_config()
        retained_config = (
            scaling.retained_config(
                live.get("slurm.conf", ""),
                self._sizes,
                self.stay,
                unknown=self._last.unknown if self._last else [],
                gres=live.get("gres.conf", ""),
                retain=self.retained_partitions,
                plugstack=live.get("plugstack.conf", ""),
                ending=ending,
            )
            if self.victims or self.retained_partitions
            else {}
        )
        more = {size.name: pods[size.name] for size in self._sizes if size.name in wanted and pods.get(size.name, 0) > size.wanted}
        if retained_config or more:
            retained_config = {"nodes": [], "partitions": [], **retained_config, "replicas": more}
        if retained_lines:
            retained_config["hardware"] = hardware.retained(live["slurm.conf"], str(self._params["slurm_conf"]), retained_lines)
            retained_config["gres"] = [
                *retained_config.get("gres", ()),
                *scaling.resources_of(set(retained_lines), live.get("gres.conf", "")),
            ]
        gone = [name for name in pods if name not in wanted and (pods[name] or any(one.startswith(f"{name}-") for one in there | ending))]
        return {
            "shrinks": self.shrinks,
            "retained_config": retained_config,
            "retired": [self._smaller(name, pods[name]) for name in gone],
            "retained_lines": retained_lines,
            "retained": {
                "pods": pods,
                "lines": sorted({name for line in retained_config.get("nodes", ()) for name in hostlist.expand(dict(line)["NodeName"])}),
                "partitions": sorted(self.retained_partitions),
                "retained_lines": retained_lines,
            },
        }

    def _pods(self) -> set[str]:
        """Return the nodes that have a pod."""
        return set(workers.pods(self._client, self._namespace, str(self._params["selector"])))

    def _ending(self) -> str:
        """Report which pods of nodes that go are still there, though their sets have no place for them; "" for none."""
        replicas = {size.name: size.replicas for size in self._sizes}
        over = [name for name in self._pods() & set(self.victims) if int(name.rpartition("-")[2]) >= replicas[name.rpartition("-")[0]]]
        return f"{hostlist.compress(over)} end" if over else ""

    def _retained_nodes(self) -> set[str]:
        """Return the nodes that must not have their line of the document yet."""
        wanted = str(self._params.get("slurm_conf") or "")
        before = self._live_config().get("slurm.conf", "") if wanted and self._live else ""
        return nodes_to_retain(self._client, Slurmctld(self._client, self._params), self._params, before, wanted) if before else set()

    def _poll(self) -> str:
        """Run the commands, and query the result. Returns what is waited for."""
        slurmctld = Slurmctld(self._client, self._params)
        step = self._ask(slurmctld)
        if self._check:
            self.orders.note((step.drain, step.resume), step.actions)
            self._note_closed(step)
        elif self.orders.give(slurmctld, (step.resume, step.drain), step.actions) | self._close(slurmctld, step):
            step = self._ask(slurmctld)
        self._take(step)
        return step.summary

    def _take(self, step: scaling.Step) -> None:
        self._last, self.stay, self.retained_partitions = step, step.stay, set(step.partitions)

    def _ask(self, slurmctld: Slurmctld) -> scaling.Step:
        live, found = nodes_and_tasks(slurmctld, self.victims, "the jobs on nodes that go")
        known = {node.name for node in live}
        now = clock(slurmctld, [size for size in self._sizes if size.victims])
        lines = conf.nodes(self._live_config().get("slurm.conf", "")) if not known.issuperset(self.victims) else None
        reason = scaling.MAINTENANCE if self._params.get("maintenance") else scaling.REASON
        named = self._naming(slurmctld)
        step = scaling.step(self._sizes, live, found, now=now, taken=self._check, lines=lines or None, reason=reason, named=named)
        if self.removed_partitions:
            step.close = [one for one in slurmctld.read_partitions() if one.name in self.removed_partitions and one.state not in _CLOSED]
            command = ["squeue", "--json", f"--partition={','.join(self.removed_partitions)}", jobs.NOT_ENDED]
            step.partitions = scaling.inside(
                self.removed_partitions, draining.tasks(slurmctld.ask(command, "the jobs in partitions that go"))
            )
        return step

    def _naming(self, slurmctld: Slurmctld) -> list[draining.Named]:
        """Return the jobs that name nodes that go; in maintenance none, since the lines of these stay.

        Of text, since the JSON of all jobs can be tens of MB. Without --array, squeue shows tasks of an array that name other nodes as one.
        """
        if not self.victims or self._params.get("maintenance"):
            return []
        mark = secrets.token_hex(8)
        command = ["squeue", "--array", "--noheader", "--all", jobs.NOT_ENDED, f"--format={mark}|{jobs.NAMES}"]
        return draining.naming(slurmctld.ask(command, "the jobs that name nodes that go"), mark, self.victims)

    def _close(self, slurmctld: Slurmctld, step: scaling.Step) -> bool:
        """Close removed partitions for new jobs; True when there was one that did."""
        for command in partitions.commands(step.close, "DRAIN"):
            slurmctld.execute(command, f"close partition {command[2].removeprefix('partitionname=')}")
        self._note_closed(step)
        return bool(step.close)

    def _note_closed(self, step: scaling.Step) -> None:
        self.orders.changed |= bool(step.close)
        self.orders.before.update({f"partition {one.name}": {"state": one.state} for one in step.close})
        self.orders.after.update({f"partition {one.name}": {"state": "DRAIN"} for one in step.close})

    def _removed(self, nodes: str = "") -> str:
        """Name what is removed; ``nodes`` is the text before the nodes."""
        parts = [nodes + hostlist.compress(self.victims)] if self.victims else []
        return " and ".join([*parts, *(f"partition {name}" for name in self.removed_partitions)])

    def _unreachable(self, error: CorralError) -> str:
        what = "node" if self.victims else "partition"
        return f"{str(error).rstrip('.')}; so no {what} was taken away, and {self._removed()} stay as they are. {_LATER}"

    def _read_removed_partitions(self) -> list[str]:
        """Return the partitions that the document no longer has, whose nodes it keeps."""
        wanted = self._params.get("partitions")
        if wanted is None or not self._live:
            return []
        return scaling.removed_partitions(self._live_config().get("slurm.conf", ""), self._sizes, wanted)

    def _read_live(self) -> dict[str, dict[str, Any]]:
        """Return the StatefulSets of node sets by the set's name."""
        found = self._client.items(
            _STATEFUL_SETS.path(self._namespace),
            what=f"list the node sets in {self._namespace}",
            query={"labelSelector": self._params["selector"]},
        )
        return {
            str(one["metadata"]["labels"][NODE_SET]): one
            for one in found
            if NODE_SET in (one["metadata"].get("labels") or {}) and not one["metadata"].get("deletionTimestamp")
        }

    def _read_sizes(self) -> list[scaling.Size]:
        wanted = {str(one["name"]): one for one in self._params["node_sets"]}
        gone = {"replicas": 0, "policy": self._params["policy"], "deadline": self._params["deadline"], "jobs": self._params["jobs"]}
        left = self._leftover_lines() if self._live else {}
        return [
            scaling.Size(
                name=name,
                live=max(int((live.get("spec") or {}).get("replicas", 1)), left.get(name, 0)),
                replicas=int((live.get("spec") or {}).get("replicas", 1)),
                wanted=int(wanted.get(name, gone)["replicas"]),
                policy=str(wanted.get(name, gone)["policy"]),
                deadline=int(wanted.get(name, gone)["deadline"]),
                jobs=draining.Rule.all_of(wanted.get(name, gone)["jobs"]),
            )
            for name, live in sorted(self._live.items())
        ]

    def _leftover_lines(self) -> dict[str, int]:
        """Return for each set how many nodes it had by the live slurm.conf, where that has one of it that the document's has not: its pod may be gone."""
        live, wanted = self._live_config().get("slurm.conf", ""), str(self._params.get("slurm_conf") or "")
        found: dict[str, int] = {}
        if wanted and live != wanted:
            for name in conf.nodes(live) - conf.nodes(wanted):
                node_set, _dash, number = name.rpartition("-")
                if number.isdecimal():
                    found[node_set] = max(found.get(node_set, 0), int(number) + 1)
        return found

    def _smaller(self, name: str, replicas: int) -> dict[str, Any]:
        """Return what we have applied of a StatefulSet, with so many replicas and nothing else changed."""
        live = self._live[name]
        applied = fields.project(live, fields.owned(live, MANAGER))
        return {
            **applied,
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {**(applied.get("metadata") or {}), "name": live["metadata"]["name"], "namespace": live["metadata"]["namespace"]},
            "spec": {**(applied.get("spec") or {}), "replicas": replicas},
        }

    def _live_config(self) -> dict[str, str]:
        """Return the configuration of the run before; an empty one where it is gone, of which nothing can be kept."""
        if self._config is None:
            ref = Ref(BUILTIN["", "ConfigMap"], self._namespace, str(self._params["config_map"]))
            try:
                self._config = dict(self._client.get(ref.path, what=f"read {ref}").data.get("data") or {})
            except NotFound:
                self._config = {}
        return self._config
