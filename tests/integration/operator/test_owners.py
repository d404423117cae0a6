# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two operators on one Kubernetes: each document has one of them, and the other one neither writes it nor lets it go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ..conftest import eventually
from ..kubectl import Kubectl
from .conftest import IMAGE, Operator, Served

pytestmark = pytest.mark.lab

FINALIZER = "corral.hpc/destroy"


@contextmanager
def second_operator(kubectl: Kubectl) -> Iterator[Operator]:
    """One that looks at the documents of all namespaces, as the first does, and has rights in none."""
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
        time.sleep(15)  # after 10 s it tells of what nobody looks after
        assert cluster.resource()["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert cluster.resource()["metadata"]["finalizers"] == [FINALIZER]
