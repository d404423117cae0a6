# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reservations of ``scontrol show reservations --json``, and the commands that bring one to its wanted state. Pure.

Times go to scontrol as ``uts<seconds since 1970>``, which no time zone can change. One that recurs is moved on by slurmctld when each time is over, and
keeps its length; its start is in its wanted state when it is a whole number of periods away. That counts in UTC, which is slurmctld's time zone in its pod.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ansible_collections.corral.slurm.plugins.module_utils._errors import CorralError
from ansible_collections.corral.slurm.plugins.module_utils._slurm import hostlist, output

# slurmctld sets these by itself, or they say how nodes were chosen: no part of what one asks for.
_AUTOMATIC = frozenset({"ALL_NODES", "REOCCURRING", "SPEC_NODES", "TRES_PER_NODE"})
# The JSON of 24.11 does not show it, that of 26.05 does.
_HIDDEN = frozenset({"REPLACE_DOWN"})
# What scontrol takes for a flag (parse_resv_flags in src/common/proc_args.c, the first that fits): the word or a beginning of it of so many letters; and
# what the JSON calls it (data_parser), which scontrol takes too.
_FLAGS = (
    ("MAINTENANCE", 3, "MAINT"),
    ("OVERLAP", 1, "OVERLAP"),
    ("FLEX", 1, "FLEX"),
    ("IGNORE_JOBS", 1, "IGNORE_JOBS"),
    ("HOURLY", 1, "HOURLY"),
    ("DAILY", 1, "DAILY"),
    ("WEEKDAY", 1, "WEEKDAY"),
    ("WEEKEND", 1, "WEEKEND"),
    ("WEEKLY", 1, "WEEKLY"),
    ("ANY_NODES", 1, "ANY_NODES"),
    ("LICENSE_ONLY", 1, "ANY_NODES"),
    ("STATIC_ALLOC", 1, "STATIC"),
    ("PART_NODES", 2, "PART_NODES"),
    ("MAGNETIC", 3, "MAGNETIC"),
    ("PROMISCUOUS", 2, "MAGNETIC"),
    ("PURGE_COMP", 2, "PURGE_COMP"),
    ("TIME_FLOAT", 1, "TIME_FLOAT"),
    ("REPLACE", 1, "REPLACE"),
    ("REPLACE_DOWN", 8, "REPLACE_DOWN"),
    ("NO_HOLD_JOBS_AFTER_END", 1, "NO_HOLD_JOBS_AFTER_END"),
    ("USER_DELETE", 1, "USER_DELETE"),
    ("FORCE_START", 2, "FORCE_START"),
)
_DAY = 24 * 3600
# How far slurmctld moves one of these flags, in seconds, and to which days of the week.
_PERIODS = {
    "HOURLY": (3600, range(7)),
    "DAILY": (_DAY, range(7)),
    "WEEKDAY": (_DAY, range(5)),
    "WEEKEND": (_DAY, range(5, 7)),
    "WEEKLY": (7 * _DAY, range(7)),
}
# A year, which is what slurmctld makes of UNLIMITED.
_UNLIMITED = 365 * 24 * 60
_DURATION = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")
_RELATIVE = re.compile(r"(now|today|tomorrow|midnight|noon|fika|teatime)(\+\d+[a-z]*)?", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_FLAG = re.compile(r"[A-Z][A-Z0-9_]*")
# No value before the comment has white space in it; what is in the comment counts for nothing.
_COMMENT = re.compile(r"ReservationName=(\S+) .*? Comment=(.*)")


@dataclass(frozen=True)
class Reservation:
    """One reservation; ``start`` and ``end`` are seconds since 1970."""

    name: str
    nodes: str
    node_count: int
    users: list[str]
    accounts: list[str]
    start: int
    end: int
    flags: list[str]
    partition: str
    features: str

    def to_dict(self, now: float) -> dict[str, Any]:
        """Return plain JSON types, times as text too."""
        return {
            **asdict(self),
            "start_time": output.stamp(self.start),
            "end_time": output.stamp(self.end),
            "active": self.start <= now < self.end,
        }

    @property
    def asked_flags(self) -> set[str]:
        """The flags that somebody asked for."""
        return set(self.flags) - _AUTOMATIC

    @property
    def whole(self) -> bool:
        """True when it was made of all nodes, be they those of its partition."""
        return not {"ALL_NODES", "PART_NODES"}.isdisjoint(self.flags)


@dataclass(frozen=True)
class Wanted:
    """How a reservation should be; what is None is not compared. ``start`` is seconds, or words that only slurmctld understands (``now``)."""

    name: str
    nodes: str | None = None
    node_count: int | None = None
    users: list[str] | None = None
    accounts: list[str] | None = None
    start: int | str | None = None
    end: int | None = None
    minutes: int | None = None
    flags: set[str] | None = None
    partition: str | None = None
    features: str | None = None


def parse(text: str) -> list[Reservation]:
    """Return the reservations of scontrol's JSON in its order. Raises OutputError."""
    return [
        Reservation(
            name=str(row["name"]),
            nodes=str(row.get("node_list") or ""),
            node_count=output.number(row.get("node_count")),
            users=output.strings(row.get("users")),
            accounts=output.strings(row.get("accounts")),
            start=output.number(row.get("start_time")),
            end=output.number(row.get("end_time")),
            flags=output.strings(row.get("flags")),
            partition=str(row.get("partition") or ""),
            features=str(row.get("features") or ""),
        )
        for row in output.rows(text, "reservations")
    ]


def commented(text: str, comment: str) -> frozenset[str]:
    """Return the names of those with this comment, which the JSON of 24.11 does not show; ``text`` is ``scontrol show reservations --oneliner``'s."""
    found = (_COMMENT.fullmatch(line.strip()) for line in text.splitlines())
    return frozenset(match[1] for match in found if match and match[2] == comment)


def current(desired: Wanted, live: Reservation | None, now: float) -> Wanted | None:
    """Return what one with a start and an end has to be by now; None for one that is over.

    slurmctld takes no start in the past: one that has begun begins now, and one that recurs at its next time.
    """
    start, minutes = desired.start if isinstance(desired.start, int) else int(now), desired.minutes
    if minutes is None:
        minutes = ((desired.end or start) - start) // 60
    recurs = next((flag for flag in _PERIODS if flag in (desired.flags or ())), "")
    if recurs:
        period, days = _PERIODS[recurs]
        start += max(0, -(int(start - now) // period)) * period
        while datetime.fromtimestamp(start, UTC).weekday() not in days:
            start += _DAY
        return replace(desired, start=start, end=None, minutes=minutes)
    end = start + 60 * minutes
    if end <= now:
        return None
    if start > now:
        return desired
    return replace(desired, start=int(now) if live and live.start > now else "now", end=end, minutes=None)


def wanted(params: dict[str, Any]) -> Wanted:
    """Return what a task asks for; the parameters are those of the module slurm_reservation. Raises CorralError."""
    name = str(params["name"])
    if not _NAME.fullmatch(name):
        raise CorralError(f"The reservation's name {name!r} has other characters than letters, digits and _ . -; choose another.")
    if params.get("state") == "absent":
        return Wanted(name)
    nodes = params.get("nodes")
    if nodes is not None and nodes.upper() == "ALL":
        nodes = "ALL"
    elif nodes is not None:
        hostlist.expand(nodes)  # refuses what is none
    flags = params.get("flags")
    return Wanted(
        name=name,
        nodes=nodes,
        node_count=params.get("node_count"),
        users=_names(params.get("users"), "user"),
        accounts=_names(params.get("accounts"), "account"),
        start=_start(params.get("start")),
        end=_time(str(params["end"]), "end") if params.get("end") is not None else None,
        minutes=_minutes(str(params["duration"])) if params.get("duration") is not None else None,
        flags=None if flags is None else {_flag(str(flag)) for flag in flags} - _AUTOMATIC,
        partition=params.get("partition"),
        features=params.get("features"),
    )


def difference(live: Reservation | None, desired: Wanted) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what differs, as it is and in its wanted state; two empty dicts where nothing does."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}

    def compare(key: str, has: Any, target: Any) -> None:
        if has != target:
            before[key], after[key] = has, target

    if live is None:
        return {}, _asked(desired)
    if desired.nodes == "ALL":
        compare("nodes", "ALL" if live.whole else live.nodes, "ALL")
    elif desired.nodes is not None and set(hostlist.expand(desired.nodes)) != set(hostlist.expand(live.nodes)):
        compare("nodes", live.nodes, desired.nodes)
    if desired.node_count is not None:
        compare("node_count", live.node_count, desired.node_count)
    if desired.users is not None:
        compare("users", sorted(live.users), sorted(desired.users))
    if desired.accounts is not None:
        compare("accounts", sorted(live.accounts), sorted(desired.accounts))
    start, end = _times(live, desired)
    compare("start", output.stamp(live.start), output.stamp(start))
    compare("end", output.stamp(live.end), output.stamp(end))
    if desired.flags is not None:
        compare("flags", sorted(live.asked_flags - _HIDDEN), sorted(desired.flags - _HIDDEN))
    if desired.partition is not None:
        compare("partition", live.partition, desired.partition)
    if desired.features is not None:
        compare("features", live.features, desired.features)
    return before, after


def commands(live: Reservation | None, desired: Wanted) -> list[list[str]]:
    """Return the commands that make a reservation in its wanted state. Raises CorralError when too little is said to make a new one."""
    if live is None:
        return [["scontrol", "create", "reservation", *_creation(desired)]]
    before, after = difference(live, desired)
    if not after:
        return []
    names = {"nodes": "nodes", "node_count": "nodecnt", "partition": "partitionname", "features": "features"}
    arguments = [f"{name}={after[key]}" for key, name in names.items() if key in after]
    arguments.extend(f"{key}={','.join(after[key])}" for key in ("users", "accounts") if key in after)
    removed: list[str] = []
    start, end = _times(live, desired)
    if "start" in after:
        arguments.append(f"starttime=uts{start}")
    if "end" in after:
        arguments.append(f"endtime=uts{end}")
    if "flags" in after:
        more, less = sorted(set(after["flags"]) - set(before["flags"])), sorted(set(before["flags"]) - set(after["flags"]))
        if more:
            arguments.append(f"flags+={','.join(more)}")
        # One update takes flags of one sign; and slurmctld refuses one that does not go with another, WEEKLY with DAILY for instance.
        if less and more:
            removed = [f"flags-={','.join(less)}"]
        elif less:
            arguments.append(f"flags-={','.join(less)}")
    update = ["scontrol", "update", f"reservationname={desired.name}"]
    return [*([[*update, *removed]] if removed else []), [*update, *arguments]]


def _times(live: Reservation, desired: Wanted) -> tuple[int, int]:
    """Return the start and the end that it should have: those of the time that slurmctld shows, or of the first after that, where it recurs."""
    flags = live.asked_flags if desired.flags is None else desired.flags
    recurs = next((flag for flag in _PERIODS if flag in flags), "") if _PERIODS.keys() & set(live.flags) else ""
    if not recurs:
        floats = "TIME_FLOAT" in live.flags
        start = desired.start if isinstance(desired.start, int) and not floats else live.start
        return start, desired.end if desired.end is not None else start + 60 * desired.minutes if desired.minutes is not None else live.end
    start, period = _start_of(recurs, live.start, desired.start), _PERIODS[recurs][0]
    if desired.minutes is not None:
        return start, start + 60 * desired.minutes
    if desired.end is None:
        return start, start + live.end - live.start
    return start, start + (desired.end - desired.start if isinstance(desired.start, int) else (desired.end - start) % period or period)


def _start_of(recurs: str, live: int, desired: int | str | None) -> int:
    period, days = _PERIODS[recurs]
    if not isinstance(desired, int) or (desired - live) % period == 0:
        return live
    found = max(desired, desired + -((desired - live) // period) * period)
    while datetime.fromtimestamp(found, UTC).weekday() not in days:
        found += _DAY
    return found


def _creation(desired: Wanted) -> list[str]:
    if desired.start is None or (desired.end is None and desired.minutes is None):
        raise CorralError(f"There is no reservation {desired.name} yet; to create it, give its start, and its end or duration.")
    if desired.nodes is None and desired.node_count is None:
        raise CorralError(f"There is no reservation {desired.name} yet; to create it, give its nodes or node_count.")
    if not desired.users and not desired.accounts:
        raise CorralError(
            f"There is no reservation {desired.name} yet; to create it, give the users or accounts that may use it (root alone keeps all others out)."
        )
    arguments = [f"reservationname={desired.name}", f"starttime={_for_scontrol(desired.start)}"]
    arguments.append(f"endtime=uts{desired.end}" if desired.end is not None else f"duration={desired.minutes}")
    pairs = (
        ("nodes", desired.nodes),
        ("nodecnt", desired.node_count),
        ("partitionname", desired.partition),
        ("features", desired.features),
        ("users", ",".join(desired.users or ())),
        ("accounts", ",".join(desired.accounts or ())),
        ("flags", ",".join(sorted(desired.flags or ()))),
    )
    return [*arguments, *(f"{key}={text}" for key, text in pairs if text not in (None, ""))]


def _asked(desired: Wanted) -> dict[str, Any]:
    """Return what is asked for, for the diff of a new reservation."""
    shown: dict[str, Any] = {
        "nodes": desired.nodes,
        "node_count": desired.node_count,
        "users": desired.users,
        "accounts": desired.accounts,
        "start": output.stamp(desired.start) if isinstance(desired.start, int) else desired.start,
        "end": output.stamp(desired.end) if desired.end is not None else None,
        "duration": f"{desired.minutes} min" if desired.minutes is not None else None,
        "flags": sorted(desired.flags) if desired.flags is not None else None,
        "partition": desired.partition,
        "features": desired.features,
    }
    return {key: value for key, value in shown.items() if value is not None}


def _for_scontrol(start: int | str) -> str:
    return f"uts{start}" if isinstance(start, int) else start


def _start(value: Any) -> int | str | None:
    if value is None:
        return None
    text = str(value).strip()
    return text.lower() if _RELATIVE.fullmatch(text) else _time(text, "start")


def _time(text: str, what: str) -> int:
    """Return seconds since 1970 of ISO 8601; UTC where no offset is written."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise CorralError(
            f"The {what} {text!r} is no time; write it like 2026-01-31T08:00:00Z" + (" or now+2hours." if what == "start" else ".")
        ) from error
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


def _minutes(text: str) -> int:
    """Return minutes of Slurm's durations: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes[:seconds], UNLIMITED."""
    text = text.strip()
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return _UNLIMITED
    match = _DURATION.fullmatch(text)
    if not match:
        raise CorralError(
            f"The duration {text!r} is none that Slurm knows; write minutes, hours:minutes:seconds or days-hours:minutes:seconds."
        )
    first, second, third = (int(match[name] or 0) for name in ("first", "second", "third"))
    if match["days"] is not None:
        seconds = int(match["days"]) * 86400 + first * 3600 + second * 60 + third
    elif match["third"] is not None:
        seconds = first * 3600 + second * 60 + third
    else:
        seconds = first * 60 + second
    if seconds < 60:
        raise CorralError(f"The duration {text!r} is shorter than a minute, which is the least for a reservation.")
    return seconds // 60


def _names(value: Any, what: str) -> list[str] | None:
    if value is None:
        return None
    for name in value:
        if not re.fullmatch(r"[^\s,=]+", str(name)):
            raise CorralError(f"The {what} {name!r} is no name; it has white space, a comma or an equals sign in it, or nothing at all.")
    return [str(name) for name in value]


def _flag(text: str) -> str:
    flag = text.strip().upper()
    if not _FLAG.fullmatch(flag):
        raise CorralError(f"The flag {text!r} is not a flag that Slurm could know; flags are names such as MAINT and IGNORE_JOBS.")
    return next((shown for flag_name, least, shown in _FLAGS if len(flag) >= least and flag_name.startswith(flag)), flag)
