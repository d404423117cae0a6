# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's hostlists: ``cpu-[0-3,7],gpu-[00-15].rack2`` to names and back.

The grammar is the one of ``scontrol show hostnames``: items are separated by commas outside brackets, an item is text with any number of
brackets, a bracket holds numbers and ranges. The digits of a range's lower end say how wide the numbers are padded with zeros.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError, quoted

# Slurm's own limit is 64 Ki nodes a cluster (MAX_SLURM_NODES); more names than this is a mistyped range, not a cluster.
MAX_NAMES = 1_000_000

_ITEM = re.compile(r"(?:[^\[\],]+|\[[^\[\]]*\])+")
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_DIGITS = re.compile(r"[0-9]+")
# More digits do not fit Slurm's unsigned long; such a run is text.
_MAX_DIGITS = 18
# In one name: looking for a name in a hostlist costs by their number.
_MAX_BRACKETS = 8
_Ranges = list[tuple[int, int, int]]
_FORBIDDEN = re.compile(r"[\[\],\s\x00-\x1f\x7f]")


class HostlistError(CorralError):
    """A hostlist that Slurm would not read, or a name that cannot stand in one."""


def expand(hostlist: str) -> list[str]:
    """Return the names of ``hostlist`` in the order in which they are written, repetitions included.

    ``""`` gives ``[]``. Raises HostlistError for text that Slurm would not read and for more than MAX_NAMES names.
    """
    if count(hostlist) > MAX_NAMES:
        raise HostlistError(f"The hostlist {quoted(hostlist)} has more than {MAX_NAMES} names, which are refused, so check its ranges.")
    names: list[str] = []
    for parts in _items(hostlist):
        if len(parts) == 1 and isinstance(parts[0], str):
            names.append(parts[0])
        else:
            names.extend(map("".join, product(*(_numbers(part) for part in parts))))
    return names


def count(hostlist: str) -> int:
    """Return the number of names in ``hostlist``, repetitions included, without making them."""
    total = 0
    for parts in _items(hostlist):
        size = 1
        for part in parts:
            if not isinstance(part, str):
                size *= sum(last - first + 1 for first, last, _width in part)
        total += size
    return total


def first_named(hostlist: str, prefixes: Sequence[str]) -> int | None:
    """Return the place of the first prefix (each ends in ``-``) that begins one of the names, with no further ``-`` behind it; None where none does.

    No name is made for it, however many there are. Raises HostlistError for text that Slurm would not read.
    """
    items = list(_items(hostlist))
    found = (place for place, prefix in enumerate(prefixes) if any(len(prefix) in _reached(parts, prefix) for parts in items))
    return next(found, None)


def _reached(parts: list[str | _Ranges], prefix: str) -> set[int]:
    """How much of the prefix a name of this item can have behind it at the item's end: where each part can lead from each place."""
    places = {0}
    for part in parts:
        after: set[int] = set()
        for place in places:
            rest = prefix[place:]
            if not isinstance(part, str):
                digits = _DIGITS.match(rest)
                lengths = range(1, min(len(digits[0]), _MAX_DIGITS) + 1) if digits else ()
                after.update(place + length for length in lengths if any(_among(rest[:length], *one) for one in part))
                if not rest:
                    after.add(place)
            elif rest.startswith(part):
                after.add(place + len(part))
            elif part.startswith(rest) and "-" not in part[len(rest) :]:
                after.add(len(prefix))
        places = after
    return places


def _among(digits: str, first: int, last: int, width: int) -> bool:
    return first <= int(digits) <= last and f"{int(digits):0{width}d}" == digits


def compress(names: Iterable[str]) -> str:
    """Return a short hostlist of ``names``: each once, ordered by the text around the number, then by the number.

    Of a name with several numbers, that one goes into brackets which most of the names share the rest with; the last, where that is even.
    Exact: ``set(expand(compress(names))) == set(names)``, also where ``n1`` and ``n01`` are two names.
    Raises HostlistError for a name that is empty or has a bracket, a comma or white space.
    """
    places = {name: _places(name) for name in names}
    sizes = Counter(around for around_each in places.values() for around, _number in around_each)
    groups: dict[tuple[str, str], set[str]] = {}
    items: list[tuple[tuple[str, str], str]] = []
    for name, choices in places.items():
        if choices:
            around, number = max(choices, key=lambda choice: sizes[choice[0]]) if len(choices) > 1 else choices[0]
            groups.setdefault(around, set()).add(number)
        else:
            items.append(((name, ""), name))
    for around, numbers in groups.items():
        items.append((around, around[0] + _brackets(numbers) + around[1]))
    # A name without a number may equal the text around another's: {"a", "a0"} are two items of one key.
    return ",".join(text for _around, text in sorted(items))


def ranged(prefix: str, size: int, suffix: str = "") -> str:
    """Return the hostlist of ``prefix0suffix`` … ``prefix<size-1>suffix``; ``""`` for none. Never lists single names."""
    if size < 1:
        return ""
    return f"{prefix}0{suffix}" if size == 1 else f"{prefix}[0-{size - 1}]{suffix}"


def _items(hostlist: str) -> Iterator[list[str | _Ranges]]:
    """Yield each item as its parts: text, or a bracket's ranges as (first, last, width)."""
    if not hostlist:
        return
    position = 0
    while True:
        match = _ITEM.match(hostlist, position)
        if not match:
            raise HostlistError(_complaint(hostlist, position))
        parts = [_ranges(part[1], hostlist) if part[2] is None else _text(part[2], hostlist) for part in _PART.finditer(match[0])]
        if sum(not isinstance(part, str) for part in parts) > _MAX_BRACKETS:
            raise HostlistError(f"The hostlist {quoted(hostlist)} has a name of more than {_MAX_BRACKETS} brackets; write it with fewer.")
        yield parts
        position = match.end()
        if position == len(hostlist):
            return
        if hostlist[position] != ",":
            raise HostlistError(_complaint(hostlist, position))
        position += 1


def _text(part: str, hostlist: str) -> str:
    if _FORBIDDEN.search(part):
        raise HostlistError(f"The hostlist {quoted(hostlist)} has white space in a name; separate names by commas alone.")
    return part


def _ranges(body: str, hostlist: str) -> _Ranges:
    ranges: _Ranges = []
    for text in body.split(","):
        match = _RANGE.fullmatch(text)
        if not match:
            raise HostlistError(
                f"The hostlist {quoted(hostlist)} has {quoted(text)} in brackets; only numbers and ranges such as 0-7 can stand there."
            )
        if len(match[1]) > _MAX_DIGITS or len(match[2] or "") > _MAX_DIGITS:
            raise HostlistError(
                f"The hostlist {quoted(hostlist)} has a number of more than {_MAX_DIGITS} digits in brackets; check its ranges."
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise HostlistError(f"The hostlist {quoted(hostlist)} has the range {text}, which ends before it begins; swap its ends.")
        ranges.append((first, last, len(match[1])))
    return ranges


def _numbers(part: str | _Ranges) -> Iterable[str]:
    if isinstance(part, str):
        return (part,)
    return [f"{number:0{width}d}" for first, last, width in part for number in range(first, last + 1)]


def _places(name: str) -> list[tuple[tuple[str, str], str]]:
    """``r1n07`` → ``[(("r1n", ""), "07"), (("r", "n07"), "1")]``: each number, last first, with the text around it."""
    if not name or _FORBIDDEN.search(name):
        raise HostlistError(f"{quoted(name)} cannot stand in a hostlist: a name is not empty and has no bracket, comma or white space.")
    found = [((name[: match.start()], name[match.end() :]), match[0]) for match in _DIGITS.finditer(name) if len(match[0]) <= _MAX_DIGITS]
    return found[::-1]


def _brackets(numbers: set[str]) -> str:
    """``{"0", "1", "3"}`` → ``[0-1,3]``; a single number stays without brackets."""
    if len(numbers) == 1:
        return next(iter(numbers))
    runs: list[list[str]] = []
    following = ""
    for number in sorted(numbers, key=lambda digits: (int(digits), len(digits))):
        if number == following:
            runs[-1][1] = number
        else:
            runs.append([number, number])
        # Slurm pads to the width of the range's first number, so a run goes on only with the name which that gives.
        following = f"{int(number) + 1:0{len(runs[-1][0])}d}"
    return "[" + ",".join(first if first == last else f"{first}-{last}" for first, last in runs) + "]"


def _complaint(hostlist: str, position: int) -> str:
    if hostlist.count("[") != hostlist.count("]") or (position < len(hostlist) and hostlist[position] in "[]"):
        return f"The hostlist {quoted(hostlist)} has brackets that do not pair (or one inside another) at character {position + 1}; write each as [0-7]."
    return f"The hostlist {quoted(hostlist)} has an empty name at character {position + 1}; remove the extra comma."
