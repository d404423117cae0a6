# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands to slurmctld so that nodes become free: drains, and actions on jobs; with what they changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._slurm import (
    draining,
    hostlist,
    jobs,
    node_plan,
    nodes,
    output,
    rollout,
    scaling,
)
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Refused, Slurmctld


class Orders:
    """All commands of one task: ``changed``, ``before`` and ``after`` are for its result, ``refused`` has slurmctld's errors by job."""

    def __init__(self) -> None:
        self.changed = False
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}
        self.refused: dict[str, str] = {}
        self._given: set[str] = set()

    def note(self, plans: Iterable[node_plan.Plan], actions: list[draining.Action]) -> None:
        """Note what would be run, for check mode."""
        for plan in plans:
            self._note(plan)
        self.changed |= bool(actions)

    def give(self, slurmctld: Slurmctld, plans: Iterable[node_plan.Plan], actions: Iterable[draining.Action]) -> bool:
        """Run the commands; True when there were any. A job gets one action; one that cannot be requeued is waited for."""
        executed = False
        for plan in plans:
            for command in plan.commands():
                slurmctld.execute(command, f"change nodes {command[2].removeprefix('nodename=')}")
                executed = self.changed = True
            self._note(plan)
        for command, what in actions:
            if command[-1] in self._given:
                continue
            self._given.add(command[-1])
            try:
                slurmctld.execute(command, what)
            except Refused as error:
                self.refused[command[-1]] = f"{error} It is waited for."
                continue
            executed = self.changed = True
            self.before[what] = "running"
            self.after[what] = "told"
        return executed

    @property
    def refusals(self) -> str:
        """Sentences that go behind another."""
        return "".join(f" {message}" for message in self.refused.values())

    def _note(self, plan: node_plan.Plan) -> None:
        self.changed |= plan.changed
        self.before.update(plan.before)
        self.after.update(plan.after)


def nodes_and_tasks(
    slurmctld: Slurmctld, names: Iterable[str], what: str, *, also: Iterable[str] = ()
) -> tuple[list[nodes.Node], list[draining.Task]]:
    """Return all nodes that slurmctld shows, with those of ``names`` and ``also`` that it has and hides, and the tasks on ``names``; ``what`` describes
    them.

    Hidden are nodes that have never registered as slurm.conf promises: their pods have not come up, or have fewer CPUs than the document says.
    """
    wanted, live = list(names), slurmctld.read_nodes()
    shown = {node.name for node in live}
    missing = {*wanted, *also} - shown
    hidden = [node for node in slurmctld.read_nodes(future=True) if node.name in missing] if missing else []
    # squeue takes no hidden node's name, so it is asked for the jobs on all of them.
    on_all = any(node.name in wanted for node in hidden)
    asked = [] if on_all else [name for name in wanted if name in shown]
    found = [*live, *hidden]
    if not on_all and not asked:
        return found, []
    only = [f"--nodelist={hostlist.compress(asked)}"] if asked else []
    return found, draining.tasks(slurmctld.ask(["squeue", "--json", *only, jobs.ON_NODES], what))


def clock(slurmctld: Slurmctld, sets: Iterable[scaling.Size | rollout.NodeSet]) -> float:
    """Return slurmctld's time where jobs on nodes of one of the sets have a deadline, else a time before all."""
    if all(policy == "Wait" for one in sets for policy in (one.policy, *(rule.policy for rule in one.jobs))):
        return float("-inf")
    return output.seconds(slurmctld.ask(["date", "+%s"], "its time"))
