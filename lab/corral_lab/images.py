# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image archives: reading what is in one, making the pause image's, and bringing them into the nodes."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .state import LabError, Paths

PAUSE_IMAGE = "localhost/corral/pause:1"
REF_NAME = "org.opencontainers.image.ref.name"
# containerd's own exports carry the whole name here and only the tag in REF_NAME.
CONTAINERD_NAME = "io.containerd.image.name"
# Debian's names of machines → Go's, which image documents use.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "riscv64": "riscv64", "ppc64le": "ppc64le", "s390x": "s390x"}


@dataclass(frozen=True)
class Image:
    """A name in an archive and the digest of its manifest, which stands for the whole content."""

    name: str
    digest: str


def read_archive(archive: Path) -> list[Image]:
    """The images of an OCI archive, from its index alone, so in milliseconds. Raises LabError for what is no such archive."""
    try:
        with tarfile.open(archive) as tar:
            index_file = tar.extractfile("index.json")
            index = json.load(index_file) if index_file else {}
    except OSError as error:
        raise LabError(f"{archive} cannot be read ({error.strerror or error}); build it first (make images).") from error
    except (KeyError, ValueError, tarfile.TarError) as error:
        raise LabError(
            f"{archive} is no OCI archive (a tar file with index.json); write one with `buildah push IMAGE oci-archive:FILE:NAME` or `docker save`."
        ) from error
    images = []
    for manifest in index.get("manifests", []):
        annotations = manifest.get("annotations") or {}
        name = annotations.get(CONTAINERD_NAME) or annotations.get(REF_NAME, "")
        if "/" not in name or not manifest.get("digest"):
            raise LabError(
                f"{archive} holds an image without a whole name ({name or 'none'!r}); "
                "write it with its name, as in `oci-archive:FILE:localhost/corral/slurm:24.11`."
            )
        images.append(Image(name, manifest["digest"]))
    if not images:
        raise LabError(f"{archive} holds no image.")
    return images


def parse_image_list(text: str) -> set[Image]:
    """What `ctr images ls` prints (REF TYPE DIGEST …) as names and digests."""
    rows = [line.split() for line in text.splitlines()[1:]]
    return {Image(row[0], row[2]) for row in rows if len(row) > 2}


def ctr(paths: Paths, node: str, *arguments: str) -> str:
    """Run containerd's own client against a node. Raises LabError with its reason."""
    command = [str(paths.bin / "ctr"), "--address", str(paths.node(node) / "containerd.sock"), "--namespace", "k8s.io", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    if done.returncode:
        raise LabError(f"{node}: ctr {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


def load(paths: Paths, nodes: Sequence[str], archives: Sequence[Path], report: bool = True) -> None:
    """Bring archives into every node that does not have their very content under their names yet; nodes in parallel."""
    wanted = {archive: set(read_archive(archive)) for archive in archives}

    def load_node(node: str) -> None:
        present = parse_image_list(ctr(paths, node, "images", "ls"))
        for archive, images in wanted.items():
            names = ", ".join(sorted(image.name for image in images))
            if images <= present:
                if report:
                    print(f"{node}: {names} is there already", flush=True)
                continue
            started = time.monotonic()
            ctr(paths, node, "images", "import", str(archive))
            missing = images - parse_image_list(ctr(paths, node, "images", "ls"))
            if missing:
                raise LabError(
                    f"{node}: {archive} was imported, yet {sorted(i.name for i in missing)} is not there; the archive may be damaged."
                )
            if report:
                print(f"{node}: {names} loaded in {time.monotonic() - started:.1f} s", flush=True)

    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(load_node, nodes))


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def single_file_archive(image: str, program: bytes, machine: str) -> bytes:
    """An OCI archive of an image that holds one static program, /pause. Equal input gives equal bytes."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        _add(tar, "pause", program, 0o755)
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, media_type: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def document(content: object) -> bytes:
        return json.dumps(content, sort_keys=True).encode()

    layer_descriptor = blob(layer.getvalue(), "application/vnd.oci.image.layer.v1.tar")
    config = {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [layer_descriptor["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(document(config), "application/vnd.oci.image.config.v1+json"),
        "layers": [layer_descriptor],
    }
    manifest_descriptor = blob(document(manifest), "application/vnd.oci.image.manifest.v1+json")
    index = {"schemaVersion": 2, "manifests": [manifest_descriptor | {"annotations": {REF_NAME: image}}]}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        _add(tar, "oci-layout", document({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", document(index))
        for digest, content in sorted(blobs.items()):
            _add(tar, f"blobs/sha256/{digest}", content)
    return archive.getvalue()
