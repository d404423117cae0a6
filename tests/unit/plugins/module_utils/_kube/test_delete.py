# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of an object's dependents; that the API server does so is in tests/integration/kube/."""

from __future__ import annotations

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.delete import usual_propagation
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref, Resource

CUSTOM = Resource("k8s.mariadb.com", "v1alpha1", "MariaDB", "mariadbs", namespaced=True, builtin=False)


@pytest.mark.parametrize(
    ("resource", "waits", "wanted"),
    [
        (BUILTIN["apps", "StatefulSet"], True, "Foreground"),
        (BUILTIN["apps", "StatefulSet"], False, "Background"),
        (CUSTOM, True, "Background"),
        (CUSTOM, False, "Background"),
    ],
)
def test_what_a_custom_kinds_controller_has_made_never_goes_first(resource: Resource, waits: bool, wanted: str) -> None:
    assert usual_propagation(Ref(resource, "ns", "x"), waits=waits) == wanted
