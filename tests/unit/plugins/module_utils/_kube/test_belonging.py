# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose an object is; that nothing of it is written is shown in tests/integration/kube/test_prune.py."""

from __future__ import annotations

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import belonging
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict
from ansible_collections.corral.slurm.plugins.module_utils._kube.objects import Item

LABEL = "applyset.kubernetes.io/part-of"


def item(**labels: str) -> Item:
    return Item(Ref(BUILTIN["apps", "StatefulSet"], "slurm", "m-n-x"), {"metadata": {"labels": labels}})


def of(cluster: str) -> dict[str, str]:
    return {belonging.INSTANCE: cluster, belonging.MANAGED_BY: "corral"}


@pytest.mark.parametrize(
    ("live", "wanted", "words"),
    [
        (of("m"), of("m-n"), "StatefulSet slurm/m-n-x belongs to the cluster m "),
        (of("m"), of("m"), None),
        ({}, of("m"), None),
        ({belonging.INSTANCE: "m", belonging.MANAGED_BY: "Helm"}, of("m-n"), None),
        ({LABEL: "other"}, {}, "is a member of another set"),
        ({LABEL: "mine"}, {}, None),
        ({**of("m"), LABEL: "other"}, of("m"), None),  # an object that went from one part of the cluster to another
    ],
)
def test_what_is_somebody_elses_is_refused(live: dict[str, str], wanted: dict[str, str], words: str | None) -> None:
    if words is None:
        belonging.check(item(**wanted), live, set_label=LABEL, set_id="mine")
        return
    with pytest.raises(Conflict, match=words):
        belonging.check(item(**wanted), live, set_label=LABEL, set_id="mine")
