# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders, records and the hash that tells whether the running lab is the wanted one."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from corral_lab import state
from corral_lab.state import Lab, LabError, Paths


def test_paths_by_environment() -> None:
    paths = Paths.from_environment({"CORRAL_LAB_DIR": "/srv/lab", "CORRAL_CACHE": "/srv/cache"})
    assert (paths.root, paths.cache) == (Path("/srv/lab"), Path("/srv/cache/lab"))
    default = Paths.from_environment({"HOME": "/home/ada"})
    assert (default.root, default.cache) == (Path("/var/lib/corral-lab"), Path("/home/ada/.cache/corral/lab"))


@pytest.mark.parametrize("folder", ["/", "/var", "lab", "/var/lib/../lib", "/tmp/../etc"])
def test_a_folder_that_down_must_never_remove_is_refused(folder: str) -> None:
    with pytest.raises(LabError, match="CORRAL_LAB_DIR"):
        Paths.from_environment({"CORRAL_LAB_DIR": folder, "HOME": "/root"})


def test_labs_in_different_folders_have_different_names() -> None:
    names = {Paths(Path(folder), Path("/c")).name for folder in ("/var/lib/corral-lab", "/srv/a", "/srv/b")}
    assert len(names) == 3
    assert "corral-lab" in names


@pytest.mark.parametrize(("text", "count"), [("", 2), ("1", 1), ("3", 3)])
def test_node_count(text: str, count: int) -> None:
    assert state.node_count({"LAB_NODES": text} if text else {}) == count


@pytest.mark.parametrize("text", ["0", "4", "-1", "two", "1.0", " 2"])
def test_node_count_is_refused(text: str) -> None:
    with pytest.raises(LabError, match="1 to 3"):
        state.node_count({"LAB_NODES": text})


def test_hash_follows_names_and_contents_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("one")
    (tmp_path / "y").write_text("two")
    first = state.hash_files(tmp_path, "2")
    (tmp_path / "a" / "__pycache__").mkdir()
    (tmp_path / "a" / "__pycache__" / "x.pyc").write_text("byte code")
    (tmp_path / "y").touch()
    assert state.hash_files(tmp_path, "2") == first
    assert state.hash_files(tmp_path, "3") != first
    (tmp_path / "y").write_text("tw")
    (tmp_path / "z").write_text("o")
    second = state.hash_files(tmp_path, "2")
    (tmp_path / "z").rename(tmp_path / "zz")
    assert len({first, second, state.hash_files(tmp_path, "2")}) == 3


def test_lab_hash_differs_by_nodes_and_address() -> None:
    assert len({state.lab_hash(2, "192.0.2.2"), state.lab_hash(3, "192.0.2.2"), state.lab_hash(2, "192.0.2.3")}) == 3
    assert state.lab_hash(2, "192.0.2.2") == state.lab_hash(2, "192.0.2.2")


def test_record_survives_the_disk(paths: Paths) -> None:
    lab = Lab("abc", ["node1"], "192.0.2.2", "/src", "boot", {"net/ipv4/ip_forward": "0"}, ["/var/lib/cni"], ["iptables nat"])
    assert Lab.load(paths) is None
    lab.save(paths)
    assert Lab.load(paths) == lab


def test_record_of_another_version_is_another_lab(paths: Paths) -> None:
    paths.root.mkdir(parents=True)
    paths.record.write_text(json.dumps({"nodes": ["node1"], "a_thing_of_tomorrow": 1}))
    lab = Lab.load(paths)
    assert lab is not None
    assert (lab.nodes, lab.content_hash) == (["node1"], "")


@pytest.mark.parametrize("content", ["", "{", "no json"])
def test_half_a_record_is_none(paths: Paths, content: str) -> None:
    paths.root.mkdir(parents=True)
    paths.record.write_text(content)
    assert Lab.load(paths) is None


def test_written_file_has_its_mode_from_the_start(tmp_path: Path) -> None:
    state.write_file(tmp_path / "sub" / "secret", "x", 0o600)
    assert (tmp_path / "sub" / "secret").stat().st_mode & 0o777 == 0o600
    assert [p.name for p in (tmp_path / "sub").iterdir()] == ["secret"]


def test_lock_lets_one_in_at_a_time_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "LOCK", tmp_path / "lock")
    inside = 0
    most = 0

    def enter() -> None:
        nonlocal inside, most
        for _dummy in range(20):
            with state.lock():
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=enter) for dummy in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert list(tmp_path.iterdir()) == []
