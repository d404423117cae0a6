# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Under which addresses pods reach the API server, for policies that close it.

Its Service's address, and those behind it: most network plugins check a packet when the one has been replaced by the other, some before. And that of
the run's own connection, which may be a load balancer's. What a run has read is recorded in an annotation of a NetworkPolicy, by where it was read, and
replaced only by a run that reads that again: so neither fewer rights nor another kubeconfig open what was closed.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import Ref, Resource
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Forbidden, NotFound

ANNOTATION = "corral.hpc/api-server"
_POLICIES = Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", namespaced=True, builtin=True)
# The API server itself makes both, under these names. No host's name has a slash, by which a run's own connection is recorded.
_PLACES = {
    "Service/kubernetes": "/api/v1/namespaces/default/services/kubernetes",
    "EndpointSlice/kubernetes": "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes",
}


def read(client: Client, namespace: str, policy: str, addresses: list[str], networks: list[str]) -> dict[str, Any]:
    """Return the addresses of the API server as networks: ``ipv4``, ``ipv6``, ``within`` (for each of ``networks``, which of them lie in it), ``record`` (all
    that is known, and of where, for the annotation of the NetworkPolicy ``policy``), and ``warnings`` where they are not known.

    Where ``addresses`` name them, these alone. Else they are read in each pass, for they may move; what this one may not read, one before has recorded.
    Raises KubeError.
    """
    known = _recorded(client, namespace, policy)
    warnings: list[str] = []
    if not addresses:
        warnings = _read(client, known)
        _add_connection(client.access.server, known)
    found = sorted(set(addresses or (network for networks_of in known.values() for network in networks_of)))
    result: dict[str, Any] = {
        **{family: [text for text in found if (":" in text) == (family == "ipv6")] for family in ("ipv4", "ipv6")},
        "within": within(networks, found),
        "record": " ".join(f"{source}={network}" for source, networks_of in sorted(known.items()) for network in networks_of),
    }
    return {**result, "warnings": warnings} if warnings else result


def _recorded(client: Client, namespace: str, name: str) -> dict[str, list[str]]:
    """What runs have read before, by where."""
    known: dict[str, list[str]] = {}
    ref = Ref(_POLICIES, namespace, name)
    try:
        policy = client.get(ref.path, what=f"read {ref}").data
    except NotFound:
        return known
    for part in str((policy["metadata"].get("annotations") or {}).get(ANNOTATION, "")).split():
        source, _equals, network = part.rpartition("=")
        with contextlib.suppress(ValueError):  # somebody else's words
            known.setdefault(source, []).append(str(ipaddress.ip_network(network)))
    return known


def _read(client: Client, known: dict[str, list[str]]) -> list[str]:
    """Read what this run may, into what is known; return what to say of what nobody has read."""
    unknown: list[str] = []
    for place, path in _PLACES.items():
        what = place.replace("/", " default/")
        try:
            found = _networks(_addresses(client.get(path, what=f"read the {what}").data))
            reason = f"The {what} has no address"
        except (Forbidden, NotFound) as error:
            found, reason = [], str(error).rstrip(".")
        if found:
            known[place] = found
        elif place not in known:
            unknown.append(reason)
    return [
        f"{reason}; until a run reads addresses there, or spec.network.egress.apiServer names the Kubernetes API server's (docs/rights.md), "
        "pods are not kept from them."
        for reason in unknown[:1]
    ]


def _addresses(data: dict[str, Any]) -> list[str]:
    """Those of a Service, or of an EndpointSlice."""
    behind = [address for endpoint in data.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return [str(address) for address in (*((data.get("spec") or {}).get("clusterIPs") or ()), *behind)]


def _add_connection(server: str, known: dict[str, list[str]]) -> None:
    """Add those under which this run reaches the API server, by the host's name; none where only a proxy can resolve it. Those that the name had stay, for
    DNS may tell some of them at a time. What the API server's own objects tell is not recorded twice, so that runs from within the cluster and from without
    make the same policy."""
    host = urlsplit(server).hostname or ""
    with contextlib.suppress(OSError, UnicodeError):
        found = _networks(str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
        known_before = {network for place in _PLACES for network in known.get(place, ())}
        known[host] = sorted({*known.get(host, []), *found} - known_before)


def _networks(addresses: Iterable[str]) -> list[str]:
    """Return the addresses as networks of one address each, in an order that lasts; names are none, nor is this machine by itself, such as a tunnel's end."""
    found: set[str] = set()
    for text in addresses:
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            continue
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if not address.is_loopback and not address.is_unspecified:
            found.add(f"{address}/{address.max_prefixlen}")
    return sorted(found)


def within(outer: Iterable[str], inner: Iterable[str]) -> dict[str, list[str]]:
    """Return for each of the first networks which of the second lie in it and are less than all of it: those that a NetworkPolicy can except from it."""
    parsed: list[tuple[str, Any]] = [(text, ipaddress.ip_network(text)) for text in inner]
    found: dict[str, list[str]] = {}
    for text in outer:
        network: Any = ipaddress.ip_network(text)
        found[text] = [one for one, small in parsed if small.version == network.version and small != network and small.subnet_of(network)]
    return found
