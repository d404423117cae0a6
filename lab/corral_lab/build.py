# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab builds, once for each content: Kubernetes and what goes with it from lab/kube, the container runtime from lab/runtime, the pause
image from lab/pause.c."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .images import PAUSE_IMAGE, single_file_archive
from .state import LAB_FILES, LabError, Paths, hash_files

VERSION = (1, 34, 4)
_VERSION_FLAGS = (
    f"-X k8s.io/component-base/version.gitVersion=v{'.'.join(map(str, VERSION))} "
    f"-X k8s.io/component-base/version.gitMajor={VERSION[0]} -X k8s.io/component-base/version.gitMinor={VERSION[1]}"
)


@dataclass(frozen=True)
class GoModule:
    """A folder of lab/ with a go.mod, and what is built of it: `packages` give the files `made`, and `programs` maps each name that the
    lab calls to one of these."""

    folder: str
    what: str
    packages: tuple[str, ...]
    flags: tuple[str, ...]
    cgo: bool
    programs: Mapping[str, str]

    @property
    def made(self) -> set[str]:
        return set(self.programs.values())

    def key(self, version: str) -> str:
        """Names a build: everything that its bytes depend on."""
        return hash_files(LAB_FILES / self.folder, version, platform.machine(), str(self.cgo), *self.flags, *self.packages)[:16]


# One binary stands for all of Kubernetes' programs (lab/kube/main.go).
KUBE = GoModule(
    "kube",
    f"Kubernetes v{'.'.join(map(str, VERSION))}, CoreDNS and kube-network-policies",
    (".", "./coredns", "./policies"),
    ("-trimpath", "-ldflags", f"-s -w {_VERSION_FLAGS}"),
    False,
    dict.fromkeys(("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"), "kube")
    | {"coredns": "coredns", "network-policies": "policies"},
)
# Debian 12's containerd knows no user namespaces. runc is partly C: its first steps in a container, and libseccomp.
RUNTIME = GoModule(
    "runtime",
    "containerd and runc",
    (
        *(f"github.com/containerd/containerd/v2/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
        "github.com/opencontainers/runc",
    ),
    ("-trimpath", "-ldflags", "-s -w", "-tags", "seccomp no_btrfs no_devmapper no_zfs netgo osusergo"),
    True,
    {name: name for name in ("containerd", "containerd-shim-runc-v2", "ctr", "runc")},
)
MODULES = (KUBE, RUNTIME)
# The Go that the modules' dependencies ask for; an older one that can fetch a newer toolchain by itself (since 1.21) will do too.
GO_WANTED, GO_FETCHES = (1, 24), (1, 21)
KEPT_BUILDS = 3


def find_go(environment: Mapping[str, str]) -> str | None:
    """The go program: of PATH, of go.dev's archive, or of one of Debian's versioned packages, newest first."""
    found = shutil.which("go", path=environment.get("PATH"))
    if found:
        return found
    versioned = sorted(Path("/usr/lib").glob("go-1.*/bin/go"), key=lambda p: int(re.sub(r"\D", "", p.parts[3].partition(".")[2]) or 0))
    for candidate in [Path("/usr/local/go/bin/go"), *reversed(versioned)]:
        if candidate.exists():
            return str(candidate)
    return None


def go_version(go: str) -> str:
    """The version, such as `go1.24.4`, that would build lab/kube: go itself follows go.mod's toolchain. Empty when go does not answer."""
    done = subprocess.run([go, "env", "GOVERSION"], cwd=LAB_FILES / "kube", capture_output=True, text=True, check=False)
    return done.stdout.strip()


def parse_go_version(text: str) -> tuple[int, int] | None:
    match = re.match(r"go(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def programs(paths: Paths) -> dict[str, Path]:
    """Each program that the lab calls and where it lies, built now if no build of this content is in the cache. Raises LabError."""
    go = find_go(os.environ)
    if go is None:
        raise LabError("go is not installed; run lab/lab prerequisites --install.")
    found: dict[str, Path] = {}
    for module in MODULES:
        target = paths.cache / f"{module.folder}-{module.key(go_version(go))}"
        if not _whole(module, target):
            with _build_lock(paths):
                if not _whole(module, target):
                    _build(go, module, target)
                    _prune(paths, module, target)
        found |= {name: target / made for name, made in module.programs.items()}
    return found


def _whole(module: GoModule, target: Path) -> bool:
    return all(os.access(target / name, os.X_OK) for name in module.made)


@contextlib.contextmanager
def _build_lock(paths: Paths) -> Iterator[None]:
    """Two checkouts that need the same build make it once."""
    paths.cache.mkdir(parents=True, exist_ok=True)
    with (paths.cache / "build.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("lab: another command is building the lab's programs; waiting for it.", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(go: str, module: GoModule, target: Path) -> None:
    new = Path(tempfile.mkdtemp(prefix=".building-", dir=target.parent))
    try:
        print(f"lab: building {module.what} from source, once; this takes some minutes.", flush=True)
        command = [go, "build", "-v", *module.flags, "-o", f"{new}/", *module.packages]
        process = subprocess.Popen(
            command,
            cwd=LAB_FILES / module.folder,
            env=dict(os.environ) | {"CGO_ENABLED": str(int(module.cgo))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            said = _follow(process)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if process.returncode or not _whole(module, new):
            reasons = [line for line in said if not re.fullmatch(r"[\w./~+-]+", line)][-15:]
            detail = "\n".join(f"  {line}" for line in reasons)
            raise LabError(
                f"go build of lab/{module.folder} failed (exit {process.returncode}):\n{detail}\nIts modules come from GOPROXY; see `go env GOPROXY`."
            )
        new.chmod(0o755)
        shutil.rmtree(target, ignore_errors=True)
        new.rename(target)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _follow(process: subprocess.Popen[str]) -> list[str]:
    """Read go's output to its end, meanwhile telling how far it is: a line each 15 s, or one that counts on a terminal."""
    said: list[str] = []
    counts = {"packages": 0, "modules": 0}
    started = time.monotonic()
    finished = threading.Event()
    terminal = sys.stdout.isatty()

    def tell() -> None:
        while not finished.wait(1 if terminal else 15):
            progress = f"lab: go build: {counts['modules']} modules fetched, {counts['packages']} packages compiled, {time.monotonic() - started:.0f} s"
            print(f"\r{progress}" if terminal else progress, end="" if terminal else "\n", flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        for line in process.stdout or ():
            said.append(line.rstrip())
            counts["modules" if line.startswith("go: downloading") else "packages"] += 1
        process.wait()
    finally:
        finished.set()
        teller.join()
    print(f"{chr(10) if terminal else ''}lab: go build took {time.monotonic() - started:.0f} s.", flush=True)
    return said


def _prune(paths: Paths, module: GoModule, keep: Path) -> None:
    """Old builds go (200 MB each); the newest few stay, since a running lab or another checkout may use them."""
    builds = sorted(paths.cache.glob(f"{module.folder}-*"), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in builds[KEPT_BUILDS:]:
        if old != keep:
            shutil.rmtree(old, ignore_errors=True)


def pause_archive(paths: Paths) -> Path:
    """The pause image's OCI archive, compiled now if its source changed. Raises LabError."""
    source = LAB_FILES / "pause.c"
    key = hashlib.sha256(source.read_bytes() + platform.machine().encode() + PAUSE_IMAGE.encode()).hexdigest()[:16]
    archive = paths.cache / f"pause-{key}.tar"
    if archive.exists():
        return archive
    paths.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=paths.cache) as folder:
        program = Path(folder) / "pause"
        done = subprocess.run(
            ["gcc", "-static", "-Os", "-s", "-Wall", "-Werror", "-o", str(program), str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise LabError(f"gcc could not compile {source} (exit {done.returncode}): {done.stderr.strip()}")
        new = Path(folder) / archive.name
        new.write_bytes(single_file_archive(PAUSE_IMAGE, program.read_bytes(), platform.machine()))
        new.rename(archive)
    return archive
