# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of slurm_reconcile: the last step of a pass over the workers, and what is left to do.

Drains and resumes nodes, waits for jobs, replaces pods of an older template. ``again`` reports that another pass would get further: the caller makes it.
``left`` reports that something has to wait for jobs, a window or a repair, for a later run.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils import _live
from ansible_collections.corral.slurm.plugins.module_utils._converge import node_info
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import node, rollout, scale
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import connected

# Passes of one run.
MOST = 50

Json = dict[str, Any]


def run(params: Json, *, check: bool, diff: bool) -> Json:
    """Take the next step; the parameters are those of the module slurm_reconcile.

    Returns ``changed``, ``again``, ``left``, ``waiting``, ``lines``, ``counts``, ``config_updated``, ``passes``, ``node_sets``, ``requests``, and
    ``warnings`` and ``diff``. Raises CorralError.
    """
    work = _Work(params, check=check, diff=diff)
    try:
        work.drain() if params["drain_only"] else work.go()
    except CorralError as error:
        changed = work.result["changed"] or bool(error.data.get("changed"))
        error.data = {**work.result, **error.data, "changed": changed, "requests": work.result["requests"] + error.data.get("requests", 0)}
        raise
    return work.result


class _Work:
    """One call; ``result`` grows with each part of it."""

    def __init__(self, params: Json, *, check: bool, diff: bool) -> None:
        self._params, self._check, self._diff = params, check, diff
        self._model: Json = params["model"]
        self._live = _live.of_pass(self._model)
        known = {"cluster", "drain_only", "model", "outdated", "previous"}
        self._connection = {
            key: value for key, value in params.items() if key not in known and not key.endswith(("_timeout", "_must_finish"))
        }
        self._scaling = _live.scaling(self._model, self._connection)
        self._slurmctld = {key: self._scaling[key] for key in (*self._connection, "namespace", "pod", "container")}
        self._config_updated: list[str] = list(params["previous"].get("config_updated") or ())
        self.result: Json = {
            "changed": False,
            "again": False,
            "left": False,
            "waiting": [],
            "lines": [],
            "node_sets": [],
            "config_updated": self._config_updated,
            "passes": int(params["previous"].get("passes") or 0) + 1,
            "requests": 0,
        }

    def drain(self) -> None:
        """Only drain removed nodes. The progress is reported at the end of the pass."""
        if self._live["shrinks"]:
            self._add({**scale.order({**self._scaling, "wait": False}, check=self._check, diff=self._diff), "warnings": []})

    def go(self) -> None:
        """Do all of it."""
        maintenance = bool(self._model["maintenance"]["workers"])
        drained_by = self._nodes(wait=not maintenance and not self._has_outdated() and not self._live["retained_lines"])
        if drained_by.get("scale") and not maintenance:
            self._give_back(drained_by["scale"])
        if self._live["shrinks"]:
            self._scale_down()
        config_updates: list[str] = []
        if not maintenance and (self._live["retained_lines"] or self._params["outdated"] is not None or drained_by.get("rollout")):
            config_updates = self._roll_out()
        self._plan_next_pass(config_updates)

    def _add(self, found: Json) -> None:
        """Add the result of a part."""
        self.result["changed"] |= found["changed"]
        self.result["requests"] += found.get("requests", 0)
        for key in ("waiting", "lines", "warnings", "diff", "node_sets"):
            if found.get(key):
                self.result[key] = [*self.result.get(key, ()), *found[key]]

    def _has_outdated(self) -> bool:
        """True where pods of an older template are replaced by the roll-out: a node may be away because of it."""
        return bool({*(self._params["outdated"] or ())} & {*self._model["rollout"]["stateful_sets"]})

    def _nodes(self, *, wait: bool, names: str = "") -> dict[str, str]:
        """See the nodes, and wait until they are in service; ``names`` are those that are waited for, if not all. Return the drained ones by owner."""
        asked = {
            **self._slurmctld,
            "nodes": self._model["node_names"],
            "wait": wait,
            "wait_nodes": names,
            "wait_timeout": self._params["register_timeout"],
        }
        try:
            found = node_info(asked, check=self._check, diff=False)
        except CorralError:
            if not self._check:
                raise
            return {}  # a cluster that is not there yet has nobody to ask
        self._add({**found, "waiting": []})
        self.result["counts"] = found["counts"]
        return dict(found["drained_by"])

    def _give_back(self, names: str) -> None:
        """Resume nodes that were drained for removal and stay after all."""
        desired = {"nodes": names, "state": "resumed", "owner": "scale", "wait": True, "wait_timeout": self._params["register_timeout"]}
        unset = dict.fromkeys(("reason", "features", "weight", "comment"))
        rest = {"force": False, "policy": "Wait", "deadline": 0}
        self._add({**node.run({**self._slurmctld, **unset, **rest, **desired}, check=self._check, diff=self._diff), "waiting": []})

    def _scale_down(self) -> None:
        """Wait for the jobs on removed nodes, and for the pods of those that have none."""
        asked = {
            **self._scaling,
            "wait": True,
            "wait_timeout": self._params["scale_timeout"],
            "end_timeout": self._params["wait_timeout"],
            "must_finish": self._params["scale_must_finish"],
        }
        self._add(scale.order(asked, check=self._check, diff=self._diff, decided=self._live["retained"]))

    def _roll_out(self) -> list[str]:
        """Replace pods of an older template. Return the nodes whose lines may change now."""
        asked = {
            **self._slurmctld,
            "selector": self._model["scaling"]["selector"],
            "node_sets": self._model["rollout"]["node_sets"],
            "outdated": self._params["outdated"] or [],
            "retained_lines": self._live["retained_lines"],
            "wait_timeout": self._params["rollout_timeout"],
            "start_timeout": self._params["wait_timeout"],
            "must_finish": self._params["rollout_must_finish"],
        }
        found = rollout.run(asked, check=self._check, diff=self._diff)
        self._add(found)
        self.result["left"] = bool(found["left"])
        return list(found["config_updates"])

    def _plan_next_pass(self, config_updates: list[str]) -> None:
        """Find out whether a pass would get further now, and what is left for a later run."""
        shrinks, before = self._live["shrinks"], self._live["retained"]
        if not self._check and (shrinks or config_updates):
            with connected(self._slurmctld) as client:
                now = scale.decide(client, self._scaling, check=False, preflight=False)
                self.result["requests"] += client.requests
            shrinks = now["shrinks"]
            self.result["again"] = scale.is_less(now["retained"], before) and self.result["passes"] < MOST
            self.result["config_updated"] = sorted({*self._config_updated, *(set(before["retained_lines"]) - set(now["retained_lines"]))})
        self.result["left"] |= shrinks
        if self.result["again"] or self._check:
            return
        # slurmctld refuses those whose Kubernetes nodes have less than their new lines say, a moment after it has read them.
        if self._config_updated:
            self._nodes(wait=True, names=hostlist.compress(self._config_updated))
        if config_updates:
            message = (
                f"{hostlist.compress(config_updates)} stay drained, since not all their lines in slurm.conf could be updated in this run; "
                "run it again to go on."
            )
            if self._params["rollout_must_finish"]:
                raise WaitTimeout(message)
            self._add({"changed": False, "warnings": [message]})
