# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration files of slurmrestd and its TLS proxy, and the settings of slurm.conf and slurmdbd.conf for them. Pure.

slurmrestd passes a user's token on to slurmctld and slurmdbd, which verify it. So it has no key: neither munge's nor that of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import components, config, quantity
from ansible_collections.corral.slurm.plugins.module_utils._slurm import conf

Json = dict[str, Any]

PORT = components.REST_PORT
# The name of the key in its Secret, and of the file.
KEY = "jwt.key"
JWKS = "jwks.json"
SOCKET = "/run/slurmrestd/rest.sock"
TLS = "/etc/corral/rest-tls"
# slurmctld.sh and slurmdbd.sh put the key there: Slurm refuses a file that others may read, and a Secret's would be root's.
_KEY_FILE = f"/run/slurm-jwt/{KEY}"
_JWKS_FILE = f"/etc/corral/jwks/{JWKS}"
# Requests that slurmrestd works on at once; others wait in the proxy.
_AT_ONCE = 32
# Settings of slurm.conf that are for those who have a key, in lower case.
_OF_OTHERS = frozenset({"authtype", "authinfo", "credtype", "authalttypes", "authaltparameters"})
# Keys that an extra line of slurm.conf or slurmdbd.conf cannot set with spec.rest, in lower case, with what to do instead.
OWNED: dict[str, str] = {
    "authalttypes": "spec.rest sets it",
    "authaltparameters": "spec.rest sets it; set spec.rest.jwks for keys of an identity provider",
}


def auth_settings(spec: Json) -> dict[str, conf.Value]:
    """Return the settings by which slurmctld and slurmdbd verify tokens. ``spec`` is the whole spec; empty without spec.rest."""
    if "rest" not in spec:
        return {}
    parameters = [f"jwt_key={_KEY_FILE}"]
    jwks = spec["rest"].get("jwks")
    if jwks:
        parameters += [f"jwks={_JWKS_FILE}", f"userclaimfield={jwks['userClaimField']}"]
    return {"AuthAltTypes": "auth/jwt", "AuthAltParameters": ",".join(parameters)}


def slurm_conf(text: str) -> str:
    """Return slurmrestd's slurm.conf, made of the cluster's ``text``: without munge, and without nodes, which slurmctld reports."""
    # cred/slurm would want a key, and slurmrestd makes no credentials.
    own = [conf.line([pair]) for pair in (("AuthType", "auth/jwt"), ("CredType", "cred/munge"))]
    return conf.text(config.HEADER, [*own, *config.for_clients(text, _OF_OTHERS)])


def accounts(spec: Json) -> dict[str, str]:
    """Return passwd and group of the document's users, by which slurmrestd shows names beside ids."""
    users = [f"{user['name']}:x:{user['uid']}:{user['gid']}::/nonexistent:/usr/sbin/nologin\n" for user in spec["users"]]
    groups = [f"{group['name']}:x:{group['gid']}:\n" for group in spec["groups"]]
    return {"passwd": "".join(users), "group": "".join(groups)}


def proxy_conf(spec: Json) -> str:
    """Return haproxy.cfg. ``spec`` is spec.rest."""
    limits = spec["limits"]
    tls = f" ssl crt {TLS}/tls.crt alpn http/1.1" if "tls" in spec else ""
    lines = [
        *(f"# {line}" for line in config.HEADER),
        "global",
        # Neither headers nor bodies are logged, so no token is.
        "    log stdout format raw local0 info",
        f"    maxconn {limits['connections'] + 16}",
        "    ssl-default-bind-options ssl-min-ver TLSv1.2",
        # tls.key beside tls.crt, as Kubernetes names them.
        "    ssl-load-extra-del-ext",
        "    hard-stop-after 30s",
        "defaults",
        "    mode http",
        "    log global",
        "    option httplog",
        "    option dontlognull",
        # Each request is a connection of its own to slurmrestd, whatever clients and gateways share.
        "    option http-server-close",
        "    http-reuse never",
        "    timeout connect 5s",
        "    timeout http-request 10s",
        "    timeout http-keep-alive 10s",
        "    timeout client 60s",
        "    timeout queue 30s",
        # Longer than slurmctld's own time-outs, and than large queries of slurmdbd.
        "    timeout server 300s",
        "frontend rest",
        f"    bind :{PORT}{tls}",
        f"    maxconn {limits['connections']}",
        "    stick-table type ipv6 size 100k expire 10m store conn_cur",
        "    tcp-request connection track-sc0 src",
        f"    tcp-request connection reject if {{ sc0_conn_cur gt {limits['connectionsPerSource']} }}",
        "    monitor-uri /healthz",
        "    monitor fail if { nbsrv(slurmrestd) lt 1 }",
        # Without a length, nobody knows how much will come.
        '    http-request return status 411 content-type text/plain string "Content-Length is needed" if { req.hdr(transfer-encoding) -m found }',
        f"    http-request deny deny_status 413 if {{ req.hdr_val(content-length) gt {int(quantity.parse(limits['requestSize']))} }}",
        "    default_backend slurmrestd",
        "backend slurmrestd",
        # The only request that slurmrestd responds to without an error in its log and without slurmctld.
        "    option httpchk",
        "    http-check send meth GET uri /healthz ver HTTP/1.1 hdr Host localhost hdr X-SLURM-USER-TOKEN health",
        "    http-check expect status 404",
        f"    server slurmrestd unix@{SOCKET} maxconn {_AT_ONCE} check inter 10s fastinter 1s downinter 1s",
    ]
    return "\n".join(lines) + "\n"


def errors(spec: Json) -> Iterator[str]:
    """Yield a sentence for each error in ``spec.rest``, whose structure is right."""
    if "rest" not in spec:
        return
    found = spec["rest"]
    if found["limits"]["connectionsPerSource"] > found["limits"]["connections"]:
        yield "spec.rest.limits.connectionsPerSource is more than spec.rest.limits.connections, so it limits nobody; lower the first or raise the second."
    if "jwks" in found and "associations" not in spec.get("accounting", {}).get("enforce", ()):
        yield (
            "spec.rest.jwks needs spec.accounting.enforce with associations: Slurm takes a token of a user whom the cluster does not have as one of uid 99, "
            "who could submit jobs otherwise; add associations, or remove jwks."
        )
