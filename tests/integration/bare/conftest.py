# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One cluster of bare daemons for all tests here. They need root, overlayfs and the two images' archives, and no lab."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .hosts import CONTROLLER, JAIL, NODES, PLUGIN, Cluster, cluster


def in_namespace(kind: str, namespace: str) -> list[str]:
    """Command lines of all processes in a namespace."""
    found = []
    for link in Path("/proc").glob(f"[0-9]*/ns/{kind}"):
        try:
            if os.readlink(link) == namespace:
                found.append((link.parents[1] / "comm").read_text().strip())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


@pytest.fixture(scope="module")
def bare() -> Iterator[Cluster]:
    mounts = Path("/proc/self/mountinfo").read_text()
    with cluster(dict.fromkeys((CONTROLLER, *NODES), PLUGIN)) as made:
        # The machines are Debian as well: what tells the jail from them, and a directory that no machine has.
        made.head.sh(f"echo VARIANT=jail >>{JAIL}/usr/lib/os-release; install -d -o 10001 -g 10001 {JAIL}/srv/project")
        network = os.readlink(f"/proc/{made.head.pid}/ns/net")
        assert "slurmctld" in in_namespace("net", network)
        yield made
    assert not made.scratch.exists()
    assert in_namespace("net", network) == []
    assert str(made.scratch) not in Path("/proc/self/mountinfo").read_text(), mounts
