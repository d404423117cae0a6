# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""For every kind of trouble: who, since when, why, what next."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._slurm import reasons, why
from ansible_collections.corral.slurm.plugins.module_utils._slurm.nodes import Node

from .records import node, partition, reservation

NOW = 1795259999.0
IDLE = replace(node("cpu-1"), state=["IDLE"], reason="")
# Of images/slurm/entry/worker_stop.sh.
ENDED = "corral: pod: it ended, and the next one has not registered yet"
HOLD = replace(reservation("m1"), name="fans", start=1795250000, end=1795340100)


def explain(one: Node, **more: Any) -> why.Verdict:
    return why.explain(one, namespace="demo", cluster="lab", now=NOW, **{"pod": why.Pod(f"demo-{one.name}", there=True), **more})


def out(reason: str, state: str = "IDLE+DRAIN", **more: Any) -> Node:
    return replace(IDLE, state=state.split("+"), reason=reason, reason_user="root", reason_time="2026-11-21T09:03:22Z", **more)


@pytest.mark.parametrize(
    ("one", "cause", "who", "words"),
    [
        (IDLE, "none", "", "cpu-1 is in service (IDLE)."),
        (
            node("cpu-0"),
            "admin",
            "an administrator",
            "when that is done, run 'ansible-playbook corral.slurm.drain -e slurm_namespace=demo -e slurm_name=lab -e node=cpu-0 -e resume",
        ),
        (node("cpu-1"), "person", "somebody as user slurm", "bad fan. Next: ask whoever did"),
        (out("bad fan"), "person", "user root", "-e node=cpu-1 -e resume=true -e force=true"),
        (node("gone-0"), "silent", "Slurm itself", "check that pod demo-gone-0 runs"),
        (
            replace(node("gone-0"), state=["FUTURE"], reason="NO NETWORK ADDRESS FOUND"),
            "no-address",
            "Slurm itself",
            "check that pod demo-gone-0 runs",
        ),
        (out(f"{ENDED} : Not responding", "DOWN+NOT_RESPONDING"), "silent", "Slurm itself", "slurmd has not answered"),
        (node("big-0"), "memory", "Slurm itself", "resources.limits.memory of node set big"),
        (out("NO NETWORK ADDRESS FOUND", "IDLE+DRAIN+INVALID_REG"), "registration", "Slurm itself", "compare the node set in the document"),
        (node("gpu-0"), "gres", "Slurm itself", "kubectl exec -n demo demo-gpu-0 -c slurmd -- nvidia-smi -L"),
        (out("Kill task failed"), "unkillable", "Slurm itself", "state D"),
        (out("batch job complete failure"), "batch-failure", "Slurm itself", "kubectl logs -n demo demo-cpu-1 -c slurmd"),
        (out("Prolog error"), "prolog", "Slurm itself", "kubectl logs"),
        (out("Not responding", "DOWN+NOT_RESPONDING"), "silent", "Slurm itself", "comes back by itself"),
        (
            out(ENDED, "DOWN"),
            "pod",
            "its pod",
            "its pod ended, and the next one has not registered yet. Next: check that pod demo-cpu-1 runs",
        ),
        (out("Node unexpectedly rebooted", "DOWN"), "rebooted", "Slurm itself", "describe pod -n demo demo-cpu-1"),
        (out("corral: jail: no marker"), "jail", "the jail's health check", "do not resume it by hand"),
        (out("corral: health: gpu-count: 7 of 8 GPUs are there"), "health", "its health check", "gpu-count: 7 of 8 GPUs are there"),
        (out("corral: scale-in: 4 to 2"), "owned", "corral (scale-in)", "corral.slurm.site"),
        (
            replace(IDLE, state=["IDLE", "MAINTENANCE"], reservation="fans"),
            "maintenance",
            "a reservation",
            "the maintenance reservation fans holds it",
        ),
        (replace(IDLE, state=["IDLE", "RESERVED"], reservation="fans"), "reservation", "a reservation", "--reservation=fans"),
        (
            replace(IDLE, state=["IDLE", "MAINTENANCE"], reservation="corral-jail-outage"),
            "jail",
            "the jail's health check",
            "the health check deletes the reservation by itself",
        ),
        (replace(IDLE, state=["IDLE", "POWERED_DOWN"]), "powering", "Slurm itself", "powers it up when a job needs it"),
        (replace(IDLE, state=["MIXED", "POWERING_UP"]), "powering", "Slurm itself", "wait until its pod"),
        (replace(IDLE, state=["IDLE", "REBOOT_REQUESTED"]), "reboot", "Slurm itself", "scontrol cancel_reboot cpu-1"),
        (replace(IDLE, state=["FUTURE"]), "future", "Slurm itself", "it has not registered since slurmctld knows it"),
        (replace(IDLE, state=["UNKNOWN"]), "unregistered", "Slurm itself", "check that pod demo-cpu-1 runs"),
        (replace(IDLE, state=["DOWN"], reason=""), "unexplained", "somebody", "no reason was given"),
        (replace(IDLE, state=["SOMETHING_NEW"]), "unexplained", "Slurm itself", "SOMETHING_NEW"),
    ],
)
def test_each_cause(one: Node, cause: str, who: str, words: str) -> None:
    found = explain(one, reservations={"fans": HOLD})
    assert (found.cause, found.who, found.in_service) == (cause, who, cause == "none")
    assert words in found.summary
    assert "{" not in found.summary
    assert found.summary.startswith(f"{one.name} is ")


def test_an_old_reason_does_not_hide_that_the_node_fell_silent() -> None:
    old = out("corral: admin: fan : Not responding", "DOWN+NOT_RESPONDING")
    assert explain(old).cause == "silent"
    assert explain(replace(old, state=["DOWN", "DRAIN", "NOT_RESPONDING"])).cause == "admin"


def test_since_when() -> None:
    assert "since 2026-11-21T09:03:22Z (2 h)" in explain(out("bad fan")).summary
    found = explain(replace(IDLE, state=["IDLE", "MAINTENANCE"], reservation="fans"), reservations={"fans": HOLD})
    assert found.since == "2026-11-21T08:33:20Z"
    assert "(2026-11-22T09:35:00Z)" in found.next
    # In service again, it keeps the reason and its time; neither counts.
    assert explain(replace(IDLE, reason="bad fan", reason_time="2026-11-21T09:03:22Z")).since == ""


SILENT = out("Not responding", "DOWN+NOT_RESPONDING")


@pytest.mark.parametrize(
    ("pod", "cause", "words"),
    [
        (
            why.Pod("demo-cpu-1", there=False),
            "no-pod",
            "pod demo-cpu-1 does not exist. Next: run 'ansible-playbook corral.slurm.site -e slurm_cluster_file=…' (the document of demo/lab) again",
        ),
        (
            why.Pod("demo-cpu-1", there=True, trouble="pod demo-cpu-1: it crashes {again}"),
            "pod",
            "it crashes {again}. Next: fix that (see 'kubectl describe",
        ),
        (
            why.Pod("demo-cpu-1", there=True, kubernetes_node="Kubernetes node n1 is not ready (x: y.)"),
            "kubernetes-node",
            "Kubernetes node n1 is not ready (x: y.). Next: repair the Kubernetes node",
        ),
        (why.Pod("demo-cpu-1", there=None), "silent", "check that pod demo-cpu-1 runs"),
    ],
)
def test_a_pod_that_does_not_run_explains_silence(pod: why.Pod, cause: str, words: str) -> None:
    found = explain(SILENT, pod=pod)
    assert found.cause == cause
    assert words in found.summary
    ended = explain(out(ENDED, "DOWN"), pod=pod)
    assert ended.cause == ("pod" if cause == "silent" else cause)
    assert words in ended.summary


def test_a_pod_in_trouble_is_only_mentioned_where_somebody_drained_the_node() -> None:
    found = explain(
        out("bad fan", "DOWN+DRAIN+NOT_RESPONDING"),
        pod=why.Pod("p", there=True, trouble="pod p is Pending", note="Kubernetes node n1 is cordoned"),
    )
    assert found.cause == "person"
    assert found.evidence == ["pod p is Pending", "Kubernetes node n1 is cordoned"]
    assert "slurmd does not answer either" in found.next


def test_closed_partitions_and_none_at_all_are_told_of_a_node_in_service() -> None:
    closed = replace(partition("main"), state="DOWN")
    found = explain(IDLE, partitions={"main": closed, "side": partition("side")})
    assert found.summary == "cpu-1 is in service (IDLE). Also: of its partitions main is DOWN."
    assert "it is in no partition" in explain(replace(IDLE, partitions=[])).summary


def test_jobs_that_still_run_are_told() -> None:
    assert explain(node("cpu-0")).evidence == ["jobs still run on it"]


def test_the_page_has_every_cause() -> None:
    page = (Path(__file__).resolve().parents[5] / "docs" / "nodes.md").read_text()
    told = set(re.findall(r"`([a-z-]+)`", page.partition("| cause | what Slurm shows |")[2].partition("\n\n")[0]))
    of_reasons = {kind.key for kind in (*reasons.OURS, reasons.OWNED, *reasons.SLURM, reasons.PERSON)}
    of_states = {cause for _flag, cause, _why, _next in why._FLAGS}
    assert told == {*of_reasons, *of_states, "no-pod", "kubernetes-node", "unexplained", "partition", "unknown"}


def test_a_node_none_of_whose_partitions_takes_jobs() -> None:
    found = explain(IDLE, partitions={"main": replace(partition("main"), state="DOWN"), "side": replace(partition("side"), state="DRAIN")})
    assert (found.cause, found.who, found.in_service) == ("partition", "the document or an administrator", False)
    assert "no partition of it takes jobs (main is DOWN, side is DRAIN). Next: if the document says so" in found.summary
    assert not found.evidence, "said once"


@pytest.mark.parametrize(
    ("there", "words"), [(False, "correct the name, or raise replicas"), (True, "though pod demo-cpu-9 is there. Next: run")]
)
def test_a_name_that_slurm_does_not_know(there: bool, words: str) -> None:
    found = why.unknown("cpu-9", pod=why.Pod("demo-cpu-9", there=there), known="cpu-[0-1]")
    assert (found.cause, found.in_service) == ("unknown", False)
    assert found.summary.startswith("cpu-9 is not known to Slurm: slurm.conf has no such node; it has cpu-[0-1]") and words in found.summary


def test_each_playbook_that_is_named_has_its_cluster() -> None:
    todo = [
        *(kind.next for kind in (*reasons.OURS, reasons.OWNED, *reasons.SLURM, reasons.PERSON)),
        *(following for _flag, _cause, _why, following in why._FLAGS),
    ]
    places = {"namespace": "demo", "cluster": "lab", **dict.fromkeys(("node", "set", "pod", "text", "reservation", "until", "shut"), "x")}
    shut = explain(IDLE, partitions={"main": replace(partition("main"), state="DOWN")}).next
    unknown_names = [
        why.unknown("cpu-9", pod=why.Pod("demo-cpu-9", there=there), known="", namespace="demo", cluster="lab").summary
        for there in (True, False)
    ]
    said = "\n".join([*(one.format(**places) for one in todo), shut, explain(SILENT, pod=why.Pod("x", there=False)).next, *unknown_names])
    assert said.count("ansible-playbook") > 10
    named = r"'ansible-playbook corral\.slurm\.(\w+) -e slurm_(?:namespace=demo -e slurm_name=lab( [^']*)?'|cluster_file=…' \(the document of demo/lab\))"
    assert "ansible-playbook" not in re.sub(named, "", said)
