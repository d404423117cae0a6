# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""What becomes of a node by the results of its checks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from corral_health.checks import BROKEN, FAILED, SKIPPED, Check, Result
from corral_health.scheduler import BATCH_FAILURE, Fleet, Node

# Slurm keeps more, but sinfo -R and people do not.
_REASON_LENGTH = 240
COMMENT = "corral: health:"


def failing(check: Check, result: Result, last: Sequence[int]) -> tuple[bool, list[int]]:
    """Return whether a check counts as failed, and its last results: 1 for a failure. A result that says nothing changes nothing."""
    if result.status in (BROKEN, SKIPPED):
        kept = list(last) if result.status == BROKEN else []
    else:
        kept = [*last, int(result.status == FAILED and not result.warning)][-check.window :]
    return sum(kept) >= check.failures, kept


@dataclass
class Plan:
    """What to do: at most one change of the node, ``state`` with its ``reason``; reservations to ``hold`` all jobs; and those that this node does not need,
    with the prefix of the reasons of nodes that do. ``guarded`` are the checks that take no more nodes out. ``unfit`` is why no job should begin on the node,
    whoever has drained it; "" where one may."""

    state: str = ""
    reason: str = ""
    unfit: str = ""
    hold: list[str] = field(default_factory=list)
    release: dict[str, str] = field(default_factory=dict)
    guarded: list[str] = field(default_factory=list)


def reason(check: Check, detail: str, more: int) -> str:
    """Return the reason of a drain by this check, with how many others fail."""
    return reason_text(check.prefix, detail, more)


def reason_text(prefix: str, detail: str, more: int = 0) -> str:
    """Return a reason that Slurm can keep and people can read."""
    others = f" (and {more} more)" if more else ""
    return _line(f"{prefix} {detail}")[: _REASON_LENGTH - len(others)] + others


def _line(text: str) -> str:
    """Return a text of tools as one line that a terminal shows as it is."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


def plan(
    node: Node, checks: Sequence[Check], failures: Mapping[str, str], unknown: frozenset[str], fleet: Callable[[], Fleet], percent: int
) -> Plan:
    """Decide by the checks that drain and fail: ``failures`` are their details by name, ``unknown`` the names of those that could not tell.

    When one check has taken a share of the nodes out, it is not the nodes, or nobody can work: the next ones are spared. ``fleet`` is called only where
    that is to be known. Of nodes that checked at the same time, and did not see each other, the first by name stay out.
    """
    found = Plan()
    standing = next((check for check in checks if node.drained and node.reason.startswith(check.prefix)), None)
    # With the prefix of a check that is switched off, or was of another release, too: it takes nothing out.
    ours = standing is not None or (node.drained and node.reason.startswith(COMMENT))
    chosen = None
    for check in checks:
        if check.name not in failures:
            continue
        out, most = fleet().out(check.prefix, node.name), fleet().most(percent)
        if check.reservation and len(out) >= most:
            found.hold.append(check.reservation)
        if sum(name < node.name for name in out) >= most if check is standing else len(out) >= most:
            found.guarded.append(check.name)
        else:
            chosen = chosen or check
    if chosen is not None:
        found.unfit = reason(chosen, failures[chosen.name], len(failures) - 1)
        free = not node.drained and not node.taken
        # Slurm's own reason, which a node has whose batch job could not enter.
        slurms = node.reason.startswith(BATCH_FAILURE) and chosen.owner == "jail"
        if chosen is not standing and (free or ours or (node.drained and slurms)):
            found.state, found.reason = "drain", found.unfit
    elif standing is not None:
        # A check that could not tell leaves its node as it is.
        found.state = "" if standing.name in unknown else "resume"
    elif ours or (node.drained and not failures and node.left_over):
        found.state = "resume"
    if "MAINT" in node.state:  # as each node that a reservation with that flag holds
        found.release = {
            check.reservation: check.prefix for check in checks if check.reservation and check.name not in {*failures, *unknown}
        }
    return found


def comment(checks: Sequence[Check], results: Mapping[str, Result], failures: Mapping[str, str], guarded: Sequence[str]) -> str:
    """Return what the node's comment says of failures, "" for none. Checks that are broken by one cause share a sentence."""
    parts = []
    broken: dict[str, list[str]] = {}
    for check in checks:
        result = results.get(check.name)
        if check.name in failures and check.on_failure != "log":
            spared = " (not drained: too many nodes are out by the same check)" if check.name in guarded else ""
            parts.append(f"{check.name}: {failures[check.name]}{spared}")
        elif result and result.status == FAILED and result.warning and check.on_failure != "log":
            parts.append(f"{check.name}: {result.detail}")
        if result and result.status == BROKEN:
            broken.setdefault(result.detail, []).append(check.name)
    parts += [f"no result of {', '.join(names)}: {detail}" for detail, names in broken.items()]
    return _line(f"{COMMENT} {'; '.join(parts)}")[:1000] if parts else ""
