# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the daemons: what the lab depends on is in them, and no two parts take the same port."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

import pytest
from corral_lab import build, certificates, control_plane, network, nodes, prerequisites, processes
from corral_lab.health import Api
from corral_lab.lifecycle import LabParts, Status, healthy
from corral_lab.state import Lab, LabError, Paths

ADDRESS = "192.0.2.2"


def parts(paths: Paths) -> LabParts:
    return LabParts(paths, Lab("hash", ["node1", "node2", "node3"], ADDRESS, "/src", "boot"))


def test_no_two_parts_share_a_name_a_port_or_a_folder(paths: Paths) -> None:
    everything = parts(paths).all()
    names = [part.name for part in everything]
    ports = [port for part in everything for _address, port in part.ports]
    assert len(names) == len(set(names)) == 13
    assert len(ports) == len(set(ports))


def test_containerd_keeps_to_its_own_folders(tmp_path: Path) -> None:
    config = tomllib.loads(nodes.containerd_config(tmp_path, Path("/usr/lib/cni"), "native"))
    runtime, images = (config["plugins"][f"io.containerd.cri.v1.{part}"] for part in ("runtime", "images"))
    own = (config["root"], config["state"], config["grpc"]["address"], config["ttrpc"]["address"], runtime["cni"]["conf_dir"])
    runc = runtime["containerd"]["runtimes"]["runc"]["options"]["Root"]
    assert all(str(folder).startswith(f"{tmp_path}/") for folder in (*own, runc))
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["netns_mounts_under_state_dir"] is True
    assert images["snapshotter"] == "native"


def test_kubelets_share_nothing(paths: Paths) -> None:
    first, second = (json.loads(nodes.kubelet_config(paths, f"node{i}", i, ADDRESS)) for i in (1, 2))
    for key in ("port", "healthzPort", "containerRuntimeEndpoint", "podLogsDir", "volumePluginDir", "cgroupRoot", "tlsCertFile"):
        assert first[key] != second[key], key
    assert first["authentication"]["anonymous"]["enabled"] is False
    assert first["authorization"]["mode"] == "Webhook"
    assert (first["failSwapOn"], first["failCgroupV1"]) == (False, False)


def test_audit_tells_who_did_what_and_no_contents() -> None:
    policy = json.loads(control_plane.audit_policy())
    assert [rule["level"] for rule in policy["rules"]] == ["Metadata"]


@pytest.mark.parametrize(("resolv_conf", "forwards"), [("nameserver 192.0.2.53\n", 2), ("# none\nsearch example.org\n", 0), ("", 0)])
def test_corefile_forwards_only_where_there_is_a_resolver(paths: Paths, resolv_conf: str, forwards: int) -> None:
    text = control_plane.corefile(paths, ADDRESS, resolv_conf)
    assert text.count("forward . /etc/resolv.conf") == forwards
    assert text.count("{") == text.count("}")
    assert text.count(f"bind {ADDRESS}") == 2
    cluster = text.partition("\n. {")[0]
    assert "ttl 1\n" in cluster
    assert "cache" not in cluster


def test_scheduler_and_proxy(paths: Paths) -> None:
    assert json.loads(control_plane.scheduler_config(paths))["clientConnection"]["qps"] == 500
    proxy = json.loads(control_plane.proxy_config(paths, ADDRESS))
    assert proxy["mode"] == "iptables"
    assert proxy["conntrack"]["maxPerCore"] == 0
    assert proxy["iptables"]["localhostNodePorts"] is False


def test_api_server_uses_rbac_and_writes_an_audit_log(paths: Paths) -> None:
    command = control_plane.api_server_part(paths, ADDRESS, Api(ADDRESS, 1, paths.pki)).command
    assert "--authorization-mode=Node,RBAC" in command
    assert f"--audit-log-path={paths.log}/audit.log" in command
    assert not [argument for argument in command if argument.startswith("--disable-admission-plugins")]


def test_certificates_name_what_they_are_asked_by() -> None:
    wanted = {r.name: r for r in certificates.requests(ADDRESS, "10.242.0.1", "machine", ["node1", "node2"])}
    for name in ("IP:192.0.2.2", "IP:10.242.0.1", "DNS:kubernetes.default.svc", "DNS:machine"):
        assert name in wanted["apiserver"].alternative_names.split(",")
    assert wanted["node2"].subject == "/O=system:nodes/CN=system:node:node2"
    assert set(control_plane.CLIENTS) <= set(wanted)


def test_certificates_are_made_once(tmp_path: Path) -> None:
    wanted = [certificates.Request("admin", "/O=system:masters/CN=x"), certificates.Request("api", "/CN=a", "IP:192.0.2.2", "serverAuth")]
    certificates.make(tmp_path / "pki", wanted)
    first = {p.name: p.read_bytes() for p in (tmp_path / "pki").iterdir()}
    assert {"ca.crt", "etcd.crt", "service-accounts.key", "service-accounts.pub", "admin.crt", "api.key"} <= set(first)
    assert (tmp_path / "pki").stat().st_mode & 0o077 == 0
    certificates.make(tmp_path / "pki", wanted)
    assert {p.name: p.read_bytes() for p in (tmp_path / "pki").iterdir()} == first
    document = json.loads(certificates.kubeconfig(tmp_path / "pki", "https://192.0.2.2:16443", "admin"))
    assert document["clusters"][0]["cluster"]["server"] == "https://192.0.2.2:16443"


def test_mounts_below() -> None:
    mountinfo = "\n".join(
        f"{n} 1 0:{n} / {point} rw - tmpfs tmpfs rw"
        for n, point in enumerate(["/", "/lab", "/lab/a", "/lab/a/with\\040space", "/laboratory", "/lab/b"])
    )
    assert nodes.mounts_below(Path("/lab"), mountinfo) == ["/lab/b", "/lab/a/with space", "/lab/a"]


def test_cgroups_are_made_found_and_removed(tmp_path: Path) -> None:
    for hierarchy in ("memory", "cpuset"):
        (tmp_path / hierarchy).mkdir()
        (tmp_path / hierarchy / "cgroup.procs").write_text("")
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    nodes.make_cgroups("corral-lab", "node1", tmp_path)
    assert nodes.cgroup_folders("corral-lab", tmp_path) == [tmp_path / "cpuset" / "corral-lab", tmp_path / "memory" / "corral-lab"]
    assert (tmp_path / "memory" / "corral-lab" / "node1").is_dir()


@pytest.mark.parametrize(("text", "version"), [("go1.24.4", (1, 24)), ("go1.26", (1, 26)), ("devel +abc", None), ("", None)])
def test_go_versions(text: str, version: tuple[int, int] | None) -> None:
    assert build.parse_go_version(text) == version


@pytest.mark.parametrize(
    ("version", "environment", "lacks"),
    [
        ("go1.26.1", {}, False),
        ("go1.24.0", {"GOTOOLCHAIN": "local"}, False),
        ("go1.22.1", {}, False),
        ("go1.22.1", {"GOTOOLCHAIN": "local"}, True),
        ("go1.19.8", {}, True),
        ("", {}, True),
    ],
)
def test_a_go_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch, version: str, environment: dict[str, str], lacks: bool) -> None:
    monkeypatch.setattr(build, "find_go", lambda _environment: "/usr/bin/go")
    monkeypatch.setattr(build, "go_version", lambda _go: version)
    sentence = prerequisites.go_lack(environment)
    assert bool(sentence) is lacks
    assert sentence is None or "Go 1.24 or newer is needed" in sentence


@pytest.mark.parametrize("module", build.MODULES, ids=lambda module: module.folder)
def test_a_build_is_named_by_all_that_it_depends_on(module: build.GoModule) -> None:
    key = module.key("go1.26.1")
    assert key == module.key("go1.26.1")
    others = [
        module.key("go1.26.2"),
        dataclasses.replace(module, flags=(*module.flags, "-race")).key("go1.26.1"),
        dataclasses.replace(module, packages=module.packages[1:]).key("go1.26.1"),
        dataclasses.replace(module, cgo=not module.cgo).key("go1.26.1"),
        *(other.key("go1.26.1") for other in build.MODULES if other is not module),
    ]
    assert len({key, *others}) == 1 + len(others)


def test_nodes_run_the_labs_own_containerd_and_runc(paths: Paths) -> None:
    """Debian 12's know no user namespaces; whatever the machine has beside is never found first."""
    search = processes.daemon_environment(paths, {})["PATH"].split(":")
    assert search[0] == str(paths.bin)
    assert {"containerd", "containerd-shim-runc-v2", "runc", "ctr"} <= build.RUNTIME.programs.keys()
    assert not [need.name for need in prerequisites.needs() if need.package in {"containerd", "runc"}]


def test_policies_are_decided_on_by_what_the_rules_queue_packets_for(paths: Paths) -> None:
    command = control_plane.policies_part(paths).command
    assert {f"-queue={network.QUEUE}", f"-mark={network.REFUSED}"} <= set(command)
    assert Path(command[0]).name in build.KUBE.programs


def test_all_lacks_are_told_at_once(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites, "needs", lambda: [prerequisites.Need("runc", "runc", lambda: False)])
    monkeypatch.setattr(prerequisites, "free_disk", lambda _path: 1)
    monkeypatch.setattr(prerequisites.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(build, "find_go", lambda _environment: None)
    with pytest.raises(LabError) as told:
        prerequisites.check(paths)
    sentences = str(told.value).splitlines()
    assert len(sentences) == 3
    for sentence, word in zip(sentences, ("root", "15 GiB", "runc"), strict=True):
        assert word in sentence
    # A lab that is there has its disk space already.
    assert not [s for s in prerequisites.lacks(paths, everything=False, new=False) if "GiB" in s]


def test_total_memory() -> None:
    assert prerequisites.total_memory("MemTotal:       24684084 kB\nMemFree: 1 kB\n") == 24684084 * 1024


def test_health_of_the_whole() -> None:
    assert healthy([Status("etcd", 1, "running"), Status("node1", None, "ready")])
    assert not healthy([Status("etcd", 1, "running"), Status("node1", None, "unwell", "why")])
