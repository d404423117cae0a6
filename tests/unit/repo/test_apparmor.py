# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The AppArmor profiles do what docs/security.md says. No kernel of the tests enforces them: what their compiled form decides is looked up in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .apparmor import FEATURES, Profile
from .repository import ROOT

NAMES = ("corral-worker", "corral-login")
FOLDER = ROOT / "roles" / "node_profiles" / "files" / "apparmor"
# Where paths of the jail are seen: as the pod's root, as a task's, and before it is the root.
ROOTS = ("", "/mnt/jail", "/mnt/jails/old")
READ_ONLY = (
    *("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname"),
    *(
        "/proc/sys/vm/swappiness",
        "/proc/sys/fs/binfmt_misc/register",
        "/proc/fs/xfs/stat",
        "/proc/irq/default_smp_affinity",
        "/proc/bus/pci/x",
    ),
    *("/sys/kernel/profiling", "/sys/module/x/parameters/y", "/sys/class/net/eth0/mtu", "/sys/fs/bpf/x", "/sys/power/state"),
)
HIDDEN = ("/proc/kcore", "/proc/sysrq-trigger", "/proc/keys", "/sys/firmware/efi", "/sys/kernel/debug/x", "/dev/mem", "/dev/kmsg")
# A container's own: its namespaces', and everything that a user's program touches.
OPEN = (
    "/proc/sys/kernel/shmmax",
    "/proc/sys/kernel/msgmnb",
    "/proc/sys/kernel/sem",
    "/proc/sys/kernel/shm_rmid_forced",
    "/proc/sys/net/core/somaxconn",
    "/proc/1/oom_score_adj",
)
FREE = (
    "/home/alice/program",
    "/usr/bin/python3",
    "/tmp/x",
    "/dev/null",
    "/dev/shm/x",
    "/dev/nvidia0",
    "/var/spool/slurmd/job00001/slurm_script",
)
DENIED_CAPABILITIES = {"sys_module": 16, "sys_rawio": 17, "sys_boot": 22, "sys_time": 25, "mac_override": 32, "mac_admin": 33}
NEEDED_CAPABILITIES = {"chown": 0, "setpcap": 8, "sys_chroot": 18, "sys_ptrace": 19, "sys_admin": 21, "audit_write": 29}


@pytest.fixture(scope="module")
def parser() -> str:
    found = shutil.which("apparmor_parser", path="/usr/sbin:/sbin:/usr/bin")
    if not found or not FEATURES.exists():
        pytest.skip("apparmor_parser is not installed: make prerequisites")
    return found


@pytest.fixture(scope="module", params=NAMES)
def profile(request: pytest.FixtureRequest, parser: str) -> Profile:
    assert f"\nprofile {request.param} flags=" in (FOLDER / request.param).read_text(encoding="utf-8")
    return Profile.compile(parser, FOLDER / request.param)


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("owner", [True, False], ids=["owner", "other"])
def test_paths(profile: Profile, root: str, owner: bool) -> None:
    assert {path: profile.path(root + path, owner) for path in READ_ONLY if "w" in profile.path(root + path, owner)} == {}
    assert {path: profile.path(root + path, owner) for path in HIDDEN if profile.path(root + path, owner)} == {}
    assert {path: profile.path(root + path, owner) for path in OPEN + FREE if profile.path(root + path, owner) != "rwx"} == {}


def test_what_is_read_only_can_be_read(profile: Profile) -> None:
    assert [path for path in READ_ONLY if "r" not in profile.path(path)] == []


def test_the_way_into_the_jail_is_open(profile: Profile) -> None:
    assert profile.pivot("/mnt/jail/", "/mnt/jail/")
    assert profile.mount("/mnt/jail/proc/", "proc", "proc") and profile.mount("/", "", "") and profile.umount("/")


def test_capabilities(profile: Profile) -> None:
    assert [name for name, number in DENIED_CAPABILITIES.items() if profile.capability(number)] == []
    assert [name for name, number in NEEDED_CAPABILITIES.items() if not profile.capability(number)] == []


def test_only_workers_make_cgroups(parser: str) -> None:
    """slurmd keeps its jobs there (cgroup v2)."""
    worker, login = (Profile.compile(parser, FOLDER / name) for name in NAMES)
    assert (worker.path("/sys/fs/cgroup/job_1/cgroup.procs"), login.path("/sys/fs/cgroup/job_1/cgroup.procs")) == ("rwx", "rwx")


def test_a_profile_without_the_rule_would_be_noticed(parser: str, tmp_path: Path) -> None:
    text = (FOLDER / NAMES[0]).read_text(encoding="utf-8")
    worse = tmp_path / "worse"
    dropped = ("deny @{CORRAL_ROOT}/proc/sys/kernel/", "pivot_root,", "deny capability sys_module,")
    worse.write_text("\n".join(line for line in text.splitlines() if not line.strip().startswith(dropped)))
    profile = Profile.compile(parser, worse)
    assert "w" in profile.path("/proc/sys/kernel/core_pattern")
    assert not profile.pivot("/mnt/jail/", "/mnt/jail/")
    assert profile.capability(DENIED_CAPABILITIES["sys_module"])
