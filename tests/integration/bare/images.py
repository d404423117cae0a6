# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roots of machines and of jails, unpacked once from the archives that images/build makes and kept beside them by the same hash."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
CACHE = Path(os.environ.get("CORRAL_CACHE") or Path.home() / ".cache" / "corral") / "bare"
POPULATE = REPOSITORY / "roles" / "jail_populate" / "files" / "populate.sh"
KEEP = ["--numeric-owner", "--xattrs", "--xattrs-include=*"]


@contextmanager
def _locked() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def once(name: str, fill: Callable[[Path], None]) -> Path:
    """A directory that is whole when it is there; of those that another archive was unpacked to, the newest is kept, for somebody may run on it."""
    made = CACHE / name
    with _locked():
        if not made.exists():
            part = CACHE / f".{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            fill(part)
            part.rename(made)
            older = sorted((p for p in CACHE.glob(f"{name.rsplit('-', 1)[0]}-*") if p != made), key=lambda p: p.stat().st_ctime)
            for path in older[:-1]:
                shutil.rmtree(path)
    return made


def _apply(layer: Path, root: Path) -> None:
    """One layer: first what it takes away (OCI's whiteouts), then what it brings."""
    with tarfile.open(layer) as tar:
        gone = [Path(name) for name in tar.getnames() if Path(name).name.startswith(".wh.")]
    for mark in gone:
        folder = root / mark.parent
        what = list(folder.iterdir()) if mark.name == ".wh..wh..opq" else [folder / mark.name.removeprefix(".wh.")]
        for path in what:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    subprocess.run(["tar", "-C", root, "-xpf", layer, "--exclude=.wh.*", *KEEP], check=True)


def _unpack(archive: Path, root: Path) -> None:
    blobs = root.with_name(f"{root.name}.blobs")
    shutil.rmtree(blobs, ignore_errors=True)
    blobs.mkdir()
    try:
        subprocess.run(["tar", "-C", blobs, "-xf", archive], check=True)

        def blob(digest: str) -> Path:
            return blobs / "blobs" / digest.replace(":", "/")

        index = json.loads((blobs / "index.json").read_text())
        manifest = json.loads(blob(index["manifests"][0]["digest"]).read_text())
        for layer in manifest["layers"]:
            _apply(blob(layer["digest"]), root)
    finally:
        shutil.rmtree(blobs)


def _build(*names: str) -> list[Path]:
    done = subprocess.run([REPOSITORY / "images" / "build", *names], stdout=subprocess.PIPE, text=True, check=True)
    return [Path(line) for line in done.stdout.splitlines()]


def machine_root() -> Path:
    """The root of the slurm image."""
    (archive,) = _build("slurm:24.11")
    return once(archive.stem, lambda part: _unpack(archive, part))


def jail_root() -> Path:
    """The jail image as the populate job of a cluster would write it to an empty volume."""
    (archive,) = _build("jail:trixie")

    def fill(part: Path) -> None:
        source = part.with_name(f"{part.name}.source")
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        words = {"CORRAL_VOLUME": str(part), "CORRAL_SOURCE": str(source), "CORRAL_JAIL_IMAGE": "localhost/corral/jail:trixie"}
        try:
            _unpack(archive, source)
            done = subprocess.run(["sh", POPULATE], env={**os.environ, **words}, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"populate.sh ended {done.returncode}: {done.stdout}{done.stderr}"
        finally:
            shutil.rmtree(source)

    made_of = hashlib.sha256(archive.name.encode() + POPULATE.read_bytes()).hexdigest()[:16]
    return once(f"jail-{made_of}", fill) / "root"
