# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the machine must have, each lack told in one sentence before anything is started; and installing it on Debian."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import build
from .nodes import CNI_FOLDERS, CNI_PLUGINS
from .state import LabError, Paths

GIB = 1024**3
DISK_BYTES = 15 * GIB
MEMORY_BYTES = 4 * GIB
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Need:
    """Something to be installed. `lab` ones are needed to start the lab, the others to build the project's images."""

    name: str
    package: str
    present: Callable[[], bool]
    lab: bool = True


def _program(name: str, package: str, lab: bool = True) -> Need:
    return Need(name, package, lambda: shutil.which(name) is not None, lab)


def _static_libc() -> bool:
    done = subprocess.run(["gcc", "-print-file-name=libc.a"], capture_output=True, text=True, check=False) if shutil.which("gcc") else None
    return done is not None and Path(done.stdout.strip()).is_absolute()


def _libseccomp() -> bool:
    return shutil.which("pkg-config") is not None and not subprocess.run(["pkg-config", "--exists", "libseccomp"], check=False).returncode


def needs() -> list[Need]:
    cni = Need(
        "CNI plugins (ptp, host-local, loopback)",
        "containernetworking-plugins",
        lambda: any(all((folder / plugin).exists() for plugin in CNI_PLUGINS) for folder in CNI_FOLDERS),
    )
    return [
        cni,
        _program("iptables-restore", "iptables"),
        _program("ip", "iproute2"),
        _program("mount", "mount"),
        _program("openssl", "openssl"),
        _program("gcc", "gcc"),
        Need("libc.a (static C library)", "libc6-dev", _static_libc),
        _program("pkg-config", "pkgconf"),
        Need("libseccomp's headers", "libseccomp-dev", _libseccomp),
        Need("go", "golang-go", lambda: build.find_go(os.environ) is not None),
        _program("mmdebstrap", "mmdebstrap", lab=False),
        _program("buildah", "buildah", lab=False),
        _program("zstd", "zstd", lab=False),
        _program("ssh-keygen", "openssh-client", lab=False),
        _program("make", "make", lab=False),
    ]


def total_memory(meminfo: str) -> int:
    """Bytes of memory by /proc/meminfo's text."""
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def free_disk(path: Path) -> int:
    """Bytes that may still be written to the file system that a folder is, or will be, on."""
    while not path.exists():
        path = path.parent
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def go_lack(environment: Mapping[str, str]) -> str | None:
    """Why the installed Go cannot build what the lab is made of, or None. No Go at all is another sentence's matter."""
    go = build.find_go(environment)
    if go is None:
        return None
    version = build.parse_go_version(build.go_version(go))
    wanted = ".".join(map(str, build.GO_WANTED))
    if version is None or (version < build.GO_WANTED and (version < build.GO_FETCHES or environment.get("GOTOOLCHAIN") == "local")):
        found = "one that does not answer" if version is None else ".".join(map(str, version))
        return (
            f"Go {wanted} or newer is needed to build Kubernetes and containerd, {go} is {found}; "
            "install a newer one (Debian 13's golang-go, or the archive of go.dev/dl) and put it first in PATH."
        )
    return None


def machine_lacks(paths: Paths, new: bool) -> list[str]:
    """A sentence for each thing that no package mends."""
    lacks = []
    if sys.platform != "linux":
        lacks.append(f"The lab needs Linux, this is {sys.platform}.")
    if os.geteuid() != 0:
        lacks.append("The lab needs root (it starts containers and sets up a network); run it as root, for example with sudo -E.")
    memory = total_memory(Path("/proc/meminfo").read_text())
    # A machine of 4 GiB tells a little less, since its kernel keeps some.
    if memory < MEMORY_BYTES * 0.9:
        lacks.append(f"The lab needs 4 GiB of memory, this machine has {memory / GIB:.1f} GiB.")
    free = free_disk(paths.root)
    if new and free < DISK_BYTES:
        lacks.append(
            f"The lab needs 15 GiB of free disk at {paths.root}, {free / GIB:.1f} GiB are free; free some, or set CORRAL_LAB_DIR to another disk."
        )
    return lacks


def lacks(paths: Paths, everything: bool, new: bool) -> list[str]:
    """All that is missing, one sentence each."""
    sentences = machine_lacks(paths, new)
    for need in needs():
        if (everything or need.lab) and not need.present():
            sentences.append(f"{need.name} is not installed; it is in Debian's package {need.package} (lab/lab prerequisites --install).")
    too_old = go_lack(os.environ)
    return sentences + ([too_old] if too_old else [])


def check(paths: Paths, everything: bool = False, new: bool = True) -> None:
    """Raises LabError with all sentences at once. A lab that is not new has its disk space already."""
    missing = lacks(paths, everything, new)
    if missing:
        raise LabError("\n".join(missing))


def install() -> None:
    """Install what is missing with apt-get; nothing is asked and nothing else is upgraded. Raises LabError."""
    packages = sorted({need.package for need in needs() if not need.present()})
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise LabError(f"apt-get is not here, so this is no Debian; install these by its own means: {', '.join(packages)}.")
    if os.geteuid() != 0:
        raise LabError(f"Packages are missing ({', '.join(packages)}) and only root can install them.")
    print(f"lab: installing {' '.join(packages)}", flush=True)
    _apt("update", "-qq")
    # Recommended packages matter for buildah only as helpers for users who are not root.
    _apt("install", "-qq", "-y", "--no-install-recommends", *packages)


def _apt(*arguments: str) -> None:
    environment = dict(os.environ) | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["apt-get", *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = "\n".join(f"  {line}" for line in (done.stdout + done.stderr).splitlines()[-12:])
        raise LabError(f"apt-get {' '.join(arguments)} failed:\n{reason}")
