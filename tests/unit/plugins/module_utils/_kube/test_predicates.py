# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When an object is ready, one row a case."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import predicates


def obj(kind: str, spec: dict[str, Any] | None = None, *, generation: int = 1, **status: Any) -> dict[str, Any]:
    group = {"StatefulSet": "apps/v1", "Deployment": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1"}
    group["MariaDB"] = "k8s.mariadb.com/v1alpha1"
    group["Certificate"] = "cert-manager.io/v1"
    group["CustomResourceDefinition"] = "apiextensions.k8s.io/v1"
    return {
        "apiVersion": group.get(kind, "v1"),
        "kind": kind,
        "metadata": {"name": "x", "namespace": "ns", "generation": generation},
        "spec": spec or {},
        "status": status,
    }


def condition(kind: str, status: str = "True", **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, **more}]}


SEEN = {"observedGeneration": 1}
TWO: dict[str, Any] = {"replicas": 2}
FULL = {
    **SEEN,
    "replicas": 2,
    "readyReplicas": 2,
    "availableReplicas": 2,
    "updatedReplicas": 2,
    "currentRevision": "a",
    "updateRevision": "a",
}
HALF = {**FULL, "currentRevision": "a", "updateRevision": "b", "updatedReplicas": 1}
ON_DELETE = {"updateStrategy": {"type": "OnDelete"}}

CASES: list[tuple[dict[str, Any], str]] = [
    (obj("StatefulSet", TWO, **FULL), ""),
    (obj("StatefulSet", TWO), "has not seen"),
    (obj("StatefulSet", TWO, generation=2, **FULL), "has not seen"),
    (obj("StatefulSet", TWO, **{**FULL, "readyReplicas": 1}), "1 of 2 pods are ready"),
    (obj("StatefulSet", TWO, **{**FULL, "availableReplicas": 0}), "0 of 2 pods are ready"),
    (obj("StatefulSet", TWO, **{**FULL, "replicas": 3}), "1 superfluous"),
    (obj("StatefulSet", TWO, **HALF), "1 of 2 pods are of the new revision"),
    (obj("StatefulSet", {**TWO, **ON_DELETE}, **HALF), ""),
    (obj("StatefulSet", {**TWO, "updateStrategy": {"rollingUpdate": {"partition": 1}}}, **HALF), ""),
    (obj("StatefulSet", {"replicas": 0}, **SEEN), ""),
    (obj("StatefulSet", {}, **SEEN, readyReplicas=1, availableReplicas=1), ""),
    (obj("Deployment", TWO, **FULL), ""),
    (obj("Deployment", TWO, **{**FULL, "updatedReplicas": 1}), "1 of 2 pods are of the new revision"),
    (obj("Deployment", TWO, **{**FULL, "availableReplicas": 1}), "1 of 2 pods are available"),
    (obj("Deployment", TWO, **{**FULL, "replicas": 3}), "1 old pods"),
    (
        obj("Deployment", TWO, **SEEN, **condition("Progressing", "False", reason="ProgressDeadlineExceeded", message="m")),
        "FAILED no progress",
    ),
    (obj("DaemonSet", **SEEN, desiredNumberScheduled=2, updatedNumberScheduled=2, numberAvailable=2), ""),
    (obj("DaemonSet", **SEEN, desiredNumberScheduled=2, updatedNumberScheduled=1, numberAvailable=2), "1 of 2 pods are of the new"),
    (obj("DaemonSet", ON_DELETE, **SEEN, desiredNumberScheduled=2, updatedNumberScheduled=0, numberAvailable=2), ""),
    (obj("DaemonSet", **SEEN, desiredNumberScheduled=2, updatedNumberScheduled=2), "0 of 2 pods are available"),
    (obj("DaemonSet", **SEEN), ""),
    (obj("Job", succeeded=1, **condition("Complete")), ""),
    (obj("Job", {"completions": 3}, succeeded=1, failed=2), "1 of 3 pods have succeeded, 2 have failed so far"),
    (obj("Job", **condition("Failed", reason="BackoffLimitExceeded", message="m")), "FAILED BackoffLimitExceeded: m"),
    (obj("Job", {"suspend": True}), 'it is suspended; kubectl patch job x -n ns -p \'{"spec":{"suspend":false}}\' has it go on'),
    (obj("Job", {"suspend": True}, succeeded=1, **condition("Complete")), ""),
    (obj("Pod", phase="Running", **condition("Ready")), ""),
    (obj("Pod", phase="Running", **condition("Ready", "False")), "Running and not ready"),
    (obj("Pod"), "Pending and not ready"),
    (obj("Pod", phase="Succeeded"), ""),
    (obj("Pod", phase="Failed", reason="Evicted"), "FAILED Evicted"),
    (obj("PersistentVolumeClaim", phase="Bound"), ""),
    (obj("PersistentVolumeClaim"), "not bound"),
    (obj("PersistentVolumeClaim", phase="Lost"), "FAILED Lost"),
    (obj("CustomResourceDefinition", **condition("Established")), ""),
    (obj("CustomResourceDefinition"), "not established"),
    (obj("CustomResourceDefinition", **condition("NamesAccepted", "False", message="taken by x")), "FAILED taken by x"),
    (obj("MariaDB", **condition("Ready")), ""),
    (obj("MariaDB", **condition("Ready", "False", reason="StatefulSetNotReady", message="Not ready")), "StatefulSetNotReady: Not ready"),
    (obj("MariaDB"), "mariadb-operator has not reported on it; see whether its pod runs"),
    (obj("Certificate", **condition("Ready")), ""),
    (obj("Certificate", **condition("Ready", "False", reason="DoesNotExist", message="Issuing.")), "DoesNotExist: Issuing"),
    (obj("Certificate"), "cert-manager has not reported on it; see whether its pod runs"),
    (obj("Namespace", phase="Active"), ""),
    (obj("Namespace", phase="Terminating"), "Terminating"),
    (obj("Service", {"type": "LoadBalancer"}), ""),
    (obj("ConfigMap"), ""),
]


@pytest.mark.parametrize(("given", "words"), CASES, ids=[f"{given['kind']}-{words or 'ready'}" for given, words in CASES])
def test_state(given: dict[str, Any], words: str) -> None:
    found = predicates.state(given)
    assert found.ready is (words == "")
    assert found.failed is words.startswith("FAILED")
    assert words.removeprefix("FAILED ") in found.text


def test_pods_above_the_replicas_hold_nobody_up_on_demand() -> None:
    assert predicates.state(obj("StatefulSet", TWO, **{**FULL, "replicas": 3}), gone=False).ready
    assert not predicates.state(obj("StatefulSet", TWO, **{**FULL, "readyReplicas": 1, "replicas": 3}), gone=False).ready


def test_a_job_that_was_meant_to_be_suspended_is_as_it_shall_be() -> None:
    assert predicates.state(obj("Job", {"suspend": True}), suspended=True).ready
    assert not predicates.state(obj("Job"), suspended=True).ready


def test_load_balancers_on_demand() -> None:
    service = obj("Service", {"type": "LoadBalancer"})
    assert not predicates.state(service, load_balancers=True).ready
    assert predicates.state(obj("Service", {"type": "ClusterIP"}), load_balancers=True).ready
    service["status"] = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}
    assert predicates.state(service, load_balancers=True).ready


def test_a_custom_kind_of_the_same_name_is_not_taken_for_ours() -> None:
    assert predicates.state({"apiVersion": "batch.example.org/v1", "kind": "Job", "metadata": {"name": "x"}}).ready
