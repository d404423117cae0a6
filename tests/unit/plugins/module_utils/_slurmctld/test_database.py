# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_database: which dumps are kept and believed, what is done in which order, and where an interrupted restoration goes on."""

from __future__ import annotations

import gzip
import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ExecError
from ansible_collections.corral.slurm.plugins.module_utils._kube.exec import Output
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import database, slurmctld

from .conftest import CONNECTION, pod

TABLES = "".join(f"CREATE TABLE `{name}` (\n);\n" for name in ("convert_version_table", "demo_job_table"))
DUMP = f"/*M!999999\\- enable the sandbox mode */ \n{TABLES}-- Dump completed on 2026-01-31  2:30:00\n".encode()
HOLDS = "closed 0\ncluster demo 3517\nusers 2\njobs 40 1769826600\n"
EMPTY = "closed 0\nusers 0\n"


class Paper:
    """A client of a database, slurmctld's pod and slurmdbd's: what is told to them, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.inspection = EMPTY
        self.dump = gzip.compress(DUMP)
        self.loaded = b""
        self.broken: dict[str, Output | Exception] = {}
        self.requests = 0
        self.access = type("Access", (), {"namespace": "demo"})()
        self.clients = [pod("client-x", "backup")]
        self.pods = [pod("demo-controller-0", "controller"), pod("demo-accounting-0", "accounting")]

    @contextmanager
    def connected(self, _params: dict[str, Any]) -> Iterator[Paper]:
        yield self

    def run_in_pod(
        self, _client: Any, *, command: list[str], stdin: Any = None, sink: Callable[[bytes], Any] | None = None, **more: Any
    ) -> Output:
        word = command[1] if command[0].endswith("database.sh") else command[0].rpartition("/")[2]
        self.told.append(" ".join([word, *command[2:]]) if word != "cat" else word)
        assert more["pod"] == ("client-x" if command[0].endswith("database.sh") else "demo-controller-0")
        if word in self.broken:
            broken = self.broken[word]
            if isinstance(broken, Exception):
                raise broken
            return broken
        if stdin is not None:
            self.loaded = stdin.read()
        if sink is not None:
            for start in range(0, len(self.dump), 7):
                sink(self.dump[start : start + 7])
        printed = {
            "inspect": self.inspection,
            "backup": "f00 12 demo-1.sql.gz\n",
            "find": "demo-1.sql.gz\n",
            "cat": "demo|318",
        }
        return Output(0, printed.get(word, ""), "")

    def items(self, _path: str, *, query: dict[str, str], **_more: Any) -> list[dict[str, Any]]:
        if query["labelSelector"] == "batch.kubernetes.io/job-name=demo-backup-client":
            return self.clients
        wanted = query["labelSelector"].rpartition("component=")[2]
        return [one for one in self.pods if one["metadata"]["labels"]["app.kubernetes.io/component"] == wanted]

    def get(self, path: str, **_more: Any) -> Any:
        name = path.rpartition("/")[2]
        found = next(one for one in self.pods if one["metadata"]["name"] == name)
        # The StatefulSet makes another at once.
        return type(
            "Response", (), {"data": {"metadata": {**found["metadata"], "uid": "new"} if "accounting" in name else found["metadata"]}}
        )()

    def request(self, method: str, path: str, **_more: Any) -> Any:
        self.told.append(f"{method} {path.rpartition('/')[2]}")
        return type("Response", (), {"code": 200})()


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    world = Paper()
    monkeypatch.setattr(database, "connected", world.connected)
    for module in (database, slurmctld):
        monkeypatch.setattr(module, "run_in_pod", world.run_in_pod)
    return world


def run(state: str, *, check: bool = False, **more: Any) -> dict[str, Any]:
    given = {"client": None, "path": None, "dump": "latest", "keep": 3, "force": False, "timeout": 60, **more}
    return database.run({**CONNECTION, "state": state, **given}, check=check, diff=False)


def test_a_dump_gets_its_name_when_it_is_whole(paper: Paper, tmp_path: Path) -> None:
    path = tmp_path / "demo.sql.gz"
    found = run("dumped", path=str(path))
    assert path.read_bytes() == paper.dump
    assert (found["sha256"], found["size"]) == (hashlib.sha256(paper.dump).hexdigest(), len(paper.dump))
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"the former")
    for paper.dump in (gzip.compress(DUMP)[:-9], gzip.compress(b"-- no end\n"), b"no gzip at all"):
        with pytest.raises(CorralError, match=r"not whole|damaged"):
            run("dumped", path=str(path))
    paper.broken["dump"] = Output(1, "", "mariadb-dump: Got error: 1045")
    with pytest.raises(CorralError, match="Could not dump the database: mariadb-dump: Got error: 1045"):
        run("dumped", path=str(path))
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"the former"
    with pytest.raises(CorralError, match=r"cannot be written to .*; give another path"):
        run("dumped", path="/nowhere/demo.sql.gz")


def test_a_dump_to_the_volume(paper: Paper) -> None:
    assert run("dumped")["dump"] == "demo-1.sql.gz"
    assert paper.told == ["backup 3"]


def test_the_database_is_closed_before_slurmdbd_ends_and_slurmdbd_ends_before_anything_is_dropped(paper: Paper) -> None:
    assert run("restored")["msg"] == "The accounting database is restored from demo-1.sql.gz."
    assert paper.told == [
        "find latest demo",
        "inspect",
        "cat",
        "close",
        "DELETE demo-accounting-0",
        "restore demo 318 demo-1.sql.gz",
        "DELETE demo-accounting-0",
        "controller.py",
    ]


def test_a_backup_ends_with_its_primary(paper: Paper, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lives on takes over, and writes."""
    paper.pods.append(pod("demo-accounting-1", "accounting"))

    def gone(_client: Any, ref: Any, _uid: str, **_more: Any) -> None:
        paper.told.append(f"gone {ref.name}")

    monkeypatch.setattr(database, "wait_gone", gone)
    run("restored")
    after = paper.told[paper.told.index("close") + 1 :]
    assert after[:5] == [
        "DELETE demo-accounting-0",
        "DELETE demo-accounting-1",
        "gone demo-accounting-0",
        "gone demo-accounting-1",
        "restore demo 318 demo-1.sql.gz",
    ]


def test_a_file_is_sent(paper: Paper, tmp_path: Path) -> None:
    path = tmp_path / "demo.sql.gz"
    path.write_bytes(paper.dump)
    assert run("restored", path=str(path))["dump"] == str(path)
    assert paper.loaded == paper.dump
    assert "restore demo 318" in paper.told


def test_records_are_given_up_by_force_alone(paper: Paper) -> None:
    paper.inspection = HOLDS
    with pytest.raises(
        CorralError, match="holds 40 jobs, the latest of 2026-01-31 02:30 UTC, and 2 users of demo, all of which would be lost"
    ):
        run("restored")
    assert paper.told == ["find latest demo", "inspect"]
    assert run("restored", check=True, force=True)["msg"] == "The accounting database would be restored from demo-1.sql.gz."
    assert "close" not in paper.told
    run("restored", force=True)
    assert "restore demo 318 demo-1.sql.gz" in paper.told


def test_an_interrupted_restoration_is_begun_again_without_force(paper: Paper) -> None:
    paper.broken["restore"] = ExecError("Could not run it: the connection broke; try again.")
    with pytest.raises(CorralError, match="the connection broke"):
        run("restored")
    paper.broken.clear()
    paper.inspection = HOLDS.replace("closed 0", "closed 1")
    assert "restored from" in run("restored")["msg"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DUMP[:-40], "its last line is not 'Dump completed'"),
        (DUMP.replace(b"convert_version_table", b"x"), "is no dump of an accounting database"),
        (DUMP.replace(b"demo_job_table", b"prod_job_table"), "has records of prod and none of demo"),
    ],
)
def test_a_dump_that_is_not_believed_changes_nothing(paper: Paper, tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "demo.sql.gz"
    path.write_bytes(gzip.compress(text))
    with pytest.raises(CorralError, match=f"{words}.*nothing was changed"):
        run("restored", path=str(path))
    assert paper.told == []


def test_a_file_that_is_no_dump(paper: Paper, tmp_path: Path) -> None:
    path = tmp_path / "demo.sql.gz"
    for content in (b"text", gzip.compress(DUMP)[:-9]):
        path.write_bytes(content)
        with pytest.raises(CorralError, match="cannot be read"):
            run("restored", path=str(path))
    assert paper.told == []


def test_without_slurmctld_the_clusters_number_is_the_dumps(paper: Paper) -> None:
    for word in ("cat", "controller.py"):
        paper.broken[word] = ExecError("Could not run it: no such container.")
    assert "slurmctld reads it when it starts again" in run("restored")["msg"]
    assert "restore demo 0 demo-1.sql.gz" in paper.told


def test_a_client_that_does_not_run(paper: Paper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paper.clients = []
    assert "would be restored from latest, unless it holds records" in run("restored", check=True)["msg"]
    monkeypatch.setattr(database, "_STARTING", 0.0)
    with pytest.raises(CorralError, match="its client does not start: Job demo-backup-client has no pod"):
        run("restored")
    paper.clients = [pod("client-x", "backup", {"phase": "Pending"})]
    with pytest.raises(CorralError, match="its client does not start: pod client-x is Pending"):
        run("restored")
    assert "would be dumped to the backup volume of demo" in run("dumped", check=True)["msg"]
    assert f"would be dumped to {tmp_path}" in run("dumped", check=True, path=str(tmp_path / "x"))["msg"]


def test_an_inspection_that_is_none() -> None:
    with pytest.raises(CorralError, match="which is no inspection"):
        database.held("bash: no such file")
    assert database.held(HOLDS).clusters == {"demo": 3517}


def test_lines_are_read_one_by_one() -> None:
    database.check_dump(io.BytesIO(DUMP), "x", "demo")
