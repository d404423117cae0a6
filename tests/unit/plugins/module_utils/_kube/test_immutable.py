# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of fields that Kubernetes changes for nobody; that the API server refuses them in these words is in tests/integration/kube/test_foreign.py."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import immutable
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Cause, Status


def ref(group: str, kind: str) -> Ref:
    return Ref(BUILTIN[group, kind], "slurm", "x")


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        (Status(422, message="spec: Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden"), True),
        (Status(422, causes=(Cause("", "Invalid value: field is immutable", "spec.selector"),)), True),
        (Status(422, causes=(Cause("", "may not change once set", "spec.clusterIPs[0]"),)), True),
        (Status(422, causes=(Cause("", "Forbidden: may not be changed in an update.", "value"),)), True),
        (Status(422, causes=(Cause("", "Forbidden: updates to parameters are forbidden.", "parameters"),)), True),
        (Status(422, causes=(Cause("", "Forbidden: updates to provisioner are forbidden.", "provisioner"),)), True),
        (Status(422, causes=(Cause("", "Forbidden: pod updates may not change fields other than `spec.tolerations`", "spec"),)), True),
        (Status(422, causes=(Cause("", "Forbidden: pod updates may not add or remove containers", "spec.containers"),)), True),
        (Status(422, causes=(Cause("", "Forbidden: existing toleration can not be modified except its tolerationSeconds", "spec"),)), True),
        (Status(422, message="spec.replicas: must be greater than 0"), False),
        (Status(409, message="field is immutable"), False),
    ],
)
def test_which_refusals_are_of_that_kind(status: Status, refused: bool) -> None:
    assert immutable.is_refused(status) is refused


def test_the_fields_of_a_stateful_set_are_found() -> None:
    wanted: dict[str, Any] = {
        "spec": {"serviceName": "a", "selector": {"matchLabels": {"a": "b"}}, "replicas": 3, "podManagementPolicy": "Parallel"}
    }
    live = {"spec": {"serviceName": "b", "selector": {"matchLabels": {"a": "b"}}, "replicas": 1, "podManagementPolicy": "OrderedReady"}}
    assert immutable.changed(ref("apps", "StatefulSet"), wanted, live) == ["spec.serviceName", "spec.podManagementPolicy"]
    assert immutable.changed(ref("", "Service"), wanted, live) == []


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (("apps", "StatefulSet"), "'kubectl -n slurm delete statefulset x --cascade=orphan' (its pods run on), then run again"),
        (("", "Service"), "'kubectl -n slurm delete service x', then run again"),
        (("", "PersistentVolumeClaim"), "to delete PersistentVolumeClaim slurm/x may lose what it holds: set the field back"),
    ],
)
def test_the_way_out(where: tuple[str, str], words: str) -> None:
    assert words in immutable.way_out(ref(*where), ["spec.a"])
