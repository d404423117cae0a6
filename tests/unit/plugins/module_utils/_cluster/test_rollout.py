# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the document says that pods are replaced, as the model has it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import quantity, resolve, validate
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

from .documents import edited, good


def rollout(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = resolve.model(document).to_dict()["rollout"]
    return found


def test_without_a_word_a_quarter_at_a_time_and_jobs_are_waited_for() -> None:
    found = rollout(good())
    assert found["stateful_sets"] == ["demo-cpu", "demo-big"]
    assert found["node_sets"][0] == {
        "name": "cpu", "replicas": 2, "type": "RollingUpdate", "max_unavailable": 1, "policy": "Wait", "deadline": 3600, "jobs": [],
        "place": "",
    }  # fmt: skip


def test_a_set_says_what_it_has_otherwise_and_the_rest_holds_for_all() -> None:
    document = edited(
        "spec.workers.updateStrategy", {"type": "OnDelete", "maxUnavailable": "100%", "drain": {"policy": "Requeue", "deadlineSeconds": 5}}
    )
    document["spec"]["nodeSets"][0]["updateStrategy"] = {"type": "Maintenance", "drain": {"deadlineSeconds": 7}}
    found = rollout(document)
    assert found["stateful_sets"] == ["demo-cpu"]
    assert [(one["type"], one["max_unavailable"], one["policy"], one["deadline"]) for one in found["node_sets"]] == [
        ("Maintenance", 2, "Requeue", 7),
        ("OnDelete", 1, "Requeue", 5),
    ]


@pytest.mark.parametrize(
    ("share", "of", "number"), [(3, 8, 3), ("3", 8, 3), ("25%", 8, 2), ("25%", 9, 3), ("1%", 8, 1), ("25%", 0, 1), ("100%", 8, 8)]
)
def test_a_share_is_rounded_up_and_never_nothing(share: str | int, of: int, number: int) -> None:
    assert quantity.share(share, of) == number


@pytest.mark.parametrize("share", [0, "0", "0%", "101%", -1, "many", 1.5])
def test_what_is_no_share_is_refused(share: Any) -> None:
    with pytest.raises(CorralError, match=r"spec.nodeSets\[0\].updateStrategy.maxUnavailable"):
        validate.check(edited("spec.nodeSets[0].updateStrategy", {"maxUnavailable": share}))


@pytest.mark.parametrize(
    ("kind", "strategy", "asks"), [(None, "OnDelete", True), ("OnDelete", "OnDelete", False), ("RollingUpdate", "RollingUpdate", False)]
)
def test_login_pods_are_asked_whether_they_are_used(kind: str | None, strategy: str, asks: bool) -> None:
    login = resolve.model(edited("spec.login", {"updateStrategy": {"type": kind}} if kind else {})).to_dict()["login"]
    assert (login["update_strategy"], login["replace_idle"]) == (strategy, asks)


def test_a_login_pod_has_time_to_end() -> None:
    login = resolve.model(edited("spec.login", {"drain": {"deadlineSeconds": 5}})).to_dict()["login"]
    assert (login["stop"][:2], login["grace"]) == (["/usr/local/lib/corral/login_stop.sh", "5"], 35)
    assert login["stop"][2:] == login["in_use"]["command"]


def test_login_pods_that_go_for_maintenance_are_waited_for() -> None:
    waits = {kind: resolve.model(edited("spec.maintenance", kind)).login.in_use["wait"] for kind in ("None", "Workers", "WorkersAndLogin")}
    assert waits == {"None": False, "Workers": False, "WorkersAndLogin": True}


def test_jobs_with_a_policy_of_their_own_are_the_sets_or_those_of_all() -> None:
    document = edited("spec.workers", {})
    rule = {"partitions": ["main"], "policy": "Requeue"}
    document["spec"]["workers"] = {"drain": {"jobs": [rule]}, "updateStrategy": {"drain": {"jobs": [{**rule, "deadlineSeconds": 5}]}}}
    document["spec"]["nodeSets"][1]["drain"] = {"jobs": []}
    document["spec"]["nodeSets"][1]["updateStrategy"] = {"drain": {"policy": "Cancel"}}
    found = resolve.model(document).to_dict()
    long, short = ([{"partitions": ["main"], "qos": [], "policy": "Requeue", "deadline": deadline}] for deadline in (3600, 5))
    assert (found["scaling"]["jobs"], [one["jobs"] for one in found["scaling"]["node_sets"]]) == (long, [long, []])
    assert [(one["policy"], one["jobs"]) for one in found["rollout"]["node_sets"]] == [("Wait", short), ("Cancel", short)]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"policy": "Requeue"}, "names neither partitions nor qos"),
        ({"policy": "Requeue", "partitions": ["nowhere"]}, "partitions[0] is nowhere, which is not in spec.partitions"),
        ({"policy": "Cancel", "qos": ["low"]}, "qos needs accounting"),
    ],
)
@pytest.mark.parametrize("path", ["spec.workers.drain", "spec.nodeSets[0].drain", "spec.nodeSets[0].updateStrategy.drain"])
def test_a_policy_for_jobs_that_can_not_be_is_refused(path: str, rule: dict[str, Any], words: str) -> None:
    with pytest.raises(CorralError, match=re.escape(f"{path}.jobs[0]")) as caught:
        validate.check(edited(f"{path}.jobs", [rule]))
    assert words in str(caught.value)
