# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every error of a document, each as one sentence: where, what, and what to do. Its structure by the CRD's own schema, and then, with defaults, its rules."""

from __future__ import annotations

import difflib
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import defaults, quantity, rules, schema
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError, is_private_key

_TYPES = {
    "object": "a mapping (key: value)",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
# So many errors are told, and so many of the others are counted.
SHOWN, COUNTED = 20, 10_000
# Of what somebody else checks.
_DEPTH = 32
# Beyond it the API server takes a number for one with a fraction.
MAX_INTEGER = 2**63 - 1


class InvalidDocument(CorralError):
    """A document with errors; ``data["errors"]`` has one sentence for each of the first, and one for ``more`` of them."""

    def __init__(self, errors: list[str], more: int = 0) -> None:
        total = len(errors) + more
        count = "1 error" if total == 1 else f"{'more than ' * (more == COUNTED)}{total} errors"
        if more:
            errors = [*errors, f"{more} more errors of spec are not shown; correct these first and run again."]
        super().__init__(f"The document has {count}; nothing was changed. " + " ".join(errors), data={"errors": errors})


def check(document: Any) -> dict[str, Any]:
    """Return the spec of ``document`` with the schema's defaults. Raises InvalidDocument where it is not a SlurmCluster that can be made.

    Its structure comes first, then the defaults, then what a schema cannot say: that sees each field that has a default.
    """
    check_head(document)
    written = defaults.normal(document.get("spec"))
    _refuse(_structure({**document, "spec": written}, schema.document(), ""))
    spec = defaults.static(written)
    _refuse(rules.errors(document["metadata"], spec, written))
    return spec


def check_head(document: Any) -> None:
    """Raise InvalidDocument where ``document`` does not even name a SlurmCluster."""
    _refuse(_head(document))


def _refuse(found: Iterator[str | Callable[[], str]]) -> None:
    shown = [one if isinstance(one, str) else one() for one in itertools.islice(found, SHOWN)]
    if shown:
        raise InvalidDocument(shown, sum(1 for _one in itertools.islice(found, COUNTED)))


def _head(document: Any) -> Iterator[str | Callable[[], str]]:
    if not isinstance(document, dict) or not document:
        yield f"The document is {_found(document)}, not a {schema.KIND}: it begins with apiVersion: {schema.API_VERSION} and kind: {schema.KIND}."
        return
    for key, wanted in (("apiVersion", schema.API_VERSION), ("kind", schema.KIND)):
        if document.get(key) != wanted:
            yield f"{key} is {_found(document.get(key))}; write {key}: {wanted}, if this is a {schema.KIND} at all."
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        yield "metadata.name is missing; give the cluster a name."
        return
    if metadata.get("generateName") is not None:
        yield "metadata.generateName is not for a cluster, which each run must find again by its name; remove it."
    if metadata.get("namespace") is not None and not (
        isinstance(metadata["namespace"], str) and re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", metadata["namespace"])
    ):
        yield f"metadata.namespace is {_found(metadata['namespace'])}; write a Kubernetes namespace: lower-case letters, digits and '-'."


def _structure(value: Any, wanted: schema.Schema, path: str) -> Iterator[str | Callable[[], str]]:
    """Walk value and schema side by side."""
    if wanted.get("x-kubernetes-int-or-string"):
        yield from _quantity(value, wanted, path)
        return
    kind = wanted["type"]
    if not _is(value, kind):
        hint = ""
        if kind == "string" and value is not None and not isinstance(value, (dict, list)):
            hint = "; put it in quotes, since YAML reads it as something else"
            if "enum" in wanted:
                hint = f"; it must be one of {', '.join(wanted['enum'])}, in quotes where YAML reads it as something else"
        yield f"{path} must be {_TYPES[kind]}, not {_found(value, path)}{hint}."
    elif kind == "object":
        yield from _mapping(value, wanted, path)
    elif kind == "array":
        yield from _array(value, wanted, path)
    elif kind in ("integer", "number"):
        low, high = wanted.get("minimum"), wanted.get("maximum")
        if (low is not None and value < low) or (high is not None and value > high):
            yield f"{path} is {_found(value)}; it must be between {low} and {high}."
    elif kind == "string":
        yield from _text(value, wanted, path)


def _mapping(value: dict[Any, Any], wanted: schema.Schema, path: str) -> Iterator[str | Callable[[], str]]:
    known = wanted.get("properties")
    if wanted.get(schema.FREE):
        yield from _free(value, path)
        return
    if known is None:
        values = wanted.get("additionalProperties", {})
        if len(value) > wanted.get("maxProperties", len(value)):
            yield f"{path} has {len(value)} entries; {wanted['maxProperties']} are the most."
        for key, item in value.items():
            if not isinstance(key, str):
                yield f"{path} has the key {_found(key)}; keys are text, so put it in quotes."
            else:
                yield from _structure(item, values, _join(path, key))
        return
    for key in value:
        # The API server's own metadata (uid, managedFields, …) and the status are not the user's errors.
        if key not in known and path != "metadata":
            yield functools.partial(_unknown, key, known, path)
    for key in wanted.get("required", ()):
        if value.get(key) is None:
            yield f"{_join(path, key)} is missing; it is needed: {_first_sentence(known[key])}"
    for key, child in known.items():
        if value.get(key) is not None and not (path == "" and key == "status"):
            yield from _structure(value[key], child, _join(path, key))


def _free(value: Any, path: str, depth: int = 0) -> Iterator[str]:
    """What somebody else checks has to be JSON at least."""
    if depth > _DEPTH:
        yield f"{path} is more than {_DEPTH} levels deep, which no object of Kubernetes is; remove it."
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _free(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                yield f"{path} has the key {_found(key)}; keys are text, so put it in quotes."
            else:
                yield from _free(item, _join(path, key), depth + 1)
    elif isinstance(value, str):
        yield from _text(value, {}, path)
    elif value is not None and not _is_scalar(value):
        yield f"{path} is {_found(value)}, which Kubernetes cannot keep; write text, a number of at most 19 digits, or true or false."


def _is_scalar(value: Any) -> bool:
    return abs(value) <= MAX_INTEGER if isinstance(value, int) else isinstance(value, float) and math.isfinite(value)


def _unknown(key: Any, known: dict[str, schema.Schema], path: str) -> str:
    near = difflib.get_close_matches(key.strip()[:80], known, n=1) if isinstance(key, str) else []
    advice = f"did you mean {near[0]}?" if near else f"known here are {', '.join(known)}."
    return f"{_join(path, key if isinstance(key, str) else _found(key))} is not known; {advice}"


def _array(value: list[Any], wanted: schema.Schema, path: str) -> Iterator[str | Callable[[], str]]:
    if len(value) < wanted.get("minItems", 0):
        yield f"{path} is empty; give at least {wanted['minItems']}: {_first_sentence(wanted)}"
    if len(value) > wanted.get("maxItems", len(value)):
        yield f"{path} has {len(value)} entries; {wanted['maxItems']} are the most."
    for index, item in enumerate(value):
        yield from _structure(item, wanted["items"], f"{path}[{index}]")
    keys = wanted.get("x-kubernetes-list-map-keys", [])
    seen: dict[Any, int] = {}
    for index, item in enumerate(value):
        identity: Any = item
        if keys:
            identity = tuple(item.get(key) for key in keys) if isinstance(item, dict) else None
        elif wanted.get("x-kubernetes-list-type") != "set":
            break
        # Another type than the schema's has its own sentence, and may not be comparable.
        if not all(isinstance(part, (str, int)) for part in (identity if isinstance(identity, tuple) else (identity,))):
            continue
        if identity in seen:
            where = f"{path}[{index}].{keys[0]}" if keys else f"{path}[{index}]"
            yield f"{where} is {_found(identity[0] if keys else identity, path)} a second time, after {path}[{seen[identity]}]; each can occur once."
        seen.setdefault(identity, index)


def _text(value: str, wanted: schema.Schema, path: str) -> Iterator[str]:
    if "enum" in wanted:
        if value not in wanted["enum"]:
            yield f"{path} is {_found(value)}; it must be one of {', '.join(wanted['enum'])}."
        return
    low, high = wanted.get("minLength", 0), wanted.get("maxLength", len(value))
    pattern = wanted.get("pattern")
    if len(value) < low:
        yield f"{path} is empty; write {_pattern_text(pattern)}."
    elif len(value) > high:
        yield f"{path} has {len(value)} characters; {high} are the most."
    elif any("\ud800" <= one <= "\udfff" for one in value if one > "\ud7ff"):
        yield f"{path} has half of a surrogate pair, which is no character; write the character itself."
    elif pattern and not _matches(pattern, value):
        yield f"{path} is {_found(value, path)}; it must be {_pattern_text(pattern)}."


def _quantity(value: Any, wanted: schema.Schema, path: str) -> Iterator[str | Callable[[], str]]:
    if not _is(value, "integer") and not isinstance(value, str):
        yield f"{path} must be {_pattern_text(wanted['pattern'])}, not {_found(value)}; put it in quotes."
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        yield f"{path} is {_found(value)}; {MAX_INTEGER} is the most that Kubernetes counts to."
    elif (isinstance(value, str) and len(value) > wanted["maxLength"]) or not _matches(wanted["pattern"], str(value)):
        yield f"{path} is {_found(value)}; it must be {_pattern_text(wanted['pattern'])}."
    elif wanted["pattern"] in schema.AMOUNTS and quantity.parse(value) > MAX_INTEGER:
        yield f"{path} is {_found(value)}; {MAX_INTEGER} is the most that Kubernetes counts to."


def _matches(pattern: str, value: str) -> bool:
    """Match the whole text: Python's ``$`` would let a line break at the end pass."""
    return re.fullmatch(pattern.removeprefix("^").removesuffix("$"), value) is not None


def _is(value: Any, kind: str) -> bool:
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "number":
        return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and not math.isnan(value))
    return isinstance(value, {"object": dict, "array": list, "string": str, "boolean": bool}[kind])


def _pattern_text(pattern: str | None) -> str:
    return schema.PATTERNS.get(pattern or "", "text")


def _first_sentence(wanted: schema.Schema) -> str:
    return str(wanted.get("description", "")).split(". ", maxsplit=1)[0].rstrip(".") + "."


def _join(path: str, key: str) -> str:
    """A path goes on; what is no plain text in a key, or too long, does not get onto a terminal."""
    shown = key if key.isascii() and key.isprintable() else ascii(key)[1:-1]
    shown = shown if len(shown) <= 80 else f"{shown[:76]}..."
    return f"{path}.{shown}" if path else shown


def _found(value: Any, path: str = "") -> str:
    """A value as the sentence shows it: short, on one line, whatever is in it, and nothing of a key that should be nowhere."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of some {value.bit_length() * 3 // 10} digits"
    if isinstance(value, str) and (is_private_key(value) or "sshKeys" in path):
        return "a private key, which must not be here and should be replaced" if is_private_key(value) else "something else"
    shown = ascii(value[:80]) if isinstance(value, str) else ascii(str(value))[1:-1]
    return shown if len(shown) <= 80 else shown[:76] + "...'"
