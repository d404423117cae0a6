# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of drift: each edit of a cluster of paper is listed, none more, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils import _drift
from ansible_collections.corral.slurm.plugins.module_utils._cluster import accounts, resolve
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist

from .._cluster.documents import good
from .conftest import Fake

Json = dict[str, Any]
SHOW = ("scontrol", "show")
COMPARE = tuple(_drift._COMPARE)


class Cluster:
    """A cluster that is as its document says, until a test edits what ``texts`` or ``results`` hold."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        document = good()
        document["metadata"]["namespace"] = "demo"
        self.model = resolve.model(document).to_dict()
        written = self.model["config"]["files"]["slurm.conf"]
        settings = [
            line.partition("=") for line in written.splitlines() if "=" in line and not line.startswith(("#", "NodeName", "PartitionName"))
        ]
        lines = {kind: [line for line in written.splitlines() if line.startswith(kind)] for kind in ("NodeName", "PartitionName")}
        nodes = [
            line.replace(line.split()[0], f"NodeName={name}").replace("CPUs=", "CPUTot=").replace("Feature=", "AvailableFeatures=")
            for line in lines["NodeName"]
            for name in hostlist.expand(line.split()[0].partition("=")[2])
        ]
        self.texts = {
            "config": "".join(f"{key} = {value}\n" for key, _equals, value in settings),
            "nodes": "".join(f"{line}\n" for line in nodes),
            "partitions": "".join(
                f"{line} AllowAccounts=ALL AllowQos=ALL DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n"
                for line in lines["PartitionName"]
            ),
            "marker": json.dumps({"version": 1, "image": self.model["jail"]["populate"]["image"]}),
        }
        self.users: list[dict[str, str]] = []
        self.results: list[Json] = []

    def report(self, form: str = "table") -> Json:
        """What the module returns."""
        for kind in ("config", "nodes", "partitions"):
            self.fake.answers[*SHOW, kind] = Output(0, self.texts[kind], "")
        self.fake.answers.setdefault(COMPARE, Output(0, json.dumps({"marker": self.texts["marker"], "differences": self.users}), ""))
        params = {"model": self.model, "results": self.results, "format": form, "container": "slurmctld"}
        return _drift.run(params, check=True, diff=True)

    def edit(self, kind: str, before: str, after: str) -> None:
        """Edit what slurmctld or the jail has."""
        assert before in self.texts[kind], self.texts[kind]
        self.texts[kind] = self.texts[kind].replace(before, after, 1)

    def applied(self, kind: str, name: str, result: str, before: Any, after: Any) -> None:
        """Add a result of k8s_apply with one object."""
        header = f"{kind} demo/{name}"
        entry = {"before_header": header, "after_header": f"{header} (without …)", "before": before, "after": after}
        self.results.append({"objects": [{"kind": kind, "namespace": "demo", "name": name, "result": result}], "diff": [entry]})


@pytest.fixture
def cluster(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    @contextmanager
    def connected(_params: Json) -> Iterator[Fake]:
        yield fake

    monkeypatch.setattr(_drift, "connected", connected)
    monkeypatch.setattr(_drift, "run_in_pod", fake.run_in_pod)
    return Cluster(fake)


def container(**fields: Any) -> Json:
    return {"spec": {"template": {"spec": {"containers": [{"name": "slurmctld", **fields}]}}}}


CONTAINER = '.spec.template.spec.containers[name="slurmctld"]'
EDITS: dict[str, tuple[Callable[[Cluster], object], tuple[str, str, str, str]]] = {
    "a label": (
        lambda c: c.applied(
            "Service", "demo-login", "configured", {"metadata": {"labels": {"a/b": "x"}}}, {"metadata": {"labels": {"a/b": "y"}}}
        ),
        ("Service", "demo/demo-login .metadata.labels.a/b", "y", "x"),
    ),
    "an environment variable of another manager": (
        lambda c: c.applied(
            "StatefulSet", "demo-controller", "configured", container(env=[{"name": "SPY", "value": "1"}]), container(env=[])
        ),
        ("StatefulSet", f'demo/demo-controller {CONTAINER}.env[name="SPY"]', "absent", '{"name": "SPY", "value": "1"}'),
    ),
    "a line of a ConfigMap": (
        lambda c: c.applied(
            "ConfigMap",
            "demo-controller-config",
            "configured",
            {"data": {"slurm.conf": ["A=1", "B=3"]}},
            {"data": {"slurm.conf": ["A=1", "B=2"]}},
        ),
        ("ConfigMap", "demo/demo-controller-config .data.slurm.conf", "B=2", "B=3"),
    ),
    "an object that is gone": (
        lambda c: c.applied("Service", "demo-login", "created", {}, {"spec": {"ports": [{"port": 22}]}}),
        ("Service", "demo/demo-login", "present", "absent"),
    ),
    "an object of ours that the document does not have": (
        lambda c: c.applied("ConfigMap", "demo-old", "pruned", "ConfigMap demo/demo-old\n", ""),
        ("ConfigMap", "demo/demo-old", "absent", "present"),
    ),
    "pods of an older template": (
        lambda c: c.results.append({"outdated": ["demo-cpu"]}),
        ("Pod", "demo-cpu-*", "of the newest template", "of an older template"),
    ),
    "a key of a Secret": (
        lambda c: c.results.append(
            {
                "secrets": [{"kind": "Secret", "namespace": "demo", "name": "demo-munge", "result": "configured"}],
                "diff": [{"before_header": "Secret demo/demo-munge", "before": {}, "after": {"data": {"munge.key": "1024 random bytes"}}}],
            }
        ),
        ("Secret", "demo/demo-munge .data", '{"munge.key": "1024 random bytes"}', "absent"),
    ),
    "what a run would be refused": (
        lambda c: c.results.append({"failed": True, "msg": "StatefulSet demo/x: spec is immutable."}),
        ("run", "a task of corral.slurm.site", "succeeds", "fails: StatefulSet demo/x: spec is immutable."),
    ),
    "a setting of slurmctld": (
        lambda c: c.edit("config", "SlurmctldDebug = info", "SlurmctldDebug = debug3"),
        ("config", "SlurmctldDebug", "info", "debug3"),
    ),
    "a node's weight": (lambda c: c.edit("nodes", "Weight=1 ", "Weight=5 "), ("node", "cpu-0 Weight", "1", "5")),
    "a partition's state": (lambda c: c.edit("partitions", "State=UP", "State=DOWN"), ("partition", "main State", "UP", "DOWN")),
    "a limit of an account": (
        lambda c: c.results.append(
            {
                "diff": [
                    {"before_header": "tenants", "before": {"account physics": {"limits": 1}}, "after": {"account physics": {"limits": 2}}}
                ]
            }
        ),
        ("tenant", "account physics.limits", "2", "1"),
    ),
    "a user of the jail": (
        lambda c: c.users.append({"where": "/etc/passwd alice", "document": "alice:x:10001", "live": "alice:x:0"}),
        ("user", "/etc/passwd alice", "alice:x:10001", "alice:x:0"),
    ),
    "the jail's image": (
        lambda c: c.texts.update(marker='{"version": 1, "image": "old"}'),
        ("jail", "/etc/corral-jail image", resolve.model(good()).to_dict()["jail"]["populate"]["image"], "old"),
    ),
    "the jail's version": (lambda c: c.edit("marker", '"version": 1', '"version": 0'), ("jail", "/etc/corral-jail version", "1", "0")),
}


def test_a_cluster_as_its_document_says_has_no_drift(cluster: Cluster) -> None:
    cluster.results = [
        {},
        {"skipped": True},
        {"changed": False, "objects": [{"kind": "Service", "name": "x", "result": "unchanged"}], "diff": []},
    ]
    report = cluster.report()
    assert (report["findings"], report["text"], report["changed"]) == ([], "No drift.\n", False)


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_is_listed_and_none_more(cluster: Cluster, what: str) -> None:
    edit, expected = EDITS[what]
    edit(cluster)
    assert [tuple(row.values()) for row in cluster.report()["findings"]] == [expected]


def test_all_edits_are_listed_once_in_both_forms_and_nothing_is_written(cluster: Cluster) -> None:
    chosen = {what: one for what, one in EDITS.items() if what != "the jail's version"}
    for edit, _expected in chosen.values():
        edit(cluster)
    table = cluster.report()
    found = json.loads(cluster.report("json")["text"])
    assert sorted(tuple(row.values()) for row in found["findings"]) == sorted(expected for _edit, expected in chosen.values())
    assert len(table["text"].splitlines()) == len(chosen) + 1
    kinds = {one["kind"] for one in found["findings"]}
    assert len(kinds) >= 12, kinds
    # Of the API server the pods are asked for; the commands in them only show.
    assert (cluster.fake.patches, cluster.fake.deleted) == ([], [])
    assert {tuple(command[:2]) for command in cluster.fake.execs} == {SHOW, COMPARE[:2]}


def test_the_accounts_are_those_of_the_document(cluster: Cluster) -> None:
    cluster.report()
    sent = dict(zip((tuple(command) for command in cluster.fake.execs), cluster.fake.stdin, strict=True))[COMPARE]
    assert sent == accounts.text(cluster.model["users"]["maps"]).encode()
    assert b'"name"' in sent


def test_a_value_moves_no_cursor(cluster: Cluster) -> None:
    cluster.users.append({"where": "/etc/motd", "document": "a\nb", "live": "\x1b[2Jgone" + "x" * 500})
    line = cluster.report()["text"].splitlines()[1]
    assert "a; b" in line and "\x1b" not in line and line.endswith("x…")


def test_what_cannot_be_compared_is_no_silence(cluster: Cluster) -> None:
    cluster.fake.pods = [one for one in cluster.fake.pods if "login" not in one["metadata"]["name"]]
    with pytest.raises(KubeError, match="No login pod in demo is ready"):
        cluster.report()
    cluster.model["login"]["replicas"] = 0
    assert cluster.report()["not_compared"] == ["The jail and its users, since the document has no login pod, in which they are compared."]


def test_an_older_image_is_named(cluster: Cluster) -> None:
    cluster.fake.answers[COMPARE] = Output(2, "", "users.py: error: unrecognized arguments: --compare")
    with pytest.raises(CorralError, match="unrecognized arguments: --compare; if its image is older than this release"):
        cluster.report()
