# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of Slurm's configuration files, out of which no value can break.

Slurm's parser (src/common/parse_config.c) reads a line as ``Key=Value`` pairs separated by white space. A value is either bare (no white
space) or in double quotes (no double quote inside, and no way to escape one). Before that it joins lines that end in a backslash, drops
backslashes, and cuts at ``#``, also inside quotes. So these characters cannot be written at all and are refused here. It reads a line of
any length, so nothing is ever wrapped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError, quoted
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist

Value: TypeAlias = "str | int | bool | Sequence[str]"

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PAIR = re.compile(_KEY.pattern + r'=(?:"[^"]*"|[^\s"]+)')
_PAIRS = re.compile(f"{_PAIR.pattern}(?: +{_PAIR.pattern})*")
# What str.splitlines() and terminals take for a line break counts as one, beyond what Slurm does.
_CONTROL = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")
_SPACE = re.compile(r"\s")


class ConfError(CorralError):
    """A key or value that cannot be written into one of Slurm's configuration files."""


def refusal(text: str) -> str | None:
    """Return why ``text`` cannot be a value of Slurm's configuration, as the end of a sentence; None where it can."""
    control = _CONTROL.search(text)
    if control:
        return f"has a line break or another control character (U+{ord(control[0]):04X}) at character {control.start() + 1}"
    for character, name in (
        ("#", "a '#', which begins a comment even inside quotes"),
        ('"', "a double quote inside, which Slurm has no way to escape"),
        ("\\", "a backslash, which Slurm takes as an escape or as a continued line"),
    ):
        if character in text:
            return f"has {name}"
    return None


def value(raw: Value) -> str:
    """Return ``raw`` as Slurm reads it back: YES/NO for a bool, commas between the items of a list, quotes where white space or nothing is in it."""
    if isinstance(raw, bool):
        return "YES" if raw else "NO"
    if isinstance(raw, int):
        return str(raw)
    if not isinstance(raw, str):
        for item in raw:
            if "," in item or not item:
                raise ConfError(f"The list item {quoted(item)} cannot be written into Slurm's configuration: it is empty or has a comma.")
        raw = ",".join(raw)
    reason = refusal(raw)
    if reason:
        raise ConfError(f"The value {quoted(raw)} cannot be written into Slurm's configuration: it {reason}; remove it.")
    return f'"{raw}"' if not raw or _SPACE.search(raw) else raw


def line(pairs: Iterable[tuple[str, Value | None]]) -> str:
    """Return ``Key=Value Key=Value`` in the order given; pairs whose value is None are left out."""
    written = []
    for key, raw in pairs:
        if not _KEY.fullmatch(key):
            raise ConfError(f"{quoted(key)} is no key of Slurm's configuration: a key is letters, digits and underscores.")
        if raw is not None:
            written.append(f"{key}={value(raw)}")
    return " ".join(written)


def parse_pair(text: str) -> tuple[str, str]:
    """Split one ``Key=Value`` line into key and value without its quotes, as Slurm would. Raises ConfError for anything else."""
    key, equals, rest = text.strip(" ").partition("=")
    key = key.rstrip(" ")
    rest = rest.strip(" ")
    if not equals or not _KEY.fullmatch(key):
        raise ConfError(f"{quoted(text)} is no line of the form Key=Value.")
    if len(rest) > 1 and rest[0] == rest[-1] == '"':
        rest = rest[1:-1]
    elif _SPACE.search(rest):
        raise ConfError(
            f"{quoted(text)} has white space in its value; put the value in double quotes, or give each Key=Value as a line of its own."
        )
    elif not rest:
        raise ConfError(f"{quoted(text)} has no value; write the value of {key}, or remove the line.")
    reason = refusal(rest)
    if reason:
        raise ConfError(f"{quoted(text)} {reason}; remove it.")
    return key, rest


def parse_pairs(text: str) -> list[tuple[str, str]]:
    """Split a line of several ``Key=Value`` into its pairs, as Slurm would. Raises ConfError for anything else."""
    if not _PAIRS.fullmatch(text.strip(" ")):
        raise ConfError(f"{quoted(text)} is no line of the form Key=Value Key=Value.")
    return [parse_pair(match[0]) for match in _PAIR.finditer(text)]


def nodes(text: str) -> set[str]:
    """Return the nodes that have a line in a slurm.conf. Raises ConfError, HostlistError."""
    return {name for pairs in node_lines(text) for name in hostlist.expand(pairs["NodeName"])}


def node_lines(text: str) -> list[dict[str, str]]:
    """Return the lines of nodes in a slurm.conf or gres.conf, as pairs. Raises ConfError."""
    return [dict(parse_pairs(line)) for line in text.splitlines() if line.startswith("NodeName=")]


def addresses(pairs: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the nodes of a line with their addresses; without NodeAddr these are their names. Raises HostlistError."""
    names = hostlist.expand(pairs["NodeName"])
    return list(zip(names, hostlist.expand(pairs["NodeAddr"]) if "NodeAddr" in pairs else names, strict=True))


def narrowed(pairs: Mapping[str, str], stays: Callable[[str], bool]) -> dict[str, str]:
    """Return a line, as pairs, for those of its nodes alone that stay; {} where none does. Raises HostlistError."""
    all_of = addresses(pairs)
    left = [pair for pair in all_of if stays(pair[0])]
    if not left or len(left) == len(all_of):
        return dict(pairs) if left else {}
    found = {**pairs, "NodeName": hostlist.compress(name for name, _at in left)}
    return {**found, "NodeAddr": hostlist.compress(at for _name, at in left)} if "NodeAddr" in pairs else found


# Keys whose values need not say their plugins' kind, and one that is called otherwise.
_KINDS = {
    "jobsubmitplugins": "job_submit",
    "clifilterplugins": "cli_filter",
    "nodefeaturesplugins": "node_features",
    "mpidefault": "mpi",
    "prepplugins": "prep",
}
# Plugins that are in the file of another (observed with 24.11).
_FILES = {"cred_slurm": "auth_slurm"}


def plugins(text: str) -> dict[str, str]:
    """Return the plugins that a slurm.conf names, as ``PriorityType=priority/multifactor``, each with the name of its file. Keys have no case."""
    found: dict[str, str] = {}
    for key, raw in re.findall(r"^([A-Za-z]+(?:Types?|Plugins?)|MpiDefault)=(\S+)$", text, re.MULTILINE | re.IGNORECASE):
        for name in raw.strip('"').split(","):
            kind, slash, one = name.rpartition("/")
            kind = kind if slash else _KINDS.get(key.lower(), "")
            if kind and one and one.lower() != "none":
                file = f"{kind}_{one}"
                found[f"{key}={name}"] = f"{_FILES.get(file, file)}.so"
    return found


# What says no more than that it is so.
_UNREADABLE = ("Unable to process configuration file", "Could not open/read/parse")


def refused(stderr: str) -> str:
    """Return what Slurm's parser found wrong, out of what a command of Slurm's says on its standard error when it cannot read a file."""
    lines = [re.sub(r"^[\w-]+: (error|fatal): (_\w+: )?", "", line).strip().rstrip(".") for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line and not line.startswith(_UNREADABLE)))


def plugin_line(required: bool, path: str, arguments: Sequence[tuple[str, str]] = ()) -> str:
    """Return a line of plugstack.conf. Its parser splits at white space and knows quotes only in newer releases, so white space is refused."""
    parts = ["required" if required else "optional", path, *(f"{key}={raw}" for key, raw in arguments)]
    for part in parts:
        reason = "has white space" if _SPACE.search(part) else refusal(part)
        if reason:
            raise ConfError(f"{quoted(part)} cannot be written into plugstack.conf: it {reason}; remove it.")
    return " ".join(parts)


def parse_plugin(raw: str) -> str:
    """Return a line of plugstack.conf as it is written. Raises ConfError for one that is no plugin's."""
    parts = raw.split()
    if len(parts) < 2 or parts[0] not in ("required", "optional") or not parts[1].endswith(".so"):
        raise ConfError(f"{quoted(raw)} is no line of the form 'optional PLUGIN.so ARGUMENTS', or with required.")
    for part in parts:
        reason = refusal(part)
        if reason:
            raise ConfError(f"{quoted(part)} cannot be written into plugstack.conf: it {reason}; remove it.")
    return " ".join(parts)


def text(header: Sequence[str], lines: Iterable[str]) -> str:
    """Return a file: ``header`` as comments, then ``lines``, each ending in a line break. Empty lines stay as they are."""
    every = [f"# {comment}" if comment else "#" for comment in header]
    every.extend(lines)
    for written in every:
        control = _CONTROL.search(written)
        if control:
            raise ConfError(f"The line {quoted(written)} cannot be written: it has the control character U+{ord(control[0]):04X}.")
    return "\n".join(every) + "\n"
