# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What jobs have used in a period, by account, user, QoS and partition: how sacct is asked, prices, and how it is shown. Pure.

sreport knows neither QoS nor partitions, so sacct is asked, with ``--truncate``: it counts what of a job is within the period, less the time in which the
job was suspended. It is asked day by day, because slurmdbd and sacct keep all jobs of a query in memory: of a million jobs it was 6 GiB. An awk in the pod
adds them up, so that as many lines come back as there are combinations. All sums are whole seconds; only what is shown is rounded.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError, quoted
from ansible_collections.corral.slurm.plugins.module_utils._slurm import output

RESOURCES = ("cpu", "gpu", "node", "billing")
_DAY = 86400
_HOUR = 3600
_SECTION = "== corral "

# A job that was requeued has a record of each run, which --duplicates counts. It counts as a job where it ends, or in the last day. A record without
# AllocTRES has not run; one that is shown for a day on which it was only eligible begins behind that day. A line for each day keeps the connection alive.
_SUM = (
    r"""
function show(  key) {
  for (key in seen)
    printf "%s|%.0f|%.0f|%.0f|%.0f|%.0f\n", key, jobs[key], cpu[key], gpu[key], node[key], billing[key]
  split("", seen); split("", jobs); split("", cpu); split("", gpu); split("", node); split("", billing)
}
/^"""
    + _SECTION
    + r"""/ {
  split($0, word, " ")
  if (word[3] == "range") { show(); print; first = word[4] + 0; last = word[5] + 0 }
  else if (word[3] == "day") { print; fflush(); to = word[5] + 0 }
  else { failed = 1; exit }
  next
}
$8 != "" {
  key = $1 "|" $2 "|" $3 "|" $4
  if ($5 + 0 < to && $6 + 0 > first && ($6 + 0 < to || to == last)) { seen[key] = 1; jobs[key]++ }
  if ($7 + 0 <= 0) next
  seen[key] = 1
  typed = 0; generic = 0
  count = split($8, pair, ",")
  for (i = 1; i <= count; i++) {
    split(pair[i], one, "=")
    if (one[1] == "cpu") cpu[key] += $7 * one[2]
    else if (one[1] == "node") node[key] += $7 * one[2]
    else if (one[1] == "billing") billing[key] += $7 * one[2]
    else if (one[1] == "gres/gpu") generic = one[2]
    else if (one[1] ~ /^gres\/gpu:/) typed += one[2]
  }
  gpu[key] += $7 * (generic ? generic : typed)
}
END { if (failed) exit 1; show() }
"""
)
_SCRIPT = f"""
now=$(date +%s)
export SLURM_TIME_FORMAT=%s
ask() {{
  while [ $# -gt 1 ]; do
    from=$1 last=$2
    [ "$last" -le "$now" ] || last=$now
    echo "{_SECTION}range $1 $last"
    while [ "$from" -lt "$last" ]; do
      to=$((from + {_DAY}))
      [ "$to" -le "$last" ] || to=$last
      echo "{_SECTION}day $from $to"
      sacct --allusers --allocations --duplicates --truncate --noconvert --noheader --parsable2 --starttime="uts$from" --endtime="uts$to" \\
        --format=Account,User,QOS,Partition,Start,End,ElapsedRaw,AllocTRES || {{ echo "{_SECTION}failed"; return; }}
      from=$to
    done
    shift 2
  done
}}
ask "$@" | awk -F'|' "$AWK"
"""


@dataclass(frozen=True, order=True)
class Period:
    """From the first second to before the last, in seconds since 1970."""

    start: int
    end: int


@dataclass(frozen=True)
class Cell:
    """What the jobs of one combination have used, in seconds of each resource."""

    account: str
    user: str
    qos: str
    partition: str
    jobs: int
    cpu: int
    gpu: int
    node: int
    billing: int


@dataclass
class Sum:
    """What several cells add up to."""

    jobs: int = 0
    seconds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RESOURCES, 0))
    cost: Fraction = Fraction(0)

    def add(self, cell: Cell, prices: Prices) -> None:
        """Add a cell."""
        self.jobs += cell.jobs
        for resource in RESOURCES:
            self.seconds[resource] += getattr(cell, resource)
        self.cost += prices.cost(cell)

    def merge(self, other: Sum) -> None:
        """Add another sum."""
        self.jobs += other.jobs
        for resource in RESOURCES:
            self.seconds[resource] += other.seconds[resource]
        self.cost += other.cost

    def to_dict(self, prices: Prices) -> dict[str, Any]:
        """Return plain JSON types: whole seconds, and hours and a cost that are rounded."""
        return {
            "jobs": self.jobs,
            **{f"{resource}_seconds": amount for resource, amount in self.seconds.items()},
            **{f"{resource}_hours": rounded(Fraction(amount, _HOUR)) for resource, amount in self.seconds.items()},
            **({"cost": rounded(self.cost)} if prices else {}),
        }


@dataclass(frozen=True)
class Prices:
    """What an hour costs: by resource, and in a partition or with a QoS where that is another."""

    general: dict[str, Fraction] = field(default_factory=dict)
    partitions: dict[str, dict[str, Fraction]] = field(default_factory=dict)
    qos: dict[str, dict[str, Fraction]] = field(default_factory=dict)
    currency: str = ""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.general or self.partitions or self.qos)

    def cost(self, cell: Cell) -> Fraction:
        """Return what a cell costs, exactly."""
        rates = {**self.general, **self.partitions.get(cell.partition, {}), **self.qos.get(cell.qos, {})}
        return sum((price * getattr(cell, resource) for resource, price in rates.items()), Fraction(0)) / _HOUR


def command(periods: Iterable[Period]) -> list[str]:
    """Return the command that prints what jobs have used in each period."""
    numbers = [str(number) for period in periods for number in (period.start, period.end)]
    return ["env", f"AWK={_SUM}", "sh", "-c", _SCRIPT, "corral", *numbers]


def parse(text: str) -> list[tuple[Period, list[Cell]]]:
    """Return what the command has printed, in the order of its periods; one that is not over ends now. Raises OutputError."""
    found: list[tuple[Period, list[Cell]]] = []
    try:
        for line in text.splitlines():
            if line.startswith(f"{_SECTION}day"):
                continue
            if line.startswith(_SECTION):
                start, end = (int(number) for number in line.split()[-2:])
                found.append((Period(start, end), []))
            else:
                account, user, qos, partition, *numbers = line.split("|")
                jobs, cpu, gpu, node, billing = (int(number) for number in numbers)
                found[-1][1].append(Cell(account, user, qos, partition, jobs, cpu, gpu, node, billing))
    except (ValueError, IndexError) as error:
        raise output.OutputError(
            f"The sums of sacct's records have an unknown line ({error}); see whether the image's awk works."
        ) from error
    return found


def rows(cells: Iterable[Cell], by: list[str], prices: Prices) -> list[dict[str, Any]]:
    """Return what jobs have used by what is asked for, sorted by it."""
    sums: dict[tuple[str, ...], Sum] = {}
    for cell in cells:
        sums.setdefault(tuple(getattr(cell, name) for name in by), Sum()).add(cell, prices)
    return [{**dict(zip(by, key, strict=True)), **one.to_dict(prices)} for key, one in sorted(sums.items())]


def total(cells: Iterable[Cell], prices: Prices) -> Sum:
    """Return what they add up to."""
    found = Sum()
    for cell in cells:
        found.add(cell, prices)
    return found


def prices_of(given: dict[str, Any] | None) -> Prices:
    """Return the prices of an option. Raises CorralError."""
    known = (*RESOURCES, "currency", "partitions", "qos")
    general = _rates({name: one for name, one in (given or {}).items() if name not in known[-3:]}, "prices", known)
    parts: dict[str, dict[str, dict[str, Fraction]]] = {}
    for part in ("partitions", "qos"):
        named = (given or {}).get(part) or {}
        if not isinstance(named, dict):
            raise CorralError(f"prices.{part} is not a mapping; write it as {{gpu: {{gpu: 1.5}}}}, a name with its prices.")
        parts[part] = {str(name): _rates(one, f"prices.{part}.{name}", RESOURCES) for name, one in named.items()}
    return Prices(general, parts["partitions"], parts["qos"], str((given or {}).get("currency") or ""))


def _rates(given: Any, path: str, known: tuple[str, ...]) -> dict[str, Fraction]:
    if not isinstance(given, dict):
        raise CorralError(f"{path} is not a mapping; write it as {{cpu: 0.02, gpu: 1.5}}, the price of an hour of each.")
    for name in given:
        if name not in RESOURCES:
            raise CorralError(f"{path} has {quoted(str(name))}, which has no price; it can have {', '.join(known)}.")
    return {str(name): amount(one, f"{path}.{name}", "the price of an hour") for name, one in given.items()}


def amount(given: Any, path: str, what: str) -> Fraction:
    """Return a number from 0 on, exactly as it is written. Raises CorralError."""
    try:
        found = Fraction(str(given).strip())
    except (ValueError, ZeroDivisionError):
        found = Fraction(-1)
    if isinstance(given, bool) or found < 0:
        raise CorralError(f"{path} is {quoted(str(given))}; it must be {what}, a number from 0 on.")
    return found


def zone(name: str) -> tzinfo:
    """Return a time zone. Raises CorralError."""
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise CorralError(
            f"timezone is {quoted(name)}, which is no time zone that Python knows here; write one such as Europe/Berlin, or UTC."
        ) from error


def moment(given: str, path: str, where: tzinfo) -> int:
    """Return a date, or a date and a time, as seconds since 1970; one without an offset is of the time zone. Raises CorralError."""
    try:
        found = datetime.fromisoformat(given.strip())
    except ValueError as error:
        raise CorralError(
            f'{path} is {quoted(given)}; it must be a date, or a date with a time, such as 2026-10-01 or "2026-10-01T12:00:00".'
        ) from error
    return int((found if found.tzinfo else found.replace(tzinfo=where)).timestamp())


def month(given: str, where: tzinfo) -> Period:
    """Return a month that is written as 2026-10. Raises CorralError."""
    try:
        first = datetime.strptime(given.strip(), "%Y-%m").replace(tzinfo=where)
    except ValueError as error:
        raise CorralError(f"month is {quoted(given)}; it must be a year and a month, such as 2026-10.") from error
    return _month(first)


def month_of(second: int, where: tzinfo) -> Period:
    """Return the month that a second is in."""
    return _month(datetime.fromtimestamp(second, where).replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0))


def _month(first: datetime) -> Period:
    after = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return Period(int(first.timestamp()), int(after.timestamp()))


def rounded(exact: Fraction) -> float:
    """Return a number with two decimals, which is how hours and costs are shown."""
    return float(round(exact, 2))


def render(
    form: str, period: Period, by: list[str], found: list[dict[str, Any]], totals: dict[str, Any], budgets: list[dict[str, Any]]
) -> str:
    """Return a report as JSON, CSV or a table."""
    if form == "json":
        report = {"start": output.stamp(period.start), "end": output.stamp(period.end), "rows": found, "totals": totals, "budgets": budgets}
        return json.dumps(report, indent=2) + "\n"
    if form == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, [*by, *totals], lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
        return text.getvalue()
    shown = [name for name in totals if not name.endswith("_seconds")]
    table = [[*by, *shown], *([str(row[name]) for name in by] + [_cell(row[name]) for name in shown] for row in found)]
    if by:
        table.append(["total", *([""] * (len(by) - 1)), *(_cell(totals[name]) for name in shown)])
    text_table = _table(table, len(by))
    if budgets:
        text_table += "\n" + _table(
            [["budget", "period", "limit", "used", "share", "held"]]
            + [
                [
                    one["name"],
                    one["period"],
                    *(_cell(one[key]) for key in ("limit", "used")),
                    f"{one['share']} %",
                    "yes" if one["held"] else "no",
                ]
                for one in budgets
            ],
            2,
        )
    return f"{output.stamp(period.start)} to {output.stamp(period.end)}\n\n{text_table}"


def _cell(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _table(lines: list[list[str]], left: int) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    padded = [
        [cell.ljust(width) if number < left else cell.rjust(width) for number, (cell, width) in enumerate(zip(line, widths, strict=True))]
        for line in lines
    ]
    return "".join(f"{'  '.join(line).rstrip()}\n" for line in padded)
