# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two operators on one Kubernetes: each document has one of them, and the other one neither writes it nor lets it go."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ..conftest import eventually
from ..kubectl import Kubectl
from .conftest import DOCUMENTS, IMAGE, Operator, Served

pytestmark = pytest.mark.lab

FINALIZER = "corral.hpc/destroy"


@contextmanager
def second_operator(kubectl: Kubectl) -> Iterator[Operator]:
    """One that watches the documents of all namespaces, as the first does, and has rights in none."""
    found = Operator(kubectl, "test-operator-second")
    run = found.install(image=IMAGE, replicas=1, webhook="absent")
    try:
        assert run.rc == 0, run.output
        found.led()
        yield found
    finally:
        run = found.install(state="absent")
        kubectl("delete", "namespace", found.namespace, "--ignore-not-found", "--timeout=120s")
        assert run.rc == 0, run.output


def test_a_second_operator_neither_writes_nor_lets_go_of_the_firsts_document(operator: Operator, cluster: Served) -> None:
    cluster.apply()
    cluster.wait_ready()
    eventually(lambda: cluster.settled, "it has settled", 60)
    before = cluster.resource()
    assert before["metadata"]["annotations"]["corral.hpc/operator"] == f"{operator.namespace}/corral-operator"
    with second_operator(operator.kubectl):
        time.sleep(15)  # after 10 s it reports unclaimed documents
        assert cluster.resource()["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert cluster.resource()["metadata"]["finalizers"] == [FINALIZER]


HARMS = {
    "the finalizer": {"metadata": {"finalizers": None}},
    "the operator's name": {"metadata": {"annotations": {"corral.hpc/operator": None}}},
}


def test_what_is_taken_off_a_document_is_back(operator: Operator, cluster: Served) -> None:
    cluster.apply()
    cluster.wait_ready()
    eventually(lambda: cluster.settled, "it has settled", 60)
    named, runs = f"{operator.namespace}/corral-operator", operator.runs()

    def whole() -> bool:
        metadata = cluster.resource()["metadata"]
        return metadata.get("finalizers") == [FINALIZER] and metadata["annotations"].get("corral.hpc/operator") == named

    def patch(change: dict[str, object], *args: str) -> None:
        operator.kubectl("patch", DOCUMENTS, cluster.name, "-n", cluster.namespace, "--type=merge", "-p", json.dumps(change), *args)

    for what, change in HARMS.items():
        patch(change)
        eventually(whole, f"{what} is back", 5)
    # The status: what others write into it and remove from it.
    before = cluster.resource()["status"]
    for lie in ({"nodes": {"total": 99}, "login": "nowhere"}, {"conditions": []}, {"observedHash": None, "observedGeneration": 1}):
        patch({"status": lie}, "--subresource=status")
        eventually(lambda: _said(cluster.resource()["status"]) == _said(before), f"the status is back after {lie}", 5)
    assert operator.runs() == runs, "nothing of the cluster was touched, so nothing is run"


def _said(status: dict[str, Any]) -> dict[str, Any]:
    """A status without the times at which its conditions changed."""
    conditions = [{key: value for key, value in one.items() if key != "lastTransitionTime"} for one in status.get("conditions", ())]
    return {**status, "conditions": conditions}
