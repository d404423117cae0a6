# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods of an older template: whose business they are, which of them may go without anybody's word, and which when nobody uses them."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import idle, run, stuck_pods, wait
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ExecError, Forbidden, Status, WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item

RUNS: dict[str, Any] = {"name": "main", "state": {"running": {}}, "ready": True}
CRASHES: dict[str, Any] = {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 1}
SIDE_CRASHES: dict[str, Any] = {"name": "side", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
READY = [{"type": "Ready", "status": "True"}]


def stateful_set(*, strategy: str = "OnDelete", ready: int = 2, updated: int = 1, observed: int = 2, template: str = "b") -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "ns", "uid": "web", "generation": 2},
        "spec": {"replicas": 2, "updateStrategy": {"type": strategy}, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        "status": {
            "observedGeneration": observed,
            "replicas": 2,
            "readyReplicas": ready,
            "updatedReplicas": updated,
            "updateRevision": "new",
        },
    }


def item(live: dict[str, Any], before: dict[str, Any] | None = None) -> Item:
    ref = Ref(BUILTIN["apps", "StatefulSet"], "ns", "web")
    found = Item(ref=ref, body={})
    found.after, found.before, found.result = live, before, "unchanged"
    return found


def pod(
    number: int, revision: str, *, main: dict[str, Any] | None = None, side: dict[str, Any] | None = None, **metadata: Any
) -> dict[str, Any]:
    well = main is None and side is None
    return {
        "metadata": {
            "name": f"web-{number}", "namespace": "ns", "uid": f"web-{number}", "ownerReferences": [{"uid": "web"}],
            "labels": {"app": "web", stuck_pods.REVISION: revision}, **metadata,
        },
        "status": {
            "phase": "Running", "containerStatuses": [main or RUNS], "initContainerStatuses": [side] if side else [], "conditions": READY if well else [],
        },
    }  # fmt: skip


class Api:
    """An API server that knows a set and its pods. ``deleted`` are names; a deleted pod is made anew at once."""

    clock = None

    def __init__(self, live: dict[str, Any], *pods: dict[str, Any]) -> None:
        self.live, self.pods, self.deleted, self.reads = live, list(pods), [], 0  # type: ignore[var-annotated]

    def items(self, _path: str, **_more: Any) -> list[dict[str, Any]]:
        return self.pods

    def get(self, _path: str, **_more: Any) -> Any:
        self.reads += 1
        return type("Response", (), {"data": self.live})()

    def request(self, _method: str, path: str, *, body: dict[str, Any], **_more: Any) -> Any:
        name = path.rsplit("/", 1)[-1]
        assert body["preconditions"] == {"uid": name}
        if "dryRun" not in body:
            self.deleted.append(name)
            self.pods = [pod(int(name[-1]), "new") if one["metadata"]["name"] == name else one for one in self.pods]
        return type("Response", (), {"code": 200})()


def outdated(
    live: dict[str, Any], *, check: bool = False, before: dict[str, Any] | None = None, later: dict[str, Any] | None = None
) -> tuple[list[str], int]:
    api = Api(later or live)
    return stuck_pods.outdated(api, [item(live, before)], check=check), api.reads  # type: ignore[arg-type]


def test_whether_pods_are_of_an_older_template_costs_nothing_to_know() -> None:
    assert outdated(stateful_set(updated=1)) == (["web"], 0)
    assert outdated(stateful_set(updated=2)) == ([], 0)
    assert outdated(stateful_set(updated=1, strategy="RollingUpdate")) == ([], 0)


def test_a_set_that_was_just_changed_is_looked_at_again() -> None:
    assert outdated(stateful_set(updated=2, observed=1), later=stateful_set(updated=0)) == (["web"], 1)


def test_who_does_not_wait_does_not_wait_for_the_sets_controller_either() -> None:
    live = stateful_set(updated=2, observed=1)
    api = Api(live)
    assert (stuck_pods.outdated(api, [item(live)], check=False, waits=False), api.reads) == ([], 0)  # type: ignore[arg-type]


def test_check_mode_knows_by_the_template() -> None:
    assert outdated(stateful_set(updated=2), check=True, before=stateful_set(template="a")) == (["web"], 0)
    assert outdated(stateful_set(updated=2), check=True, before=stateful_set()) == ([], 0)


@pytest.mark.parametrize(
    ("strategy", "one", "goes"),
    [
        ("OnDelete", pod(0, "old", main=CRASHES), True),
        ("OnDelete", pod(0, "new", main=CRASHES), False),
        ("OnDelete", pod(0, "old"), False),
        ("OnDelete", pod(0, "old", side=SIDE_CRASHES), False),
        ("RollingUpdate", pod(0, "old", side=SIDE_CRASHES), True),
        ("OnDelete", pod(0, "old", main=CRASHES, deletionTimestamp="2026-01-31T08:00:00Z"), False),
    ],
)
def test_a_pod_in_which_something_runs_is_not_ended_where_others_say_when(strategy: str, one: dict[str, Any], goes: bool) -> None:
    api = Api(stateful_set(strategy=strategy, ready=1), one)
    gone = stuck_pods.replace(api, [item(api.live)], check=False)  # type: ignore[arg-type]
    assert ([ref.name for ref in gone], api.deleted) == ((["web-0"], ["web-0"]) if goes else ([], []))


def judged(live: dict[str, Any], *pods: dict[str, Any]) -> bool:
    """Whether a wait is over."""
    waits = wait._Wait(Api(live), [item(live)], 1.0)  # type: ignore[arg-type]  # stands in for a Client
    kind = BUILTIN["", "Pod"]
    waits._pods = {Ref(kind, "ns", str(one["metadata"]["name"])): one for one in pods}
    waits._judge()
    return not waits.pending


def test_a_wait_leaves_pods_of_an_older_template_to_whoever_replaces_them() -> None:
    live = stateful_set(ready=1)
    assert judged(live, pod(0, "new"), pod(1, "old", main=CRASHES))
    assert not judged(live, pod(0, "new")), "the other pod is not there"
    assert not judged(live, pod(0, "new"), pod(1, "new", main={**RUNS, "ready": False}))
    assert not judged(live, pod(0, "new"), pod(1, "old", main=CRASHES, deletionTimestamp="2026-01-31T08:00:00Z")), "it is being replaced"
    assert not judged(stateful_set(ready=1, observed=1), pod(0, "old"), pod(1, "old", main={**RUNS, "ready": False}))


def ask(monkeypatch: pytest.MonkeyPatch, users: dict[str, Output | Exception]) -> None:
    def run_in_pod(_client: Any, *, pod: str, **_more: Any) -> Output:
        found = users.get(pod, Output(0, "", ""))
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(idle, "run_in_pod", run_in_pod)


def replaced(api: Api) -> tuple[str | None, dict[str, str]]:
    gone, kept = idle.replace_next(api, [item(api.live)], idle.Question("main", ["true"]))  # type: ignore[arg-type]
    return gone and gone.name, {ref.name: why for ref, why in kept.items()}


def test_pods_that_nobody_uses_go_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, {"web-0": Output(1, "2 processes\nof ada\n", "")})
    api = Api(stateful_set(), pod(0, "old"), pod(1, "old"), pod(2, "new"))
    assert replaced(api) == ("web-1", {"web-0": "2 processes of ada"})
    assert replaced(api) == (None, {"web-0": "2 processes of ada"})
    assert api.deleted == ["web-1"]


def test_a_pod_that_can_not_be_asked_is_in_use_and_one_that_does_not_run_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, {"web-0": ExecError("no answer."), "web-1": Output(7, "", "x")})
    api = Api(stateful_set(), pod(0, "old"), pod(1, "old"), pod(2, "old", main=CRASHES))
    assert replaced(api) == ("web-2", {"web-0": "it cannot be asked (no answer)", "web-1": "its check ended with exit code 7"})


def leaving(api: Api, *, check: bool = False, before: dict[str, Any] | None = None, result: str = "configured") -> dict[str, str]:
    one = item(api.live, before)
    one.result = result
    return {each.ref.name: each.users for each in idle.used_pods(api, [one], idle.Question("main", ["true"]), check=check)}  # type: ignore[arg-type]


def test_who_uses_the_pods_that_go_with_fewer_replicas_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, {"web-0": Output(1, "1 processes of bob\n", ""), "web-1": Output(1, "2 processes of ada\n", "")})
    live = stateful_set(updated=2)
    live["spec"]["replicas"] = 1
    going = pod(1, "new", deletionTimestamp="2026-01-31T08:00:00Z")
    going["spec"] = {"terminationGracePeriodSeconds": 90}
    api = Api(live, pod(0, "new"), going)
    assert leaving(api) == leaving(api, check=True) == {"web-1": "2 processes of ada"}
    assert leaving(api, result="unchanged") == {}
    ref = Ref(BUILTIN["", "Pod"], "ns", "web-1")
    assert idle.warnings([idle.UsedPod(ref, "2 processes of ada", 90)], check=True) == [
        "Pod ns/web-1 would go while it is in use: 2 processes of ada. It has 90 s to end."
    ]


def test_who_uses_the_pods_that_are_replaced_at_once_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, {"web-0": Output(1, "1 processes of bob\n", "")})
    api = Api(stateful_set(strategy="RollingUpdate"), *({**pod(number, "old"), "spec": {}} for number in range(2)))
    assert leaving(api) == {"web-0": "1 processes of bob"}
    assert leaving(api, check=True, before=stateful_set(template="a")) == {"web-0": "1 processes of bob"}
    assert leaving(api, check=True, before=stateful_set(strategy="RollingUpdate")) == {}, "what has gone on is none of this change's"
    assert leaving(Api(stateful_set(), *api.pods)) == {}, "whoever deletes them says when"


def test_who_uses_older_pods_that_were_kept_until_the_strategy_changed_is_told_in_check_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, {name: Output(1, "1 processes of bob\n", "") for name in ("web-0", "web-1")})
    # A dry run counts the generation on, which the set's controller has not seen.
    api = Api(stateful_set(strategy="RollingUpdate", observed=1), {**pod(0, "old"), "spec": {}}, {**pod(1, "new"), "spec": {}})
    assert leaving(api, check=True, before=stateful_set()) == {"web-0": "1 processes of bob"}


def test_who_uses_pods_whose_set_is_taken_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Forbidden("pods/exec is forbidden.", Status(403, "Forbidden", ""))
    ask(monkeypatch, {"web-0": Output(1, "1 processes of bob\n", ""), "web-1": refused})
    pods = [{**pod(number, "new"), "spec": {"terminationGracePeriodSeconds": 90}} for number in range(3)]
    refs = [Ref(BUILTIN["", "Secret"], "ns", "web"), Ref(BUILTIN["apps", "StatefulSet"], "ns", "web")]
    found = idle.ending(Api(stateful_set(), *pods), refs, idle.Question("main", ["true"]))  # type: ignore[arg-type]
    assert [(one.ref.name, one.users, one.grace) for one in found] == [
        ("web-0", "1 processes of bob", 90),
        ("web-1", "it cannot be asked (pods/exec is forbidden)", 90),
    ]


def test_pods_that_have_not_gone_in_time_are_told_with_their_users_and_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, {"web-1": Output(1, "2 processes of ada\n", "")})
    live = stateful_set()
    live["spec"]["replicas"] = 1
    api = Api(live, *(pod(number, "new", deletionTimestamp="2026-01-31T08:00:00Z") for number in range(3)))
    assert idle.lasting(api, [item(live)], idle.Question("main", ["true"])) == [  # type: ignore[arg-type]
        "Pod ns/web-1 is still there: 2 processes of ada. It ends at 2026-01-31T08:00:00Z at the latest; run again to wait for it.",
        "Pod ns/web-2 is still there: it is not in use, and is ending. It ends at 2026-01-31T08:00:00Z at the latest; run again to wait for it.",
    ]


USED = {"container": "main", "command": ["true"], "wait": True}
GOES = idle.UsedPod(Ref(BUILTIN["", "Pod"], "ns", "web-0"), "1 processes of bob", 90)


def batch(**params: Any) -> run.Batch:
    given = {"namespace": "ns", "objects": [], "in_use": USED, "wait": True, "wait_timeout": 300, **params}
    return run.Batch(cast(Any, SimpleNamespace(requests=0)), given, check=False, diff=False)


def test_pods_that_take_longer_to_go_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[bool] = []

    def until_ready(*_items: Any, timeout: float, gone: bool = True, **_more: Any) -> None:
        waited.append(gone)
        if gone:
            raise WaitTimeout(f"Not ready after {timeout:g} s.")

    monkeypatch.setattr(wait, "until_ready", until_ready)
    monkeypatch.setattr(idle, "lasting", lambda *_words: ["Pod ns/web-0 is still there."])
    one = batch()
    one.run()
    assert (one.result()["warnings"], waited) == (["Pod ns/web-0 is still there."], [False, True])
    monkeypatch.setattr(idle, "lasting", lambda *_words: [])
    with pytest.raises(WaitTimeout):
        batch().run()
    waited.clear()
    batch(in_use={**USED, "wait": False}).run()
    assert waited == [False]


def test_pods_in_use_that_are_taken_away_have_the_time_that_they_have_to_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "corral.slurm.progress")
    sentence = "Pod ns/web-0 goes while it is in use: 1 processes of bob. It has 90 s to end."
    waits: list[tuple[float, list[str]]] = []
    own = SimpleNamespace(
        read=lambda: None, members=list, delete_all=lambda *, timeout, **_more: waits.append((timeout, caplog.messages)) or [], writes=0
    )
    monkeypatch.setattr(run.Batch, "_applyset", lambda _self: own)
    monkeypatch.setattr(idle, "ending", lambda *_words: [GOES])
    one = batch(state="absent")
    one.run()
    assert (one.result()["warnings"], waits) == ([sentence], [(390, [sentence])]), "and it is told before the wait"
    batch(state="absent", in_use=None).run()
    assert waits[1:] == [(300, [sentence])]
