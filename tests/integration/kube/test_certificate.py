# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Certificate of spec.rest.tls.issuerRef before the API server, in order: without its kind, and with a stand-in of it.

The stand-in has the fields of cert-manager's own definition that documents here set, and the test is cert-manager.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import WaitTimeout
from ansible_collections.corral.slurm.plugins.module_utils._kube.render import render

from ..conftest import REPOSITORY, eventually, playbook
from ..kubectl import Kubectl
from .conftest import Engine

pytestmark = pytest.mark.lab

Json = dict[str, Any]
CRD = "certificates.cert-manager.io"
SET = {"name": "set"}
TEXT: Json = {"type": "string"}
TEXTS: Json = {"type": "array", "items": TEXT}


def mapping(**fields: Json) -> Json:
    return {"type": "object", "properties": fields}


USAGE: Json = {"type": "string", "enum": ["digital signature", "key encipherment", "server auth", "client auth"]}
SPEC = mapping(
    secretName=TEXT,
    dnsNames=TEXTS,
    ipAddresses=TEXTS,
    issuerRef=mapping(name=TEXT, kind=TEXT, group=TEXT),
    privateKey=mapping(rotationPolicy={"type": "string", "enum": ["Never", "Always"]}, algorithm=TEXT),
    usages={"type": "array", "items": USAGE},
)
CONDITION = {**mapping(type=TEXT, status=TEXT, reason=TEXT, message=TEXT, lastTransitionTime=TEXT), "required": ["type", "status"]}
STATUS = mapping(conditions={"type": "array", "items": CONDITION})
DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": CRD},
    "spec": {
        "group": "cert-manager.io",
        "names": {"kind": "Certificate", "listKind": "CertificateList", "plural": "certificates", "singular": "certificate"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": mapping(apiVersion=TEXT, kind=TEXT, metadata={"type": "object"}, spec=SPEC, status=STATUS)},
            }
        ],
    },
}


def document(namespace: str, **tls: Any) -> Json:
    found: Json = yaml.safe_load((REPOSITORY / "examples" / "minimal.yml").read_text())
    found["metadata"] = {"name": "crt", "namespace": namespace}
    found["spec"]["rest"] = {"tls": {"issuerRef": {"name": "own"}, **tls}}
    return found


def certificate(engine: Engine, **tls: Any) -> Json:
    """The object that a run applies."""
    template = REPOSITORY / "roles" / "slurm_rest" / "templates" / "certificate.yml.j2"
    (found,), _origins = render([template], {"corral": resolve.model(document(engine.namespace, **tls)).to_dict()}, [])
    return found


def report(engine: Engine, status: str, reason: str, message: str) -> None:
    """Write the condition that cert-manager writes."""
    condition = {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    patch = json.dumps({"status": {"conditions": [condition]}})
    engine.kubectl("patch", CRD, "crt-rest", "-n", engine.namespace, "--subresource=status", "--type=merge", "-p", patch)


def test_without_cert_manager_a_run_ends_before_it_changes_the_cluster(engine: Engine, tmp_path: Path) -> None:
    engine.kubectl("delete", "crd", CRD, "--ignore-not-found", "--timeout=60s")  # of a run that was killed
    file = tmp_path / "crt.yml"
    file.write_text(yaml.safe_dump(document(engine.namespace)))
    run = playbook("site", file)
    assert run.rc != 0
    assert "spec.rest.tls.issuerRef needs cert-manager, and the API server has no kind Certificate" in run.output, run.output
    kinds = "secrets,services,statefulsets,jobs,networkpolicies,persistentvolumeclaims"
    assert engine.kubectl.items(kinds, "-n", engine.namespace) == []


@pytest.fixture(scope="module")
def kind() -> Iterator[None]:
    kubectl = Kubectl(REPOSITORY)
    kubectl("create", "-f", "-", stdin=json.dumps(DEFINITION))
    try:
        eventually(lambda: kubectl.serves(CRD), "the definition is served")
        yield
    finally:
        kubectl("delete", f"crd/{CRD}", "--wait=false")


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
