# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of common shapes, which stand in the schema beside the fields that they are about: exactly one of, goes with, at most, unique, refers to.

Each is declared once. What the API server is told is made of it, a rule in CEL with its message, and what a run says: a sentence with the path, and what
to do. A reference is the run's alone, for looking elsewhere in the document costs more than the API server allows a rule.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

Json = dict[str, Any]

# Names that a sentence offers.
_OFFERED = 10


@dataclass(frozen=True)
class Condition:
    """What may hold of an object, for the API server and for a run. Fields are named as in ``stateVolume.claimName``."""

    cel: str
    holds: Callable[[Json], bool]
    # What binds it, as far as brackets go: nothing, a comparison, &&, or ||.
    binding: int = 0

    def __or__(self, other: Condition) -> Condition:
        """One of them holds at least."""
        return Condition(f"{self.cel} || {other.cel}", lambda value: self.holds(value) or other.holds(value), 3)

    def __and__(self, other: Condition) -> Condition:
        """Both hold."""
        return Condition(f"{self.bound(2)} && {other.bound(2)}", lambda value: self.holds(value) and other.holds(value), 2)

    def __invert__(self) -> Condition:
        """It does not hold."""
        return Condition(f"!{self.bound(0)}", lambda value: not self.holds(value))

    def same(self, other: Condition) -> Condition:
        """Both hold, or neither."""
        return Condition(f"{self.bound(0)} == {other.bound(0)}", lambda value: self.holds(value) == other.holds(value), 1)

    def bound(self, most: int) -> str:
        """Return it in brackets where it binds less than that."""
        return f"({self.cel})" if self.binding > most else self.cel


def has(field: str) -> Condition:
    """A field without a default is there."""
    return Condition(f"has(self.{field})", lambda value: _get(value, field) is not None)


def filled(field: str) -> Condition:
    """A list, which is empty by default, is not. In the default of the object around it, to which the API server applies rules too, it is not there."""
    return Condition(f"has(self.{field}) && self.{field}.size() > 0", lambda value: bool(_get(value, field)), 2)


def equals(field: str, wanted: str | int) -> Condition:
    """A field that is needed, or has a default, has this value."""
    shown = f"'{wanted}'" if isinstance(wanted, str) else json.dumps(wanted)
    return Condition(f"self.{field} == {shown}", lambda value: bool(_get(value, field) == wanted), 1)


@dataclass(frozen=True)
class Rule:
    """What must hold of an object. ``says`` makes a run's sentence of the object and its path; it is None where a run has other words for it, or cannot
    see it. ``message`` is empty for what CEL cannot compare."""

    must: Condition
    message: str
    says: Callable[[Json, str], str] | None = None

    def cel(self) -> Iterator[Json]:
        """Yield what the API server is told."""
        if self.message:
            yield {"rule": self.must.cel, "message": self.message}

    def errors(self, value: Json, path: str, _document: Document) -> Iterator[str]:
        """Yield a sentence where it does not hold."""
        if self.says and not self.must.holds(value):
            yield self.says(value, path)


@dataclass(frozen=True)
class Unique:
    """No two entries of a list have the same ``field``; with ``only`` no two have this value of it, and the API server is told, too."""

    field: str
    message: str = "each can occur once"
    only: bool | None = None

    def cel(self) -> Iterator[Json]:
        """Yield what the API server is told. Comparing each with each would cost too much."""
        if self.only is not None:
            same = f"has(one.{self.field}) && one.{self.field} == {json.dumps(self.only)}"
            yield {"rule": f"self.filter(one, {same}).size() <= 1", "message": self.message}

    def errors(self, value: list[Json], path: str, _document: Document) -> Iterator[str]:
        """Yield a sentence for each that comes after another."""
        seen: dict[Any, int] = {}
        for index, entry in enumerate(value):
            found = entry.get(self.field)
            if found is None or (self.only is not None and found is not self.only):
                continue
            if found in seen:
                shown = json.dumps(found) if isinstance(found, bool) else found
                yield f"{path}[{index}].{self.field} is {shown}, as {path}[{seen[found]}].{self.field} is; {self.message}."
            seen.setdefault(found, index)


@dataclass(frozen=True)
class Refers:
    """A name, or each of a list of them, is one of the list ``spec.<place>``, or one of ``also``. ``words`` come before the place, ``advice`` after it."""

    place: str
    words: str = "which is not in"
    also: tuple[str, ...] = ()
    advice: str = ""

    def cel(self) -> Iterator[Json]:
        """Yield nothing."""
        yield from ()

    def errors(self, value: str | list[str], path: str, document: Document) -> Iterator[str]:
        """Yield a sentence for each that is none of them."""
        known = document.names(self.place).union(self.also)
        for where, name in [(path, value)] if isinstance(value, str) else [(f"{path}[{index}]", one) for index, one in enumerate(value)]:
            if name not in known:
                yield f"{where} is {name}, {self.words} spec.{self.place} ({listed(known)}){self.advice and '; '}{self.advice}."


# Of those in a tuple only the first that does not hold is told, for the others follow from it.
Rules: TypeAlias = "tuple[Rule | Unique | Refers | tuple[Rule, ...], ...]"


class Document:
    """The spec that rules are about, as far as they refer to it."""

    def __init__(self, spec: Json) -> None:
        self._spec = spec
        self._names: dict[str, frozenset[str]] = {}

    def names(self, place: str) -> frozenset[str]:
        """Return the names of the entries of a list."""
        if place not in self._names:
            self._names[place] = frozenset(entry["name"] for entry in self._spec[place])
        return self._names[place]


def cel(rules: Rules) -> list[Json]:
    """Return ``x-kubernetes-validations``."""
    return [told for rule in rules for one in _group(rule) for told in one.cel()]


def errors(rules: Rules, value: Any, path: str, document: Document) -> Iterator[str]:
    """Yield a sentence for what does not hold of what is at ``path``."""
    for rule in rules:
        yield from next((said for one in _group(rule) if (said := list(one.errors(value, path, document)))), [])


def _group(rule: Rule | Unique | Refers | tuple[Rule, ...]) -> tuple[Any, ...]:
    return rule if isinstance(rule, tuple) else (rule,)


def one_of(*fields: str, what: str = "source", at: str = "", when: Condition | None = None) -> Rule:
    """Exactly one of these fields of the object ``at`` is there."""
    given = [has(_join(at, field)) for field in fields]
    exactly = Condition(
        f"[{', '.join(one.cel for one in given)}].filter(x, x).size() == 1", lambda value: sum(one.holds(value) for one in given) == 1
    )
    message = f"give exactly one of {_and(fields)}"

    def says(value: Json, path: str) -> str:
        found = [field for field, one in zip(fields, given, strict=True) if one.holds(value)]
        return f"{_join(path, at)} has {' and '.join(found) or f'no {what}'}; {message}."

    return Rule(_where(when, exactly), message, says)


def any_of(*fields: str, then: str, verb: str = "has", test: Callable[[str], Condition] = filled) -> Rule:
    """One of the fields says something at least; ``then`` is what would be without, and what to do."""
    must = functools.reduce(Condition.__or__, map(test, fields))
    return Rule(must, f"give {' or '.join(fields)}", lambda _value, path: f"{path} {verb} neither {' nor '.join(fields)}, {then}.")


def goes_with(field: str, *others: str, needed: str = "", at: str = "", when: Condition | None = None) -> Rule:
    """A field is there only where one of the others is; with ``needed``, which says what to do, it is always there then."""
    own, there = has(_join(at, field)), functools.reduce(Condition.__or__, (has(_join(at, other)) for other in others))
    message = f"{field} goes with {_and(others)}"
    must = ~own | there
    if needed:
        message += f", and only with {'these' if len(others) > 1 else 'it'}"
        must = own.same(there)

    def says(value: Json, path: str) -> str:
        return f"{_join(path, at)}.{f'{message}; remove it' if own.holds(value) else f'{field} is missing; {needed}'}."

    return Rule(_where(when, must), message, says)


def only_with(field: str, key: str, *values: str, test: Callable[[str], Condition] = has) -> Rule:
    """A field says something only where another, ``key``, has one of these values."""
    message = f"{field} goes with {key}: {' or '.join(values)}"
    must = functools.reduce(Condition.__or__, (equals(key, value) for value in values), ~test(field))
    return Rule(must, message, lambda value, path: f"{path}.{message}, but it is {_get(value, key)}; change one of them.")


def needed_unless(field: str, key: str, wanted: str, advice: str) -> Rule:
    """A field is there, or another has this value."""
    message = f"{field} is needed unless {key} is {wanted}"
    return Rule(has(field) | equals(key, wanted), message, lambda _value, path: f"{path}.{field} is missing; {advice}.")


def excludes(one: str, other: str) -> Rule:
    """Not both are there."""
    message = f"{one} and {other} exclude one another"
    return Rule(
        ~(has(one) & has(other)), message, lambda _value, path: f"{path} has {one} and {other}, which exclude one another; remove one."
    )


def at_most(less: str, more: str, amount: Callable[[Any], Any] | None = None) -> Rule:
    """Where both are there, the one is not more than the other. With ``amount``, by which other things than numbers are compared, CEL cannot do it."""
    both, measure = has(less) & has(more), amount or int
    fits = Condition(f"self.{less} <= self.{more}", lambda value: bool(measure(value[less]) <= measure(value[more])), 1)
    return Rule(
        ~both | fits,
        "" if amount else f"{less} is more than {more}",
        lambda value, path: f"{path}.{less} is {value[less]}, more than {more}, {value[more]}; lower the one or raise the other.",
    )


def unseen(rule: str, message: str) -> Rule:
    """What the API server alone can see, such as what was before."""
    return Rule(Condition(rule, lambda _value: True, 3), message)


def listed(names: Collection[str]) -> str:
    """The names that a sentence offers; it has room for a few."""
    found = sorted(names)[:_OFFERED]
    more = f" and {len(names) - len(found)} more" if len(names) > len(found) else ""
    return f"{', '.join(found)}{more}" if found else "there are none"


def _where(when: Condition | None, must: Condition) -> Condition:
    return must if when is None else ~when | must


def _and(names: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _join(*parts: str) -> str:
    return ".".join(filter(None, parts))


def _get(value: Json, field: str) -> Any:
    found: Any = value
    for name in field.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found
