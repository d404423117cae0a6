# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where pods may connect to: the document's word on it checked, and made into the rules of NetworkPolicies.

A NetworkPolicy only allows, and a packet that any of its rules allows goes. So what is closed is excepted from each network that is broader, all addresses
among them, and who allows it by itself, or a part of it, opens that. Where the API server is no document says by itself: a run reads it, and the template
excepts it likewise.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from ansible_collections.corral.slurm.plugins.module_utils._cluster import components
from ansible_collections.corral.slurm.plugins.module_utils._cluster.model import (
    Allowance,
    Component,
    Egress,
    EgressBlock,
    EgressPolicy,
    Json,
)

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# What a machine tells about itself and its credentials to whoever asks from it: link-local addresses (most clouds' 169.254.169.254), and those that
# clouds have elsewhere. DNS that some of them serve stays open, by its port.
METADATA = (
    "169.254.0.0/16",
    "fe80::/10",
    "fd00:ec2::/32",  # AWS: docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html, of which there are more (EKS Pod Identity)
    "fd20:ce::254/128",  # Google: cloud.google.com/compute/docs/metadata/querying-metadata
    "168.63.129.16/32",  # Azure: learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
    "fd00:c1::a9fe:a9fe/128",  # Oracle: github.com/oracle/oci-python-sdk, auth/signers/instance_principals_security_token_signer.py
    "192.0.0.192/32",  # Oracle's older cloud: docs.oracle.com/en/cloud/cloud-at-customer/occ-get-started/retrieve-predefined-instance-metadata.html
    "100.100.100.200/32",  # Alibaba: docs.cloud-init.io/en/latest/reference/datasources/aliyun.html
    "fd00:100::100:200/128",  # Alibaba by IPv6: github.com/canonical/cloud-init/issues/6892
    "100.96.0.96/32",  # Volcano Engine: www.volcengine.com/docs/6396/113780
    "fd00:42::42/128",  # Scaleway: docs.cloud-init.io/en/latest/reference/datasources/scaleway.html
    "fd00:a9fe:a9fe::1/128",  # Akamai: techdocs.akamai.com/cloud-computing/docs/metadata-service-api
)
# To wherever it is: a service's pods, the node's own cache (169.254.20.10), a cloud's. OpenShift's pods listen on 5353.
DNS: list[Json] = [
    {"ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]},
    {"to": [{"namespaceSelector": {}}], "ports": [{"protocol": protocol, "port": 5353} for protocol in ("UDP", "TCP")]},
]
_NAMESPACE = "kubernetes.io/metadata.name"
# Some network plugins count no pod among all addresses, so pods are named as well.
_EVERYWHERE: Json = {"peers": [{"namespaceSelector": {}}], "cidrs": ["0.0.0.0/0", "::/0"]}
# Of one network in another that is allowed, in all: about 200 KB of a NetworkPolicy, which the API server takes.
_MOST_EXCEPTIONS = 10_000


def errors(spec: Json) -> Iterator[str]:
    """Yield a sentence for each error in spec.network.egress, whose structure is right."""
    egress = spec["network"]["egress"]
    found = list(_errors(egress))
    yield from found
    if found:
        return
    rules = [_reached(rule) for rule in egress["allow"]]
    inside = _inside({text for rule in rules for text in rule["cidrs"]}, [*_closed(egress), *egress["apiServer"]])
    count = sum(len(inside[text]) for rule in rules for text in rule["cidrs"])
    if count > _MOST_EXCEPTIONS:
        yield (
            f"spec.network.egress.allow names networks from which {count} closed ones would be excepted, more than the {_MOST_EXCEPTIONS} that a "
            "NetworkPolicy has room for; allow fewer or narrower ones, or close fewer."
        )


def _errors(egress: Json) -> Iterator[str]:
    path = "spec.network.egress"
    for field in ("close", "apiServer"):
        for index, text in enumerate(egress[field]):
            yield from _network(f"{path}.{field}[{index}]", text, whole=False)
    for index, rule in enumerate(egress["allow"]):
        where = f"{path}.allow[{index}]"
        for place, text in enumerate(rule["cidrs"]):
            yield from _network(f"{where}.cidrs[{place}]", text, whole=True)


def _network(path: str, text: str, *, whole: bool) -> Iterator[str]:
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        # The bits behind the prefix, or no network at all.
        try:
            meant = ipaddress.ip_network(text, strict=False)
        except ValueError:
            yield f"{path} is {text}, no network; give one such as 10.20.0.0/16, 10.1.2.3/32 or 2001:db8::/32."
            return
        yield f"{path} is {text}, an address in the network {meant}; give {meant}, or the address alone with /{meant.max_prefixlen}."
        return
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None:
        yield f"{path} is {text}, an IPv4 network in IPv6's form, which no packet has; give the IPv4 network."
    elif not whole and not network.prefixlen:
        yield f"{path} is {text}, all there is; choose workers: Restricted and login: Restricted, which close all but what allow names."


def resolve(name: str, spec: Json, cluster: Json, known: dict[str, Component]) -> Egress:
    """Return the policies for ``spec.network.egress``. ``cluster`` is the selector of all pods of the cluster."""
    egress = spec["network"]["egress"]
    rules = [{"to": [{"podSelector": {"matchLabels": cluster}}]}, *DNS]
    reached = [_reached(rule) for rule in egress["allow"]]
    networks = sorted({text for rule in (*reached, _EVERYWHERE) for text in rule["cidrs"]})
    inside = _inside(networks, _closed(egress))

    def allowance(rule: Json) -> Allowance:
        blocks = [EgressBlock(cidr=text, closed=inside[text]) for text in rule["cidrs"]]
        return Allowance(peers=rule["peers"], blocks=blocks, ports=rule.get("ports", []))

    allowed = [allowance(rule) for rule in reached]
    everywhere = allowance(_EVERYWHERE)

    def policy(field: str, parts: list[str]) -> EgressPolicy:
        """Of the components that connect to what one field says, or to their cluster alone; without a field to nobody."""
        selector: Json = {"matchLabels": known[parts[0]].selector}
        if len(parts) > 1:
            common = {label: value for label, value in known[parts[0]].selector.items() if label != components.LABEL}
            selector = {"matchLabels": common, "matchExpressions": [{"key": components.LABEL, "operator": "In", "values": parts}]}
        # The pods of an operator's object do not have the labels of the cluster's.
        operated = [part.name for part in components.COMPONENTS if part.app and part.name in known and set(part.ingress) & set(parts)]
        peers = [{"to": [{"podSelector": {"matchLabels": known[one].selector}}]} for one in operated]
        allowances = [] if field in ("", components.CLUSTER) else [*allowed, everywhere] if egress[field] == "Open" else allowed
        return EgressPolicy(
            name=f"{name}-base-egress-{parts[0]}", selector=selector, rules=[*rules, *peers] if field else [], allowances=allowances
        )

    # First the one after which the field is named, for the policy has its name.
    groups: dict[str, list[str]] = {}
    parts = (part for part in components.COMPONENTS if part.name in known and not part.app)
    for part in sorted(parts, key=lambda part: not part.egress.startswith(part.name)):
        groups.setdefault(part.egress, []).append(part.name)
    return Egress(networks=networks, api_server=egress["apiServer"], policies=[policy(field, parts) for field, parts in groups.items()])


def _closed(egress: Json) -> list[str]:
    """What is closed besides the API server, each once."""
    return sorted({*METADATA, *egress["close"]})


def _reached(rule: Json) -> Json:
    """What an entry of ``allow`` is for: its networks and namespaces, or everything where it names neither."""
    namespaces = rule["namespaces"]
    where = {"cidrs": rule["cidrs"], "peers": [{"namespaceSelector": {"matchLabels": {_NAMESPACE: text}}} for text in namespaces]}
    return {**(where if rule["cidrs"] or namespaces else _EVERYWHERE), "ports": rule["ports"]}


def _inside(networks: Iterable[str], closed: Iterable[str]) -> dict[str, list[str]]:
    """Return which of the closed networks lie within each of these and are less than all of it.

    By looking up what each lies within, not by trying pairs: of these there may be a million.
    """
    found: dict[_Network, list[str]] = {ipaddress.ip_network(text): [] for text in networks}
    lengths = {(network.version, network.prefixlen) for network in found}
    for text in closed:
        network = ipaddress.ip_network(text)
        for version, length in lengths:
            if version == network.version and length < network.prefixlen:
                found.get(network.supernet(new_prefix=length), []).append(text)
    return {text: found[ipaddress.ip_network(text)] for text in networks}
