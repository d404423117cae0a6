# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""What the first process of slurmctld's container makes of a configuration, of heartbeats and of a slurmctld that gives up."""

from __future__ import annotations

import os
import pathlib
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from controller import REGISTERED, Config, Watch, explain, first_database, fullness, heartbeat, missing_jobs, parse, register, wrong_domain

# Seconds for what takes none: a machine may be busy with other things.
_BUSY = 60

CONFIG = """\
# Written by corral.slurm
ClusterName=demo
SlurmctldHost=demo-controller-0(demo-controller.ns.svc.cluster.local)
SlurmctldHost=demo-controller-1(demo-controller-1.ns.svc.cluster.local)
SlurmctldPort=6817
AuthInfo=socket=/run/munge/munge.socket.2
SlurmctldTimeout=10
NodeName=cpu-[0-1] NodeAddr=x
"""
SAVE = "start with '-i' to ignore this. Warning: using -i will lose the data that can't be recovered."
# As slurmctld 24.11.5 says it, of files that were cut in half or overwritten.
FATAL = {
    f"slurmctld: fatal: Incomplete job state save file, {SAVE}": "job_state",
    f"slurmctld: fatal: Can not recover job state, incompatible version, got 1 need >= 9984 <= 10752, {SAVE}": "job_state",
    f"slurmctld: fatal: Incomplete node data checkpoint file, {SAVE}": "node_state",
    f"slurmctld: fatal: Incomplete reservation data checkpoint file, {SAVE}": "resv_state",
    f"slurmctld: fatal: Incomplete trigger data checkpoint file, {SAVE}": "trigger_state",
    f"slurmctld: fatal: Can not recover last_conf_lite, incompatible version, (20718 not between 9984 and 10752), {SAVE}": "last_config_lite",
    f"slurmctld: fatal: Incomplete last_config_lite checkpoint file, {SAVE}": "last_config_lite",
}


def test_what_of_a_configuration_counts() -> None:
    config = parse(CONFIG)
    assert not config.accounting
    assert parse(f"{CONFIG}AccountingStorageType=accounting_storage/slurmdbd\n").accounting
    assert config == Config(
        hosts=(
            ("demo-controller-0", "demo-controller.ns.svc.cluster.local"),
            ("demo-controller-1", "demo-controller-1.ns.svc.cluster.local"),
        ),
        port=6817,
        timeout=10,
        client_lines=("ClusterName=demo", "SlurmctldPort=6817", "AuthInfo=socket=/run/munge/munge.socket.2"),
        accounting=False,
    )
    assert (config.index("demo-controller-1"), config.index("elsewhere")) == (1, None)


@pytest.mark.parametrize(
    ("address", "search", "wrong"),
    [
        ("demo-controller.ns.svc.cluster.invalid", "ns.svc.cluster.local svc.cluster.local cluster.local", True),
        ("demo-controller.ns.svc.cluster.local", "ns.svc.cluster.local svc.cluster.local cluster.local", False),
        ("demo-controller.ns.svc.cluster.local.", "ns.svc.cluster.local. svc.cluster.local.", False),
        ("demo-controller.ns.svc.cluster.invalid", "example.com", False),
        ("head", "ns.svc.cluster.local svc.cluster.local", False),
        ("", "svc.cluster.local", False),
    ],
)
def test_a_domain_that_is_another_clusters_is_told(address: str, search: str, wrong: bool) -> None:
    said = wrong_domain(address, f"nameserver 127.0.0.1\nsearch {search}\noptions ndots:5\n")
    assert bool(said) == wrong
    assert not wrong or said.startswith(
        "spec.clusterDomain is cluster.invalid, but the names of this Kubernetes cluster end with cluster.local "
    )


def test_a_domain_that_is_served_beside_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getaddrinfo", lambda *_words: [])
    assert wrong_domain("demo-controller.ns.svc.other", "search svc.cluster.local") == ""


def test_a_heartbeat(tmp_path: pathlib.Path) -> None:
    assert heartbeat(tmp_path) is None
    (tmp_path / "heartbeat").write_bytes(struct.pack(">QQ", 1795000000, 1))
    assert heartbeat(tmp_path) == (1795000000, 1)
    (tmp_path / "heartbeat").write_bytes(b"cut")
    assert heartbeat(tmp_path) is None


def told(index: int, beats: list[tuple[tuple[int, int] | None, float]]) -> list[str]:
    """What a watch says of heartbeats and the times at which they are seen."""
    watch = Watch(index, 10, (90, index), 100.0)
    return [watch.observe(beat, now) for beat, now in beats]


@pytest.mark.parametrize("index", [0, 1])
def test_the_active_one_gives_way_to_the_others_mark(index: int) -> None:
    said = told(index, [((101, index), 101.0), ((103, index), 103.0), ((104, 1 - index), 104.0)])
    assert said[:2] == ["", ""] and "has taken over" in said[2]


@pytest.mark.parametrize("index", [0, 1])
def test_a_standby_may_see_what_it_likes_and_stand_still(index: int) -> None:
    assert told(index, [((101, 1 - index), 101.0), (None, 102.0), ((140, 1 - index), 150.0)]) == ["", "", ""]


def test_a_mark_of_an_earlier_life_does_not_make_it_active() -> None:
    assert told(1, [((90, 1), 101.0), ((102, 0), 102.0)]) == ["", ""]


def test_the_active_one_that_stood_still_does_not_trust_itself() -> None:
    said = told(0, [((101, 0), 101.0), ((101, 0), 110.0), ((101, 0), 121.0)])
    assert said[:2] == ["", ""] and "stood still for 11 s" in said[2]


def test_an_unreadable_heartbeat_ends_nobody() -> None:
    assert told(0, [((101, 0), 101.0), (None, 102.0)]) == ["", ""]


@pytest.mark.parametrize(("line", "file"), FATAL.items())
def test_a_damaged_file_is_named_and_no_one_is_told_to_throw_it_away(line: str, file: str, tmp_path: pathlib.Path) -> None:
    said = explain(["slurmctld: Recovered state of 2 nodes", line, "slurmctld: x"], tmp_path)
    assert said.startswith(f"the state file {tmp_path}/{file} cannot be read (")
    assert "nothing was thrown away" in said and "from a backup" in said and "-i" not in said.split()
    # Runs quote as much of a termination message.
    assert len(said) - len(str(tmp_path)) * 2 + len("/var/spool/slurmctld") * 2 <= 400
    (tmp_path / f"{file}.old").touch()
    assert f"{file}.old beside it" in explain([line], tmp_path)


def test_another_clusters_state_is_told(tmp_path: pathlib.Path) -> None:
    assert "is another cluster's" in explain(["slurmctld: fatal: CLUSTER NAME MISMATCH."], tmp_path)


# As slurmctld 24.11.5 says it.
MISMATCH = [
    "slurmctld: fatal: CLUSTER ID MISMATCH.",
    'slurmctld has been started with "ClusterID=318"  from the state files in StateSaveLocation, but the DBD thinks it should be "423".',
    "Running multiple clusters from a shared StateSaveLocation WILL CAUSE CORRUPTION.",
    "Remove /var/spool/slurmctld/clustername to override this safety check if this is intentional.",
]


def test_the_first_database_gives_the_cluster_its_number_and_no_other_does(tmp_path: pathlib.Path) -> None:
    name = tmp_path / "clustername"
    name.write_text("demo|318")
    register(tmp_path, accounting=False)
    assert name.exists() and not (tmp_path / REGISTERED).exists()
    assert first_database(tmp_path)
    assert not name.exists(), "slurmctld writes it anew, with the database's number"
    name.write_text("demo|423")
    assert not first_database(tmp_path)
    assert name.read_text() == "demo|423", "of another database nothing is taken"


def test_a_cluster_that_begins_with_a_database_has_its_number(tmp_path: pathlib.Path) -> None:
    register(tmp_path, accounting=True)
    assert (tmp_path / REGISTERED).exists()
    (tmp_path / REGISTERED).unlink()
    (tmp_path / "clustername").write_text("demo|318")
    register(tmp_path, accounting=True)
    assert not (tmp_path / REGISTERED).exists(), "whose number that is is not known"


def test_another_database_is_named_with_what_to_do(tmp_path: pathlib.Path) -> None:
    said = explain(MISMATCH, tmp_path)
    assert "(it knows the cluster as 423, the state has 318)" in said
    assert f"remove {tmp_path}/{REGISTERED}" in said
    assert len(said) - len(str(tmp_path)) + len("/var/spool/slurmctld") <= 400


def test_other_ends_are_quoted_or_left_to_the_log(tmp_path: pathlib.Path) -> None:
    assert explain(["slurmctld: fatal: Unable to process configuration file"], tmp_path) == (
        "slurmctld gave up: Unable to process configuration file"
    )
    assert explain(["slurmctld: Terminate signal"], tmp_path) == ""


def test_a_full_volume(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fullness(tmp_path) == ""
    gib = 1 << 30
    for free, full in ((0, True), (7 << 20, True), (9 << 20, False)):
        monkeypatch.setattr("controller.shutil.disk_usage", lambda _path, free=free: type("Usage", (), {"total": gib, "free": free})())
        said = fullness(tmp_path)
        assert bool(said) is full
        assert not full or f"({free >> 10} KiB of 1024 MiB are left)" in said
    assert "cannot be read" in fullness(tmp_path / "none") or not (tmp_path / "none").exists()


def test_lost_jobs_are_not_taken_for_a_new_cluster(tmp_path: pathlib.Path) -> None:
    assert missing_jobs(tmp_path) == "", "a new one"
    (tmp_path / "node_state").touch()
    assert missing_jobs(tmp_path) == "", "one that was cut off in its first second"
    (tmp_path / "node_state.old").touch()
    assert "job_state is gone" in missing_jobs(tmp_path)
    (tmp_path / "job_state.old").touch()
    assert missing_jobs(tmp_path) == ""


FAKE = """\
#!/usr/bin/python3
import os, pathlib, signal, sys, time
here = pathlib.Path(os.environ["HERE"])
with (here / "lives").open("a") as file:
    file.write("x")
def end(*_dummy):
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("slurmctld: begins", file=sys.stderr, flush=True)
if (here / "fatal").exists():
    print((here / "fatal").read_text(), file=sys.stderr, flush=True)
    sys.exit(1)
while True:
    time.sleep(0.1)
"""
RUNNER = """\
import pathlib, socket, sys
sys.path.insert(0, sys.argv[1])
import controller
here = pathlib.Path(sys.argv[2])
controller.STATE = controller.SCRATCH = here
controller.TERMINATION_LOG = here / "message"
controller.PRELOAD = ""
controller.SLURMCTLD = str(here / "slurmctld")
controller.TICK = 0.1
controller.LAST_BEAT = controller.TRY_DATABASE = int(sys.argv[5])
hosts = [(name, "127.0.0.1") for name in sys.argv[4].split()]
config = controller.Config(tuple(hosts), 1, int(sys.argv[5]), (), False)
sys.exit(controller.Controller(config, sys.argv[3], []).run())
"""


def beat(folder: pathlib.Path, index: int, ahead: int = 0) -> None:
    """``ahead``: seconds from now, less than none for an old one."""
    (folder / "heartbeat").write_bytes(struct.pack(">QQ", int(time.time()) + ahead, index))


class Life:
    """A controller.py in a process of its own, with a slurmctld of paper."""

    def __init__(self, folder: pathlib.Path, host: str, hosts: str, patience: int) -> None:
        self.folder = folder
        program = folder / "slurmctld"
        program.write_text(FAKE)
        program.chmod(0o755)
        source = pathlib.Path(__file__).resolve().parents[3] / "images" / "slurm"
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUNNER, str(source), str(folder), host, hosts, str(patience)],
            env={**os.environ, "HERE": str(folder)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def lives(self, count: int) -> None:
        """Wait until slurmctld has begun so often."""
        deadline = time.monotonic() + _BUSY
        file = self.folder / "lives"
        while not file.exists() or len(file.read_text()) < count:
            assert time.monotonic() < deadline, f"slurmctld did not begin {count} times"
            time.sleep(0.02)

    def end(self) -> tuple[int, str]:
        _out, said = self.process.communicate(timeout=_BUSY)
        return self.process.returncode, said

    def take_away(self) -> None:
        """Leave nothing behind, however the test ended."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.communicate()


Begin = Callable[..., Life]


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _BUSY
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def begin(tmp_path: pathlib.Path) -> Iterator[Begin]:
    lives: list[Life] = []

    def start(host: str, hosts: str = "one two", patience: int = 2) -> Life:
        """``patience``: seconds after which a heartbeat is old."""
        lives.append(Life(tmp_path, host, hosts, patience))
        return lives[-1]

    yield start
    for life in lives:
        life.take_away()


def test_it_ends_with_the_pod_and_hands_the_log_on(begin: Begin) -> None:
    life = begin("one")
    life.lives(1)
    time.sleep(0.2)
    life.process.send_signal(signal.SIGTERM)
    assert life.end() == (0, "slurmctld: begins\n")


def test_a_standby_begins_anew_when_it_is_told(begin: Begin, tmp_path: pathlib.Path) -> None:
    beat(tmp_path, 0)
    life = begin("two")
    life.lives(1)
    time.sleep(0.2)
    life.process.send_signal(signal.SIGHUP)
    life.lives(2)
    time.sleep(0.2)
    life.process.send_signal(signal.SIGTERM)
    assert life.end()[0] == 0


def test_the_active_one_is_killed_by_the_others_mark_and_begins_anew(begin: Begin, tmp_path: pathlib.Path) -> None:
    beat(tmp_path, 0)
    life = begin("two")
    life.lives(1)
    for when, index in ((1, 1), (2, 0)):
        (tmp_path / "heartbeat").write_bytes(struct.pack(">QQ", when, index))
        time.sleep(0.5)
    life.lives(2)
    life.process.send_signal(signal.SIGTERM)
    code, said = life.end()
    assert code == 0
    assert said.count("the other slurmctld has taken over") == 1


def test_a_backup_without_a_heartbeat_waits_for_one_and_counts_as_well(begin: Begin, tmp_path: pathlib.Path) -> None:
    life = begin("two")
    eventually((tmp_path / "corral-waiting").exists)
    time.sleep(0.3)
    assert not (tmp_path / "lives").exists()
    beat(tmp_path, 0)
    life.lives(1)
    assert not (tmp_path / "corral-waiting").exists()
    life.process.send_signal(signal.SIGTERM)
    assert life.end()[0] == 0


@pytest.fixture
def without_database(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of a cluster that another database knows by another number. Returns the file that the probe reads."""
    (tmp_path / "corral-refused").write_text("of a container before this one, which was killed")
    (tmp_path / REGISTERED).touch()
    (tmp_path / "clustername").write_text("demo|318")
    (tmp_path / "fatal").write_text("\n".join(MISMATCH))
    return tmp_path / "corral-refused"


def test_without_its_database_it_waits_and_tries_again(begin: Begin, without_database: pathlib.Path) -> None:
    life = begin("one", "one", 1)
    life.lives(2)
    eventually(lambda: "the state has 318" in without_database.read_text() if without_database.exists() else False)
    (without_database.parent / "fatal").unlink()
    eventually(lambda: not without_database.exists())
    life.lives(3)
    time.sleep(0.2)
    life.process.send_signal(signal.SIGTERM)
    assert life.end()[0] == 0
    assert (without_database.parent / "clustername").read_text() == "demo|318"


def test_it_goes_on_with_another_database_once_it_is_told_to(begin: Begin, without_database: pathlib.Path, tmp_path: pathlib.Path) -> None:
    life = begin("one", "one", _BUSY)
    life.lives(1)
    eventually(lambda: without_database.exists() and "the state has 318" in without_database.read_text())
    (tmp_path / "fatal").unlink()
    (tmp_path / REGISTERED).unlink()
    life.lives(2)
    time.sleep(0.2)
    assert (tmp_path / REGISTERED).exists()
    assert not (tmp_path / "clustername").exists() and not without_database.exists()
    life.process.send_signal(signal.SIGTERM)
    assert life.end()[0] == 0


def test_it_ends_with_the_pod_while_it_waits_for_its_database(begin: Begin, without_database: pathlib.Path) -> None:
    life = begin("one", "one", _BUSY)
    life.lives(1)
    eventually(lambda: without_database.exists() and "the state has 318" in without_database.read_text())
    life.process.send_signal(signal.SIGTERM)
    assert life.end()[0] == 0


@pytest.mark.parametrize("hosts", ["one", "one two"])
def test_nobody_starts_beside_an_active_backup(begin: Begin, tmp_path: pathlib.Path, hosts: str) -> None:
    """It cannot be asked here (nobody listens), or is not known: its heartbeat is enough."""
    beat(tmp_path, 1)
    life = begin("one", hosts, patience=60)
    time.sleep(1.5)
    assert not (tmp_path / "lives").exists()
    beat(tmp_path, 1, ahead=-120)
    life.lives(1)
    life.process.send_signal(signal.SIGTERM)
    code, said = life.end()
    assert code == 0
    assert "waiting" in said


def test_a_damaged_state_is_left_where_kubernetes_reads_it(begin: Begin, tmp_path: pathlib.Path) -> None:
    (tmp_path / "fatal").write_text("slurmctld: fatal: Incomplete job state save file, start with '-i' to ignore this.")
    life = begin("one")
    code, said = life.end()
    assert code == 1
    message = (tmp_path / "message").read_text()
    assert f"{tmp_path}/job_state cannot be read (Incomplete job state save file)" in message
    assert message.strip() in said
