# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An emulated machine whose kernel has what this one's may lack: cgroup v2 alone, and AppArmor. Its disks are the images' roots, and keep nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from ..integration.bare import images

GUEST = Path(__file__).parent / "guest"
PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "cpio": "cpio", "mke2fs": "e2fsprogs"}
# Debian's kernel for clouds: the package that names the newest one.
KERNEL = "linux-image-cloud-amd64"
# In the order in which they need each other.
MODULES = ("virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk")
COMMAND_LINE = "console=ttyS0 quiet panic=-1 apparmor=1 security=apparmor cgroup_no_v1=all"


def _kernel() -> Path:
    """A folder with Debian's kernel and its modules, fetched once."""
    shown = subprocess.run(["apt-cache", "depends", KERNEL], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Depends: (linux-image-\S+)", shown)
    assert found, f"apt knows no kernel by {KERNEL}: {shown}"

    def fetch(part: Path) -> None:
        subprocess.run(["apt-get", "--quiet", "download", found[1]], cwd=part, check=True, capture_output=True)
        (package,) = part.glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", package, part], check=True)
        package.unlink()

    return images.once(f"kernel-{found[1].removeprefix('linux-image-')}", fetch)


def _disk(root: Path, name: str) -> Path:
    def fill(part: Path) -> None:
        used = int(subprocess.run(["du", "-sxm", root], capture_output=True, text=True, check=True).stdout.split()[0])
        subprocess.run(
            ["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", root, part / "disk", f"{used * 2 + 200}M"],
            check=True,
        )

    return images.once(name, fill) / "disk"


def _first_files(kernel: Path, files: Mapping[str, bytes], scratch: Path) -> Path:
    """The archive that the kernel unpacks: busybox, modules for the disks, and what is tried."""
    root = scratch / "first"
    for folder in ("bin", "modules", "new", "proc", "dev"):
        (root / folder).mkdir(parents=True)
    shutil.copy(str(shutil.which("busybox")), root / "bin" / "busybox")
    (root / "bin" / "sh").symlink_to("busybox")
    shutil.copy(GUEST / "init.sh", root / "init")
    (root / "init").chmod(0o755)
    for module in MODULES:
        (path,) = kernel.rglob(f"{module}.ko")
        shutil.copy(path, root / "modules")
    (root / "modules" / "order").write_text("".join(f"{module}\n" for module in MODULES))
    shutil.copytree(GUEST, root / "guest")
    for name, content in files.items():
        target = root / "guest" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    names = "\n".join(str(path.relative_to(root)) for path in [root, *sorted(root.rglob("*"))])
    archive = scratch / "first.cpio"
    with archive.open("wb") as out:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], cwd=root, input=names.encode(), stdout=out, check=True)
    return archive


def run(files: Mapping[str, bytes], scratch: Path) -> dict[str, str]:
    """Boot it with more files below /guest, and return what its scripts said, part by part."""
    missing = sorted(package for program, package in PROGRAMS.items() if not shutil.which(program))
    if missing:
        pytest.skip(f"install {' '.join(missing)}")
    kernel = _kernel()
    slurm, jail = images.machine_root(), images.jail_root()
    disks = (_disk(slurm, f"disk-{slurm.name}"), _disk(jail, f"disk-{jail.parent.name}"))
    (program,) = (kernel / "boot").glob("vmlinuz-*")
    command = [
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2048", "-nodefaults", "-no-reboot"),
        *("-display", "none", "-serial", "stdio", "-kernel", str(program), "-initrd", str(_first_files(kernel, files, scratch))),
        *("-append", COMMAND_LINE),
        *(word for disk in disks for word in ("-drive", f"file={disk},format=raw,if=virtio,snapshot=on")),
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=900, check=False)
    # The kernel's own messages come between.
    said = re.sub(r"^\[ *\d+\.\d+\] .*\n", "", done.stdout.replace("\r", ""), flags=re.MULTILINE)
    assert "\n@@ end\n" in said, f"the machine did not come to its end: {said[-4000:]}{done.stderr}"
    parts = re.split(r"^@@ (\S+)\n", said, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
