# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How to reach a cluster: explicit parameters, else a kubeconfig, else the pod's own service account.

``kubernetes.config`` of the official client knows every kind of kubeconfig, but importing it costs 0.2 s, a fifth of a run that
changes nothing. So a plain kubeconfig (token, token file, client certificate, basic) is read here, and everything else
(exec plugins, auth providers, several files merged) is left to the official client, imported only then.
"""

from __future__ import annotations

import base64
import functools
import importlib
import os
import ssl
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ConfigError

try:
    import yaml
except ImportError as error:  # told when a kubeconfig is read
    _MISSING: ImportError | None = error
else:
    _MISSING = None

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PLAIN_USER = frozenset(
    (
        "token",
        "tokenFile",
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "username",
        "password",
        "as",
        "as-groups",
    )
)
_PLAIN_CLUSTER = frozenset(
    (
        "server",
        "certificate-authority",
        "certificate-authority-data",
        "insecure-skip-tls-verify",
        "tls-server-name",
        "proxy-url",
        "disable-compression",
    )
)


@dataclass(frozen=True)
class Pem:
    """A certificate or key: a file's path, or the text itself."""

    path: str | None = None
    text: str | None = None

    def __bool__(self) -> bool:
        return bool(self.path or self.text)


@dataclass(frozen=True)
class Access:
    """Everything that a connection to one API server needs."""

    server: str
    source: str
    """Where this was read, in words, for error sentences."""
    ca: Pem = Pem()
    verify: bool = True
    tls_server_name: str | None = None
    certificate: Pem = Pem()
    key: Pem = Pem()
    headers: Callable[[], dict[str, str]] = field(default=dict)
    """Returns the Authorization (and impersonation) headers, read anew at each call so that a renewed token is found."""
    proxy: str | None = None
    namespace: str = "default"

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings (None for plain http). The CA is the configured one alone; REQUESTS_CA_BUNDLE has no say.

        Raises ConfigError for certificates that can not be read.
        """
        if urlsplit(self.server).scheme != "https":
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca.path, cadata=self.ca.text) if self.ca else ssl.create_default_context()
            # Python 3.13 began to demand key identifiers, which the CAs of many clusters lack; kubectl does not ask for them.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.certificate:
                _load_client_certificate(context, self.certificate, self.key)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigError(
                f"The certificates of {self.source} can not be used ({error}); check the CA, client certificate and key."
            ) from error
        return context


def resolve(params: dict[str, Any]) -> Access:
    """Return how to reach the cluster that ``params`` means.

    Reads ``kubeconfig``, ``context``, ``host``, ``api_key``, ``ca_cert``, ``client_cert``, ``client_key``, ``validate_certs``, each may be missing.
    ``host`` without ``kubeconfig`` stands for itself; otherwise a kubeconfig (``kubeconfig``, ``$KUBECONFIG``, ``~/.kube/config``) or
    the pod's service account is read and the other parameters override it. Raises ConfigError.
    """
    base = _base(params)
    changes: dict[str, Any] = {}
    if params.get("host"):
        changes["server"] = _server(str(params["host"]))
    if params.get("api_key"):
        token = str(params["api_key"])
        changes["headers"] = lambda: {"Authorization": f"Bearer {token}"}
        changes["certificate"] = changes["key"] = Pem()  # an API server believes a certificate rather than a token
    for parameter, name in (("ca_cert", "ca"), ("client_cert", "certificate"), ("client_key", "key")):
        if params.get(parameter):
            changes[name] = Pem(path=str(Path(str(params[parameter])).expanduser()))
    if params.get("validate_certs") is not None:
        changes["verify"] = bool(params["validate_certs"])
    return _with_proxy(Access(**{**base.__dict__, **changes}))


def _with_proxy(access: Access) -> Access:
    """Take HTTPS_PROXY and NO_PROXY from the environment, as kubectl does, where the kubeconfig names no proxy."""
    host = urlsplit(access.server).hostname
    if access.proxy or urlsplit(access.server).scheme != "https" or host is None:
        return access
    proxy = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    if not proxy or urllib.request.proxy_bypass(host):
        return access
    return replace(access, proxy=proxy)


def _base(params: dict[str, Any]) -> Access:
    if params.get("host") and not params.get("kubeconfig"):
        return Access(server="", source="the parameter host")
    given = params.get("kubeconfig") or os.environ.get("KUBECONFIG")
    context = params.get("context")
    if given and os.pathsep in str(given):
        return _official(str(given), context)
    path = Path(str(given or "~/.kube/config")).expanduser()
    if given or path.exists():
        return _from_kubeconfig(path, context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (_SERVICE_ACCOUNT / "token").exists():
        return _in_cluster()
    raise ConfigError(
        "No cluster is named: there is no kubeconfig at ~/.kube/config, KUBECONFIG is not set, and this is no pod; "
        "set the parameter kubeconfig (or K8S_AUTH_KUBECONFIG), or host and api_key."
    )


def _in_cluster() -> Access:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = _SERVICE_ACCOUNT / "namespace"
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        source="the pod's service account",
        ca=Pem(path=str(_SERVICE_ACCOUNT / "ca.crt")),
        headers=_token_file(_SERVICE_ACCOUNT / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


@functools.lru_cache(maxsize=8)
def _parsed(text: bytes) -> Any:
    """Return what a kubeconfig says, for reading alone: a run asks for the same one at each of its tasks."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _from_kubeconfig(path: Path, wanted: str | None) -> Access:
    """Read one kubeconfig file; see the module's text for what is left to the official client."""
    if _MISSING is not None:
        raise ConfigError(f"The Python package PyYAML is missing ({_MISSING}); install it for the Python that runs this task.")
    try:
        document = _parsed(path.read_bytes())
    except FileNotFoundError as error:
        raise ConfigError(
            f"The kubeconfig {path} does not exist; name an existing one with the parameter kubeconfig or KUBECONFIG."
        ) from error
    except OSError as error:
        raise ConfigError(f"The kubeconfig {path} can not be read ({error.strerror}); check its permissions.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"The kubeconfig {path} is not YAML ({' '.join(str(error).split())}); is it the right file?") from error
    if not isinstance(document, dict):
        raise ConfigError(f"The kubeconfig {path} is empty or no mapping; is it the right file?")
    name = wanted or document.get("current-context")
    if not name:
        raise ConfigError(f"The kubeconfig {path} has no current-context; choose one with the parameter context.")
    context = _entry(document, path, "contexts", "context", name)
    cluster = _entry(document, path, "clusters", "cluster", context.get("cluster"))
    user = _entry(document, path, "users", "user", context.get("user")) if context.get("user") else {}
    if set(user) - _PLAIN_USER or set(cluster) - _PLAIN_CLUSTER - {"extensions"}:
        return _official(str(path), name, user)
    if not cluster.get("server"):
        raise ConfigError(f"The cluster {context.get('cluster')!r} in the kubeconfig {path} has no server; add its address.")
    source = f"kubeconfig {path}, context {name}"
    return Access(
        server=_server(str(cluster["server"])),
        source=source,
        ca=_pem(cluster, "certificate-authority", path, source),
        verify=not cluster.get("insecure-skip-tls-verify"),
        tls_server_name=cluster.get("tls-server-name"),
        certificate=_pem(user, "client-certificate", path, source),
        key=_pem(user, "client-key", path, source),
        headers=_user_headers(user, path),
        proxy=cluster.get("proxy-url"),
        namespace=context.get("namespace") or "default",
    )


def _entry(document: dict[str, Any], path: Path, section: str, key: str, name: Any) -> dict[str, Any]:
    """Return the named entry of a kubeconfig's list."""
    entries = [entry for entry in document.get(section) or () if isinstance(entry, dict)]
    for entry in entries:
        if entry.get("name") == name:
            value = entry.get(key)
            return value if isinstance(value, dict) else {}
    known = ", ".join(str(entry.get("name")) for entry in entries) or "none"
    raise ConfigError(f"The kubeconfig {path} has no {key} named {name!r} (it has: {known}); correct the name.")


def _user_headers(user: dict[str, Any], path: Path) -> Callable[[], dict[str, str]]:
    """Return the function that gives a plain user's headers."""
    extra: dict[str, str] = {}
    if user.get("as"):
        extra["Impersonate-User"] = str(user["as"])
    if user.get("as-groups"):
        if len(user["as-groups"]) > 1:
            raise ConfigError(f"The kubeconfig {path} acts in several groups (as-groups); name one of them.")  # headers here have one value
        extra["Impersonate-Group"] = str(user["as-groups"][0])
    if user.get("token"):
        token = str(user["token"])
        return lambda: {"Authorization": f"Bearer {token}", **extra}
    if user.get("tokenFile"):
        read = _token_file(path.parent / str(user["tokenFile"]))
        return lambda: {**read(), **extra}
    if user.get("username"):
        basic = base64.b64encode(f"{user['username']}:{user.get('password', '')}".encode()).decode()
        return lambda: {"Authorization": f"Basic {basic}", **extra}
    return lambda: dict(extra)


def _token_file(path: Path) -> Callable[[], dict[str, str]]:
    def read() -> dict[str, str]:
        try:
            return {"Authorization": f"Bearer {path.read_text().strip()}"}
        except OSError as error:
            raise ConfigError(f"The token file {path} can not be read ({error.strerror}); check the path and its permissions.") from error

    return read


def _pem(section: dict[str, Any], key: str, path: Path, source: str) -> Pem:
    if section.get(f"{key}-data"):
        try:
            return Pem(text=base64.b64decode(section[f"{key}-data"], validate=False).decode())
        except ValueError as error:
            raise ConfigError(f"The {key}-data of {source} is not base64 of a PEM text; write the kubeconfig anew.") from error
    return Pem(path=str(path.parent / Path(str(section[key])).expanduser())) if section.get(key) else Pem()


def _official(path: str, context: str | None, user: dict[str, Any] | None = None) -> Access:
    """Let the official client read what this module does not: exec plugins, auth providers, merged files."""
    try:
        official: Any = importlib.import_module("kubernetes.client")
        official_config: Any = importlib.import_module("kubernetes.config")
    except ImportError as error:
        raise ConfigError(
            f"The kubeconfig {path} needs the Python package kubernetes (exec plugins, auth providers and merged files are its business); install it."
        ) from error
    configuration = official.Configuration()
    try:
        official_config.load_kube_config(config_file=path, context=context, client_configuration=configuration)
        contexts, active = official_config.list_kube_config_contexts(config_file=path)
    except Exception as error:  # its plugins raise whatever they like
        raise ConfigError(f"The kubeconfig {path} can not be used ({' '.join(str(error).split())}); does kubectl work with it?") from error
    if user and "exec" in user and not _official_token(configuration) and not configuration.cert_file:
        # The official client logs the plugin's failure and goes on without credentials, which would end in a 403 for nobody.
        command = user["exec"].get("command") if isinstance(user["exec"], dict) else None
        raise ConfigError(f"The exec plugin {command!r} of the kubeconfig {path} gave no credentials; run it by hand and log in again.")

    def headers() -> dict[str, str]:
        value = _official_token(configuration)
        if value:
            return {"Authorization": value}
        return {"Authorization": configuration.get_basic_auth_token()} if configuration.username else {}

    return Access(
        server=_server(configuration.host),
        source=f"kubeconfig {path}" + (f", context {context}" if context else ""),
        ca=Pem(path=configuration.ssl_ca_cert) if configuration.ssl_ca_cert else Pem(),
        verify=bool(configuration.verify_ssl),
        tls_server_name=configuration.tls_server_name,
        certificate=Pem(path=configuration.cert_file) if configuration.cert_file else Pem(),
        key=Pem(path=configuration.key_file) if configuration.key_file else Pem(),
        headers=headers,
        proxy=configuration.proxy,
        namespace=(next((one for one in contexts if one.get("name") == context), active)["context"]).get("namespace") or "default",
    )


def _official_token(configuration: Any) -> str | None:
    """Return the Authorization header's value, renewed where that is due. Releases of the official client differ in the name."""
    value: str | None = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    return value


def _server(host: str) -> str:
    """Return the server's URL without a trailing slash; a bare host name means https."""
    url = (host if "://" in host else f"https://{host}").rstrip("/")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ConfigError(f"{host!r} is no address of an API server; write https://name:port.")
    return url


def _load_client_certificate(context: ssl.SSLContext, certificate: Pem, key: Pem) -> None:
    """OpenSSL's interface reads files only, so texts go through private temporary ones that are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="corral-") as folder:
        paths: list[str | None] = []
        for name, pem in (("certificate", certificate), ("key", key)):
            if pem.text is None:
                paths.append(pem.path)
                continue
            path = Path(folder, name)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(pem.text)
            paths.append(str(path))
        context.load_cert_chain(paths[0] or "", paths[1])
