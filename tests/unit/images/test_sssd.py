# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""What the sssd image makes of a configuration and of sssd's log."""

from __future__ import annotations

import importlib.util
import pathlib
import socket
import struct
import threading
from types import ModuleType

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[3] / "images" / "sssd" / "sssd.py"
GOOD = """\
[sssd]
domains = lab

# of the group
[domain/lab]
id_provider = ldap
ldap_uri = ldaps://ldap.example.org
ldap_default_authtok = very=secret
"""


@pytest.fixture(scope="module")
def sssd() -> ModuleType:
    spec = importlib.util.spec_from_file_location("corral_sssd", SOURCE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_good_file_gets_what_a_cluster_wants(sssd: ModuleType) -> None:
    found = sssd.domains(sssd.parse(GOOD))
    assert found["lab"]["ldap_default_authtok"] == "very=secret"
    added = sssd.additions(found)
    assert added.splitlines()[:5] == ["[sssd]", "services = nss, ssh", "[domain/lab]", "sudo_provider = none", "autofs_provider = none"]
    assert "min_id = 1000" in added
    mine = sssd.additions(sssd.domains(sssd.parse(GOOD + "min_id = 500\n")))
    assert "min_id" not in mine, "what the file says stays"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("domains = lab\n", "line 1 of sssd.conf stands before the first [section]"),
        (GOOD + "nonsense\n", "line 9 of sssd.conf is neither a [section] nor key = value"),
        (GOOD.replace("domains = lab", "domains ="), "sssd.conf names no domain"),
        (GOOD.replace("[domain/lab]", "[domain/lap]"), "no section [domain/lab]"),
        (GOOD.replace("id_provider = ldap", "id_provider = ad"), "[domain/lab] has id_provider = ad: this image has LDAP"),
        (GOOD + "access_provider = simple\n", "[domain/lab] has access_provider = simple, which has no effect"),
    ],
)
def test_what_can_not_work_is_one_sentence(sssd: ModuleType, text: str, words: str) -> None:
    with pytest.raises(sssd.SssdError) as caught:
        sssd.domains(sssd.parse(text))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_domain_can_be_enabled_by_itself_and_a_value_go_on(sssd: ModuleType) -> None:
    text = "[domain/lab]\nenabled = true\nid_provider = ldap\nldap_uri = ldap://a,\n  ldap://b\n"
    assert sssd.domains(sssd.parse(text))["lab"]["ldap_uri"] == "ldap://a, ldap://b"


BE = "(2026-01-02  3:04:05): [be[lab]] "
OFFLINE = BE + "[sdap_id_op_connect_done] (0x0040): [RID#3] Failed to connect, going offline (5 [Input/output error])"
WORKS = BE + "[fo_set_port_status] (0x0100): [RID#3] Marking port 636 of server 'ldap.example.org' as 'working'"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "[sdap_cli_connect_recv] (0x0040): [RID#3] Unable to establish connection [1432158227]: Authentication Failed",
            "refuses ldap_default_bind_dn",
        ),
        (
            "[sss_ldap_init_sys_connect_done] (0x0020): ldap_install_tls failed: [Connect error] [TLS: hostname does not match name]",
            "ldaps://ldap.example.org is not accepted (TLS: hostname does not match name)",
        ),
        ("[sssd_async_connect_done] (0x0020): connect failed [111][Connection refused].", "cannot be reached (Connection refused)"),
        (
            "[fo_resolve_service_done] (0x0020): Failed to resolve server 'ldap.example.org': Domain name not found",
            "the host ldap.example.org of ldap_uri is not found (Domain name not found)",
        ),
        ("[something_else] (0x0020): Bad weather", "the log has: Bad weather"),
    ],
)
def test_the_log_of_a_domain_that_is_offline_becomes_a_sentence_said_once(sssd: ModuleType, line: str, words: str) -> None:
    said: list[str] = []
    report = sssd.Report(sssd.domains(sssd.parse(GOOD)), -1, said.append)
    for raw in (BE + line, OFFLINE, BE + line, OFFLINE):
        report.line(raw)
    assert len(said) == 1, said
    assert said[0].startswith("domain lab is offline: ")
    assert words in said[0]
    assert words in report.states["lab"]
    report.line(WORKS)
    report.line(WORKS)
    assert said[1:] == ["domain lab is online"]
    assert report.states == {"lab": ""}


def test_passwords_are_never_said(sssd: ModuleType) -> None:
    said: list[str] = []
    report = sssd.Report(sssd.domains(sssd.parse(GOOD)), 9, said.append)
    report.line("[sssd] [confdb_populate] (0x0100): LDIF file to import: ")
    report.line("ldap_default_authtok: very=secret")
    report.line("[sssd] [other] (0x0200): very=secret is in here")
    assert said == ["[sssd] [other] (0x0200): *** is in here"]


def test_complaints_of_the_validators_are_kept(sssd: ModuleType) -> None:
    said: list[str] = []
    report = sssd.Report({}, 0, said.append)
    report.line(
        "[sssd] [sss_ini_call_validators] (0x0020): [rule/x]: Attribute 'y' is not allowed in section 'domain/lab'. Check for typos."
    )
    assert report.complaints == ["Attribute 'y' is not allowed in section 'domain/lab'. Check for typos."]
    assert said == ["sssd.conf: Attribute 'y' is not allowed in section 'domain/lab'. Check for typos."]


def test_the_probe_asks_for_the_version(sssd: ModuleType, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "nss"
    assert not sssd.responds(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            client, _address = server.accept()
            with client:
                assert struct.unpack("=5I", client.recv(20)) == (20, 1, 0, 0, 1)
                client.sendall(struct.pack("=5I", 20, 1, 0, 0, 1))

        thread = threading.Thread(target=serve)
        thread.start()
        assert sssd.responds(path)
        thread.join()
