# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exporter: what it makes of recorded output of two releases of Slurm, what it does without output, and that its number of series is bounded."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from corral_exporter import SourceError, commands, jobs, metrics, nodes
from corral_exporter.collector import Collector, Settings, read_accounts
from corral_exporter.scheduler import Names, Scheduler
from corral_exporter.server import Server
from prometheus_client.parser import text_string_to_metric_families

RECORDED = Path(__file__).parent / "recorded"
VERSIONS = ("24.11", "26.05")
# Between the fields of the recorded jobs.
MARK = "\x1fqwertyui"
NOW = 1795659600.0
Series = dict[tuple[str, ...], float]


def recorded(version: str, name: str) -> str:
    return (RECORDED / version / name).read_text(encoding="utf-8")


class Slurm:
    """What the commands print; a sentence for those that fail."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.failing: dict[str, str] = {}
        self.outputs: dict[str, str] = {}
        self.ran: list[str] = []

    def records(self, command: Sequence[str], end: str, timeout: float) -> Iterator[str]:
        program = command[0]
        self.ran.append(program)
        if program in self.failing:
            raise SourceError(self.failing[program])
        text = self.outputs.get(program) or recorded(
            self.version, {"scontrol": "nodes.txt", "squeue": "jobs.txt", "sdiag": "sdiag.json"}[program]
        )
        mark = end.removesuffix("\n")
        yield from text.replace(MARK, mark).split(end)[: -1 if mark else None]


def settings(**changes: Any) -> Settings:
    return replace(Settings(cluster="demo", accounts=100, users=20, nodes=100, timeout=5, passwd=Path("/nonexistent")), **changes)


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def scraped(text: bytes) -> dict[str, Series]:
    """Samples by name and by the labels' values, but for the cluster's."""
    found: dict[str, Series] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("cluster") == "demo"
            key = tuple(labels.values())
            assert key not in found.setdefault(sample.name, {}), "a series that is there twice"
            found[sample.name][key] = sample.value
    return found


def collected(slurm: Slurm, **changes: Any) -> dict[str, Series]:
    collector = Collector(settings(**changes), slurm.records, now=lambda: NOW)
    collector.collect()
    return scraped(collector.text())


@pytest.mark.parametrize("version", VERSIONS)
def test_all_records_of_both_releases_are_read(version: str) -> None:
    found = collected(Slurm(version))
    assert set(found["slurm_exporter_success"].values()) == {1}
    assert set(found["slurm_exporter_invalid_records"].values()) == {0}
    assert list(found["slurm_info"]) == [(json.loads(recorded(version, "sdiag.json"))["meta"]["slurm"]["release"],)]
    # No job of the second recording runs.
    idle = {"slurm_account_cpus", "slurm_account_gpus"} if version == "26.05" else set()
    assert set(found) | idle == {metric.name for metric in metrics.CATALOGUE}, "each metric that is declared, and no other"


def test_nodes_count_once_by_their_state() -> None:
    found = collected(Slurm("24.11"))
    assert found["slurm_nodes"] == {
        ("cpu", "draining"): 2,
        ("cpu", "allocated"): 2,
        ("cpu", "down"): 2,
        ("gpu", "idle"): 2,
        ("gpu", "drained"): 1,
        ("gpu", "down"): 1,
    }
    assert found["slurm_nodes_not_responding"] == {("cpu",): 2, ("gpu",): 1}
    assert found["slurm_gpus"] == {("cpu", "allocated"): 0, ("cpu", "idle"): 0, ("cpu", "unavailable"): 0} | {
        ("gpu", "allocated"): 0,
        ("gpu", "idle"): 16,
        ("gpu", "unavailable"): 16,
    }
    cpus = found["slurm_cpus"]
    assert sum(value for key, value in cpus.items() if key[0] == "cpu") == 6 * 16
    assert sum(found["slurm_partition_nodes"][key] for key in found["slurm_partition_nodes"] if key[0] == "all") == 10


def test_reasons_are_shown_as_slurm_has_them_and_of_unavailable_nodes_alone() -> None:
    found = collected(Slurm("24.11"))["slurm_node_unavailable"]
    assert ("cpu-1", "cpu", "draining", "corral: kubernetes: node k3 is cordoned State=IDLE [x@y") in found
    assert not [key for key in found if key[0] == "gpu-0"], "an idle node that still shows the reason of a drain that is over"
    assert all(key[2] != "idle" for key in found)


@pytest.mark.parametrize(
    ("reason", "owner"),
    [
        ("corral: health: gpu-count: 7 of 8 GPUs are there [root@2026-11-26T02:08:40]", "health: gpu-count"),
        ("corral: jail: /mnt/jail is full", "jail"),
        ("corral: admin: fan 2: loud", "admin"),
        ("corral: Health: x", metrics.OTHER),
        ("corral: jail", metrics.OTHER),
        ("see corral: jail: x", metrics.OTHER),
        ("Not responding", metrics.OTHER),
        ("", metrics.OTHER),
    ],
)
def test_unavailable_nodes_count_by_the_owner_of_the_reason(reason: str, owner: str) -> None:
    line = "NodeName=w-{0} CPUAlloc=0 CPUTot=4 RealMemory=10 AllocMem=0 State={1} Partitions=a Reason={2}"
    found = [nodes.parse(line.format(number, state, reason)) for number, state in enumerate(("IDLE+DRAIN", "DOWN", "IDLE"))]
    samples, *_rest = nodes.collect(found, 1)
    assert samples[metrics.BY_OWNER] == {(owner, "w"): 2}, "the idle node still shows the reason of a drain that is over"


@pytest.mark.parametrize(
    ("state", "word", "out", "busy"),
    [
        ("IDLE", "idle", False, False),
        ("MIXED", "mixed", False, True),
        ("IDLE+NOT_RESPONDING", "idle", True, False),
        ("IDLE+DRAIN", "drained", True, False),
        ("ALLOCATED+DRAIN", "draining", True, True),
        ("IDLE+COMPLETING+DRAIN", "draining", True, True),
        ("DOWN+DRAIN+NOT_RESPONDING", "down", True, False),
        ("DOWN+CLOUD+POWERED_DOWN", "powered_down", True, False),
        ("IDLE+CLOUD+POWERING_UP", "powering_up", True, False),
        ("IDLE+DRAIN+INVALID_REG", "drained", True, False),
        ("IDLE+MAINTENANCE+RESERVED", "maintenance", False, False),
        ("IDLE+PLANNED", "planned", False, False),
        ("MIXED+REBOOT_REQUESTED", "mixed", False, True),
        ("WHATEVER", "other", False, False),
    ],
)
def test_states_of_nodes(state: str, word: str, out: bool, busy: bool) -> None:
    line = f"NodeName=w-0 CPUAlloc=1 CPUTot=4 RealMemory=10 AllocMem=2 State={state} Partitions=a,b Reason=x [root@2026-11-26T02:08:40]"
    node = nodes.parse(line)
    assert node is not None
    assert (node.state, node.out, node.busy, node.partitions, node.reason) == (word, out, busy, ("a", "b"), "x")
    assert node.state in nodes.STATES


def test_a_reason_cannot_pose_as_a_field() -> None:
    line = "NodeName=w-0 CPUAlloc=0 CPUTot=4 RealMemory=10 AllocMem=0 State=IDLE+DRAIN Partitions=a Reason=x State=IDLE Partitions=b [r@t]"
    node = nodes.parse(line)
    assert node is not None and (node.state, node.partitions, node.reason) == ("drained", ("a",), "x State=IDLE Partitions=b")


def test_jobs_of_an_array_count_each_and_those_of_several_partitions_in_each() -> None:
    found = collected(Slurm("24.11"))
    assert found["slurm_jobs"][("running",)] == 7
    assert found["slurm_jobs"][("pending",)] == 12 + 8 + 196
    assert found["slurm_partition_jobs"][("all", "pending")] == 196
    assert found["slurm_jobs_pending"][("JobArrayTaskLimit",)] == 196
    assert found["slurm_jobs_pending"][("NodesUnavailable",)] == 1
    assert found["slurm_account_jobs"][('we"ird\n|x', "pending")] == 1, "a user's text is a label's value and no record of its own"


def test_queue_metrics_count_what_waits_for_nodes_alone() -> None:
    found = collected(Slurm("24.11"))
    # 8 tasks of 16 CPUs on nodes of 16.
    assert found["slurm_node_set_pending_jobs"][("cpu",)] == 8
    assert found["slurm_node_set_pending_nodes"][("cpu",)] == 8
    assert found["slurm_node_set_pending_cpus"][("cpu",)] == 8 * 16
    assert found["slurm_node_set_wanted_nodes"][("cpu",)] == 4 + 8
    # 8 jobs of 2 GPUs, 16 and 24 GPUs of whole nodes; neither the held job nor the one with a dependency.
    assert found["slurm_node_set_pending_gpus"][("gpu",)] == 8 * 2 + 16 + 24
    assert found["slurm_node_set_pending_nodes"][("gpu",)] == 7
    assert found["slurm_node_set_startable_jobs"][("gpu",)] == 9, "all but the one of three nodes: two are idle"
    assert found["slurm_partition_longest_wait_seconds"][("main",)] == NOW - 1795659499
    assert found["slurm_partition_longest_wait_seconds"][("all",)] == 0


def job(**changes: Any) -> jobs.Job:
    base = jobs.Job("pending", ("p",), "", "", "Resources", 1, 4, 1 << 30, 0, None, 1, 1, "")
    return replace(base, **changes)


def sets() -> dict[str, nodes.NodeSet]:
    return {"w": nodes.NodeSet(cpus=8, memory=1 << 34, gpus=2, idle=1, busy=0, features={"a", "b"}, partitions={"p"})}


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"cpus": 9}, False),
        ({"cpus": 16, "nodes": 2}, True),
        ({"memory": 1 << 35}, False),
        ({"gpus": 3}, False),
        ({"partitions": ("q", "p")}, True),
        ({"partitions": ("q",)}, False),
        ({"features": "a"}, True),
        ({"features": "a&c"}, False),
        ({"features": "a|c"}, True),
        ({"reason": "JobHeldUser"}, False),
        ({"reason": "Dependency"}, False),
        ({"reason": "AssocGrpCpuLimit"}, False),
        ({"reason": "QOSMaxJobsPerUserLimit"}, False),
    ],
)
def test_which_jobs_wait_for_a_node_set(changes: dict[str, Any], fits: bool) -> None:
    samples, _folded, _invalid = jobs.collect([job(**changes)], sets(), jobs.Limits(accounts=10), NOW)
    assert samples[metrics.QUEUE_JOBS]["w",] == fits


def test_jobs_of_one_node_are_packed_and_the_largest_has_all_of_its_nodes() -> None:
    samples, _folded, _invalid = jobs.collect([job(cpus=2, tasks=4, at_once=4)], sets(), jobs.Limits(accounts=10), NOW)
    assert samples[metrics.QUEUE_NODES]["w",] == 1
    samples, _folded, _invalid = jobs.collect([job(cpus=6, nodes=6)], sets(), jobs.Limits(accounts=10), NOW)
    assert samples[metrics.QUEUE_NODES]["w",] == 6
    samples, _folded, _invalid = jobs.collect([job(cpus=8, tasks=1000, at_once=3)], sets(), jobs.Limits(accounts=10), NOW)
    assert samples[metrics.QUEUE_NODES]["w",] == 3, "an array's own limit"


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("5-200%5", (196, 5)), ("1,3,5", (3, 3)), ("1-9:2", (5, 5)), ("N/A", (1, 1)), ("7", (1, 1)), ("9-1", (1, 1)), ("1-4%0", (4, 4))],
)
def test_lists_of_tasks(text: str, tasks: tuple[int, int]) -> None:
    assert jobs._array(text) == tasks


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gres/gpu:2", 2),
        ("gres/gpu:h100:2", 2),
        ("cpu=1,gres/gpu=4,gres/gpu:h100=4", 4),
        ("cpu=1,gres/gpu:a=1,gres/gpu:b=2", 3),
        ("gres/gpu", 1),
        ("gres/gpu:h100", 1),
        ("gres:gpu:3", 3),
        ("gres/gpu:4090:2", 2),
        ("gres/gpumem=100", 0),
        ("N/A", 0),
    ],
)
def test_gpus_of_a_request(text: str, gpus: int) -> None:
    assert jobs._gpus(text) == gpus


def test_memory_has_slurms_units() -> None:
    record = MARK.join(["PENDING", "p", "q", "None", "1-4", "1", "cpu=2,mem=1.50G,node=1", "N/A", "N/A", "N/A", "N/A", "(null)", "a"])
    found = jobs.parse(record, MARK)
    assert found is not None and (found.memory, found.nodes, found.eligible) == (3 << 29, 1, None)


def test_the_number_of_series_is_bounded_whatever_users_do() -> None:
    slurm = Slurm("24.11")
    record = MARK.join(
        ["PENDING", "main", "q{0}", "Weird{0}", "1", "1", "cpu=1,mem=1M,node=1", "N/A", "N/A", "1", "N/A", "f{0}", "acct{0}", "\n"]
    )
    slurm.outputs["squeue"] = "".join(record.format(number) for number in range(5000))
    line = "NodeName=w-{0} CPUAlloc=0 CPUTot=4 RealMemory=10 AllocMem=0 State=IDLE+DRAIN Partitions=main Reason=corral: health: r{0}: x\n"
    slurm.outputs["scontrol"] = "".join(line.format(number) for number in range(5000))
    statistics = json.loads(recorded("24.11", "sdiag.json"))
    statistics["statistics"]["rpcs_by_user"] = [{"user_id": 1000 + n, "user": f"u{n}", "count": n, "total_time": 1} for n in range(5000)]
    slurm.outputs["sdiag"] = json.dumps(statistics)
    found = collected(slurm, accounts=7, users=5, nodes=9)
    assert len(found["slurm_account_jobs"]) == 8
    assert found["slurm_account_jobs"][metrics.OTHER, "pending"] == 5000 - 7
    assert len(found["slurm_qos_jobs"]) == 51 and len(found["slurm_jobs_pending"]) == 41
    assert len(found["slurm_user_rpcs_total"]) == 6
    assert sum(found["slurm_user_rpcs_total"].values()) == sum(range(5000))
    assert len(found["slurm_node_unavailable"]) == 9 and found["slurm_node_unavailable_omitted"] == {(): 4991}
    assert found["slurm_exporter_folded"] == {("account",): 4993, ("qos",): 4950, ("reason",): 4960, ("user",): 4995, ("owner",): 4950}
    assert len(found["slurm_nodes_unavailable_by_owner"]) == 51 and sum(found["slurm_nodes_unavailable_by_owner"].values()) == 5000
    assert sum(len(series) for series in found.values()) < 400


def test_a_counter_never_changes_between_its_own_series_and_that_of_the_others() -> None:
    names = Names(2)
    assert names.fold({"a": 3, "b": 2, "c": 1}) == {"a": "a", "b": "b", "c": metrics.OTHER}
    assert names.fold({"a": 3, "b": 2, "c": 100, "d": 50}) == {"a": "a", "b": "b", "c": metrics.OTHER, "d": metrics.OTHER}
    assert names.fold({"c": 100, "a": 3}) == {"a": "a", "c": metrics.OTHER}, "b has its place when it comes again"


def test_a_failed_query_keeps_the_last_good_values_and_their_age(capsys: pytest.CaptureFixture[str]) -> None:
    slurm, clock = Slurm("24.11"), Clock()
    collector = Collector(settings(), slurm.records, clock=clock, now=lambda: NOW)
    before = scraped(collector.text())
    assert set(before["slurm_exporter_success"].values()) == {0}, "before the first query"
    assert "slurm_jobs" not in before
    collector.collect()
    good = scraped(collector.text())
    slurm.failing["squeue"] = "squeue ended with status 1: slurm_load_jobs error: Unable to contact slurm controller"
    clock.time += 60
    for _turn in range(3):
        collector.collect()
    now = scraped(collector.text())
    assert now["slurm_jobs"] == good["slurm_jobs"]
    assert now["slurm_exporter_success"] == {("nodes",): 1, ("jobs",): 0, ("scheduler",): 1}
    assert now["slurm_exporter_age_seconds"] == {("nodes",): 0, ("jobs",): 60, ("scheduler",): 0}
    assert now["slurm_exporter_failures_total"][("jobs",)] == 3
    assert capsys.readouterr().err.count("Unable to contact") == 1, "a failure that lasts is logged once"
    slurm.failing.clear()
    collector.collect()
    assert scraped(collector.text())["slurm_exporter_success"][("jobs",)] == 1
    assert "queried again with success" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"statistics": {}}', '{"statistics": null, "meta": {}}'])
def test_statistics_of_an_unknown_form_are_a_failure_and_no_zeros(text: str) -> None:
    slurm = Slurm("24.11")
    slurm.outputs["sdiag"] = text or " "
    found = collected(slurm)
    assert found["slurm_exporter_success"] == {("nodes",): 1, ("jobs",): 1, ("scheduler",): 0}
    assert "slurm_rpcs_total" not in found


def test_a_record_that_cannot_be_read_counts_and_hides_no_other() -> None:
    slurm = Slurm("24.11")
    slurm.outputs["squeue"] = recorded("24.11", "jobs.txt") + f"PENDING{MARK}\n"
    found = collected(slurm)
    assert found["slurm_exporter_invalid_records"][("jobs",)] == 1
    assert found["slurm_jobs"] == collected(Slurm("24.11"))["slurm_jobs"]


def test_a_clock_that_jumps_makes_no_negative_wait() -> None:
    collector = Collector(settings(), Slurm("24.11").records, now=lambda: 0.0)
    collector.collect()
    assert set(scraped(collector.text())["slurm_partition_longest_wait_seconds"].values()) == {0}


def test_a_scrape_runs_no_command() -> None:
    slurm = Slurm("24.11")
    collector = Collector(settings(), slurm.records)
    collector.collect()
    for _turn in range(100):
        collector.text()
    assert slurm.ran == ["scontrol", "squeue", "sdiag"]


def test_users_have_the_names_of_the_document(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("ada:x:1000:1000::/nonexistent:/x\nbroken\n", encoding="utf-8")
    accounts = read_accounts(tmp_path / "passwd")
    samples, _folded = Scheduler(5).collect(json.loads(recorded("24.11", "sdiag.json")), accounts)
    assert {"root", "ada"} <= {user for (user,) in samples[metrics.USER_RPCS]}
    assert read_accounts(tmp_path / "none")[0] == "root"


def test_what_commands_print_is_cut_at_the_mark() -> None:
    assert list(commands.records(["printf", r"a\nb;c;\n"], ";", 5)) == ["a\nb", "c"]
    assert list(commands.records(["true"], ";", 5)) == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["sh", "-c", "echo ok; echo first >&2; echo why >&2; exit 3"], "sh ended with status 3: why"),
        (["sh", "-c", "exit 1"], "it printed no message"),
        (["/nonexistent/squeue"], "cannot be run: No such file"),
        (["sleep", "60"], "sleep did not end within 0.3 s"),
        # A child that outlives the command holds its output open.
        (["sh", "-c", "sleep 60 & sleep 60"], "sh did not end within 0.3 s"),
        (["sh", "-c", "head -c 3000000 /dev/zero"], "a record of more than"),
    ],
)
def test_a_command_that_fails_hangs_or_prints_too_much_is_one_sentence(command: list[str], message: str) -> None:
    began = time.monotonic()
    with pytest.raises(SourceError, match=message):
        list(commands.records(command, "\n", 0.3 if "sleep" in " ".join(command) else 5))
    assert time.monotonic() - began < 5


@pytest.fixture(name="port")
def serve() -> Iterator[int]:
    server = Server(0, lambda: b"slurm_jobs 1\n")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def test_metrics_are_served_and_nothing_else(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
        assert response.read() == b"slurm_jobs 1\n"
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/../etc/passwd", timeout=5)
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", data=b"x", timeout=5)


def test_clients_that_hold_connections_open_take_a_bounded_number_of_threads(port: int) -> None:
    before = threading.active_count()
    held = [socket.create_connection(("127.0.0.1", port)) for _turn in range(50)]
    try:
        deadline = time.monotonic() + 5
        while threading.active_count() < before + 16 and time.monotonic() < deadline:
            time.sleep(0.02)
        # A thread and a timer each.
        assert threading.active_count() <= before + 2 * 16
    finally:
        for one in held:
            one.close()
