# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, the corral authors
"""Checks whose command says it all: the entry of the jail, munge, and the site's own."""

from __future__ import annotations

from collections.abc import Callable

from corral_health.checks import Broken, Facts, Output, Result, failed, ok, skipped

# jail-exec's status when the jail could not be entered; anything else, such as a signal, is no result about the jail.
_NOT_ENTERED = 125
# Of a site's own check, as Nagios has them.
_WARNING, _CRITICAL = 1, 2


def jail(facts: Facts) -> Result:
    """A step can enter the jail, and users can write there."""
    output = facts.output("jail-exec")
    said = _line(output.stderr + output.stdout).removeprefix("jail-exec: ")
    if output.status == _NOT_ENTERED:
        return failed(said)
    if output.status:
        raise Broken(f"jail-exec ended with status {output.status}{f': {said}' if said else ''}")
    return ok()


def munge(facts: Facts) -> Result:
    """munged makes credentials, unless Slurm authenticates by itself (spec.slurm.auth)."""
    if (facts.root / "run/sack").is_dir():
        return skipped("Slurm authenticates without munge")
    output = facts.outputs["munge"]
    if output.problem.endswith("is not there"):
        return skipped("munge is not installed")
    if output.problem or output.status:
        # A munged that hangs is one that does not work.
        return failed(output.problem or _line(output.stderr + output.stdout) or f"munge ended with status {output.status}")
    return ok()


def own(name: str) -> Callable[[Facts], Result]:
    """Return the function of a site's own check.

    A shell or an interpreter that fails ends with 1 or 2, too, and prints on stderr. So a finding is a status with a line on stdout.
    """

    def check(facts: Facts) -> Result:
        output: Output = facts.output(f"own {name}")
        said = _line(output.stdout)
        if output.status == 0:
            return ok(said)
        if output.status in (_WARNING, _CRITICAL) and said:
            return failed(said, warning=output.status == _WARNING)
        why = _line(output.stderr) or said
        raise Broken(f"it ended with status {output.status}{f': {why}' if why else ' and printed nothing'}")

    return check


def _line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
