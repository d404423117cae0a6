# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""populate.sh with a small tree in the place of the image's root."""

from __future__ import annotations

import json
import os
import pathlib
import stat
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "roles/jail_populate/files/populate.sh"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="copying a root needs root")


class Case:
    """An image's root, a volume, and how to run the script over them."""

    def __init__(self, path: pathlib.Path) -> None:
        self.image, self.volume, self.log, self.bin = path / "image", path / "volume", path / "log", path / "bin"
        for name in ("etc/ssh", "usr/bin", "usr/local/bin", "proc", "tmp", "run", "dev", "home", "opt", "var"):
            (self.image / name).mkdir(parents=True)
        self.volume.mkdir()
        self.bin.mkdir()
        self.log.touch()
        (self.image / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (self.image / "etc/group").write_text("root:x:0:\n")
        (self.image / "etc/hosts").write_text("the container's\n")
        (self.image / "etc/ssh/ssh_host_rsa_key").write_text("everybody's")
        (self.image / "tmp/left").write_text("")
        (self.image / "run/left").write_text("")
        (self.image / "usr/bin/sudo").write_text("#!/bin/sh\n")
        (self.image / "usr/bin/sudo").chmod(0o4755)
        os.chown(self.image / "home", 0, 50)
        os.symlink("usr/bin", self.image / "bin")
        os.link(self.image / "usr/bin/sudo", self.image / "usr/bin/again")

    @property
    def root(self) -> pathlib.Path:
        return self.volume / "root"

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "PATH": f"{self.bin}:/usr/sbin:/usr/bin:/sbin:/bin",
            "CORRAL_VOLUME": str(self.volume),
            "CORRAL_SOURCE": str(self.image),
            "CORRAL_TERMINATION_LOG": str(self.log),
            "CORRAL_JAIL_IMAGE": "example.org/jail:1",
            "CORRAL_LOCK_STALE": "1",
            **more,
        }

    def run(self, **more: str) -> subprocess.CompletedProcess[str]:
        command = ["/bin/sh", str(SCRIPT)]
        return subprocess.run(command, env=self.environment(**more), capture_output=True, text=True, check=False, timeout=60)

    def start(self, **more: str) -> subprocess.Popen[str]:
        command = ["/bin/sh", str(SCRIPT)]
        return subprocess.Popen(command, env=self.environment(**more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def replace_tool(self, name: str, script: str) -> None:
        tool = self.bin / name
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)


@pytest.fixture
def case(tmp_path: pathlib.Path) -> Case:
    return Case(tmp_path)


def test_makes_a_jail(case: Case) -> None:
    done = case.run()
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(case.volume)) == ["root"]
    root = case.root
    assert json.loads((root / "etc/corral-jail").read_text()) == {"version": 1, "image": "example.org/jail:1"}
    assert (root.stat().st_uid, stat.S_IMODE(root.stat().st_mode)) == (0, 0o755)
    assert stat.S_IMODE((root / "usr/bin/sudo").stat().st_mode) == 0o4755
    assert (root / "usr/bin/sudo").stat().st_ino == (root / "usr/bin/again").stat().st_ino
    assert (root / "home").stat().st_gid == 50
    assert os.readlink(root / "bin") == "usr/bin"
    for name in ("proc", "sys", "dev", "run", "var/spool/slurmd", "opt/corral"):
        assert (root / name).is_dir() and not os.listdir(root / name)
    assert stat.S_IMODE((root / "tmp").stat().st_mode) == 0o1777 and not os.listdir(root / "tmp")
    assert (root / "etc/hosts").read_text() == ""
    assert os.readlink(root / "etc/slurm") == "/run/slurm/conf"
    assert os.readlink(root / "usr/local/bin/srun") == "/opt/corral/bin/srun"
    assert not (root / "etc/ssh/ssh_host_rsa_key").exists()
    assert "slurm:x:64030:64030:" in (root / "etc/passwd").read_text()


def test_second_run_touches_nothing(case: Case) -> None:
    case.run()
    before = {p: (p.lstat().st_ino, p.lstat().st_mtime_ns) for p in case.volume.rglob("*")}
    done = case.run()
    assert done.returncode == 0 and "already" in done.stdout
    assert {p: (p.lstat().st_ino, p.lstat().st_mtime_ns) for p in case.volume.rglob("*")} == before


@pytest.mark.parametrize("name", ["data", ".hidden", "root"])
def test_somebody_elses_data_is_refused(case: Case, name: str) -> None:
    (case.volume / name).mkdir()
    (case.volume / name / "thesis").write_text("precious")
    done = case.run()
    assert done.returncode == 3
    assert f"'{name}'" in done.stderr and f"'{name}'" in case.log.read_text()
    assert (case.volume / name / "thesis").read_text() == "precious"
    assert os.listdir(case.volume) == [name]


def test_a_link_is_not_taken_for_a_marker(case: Case) -> None:
    (case.root / "etc").mkdir(parents=True)
    os.symlink("/etc/passwd", case.root / "etc/corral-jail")
    assert case.run().returncode == 3


def test_fresh_file_system_and_leftovers_are_empty_enough(case: Case) -> None:
    (case.volume / "lost+found").mkdir()
    (case.volume / ".corral-populate-dead-1/etc").mkdir(parents=True)
    assert case.run().returncode == 0
    assert sorted(os.listdir(case.volume)) == ["lost+found", "root"]


def test_policy_never(case: Case) -> None:
    done = case.run(CORRAL_POPULATE_POLICY="Never")
    assert done.returncode == 3 and "policy is Never" in case.log.read_text()
    assert os.listdir(case.volume) == []
    case.run()
    assert case.run(CORRAL_POPULATE_POLICY="Never").returncode == 0


# One tool a step of the script: killed there, whatever it was doing is half done.
@pytest.mark.parametrize("tool", ["du", "mkdir", "tar", "ln", "chown", "sync", "mv"])
def test_killed_anywhere_and_run_again(case: Case, tool: str) -> None:
    case.replace_tool(tool, 'kill -9 "$PPID"')
    assert case.run().returncode != 0
    assert not case.root.exists()
    (case.bin / tool).unlink()
    done = case.run()
    assert done.returncode == 0, done.stderr
    assert os.listdir(case.volume) == ["root"]
    assert (case.root / "etc/corral-jail").exists()


def test_failing_copy_leaves_no_jail(case: Case) -> None:
    case.replace_tool("tar", 'case "$*" in *-xpf*) cat >/dev/null; exit 2;; esac; exec /bin/tar "$@"')
    done = case.run()
    assert done.returncode == 1 and "tar could not write" in case.log.read_text()
    assert os.listdir(case.volume) == []


def test_two_runs_make_one_jail(case: Case) -> None:
    gate = case.bin.parent / "gate"
    os.mkfifo(gate)
    case.replace_tool("sync", f'read -r line <{gate}; exec /bin/sync "$@"')
    first = case.start(CORRAL_LOCK_STALE="30")
    # Opens when the first run is at its end, just before it says that the jail is there.
    with gate.open("w") as open_gate:
        second = case.start(CORRAL_LOCK_STALE="30", PATH="/usr/sbin:/usr/bin:/sbin:/bin")
        open_gate.write("go\ngo\ngo\n")
        open_gate.flush()
        outputs = [p.communicate(timeout=60)[0] for p in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), outputs
    assert "the jail is ready" in outputs[0]
    assert "already" in outputs[1] or "meanwhile" in outputs[1]
    assert os.listdir(case.volume) == ["root"]


@pytest.mark.parametrize(("place", "words"), [("opt", "/opt"), ("var", "/var"), ("usr", "/usr")])
def test_image_with_a_link_where_a_mount_goes_is_refused(case: Case, place: str, words: str) -> None:
    (case.image / place).rename(case.image / "elsewhere")
    os.symlink("elsewhere", case.image / place)
    done = case.run()
    assert done.returncode == 3 and words in case.log.read_text()
    assert os.listdir(case.volume) == []


def test_links_to_elsewhere_are_replaced_by_mount_points(case: Case) -> None:
    os.symlink("../run/systemd/resolve/stub-resolv.conf", case.image / "etc/resolv.conf")
    (case.image / "tmp/left").unlink()
    (case.image / "tmp").rmdir()
    os.symlink("/var/tmp", case.image / "tmp")
    assert case.run().returncode == 0
    assert (case.root / "etc/resolv.conf").is_file() and not (case.root / "etc/resolv.conf").is_symlink()
    assert (case.root / "tmp").is_dir() and not (case.root / "tmp").is_symlink()


def test_configuration_of_the_images_own_slurm_steps_aside(case: Case) -> None:
    (case.image / "etc/slurm").mkdir()
    (case.image / "etc/slurm/slurm.conf").write_text("ClusterName=other\n")
    assert case.run().returncode == 0
    assert (case.root / "etc/slurm").is_symlink()
    assert (case.root / "etc/slurm.image/slurm.conf").exists()


def test_accounts_of_the_cluster(case: Case) -> None:
    with (case.image / "etc/passwd").open("a") as file:
        file.write("slurm:x:999:64030::/var/lib/slurm:/bin/false\n")
    with (case.image / "etc/group").open("a") as file:
        file.write("slurm:x:64030:\n")
    assert case.run().returncode == 0
    text = (case.root / "etc/passwd").read_text()
    assert "slurm:x:64030:64030::/var/lib/slurm:/bin/false\n" in text and text.count("slurm:x") == 1
    assert (case.root / "etc/group").read_text().count("slurm:") == 1


def test_id_that_somebody_else_has(case: Case) -> None:
    with (case.image / "etc/passwd").open("a") as file:
        file.write("eve:x:64030:100::/:/bin/sh\n")
    done = case.run()
    assert done.returncode == 3 and "id 64030" in done.stderr


def test_limit_that_the_file_system_does_not_know(case: Case) -> None:
    (case.image / "big").write_bytes(b"x" * 4_000_000)
    done = case.run(CORRAL_VOLUME_LIMIT="3")
    assert done.returncode == 3 and "may hold 3 MiB" in done.stderr
    assert os.listdir(case.volume) == []
    assert case.run(CORRAL_VOLUME_LIMIT="6").returncode == 0


def test_only_etc(case: Case) -> None:
    (case.image / "etc/skel").mkdir()
    (case.image / "etc/skel/.rc").write_text("x")
    done = case.run(CORRAL_POPULATE_ONLY="etc")
    assert done.returncode == 0, done.stderr
    assert (case.root / "etc/skel/.rc").exists() and (case.root / "etc/corral-jail").exists()
    assert os.listdir(case.root / "usr") == ["local"]
    assert not (case.root / "usr/bin").exists()


@pytest.mark.parametrize(("option", "words"), [("size=3m", "MiB free"), ("nr_inodes=20", "free inodes")])
def test_small_volume_is_said_before_the_copy(case: Case, option: str, words: str) -> None:
    (case.image / "big").write_bytes(b"x" * 4_000_000)
    subprocess.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(case.volume)], check=True)
    try:
        done = case.run()
        assert done.returncode == 3 and words in done.stderr
        assert os.listdir(case.volume) == []
    finally:
        subprocess.run(["umount", str(case.volume)], check=True)
