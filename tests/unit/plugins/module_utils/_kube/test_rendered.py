# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files are written, which are removed, and which stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._kube import rendered

SET = {"kind": "StatefulSet", "apiVersion": "apps/v1", "metadata": {"name": "n", "namespace": "a"}}
SPACE = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a"}}
MAP = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {"name": "m", "namespace": "a"},
    "data": {"slurm.conf": "a=1\nb=2\n", "empty": ""},
}
FILES = ["0-namespace-a.yml", "3-configmap-m.yml", "5-statefulset-n.yml", "config_maps/m/empty", "config_maps/m/slurm.conf"]


def write(output: Path, *objects: dict[str, Any], check: bool = False, diff: bool = False) -> dict[str, Any]:
    return rendered.write({"output": str(output), "objects": list(objects)}, check=check, diff=diff)


def there(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_folder_and_a_stream_have_the_same_objects(tmp_path: Path) -> None:
    assert write(tmp_path / "out", SET, MAP, SPACE) == {"changed": True, "files": FILES, "removed": []}
    assert there(tmp_path / "out") == [".corral-render", *FILES]
    assert (tmp_path / "out/config_maps/m/slurm.conf").read_text() == "a=1\nb=2\n"
    assert write(tmp_path / "out.yml", SET, MAP, SPACE)["files"] == ["out.yml"]
    text = (tmp_path / "out.yml").read_text()
    assert text == "".join((tmp_path / "out" / name).read_text() for name in FILES[:3])
    assert list(yaml.safe_load_all(text)) == [SPACE, MAP, SET]
    assert "  slurm.conf: |\n    a=1\n    b=2\n" in text
    for output in ("out", "out.yml"):
        assert write(tmp_path / output, SPACE, MAP, SET)["changed"] is False


def test_what_the_document_no_longer_makes_is_removed_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, SPACE, MAP, SET)
    (tmp_path / "kustomization.yaml").write_text("x")
    (tmp_path / "config_maps/mine").write_text("x")
    result = write(tmp_path, SPACE, SET, check=True, diff=True)
    assert result["removed"] == [FILES[1], *FILES[3:]] and result["changed"] and len(there(tmp_path)) == len(FILES) + 3
    assert {entry["before_header"]: entry["after"] for entry in result["diff"]} == dict.fromkeys(result["removed"], "")
    write(tmp_path, SPACE, SET)
    assert there(tmp_path) == [".corral-render", "0-namespace-a.yml", "5-statefulset-n.yml", "config_maps/mine", "kustomization.yaml"]
    # What somebody has removed themselves is no error.
    (tmp_path / "5-statefulset-n.yml").unlink()
    assert write(tmp_path, SPACE)["changed"] is False


def test_a_file_of_somebody_else_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "5-statefulset-n.yml").write_text("mine")
    with pytest.raises(
        CorralError, match=r"5-statefulset-n\.yml is there, and corral\.slurm\.render did not write it; give an empty folder"
    ):
        write(tmp_path, SPACE, SET)
    assert there(tmp_path) == ["5-statefulset-n.yml"] and (tmp_path / "5-statefulset-n.yml").read_text() == "mine"


@pytest.mark.parametrize("name", ["../victim", "/victim", "a/../../victim"])
def test_the_index_reaches_no_file_outside(name: str, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / ".corral-render").write_text(f"{name.replace('/victim', str(tmp_path / 'victim')) if name[0] == '/' else name}\n")
    write(folder, SPACE)
    assert (tmp_path / "victim").read_text() == "kept"


def test_after_an_interruption_the_next_run_knows_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = rendered._replace

    def interrupted(path: Path, text: str) -> None:
        if path.name == "5-statefulset-n.yml":
            raise OSError(28, "No space left on device")
        written(path, text)

    monkeypatch.setattr(rendered, "_replace", interrupted)
    with pytest.raises(CorralError, match=r"No space left on device; give another path in output\."):
        write(tmp_path, SPACE, MAP, SET)
    monkeypatch.undo()
    assert write(tmp_path, SPACE, SET)["removed"] == [FILES[1]]
    assert there(tmp_path) == [".corral-render", "0-namespace-a.yml", "5-statefulset-n.yml"]


def test_what_two_tasks_apply_is_one_object(tmp_path: Path) -> None:
    write(tmp_path / "out.yml", {**SET, "spec": {"replicas": 2, "a": {"b": 1}}}, MAP, {**SET, "spec": {"a": {"c": 1}}})
    assert list(yaml.safe_load_all((tmp_path / "out.yml").read_text())) == [MAP, {**SET, "spec": {"replicas": 2, "a": {"b": 1, "c": 1}}}]


def test_members_have_the_label_of_their_set() -> None:
    found = rendered.members([SPACE, SET], {"name": "s", "namespace": None}, "a")
    assert found[0] == SPACE and found[1]["metadata"]["labels"] == {
        "applyset.kubernetes.io/part-of": rendered.set_id("s", "a"),
    }
    assert "labels" not in SET["metadata"]
