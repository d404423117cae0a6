# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""NetworkPolicies as rules of iptables. Pure: from pods, namespaces and policies, as the API server tells them, to what iptables-restore reads.

All pods' packets are routed by this machine, so one set of rules holds for all nodes. The machine's own connections to pods always pass, as on any
node (the kubelet's probes). Pods have IPv4 alone. A packet has to be allowed twice, by who sends it and by whom it is sent to; an allowance is a mark
that the end of a chain looks for, since ACCEPT would end it all.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .network import CHAIN, POD_RANGE

Json = dict[str, Any]

MAIN = f"{CHAIN}-POLICY"
MARK = "0x1000000/0x1000000"


@dataclass(frozen=True)
class Pod:
    """A pod that has an address of its own. ``ports`` are its named ones, by name and protocol."""

    namespace: str
    address: str
    labels: Json
    ports: dict[tuple[str, str], int]


def pods(found: Iterable[Json]) -> list[Pod]:
    """Those that policies are about: with an address, which is not the machine's, and not ended."""
    kept = []
    for pod in found:
        status, spec = pod.get("status") or {}, pod["spec"]
        if status.get("podIP") and not spec.get("hostNetwork") and status.get("phase") not in ("Succeeded", "Failed"):
            containers = [*spec["containers"], *(spec.get("initContainers") or ())]
            named = {
                (port["name"], port.get("protocol", "TCP")): port["containerPort"]
                for container in containers
                for port in container.get("ports") or ()
                if "name" in port
            }
            kept.append(Pod(pod["metadata"]["namespace"], status["podIP"], pod["metadata"].get("labels") or {}, named))
    return sorted(kept, key=lambda pod: ipaddress.IPv4Address(pod.address))


def selects(selector: Json, labels: Json) -> bool:
    """Whether a label selector holds; an empty one holds for all."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(one, labels) for one in selector.get("matchExpressions") or ())


def _holds(expression: Json, labels: Json) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise ValueError(f"no operator of a label selector: {expression['operator']}")


class Rules:
    """The rules for what there is."""

    def __init__(self, found_pods: Iterable[Json], namespaces: Iterable[Json], policies: Iterable[Json]) -> None:
        self.pods = pods(found_pods)
        self.namespaces = {one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in namespaces}
        self.policies = sorted(policies, key=lambda one: (one["metadata"]["namespace"], one["metadata"]["name"]))
        self.chains: dict[str, list[str]] = {}
        self.main: list[str] = []
        # A connection that was let in goes on.
        self.main.append("-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN")
        for direction, own in (("Egress", "-s"), ("Ingress", "-d")):
            for pod in self.pods:
                policies_of = [one["spec"] for one in self.policies if self._is_for(one, pod, direction)]
                if policies_of:
                    lines = [
                        line
                        for spec in policies_of
                        for rule in spec.get(direction.lower()) or ()
                        for line in self._lines(rule, pod, direction)
                    ]
                    end = [f"-m mark ! --mark {MARK} -j REJECT", "-j MARK --set-xmark 0x0/0x1000000"]
                    self.main.append(f"{own} {pod.address}/32 -j {self._chain([*dict.fromkeys(lines), *end])}")

    def _is_for(self, policy: Json, pod: Pod, direction: str) -> bool:
        spec = policy["spec"]
        return (
            policy["metadata"]["namespace"] == pod.namespace
            and direction in (spec.get("policyTypes") or ())
            and selects(spec["podSelector"], pod.labels)
        )

    def _chain(self, lines: list[str]) -> str:
        """Pods with the same rules share a chain, which is named by them."""
        name = f"{CHAIN}-{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:12]}"
        self.chains[name] = lines
        return name

    def _lines(self, rule: Json, pod: Pod, direction: str) -> Iterator[str]:
        """What allows by one rule of a policy: each of its peers on each of its ports."""
        peers = rule.get("from" if direction == "Ingress" else "to") or ()
        other = "-s" if direction == "Ingress" else "-d"
        allow = f"-j MARK --set-xmark {MARK}"
        if not peers:
            yield from (f"{port}{allow}" for port in self._ports(rule, [pod] if direction == "Ingress" else self.pods))
        for peer in peers:
            if "ipBlock" in peer:
                block = peer["ipBlock"]
                if ":" in block["cidr"]:
                    continue
                excepted = [text for text in block.get("except") or () if ":" not in text]
                target = f"-j {self._chain([*(f'{other} {text} -j RETURN' for text in excepted), allow])}" if excepted else allow
                yield from (
                    f"{other} {block['cidr']} {port}{target}" for port in self._ports(rule, [pod] if direction == "Ingress" else [])
                )
            elif peer == {"namespaceSelector": {}} and not any(isinstance(one.get("port"), str) for one in rule.get("ports") or ()):
                yield from (f"{other} {POD_RANGE} {port}{allow}" for port in self._ports(rule, []))
            else:
                for one in self._peers(peer, pod.namespace):
                    ports = self._ports(rule, [pod] if direction == "Ingress" else [one])
                    yield from (f"{other} {one.address}/32 {port}{allow}" for port in ports)

    def _peers(self, peer: Json, namespace: str) -> Iterator[Pod]:
        for one in self.pods:
            if "namespaceSelector" in peer:
                if one.namespace not in self.namespaces or not selects(peer["namespaceSelector"], self.namespaces[one.namespace]):
                    continue
            elif one.namespace != namespace:
                continue
            if selects(peer.get("podSelector") or {}, one.labels):
                yield one

    def _ports(self, rule: Json, named_by: Iterable[Pod]) -> Iterator[str]:
        """Matches for the ports of a rule, each with a space at its end; an empty one where it is for all. A name is looked up in pods."""
        if not rule.get("ports"):
            yield ""
        for one in rule.get("ports") or ():
            protocol = one.get("protocol", "TCP")
            match one.get("port"):
                case None:
                    yield f"-p {protocol.lower()} "
                case str(name):
                    numbers = {pod.ports[name, protocol] for pod in named_by if (name, protocol) in pod.ports}
                    yield from (f"-p {protocol.lower()} --dport {number} " for number in sorted(numbers))
                case number:
                    end = f":{one['endPort']}" if "endPort" in one else ""
                    yield f"-p {protocol.lower()} --dport {number}{end} "

    def script(self, there: Iterable[str]) -> str:
        """Input for iptables-restore --noflush. ``there``: the chains that such a script made before, of which others go."""
        chains = {MAIN: self.main, **self.chains}
        gone = [name for name in there if name not in chains]
        return "\n".join(
            [
                "*filter",
                *(f":{name} - [0:0]" for name in (*chains, *gone)),
                *(f"-A {name} {line}" for name, lines in chains.items() for line in lines),
                *(f"-X {name}" for name in gone),
                "COMMIT",
                "",
            ]
        )
