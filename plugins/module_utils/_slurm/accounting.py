# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What sacctmgr says of accounts, users, associations and QoS, read in one go, and how values of limits are written. Pure.

Associations and QoS are read with ``-P``: of many associations ``--json`` takes six times as long and is 50 times as large. Accounts come as JSON, which
alone says which coordinators an account has of its own and which it inherits. ``WOPLimits`` shows what an association has itself; without it sacctmgr
shows what it inherits, and nobody could tell the two apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import output

# A number, minutes, seconds, numbers by TRES, a fraction, names, one name, a share.
COUNT, MINUTES, SECONDS, TRES, FRACTION, NAMES, NAME, SHARE = "count", "minutes", "seconds", "tres", "fraction", "names", "name", "share"

Value: TypeAlias = "int | float | str | tuple[str, ...] | dict[str, int]"
# By field; None, or no entry, is what Slurm has where nothing is set.
Fields: TypeAlias = "dict[str, Value | None]"

# The comment of an association, an account's own among them, that this collection has made; QoS have none, so it ends their description.
MARK = "corral"
_MARKED = f" [{MARK}]"
# Above all accounts.
ROOT = "root"
# A hold: no further job of the association starts. Its mark ends the comment, with what the limit was before; sacctmgr keeps comments in lower case.
HOLD = "GrpJobs"
_HELD = re.compile(r" ?\[corral hold(?: (\d+))?\]$")

# What an association may be limited to; a name is sacctmgr's, both where it shows and where it sets.
ASSOCIATION_LIMITS = {
    "GrpJobs": COUNT,
    "GrpJobsAccrue": COUNT,
    "GrpSubmit": COUNT,
    "GrpTRES": TRES,
    "GrpTRESMins": TRES,
    "GrpTRESRunMins": TRES,
    "GrpWall": MINUTES,
    "MaxJobs": COUNT,
    "MaxJobsAccrue": COUNT,
    "MaxSubmit": COUNT,
    "MaxTRES": TRES,
    "MaxTRESMins": TRES,
    "MaxTRESPerNode": TRES,
    "MaxWall": MINUTES,
    "MinPrioThresh": COUNT,
    "Priority": COUNT,
}
QOS_LIMITS = {
    "GrpJobs": COUNT,
    "GrpJobsAccrue": COUNT,
    "GrpSubmit": COUNT,
    "GrpTRES": TRES,
    "GrpTRESMins": TRES,
    "GrpTRESRunMins": TRES,
    "GrpWall": MINUTES,
    "MaxJobsAccruePerAccount": COUNT,
    "MaxJobsAccruePerUser": COUNT,
    "MaxJobsPerAccount": COUNT,
    "MaxJobsPerUser": COUNT,
    "MaxSubmitJobsPerAccount": COUNT,
    "MaxSubmitJobsPerUser": COUNT,
    "MaxTRES": TRES,
    "MaxTRESMins": TRES,
    "MaxTRESPerAccount": TRES,
    "MaxTRESPerNode": TRES,
    "MaxTRESPerUser": TRES,
    "MaxTRESRunMinsPerAccount": TRES,
    "MaxTRESRunMinsPerUser": TRES,
    "MaxWall": MINUTES,
    "MinPrioThresh": COUNT,
    "MinTRES": TRES,
}
# Besides limits, as sacctmgr calls them.
ASSOCIATION_FIELDS = {"Fairshare": SHARE, "QOS": NAMES, "DefaultQOS": NAME, **ASSOCIATION_LIMITS}
QOS_FIELDS = {
    "Flags": NAMES,
    "GraceTime": SECONDS,
    "LimitFactor": FRACTION,
    "Preempt": NAMES,
    "PreemptExemptTime": SECONDS,
    "PreemptMode": NAME,
    "Priority": COUNT,
    "UsageFactor": FRACTION,
    "UsageThreshold": FRACTION,
    **QOS_LIMITS,
}
# What sacctmgr shows where nothing is set, if that is not nothing.
_UNSET: dict[str, Value] = {"Fairshare": 1, "GraceTime": 0, "PreemptMode": "cluster", "UsageFactor": 1.0}
_QOS_UNSET: dict[str, Value] = {**_UNSET, "Priority": 0}

_ASSOCIATION_COLUMNS = ("Account", "User", "Partition", "ParentName", "Comment", *ASSOCIATION_FIELDS)
# The description is the last, for it may hold anything.
_QOS_COLUMNS = ("Name", *QOS_FIELDS, "Description")
_SECTION = "== corral "
_SCRIPT = f"""
set -e
all=$(scontrol show config)
c=$(echo "$all" | sed -n 's/^ClusterName *= *//p')
echo "{_SECTION}cluster"; echo "$c"
echo "{_SECTION}enforce"; echo "$all" | sed -n 's/^AccountingStorageEnforce *= *//p'
echo "{_SECTION}tres"; sacctmgr -nP show tres format=Type,Name
echo "{_SECTION}qos"; sacctmgr -nP show qos format={",".join(_QOS_COLUMNS)}
echo "{_SECTION}users"; sacctmgr -nP show user format=User,AdminLevel,DefaultAccount
echo "{_SECTION}associations"; sacctmgr -nP show assoc where "cluster=$c" WOPLimits format={",".join(_ASSOCIATION_COLUMNS)}
echo "{_SECTION}accounts"; sacctmgr show account withcoord --json
"""
# One exec for all: each costs more than most of these commands.
READ = ["sh", "-c", _SCRIPT]

_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")
_MEMORY = {"K": 1 / 1024, "M": 1, "G": 1 << 10, "T": 1 << 20, "P": 1 << 30}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Association:
    """One of the cluster's; ``user`` is "" for an account's own, ``partition`` for all partitions.

    ``comment`` is without the mark of a hold, which ``marked`` says was there. Of one that is ``held`` the fields are those without the hold.
    """

    account: str
    user: str
    partition: str
    parent: str
    comment: str
    marked: bool
    held: bool
    fields: Fields

    @property
    def key(self) -> Key:
        """What it is found by."""
        return self.account, self.user, self.partition

    @property
    def ours(self) -> bool:
        """Whether this collection has made it."""
        return self.comment == MARK

    def hold(self) -> list[str]:
        """Return the words that hold it."""
        return [f"{HOLD}=0", self.mark(self.fields.get(HOLD))]

    def release(self) -> list[str]:
        """Return the words that undo its hold. A limit that somebody has set meanwhile stays."""
        limit = [_assignment(COUNT, HOLD, 0, self.fields.get(HOLD))] if self.held else []
        return [*limit, f'Comment="{self.comment}"']

    def mark(self, limit: Value | None) -> str:
        """Return the word that marks it as held, with the limit that is to come back."""
        mark = f"[{MARK} hold]" if limit is None else f"[{MARK} hold {limit}]"
        return f'Comment="{self.comment}{" " * bool(self.comment)}{mark}"'

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "account": self.account,
            "user": self.user,
            "partition": self.partition,
            "parent": self.parent,
            "managed": self.ours,
            "held": self.held,
            "fairshare": self.fields.get("Fairshare", 1),
            "qos": list(_names(self.fields.get("QOS"))),
            "default_qos": self.fields.get("DefaultQOS", ""),
            "limits": {name: value for name, value in self.fields.items() if name in ASSOCIATION_LIMITS},
        }


@dataclass(frozen=True)
class Account:
    """What is said of an account in all clusters of the database."""

    name: str
    description: str
    organization: str
    coordinators: tuple[str, ...]


@dataclass(frozen=True)
class User:
    """What is said of a user."""

    name: str
    admin_level: str
    default_account: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"name": self.name, "admin_level": self.admin_level, "default_account": self.default_account}


@dataclass(frozen=True)
class Qos:
    """A quality of service, of all clusters of the database."""

    name: str
    description: str
    ours: bool
    fields: Fields

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        fields = self.fields
        return {
            "name": self.name,
            "description": self.description,
            "managed": self.ours,
            "priority": fields.get("Priority", 0),
            "flags": list(_names(fields.get("Flags"))),
            "preempt": list(_names(fields.get("Preempt"))),
            "preempt_mode": fields.get("PreemptMode", _UNSET["PreemptMode"]),
            "preempt_exempt_time": fields.get("PreemptExemptTime"),
            "grace_time": fields.get("GraceTime", 0),
            "usage_factor": fields.get("UsageFactor", 1.0),
            "usage_threshold": fields.get("UsageThreshold"),
            "limit_factor": fields.get("LimitFactor"),
            "limits": {name: value for name, value in fields.items() if name in QOS_LIMITS},
        }


@dataclass(frozen=True)
class Live:
    """All that the database says, of one cluster where that matters."""

    cluster: str
    enforced: frozenset[str]
    tres: frozenset[str]
    qos: dict[str, Qos]
    users: dict[str, User]
    accounts: dict[str, Account]
    associations: dict[Key, Association]
    by_account: dict[str, list[Association]] = field(default_factory=dict)
    by_user: dict[str, list[Association]] = field(default_factory=dict)

    def account(self, name: str) -> Association | None:
        """Return an account's own association; None where this cluster has no such account."""
        return self.associations.get((name, "", ""))

    def account_dict(self, own: Association) -> dict[str, Any]:
        """Return plain JSON types of an account."""
        said = self.accounts.get(own.account)
        fields = {name: value for name, value in own.to_dict().items() if name not in ("account", "user", "partition")}
        return {
            "name": own.account,
            "description": said.description if said else "",
            "organization": said.organization if said else "",
            "coordinators": list(said.coordinators) if said else [],
            **fields,
        }


def parse(text: str) -> Live:
    """Return what the command READ has printed. Raises CorralError."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(_SECTION):
            lines = sections.setdefault(line.removeprefix(_SECTION), [])
        else:
            lines.append(line)
    try:
        cluster = sections["cluster"][0].strip()
        enforced = frozenset("".join(sections["enforce"]).strip().split(","))
        tres = frozenset("/".join(part for part in line.split("|") if part) for line in sections["tres"])
        qos = [_qos(_row(line, _QOS_COLUMNS, last=True)) for line in sections["qos"] if line]
        users = [User(*_row(line, ("User", "AdminLevel", "DefaultAccount")).values()) for line in sections["users"] if line]
        associations = [_association(_row(line, _ASSOCIATION_COLUMNS)) for line in sections["associations"] if line]
        accounts = [_account(row) for row in output.rows("\n".join(sections["accounts"]), "accounts", "sacctmgr")]
    except (KeyError, IndexError, ValueError) as error:
        raise output.OutputError(f"sacctmgr says what is on record in an unknown way ({error}); nothing was changed.") from error
    live = Live(
        cluster=cluster,
        enforced=enforced,
        tres=tres,
        qos={one.name: one for one in qos},
        users={one.name: one for one in users},
        accounts={one.name: one for one in accounts},
        associations={one.key: one for one in associations},
    )
    for one in associations:
        live.by_account.setdefault(one.account, []).append(one)
        if one.user:
            live.by_user.setdefault(one.user, []).append(one)
    if live.account(ROOT) is None:
        raise CorralError(
            f"slurmdbd knows no cluster {cluster or 'of this slurmctld'} yet; wait until slurmctld has registered with it, and see its log."
        )
    return live


def value(kind: str, said: Any) -> Value:
    """Return what a document says of a field in the shape that is compared. Raises ValueError, whose words complete "must be"."""
    if kind == TRES:
        return _wanted_tres(said)
    if kind in (MINUTES, SECONDS):
        return _wanted_time(said, kind)
    if kind == FRACTION:
        if isinstance(said, bool) or not isinstance(said, (int, float)) or said < 0:
            raise ValueError("a number from 0 on")
        return float(said)
    if kind == SHARE and said == "parent":
        return "parent"
    return _whole(said, ', or "parent"' if kind == SHARE else "")


def assignments(kinds: dict[str, str], before: Fields, after: Fields) -> list[str]:
    """Return the words that set what differs, behind ``set`` of sacctmgr or with ``add``."""
    return [_assignment(kinds[name], name, before.get(name), wanted) for name, wanted in after.items() if before.get(name) != wanted]


def unmarked(description: str) -> tuple[str, bool]:
    """Return a QoS' description without our mark, and whether it had it."""
    return description.removesuffix(_MARKED), description.endswith(_MARKED)


def marked(description: str) -> str:
    """Return a QoS' description with our mark."""
    return f"{description}{_MARKED}"


def plain(said: Fields) -> dict[str, Any]:
    """Return plain JSON types of fields, for a diff."""
    return {name: list(one) if isinstance(one, tuple) else one for name, one in said.items() if one is not None}


def normal(kinds: dict[str, str], said: Fields, *, qos: bool = False) -> Fields:
    """Return fields without those that say what is without them."""
    unset = _QOS_UNSET if qos else _UNSET
    return {name: None if one in ((), {}, "") or unset.get(name) == one else one for name, one in said.items() if name in kinds}


def _assignment(kind: str, name: str, before: Value | None, wanted: Value | None) -> str:
    if kind == TRES:
        had = before if isinstance(before, dict) else {}
        target = wanted if isinstance(wanted, dict) else {}
        pairs = [f"{tres}={amount}" for tres, amount in sorted(target.items()) if had.get(tres) != amount]
        # sacctmgr keeps a TRES that it is not told of.
        return f"{name}={','.join([*pairs, *(f'{tres}=-1' for tres in sorted(had.keys() - target.keys()))])}"
    if kind == NAMES:
        listed = _names(wanted)
        return f"{name}={','.join(listed) if listed or name != 'Flags' else '-1'}"
    if wanted is None:
        return f"{name}={_UNSET.get(name, -1) if kind in (NAME, SHARE) else -1}"
    if name == "PreemptExemptTime" and isinstance(wanted, int):  # a number alone would be minutes, though GraceTime's is seconds
        return f"{name}={wanted // 86400}-{wanted // 3600 % 24:02}:{wanted // 60 % 60:02}:{wanted % 60:02}"
    return f"{name}={wanted}"


def _names(said: Value | None) -> tuple[str, ...]:
    return said if isinstance(said, tuple) else ()


def _row(line: str, columns: tuple[str, ...], *, last: bool = False) -> dict[str, str]:
    cells = line.split("|", len(columns) - 1) if last else line.split("|")
    if len(cells) != len(columns):
        raise ValueError(f"{line[:80]!r} has {len(cells)} columns and not {len(columns)}")
    return dict(zip(columns, cells, strict=True))


def _association(row: dict[str, str]) -> Association:
    fields = _fields(ASSOCIATION_FIELDS, row, _UNSET)
    mark = _HELD.search(row["Comment"])
    held = mark is not None and fields.get(HOLD) == 0  # somebody may have set the limit since
    if held and mark is not None:
        fields = {**fields, HOLD: int(mark[1]) if mark[1] else None}
        fields = {name: one for name, one in fields.items() if one is not None}
    return Association(
        account=row["Account"],
        user=row["User"],
        partition=row["Partition"],
        parent=row["ParentName"],
        comment=row["Comment"][: mark.start()] if mark else row["Comment"],
        marked=mark is not None,
        held=held,
        fields=fields,
    )


def _qos(row: dict[str, str]) -> Qos:
    description, ours = unmarked(row["Description"])
    return Qos(name=row["Name"], description=description, ours=ours, fields=_fields(QOS_FIELDS, row, _QOS_UNSET))


def _account(row: output.Row) -> Account:
    own = (one for one in row.get("coordinators") or () if isinstance(one, dict) and one.get("direct"))
    return Account(
        name=str(row["name"]),
        description=str(row.get("description") or ""),
        organization=str(row.get("organization") or ""),
        coordinators=tuple(sorted(str(one.get("name")) for one in own)),
    )


def _fields(kinds: dict[str, str], row: dict[str, str], unset: dict[str, Value]) -> Fields:
    found: Fields = {}
    for name, kind in kinds.items():
        cell = row[name]
        if cell:
            said = _shown(kind, cell)
            if unset.get(name) != said:
                found[name] = said
    return found


@cache  # thousands of associations have the same few values
def _shown(kind: str, cell: str) -> Value:
    if kind == TRES:
        return dict(sorted(_shown_tres(pair) for pair in cell.split(",")))
    if kind in (MINUTES, SECONDS):
        return _seconds(cell) // (60 if kind == MINUTES else 1)
    if kind == FRACTION:
        return float(cell)
    if kind == NAMES:
        return tuple(sorted(cell.split(",")))
    if kind == NAME or cell == "parent":
        return cell
    return int(cell)


def _shown_tres(pair: str) -> tuple[str, int]:
    name, _sign, said = pair.rpartition("=")
    match = _AMOUNT.fullmatch(said)
    if not match:
        raise ValueError(f"{pair!r} is no TRES with a number")
    return name, round(float(match[1]) * _MEMORY[match[2]]) if match[2] else int(match[1])


def _wanted_tres(said: Any) -> Value:
    must = "TRES with numbers, such as {cpu: 64, mem: 256G, gres/gpu: 4}"
    if not isinstance(said, dict):
        raise ValueError(must)
    found = {}
    for name, amount in said.items():
        text = str(amount)
        match = _AMOUNT.fullmatch(text)
        memory = name == "mem" and isinstance(amount, str) and match is not None and match[2] in ("M", "G", "T")
        if not memory and (isinstance(amount, bool) or not text.isdigit()):
            raise ValueError(f"{must}; {name} has {text[:40]!r}")
        found[str(name)] = round(float(match[1]) * _MEMORY[match[2]]) if memory and match else int(text)
    return dict(sorted(found.items()))


def _wanted_time(said: Any, kind: str) -> int:
    text = "" if isinstance(said, bool) else str(said)
    if text.isascii() and text.isdigit():
        return int(text)
    if _TIME.fullmatch(text):
        return _seconds(text) // (60 if kind == MINUTES else 1)
    raise ValueError(f'{kind}, or a time such as "1-12:00:00" (days-hours:minutes:seconds) in quotes')


def _seconds(text: str) -> int:
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no time")
    first, second, third = (int(match[name] or 0) for name in ("first", "second", "third"))
    if match["days"] is not None:
        return int(match["days"]) * 86400 + first * 3600 + second * 60 + third
    if match["third"] is not None:
        return first * 3600 + second * 60 + third
    return first * 60 + second


def _whole(said: Any, other: str) -> int:
    if isinstance(said, bool) or not isinstance(said, int) or not 0 <= said < 2**31:
        raise ValueError(f"a whole number from 0 on{other}")
    return said


def tres_of(said: Fields) -> Iterable[tuple[str, str]]:
    """Yield each field of TRES with each TRES that it names."""
    for name, one in said.items():
        if isinstance(one, dict):
            for tres in one:
                yield name, tres
