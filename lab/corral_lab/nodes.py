# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes: a containerd and a kubelet each, with folders, sockets, ports and pod addresses of their own; and what they leave behind."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from . import network
from .health import http_answer, socket_answer
from .images import PAUSE_IMAGE
from .processes import Identity, Part, identify, stop
from .state import LabError, Paths, write_file

CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CNI_PLUGINS = ("ptp", "host-local", "loopback")
# Folders that programs of Kubernetes use by a fixed name, whatever their settings say: the kubelet's device plugin socket, its links to
# containers' logs, libcni's results, the sockets of containerd's shims. `down` removes those that were not there before `up`.
FIXED_FOLDERS = (
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
    "/var/lib/cni",
    "/run/containerd",
    "/run/netns",
    "/var/run/kubernetes",
)
MNT_DETACH = 2
CGROUPS = Path("/sys/fs/cgroup")


def kubelet_port(index: int) -> int:
    return 16300 + index


def kubelet_health_port(index: int) -> int:
    return 16310 + index


def cni_folder() -> Path:
    """Where the CNI plugins lie: Debian's folder, or upstream's. Raises LabError."""
    for folder in CNI_FOLDERS:
        if all((folder / plugin).exists() for plugin in CNI_PLUGINS):
            return folder
    raise LabError("The CNI plugins ptp, host-local and loopback are not installed; run lab/lab prerequisites --install.")


def snapshotter(paths: Paths) -> str:
    """overlayfs where the state folder's file system can carry one (an overlay itself cannot), else copies."""
    with tempfile.TemporaryDirectory(dir=paths.root) as folder:
        for name in ("lower", "upper", "work", "merged"):
            Path(folder, name).mkdir()
        options = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
        done = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, f"{folder}/merged"], capture_output=True, check=False)
        if done.returncode:
            return "native"
        subprocess.run(["umount", f"{folder}/merged"], capture_output=True, check=False)
        return "overlayfs"


def containerd_config(folder: Path, bin_folder: Path, snapshotter_name: str) -> str:
    """Settings of containerd 2. The shim and runc are those of the lab, which come first in its PATH."""
    return f"""version = 3
root = "{folder}/containerd"
state = "{folder}/run"
oom_score = 0
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.blockfile", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.nri.v1.nri",
]

[grpc]
  address = "{folder}/containerd.sock"

[ttrpc]
  address = "{folder}/containerd.sock.ttrpc"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter_name}"

  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  # A machine whose root lacks CAP_SYS_RESOURCE refuses a lower oom_score_adj, and then no pod starts.
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  # Network namespaces as mounts below the state folder, so that they are seen to be the lab's.
  netns_mounts_under_state_dir = true

  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{bin_folder}"]
    conf_dir = "{folder}/cni"
    max_conf_num = 1

  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"

    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        Root = "{folder}/runc"
        SystemdCgroup = false
"""


def kubelet_config(paths: Paths, name: str, index: int, address: str) -> str:
    """KubeletConfiguration as JSON. Where it leaves the defaults: many nodes on one machine, that may be old, busy and fairly full."""
    folder = paths.node(name)
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "port": kubelet_port(index),
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": kubelet_health_port(index),
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(paths.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(paths.pki / f"{name}.crt"),
        "tlsPrivateKeyFile": str(paths.pki / f"{name}.key"),
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "podLogsDir": str(folder / "pod-logs"),
        "volumePluginDir": str(folder / "volume-plugins"),
        "clusterDNS": [address],
        "clusterDomain": "cluster.local",
        "resolvConf": str(paths.config / "resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{paths.name}/{name}",
        "failCgroupV1": False,
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1Gi", "nodefs.inodesFree": "1%", "imagefs.available": "1Gi"},
        # Images come from `lab load` and could not be fetched again.
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
        # Changed ConfigMaps and Secrets reach pods sooner than by the default of a minute; tests wait for them.
        "syncFrequency": "10s",
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 1000,
        "eventRecordQPS": 500,
        "eventBurst": 1000,
    }
    return json.dumps(document, indent=1) + "\n"


def write_configs(paths: Paths, name: str, index: int, address: str) -> None:
    """A node's files, before its parts are started."""
    folder = paths.node(name)
    make_cgroups(paths.name, name)
    for sub in ("cni", "kubelet", "pod-logs", "volume-plugins"):
        (folder / sub).mkdir(parents=True, exist_ok=True)
    write_file(folder / "containerd.toml", containerd_config(folder, cni_folder(), snapshotter(paths)))
    write_file(folder / "cni" / "10-corral-lab.conflist", network.cni_config(paths.name, folder / "addresses", index))
    write_file(folder / "kubelet.json", kubelet_config(paths, name, index, address))


def make_cgroups(lab: str, node: str, root: Path = CGROUPS) -> None:
    """A node's cgroup, below which the kubelet keeps its pods', in every hierarchy; the kubelet wants it to be there."""
    if (root / "cgroup.controllers").exists():
        folder = root
        for name in (lab, node):
            for controller in (folder / "cgroup.controllers").read_text().split():
                with contextlib.suppress(OSError):
                    (folder / "cgroup.subtree_control").write_text(f"+{controller}")
            folder /= name
            folder.mkdir(exist_ok=True)
        return
    for hierarchy in (path for path in root.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()):
        folder = hierarchy
        for name in (lab, node):
            parent, folder = folder, folder / name
            folder.mkdir(exist_ok=True)
            # A new cpuset of version 1 has neither processors nor memory and takes no process.
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if (folder / setting).exists() and not (folder / setting).read_text().strip():
                    (folder / setting).write_text((parent / setting).read_text())


def containerd_part(paths: Paths, name: str) -> Part:
    folder = paths.node(name)
    command = ("containerd", "--config", f"{folder}/containerd.toml", "--log-level", "warn")
    return Part(f"{name}-containerd", command, lambda: socket_answer(folder / "containerd.sock"))


def kubelet_part(paths: Paths, name: str, index: int, address: str) -> Part:
    folder = paths.node(name)
    command = (
        f"{paths.bin}/kubelet",
        f"--config={folder}/kubelet.json",
        f"--kubeconfig={paths.config}/{name}.kubeconfig",
        f"--root-dir={folder}/kubelet",
        f"--cert-dir={folder}/kubelet-pki",
        f"--hostname-override={name}",
        f"--node-ip={address}",
        "--node-labels=corral.hpc/lab=true",
    )
    return Part(
        f"{name}-kubelet",
        command,
        lambda: http_answer(f"http://127.0.0.1:{kubelet_health_port(index)}/healthz"),
        ((address, kubelet_port(index)), ("127.0.0.1", kubelet_health_port(index))),
    )


# What is left of nodes whose processes are gone.


def cgroup_folders(name: str, root: Path = CGROUPS) -> list[Path]:
    """The lab's folder in every cgroup hierarchy of this machine, v1 or v2."""
    return [path for path in (root / name, *sorted(root.glob(f"*/{name}"))) if path.is_dir()]


def _cgroup_tree(folder: Path) -> Iterator[Path]:
    """Folders of a cgroup, deepest first; they may vanish while one looks."""
    for directory, _names, _files in os.walk(folder, topdown=False):
        yield Path(directory)


def container_processes(name: str) -> list[Identity]:
    """Every process in a cgroup of the lab: all processes of all containers, and none else."""
    pids: set[int] = set()
    for top in cgroup_folders(name):
        for folder in _cgroup_tree(top):
            with contextlib.suppress(OSError):
                pids.update(int(line) for line in (folder / "cgroup.procs").read_text().split())
    # A process of another pid namespace reads as 0.
    return [identity for identity in map(identify, sorted(pids - {0})) if identity]


def kill_containers(name: str) -> None:
    """End every process of every container. New ones may be born meanwhile, so until none is left."""
    for _ in range(20):
        processes = container_processes(name)
        if not processes:
            return
        stop(processes, patience=0)
    raise LabError("Containers of the lab keep starting processes; is one of its kubelets or shims still running? Run lab/lab down again.")


def remove_cgroups(name: str) -> None:
    """Remove the lab's cgroups, which must be empty of processes."""
    deadline = time.monotonic() + 5
    while True:
        for top in cgroup_folders(name):
            for folder in _cgroup_tree(top):
                with contextlib.suppress(OSError):
                    folder.rmdir()
        left = cgroup_folders(name)
        if not left:
            return
        if time.monotonic() > deadline:
            raise LabError(
                f"{left[0]} cannot be removed: processes are in it or below (see cgroup.procs there); end them and run lab/lab down again."
            )
        time.sleep(0.05)


def mounts_below(root: Path, mountinfo: str) -> list[str]:
    """Mount points below a folder, the latest first, as /proc/self/mountinfo tells them (spaces are written as \\040 there)."""
    points = []
    for line in mountinfo.splitlines():
        point = line.split()[4].encode().decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")
        if point.startswith(f"{root}/"):
            points.append(point)
    return points[::-1]


def unmount_all(root: Path) -> None:
    """Unmount everything below a folder. Raises LabError if something stays: what is mounted there must not be removed with it."""
    libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
    for _ in range(5):
        points = mounts_below(root, Path("/proc/self/mountinfo").read_text())
        if not points:
            return
        for point in points:
            libc.umount2(os.fsencode(point), MNT_DETACH)
    raise LabError(f"{points[0]} cannot be unmounted ({os.strerror(ctypes.get_errno())}); unmount it and run lab/lab down again.")


def shim_sockets(paths: Paths) -> list[Path]:
    """Sockets of containerd's shims lie in /run/containerd/s whatever containerd's state folder is; each bundle knows its own."""
    found = []
    for address in paths.root.glob("nodes/*/run/io.containerd.runtime.v2.task/*/*/address"):
        with contextlib.suppress(OSError):
            text = address.read_text().strip()
            if text.startswith("unix:///run/containerd/s/"):
                found.append(Path(text.removeprefix("unix://")))
    return found


def forget_boot(paths: Paths) -> None:
    """After a reboot: what containerd believes to be running is not, and its state folder would have been in /run on a usual machine."""
    for folder in paths.root.glob("nodes/*"):
        unmount_all(folder / "run")
        for name in ("run", "runc", "containerd.sock", "containerd.sock.ttrpc"):
            path = folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def remove_fixed_folders(paths: Paths, made: list[str], sockets: list[Path]) -> None:
    """The lab's own things in folders of fixed names; then those of the folders that `up` found missing, if nobody else uses them now."""
    for path in sockets:
        path.unlink(missing_ok=True)
    if "/run/containerd" in made:
        # Shims that were killed left sockets that no bundle names any more.
        for path in Path("/run/containerd/s").glob("*"):
            if path.is_socket() and socket_answer(path):
                path.unlink(missing_ok=True)
    # libcni's results are of the lab's own network or, with the same pod's number in its name, of the loopback's.
    results = Path("/var/lib/cni/results")
    for result in results.glob(f"{paths.name}-*-eth0"):
        pod = result.name.removeprefix(f"{paths.name}-").removesuffix("-eth0")
        (results / f"cni-loopback-{pod}-lo").unlink(missing_ok=True)
        result.unlink(missing_ok=True)
    links = Path("/var/log/containers")
    for link in links.iterdir() if links.is_dir() else ():
        if link.is_symlink() and str(link.readlink()).startswith(f"{paths.root}/"):
            link.unlink(missing_ok=True)
    if "/var/lib/kubelet" in made:
        for name in ("kubelet.sock", "kubelet_internal_checkpoint", "DEPRECATION"):
            Path("/var/lib/kubelet/device-plugins", name).unlink(missing_ok=True)
    for folder in made:
        for directory, _names, _files in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):
                Path(directory).rmdir()
