# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workers' pods of an older template, drained, waited for, deleted, and their nodes taken back.

The only writes to Kubernetes are deletes of single pods, as they were seen; the StatefulSets (OnDelete) make the new ones.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import evidence
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.delete import delete
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Forbidden, KubeError, WaitFailed, WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._kube.pods import Asked, Patience, Trouble, describe, mounts
from ansible_collections.corral.slurm.plugins.module_utils._kube.stuck_pods import REVISION, observed
from ansible_collections.corral.slurm.plugins.module_utils._slurm import draining, hostlist, rollout
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import workers
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.orders import Orders, clock, nodes_and_tasks
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Refused, Slurmctld, connected, difference
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.workers import NODE_SET

_STATEFUL_SETS = BUILTIN["apps", "StatefulSet"]
_PODS = BUILTIN["", "Pod"]
_CONTAINER = "slurmd"
_LATER = "A later run goes on from here."
# A pod needs some seconds to end and to start, and each poll is two commands in slurmctld's pod.
_PAUSE = 2.0
_LOG_AGAIN = 15.0
# Looks that may follow at once on one that told something, before anything has moved.
_UNSEEN = 3
_PROGRESS = logging.getLogger("corral.slurm.progress")

Object = dict[str, Any]


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Replace pods of an older template; ``params`` are those of a slurmctld (see args.py), ``selector``, ``node_sets`` (see
    model.Rollout), ``outdated``, ``retained_lines``, ``wait_timeout``, ``start_timeout`` and ``must_finish``.

    Returns ``changed``, ``node_sets``, ``waiting``, ``config_updates``, ``left``, ``lines``, ``requests``, and ``warnings``. Raises CorralError.
    """
    with connected(params) as client:
        work = _Work(client, params, check=check)
        try:
            message = work.plan() if check else work.go(float(params["wait_timeout"]))
        except CorralError as error:
            error.data.update(work.result())
            raise
        result = {**work.result(), "requests": client.requests}
        if message:
            result["warnings"] = [message]
        if diff and work.orders.changed:
            result["diff"] = difference("nodes whose pods are replaced, and jobs on them", work.orders.before, work.orders.after)
        return result


class _Work:
    """One call. ``failed`` has for each set why its new pods do not come up, ``_given_up`` the nodes of these."""

    def __init__(self, client: Client, params: dict[str, Any], *, check: bool) -> None:
        self._client = client
        self._params = params
        self._check = check
        self._namespace = str(params.get("namespace") or client.access.namespace)
        self._slurmctld = Slurmctld(client, params)
        self._sets = [
            rollout.NodeSet(
                **{key: one[key] for key in ("name", "replicas", "type", "max_unavailable", "policy", "deadline", "place")},
                jobs=draining.Rule.all_of(one["jobs"]),
            )
            for one in params["node_sets"]
        ]
        self._start_timeout = float(params["start_timeout"])
        self._patience = Patience()
        self._pods: dict[str, Object] = {}
        self._stateful_sets: dict[str, Object] = {}
        self._by_events: Asked[Trouble | None] = Asked()
        self._away: dict[str, float] = {}
        self._began = time.monotonic()
        self._last: rollout.Step | None = None
        self.failed: dict[str, str] = {}
        self._given_up: set[str] = set()
        self.orders = Orders()

    def plan(self) -> str:
        """Describe what would be done. All pods count as stale of sets whose template this very run would change."""
        step, tasks = self._ask()
        self.orders.note((step.drain, step.resume), step.actions)
        self._note_deletes([name for one in step.sets for name in one.stale if name not in one.blocked])
        self._last = step
        on = draining.summary(draining.by_node(tasks))
        return f"Pods would be replaced: {'; '.join(filter(None, (step.summary, on)))}." if self.orders.changed else ""

    def go(self, timeout: float) -> str:
        """Replace what can be replaced, until all is done, or until nothing has moved for ``timeout`` seconds. Raises WaitFailed, WaitTimeout, KubeError.

        Returns what is left as a sentence. Pods that start are waited for as long as they may take.
        """
        problem: CorralError | None = None
        refused = ""
        moved, seen, idle, logged, logged_at = time.monotonic(), "", 0, "", time.monotonic()
        while True:
            try:
                again, problem, refused = self._poll(), None, ""
            except Forbidden:
                raise
            except Refused as error:  # another run, or a person, may have been faster
                if str(error) == refused:
                    raise
                again, problem, refused = False, error, str(error)
            except CorralError as error:  # slurmctld's pod may be starting just now
                again, problem = False, error
            step, now = self._last, time.monotonic()
            message = str(problem) if problem or step is None else step.summary
            state = (
                repr([(one.stale, one.starting, one.former, step.config_updates) for one in step.sets]) if step and not problem else seen
            )
            if state != seen:
                moved, seen, idle = now, state, 0
            # What was told shows at the next poll; where it does not, somebody undoes it.
            idle += again
            again &= idle <= _UNSEEN
            if message and (message != logged or now - logged_at >= _LOG_AGAIN):
                _PROGRESS.info("roll-out: %s", message)
                logged, logged_at = message, now
            if step and not problem and not again and (step.done or self._only_failed(step)):
                break
            starts = not problem and step is not None and self._starts(step)
            # Whoever runs this changes the lines then, and goes on with the nodes.
            config_updates = not problem and step is not None and bool(step.config_updates)
            if not again and not starts and (config_updates or now - moved >= timeout):
                break
            if not again:
                time.sleep(_PAUSE)
        if problem:
            raise KubeError(f"{str(problem).rstrip('.')}; so no pod was replaced any more. {_LATER}")
        return self._end(timeout)

    def result(self) -> dict[str, Any]:
        """Return what this call has come to."""
        step = self._last
        waiting = step.waiting if step else {}
        return {
            "changed": self.orders.changed,
            "node_sets": [
                {
                    "name": one.name,
                    "nodes": one.nodes,
                    "replaced": one.replaced,
                    "stale": hostlist.compress(one.stale),
                    "starting": hostlist.compress(one.starting),
                    "waiting": hostlist.compress(name for name in one.stale if name in waiting),
                    "failed": self.failed.get(one.name, ""),
                }
                for one in (step.sets if step else ())
            ],
            "waiting": [{"node": name, "jobs": [task.to_dict() for task in found]} for name, found in waiting.items()],
            "left": hostlist.compress(
                name for one in (step.sets if step else ()) if self._type(one.name) != "OnDelete" for name in (*one.stale, *one.former)
            ),
            "lines": [one.summary for one in step.sets if one.stale or one.starting or one.former] if step else [],
            "config_updates": step.config_updates if step else [],
        }

    def _end(self, timeout: float) -> str:
        """Return what is left as a sentence. Raises WaitFailed where new pods do not come up, WaitTimeout where all must be replaced."""
        step = self._last
        if self.failed:
            raise WaitFailed(" ".join(self._stopped(name, why) for name, why in self.failed.items()))
        if step is None or not step.summary or step.config_updates:
            return ""
        goes_on = step.waiting or any(one.starting or len(one.stale) + len(one.former) > len(one.blocked) for one in step.sets)
        # What the document has wait for somebody was said; only what nobody has asked for is worth a warning.
        if not goes_on and not any(self._type(one.name) == "RollingUpdate" and one.blocked for one in step.sets):
            return ""
        moved = "" if step.done else f" when nothing had moved for {timeout:g} s"
        sentence = f"Not all pods of an older template were replaced{moved}: {step.summary}.{self.orders.refusals} {_LATER}"
        if self._params["must_finish"]:
            raise WaitTimeout(sentence)
        return sentence

    def _type(self, name: str) -> str:
        return next(one.type for one in self._sets if one.name == name)

    def _starts(self, step: rollout.Step) -> bool:
        """True while a new pod may still come up."""
        return any(name not in self._given_up for one in step.sets for name in one.starting)

    def _only_failed(self, step: rollout.Step) -> bool:
        """True when nothing is under way but in sets whose new pods do not come up, and in these no pod that may still: its node would stay drained."""
        waits = {one.name for one in step.sets if any(name in step.waiting for name in (*one.stale, *one.former))}
        return bool(self.failed) and not self._starts(step) and waits <= set(self.failed)

    def _stopped(self, name: str, why: str) -> str:
        one = next(one for one in (self._last.sets if self._last else ()) if one.name == name)
        well = [other for other in one.stale if other not in one.starting]
        images = sorted({_image(self._pods[other]) for other in well if other in self._pods})
        others = f" {hostlist.compress(well)} keep their pods (image {', '.join(images)}) and take jobs." if well else ""
        return (
            f"The roll-out of node set {name} has stopped: {why}.{others} Correct the document and run again, or roll back: run again with the document "
            "as it was before; pods that do not start are replaced first."
        )

    def _poll(self) -> bool:
        """Do what can be done now; True when something was, so that the next poll should come at once."""
        step, _tasks = self._ask()
        self._last = step
        executed = self.orders.give(self._slurmctld, (step.resume, step.drain), step.actions)
        for name in step.replace:
            seen = self._pods[name]["metadata"]
            ref = Ref(_PODS, self._namespace, str(seen["name"]))
            if delete(self._client, ref, uid=str(seen["uid"]), version=str(seen["resourceVersion"]), propagation="Background"):
                self._note_deletes([name])
        self._judge(step)
        return executed or bool(step.replace)

    def _note_deletes(self, names: list[str]) -> None:
        for name in names:
            self.orders.changed = True
            what = f"pod of {name}"
            self.orders.before[what], self.orders.after[what] = "of an older template", "of the new template"

    def _ask(self) -> tuple[rollout.Step, list[draining.Task]]:
        query = {"labelSelector": self._params["selector"]}
        revisions: dict[str, str] = {}
        self._stateful_sets = {}
        for live in self._client.items(_STATEFUL_SETS.path(self._namespace), what=f"list the node sets in {self._namespace}", query=query):
            name = (live["metadata"].get("labels") or {}).get(NODE_SET)
            if name:
                self._stateful_sets[str(name)] = live
                current = (
                    live if self._check else observed(self._client, Ref(_STATEFUL_SETS, self._namespace, live["metadata"]["name"]), live)
                )
                revisions[str(name)] = str(((current or {}).get("status") or {}).get("updateRevision") or "")
                if self._check and live["metadata"]["name"] in self._params["outdated"]:
                    revisions[str(name)] = "not made yet"
        self._pods = {}
        pods: dict[str, rollout.Pod] = {}
        for name, pod in workers.pods(self._client, self._namespace, self._params["selector"]).items():
            labels = pod["metadata"]["labels"]
            revision = revisions.get(str(labels[NODE_SET]))
            if revision:
                self._pods[name] = pod
                stale = labels.get(REVISION) != revision
                pods[name] = _pod(pod, stale=stale, former=not stale and name in self._params["retained_lines"])
        sets = [one for one in self._sets if revisions.get(one.name)]
        begun = [name for name, one in pods.items() if one.stale or one.former]
        # Also those whose new pod is there: slurmctld hides a drained node that has never registered until it does.
        live_nodes, tasks = nodes_and_tasks(self._slurmctld, begun, "the jobs on nodes whose pods are to be replaced", also=pods)
        return rollout.step(sets, pods, live_nodes, tasks, now=clock(self._slurmctld, sets), stopped=self.failed), tasks

    def _judge(self, step: rollout.Step) -> None:
        """Note sets whose new pods do not come up: at once where the pod says that it never will, else when its time is over."""
        self.failed, self._given_up = {}, set()
        for one in step.sets:
            for name in one.starting:
                over, trouble = self._verdict(one.name, name)
                if over:
                    self._given_up.add(name)
                    # The first one's words are enough, and they cost requests.
                    if one.name not in self.failed:
                        self.failed[one.name] = f"{name} does not come up with the new template{self._explain(name, trouble).rstrip('.')}"

    def _verdict(self, node_set: str, name: str) -> tuple[bool, Trouble | None]:
        """Return whether a node that starts never will, or its time is over, and the trouble of its pod that has lasted too long."""
        pod, now = self._pods.get(name), time.monotonic()
        if pod is not None and pod["metadata"].get("deletionTimestamp"):
            return now - self._away.setdefault(name, now) >= self._start_timeout, None
        trouble = self._trouble_by_events(node_set, name, pod, now)
        if pod is None:
            return trouble is not None or now - self._away.setdefault(name, now) >= self._start_timeout, trouble
        trouble = trouble or self._patience.exhausted(pod, now, old=False)
        return trouble is not None or self._age(pod) >= self._start_timeout, trouble

    def _trouble_by_events(self, node_set: str, name: str, pod: Object | None, now: float) -> Trouble | None:
        """A pod that is refused is not there to tell, and one without what it mounts just waits."""
        if pod is None:
            live = self._stateful_sets[node_set]
            ref = Ref(_STATEFUL_SETS, self._namespace, str(live["metadata"]["name"]))
            own = f"{ref.name}-{name.rpartition('-')[2]}"
            return self._by_events.answer(name, now, lambda: self._refusal(ref, live, own))
        self._by_events.forget(name)
        of, key = Ref(_PODS, self._namespace, str(pod["metadata"]["name"])), str(pod["metadata"]["uid"])
        if mounts(pod):
            return self._by_events.answer(key, now, lambda: self._unmounted(of, pod))
        self._by_events.forget(key)
        return None

    def _refusal(self, ref: Ref, live: Object, pod: str) -> Trouble | None:
        event = evidence.refusal(self._client, ref, live, since=_changed(live), pod=pod)
        return Trouble("event", event.reason, f"its pod was refused at {event.at[:19]}Z: {event.message}") if event else None

    def _unmounted(self, ref: Ref, pod: Object) -> Trouble | None:
        missing, _warning = evidence.of_mounts(self._client, ref, pod, since=None)
        return Trouble("event", "FailedMount", f"pod {ref.name} cannot have its volumes: {missing}") if missing else None

    def _explain(self, name: str, trouble: Trouble | None) -> str:
        """Explain why a node does not come up, as the end of a sentence."""
        pod = self._pods.get(name)
        if trouble and trouble.cause == "event":
            return f": {trouble.text}"
        late = "" if trouble else f" after {self._start_timeout:g} s"
        if pod is None:
            return f"{late}: its StatefulSet has made no pod; see its events"
        if pod["metadata"].get("deletionTimestamp"):
            return f"{late}: {describe(pod)}; check its Kubernetes node"
        ref = Ref(_PODS, self._namespace, str(pod["metadata"]["name"]))
        details = evidence.why(self._client, ref, pod, [pod]) or (trouble.text if trouble else "")
        return (
            f"{late}: {details}"
            if details
            else f"{late}: pod {ref.name} is ready, but slurmctld does not have its node in service; see 'ansible-playbook corral.slurm.why "
            f"-e slurm_namespace={self._namespace} -e slurm_name={self._slurmctld.cluster} -e node={name}'"
        )

    def _age(self, pod: Object) -> float:
        """How long a pod has been there, in seconds by the API server's clock."""
        born, then = _seconds(pod["metadata"].get("creationTimestamp")), _seconds(self._client.clock)
        return then + time.monotonic() - self._began - born if born and then else 0.0


def _pod(pod: Object, *, stale: bool, former: bool) -> rollout.Pod:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    running = [one["state"]["running"] for one in statuses if one.get("name") == _CONTAINER and "running" in (one.get("state") or {})]
    ready = not describe(pod)
    return rollout.Pod(
        stale=stale,
        ready=ready,
        ending=bool(pod["metadata"].get("deletionTimestamp")),
        started=max((_seconds((one or {}).get("startedAt")) for one in running), default=0.0),
        born=_seconds(pod["metadata"].get("creationTimestamp")),
        runs=ready or bool(running),
        former=former,
    )


def _changed(stateful_set: Object) -> str | None:
    """When somebody wrote its fields last: what was refused before may not be since."""
    entries = stateful_set["metadata"].get("managedFields") or ()
    return max((str(one["time"]) for one in entries if one.get("time") and one.get("subresource") != "status"), default=None)


def _image(pod: Object) -> str:
    return next(
        (str(one["image"]) for one in (pod.get("spec") or {}).get("containers") or () if one.get("name") == _CONTAINER), "not known"
    )


def _seconds(text: Any) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0
