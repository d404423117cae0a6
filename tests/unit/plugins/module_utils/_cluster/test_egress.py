# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where pods may connect to: what a document says of it, as NetworkPolicies."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve
from ansible_collections.corral.slurm.plugins.module_utils._cluster.validate import InvalidDocument
from ansible_collections.corral.slurm.plugins.module_utils._kube import api_server
from ansible_collections.corral.slurm.plugins.module_utils._kube.render import render

from .documents import edited, good

TEMPLATE = Path(__file__).resolve().parents[5] / "roles" / "cluster_base" / "templates" / "network_policy.yml.j2"
API_SERVER = ["10.96.0.1/32", "192.0.2.10/32", "fd00::1/128"]
RECORD = "Service/kubernetes=10.96.0.1/32"
# Where clouds tell a machine about itself, by their own documents.
ELSEWHERE = [
    *("169.254.169.254", "169.254.170.2", "fe80::a9fe:a9fe", "fd00:ec2::254", "fd20:ce::254", "168.63.129.16", "192.0.0.192"),
    *("100.100.100.200", "fd00:100::100:200", "100.96.0.96", "fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1"),
]
CLUSTER = {"app.kubernetes.io/name": "slurm", "app.kubernetes.io/instance": "demo"}


def policies(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The NetworkPolicies of a document, by their names."""
    model = resolve.model(document).to_dict()
    found = {"within": api_server.within(model["egress"]["networks"], model["egress"]["api_server"] or API_SERVER), "record": RECORD}
    objects, _origins = render([TEMPLATE], {"corral": model, "api_server": found}, [])
    return {one["metadata"]["name"]: one["spec"] for one in objects}


def blocks(policy: dict[str, Any]) -> list[dict[str, Any]]:
    return [peer["ipBlock"] for rule in policy["egress"] for peer in rule.get("to", ()) if "ipBlock" in peer]


def closed(policy: dict[str, Any], address: str, port: int | None = None) -> bool:
    """Whether no rule for all ports, or for this one, lets a packet to an address outside of the Kubernetes cluster go."""
    meant = ipaddress.ip_address(address)

    def within(text: str) -> bool:
        network = ipaddress.ip_network(text)
        return network.version == meant.version and meant in network

    for rule in policy.get("egress", ()):
        if rule.get("ports") and port not in {one["port"] for one in rule["ports"]}:
            continue
        if not rule.get("to"):
            return False
        for peer in rule["to"]:
            block = peer.get("ipBlock")
            if block and within(block["cidr"]) and not any(within(text) for text in block.get("except", ())):
                return False
    return True


@pytest.mark.parametrize("part", ["worker", "login", "controller"])
def test_everything_is_open_but_metadata_and_the_api_server(part: str) -> None:
    policy = policies(good())[f"demo-base-egress-{part}"]
    assert policy["policyTypes"] == ["Egress"]
    for address in ELSEWHERE:
        assert closed(policy, address), address
    for address in ("10.96.0.1", "192.0.2.10", "fd00::1"):
        assert closed(policy, address), address
    for address in ("198.51.100.7", "10.1.2.3", "192.0.2.11", "2001:db8::1"):
        assert not closed(policy, address), address


@pytest.mark.parametrize("mode", ["Open", "Restricted"])
def test_the_cluster_itself_and_dns_are_always_reached(mode: str) -> None:
    policy = policies(edited("spec.network.egress.workers", mode))["demo-base-egress-worker"]
    assert {"to": [{"podSelector": {"matchLabels": CLUSTER}}]} in policy["egress"]
    assert {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]} in policy["egress"]
    assert ({"namespaceSelector": {}} in policy["egress"][-1].get("to", ()) and "ports" not in policy["egress"][-1]) == (mode == "Open")


def test_restricted_pods_reach_nothing_else_outside() -> None:
    document = edited("spec.network", {"egress": {"workers": "Restricted", "login": "Restricted", "controller": "Restricted"}})
    for part in ("worker", "login", "controller"):
        assert closed(policies(document)[f"demo-base-egress-{part}"], "198.51.100.7")
    # One of them alone leaves the others as they are.
    alone = policies(edited("spec.network.egress.workers", "Restricted"))
    assert [closed(alone[f"demo-base-egress-{part}"], "198.51.100.7") for part in ("worker", "login", "controller")] == [True, False, False]


def test_the_jails_jobs_reach_nobody() -> None:
    policy = policies(good())["demo-base-egress-jail"]
    assert policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "jail"
    assert policy["policyTypes"] == ["Egress"]
    assert "egress" not in policy


def test_each_kind_of_pod_has_one_policy() -> None:
    """A pod that none of them names could connect to everything. Which kinds there are, the registry of components says, whose labels all pods carry."""
    key = "app.kubernetes.io/component"
    # Those of another operator's objects have no pods of the cluster's.
    components = [one["selector"][key] for one in resolve.model(good()).to_dict()["components"].values() if key in one["selector"]]
    selected: list[str] = []
    for name, policy in policies(good()).items():
        if policy["policyTypes"] == ["Egress"]:
            selector = policy["podSelector"]
            assert selector["matchLabels"].items() >= CLUSTER.items(), name
            one = selector["matchLabels"].get(key)
            selected += [one] if one else selector["matchExpressions"][0]["values"]
    assert sorted(selected) == sorted(components)


def test_what_is_closed_and_allowed_besides() -> None:
    rule = {"cidrs": ["10.2.0.7/32", "2001:db8::/32"], "namespaces": ["ldap"], "ports": [{"port": 27000, "endPort": 27009}]}
    document = edited("spec.network.egress", {"close": ["10.9.0.0/16"], "allow": [rule, {"ports": [{"port": 80, "protocol": "UDP"}]}]})
    policy = policies(document)["demo-base-egress-login"]
    assert closed(policy, "10.9.1.1")
    assert not closed(policy, "10.8.1.1")
    assert policy["egress"][3:5] == [
        {
            "to": [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ldap"}}},
                {"ipBlock": {"cidr": "10.2.0.7/32"}},
                {"ipBlock": {"cidr": "2001:db8::/32"}},
            ],
            "ports": [{"protocol": "TCP", "port": 27000, "endPort": 27009}],
        },
        {
            # All there is, but for what is closed.
            "to": [{"namespaceSelector": {}}, *({"ipBlock": one} for one in blocks(policy)[-2:])],
            "ports": [{"protocol": "UDP", "port": 80}],
        },
    ]


def test_an_allowance_outweighs_what_is_closed() -> None:
    policy = policies(edited("spec.network.egress.allow", [{"cidrs": ["169.254.170.23/32"]}]))["demo-base-egress-worker"]
    assert not closed(policy, "169.254.170.23")
    assert closed(policy, "169.254.169.254")


def test_an_api_server_that_the_document_names_is_not_looked_for() -> None:
    document = edited("spec.network.egress.apiServer", ["192.0.2.77/32", "2001:db8::6/128"])
    assert resolve.model(document).egress.api_server == ["192.0.2.77/32", "2001:db8::6/128"]
    policy = policies(document)["demo-base-egress-worker"]
    assert closed(policy, "192.0.2.77")
    assert closed(policy, "2001:db8::6")
    assert resolve.model(good()).egress.api_server == []


def test_what_runs_have_read_is_recorded_where_the_next_one_looks() -> None:
    model = resolve.model(good()).to_dict()
    found = {"within": api_server.within(model["egress"]["networks"], API_SERVER), "record": RECORD}
    objects, _origins = render([TEMPLATE], {"corral": model, "api_server": found}, [])
    [name] = [one["metadata"]["name"] for one in objects if one["metadata"].get("annotations", {}).get(api_server.ANNOTATION) == RECORD]
    assert name == "demo-base", "_live.model looks there"


BROAD = [
    ("10.0.0.0/8", "10.96.0.1", "10.1.2.3"),
    ("10.9.0.0/16", "10.9.1.7", "10.9.2.7"),
    ("100.64.0.0/10", "100.100.100.200", "100.100.100.201"),
    ("0.0.0.0/0", "169.254.169.254", "198.51.100.7"),
    ("fd00::/8", "fd00::1", "fd00::2"),
    ("::/0", "fd00:c1::a9fe:a9fe", "2001:db8::1"),
]


@pytest.mark.parametrize(("cidr", "kept", "opened"), BROAD)
def test_an_allowance_that_is_broader_than_what_is_closed_leaves_it_closed(cidr: str, kept: str, opened: str) -> None:
    egress = {"workers": "Restricted", "close": ["10.9.1.0/24"], "allow": [{"cidrs": [cidr]}]}
    policy = policies(edited("spec.network.egress", egress))["demo-base-egress-worker"]
    assert closed(policy, kept)
    assert not closed(policy, opened)


@pytest.mark.parametrize(
    ("cidr", "opened"),
    [
        ("10.96.0.1/32", "10.96.0.1"),
        ("10.9.1.0/24", "10.9.1.7"),
        ("10.9.1.128/25", "10.9.1.200"),
        ("169.254.0.0/16", "169.254.169.254"),
        ("fd00::1/128", "fd00::1"),
    ],
)
def test_what_is_closed_is_opened_by_itself_and_by_less(cidr: str, opened: str) -> None:
    """A broad one beside it does not matter."""
    egress = {"workers": "Restricted", "close": ["10.9.1.0/24"], "allow": [{"cidrs": ["10.0.0.0/8", cidr]}]}
    policy = policies(edited("spec.network.egress", egress))["demo-base-egress-worker"]
    assert not closed(policy, opened)
    assert not closed(policies(edited("spec.network.egress", {**egress, "workers": "Open"}))["demo-base-egress-worker"], opened)


def test_ports_that_are_allowed_to_everywhere_are_not_to_what_is_closed() -> None:
    egress = {"workers": "Restricted", "allow": [{"ports": [{"port": 443}]}]}
    policy = policies(edited("spec.network.egress", egress))["demo-base-egress-worker"]
    assert not closed(policy, "198.51.100.7", 443)
    assert closed(policy, "198.51.100.7", 80)
    for address in ("10.96.0.1", "192.0.2.10", "fd00::1", *ELSEWHERE):
        assert closed(policy, address, 443), address
    assert not closed(policy, "169.254.169.253", 53)


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "::/0", "10.0.0.0/8", "10.96.0.1/32", "10.9.1.0/24", "169.254.0.0/17", "0::/0"])
def test_exceptions_lie_within_what_they_are_exceptions_of(cidr: str) -> None:
    """The API server refuses others, and those that are all of it."""
    document = edited("spec.network.egress", {"close": ["10.9.1.0/24"], "allow": [{"cidrs": [cidr]}]})
    found = [one for one in blocks(policies(document)["demo-base-egress-worker"]) if one["cidr"] == cidr]
    assert found
    whole = ipaddress.ip_network(cidr)
    for block in found:
        assert block.get("except", ["none"]), "an empty list is told as a change by each run"
        for text in block.get("except", ()):
            network = ipaddress.ip_network(text)
            assert network != whole
            assert network.subnet_of(whole)  # type: ignore[arg-type]  # both are of one version, or this raises


def test_exceptions_are_not_more_than_policies_hold() -> None:
    """One for each closed network in each allowed one: a short document could make millions of them."""
    nested = [f"2001:db8::/{length}" for length in range(32, 96)]
    close = [f"2001:db8::{number:x}/128" for number in range(256)]
    with pytest.raises(InvalidDocument) as refused:
        resolve.model(edited("spec.network.egress", {"close": close, "allow": [{"cidrs": nested}]}))
    [said] = refused.value.data["errors"]
    assert "spec.network.egress.allow" in said
    assert "16384" in said
    assert resolve.model(edited("spec.network.egress", {"close": close, "allow": [{"cidrs": nested[:30]}]}))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("close", ["10.0.0.5/8"], "give 10.0.0.0/8, or the address alone with /32"),
        ("close", ["0.0.0.0/0"], "workers: Restricted"),
        ("close", ["::/0"], "workers: Restricted"),
        ("close", ["10.0.0.0/33"], "no network"),
        ("close", ["10.0.0/8"], "no network"),
        ("close", ["010.0.0.0/8"], "no network"),
        ("close", ["::ffff:10.0.0.0/104"], "an IPv4 network in IPv6's form"),
        ("apiServer", ["2001:db8::1/32"], "give 2001:db8::/32"),
        ("apiServer", ["host/1"], "a network such as"),
        ("allow", [{}], "neither cidrs nor namespaces nor ports"),
        ("allow", [{"cidrs": ["1.2.3/8"]}], "no network"),
        ("allow", [{"ports": [{"port": 10, "endPort": 9}]}], "ports[0].port is 10, more than endPort, 9"),
        ("allow", [{"ports": [{"endPort": 9}]}], "port"),
        ("workers", "None", "Restricted"),
    ],
)
def test_mistakes_are_told(field: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        resolve.model(edited(f"spec.network.egress.{field}", value))
    [said] = refused.value.data["errors"]
    assert f"spec.network.egress.{field}" in said
    assert words in said
