# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""NetworkPolicies as rules, walked through packet by packet: a small iptables of what the lab's rules use says what becomes of each."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from corral_lab import enforcer, network
from corral_lab.policies import MAIN, MARK, Rules

Json = dict[str, Any]

A, B, OTHER = {"app": "a"}, {"app": "b"}, {"app": "other"}
OUTSIDE, METADATA, MACHINE = "198.51.100.7", "169.254.169.254", "192.0.2.1"


def pod(number: int, labels: Json, namespace: str = "one", **changes: Any) -> Json:
    return {
        "metadata": {"namespace": namespace, "name": f"p{number}", "labels": labels},
        "spec": {"containers": [{"ports": [{"name": "web", "containerPort": 8000 + number}]}], "hostNetwork": changes.get("host", False)},
        "status": {"podIP": address(number), "phase": changes.get("phase", "Running")},
    }


def address(number: int) -> str:
    return f"10.241.1.{number}"


PODS = [pod(1, A), pod(2, B), pod(3, OTHER), pod(4, A, "two"), pod(5, A, phase="Failed"), {**pod(6, A), "status": {}}, pod(7, A, host=True)]
NAMESPACES = [{"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}} for name in ("one", "two")]


def policy(selector: Json, namespace: str = "one", **spec: Any) -> Json:
    types = [kind for kind in ("Ingress", "Egress") if kind.lower() in spec] or ["Ingress"]
    return {"metadata": {"namespace": namespace, "name": "x"}, "spec": {"podSelector": selector, "policyTypes": types, **spec}}


def goes(policies: list[Json], source: str, target: str, port: int = 80, protocol: str = "tcp") -> bool:
    """Whether a packet that begins a connection passes."""
    rules = Rules(PODS, NAMESPACES, policies)
    chains = {MAIN: rules.main, **rules.chains}
    marked = False

    def within(text: str, one: str) -> bool:
        return ipaddress.ip_address(one) in ipaddress.ip_network(text)

    def walk(chain: str) -> bool:
        nonlocal marked
        for line in chains[chain]:
            words = line.split()
            target_of = words[words.index("-j") + 1]
            given = dict(zip(words[: words.index("-j")][::2], words[: words.index("-j")][1::2], strict=False))
            if "--ctstate" in words or ("! --mark" in line and marked):
                continue
            if ("-s" in given and not within(given["-s"], source)) or ("-d" in given and not within(given["-d"], target)):
                continue
            if "-p" in given and given["-p"] != protocol:
                continue
            if "--dport" in given:
                low, _colon, high = given["--dport"].partition(":")
                if not int(low) <= port <= int(high or low):
                    continue
            if target_of == "RETURN":
                return True
            if target_of == "REJECT":
                return False
            if target_of == "MARK":
                marked = MARK in line
            elif not walk(target_of):
                return False
        return True

    return walk(MAIN)


ALL_BUT = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16", "192.0.2.0/24"]}}


@pytest.mark.parametrize(
    ("policies", "packet", "passes"),
    [
        ([], (address(3), address(1)), True),
        # An isolated pod, and who is let in.
        ([policy({})], (address(3), address(1)), False),
        ([policy({})], (address(3), address(4)), True),
        ([policy({"matchLabels": A})], (address(1), address(2)), True),
        ([policy({"matchLabels": A}, ingress=[{}])], (address(3), address(1)), True),
        ([policy({}, ingress=[{"from": [{"podSelector": {"matchLabels": B}}]}])], (address(2), address(1)), True),
        ([policy({}, ingress=[{"from": [{"podSelector": {"matchLabels": B}}]}])], (address(3), address(1)), False),
        # The same labels in another namespace are somebody else.
        ([policy({}, ingress=[{"from": [{"podSelector": {"matchLabels": A}}]}])], (address(4), address(1)), False),
        ([policy({}, ingress=[{"from": [{"namespaceSelector": {}}]}])], (address(4), address(1)), True),
        ([policy({}, ingress=[{"from": [{"namespaceSelector": {}}]}])], (OUTSIDE, address(1)), False),
        ([policy({}, ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "two"}}}]}])], (address(4), address(1)), True),
        ([policy({}, ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "two"}}}]}])], (address(3), address(1)), False),
        ([policy({}, ingress=[{"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": A}}]}])], (address(4), address(1)), True),
        ([policy({}, ingress=[{"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": A}}]}])], (address(3), address(1)), False),
        # Ports: by number, range, name of the pod that is reached, protocol.
        ([policy({}, ingress=[{"ports": [{"protocol": "TCP", "port": 22}]}])], (OUTSIDE, address(1), 22), True),
        ([policy({}, ingress=[{"ports": [{"protocol": "TCP", "port": 22}]}])], (OUTSIDE, address(1), 23), False),
        ([policy({}, ingress=[{"ports": [{"protocol": "TCP", "port": 22}]}])], (OUTSIDE, address(1), 22, "udp"), False),
        ([policy({}, ingress=[{"ports": [{"protocol": "UDP"}]}])], (OUTSIDE, address(1), 22, "udp"), True),
        ([policy({}, ingress=[{"ports": [{"protocol": "TCP", "port": 20, "endPort": 25}]}])], (OUTSIDE, address(1), 25), True),
        ([policy({}, ingress=[{"ports": [{"protocol": "TCP", "port": 20, "endPort": 25}]}])], (OUTSIDE, address(1), 26), False),
        ([policy({}, ingress=[{"ports": [{"protocol": "TCP", "port": "web"}]}])], (OUTSIDE, address(1), 8001), True),
        ([policy({}, ingress=[{"ports": [{"protocol": "TCP", "port": "web"}]}])], (OUTSIDE, address(2), 8001), False),
        ([policy({}, egress=[{"to": [{"podSelector": {}}], "ports": [{"port": "web"}]}])], (address(1), address(2), 8002), True),
        ([policy({}, egress=[{"to": [{"podSelector": {}}], "ports": [{"port": "web"}]}])], (address(1), address(2), 8001), False),
        # Addresses.
        ([policy({"matchLabels": A}, egress=[])], (address(1), OUTSIDE), False),
        ([policy({"matchLabels": A}, egress=[])], (address(3), OUTSIDE), True),
        ([policy({"matchLabels": A}, egress=[{"to": [ALL_BUT]}])], (address(1), OUTSIDE), True),
        ([policy({"matchLabels": A}, egress=[{"to": [ALL_BUT]}])], (address(1), METADATA), False),
        ([policy({"matchLabels": A}, egress=[{"to": [ALL_BUT]}])], (address(1), MACHINE, 443), False),
        ([policy({"matchLabels": A}, egress=[{"to": [ALL_BUT]}, {"ports": [{"protocol": "UDP", "port": 53}]}])], (address(1), MACHINE, 53, "udp"), True),
        ([policy({"matchLabels": A}, egress=[{"to": [ALL_BUT]}, {"to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]}])], (address(1), MACHINE), True),
        ([policy({"matchLabels": A}, egress=[{"to": [{"ipBlock": {"cidr": "::/0"}}]}])], (address(1), OUTSIDE), False),
        ([policy({"matchLabels": A}, egress=[{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["fe80::/10"]}}]}])], (address(1), OUTSIDE), True),
        # Both ends have a say, and policies add up.
        ([policy({"matchLabels": A}, egress=[{}]), policy({"matchLabels": B}, ingress=[])], (address(1), address(2)), False),
        ([policy({"matchLabels": A}, egress=[]), policy({"matchLabels": B}, ingress=[{}])], (address(1), address(2)), False),
        ([policy({"matchLabels": A}, egress=[]), policy({}, egress=[{"to": [ALL_BUT]}])], (address(1), OUTSIDE), True),
        # Expressions.
        ([policy({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]})], (address(3), address(2)), False),
        ([policy({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a", "b"]}]})], (address(3), address(2)), True),
        ([policy({"matchExpressions": [{"key": "app", "operator": "Exists"}]})], (address(3), address(2)), False),
        ([policy({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]})], (address(3), address(2)), True),
        # Pods that have ended, have no address yet, or the machine's, are none.
        ([policy({})], (address(1), address(5)), True),
        ([policy({})], (address(1), address(7)), True),
    ],
)  # fmt: skip
def test_what_passes(policies: list[Json], packet: tuple[Any, ...], passes: bool) -> None:
    assert goes(policies, *packet) is passes


def test_a_script_makes_all_chains_before_it_fills_them_and_takes_away_those_that_are_none_any_more() -> None:
    rules = Rules(PODS, NAMESPACES, [policy({"matchLabels": A}, egress=[{"to": [ALL_BUT]}])])
    lines = rules.script([MAIN, "CORRAL-LAB-0123456789ab"]).splitlines()
    made = [line[1:].split()[0] for line in lines if line.startswith(":")]
    assert {line.split()[-1] for line in lines if line.split()[-1].startswith(network.CHAIN)} <= set(made)
    assert all(len(name) <= 28 for name in made)
    assert [line for line in lines if line.startswith("-X")] == ["-X CORRAL-LAB-0123456789ab"]
    assert lines[-1] == "COMMIT"
    assert not Rules(PODS, NAMESPACES, []).chains


def test_ours_come_first_and_go_with_the_lab() -> None:
    lines = ["-A FORWARD -j KUBE-FORWARD", f"-A FORWARD -j {MAIN}", f"-A INPUT -j {MAIN}", f":{MAIN} - [0:0]"]
    assert not enforcer.first(lines)
    assert enforcer.first(lines[1:])
    assert not enforcer.first(lines[2:])
    removal = network.removal_script("filter", lines)
    assert f"-X {MAIN}" in removal
    assert f"-D FORWARD -j {MAIN}" in removal


class Server:
    """Answers a list, then events, then that its version is too old; after that it is away."""

    def __init__(self) -> None:
        self.lists = [[pod(1, A)], [pod(2, B)]]
        self.events = [
            [{"type": "ADDED", "object": pod(3, A)}, {"type": "DELETED", "object": pod(1, A)}, {"type": "ERROR", "object": {}}],
            [],
        ]

    def call(self, _method: str, _path: str) -> tuple[int, Any]:
        return 200, {"items": self.lists.pop(0), "metadata": {"resourceVersion": "1"}}

    def watch(self, _path: str, _version: str) -> Any:
        return iter(self.events.pop(0))


def test_objects_are_followed_and_listed_anew_when_a_watch_can_not_go_on() -> None:
    seen: list[set[str]] = []
    kinds: list[enforcer.Kind] = []
    kind = enforcer.Kind(Server(), "/pods", lambda: seen.append({one["metadata"]["name"] for one in kinds[0].objects()}))  # type: ignore[arg-type]
    kinds.append(kind)
    with pytest.raises(IndexError):  # the third list
        kind.follow()
    assert seen == [{"p1"}, {"p1", "p3"}, {"p3"}, {"p2"}]
    assert kind.listed.is_set()
