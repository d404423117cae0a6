# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of a cluster: what of them is drift, whose it is, and how they do."""

from __future__ import annotations

from typing import Any

import pytest

from corral_operator.reconcile.children import COMPONENT, INSTANCE, KINDS, Change, Child, Children, Kind, fingerprint, resized

Json = dict[str, Any]
KIND = {kind.name: kind for kind in KINDS}
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"


def made(kind: str = "StatefulSet", **changes: Any) -> Json:
    found: Json = {
        "metadata": {
            "name": "a-cpu",
            "uid": "1",
            "generation": 3,
            "resourceVersion": "7",
            "labels": {INSTANCE: "a", COMPONENT: "worker"},
        },
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 3, "readyReplicas": 2, "currentRevision": "r", "updateRevision": "r"},
    }
    for path, value in changes.items():
        part = found
        *above, last = path.split("__")
        for name in above:
            part = part[name]
        part[last] = value
    del kind
    return found


def one(kind: Kind, found: Json) -> list[Child]:
    children = Children()
    children.replace(kind, [found])
    return children.of("a")


@pytest.mark.parametrize(
    ("kind", "change", "differs"),
    [
        ("StatefulSet", {"metadata__resourceVersion": "8"}, False),
        ("StatefulSet", {"metadata__generation": 4}, True),
        ("StatefulSet", {"metadata__annotations": {"x": "y"}}, True),
        ("StatefulSet", {"status__readyReplicas": 1}, True),
        ("StatefulSet", {"metadata__uid": "2"}, True),
        ("ConfigMap", {"metadata__resourceVersion": "8"}, True),
        ("Secret", {"metadata__resourceVersion": "8"}, True),
        ("Service", {"metadata__resourceVersion": "8", "status": {"loadBalancer": {}}}, False),
        ("Service", {"spec__ports": []}, True),
        ("NetworkPolicy", {"metadata__generation": 4}, True),
        ("PersistentVolumeClaim", {"metadata__resourceVersion": "8"}, False),
        ("PersistentVolumeClaim", {"metadata__uid": "2"}, True),
        ("SlurmNodeSet", {"spec__replicas": 3}, True),
        ("SlurmNodeSet", {"status": {"replicas": 2}, "metadata__resourceVersion": "8"}, False),
        ("MariaDB", {"metadata__resourceVersion": "8"}, False),
        ("MariaDB", {"metadata__generation": 4}, True),
        ("Certificate", {"metadata__resourceVersion": "8"}, False),
        ("Certificate", {"metadata__generation": 4}, True),
        ("Pod", {"metadata__annotations": {"x": "y"}, "metadata__resourceVersion": "8"}, False),
        ("Pod", {"metadata__uid": "2"}, True),
    ],
)
def test_what_counts_as_drift(kind: str, change: Json, differs: bool) -> None:
    before, after = one(KIND[kind], made()), one(KIND[kind], made(**change))
    assert (fingerprint(before) != fingerprint(after)) is differs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"status__readyReplicas": 1}, "1 of 2 pods of a-cpu are ready"),
        ({"status__observedGeneration": 2}, "2 of 2 pods of a-cpu are ready"),
        ({"status__updateRevision": "s", "status__updatedReplicas": 1}, "pods of a-cpu are being replaced"),
        ({"spec__replicas": 0, "status": {"observedGeneration": 3}}, ""),
    ],
)
def test_whether_a_stateful_set_is_ready(change: Json, words: str) -> None:
    assert one(KIND["StatefulSet"], made(**change))[0].message == words


@pytest.mark.parametrize(
    ("spec", "state", "address"),
    [
        ({"type": "ClusterIP", "ports": [{"port": 22}]}, {}, "a-cpu.ns:22"),
        ({"type": "NodePort", "ports": [{"port": 22, "nodePort": 30022}]}, {}, "<any node>:30022"),
        ({"type": "LoadBalancer", "ports": [{"port": 22}]}, {}, ""),
        ({"type": "LoadBalancer", "ports": [{"port": 22}]}, {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}, "192.0.2.1:22"),
        ({"clusterIP": "None", "ports": [{"port": 22}]}, {}, ""),
    ],
)
def test_where_users_log_in(spec: Json, state: Json, address: str) -> None:
    assert one(KIND["Service"], made(metadata__namespace="ns", spec=spec, status=state))[0].address == address


def test_sizes_are_returned_where_they_differ() -> None:
    children = Children()
    children.replace(KIND["StatefulSet"], [made(spec__replicas=3)])
    assert resized(children.of("a")) == {}, "there is no SlurmNodeSet"
    children.replace(KIND["SlurmNodeSet"], [made(status={}), made(metadata__name="a-gone", status={"replicas": 4})])
    assert resized(children.of("a")) == {"a-cpu": 3}
    children.replace(KIND["SlurmNodeSet"], [made(status={"replicas": 3})])
    assert resized(children.of("a")) == {}


def test_whose_children_changed() -> None:
    children = Children()
    other = made(metadata__name="b-cpu", metadata__labels={INSTANCE: "b"})
    assert children.replace(KIND["ConfigMap"], [made(), other]) == {"a": Change.FOREIGN, "b": Change.FOREIGN}
    assert children.replace(KIND["ConfigMap"], [made(), other]) == {}
    assert children.apply_event(KIND["ConfigMap"], "MODIFIED", made(metadata__resourceVersion="9")) == {"a": Change.FOREIGN}
    assert children.apply_event(KIND["ConfigMap"], "MODIFIED", made(metadata__resourceVersion="9")) == {}
    assert children.apply_event(KIND["ConfigMap"], "DELETED", other) == {"b": Change.FOREIGN}
    assert children.replace(KIND["ConfigMap"], []) == {"a": Change.FOREIGN}
    assert len(children) == 0


def test_a_workload_that_becomes_not_ready_is_no_foreign_change() -> None:
    children = Children()
    assert children.apply_event(KIND["StatefulSet"], "ADDED", made()) == {"a": Change.FOREIGN}
    assert children.apply_event(KIND["StatefulSet"], "MODIFIED", made(status__readyReplicas=0)) == {"a": Change.STATE}
    assert children.apply_event(KIND["StatefulSet"], "MODIFIED", made(status__readyReplicas=0, metadata__generation=4)) == {
        "a": Change.FOREIGN
    }


def owned(*fields: str, time: str = NOW, manager: str = "corral", **changes: Any) -> Json:
    """A ConfigMap with these keys, set by a run."""
    entry = {"manager": manager, "operation": "Apply", "time": time, "fieldsV1": {"f:data": {f"f:{name}": {} for name in fields}}}
    return made(metadata__managedFields=[entry], **changes)


def test_the_removal_of_a_field_is_a_foreign_change_without_a_foreign_owner() -> None:
    children, kind = Children(), KIND["ConfigMap"]
    both = owned("slurm.conf", "gres.conf")
    assert children.apply_event(kind, "ADDED", both) == {"a": Change.SET}
    assert children.apply_event(kind, "MODIFIED", owned("gres.conf", metadata__resourceVersion="8")) == {"a": Change.FOREIGN}
    assert children.apply_event(kind, "MODIFIED", owned("slurm.conf", "gres.conf", time=LATER, metadata__resourceVersion="9")) == {
        "a": Change.SET
    }
    assert children.apply_event(kind, "MODIFIED", owned("gres.conf", time="2026-01-01T00:01:00Z", metadata__resourceVersion="10")) == {
        "a": Change.SET
    }, "a run that takes a field away has a newer entry"
    left = made(metadata__managedFields=[], metadata__resourceVersion="11")
    assert children.apply_event(kind, "MODIFIED", left) == {"a": Change.FOREIGN}
    assert children.replace(kind, [owned("slurm.conf", metadata__resourceVersion="12")]) == {"a": Change.SET}
    assert children.replace(kind, [owned(metadata__resourceVersion="13")]) == {"a": Change.FOREIGN}, "by a list, too"


def test_fields_of_others_that_a_run_makes_its_own_to_drop_them_are_no_loss() -> None:
    children, kind = Children(), KIND["ConfigMap"]
    children.apply_event(kind, "ADDED", owned("slurm.conf"))
    assert children.apply_event(kind, "MODIFIED", owned("slurm.conf", "more", metadata__resourceVersion="8")) == {"a": Change.SET}
    assert children.apply_event(kind, "MODIFIED", owned("slurm.conf", metadata__resourceVersion="9")) == {"a": Change.SET}


@pytest.mark.parametrize(
    "notes",
    [{"metadata__labels": {INSTANCE: "a", "applyset.kubernetes.io/id": "x"}}, {"metadata__name": "a-base-revisions"}],
    ids=["record of a set", "documents"],
)
def test_what_a_run_writes_into_its_notes_and_takes_away_within_a_second_is_its_own(notes: Json) -> None:
    children, kind = Children(), KIND["ConfigMap"]
    children.apply_event(kind, "ADDED", owned("members", **notes))
    assert children.apply_event(kind, "MODIFIED", owned("members", "pending", time=LATER, metadata__resourceVersion="8", **notes)) == {
        "a": Change.SET
    }
    assert children.apply_event(kind, "MODIFIED", owned("members", time=LATER, metadata__resourceVersion="9", **notes)) == {"a": Change.SET}


def test_an_object_whose_label_was_taken_off_or_changed_is_drift_of_the_cluster_that_it_was_of() -> None:
    children, kind = Children(), KIND["ConfigMap"]
    children.apply_event(kind, "ADDED", owned("slurm.conf"))
    assert children.apply_event(kind, "MODIFIED", owned("slurm.conf", metadata__labels={}))["a"] is Change.FOREIGN
    assert children.apply_event(kind, "MODIFIED", owned("slurm.conf"))["a"] is Change.SET
    assert children.replace(kind, [owned("slurm.conf", metadata__labels={INSTANCE: "b"})]) == {"a": Change.FOREIGN, "b": Change.SET}
    assert len(children.of("a")) == 0 and len(children.of("b")) == 1


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, ""),
        ({"lastScheduleTime": LATER, "active": [{"name": "a-backup-1"}]}, ""),
        ({"lastScheduleTime": NOW, "lastSuccessfulTime": LATER}, ""),
        ({"lastScheduleTime": LATER, "lastSuccessfulTime": NOW}, f"the job of a-cpu of {LATER} has failed; the log of its pod states why"),
        ({"lastScheduleTime": NOW}, f"the job of a-cpu of {NOW} has failed; the log of its pod states why"),
    ],
)
def test_the_last_job_of_a_cron_job_counts(status: Json, message: str) -> None:
    (found,) = one(KIND["CronJob"], made(status=status))
    assert (found.ready, found.message) == (not message, message)


def test_a_certificate_is_as_cert_manager_says() -> None:
    (found,) = one(KIND["Certificate"], made(status={}))
    assert (found.ready, found.message) == (False, "cert-manager has not reported on Certificate a-cpu")
    said = {"type": "Ready", "status": "False", "message": "Issuer own not found"}
    (found,) = one(KIND["Certificate"], made(status={"conditions": [said]}))
    assert (found.ready, found.message) == (False, "Certificate a-cpu is not ready: Issuer own not found")
    (found,) = one(KIND["Certificate"], made(status={"conditions": [{**said, "status": "True"}]}))
    assert (found.ready, found.message) == (True, "")


def test_a_mariadb_is_as_its_operator_says() -> None:
    def readiness(**status: Any) -> tuple[bool, str]:
        (found,) = one(KIND["MariaDB"], made(status=status))
        return found.ready, found.message

    assert readiness() == (False, "mariadb-operator has not reported on MariaDB a-cpu")
    said = {"type": "Ready", "status": "False", "message": "Galera not ready"}
    assert readiness(conditions=[said]) == (False, "MariaDB a-cpu is not ready: Galera not ready")
    assert readiness(conditions=[{**said, "status": "True", "message": "Running"}]) == (True, "")
