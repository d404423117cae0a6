# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker's pod under corral's AppArmor profile and seccomp filter together, with a cgroup tree of its own (v2), as most Kubernetes nodes have them.

The lab's machine may have neither. So one machine is booted, its scripts try all of it (guest/attempts.sh), and each test checks its part of their output.
"""

from __future__ import annotations

import shutil
from errno import EAGAIN, ENOSYS, EPERM
from pathlib import Path

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve

from ..unit.plugins.module_utils._cluster.documents import good
from ..unit.repo.apparmor import compiled
from . import machine, seccomp

FILES = Path(__file__).resolve().parents[2] / "roles" / "node_profiles" / "files"
PROFILES = FILES / "apparmor"
HOSTS = "127.0.0.1 localhost\n192.0.2.1 vm-controller-0 vm-controller.ns.svc.cluster.local vm-n-0.vm-worker.ns.svc.cluster.local\n"


def files() -> dict[str, bytes]:
    """The configuration of a cluster with one node, as the collection writes it, the pod's capabilities, its profiles and its filter."""
    parser = shutil.which("apparmor_parser", path="/usr/sbin:/sbin:/usr/bin")
    if not parser:
        pytest.skip("apparmor_parser is not installed: make prerequisites")
    document = good()
    document["metadata"]["name"] = "vm"
    document["spec"]["nodeSets"] = [
        {"name": "n", "replicas": 1, "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}, "gpu": {"vendor": "nvidia", "count": 2}}
    ]
    document["spec"]["partitions"] = [{"name": "main", "default": True}]
    document["spec"]["login"] = {"limits": {"memory": "200Mi", "cpu": "500m", "processes": 40}}
    cluster = resolve.model(document).to_dict()
    rights = {"worker": cluster["workers"]["capabilities"], "login": cluster["login"]["capabilities"]}
    return {
        "hosts": HOSTS.encode(),
        "user-limits": cluster["login"]["user_limits"].encode(),
        **{f"capabilities.{kind}": ",+".join(["-all", *(name.lower() for name in names)]).encode() for kind, names in rights.items()},
        **{f"{kind}.bpf": seccomp.compiled(FILES / "seccomp" / f"{kind}.json") for kind in rights},
        **{f"slurm/{name}": text.encode() for name, text in cluster["config"]["files"].items()},
        **{f"profiles/{path.name}": compiled(parser, path) for path in PROFILES.iterdir()},
    }


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return machine.run(files(), tmp_path_factory.mktemp("machine"))


def test_the_kernel_takes_the_profiles(said: dict[str, str]) -> None:
    assert sorted(said["profiles"].splitlines()) == ["corral-login (enforce)", "corral-worker (enforce)"]


def test_the_pods_own_processes_leave_the_root_of_its_cgroups(said: dict[str, str]) -> None:
    """Else no controller could be had below it."""
    assert "cannot be used" not in said["log-of-worker"], said["log-of-worker"]
    processes, controllers = said["pod"].splitlines()[:-1], set(said["pod"].splitlines()[-1].split())
    assert processes == [] and controllers >= {"cpuset", "cpu", "memory", "pids"}


def test_a_step_has_a_cgroup_and_runs_in_the_jail_under_the_profile(said: dict[str, str]) -> None:
    cgroup, profile, *rest = said["step"].splitlines()
    assert cgroup.startswith("0::/") and "/job_" in cgroup and "/step_0/user/task_0" in cgroup
    assert (profile, rest) == ("corral-worker (enforce)", ["ada", "jail"])


def test_the_filter_holds_beside_the_profile(said: dict[str, str]) -> None:
    """Two that are an administrator's, and one that no program has to have; the step's entry, above, went through both."""
    mode, *calls = said["filter"].splitlines()
    assert mode.split() == ["Seccomp:", "2"] and calls == [f"246 {EPERM}", f"248 {ENOSYS}", f"172 {EPERM}"]


def test_a_job_has_the_cores_and_the_memory_that_it_asked_for(said: dict[str, str]) -> None:
    assert said["cores"].split() == ["1"]
    assert "had it" not in said["memory"] and "oom" in said["memory"].lower(), said["memory"]


def test_a_job_opens_the_devices_that_it_asked_for_and_no_others(said: dict[str, str]) -> None:
    """ConstrainDevices, by bpf in the job's cgroup, from a pod that is not privileged; of device files that gres.conf names."""
    refused = "Operation not permitted"
    assert said["one-gpu"].count(refused) == 1 and "nvidia1" in said["one-gpu"], said["one-gpu"]
    assert [line for line in said["one-gpu"].splitlines() if refused not in line] == ["gpus: 0", "1", "0"], said["log-of-worker"]
    assert said["no-gpu"].count(refused) == 2, said["no-gpu"]
    assert [line for line in said["no-gpu"].splitlines() if refused not in line] == ["gpus: ", "0", "0"]


def test_a_job_makes_no_cgroups(said: dict[str, str]) -> None:
    assert said["cgroups"].count("Read-only file system") == 2, said["cgroups"]


def test_ssh_leads_into_the_cgroup_of_ones_job(said: dict[str, str]) -> None:
    assert "you have no active jobs on this node" in said["ssh-without-job"], said["ssh-without-job"]
    cgroup, profile, *rest = said["ssh"].splitlines()
    assert "/job_" in cgroup and "/step_extern/" in cgroup, said["ssh"]
    assert (profile, *rest) == ("corral-worker (enforce)", "ada", "jail", "Seccomp:\t2")


def test_what_a_user_can_have_of_a_login_node_is_his_cgroups(said: dict[str, str]) -> None:
    assert said["login"].splitlines() == ["0::/user-10001", "corral-login (enforce)", str(200 << 20), "50000 100000", "40", "jail"], said[
        "log-of-login"
    ]


def test_who_takes_more_of_a_login_node_is_alone_hit_by_it(said: dict[str, str]) -> None:
    """Three processes of 90 MiB have no room in 200; sshd and the next session do not notice."""
    lines = said["login-memory"].splitlines()
    assert "ended 137" in lines and lines.count("had it") < 3, said["login-memory"]
    made, error = said["login-processes"].split()
    assert int(made) < 40 and int(error) == EAGAIN
    welcome, *own = said["login-after"].split()
    assert welcome == "welcome" and own == [], "the pod's own processes have left the root of its cgroups"


def test_root_of_the_jail_stays_in_his_cgroup(said: dict[str, str]) -> None:
    assert "0\n0::/user-10001\n" in said["login-root"], said["login-root"]
    assert said["login-root"].count("Read-only file system") == 3, said["login-root"]
    assert "mount:" in said["login-root"] or "permission denied" in said["login-root"].lower()


def test_the_profile_refuses_the_nodes_knobs_to_root_of_the_pod(said: dict[str, str]) -> None:
    assert said["unconfined"].split() == ["written"], "else the rest would prove nothing"
    assert said["confined"].splitlines()[0] == "corral-worker (enforce)"
    assert "Permission denied" in said["confined"] and "written" not in said["confined"]
    assert said["hidden"].count("Permission denied") == 2, said["hidden"]
    assert said["own"].split() == ["written"], "the pod's own shared memory"
