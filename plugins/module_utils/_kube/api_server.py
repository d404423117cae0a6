# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of k8s_api_server_info: under which addresses pods reach the API server, for policies that close it.

Its Service's address, and those behind it: most network plugins look at a packet when the one has been replaced by the other, some before.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Forbidden, KubeError, NotFound

# The API server itself makes both, under these names.
_PLACES = (
    ("/api/v1/namespaces/default/services/kubernetes", "read the Service default/kubernetes"),
    ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes", "read the EndpointSlice default/kubernetes"),
)


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Return the addresses; the parameters are those of the module k8s_api_server_info.

    Returns ``changed``, ``ipv4``, ``ipv6``, ``requests``, and ``warnings`` where they may not be read. Raises CorralError.
    """
    del check, diff
    client = Client(auth.resolve(params))
    found: set[str] = set()
    warnings: list[str] = []
    try:
        for path, what in _PLACES:
            try:
                found.update(_addresses(client.get(path, what=what).data))
            except NotFound:
                continue
            except Forbidden as error:
                warnings.append(
                    f"{error} Until its addresses are known, pods are not kept from the Kubernetes API server: name them in "
                    "spec.network.egress.apiServer, or give the right to read them (docs/rights.md)."
                )
                found.clear()
                break
    except KubeError as error:
        error.data = {"requests": client.requests, **error.data}
        raise
    finally:
        client.close()
    result: dict[str, Any] = {"changed": False, **networks(found), "requests": client.requests}
    if warnings:
        result["warnings"] = warnings
    return result


def _addresses(data: dict[str, Any]) -> list[str]:
    """Those of a Service, or of an EndpointSlice."""
    behind = [address for endpoint in data.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return [str(address) for address in (*((data.get("spec") or {}).get("clusterIPs") or ()), *behind)]


def networks(addresses: set[str]) -> dict[str, list[str]]:
    """Return the addresses as networks of one address each, by family, in an order that lasts; names are none."""
    found: dict[str, list[str]] = {"ipv4": [], "ipv6": []}
    for text in addresses:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        found[f"ipv{address.version}"].append(f"{address}/{address.max_prefixlen}")
    return {family: sorted(those) for family, those in found.items()}
