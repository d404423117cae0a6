# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sizes that are asked for of SlurmNodeSets, and which are to be made."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube import sizes
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Forbidden, api_error, parse_status

PATH = "/apis/corral.hpc/v1alpha1/namespaces/ns/slurmnodesets"
NODE_SETS = [{"name": "cpu", "object": "lab-cpu", "replicas": 2}, {"name": "gpu", "object": "lab-gpu", "replicas": 1}]


class Server:
    """SlurmNodeSets by name; ``refuse`` is the code for lists."""

    def __init__(self, refuse: int = 0, **specs: dict[str, int]) -> None:
        self.objects = [{"metadata": {"name": name}, "spec": spec} for name, spec in specs.items()]
        self.refuse = refuse

    def items(self, path: str, *, what: str, query: dict[str, str]) -> list[dict[str, Any]]:
        assert path == PATH
        if self.refuse:
            raise api_error(parse_status(self.refuse, b"{}", None), what, server="s")
        return self.objects


def ask(server: Any) -> tuple[dict[str, int] | None, list[str]]:
    return sizes.read(server, "ns", NODE_SETS)


def test_what_is_asked_for_counts_and_what_is_missing_begins_with_the_documents() -> None:
    server = Server(**{"lab-cpu": {"replicas": 7}, "other-cpu": {"replicas": 3}})
    assert ask(server) == ({"cpu": 7, "gpu": 1}, ["gpu"])


def test_an_api_server_that_does_not_know_them_is_no_fault_and_one_that_refuses_is() -> None:
    assert ask(Server(404)) == (None, [])
    with pytest.raises(Forbidden, match="SlurmNodeSets in ns"):
        ask(Server(403))


def test_one_without_a_number_is_none_to_go_by() -> None:
    assert ask(Server(**{"lab-gpu": {"replicas": 1}, "lab-cpu": {}})) == ({"cpu": 2, "gpu": 1}, [])
