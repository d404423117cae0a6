# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory of a real cluster, and Ansible's own modules in its pods and in the jail."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import Cluster, eventually

pytestmark = pytest.mark.lab
NAME, NAMESPACE = "inventory", "test-inventory"
WORKERS = [f"{NAME}-{node}" for node in ("cpu-0", "cpu-1", "extra-0")]


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str, int], Cluster]) -> Cluster:
    made = make_cluster(NAME, 30760)
    made.spec["partitions"].append({"name": "side", "nodeSets": ["extra"]})
    run = made.site()
    assert run.rc == 0, run.output
    return made


def ansible(cluster: Cluster, program: str, *arguments: str, **source: Any) -> subprocess.CompletedProcess[str]:
    """Run a program of Ansible's on the inventory."""
    path = cluster.directory / "lab.slurm.yml"
    path.write_text(yaml.safe_dump({"plugin": "corral.slurm.slurm", "namespaces": [NAMESPACE], "strict": True, **source}))
    return subprocess.run(
        [program, "-i", str(path), *arguments],
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def listed(cluster: Cluster) -> dict[str, Any]:
    done = ansible(cluster, "ansible-inventory", "--list")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    # What a cluster says is never a template, which the output marks.
    found: dict[str, Any] = json.loads(done.stdout, object_hook=lambda one: one.get("__ansible_unsafe", one))
    return found


def test_nodes_by_partition_state_feature_and_set(cluster: Cluster) -> None:
    cluster.module("slurm_node", nodes="cpu-1", state="drained", reason="new {{ fans }}")
    found = listed(cluster)
    hosts = {name: sorted(found[name]["hosts"]) for name in found if "hosts" in found[name]}
    assert hosts["slurm_controllers"] == [f"{NAME}-controller-0"] and hosts["slurm_logins"] == [f"{NAME}-login-0"]
    assert hosts["slurm_node_set_cpu"] == hosts["slurm_feature_plain"] == WORKERS[:2]
    assert (hosts["slurm_partition_main"], hosts["slurm_partition_side"]) == (WORKERS, WORKERS[2:])
    assert (hosts["slurm_state_idle"], hosts["slurm_state_drain"]) == (WORKERS, [f"{NAME}-cpu-1"])
    assert sorted(found["slurm_workers"]["children"]) == ["slurm_node_set_cpu", "slurm_node_set_extra"]
    variables = found["_meta"]["hostvars"][f"{NAME}-cpu-1"]
    assert "corral: admin: new {{ fans }}" in str(variables["slurm_reason"])
    assert (variables["slurm_node"], variables["slurm_in_service"], variables["slurm_name"]) == ("cpu-1", False, NAME)
    cluster.module("slurm_node", nodes="cpu-1", state="resumed", wait=True, wait_timeout=60)
    assert "slurm_state_drain" not in listed(cluster)


# Where each task ran is asked of the place itself.
PLAY = """\
- hosts: slurm_workers
  gather_facts: true
  tasks:
    - ansible.builtin.ping:
    - ansible.builtin.command: cat /etc/hostname
      register: hostname
      changed_when: false
    - ansible.builtin.command: test -e /usr/local/lib/corral/slurmd.sh
      register: pod
      changed_when: false
      failed_when: pod.rc > 1
    - ansible.builtin.copy:
        content: "ü {{ inventory_hostname }}\\n"
        dest: /root/{{ inventory_hostname }}
        mode: "0640"
    - ansible.builtin.copy:
        content: "ü {{ inventory_hostname }}\\n"
        dest: /root/{{ inventory_hostname }}
        mode: "0640"
      register: again
    - ansible.builtin.fetch:
        src: /root/{{ inventory_hostname }}
        dest: "{{ folder }}/"
        flat: true
    - ansible.builtin.file:
        path: /root/{{ inventory_hostname }}
        state: absent
    - ansible.builtin.service_facts:
    - ansible.builtin.assert:
        that:
          - again is not changed
          - ansible_facts.distribution == 'Debian'
          - (pod.rc == 1) == ansible_pod_jail
- hosts: slurm_workers
  gather_facts: false
  tasks:
    - when: ansible_pod_jail
      become: true
      become_user: alice
      become_method: sudo
      ansible.builtin.command: id -un
      register: who
      changed_when: false
      failed_when: who.stdout != 'alice'
    - when: ansible_pod_jail
      become: true
      become_user: alice
      become_method: su
      ansible.builtin.command: id -un
      register: who
      changed_when: false
      failed_when: who.stdout != 'alice'
    - when: ansible_pod_jail
      ansible.builtin.command: ls /proc/1/root/
      register: out
      changed_when: false
      failed_when: out.rc == 0
- hosts: slurm_controllers:slurm_logins
  gather_facts: false
  tasks:
    - ansible.builtin.ping:
    - ansible.builtin.copy: {content: x, dest: /tmp/corral-inventory-test, mode: "0600"}
    - ansible.builtin.file: {path: /tmp/corral-inventory-test, state: absent}
"""


@pytest.mark.parametrize(
    ("jail", "pipelining"),
    [(True, "true"), (False, "false"), *(pytest.param(*one, marks=pytest.mark.long) for one in ((True, "false"), (False, "true")))],
)
def test_modules_of_ansible_s_own(cluster: Cluster, tmp_path: Path, jail: bool, pipelining: str) -> None:
    play = tmp_path / "play.yml"
    play.write_text(PLAY)
    done = ansible(cluster, "ansible-playbook", "-e", f"folder={tmp_path}", "-e", f"ansible_pipelining={pipelining}", str(play), jail=jail)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all((tmp_path / name).read_text() == f"ü {name}\n" for name in WORKERS)


def test_a_pod_that_is_gone_is_unreachable_and_comes_back(cluster: Cluster) -> None:
    ping = ("ansible", "-m", "ansible.builtin.ping", WORKERS[2])
    assert ansible(cluster, *ping).returncode == 0
    cluster.kubectl("scale", "-n", NAMESPACE, "statefulset", f"{NAME}-extra", "--replicas=0")
    cluster.kubectl("wait", "-n", NAMESPACE, "pod", WORKERS[2], "--for=delete", "--timeout=120s")
    lost = ansible(cluster, *ping)
    assert lost.returncode == 4 and "UNREACHABLE" in lost.stdout and "not found" in lost.stdout + lost.stderr, lost.stdout + lost.stderr
    cluster.kubectl("scale", "-n", NAMESPACE, "statefulset", f"{NAME}-extra", "--replicas=1")
    eventually(lambda: ansible(cluster, *ping).returncode == 0, "the pod is back", 90)


def test_one_sentence(cluster: Cluster) -> None:
    for source, message in (
        ({"namespaces": ["default"], "clusters": [NAME]}, f"Namespace default has no cluster called {NAME}"),
        ({"api_key": "expired"}, "does not accept the credentials (401 Unauthorized)"),
    ):
        done = ansible(cluster, "ansible-inventory", "--list", **source)
        assert message in " ".join(done.stderr.split()) and f"{NAME}-cpu-0" not in done.stdout, done.stderr
