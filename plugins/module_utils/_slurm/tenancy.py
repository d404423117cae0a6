# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tenancy document: what it asks for, and whether that can be. Pure.

All is checked before anything is written, for sacctmgr writes line by line, and some of what it takes it should not: an account below one that is below it
makes slurmdbd hang, an unknown AdminLevel is another one without a word, and of a name with capitals it makes one without.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError, quoted
from ansible_collections.corral.slurm.plugins.module_utils._slurm import accounting, reservations
from ansible_collections.corral.slurm.plugins.module_utils._slurm.accounting import MARK, NAMES, ROOT, Fields, Key, Live

# An object that has a document as its spec, beside the cluster that it is for.
KIND = "SlurmTenants"
ADMIN_LEVELS = ("None", "Operator", "Administrator")
FLAGS = (
    "DenyOnLimit", "EnforceUsageThreshold", "NoDecay", "NoReserve", "OverPartQOS", "PartitionMaxNodes", "PartitionMinNodes", "PartitionTimeLimit",
    "Relative", "RequiresReservation", "UsageFactorSafe",
)  # fmt: skip
PREEMPT_MODES = ("cluster", "cancel", "requeue", "suspend")
# By the document's word: what sacctmgr calls it.
_QOS_WORDS = {
    "priority": "Priority",
    "flags": "Flags",
    "preempt": "Preempt",
    "preemptMode": "PreemptMode",
    "preemptExemptTime": "PreemptExemptTime",
    "graceTime": "GraceTime",
    "usageFactor": "UsageFactor",
    "usageThreshold": "UsageThreshold",
    "limitFactor": "LimitFactor",
}
_ASSOCIATION_WORDS = {"fairshare": "Fairshare", "qos": "QOS", "defaultQos": "DefaultQOS"}
_TOP = ("qos", "accounts", "users", "reservations")
_QOS = ("name", "description", *_QOS_WORDS, "limits")
_ACCOUNT = ("name", "parent", "description", "organization", "coordinators", *_ASSOCIATION_WORDS, "limits")
_USER = ("name", "adminLevel", "defaultAccount", "associations")
_RESERVATION = ("name", "start", "end", "duration", "nodes", "nodeCount", "users", "accounts", "partition", "features", "flags")
_ASSOCIATION = ("account", "partition", *_ASSOCIATION_WORDS, "limits")

# A limit, and those of the same association that it must not be above; of associations above it those that begin with Grp.
_BELOW = {
    "GrpJobs": ("GrpSubmit",),
    "MaxJobs": ("GrpJobs", "MaxSubmit", "GrpSubmit"),
    "MaxJobsAccrue": ("GrpJobsAccrue",),
    "MaxSubmit": ("GrpSubmit",),
    "MaxTRES": ("GrpTRES",),
    "MaxTRESMins": ("GrpTRESMins",),
    "MaxTRESPerNode": ("MaxTRES", "GrpTRES"),
    "MaxWall": ("GrpWall",),
}
_QOS_BELOW = {
    "GrpJobs": ("GrpSubmit",),
    "MaxJobsAccruePerAccount": ("GrpJobsAccrue",),
    "MaxJobsAccruePerUser": ("GrpJobsAccrue",),
    "MaxJobsPerAccount": ("GrpJobs", "MaxSubmitJobsPerAccount", "GrpSubmit"),
    "MaxJobsPerUser": ("GrpJobs", "MaxSubmitJobsPerUser", "GrpSubmit"),
    "MaxSubmitJobsPerAccount": ("GrpSubmit",),
    "MaxSubmitJobsPerUser": ("GrpSubmit",),
    "MaxTRES": ("MaxTRESPerUser", "MaxTRESPerAccount", "GrpTRES"),
    "MaxTRESMins": ("GrpTRESMins",),
    "MaxTRESPerAccount": ("GrpTRES",),
    "MaxTRESPerNode": ("MaxTRES", "MaxTRESPerUser", "MaxTRESPerAccount", "GrpTRES"),
    "MaxTRESPerUser": ("GrpTRES",),
    "MaxTRESRunMinsPerAccount": ("GrpTRESRunMins",),
    "MaxTRESRunMinsPerUser": ("GrpTRESRunMins",),
    "MaxWall": ("GrpWall",),
    "MinTRES": ("MaxTRES", "MaxTRESPerUser", "MaxTRESPerAccount", "GrpTRES"),
}
_GROUPS = tuple(name for name in accounting.ASSOCIATION_LIMITS if name.startswith("Grp"))
# A limit, and those of accounts above it that it must not be above.
_ABOVE = {
    name: (*(other for other in _BELOW.get(name, ()) if other in _GROUPS), *((name,) if name in _GROUPS else ()))
    for name in (*_BELOW, *_GROUPS)
}

_NAME = re.compile(r"[a-z0-9_][a-z0-9_.@-]*")
# slurmdbd's index tells names apart by so many letters.
_LONGEST = 42
_UNSAYABLE = frozenset("\"'`|\\")
_SHOWN = 10


@dataclass(frozen=True)
class WantedQos:
    """A QoS; ``fields`` are those that are compared, ``description`` is None where it is not."""

    path: str
    fields: Fields
    description: str | None = None


@dataclass(frozen=True)
class WantedAccount:
    """An account; what is None is not compared."""

    path: str
    fields: Fields
    parent: str | None = None
    description: str | None = None
    organization: str | None = None
    coordinators: tuple[str, ...] | None = None


@dataclass(frozen=True)
class WantedUser:
    """A user; what is None is not compared."""

    path: str
    admin_level: str | None = None
    default_account: str | None = None


@dataclass(frozen=True)
class WantedAssociation:
    """A user's association."""

    path: str
    fields: Fields


@dataclass(frozen=True)
class WantedReservation:
    """A reservation, with a start and an end."""

    path: str
    reservation: reservations.Wanted


@dataclass
class Desired:
    """All that is asked for; with ``prune`` what this collection has made and is not in it is removed."""

    qos: dict[str, WantedQos] = field(default_factory=dict)
    accounts: dict[str, WantedAccount] = field(default_factory=dict)
    users: dict[str, WantedUser] = field(default_factory=dict)
    associations: dict[Key, WantedAssociation] = field(default_factory=dict)
    reservations: dict[str, WantedReservation] = field(default_factory=dict)
    prune: bool = False
    # What is removed in any case, whoever has made it.
    absent_qos: frozenset[str] = frozenset()
    absent: frozenset[Key] = frozenset()
    # The associations whose jobs are held, all others being released; None leaves holds as they are.
    held: frozenset[Key] | None = None

    def spared(self, live: Live) -> tuple[frozenset[str], frozenset[Key]]:
        """Return the QoS and the associations that do not go: those of the database less those that prune or ``absent`` take."""
        qos = (
            name for name, one in live.qos.items() if name not in self.absent_qos and not (self.prune and one.ours and name not in self.qos)
        )
        keys = (
            key
            for key, one in live.associations.items()
            if key not in self.absent and not (self.prune and one.ours and not self.names(key))
        )
        return frozenset(qos), frozenset(keys)

    def names(self, key: Key) -> bool:
        """Return whether it asks for this association."""
        account, user, _partition = key
        return key in self.associations if user else account in self.accounts


class Problems(CorralError):
    """What is wrong with a document, a sentence each."""

    def __init__(self, sentences: list[str]) -> None:
        more = len(sentences) - _SHOWN
        shown = [*sentences[:_SHOWN], *([f"There are {more} more like these."] if more > 0 else [])]
        super().__init__("\n".join([*shown, *(["Nothing was changed."] if shown else [])]), data={"problems": sentences})


class Reader:
    """Reads documents, and notes what is wrong with them: the sentences are in ``problems``."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def wrong(self, path: str, why: str) -> None:
        """Note a sentence; ``why`` completes the path."""
        self.problems.append(f"{path} {why}")

    def document(self, desired: Desired, given: Any, at: str = "") -> None:
        """Add to the desired state what a document asks for, or an object with one; ``at`` is what its paths begin with."""
        if isinstance(given, dict) and given.get("kind") == KIND:
            at, given = f"{at} spec".strip(), given.get("spec")
            given = {key: one for key, one in given.items() if key != "cluster"} if isinstance(given, dict) else given
        if not isinstance(given, dict):
            self.wrong(at or "The document", f"is not a mapping with {', '.join(_TOP)}; write it as docs/tenants.md shows.")
            return
        self._known(given, _TOP, at or "The document")
        within = f"{at}." if at else ""
        for path, one in self._entries(given, "qos", f"{within}qos", _QOS):
            name = self._own_name(one, path, desired.qos, "QoS")
            if name:
                desired.qos[name] = self.qos(one, path, exact=True)
        for path, one in self._entries(given, "accounts", f"{within}accounts", _ACCOUNT):
            name = self._own_name(one, path, desired.accounts, "account")
            if name:
                desired.accounts[name] = self.account(one, path, exact=True)
        for path, one in self._entries(given, "users", f"{within}users", _USER):
            name = self._own_name(one, path, desired.users, "user")
            if name:
                self._user(desired, name, one, path)
        for path, one in self._entries(given, "reservations", f"{within}reservations", _RESERVATION):
            self._reservation(desired, one, path)

    def qos(self, one: dict[str, Any], path: str, *, exact: bool) -> WantedQos:
        """Return a QoS; ``exact``: what is not named must not be set."""
        fields = self._fields(one, path, _QOS_WORDS, accounting.QOS_LIMITS, accounting.QOS_FIELDS)
        for flag in _tuple(fields.get("Flags")):
            if flag not in FLAGS:
                self.wrong(f"{path}.flags", f"has {quoted(flag)}, which is no flag of a QoS; {_near(flag, FLAGS)}.")
        mode = fields.get("PreemptMode")
        if mode is not None and mode not in PREEMPT_MODES:
            self.wrong(f"{path}.preemptMode", f"is {quoted(str(mode))}; it must be one of {', '.join(PREEMPT_MODES)}.")
        return WantedQos(
            path,
            accounting.normal(accounting.QOS_FIELDS, {**(dict.fromkeys(accounting.QOS_FIELDS) if exact else {}), **fields}, qos=True),
            self._text(one, "description", path),
        )

    def account(self, one: dict[str, Any], path: str, *, exact: bool) -> WantedAccount:
        """Return an account; ``exact``: what is not named must not be set."""
        if one.get("name") == ROOT:
            self.wrong(
                f"{path}.name", "is root, which is Slurm's own account above all; leave it out, and set limits at the accounts below it."
            )
        parent = self._name(one.get("parent"), f"{path}.parent", "account") if one.get("parent") is not None else ROOT if exact else None
        coordinators = self._names(one, "coordinators", path, "user") if one.get("coordinators") is not None else () if exact else None
        return WantedAccount(
            path,
            self.association_fields(one, path, exact=exact),
            parent,
            self._text(one, "description", path),
            self._text(one, "organization", path),
            coordinators,
        )

    def association_fields(self, one: dict[str, Any], path: str, *, exact: bool) -> Fields:
        """Return the fields of an association."""
        fields = self._fields(one, path, _ASSOCIATION_WORDS, accounting.ASSOCIATION_LIMITS, accounting.ASSOCIATION_FIELDS)
        return accounting.normal(
            accounting.ASSOCIATION_FIELDS, {**(dict.fromkeys(accounting.ASSOCIATION_FIELDS) if exact else {}), **fields}
        )

    def name(self, given: Any, path: str, what: str) -> str:
        """Return a name; "" for what can be none."""
        name = self._name(given, path, what) or ""
        if name == ROOT and what == "user":
            self.wrong(path, "is root, who is Slurm's own administrator; leave them out.")
        return name

    def admin_level(self, given: Any, path: str) -> str:
        """Return an AdminLevel."""
        if given not in ADMIN_LEVELS:
            self.wrong(
                path,
                f"is {quoted(str(given))}; it must be one of {', '.join(ADMIN_LEVELS)}, and sacctmgr would take it for another without a word.",
            )
            return ADMIN_LEVELS[0]
        return str(given)

    def _reservation(self, desired: Desired, one: dict[str, Any], path: str) -> None:
        before = len(self.problems)
        for key in ("users", "accounts", "flags"):
            if one.get(key) is not None and not (isinstance(one[key], list) and all(isinstance(each, str) for each in one[key])):
                self.wrong(f"{path}.{key}", "is not a list of names; write each with a dash in front of it.")
        for key in ("nodes", "partition", "features"):
            if one.get(key) is not None and not (isinstance(one[key], str) and re.fullmatch(r"\S+", one[key])):
                self.wrong(f"{path}.{key}", f"is {quoted(str(one[key]))}; it must be one word.")
        count = one.get("nodeCount")
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            self.wrong(f"{path}.nodeCount", f"is {quoted(str(count))}; it must be a number from 1 on.")
        for keys, why in (
            (("name",), "has no name; write one."),
            (("start",), "has no start; write one, such as 2026-01-31T08:00:00Z."),
            (("nodes", "nodeCount"), "has neither nodes nor nodeCount; write one, nodes: ALL for all."),
            (("users", "accounts"), "has neither users nor accounts; write who may use it (root alone keeps all others out)."),
        ):
            if not any(one.get(key) for key in keys):
                self.wrong(path, why)
        if (one.get("end") is None) == (one.get("duration") is None):
            self.wrong(path, "must have one of end and duration; write one of them.")
        if len(self.problems) > before:
            return
        try:
            lists = {key: one.get(key) or [] for key in ("users", "accounts", "flags")}
            wanted = reservations.wanted({**one, **lists, "node_count": count})
        except CorralError as error:
            self.problems.append(f"{path}: {error}")
            return
        if not isinstance(wanted.start, int):
            self.wrong(
                f"{path}.start", f"is {quoted(str(one['start']))}, another time in each run; write one such as 2026-01-31T08:00:00Z."
            )
        elif wanted.end is not None and wanted.end - wanted.start < 60:
            self.wrong(f"{path}.end", "is not a minute after its start; correct one of the two.")
        elif wanted.name in desired.reservations:
            other = desired.reservations[wanted.name].path
            self.wrong(f"{path}.name", f"is {wanted.name}, as {other}.name is; there is one reservation of a name, so leave one out.")
        else:
            desired.reservations[wanted.name] = WantedReservation(path, wanted)

    def _user(self, desired: Desired, name: str, one: dict[str, Any], path: str) -> None:
        accounts = []
        for where, given in self._entries(one, "associations", f"{path}.associations", _ASSOCIATION):
            account = self._name(given.get("account"), f"{where}.account", "account")
            partition = (
                self._name(given.get("partition"), f"{where}.partition", "partition", any_case=True)
                if given.get("partition") is not None
                else ""
            )
            if account is None or partition is None:
                continue
            if account == ROOT:
                self.wrong(f"{where}.account", f"is root, whose jobs no limit holds back; give {name} an account of theirs.")
            key = (account, name, partition)
            if key in desired.associations:
                self.wrong(where, f"is user {name} in account {account} again, as {desired.associations[key].path} is; leave one out.")
            desired.associations[key] = WantedAssociation(where, self.association_fields(given, where, exact=True))
            accounts.append(account)
        if not accounts:
            self.wrong(path, f"has no associations, and Slurm has no user without one; give {name} an account, or leave them out.")
        default = self._name(one["defaultAccount"], f"{path}.defaultAccount", "account") if one.get("defaultAccount") is not None else None
        if default and default not in accounts:
            self.wrong(
                f"{path}.defaultAccount", f"is {default}, to which user {name} has no association; add one, or choose {_or(accounts)}."
            )
        level = self.admin_level(one.get("adminLevel", ADMIN_LEVELS[0]), f"{path}.adminLevel")
        desired.users[name] = WantedUser(path, level, default or (accounts[0] if accounts else None))

    def _entries(self, given: dict[str, Any], key: str, where: str, known: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
        found = given.get(key)
        if found is None:
            return
        if not isinstance(found, list):
            self.wrong(where, "is not a list; begin each entry with a dash.")
            return
        for number, one in enumerate(found):
            path = f"{where}[{number}]"
            if isinstance(one, dict):
                self._known(one, known, path)
                yield path, one
            else:
                self.wrong(path, f"is {quoted(str(one))} and not a mapping; write {known[0]}: in front of it.")

    def _known(self, given: dict[str, Any], known: tuple[str, ...], path: str) -> None:
        for key in given:
            if key in known:
                continue
            if "weight" in str(key).lower() or "billing" in str(key).lower():
                why = "TRES weights are a partition's (TRESBillingWeights) and the scheduler's (PriorityWeightTRES), so they are in slurm.conf"
                self.wrong(f"{path}", f"has {quoted(str(key))}: {why}; set them in the cluster's document.")
            else:
                self.wrong(path, f"has {quoted(str(key))}, which is no field here; {_near(str(key), known)}.")

    def _own_name(self, one: dict[str, Any], path: str, others: dict[str, Any], what: str) -> str:
        name = self.name(one.get("name"), f"{path}.name", what)
        if name and name in others:
            self.wrong(
                f"{path}.name",
                f"is {name}, as {others[name].path}.name is; there is one {what} of a name, so leave one out or make them one.",
            )
        return name

    def _name(self, given: Any, path: str, what: str, *, any_case: bool = False) -> str | None:
        name = str(given) if isinstance(given, (str, int)) and not isinstance(given, bool) else ""
        if not name:
            self.wrong(path, f"must be the name of {_a(what)}; write one.")
        elif len(name) > _LONGEST:
            self.wrong(path, f"is {quoted(name)}, of {len(name)} letters; Slurm tells names apart by {_LONGEST}, so choose a shorter one.")
        elif _NAME.fullmatch(name.lower() if any_case else name):
            return name
        elif _NAME.fullmatch(name.lower()):
            self.wrong(path, f"is {quoted(name)}, and Slurm keeps names in lower case; write {name.lower()}.")
        else:
            self.wrong(
                path, f"is {quoted(name)}; a name begins with a letter, a digit or _ and has only these and . @ - in it, so choose another."
            )
        return None

    def _names(self, one: dict[str, Any], key: str, path: str, what: str) -> tuple[str, ...]:
        given = one[key]
        if not isinstance(given, list):
            self.wrong(f"{path}.{key}", f"is not a list; write the name of each {what} with a dash in front of it.")
            return ()
        found = [self._name(name, f"{path}.{key}[{number}]", what) for number, name in enumerate(given)]
        twice = sorted({name for name in found if name and found.count(name) > 1})
        if twice:
            self.wrong(f"{path}.{key}", f"has {', '.join(twice)} twice; leave one out.")
        return tuple(sorted({name for name in found if name}))

    def _text(self, one: dict[str, Any], key: str, path: str) -> str | None:
        given = one.get(key)
        if given is None:
            return None
        text = str(given)
        bad = next((character for character in text if character in _UNSAYABLE or not character.isprintable()), None)
        if bad is not None or not isinstance(given, str):
            self.wrong(
                f"{path}.{key}",
                f"must be a text of one line without quotes, | and \\, which sacctmgr would not keep as they are; change {quoted(bad or text)}.",
            )
            return None
        if text.endswith(f"[{MARK}]"):
            self.wrong(f"{path}.{key}", f"ends with [{MARK}], which is how this collection marks what it has made; leave it out.")
        return text.strip().lower()  # as sacctmgr keeps it

    def _fields(self, one: dict[str, Any], path: str, words: dict[str, str], limits: dict[str, str], kinds: dict[str, str]) -> Fields:
        fields: Fields = {}
        for word, name in words.items():
            if one.get(word) is None:
                continue
            if name == "Flags":
                fields[name] = tuple(sorted({str(flag) for flag in one[word]})) if isinstance(one[word], list) else (str(one[word]),)
            elif kinds[name] == NAMES:
                fields[name] = self._names(one, word, path, "QoS")
            elif name == "PreemptMode":
                fields[name] = str(one[word])
            elif name == "DefaultQOS":
                fields[name] = self._name(one[word], f"{path}.{word}", "QoS") if one[word] != "" else None
            else:
                self._value(fields, name, kinds[name], one[word], f"{path}.{word}")
        given = one.get("limits")
        if given is not None and not isinstance(given, dict):
            self.wrong(f"{path}.limits", "is not a mapping; write it as {MaxJobs: 10, GrpTRES: {cpu: 64}}.")
            return fields
        for name, limit in (given or {}).items():
            where = f"{path}.limits.{name}"
            if name not in limits:
                self.wrong(
                    f"{path}.limits", f"has {quoted(str(name))}, which is no limit that can be set here; {_near(str(name), limits)}."
                )
            elif limit is None:
                fields[name] = None
            else:
                self._value(fields, name, limits[name], limit, where)
        return fields

    def _value(self, fields: Fields, name: str, kind: str, given: Any, path: str) -> None:
        try:
            fields[name] = accounting.value(kind, given)
        except ValueError as error:
            self.wrong(path, f"is {quoted(str(given))}; it must be {error}.")


class Check:
    """Whether what is asked for can be, with what there is: the sentences are in ``problems``."""

    def __init__(self, desired: Desired, live: Live) -> None:
        self.desired, self.live = desired, live
        self.problems: list[str] = []
        qos, keys = desired.spared(live)
        self.qos_names = qos | desired.qos.keys()
        self.account_names = frozenset(account for account, user, _partition in keys if not user) | desired.accounts.keys()
        self.fields: dict[str, Fields] = {}

    def all(self) -> list[str]:
        """Return the sentences."""
        for name, qos in self.desired.qos.items():
            self._qos(name, qos)
        for name, account in self.desired.accounts.items():
            if self._account(name, account):
                self._association(self.chain(name), account.path, account.fields, f"account {name}")
        for key, one in self.desired.associations.items():
            if key[0] not in self.account_names:
                self._unknown(f"{one.path}.account", "account", key[0], self.account_names)
                continue
            known = self.live.associations.get(key)
            own = {**(known.fields if known else {}), **one.fields}
            self._association(self.chain(key[0]), one.path, one.fields, f"user {key[1]}", own)
        for reservation in self.desired.reservations.values():
            self._reservation(reservation)
        held = {key[:2] for key in (*self.desired.associations, *self.live.associations)}
        for name, user in self.desired.users.items():
            if user.default_account and (user.default_account, name) not in held:
                self._say(
                    user.path,
                    f"has the default account {user.default_account}, to which user {name} has no association; make one first.",
                )
        return self.problems

    def _reservation(self, one: WantedReservation) -> None:
        """Note who cannot use it. A minus in front of a name keeps that one out."""
        for account in one.reservation.accounts or ():
            if account.lstrip("-") not in self.account_names:
                self._unknown(f"{one.path}.accounts", "account", account.lstrip("-"), self.account_names)
        for user in one.reservation.users or ():
            name = user.lstrip("-")
            if name != ROOT and name not in self.desired.users and name not in self.live.users:
                self._say(f"{one.path}.users", f"has {name}, and there is no user of that name; make them first, or correct the name.")

    def parent(self, name: str) -> str:
        """Return the account that one will be below."""
        wanted = self.desired.accounts.get(name)
        if wanted is not None and wanted.parent is not None:
            return wanted.parent
        live = self.live.account(name)
        return (live.parent if live else "") or ROOT

    def chain(self, name: str) -> list[str]:
        """Return an account and those above it; the last is root, unless they go in a circle."""
        found = [name]
        while found[-1] != ROOT and len(found) == len(set(found)):
            found.append(self.parent(found[-1]))
        return found

    def _say(self, path: str, why: str) -> None:
        self.problems.append(f"{path} {why}")

    def _unknown(self, path: str, what: str, name: str, known: frozenset[str]) -> None:
        leaving = (name in self.live.qos) if what == "QoS" else self.live.account(name) is not None
        why = "which is to be removed, because the document does not name it" if leaving else f"and there is no {what} of that name"
        self._say(path, f"is {name}, {why}; make it first, or correct the name: {_near(name, sorted(known))}.")

    def _account(self, name: str, account: WantedAccount) -> bool:
        parent = self.parent(name)
        if parent not in self.account_names:
            self._unknown(f"{account.path}.parent", "account", parent, self.account_names)
            return False
        for user in account.coordinators or ():
            if user not in self.desired.users and user not in self.live.users:
                self._say(
                    f"{account.path}.coordinators", f"has {user}, and there is no user of that name; make them first, or correct the name."
                )
        chain = self.chain(name)
        if chain[-1] != ROOT:
            loop = chain[chain.index(chain[-1]) :]
            if name in loop:
                self._say(f"{account.path}.parent", f"makes a loop: {' is below '.join(loop)}; put one of them below another account.")
            return False
        return all(above in self.account_names for above in chain)

    def _qos(self, name: str, one: WantedQos) -> None:
        for other in _tuple(one.fields.get("Preempt")):
            if other not in self.qos_names:
                self._unknown(f"{one.path}.preempt", "QoS", other, self.qos_names)
        loop = self._preempted([name]) if one.fields.get("Preempt") else []
        if loop:
            self._say(f"{one.path}.preempt", f"makes a loop, which Slurm refuses: {' preempts '.join(loop)}; take one of them out.")
        self._known_tres(one.path, one.fields)
        own = self._qos_fields(name)
        self._below(one.path, one.fields, own, own, _QOS_BELOW, f"QoS {name}")

    def _qos_fields(self, name: str) -> Fields:
        live, wanted = self.live.qos.get(name), self.desired.qos.get(name)
        return {**(live.fields if live else {}), **(wanted.fields if wanted else {})}

    def _preempted(self, way: list[str]) -> list[str]:
        """Return a way by which a QoS preempts the first of ``way``; an empty one where there is none."""
        for other in _tuple(self._qos_fields(way[-1]).get("Preempt")):
            if other == way[0]:
                return [*way, other]
            found = self._preempted([*way, other]) if other not in way else []
            if found:
                return found
        return []

    def _association(self, chain: list[str], path: str, asked: Fields, what: str, own: Fields | None = None) -> None:
        for other in _tuple(asked.get("QOS")):
            if other not in self.qos_names:
                self._unknown(f"{path}.qos", "QoS", other, self.qos_names)
        self._known_tres(path, asked)
        fields = self._merged(chain[0]) if own is None else own
        above = chain[1:] if own is None else chain
        default = fields.get("DefaultQOS")
        if default is not None:
            self._default_qos(path, str(default), fields, above)
        self._below(path, asked, fields, fields, _BELOW, what)
        for account in above:
            limits = {name: limit for name, limit in self._merged(account).items() if name in _GROUPS}
            if limits:
                self._below(path, asked, fields, limits, _ABOVE, f"account {account}")

    def _default_qos(self, path: str, default: str, fields: Fields, above: list[str]) -> None:
        if default not in self.qos_names:
            self._unknown(f"{path}.defaultQos", "QoS", default, self.qos_names)
            return
        places = [("its own qos", fields), *((f"account {name}", self._merged(name)) for name in above)]
        where, held = next(((place, _tuple(one["QOS"])) for place, one in places if one.get("QOS")), ("", ()))
        if held and default not in held:
            source = where if where == "its own qos" else f"what it inherits from {where}"
            self._say(
                f"{path}.defaultQos",
                f"is {default}, and {source} has only {', '.join(held)}; add {default} to qos, or choose {_or(list(held))}.",
            )

    def _merged(self, account: str) -> Fields:
        found = self.fields.get(account)
        if found is None:
            live, wanted = self.live.account(account), self.desired.accounts.get(account)
            found = {**(live.fields if live else {}), **(wanted.fields if wanted else {})}
            self.fields[account] = found
        return found

    def _known_tres(self, path: str, fields: Fields) -> None:
        for name, tres in accounting.tres_of(fields):
            if tres not in self.live.tres:
                counted = ", ".join(sorted(self.live.tres))
                self._say(
                    f"{path}.limits.{name}",
                    f"has {quoted(tres)}, which slurmdbd does not count; it counts {counted}: correct it, or add it to AccountingStorageTRES of slurm.conf.",
                )

    def _below(self, path: str, asked: Fields, fields: Fields, bounds: Fields, table: dict[str, tuple[str, ...]], whose: str) -> None:
        """Note limits that are above those that hold them down, where one of the two is asked for: what others have set is theirs."""
        for name, above in table.items():
            limit = fields.get(name)
            for other in above if limit is not None else ():
                bound = bounds.get(other)
                if bound is None or (name not in asked and not (fields is bounds and other in asked)):
                    continue
                for tres, most, bounded in _pairs(limit, bound):
                    if most > bounded:
                        of = f" of {tres}" if tres else ""
                        self._say(
                            f"{path}.limits.{name}",
                            f"is {most}{of} and {other} of {whose} {bounded}, so Slurm would never let it be reached; lower the one or raise the other.",
                        )


def read(given: Any, *, prune: bool, path: str = "", objects: Iterable[dict[str, Any]] = ()) -> Desired:
    """Return what a document asks for, whose paths begin with ``path``, and ``objects`` of the kind SlurmTenants together with it. Raises Problems."""
    reader, desired = Reader(), Desired(prune=prune)
    reader.document(desired, given, path)
    for one in objects:
        reader.document(desired, {**one, "kind": KIND}, f"{KIND} {one['metadata']['name']}")
    return finished(reader, desired)


def finished(reader: Reader, desired: Desired) -> Desired:
    """Return the desired state. Raises Problems where the reader has noted some."""
    if reader.problems:
        raise Problems(reader.problems)
    return desired


def check(desired: Desired, live: Live) -> Callable[[str], list[str]]:
    """Return what gives of an account it and those above it, as they will be. Raises Problems for what cannot be."""
    found = Check(desired, live)
    if found.all():
        raise Problems(found.problems)
    return found.chain


def _pairs(limit: accounting.Value | None, bound: accounting.Value) -> Iterator[tuple[str, int, int]]:
    if isinstance(limit, dict) and isinstance(bound, dict):
        for tres, asked in limit.items():
            if tres in bound:
                yield tres, asked, bound[tres]
    elif isinstance(limit, int) and isinstance(bound, int):
        yield "", limit, bound


def _tuple(given: accounting.Value | None) -> tuple[str, ...]:
    return given if isinstance(given, tuple) else ()


def _a(what: str) -> str:
    return f"{'an' if what[0] in 'aeio' else 'a'} {what}"


def _or(names: list[str]) -> str:
    return " or ".join(names) if names else "another"


def _near(name: str, known: Any) -> str:
    """Return what may have been meant, or what there is."""
    lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), lower, 1, 0.75)
    if close:
        return f"{lower[close[0]]} may be meant"
    shown = list(known)
    return f"there is {', '.join(shown[:30])}{' and more' if len(shown) > 30 else ''}" if shown else "there is none"
