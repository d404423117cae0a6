# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: hosts and groups, how much is asked for them, the cache, and one sentence for what is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData
from ansible.inventory.helpers import get_group_vars
from ansible.parsing.dataloader import DataLoader

from ansible_collections.corral.slurm.plugins.inventory.slurm import InventoryModule
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.inventory import group, read

from ....ansible_plugins import configured
from ....pods import Pods, pod
from ....server import kubeconfig, serving
from ..module_utils._slurm.records import text

NODES = ("scontrol", "show", "nodes", "--json")
Parse = Callable[..., InventoryData]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Pods]:
    for name in ("KUBECONFIG", *(name for name in os.environ if name.startswith(("K8S_AUTH_", "ANSIBLE_INVENTORY")))):
        monkeypatch.delenv(name, raising=False)
    pods = [
        pod("lab-controller-0", "controller", "slurmctld", uid=64030),
        pod("lab-login-0", "login", "sshd"),
        pod("lab-rest-0", "rest", "slurmrestd", uid=64033),
        # Neither a database nor what is not ours.
        pod("lab-database-0", "database", "mariadbd", uid=999),
        pod("lab-cpu-0", "worker", "slurmd"),
    ]
    with serving(Pods(pods)) as started:
        started.answers[NODES] = 0, text("nodes").encode(), b""
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", started.url)))
        yield started


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    """Parse a source: parse(namespaces=[…]). Without ``cached``, as with --flush-cache."""

    def done(name: str = "lab.slurm.yml", *, cached: bool = True, **options: Any) -> InventoryData:
        path = tmp_path / name
        path.write_text(yaml.safe_dump({"plugin": "corral.slurm.slurm", **options}))
        plugin = configured("inventory", "corral.slurm.slurm", InventoryModule())
        assert plugin.verify_file(str(path))
        inventory = InventoryData()
        plugin.parse(inventory, DataLoader(), str(path), cache=cached)
        if options.get("cache"):
            plugin.update_cache_if_changed()  # as Ansible does
        inventory.reconcile_inventory()
        return inventory

    return done


def groups(inventory: InventoryData) -> dict[str, list[str]]:
    """Hosts of each group, those of its children, too."""
    return {name: sorted(str(host) for host in one.get_hosts()) for name, one in inventory.groups.items() if name.startswith("slurm")}


def variables(inventory: InventoryData, host: str) -> dict[str, Any]:
    """What a play sees of a host, its groups' before its own."""
    found = inventory.get_host(host)
    return {**get_group_vars(found.get_groups()), **found.get_vars()}


@pytest.mark.usefixtures("server")
def test_hosts_and_groups(parse: Parse) -> None:
    found = parse(namespaces=["slurm"])
    workers = ["lab-big-0", "lab-cpu-0", "lab-cpu-1", "lab-gone-0", "lab-gpu-0"]
    assert groups(found) == {
        "slurm_cluster_lab": sorted([*workers, "lab-controller-0", "lab-login-0", "lab-rest-0"]),
        "slurm_controllers": ["lab-controller-0"],
        "slurm_feature_plain": ["lab-cpu-0", "lab-cpu-1"],
        "slurm_logins": ["lab-login-0"],
        "slurm_node_set_big": ["lab-big-0"],
        "slurm_node_set_cpu": ["lab-cpu-0", "lab-cpu-1"],
        "slurm_node_set_gone": ["lab-gone-0"],
        "slurm_node_set_gpu": ["lab-gpu-0"],
        "slurm_partition_main": workers,
        "slurm_partition_side": ["lab-cpu-0", "lab-cpu-1"],
        "slurm_rest": ["lab-rest-0"],
        "slurm_state_down": ["lab-cpu-1", "lab-gone-0"],
        "slurm_state_drain": ["lab-big-0", "lab-cpu-0", "lab-gpu-0"],
        "slurm_state_idle": ["lab-big-0", "lab-gpu-0"],
        "slurm_state_invalid_reg": ["lab-big-0", "lab-gpu-0"],
        "slurm_state_mixed": ["lab-cpu-0"],
        "slurm_state_not_responding": ["lab-gone-0"],
        "slurm_workers": workers,
    }


@pytest.mark.usefixtures("server")
def test_variables(parse: Parse) -> None:
    found = parse(namespaces=["slurm"], jail=True, api_key="t0k", validate_certs=False)
    node = variables(found, "lab-gpu-0")
    wanted = {
        "ansible_connection": "corral.slurm.pod",
        "ansible_host": "lab-gpu-0",
        "ansible_pod_container": "slurmd",
        "ansible_pod_jail": True,
        "ansible_pod_namespace": "slurm",
        "ansible_pod_validate_certs": False,
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_user": "root",
        "slurm_component": "worker",
        "slurm_gres": "gpu:2",
        "slurm_in_service": False,
        "slurm_name": "lab",
        "slurm_namespace": "slurm",
        "slurm_node": "gpu-0",
        "slurm_node_set": "gpu",
        "slurm_partitions": ["main"],
        "slurm_reason": "gres/gpu count reported lower than configured (1 < 2)",
        "slurm_state": ["IDLE", "DRAIN", "INVALID_REG"],
    }
    assert {name: node[name] for name in wanted} == wanted
    controller, login = (variables(found, f"lab-{name}-0") for name in ("controller", "login"))
    assert (login["ansible_user"], login["ansible_pod_container"], login["ansible_pod_jail"]) == ("root", "sshd", False)
    assert controller["ansible_user"] == "64030" and controller["ansible_remote_tmp"] == "/tmp/.ansible/tmp", "its user has no home"
    assert controller["slurm_kubernetes_node"] == "n1"
    assert "t0k" not in json.dumps([one.get_vars() for one in (*found.hosts.values(), *found.groups.values())])


def test_what_is_asked_for_a_cluster(server: Pods) -> None:
    found = read([{"namespaces": ["slurm"]}], strict=True)
    assert found["requests"] == len(server.requests) == 2
    assert server.commands == [("lab-controller-0", "slurmctld", list(NODES))]


def test_a_second_controller_is_asked_where_the_first_is_not_ready(server: Pods) -> None:
    server.pods[0] = pod("lab-controller-0", "controller", "slurmctld", ready=False)
    server.pods.append(pod("lab-controller-1", "controller", "slurmctld"))
    read([{"namespaces": ["slurm"]}], strict=True)
    assert server.commands == [("lab-controller-1", "slurmctld", list(NODES))]


def test_without_namespaces_the_context_s_is_first_then_all(server: Pods, parse: Parse) -> None:
    assert "lab-cpu-0" in parse().hosts
    assert server.requests[:2] == ["/api/v1/namespaces/default/pods", "/api/v1/pods"]
    server.pods.append(pod("near-controller-0", "controller", "slurmctld", cluster="near", namespace="default"))
    server.requests.clear()
    assert sorted(groups(parse())["slurm_cluster_near"])[0] == "near-big-0" and "/api/v1/pods" not in server.requests


def test_several_sources(server: Pods, parse: Parse) -> None:
    server.pods += [pod(f"{name}-controller-0", "controller", "slurmctld", cluster=name, namespace="test") for name in ("lab", "new")]
    found = parse(
        jail=True, sources=[{"namespaces": ["slurm"]}, {"namespaces": ["test"], "clusters": ["lab"], "suffix": ".test", "jail": False}]
    )
    assert {"lab-cpu-0", "lab-cpu-0.test"} < set(found.hosts) and not any("new" in name for name in found.hosts)
    here, there = (variables(found, name) for name in ("lab-cpu-0", "lab-cpu-0.test"))
    assert (here["ansible_host"], here["ansible_pod_namespace"], here["ansible_pod_jail"]) == ("lab-cpu-0", "slurm", True)
    assert (there["ansible_host"], there["ansible_pod_namespace"], there["ansible_pod_jail"]) == ("lab-cpu-0", "test", False)
    assert len(server.requests) == 4
    assert {"slurm_cluster_lab", "slurm_cluster_lab_test"} < set(found.groups)


@pytest.mark.usefixtures("server")
def test_what_the_user_makes_of_it(parse: Parse) -> None:
    found = parse(
        namespaces=["slurm"],
        compose={"ansible_pod_jail": "slurm_component == 'worker'", "twice": "slurm_cpus * 2"},
        groups={"slurm_broken": "slurm_component == 'worker' and not slurm_in_service", "slurm_wrong": "no_such_variable > 3"},
        keyed_groups=[{"key": "slurm_component", "prefix": "slurm_is"}],
    )
    assert variables(found, "lab-cpu-0")["ansible_pod_jail"] is True and variables(found, "lab-cpu-0")["twice"] == 4
    assert len(groups(found)["slurm_broken"]) == 5 and groups(found)["slurm_is_login"] == ["lab-login-0"]


def test_a_reason_is_no_template(server: Pods, parse: Parse) -> None:
    nodes = json.loads(text("nodes"))
    for row in nodes["nodes"]:
        row.update(reason="{{ lookup('pipe', 'touch /tmp/never') }}", features=["a-b", "{{ 1 + 1 }}"])
    server.answers[NODES] = 0, json.dumps(nodes).encode(), b""
    found = parse(namespaces=["slurm"], keyed_groups=[{"key": "slurm_reason", "prefix": "why"}])
    assert variables(found, "lab-cpu-0")["slurm_reason"].startswith("{{ lookup(")
    assert {"slurm_feature_a_b", "slurm_feature____1___1___"} < set(found.groups)
    assert not Path("/tmp/never").exists()


@pytest.mark.parametrize("name", ["x", "a-b", "ü", "a/b c", ""])
def test_names_of_groups_are_valid(name: str) -> None:
    assert re.fullmatch("slurm_partition_[A-Za-z0-9_]*", group("partition", name))


def test_the_cache(server: Pods, parse: Parse, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    options = {"namespaces": ["slurm"], "cache": True, "cache_plugin": "jsonfile", "cache_connection": str(folder), "api_key": "t0k"}
    first = parse(**options)
    asked = len(server.requests)
    second = parse(**options)
    assert len(server.requests) == asked and groups(first) == groups(second)
    assert variables(second, "lab-gpu-0") == variables(first, "lab-gpu-0")
    assert folder.is_dir() and not any("t0k" in path.read_text() for path in folder.rglob("*") if path.is_file())
    parse(cached=False, **options)
    assert len(server.requests) == 2 * asked, "--flush-cache"
    parse(**{**options, "jail": True})
    assert len(server.requests) == 3 * asked, "another source of the same name"


def test_what_is_not_whole_is_not_kept(server: Pods, parse: Parse, tmp_path: Path) -> None:
    options = {"namespaces": ["slurm"], "cache": True, "cache_plugin": "jsonfile", "cache_connection": str(tmp_path / "cache")}
    server.not_running.add("lab-controller-0")
    assert "lab-cpu-0" not in parse(**options).hosts
    server.not_running.clear()
    assert "lab-cpu-0" in parse(**options).hosts


def test_a_slurmctld_that_is_away_costs_its_workers_and_no_more(server: Pods) -> None:
    server.not_running.add("lab-controller-0")
    found = read([{"namespaces": ["slurm"]}], strict=False)
    assert [host["name"] for host in found["hosts"]] == ["lab-controller-0", "lab-login-0", "lab-rest-0"]
    assert len(found["warnings"]) == 1
    assert found["warnings"][0].startswith(
        "The nodes of cluster slurm/lab are not known: slurmctld in Pod slurm/lab-controller-0 cannot be asked"
    )
    with pytest.raises(CorralError, match="cannot be asked for its nodes"):
        read([{"namespaces": ["slurm"]}], strict=True)
    del server.pods[0]
    found = read([{"namespaces": ["slurm"]}], strict=False)
    assert found["warnings"] == [
        "The nodes of cluster slurm/lab are not known: it has no pod that runs slurmctld; run corral.slurm.site, or end its maintenance."
    ]


def expire(server: Pods) -> None:
    server.unauthorized = True


def forbid(server: Pods) -> None:
    server.forbidden.add("list")


def nothing(server: Pods) -> None:
    """All is well there."""


@pytest.mark.parametrize(
    ("trouble", "options", "message"),
    [
        (nothing, {"namespaces": ["none"]}, "Namespace none has no cluster; give the namespaces of clusters in 'namespaces'"),
        (nothing, {"namespaces": ["slurm"], "clusters": ["lab", "lob"]}, "Namespace slurm has no cluster called lob, but lab; give"),
        (nothing, {"namespace": "slurm"}, "The inventory source has no option 'namespace'; it has api_key, "),
        (nothing, {"sources": [{"namespace": "slurm"}]}, "sources[0] is not valid: namespace. Supported parameters include: api_key, "),
        (nothing, {"sources": ["slurm"]}, "sources[0] of the inventory source is no mapping; write it as"),
        (nothing, {"sources": [{"jail": "perhaps"}]}, "sources[0] is not valid: argument 'jail' is of type"),
        (
            nothing,
            {"sources": [{"namespaces": ["slurm"]}] * 2},
            "Two clusters of the inventory would be the group slurm_cluster_lab, slurm/lab and slurm/lab; give one",
        ),
        (nothing, {"context": "none"}, "has no context named 'none' (it has: test); correct the name."),
        (nothing, {"kubeconfig": "/nowhere"}, "The kubeconfig /nowhere does not exist"),
        (expire, {}, "does not accept the credentials (401 Unauthorized); log in again or renew the token."),
        (forbid, {"namespaces": ["slurm"]}, "user ada may not list pods in namespace slurm; ask an administrator for a Role with"),
    ],
)
def test_one_sentence(server: Pods, parse: Parse, trouble: Callable[[Pods], None], options: dict[str, Any], message: str) -> None:
    trouble(server)
    with pytest.raises(AnsibleError) as failed:
        parse(**options)
    said = str(failed.value)
    assert message in said and "lab.slurm.yml: " in said and "\n" not in said


def test_hosts_of_two_clusters_with_one_name(server: Pods, parse: Parse) -> None:
    server.pods += [
        pod("other-controller-0", "controller", "slurmctld", cluster="other"),
        pod("lab-login-0", "login", "sshd", cluster="other"),
    ]
    with pytest.raises(
        AnsibleError, match="Two hosts of the inventory would be called lab-login-0, of slurm_cluster_lab and of slurm_cluster_other"
    ):
        parse(namespaces=["slurm"])


@pytest.mark.usefixtures("server")
def test_strict_holds_for_expressions(parse: Parse) -> None:
    with pytest.raises(AnsibleError, match="Could not set x for host"):
        parse(namespaces=["slurm"], strict=True, compose={"x": "no_such_variable"})


@pytest.mark.usefixtures("server")
def test_graph(tmp_path: Path) -> None:
    """The program itself, by the plugin auto; as docs/inventory.md has it."""
    (tmp_path / "lab.slurm.yml").write_text("plugin: corral.slurm.slurm\nnamespaces: [slurm]\n")
    program = str(Path(sys.executable).with_name("ansible-inventory"))
    done = subprocess.run([program, "-i", "lab.slurm.yml", "--graph"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""
    assert "  |--@slurm_workers:\n  |  |--@slurm_node_set_big:\n  |  |  |--lab-big-0\n" in done.stdout
