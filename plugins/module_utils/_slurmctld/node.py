# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of slurm_node: nodes drained, set down, resumed, and their features, weight and comment."""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._slurm import draining, hostlist, jobs, node_plan, nodes, output
from ansible_collections.corral.slurm.plugins.module_utils._slurm.jobs import Job
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Refused, Slurmctld, connected, difference, wait


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Bring nodes into a state; the parameters are those of the module slurm_node.

    Returns ``changed``, ``nodes``, ``foreign``, ``warnings``, ``requests``. Raises CorralError.
    """
    names = hostlist.expand(str(params["nodes"]))
    if not names:
        raise CorralError("No node is named; name them in 'nodes', as a hostlist like gpu-[0-3].")
    desired = node_plan.wanted(params)
    with connected(params) as client:
        slurmctld = Slurmctld(client, params)
        live = slurmctld.nodes_named(names)
        plan = node_plan.plan(live, desired)
        if plan.changed and not check:
            live = _execute(slurmctld, names, plan)
        changed = plan.changed
        if params["wait"] and desired.state and not check:
            policy = _JobPolicy(slurmctld, params)
            live = _wait(slurmctld, names, desired.state, float(params["wait_timeout"]), plan, policy)
            changed |= policy.acted
        result: dict[str, Any] = {
            "changed": changed,
            "cluster": slurmctld.cluster,
            "namespace": slurmctld.namespace,
            "nodes": [node.to_dict() for node in live],
            "foreign": [_foreign(node) for node in plan.foreign],
            "requests": client.requests,
        }
        warnings = _warnings(live, plan, desired, check)
        if warnings:
            result["warnings"] = warnings
        if diff and plan.changed:
            result["diff"] = difference(f"nodes {hostlist.compress(plan.after)}", plan.before, plan.after)
        return result


def _execute(slurmctld: Slurmctld, names: list[str], plan: node_plan.Plan) -> list[nodes.Node]:
    """Run the plan's commands and return the nodes as they are then."""
    try:
        slurmctld.execute_each((command, f"change nodes {command[2].removeprefix('nodename=')}") for command in plan.commands())
    except KubeError as error:
        error.data["changed"] = error.data["changed"] or _moved(slurmctld, plan)
        raise
    return slurmctld.nodes_named(names)


def _moved(slurmctld: Slurmctld, plan: node_plan.Plan) -> bool:
    """True when the command that failed changed something all the same: slurmctld does what it can of one."""
    try:
        live = {node.name: node for node in slurmctld.read_nodes()}
    except CorralError:
        return True  # nobody knows; a reader should look
    for name, before in plan.before.items():
        node = live.get(name)
        if node is None:
            continue
        now = {
            "state": "+".join(node.state),
            "reason": node.reason if node.out else "",
            **{key: getattr(node, key) for key in ("features", "weight", "comment")},
        }
        if any(now[key] != value for key, value in before.items()):
            return True
    return False


class _JobPolicy:
    """What becomes of jobs on drained nodes when the deadline is over."""

    def __init__(self, slurmctld: Slurmctld, params: dict[str, Any]) -> None:
        self._slurmctld = slurmctld
        self._owner = str(params["owner"])
        self._policy = str(params["policy"])
        self._deadline = float(params["deadline"])
        self._refused: set[str] = set()
        self.acted = False

    def on(self, live: list[nodes.Node]) -> None:
        """Requeue or cancel what is due. A job that slurmctld refuses to requeue is waited for."""
        if self._policy == "Wait":
            return
        names = hostlist.compress(node.name for node in live)
        text = self._slurmctld.ask(["squeue", "--json", f"--nodelist={names}", jobs.ON_NODES], "the jobs on drained nodes")
        now = output.seconds(self._slurmctld.ask(["date", "+%s"], "its time"))
        for command, what in draining.overdue_actions(
            live, draining.tasks(text), owner=self._owner, policy=self._policy, deadline=self._deadline, now=now
        ):
            if command[-1] in self._refused:
                continue
            try:
                self._slurmctld.execute(command, what)
            except Refused:
                self._refused.add(command[-1])
                continue
            self.acted = True


def _wait(slurmctld: Slurmctld, names: list[str], state: str, timeout: float, plan: node_plan.Plan, policy: _JobPolicy) -> list[nodes.Node]:
    """Wait until no job is left on the nodes, or until resumed ones are in service. Raises WaitTimeout."""

    def free() -> tuple[list[nodes.Node], str]:
        live = slurmctld.nodes_named(names)
        busy = [node.name for node in live if node.busy]
        if busy and state == "drained":
            policy.on([node for node in live if node.busy])
        return live, _describe_jobs(slurmctld.jobs_on(busy), busy) if busy else ""

    foreign = {node.name for node in plan.foreign}

    def in_service() -> tuple[list[nodes.Node], str]:
        live = slurmctld.nodes_named(names)
        away = [node for node in live if node.name not in foreign and not node.in_service]
        return live, "; ".join(node.summary for node in away[:5]) + (f" and {len(away) - 5} more" if len(away) > 5 else "")

    shown = hostlist.compress(names)
    live, missing = wait(timeout, in_service if state == "resumed" else free, f"nodes {shown}")
    if missing:
        words = "are not in service" if state == "resumed" else "have jobs left"
        hint = "" if state == "resumed" else ", or end the jobs with slurm_job (state: absent)"
        raise WaitTimeout(
            f"Nodes of {shown} {words} after {timeout:g} s: {missing.rstrip('.')}; run again to go on waiting{hint}.",
            data={"changed": plan.changed or policy.acted},
        )
    return live or []


def _describe_jobs(found: list[Job], busy: list[str]) -> str:
    """Report which jobs are on which nodes."""
    if not found:
        return f"{hostlist.compress(busy)} completes its last job"
    shown = "; ".join(f"job {job.id} ({job.name} of {job.user}) on {job.nodes}" for job in found[:5])
    return "waiting for " + shown + (f" and {len(found) - 5} more jobs" if len(found) > 5 else "")


def _foreign(node: nodes.Node) -> dict[str, str]:
    return {"name": node.name, "state": "+".join(node.state), "reason": node.reason, "by": node.reason_user, "since": node.reason_time}


def _warnings(live: list[nodes.Node], plan: node_plan.Plan, desired: node_plan.Wanted, check: bool) -> list[str]:
    found = [
        f"{node.summary}{f', since {node.reason_time}' if node.reason_time else ''}: not by {desired.owner}, so it is left as it is; "
        "force: true changes it all the same."
        for node in plan.foreign
    ]
    foreign = {node.name for node in plan.foreign}
    if desired.state == "resumed" and not check:
        found.extend(
            f"{node.summary} though it was resumed: what took it out of service is still there; corral.slurm.slurm_why explains what to do."
            for node in live
            if node.out and node.name not in foreign
        )
    return found
