# Copyright: (c) 2026, the corral authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents that are wrong in one place each, made of a good one and the schema: what people mistype, and what nobody should be able to write."""

from __future__ import annotations

import copy
import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._cluster import schema

Json = dict[str, Any]
Step = str | int

TEXTS = ("", " ", "-", "a b", "two\nlines", "end\n", "Ünïcode", "{{ 7 * 7 }}", "$(id)", "../up", "a;b", "a=b", "#", "\x00", "x\u2028y", "!")
OTHERS: dict[str, tuple[Any, ...]] = {
    "object": ("text", 7, True, ["a"]),
    "array": ("text", 7, True, {"a": "b"}),
    "string": (7, True, 1.5, ["a"], {"a": "b"}),
    "integer": ("7", 1.5, True, [7], {"a": 7}),
    "number": ("7", True, [7], {"a": 7}),
    "boolean": ("true", "yes", 1, [True], {"a": True}),
}


@dataclass(frozen=True)
class Misoperation:
    """A wrong document; ``path`` is where it is wrong, as the sentences write it, and ``what`` the kind of mistake."""

    what: str
    path: str
    document: Json


def of(document: Json) -> Iterator[Misoperation]:
    """Yield all that can be made of a good document, of things of which there are several once only."""
    seen: set[tuple[Step, ...]] = set()
    for steps, value, rules in _places(document["spec"], schema.document()["properties"]["spec"], ("spec",)):
        kind = tuple(0 if isinstance(step, int) else step for step in steps)
        if kind in seen:
            continue
        seen.add(kind)
        for what, wrong in _wrong(value, rules):
            yield Misoperation(what, _words(steps), _with(document, steps, wrong))
        if isinstance(value, dict):
            for key in rules.get("properties", {}):
                if key in rules.get("required", ()) and key in value:
                    rest = {name: one for name, one in value.items() if name != key}
                    yield Misoperation("missing", _words((*steps, key)), _with(document, steps, rest))
            if "properties" in rules:
                for key in (f"{next(iter(value), 'key')}z", "{{ x }}"):
                    yield Misoperation("unknown", _words((*steps, key)), _with(document, steps, {**value, key: "x"}))


def hostile(document: Json) -> Iterator[Misoperation]:
    """Yield documents with something in one place that no person would write there: each is refused by a sentence, or makes sense."""
    deep: Any = "end"
    for _level in range(200):
        deep = [deep]
    seen: set[tuple[Step, ...]] = set()
    for steps, value, _rules in _places(document["spec"], schema.document()["properties"]["spec"], ("spec",)):
        kind = tuple(0 if isinstance(step, int) else step for step in steps)
        if kind in seen:
            continue
        seen.add(kind)
        yield Misoperation("blank", _words(steps), _with(document, steps, None))
        values: list[tuple[str, Any]] = [
            ("number", 10**5000),
            ("number", -(2**63) - 1),
            ("number", float("inf")),
            ("number", float("nan")),
            ("number", 0.5),
        ]
        values.extend(
            (("date", datetime.date(2026, 1, 1)), ("bytes", b"\xff"), ("deep", deep if not isinstance(value, list) else {"a": deep}))
        )
        values.extend(("text", text) for text in ("\ud800", "\u00a02", "\U0001f525", "é" * 300, "0" * 5000, "\x1b[2J"))
        if isinstance(value, dict):
            values.append(("key", {**value, "\x1b[2J\u202e": "x\0"}))
            values.append(("key", {**value, 7: "\0"}))
        for what, wrong in values:
            yield Misoperation(what, _words(steps), _with(document, steps, wrong))


def variations(document: Json) -> Iterator[Misoperation]:
    """Yield documents whose structure is good and that differ in one place: they make sense, or they are refused, and nothing else may come of them."""
    for steps, value, rules in _places(document["spec"], schema.document()["properties"]["spec"], ("spec",)):
        for what, other in _other(value, rules):
            yield Misoperation(what, _words(steps), _with(document, steps, other))


def _other(value: Any, rules: schema.Schema) -> Iterator[tuple[str, Any]]:
    kind = rules.get("type")
    if kind == "boolean":
        yield "flipped", not value
    elif kind == "integer":
        yield from (("bound", rules[bound]) for bound in ("minimum", "maximum") if bound in rules and rules[bound] != value)
    elif kind == "string":
        yield from (("choice", one) for one in rules.get("enum", ()) if one != value)
        if "enum" not in rules and _fits("other", rules):
            yield "elsewhere", "other"
    elif kind == "object":
        for key in value:
            if key not in rules.get("required", ()):
                yield "without", {name: one for name, one in value.items() if name != key}
    elif kind == "array":
        if len(value) > rules.get("minItems", 0):
            yield from (("without", value[:index] + value[index + 1 :]) for index in range(len(value)))
        yield "reversed", value[::-1]


def _places(value: Any, rules: schema.Schema, steps: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], Any, schema.Schema]]:
    """Walk a value and its schema side by side."""
    yield steps, value, rules
    if isinstance(value, dict):
        for key, item in value.items():
            below = rules.get("properties", {}).get(key) or rules.get("additionalProperties")
            if below:
                yield from _places(item, below, (*steps, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _places(item, rules["items"], (*steps, index))


def _wrong(value: Any, rules: schema.Schema) -> Iterator[tuple[str, Any]]:
    if rules.get("x-kubernetes-int-or-string"):
        yield from (("type", one) for one in (True, 1.5, ["a"], {"a": "b"}))
        yield from (("text", text) for text in TEXTS if not _fits(text, rules))
        return
    kind = rules["type"]
    yield from (("type", one) for one in OTHERS[kind])
    if kind in ("integer", "number"):
        yield from (("range", rules["minimum"] - 1) for _once in (1,) if "minimum" in rules)
        yield from (("range", one) for _once in (1,) if "maximum" in rules for one in (rules["maximum"] + 1, 10**15))
    elif kind == "string" and "enum" in rules:
        yield from (("choice", one) for one in ("Nonsense", "", value.swapcase(), f"{value} ") if one not in rules["enum"])
    elif kind == "string":
        yield from (("text", text) for text in (*TEXTS, "x" * (rules.get("maxLength", 1 << 20) + 1)) if not _fits(text, rules))
    elif kind == "array":
        if rules.get("minItems"):
            yield "few", []
        if value and rules.get("maxItems", 1 << 20) < 2000:
            yield "many", [value[0]] * (rules["maxItems"] + 1)
        if value and (rules.get("x-kubernetes-list-map-keys") or rules.get("x-kubernetes-list-type") == "set"):
            yield "twice", [*value, value[0]]
    elif kind == "object" and value and "maxProperties" in rules:
        yield "many", {f"{key}{number}": item for key, item in value.items() for number in range(rules["maxProperties"] + 1)}


def _fits(text: str, rules: schema.Schema) -> bool:
    pattern = str(rules.get("pattern", "")).removeprefix("^").removesuffix("$") or r"[\s\S]*"
    return rules.get("minLength", 0) <= len(text) <= rules.get("maxLength", len(text)) and re.fullmatch(pattern, text) is not None


def _words(steps: tuple[Step, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _with(document: Any, steps: tuple[Step, ...], value: Any) -> Any:
    """Return the document with another value in one place; what is not on the way there is shared."""
    if not steps:
        return copy.deepcopy(value)
    changed = copy.copy(document)
    changed[steps[0]] = _with(document[steps[0]], steps[1:], value)
    return changed
