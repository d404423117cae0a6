# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""database.sh and slurmdbd.sh with programs of paper: which dumps stay on the volume, what is loaded, and what is stated of an end."""

from __future__ import annotations

import gzip
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Callable

import pytest

ENTRY = pathlib.Path(__file__).resolve().parents[3] / "images" / "mariadb" / "entry" / "database.sh"
LAST = "-- Dump completed on 2026-01-31  2:30:00\n"
TABLES = "CREATE TABLE `convert_version_table` (\nCREATE TABLE `demo_job_table` (\n"


class Pod:
    """A container with the script, a volume for dumps, and a server that responds with a file."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.volume = folder / "backups"
        for name in ("backups", "run", "tmp", "bin", "secret"):
            (folder / name).mkdir()
        (folder / "secret/password").write_text("secret")
        text = ENTRY.read_text()
        for path, other in {
            # First: the others are in such a folder themselves.
            "/tmp/": f"{folder}/tmp/",
            "/var/backups/slurm": self.volume,
            "/run/mysqld": folder / "run",
            "/etc/corral/database/password": folder / "secret/password",
        }.items():
            assert path in text
            text = text.replace(path, str(other))
        self.script = folder / "database.sh"
        self.script.write_text(text)
        self.dump = TABLES + LAST
        self.program("mariadb-dump", f"cat {folder}/dump; exit $(cat {folder}/code)")
        # Notes what it is sent; the version of the tables is the only question that is put before anything is replaced.
        self.program(
            "mariadb",
            f'case "$*" in *MAX*version*) cat {folder}/version ;; *auto_increment*) echo 7 ;; *-e*) ;; *) cat >>{folder}/sent ;; esac',
        )
        (folder / "code").write_text("0")
        (folder / "version").write_text("2147483647\n")

    def program(self, name: str, does: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/bash\n{does}\n")
        path.chmod(0o755)

    def __call__(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        (self.folder / "dump").write_text(self.dump)
        env = {
            "CORRAL_CLUSTER": "demo",
            "CORRAL_DATABASE_HOST": "db",
            "CORRAL_DATABASE_PORT": "3306",
            "CORRAL_DATABASE": "x",
            "CORRAL_USER": "y",
        }
        env["PATH"] = f"{self.folder}/bin:{os.environ['PATH']}"
        return subprocess.run(["bash", self.script, *arguments], env=env, input=stdin, capture_output=True, check=False)

    def dumps(self) -> list[str]:
        return sorted(path.name for path in self.volume.iterdir() if path.name != ".demo.lock")


@pytest.fixture
def pod(tmp_path: pathlib.Path) -> Pod:
    return Pod(tmp_path)


OLD = [f"demo-2026010{day}T023000Z.sql.gz" for day in (1, 2, 3)]
OTHERS = ["demo-b-20260101T023000Z.sql.gz", "notes"]


def test_old_dumps_go_after_one_that_succeeded_and_others_stay(pod: Pod) -> None:
    for name in (*OLD, *OTHERS):
        (pod.volume / name).touch()
    done = pod("backup", "2")
    assert done.returncode == 0, done.stderr
    digest, size, name = done.stdout.decode().split()
    assert pod.dumps() == sorted([OLD[-1], name, *OTHERS])
    assert gzip.decompress((pod.volume / name).read_bytes()).decode() == pod.dump
    assert int(size) == (pod.volume / name).stat().st_size and len(digest) == 64
    assert list((pod.folder / "run").iterdir()) == [], "no password is left"


@pytest.mark.parametrize(("dump", "code", "words"), [(TABLES, "0", "not whole"), (TABLES + LAST, "2", "could not be dumped")])
def test_a_dump_that_failed_removes_none(pod: Pod, dump: str, code: str, words: str) -> None:
    for name in OLD:
        (pod.volume / name).touch()
    pod.dump = dump
    (pod.folder / "code").write_text(code)
    done = pod("backup", "1")
    assert done.returncode == 1 and words in done.stderr.decode()
    assert pod.dumps() == OLD


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TABLES, "is not whole"),
        (LAST, "has no table convert_version_table"),
        (TABLES.replace("demo", "prod") + LAST, "has no jobs of the cluster demo"),
    ],
)
def test_only_a_dump_of_the_cluster_is_found(pod: Pod, text: str, words: str) -> None:
    assert "there is no dump of the cluster demo" in pod("find", "latest", "demo").stderr.decode()
    (pod.volume / OLD[0]).write_bytes(gzip.compress((TABLES + LAST).encode()))
    assert pod("find", "latest", "demo").stdout.decode() == f"{OLD[0]}\n"
    (pod.volume / OLD[1]).write_bytes(gzip.compress(text.encode()))
    done = pod("find", "latest", "demo")
    assert done.returncode == 1 and words in done.stderr.decode()
    for name in ("../secret/password", "other"):
        assert f"there is no dump {name}" in pod("find", name, "demo").stderr.decode()


def test_the_version_of_the_tables_comes_last(pod: Pod) -> None:
    rows = "INSERT INTO `convert_version_table` VALUES\n(0,16);\nINSERT INTO `x` VALUES ('`convert_version_table`');\n"
    text = f'CREATE DEFINER="slurm"@"%" PROCEDURE "p"()\n{rows}{LAST}'
    done = pod("restore", "demo", "318", stdin=gzip.compress(text.encode()))
    assert done.returncode == 0, done.stderr
    sent = (pod.folder / "sent").read_text()
    assert 'CREATE PROCEDURE "p"()\nINSERT INTO `corral_version_table` VALUES\n' in sent
    assert "('`convert_version_table`')" in sent, "what users wrote is left alone"
    loaded, _comma, after = sent.partition(LAST)
    assert "convert_version_table`" not in loaded.replace("('`convert_version_table`')", "")
    assert "ALTER TABLE `demo_job_table` AUTO_INCREMENT = 1000000007;" in after, "slurmctld knows rows that came after the dump"
    assert after.index("SET id = 318 WHERE name = 'demo'") < after.index("INSERT INTO convert_version_table SELECT") < after.index("COMMIT")


def test_nothing_is_replaced_in_a_database_that_is_open(pod: Pod) -> None:
    (pod.folder / "version").write_text("16\n")
    done = pod("restore", "demo", "0", stdin=gzip.compress((TABLES + LAST).encode()))
    assert done.returncode == 1 and "not closed" in done.stderr.decode()
    assert not (pod.folder / "sent").exists()


def test_a_dump_that_ends_early_leaves_the_database_closed(pod: Pod) -> None:
    done = pod("restore", "demo", "0", stdin=gzip.compress(TABLES.encode()))
    assert done.returncode == 1 and "closed until it is restored" in done.stderr.decode()
    assert "COMMIT" not in (pod.folder / "sent").read_text()


def slurmdbd(script: Callable[[str, dict[str, str]], str], folder: pathlib.Path, does: str, config: str = "") -> str:
    """Return slurmdbd.sh with a daemon that ``does`` this, and whatever it has in ``folder``."""
    for name, text in {"slurmdbd.conf": config, "password": "secret"}.items():
        (folder / name).write_text(text)
    daemon = folder / "slurmdbd"
    daemon.write_text(f'#!/bin/bash\n[ "$1" = -D ] || {{ echo slurm 24.11.5; exit; }}\n{does}\n')
    daemon.chmod(0o755)
    (folder / "run").mkdir()
    return script(
        "slurmdbd.sh",
        {
            ". /usr/local/lib/corral/common.sh": "die() { exit 9; }; install_token_key() { :; }; wait_for_auth() { :; }",
            "/etc/slurm/slurmdbd.conf": str(folder / "slurmdbd.conf"),
            "/etc/corral/database/password": str(folder / "password"),
            "/usr/sbin/slurmdbd": str(daemon),
            "/run/slurm": str(folder / "run"),
            "/dev/termination-log": str(folder / "said"),
            "sleep 5": "sleep 0.1",
        },
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "slurmdbd: fatal: Database schema is from a newer version of Slurm, downgrading is not possible.",
            "a restoration of it has not ended",
        ),
        ("slurmdbd: fatal: no memory", "no memory"),
    ],
)
def test_why_slurmdbd_ended_is_in_the_status_of_its_pod(
    script: Callable[[str, dict[str, str]], str], tmp_path: pathlib.Path, line: str, words: str
) -> None:
    text = slurmdbd(script, tmp_path, f'echo "{line}" >&2; exit 7')
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    assert line in done.stderr
    assert words in (tmp_path / "said").read_text()


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def backup(text: str, database: int, host: str = "demo-accounting-1") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOSTNAME": host, "CORRAL_DATABASE_ADDRESS": f"127.0.0.1:{database}", "CORRAL_PRIMARY_SECONDS": "2"}
    # bash sets HOSTNAME itself where the environment has none; here it is the caller's.
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False, env=environment, timeout=60)


def paired(primary: int) -> str:
    return f"DbdHost=demo-accounting-0\nDbdAddr=127.0.0.1\nDbdBackupHost=demo-accounting-1\nDbdPort={primary}\n"


def test_a_backup_waits_for_the_primary_but_not_for_ever(script: Callable[[str, dict[str, str]], str], tmp_path: pathlib.Path) -> None:
    waiting = tmp_path / "run" / "waiting"
    with socket.create_server(("127.0.0.1", 0)) as database:
        port = database.getsockname()[1]
        text = slurmdbd(script, tmp_path, f"[ ! -e {waiting} ] || exit 8; exit 7", paired(closed_port()))
        began = time.monotonic()
        assert backup(text, port).returncode == 7
        assert time.monotonic() - began >= 2
        # The primary itself, and a backup whose primary is there, start at once.
        for host, primary in (("demo-accounting-0", closed_port()), ("demo-accounting-1", port)):
            (tmp_path / "slurmdbd.conf").write_text(paired(primary))
            began = time.monotonic()
            assert backup(text, port, host).returncode == 7
            assert time.monotonic() - began < 2, host


def test_a_backup_that_is_told_to_end_while_it_waits_ends(script: Callable[[str, dict[str, str]], str], tmp_path: pathlib.Path) -> None:
    text = slurmdbd(script, tmp_path, "exit 7", paired(closed_port()))
    environment = {**os.environ, "HOSTNAME": "demo-accounting-1", "CORRAL_DATABASE_ADDRESS": f"127.0.0.1:{closed_port()}"}
    with subprocess.Popen(["bash", "-c", text], env=environment, stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + 20
        while not (tmp_path / "run" / "waiting").exists() and time.monotonic() < end:
            time.sleep(0.05)
        process.terminate()
        assert process.wait(20) == 0


def test_a_backup_is_tried_again_until_the_primary_has_changed_the_tables(
    script: Callable[[str, dict[str, str]], str], tmp_path: pathlib.Path
) -> None:
    """And Kubernetes replaces the primary only once the backup is ready, which the file standby means."""
    does = f"""
echo run >>{tmp_path}/runs
if [ "$(wc -l <{tmp_path}/runs)" -lt 3 ]; then
    echo 'slurmdbd: fatal: Backup DBD can not convert database, please start the primary DBD before starting the backup.' >&2
    exit 1
fi
echo 'slurmdbd: slurmdbd running in background mode' >&2
[ -e {tmp_path}/run/standby ] && [ ! -e {tmp_path}/run/waiting ] && exit 7
"""
    with socket.create_server(("127.0.0.1", 0)) as primary:
        port = primary.getsockname()[1]
        done = backup(slurmdbd(script, tmp_path, does, paired(port)), port)
    assert done.returncode == 7, done.stderr
    assert (tmp_path / "runs").read_text().split() == ["run"] * 3
    assert "which the primary changes first" in done.stderr
    assert not (tmp_path / "said").exists()
