# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of nodes that do not come into service in time."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.corral.slurm.plugins.module_utils import _converge
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import KubeError, WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._kube.progress import ProgressLog
from ansible_collections.corral.slurm.plugins.module_utils._slurm import nodes


class Slurmctld:
    def __init__(self, *state: str, address: str = "10.241.1.3") -> None:
        rows = [{"name": "cpu-0", "state": list(state), "reason": "Low CPUs", "address": address}, {"name": "cpu-1", "state": ["IDLE"]}]
        self.answer = nodes.parse(json.dumps({"nodes": rows})), ""

    def read_nodes_and_room(self) -> Any:
        return self.answer


def wait(*state: str) -> str:
    with pytest.raises(WaitTimeout) as told:
        _converge._wait_for_nodes(cast(Any, Slurmctld(*state)), ["cpu-0", "cpu-1"], 0)
    return str(told.value)


def test_one_that_slurm_refuses_is_no_matter_of_time() -> None:
    assert wait("IDLE", "DRAIN", "INVALID_REG") == (
        "Not all nodes are in service after 0 s: cpu-0 is IDLE+DRAIN+INVALID_REG (Low CPUs). "
        "Slurm refuses cpu-0: compare the node set in the document with the hardware of its Kubernetes nodes, and run again."
    )


def test_one_that_is_away_is_waited_for_by_the_next_run() -> None:
    assert wait("DOWN", "NOT_RESPONDING").endswith("(Low CPUs). Run again to go on waiting.")


def test_only_some_are_waited_for_and_all_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted of a cluster is never counted of a part of it."""
    monkeypatch.setattr(_converge, "connected", lambda _params: contextlib.nullcontext(SimpleNamespace(requests=1)))
    monkeypatch.setattr(_converge, "Slurmctld", lambda _client, _params: Slurmctld("DOWN", "NOT_RESPONDING"))
    params = {"nodes": "cpu-[0-2]", "wait": True, "wait_nodes": "cpu-1", "wait_timeout": 0}
    told = _converge.node_info(params, check=False, diff=False)
    assert ([row["name"] for row in told["nodes"]], told["missing"]) == (["cpu-0", "cpu-1"], "cpu-2")
    assert told["counts"] == {"total": 3, "in_service": 1, "drained": 0, "down": 2}, "each node once, hidden ones as down"
    with pytest.raises(WaitTimeout, match="slurmctld does not know cpu-2; cpu-0 is DOWN"):
        _converge.node_info({**params, "wait_nodes": ""}, check=False, diff=False)


class Forgetful:
    """slurmctld that read its configuration while the name of cpu-0 led nowhere; ``resolves``: after how many looks it leads to the pod again."""

    def __init__(self, address: str, resolves: int) -> None:
        self.address, self.resolves = address, resolves
        self.told: list[list[str]] = []
        self.read = False

    def read_nodes_and_room(self) -> Any:
        state = ["IDLE"] if self.read else ["UNKNOWN", "NOT_RESPONDING"]
        return nodes.parse(json.dumps({"nodes": [{"name": "cpu-0", "state": state, "address": self.address}]})), ""

    def run(self, command: list[str]) -> Any:
        self.told.append(command)
        self.read = len(self.told) > self.resolves
        return SimpleNamespace(code=0 if self.read else 2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make the waits of _converge pass at once; the one number is the time in seconds."""
    now = [0.0]
    monkeypatch.setattr(_converge.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        "ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld.time.sleep", lambda pause: now.append(now.pop() + pause)
    )
    return now


@pytest.fixture
def said(clock: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What the waits say meanwhile, by the clock that passes at once."""
    monkeypatch.setattr(_converge, "ProgressLog", lambda: ProgressLog(lambda: clock[0]))
    caplog.set_level(logging.INFO, "corral.slurm.progress")
    return caplog


def test_a_wait_for_nodes_says_which_and_why(said: pytest.LogCaptureFixture) -> None:
    with pytest.raises(WaitTimeout):
        _converge._wait_for_nodes(cast(Any, Slurmctld("DOWN", "NOT_RESPONDING")), ["cpu-0"], 120)
    assert said.messages[0].startswith("waiting until Slurm has its nodes in service: cpu-0 is DOWN+NOT_RESPONDING (Low CPUs)")
    assert 120 / 20 < len(said.messages) < 120 / 14, "every 15 s while nothing changes"


@pytest.mark.parametrize("resolves", [0, 2])
def test_a_name_that_leads_somewhere_again_is_looked_up_again(clock: list[float], resolves: int) -> None:
    """As after the workers' Service was away while slurmctld read its configuration."""
    slurmctld = Forgetful("demo-cpu-0.demo-worker.demo.svc.cluster.local", resolves)
    found, _full = _converge._wait_for_nodes(cast(Any, slurmctld), ["cpu-0"], 120)
    assert found[0].answers and clock[0] < 60
    assert slurmctld.told == [["sh", "-c", _converge._RETRY, "sh", "demo-cpu-0.demo-worker.demo.svc.cluster.local"]] * (resolves + 1)


@pytest.mark.parametrize("address", ["10.241.1.3", "fd00::1:3", ""])
@pytest.mark.usefixtures("clock")
def test_a_worker_that_told_its_address_is_away_for_another_reason(address: str) -> None:
    slurmctld = Forgetful(address, 0)
    with pytest.raises(WaitTimeout):
        _converge._wait_for_nodes(cast(Any, slurmctld), ["cpu-0"], 120)
    assert slurmctld.told == []


@pytest.mark.usefixtures("clock")
def test_slurmctld_is_not_made_to_read_for_ever() -> None:
    slurmctld = Forgetful("demo-cpu-0.demo-worker.demo.svc.cluster.local", 0)
    still = Slurmctld("DOWN", "NOT_RESPONDING", address=slurmctld.address)
    slurmctld.read_nodes_and_room = still.read_nodes_and_room  # type: ignore[method-assign] # it does not help
    with pytest.raises(WaitTimeout):
        _converge._wait_for_nodes(cast(Any, slurmctld), ["cpu-0"], 300)
    assert len(slurmctld.told) == 3


class Told:
    """A controller's pod in which scontrol says this, again and again, after ten seconds each."""

    ref = Ref(BUILTIN["", "Pod"], "ns", "demo-controller-0")
    container = "slurmctld"

    def __init__(self, clock: list[float], words: str) -> None:
        self.clock, self.summary, self.asked = clock, words, 0

    def run(self, command: list[str], timeout: float) -> Output:
        assert command == _converge.ACTIVE
        self.asked += 1
        self.clock[0] += 10
        return Output(1, "", self.summary)


@pytest.mark.parametrize(
    "words",
    [
        "slurm_reconfigure error: Unable to contact slurm controller (connect failure)",
        "slurm_reconfigure error: Socket timed out on send/recv operation",
        "slurm_reconfigure error: Zero Bytes were transmitted or received",
        "slurm_reconfigure error: Connection refused",
    ],
)
def test_a_slurmctld_that_hangs_has_refused_nothing(clock: list[float], said: pytest.LogCaptureFixture, words: str) -> None:
    pod = Told(clock, words)
    with pytest.raises(WaitTimeout) as caught:
        _converge._reread(pod, time.monotonic() + 60, 60)  # type: ignore[arg-type]  # no pod of Kubernetes
    assert pod.asked > 1, "it may have been starting"
    assert "does not answer" in str(caught.value) and words in str(caught.value)
    assert said.messages[0].startswith(f"waiting until slurmctld in Pod ns/demo-controller-0 reads its new configuration: {words}"), (
        said.messages
    )


class Stale:
    """A controller's pod whose kubelet has not brought the new files."""

    ref, container = Told.ref, Told.container

    def annotation(self, _name: str) -> None:
        return None

    def annotate(self, annotations: dict[str, str]) -> None:
        """Wakes nobody."""

    def run(self, _command: list[str], timeout: float) -> Output:
        return Output(0, "older\n", "")


def test_a_wait_for_the_files_says_what_is_there(clock: list[float], said: pytest.LogCaptureFixture) -> None:
    with pytest.raises(WaitTimeout):
        _converge._await_files(Stale(), "newer", "/etc/slurm", clock[0] + 60, 60)  # type: ignore[arg-type]  # no pod of Kubernetes
    assert said.messages[0].startswith(
        "waiting until Pod ns/demo-controller-0 has the new configuration: /etc/slurm/config.hash: it holds 'older'"
    ), said.messages
    assert len(said.messages) > 2


def test_a_slurmctld_that_says_no_is_told_of_at_once(clock: list[float]) -> None:
    pod = Told(clock, "slurm_reconfigure error: Invalid node name specified")
    with pytest.raises(KubeError, match=r"refuses the new configuration and goes on with the old one: .*Invalid node name"):
        _converge._reread(pod, time.monotonic() + 60, 60)  # type: ignore[arg-type]  # no pod of Kubernetes
    assert pod.asked == 1


class Container:
    """A controller's container, whose commands run here."""

    ref = "Pod slurm/demo-controller-0"

    def run(self, command: list[str], timeout: float) -> Any:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)


@pytest.mark.parametrize(
    ("setting", "plugins", "refused"),
    [
        ("MpiDefault=pmix", ["mpi_cray_shasta.so", "mpi_pmi2.so"], True),  # Debian's 26.05
        ("mpidefault=pmix_v5", ["mpi_pmix.so"], True),
        ("MpiDefault=pmix", ["mpi_none.so", "mpi_pmix.so", "mpi_pmix_v5.so"], False),
        ("MpiDefault=pmix", [], True),
        ("MpiDefault=none", ["mpi_pmi2.so"], False),
        ("MpiDefault=pmi2", ["mpi_pmi2.so"], False),
        ("", ["mpi_pmi2.so"], False),
    ],
)
def test_an_mpi_that_the_image_lacks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, plugins: list[str], refused: bool
) -> None:
    (tmp_path / "slurm.conf").write_text(f"ClusterName=demo\n{setting}\n# MpiDefault=other\n")
    for name in [*plugins, "auth_munge.so"]:
        (tmp_path / name).touch()
    monkeypatch.setattr(_converge, "_PLUGINS", str(tmp_path))
    pod = cast(Any, Container())
    if not refused:
        _converge._refuse_mpi(pod, str(tmp_path), time.monotonic() + 5)
        return
    with pytest.raises(
        KubeError, match=rf"^{setting} is a plugin that the image of Pod .* does not have, so every srun would fail; it has .*\bnone\b"
    ):
        _converge._refuse_mpi(pod, str(tmp_path), time.monotonic() + 5)
    # An image of somebody's own, of which nothing is known.
    monkeypatch.setattr(_converge, "_PLUGINS", str(tmp_path / "nowhere"))
    _converge._refuse_mpi(pod, str(tmp_path), time.monotonic() + 5)


def test_it_is_refused_before_slurmctld_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    pod = cast(Any, SimpleNamespace(live={"metadata": {}}, annotation=lambda _name: None, annotate=lambda _them: None))
    monkeypatch.setattr(_converge, "_await_files", lambda *_words: done.append("files"))
    monkeypatch.setattr(_converge, "_refuse_mpi", lambda *_words: done.append("mpi"))
    monkeypatch.setattr(_converge, "_reread", lambda *_words: done.append("read"))
    _converge._serve([pod], "hash", "/etc/slurm", 5, backed=False)
    assert done == ["files", "mpi", "read"]
