# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which proxy leads to an API server, decided as kubectl does (golang.org/x/net/http/httpproxy); Python's own rules know no networks in NO_PROXY."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from urllib.parse import urlsplit

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ConfigError

_SCHEMES = ("http", "https", "socks5", "socks5h")
_PORTS = {"http": 80, "https": 443}


def checked(url: str, source: str) -> str:
    """Return the URL of a proxy. Raises ConfigError without quoting it: there may be a password in it."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in _SCHEMES and parts.hostname and (parts.port is None or parts.port):
            return url
    raise ConfigError(f"The proxy of {source} is none that can be used; write http://name:port, https://name:port or socks5://name:port.")


def of_environment(server: str) -> str | None:
    """Return the proxy that HTTPS_PROXY or HTTP_PROXY and NO_PROXY name for ``server``, None for none."""
    parts = urlsplit(server)
    variable = f"{parts.scheme.upper()}_PROXY"
    url = os.environ.get(variable) or os.environ.get(variable.lower())
    if not url or parts.hostname is None:
        return None
    if bypassed(parts.hostname, parts.port or _PORTS[parts.scheme], os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""):
        return None
    return checked(url if "://" in url else f"http://{url}", f"the environment ({variable})")


def bypassed(host: str, port: int, exceptions: str) -> bool:
    """True when ``exceptions`` (names, domains, addresses, networks, each perhaps with a port, or ``*``) or the loopback rule lets ``host`` go without."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    name = host.lower().rstrip(".")
    return any(_matches(entry.strip().lower(), name, address, port) for entry in exceptions.split(",") if entry.strip())


def _matches(entry: str, name: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        with contextlib.suppress(ValueError):
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        return False
    host, colon, at = entry.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):  # no port, or an IPv6 address
        host, at = entry, ""
    if at and at != str(port):
        return False
    host = host.strip("[]")
    if _address(host) is not None:
        return _address(host) == address
    host = host.removeprefix("*")
    return bool(host) and (name.endswith(host if host.startswith(".") else f".{host}") or name == host)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
