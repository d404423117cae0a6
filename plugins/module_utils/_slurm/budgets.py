# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Budgets of accounts and users: how much of one is used, which marks that passes, and which associations are held for it. Pure.

A hold is the limit GrpJobs=0 of an association: Slurm starts none of its jobs any longer, with its own reason AssocGrpJobsLimit, and lets those that run
end. GrpTRESMins would end them unless slurm.conf enforces ``safe``, and counts what the priority plugin lets decay.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from fractions import Fraction
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError, quoted
from ansible_collections.corral.slurm.plugins.module_utils._slurm import output, usage
from ansible_collections.corral.slurm.plugins.module_utils._slurm.accounting import HOLD, ROOT, Key, Live
from ansible_collections.corral.slurm.plugins.module_utils._slurm.usage import Cell, Period, Prices, Sum

_HOURS = {f"{resource}_hours": resource for resource in usage.RESOURCES}
_LIMITS = (*_HOURS, "cost")
_KNOWN = ("account", "user", *_LIMITS, "period", "start")
_FULL = 100


@dataclass(frozen=True)
class Budget:
    """What an account with all below it, a user, or a user in an account may use in a period."""

    path: str
    account: str
    user: str
    unit: str
    limit: Fraction
    # None for a month, else since when.
    since: int | None

    @property
    def name(self) -> str:
        """Return whose it is."""
        return " in ".join(f"{what} {name}" for what, name in (("user", self.user), ("account", self.account)) if name)

    def period(self, end: int, now: int, where: tzinfo) -> Period:
        """Return what is counted for a report that goes to ``end``: the month in which it ends, or all since the budget's start."""
        return Period(usage.month_of(min(end - 1, now), where).start if self.since is None else self.since, end)

    def keys(self, live: Live) -> list[Key]:
        """Return the associations that are held for it."""
        if not self.user:
            return [(self.account, "", "")]
        return [one.key for one in live.by_user.get(self.user, ()) if self.account in ("", one.account)]


@dataclass(frozen=True)
class State:
    """How much of a budget is used."""

    budget: Budget
    period: Period
    used: Fraction
    mark: int

    @property
    def exhausted(self) -> bool:
        """Whether all of it is used."""
        return self.used >= self.budget.limit

    @property
    def share(self) -> float:
        """The used share in percent, rounded down, so that 100 is shown of all of it alone."""
        return int(self.used * 1000 / self.budget.limit) / 10

    def to_dict(self, live: Live) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "name": self.budget.name,
            "account": self.budget.account,
            "user": self.budget.user,
            "unit": self.budget.unit,
            "period": "month" if self.budget.since is None else "total",
            "start": output.stamp(self.period.start),
            "end": output.stamp(self.period.end),
            "limit": usage.rounded(self.budget.limit),
            "used": usage.rounded(self.used),
            "share": self.share,
            "mark": self.mark,
            "held": _held(self.budget.keys(live), live),
        }

    def warning(self, where: tzinfo, currency: str) -> str:
        """Return a sentence on the mark that it has passed; "" for none."""
        if not self.mark:
            return ""
        since = datetime.fromtimestamp(self.period.start, where)
        when = f"in {since:%Y-%m}" if self.budget.since is None else f"since {since:%Y-%m-%d}"
        unit = (currency or "of cost") if self.budget.unit == "cost" else self.budget.unit.replace("_", "-")
        limit, used = usage.rounded(self.budget.limit), usage.rounded(self.used)
        return f"{self.budget.path}: {self.budget.name} has used {self.share} % of its {limit:.2f} {unit} {when}, {used:.2f}."


class Used:
    """What jobs have used in a period, by account and user: thousands of users may have a budget each."""

    def __init__(self, period: Period, cells: Iterable[Cell], prices: Prices) -> None:
        self.period = period
        self._by_account: dict[str, dict[str, Sum]] = {}
        self._by_user: dict[str, dict[str, Sum]] = {}
        for cell in cells:
            one = self._by_account.setdefault(cell.account, {}).setdefault(cell.user, Sum())
            one.add(cell, prices)
            self._by_user.setdefault(cell.user, {})[cell.account] = one

    def of(self, accounts: set[str] | None, user: str) -> Sum:
        """Return the sum of some accounts, None for all, and of a user, "" for all."""
        found = Sum()
        if user:
            by_account = self._by_user.get(user, {})
            parts = [one for account, one in by_account.items() if accounts is None or account in accounts]
        else:
            parts = [one for account in accounts or () for one in self._by_account.get(account, {}).values()]
        for one in parts:
            found.merge(one)
        return found


def read(given: list[dict[str, Any]], where: tzinfo, prices: Prices) -> list[Budget]:
    """Return the budgets of an option. Raises CorralError."""
    found: list[Budget] = []
    for number, one in enumerate(given):
        budget = _budget(one, f"budgets[{number}]", where, prices)
        same = next((other for other in found if (other.account, other.user, other.unit, other.since) == _same(budget)), None)
        if same is not None:
            raise CorralError(f"{budget.path} is for {budget.name} again, as {same.path} is; leave one out.")
        found.append(budget)
    return found


def _same(budget: Budget) -> tuple[str, str, str, int | None]:
    return budget.account, budget.user, budget.unit, budget.since


def _budget(one: dict[str, Any], path: str, where: tzinfo, prices: Prices) -> Budget:
    for key in one:
        if key not in _KNOWN:
            near = difflib.get_close_matches(str(key), _KNOWN, 1)
            raise CorralError(
                f"{path} has {quoted(str(key))}, which no budget has; {f'{near[0]} may be meant' if near else 'it can have ' + ', '.join(_KNOWN)}."
            )
    account, user = (str(one.get(key) or "") for key in ("account", "user"))
    if not account and not user:
        raise CorralError(f"{path} has neither account nor user; name whose budget it is.")
    if ROOT in (account, user):
        raise CorralError(f"{path} is for root, whom Slurm does not limit; give the accounts below it budgets.")
    units = [unit for unit in _LIMITS if one.get(unit) is not None]
    if len(units) != 1:
        raise CorralError(f"{path} has {' and '.join(units) or 'no limit'}; give it one of {', '.join(_LIMITS)}.")
    unit = units[0]
    if unit == "cost" and not prices:
        raise CorralError(f"{path}.cost needs prices; set the option prices too.")
    limit = usage.amount(one[unit], f"{path}.{unit}", "what may be used")
    if not limit:
        raise CorralError(f"{path}.{unit} is 0; give it an amount above 0, or set the limit GrpJobs to 0 where nothing may run.")
    period = one.get("period") or ("total" if one.get("start") else "month")
    if period not in ("month", "total"):
        raise CorralError(f"{path}.period is {quoted(str(period))}; it must be month or total.")
    if (period == "total") != bool(one.get("start")):
        raise CorralError(f"{path}.start goes with the period total, which counts from it on; set both, or neither for each month.")
    since = usage.moment(str(one["start"]), f"{path}.start", where) if one.get("start") else None
    return Budget(path, account, user, unit, limit, since)


def check(wanted: Iterable[Budget], live: Live) -> None:
    """Raise CorralError for a budget of somebody whom Slurm does not know."""
    for one in wanted:
        if one.account and live.account(one.account) is None:
            raise CorralError(
                f"{one.path}.account is {one.account}, and there is no account of that name; make it first, or correct the name."
            )
        if one.user and not one.keys(live):
            below = f" in account {one.account}" if one.account else ""
            raise CorralError(
                f"{one.path}.user is {one.user}, and there is no user of that name{below}; make them first, or correct the name."
            )


def states(wanted: Iterable[Budget], used: dict[str, Used], live: Live, marks: list[int]) -> list[State]:
    """Return how much of each budget is used; ``used`` has what belongs to it by its path."""
    children: dict[str, list[str]] = {}
    for one in live.associations.values():
        if not one.user:
            children.setdefault(one.parent, []).append(one.account)
    return [_state(one, used[one.path], _below(one.account, children) if one.account else None, marks) for one in wanted]


def _state(budget: Budget, used: Used, accounts: set[str] | None, marks: list[int]) -> State:
    found = used.of(accounts, budget.user)
    amount = found.cost if budget.unit == "cost" else Fraction(found.seconds[_HOURS[budget.unit]], 3600)
    passed = [mark for mark in marks if amount * _FULL >= mark * budget.limit]
    return State(budget, used.period, amount, max(passed, default=0))


def held(found: Iterable[State], live: Live) -> frozenset[Key]:
    """Return the associations to hold. Raises CorralError where Slurm would not heed it."""
    keys = frozenset(key for one in found if one.exhausted for key in one.budget.keys(live))
    if keys and "limits" not in live.enforced:
        raise CorralError(
            "Slurm does not enforce limits here, so it would start jobs all the same; add associations and limits to spec.accounting.enforce. "
            "Nothing was changed."
        )
    return keys


def escapes(found: Iterable[State], live: Live) -> Iterator[str]:
    """Yield a sentence for each QoS whose own limit supersedes that of an association, where one is held."""
    if any(_held(one.budget.keys(live), live) for one in found):
        for name, qos in live.qos.items():
            if HOLD in qos.fields:
                yield f"QoS {name} has the limit {HOLD}, which supersedes that of accounts and users, so its jobs are not held; remove it from the QoS."


def _held(keys: list[Key], live: Live) -> bool:
    """Whether all of them are held, by this collection or by somebody else, themselves or by an account above."""

    def one(key: Key) -> bool:
        found = live.associations.get(key)
        if found is None:
            return False
        above = found.account if found.user else found.parent
        return found.held or found.fields.get(HOLD) == 0 or (bool(above) and one((above, "", "")))

    return bool(keys) and all(one(key) for key in keys)


def _below(account: str, children: dict[str, list[str]]) -> set[str]:
    """Return an account and all accounts below it."""
    found, left = {account}, [account]
    while left:
        new = [child for child in children.get(left.pop(), ()) if child not in found]
        found.update(new)
        left += new
    return found
