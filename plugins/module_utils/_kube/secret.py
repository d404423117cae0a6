# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of k8s_secret: keys that are made once and never overwritten, but by a rotation (rotate.py)."""

from __future__ import annotations

import base64
import secrets
import string
import time
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._kube import auth, lost_keys
from ansible_collections.corral.slurm.plugins.module_utils._kube.client import MERGE, Client
from ansible_collections.corral.slurm.plugins.module_utils._kube.discovery import BUILTIN, Ref
from ansible_collections.corral.slurm.plugins.module_utils._kube.errors import Conflict, Invalid, KubeError, NotFound, Status
from ansible_collections.corral.slurm.plugins.module_utils._kube.ownership import INSTANCE, MANAGED_BY, another_cluster

try:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
except ImportError as error:  # reported when an ssh key is to be made
    _MISSING: ImportError | None = error
else:
    _MISSING = None

# A key is added with the resourceVersion that it was missed in, so that nobody else's is overwritten; this often it is tried again.
_RACES = 5
_MAX_RANDOM = 1 << 20
# Of a password: characters that no configuration file, shell or SQL statement takes for its own.
_LETTERS = string.ascii_letters + string.digits
# Annotations: when a rotation began that has not ended, and when the last one ended.
ROTATING, ROTATED = "corral.hpc/rotating", "corral.hpc/rotated"
# What a key that pods have beside the one that they use ends with: first the next one is known to all, then the former one still is.
NEXT, FORMER = ".next", ".former"


@dataclass
class Wanted:
    """One wanted Secret and what became of it. ``added``: key and a word on its content, never the content."""

    ref: Ref
    labels: dict[str, str]
    keys: dict[str, dict[str, Any]]
    result: str = "skipped"
    added: dict[str, str] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    """What a patch held whose response was a conflict: perhaps its first try did it and the response was lost."""
    looked: bool = False
    """That nobody runs with what is missing was seen."""


def run(params: dict[str, Any], *, check: bool, diff: bool) -> dict[str, Any]:
    """Make the Secrets of ``params["secrets"]`` where they or some of their keys are missing; the parameters are the module's.

    Returns ``changed``, ``secrets`` (a row each: namespace, name, result, ``added``: the number of keys), ``requests``, ``writes``.
    Raises CorralError.
    """
    client = Client(auth.resolve(params))
    wanted = [parse(entry, client.access.namespace) for entry in params.get("secrets") or ()]
    try:
        for secret in wanted:
            _make(client, secret, str(params.get("field_manager") or "corral"), check)
    except KubeError as error:
        error.data = {**_result(client, wanted, check, diff), **error.data}
        raise
    finally:
        client.close()
    return _result(client, wanted, check, diff)


def _result(client: Client, wanted: list[Wanted], check: bool, diff: bool) -> dict[str, Any]:
    changed = [secret for secret in wanted if secret.result in ("created", "configured")]
    result: dict[str, Any] = {
        "changed": bool(changed),
        "secrets": [{**secret.ref.row(secret.result), "added": len(secret.added)} for secret in wanted],
        "requests": client.requests,
        "writes": 0 if check else len(changed),
    }
    if diff:
        result["diff"] = [
            {"before_header": str(secret.ref), "after_header": str(secret.ref), "before": {}, "after": {"data": secret.added}}
            for secret in changed
        ]
    return result


def parse(entry: dict[str, Any], namespace: str) -> Wanted:
    """Return a Secret of ``secrets``. Raises Invalid for a recipe that is none."""
    ref = Ref(BUILTIN["", "Secret"], str(entry.get("namespace") or namespace), str(entry["name"]))
    labels = {str(key): str(value) for key, value in (entry.get("labels") or {}).items()}
    keys = entry.get("data") or {}
    for key, source in keys.items():
        _check(ref, key, source)
    return Wanted(ref, labels, keys)


def _check(ref: Ref, key: str, source: Any) -> None:
    """Refuse a key's recipe that does not say exactly one thing."""
    kinds = {"random_bytes": int, "password": int, "ssh_host_key": str, "value": str}
    good = isinstance(source, dict) and len(source) == 1 and next(iter(source)) in kinds
    if good:
        name, value = next(iter(source.items()))
        good = isinstance(value, kinds[name]) and not isinstance(value, bool)
        good = (
            good
            and (name not in ("random_bytes", "password") or 0 < value <= _MAX_RANDOM)
            and (name != "ssh_host_key" or value in ("ed25519", "ecdsa", "rsa"))
        )
    if not good:
        raise Invalid(
            f"{ref}: the key {key} needs exactly one of random_bytes and password (1 to {_MAX_RANDOM}), ssh_host_key (ed25519, ecdsa or rsa) and value (text).",
            Status(422, "Invalid"),
        )


def _make(client: Client, secret: Wanted, manager: str, check: bool) -> None:
    query = {"fieldManager": manager, **({"dryRun": "All"} if check else {})}
    for _dummy in range(_RACES):
        try:
            live = client.get(secret.ref.path, what=f"read {secret.ref}").data
        except NotFound:
            if not secret.looked:
                lost_keys.refuse(client, secret.ref, sorted(secret.keys))
            secret.looked = True
            if _create(client, secret, query, check):
                return
        else:
            if _complete(client, secret, live, query):
                return
    raise _contended(secret)


def _create(client: Client, secret: Wanted, query: dict[str, str], check: bool) -> bool:
    """Create the Secret; False when somebody else, or a first try whose response was lost, was faster."""
    metadata: dict[str, Any] = {"name": secret.ref.name, "namespace": secret.ref.namespace, "labels": secret.labels}
    metadata["annotations"] = {lost_keys.KEYS: ",".join(sorted(secret.keys))}
    body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": _contents(secret.keys)}
    made = {key: _source(source) for key, source in secret.keys.items()}
    try:
        client.request("POST", secret.ref.collection, what=f"create {secret.ref}", query=query, body=body)
    except NotFound as error:
        if not (check and error.status.namespace_missing):  # the same check run would have made it
            raise
    except Conflict as error:
        if not error.status.already_exists:
            raise
        live = client.get(secret.ref.path, what=f"read {secret.ref}").data
        if live.get("data") != body["data"]:
            return False
    secret.result, secret.added = "created", made
    return True


def _complete(client: Client, secret: Wanted, live: dict[str, Any], query: dict[str, str]) -> bool:
    """Add what is missing; False when the Secret was changed in between."""
    data, labels = live.get("data") or {}, live["metadata"].get("labels") or {}
    other = another_cluster(labels, secret.labels)
    if other:
        text = f"{secret.ref} belongs to the cluster {other} (its label {INSTANCE}), and was not changed; give this cluster another name"
        raise Conflict(f"{text}.", Status(409, "Conflict", text))
    secret.added = {key: _source(secret.keys[key]) for key, value in secret.sent.items() if data.get(key) == value}
    missing = {key: secret.keys[key] for key in lost_keys.missing(live, secret.keys)}
    new_labels = {key: value for key, value in secret.labels.items() if key not in labels}
    had = lost_keys.recorded(live)
    if not missing and not new_labels and had:
        secret.result = "configured" if secret.added else "unchanged"
        return True
    # One of an older release does not say what it had; one that has none of them was emptied.
    gone = sorted(had & missing.keys()) or (sorted(missing) if len(missing) == len(secret.keys) else [])
    if gone and not secret.sent:
        lost_keys.refuse(client, secret.ref, gone, exists=True)
    if missing and live.get("immutable"):
        raise KubeError(f"{secret.ref} is immutable and lacks the keys {', '.join(sorted(missing))}; delete it, and it is created again.")
    contents = _contents(missing)
    annotations = {lost_keys.KEYS: ",".join(sorted(had | secret.keys.keys()))}
    metadata = {"resourceVersion": live["metadata"]["resourceVersion"], "labels": new_labels, "annotations": annotations}
    patch = {"metadata": metadata, "data": contents}
    try:
        client.request(
            "PATCH", secret.ref.path, what=f"add keys to {secret.ref}", query=query, body=patch, content_type=MERGE, retry_conflict=False
        )
    except Conflict:
        secret.sent = contents
        return False
    secret.result, secret.added = "configured", {key: _source(source) for key, source in missing.items()}
    return True


def read_own(client: Client, secret: Wanted) -> dict[str, Any]:
    """Return a live Secret that a rotation may overwrite. Raises NotFound, and Conflict for one that is not the collection's own."""
    try:
        live = client.get(secret.ref.path, what=f"read {secret.ref}").data
    except NotFound as error:
        raise NotFound(
            f"{secret.ref} is not there, so there is nothing to rotate; run 'ansible-playbook corral.slurm.site' first.", error.status
        ) from error
    why = _whose(live, secret)
    if why:
        text = f"{secret.ref} is not rotated, because {why}: rotate it where it is made, and nothing was changed"
        raise Conflict(f"{text}.", Status(409, "Conflict", text))
    return dict(live)


def _whose(live: dict[str, Any], secret: Wanted) -> str:
    """Return why a Secret is not the collection's to overwrite; "" for its own."""
    labels = live["metadata"].get("labels") or {}
    for owner in live["metadata"].get("ownerReferences") or ():
        return f"{owner.get('kind')} {owner.get('name')} owns it"
    if MANAGED_BY in labels and labels[MANAGED_BY] != secret.labels.get(MANAGED_BY):
        return f"its label {MANAGED_BY} is {labels[MANAGED_BY]}"
    other = another_cluster(labels, secret.labels)
    if other:
        return f"it belongs to the cluster {other}"
    return "it is immutable" if live.get("immutable") else ""


def is_rotating(live: dict[str, Any]) -> bool:
    """True for a Secret that has new keys, of which not all pods are known to use them."""
    return ROTATING in (live["metadata"].get("annotations") or {})


def stage(live: dict[str, Any], secret: Wanted) -> str:
    """Return which keys a Secret has beside those that are used: NEXT, FORMER, or "" for none."""
    data = live.get("data") or {}
    return next((suffix for suffix in (NEXT, FORMER) if any(f"{key}{suffix}" in data for key in secret.keys)), "")


def advance(client: Client, secret: Wanted, live: dict[str, Any]) -> dict[str, Any]:
    """Bring a Secret from the stage that ``live`` has to the one after it, in one write: the next keys take the place of the former, or these go."""
    begun = stage(live, secret)
    for _dummy in range(_RACES):
        live = read_own(client, secret)
        if stage(live, secret) != begun:
            return live  # another run's, or a first try whose response was lost: all pods must have this first
        had = live.get("data") or {}
        data: dict[str, str | None] = {}
        for key in secret.keys:
            if begun == NEXT and f"{key}{NEXT}" in had:
                data |= {key: had[f"{key}{NEXT}"], f"{key}{FORMER}": had.get(key), f"{key}{NEXT}": None}
            elif begun == FORMER:
                data[f"{key}{FORMER}"] = None
        body = {"metadata": {"resourceVersion": live["metadata"]["resourceVersion"]}, "data": data}
        try:
            return dict(_patch(client, secret, body, {"fieldManager": "corral"}))
        except Conflict:
            continue
    raise _contended(secret)


def overwrite(client: Client, secret: Wanted, *, check: bool, beside: bool = False) -> dict[str, Any]:
    """Give a Secret new keys, and the mark of a rotation, in one write. One that has the mark stays. Returns what there is afterwards.

    ``beside``: the former keys stay in use, and the new ones are beside them as NEXT.
    """
    query = {"fieldManager": "corral", **({"dryRun": "All"} if check else {})}
    for _dummy in range(_RACES):
        live = read_own(client, secret)
        if is_rotating(live):
            return live
        annotations = {ROTATING: _now(), lost_keys.KEYS: ",".join(sorted(lost_keys.recorded(live) | secret.keys.keys()))}
        metadata = {"resourceVersion": live["metadata"]["resourceVersion"], "annotations": annotations}
        made = {f"{key}{NEXT if beside else ''}": content for key, content in _contents(secret.keys).items()}
        try:
            done = _patch(client, secret, {"metadata": metadata, "data": made}, query)
        except Conflict:
            continue  # somebody else's, or a first try whose response was lost
        secret.result, secret.added = "configured", describe(secret)
        return dict(done)
    raise _contended(secret)


def _patch(client: Client, secret: Wanted, body: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
    done = client.request(
        "PATCH", secret.ref.path, what=f"rotate {secret.ref}", query=query, body=body, content_type=MERGE, retry_conflict=False
    )
    return dict(done.data)


def _contended(secret: Wanted) -> KubeError:
    return KubeError(f"{secret.ref} keeps being changed by somebody else; stop that and run again.")


def finish_rotation(client: Client, secret: Wanted) -> None:
    """Take the mark of a rotation away: all pods use the new keys."""
    body = {"metadata": {"annotations": {ROTATING: None, ROTATED: _now()}}}
    client.request("PATCH", secret.ref.path, what=f"annotate {secret.ref}", query={"fieldManager": "corral"}, body=body, content_type=MERGE)


def describe(secret: Wanted) -> dict[str, str]:
    """Return each key with words on its content, never the content."""
    return {key: _source(source) for key, source in secret.keys.items()}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _contents(keys: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {key: base64.b64encode(_content(source)).decode() for key, source in keys.items()}


def _content(source: dict[str, Any]) -> bytes:
    if "random_bytes" in source:
        return secrets.token_bytes(int(source["random_bytes"]))
    if "password" in source:
        return "".join(secrets.choice(_LETTERS) for dummy in range(int(source["password"]))).encode()
    return ssh_host_key(str(source["ssh_host_key"])) if "ssh_host_key" in source else str(source["value"]).encode()


def _source(source: dict[str, Any]) -> str:
    """Describe a key's content without giving it away."""
    if "random_bytes" in source:
        return "random bytes"
    if "password" in source:
        return "a new password"
    return "a new ssh host key" if "ssh_host_key" in source else "the given value"


def ssh_host_key(kind: str) -> bytes:
    """Return a new private key in OpenSSH's format; ``kind``: ed25519, ecdsa (P-256) or rsa (3072 bits)."""
    if _MISSING is not None:
        raise KubeError(f"The Python package cryptography is missing ({_MISSING}); install it for the Python that runs this task.")
    key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    if kind == "ed25519":
        key = ed25519.Ed25519PrivateKey.generate()
    elif kind == "ecdsa":
        key = ec.generate_private_key(ec.SECP256R1())
    else:
        key = rsa.generate_private_key(public_exponent=65537, key_size=3072)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
