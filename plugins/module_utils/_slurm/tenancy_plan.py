# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that make sacctmgr set accounts, users, associations and QoS as desired, as few as possible. Pure.

Users who need the same change share a line. Lines are in an order in which each finds what it needs: what others refer to is made first and goes
last, accounts come and move from the top down, which is what keeps a move from making a loop on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._slurm import accounting
from ansible_collections.corral.slurm.plugins.module_utils._slurm.accounting import MARK, ROOT, Fields, Key, Live
from ansible_collections.corral.slurm.plugins.module_utils._slurm.tenancy import ADMIN_LEVELS, Desired, WantedAccount, WantedQos, check

# Names in one line, and what one run of sacctmgr writes: slurmdbd takes its time for each association that is new.
NAMES_A_LINE = 500
_WEIGHT_A_BATCH = 1000


@dataclass
class Line:
    """A line for sacctmgr; ``weight`` is about how many rows it writes, and a ``last`` one waits until all others are seen to be done."""

    text: str
    weight: int = 1
    last: bool = False


@dataclass
class Plan:
    """What differs, and the lines that mend it; ``kept`` has sentences on what could not go."""

    lines: list[Line] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    names_a_line: int = NAMES_A_LINE

    def some(self, names: list[str]) -> Iterator[list[str]]:
        """Yield names by line."""
        yield from (names[start : start + self.names_a_line] for start in range(0, len(names), self.names_a_line))

    def differs(self, what: str, has: Any, target: Any) -> None:
        """Note a difference for the diff."""
        self.before[what], self.after[what] = has, target

    def add(self, text: str, weight: int = 1) -> None:
        """Add a line."""
        self.lines.append(Line(text, weight))

    @property
    def next(self) -> list[Line]:
        """The lines that can be carried out now."""
        return [line for line in self.lines if not line.last] or self.lines

    def batches(self) -> Iterator[tuple[str, int]]:
        """Yield what one run of sacctmgr reads each, and its weight."""
        texts: list[str] = []
        weight = 0
        for line in self.next:
            if texts and weight + line.weight > _WEIGHT_A_BATCH:
                yield "\n".join(texts) + "\n", weight
                texts, weight = [], 0
            texts.append(line.text)
            weight += line.weight
        if texts:
            yield "\n".join(texts) + "\n", weight


def make(desired: Desired, live: Live, names_a_line: int = NAMES_A_LINE) -> Plan:
    """Return the plan. Raises Problems, before anything is planned, for what cannot be."""
    chain = check(desired, live)
    plan = Plan(names_a_line=names_a_line)
    _qos(plan, desired, live)
    _accounts(plan, desired, live, chain)
    gone = _going(plan, desired, live)
    _associations(plan, desired, live, gone)
    _coordinators(plan, desired, live)
    _holds(plan, desired, live)
    _remove(plan, desired, live, gone, chain)
    return plan


def _qos(plan: Plan, desired: Desired, live: Live) -> None:
    later = []
    for name, one in desired.qos.items():
        known = live.qos.get(name)
        before = known.fields if known else {}
        words = _words(accounting.QOS_FIELDS, before, one.fields)
        # The other one may be made behind this.
        preempt = [word for word in words if word.startswith("Preempt=")]
        words = [word for word in words if word not in preempt]
        description = _described(known, name, one)
        if description is not None:
            words.append(f"Description={_quoted(description)}")
        if known is None:
            plan.add(" ".join([f"add qos name={name}", *words]))
            plan.differs(f"qos {name}", None, accounting.plain(one.fields))
        elif words:
            plan.add(" ".join([f"modify qos where name={name} set", *words]))
        if known is not None and (words or preempt):
            has = {"description": known.description} if description is not None else {}
            target = {"description": one.description} if description is not None else {}
            plan.differs(f"qos {name}", {**_changed(before, one.fields), **has}, {**_changing(before, one.fields), **target})
        if preempt:
            later.append(f"modify qos where name={name} set {preempt[0]}")
    for text in later:
        plan.add(text)


def _described(known: accounting.Qos | None, name: str, one: WantedQos) -> str | None:
    """Return the description to set; None to leave it."""
    if known is None:
        return accounting.marked(one.description or name)
    if one.description is None or one.description == known.description:
        return None
    return accounting.marked(one.description) if known.ours else one.description


def _accounts(plan: Plan, desired: Desired, live: Live, chain: Callable[[str], list[str]]) -> None:
    where = f"cluster={live.cluster}"
    for name in sorted(desired.accounts, key=lambda name: len(chain(name))):
        one = desired.accounts[name]
        own, stored = live.account(name), live.accounts.get(name)
        words = _association_words(own, one.fields)
        texts = _texts(one, stored)
        parent = one.parent or ROOT
        if own is None:
            # Its name and words may be there already, of another cluster or of former days: those are not sacctmgr's to add again.
            plan.add(" ".join([f"add account name={name} {where} parent={parent} Comment={MARK}", *words, *([] if stored else texts)]))
            plan.differs(f"account {name}", None, {"parent": parent, **_descriptions(one), **accounting.plain(one.fields)})
            if stored and texts:
                plan.add(" ".join([f"modify account where name={name} set", *texts]))
            continue
        if one.parent is not None and one.parent != (own.parent or ROOT):
            words.insert(0, f"parent={one.parent}")
        if words:
            plan.add(" ".join([f"modify account where name={name} {where} set", *words]))
        if texts:
            plan.add(" ".join([f"modify account where name={name} set", *texts]))
        if words or texts:
            has: dict[str, Any] = _changed(own.fields, one.fields)
            target: dict[str, Any] = _changing(own.fields, one.fields)
            if one.parent is not None and one.parent != (own.parent or ROOT):
                has["parent"], target["parent"] = own.parent, one.parent
            for key, text in _descriptions(one).items():
                if stored is not None and getattr(stored, key) != text:
                    has[key], target[key] = getattr(stored, key), text
            plan.differs(f"account {name}", has, target)


def _descriptions(one: WantedAccount) -> dict[str, str]:
    words = {"description": one.description, "organization": one.organization}
    return {key: text for key, text in words.items() if text is not None}


def _texts(one: WantedAccount, stored: accounting.Account | None) -> list[str]:
    return [
        f"{key.capitalize()}={_quoted(text)}" for key, text in _descriptions(one).items() if stored is None or getattr(stored, key) != text
    ]


def _associations(plan: Plan, desired: Desired, live: Live, gone: frozenset[Key]) -> None:
    """Users: their new associations, that of the default account first, then who has another default account, then what differs of those that are there."""
    where = f"cluster={live.cluster}"
    new: dict[str, dict[tuple[str, str, str], list[str]]] = {}
    changed: dict[tuple[str, str, str], list[str]] = {}
    for key, one in desired.associations.items():
        account, user, partition = key
        known = live.associations.get(key)
        words = " ".join(_association_words(known, one.fields))
        if known is None:
            wanted = desired.users.get(user)
            default = account if wanted is not None and wanted.default_account == account else ""
            if partition and (account, user, "") in desired.associations:
                default = ""
            new.setdefault(user, {}).setdefault((words, partition, default), []).append(account)
            plan.differs(_title(key), None, accounting.plain(one.fields))
        elif words:
            changed.setdefault((account, partition, words), []).append(user)
            plan.differs(_title(key), _changed(known.fields, one.fields), _changing(known.fields, one.fields))
    adds: dict[tuple[bool, tuple[str, ...], str, str, str], list[str]] = {}
    for user, groups in new.items():
        for (words, partition, default), accounts in _with_default_first(groups):
            adds.setdefault((not default, tuple(accounts), words, partition, default), []).append(user)
    for (_late, accounts_of, words, partition, default), users in sorted(adds.items(), key=lambda add: add[0][0]):
        extra = [*([f"partition={partition}"] if partition else []), *([f"DefaultAccount={default}"] if default else [])]
        for names in plan.some(users):
            text = " ".join(
                [f"add user name={','.join(names)} account={','.join(accounts_of)} {where} Comment={MARK}", *extra, words]
            ).rstrip()
            plan.add(text, len(names) * len(accounts_of))
    _users(plan, desired, live, gone, set(new))
    for (account, partition, words), users in changed.items():
        for names in plan.some(users):
            plan.add(f"modify user where name={','.join(names)} account={account} {where} partition={partition} set {words}", len(names))


def _with_default_first(groups: dict[tuple[str, str, str], list[str]]) -> Iterator[tuple[tuple[str, str, str], list[str]]]:
    """Yield what is new of a user, in as few lines as can be: accounts that need the same change go with the default account."""
    first = next((key for key in groups if key[2] and not key[1]), None)
    if first is not None:
        words, partition, _default = first
        yield first, [*groups[first], *groups.get((words, partition, ""), [])]
    for key, accounts in groups.items():
        if key != first and (first is None or key != (first[0], first[1], "")):
            yield key, accounts


def _users(plan: Plan, desired: Desired, live: Live, gone: frozenset[Key], new: set[str]) -> None:
    where = f"cluster={live.cluster}"
    defaults: dict[str, list[str]] = {}
    levels: dict[str, list[str]] = {}
    for name, one in desired.users.items():
        known = live.users.get(name)
        had_level = known.admin_level if known else ADMIN_LEVELS[0]
        had_default = known.default_account if known else ""
        has: dict[str, Any] = {}
        target: dict[str, Any] = {}
        if one.admin_level is not None and one.admin_level != had_level:
            levels.setdefault(one.admin_level, []).append(name)
            has["admin_level"], target["admin_level"] = had_level, one.admin_level
        if one.default_account is not None and one.default_account != had_default:
            # An association that is new brings its default account along.
            if (one.default_account, name, "") in live.associations or name not in new:
                defaults.setdefault(one.default_account, []).append(name)
            has["default_account"], target["default_account"] = had_default, one.default_account
        if target:
            plan.differs(f"user {name}", has if known else None, target)
    for name, going in _leavers(desired, live, gone):
        left = [one for one in live.by_user[name] if one.key not in gone]
        if left and live.users[name].default_account in going:
            defaults.setdefault(min(one.account for one in left), []).append(name)
            plan.differs(
                f"user {name}", {"default_account": live.users[name].default_account}, {"default_account": min(one.account for one in left)}
            )
    for account, users in defaults.items():
        for names in plan.some(users):
            plan.add(f"modify user where name={','.join(names)} {where} set DefaultAccount={account}", len(names))
    for level, users in levels.items():
        for names in plan.some(users):
            plan.add(f"modify user where name={','.join(names)} set AdminLevel={level}", len(names))


def _leavers(desired: Desired, live: Live, gone: frozenset[Key]) -> Iterator[tuple[str, set[str]]]:
    """Yield the users whom the document does not name and who lose accounts, with those."""
    by_user: dict[str, set[str]] = {}
    stays = {key[:2] for key in live.associations.keys() - gone}
    for account, user, _partition in gone:
        if (
            user
            and (account, user) not in stays
            and user in live.users
            and (user not in desired.users or desired.users[user].default_account is None)
        ):
            by_user.setdefault(user, set()).add(account)
    yield from sorted(by_user.items())


def _coordinators(plan: Plan, desired: Desired, live: Live) -> None:
    for name, one in desired.accounts.items():
        if one.coordinators is None:
            continue
        stored = live.accounts.get(name)
        has = stored.coordinators if stored else ()
        come, go = sorted(set(one.coordinators) - set(has)), sorted(set(has) - set(one.coordinators))
        if come:
            plan.add(f"add coordinator account={name} names={','.join(come)}")
        if go:
            plan.add(f"delete coordinator account={name} names={','.join(go)}")
        if come or go:
            plan.differs(f"coordinators of account {name}", list(has), list(one.coordinators))


def _going(plan: Plan, desired: Desired, live: Live) -> frozenset[Key]:
    """Return the associations that go; an account stays, and is reported, while there is something below it that does not go."""
    _qos_left, left = desired.spared(live)
    gone = set(live.associations) - left
    parents: dict[str, set[str]] = {}
    for account in {key[0] for key in live.associations} | desired.accounts.keys():
        wanted, own = desired.accounts.get(account), live.account(account)
        above = wanted.parent if wanted is not None and wanted.parent is not None else own.parent if own else ""
        if account != ROOT:
            parents.setdefault(above or ROOT, set()).add(account)
    again = True
    while again:
        again = False
        for key in sorted(key for key in gone if not key[1]):
            account = key[0]
            users = sorted({one.user for one in live.by_account[account] if one.user and one.key not in gone})
            below = sorted(child for child in parents.get(account, ()) if (child, "", "") not in gone)
            if users or below:
                held = [
                    f"{what} {', '.join(names[:5])}{' and more' if len(names) > 5 else ''}"
                    for what, names in (("users", users), ("accounts", below))
                    if names
                ]
                plan.kept.append(
                    f"Account {account} stays, for below it there are {' and '.join(held)}, which this does not take away; move or remove them."
                )
                gone.discard(key)
                again = True
    return frozenset(gone)


def _remove(plan: Plan, desired: Desired, live: Live, gone: frozenset[Key], chain: Callable[[str], list[str]]) -> None:
    where = f"cluster={live.cluster}"
    stays = {key[:2] for key in (live.associations.keys() - gone) | desired.associations.keys()}
    accounts: dict[tuple[str, str], dict[str, None]] = {}
    for account, user, partition in sorted(gone):
        plan.differs(_title((account, user, partition)), accounting.plain(live.associations[account, user, partition].fields), None)
        if user:
            # Of what a user leaves wholly all partitions go at once, for any of them may be what makes the account their default one.
            only = f" partition={partition}" if (account, user) in stays else ""
            accounts.setdefault((user, only), {})[account] = None
    users: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (user, only), names in accounts.items():
        users.setdefault((tuple(names), only), []).append(user)
    for (from_accounts, only), leaving in users.items():
        for some in plan.some(leaving):
            plan.add(
                f"delete user where name={','.join(some)} account={','.join(from_accounts)} {where}{only}", len(some) * len(from_accounts)
            )
    for account in sorted((key[0] for key in gone if not key[1]), key=lambda name: -len(chain(name))):
        # What is below it then has no account above it any longer, and it would be so where a move out of it was refused.
        plan.lines.append(Line(f"delete account where name={account} {where}", last=True))
    spared, _keys = desired.spared(live)
    for name in sorted(live.qos.keys() - spared):
        used = _users_of_qos(name, desired, live, gone, spared)
        if used:
            plan.kept.append(f"QoS {name} stays, for {used} has it, which this does not change; take it from there.")
            continue
        plan.lines.append(Line(f"delete qos where name={name}", last=True))
        plan.differs(f"qos {name}", accounting.plain(live.qos[name].fields), None)


def _users_of_qos(name: str, desired: Desired, live: Live, gone: frozenset[Key], spared: frozenset[str]) -> str:
    """Return in words what keeps a QoS; "" for one that nobody has."""
    for key, one in live.associations.items():
        if key in gone:
            continue
        wanted = desired.associations.get(key) if one.user else desired.accounts.get(one.account)
        fields = {**one.fields, **(wanted.fields if wanted else {})}
        named = fields.get("QOS")
        if fields.get("DefaultQOS") == name or (isinstance(named, tuple) and name in named):
            return _title(key)
    for other, qos in live.qos.items():
        asked = desired.qos.get(other)
        named = {**qos.fields, **(asked.fields if asked else {})}.get("Preempt")
        if isinstance(named, tuple) and name in named and other in spared:
            return f"qos {other}"
    return ""


def _holds(plan: Plan, desired: Desired, live: Live) -> None:
    """A hold of this collection's comes and goes by its mark alone; one that already has the limit 0 needs none."""
    if desired.held is None:
        return
    where = f"cluster={live.cluster}"
    for key, one in live.associations.items():
        wanted = key in desired.held and (one.held or one.fields.get(accounting.HOLD) != 0)
        if wanted == one.held and not (one.marked and not wanted):
            continue
        account, user, partition = key
        which = (
            f"user where name={user} account={account} {where} partition={partition}" if user else f"account where name={account} {where}"
        )
        plan.add(" ".join([f"modify {which} set", *(one.hold() if wanted else one.release())]))
        plan.differs(_title(key), {"held": one.held}, {"held": wanted})


def _association_words(known: accounting.Association | None, wanted: Fields) -> list[str]:
    """Return what sets an association's fields. Of one that is held, the limit of the hold stays, and its mark gets the one that is to come back."""
    words = _words(accounting.ASSOCIATION_FIELDS, known.fields if known else {}, wanted)
    if known is None or not known.held:
        return words
    kept = [word for word in words if not word.startswith(f"{accounting.HOLD}=")]
    return kept if len(kept) == len(words) else [*kept, known.mark(wanted[accounting.HOLD])]


def _words(kinds: dict[str, str], before: Fields, after: Fields) -> list[str]:
    return accounting.assignments(kinds, before, after)


def _changed(before: Fields, after: Fields) -> dict[str, Any]:
    return accounting.plain({name: before.get(name) for name, target in after.items() if before.get(name) != target})


def _changing(before: Fields, after: Fields) -> dict[str, Any]:
    return accounting.plain({name: target for name, target in after.items() if before.get(name) != target})


def _title(key: Key) -> str:
    account, user, partition = key
    if not user:
        return f"account {account}"
    return f"user {user} in account {account}{f' on partition {partition}' if partition else ''}"


def _quoted(text: str) -> str:
    return f'"{text}"'
