# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""spec.rest: the configuration of slurmrestd, of its proxy and of those who verify tokens, the network, and the documents that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.corral.slurm.plugins.module_utils._cluster import resolve, rest

from .documents import edited, good
from .test_accounting import EXTERNAL, settings, slurmdbd
from .test_validate import mistakes

TLS = {"tls": {"secret": "certificate"}}
ENFORCED = {"database": {"external": EXTERNAL}, "enforce": ["associations"]}


def with_rest(*, accounting: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    document = edited("spec.rest", {**TLS, **fields})
    if accounting is not None:
        document["spec"]["accounting"] = accounting
    return document


def model(**fields: Any) -> dict[str, Any]:
    return resolve.model(with_rest(**fields)).to_dict()


def test_without_it_there_is_nothing_of_it() -> None:
    found = resolve.model(good()).to_dict()
    assert found["rest"] is None
    assert "rest" not in found["components"]
    assert "AuthAlt" not in found["config"]["files"]["slurm.conf"]
    assert not [secret for secret in found["secrets"] if rest.KEY in secret["data"]]
    assert f"{found['name']}-rest" in [one["name"] for one in found["teardown"]["applysets"]], "a former document may have had it"


def test_slurmctld_and_slurmdbd_verify_tokens_and_slurmrestd_has_no_key() -> None:
    found = model(accounting=ENFORCED)
    wanted = {"AuthAltTypes": "auth/jwt", "AuthAltParameters": "jwt_key=/run/slurm-jwt/jwt.key"}
    assert wanted.items() <= settings(found["config"]["files"]["slurm.conf"]).items()
    assert wanted.items() <= slurmdbd(found).items()
    mine = settings(found["rest"]["files"]["slurm.conf"])
    assert mine["AuthType"] == "auth/jwt"
    assert not {"AuthInfo", "AuthAltTypes", "AuthAltParameters", "NodeName", "PartitionName"} & set(mine)
    assert "SlurmctldHost" in mine and mine["AccountingStorageHost"] == found["accounting"]["hosts"][0]["address"]
    (secret,) = [one for one in found["secrets"] if one["name"] == found["rest"]["jwt_secret"]]
    assert secret["data"] == {"jwt.key": {"random_bytes": 32}}


def test_nodes_and_users_restart_nothing_and_limits_do() -> None:
    before = model()["rest"]
    document = with_rest()
    document["spec"]["nodeSets"][0]["replicas"] += 1
    document["spec"]["users"].append({**document["spec"]["users"][0], "name": "zoe", "uid": 30001})
    after = resolve.model(document).to_dict()["rest"]
    assert "zoe:x:30001:" in after["files"]["passwd"]
    assert after["hash"] == before["hash"]
    assert model(limits={"connections": 65})["rest"]["hash"] != before["hash"]
    assert model(accounting=ENFORCED)["rest"]["hash"] != before["hash"], "slurmdbd's paths are loaded at a start"


def test_the_keys_of_an_identity_provider() -> None:
    found = model(accounting=ENFORCED, jwks={"configMap": "provider"})
    assert found["rest"]["jwks_config_map"] == "provider"
    parameters = "jwt_key=/run/slurm-jwt/jwt.key,jwks=/etc/corral/jwks/jwks.json,userclaimfield=preferred_username"
    assert settings(found["config"]["files"]["slurm.conf"])["AuthAltParameters"] == parameters
    assert slurmdbd(found)["AuthAltParameters"] == parameters


def test_the_proxy_holds_the_limits() -> None:
    text = model(limits={"connections": 100, "connectionsPerSource": 7, "requestSize": "1Mi"})["rest"]["files"]["haproxy.cfg"]
    for line in (
        "bind :6820 ssl crt /etc/corral/rest-tls/tls.crt alpn http/1.1",
        "maxconn 100",
        "if { sc0_conn_cur gt 7 }",
        "gt 1048576 }",
    ):
        assert line in text
    document = edited("spec.rest", {"plainHttp": True})
    plain = resolve.model(document).to_dict()["rest"]
    assert plain["tls_secret"] is None
    assert "    bind :6820\n" in plain["files"]["haproxy.cfg"]


def test_its_port_is_open_and_no_other_and_it_connects_to_its_cluster_alone() -> None:
    found = model()
    (rule,) = found["open_pods"]["matchExpressions"]
    assert (rule["operator"], rule["values"]) == ("NotIn", ["monitoring", "rest"])
    (ingress,) = [one for one in found["ingress"] if one["name"].endswith("-rest")]
    assert (ingress["peers"], ingress["ports"]) == ([], [{"protocol": "TCP", "port": 6820}])
    assert ingress["selector"] == found["components"]["rest"]["selector"]
    (egress,) = [one for one in found["egress"]["policies"] if one["name"].endswith("-egress-rest")]
    assert egress["allowances"] == []
    selector = {"matchLabels": found["open_pods"]["matchLabels"]}
    assert egress["rules"][0] == {"to": [{"podSelector": selector}]}


def test_it_reaches_slurmdbd() -> None:
    found = model(accounting={"database": {"external": EXTERNAL}})
    (ingress,) = [one for one in found["ingress"] if one["name"].endswith("-accounting")]
    assert {"podSelector": {"matchLabels": found["components"]["rest"]["selector"]}} in ingress["peers"]


def test_cert_manager_keeps_the_certificate() -> None:
    tls = {"issuerRef": {"name": "own"}, "dnsNames": ["slurm.example.com"], "ipAddresses": ["192.0.2.10", "2001:db8::1"]}
    found = model(tls=tls)
    name, namespace = found["name"], found["namespace"]
    certificate = found["rest"]["certificate"]
    assert certificate["spec"]["issuerRef"] == {"name": "own", "kind": "Issuer", "group": "cert-manager.io"}
    own = f"{name}-rest"
    assert certificate["spec"]["dnsNames"] == [
        "slurm.example.com",
        f"{own}.{namespace}.svc",
        f"{own}.{namespace}.svc.cluster.local",
        f"{own}.{namespace}",
        own,
    ]
    assert certificate["spec"]["ipAddresses"] == tls["ipAddresses"]
    assert certificate["spec"]["secretName"] == found["rest"]["tls_secret"] == f"{name}-rest-tls"
    assert certificate["labels"]["app.kubernetes.io/component"] == "certificate"
    assert found["components"]["certificate"]["applyset"]["name"] == f"{name}-rest", "it goes with the rest of it"
    assert found["rest"]["scheme"] == "HTTPS"
    assert "ssl crt" in found["rest"]["files"]["haproxy.cfg"]
    assert any(f"{name}-rest-tls" in one and "cert-manager's" in one for one in found["teardown"]["left_behind"])
    assert f"{name}-base-ingress-certificate" not in [one["name"] for one in found["ingress"]], "no pod of it is there to be reached"
    assert not any("certificate" in str(one) for one in found["egress"]["policies"])


def test_a_certificate_of_yours_is_asked_of_nobody() -> None:
    found = model()
    assert (found["rest"]["certificate"], found["rest"]["tls_secret"]) == (None, "certificate")
    assert "certificate" not in found["components"]
    assert f"The Secret certificate in namespace {found['namespace']} is yours and stays." in found["teardown"]["left_behind"]


def test_two_pods_keep_away_from_one_another() -> None:
    assert model()["rest"]["affinity"] == {}
    assert "podAntiAffinity" in model(replicas=2)["rest"]["affinity"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "spec.rest.tls is missing, and a token is as good as a password"),
        ({"tls": {}}, "spec.rest.tls has no certificate; give exactly one of secret and issuerRef"),
        ({"tls": {"secret": "a", "issuerRef": {"name": "b"}}}, "spec.rest.tls has secret and issuerRef; give exactly one"),
        ({"tls": {"secret": "a", "dnsNames": ["b.example.com"]}}, "spec.rest.tls.dnsNames goes with issuerRef; remove it"),
        ({"tls": {"issuerRef": {"kind": "ClusterIssuer"}}}, "spec.rest.tls.issuerRef.name"),
        ({"tls": {"issuerRef": {"name": "a"}, "dnsNames": ["not a name"]}}, "spec.rest.tls.dnsNames[0]"),
        ({"tls": {"issuerRef": {"name": "a"}, "ipAddresses": ["300.1.1.1/8"]}}, "spec.rest.tls.ipAddresses[0]"),
        ({**TLS, "plainHttp": True}, "spec.rest has tls and plainHttp: true, which exclude one another"),
        ({"plainHttp": True, "service": {"type": "NodePort"}}, "spec.rest.service.type is NodePort, so tokens would leave"),
        ({**TLS, "service": {"nodePort": 30000}}, "spec.rest.service.nodePort"),
        ({**TLS, "limits": {"connections": 10}}, "spec.rest.limits.connectionsPerSource is more than"),
        ({**TLS, "jwks": {"configMap": "provider"}}, "spec.rest.jwks needs spec.accounting.enforce with associations"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], words: str) -> None:
    (found,) = mistakes(edited("spec.rest", fields))
    assert words in found


@pytest.mark.parametrize("key", sorted(rest.OWNED))
def test_a_line_that_says_the_same_is_refused_with_it_and_allowed_without(key: str) -> None:
    document = with_rest(accounting={**ENFORCED, "extraConfig": [f"{key}=auth/jwt"]})
    document["spec"]["slurm"] = {**document["spec"].get("slurm", {}), "extraConfig": [f"{key}=auth/jwt"]}
    assert len(mistakes(document)) == 2
    del document["spec"]["rest"]
    resolve.model(document)
