# Copyright: (c) 2026, the corral authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Slurm can follow on which: Slurm's compatibility window (its Upgrade Guide). Pure.

slurmctld, and the commands and slurmds that talk to it, may be two releases older than it, and three from 24.11 on. The state that a slurmctld has
written can be read by later releases within that window and by no earlier one, which would begin without its jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.corral.slurm.plugins.module_utils._slurm.output import OutputError

# Until 24.05 a release came every nine months; since then there is one each May and November.
_BEFORE = ((20, 11), (21, 8), (22, 5), (23, 2), (23, 11))
_HALF_YEARS, _WIDER = (24, 5), (24, 11)
_VERSION = re.compile(r"\b(\d\d)\.(\d\d)\.(\d+)")

Release = tuple[int, int]


def version(text: str, what: str) -> str:
    """Return the version in what ``slurmctld -V`` and the like print (``slurm-wlm 24.11.5``). Raises OutputError."""
    match = _VERSION.search(text)
    if not match:
        raise OutputError(f"{what} says {text.strip()[:80]!r} and not its version, such as slurm 24.11.5; is it Slurm's image?")
    return match[0]


def refusal(running: str, wanted: str, others: Iterable[str] = (), slurmdbd: str = "") -> str:
    """Explain why slurmctld of version ``wanted`` cannot follow on ``running``, with ``others`` (slurmds) that talk to it meanwhile; "" where it can.

    ``slurmdbd`` is the version of the one that runs, "" without one. It comes before slurmctld, so it may be newer after an upgrade that was interrupted.
    """
    new = _release(wanted)
    if slurmdbd and _number(new) < _number(_release(slurmdbd)):
        return (
            f"Slurm {wanted} is an older release than the slurmdbd that runs, {slurmdbd}, which has changed the database: an older one does not start with "
            f"it. Stay with {_name(_release(slurmdbd))}; the way back is a dump from before the upgrade (docs/accounting.md)."
        )
    steps = _number(new) - _number(_release(running))
    if steps < 0:
        return (
            f"Slurm {wanted} is an older release than {running}, which runs: it could not read the state of slurmctld, and would begin without its jobs. "
            f"Stay with {_name(_release(running))}; to go back all the same, empty the cluster and restore a copy of the state volume from before the upgrade."
        )
    window = 3 if new >= _WIDER else 2
    oldest = min((_release(one) for one in (running, *others)), default=new)
    if _number(new) - _number(oldest) <= window:
        return ""
    between = _name(_of(_number(oldest) + window))
    if oldest == _release(running):
        return (
            f"Slurm {wanted} can follow on the {window} releases before it, and {running} runs, which is older. Upgrade to {between} first."
        )
    return (
        f"Slurm {wanted} talks to nodes of the {window} releases before it, and some have {_name(oldest)} still. "
        "Let the roll-out of the upgrade before come to its end first: run corral.slurm.site with the document as it was."
    )


def without_auth(wanted: str, auth: str) -> str:
    """Explain why an image with Slurm ``wanted`` cannot have spec.slurm.auth as ``auth``; "" where it can. Several keys came with 24.05, sackd before."""
    if auth != "slurm" or _release(wanted) >= _HALF_YEARS:
        return ""
    return (
        f"spec.slurm.auth is slurm, and spec.images.slurm has Slurm {wanted}, whose auth/slurm knows no slurm.jwks: choose an image of Slurm "
        f"{_name(_HALF_YEARS)} or newer, or set spec.slurm.auth: munge."
    )


def _release(text: str) -> Release:
    match = _VERSION.search(text)
    if not match:
        raise OutputError(f"{text!r} is no version of Slurm such as 24.11.5.")
    return int(match[1]), int(match[2])


def _number(release: Release) -> int:
    """Return which release it is, in their order; one between two is as the one before."""
    if release < _HALF_YEARS:
        return sum(1 for one in _BEFORE if one <= release)
    return len(_BEFORE) + 1 + 2 * (release[0] - _HALF_YEARS[0]) + (release[1] >= _WIDER[1]) - (release[1] < _HALF_YEARS[1])


def _of(number: int) -> Release:
    if number <= len(_BEFORE):
        return _BEFORE[max(0, number - 1)]
    since = number - len(_BEFORE) - 1
    return _HALF_YEARS[0] + since // 2, (_HALF_YEARS[1], _WIDER[1])[since % 2]


def _name(release: Release) -> str:
    return f"{release[0]}.{release[1]:02d}"
