# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of slurm_usage: all periods that are asked for in one exec, and holds by the same way as all changes of tenants."""

from __future__ import annotations

import time
from datetime import tzinfo
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import budgets, output, usage
from ansible_collections.corral.slurm.plugins.module_utils._slurm.tenancy import Desired
from ansible_collections.corral.slurm.plugins.module_utils._slurm.usage import Period
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld import tenants
from ansible_collections.corral.slurm.plugins.module_utils._slurmctld.slurmctld import Slurmctld, connected

# A month of a million jobs took two minutes on a busy machine.
_READ = 1800.0
# Beyond now, wherever the clocks of both sides are: the pod's decides.
_DAY = 86400

Params = dict[str, Any]


def run(params: Params, *, check: bool, diff: bool) -> dict[str, Any]:
    """Report usage, and hold or release what budgets ask for; the parameters are those of the module slurm_usage."""
    where = usage.zone(str(params["timezone"]))
    prices = usage.prices_of(params["prices"])
    marks = sorted({int(mark) for mark in params["marks"]})
    wanted = budgets.read(params["budgets"] or [], where, prices)
    holds = bool(params["hold"])
    now = int(time.time())
    period = _period(params, now, where)
    if holds and period.end < now:
        raise CorralError("hold needs usage until now, and the period is over; leave out month, start and end. Nothing was changed.")
    counted = {one.path: one.period(period.end, now, where) for one in wanted}
    asked = list(dict.fromkeys([period, *counted.values()]))
    with connected(params) as client:
        slurmctld = Slurmctld(client, params)
        live = tenants.read(slurmctld) if wanted else None
        if live:  # a wrong name costs no minutes
            budgets.check(wanted, live)
        found = usage.parse(tenants.ask(slurmctld, usage.command(asked), "the usage of jobs", _READ))
        sums = dict(zip(asked, found, strict=True))
        period, cells = sums[period]
        by_period = {one: budgets.Used(*sums[one], prices) for one in set(counted.values())}
        used = {path: by_period[one] for path, one in counted.items()}
        result: dict[str, Any] = {"changed": False}
        if holds:
            _before, plan, live = tenants.converge(
                slurmctld, lambda live: Desired(held=budgets.held(budgets.states(wanted, used, live, marks), live)), check=check
            )
            result = tenants.result(plan, diff, "holds")
        by = [str(name) for name in params["by"]]
        rows, totals = usage.rows(cells, by, prices), usage.total(cells, prices).to_dict(prices)
        known = budgets.states(wanted, used, live, marks) if live else []
        report = [one.to_dict(live) for one in known] if live else []
        warnings = [sentence for one in known if (sentence := one.warning(where, prices.currency))]
        warnings += budgets.escapes(known, live) if live else []
        return {
            **result,
            "start": output.stamp(period.start),
            "end": output.stamp(period.end),
            "rows": rows,
            "totals": totals,
            "currency": prices.currency,
            "budgets": report,
            "text": usage.render(str(params["format"]), period, by, rows, totals, report),
            "requests": client.requests,
            **({"warnings": warnings} if warnings else {}),
        }


def _period(params: Params, now: int, where: tzinfo) -> Period:
    if params["month"] is not None:
        found = usage.month(str(params["month"]), where)
    elif params["start"] is not None:
        start = usage.moment(str(params["start"]), "start", where)
        found = Period(start, usage.moment(str(params["end"]), "end", where) if params["end"] is not None else max(start, now) + _DAY)
    else:
        found = usage.month_of(now, where)
    if found.end <= found.start:
        raise CorralError("end is not after start; the period goes from start to before end.")
    if found.start > now:
        raise CorralError("The period has not begun; choose one that has.")
    return found
