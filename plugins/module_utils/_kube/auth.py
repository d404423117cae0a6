# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How to reach a cluster: explicit parameters, else a kubeconfig, else the pod's own service account.

``kubernetes.config`` of the official client costs 0.2 s to import, a fifth of a run that changes nothing, and knows neither impersonation nor proxies.
So kubeconfigs are read here, several merged ones too, and only what exec plugins and auth providers give is asked of the official client.
Who acts for somebody else (``as``…) does so in every request, wherever the credentials come from; tests/integration/kube/test_kubeconfig.py
holds them to kubectl's.
"""

from __future__ import annotations

import base64
import functools
import importlib
import os
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import ConfigError
from ansible_collections.corral.slurm.plugins.module_utils._kube.proxy import checked, of_environment

try:
    import yaml
except ImportError as error:  # reported when a kubeconfig is read
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
        "as-uid",
        "as-groups",
        "as-user-extra",
        "extensions",
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
        "extensions",
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
    authorization: Callable[[], dict[str, str]] = field(default=dict)
    """Returns the Authorization header, read again at each call so that a renewed token is found."""
    impersonation: tuple[tuple[str, str], ...] = ()
    """Headers that say for whom the requests are; one may be there several times."""
    proxy: str | None = None
    namespace: str = "default"

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers of a request that say who sends it, for whom."""
        return [*self.authorization().items(), *self.impersonation]

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings of the server and of its proxy (None for plain http). The CA is the configured one alone; REQUESTS_CA_BUNDLE has no say.

        Raises ConfigError for certificates that cannot be read.
        """
        if "https" not in (urlsplit(self.server).scheme, urlsplit(self.proxy or "").scheme):
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
                f"The certificates of {self.source} cannot be used ({error}); check the CA, client certificate and key."
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
        bearer = _bearer(str(params["api_key"]), "the parameter api_key")
        changes["authorization"] = lambda: bearer
        changes["certificate"] = changes["key"] = Pem()  # an API server believes a certificate rather than a token
    for parameter, name in (("ca_cert", "ca"), ("client_cert", "certificate"), ("client_key", "key")):
        if params.get(parameter):
            changes[name] = Pem(path=str(Path(str(params[parameter])).expanduser()))
    if params.get("validate_certs") is not None:
        changes["verify"] = bool(params["validate_certs"])
    return _with_proxy(Access(**{**base.__dict__, **changes}))


def _with_proxy(access: Access) -> Access:
    """Take the proxy of the environment, as kubectl does, where the kubeconfig names none."""
    if access.proxy or not access.server:
        return access
    return replace(access, proxy=of_environment(access.server))


def _base(params: dict[str, Any]) -> Access:
    if params.get("host") and not params.get("kubeconfig"):
        return Access(server="", source="the parameter host")
    given = params.get("kubeconfig") or os.environ.get("KUBECONFIG")
    paths = [Path(part).expanduser() for part in str(given or "~/.kube/config").split(os.pathsep) if part]
    if given or paths[0].exists():
        if len(paths) > 1:  # as with kubectl, those that are not there do not count
            paths = [path for path in paths if path.exists()] or paths
        return _from_kubeconfig(paths, params.get("context"))
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
        authorization=_token_file(_SERVICE_ACCOUNT / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


@functools.lru_cache(maxsize=8)
def _parsed(text: bytes) -> Any:
    """Return what a kubeconfig says, for reading alone: a run asks for the same one at each of its tasks."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _read(path: Path) -> dict[str, Any]:
    if _MISSING is not None:
        raise ConfigError(f"The Python package PyYAML is missing ({_MISSING}); install it for the Python that runs this task.")
    try:
        document = _parsed(path.read_bytes())
    except FileNotFoundError as error:
        raise ConfigError(
            f"The kubeconfig {path} does not exist; name an existing one with the parameter kubeconfig or KUBECONFIG."
        ) from error
    except OSError as error:
        raise ConfigError(f"The kubeconfig {path} cannot be read ({error.strerror}); check its permissions.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # its text would quote the file, which holds secrets
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(
            f"The kubeconfig {path} is not YAML ({getattr(error, 'problem', None) or 'a character'}{where}); is it the right file?"
        ) from error
    if not isinstance(document, dict):
        raise ConfigError(f"The kubeconfig {path} is empty or no mapping; is it the right file?")
    return document


def _from_kubeconfig(paths: list[Path], wanted: str | None) -> Access:
    """Read a kubeconfig, or several: of an entry that is in more than one the first counts, and its paths are relative to its own file."""
    documents = [(path, _read(path)) for path in paths]
    names = os.pathsep.join(map(str, paths))
    name = wanted or next((document["current-context"] for _path, document in documents if document.get("current-context")), None)
    if not name:
        raise ConfigError(f"The kubeconfig {names} has no current-context; choose one with the parameter context.")
    _path, context = _entry(documents, "contexts", "context", name)
    cluster_path, cluster = _entry(documents, "clusters", "cluster", context.get("cluster"))
    user_path, user = _entry(documents, "users", "user", context.get("user")) if context.get("user") else (paths[0], {})
    source = f"kubeconfig {names}, context {name}"
    server, proxy, insecure = _text(cluster, "server", source), _text(cluster, "proxy-url", source), cluster.get("insecure-skip-tls-verify")
    if not server:
        raise ConfigError(f"The cluster {context.get('cluster')!r} in the kubeconfig {cluster_path} has no server; add its address.")
    if not isinstance(insecure, bool | None):
        raise ConfigError(f"The insecure-skip-tls-verify of {source} is neither true nor false; write one of them, without quotes.")
    address = _server(server)
    of_user: dict[str, Any] = {}
    if urlsplit(address).scheme == "http":
        pass  # like kubectl, show no credentials where whoever is on the way can read them
    elif set(user) - _PLAIN_USER or set(cluster) - _PLAIN_CLUSTER:
        official = _official(names, name, user)
        of_user = {part: getattr(official, part) for part in ("authorization", "certificate", "key")}
    else:
        of_user = {
            "authorization": _authorization(user, user_path, source),
            "certificate": _pem(user, "client-certificate", user_path, source),
            "key": _pem(user, "client-key", user_path, source),
        }
    return Access(
        server=address,
        source=source,
        ca=_pem(cluster, "certificate-authority", cluster_path, source),
        verify=not insecure,
        tls_server_name=_text(cluster, "tls-server-name", source) or None,
        impersonation=_impersonation(user, source),
        proxy=checked(proxy, source) if proxy else None,
        namespace=_text(context, "namespace", source) or "default",
        **of_user,
    )


def _entry(documents: list[tuple[Path, dict[str, Any]]], section: str, key: str, name: Any) -> tuple[Path, dict[str, Any]]:
    """Return the named entry of a kubeconfig's list, and the file that it is in."""
    found: list[str] = []
    for path, document in documents:
        listed = document.get(section)
        if not isinstance(listed, list | None):
            raise ConfigError(f"The {section} in the kubeconfig {path} are no list; correct them.")
        entries = [entry for entry in listed or () if isinstance(entry, dict)]
        for entry in entries:
            if entry.get("name") == name:
                value = entry.get(key)
                if not isinstance(value, dict | None):
                    raise ConfigError(f"The {key} named {name!r} in the kubeconfig {path} is no mapping; correct it.")
                return path, value or {}
        found.extend(str(entry.get("name")) for entry in entries)
    where = os.pathsep.join(str(path) for path, _document in documents)
    raise ConfigError(f"The kubeconfig {where} has no {key} named {name!r} (it has: {', '.join(found) or 'none'}); correct the name.")


def _text(section: dict[str, Any], key: str, source: str) -> str:
    """Return a text of a kubeconfig, "" where there is none. What YAML made something else of is refused, as by kubectl, and not shown: it may be a secret."""
    value = section.get(key)
    if not isinstance(value, str | None):
        raise ConfigError(f"The {key} of {source} is no text but {type(value).__name__}; put it in quotes, or leave it out.")
    return value or ""


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _impersonation(user: dict[str, Any], source: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of a user who acts for another one. To leave one out would be to act with rights that nobody meant."""
    who, uid = _text(user, "as", source), _text(user, "as-uid", source)
    groups = [] if user.get("as-groups") is None else user["as-groups"]
    extra = {} if user.get("as-user-extra") is None else user["as-user-extra"]
    if not isinstance(extra, dict) or not all(map(_are_texts, (groups, list(extra), *extra.values()))):
        raise ConfigError(
            f"The user of {source} has as-groups that are no list of texts, or as-user-extra that is no mapping of lists of texts; correct them."
        )
    if (uid or groups or extra) and not who:
        raise ConfigError(f"The user of {source} has as-uid, as-groups or as-user-extra without as; name the user to impersonate.")
    pairs = [("Impersonate-User", who)] if who else []
    if uid:
        pairs.append(("Impersonate-Uid", uid))
    pairs.extend(("Impersonate-Group", group) for group in groups)
    for key, values in extra.items():
        pairs.extend((f"Impersonate-Extra-{quote(key, safe=_IN_HEADERS)}", value) for value in values)
    return tuple((name, _in_header(value, f"an as… entry of {source}")) for name, value in pairs)


# What a header's name may hold besides letters and digits (RFC 7230), without the % that begins an escape.
_IN_HEADERS = "!#$&'*+-.^_`|~"


def _in_header(value: str, what: str) -> str:
    """Refuse what no header can hold, without its value: it may be a secret."""
    if not value or not value.isprintable() or not value.isascii():
        raise ConfigError(f"The value of {what} is empty or holds a character that no HTTP header can have; correct it.")
    return value


def _bearer(token: str, what: str) -> dict[str, str]:
    """Return the header of a token. What a file or a command printed ends with a newline, which is no part of it."""
    return {"Authorization": f"Bearer {_in_header(token.strip(), what)}"}


def _authorization(user: dict[str, Any], path: Path, source: str) -> Callable[[], dict[str, str]]:
    """Return the function that gives a plain user's header."""
    name, password, token, file = (_text(user, key, source) for key in ("username", "password", "token", "tokenFile"))
    if name and (token or file):
        raise ConfigError(f"The user of {source} has a token and a username; remove one of them.")
    if file:  # before the token, as with kubectl
        return _token_file(path.parent / Path(file).expanduser())
    if token:
        bearer = _bearer(token, f"the token of {source}")
        return lambda: bearer
    if name:
        basic = base64.b64encode(f"{name}:{password}".encode()).decode()
        return lambda: {"Authorization": f"Basic {basic}"}
    return dict


def _token_file(path: Path) -> Callable[[], dict[str, str]]:
    def read() -> dict[str, str]:
        try:
            token = path.read_text()
        except OSError as error:
            raise ConfigError(f"The token file {path} cannot be read ({error.strerror}); check the path and its permissions.") from error
        return _bearer(token, f"the token file {path}")

    return read


def _pem(section: dict[str, Any], key: str, path: Path, source: str) -> Pem:
    data, file = _text(section, f"{key}-data", source), _text(section, key, source)
    if data:
        try:
            return Pem(text=base64.b64decode(data, validate=False).decode())
        except ValueError as error:
            raise ConfigError(f"The {key}-data of {source} is not base64 of a PEM text; write the kubeconfig again.") from error
    return Pem(path=str(path.parent / Path(file).expanduser())) if file else Pem()


def _official(path: str, context: str | None, user: dict[str, Any] | None = None) -> Access:
    """Have the official client ask exec plugins and auth providers for credentials."""
    try:
        official: Any = importlib.import_module("kubernetes.client")
        official_config: Any = importlib.import_module("kubernetes.config")
    except ImportError as error:
        raise ConfigError(
            f"The kubeconfig {path} needs the Python package kubernetes (exec plugins and auth providers are its business); install it."
        ) from error
    configuration = official.Configuration()
    try:
        official_config.load_kube_config(config_file=path, context=context, client_configuration=configuration)
    except Exception as error:  # its plugins raise whatever they like
        raise ConfigError(f"The kubeconfig {path} cannot be used ({' '.join(str(error).split())}); does kubectl work with it?") from error
    if user and "exec" in user and not _official_token(configuration) and not configuration.cert_file:
        # The official client logs the plugin's failure and goes on without credentials, which would end in a 403 for nobody.
        command = user["exec"].get("command") if isinstance(user["exec"], dict) else None
        raise ConfigError(f"The exec plugin {command!r} of the kubeconfig {path} gave no credentials; run it by hand and log in again.")

    def authorization() -> dict[str, str]:
        value = _official_token(configuration)
        if value:
            return {"Authorization": _in_header(value.strip(), f"the credentials of {path}")}
        return {"Authorization": configuration.get_basic_auth_token()} if configuration.username else {}

    return Access(
        server=_server(configuration.host),
        source=f"kubeconfig {path}" + (f", context {context}" if context else ""),
        ca=Pem(path=configuration.ssl_ca_cert) if configuration.ssl_ca_cert else Pem(),
        verify=bool(configuration.verify_ssl),
        tls_server_name=configuration.tls_server_name,
        certificate=Pem(path=configuration.cert_file) if configuration.cert_file else Pem(),
        key=Pem(path=configuration.key_file) if configuration.key_file else Pem(),
        authorization=authorization,
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
