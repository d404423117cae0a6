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
# Slurm on the machines, by its name of images/build: CORRAL_SLURM_IMAGE=localhost/corral/slurm:26.05 make bare
SLURM = os.environ.get("CORRAL_SLURM_IMAGE", "slurm:24.11").rpartition("/")[2]
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
    (archive,) = _build(SLURM)
    return once(archive.stem, lambda part: _unpack(archive, part))


def _populated(made_of: str, image: str, fill: Callable[[Path], None]) -> Path:
    """A root as the populate job of a cluster would write it to an empty volume, from an image whose own root ``fill`` makes."""

    def populate(part: Path) -> None:
        source = part.with_name(f"{part.name}.source")
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        words = {"CORRAL_VOLUME": str(part), "CORRAL_SOURCE": str(source), "CORRAL_JAIL_IMAGE": image}
        try:
            fill(source)
            done = subprocess.run(["sh", POPULATE], env={**os.environ, **words}, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"populate.sh ended {done.returncode}: {done.stdout}{done.stderr}"
        finally:
            shutil.rmtree(source)

    kind = image.partition("/")[2].partition(":")[0].replace("/", "-")
    return once(f"{kind}-{hashlib.sha256(made_of.encode() + POPULATE.read_bytes()).hexdigest()[:16]}", populate) / "root"


def jail_root() -> Path:
    """The jail image."""
    (archive,) = _build("jail:trixie")
    return _populated(archive.name, "corral/jail:trixie", lambda source: _unpack(archive, source))


def older_root() -> Path:
    """Debian's release before the pods', and no more of it than has to be."""
    (archive,) = _build("base:bookworm")
    return _populated(
        archive.name, "debian/older:bookworm", lambda source: subprocess.run(["tar", "-C", source, "-xpf", archive, *KEEP], check=True)
    )


HELLO = """
#include <stdio.h>
#include <pwd.h>
#include <unistd.h>
int main(void)
{
    struct passwd *account = getpwuid(getuid());
    printf("musl says %s\\n", account ? account->pw_name : "nobody");
}
"""


def musl_root() -> Path:
    """No distribution at all: busybox, and a program that is linked with another C library than Slurm knows of."""

    def fill(source: Path) -> None:
        packages = source / "packages"
        packages.mkdir()
        subprocess.run(
            ["apt-get", "--quiet", "download", "musl", "musl-dev", "busybox-static"], cwd=packages, check=True, capture_output=True
        )
        for package in packages.glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, packages], check=True)
        for folder in (
            "bin",
            "sbin",
            "usr/bin",
            "usr/local/bin",
            "lib",
            "etc",
            "home",
            "tmp",
            "root",
            "dev",
            "proc",
            "sys",
            "run",
            "opt",
            "var",
            "mnt",
            "srv",
        ):
            (source / folder).mkdir(parents=True)
        (source / "tmp").chmod(0o1777)

        def found(name: str) -> Path:
            """Releases of Debian differ in where a file lies."""
            return next(path for path in packages.rglob(name) if path.is_file() and "share" not in path.parts and not path.is_symlink())

        busybox = found("busybox")
        shutil.copy2(busybox, source / "bin" / "busybox")
        for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
            if name != "busybox":
                (source / "bin" / name).symlink_to("busybox")
        loader = "ld-musl-x86_64.so.1"
        shutil.copy2(found("libc.so"), source / "lib" / loader)
        (packages / "hello.c").write_text(HELLO)
        subprocess.run(
            [
                *("gcc", "-nostdinc", "-isystem", packages / "usr" / "include" / "x86_64-linux-musl", "-nostdlib", "-no-pie"),
                *(f"-Wl,-dynamic-linker,/lib/{loader}", "-o", source / "usr" / "bin" / "hello"),
                *(found("crt1.o"), found("crti.o"), packages / "hello.c", f"-L{found('libc.so').parent}", "-lc", found("crtn.o")),
            ],
            check=True,
        )
        shutil.rmtree(packages)
        (source / "etc" / "os-release").write_text("ID=none\nVERSION_CODENAME=musl\n")
        for name in ("passwd", "group", "shadow"):
            (source / "etc" / name).write_text(
                "root:x:0:0:root:/root:/bin/sh\n" if name == "passwd" else "root:x:0:\n" if name == "group" else ""
            )

    return _populated(hashlib.sha256(HELLO.encode()).hexdigest(), "none/musl:1", fill)
