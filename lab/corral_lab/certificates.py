# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's certificates and kubeconfigs, made with the openssl program. They live and go with the lab, so nothing renews them."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .state import LabError, write_file

DAYS = "3650"


@dataclass(frozen=True)
class Request:
    """A certificate to make: file name, subject, names and addresses (openssl's `DNS:x,IP:y`), and what it is used for."""

    name: str
    subject: str
    alternative_names: str = ""
    usage: str = "clientAuth"


def requests(address: str, service_address: str, host_name: str, nodes: Sequence[str]) -> list[Request]:
    """Every certificate that the lab's CA signs. Users and groups are those that Kubernetes' built-in roles are bound to."""
    api_names = "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost"
    wanted = [
        Request(
            "apiserver", "/CN=kube-apiserver", f"{api_names},DNS:{host_name},IP:{address},IP:{service_address},IP:127.0.0.1", "serverAuth"
        ),
        Request("apiserver-kubelet", "/O=system:masters/CN=corral-lab-apiserver"),
        Request("admin", "/O=system:masters/CN=corral-lab-admin"),
        Request("controller-manager", "/CN=system:kube-controller-manager"),
        Request("scheduler", "/CN=system:kube-scheduler"),
        Request("kube-proxy", "/CN=system:kube-proxy"),
        Request("coredns", "/CN=corral-lab:coredns"),
    ]
    for node in nodes:
        names = f"DNS:{node},DNS:localhost,IP:{address},IP:127.0.0.1"
        wanted.append(Request(node, f"/O=system:nodes/CN=system:node:{node}", names, "clientAuth,serverAuth"))
    return wanted


def make(pki: Path, wanted: Sequence[Request]) -> None:
    """Make what is missing: the CA, the service accounts' key, etcd's own certificate, and all of `wanted`. Raises LabError."""
    pki.mkdir(parents=True, exist_ok=True)
    pki.chmod(0o700)
    if not (pki / "ca.crt").exists():
        extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"]
        _certificate(pki, "ca", "/CN=corral-lab", extensions, None)
    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(_signed, pki, request) for request in wanted if not (pki / f"{request.name}.crt").exists()]
        if not (pki / "etcd.crt").exists():
            # Server, client and CA in one: only who holds this key talks to etcd, whatever the lab's CA signs for others.
            extensions = [
                "basicConstraints=critical,CA:TRUE",
                "extendedKeyUsage=serverAuth,clientAuth",
                "subjectAltName=DNS:localhost,IP:127.0.0.1",
            ]
            work.append(pool.submit(_certificate, pki, "etcd", "/CN=corral-lab-etcd", extensions, None))
        if not (pki / "service-accounts.key").exists():
            work.append(pool.submit(_service_account_key, pki))
        for one in work:
            one.result()


def _signed(pki: Path, request: Request) -> None:
    extensions = ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature", f"extendedKeyUsage={request.usage}"]
    if request.alternative_names:
        extensions.append(f"subjectAltName={request.alternative_names}")
    _certificate(pki, request.name, request.subject, extensions, "ca")


def _certificate(pki: Path, name: str, subject: str, extensions: list[str], issuer: str | None) -> None:
    command = ["req", "-x509", "-config", "/dev/null", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256"]
    command += ["-subj", subject, "-days", DAYS, "-keyout", str(pki / f"{name}.key"), "-out", str(pki / f".{name}.crt")]
    if issuer:
        command += ["-CA", str(pki / f"{issuer}.crt"), "-CAkey", str(pki / f"{issuer}.key")]
    for extension in extensions:
        command += ["-addext", extension]
    _openssl(command)
    # The certificate takes its name last, so that an interrupted run is not taken for a finished one.
    (pki / f".{name}.crt").rename(pki / f"{name}.crt")


def _service_account_key(pki: Path) -> None:
    _openssl(["genrsa", "-out", str(pki / ".service-accounts.key"), "2048"])
    _openssl(["rsa", "-in", str(pki / ".service-accounts.key"), "-pubout", "-out", str(pki / "service-accounts.pub")])
    (pki / ".service-accounts.key").rename(pki / "service-accounts.key")


def _openssl(arguments: list[str]) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise LabError(f"openssl {arguments[0]} failed ({reason}); OpenSSL 3.0 or newer is needed, as in Debian 12.")


def kubeconfig(pki: Path, server: str, user: str) -> str:
    """A kubeconfig (JSON, which is YAML) with everything inside it, for one of the client certificates."""

    def encoded(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "corral-lab", "cluster": {"server": server, "certificate-authority-data": encoded(pki / "ca.crt")}}],
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": encoded(pki / f"{user}.crt"), "client-key-data": encoded(pki / f"{user}.key")},
            }
        ],
        "contexts": [{"name": "corral-lab", "context": {"cluster": "corral-lab", "user": user}}],
        "current-context": "corral-lab",
    }
    return json.dumps(document, indent=1) + "\n"


def write_kubeconfig(path: Path, pki: Path, server: str, user: str) -> None:
    """Readable by root alone: it holds a key."""
    write_file(path, kubeconfig(pki, server, user), 0o600)
