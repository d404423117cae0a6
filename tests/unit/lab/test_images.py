# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image archives: what is read from them, and the one that the lab writes."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from corral_lab import images
from corral_lab.images import Image
from corral_lab.state import LabError, Paths


def archive(folder: Path, index: dict[str, Any]) -> Path:
    path = folder / "image.tar"
    content = json.dumps(index).encode()
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("index.json")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return path


def test_own_archive_is_whole_and_repeatable(tmp_path: Path) -> None:
    data = images.single_file_archive("localhost/corral/pause:1", b"program", "x86_64")
    assert data == images.single_file_archive("localhost/corral/pause:1", b"program", "x86_64")
    path = tmp_path / "pause.tar"
    path.write_bytes(data)
    [image] = images.read_archive(path)
    assert image.name == "localhost/corral/pause:1"
    with tarfile.open(path) as tar:
        blobs = {name: tar.extractfile(name) for name in tar.getnames() if name.startswith("blobs/")}
        contents = {name.rpartition("/")[2]: file.read() for name, file in blobs.items() if file}
    assert all(hashlib.sha256(content).hexdigest() == digest for digest, content in contents.items())
    manifest = json.loads(contents[image.digest.removeprefix("sha256:")])
    config = json.loads(contents[manifest["config"]["digest"].removeprefix("sha256:")])
    assert config["architecture"] == "amd64"
    [layer] = manifest["layers"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    with tarfile.open(fileobj=io.BytesIO(contents[layer["digest"].removeprefix("sha256:")])) as tar:
        member = tar.getmember("pause")
        assert (member.mode, member.uid, member.mtime) == (0o755, 0, 0)


@pytest.mark.parametrize("annotation", [images.REF_NAME, images.CONTAINERD_NAME])
def test_names_come_from_either_annotation(tmp_path: Path, annotation: str) -> None:
    index = {"manifests": [{"digest": "sha256:1", "annotations": {annotation: "localhost/a:1"}}]}
    assert images.read_archive(archive(tmp_path, index)) == [Image("localhost/a:1", "sha256:1")]


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        ({}, "holds no image"),
        ({"manifests": [{"digest": "sha256:1"}]}, "without a whole name"),
        ({"manifests": [{"digest": "sha256:1", "annotations": {images.REF_NAME: "24.11"}}]}, "without a whole name"),
    ],
)
def test_archives_that_nodes_could_not_use_are_refused(tmp_path: Path, index: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LabError, match=sentence):
        images.read_archive(archive(tmp_path, index))


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="cannot be read"):
        images.read_archive(tmp_path / "missing.tar")
    (tmp_path / "text").write_text("no tar file")
    with pytest.raises(LabError, match="no OCI archive"):
        images.read_archive(tmp_path / "text")


def test_loaded_once_a_content(tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node gets an archive when its name or its digest is new there, and never twice."""
    present: dict[str, dict[str, str]] = {"node1": {}, "node2": {"localhost/a:1": "sha256:old"}}
    imports: list[str] = []

    def ctr(_paths: Paths, node: str, *arguments: str) -> str:
        if arguments[1] == "import":
            [image] = images.read_archive(Path(arguments[2]))
            present[node][image.name] = image.digest
            imports.append(node)
        rows = [f"{name} application/x {digest} 1 MiB linux/amd64 -" for name, digest in present[node].items()]
        return "\n".join(["REF TYPE DIGEST SIZE PLATFORMS LABELS", *rows])

    monkeypatch.setattr(images, "ctr", ctr)
    path = archive(tmp_path, {"manifests": [{"digest": "sha256:new", "annotations": {images.REF_NAME: "localhost/a:1"}}]})
    images.load(paths, ["node1", "node2"], [path])
    assert sorted(imports) == ["node1", "node2"]
    images.load(paths, ["node1", "node2"], [path])
    assert len(imports) == 2
