# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A document's text as kubectl would send it, so that the file means the same to a playbook and to the operator.

PyYAML's own loader reads ``10:00:00`` as 36000 and ``2026-01-01`` as a date, takes the last of two equal keys, has no bound on what aliases make of a
small file, and ends the process where a file is nested some ten thousand times. So only its parser is used, whose events come one by one.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

try:
    import yaml
except ImportError:
    yaml = None  # type: ignore[assignment]

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError

# etcd takes no larger object, whatever the API server would say.
MAX_BYTES = 1_500_000
# The deepest place of the schema has 13 levels.
MAX_DEPTH = 50
# Mappings, lists, keys and values, those that aliases repeat counted each time. 2000 users with 64 keys have 270 000.
MAX_VALUES = 500_000

# What kubectl's reader (sigs.k8s.io/yaml, goyaml.v2) takes a plain word for.
_BOOLEANS = {
    word: value
    for value, words in ((True, "y yes true on"), (False, "n no false off"))
    for one in words.split()
    for word in (one, one.title(), one.upper())
}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:[.][0-9]+|[0-9]+(?:[.][0-9]*)?)(?:[eE][-+]?[0-9]+)?")
# More digits are a floating point number, as they are to kubectl's reader, and from some 309 on none at all.
_MAX_DIGITS, _MAX_LENGTH = 40, 400
_TAGS = {f"tag:yaml.org,2002:{name}": name for name in ("str", "int", "float", "bool", "null", "map", "seq")}
# They look like spaces, and YAML takes them for letters.
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200b\u202f\u205f\u3000\ufeff]")


class UnreadableDocument(CorralError):
    """A text that is no document."""


def document(text: str, where: str, decrypt: Callable[[str], str] | None = None) -> Any:
    """Return the one document of a text. ``where`` names it in sentences, ``decrypt`` opens a value with the tag ``!vault``. Raises UnreadableDocument."""
    if yaml is None:
        raise UnreadableDocument("The Python that runs this task has no PyYAML; install it there (pip install PyYAML).")
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise UnreadableDocument(f"The document {where} has {size} bytes; {MAX_BYTES} are the most, for Kubernetes keeps no larger object.")
    if not text.strip():
        raise UnreadableDocument(
            f"The document {where} is empty; a pipe can be read once only, so give each playbook one of its own, or write the document to a file."
        )
    if text.lstrip()[:1] == "{":
        try:
            return json.loads(text, object_pairs_hook=_Pairs(where), parse_int=scalar, parse_float=scalar)
        except (ValueError, RecursionError):
            # Another mapping of YAML's flow style, or nested too deep, which the other reader tells.
            pass
    try:
        found = [one for one in _Reader(text, where, decrypt).documents() if one is not None]
    except yaml.YAMLError as error:
        raise UnreadableDocument(f"The document {where} is not YAML: {_problem(error)}{_hint(text, error)}; correct it there.") from error
    if len(found) != 1:
        raise UnreadableDocument(f"The file {where} holds {len(found)} documents, not one; give each cluster a file and a run of its own.")
    return found[0]


class _Pairs:
    """The mappings of JSON, which is what the operator writes: YAML takes a character beyond 16 bits, as two escapes, for none."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counted = Counter(key for key, _value in pairs)
            twice = next(key for key, count in counted.items() if count > 1)
            raise UnreadableDocument(
                f"The document {self._where} has the key {ascii(twice)[:80]} a second time in one mapping; remove one of the two; correct it there."
            )
        return found


def _problem(error: Any) -> str:
    """What the parser says, without the lines of the text that it would show: there may be a secret in them."""
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark:
        parts.append(f"at line {mark.line + 1}, column {mark.column + 1}")
    elif isinstance(error, yaml.reader.ReaderError):
        parts.append(
            f"{error.reason} (the character U+{ord(error.character) if isinstance(error.character, str) else error.character:04X})"
        )
    return " ".join(" ".join(part.split()) for part in parts if part) or "it cannot be read"


def _hint(text: str, error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    lines = text.splitlines()
    for number in range(max(0, mark.line - 1), min(len(lines), mark.line + 1)) if mark else ():
        found = _SPACES.search(lines[number])
        if found:
            return f" (line {number + 1} has the character U+{ord(found[0]):04X}, which looks like a space and is none)"
    return ""


class _Reader:
    """Makes values of a parser's events. Nothing here calls itself, so depth costs nothing."""

    def __init__(self, text: str, where: str, decrypt: Callable[[str], str] | None) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self._where = where
        self._decrypt = decrypt
        self._values = 0
        # Anchors, each with how many values it stands for; those of open mappings and lists are not there yet, so no alias is inside of itself.
        self._anchors: dict[str, tuple[Any, int]] = {}

    def documents(self) -> Iterator[Any]:
        """Yield each document."""
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                yield self._document()

    def _document(self) -> Any:
        # Of each open mapping or list: itself, its anchor, the values before it, and of a mapping the key that waits for its value.
        open_: list[tuple[Any, str | None, int]] = []
        keys: list[Any] = []
        merged: list[set[str]] = []
        result: Any = None
        for event in self._events:
            if isinstance(event, yaml.DocumentEndEvent):
                break
            before = self._values
            if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self._tag(event, ("map",) if isinstance(event, yaml.MappingStartEvent) else ("seq",))
                self._count(event, 1)
                if len(open_) >= MAX_DEPTH:
                    raise self._wrong(
                        event, f"has more than {MAX_DEPTH} levels one inside the other; no field of a SlurmCluster is that deep"
                    )
                if open_ and isinstance(open_[-1][0], dict) and keys[-1] is _NO_KEY:
                    raise self._wrong(event, "has a mapping or a list as a key; keys are text")
                open_.append(({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor, before))
                keys.append(_NO_KEY)
                merged.append(set())
                continue
            if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                value, anchor, began = open_.pop()
                keys.pop()
                merged.pop()
                if anchor is not None:
                    self._anchors[anchor] = value, self._values - began
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in self._anchors:
                    raise self._wrong(event, f"names the anchor {ascii(event.anchor)[:60]}, which is not there, or not complete yet")
                value, weight = self._anchors[event.anchor]
                self._count(event, weight)
            else:
                value = self._scalar(event)
                self._count(event, 1)
                if event.anchor is not None:
                    self._anchors[event.anchor] = value, 1
            if not open_:
                result = value
            elif isinstance(open_[-1][0], list):
                open_[-1][0].append(value)
            elif keys[-1] is _NO_KEY:
                keys[-1] = self._key(event, value, open_[-1][0], merged[-1])
            else:
                self._put(event, open_[-1][0], keys[-1], value, merged[-1])
                keys[-1] = _NO_KEY
        return result

    def _key(self, event: Any, value: Any, mapping: dict[Any, Any], merged: set[str]) -> Any:
        if value == "<<" and isinstance(event, yaml.ScalarEvent) and not event.style:
            return _MERGE
        # Keys are text to kubectl's reader, too.
        if isinstance(value, int):
            value = str(value).lower() if isinstance(value, bool) else str(value)
        if not isinstance(value, str):
            raise self._wrong(event, f"has the key {ascii(getattr(event, 'value', ''))[:80]}, which is no text; put it in quotes")
        if value in mapping and value not in merged:
            raise self._wrong(event, f"has the key {ascii(value)[:80]} a second time in one mapping; remove one of the two")
        return value

    def _put(self, event: Any, mapping: dict[Any, Any], key: Any, value: Any, merged: set[str]) -> None:
        if key is not _MERGE:
            mapping[key] = value
            merged.discard(key)
            return
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                raise self._wrong(event, "merges by << what is no mapping")
            for name, item in one.items():
                if name not in mapping:
                    mapping[name] = item
                    merged.add(name)

    def _scalar(self, event: Any) -> Any:
        if event.tag == "!vault" and self._decrypt is not None:
            return self._decrypt(event.value)
        kind = self._tag(event, ("str", "int", "float", "bool", "null"))
        if kind == "str" or (kind is None and not event.implicit[0]):
            return event.value
        try:
            return scalar(event.value)
        except ValueError as error:
            raise self._wrong(event, f"has a number that cannot be read, {ascii(event.value)[:60]}") from error

    def _tag(self, event: Any, allowed: tuple[str, ...]) -> str | None:
        if event.tag is None or event.tag == "!":
            return None if event.tag is None else "str"
        kind = _TAGS.get(event.tag)
        if kind not in allowed:
            raise self._wrong(
                event, f"has the tag {ascii(event.tag)[:80]}; a SlurmCluster is made of mappings, lists, text, numbers and true or false"
            )
        return kind

    def _count(self, event: Any, more: int) -> None:
        self._values += more
        if self._values > MAX_VALUES:
            raise self._wrong(event, f"has more than {MAX_VALUES} values with those that its aliases repeat; write less")

    def _wrong(self, event: Any, what: str) -> UnreadableDocument:
        return UnreadableDocument(f"The document {self._where} {what} (line {event.start_mark.line + 1}); correct it there.")


_NO_KEY, _MERGE = object(), object()


def scalar(word: str) -> Any:
    """Return what a plain word stands for."""
    if word in _NULLS:
        return None
    if word in _BOOLEANS:
        return _BOOLEANS[word]
    if word[:1] not in "+-.0123456789" or len(word) > _MAX_LENGTH:
        return word
    plain = word.replace("_", "")
    if _INTEGER.fullmatch(plain) and len(plain) <= _MAX_DIGITS:
        digits = plain.lstrip("+-")
        octal = len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567"
        return int(f"{plain[: len(plain) - len(digits)]}0o{digits[1:]}" if octal else plain, 0)
    number = float(plain) if _FLOAT.fullmatch(plain) else math.inf
    return word if math.isinf(number) else whole(number)


def whole(number: float) -> int | float:
    """Return a whole number as such, as JSON has one kind of numbers: 2.0 is 2."""
    return int(number) if number.is_integer() else number
