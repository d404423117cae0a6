# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials: plain kubeconfigs are read like the official client reads them, and each mistake is one sentence."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ConfigError

USERS: dict[str, dict[str, Any]] = {
    "token": {"token": "t0k"},
    "file": {"tokenFile": "token.txt"},
    "basic": {"username": "u", "password": "p"},
    "certificate": {"client-certificate": "c.pem", "client-key": "k.pem"},
    "nobody": {},
    "deputy": {"token": "t0k", "as": "somebody", "as-groups": ["staff"]},
    "deep": {"token": "t0k", "as": "somebody", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"Some/Key": ["x", "y"]}},
    "deputy-exec": {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "interactiveMode": "Never"},
        "as": "somebody",
    },
    "exec": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "interactiveMode": "Never"}},
}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A kubeconfig with a context for each kind of user."""
    for name in ("ca.pem", "c.pem", "k.pem"):
        (tmp_path / name).write_text(f"{name}\n")
    (tmp_path / "token.txt").write_text("fr0m-file\n")
    login = tmp_path / "login"
    login.write_text(
        '#!/bin/sh\necho \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "made"}}\'\n'
    )
    login.chmod(stat.S_IRWXU)
    return write(tmp_path, {"server": "https://api.example:6443/", "certificate-authority": "ca.pem"})


def write(folder: Path, cluster: dict[str, Any], name: str = "config") -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "token",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": user, "user": content} for user, content in USERS.items()],
        "contexts": [{"name": user, "context": {"cluster": "c", "user": user, "namespace": f"ns-{user}"}} for user in USERS],
    }
    path = folder / name
    path.write_text(yaml.safe_dump(document))
    return path


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("context", "headers"),
    [
        (None, {"Authorization": "Bearer t0k"}),
        ("token", {"Authorization": "Bearer t0k"}),
        ("file", {"Authorization": "Bearer fr0m-file"}),
        ("basic", {"Authorization": basic("u:p")}),
        ("certificate", {}),
        ("nobody", {}),
        ("deputy", {"Authorization": "Bearer t0k", "Impersonate-User": "somebody", "Impersonate-Group": "staff"}),
        ("exec", {"Authorization": "Bearer made"}),
    ],
)
def test_each_kind_of_user(kubeconfig: Path, context: str | None, headers: dict[str, str]) -> None:
    access = auth.resolve({"kubeconfig": str(kubeconfig), "context": context})
    assert dict(access.headers()) == headers
    assert access.server == "https://api.example:6443" and access.verify and access.namespace == f"ns-{context or 'token'}"
    assert access.ca.path == str(kubeconfig.parent / "ca.pem")
    if context == "certificate":
        assert (access.certificate.path, access.key.path) == (str(kubeconfig.parent / "c.pem"), str(kubeconfig.parent / "k.pem"))


@pytest.mark.parametrize("context", ["token", "basic", "certificate", "nobody"])
def test_the_official_client_reads_the_same(kubeconfig: Path, context: str) -> None:
    ours, theirs = auth.resolve({"kubeconfig": str(kubeconfig), "context": context}), auth._official(str(kubeconfig), context)
    for name in ("server", "ca", "verify", "certificate", "key"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert dict(ours.headers()) == {key.title(): value for key, value in theirs.headers()}


def test_a_renewed_token_file_is_read_again(kubeconfig: Path) -> None:
    access = auth.resolve({"kubeconfig": str(kubeconfig), "context": "file"})
    (kubeconfig.parent / "token.txt").write_text("renewed")
    assert dict(access.headers()) == {"Authorization": "Bearer renewed"}


def test_parameters_override_the_kubeconfig(kubeconfig: Path) -> None:
    given = {
        "kubeconfig": str(kubeconfig),
        "context": "certificate",
        "host": "https://other",
        "api_key": "k",
        "validate_certs": False,
        "ca_cert": "/ca",
    }
    access = auth.resolve(given)
    assert (access.server, access.verify, access.ca.path, dict(access.headers())) == (
        "https://other",
        False,
        "/ca",
        {"Authorization": "Bearer k"},
    )
    assert not access.certificate, "an API server would believe the certificate rather than the token"


def test_host_stands_for_itself(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert dict(auth.resolve({"host": "api:1"}).headers()) == {} and auth.resolve({"host": "api:1"}).server == "https://api:1"
    assert dict(auth.resolve({}).headers()) == {"Authorization": "Bearer t0k"}


def test_who_acts_for_somebody_never_acts_as_themselves(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = [
        ("Impersonate-User", "somebody"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-Some%2FKey", "x"),
        ("Impersonate-Extra-Some%2FKey", "y"),
    ]
    assert auth.resolve({"kubeconfig": str(kubeconfig), "context": "deep"}).headers() == [("Authorization", "Bearer t0k"), *deep]
    assert auth.resolve({"kubeconfig": str(kubeconfig), "context": "deep", "api_key": "k\n"}).headers() == [
        ("Authorization", "Bearer k"),
        *deep,
    ]
    given = auth.resolve({"kubeconfig": str(kubeconfig), "context": "deputy-exec"})
    assert given.headers() == [("Authorization", "Bearer made"), ("Impersonate-User", "somebody")]
    second = write(kubeconfig.parent, {"server": "https://second"}, "second")
    monkeypatch.setenv("KUBECONFIG", f"{kubeconfig}:{second}")
    assert auth.resolve({"context": "deep"}).headers() == [("Authorization", "Bearer t0k"), *deep]
    assert auth.resolve({"context": "deputy-exec"}).headers() == given.headers()


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"token": "t", "as-groups": ["a"]}, "without as; name the user to impersonate"),
        ({"token": "t", "as": "a\nb"}, "holds a character that no HTTP header can have"),
        ({"token": "s3cr\net"}, "holds a character that no HTTP header can have"),
        ({"token": "s3cr", "username": "u"}, "has a token and a username"),
        ({"token": "t", "as": "a", "as-user-extra": {"k": "text"}}, "as-user-extra that is no mapping of lists"),
        ({"token": "t", "as": 0}, "The as of kubeconfig .* is no text but int; put it in quotes"),
        ({"token": "t", "as": ["a"]}, "The as of kubeconfig .* is no text but list"),
        ({"token": "t", "as": False}, "The as of kubeconfig .* is no text but bool"),
        ({"token": "t", "as": "a", "as-uid": 7}, "The as-uid of kubeconfig .* is no text but int"),
        ({"token": "t", "as": "a", "as-groups": 0}, "has as-groups that are no list"),
        ({"token": "t", "as": "a", "as-groups": [7]}, "has as-groups that are no list of texts"),
        ({"token": "t", "as": "a", "as-user-extra": 0}, "as-user-extra that is no mapping of lists"),
        ({"token": "t", "as": "a", "as-user-extra": {"k": [None]}}, "as-user-extra that is no mapping of lists of texts"),
        ({"token": 12345}, "The token of kubeconfig .* is no text but int"),
        ({"tokenFile": ["s3cr"]}, "The tokenFile of kubeconfig .* is no text but list"),
        ({"username": 5}, "The username of kubeconfig .* is no text but int"),
        ({"username": "u", "password": ["s3cr"]}, "The password of kubeconfig .* is no text but list"),
        ({"client-certificate-data": 5}, "The client-certificate-data of kubeconfig .* is no text but int"),
        ({"client-key": 5}, "The client-key of kubeconfig .* is no text but int"),
        ("s3cr", "The user named 'token' in the kubeconfig .* is no mapping"),
    ],
)
def test_credentials_that_can_not_be_sent_are_told_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: Any, words: str
) -> None:
    monkeypatch.setitem(USERS, "token", user)
    with pytest.raises(ConfigError, match=words) as caught:
        auth.resolve({"kubeconfig": str(write(tmp_path, {"server": "https://x"}))})
    assert "s3cr" not in str(caught.value)


@pytest.mark.parametrize("unset", [None, ""])
def test_what_is_blank_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unset: str | None) -> None:
    monkeypatch.setitem(USERS, "token", {"username": "u", "password": unset, "token": unset, "as": unset, "client-key-data": unset})
    path = write(tmp_path, {"server": "https://x", "proxy-url": unset, "insecure-skip-tls-verify": None, "certificate-authority": unset})
    access = auth.resolve({"kubeconfig": str(path)})
    assert access.headers() == [("Authorization", basic("u:"))]
    assert (access.proxy, access.verify, access.ca, access.key) == (None, True, auth.Pem(), auth.Pem())


def test_a_newline_at_the_end_of_a_given_token_is_no_part_of_it_and_one_inside_is_told_without_it() -> None:
    assert auth.resolve({"host": "x", "api_key": "k\n"}).headers() == [("Authorization", "Bearer k")]
    with pytest.raises(ConfigError, match="The value of the parameter api_key") as caught:
        auth.resolve({"host": "x", "api_key": "s3cr\net"})
    assert "s3cr" not in str(caught.value)


def test_merged_kubeconfigs(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = write(kubeconfig.parent, {"server": "https://second"}, "second")
    monkeypatch.setenv("KUBECONFIG", f"{kubeconfig}:{second}")
    found = auth.resolve({})
    assert found.server == "https://api.example:6443" and dict(found.headers()) == {"Authorization": "Bearer t0k"}
    other = kubeconfig.parent / "other"
    other.mkdir()
    (other / "token.txt").write_text("another")
    only = {
        "contexts": [{"name": "more", "context": {"cluster": "c", "user": "more"}}],
        "users": [{"name": "more", "user": {"tokenFile": "token.txt"}}],
    }
    (other / "config").write_text(yaml.safe_dump(only))
    monkeypatch.setenv("KUBECONFIG", f"/nowhere:{kubeconfig}:{other / 'config'}")
    found = auth.resolve({"context": "more"})
    assert dict(found.headers()) == {"Authorization": "Bearer another"}, "a path is relative to its own file"
    assert found.ca.path == str(kubeconfig.parent / "ca.pem")


def test_in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    (tmp_path / "token").write_text("pod-token\n")
    (tmp_path / "namespace").write_text("mine")
    access = auth.resolve({})
    assert (access.server, access.namespace, dict(access.headers())) == (
        "https://[fd00::1]:443",
        "mine",
        {"Authorization": "Bearer pod-token"},
    )
    assert access.ca.path == str(tmp_path / "ca.crt")


def test_nothing_at_all() -> None:
    with pytest.raises(ConfigError, match=r"No cluster is named: .*set the parameter kubeconfig"):
        auth.resolve({})


@pytest.mark.parametrize(
    ("text", "context", "words"),
    [
        (None, None, "does not exist; name an existing one"),
        ("a: [", None, "is not YAML"),
        ("", None, "is empty or no mapping"),
        ("kind: Config", None, "has no current-context; choose one"),
        ("current-context: x", None, r"has no context named 'x' \(it has: none\)"),
        ("{current-context: x, contexts: [{name: x, context: {cluster: y}}]}", None, "has no cluster named 'y'"),
        (
            "{contexts: [{name: x, context: {cluster: y, user: z}}], clusters: [{name: y, cluster: {server: a}}]}",
            "x",
            "has no user named 'z'",
        ),
        ("{current-context: x, contexts: [{name: x, context: {cluster: y}}], clusters: [{name: y, cluster: {}}]}", None, "has no server"),
        (
            "{current-context: x, contexts: [{name: x, context: {cluster: y}}], clusters: [{name: y, cluster: {server: 'ftp://x'}}]}",
            None,
            "is no address",
        ),
        ("{current-context: x, contexts: 5}", None, "The contexts in the kubeconfig .* are no list"),
        ("{current-context: x, contexts: {name: x}}", None, "The contexts in the kubeconfig .* are no list"),
        ("{current-context: x, contexts: [{name: x, context: 5}]}", None, "The context named 'x' in the kubeconfig .* is no mapping"),
        *(
            (
                f"{{current-context: x, contexts: [{{name: x, context: {{cluster: y}}}}], clusters: [{{name: y, cluster: {cluster}}}]}}",
                None,
                words,
            )
            for cluster, words in (
                ("{server: 5}", "The server of kubeconfig .* is no text but int"),
                ("{server: a, proxy-url: 5}", "The proxy-url of kubeconfig .* is no text but int"),
                ("{server: a, tls-server-name: 5}", "The tls-server-name of kubeconfig .* is no text but int"),
                ("{server: a, certificate-authority-data: 5}", "The certificate-authority-data of kubeconfig .* is no text but int"),
                (
                    '{server: a, insecure-skip-tls-verify: "false"}',
                    "The insecure-skip-tls-verify of kubeconfig .* is neither true nor false",
                ),
            )
        ),
    ],
)
def test_mistakes_in_a_kubeconfig(tmp_path: Path, text: str | None, context: str | None, words: str) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        auth.resolve({"kubeconfig": str(path), "context": context})
    assert str(caught.value).endswith((".", "?"))


def test_an_exec_plugin_that_fails_is_told(kubeconfig: Path) -> None:
    (kubeconfig.parent / "login").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(ConfigError, match=r"exec plugin './login' .* gave no credentials; run it by hand"):
        auth.resolve({"kubeconfig": str(kubeconfig), "context": "exec"})


@pytest.mark.parametrize("context", USERS)
def test_no_credentials_go_to_a_server_without_tls(tmp_path: Path, context: str) -> None:
    access = auth.resolve({"kubeconfig": str(write(tmp_path, {"server": "http://api.example"})), "context": context})
    assert "Authorization" not in dict(access.headers()) and not access.certificate
    assert ("Impersonate-User" in dict(access.headers())) == ("as" in USERS[context])
    assert auth.resolve({"host": "http://api.example", "api_key": "k"}).headers() == [("Authorization", "Bearer k")], "who says so has it"


def test_certificates_that_are_none_are_told(kubeconfig: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        auth.resolve({"kubeconfig": str(kubeconfig)}).ssl_context()
    bad = write(kubeconfig.parent, {"server": "https://x", "certificate-authority-data": "bm8gcGVt"})
    with pytest.raises(ConfigError, match="cannot be used"):
        auth.resolve({"kubeconfig": str(bad)}).ssl_context()


@pytest.mark.parametrize(
    ("environment", "host", "proxy"),
    [
        ({}, "https://api", None),
        ({"https_proxy": "http://p:1"}, "https://api", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "api,other"}, "https://api", None),
        ({"https_proxy": "http://p:1"}, "http://api", None),
        ({"HTTP_PROXY": "http://p:1"}, "https://api", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://api", "http://p:1"),
        ({"http_proxy": "p:1", "NO_PROXY": "api:81"}, "http://api", "http://p:1"),
        ({"http_proxy": "p:1", "NO_PROXY": "api:80"}, "http://api", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://127.0.0.1:8001", None),
        ({"HTTPS_PROXY": "p:1"}, "https://api", "http://p:1"),
        ({"HTTPS_PROXY": "http://user:pw@p:1"}, "https://api", "http://user:pw@p:1"),
        ({"HTTPS_PROXY": "socks5://p:1"}, "https://api", "socks5://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "https://10.1.2.3:6443", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "https://11.1.2.3:6443", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "fd00::/8"}, "https://[fd00::1]:6443", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.1.2.3"}, "https://10.1.2.3", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example"}, "https://api.example", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example"}, "https://example", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*.example"}, "https://api.example", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example:6443"}, "https://api.example:6443", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "example:6443"}, "https://api.example", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "https://api", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://127.0.0.1:6443", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://localhost:6443", None),
    ],
)
def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], host: str, proxy: str | None) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert auth.resolve({"host": host}).proxy == proxy


def test_the_kubeconfigs_proxy_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://p:1")
    path = write(tmp_path, {"server": "https://api", "proxy-url": "http://q:2"})
    assert auth.resolve({"kubeconfig": str(path)}).proxy == "http://q:2"


@pytest.mark.parametrize("proxy", ["ftp://user:s3cr@p", "http://user:s3cr@p:x", "http://", "p:1"])
def test_a_proxy_that_is_none_is_told_without_its_password(tmp_path: Path, proxy: str) -> None:
    path = write(tmp_path, {"server": "https://api", "proxy-url": proxy})
    with pytest.raises(ConfigError, match="is none that can be used; write http://name:port") as caught:
        auth.resolve({"kubeconfig": str(path)})
    assert "s3cr" not in str(caught.value)


def test_plain_http_has_no_tls_and_the_environments_bundle_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert auth.resolve({"host": "http://x"}).ssl_context() is None
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
    context = auth.resolve({"host": "https://x", "validate_certs": False}).ssl_context()
    assert context is not None and not context.check_hostname


def test_a_kubeconfig_is_parsed_once_as_long_as_it_stays_as_it_is(tmp_path: Path) -> None:
    auth._parsed.cache_clear()
    for server, parsed in (("https://one", 1), ("https://one", 1), ("https://two", 2)):
        found = auth.resolve({"kubeconfig": str(write(tmp_path, {"server": server}))})
        assert (found.server, auth._parsed.cache_info().misses) == (server, parsed)
