# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every mistake of a document, each as one sentence: where, what, and what to do. First its structure by the CRD's own schema, then its sense."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import meaning, schema
from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

_TYPES = {"object": "a mapping (key: value)", "array": "a list", "string": "text", "integer": "a whole number", "boolean": "true or false"}


class InvalidDocument(CorralError):
    """A document with mistakes; ``data["mistakes"]`` has one sentence for each."""

    def __init__(self, mistakes: list[str]) -> None:
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        super().__init__(f"The document has {count}; nothing was changed. " + " ".join(mistakes), data={"mistakes": mistakes})


def check(document: Any) -> None:
    """Raise InvalidDocument where ``document`` is not a SlurmCluster that can be made."""
    mistakes = list(_head(document))
    if not mistakes:
        mistakes = list(_structure(document, schema.document(), ""))
    if not mistakes:
        mistakes = list(meaning.mistakes(document["metadata"], document["spec"]))
    if mistakes:
        raise InvalidDocument(mistakes)


def _head(document: Any) -> Iterator[str]:
    if not isinstance(document, dict) or not document:
        yield f"The document is {_found(document)}, not a {schema.KIND}: it begins with apiVersion: {schema.API_VERSION} and kind: {schema.KIND}."
        return
    for key, wanted in (("apiVersion", schema.API_VERSION), ("kind", schema.KIND)):
        if document.get(key) != wanted:
            yield f"{key} is {_found(document.get(key))}; write {key}: {wanted}, if this is a {schema.KIND} at all."
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        yield "metadata.name is missing; give the cluster a name."
    elif "namespace" in metadata and not (
        isinstance(metadata["namespace"], str) and re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", metadata["namespace"])
    ):
        yield f"metadata.namespace is {_found(metadata['namespace'])}; write a Kubernetes namespace: lower-case letters, digits and '-'."


def _structure(value: Any, rules: schema.Schema, path: str) -> Iterator[str]:
    """Walk value and schema side by side."""
    if rules.get("x-kubernetes-int-or-string"):
        yield from _quantity(value, rules, path)
        return
    kind = rules["type"]
    if not _is(value, kind):
        hint = ""
        if kind == "string" and value is not None and not isinstance(value, (dict, list)):
            hint = "; put it in quotes, since YAML reads it as something else"
            if "enum" in rules:
                hint = f"; it must be one of {', '.join(rules['enum'])}, in quotes where YAML reads it as something else"
        yield f"{path} must be {_TYPES[kind]}, not {_found(value)}{hint}."
    elif kind == "object":
        yield from _mapping(value, rules, path)
    elif kind == "array":
        yield from _array(value, rules, path)
    elif kind == "integer":
        low, high = rules.get("minimum"), rules.get("maximum")
        if (low is not None and value < low) or (high is not None and value > high):
            yield f"{path} is {value}; it must be between {low} and {high}."
    elif kind == "string":
        yield from _text(value, rules, path)


def _mapping(value: dict[Any, Any], rules: schema.Schema, path: str) -> Iterator[str]:
    known = rules.get("properties")
    if rules.get("x-kubernetes-preserve-unknown-fields"):
        return
    if known is None:
        values = rules.get("additionalProperties", {})
        if len(value) > rules.get("maxProperties", len(value)):
            yield f"{path} has {len(value)} entries; {rules['maxProperties']} are the most."
        for key, item in value.items():
            if not isinstance(key, str):
                yield f"{path} has the key {_found(key)}; keys are text, so put it in quotes."
            else:
                yield from _structure(item, values, f"{path}.{key}")
        return
    for key in value:
        # The API server's own metadata (uid, managedFields, …) and the status are not the user's mistakes.
        if key not in known and path != "metadata":
            close = difflib.get_close_matches(str(key), known, n=1)
            advice = f"did you mean {close[0]}?" if close else f"known here are {', '.join(known)}."
            yield f"{_join(path, str(key))} is not known; {advice}"
    for key in rules.get("required", ()):
        if value.get(key) is None:
            yield f"{_join(path, key)} is missing; it is needed: {_first_sentence(known[key])}"
    for key, child in known.items():
        if value.get(key) is not None and not (path == "" and key == "status"):
            yield from _structure(value[key], child, _join(path, key))


def _array(value: list[Any], rules: schema.Schema, path: str) -> Iterator[str]:
    if len(value) < rules.get("minItems", 0):
        yield f"{path} is empty; give at least {rules['minItems']}: {_first_sentence(rules)}"
    if len(value) > rules.get("maxItems", len(value)):
        yield f"{path} has {len(value)} entries; {rules['maxItems']} are the most."
    for index, item in enumerate(value):
        yield from _structure(item, rules["items"], f"{path}[{index}]")
    keys = rules.get("x-kubernetes-list-map-keys", [])
    seen: dict[Any, int] = {}
    for index, item in enumerate(value):
        identity: Any = item
        if keys:
            identity = tuple(item.get(key) for key in keys) if isinstance(item, dict) else None
        elif rules.get("x-kubernetes-list-type") != "set":
            break
        # Another type than the schema's has its own sentence, and may not be comparable.
        if not all(isinstance(part, (str, int)) for part in (identity if isinstance(identity, tuple) else (identity,))):
            continue
        if identity in seen:
            where = f"{path}[{index}].{keys[0]}" if keys else f"{path}[{index}]"
            yield f"{where} is {_found(identity[0] if keys else identity)} a second time, after {path}[{seen[identity]}]; each can occur once."
        seen.setdefault(identity, index)


def _text(value: str, rules: schema.Schema, path: str) -> Iterator[str]:
    if "enum" in rules:
        if value not in rules["enum"]:
            yield f"{path} is {_found(value)}; it must be one of {', '.join(rules['enum'])}."
        return
    low, high = rules.get("minLength", 0), rules.get("maxLength", len(value))
    pattern = rules.get("pattern")
    if len(value) < low:
        yield f"{path} is empty; write {_words(pattern)}."
    elif len(value) > high:
        yield f"{path} has {len(value)} characters; {high} are the most."
    elif pattern and not _matches(pattern, value):
        yield f"{path} is {_found(value)}; it must be {_words(pattern)}."


def _quantity(value: Any, rules: schema.Schema, path: str) -> Iterator[str]:
    if not _is(value, "integer") and not isinstance(value, str):
        yield f"{path} must be {_words(rules['pattern'])}, not {_found(value)}; put it in quotes."
    elif not _matches(rules["pattern"], str(value)) or len(str(value)) > rules["maxLength"]:
        yield f"{path} is {_found(value)}; it must be {_words(rules['pattern'])}."


def _matches(pattern: str, value: str) -> bool:
    """Match the whole text: Python's ``$`` would let a line break at the end pass."""
    return re.fullmatch(pattern.removeprefix("^").removesuffix("$"), value) is not None


def _is(value: Any, kind: str) -> bool:
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, {"object": dict, "array": list, "string": str, "boolean": bool}[kind])


def _words(pattern: str | None) -> str:
    return schema.PATTERNS.get(pattern or "", "text")


def _first_sentence(rules: schema.Schema) -> str:
    return str(rules.get("description", "")).split(". ", maxsplit=1)[0].rstrip(".") + "."


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _found(value: Any) -> str:
    """A value as the sentence shows it: short, on one line, whatever is in it."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    shown = ascii(value) if isinstance(value, str) else str(value)
    return shown if len(shown) <= 80 else shown[:76] + "...'"
