# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""up, down and status: the parts in their order, started together where they can be."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from . import build, certificates, control_plane, images, network, nodes, prerequisites, processes
from .health import Api
from .processes import NotWell, Part
from .state import LAB_FILES, Lab, LabError, Paths, boot_id, lab_hash, node_count

START_SECONDS = 60.0
# How long a part that lives but is not well may take to get well by itself before it is started anew.
PATIENCE_SECONDS = 15.0


@dataclass(frozen=True)
class Status:
    """A line of `status`."""

    name: str
    pid: int | None
    state: str
    why: str = ""


class LabParts:
    """Every part of one lab, and the questions that tell whether it is well."""

    def __init__(self, paths: Paths, lab: Lab) -> None:
        self.paths, self.lab = paths, lab
        # Set when one part failed, so that nobody waits for the others.
        self.given_up = threading.Event()
        self.api = Api(lab.address, control_plane.API_PORT, paths.pki)
        self.etcd = control_plane.etcd_part(paths)
        self.api_server = control_plane.api_server_part(paths, lab.address, self.api)
        self.controllers = [
            control_plane.controller_manager_part(paths),
            control_plane.scheduler_part(paths),
            control_plane.proxy_part(paths),
            control_plane.dns_part(paths, lab.address),
            control_plane.policies_part(paths),
        ]
        self.containerds = [nodes.containerd_part(paths, name) for name in lab.nodes]
        self.kubelets = [nodes.kubelet_part(paths, name, index, lab.address) for index, name in enumerate(lab.nodes, 1)]

    def all(self) -> list[Part]:
        return [self.etcd, self.api_server, *self.controllers, *self.containerds, *self.kubelets]

    def part_status(self, part: Part) -> Status:
        identity = processes.running(self.paths, part.name)
        if identity is None:
            before = processes.recorded(self.paths, part.name)
            return Status(part.name, None, "stopped", f"process {before.pid} is gone" if before else "it was never started")
        why = part.health()
        return Status(part.name, identity.pid, "unwell" if why else "running", why or "")

    def statuses(self) -> list[Status]:
        """All parts, then the nodes, then the network; asked side by side."""

        def node_status(name: str) -> Status:
            why = self.api.node_ready(name)
            return Status(name, None, "unwell" if why else "ready", why or "")

        with ThreadPoolExecutor(16) as pool:
            asked: list[Future[Status]] = [pool.submit(self.part_status, part) for part in self.all()]
            asked += [pool.submit(node_status, name) for name in self.lab.nodes]
            asked.append(pool.submit(network_status))
            return [one.result() for one in asked]


def network_status() -> Status:
    why = network.rules_missing() or (None if network.forwarding() else "net.ipv4.ip_forward is 0")
    return Status("network", None, "unwell" if why else "ready", why or "")


def healthy(statuses: Sequence[Status]) -> bool:
    return all(status.state in ("running", "ready") for status in statuses)


def load_lab(paths: Paths) -> Lab:
    """The lab that is here. Raises LabError when there is none."""
    lab = Lab.load(paths)
    if lab is None:
        raise LabError(f"There is no lab in {paths.root}; start one with: lab/lab up")
    return lab


def status(paths: Paths) -> list[Status]:
    return LabParts(paths, load_lab(paths)).statuses()


def up(paths: Paths, environment: dict[str, str]) -> None:
    """Make the wanted lab be there and well: start it, mend it, replace another one, or find that nothing is to do."""
    started = time.monotonic()
    count = node_count(environment)
    address = network.machine_address()
    wanted = lab_hash(count, address)
    lab = Lab.load(paths)
    if lab and lab.content_hash == wanted and lab.boot_id == boot_id() and healthy(LabParts(paths, lab).statuses()):
        print(f"lab: running, {count} node{'s' if count > 1 else ''}, {control_plane.server(address)}, from {lab.checkout}")
        return
    prerequisites.check(paths, new=lab is None)
    programs, pause = build.programs(paths), build.pause_archive(paths)
    if lab and lab.content_hash != wanted:
        print(
            f"lab: the running lab is another one (its files, its address or LAB_NODES differ; from {lab.checkout}); replacing it.",
            flush=True,
        )
        down(paths)
        lab = None
    if lab is None:
        lab = create(paths, wanted, count, address)
    elif lab.boot_id != boot_id():
        print("lab: the machine was started anew since; bringing the lab back.", flush=True)
        nodes.forget_boot(paths)
        lab.kernel_values, lab.boot_id = network.read_kernel_values(), boot_id()
        lab.save(paths)
    bring_up(LabParts(paths, lab), programs, pause)
    print(f"lab: up in {time.monotonic() - started:.1f} s, {count} node{'s' if count > 1 else ''}, {control_plane.server(address)}")


def create(paths: Paths, wanted: str, count: int, address: str) -> Lab:
    """The state folder of a new lab, with a record of how the machine was before anything of it is changed."""
    network.check_ranges_free()
    network.check_no_other_kube_proxy()
    if paths.root.exists() and any(paths.root.iterdir()) and not ours(paths.root):
        raise LabError(f"{paths.root} holds files that are not the lab's; empty it, or set CORRAL_LAB_DIR to another folder.")
    lab = Lab(
        content_hash=wanted,
        nodes=[f"node{index}" for index in range(1, count + 1)],
        address=address,
        checkout=str(LAB_FILES.parent),
        boot_id=boot_id(),
        kernel_values=network.read_kernel_values(),
        made_folders=[folder for folder in nodes.FIXED_FOLDERS if not Path(folder).exists()],
    )
    present = network.tables_present()
    lab.made_tables = [
        f"{p} {t}" for p in network.iptables_programs() for t in ("raw", "mangle", "nat", "filter") if f"{p} {t}" not in present
    ]
    processes.check_ports(LabParts(paths, lab).all())
    paths.root.mkdir(parents=True, exist_ok=True)
    paths.root.chmod(0o755)
    lab.save(paths)
    return lab


def ours(root: Path) -> bool:
    """Whether a folder without a lab's record looks like one all the same (an interrupted `down`)."""
    return (root / "pki").is_dir() or (root / "nodes").is_dir() or (root / ".lab.json.new").exists()


def prepare(parts: LabParts, programs: Mapping[str, Path]) -> None:
    """Everything that the parts read, written before they start: programs, certificates, settings. What is right already stays."""
    paths, lab = parts.paths, parts.lab
    for folder in (paths.bin, paths.run, paths.log, paths.config):
        folder.mkdir(parents=True, exist_ok=True)
    for name, target in programs.items():
        link = paths.bin / name
        if not link.is_symlink() or link.readlink() != target:
            link.unlink(missing_ok=True)
            link.symlink_to(target)
    requests = certificates.requests(lab.address, network.API_SERVICE_ADDRESS, socket.gethostname(), lab.nodes)
    certificates.make(paths.pki, requests)
    server = control_plane.server(lab.address)
    for user in (*control_plane.CLIENTS, *lab.nodes):
        certificates.write_kubeconfig(paths.config / f"{user}.kubeconfig", paths.pki, server, user)
    certificates.write_kubeconfig(paths.kubeconfig, paths.pki, server, "admin")
    control_plane.write_configs(paths, lab.address)
    for index, name in enumerate(lab.nodes, 1):
        nodes.write_configs(paths, name, index, lab.address)


def bring_up(parts: LabParts, programs: Mapping[str, Path], pause: Path) -> None:
    """Start what does not run, start anew what does not get well, and wait until all is well."""
    prepare(parts, programs)
    network.forward()
    if network.rules_missing():
        network.add_rules()
    with ThreadPoolExecutor(8) as pool:
        try:
            start_all(parts, pool, pause)
        except BaseException:
            parts.given_up.set()
            raise
    for name in parts.lab.nodes:
        wait_for(parts, f"{name}-kubelet", f"node {name}", functools.partial(parts.api.node_ready, name))
    wait_for(
        parts,
        "kube-controller-manager",
        "the default service account",
        lambda: (
            parts.api.exists("/api/v1/namespaces/default/serviceaccounts/default")
            or parts.api.exists("/api/v1/namespaces/default/configmaps/kube-root-ca.crt")
        ),
    )
    network.put_back_kernel_values(parts.lab.kernel_values, [name for name in network.KERNEL_VALUES if name != "net/ipv4/ip_forward"])


def start_all(parts: LabParts, pool: ThreadPoolExecutor, pause: Path) -> None:
    """Every part, each as soon as what it needs is there. The first failure is raised, not the ones that follow from it."""
    runtimes = [pool.submit(start_runtime, parts, name, part, pause) for name, part in zip(parts.lab.nodes, parts.containerds, strict=True)]
    database = pool.submit(ensure, parts, parts.etcd)
    ensure(parts, parts.api_server, after=database)
    control_plane.grant_dns(parts.api)
    work = [pool.submit(ensure, parts, part) for part in parts.controllers]
    for runtime, part in zip(runtimes, parts.kubelets, strict=True):
        runtime.result()
        work.append(pool.submit(ensure, parts, part))
    for one in as_completed(work):
        one.result()


def start_runtime(parts: LabParts, name: str, part: Part, pause: Path) -> None:
    ensure(parts, part)
    images.load(parts.paths, [name], [pause], report=False)


def ensure(parts: LabParts, part: Part, after: Future[None] | None = None) -> None:
    """Make a part run and be well. One that lives and does not get well in time is started anew, once."""
    paths = parts.paths
    identity = processes.running(paths, part.name)
    if identity:
        try:
            processes.wait_until(part.name, part.health, PATIENCE_SECONDS)
            return
        except NotWell as error:
            print(f"lab: {error}; starting it anew.", flush=True)
            processes.stop([identity])
    processes.check_ports([part])
    processes.start(paths, part)
    if after is not None:
        after.result()
    wait_for(parts, part.name, part.name, part.health)


def wait_for(parts: LabParts, part_name: str, what: str, check: Callable[[], str | None]) -> None:
    """Wait for something that a part brings about; when the part ends meanwhile, say so at once with the end of its log."""

    def check_alive() -> str | None:
        if parts.given_up.is_set():
            raise LabError(f"{what} was given up, since another part failed")
        if processes.running(parts.paths, part_name) is None:
            tail = processes.log_tail(parts.paths, part_name)
            raise LabError(f"{part_name} ended while starting; the end of {parts.paths.log}/{part_name}.log:\n{tail}")
        return check()

    try:
        processes.wait_until(what, check_alive, START_SECONDS)
    except NotWell as error:
        tail = processes.log_tail(parts.paths, part_name)
        log = f"{parts.paths.log}/{part_name}.log"
        raise LabError(f"{error}\nThe end of {log}:\n{tail}\nTry lab/lab up again; lab/lab down and up make a new lab.") from error


def down(paths: Paths) -> None:
    """Take the lab away: processes, containers, mounts, networks, rules, cgroups, files. Works on any remains of one, and twice."""
    lab = Lab.load(paths)
    if lab is None and not (paths.root.is_dir() and ours(paths.root)):
        print(f"lab: there is none in {paths.root}.")
        return
    started = time.monotonic()
    daemons = processes.marked(paths)
    # Kubelets and controllers first, so that nobody starts a container again; containerd and the shims after the containers.
    runtime = [i for i in daemons if program_name(i.pid).startswith("containerd")]
    processes.stop([i for i in daemons if i not in runtime], patience=0.5)
    nodes.kill_containers(paths.name)
    sockets = nodes.shim_sockets(paths)
    processes.stop(runtime, patience=0.5)
    processes.stop(processes.marked(paths), patience=0)
    nodes.kill_containers(paths.name)
    nodes.unmount_all(paths.root)
    network.remove_pod_interfaces()
    network.remove_rules(lab.made_tables if lab else [])
    nodes.remove_cgroups(paths.name)
    if lab and lab.boot_id == boot_id():
        network.put_back_kernel_values(lab.kernel_values)
    nodes.remove_fixed_folders(paths, lab.made_folders if lab else [], sockets)
    remove_tree(paths.root)
    print(f"lab: gone in {time.monotonic() - started:.1f} s; what was built stays in {paths.cache}.")


def program_name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def remove_tree(root: Path) -> None:
    """Remove the state folder, its record last, so that an interrupted `down` can be run again."""
    if nodes.mounts_below(root, Path("/proc/self/mountinfo").read_text()):
        raise LabError(f"Something is mounted below {root}; unmount it and run lab/lab down again.")
    for entry in sorted(os.scandir(root), key=lambda e: e.name == "lab.json"):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()
    # The folder stays where it is a disk of its own.
    with contextlib.suppress(OSError):
        root.rmdir()
