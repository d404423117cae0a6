# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Certificate of spec.rest.tls.issuerRef before the API server, in order: without its kind, and with a stand-in of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import WaitTimeout

from .conftest import Engine
from .stand_in import CONDITIONS, TEXT, Json, StandIn, mapping

pytestmark = pytest.mark.lab

CRD = "certificates.cert-manager.io"
SET = {"name": "set"}
TEXTS: Json = {"type": "array", "items": TEXT}
USAGE: Json = {"type": "string", "enum": ["digital signature", "key encipherment", "server auth", "client auth"]}
SPEC = mapping(
    secretName=TEXT,
    dnsNames=TEXTS,
    ipAddresses=TEXTS,
    issuerRef=mapping(name=TEXT, kind=TEXT, group=TEXT),
    privateKey=mapping(rotationPolicy={"type": "string", "enum": ["Never", "Always"]}, algorithm=TEXT),
    usages={"type": "array", "items": USAGE},
)
CERT_MANAGER = StandIn(
    CRD,
    "v1",
    {"kind": "Certificate", "listKind": "CertificateList", "plural": "certificates", "singular": "certificate"},
    {"spec": SPEC, "status": mapping(conditions=CONDITIONS)},
    name="crt",
)


def with_tls(**tls: Any) -> Json:
    return {"rest": {"tls": {"issuerRef": {"name": "own"}, **tls}}}


def certificate(engine: Engine, **tls: Any) -> Json:
    """The object that a run applies."""
    return CERT_MANAGER.rendered(engine, "slurm_rest/templates/certificate.yml.j2", with_tls(**tls))


def report(engine: Engine, status: str, reason: str, message: str) -> None:
    """Write the condition that cert-manager writes."""
    CERT_MANAGER.report(engine, "crt-rest", status, reason, message)


def test_without_cert_manager_a_run_ends_before_it_changes_the_cluster(engine: Engine, tmp_path: Path) -> None:
    message = "spec.rest.tls.issuerRef needs cert-manager, and the API server has no kind Certificate"
    CERT_MANAGER.is_missed(engine, tmp_path, with_tls(), message)


@pytest.fixture(scope="module")
def kind() -> Iterator[None]:
    with CERT_MANAGER.served():
        yield


@pytest.mark.usefixtures("kind")
def test_a_run_waits_for_its_condition_and_states_its_message(engine: Engine) -> None:
    wanted = certificate(engine, dnsNames=["slurm.example.com"], ipAddresses=["192.0.2.10"])

    def apply() -> dict[str, str]:
        return engine.results(wanted, applyset=SET, foreign_fields=[], wait=True, wait_timeout=2)

    with pytest.raises(WaitTimeout, match=r"Certificate .*/crt-rest: cert-manager has not reported on it"):
        apply()
    live = engine.get(CRD, "crt-rest")
    assert live["spec"] == wanted["spec"]
    assert live["metadata"]["labels"]["app.kubernetes.io/component"] == "certificate"
    report(engine, "False", "DoesNotExist", "Issuing certificate as Secret does not exist")
    with pytest.raises(WaitTimeout, match="crt-rest: DoesNotExist: Issuing certificate as Secret does not exist"):
        apply()
    report(engine, "True", "Ready", "Certificate is up to date and has not expired")
    assert apply() == {"crt-rest": "unchanged"}


@pytest.mark.usefixtures("kind")
def test_it_goes_with_its_field(engine: Engine) -> None:
    engine.apply(certificate(engine), engine.config_map("other"), applyset=SET)
    assert engine.results(engine.config_map("other"), applyset=SET) == {"other": "unchanged", "crt-rest": "pruned"}
    assert engine.kubectl.items(CRD, "-n", engine.namespace) == []
